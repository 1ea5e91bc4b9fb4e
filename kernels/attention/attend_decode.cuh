/* attend_decode.cuh -- attention of few rows (decoding), bf16: bound by the time a read of memory takes, so all reads are
 * on their way before the first is used, and by what one multiprocessor can read, so that a head's keys are spread over
 * several.
 *
 * A unit is a slot, or a part of a window: 16 keys for each warp of a team. A warp multiplies them with up to 16 query
 * rows (straight from the registers that the loads filled), a team has one softmax. On Hopper a head's units go round
 * the thread blocks of a cluster, a team each; elsewhere round the teams of one thread block. Each row has an owner
 * among the cluster's blocks, in whose shared memory the units' results land, to be summed in their order.
 *
 * Measured on an H200 (2026-11-22, tests/device/bench_attention.cu, graph replayed), 12 heads of 64, 8 slots of 63
 * keys: a row 4.8 us, 16 rows 5.6, 64 rows 7.0; a window of 512 5.3, 6.1, (32 rows) 6.6 us; an empty kernel 0.6. Tried
 * and lost: a thread block a head and row, no clusters (5.9 and 10.1 us; window 6.7 and 12.3); two teams in each block
 * of the cluster (5.1), clusters of 4 with two (5.1), of 2 (7.4); a launch before the kernel before has ended (4.5, but
 * then nothing may be asked for that it may have written). */
#pragma once
#include "kernels/attention/attend_reference.cuh"
#include "kernels/cuda/tiles.cuh"

enum {
    FEW_TILE = 16,            /* query rows of a product */
    FEW_KEYS = 16,            /* a warp's of a unit */
    FEW_RANKS = 8,            /* blocks of a cluster at most */
    FEW_BYTES_MAX = 96 * 1024 /* of shared memory */
};
/* Warps of a thread block at most. */
static __host__ __device__ constexpr int few_warps(bool hopper, int dim) {
    return hopper || dim > 64 ? 8 : 16;
}

/* How a call is spread: rows of a tile; warps of a team, teams of a thread block, blocks of a cluster; units in all. */
struct few_shape {
    int rows, warps, teams, ranks, units;
    __host__ __device__ int owned() const { return (rows + ranks - 1) / ranks; }
    __host__ __device__ int landed(int dim) const { return dim + 4; } /* a unit's row: result, top, sum */
    /* In shared memory, in floats: tops and sums [team][warp][16], results [team][warp][row][dim], what landed. */
    __host__ __device__ int outs_at() const { return 2 * teams * warps * FEW_TILE; }
    __host__ __device__ int landing_at(int dim) const { return outs_at() + teams * warps * rows * dim; }
    __host__ int bytes(int dim) const { return (landing_at(dim) + units * owned() * landed(dim)) * (int)sizeof(float); }
};

/* To `at` of block `rank` of the cluster. */
static __device__ __forceinline__ void few_land(float *at, int rank, float4 x) {
#if HOPPER
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
                 "st.shared::cluster.v4.f32 [there], {%2, %3, %4, %5};\n}\n" ::"r"(shared_address(at)),
                 "r"(rank), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
                 : "memory");
#else
    *(float4 *)at = x;
#endif
}
static __device__ __forceinline__ void few_add(float4 &sum, float4 x, float factor) {
    sum.x += x.x * factor, sum.y += x.y * factor, sum.z += x.z * factor, sum.w += x.w * factor;
}

