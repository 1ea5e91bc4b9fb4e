/* generation.c -- see generation.h. An id that was generated joins the text when the next one is wanted, so that the
 * last id of a text costs no pass. */
#include "base/memory.h"
#include "base/top_list.h"
#include "session/generation_internal.h"
#include <assert.h>
#include <math.h>
#include <string.h>

enum { PROGRESS_FROM = 16 }; /* texts of fewer passes are read without progress */

/* ---- set-up ---------------------------------------------------------------------------------------------- */

static enum status generation_find_unspoken(struct generation *g) {
    const struct engine *e = g->config.engine;
    const struct model_config *model = &e->model.config;
    const int32_t marks[] = {model->landmark_id, model->pad_id, model->mask_id};
    TRY(memory_allocate(&g->unspoken, (size_t)model->vocab_size));
    for (int32_t id = 0; id < model->vocab_size; id++) {
        bool unspoken = !tokenizer_token(e->model.tokenizer, id);
        for (size_t i = 0; i < ARRAY_LEN(marks); i++)
            if (id == marks[i] && id != model->eos_id) unspoken = true;
        if (unspoken) g->unspoken[g->n_unspoken++] = id;
    }
    return STATUS_OK;
}

static enum status generation_sampler(struct generation *g, uint64_t seed) {
    const struct model_config *model = &g->config.engine->model.config;
    struct sampler_config sampler = g->config.sampler;
    sampler.banned = g->unspoken;
    sampler.n_banned = g->n_unspoken;
    sampler.seed = seed;
    if (g->sampler)
        TRY(sampler_configure(g->sampler, &sampler));
    else
        TRY(sampler_create(&g->sampler, &sampler, model->vocab_size));
    return generation_picks_create(g, &sampler);
}

/* What belongs to one text, in the memory of the text before it. */
static enum status generation_begin(struct generation *g, uint64_t seed) {
    memory_text_free(g->memory);
    g->memory = NULL;
    TRY(generation_sampler(g, seed));
    if (g->config.memory) TRY(memory_text_create(&g->memory, &g->memory_config));
    TRY(decoder_state_renew(&g->state, g->config.engine->decoder, g->retriever));
    if (g->config.watch) decoder_state_watch(g->state, &g->watch);
    stop_text_reset(g->stop);
    g->has_logits = g->broken = g->ended = g->speaking = false;
    g->failure[0] = '\0';
    g->pending = -1;
    g->generated = g->later_at = g->later_end = 0;
    g->search = GENERATION_SEARCHED;
    g->marked = false;
    return STATUS_OK;
}

static enum status generation_prepare(struct generation *g) {
    struct engine *e = g->config.engine;
    TRY(tokenizer_scratch_create(&g->scratch, e->model.tokenizer));
    TRY(generation_find_unspoken(g));
    TRY(logit_scan_create(&g->scan, e->model.config.vocab_size));
    return device_allocate_host(e->device, &g->logits, (size_t)e->model.config.vocab_size);
}

/* What the configuration names. */
static enum status generation_configure(struct generation *g, const struct generation_config *config) {
    g->config = *config;
    if (config->memory) g->memory_config = *config->memory;
    g->watch = config->watch ? *config->watch : (struct decoder_watch){0};
    stop_text_free(g->stop);
    g->stop = NULL;
    TRY(stop_text_create(&g->stop, config->stops, config->n_stops));
    if (!g->retriever) TRY(engine_retriever(&g->retriever, config->engine, &config->retrieval));
    if (g->retriever) chunk_retriever_reset(g->retriever, config->exclude_document, 0);
    return generation_begin(g, config->sampler.seed);
}

enum status generation_create(struct generation **out, const struct generation_config *config) {
    struct generation *g = NULL;
    assert(config->top >= 0 && config->top <= GENERATION_TOP_MAX);
    TRY(memory_allocate_zero(&g, 1));
    g->config = *config;
    enum status status = generation_prepare(g);
    if (status == STATUS_OK) status = generation_configure(g, config);
    if (status != STATUS_OK) {
        generation_free(g);
        return status;
    }
    *out = g;
    return STATUS_OK;
}

