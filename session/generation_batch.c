/* generation_batch.c -- the next ids of several generations in one pass over the weights; and generations whose ids a
 * GPU picks (decoder/logits/picker.h): logits stay in its memory.
 *
 * One text runs ahead: while this process does what follows an id, the GPU computes the next position, which reads that
 * id from its own memory. So one pass is queued before its id is known here (`ahead`), and belongs to the text once it
 * is (`fed`: the pending id is already in the text). If that pass is not wanted, its logits are still those after the
 * text's last id, and only its pick is dropped. */
#include "base/memory.h"
#include "kernels/ops.h"
#include "session/generation_internal.h"
#include <assert.h>
#include <stdio.h>

enum status generation_picks_create(struct generation *g, const struct sampler_config *sampler) {
    struct engine *e = g->config.engine;
    const int vocab = e->model.config.vocab_size;
    g->now = 0, g->fed = g->alone = false;
    if (e->device->shares_memory || g->watch.rows) {
        picker_free(g->picker);
        g->picker = NULL;
        return STATUS_OK;
    }
    for (int i = 0; i < GENERATION_BUFFERS; i++)
        if (!g->logits_device[i]) TRY(device_allocate(e->device, &g->logits_device[i], (size_t)vocab));
    g->latest = g->logits_device[0];
    if (g->picker) return picker_configure(g->picker);
    return picker_create(&g->picker, e->device, g->sampler, sampler, vocab);
}

static struct pick_row generation_pick_row(struct generation *g, const float *logits) {
    struct pick_row row;
    picker_queue(g->picker, &row, logits, g->config.logprobs || g->config.top > 0, g->config.top);
    return row;
}

static void generation_queue_pick(void *context, struct device *dev) {
    struct generation *g = context;
    const struct pick_row row = generation_pick_row(g, g->latest);
    dev->ops->pick->rows(dev, &row, 1, g->config.engine->model.config.vocab_size);
}

enum status generation_pass_on_device(struct generation *g, const int32_t *ids, int64_t n, bool prompt, bool pick) {
    struct device *dev = g->config.engine->device;
    enum status status;
    if (g->memory) {
        status = memory_text_feed_on_device(g->memory, g->state, &g->latest, ids, n);
        if (status == STATUS_OK && pick) generation_queue_pick(g, dev);
    } else {
        struct pick_row row;
        g->latest = g->logits_device[g->now];
        if (pick) row = generation_pick_row(g, g->latest);
        const struct decoder_output out = {.logits_device = g->latest, .pick = pick ? &row : NULL};
        status = decoder_forward(g->state, &out, ids, n);
    }
    if (status == STATUS_OK && g->config.fed) status = g->config.fed(g->config.context, ids, n, prompt);
    if (status != STATUS_OK) g->broken = true;
    return status;
}

enum status generation_commit(struct generation *g) {
    const int32_t id = g->pending;
    if (!g->fed) return STATUS_OK;
    if (g->memory) memory_text_ahead_joins(g->memory);
    g->fed = false;
    g->pending = -1;
    g->has_logits = true;
    enum status status = g->config.fed ? g->config.fed(g->config.context, &id, 1, false) : STATUS_OK;
    if (status != STATUS_OK) g->broken = true;
    return status;
}

/* The buffer that the pass ahead writes: the pick before it may still be wanted with its logits. */
static float *generation_turn(struct generation *g) {
    g->now = (g->now + 1) % GENERATION_BUFFERS;
    g->before = g->latest;
    g->latest = g->logits_device[g->now];
    return g->latest;
}

bool generation_is_ahead(const struct generation *g) {
    return g->picker && (picker_queued(g->picker) > 1 || (g->memory && memory_text_ahead_waits(g->memory)));
}

/* A pass whose id nobody has taken: the text may continue in another way. */
void generation_undo_ahead(struct generation *g) {
    if (!generation_is_ahead(g)) return;
    if (g->memory) {
        memory_text_ahead_undo(g->memory, g->state);
        g->latest = g->before;
    } else {
        decoder_ahead_undo(g->state);
        (void)generation_turn(g);
    }
    picker_drop(g->picker);
    g->has_logits = true;
}

void generation_download(struct generation *g) {
    struct device *dev = g->config.engine->device;
    if (g->picker && g->has_logits)
        device_download(dev, g->logits, g->latest, (size_t)g->config.engine->model.config.vocab_size * sizeof(float));
}

void generation_upload(struct generation *g) {
    struct device *dev = g->config.engine->device;
    if (!g->picker) return;
    if (!g->memory) g->latest = g->logits_device[g->now];
    device_upload(dev, g->latest, g->logits, (size_t)g->config.engine->model.config.vocab_size * sizeof(float));
}

/* ---- ahead ---- */

