/* attend_tiles_forward.cuh -- attention of bf16 tiles with matrix units, forward.
 *
 * A group of 128 threads is one head of 64 query rows (chunks: of one block of rows, 64 at a time). Q's fragments stay
 * in registers; K and V tiles pass through a ring of stages, copied straight from the pool's slots. For each tile: S =
 * Q K^T (32 sums a thread), exponentials in registers, and these as the A operand of O += P V. With chunks each softmax
 * is whole inside its tile, so P is scaled by weight / sum before the product and nothing is rescaled later. Several
 * groups share a multiprocessor: while one computes exponentials, the others' products run.
 *
 * Bound by the L2 cache: a tile pair is 16 KiB for 4 * 64^3 operations. Heads are the grid's slow axis, so that
 * K and V of the heads at work fit in that cache where those of all heads would not.
 *
 * Measured on an H100 (2026-11-21, tests/device/bench_attention.cu; bf16 product on the card: 748 TFLOP/s):
 *   65536 rows, 12 heads of 64, 8 slots of 63 keys    0.30 ms, 341 TFLOP/s (46 %); with lse kept 0.37 ms
 *   window 512, 4 x 16640 rows, 12 heads of 64        0.36 ms, 290 TFLOP/s (39 %)
 *   the sm_80 version of the code on the same card    0.58 and 0.62 ms
 * Tried and lost: three groups a multiprocessor with deeper rings (0.34 to 0.37 ms; four groups of 128 registers win);
 * 2, 4 or 12 heads side by side (0.30, 0.32, 0.37 ms); two query tiles of a window sharing their keys (0.44 ms against
 * 0.41 then); a branch that masks without rarely(): the compiler made selections of it (window: 0.41 ms). */
#pragma once
#include "kernels/attend_cuda.cuh"
#include "kernels/tiles.cuh"

enum { ATTEND_LIST_MAX = 64 }; /* places of a block */

/* The places of one block of rows that are read, in order. */
struct place_list {
    int count, place[ATTEND_LIST_MAX], row[ATTEND_LIST_MAX];
    float weight[ATTEND_LIST_MAX];
};

/* By the first warp. `all`: also places of weight 0. */
static __device__ __forceinline__ void list_places(place_list *list, const attend_task &t, int64_t block, bool all) {
    int count = 0, lane = threadIdx.x;
    for (int first = 0; first < t.k; first += 32) {
        int i = first + lane;
        int32_t slot = i < t.k ? block_slot(t, block, i) : -1;
        float weight = i < t.k ? block_weight(t, block, i) : 0.0f;
        bool take = slot >= 0 && (all || weight != 0.0f);
        unsigned taken = __ballot_sync(~0u, take);
        int at = count + __popc(taken & ((1u << lane) - 1));
        if (take) {
            list->place[at] = i;
            list->row[at] = slot * t.slot_rows;
            list->weight[at] = weight;
        }
        count += __popc(taken);
    }
    if (lane == 0) list->count = count;
}

/* A tile of query rows and the key tiles it reads. Window: key tile i begins 64 * i positions before the query tile. */
struct query_tile {
    int64_t row;
    int rows, count;
    int64_t base, position; /* window: key row of position 0, position of the first row */
};

static __device__ __forceinline__ query_tile window_tile(const attend_task &t, int64_t index) {
    int64_t tiles = (t.length + TILE - 1) / TILE, sequence = index / tiles, offset = index % tiles * TILE;
    query_tile q;
    q.row = sequence * t.length + offset;
    q.rows = t.length - offset < TILE ? (int)(t.length - offset) : TILE;
    q.base = sequence * t.ring;
    q.position = t.first + offset;
    int64_t low = q.position > t.window ? q.position - t.window : 0;
    q.count = (int)((q.position - low + TILE - 1) / TILE) + 1;
    return q;
}
static __device__ __forceinline__ int key_row(const attend_task &t, const query_tile &q, int i) {
    int64_t position = q.position - (int64_t)i * TILE;
    return (int)(q.base + (position < t.ring ? position : position % t.ring));
}

/* Inside a branch: keeps the compiler from turning it into selections that every tile would pay for. */
static __device__ __forceinline__ void rarely() {
    asm volatile("" ::: "memory");
}
/* Scores that a row may not see become -inf. Chunks: keys from `live` on. */
static __device__ __forceinline__ void mask_keys(float (&s)[32], int live) {
    rarely();
    int column = (int)(threadIdx.x % 4) * 2;
#pragma unroll
    for (int i = 0; i < 32; i++)
        if (i / 4 * 8 + column + i % 2 >= live) s[i] = -INFINITY;
}
/* Window: `behind` is the distance of the two tiles' first rows, `position` that of the queries'. */
static __device__ __forceinline__ void mask_window(float (&s)[32], int behind, int window, int64_t position) {
    int missing = behind > position ? (int)(behind - position) : 0; /* keys before position 0 */
    if (behind > 0 && behind + TILE - 1 <= window && missing == 0) return;
    rarely();
    int lane = threadIdx.x % 32, row = behind + threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < 32; i++) {
        int key = i / 4 * 8 + lane % 4 * 2 + i % 2, distance = row + i / 2 % 2 * 8 - key;
        if (distance < 0 || distance > window || key < missing) s[i] = -INFINITY;
    }
}

