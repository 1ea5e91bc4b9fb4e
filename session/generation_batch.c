/* generation_batch.c -- the next ids of several generations in one pass over the weights. */
#include "decoder/batch/decoder_batch.h"
#include "session/generation_internal.h"
#include <assert.h>
#include <stdio.h>

/* Whether the generation has an id to feed that may be fed in company. A token memory reads more than logits of a pass.
 */
static bool generation_batch_takes(const struct generation *g) {
    if (g->fed) return !g->broken && !g->ended;
    return !g->broken && !g->ended && !g->memory && g->pending >= 0 && decoder_batch_takes(g->state);
}

/* The failure of one generation is its own: generation_next reports it. */
bool generation_batch_fail(struct generation *g, enum status status) {
    g->broken = true;
    g->failed = status;
    snprintf(g->failure, sizeof g->failure, "%s", status_message());
    return false;
}

bool generation_batch_fed(struct generation *g, enum status status, int32_t id, int64_t tokens) {
    if (decoder_state_spent(g->state)) return generation_batch_fail(g, status);
    if (decoder_state_tokens(g->state) == tokens) return false;
    g->pending = -1;
    g->has_logits = true;
    status = g->config.fed ? g->config.fed(g->config.context, &id, 1, false) : STATUS_OK;
    return status == STATUS_OK ? true : generation_batch_fail(g, status);
}

static enum status generation_batch_part(struct generation *const *gs, int n, int *computed) {
    struct decoder_state *states[DECODER_BATCH_MAX] = {0};
    float *logits[DECODER_BATCH_MAX] = {0};
    int32_t ids[DECODER_BATCH_MAX] = {0};
    int64_t tokens[DECODER_BATCH_MAX];
    bool spent = false;
    assert(n >= 1 && n <= DECODER_BATCH_MAX);
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

/* Those that it takes, where the device picks or where this process does, as many at a time as a pass has. */
static enum status generation_batch_kind(struct generation *const *gs, int n, int *computed, bool there) {
    struct generation *part[DECODER_BATCH_MAX];
    int at = 0;
    for (int i = 0; i < n; i++) {
        assert(gs[i]->config.engine->decoder == gs[0]->config.engine->decoder);
        if (!gs[i]->picker == !there && generation_batch_takes(gs[i])) part[at++] = gs[i];
        if (at == 0 || (at < DECODER_BATCH_MAX && i + 1 < n)) continue;
        TRY((there ? generation_batch_there : generation_batch_part)(part, at, computed));
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
