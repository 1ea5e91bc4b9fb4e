/* token_memory_backward.c -- gradients of log_p and lse on the CPU. With w_i the softmax weight, m = exp(log_p), a =
 * dlog_p and b = dlse of a row, an entry's score gets u_i = a (w_i [value = target] / m - w_i) + b w_i, and
 *
 *   ds = 2/tau sum_i u_i (k_i - s)    dk_i = 2/tau sum_rows u_i (s - k_i)    dtau = sum u_i |s - k_i|^2 / tau^2
 *
 * Two passes over all pairs: a task is a tile of rows (dstates, dtau), then a tile of keys (dkeys, dpast), so that one
 * task computes each sum, in one order. */
#include "kernels/linear/blas_cpu.h"
#include "kernels/memory/token_memory_internal.h"
#include "kernels/pointwise/simd_internal.h"
#include <assert.h>
#include <math.h>

/* The factors of the gradients of one row's scores. */
struct row_slope {
    float near, base, log_p, of_p, all, per_tau; /* base: log of the largest weight */
    int32_t target;
};
static struct row_slope row_slope_of(const struct memory_task *t, int64_t row) {
    float log_p = t->stats.log_p[row], of_p = log_p == -INFINITY ? 0.0f : t->to->dlog_p[row];
    return (struct row_slope){
        t->stats.nearest[row], logf(t->stats.largest[row]), log_p, of_p, t->to->dlse[row] - of_p, t->per_tau,
        t->target[row]};
}

/* The additional gradient of entries with the target's value. */
static float hit_gradient(const struct row_slope *k, float distance, int32_t value) {
    if (value != k->target || k->of_p == 0.0f || distance == INFINITY) return 0.0f;
    return k->of_p * expf((k->near - distance) * k->per_tau + k->base - k->log_p);
}

/* A row's distances become d loss / d z. Returns their sum; adds sum u * distance to *moment. */
static float row_gradient(const struct memory_task *t, const struct strip *s, float *d2, int64_t row, double *moment) {
    const struct row_slope k = row_slope_of(t, row);
    const int32_t *value = strip_values(t, s);
    vf sum = {0}, products = {0};
    float rest = 0.0f, rest_products = 0.0f;
    int64_t j = 0;
    for (; j + LANES <= s->count; j += LANES) {
        vf distance = v_load(d2 + j), u = k.all * v_exp((k.near - distance) * k.per_tau + k.base);
        vi none = distance == v_set(INFINITY);
        bool hit = false;
        for (int64_t i = 0; i < LANES; i++)
            hit |= value[j + i] == k.target;
        for (int i = 0; hit && i < LANES; i++)
            u[i] += hit_gradient(&k, distance[i], value[j + i]);
        u = v_select(none, (vf){0}, u);
        sum += u, products += u * v_select(none, (vf){0}, distance);
        v_store(d2 + j, u);
    }
    for (; j < s->count; j++) {
        float distance = d2[j];
        d2[j] = 0.0f;
        if (distance == INFINITY) continue;
        d2[j] = k.all * expf((k.near - distance) * k.per_tau + k.base) + hit_gradient(&k, distance, value[j]);
        rest += d2[j], rest_products += d2[j] * distance;
    }
    *moment += (double)(v_sum(products) + rest_products);
    return v_sum(sum) + rest;
}

struct row_sums {
    int64_t row;
    float sum[ROWS];
    double moment;
};

static void states_strip(const struct memory_task *t, const struct strip *s, int worker, void *context) {
    struct row_sums *sums = context;
    float *w = tile_distances(t, worker);
    struct mat keys = strip_distances(t, s, worker);
    for (int64_t r = 0; r < s->rows; r++)
        sums->sum[s->row + r - sums->row] += row_gradient(t, s, w + r * KEYS, s->row + r, &sums->moment);
    if (t->to->dstates.data)
        blas_cpu_product((struct blas_product){.y = mat_rows(t->to->dstates, s->row, s->rows),
                                               .a = mat_cols(mat_f32(w, s->rows, KEYS), 0, s->count),
                                               .b = keys,
                                               .scale = 2.0f * t->per_tau,
                                               .keep = 1.0f});
}

/* y -= factor * x. */
static void subtract(float *y, const float *x, int64_t n, float factor) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        v_store(y + i, v_load(y + i) - factor * v_load(x + i));
    for (; i < n; i++)
        y[i] -= factor * x[i];
}

static void states_tiles(void *context, int64_t begin, int64_t end, int worker) {
    const struct memory_task *t = context;
    for (int64_t i = begin; i < end; i++) {
        struct row_sums sums = {.row = t->first_row + i * ROWS};
        int64_t rows = min_i64(ROWS, t->first_row + t->rows - sums.row);
        strips_visit(t, sums.row, rows, -1, worker, states_strip, &sums);
        for (int64_t r = 0; t->to->dstates.data && r < rows; r++)
            subtract(mat_row(t->to->dstates, sums.row + r), mat_row(t->states, sums.row + r), t->states.cols,
                     2.0f * t->per_tau * sums.sum[r]);
        t->dtau[i] = sums.moment;
    }
}