/* One softmax over a tile: s becomes p * factor. Returns the log2 of the two rows' sums. */
static __device__ __forceinline__ float2 softmax_chunk(float (&s)[32], float to_log2, bool null_key, float weight) {
    float top0 = s[0], top1 = s[2], sum0 = 0.0f, sum1 = 0.0f;
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
        top0 = fmaxf(top0, fmaxf(s[i], s[i + 1]));
        top1 = fmaxf(top1, fmaxf(s[i + 2], s[i + 3]));
    }
    top0 = row_max(top0);
    top1 = row_max(top1);
    if (null_key) {
        top0 = fmaxf(top0, 0.0f);
        top1 = fmaxf(top1, 0.0f);
    }
    top0 *= to_log2;
    top1 *= to_log2;
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
        s[i] = power2(fmaf(s[i], to_log2, -top0));
        s[i + 1] = power2(fmaf(s[i + 1], to_log2, -top0));
        s[i + 2] = power2(fmaf(s[i + 2], to_log2, -top1));
        s[i + 3] = power2(fmaf(s[i + 3], to_log2, -top1));
        sum0 += s[i] + s[i + 1];
        sum1 += s[i + 2] + s[i + 3];
    }
    sum0 = row_sum(sum0);
    sum1 = row_sum(sum1);
    if (null_key) {
        sum0 += power2(-top0);
        sum1 += power2(-top1);
    }
    float factor0 = __fdividef(weight, sum0), factor1 = __fdividef(weight, sum1);
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
        s[i] *= factor0;
        s[i + 1] *= factor0;
        s[i + 2] *= factor1;
        s[i + 3] *= factor1;
    }
    return make_float2(top0 + __log2f(sum0), top1 + __log2f(sum1));
}

/* The running softmax of window mode, in powers of 2 and less slope * row (a constant of each row). */
struct running {
    float top0, top1, sum0, sum1;
};
/* `keys` more: s becomes p; returns by how much earlier sums shrink. The first tile holds a key for every row. */
static __device__ __forceinline__ float2 softmax_window(running &a, float (&s)[32], float to_log2, float slope,
                                                        int behind) {
    float top0 = a.top0, top1 = a.top1, first = slope * (float)((int)(threadIdx.x % 4) * 2 - behind);
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
        float bias = fmaf(slope, 2.0f * i, first), next = bias + slope;
        s[i] = fmaf(s[i], to_log2, bias);
        s[i + 1] = fmaf(s[i + 1], to_log2, next);
        s[i + 2] = fmaf(s[i + 2], to_log2, bias);
        s[i + 3] = fmaf(s[i + 3], to_log2, next);
        top0 = fmaxf(top0, fmaxf(s[i], s[i + 1]));
        top1 = fmaxf(top1, fmaxf(s[i + 2], s[i + 3]));
    }
    top0 = row_max(top0);
    top1 = row_max(top1);
    float2 shrink = make_float2(power2(a.top0 - top0), power2(a.top1 - top1));
    float sum0 = 0.0f, sum1 = 0.0f;
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
        s[i] = power2(s[i] - top0);
        s[i + 1] = power2(s[i + 1] - top0);
        s[i + 2] = power2(s[i + 2] - top1);
        s[i + 3] = power2(s[i + 3] - top1);
        sum0 += s[i] + s[i + 1];
        sum1 += s[i + 2] + s[i + 3];
    }
    a = {top0, top1, a.sum0 * shrink.x + sum0, a.sum1 * shrink.y + sum1};
    return shrink;
}

template <int HALVES>
static __device__ __forceinline__ void scale_rows(float (&o)[32 * HALVES], float first, float second) {
#pragma unroll
    for (int i = 0; i < 32 * HALVES; i += 4) {
        o[i] *= first;
        o[i + 1] *= first;
        o[i + 2] *= second;
        o[i + 3] *= second;
    }
}