/* A warp's keys of a unit and their values. Lane l holds of key 8 g + l / 4 the columns 32 p + l % 4 * 8 .. + 7. */
template <int DIM> struct few_keys {
    static constexpr int PIECES = DIM / 32;
    uint4 k[2][PIECES], v[2][PIECES];

    static __device__ __forceinline__ void fetch(uint4 (&to)[2][PIECES], rows<bf16> from, plain_run run, int64_t column,
                                                 int last) {
        int lane = threadIdx.x % 32;
#pragma unroll
        for (int g = 0; g < 2; g++)
#pragma unroll
            for (int p = 0; p < PIECES; p++)
                to[g][p] =
                    *(const uint4 *)(from[run.row(min(g * 8 + lane / 4, last))] + column + p * 32 + lane % 4 * 8);
    }
    __device__ __forceinline__ void load(const plain_views<bf16> &m, plain_run run, int64_t column, int count) {
        fetch(k, m.k, run, column, count - 1);
        fetch(v, m.v, run, column, count - 1);
    }
    /* s[g][2 r + c]: of row lane / 4 + 8 r and key 8 g + lane % 4 * 2 + c, not scaled. */
    __device__ __forceinline__ void scores(float (&s)[2][4], const uint4 (&q)[2][PIECES]) const {
#pragma unroll
        for (int g = 0; g < 2; g++) {
            s[g][0] = s[g][1] = s[g][2] = s[g][3] = 0.0f;
#pragma unroll
            for (int p = 0; p < PIECES; p++) { /* columns may come in any order, if it is the same on both sides */
                warp_product(s[g], q[0][p].x, q[1][p].x, q[0][p].y, q[1][p].y, k[g][p].x, k[g][p].y);
                warp_product(s[g], q[0][p].z, q[1][p].z, q[0][p].w, q[1][p].w, k[g][p].z, k[g][p].w);
            }
        }
    }
    /* out[p][j][2 r + c] = p V: of row lane / 4 + 8 r and column 32 p + lane % 4 * 8 + 2 j + c. */
    __device__ __forceinline__ void sums(float (&out)[PIECES][4][4], const float (&s)[2][4]) const {
        uint32_t a[4] = {pack2(s[0][0], s[0][1]), pack2(s[0][2], s[0][3]), pack2(s[1][0], s[1][1]),
                         pack2(s[1][2], s[1][3])};
#pragma unroll
        for (int p = 0; p < PIECES; p++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                out[p][j][0] = out[p][j][1] = out[p][j][2] = out[p][j][3] = 0.0f;
                warp_product(out[p][j], a[0], a[1], a[2], a[3], turned_matrix((&v[0][p].x)[j]),
                             turned_matrix((&v[1][p].x)[j]));
            }
    }
};

