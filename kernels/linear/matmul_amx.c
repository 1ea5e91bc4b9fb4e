/* matmul_amx.c -- products of many rows on AMX tiles.
 *
 * A tile holds 16 rows of 64 bytes. One instruction adds to 16 x 16 sums the products of 16 rows of x (32 bf16 numbers
 * each) and 16 rows of w. x and w are first packed tile by tile, 1 KiB each (x: 16 rows of 32 numbers; w: 16 pairs of
 * inputs, each with the pairs of 16 outputs side by side):
 *
 *   x   [block of 16 rows][step of 32 inputs][its 3 parts, or 1 that is rounded]
 *   w   [panel of 32 outputs][step][1 or 3 parts][2 tiles of 16 outputs]
 *
 * While a block of y is computed, its lines of y and the next panel of packed w are prefetched.
 *
 * The inner loop has 2 x 2 tiles of sums in registers: in each step, 4 products a part for 2 tiles of x and, once, 2 of
 * w. Bound by arithmetic. Best measured: 2.3 times OpenBLAS on one thread, packed, weights in bf16
 * (docs/kernels/linear.md).
 *
 * AMX instructions, and the vectors that prepare for them, are compiled under a target attribute: the rest of the
 * program runs on any processor, and calls this file only after amx_open returned true. */
#include "kernels/linear/matmul_amx.h"
#include "base/minmax.h"
#include "kernels/device/device_internal.h"
#include <assert.h>
#include <cpuid.h>
#include <immintrin.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AMX __attribute__((target("avx512f,avx512bw,amx-tile,amx-bf16,avx512bf16"), noinline))
#define AMX_INLINE static inline __attribute__((target("avx512f,avx512bw,amx-tile,amx-bf16,avx512bf16"), always_inline))
/* Not every compiler knows that the instructions that load tiles read memory. */
#define MEMORY_IS_WRITTEN() __asm__ volatile("" ::: "memory")

enum {
    SIDE = 16,          /* rows of a tile, outputs of a tile */
    STEP = 32,          /* of one step */
    PANEL = 2 * SIDE,   /* outputs */
    TILE = SIDE * STEP, /* bf16 numbers */
    PARTS = 3,          /* of a float */
    DEPTH_MAX = 1024,   /* inputs split at once; longer sums are computed in pieces */
    LINE = 64,          /* bytes of a cache line */
    STEPS_AHEAD = 2,    /* of which x is prefetched */
    HEADER = SIDE,      /* floats before packed weights: how many parts they have */
    PANEL_BYTES = DEPTH_MAX / STEP * PARTS * 2 * TILE * 2,
    SUMS_BYTES = 4 * SIDE * SIDE * 4,
    ROWS_BYTES = DEVICE_SCRATCH_BYTES - PANEL_BYTES - SUMS_BYTES,
    PACKED_ROWS = 128 /* split together if weights are packed: they stay in the second-level cache */
};

static bool amx_open(void) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18, EDX_BF16 = 1 << 22, EDX_TILE = 1 << 24 };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & EDX_BF16) || !(d & EDX_TILE)) return false;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw")) return false;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