static bool generation_may_run_ahead(const struct generation *g) {
    return picker_queued(g->picker) == 1 && g->generated + 1 != g->config.max_tokens;
}

/* Queues the pass of the id that the queued pick gives; or, if a search comes before that pass, prepares the search. */
static enum status generation_run_ahead_with_memory(struct generation *g) {
    const int32_t *id = picker_id(g->picker);
    if (!memory_text_ahead_takes(g->memory, g->state)) return memory_text_prepare(g->memory);
    g->before = g->latest;
    return memory_text_ahead(g->memory, g->state, &g->latest, id, generation_queue_pick, g);
}

static enum status generation_run_ahead(struct generation *g) {
    if (!g->alone || !generation_may_run_ahead(g)) return STATUS_OK;
    if (g->memory) return generation_run_ahead_with_memory(g);
    if (!decoder_ahead_takes(g->state, true)) return STATUS_OK;
    const int32_t *id = picker_id(g->picker);
    float *logits = generation_turn(g);
    const struct pick_row row = generation_pick_row(g, logits);
    const struct decoder_output out = {.logits_device = logits, .pick = &row};
    return decoder_ahead_step(g->state, &out, id);
}

/* Makes one pick queued, of the id that follows the text. */
static enum status generation_begin_pick(struct generation *g) {
    TRY(generation_commit(g));
    TRY(generation_feed_rest(g));
    if (picker_queued(g->picker) > 0) return STATUS_OK;
    g->alone = g->pending >= 0;
    if (g->pending >= 0) {
        TRY(generation_pass_on_device(g, &g->pending, 1, false, true));
        g->pending = -1;
        g->has_logits = true;
    } else if (g->has_logits) {
        TRY(generation_search_again(g));
        generation_queue_pick(g, g->config.engine->device);
    } else {
        return fail(STATUS_INVALID, "the text is empty: feed its beginning");
    }
    return STATUS_OK;
}

/* Log-probabilities of a pick; this process computes those of rare logits. */
static void generation_take_scores(struct generation *g, struct generation_token *out, const struct pick_result *r,
                                   const float *logits) {
    if (!g->config.logprobs && g->config.top == 0) return;
    if (r->n_best < 0) {
        const int64_t vocab = g->config.engine->model.config.vocab_size;
        device_download(g->config.engine->device, g->logits, logits, (size_t)vocab * sizeof *logits);
        generation_token_scores(g, out);
        return;
    }
    if (g->config.logprobs) out->logprob = r->logprob;
    for (int i = 0; i < r->n_best; i++)
        g->alternatives[i] = (struct generation_alternative){.id = r->best[i].id, .logprob = r->best[i].logprob};
    out->n_alternatives = r->n_best;
}

static enum status generation_queue(struct generation *g) {
    TRY(generation_begin_pick(g));
    enum status status = generation_run_ahead(g);
    if (status != STATUS_OK) g->broken = true;
    return status;
}

enum status generation_take(struct generation *g, struct generation_token *out) {
    const struct pick_result *r;
    TRY(generation_queue(g));
    const bool ahead = generation_is_ahead(g);
    const float *logits = ahead ? g->before : g->latest;
    *out = (struct generation_token){.position = generation_tokens(g), .alternatives = g->alternatives};
    enum status status = picker_wait(g->picker, &r);
    if (status != STATUS_OK) {
        g->broken = true;
        return status;
    }
    out->id = r->id;
    generation_take_scores(g, out, r, logits);
    sampler_picked(g->sampler, r->id);
    if (ahead && g->memory)
        status = memory_text_ahead_known(g->memory, g->state, r->id);
    else if (ahead)
        decoder_ahead_known(g->state, r->id);
    g->fed = ahead;
    if (status != STATUS_OK) g->broken = true;
    return status;
}

/* ---- batches ---- */

/* Whether the generation's next id is one of the logits that a prompt left on the device. */
static bool generation_batch_begins(const struct generation *g) {
    return g->picker && !g->fed && g->pending < 0 && (g->has_logits || picker_queued(g->picker) > 0);
}

/* Whether the generation has an id to feed that may be fed in company, or a first id to pick in company. A token memory
 * on a GPU reads what the kernel of one text leaves there. */
static bool generation_batch_takes(const struct generation *g) {
    if (g->broken || g->ended) return false;
    if (g->memory && !g->config.engine->device->shares_memory) return false;
    if (g->fed) return true;
    if (generation_later(g) > 0) return decoder_batch_takes(g->state);
    return generation_batch_begins(g) || (g->pending >= 0 && decoder_batch_takes(g->state));
}

/* The failure of one generation is its own: generation_next reports it. */
static bool generation_batch_fail(struct generation *g, enum status status) {
    g->broken = true;
    g->failed = status;
    snprintf(g->failure, sizeof g->failure, "%s", status_message());
    return false;
}