void generation_free(struct generation *g) {
    if (!g) return;
    struct device *dev = g->config.engine->device;
    decoder_state_free(g->state);
    picker_free(g->picker);
    sampler_free(g->sampler);
    generation_rest(g);
    stop_text_free(g->stop);
    tokenizer_scratch_free(g->scratch);
    logit_scan_release(&g->scan);
    device_release_host(dev, g->logits);
    device_release_host(dev, g->rows);
    for (int i = 0; i < GENERATION_BUFFERS; i++)
        device_release(dev, g->logits_device[i]);
    memory_free(g->targets);
    memory_free(g->nll);
    memory_free(g->unspoken);
    memory_free(g->ids);
    memory_free(g->later);
    memory_free(g->marked_logits);
    memory_free(g);
}

void generation_rest(struct generation *g) {
    memory_text_free(g->memory);
    engine_retriever_free(g->retriever);
    g->memory = NULL;
    g->retriever = NULL;
    g->broken = true;
}

enum status generation_renew(struct generation *g, const struct generation_config *config) {
    assert(config->top >= 0 && config->top <= GENERATION_TOP_MAX);
    enum status status = generation_configure(g, config);
    if (status != STATUS_OK) g->broken = true;
    return status;
}

enum status generation_reset(struct generation *g, uint64_t seed) {
    if (g->retriever) chunk_retriever_reset(g->retriever, g->config.exclude_document, 0);
    enum status status = generation_begin(g, seed);
    if (status != STATUS_OK) g->broken = true;
    return status;
}

/* ---- logits ---------------------------------------------------------------------------------------------- */

double generation_normaliser(struct logit_scan *scan, const float *logits, float *top) {
    logit_scan_begin(scan, logits);
    logit_scan_tops(scan);
    *top = scan->top;
    return isfinite(scan->top) ? logit_scan_sum_exp(scan) : (double)NAN;
}

/* With -infinity among the best, which a scan leaves out. */
static void generation_rare_alternatives(struct generation_alternative *out, int n, const float *logits, int64_t vocab,
                                         double log_sum, float top) {
    int64_t id[GENERATION_TOP_MAX];
    float score[GENERATION_TOP_MAX];
    struct top_list list = {.id = id, .score = score, .k = n};
    top_list_clear(list);
    for (int64_t v = 0; v < vocab; v++)
        top_list_offer(list, logits[v], v);
    top_list_sort(list);
    for (int i = 0; i < n; i++)
        out[i] = (struct generation_alternative){
            .id = (int32_t)id[i], .logprob = id[i] < 0 ? -INFINITY : (float)((double)(score[i] - top) - log_sum)};
}

void generation_alternatives(struct generation_alternative *out, int n, struct logit_scan *scan, double log_sum) {
    if (n == 0) return;
    if (logit_scan_best(scan, n) < n) {
        generation_rare_alternatives(out, n, scan->logits, scan->n, log_sum, scan->top);
        return;
    }
    for (int i = 0; i < n; i++)
        out[i] = (struct generation_alternative){
            .id = logit_key_id(scan->keys[i]),
            .logprob = (float)((double)(logit_key_logit(scan->keys[i]) - scan->top) - log_sum)};
}

enum status generation_logprobs(struct generation *g, float *out) {
    const int64_t vocab = g->config.engine->model.config.vocab_size;
    TRY(generation_ready(g));
    generation_download(g);
    float top;
    const double log_sum = log(generation_normaliser(&g->scan, g->logits, &top));
    for (int64_t v = 0; v < vocab; v++)
        out[v] = (float)((double)(g->logits[v] - top) - log_sum);
    return STATUS_OK;
}

/* ---- feeding --------------------------------------------------------------------------------------------- */

enum status generation_pass(struct generation *g, const struct decoder_output *out, const int32_t *ids, int64_t n,
                            bool prompt) {
    enum status status =
        g->memory ? memory_text_feed(g->memory, g->state, out->logits, ids, n) : decoder_forward(g->state, out, ids, n);
    if (status == STATUS_OK && g->config.fed) status = g->config.fed(g->config.context, ids, n, prompt);
    if (status != STATUS_OK) g->broken = true;
    return status;
}