/* Configures all eight tiles with full size. */
struct tile_config {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
static const struct tile_config whole_tiles = {
    .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

AMX static void tiles_begin(void) {
    _tile_loadconfig(&whole_tiles);
}

AMX static void tiles_end(void) {
    _tile_release();
}

static int64_t amx_steps(int64_t depth) {
    return (depth + STEP - 1) / STEP;
}

static __mmask16 first_lanes(int64_t n) {
    return n >= 16 ? (__mmask16)0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1);
}

/* 32 floats. They are truncated, not rounded: the first part of a finite number is finite, and the rest is exact. */
struct floats {
    __m512 low, high;
};

AMX_INLINE struct floats load_floats(const float *p, int64_t n) {
    return n >= STEP ? (struct floats){_mm512_loadu_ps(p), _mm512_loadu_ps(p + 16)}
                     : (struct floats){_mm512_maskz_loadu_ps(first_lanes(n), p),
                                       _mm512_maskz_loadu_ps(first_lanes(n - 16), n > 16 ? p + 16 : p)};
}

/* The upper halves of 32 floats, side by side: the first part of each. */
AMX_INLINE __m512i first_part(struct floats x) {
    const __m512i odd = _mm512_setr_epi32(0x00030001, 0x00070005, 0x000b0009, 0x000f000d, 0x00130011, 0x00170015,
                                          0x001b0019, 0x001f001d, 0x00230021, 0x00270025, 0x002b0029, 0x002f002d,
                                          0x00330031, 0x00370035, 0x003b0039, 0x003f003d);
    return _mm512_permutex2var_epi16(_mm512_castps_si512(x.low), odd, _mm512_castps_si512(x.high));
}

AMX_INLINE __m512 left_over(__m512 x) {
    __m512i first = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int)0xffff0000u));
    return _mm512_sub_ps(x, _mm512_castsi512_ps(first));
}

AMX_INLINE struct floats rest_of(struct floats x) {
    return (struct floats){left_over(x.low), left_over(x.high)};
}

/* To bf16 numbers, nearest even. */
AMX_INLINE struct floats rounded(struct floats x) {
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh(x.high, x.low);
    __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(both));
    __m512i high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(both, 1));
    return (struct floats){_mm512_castsi512_ps(_mm512_slli_epi32(low, 16)),
                           _mm512_castsi512_ps(_mm512_slli_epi32(high, 16))};
}

/* `rows` rows of `depth` numbers into blocks of 16 rows; rows and numbers past the end are zero. parts: all, or 1, of
 * the rounded number. */
AMX static void split_rows(uint16_t *to, const float *x, int64_t stride, int64_t rows, int64_t depth, int parts) {
    for (int64_t block = 0; block < rows; block += SIDE)
        for (int64_t at = 0; at < depth; at += STEP, to += parts * TILE)
            for (int64_t r = 0; r < SIDE; r++) {
                bool there = block + r < rows;
                const float *from = there ? x + (block + r) * stride + at : x;
                struct floats left = load_floats(from, there ? depth - at : 0);
                if (parts == 1) { /* the same numbers as of `rounded`, side by side already */
                    _mm512_storeu_si512(to + r * STEP, (__m512i)_mm512_cvtne2ps_pbh(left.high, left.low));
                    continue;
                }
                for (int part = 0; part < parts; part++) {
                    _mm512_storeu_si512(to + part * TILE + r * STEP, first_part(left));
                    left = rest_of(left);
                }
            }
}

