/* memory_loss_batch.c -- lists the slots that each block reads. The lists are made on the host, because they depend on
 * the documents of the batch. */
#include "train/memory/memory_loss_internal.h"
#include <assert.h>

/* A block must not read a copy of the text that it predicts: its own documents and those of the next block. */
static void memory_barred(int32_t out[2], const struct memory_loss *m, const struct batch *batch, int64_t block) {
    bool last = block % m->blocks_each == m->blocks_each - 1;
    out[0] = batch->documents[block][0];
    out[1] = batch->documents[last ? block : block + 1][1];
}

/* Lists the blocks of the other sequences of the block's group. */
static int memory_list_others(const struct memory_loss *m, const struct batch *batch, int64_t block,
                              const int32_t barred[2], int32_t *slot) {
    int64_t own = block / m->blocks_each, first = own / m->config.group * m->config.group;
    int n = 0;
    for (int64_t s = first; s < first + m->config.group && s < m->config.sequences; s++)
        for (int64_t b = s * m->blocks_each; s != own && b < (s + 1) * m->blocks_each; b++)
            slot[n++] = memory_shares(batch->documents[b], barred) ? -1 : (int32_t)b;
    return n;
}

/* Lists the most recent passages, from the block's own passages backwards. */
static int memory_list_passages(const struct memory_loss *m, const struct batch *batch, int64_t block,
                                const int32_t barred[2], int32_t *slot) {
    int64_t first = block / m->blocks_each * m->blocks_each; /* the first block of the sequence */
    int n = 0, each = m->config.passages;
    for (int q = 0; q < m->config.read; q++) {
        int64_t from = block - q / each, passage = from * memory_passages(m) + q % each;
        if (from < first) break;
        int32_t document = batch->passage_documents[passage];
        const int32_t both[2] = {document, document};
        bool readable = document >= 0 && !memory_shares(both, barred);
        for (int i = 0; i < m->config.span; i++)
            slot[n++] = readable ? (int32_t)(m->blocks + passage * m->config.span + i) : -1;
    }
    return n;
}

static void memory_upload_slots(struct memory_loss *m, const struct batch *batch, bool alone) {
    int32_t *slot = m->ids_host;
    for (int64_t b = 0; b < m->blocks; b++) {
        int32_t barred[2];
        int n = 0;
        memory_barred(barred, m, batch, b);
        if (m->config.group > 1 && !alone) n = memory_list_others(m, batch, b, barred, slot + b * m->k);
        if (m->passages) n += memory_list_passages(m, batch, b, barred, slot + b * m->k + n);
        while (n < m->k)
            slot[b * m->k + n++] = -1;
    }
    device_upload(m->dev, m->slot, slot, (size_t)(m->blocks * m->k) * sizeof *slot);
}

/* Copies the ids of the passages as rows of the decoder, with the id that follows each row. */
static void memory_upload_passages(struct memory_loss *m, const struct batch *batch) {
    int64_t passages = m->blocks * memory_passages(m), chunk = m->model.chunk, length = m->config.span * chunk;
    int64_t rows = m->all_rows - m->rows, at = 0;
    int32_t *ids = m->ids_host, *values = ids + rows;
    for (int64_t p = 0; p < passages; p++) {
        const int32_t *from = batch->passages + p * (length + 1);
        for (int64_t i = 0; i < length; i++, at++) {
            ids[at] = from[i];
            values[at] = from[i] >= 0 ? from[i + 1] : -1;
            if (m->model.base_lm || i % chunk != chunk - 1) continue;
            ids[++at] = m->model.landmark_id;
            values[at] = -1;
        }
    }
    assert(at == rows);
    device_upload(m->dev, m->passage_ids, ids, (size_t)rows * sizeof *ids);
    device_upload(m->dev, m->value + m->rows, values, (size_t)rows * sizeof *values);
}

void memory_loss_upload(struct memory_loss *m, const struct batch *batch, bool alone) {
    device_upload(m->dev, m->value, batch->targets, (size_t)m->rows * sizeof *batch->targets);
    if (m->k == 0) return;
    assert(batch->documents && (!m->passages || (batch->passages && batch->passage_documents)));
    memory_upload_slots(m, batch, alone);
    if (m->passages) memory_upload_passages(m, batch);
}