static enum status generation_check(const struct generation *g) {
    if (!g->broken) return STATUS_OK;
    if (g->failure[0]) return fail(g->failed, "%s", g->failure);
    return fail(STATUS_INVALID, "an earlier call on this text failed: reset it");
}

int64_t generation_later(const struct generation *g) {
    return g->later_end - g->later_at;
}

enum status generation_feed_rest(struct generation *g) {
    const int64_t n = generation_later(g);
    if (n == 0) return STATUS_OK;
    const int32_t *ids = g->later + g->later_at;
    g->later_at = g->later_end;
    g->has_logits = true;
    return generation_feed_plain(g, ids, n);
}

static enum status generation_feed_pending(struct generation *g) {
    TRY(generation_commit(g));
    generation_undo_ahead(g);
    TRY(generation_feed_rest(g));
    if (g->pending < 0) return STATUS_OK;
    const struct decoder_output out = {.logits = g->logits};
    if (g->picker)
        TRY(generation_pass_on_device(g, &g->pending, 1, false, false));
    else
        TRY(generation_pass(g, &out, &g->pending, 1, false));
    g->pending = -1;
    g->has_logits = true;
    return STATUS_OK;
}

enum status generation_search_again(struct generation *g) {
    float *logits = g->picker ? NULL : g->logits;
    const enum generation_search due = g->search;
    g->search = GENERATION_SEARCHED;
    if (due == GENERATION_SEARCHED || !g->memory) return STATUS_OK;
    const enum status status = memory_text_search_again(g->memory, &logits);
    if (g->picker && logits) g->latest = logits;
    if (status != STATUS_OK) g->broken = true;
    return status;
}

enum status generation_ready(struct generation *g) {
    TRY(generation_check(g));
    TRY(generation_feed_pending(g));
    if (!g->has_logits) return fail(STATUS_INVALID, "the text is empty: feed its beginning");
    return generation_search_again(g);
}

enum status generation_feed_plain(struct generation *g, const int32_t *ids, int64_t n) {
    const int64_t pass = engine_pass(g->config.engine);
    for (int64_t at = 0; at < n; at += pass) {
        int64_t now = n - at < pass ? n - at : pass;
        if (progress_stop_requested(g->config.progress)) {
            g->broken = true;
            return fail(STATUS_INTERRUPTED, "stopped while reading the prompt");
        }
        const struct decoder_output out = {.logits = at + now == n && !g->picker ? g->logits : NULL};
        if (g->picker && at + now == n)
            TRY(generation_pass_on_device(g, ids + at, now, true, false));
        else
            TRY(generation_pass(g, &out, ids + at, now, true));
        if (n >= PROGRESS_FROM * pass) progress_step(g->config.progress, "read the prompt", "tokens", at + now, n);
    }
    /* a single id may be one that the caller picked from generation_logprobs */
    if (n > 1) g->search = GENERATION_SEARCH_ANY;
    return STATUS_OK;
}

/* What precedes the passes of ids that are fed. */
static enum status generation_feed_begin(struct generation *g, const int32_t *ids, int64_t n) {
    TRY(generation_check(g));
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= g->config.engine->model.config.vocab_size)
            return fail(STATUS_INVALID, "id %d at position %lld is not below the model's vocab_size, %d", (int)ids[i],
                        (long long)i, g->config.engine->model.config.vocab_size);
    TRY(generation_feed_pending(g));
    if (g->picker) picker_see(g->picker, ids, n);
    sampler_see(g->sampler, ids, n);
    return STATUS_OK;
}

