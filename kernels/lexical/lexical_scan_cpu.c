/* lexical_scan_cpu.c -- the best chunks by sums over lists of postings: a query is a task. It adds its lists up window
 * by window, and keeps the best in a heap.
 *
 * Each list is read from its first block that overlaps the window; a block that overlaps two windows is decoded twice.
 * The op is for tests and for devices that share memory: the store's own search (store/lexical/) is faster on a CPU. */
#include "base/little_endian.h"
#include "kernels/device/device_internal.h"
#include "kernels/lexical/lexical_scan.h"
#include <assert.h>
#include <math.h>
#include <string.h>

enum { WINDOW = LEXICAL_SCAN_WINDOW, BLOCK = LEXICAL_SCAN_BLOCK };

struct lexical_scan_task {
    struct device *dev;
    int64_t *index;
    float *score;
    const struct lexical_scan *scan;
    int k;
};

/* A worker's memory, in its scratch. A key is sum << 32 | ~position, a position the window * WINDOW + the chunk in it:
 * the greater key is the better chunk, and no two are equal. */
struct lexical_scan_memory {
    int32_t sums[WINDOW];
    uint64_t keys[LEXICAL_SCAN_K_MAX]; /* a heap, the worst first */
    int n;
};
static_assert(sizeof(struct lexical_scan_memory) <= DEVICE_SCRATCH_BYTES);

/* ---- lists ---- */

static uint32_t scan_bits(const uint8_t *from, uint64_t bit, int count) {
    uint32_t value = 0;
    for (int i = 0; i < count; i++, bit++)
        value |= (uint32_t)(from[bit / 8] >> (bit % 8) & 1) << i;
    return value;
}

/* Step i of a block of n. */
static uint32_t scan_step(const uint8_t *block, int n, int i, int width) {
    if (n < BLOCK) return scan_bits(block, (uint64_t)i * (uint64_t)width, width);
    uint64_t words[2]; /* two words of the lane */
    int bit = i / 4 * width;
    const uint8_t *at = block + (bit / 32 * 4 + i % 4) * 4;
    words[0] = little_endian_get(at, 4);
    words[1] = bit % 32 + width > 32 ? little_endian_get(at + 16, 4) : 0;
    return (uint32_t)((words[0] | words[1] << 32) >> (bit % 32)) & (uint32_t)((UINT64_C(1) << width) - 1);
}

/* A block's postings, and those of a list, are added to `n` sums from chunk `begin` on. */
struct scan_sums {
    int32_t *sums;
    uint32_t begin, n;
};

static void scan_block(struct scan_sums to, const struct lexical_scan_list *l, const uint8_t *block, int n,
                       unsigned form, uint32_t base) {
    int width = (int)(form & 31), greatest = (int)(form >> 5);
    const uint8_t *twice = block + (n * width + 7) / 8, *thrice = twice + (n + 7) / 8;
    uint32_t chunk = base - 1;
    for (int i = 0, marked = 0; i < n; i++) {
        chunk += scan_step(block, n, i, width) + 1;
        int code = greatest > 0 ? (int)scan_bits(twice, (uint64_t)i, 1) : 0;
        if (code && greatest > 1) code += (int)scan_bits(thrice, (uint64_t)marked++, 1);
        if (chunk - to.begin < to.n) to.sums[chunk - to.begin] += l->weight[code];
    }
}

static uint32_t scan_table_last(const uint8_t *table, int64_t block) {
    return (uint32_t)little_endian_get(table + 8 * block, 3);
}

static void scan_sparse(struct scan_sums to, const struct lexical_scan_list *l, const uint8_t *postings) {
    const uint8_t *data = postings + l->begin, *table = data + l->bytes;
    if (l->n <= BLOCK) {
        scan_block(to, l, data, (int)l->n, l->form, 0);
        return;
    }
    int64_t blocks = ((int64_t)l->n + BLOCK - 1) / BLOCK, low = 0, high = blocks;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (scan_table_last(table, middle) < to.begin)
            low = middle + 1;
        else
            high = middle;
    }
    for (int64_t b = low; b < blocks; b++) {
        uint32_t base = b ? scan_table_last(table, b - 1) + 1 : 0;
        if (base >= to.begin + to.n) return;
        uint64_t from = b ? little_endian_get(table + 8 * b - 4, 4) : 0;
        int64_t left = (int64_t)l->n - b * BLOCK;
        scan_block(to, l, data + from, left < BLOCK ? (int)left : BLOCK, table[8 * b + 3], base);
    }
}

static void scan_dense(struct scan_sums to, const struct lexical_scan_list *l, const uint8_t *postings) {
    const uint8_t *codes = postings + l->begin;
    for (uint32_t i = 0; i < to.n; i++) {
        uint32_t chunk = to.begin + i;
        int code = codes[chunk / 4] >> (chunk % 4 * 2) & 3;
        if (code) to.sums[i] += l->weight[code - 1];
    }
}

/* Clears the sums, and adds all lists of a query in a segment. */
static void scan_lists(struct scan_sums to, const struct lexical_scan *s, int64_t q, int64_t segment) {
    const struct lexical_scan_part *part = &s->parts[q * s->n_segments + segment];
    memset(to.sums, 0, to.n * sizeof *to.sums);
    for (int i = 0; i < part->sparse; i++)
        scan_sparse(to, &s->lists[part->first + i], s->postings);
    for (int i = 0; i < part->dense; i++)
        scan_dense(to, &s->lists[part->first + part->sparse + i], s->postings);
}

