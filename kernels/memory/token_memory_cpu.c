/* token_memory_cpu.c -- a task takes a tile of query rows and one part of the entries that they read, so that a single
 * row also keeps all threads busy; parts are joined in order. Rows and entries of a strip are in the worker's scratch
 * (token_memory_strips.c): no memory grows with rows times entries. */
#include "base/half.h"
#include "kernels/memory/token_memory_internal.h"
#include "kernels/pointwise/simd_internal.h"
#include <assert.h>
#include <math.h>
#include <string.h>

/* Sums of weights of some entries, relative to the nearest one, so that no distance overflows an exponential. */
struct part {
    float near, sum, squares;      /* sum of e, of e^2; e = exp((near - distance) / tau) */
    float target_near, target_sum; /* the same over entries whose value is the target */
};

/* ---- forward ---- */

/* More entries join a row's part. */
static void absorb(struct part *p, const float *d2, const int32_t *value, int64_t n, int32_t target, float per_tau) {
    vf nearest = v_set(p->near), sum = {0}, squares = {0};
    float near, rest = 0.0f, rest_squares = 0.0f;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        nearest = v_min(v_load(d2 + i), nearest); /* ignores NaN, which reaches the sum */
    near = -v_largest(-nearest);
    for (; i < n; i++)
        near = d2[i] < near ? d2[i] : near;
    float origin = near == INFINITY ? 0.0f : near; /* no entry yet: exponentials of -infinity, not of NaN */
    for (i = 0; i + LANES <= n; i += LANES) {
        vf e = v_exp((origin - v_load(d2 + i)) * per_tau);
        sum += e, squares += e * e;
    }
    for (; i < n; i++) {
        float e = expf((origin - d2[i]) * per_tau);
        rest += e, rest_squares += e * e;
    }
    float shrink = near < p->near ? expf((near - p->near) * per_tau) : 1.0f;
    p->sum = p->sum * shrink + (v_sum(sum) + rest);
    p->squares = p->squares * (shrink * shrink) + (v_sum(squares) + rest_squares);
    p->near = near;
    for (i = 0; i < n && target >= 0; i++) {
        if (value[i] != target || d2[i] == INFINITY) continue;
        if (d2[i] < p->target_near) {
            p->target_sum *= expf((d2[i] - p->target_near) * per_tau);
            p->target_near = d2[i];
        }
        p->target_sum += expf((p->target_near - d2[i]) * per_tau);
    }
}

static void forward_strip(const struct memory_task *t, const struct strip *s, int worker, void *context) {
    int part = *(const int *)context;
    strip_distances(t, s, worker);
    for (int64_t r = 0; r < s->rows; r++) {
        int64_t row = s->row + r;
        absorb(&t->part[(row - t->first_row) * t->parts + part], tile_distances(t, worker) + r * KEYS,
               strip_values(t, s), s->count, t->target[row], t->per_tau);
    }
}

static void forward_parts(void *context, int64_t begin, int64_t end, int worker) {
    const struct memory_task *t = context;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / t->parts * t->tile_rows, rows = min_i64(t->tile_rows, t->rows - row);
        int part = (int)(i % t->parts);
        for (int64_t r = row; r < row + rows; r++)
            t->part[r * t->parts + part] = (struct part){INFINITY, 0.0f, 0.0f, INFINITY, 0.0f};
        strips_visit(t, t->first_row + row, rows, part, worker, forward_strip, &part);
    }
}

static double part_factor(float near, float of_part, float per_tau) {
    return of_part == near ? 1.0 : exp(((double)near - (double)of_part) * (double)per_tau);
}

static void join_row(const struct memory_task *t, int64_t row) {
    const struct part *p = t->part + (row - t->first_row) * t->parts;
    float near = INFINITY, target_near = INFINITY;
    double sum = 0.0, squares = 0.0, target_sum = 0.0;
    for (int i = 0; i < t->parts; i++) {
        near = p[i].near < near ? p[i].near : near;
        target_near = p[i].target_near < target_near ? p[i].target_near : target_near;
    }
    for (int i = 0; i < t->parts; i++) {
        double factor = part_factor(near, p[i].near, t->per_tau);
        sum += (double)p[i].sum * factor, squares += (double)p[i].squares * factor * factor;
        target_sum += (double)p[i].target_sum * part_factor(target_near, p[i].target_near, t->per_tau);
    }
    struct token_memory_stats out = t->stats;
    bool empty = near == INFINITY && sum == 0.0;
    double per_tau = (double)t->per_tau, log_sum = log(sum);
    double log_p = target_near == INFINITY && !isnan(sum)
                       ? -INFINITY
                       : ((double)near - (double)target_near) * per_tau + log(target_sum) - log_sum;
    out.log_p[row] = empty ? -INFINITY : isnan(sum) ? NAN : log_p > 0.0 ? 0.0f : (float)log_p;
    out.lse[row] = empty ? -INFINITY : (float)(log_sum - (double)near * per_tau);
    out.nearest[row] = isnan(sum) ? NAN : near;
    out.squares[row] = empty ? 0.0f : (float)(squares / (sum * sum));
    out.largest[row] = empty ? 0.0f : (float)(1.0 / sum);
}