static void generation_feed_end(struct generation *g, const int32_t *ids, int64_t n) {
    const struct tokenizer *tokenizer = g->config.engine->model.tokenizer;
    g->ended = false;
    g->generated = 0;
    for (int64_t i = 0; i < n && !g->speaking; i++)
        g->speaking = !tokenizer_is_special(tokenizer, ids[i]);
    /* The text continues: a decoder that drops the space before a text's first word has had that word. */
    tokenizer_stream_start(&g->stream, true);
    g->stream.started = g->speaking;
    stop_text_reset(g->stop);
}

static enum status generation_mark(struct generation *g) {
    const size_t vocab = (size_t)g->config.engine->model.config.vocab_size;
    g->marked = false;
    if (!g->config.rewind || g->picker || !decoder_state_mark(g->state)) return STATUS_OK;
    if (!g->marked_logits) TRY(memory_allocate(&g->marked_logits, vocab));
    memcpy(g->marked_logits, g->logits, vocab * sizeof *g->logits);
    TRY(sampler_mark(g->sampler));
    if (g->memory) TRY(memory_text_mark(g->memory));
    g->marked_speaking = g->speaking;
    g->marked_search = g->search;
    g->marked_tokens = generation_tokens(g);
    g->marked = true;
    return STATUS_OK;
}

enum status generation_feed(struct generation *g, const int32_t *ids, int64_t n,
                            const struct generation_scores *scores) {
    TRY(generation_feed_begin(g, ids, n));
    if (n > 0) TRY(scores ? generation_feed_scored(g, ids, n, scores) : generation_feed_plain(g, ids, n));
    g->has_logits = g->has_logits || n > 0;
    generation_feed_end(g, ids, n);
    return n > 0 ? generation_mark(g) : STATUS_OK;
}

enum status generation_rewind(struct generation *g, uint64_t seed) {
    const struct model_config *model = &g->config.engine->model.config;
    TRY(generation_check(g));
    const bool near = decoder_state_tokens(g->state) - g->marked_tokens <= engine_pass(g->config.engine);
    if (!g->marked || !near || !decoder_state_rewind(g->state))
        return fail(STATUS_UNSUPPORTED,
                    "the text cannot go back to the end of its prompt: reset it, and feed it again");
    sampler_rewind(g->sampler, seed);
    g->pending = -1;
    g->has_logits = true;
    memcpy(g->logits, g->marked_logits, (size_t)model->vocab_size * sizeof *g->logits);
    g->speaking = g->marked_speaking;
    generation_feed_end(g, NULL, 0);
    g->search = g->marked_search;
    enum status status = g->memory ? memory_text_rewind(g->memory, g->logits) : STATUS_OK;
    if (status != STATUS_OK) g->broken = true;
    return status;
}

enum status generation_feed_later(struct generation *g, const int32_t *ids, int64_t n) {
    if (!g->picker || g->memory || n == 0) return generation_feed(g, ids, n, NULL);
    TRY(generation_feed_begin(g, ids, n));
    TRY(memory_grow(&g->later, &g->later_capacity, (size_t)n));
    memcpy(g->later, ids, (size_t)n * sizeof *ids);
    g->later_at = 0;
    g->later_end = n;
    g->has_logits = false;
    generation_feed_end(g, ids, n);
    return STATUS_OK;
}

enum status generation_encode(struct generation *g, const int32_t **ids, int64_t *n, const char *text, size_t bytes) {
    const struct engine *e = g->config.engine;
    const int32_t *found = NULL;
    size_t count = 0;
    TRY(tokenizer_encode(e->model.tokenizer, g->scratch, text, bytes, TOKENIZER_RECOGNISE, &found, &count));
    if (count == 0 && generation_tokens(g) == 0) {
        if (e->model.config.eos_id < 0)
            return fail(STATUS_INVALID,
                        "the prompt is empty, and the model has no eos_id to begin a document with: give a prompt");
        found = &e->model.config.eos_id;
        count = 1;
    }
    /* The scratch is used again by the decoding of what is generated. */
    TRY(memory_grow(&g->ids, &g->ids_capacity, count + 1));
    if (count) memcpy(g->ids, found, count * sizeof *found);
    *ids = g->ids;
    *n = (int64_t)count;
    return STATUS_OK;
}

/* ---- generating ------------------------------------------------------------------------------------------ */