template <bool WINDOW, int DIM> struct few_block {
    static constexpr int PIECES = DIM / 32;
    const attend_task &t;
    const plain_views<bf16> &m;
    const few_shape &f;
    float *tops, *sums, *outs, *landing; /* but the last: of this thread's team */
    int lane, team, warp, rank, head, rows_here;
    int64_t row0, column, low; /* window: the first key's position */
    int before, seen;          /* window: the first row's distance from that key; keys in all */
    float slope;

    __device__ __forceinline__ few_block(const attend_task &task, const plain_views<bf16> &views,
                                         const few_shape &shape, float *memory)
        : t(task), m(views), f(shape), lane(threadIdx.x % 32), team((int)threadIdx.x / 32 / f.warps),
          warp((int)threadIdx.x / 32 % f.warps), rank((int)blockIdx.x), head((int)blockIdx.y),
          row0((int64_t)blockIdx.z * f.rows), column((int64_t)head * DIM) {
        rows_here = t.n - row0 < f.rows ? (int)(t.n - row0) : f.rows;
        tops = memory + team * f.warps * FEW_TILE;
        sums = tops + f.teams * f.warps * FEW_TILE;
        outs = memory + f.outs_at() + team * f.warps * f.rows * DIM;
        landing = memory + f.landing_at(DIM);
        int64_t position = t.first + row0;
        low = WINDOW && position > t.window ? position - t.window : 0;
        before = (int)(position - low);
        seen = before + rows_here;
        slope = WINDOW ? window_slope(t, head) * ATTEND_LN2 : 0.0f;
    }
    __device__ __forceinline__ void load_queries(uint4 (&q)[2][PIECES]) const {
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int p = 0; p < PIECES; p++)
                q[r][p] = lane / 4 + 8 * r < rows_here
                              ? *(const uint4 *)(m.q[row0 + lane / 4 + 8 * r] + column + p * 32 + lane % 4 * 8)
                              : make_uint4(0, 0, 0, 0);
    }
    /* This warp's share of a unit begins to arrive; returns its keys, none at an empty place. */
    __device__ __forceinline__ int load(few_keys<DIM> &a, float *weight, int64_t block, int unit) const {
        int key = (WINDOW ? unit * f.warps + warp : warp) * FEW_KEYS, count = 0;
        *weight = 0.0f;
        if (WINDOW) {
            count = max(0, min(FEW_KEYS, seen - key));
            if (count) a.load(m, {0, (low + key) % t.ring, t.ring}, column, count);
        } else if (unit < f.units) {
            int32_t slot = block_slot(t, block, unit);
            float given = block_weight(t, block, unit); /* asked for beside the slot, not behind it */
            if (slot >= 0) *weight = given;
            if (*weight != 0.0f) count = max(0, min(FEW_KEYS, t.live_rows - key));
            if (count) a.load(m, slot_run((int64_t)slot * t.slot_rows + key), column, count);
        }
        return count;
    }
    /* Scores scaled, with their bias, -inf where nothing is seen; the two rows' highest. */
    __device__ __forceinline__ float2 bias(float (&s)[2][4], int unit, int count) const {
        float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int key = i / 4 * 8 + lane % 4 * 2 + i % 2, r = i / 2 % 2;
            float &x = s[i / 4][i % 4];
            x *= t.scale;
            if (WINDOW) {
                int distance = before + lane / 4 + 8 * r - (unit * f.warps + warp) * FEW_KEYS - key;
                x = distance < 0 || distance > t.window ? -INFINITY : x - slope * (float)distance;
            }
            if (key >= count) x = -INFINITY;
            top[r] = fmaxf(top[r], x);
        }
        return make_float2(row_max(top[0]), row_max(top[1]));
    }
    /* The warp's results, with one shift of the exponent for the team. */
    __device__ __forceinline__ void attend(const few_keys<DIM> &a, float (&s)[2][4], float2 *sum) const {
        float top[2] = {!WINDOW && t.null_key ? 0.0f : -INFINITY, !WINDOW && t.null_key ? 0.0f : -INFINITY};
        for (int w = 0; w < f.warps; w++)
#pragma unroll
            for (int r = 0; r < 2; r++)
                top[r] = fmaxf(top[r], tops[w * FEW_TILE + lane / 4 + 8 * r]);
        float all[2] = {0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int r = i / 2 % 2;
            float &x = s[i / 4][i % 4];
            x = WINDOW && top[r] == -INFINITY ? 0.0f : plain_exp(x - top[r]);
            all[r] += x;
        }
        *sum = make_float2(row_sum(all[0]), row_sum(all[1]));
        float out[PIECES][4][4];
        a.sums(out, s);
#pragma unroll
        for (int r = 0; r < 2; r++)
            if (lane / 4 + 8 * r < rows_here)
#pragma unroll
                for (int p = 0; p < PIECES; p++)
#pragma unroll
                    for (int j = 0; j < 4; j += 2)
                        *(float4 *)(outs + (warp * f.rows + lane / 4 + 8 * r) * DIM + p * 32 + lane % 4 * 8 + 2 * j) =
                            make_float4(out[p][j][2 * r], out[p][j][2 * r + 1], out[p][j + 1][2 * r],
                                        out[p][j + 1][2 * r + 1]);
    }
    __device__ __forceinline__ void keep(float *rows_of, float2 x) const {
        if (lane % 4 == 0) rows_of[warp * FEW_TILE + lane / 4] = x.x, rows_of[warp * FEW_TILE + lane / 4 + 8] = x.y;
    }
    /* The team's softmax, summed over its warps, goes to the rows' owners. Chunks: whole, times the weight. */
    __device__ __forceinline__ void land(int unit, float weight) const {
        for (int i = warp * 32 + lane; i < rows_here * (DIM / 4); i += f.warps * 32) {
            int row = i / (DIM / 4), c = i % (DIM / 4) * 4;
            float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            float all = 0.0f, top = !WINDOW && t.null_key ? 0.0f : -INFINITY;
            for (int w = 0; w < f.warps; w++) {
                float part = sums[w * FEW_TILE + row];
                top = fmaxf(top, tops[w * FEW_TILE + row]);
                if (part == 0.0f) continue; /* nothing was seen, or nothing written */
                few_add(x, *(const float4 *)(outs + (w * f.rows + row) * DIM + c), 1.0f);
                all += part;
            }
            if (!WINDOW) {
                if (t.null_key) all += plain_exp(-top);
                float factor = weight == 0.0f ? 0.0f : weight / all;
                x = make_float4(x.x * factor, x.y * factor, x.z * factor, x.w * factor);
            }
            float *to = landing + (unit * f.owned() + row / f.ranks) * f.landed(DIM);
            few_land(to + c, row % f.ranks, x);
            if (WINDOW && c == 0) few_land(to + DIM, row % f.ranks, make_float4(top, all, 0.0f, 0.0f));
        }
    }
    /* The rows that this block owns; chunks: 0 outside of begin .. end - 1. */
    __device__ __forceinline__ void store(int units, int64_t begin, int64_t end) const {
        int mine = (rows_here - rank + f.ranks - 1) / f.ranks, step = f.owned() * f.landed(DIM);
        for (int i = threadIdx.x; i < mine * (DIM / 4); i += blockDim.x) {
            int row = i / (DIM / 4), c = i % (DIM / 4) * 4;
            const float *from = landing + row * f.landed(DIM);
            int64_t at = row0 + row * f.ranks + rank;
            float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            float top = -INFINITY, sum = 0.0f;
            for (int u = 0; u < units && WINDOW; u++)
                top = fmaxf(top, from[u * step + DIM]);
#pragma unroll 4
            for (int u = 0; u < units; u++) {
                float factor = WINDOW ? plain_exp(from[u * step + DIM] - top) : 1.0f;
                few_add(x, *(const float4 *)(from + u * step + c), factor);
                if (WINDOW) sum += factor * from[u * step + DIM + 1];
            }
            float factor = WINDOW ? 1.0f / sum : at < begin || at >= end ? 0.0f : 1.0f;
            *(uint2 *)(m.o[at] + column + c) =
                make_uint2(pack2(x.x * factor, x.y * factor), pack2(x.z * factor, x.w * factor));
        }
    }
};

