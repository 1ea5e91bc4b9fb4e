/* hybrid_cpu.c -- see hybrid.h. A query is a task: its sums are in the worker's scratch, and the best k are inserted
 * into the sorted result. */
#include "base/half.h"
#include "kernels/device/device_internal.h"
#include "kernels/lexical/hybrid.h"
#include "kernels/pointwise/simd_internal.h"
#include <assert.h>
#include <math.h>

/* ---- the query ---- */

static double state_number(struct mat ring, int64_t row, int64_t column) {
    const int64_t at = row * ring.stride + column;
    if (ring.type == DTYPE_F32) return (double)((const float *)ring.data)[at];
    return (double)half_from_bf16(((const uint16_t *)ring.data)[at]);
}

/* A column of the mean, less the centre. */
static double state_mean(struct mat ring, int64_t first, int64_t n, const double *centre, int64_t column) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += state_number(ring, (first + i) % ring.rows, column);
    return sum / (double)n - centre[column];
}

static void hybrid_query(struct device *dev, float *out, struct mat ring, int64_t first, int64_t n,
                         const double *centre) {
    double square = 0;
    (void)dev;
    assert(n >= 0 && n <= ring.rows && (ring.type == DTYPE_F32 || ring.type == DTYPE_BF16));
    for (int64_t j = 0; j < ring.cols && n > 0; j++) {
        const double mean = state_mean(ring, first, n, centre, j);
        square += mean * mean;
    }
    for (int64_t j = 0; j < ring.cols; j++)
        out[j] = square > 0 ? (float)(state_mean(ring, first, n, centre, j) / sqrt(square)) : 0;
}

/* ---- the merge ---- */

struct hybrid_task {
    struct device *dev;
    int64_t *index;
    float *score;
    const struct hybrid_merge *m;
    int k;
};

/* A worker's memory, in its scratch: the candidates, then the best of them. */
struct hybrid_candidate {
    int64_t chunk;
    float sum, bm25, product;
};
struct hybrid_memory {
    struct hybrid_candidate all[HYBRID_CANDIDATES_MAX];
    int n;
};
static_assert(sizeof(struct hybrid_memory) <= DEVICE_SCRATCH_BYTES);

static bool candidate_is_better(const struct hybrid_candidate *a, const struct hybrid_candidate *b) {
    return a->sum > b->sum || (a->sum == b->sum && a->chunk < b->chunk);
}

/* Keeps the candidates sorted, best first. */
static void candidate_insert(struct hybrid_memory *to, struct hybrid_candidate c) {
    int at = to->n;
    if (isnan(c.sum)) return;
    for (; at > 0 && candidate_is_better(&c, &to->all[at - 1]); at--)
        to->all[at] = to->all[at - 1];
    to->all[at] = c;
    to->n++;
}

static float landmark_score(const struct hybrid_merge *m, int64_t q, int64_t chunk) {
    if (chunk >= m->chunks) return -INFINITY;
    const int64_t row = m->row_of ? m->row_of[chunk] : chunk;
    if (row < 0) return -INFINITY;
    return v_dot(mat_row(m->queries, q), mat_row(m->rows, row), m->queries.cols) / sqrtf((float)m->queries.cols);
}

static bool list_has(const struct hybrid_list *l, int64_t q, int64_t chunk) {
    for (int i = 0; i < l->n; i++)
        if (l->chunk[q * l->n + i] == chunk) return true;
    return false;
}

static void hybrid_merge_query(const struct hybrid_task *t, int64_t q, int worker) {
    struct hybrid_memory *memory = device_scratch(t->dev, worker);
    const struct hybrid_merge *m = t->m;
    memory->n = 0;
    for (int i = 0; i < m->words.n + m->landmarks.n; i++) {
        const struct hybrid_list *l = i < m->words.n ? &m->words : &m->landmarks;
        const int64_t at = q * l->n + (l == &m->words ? i : i - m->words.n), chunk = l->chunk[at];
        if (chunk < 0 || (l == &m->landmarks && list_has(&m->words, q, chunk))) continue;
        const float product = landmark_score(m, q, chunk), sum = fmaf(m->weight, product, l->bm25[at]);
        candidate_insert(memory, (struct hybrid_candidate){chunk, sum, l->bm25[at], product});
    }
    for (int i = 0; i < t->k; i++) {
        t->index[q * t->k + i] = i < memory->n ? memory->all[i].chunk : -1;
        t->score[q * t->k + i] = i < memory->n ? memory->all[i].bm25 : -INFINITY;
        if (m->product) m->product[q * t->k + i] = i < memory->n ? memory->all[i].product : -INFINITY;
    }
}

static void hybrid_merge_body(void *context, int64_t begin, int64_t end, int worker) {
    for (int64_t q = begin; q < end; q++)
        hybrid_merge_query(context, q, worker);
}

static void hybrid_merge_all(struct device *dev, int64_t *index, float *score, const struct hybrid_merge *m, int k) {
    struct hybrid_task t = {dev, index, score, m, k};
    assert(k >= 1 && m->weight > 0 && m->words.n + m->landmarks.n <= HYBRID_CANDIDATES_MAX);
    assert(m->queries.type == DTYPE_F32 && m->rows.type == DTYPE_F32 && m->rows.cols == m->queries.cols);
    threads_for(dev->threads, m->queries.rows, 1, hybrid_merge_body, &t);
}

const struct hybrid_ops hybrid_cpu = {.query = hybrid_query, .merge = hybrid_merge_all};