static enum status generation_flush(struct generation *g) {
    const char *text = "";
    size_t bytes = 0;
    bool stopped = false;
    TRY(tokenizer_stream_flush(&g->stream, g->scratch, &text, &bytes));
    TRY(stop_text_put(g->stop, text, bytes, &stopped));
    stop_text_end(g->stop);
    return STATUS_OK;
}

static enum status generation_put(struct generation *g, struct generation_token *out) {
    const struct tokenizer *tokenizer = g->config.engine->model.tokenizer;
    const char *text = "";
    size_t bytes = 0;
    bool stopped = false;
    if (out->end != GENERATION_EOS) {
        g->speaking = true;
        TRY(tokenizer_stream_push(tokenizer, &g->stream, g->scratch, out->id, &text, &bytes));
        TRY(stop_text_put(g->stop, text, bytes, &stopped));
    }
    if (stopped) out->end = GENERATION_STOP;
    if (out->end == GENERATION_LENGTH || out->end == GENERATION_EOS) TRY(generation_flush(g));
    stop_text_take(g->stop, &out->text, &out->bytes);
    return STATUS_OK;
}

void generation_token_scores(struct generation *g, struct generation_token *out) {
    float top = 0;
    double log_sum = 0;
    if (g->config.logprobs || g->config.top > 0) log_sum = log(generation_normaliser(&g->scan, g->logits, &top));
    generation_alternatives(g->alternatives, g->config.top, &g->scan, log_sum);
    while (out->n_alternatives < g->config.top && g->alternatives[out->n_alternatives].id >= 0)
        out->n_alternatives++;
    if (g->config.logprobs) out->logprob = (float)((double)(g->logits[out->id] - top) - log_sum);
}

static enum status generation_pick(struct generation *g, struct generation_token *out) {
    if (g->picker) return generation_take(g, out);
    TRY(generation_ready(g));
    *out = (struct generation_token){.position = decoder_state_tokens(g->state), .alternatives = g->alternatives};
    out->id = sampler_pick(g->sampler, g->logits);
    if (isnan(g->logits[out->id])) /* which ranks below all numbers */
        return fail(STATUS_CORRUPT, "%s: the logits after token %lld are not numbers: numbers of the model overflow",
                    g->config.engine->model.path, (long long)out->position);
    generation_token_scores(g, out);
    return STATUS_OK;
}

enum status generation_next(struct generation *g, struct generation_token *out) {
    const struct model_config *model = &g->config.engine->model.config;
    TRY(generation_check(g));
    if (g->ended) return fail(STATUS_INVALID, "the generation has ended: feed more text, or reset it");
    TRY(generation_pick(g, out));
    g->pending = out->id;
    g->has_logits = false;
    g->generated++;
    if (out->id == model->eos_id && !g->config.ignore_eos)
        out->end = GENERATION_EOS;
    else if (g->generated == g->config.max_tokens)
        out->end = GENERATION_LENGTH;
    enum status status = generation_put(g, out);
    g->broken = status != STATUS_OK;
    g->ended = out->end != GENERATION_RUNNING;
    return status;
}

enum status generation_stop(struct generation *g, const char **text, size_t *bytes) {
    if (!g->stop) return generation_check(g); /* a generation_renew failed */
    g->ended = true;
    TRY(generation_flush(g));
    stop_text_take(g->stop, text, bytes);
    return STATUS_OK;
}

int64_t generation_tokens(const struct generation *g) {
    if (!g->state) return 0; /* a generation_renew failed */
    return decoder_state_tokens(g->state) - generation_is_ahead(g) + (g->pending >= 0 && !g->fed) + generation_later(g);
}

struct decoder_state *generation_state(struct generation *g) {
    return g->state;
}

const struct retriever *generation_retriever(const struct generation *g) {
    return g->retriever;
}

struct memory_text *generation_memory(struct generation *g) {
    return g->memory;
}

double generation_memory_share(const struct generation *g, int32_t id) {
    return g->memory ? memory_text_share(g->memory, id) : 0;
}
