/* token_memory_strips.c -- the walk over a memory's entries on the CPU: strips of up to KEYS consecutive key rows that
 * a tile of query rows reads, with their squared distances by one product (OpenBLAS; few rows: dot products). Products
 * run in float32: bf16 tiles (AMX) would round the states, and a squared distance is a small difference of large norms.
 */
#include "base/half.h"
#include "kernels/linear/blas_cpu.h"
#include "kernels/memory/token_memory_internal.h"
#include "kernels/pointwise/simd_internal.h"
#include <assert.h>
#include <math.h>

enum { FEW_ROWS = 4, PART_ENTRIES = 1024 };

static struct mat stored_keys(const struct memory_task *t, const struct strip *s) {
    return mat_rows(s->past ? t->memory->past.keys : t->memory->slots.keys, s->key_row, s->count);
}
static bool is_packed(const struct memory_task *t, const struct strip *s) {
    return !s->past && t->memory->slots.packed.code;
}
static void unpack_keys(const struct memory_task *t, const struct strip *s, struct mat wide) {
    const struct packed_keys packed = t->memory->slots.packed;
    for (int64_t r = s->key_row; r < s->key_row + s->count; r++)
        for (int64_t j = 0; j < wide.cols; j++)
            mat_row(wide, r - s->key_row)[j] = packed.scale[r] * (float)packed.code[r * wide.cols + j];
}
/* ---- squared distances of a strip ---- */

struct mat strip_keys(const struct memory_task *t, const struct strip *s, int worker) {
    struct mat wide = mat_f32(tile_distances(t, worker) + TILE_FLOATS, s->count, t->states.cols);
    if (is_packed(t, s)) {
        unpack_keys(t, s, wide);
        return wide;
    }
    const struct mat keys = stored_keys(t, s);
    if (keys.type == DTYPE_F32) return keys;
    for (int64_t r = 0; r < s->count; r++) {
        const uint16_t *from = (const uint16_t *)keys.data + r * keys.stride;
        if (keys.type == DTYPE_BF16)
            half_from_bf16_row(mat_row(wide, r), from, (size_t)keys.cols);
        else
            half_from_f16_row(mat_row(wide, r), from, (size_t)keys.cols);
    }
    return wide;
}

/* d2[j] = -2 s.k_j becomes |s - k_j|^2; entries that take no part get +infinity. */
static void finish_row(const struct memory_task *t, const struct strip *s, float *d2, const float *square, int64_t r) {
    const int32_t *value = strip_values(t, s);
    const float *state = mat_row(t->states, s->row + r), own = v_dot(state, state, t->states.cols);
    int64_t from = 0, to = s->count;
    if (s->past) {
        int64_t q = s->row_position + r;
        to = greater(0, min_i64(to, q - s->position));
        from = min_i64(to, greater(0, q - t->memory->past.limit - s->position));
    }
    for (int64_t j = 0; j < s->count; j++) {
        float x = d2[j] + (own + square[j]);
        d2[j] = value[j] < 0 || j < from || j >= to ? INFINITY : x < 0.0f ? 0.0f : x;
    }
}

struct mat strip_distances(const struct memory_task *t, const struct strip *s, int worker) {
    float *d2 = tile_distances(t, worker);
    struct mat keys = strip_keys(t, s, worker), rows = mat_rows(t->states, s->row, s->rows);
    if (s->rows < FEW_ROWS) {
        for (int64_t r = 0; r < s->rows; r++)
            for (int64_t j = 0; j < s->count; j++)
                d2[r * KEYS + j] = -2.0f * v_dot(mat_row(rows, r), mat_row(keys, j), keys.cols);
    } else {
        struct mat y = mat_cols(mat_f32(d2, s->rows, KEYS), 0, s->count);
        blas_cpu_product((struct blas_product){.y = y, .a = rows, .b = keys, .b_transposed = true, .scale = -2.0f});
    }
    float squares[KEYS];
    const float *square = squares;
    for (int64_t j = 0; is_packed(t, s) && j < s->count; j++)
        squares[j] = v_dot(mat_row(keys, j), mat_row(keys, j), keys.cols);
    if (!is_packed(t, s)) square = (s->past ? t->memory->past.square : t->memory->slots.square) + s->key_row;
    for (int64_t r = 0; r < s->rows; r++)
        finish_row(t, s, d2 + r * KEYS, square, r);
    return keys;
}

/* ---- the entries that rows read ---- */