static void join_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct memory_task *t = context;
    (void)worker;
    for (int64_t row = begin; row < end; row++)
        join_row(t, t->first_row + row);
}

static void token_memory_forward(struct device *dev, struct token_memory_stats out, struct mat states,
                                 const struct token_memory *memory, const int32_t *target) {
    struct memory_task t = memory_task_of(dev, states, memory);
    t.stats = out, t.target = target;
    t.part = memory_parts(&t);
    size_t tile_bytes = (size_t)t.tile_rows * (size_t)t.parts * sizeof(struct part);
    assert(tile_bytes <= PARTS_BYTES);
    int64_t most = tile_bytes ? (int64_t)(PARTS_BYTES / tile_bytes) * t.tile_rows : states.rows;
    for (; t.first_row < states.rows; t.first_row += most) {
        t.rows = min_i64(most, states.rows - t.first_row);
        threads_for(dev->threads, (t.rows + t.tile_rows - 1) / t.tile_rows * t.parts, 1, forward_parts, &t);
        threads_for(dev->threads, t.rows, ROWS, join_rows, &t);
    }
}

/* ---- few rows: weights, distribution, contributors ---- */

static void weights_strip(const struct memory_task *t, const struct strip *s, int worker, void *context) {
    (void)context;
    strip_distances(t, s, worker);
    const float *d2 = tile_distances(t, worker);
    int64_t past = (int64_t)t->memory->slots.k * t->memory->slots.slot_rows;
    for (int64_t r = 0; r < s->rows; r++) {
        float *w = mat_row(t->w, s->row + r);
        if (!s->past) memcpy(w + s->column, d2 + r * KEYS, (size_t)s->count * sizeof *w);
        for (int64_t j = 0; s->past && j < s->count; j++) {
            int64_t back = s->row_position + r - 1 - (s->position + j);
            if (back >= 0 && back < t->memory->past.limit) w[past + back] = d2[r * KEYS + j];
        }
    }
}

static void weights_clear(void *context, int64_t begin, int64_t end, int worker) {
    const struct memory_task *t = context;
    (void)worker;
    for (int64_t row = begin; row < end; row++)
        for (int64_t i = 0; i < t->w.cols; i++)
            mat_row(t->w, row)[i] = INFINITY;
}

static void weights_parts(void *context, int64_t begin, int64_t end, int worker) {
    const struct memory_task *t = context;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / t->parts * t->tile_rows, rows = min_i64(t->tile_rows, t->rows - row);
        strips_visit(t, row, rows, (int)(i % t->parts), worker, weights_strip, NULL);
    }
}

/* Of one row's distances, relative to the nearest: e = exp((near - distance) / tau). */
struct row_sums {
    float near;
    double sum, squares;
};

enum { EXPONENTIALS = 4 * LANES }; /* whose sums are float32 */

/* At most EXPONENTIALS distances become exponentials: 0 of an infinite one. */
static void exponentials_add(struct row_sums *out, float *w, int64_t n, float origin, float per_tau) {
    vf sum = {0}, squares = {0};
    for (; n >= LANES; n -= LANES, w += LANES) {
        const vf e = v_exp((origin - v_load(w)) * per_tau);
        v_store(w, e);
        sum += e, squares += e * e;
    }
    if (n > 0) {
        const vf e = v_exp((origin - v_load_part(w, n)) * per_tau);
        v_store_part(w, e, n);
        const vf there = v_load_part(w, n);
        sum += there, squares += there * there;
    }
    for (int i = 0; i < LANES; i++)
        out->sum += (double)sum[i], out->squares += (double)squares[i];
}

/* Distances of a row become weights. */
static struct row_sums weights_of_distances(float *w, int64_t n, float per_tau) {
    struct row_sums out = {.near = INFINITY};
    vf nearest = v_set(INFINITY);
    int64_t at = 0;
    for (; at + LANES <= n; at += LANES)
        nearest = v_min(v_load(w + at), nearest); /* ignores NaN, which reaches the sum */
    out.near = -v_largest(-nearest);
    for (; at < n; at++)
        out.near = w[at] < out.near ? w[at] : out.near;
    const float origin = out.near == INFINITY ? 0.0f : out.near; /* no entry: exponentials of -infinity, not of NaN */
    for (int64_t i = 0; i < n; i += EXPONENTIALS)
        exponentials_add(&out, w + i, min_i64(EXPONENTIALS, n - i), origin, per_tau);
    const float share = out.sum != 0.0 ? (float)(1.0 / out.sum) : 1.0f;
    for (int64_t i = 0; i < n; i++)
        w[i] *= share;
    return out;
}

