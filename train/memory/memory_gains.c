/* memory_gains.c -- memory_loss_gains of memory_loss.h: measures how much each passage helps, which trains the
 * retriever (train/step/step_teach.c).
 *
 * There is one forward pass for each passage number p. In pass p every block reads its passage p alone. The passes
 * reuse the buffers of the training pass (slots, statistics, and the losses of the model itself, which are still on the
 * host), because its backward pass is over. */
#include "train/memory/memory_loss_internal.h"

/* Makes each block that has a passage number p read that passage alone. */
static void memory_gains_upload(struct memory_loss *m, const struct batch *batch, int p) {
    int span = m->config.span;
    for (int64_t b = 0; b < m->blocks; b++) {
        int64_t passage = b * memory_passages(m) + p;
        bool there = batch->passage_documents[passage] >= 0;
        for (int i = 0; i < span; i++)
            m->ids_host[b * span + i] = there ? (int32_t)(m->blocks + passage * span + i) : -1;
    }
    device_upload(m->dev, m->slot, m->ids_host, (size_t)(m->blocks * span) * sizeof *m->slot);
}

/* Nats that the passage saves on the scored rows of a block. */
static double memory_gains_block(const struct memory_loss *m, const int32_t *targets, int64_t block) {
    int64_t n = m->rows;
    const float *stats = m->host, *nll = m->host + STATS * n;
    double gain = 0;
    for (int64_t r = block * m->block_rows; r < (block + 1) * m->block_rows; r++) {
        if (targets[r] < 0) continue;
        const struct memory_mixture_row row = {.log_lm = -(double)nll[r],
                                               .log_p = (double)stats[r],
                                               .lse = (double)stats[n + r],
                                               .nearest = (double)stats[2 * n + r],
                                               .squares = (double)stats[3 * n + r],
                                               .largest = (double)stats[4 * n + r]};
        gain += (double)nll[r] - memory_mixture_nll(&m->mixture, &row);
    }
    return gain;
}

void memory_loss_gains(struct memory_loss *m, float *gain, const struct batch *batch, const int32_t *targets) {
    const struct token_memory_ops *op = m->dev->ops->token_memory;
    int passages = memory_passages(m);
    for (int p = 0; p < passages; p++) {
        struct token_memory memory = {.tau = m->tau, .slots = memory_loss_slots(m, m->config.span)};
        memory.past = m->now.past;
        memory.past.limit = 0;
        memory_gains_upload(m, batch, p);
        op->forward(m->dev, memory_loss_stats(m), mat_rows(m->keys, 0, m->rows), &memory, targets);
        device_download(m->dev, m->host, m->stats, (size_t)(STATS * m->rows) * sizeof(float));
        for (int64_t b = 0; b < m->blocks; b++) {
            bool there = batch->passage_documents[b * passages + p] >= 0;
            gain[b * passages + p] = there ? (float)memory_gains_block(m, batch->targets, b) : 0.0f;
        }
    }
}