/* What follows the pass of one generation, which fed `id` if it now has more than `tokens`. */
static bool generation_batch_fed(struct generation *g, enum status status, int32_t id, int64_t tokens) {
    if (decoder_state_spent(g->state)) return generation_batch_fail(g, status);
    if (decoder_state_tokens(g->state) == tokens) return false;
    g->pending = -1;
    g->has_logits = true;
    status = g->memory ? memory_text_end(g->memory, g->state, g->logits) : STATUS_OK;
    if (status == STATUS_OK && g->config.fed) status = g->config.fed(g->config.context, &id, 1, false);
    return status == STATUS_OK ? true : generation_batch_fail(g, status);
}

static enum status generation_batch_part(struct generation *const *gs, int n, int *computed) {
    struct decoder_state *states[DECODER_BATCH_MAX] = {0};
    float *logits[DECODER_BATCH_MAX] = {0};
    int32_t ids[DECODER_BATCH_MAX] = {0};
    int64_t tokens[DECODER_BATCH_MAX];
    struct decoder_batch_keys keys[DECODER_BATCH_MAX] = {0};
    bool spent = false, memory = false;
    assert(n >= 1 && n <= DECODER_BATCH_MAX);
    for (int i = 0; i < n; i++) {
        states[i] = gs[i]->state, logits[i] = gs[i]->logits, ids[i] = gs[i]->pending;
        tokens[i] = decoder_state_tokens(states[i]);
        if (!gs[i]->memory) continue;
        memory = true;
        TRY(memory_text_begin(gs[i]->memory, &keys[i], &logits[i], ids[i]));
    }
    enum status status = decoder_batch_forward_keys(states, logits, ids, memory ? keys : NULL, n);
    for (int i = 0; i < n; i++)
        spent = spent || decoder_state_spent(states[i]);
    if (status != STATUS_OK && !spent) return status;
    for (int i = 0; i < n; i++)
        *computed += generation_batch_fed(gs[i], status, ids[i], tokens[i]);
    return STATUS_OK;
}

/* ---- batches whose ids the device picks ---- */

struct generation_round {
    struct generation *g[DECODER_BATCH_MAX];
    int n;
};

/* One pick of each, in one op. */
static void generation_round_picks(void *context, struct device *dev) {
    const struct generation_round *round = context;
    struct pick_row rows[DECODER_BATCH_MAX];
    int n = 0;
    for (int i = 0; i < round->n; i++)
        if (!decoder_state_spent(round->g[i]->state) && generation_later(round->g[i]) <= 1)
            rows[n++] = generation_pick_row(round->g[i], round->g[i]->latest);
    if (n > 0) dev->ops->pick->rows(dev, rows, n, round->g[0]->config.engine->model.config.vocab_size);
}

/* The id that the next pass feeds. */
static struct decode_step_id generation_round_id(const struct generation *g, bool ahead) {
    if (generation_later(g) > 0) return (struct decode_step_id){.id = g->later[g->later_at]};
    return ahead ? (struct decode_step_id){.picked = picker_id(g->picker)} : (struct decode_step_id){.id = g->pending};
}

/* A pass over the round's texts; ahead: of ids that their queued picks give. */
static enum status generation_round_pass(struct generation_round *round, bool ahead) {
    struct decoder_state *states[DECODER_BATCH_MAX];
    float *logits[DECODER_BATCH_MAX];
    struct decode_step_id ids[DECODER_BATCH_MAX];
    for (int i = 0; i < round->n; i++) {
        struct generation *g = round->g[i];
        states[i] = g->state;
        ids[i] = generation_round_id(g, ahead);
        logits[i] = generation_turn(g);
    }
    const struct decoder_ahead_batch batch = {.states = states,
                                              .logits = logits,
                                              .ids = ids,
                                              .n = round->n,
                                              .then = generation_round_picks,
                                              .context = round};
    return decoder_ahead_forward(&batch);
}

/* What follows the pass ahead of one generation that had `tokens`: where it was not queued, the buffers are as before.
 * Counts an id that was left for later. */
static void generation_round_end(struct generation *g, int64_t tokens, int *computed) {
    if (decoder_state_tokens(g->state) == tokens) {
        (void)generation_turn(g);
        return;
    }
    if (generation_later(g) == 0) return;
    const int32_t id = g->later[g->later_at++];
    g->has_logits = generation_later(g) == 0;
    ++*computed;
    const enum status status = g->config.fed ? g->config.fed(g->config.context, &id, 1, true) : STATUS_OK;
    if (status != STATUS_OK) (void)generation_batch_fail(g, status);
}