/* 16 rows of 16 dwords become 16 columns. */
AMX_INLINE void transpose(__m512i row[SIDE]) {
    __m512i a[SIDE];
    for (int i = 0; i < SIDE; i += 2) {
        a[i] = _mm512_unpacklo_epi32(row[i], row[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(row[i], row[i + 1]);
    }
    for (int i = 0; i < SIDE; i += 4)
        for (int j = 0; j < 2; j++) {
            row[i + 2 * j] = _mm512_unpacklo_epi64(a[i + j], a[i + j + 2]);
            row[i + 2 * j + 1] = _mm512_unpackhi_epi64(a[i + j], a[i + j + 2]);
        }
    for (int i = 0; i < 4; i++) {
        a[i] = _mm512_shuffle_i32x4(row[i], row[i + 4], 0x88);
        a[i + 4] = _mm512_shuffle_i32x4(row[i], row[i + 4], 0xdd);
        a[i + 8] = _mm512_shuffle_i32x4(row[i + 8], row[i + 12], 0x88);
        a[i + 12] = _mm512_shuffle_i32x4(row[i + 8], row[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        row[i] = _mm512_shuffle_i32x4(a[i], a[i + 8], 0x88);
        row[i + 8] = _mm512_shuffle_i32x4(a[i], a[i + 8], 0xdd);
    }
}

/* One step of 16 outputs (or fewer). Returns the bits in the lower halves: 0 if one part suffices. */
AMX_INLINE __m512i pack_tile(uint16_t *to, int64_t part_stride, const float *w, int64_t stride, int64_t outs,
                             int64_t depth, int parts, bool round) {
    struct floats left[SIDE];
    __m512i lower = _mm512_setzero_si512(), row[SIDE];
    for (int64_t o = 0; o < SIDE; o++) {
        left[o] = load_floats(o < outs ? w + o * stride : w, o < outs ? depth : 0);
        if (round) left[o] = rounded(left[o]);
        lower = _mm512_or_si512(lower,
                                _mm512_or_si512(_mm512_castps_si512(left[o].low), _mm512_castps_si512(left[o].high)));
    }
    for (int part = 0; part < parts; part++, to += part_stride) {
        for (int o = 0; o < SIDE; o++) {
            row[o] = first_part(left[o]);
            left[o] = rest_of(left[o]);
        }
        transpose(row);
        for (int pair = 0; pair < SIDE; pair++)
            _mm512_storeu_si512(to + pair * STEP, row[pair]);
    }
    return lower;
}

/* Packs a panel whose first output is w's first row; false if its numbers need more than `parts` parts. round: one part
 * is always enough. */
AMX static bool pack_panel(uint16_t *to, const float *w, int64_t stride, int64_t outs, int64_t depth, int parts,
                           bool round) {
    __m512i lower = _mm512_setzero_si512();
    for (int64_t at = 0; at < depth; at += STEP, to += parts * 2 * TILE)
        for (int half = 0; half < 2; half++) {
            int64_t first = half * SIDE < outs ? half * SIDE : 0, n = outs - half * SIDE;
            const float *from = w + first * stride + at;
            lower = _mm512_or_si512(
                lower, parts == 1 ? pack_tile(to + half * TILE, 2 * TILE, from, stride, n, depth - at, 1, round)
                                  : pack_tile(to + half * TILE, 2 * TILE, from, stride, n, depth - at, 3, false));
        }
    return parts == PARTS || _mm512_test_epi32_mask(lower, _mm512_set1_epi32(0xffff)) == 0;
}

/* What the steps of a block prefetch: the next panel of packed weights, to the second-level cache, and the block's own
 * lines of y, to be written. Both would else come from memory while no product is computed. w: NULL: none. */
struct ahead {
    const unsigned char *w;
    int64_t lines; /* of w in a step */
    struct mat y;
};

AMX_INLINE void prefetch_step(const struct ahead *a, int64_t step, int64_t steps) {
    const int64_t rows = (a->y.rows + steps - 1) / steps;
    for (int64_t i = 0; i < a->lines && a->w; i++)
        __builtin_prefetch(a->w + (step * a->lines + i) * LINE, 0, 2);
    for (int64_t r = step * rows; r < (step + 1) * rows && r < a->y.rows; r++) {
        __builtin_prefetch(mat_row(a->y, r), 1, 3);
        __builtin_prefetch(mat_row(a->y, r) + a->y.cols - 1, 1, 3);
    }
}

/* A tile of a later step, to the first-level cache: x and a panel fill it together, so each pass finds neither there.
 */
AMX_INLINE void prefetch_tile(const uint16_t *tile) {
    for (int line = 0; line < TILE * 2 / LINE; line++)
        __builtin_prefetch(tile + line * (LINE / 2), 0, 3);
}

/* Sums of 32 rows (or 16: `pair` false) and a panel: 4 tiles of 16 x 16. x_parts: of a number of x. */
AMX_INLINE void multiply_tiles(float *sums, const uint16_t *x, const uint16_t *w, int64_t steps, int x_parts, int parts,
                               bool pair, const struct ahead *ahead) {
    const uint16_t *below = x + steps * x_parts * TILE;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t s = 0; s < steps; s++, x += x_parts * TILE, below += x_parts * TILE) {
        prefetch_step(ahead, s, steps);
        if (x_parts == 1 && s + STEPS_AHEAD < steps) {
            prefetch_tile(x + STEPS_AHEAD * TILE);
            if (pair) prefetch_tile(below + STEPS_AHEAD * TILE);
        }
        for (int part = 0; part < parts; part++, w += 2 * TILE) {
            _tile_loadd(4, w, 64);
            _tile_loadd(5, w + TILE, 64);
            for (int of_x = 0; of_x < x_parts - part; of_x++) {
                _tile_loadd(6, x + of_x * TILE, 64);
                _tile_dpbf16ps(0, 6, 4);
                _tile_dpbf16ps(1, 6, 5);
                if (!pair) continue;
                _tile_loadd(7, below + of_x * TILE, 64);
                _tile_dpbf16ps(2, 7, 4);
                _tile_dpbf16ps(3, 7, 5);
            }
        }
    }
    _tile_stored(0, sums, 64);
    _tile_stored(1, sums + SIDE * SIDE, 64);
    if (pair) _tile_stored(2, sums + 2 * SIDE * SIDE, 64);
    if (pair) _tile_stored(3, sums + 3 * SIDE * SIDE, 64);
}

AMX static void multiply_rounded(float *sums, const uint16_t *x, const uint16_t *w, int64_t steps, bool pair,
                                 const struct ahead *a) {
    pair ? multiply_tiles(sums, x, w, steps, 1, 1, true, a) : multiply_tiles(sums, x, w, steps, 1, 1, false, a);
}

AMX static void multiply_one_part(float *sums, const uint16_t *x, const uint16_t *w, int64_t steps, bool pair,
                                  const struct ahead *a) {
    pair ? multiply_tiles(sums, x, w, steps, PARTS, 1, true, a) : multiply_tiles(sums, x, w, steps, PARTS, 1, false, a);
}

AMX static void multiply_three_parts(float *sums, const uint16_t *x, const uint16_t *w, int64_t steps, bool pair,
                                     const struct ahead *a) {
    pair ? multiply_tiles(sums, x, w, steps, PARTS, 3, true, a) : multiply_tiles(sums, x, w, steps, PARTS, 3, false, a);
}

AMX static void put_sums(struct mat y, const float *sums, bool accumulate) {
    for (int64_t r = 0; r < y.rows; r++)
        for (int64_t c = 0; c < y.cols; c += SIDE) {
            float *to = mat_row(y, r) + c;
            __mmask16 lanes = first_lanes(y.cols - c);
            __m512 sum = _mm512_loadu_ps(sums + (r / SIDE * 2 + c / SIDE) * SIDE * SIDE + r % SIDE * SIDE);
            if (accumulate) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, to), sum);
            _mm512_mask_storeu_ps(to, lanes, sum);
        }
}

/* A panel of weights; next: the panel that follows, NULL: none or not packed yet. */
struct amx_panel {
    const uint16_t *w, *next;
    int64_t steps;
    int x_parts, parts;
};

/* y (+)= all rows of x, split, by one panel. */
static void multiply_panel(struct mat y, float *sums, const uint16_t *x, struct amx_panel p, bool accumulate) {
    const int64_t blocks = (y.rows + PANEL - 1) / PANEL, lines = p.parts * 2 * TILE * 2 / LINE;
    struct ahead ahead = {.w = (const unsigned char *)p.next, .lines = (lines + blocks - 1) / blocks};
    MEMORY_IS_WRITTEN();
    for (int64_t r = 0; r < y.rows; r += PANEL, x += 2 * p.steps * p.x_parts * TILE) {
        bool pair = y.rows - r > SIDE;
        ahead.y = mat_rows(y, r, y.rows - r < PANEL ? y.rows - r : PANEL);
        if (p.x_parts == 1)
            multiply_rounded(sums, x, p.w, p.steps, pair, &ahead);
        else if (p.parts == 1)
            multiply_one_part(sums, x, p.w, p.steps, pair, &ahead);
        else
            multiply_three_parts(sums, x, p.w, p.steps, pair, &ahead);
        MEMORY_IS_WRITTEN();
        put_sums(ahead.y, sums, accumulate);
        if (ahead.w) ahead.w += p.steps * ahead.lines * LINE;
    }
}

/* A worker's scratch: x split, a panel of w, sums. */
struct amx_buffers {
    uint16_t *x, *panel;
    float *sums;
};

static struct amx_buffers amx_buffers_of(struct device *dev, int worker) {
    unsigned char *scratch = device_scratch(dev, worker);
    return (struct amx_buffers){(uint16_t *)(void *)scratch, (uint16_t *)(void *)(scratch + ROWS_BYTES),
                                (float *)(void *)(scratch + ROWS_BYTES + PANEL_BYTES)};
}

struct amx_task {
    struct device *dev;
    struct mat y, x, w;
    const uint16_t *packed;
    int x_parts, parts;
    bool accumulate;
    int64_t rows, cols, across; /* columns of a task; tasks in a row */
};

static int64_t amx_packed_panel(int64_t in, int parts) {
    return amx_steps(in) * parts * 2 * TILE;
}

/* One task: rows and columns of y. Each depth of x is split once, each panel of w packed once for all the rows. */
static void amx_block(const struct amx_task *t, const struct amx_buffers *buffers, struct mat y, struct mat x,
                      int64_t col) {
    int64_t in = x.cols;
    int parts = t->packed ? t->parts : 1;
    for (int64_t at = 0; at < in; at += DEPTH_MAX) {
        int64_t depth = in - at < DEPTH_MAX ? in - at : DEPTH_MAX, steps = amx_steps(depth);
        split_rows(buffers->x, mat_row(x, 0) + at, x.stride, x.rows, depth, t->x_parts);
        for (int64_t c = 0; c < y.cols; c += PANEL) {
            struct mat part = mat_cols(y, c, y.cols - c < PANEL ? y.cols - c : PANEL);
            const uint16_t *panel = buffers->panel, *next = NULL;
            if (t->packed) {
                panel = t->packed + (col + c) / PANEL * amx_packed_panel(in, parts) + at / STEP * parts * 2 * TILE;
                if (c + PANEL < y.cols) next = panel + amx_packed_panel(in, parts);
            } else {
                const float *w = mat_row(t->w, col + c) + at;
                /* Once a panel needs all parts, the next ones are packed with all; parts that are zero change no sum.
                 */
                if (!pack_panel(buffers->panel, w, t->w.stride, part.cols, depth, parts, false)) {
                    parts = PARTS;
                    pack_panel(buffers->panel, w, t->w.stride, part.cols, depth, parts, false);
                }
            }
            multiply_panel(part, buffers->sums, buffers->x, (struct amx_panel){panel, next, steps, t->x_parts, parts},
                           t->accumulate || at > 0);
        }
    }
}

static void amx_blocks(void *context, int64_t begin, int64_t end, int worker) {
    const struct amx_task *t = context;
    struct amx_buffers buffers = amx_buffers_of(t->dev, worker);
    tiles_begin();
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / t->across * t->rows, col = i % t->across * t->cols;
        int64_t rows = t->y.rows - row < t->rows ? t->y.rows - row : t->rows;
        int64_t cols = t->y.cols - col < t->cols ? t->y.cols - col : t->cols;
        amx_block(t, &buffers, mat_cols(mat_rows(t->y, row, rows), col, cols), mat_rows(t->x, row, rows), col);
    }
    tiles_end();
}