static void weights_softmax(void *context, int64_t begin, int64_t end, int worker) {
    const struct memory_task *t = context;
    (void)worker;
    for (int64_t row = begin; row < end; row++)
        weights_of_distances(mat_row(t->w, row), t->w.cols, t->per_tau);
}

static void token_memory_weights(struct device *dev, struct mat w, struct mat states,
                                 const struct token_memory *memory) {
    struct memory_task t = memory_task_of(dev, states, memory);
    assert(w.type == DTYPE_F32 && w.rows == states.rows && w.cols == token_memory_columns(memory));
    t.w = w;
    threads_for(dev->threads, t.rows, 1, weights_clear, &t);
    threads_for(dev->threads, (t.rows + t.tile_rows - 1) / t.tile_rows * t.parts, 1, weights_parts, &t);
    threads_for(dev->threads, t.rows, 1, weights_softmax, &t);
}

void token_memory_row(struct device *dev, struct token_memory_stats out, struct mat w, struct mat state,
                      const struct token_memory *memory) {
    struct memory_task t = memory_task_of(dev, state, memory);
    assert(state.rows == 1 && w.type == DTYPE_F32 && w.rows == 1 && w.cols == token_memory_columns(memory));
    t.w = w;
    weights_clear(&t, 0, 1, 0);
    threads_for(dev->threads, t.parts, 1, weights_parts, &t);
    const struct row_sums row = weights_of_distances(mat_row(w, 0), w.cols, t.per_tau);
    const bool empty = row.sum == 0.0;
    *out.lse = empty ? -INFINITY : (float)(log(row.sum) - (double)row.near * (double)t.per_tau);
    *out.nearest = isnan(row.sum) ? NAN : row.near;
    *out.squares = empty ? 0.0f : (float)(row.squares / (row.sum * row.sum));
    *out.largest = empty ? 0.0f : (float)(1.0 / row.sum);
}

/* Where a row of weights belongs. */
struct column_reader {
    const struct token_memory *memory;
    int64_t block, sequence, position, past; /* block -1: none; past: the first column of the text's own past */
};
static struct column_reader column_reader_of(const struct token_memory *m, int64_t row) {
    struct column_reader p = {.memory = m, .block = -1, .past = (int64_t)m->slots.k * m->slots.slot_rows};
    for (int64_t b = 0; m->slots.k && b < m->slots.blocks; b++)
        if (row >= m->slots.row_begin[b] && row < m->slots.row_begin[b + 1]) p.block = b;
    if (m->past.limit) p.sequence = row / m->past.length, p.position = m->past.first + row % m->past.length;
    return p;
}
/* The value of the entry at a column; -1: there is none. */
static int32_t column_value(const struct column_reader *p, int64_t column) {
    const struct memory_slots *slots = &p->memory->slots;
    const struct memory_past *past = &p->memory->past;
    if (column < p->past) {
        const int64_t i = p->block * slots->k + column / slots->slot_rows, in = column % slots->slot_rows;
        const int64_t row = p->block < 0 ? -1 : slot_row(slots, i);
        return row < 0 || in >= slot_entries(slots, i) ? -1 : slots->value[row + in];
    }
    int64_t at = p->position - 1 - (column - p->past);
    return at < 0 ? -1 : past->value[p->sequence * past->ring + at % past->ring];
}

/* Adds n weights to the probabilities of their values; value[i * step] is that of weight i. False: there is a NaN. */
static bool distribution_add(float *p, int64_t words, const float *w, int64_t n, const int32_t *value, int64_t step) {
    for (int64_t i = 0; i < n; i++) {
        if (w[i] == 0.0f) continue;
        if (isnan(w[i])) return false;
        const int32_t to = value[i * step];
        assert(to >= 0 && to < words);
        p[to] += w[i];
    }
    return true;
}

/* A row's columns are the entries of its slots, one slot after the other, and then its past, newest first: in pieces
 * that are consecutive in memory. */
static bool distribution_row(struct mat p, const float *w, int64_t columns, int64_t row, const struct token_memory *m) {
    const struct column_reader reader = column_reader_of(m, row);
    const struct memory_slots *slots = &m->slots;
    float *to = mat_row(p, row);
    memset(to, 0, (size_t)p.cols * sizeof *to);
    for (int64_t i = 0; i < reader.past; i += slots->slot_rows) {
        const int64_t at = reader.block * slots->k + i / slots->slot_rows;
        const int64_t slot = reader.block < 0 ? -1 : slot_row(slots, at);
        if (slot < 0) continue; /* its weights are 0 */
        if (!distribution_add(to, p.cols, w + i, slot_entries(slots, at), slots->value + slot, 1)) return false;
    }
    for (int64_t i = reader.past, at = reader.position - 1, n; i < columns && at >= 0; i += n, at -= n) {
        const int64_t in_ring = at % m->past.ring;
        n = min_i64(columns - i, in_ring + 1);
        const int32_t *value = m->past.value + reader.sequence * m->past.ring + in_ring;
        if (!distribution_add(to, p.cols, w + i, n, value, -1)) return false;
    }
    return true;
}

