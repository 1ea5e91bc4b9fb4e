/* generation_batch.c -- the next ids of several generations in one pass over the weights. */
#include "decoder/batch/decoder_batch.h"
#include "session/generation_internal.h"
#include <assert.h>
#include <stdio.h>

/* Whether the generation has an id to feed that may be fed in company. A token memory reads more than logits of a pass.
 */
static bool generation_batch_takes(const struct generation *g) {
    return !g->broken && !g->ended && !g->memory && g->pending >= 0 && decoder_batch_takes(g->state);
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
    status = g->config.fed ? g->config.fed(g->config.context, &id, 1, false) : STATUS_OK;
    return status == STATUS_OK ? true : generation_batch_fail(g, status);
}

static enum status generation_batch_part(struct generation *const *gs, int n, int *computed) {
    struct decoder_state *states[DECODER_BATCH_MAX];
    float *logits[DECODER_BATCH_MAX];
    int32_t ids[DECODER_BATCH_MAX];
    int64_t tokens[DECODER_BATCH_MAX];
    bool spent = false;
    for (int i = 0; i < n; i++) {
        states[i] = gs[i]->state, logits[i] = gs[i]->logits, ids[i] = gs[i]->pending;
        tokens[i] = decoder_state_tokens(states[i]);
    }
    enum status status = decoder_batch_forward(states, logits, ids, n);
    for (int i = 0; i < n; i++)
        spent = spent || decoder_state_spent(states[i]);
    if (status != STATUS_OK && !spent) return status;
    for (int i = 0; i < n; i++)
        *computed += generation_batch_fed(gs[i], status, ids[i], tokens[i]);
    return STATUS_OK;
}

enum status generation_batch(struct generation *const *gs, int n, int *computed) {
    struct generation *part[DECODER_BATCH_MAX];
    int at = 0;
    *computed = 0;
    for (int i = 0; i < n; i++) {
        assert(gs[i]->config.engine->decoder == gs[0]->config.engine->decoder);
        if (generation_batch_takes(gs[i])) part[at++] = gs[i];
        if (at == 0 || (at < DECODER_BATCH_MAX && i + 1 < n)) continue;
        TRY(generation_batch_part(part, at, computed));
        at = 0;
    }
    return STATUS_OK;
}

bool generation_has_next(const struct generation *g) {
    return g->has_logits && g->pending < 0 && !g->memory && !g->broken;
}