static void amx_product(struct amx_task *t) {
    t->across = (t->y.cols + t->cols - 1) / t->cols;
    threads_for(t->dev->threads, (t->y.rows + t->rows - 1) / t->rows * t->across, 1, amx_blocks, t);
}

/* As many rows as fit, because each task packs w again; then enough tasks for the threads. */
static void amx_forward(struct device *dev, struct mat y, struct mat x, struct mat w, bool accumulate) {
    enum { TASKS_A_THREAD = 4, COLS_LEAST = 96 };
    int64_t fit = ROWS_BYTES / (amx_steps(min_i64(x.cols, DEPTH_MAX)) * PARTS * STEP * 2) / PANEL * PANEL;
    int64_t wanted = threads_count(dev->threads) > 1 ? (int64_t)TASKS_A_THREAD * threads_count(dev->threads) : 1;
    struct amx_task t = {.dev = dev, .y = y, .x = x, .w = w, .x_parts = PARTS, .accumulate = accumulate, .rows = fit};
    int64_t down = (y.rows + fit - 1) / fit, across = (wanted + down - 1) / down;
    t.cols = (y.cols + across - 1) / across;
    t.cols = (t.cols < COLS_LEAST ? COLS_LEAST : t.cols + PANEL - 1) / PANEL * PANEL;
    amx_product(&t);
}

