/* generation_batch.c -- the next ids of several generations in one pass over the weights. */
#include "decoder/decoder_batch.h"
#include "session/generation_internal.h"
#include <assert.h>

/* Whether the generation has an id to feed that may be fed in company. A token memory reads more than logits of a pass.
 */
static bool generation_batch_takes(const struct generation *g) {
    return !g->broken && !g->ended && !g->memory && g->pending >= 0 && decoder_batch_takes(g->state);
}

static enum status generation_batch_part(struct generation *const *gs, int n) {
    struct decoder_state *states[DECODER_BATCH_MAX];
    float *logits[DECODER_BATCH_MAX];
    int32_t ids[DECODER_BATCH_MAX];
    for (int i = 0; i < n; i++)
        states[i] = gs[i]->state, logits[i] = gs[i]->logits, ids[i] = gs[i]->pending;
    TRY(decoder_batch_forward(states, logits, ids, n));
    enum status status = STATUS_OK;
    for (int i = 0; i < n; i++) {
        struct generation *g = gs[i];
        g->pending = -1;
        g->has_logits = true;
        if (!g->config.fed) continue;
        enum status fed = g->config.fed(g->config.context, &ids[i], 1, false);
        g->broken = fed != STATUS_OK;
        if (status == STATUS_OK) status = fed;
    }
    return status;
}

enum status generation_batch(struct generation *const *gs, int n, int *computed) {
    struct generation *part[DECODER_BATCH_MAX];
    int at = 0;
    *computed = 0;
    for (int i = 0; i < n; i++) {
        assert(gs[i]->config.engine->decoder == gs[0]->config.engine->decoder);
        if (generation_batch_takes(gs[i])) part[at++] = gs[i];
        if (at == 0 || (at < DECODER_BATCH_MAX && i + 1 < n)) continue;
        TRY(generation_batch_part(part, at));
        *computed += at;
        at = 0;
    }
    return STATUS_OK;
}