/* One strip's share of the gradients of its keys. */
struct key_sums {
    struct mat dkeys; /* the strip's rows */
    float sum[KEYS];
};
static void keys_strip(const struct memory_task *t, const struct strip *s, int worker, struct key_sums *sums) {
    double moment = 0.0;
    float *w = tile_distances(t, worker);
    strip_distances(t, s, worker);
    for (int64_t r = 0; r < s->rows; r++) {
        row_gradient(t, s, w + r * KEYS, s->row + r, &moment);
        for (int64_t j = 0; j < s->count; j++)
            sums->sum[j] += w[r * KEYS + j];
    }
    blas_cpu_product((struct blas_product){.y = sums->dkeys,
                                           .a = mat_cols(mat_f32(w, s->rows, KEYS), 0, s->count),
                                           .b = mat_rows(t->states, s->row, s->rows),
                                           .a_transposed = true,
                                           .scale = 2.0f * t->per_tau,
                                           .keep = 1.0f});
}
static void finish_keys(const struct memory_task *t, const struct strip *s, int worker, const struct key_sums *sums) {
    struct mat keys = strip_keys(t, s, worker);
    for (int64_t j = 0; j < s->count; j++)
        subtract(mat_row(sums->dkeys, j), mat_row(keys, j), keys.cols, 2.0f * t->per_tau * sums->sum[j]);
}

/* A task is KEYS rows of a slot; rows of the blocks that read it, in the order of blocks. */
static void slot_tiles(void *context, int64_t begin, int64_t end, int worker) {
    const struct memory_task *t = context;
    const struct memory_slots *m = &t->memory->slots;
    const struct gca_inverse *inverse = &t->to->inverse;
    int64_t tiles = (m->slot_rows + KEYS - 1) / KEYS;
    for (int64_t i = begin; i < end; i++) {
        int64_t slot = i / tiles, j = i % tiles * KEYS;
        struct strip s = {.key_row = slot * m->slot_rows + j, .count = min_i64(KEYS, m->slot_rows - j)};
        struct key_sums sums = {.dkeys = mat_rows(t->to->dkeys, s.key_row, s.count)};
        if (inverse->begin[slot] == inverse->begin[slot + 1]) continue;
        for (int32_t at = inverse->begin[slot]; at < inverse->begin[slot + 1]; at++) {
            int64_t block = inverse->entry[at] / m->k, last = m->row_begin[block + 1];
            for (s.row = m->row_begin[block]; s.row < last; s.row += s.rows) {
                s.rows = min_i64(ROWS, last - s.row);
                keys_strip(t, &s, worker, &sums);
            }
        }
        finish_keys(t, &s, worker, &sums);
    }
}

static int64_t past_low(const struct memory_past *m) {
    return greater(0, m->first - m->limit);
}

/* A task is KEYS positions of a sequence; then the rows that read them, in order. */
static void past_tiles(void *context, int64_t begin, int64_t end, int worker) {
    const struct memory_task *t = context;
    const struct memory_past *m = &t->memory->past;
    int64_t low = past_low(m), tiles = (m->first + m->length - low + KEYS - 1) / KEYS;
    for (int64_t i = begin; i < end; i++) {
        int64_t sequence = i / tiles, p = low + i % tiles * KEYS;
        int64_t stop = min_i64(p + KEYS, m->first + m->length), count;
        for (; p < stop; p += count) { /* two pieces where the ring ends inside */
            count = min_i64(stop - p, m->ring - p % m->ring);
            struct strip s = {.key_row = sequence * m->ring + p % m->ring, .count = count, .position = p, .past = true};
            struct key_sums sums = {.dkeys = mat_rows(t->to->dpast, s.key_row, count)};
            int64_t q = greater(m->first, p + 1), last = min_i64(m->first + m->length, p + count + m->limit);
            for (; q < last; q += s.rows) {
                s.rows = min_i64(ROWS, last - q);
                s.row = sequence * m->length + q - m->first, s.row_position = q;
                keys_strip(t, &s, worker, &sums);
            }
            finish_keys(t, &s, worker, &sums);
        }
    }
}

void token_memory_backward(struct device *dev, const struct token_memory_gradients *to, struct mat states,
                           const struct token_memory *memory, const int32_t *target, struct token_memory_stats stats) {
    struct memory_task t = memory_task_of(dev, states, memory);
    const struct memory_past *past = &memory->past;
    assert(!to->dstates.data || (to->dstates.type == DTYPE_F32 && to->dstates.rows == states.rows));
    t.stats = stats, t.target = target, t.to = to;
    t.dtau = memory_parts(&t);
    double dtau = 0.0;
    for (int64_t most = (int64_t)(PARTS_BYTES / sizeof(double)) * ROWS; t.first_row < states.rows;
         t.first_row += most) {
        t.rows = min_i64(most, states.rows - t.first_row);
        int64_t tiles = (t.rows + ROWS - 1) / ROWS;
        threads_for(dev->threads, tiles, 1, states_tiles, &t);
        for (int64_t i = 0; i < tiles; i++)
            dtau += t.dtau[i];
    }
    if (to->dtau) *to->dtau += (float)(dtau * (double)t.per_tau * (double)t.per_tau);
    if (to->dkeys.data && memory->slots.k) {
        int64_t tiles = (memory->slots.slot_rows + KEYS - 1) / KEYS;
        assert(to->dkeys.type == DTYPE_F32 && to->inverse.begin);
        threads_for(dev->threads, to->inverse.slots * tiles, 1, slot_tiles, &t);
    }
    if (to->dpast.data && past->limit) {
        int64_t tiles = (past->first + past->length - past_low(past) + KEYS - 1) / KEYS;
        assert(to->dpast.type == DTYPE_F32);
        threads_for(dev->threads, states.rows / past->length * tiles, 1, past_tiles, &t);
    }
}