/* The first block that ends after `row`. */
static int64_t first_block(const struct memory_slots *m, int64_t row) {
    int64_t low = 0, high = m->blocks;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (m->row_begin[middle + 1] <= row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Slots from .. to-1 of the blocks of these rows. */
static void visit_slots(const struct memory_task *t, int64_t row, int64_t rows, int from, int to, int worker,
                        strip_visitor *visitor, void *context) {
    const struct memory_slots *m = &t->memory->slots;
    for (int64_t b = first_block(m, row); b < m->blocks && m->row_begin[b] < row + rows; b++) {
        int64_t begin = greater(row, m->row_begin[b]), end = min_i64(row + rows, m->row_begin[b + 1]);
        for (int i = from; begin < end && i < min_i64(to, m->k); i++) {
            const int64_t slot = slot_row(m, b * m->k + i), entries = slot_entries(m, b * m->k + i);
            for (int64_t j = 0; slot >= 0 && j < entries; j += KEYS) {
                struct strip s = {.row = begin, .rows = end - begin, .key_row = slot + j};
                s.count = min_i64(KEYS, entries - j);
                s.column = (int64_t)i * m->slot_rows + j;
                visitor(t, &s, worker, context);
            }
        }
    }
}

/* The `part`-th PART_ENTRIES positions (part < 0: all) that the rows of each sequence read. */
static void visit_past(const struct memory_task *t, int64_t row, int64_t rows, int part, int worker,
                       strip_visitor *visitor, void *context) {
    const struct memory_past *m = &t->memory->past;
    for (int64_t begin = row, end; begin < row + rows; begin = end) {
        int64_t sequence = begin / m->length, q = m->first + begin % m->length;
        end = min_i64(row + rows, (sequence + 1) * m->length);
        int64_t low = greater(0, q - m->limit), high = q + (end - begin) - 1;
        if (part >= 0) low += (int64_t)part * PART_ENTRIES, high = min_i64(high, low + PART_ENTRIES);
        for (int64_t p = low, count; p < high; p += count) {
            count = min_i64(min_i64(KEYS, high - p), m->ring - p % m->ring);
            struct strip s = {.row = begin, .rows = end - begin, .key_row = sequence * m->ring + p % m->ring};
            s.count = count, s.position = p, s.row_position = q, s.past = true;
            visitor(t, &s, worker, context);
        }
    }
}

void strips_visit(const struct memory_task *t, int64_t row, int64_t rows, int part, int worker, strip_visitor *visitor,
                  void *context) {
    int first = part < 0 ? 0 : part * t->part_slots, last = part < 0 ? t->memory->slots.k : first + t->part_slots;
    if (part < t->slot_parts && t->slot_parts) visit_slots(t, row, rows, first, last, worker, visitor, context);
    if ((part < 0 || part >= t->slot_parts) && t->memory->past.limit)
        visit_past(t, row, rows, part < 0 ? -1 : part - t->slot_parts, worker, visitor, context);
}

static void check_memory(const struct token_memory *m, struct mat states) {
    assert(states.type == DTYPE_F32 && states.cols <= WIDTH_MAX && m->slots.k >= 0 && m->past.limit >= 0);
    assert(m->slots.k == 0 || (m->slots.keys.cols == states.cols && m->slots.slot_rows >= 1));
    assert(!m->slots.packed.code || (m->past.limit == 0 && m->slots.slot_step >= 1));
    if (m->past.limit == 0) return;
    assert(m->past.keys.cols == states.cols && m->past.length >= 1 && states.rows % m->past.length == 0);
    assert(m->past.first + m->past.length <= m->past.ring || m->past.ring >= m->past.limit + m->past.length);
}

struct memory_task memory_task_of(struct device *dev, struct mat states, const struct token_memory *m) {
    check_memory(m, states);
    struct memory_task t = {.dev = dev, .memory = m, .states = states, .rows = states.rows, .per_tau = 1.0f / *m->tau};
    t.tile_rows = greater(1, min_i64(ROWS, states.rows));
    if (m->slots.k) {
        t.part_slots = (int)greater(1, PART_ENTRIES / m->slots.slot_rows);
        t.slot_parts = (m->slots.k + t.part_slots - 1) / t.part_slots;
    }
    t.parts = t.slot_parts;
    if (m->past.limit) { /* the positions that a tile's rows read together; limit may be much larger */
        int64_t reach = min_i64(m->past.limit, m->past.first + m->past.length) + t.tile_rows;
        t.parts += (int)((reach + PART_ENTRIES - 1) / PART_ENTRIES);
    }
    return t;
}