/* ---- the best k ---- */

static void scan_sink(uint64_t *keys, int n, uint64_t key) {
    int at = 0;
    for (int child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && keys[child + 1] < keys[child]) child++;
        if (key <= keys[child]) break;
        keys[at] = keys[child];
    }
    keys[at] = key;
}

static void scan_offer(struct lexical_scan_memory *m, int k, uint64_t key) {
    if (m->n == k) {
        if (key > m->keys[0]) scan_sink(m->keys, k, key);
        return;
    }
    int at = m->n++;
    for (; at > 0 && key < m->keys[(at - 1) / 2]; at = (at - 1) / 2)
        m->keys[at] = m->keys[(at - 1) / 2];
    m->keys[at] = key;
}

static void scan_window(struct lexical_scan_memory *m, const struct lexical_scan_task *t, int64_t q, int64_t segment,
                        int64_t window) {
    const struct lexical_scan *s = t->scan;
    const struct lexical_scan_segment *in = &s->segments[segment];
    const int64_t *hole = s->queries[q].hole;
    uint32_t begin = (uint32_t)(window - in->first_window) * WINDOW;
    int n = in->chunks - (int32_t)begin < WINDOW ? in->chunks - (int32_t)begin : WINDOW;
    scan_lists((struct scan_sums){m->sums, begin, (uint32_t)n}, s, q, segment);
    for (int i = 0; i < n; i++) {
        int64_t chunk = in->first_chunk + begin + i, position = window * WINDOW + i;
        bool out =
            (chunk >= hole[0] && chunk < hole[1]) || (s->absent && s->absent[position / 8] >> (position % 8) & 1);
        if (m->sums[i] > 0 && !out) scan_offer(m, t->k, (uint64_t)m->sums[i] << 32 | (uint32_t)~position);
    }
}

static void scan_query(const struct lexical_scan_task *t, int64_t q, int worker) {
    const struct lexical_scan *s = t->scan;
    struct lexical_scan_memory *m = device_scratch(t->dev, worker);
    m->n = 0;
    for (int64_t segment = 0; segment < s->n_segments; segment++) {
        const struct lexical_scan_segment *in = &s->segments[segment];
        int64_t windows = (in->chunks + WINDOW - 1) / WINDOW;
        for (int64_t w = 0; w < windows; w++)
            scan_window(m, t, q, segment, in->first_window + w);
    }
    for (int i = m->n; i < t->k; i++) {
        t->index[q * t->k + i] = -1;
        t->score[q * t->k + i] = -INFINITY;
    }
    for (int n = m->n; n > 0; n--) { /* the worst first */
        uint64_t key = m->keys[0];
        uint32_t position = ~(uint32_t)key;
        scan_sink(m->keys, n - 1, m->keys[n - 1]);
        int64_t segment = s->n_segments - 1;
        while (s->segments[segment].first_window > (int64_t)(position / WINDOW))
            segment--;
        const struct lexical_scan_segment *in = &s->segments[segment];
        t->index[q * t->k + n - 1] = in->first_chunk + position - (int64_t)in->first_window * WINDOW;
        t->score[q * t->k + n - 1] = (float)(int32_t)(key >> 32) * s->queries[q].unit;
    }
}

static void scan_queries(void *context, int64_t begin, int64_t end, int worker) {
    for (int64_t q = begin; q < end; q++)
        scan_query(context, q, worker);
}

static void lexical_scan_forward(struct device *dev, int64_t *index, float *score, const struct lexical_scan *scan,
                                 int k) {
    assert(k >= 1 && k <= LEXICAL_SCAN_K_MAX && scan->n_segments >= 1 && scan->windows <= LEXICAL_SCAN_WINDOWS_MAX);
    struct lexical_scan_task t = {dev, index, score, scan, k};
    threads_for(dev->threads, scan->n_queries, 1, scan_queries, &t);
}

/* ---- given chunks ---- */

struct lexical_score_task {
    float *score;
    const struct lexical_scan *scan;
    const int64_t *chunk;
    int n;
};

static void scan_scores(void *context, int64_t begin, int64_t end, int worker) {
    const struct lexical_score_task *t = context;
    const struct lexical_scan *s = t->scan;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        int64_t q = i / t->n, segment = s->n_segments - 1;
        int32_t sum = 0;
        while (segment > 0 && s->segments[segment].first_chunk > t->chunk[i])
            segment--;
        int64_t chunk = t->chunk[i] - s->segments[segment].first_chunk;
        if (chunk >= 0 && chunk < s->segments[segment].chunks)
            scan_lists((struct scan_sums){&sum, (uint32_t)chunk, 1}, s, q, segment);
        t->score[i] = (float)sum * s->queries[q].unit;
    }
}

static void lexical_scan_score(struct device *dev, float *score, const struct lexical_scan *scan, const int64_t *chunk,
                               int n) {
    struct lexical_score_task t = {score, scan, chunk, n};
    assert(n >= 1 && scan->n_segments >= 1);
    threads_for(dev->threads, scan->n_queries * n, 16, scan_scores, &t);
}

const struct lexical_scan_ops lexical_scan_cpu = {.forward = lexical_scan_forward, .score = lexical_scan_score};