/* Rows outside of all blocks, and (partial, lse) places that are empty, of this thread block's head. */
template <int DIM>
static __device__ void fill_empty(const attend_task &t, int64_t block, int head, int64_t begin, int64_t end,
                                  rows<bf16> o, rows<float> lse, bool partial) {
    auto clear = [&](int64_t first, int64_t last, int place) {
        for (int64_t i = first * (DIM / 8) + threadIdx.x; (partial || place == 0) && i < last * (DIM / 8);
             i += WARPGROUP)
            *(uint4 *)(o[place * t.n + i / (DIM / 8)] + head * DIM + i % (DIM / 8) * 8) = make_uint4(0, 0, 0, 0);
        for (int64_t r = first + threadIdx.x; lse.data && r < last; r += WARPGROUP)
            lse[place * t.n + r][head] = -INFINITY;
    };
    for (int i = 0; i < (partial || lse.data ? t.k : 1); i++) {
        if (block == 0) clear(0, begin, i);
        if (block == t.blocks - 1) clear(end, t.n, i);
        if ((partial || lse.data) && block_slot(t, block, i) < 0) {
            if (partial)
                clear(begin, end, i);
            else
                for (int64_t r = begin + threadIdx.x; r < end; r += WARPGROUP)
                    lse[i * t.n + r][head] = -INFINITY;
        }
    }
}

template <int DIM, int STAGES> struct forward_memory {
    static constexpr int TILES = DIM / TILE, STAGE_BYTES = 2 * TILES * TILE_BYTES,
                         BYTES = 1024 + TILES * TILE_BYTES + STAGES * STAGE_BYTES;
};