static void token_memory_distribution(struct device *dev, struct mat p, struct mat w,
                                      const struct token_memory *memory) {
    (void)dev;
    assert(p.type == DTYPE_F32 && p.rows == w.rows && w.cols == token_memory_columns(memory));
    for (int64_t row = 0; row < p.rows; row++)
        if (!distribution_row(p, mat_row(w, row), w.cols, row, memory))
            for (int64_t v = 0; v < p.cols; v++)
                mat_row(p, row)[v] = NAN;
}

static void token_memory_contributors(struct device *dev, int32_t *column, float *weight, struct mat w,
                                      const struct token_memory *memory, const int32_t *token, int k, float threshold) {
    (void)dev;
    assert(k >= 1 && w.cols == token_memory_columns(memory) && w.cols <= INT32_MAX);
    for (int64_t row = 0; row < w.rows; row++) {
        struct column_reader reader = column_reader_of(memory, row);
        int32_t *own_column = column + row * k;
        float *own_weight = weight + row * k;
        for (int i = 0; i < k; i++)
            own_column[i] = -1, own_weight[i] = 0.0f;
        for (int64_t i = 0; i < w.cols; i++) {
            float x = mat_row(w, row)[i];
            if (!(x > 0.0f && x >= threshold && x > own_weight[k - 1]) || column_value(&reader, i) != token[row])
                continue;
            int at = k - 1;
            for (; at > 0 && x > own_weight[at - 1]; at--)
                own_column[at] = own_column[at - 1], own_weight[at] = own_weight[at - 1];
            own_column[at] = (int32_t)i, own_weight[at] = x;
        }
    }
}

/* ---- squared norms, and the mixture ---- */

struct squares_task {
    float *square;
    struct mat keys;
};
static void squares_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct squares_task *t = context;
    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const uint16_t *half = (const uint16_t *)t->keys.data + r * t->keys.stride;
        if (t->keys.type == DTYPE_F32) {
            t->square[r] = v_dot(mat_row(t->keys, r), mat_row(t->keys, r), t->keys.cols);
            continue;
        }
        float row[LANES], sum = 0.0f;
        for (int64_t i = 0; i < t->keys.cols; i += LANES) {
            int64_t n = min_i64(LANES, t->keys.cols - i);
            if (t->keys.type == DTYPE_BF16)
                half_from_bf16_row(row, half + i, (size_t)n);
            else
                half_from_f16_row(row, half + i, (size_t)n);
            sum += v_dot(row, row, n);
        }
        t->square[r] = sum;
    }
}
static void token_memory_squares(struct device *dev, float *square, struct mat keys) {
    struct squares_task t = {square, keys};
    threads_for(dev->threads, keys.rows, ROWS, squares_rows, &t);
}

static float softplus(float x) {
    return x > 0.0f ? x + log1pf(expf(-x)) : log1pf(expf(x));
}

static void token_memory_mix(struct device *dev, struct token_memory_mix out, const float *log_lm, const float *log_p,
                             const float *gate, const int32_t *target, int64_t n, float scale) {
    (void)dev;
    for (int64_t r = 0; r < n; r++) {
        out.nll[r] = out.dgate[r] = out.dlog_lm[r] = out.dlog_p[r] = 0.0f;
        if (target[r] < 0) continue;
        float lm = log_lm[r] - softplus(gate[r]), memory = log_p[r] - softplus(-gate[r]);
        float top = lm > memory ? lm : memory, share = 0.0f;
        if (top == -INFINITY)
            out.nll[r] = INFINITY;
        else {
            share = 1.0f / (1.0f + expf(lm - memory)); /* of the memory in p(target) */
            out.nll[r] = -(top + log1pf(expf(-fabsf(lm - memory))));
            out.dgate[r] = scale * (1.0f / (1.0f + expf(-gate[r])) - share);
            out.dlog_lm[r] = scale * (share - 1.0f);
            out.dlog_p[r] = -scale * share;
        }
    }
}

const struct token_memory_ops token_memory_cpu = {
    .squares = token_memory_squares,
    .forward = token_memory_forward,
    .backward = token_memory_backward,
    .mix = token_memory_mix,
    .weights = token_memory_weights,
    .distribution = token_memory_distribution,
    .contributors = token_memory_contributors,
};
