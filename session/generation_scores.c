/* generation_scores.c -- log-probabilities of ids as they are fed.
 *
 * An id's log-probability comes from the logits before it: of the first id of a call, those that the call before left.
 * Without alternatives the decoder computes losses and no logits. A token memory mixes one position at a time. Its
 * searches do not depend on how a text is divided into calls: they begin where scores begin, and a generation that
 * follows begins with one of its own. */
#include "base/memory.h"
#include "session/generation_internal.h"
#include <math.h>
#include <string.h>

enum { ROWS_BYTES = 32 << 20 }; /* of logits that are held at a time */

static int64_t generation_vocab(const struct generation *g) {
    return g->config.engine->model.config.vocab_size;
}

/* Id i of a call by the logits before it. */
static void generation_score(struct generation *g, const struct generation_scores *scores, int64_t i, int32_t id,
                             const float *logits) {
    float top;
    const double log_sum = log(generation_normaliser(&g->scan, logits, &top));
    scores->logprob[i] = (float)((double)(logits[id] - top) - log_sum);
    generation_alternatives(scores->alternatives + i * scores->top, scores->top, &g->scan, log_sum);
}

static void generation_score_nothing(const struct generation_scores *scores, int64_t i) {
    scores->logprob[i] = NAN;
    if (scores->memory_share) scores->memory_share[i] = 0;
    for (int j = 0; j < scores->top; j++)
        scores->alternatives[i * scores->top + j] = (struct generation_alternative){.id = -1, .logprob = -INFINITY};
}

static void generation_score_first(struct generation *g, const struct generation_scores *scores, int32_t id) {
    if (g->has_logits) {
        generation_score(g, scores, 0, id, g->logits);
        if (scores->memory_share) scores->memory_share[0] = (float)generation_memory_share(g, id);
        return;
    }
    generation_score_nothing(scores, 0);
}

static enum status generation_losses(struct generation *g, const int32_t *ids, int64_t at, int64_t n, int64_t total,
                                     const struct generation_scores *scores) {
    if (!g->targets) {
        TRY(memory_allocate(&g->targets, (size_t)engine_pass(g->config.engine)));
        TRY(memory_allocate(&g->nll, (size_t)engine_pass(g->config.engine)));
    }
    for (int64_t i = 0; i < n; i++)
        g->targets[i] = at + i + 1 < total ? ids[at + i + 1] : -1;
    const struct decoder_output out = {
        .logits = at + n == total ? g->logits : NULL, .targets = g->targets, .nll = g->nll};
    TRY(generation_pass(g, &out, ids + at, n, true));
    for (int64_t i = 0; i < n && at + i + 1 < total; i++)
        scores->logprob[at + i + 1] = -g->nll[i];
    return STATUS_OK;
}

static enum status generation_rows(struct generation *g, const int32_t *ids, int64_t at, int64_t n, int64_t total,
                                   const struct generation_scores *scores) {
    const int64_t vocab = generation_vocab(g);
    const struct decoder_output out = {.logits = g->rows, .logits_all = true};
    TRY(generation_pass(g, &out, ids + at, n, true));
    for (int64_t i = 0; i < n && at + i + 1 < total; i++)
        generation_score(g, scores, at + i + 1, ids[at + i + 1], g->rows + i * vocab);
    if (at + n == total) memcpy(g->logits, g->rows + (n - 1) * vocab, (size_t)vocab * sizeof *g->logits);
    return STATUS_OK;
}

static enum status generation_mixed(struct generation *g, const int32_t *ids, int64_t at, int64_t total,
                                    const struct generation_scores *scores) {
    const struct decoder_output out = {.logits = g->logits};
    TRY(generation_pass(g, &out, ids + at, 1, true));
    if (at + 1 == total) return STATUS_OK;
    generation_score(g, scores, at + 1, ids[at + 1], g->logits);
    if (scores->memory_share) scores->memory_share[at + 1] = (float)memory_text_share(g->memory, ids[at + 1]);
    return STATUS_OK;
}

/* How many ids a pass scores. */
static enum status generation_score_pass(struct generation *g, const struct generation_scores *scores, int64_t *pass) {
    const int64_t chunk = g->config.engine->model.config.chunk;
    *pass = g->memory ? 1 : engine_pass(g->config.engine);
    if (g->memory || scores->top == 0) return STATUS_OK;
    int64_t rows = ROWS_BYTES / (generation_vocab(g) * (int64_t)sizeof *g->rows);
    if (chunk > 0 && rows > chunk) rows -= rows % chunk;
    if (rows < 1) rows = 1;
    if (rows < *pass) *pass = rows;
    if (g->rows) return STATUS_OK;
    return device_allocate_host(g->config.engine->device, &g->rows, (size_t)(*pass * generation_vocab(g)));
}

/* Reads those of the ids that are not scored, the first ones of the text. *skipped: their number. */
static enum status generation_skip(struct generation *g, int64_t *skipped, const int32_t *ids, int64_t n,
                                   const struct generation_scores *scores) {
    const int64_t left = g->config.skip - generation_tokens(g);
    *skipped = left < 0 ? 0 : left < n ? left : n;
    for (int64_t i = 0; i < *skipped; i++)
        generation_score_nothing(scores, i);
    if (*skipped == 0) return STATUS_OK;
    TRY(generation_feed_plain(g, ids, *skipped));
    g->search = GENERATION_SEARCH_ANY;
    g->has_logits = true;
    return STATUS_OK;
}

static enum status generation_score_all(struct generation *g, const int32_t *ids, int64_t n,
                                        const struct generation_scores *scores) {
    int64_t pass;
    TRY(generation_score_pass(g, scores, &pass));
    if (scores->memory_share) memset(scores->memory_share, 0, (size_t)n * sizeof *scores->memory_share);
    if (g->search == GENERATION_SEARCH_ANY && g->has_logits) TRY(generation_search_again(g));
    generation_download(g);
    generation_score_first(g, scores, ids[0]);
    for (int64_t at = 0; at < n; at += pass) {
        int64_t now = n - at < pass ? n - at : pass;
        if (progress_stop_requested(g->config.progress)) {
            g->broken = true;
            return fail(STATUS_INTERRUPTED, "stopped while computing log-probabilities");
        }
        if (g->memory)
            TRY(generation_mixed(g, ids, at, n, scores));
        else
            TRY((scores->top ? generation_rows : generation_losses)(g, ids, at, now, n, scores));
    }
    generation_upload(g);
    return STATUS_OK;
}

enum status generation_feed_scored(struct generation *g, const int32_t *ids, int64_t n,
                                   const struct generation_scores *scores) {
    int64_t skipped;
    /* also after one id that ends a prompt, whose parts may be divided anywhere */
    const bool due = n > 1 || g->search != GENERATION_SEARCHED;
    TRY(generation_skip(g, &skipped, ids, n, scores));
    if (skipped == n) return STATUS_OK;
    const struct generation_scores rest = {
        .logprob = scores->logprob + skipped,
        .alternatives = scores->top ? scores->alternatives + skipped * scores->top : NULL,
        .top = scores->top,
        .memory_share = scores->memory_share ? scores->memory_share + skipped : NULL};
    TRY(generation_score_all(g, ids + skipped, n - skipped, &rest));
    if (due) g->search = GENERATION_SEARCH_NEXT;
    return STATUS_OK;
}