template <bool WINDOW, int DIM, int STAGES, int RESIDENT>
static __global__ void __launch_bounds__(WARPGROUP, RESIDENT)
    forward_tiles(const __grid_constant__ tile_matrix q_map, const __grid_constant__ tile_matrix k_map,
                  const __grid_constant__ tile_matrix v_map, const __grid_constant__ attend_task t, rows<bf16> o,
                  rows<float> lse, bool partial) {
    using memory = forward_memory<DIM, STAGES>;
    constexpr int TILES = memory::TILES;
    extern __shared__ uint8_t raw[];
    uint8_t *q_tiles = raw + (1024 - shared_address(raw) % 1024) % 1024, *stages = q_tiles + TILES * TILE_BYTES;
    __shared__ uint64_t full[STAGES], q_full;
    __shared__ place_list list;
    int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 + lane / 4;
    int head = (int)blockIdx.y, block = (int)blockIdx.x;
    int live = WINDOW ? TILE : t.live_rows;
    uint32_t stage_bytes = 2 * TILES * live * 128;

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++)
            barrier_init(&full[i], FILL_ARRIVALS);
        barrier_init(&q_full, FILL_ARRIVALS);
        barrier_init_done();
    }
    int64_t begin = 0, end = 0;
    query_tile tile;
    if (WINDOW) {
        tile = window_tile(t, block);
    } else {
        begin = block_begin(t, block);
        end = block_begin(t, block + 1);
    }
    auto fill_queries = [&](int64_t row) {
        fill_begin(&q_full, TILES * TILE_BYTES);
        for (int i = 0; i < TILES; i++)
            tile_copy(q_tiles + i * TILE_BYTES, q_map, head * DIM + i * TILE, (int)row, &q_full);
        fill_end(&q_full);
    };
    __syncthreads();
    if (WINDOW || begin < end) fill_queries(WINDOW ? tile.row : begin); /* on their way while the places are listed */
    if (!WINDOW) {
        if (threadIdx.x < 32) list_places(&list, t, block, partial || lse.data);
        /* Copies bring live rows only: what lies behind them in a slot is never read, and must count as finite. */
        for (int i = threadIdx.x; live < TILE && i < (TILE - live) * 2 * STAGES * TILES * 8; i += WARPGROUP)
            *(uint4 *)(stages + i / 8 % (2 * STAGES * TILES) * TILE_BYTES +
                       (live + i / 8 / (2 * STAGES * TILES)) * 128 + i % 8 * 16) = make_uint4(0, 0, 0, 0);
        fence_async();
    }
    __syncthreads();
    int count = WINDOW ? tile.count : list.count;
    int64_t query_tiles = WINDOW ? 1 : (end - begin + TILE - 1) / TILE, items = query_tiles * count;

    int filled_index = 0; /* of the next copy, in its query tile */
    auto fill = [&](int64_t item) {
        uint8_t *to = stages + item % STAGES * memory::STAGE_BYTES;
        uint64_t *barrier = &full[item % STAGES];
        int row = WINDOW ? key_row(t, tile, filled_index) : list.row[filled_index];
        fill_begin(barrier, stage_bytes);
        for (int i = 0; i < TILES; i++) {
            tile_copy(to + i * TILE_BYTES, k_map, head * DIM + i * TILE, row, barrier);
            tile_copy(to + (TILES + i) * TILE_BYTES, v_map, head * DIM + i * TILE, row, barrier);
        }
        fill_end(barrier);
        filled_index = filled_index + 1 == count ? 0 : filled_index + 1;
    };
    for (int i = 0; i < STAGES && i < items; i++)
        fill(i);
    if (!WINDOW) fill_empty<DIM>(t, block, head, begin, end, o, lse, partial);

    float to_log2 = t.scale * ATTEND_LOG2E, slope = WINDOW ? window_slope(t, head) : 0.0f;
    int64_t lse_plane = t.n * lse.stride;
    bool zero_row = t.null_key && live == TILE - 1; /* the tile's last row of zeros is the null key */
    float s[32], out[32 * TILES];
    uint32_t q[16 * TILES], p[16];
    int64_t item = 0;
    for (int64_t at = 0; at < query_tiles; at++) {
        if (!WINDOW) {
            tile.row = begin + at * TILE;
            tile.rows = end - tile.row < TILE ? (int)(end - tile.row) : TILE;
        }
        float *lse_row = lse.data + (tile.row + row0) * lse.stride + head;
        barrier_wait(&q_full, at & 1);
        load_fragments<TILES>(q, q_tiles);
#pragma unroll
        for (int i = 0; i < 32 * TILES; i++)
            out[i] = 0.0f;
        running a = {-INFINITY, -INFINITY, 0.0f, 0.0f};
        auto scores = [&](int64_t of) {
            barrier_wait(&full[of % STAGES], of / STAGES & 1);
            pin(s);
            products_begin();
            multiply_rows<TILES>(s, q, stages + of % STAGES * memory::STAGE_BYTES);
            products_commit();
        };
        auto add_values = [&](int i) { /* scores of tile i -> p; out += p V begins */
                                       products_wait<0>();
                                       pin(s);
                                       if (WINDOW) {
                                           mask_window(s, i * TILE, t.window, tile.position);
                                           float2 shrink = softmax_window(a, s, to_log2, slope, i * TILE);
                                           scale_rows<TILES>(out, shrink.x, shrink.y);
                                       } else {
                                           if (live < TILE && !zero_row) mask_keys(s, live);
                                           float2 log2_sum = softmax_chunk(s, to_log2, t.null_key && !zero_row,
                                                                           partial ? 1.0f : list.weight[i]);
                                           if (lse.data && lane % 4 == 0) {
                                               float *to = lse_row + list.place[i] * lse_plane;
                                               if (row0 < tile.rows) to[0] = log2_sum.x * ATTEND_LN2;
                                               if (row0 + 8 < tile.rows) to[8 * lse.stride] = log2_sum.y * ATTEND_LN2;
                                           }
                                       }
                                       pack(p, s);
                                       pin(p);
                                       pin(out);
                                       products_begin();
                                       multiply_columns<TILES>(
                                           out, p, stages + item % STAGES * memory::STAGE_BYTES + TILES * TILE_BYTES);
                                       products_commit();
        };
        auto release = [&](int i) { /* all warps are done with this stage */
                                    pin(out);
                                    pin(p);
                                    __syncthreads();
                                    if (item + STAGES < items) fill(item + STAGES);
                                    if (!WINDOW && partial) {
                                        store_rows<TILES>(out, 1.0f, q_tiles,
                                                          o[list.place[i] * t.n + tile.row] + head * DIM, o.stride,
                                                          tile.rows);
#pragma unroll
                                        for (int c = 0; c < 32 * TILES; c++)
                                            out[c] = 0.0f;
                                    }
                                    item++;
        };
        /* The last round stands alone: a choice inside the loop would make the compiler wait for products in flight. */
        if (count) {
            scores(item);
            for (int i = 0; i + 1 < count; i++) {
                add_values(i);
                scores(item + 1);
                products_wait<1>();
                release(i);
            }
            add_values(count - 1);
            products_wait<0>();
            release(count - 1);
        }
        if (WINDOW) {
            float sum0 = row_sum(a.sum0), sum1 = row_sum(a.sum1);
            scale_rows<TILES>(out, __fdividef(1.0f, sum0), __fdividef(1.0f, sum1));
            if (lse.data && lane % 4 == 0) {
                float log0 = a.top0 + __log2f(sum0) - slope * (float)row0;
                float log1 = a.top1 + __log2f(sum1) - slope * (float)(row0 + 8);
                if (row0 < tile.rows) lse[tile.row + row0][head] = log0 * ATTEND_LN2;
                if (row0 + 8 < tile.rows) lse[tile.row + row0 + 8][head] = log1 * ATTEND_LN2;
            }
        }
        if (!partial) store_rows<TILES>(out, 1.0f, q_tiles, o[tile.row] + head * DIM, o.stride, tile.rows);
        if (at + 1 < query_tiles) {
            fence_async();
            __syncthreads();
            fill_queries(begin + (at + 1) * TILE);
        }
    }
}