static int64_t amx_packed_elements(int64_t out, int64_t in) {
    return HEADER + (out + PANEL - 1) / PANEL * amx_packed_panel(in, PARTS) / 2;
}

static void amx_pack_parts(float *packed, struct mat w, bool round) {
    uint32_t parts = 1;
    uint16_t *to = (uint16_t *)(void *)(packed + HEADER);
    for (int64_t o = 0; o < w.rows; o += PANEL)
        if (!pack_panel(to + o / PANEL * amx_packed_panel(w.cols, (int)parts), mat_row(w, o), w.stride,
                        min_i64(PANEL, w.rows - o), w.cols, (int)parts, round)) {
            assert(parts == 1);
            parts = PARTS; /* start again */
            o = -PANEL;
        }
    memcpy(packed, &parts, sizeof parts);
}

static void amx_pack(float *packed, struct mat w) {
    amx_pack_parts(packed, w, false);
}

static void amx_pack_rounded(float *packed, struct mat w) {
    amx_pack_parts(packed, w, true);
}

static void amx_multiply_packed(struct device *dev, struct mat y, struct mat x, const float *packed, bool accumulate,
                                int x_parts) {
    enum { PANELS = 8 };
    const int64_t panels = (y.cols + PANEL - 1) / PANEL, down = (y.rows + PACKED_ROWS - 1) / PACKED_ROWS;
    /* Each task splits its rows of x. With one block of rows a thread has one task, so that it splits them once. */
    const int64_t most = down == 1 && panels > PANELS ? panels : PANELS;
    uint32_t parts;
    memcpy(&parts, packed, sizeof parts);
    struct amx_task t = {.dev = dev,
                         .y = y,
                         .x = x,
                         .packed = (const uint16_t *)(const void *)(packed + HEADER),
                         .x_parts = x_parts,
                         .parts = (int)parts,
                         .accumulate = accumulate,
                         .rows = PACKED_ROWS,
                         .cols = device_panels(dev, panels, most, down) * PANEL};
    amx_product(&t);
}

static void amx_forward_packed(struct device *dev, struct mat y, struct mat x, const float *packed, bool accumulate) {
    amx_multiply_packed(dev, y, x, packed, accumulate, PARTS);
}

static void amx_forward_rounded(struct device *dev, struct mat y, struct mat x, const float *packed, bool accumulate) {
    amx_multiply_packed(dev, y, x, packed, accumulate, 1);
}

const struct matmul_amx matmul_amx = {.open = amx_open,
                                      .packed_elements = amx_packed_elements,
                                      .pack = amx_pack,
                                      .forward_packed = amx_forward_packed,
                                      .pack_rounded = amx_pack_rounded,
                                      .forward_rounded = amx_forward_rounded,
                                      .forward = amx_forward};