/* Feeds the pending ids of the round. */
static enum status generation_round_feed(struct generation_round *round, int *computed) {
    int64_t tokens[DECODER_BATCH_MAX];
    bool spent = false;
    for (int i = 0; i < round->n; i++)
        tokens[i] = decoder_state_tokens(round->g[i]->state);
    enum status status = generation_round_pass(round, false);
    for (int i = 0; i < round->n; i++)
        spent = spent || decoder_state_spent(round->g[i]->state);
    if (status != STATUS_OK && !spent) return status;
    for (int i = 0; i < round->n; i++)
        *computed += generation_batch_fed(round->g[i], status, round->g[i]->pending, tokens[i]);
    return STATUS_OK;
}

/* Waits for all but the last of the passes that are queued: for those before the mark of the call before this one. */
static void generation_pace(struct device *dev, struct generation *g) {
    device_fetch_wait(dev);
    device_fetch(dev, g->logits, g->logits, sizeof *g->logits); /* copies nothing: a mark */
}

/* Queues the next pass for all of the round that continue. A retrieval that is due comes first: the GPU then computes
 * the next pass while this process writes the texts of this one. */
static enum status generation_round_ahead(struct generation *const *gs, int n, int *computed) {
    struct generation_round round = {.n = 0};
    int64_t tokens[DECODER_BATCH_MAX];
    bool paced = false;
    for (int i = 0; i < n; i++) {
        const bool later = generation_later(gs[i]) > 0;
        if (gs[i]->broken || (!later && picker_queued(gs[i]->picker) != 1)) continue;
        if (!later && !generation_may_run_ahead(gs[i])) continue;
        const enum status settled = decoder_ahead_settle(gs[i]->state);
        if (settled != STATUS_OK) {
            (void)generation_batch_fail(gs[i], settled);
            continue;
        }
        if (later && !decoder_batch_takes(gs[i]->state)) continue;
        if (!later && !decoder_ahead_takes(gs[i]->state, false)) return STATUS_OK;
        paced = paced || !later;
        tokens[round.n] = decoder_state_tokens(gs[i]->state);
        round.g[round.n++] = gs[i];
    }
    if (round.n == 0) return STATUS_OK;
    /* The caller has waited for the pick before a text's last one, so few passes are queued. Nothing waits for passes
     * that only read prompts. */
    if (!paced) generation_pace(gs[0]->config.engine->device, gs[0]);
    enum status status = generation_round_pass(&round, true);
    for (int i = 0; i < round.n; i++)
        generation_round_end(round.g[i], tokens[i], computed);
    return status;
}

/* First ids are picked in one op, so that their passes join the pass ahead: no pass waits for them. */
static void generation_batch_begin(struct generation *const *gs, int n) {
    struct pick_row rows[DECODER_BATCH_MAX];
    const struct engine *e = gs[0]->config.engine;
    int picks = 0;
    for (int i = 0; i < n; i++)
        if (generation_batch_begins(gs[i]) && picker_queued(gs[i]->picker) == 0)
            rows[picks++] = generation_pick_row(gs[i], gs[i]->latest);
    if (picks > 0) e->device->ops->pick->rows(e->device, rows, picks, e->model.config.vocab_size);
}

static enum status generation_batch_on_device(struct generation *const *gs, int n, int *computed) {
    struct generation_round round = {.n = 0};
    generation_batch_begin(gs, n);
    for (int i = 0; i < n; i++) {
        gs[i]->alone = false;
        if (generation_batch_begins(gs[i]) || generation_later(gs[i]) > 0) continue;
        if (!gs[i]->fed) {
            round.g[round.n++] = gs[i];
            continue;
        }
        const enum status status = generation_commit(gs[i]);
        if (status == STATUS_OK)
            ++*computed;
        else
            (void)generation_batch_fail(gs[i], status);
    }
    if (round.n > 0) TRY(generation_round_feed(&round, computed));
    return generation_round_ahead(gs, n, computed);
}

/* Those that it takes, where the device picks or where this process does, as many at a time as a pass has. */
static enum status generation_batch_kind(struct generation *const *gs, int n, int *computed, bool on_device) {
    struct generation *part[DECODER_BATCH_MAX];
    int at = 0;
    for (int i = 0; i < n; i++) {
        assert(gs[i]->config.engine->decoder == gs[0]->config.engine->decoder);
        if (!gs[i]->picker == !on_device && generation_batch_takes(gs[i])) part[at++] = gs[i];
        if (at == 0 || (at < DECODER_BATCH_MAX && i + 1 < n)) continue;
        TRY((on_device ? generation_batch_on_device : generation_batch_part)(part, at, computed));
        at = 0;
    }
    return STATUS_OK;
}

enum status generation_batch(struct generation *const *gs, int n, int *computed) {
    *computed = 0;
    TRY(generation_batch_kind(gs, n, computed, false));
    return generation_batch_kind(gs, n, computed, true);
}

bool generation_has_next(const struct generation *g) {
    if (g->pending >= 0 || g->memory || g->broken) return false;
    return g->picker ? picker_queued(g->picker) > 0 : g->has_logits;
}