template <bool WINDOW, int DIM>
static __global__ void __launch_bounds__(few_warps(HOPPER, DIM) * 32)
    few_forward(const __grid_constant__ attend_task t, const __grid_constant__ plain_views<bf16> m,
                const __grid_constant__ few_shape f) {
    extern __shared__ float4 memory[];
    few_block<WINDOW, DIM> b(t, m, f, (float *)memory);
    cluster_arrive(); /* this block is there: others may write into it */
    /* With one block of rows its slots can be asked for before it is known which rows are in it. */
    bool one = !WINDOW && t.blocks == 1;
    int64_t block = WINDOW || one ? 0 : find_block(t, b.row0);
    int64_t begin = one ? block_begin(t, 0) : 0, end = one ? block_begin(t, 1) : t.n; /* used at the end */
    int units = WINDOW ? (b.seen + f.warps * FEW_KEYS - 1) / (f.warps * FEW_KEYS) : block < 0 ? 0 : f.units;
    uint4 q[2][DIM / 32];
    b.load_queries(q);
    for (int first = 0; first < units || first == 0; first += f.ranks * f.teams) {
        int unit = first + b.rank * f.teams + b.team;
        few_keys<DIM> keys;
        float weight, s[2][4];
        float2 top = make_float2(-INFINITY, -INFINITY), sum = make_float2(0.0f, 0.0f);
        int count = unit < units ? b.load(keys, &weight, block, unit) : 0;
        if (count) {
            keys.scores(s, q);
            top = b.bias(s, unit, count);
        }
        if (first) __syncthreads(); /* what the last round left in shared memory was read */
        b.keep(b.tops, top);
        __syncthreads();
        if (count) b.attend(keys, s, &sum);
        b.keep(b.sums, sum);
        if (first == 0) cluster_wait();
        __syncthreads();
        if (unit < units) b.land(unit, weight);
    }
    cluster_arrive();
    if (b.rank >= b.rows_here) return;
    cluster_wait();
    b.store(units, begin, end);
}
