/* step_batch.c -- uploads a batch, and masks ids of the encoder's input (model.md §9.2).
 *
 * Whether a row is masked depends on a hash of the step's seed and the row's number in the step, and not on how the
 * step is cut into micro-batches. */
#include "kernels/device/collective.h"
#include "train/step/step_internal.h"
#include <assert.h>
#include <string.h>

static void step_upload(struct step *s, void *to, const void *from, int64_t count, size_t size) {
    device_upload(s->dev, to, from, (size_t)count * size);
}

/* The ranges that queries may retrieve from; empty for the last landmark of a sequence, whose neighbours no chunk
 * reads. */
static void step_upload_ranges(struct step *s) {
    struct step_visible *v = &s->visible;
    int64_t Q = s->queries, C = s->config.chunks;
    int32_t *to[] = {v->own_begin, v->own_end, v->sequence_end, v->batch_end, v->none};
    int32_t *ranges = s->ids_host;
    for (size_t which = 0; which < ARRAY_LEN(to); which++) {
        for (int64_t r = 0; r < Q; r++) {
            int64_t first = r / C * C;
            bool last = r % C == C - 1;
            int64_t values[] = {first, last ? first : r, first + C, last ? 0 : Q, 0};
            ranges[r] = (int32_t)values[which];
        }
        step_upload(s, to[which], ranges, Q, sizeof *ranges);
    }
    for (int64_t r = 0; r < Q; r++)
        ranges[r] = (int32_t)(step_first_query(s) + r);
    step_upload(s, s->contrast_excluded, ranges, Q, sizeof *ranges);
}

/* Each group's queries have their own candidates; their begin depends on the batch (step_upload_visibility). */
static void step_upload_candidates_end(struct step *s) {
    int64_t Q = s->queries, C = s->config.chunks, k = s->config.candidates;
    int32_t *end = s->ids_host;
    for (int g = 0; g < s->model.groups; g++) {
        for (int64_t r = 0; r < Q; r++)
            end[r] = (int32_t)(step_candidates_begin(s, g) + (r % C == C - 1 ? r : r + 1) * k);
        step_upload(s, s->visible.candidates_end + g * Q, end, Q, sizeof *end);
    }
}

void step_constants_upload(struct step *s) {
    if (s->model.base_lm) return;
    int64_t results = (s->queries + 1) * s->model.topk, begin[512];
    step_upload_ranges(s);
    step_upload_candidates_end(s);
    for (int64_t b = 0; b <= s->queries;) {
        int64_t n = 0;
        while (n < (int64_t)ARRAY_LEN(begin) && b + n <= s->queries)
            begin[n] = (b + n) * s->positions, n++;
        step_upload(s, s->row_begin + b, begin, n, sizeof *begin);
        b += n;
    }
    /* The first row of slots stays empty; retrieval writes the others. */
    for (int64_t i = 0; i < s->model.topk; i++)
        s->ids_host[i] = -1;
    for (int g = 0; g < s->model.groups; g++) {
        struct step_neighbours *c = &s->neighbours[g];
        step_upload(s, c->slot, s->ids_host, s->model.topk, sizeof *c->slot);
        device_clear(s->dev, c->weight, (size_t)results * sizeof *c->weight);
        device_clear(s->dev, c->dweight, (size_t)results * sizeof *c->dweight);
    }
}

/* Landmarks, pads and negative ids are never masked. */
static bool step_is_masked(const struct step *s, const struct batch *b, const struct step_now *now, int64_t row,
                           int64_t first_row) {
    int32_t id = b->ids[row];
    if (row % s->positions == s->positions - 1 || id < 0 || id == s->model.pad_id) return false;
    if (b->mask) return b->mask[row] != 0;
    uint64_t hash = step_mix(step_mix(now->seed) + (uint64_t)(first_row + row));
    return (float)(hash >> 40) < now->mlm_rate * 0x1p24f;
}

int64_t step_masked_count(const struct step *s, const struct batch *batch, const struct step_now *now,
                          int64_t first_row) {
    int64_t count = 0;
    for (int64_t row = 0; row < s->rows; row++)
        count += step_is_masked(s, batch, now, row, first_row);
    return count;
}

static void step_upload_masked(struct step *s, const struct step_task *task) {
    struct step_masked *m = &s->masked;
    int32_t *ids = s->ids_host, *rows = ids + s->rows, *targets = rows + s->rows;
    const struct batch *b = task->batch;
    m->count = 0;
    for (int64_t row = 0; row < s->rows; row++) {
        ids[row] = b->ids[row];
        if (!step_is_masked(s, b, task->now, row, task->first_row)) continue;
        ids[row] = s->model.mask_id;
        rows[m->count] = (int32_t)row;
        targets[m->count++] = b->ids[row];
    }
    step_upload(s, s->encoder_ids, ids, s->rows, sizeof *ids);
    step_upload(s, m->rows, rows, m->count, sizeof *rows);
    step_upload(s, m->targets, targets, m->count, sizeof *targets);
}

/* A query must not retrieve a copy of the text that it predicts: the documents of its chunk and of the next are
 * excluded. */
static void step_upload_documents(struct step *s, const struct batch *b) {
    int64_t Q = s->queries, C = s->config.chunks;
    int32_t(*barred)[2] = (int32_t(*)[2])(void *)s->ids_host;
    for (int64_t r = 0; r < Q; r++) {
        barred[r][0] = b->documents[r][0];
        barred[r][1] = b->documents[r % C == C - 1 ? r : r + 1][1];
    }
    step_upload(s, s->visible.document_of, b->documents, Q, sizeof *b->documents);
    step_upload(s, s->visible.barred, barred, Q, sizeof *barred);
}

bool step_chunk_continues(const struct step *s, const struct batch *b, int64_t r, int64_t by) {
    return r % s->config.chunks + by < s->config.chunks && b->documents[r + by][0] == b->documents[r][1];
}

/* Marks this process' positives; ids_host has the targets. */
static void step_upload_contrast_alone(struct step *s) {
    int64_t Q = s->queries, all = Q * (s->config.group ? collective_world(s->config.group) : 1);
    float *alone = s->floats_host;
    memset(alone, 0, (size_t)Q * sizeof *alone);
    for (int64_t r = 0; r < Q; r++)
        if (s->ids_host[r] >= 0) alone[s->ids_host[r] - step_first_query(s)] = 1.0f;
    device_clear(s->dev, s->contrast_alone, (size_t)all * sizeof *alone);
    step_upload(s, s->contrast_alone + step_first_query(s), alone, Q, sizeof *alone);
}

static void step_upload_contrast_targets(struct step *s, const struct step_task *task) {
    for (int64_t r = 0; r < s->queries; r++) {
        const int64_t positive = step_positive(s, task->batch, task->now, r, task->first_row);
        s->ids_host[r] = positive >= 0 ? (int32_t)(step_first_query(s) + positive) : -1;
    }
    step_upload(s, s->contrast_targets, s->ids_host, s->queries, sizeof *s->ids_host);
    if (task->batch->samples) step_upload_contrast_alone(s);
}

/* Restricts what some queries retrieve from: sequences without their own past (corpus_alone, by a hash of the step's
 * seed and the sequence's number in the step), and queries with only their last candidate (copies). */
static void step_upload_visibility(struct step *s, const struct step_task *task) {
    int64_t Q = s->queries, C = s->config.chunks, k = s->config.candidates,
            sequence = task->first_row / (C * s->positions);
    uint64_t seed = task->now ? step_mix(task->now->seed ^ 0x636f72707573u) : 0, how;
    float part = task->now && task->pool == POOL_CORPUS ? task->now->corpus_alone : 0.0f;
    int32_t *own_end = s->ids_host, *begin = own_end + Q;
    for (int64_t r = 0; r < Q; r++) {
        uint64_t hash = step_mix(seed + (uint64_t)(sequence + r / C));
        bool copy = step_copy_wanted(s, task, r, &how), last = r % C == C - 1;
        bool blind = copy || (float)(hash >> 40) < part * 0x1p24f;
        own_end[r] = (int32_t)(blind || last ? r / C * C : r);
        begin[r] = (int32_t)(step_candidates_begin(s, 0) + (copy ? r * k + k - 1 : r * k));
    }
    step_upload(s, s->visible.own_end, own_end, Q, sizeof *own_end);
    for (int g = 0; g < s->model.groups; g++) {
        step_upload(s, s->visible.candidates_begin + g * Q, begin, Q, sizeof *begin);
        for (int64_t r = 0; r < Q; r++)
            begin[r] += (int32_t)(Q * k); /* the next group's candidates follow */
    }
}

void step_batch_upload(struct step *s, const struct step_task *task) {
    const struct batch *b = task->batch;
    assert(b->sequences == s->config.sequences && b->chunks == s->config.chunks);
    step_upload(s, s->ids, b->ids, s->rows, sizeof *b->ids);
    step_upload(s, s->targets, b->targets, s->rows, sizeof *b->targets);
    if (task->teach || (task->retrieve && task->pool != POOL_OWN_PAST)) step_upload_documents(s, b);
    if (task->retrieve && s->config.pool == POOL_CORPUS) step_upload_visibility(s, task);
    if (task->contrast) step_upload_contrast_targets(s, task);
    if (!task->encode || s->model.encoder_input == ENCODER_INPUT_HIDDEN) return;
    if (task->mlm)
        step_upload_masked(s, task);
    else
        device_copy(s->dev, s->encoder_ids, s->ids, (size_t)s->rows * sizeof *s->ids);
}

double step_sum(struct step *s, const float *values, int64_t n) {
    double sum = 0;
    assert(n <= s->rows);
    device_download(s->dev, s->floats_host, values, (size_t)n * sizeof *values);
    for (int64_t i = 0; i < n; i++)
        sum += (double)s->floats_host[i];
    return sum;
}
