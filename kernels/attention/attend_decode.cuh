/* attend_decode.cuh -- attention of few query rows (decoding), bf16.
 *
 *   head h, tile of rows z -> cluster (.., h, z) of up to 8 thread blocks (before Hopper: one thread block)
 *   unit  = a slot, or 16 * warps keys of a window  -> group of warps;   units 0, 8, ... -> block 0 of the cluster, ...
 *   warp  = 16 keys of the unit x up to 16 query rows: S by mma.sync, K and V straight from the registers of the loads
 *   group -> one softmax -> sent to the block that owns the row (distributed shared memory)
 *   owner of row r = block r % cluster: adds the units' results in their order, stores o
 *
 * Bound by the latency of a read of global memory, so all reads are issued before the first is used; and by the read
 * rate of one multiprocessor, so several share a head's keys. H200, 12 heads of 64, 8 slots of 63 keys: one row 4.6 us,
 * 16 rows 5.5, 64 rows 6.8; window of 512: one row 5.3 us, 32 rows 6.7; an empty kernel 0.6. More in
 * docs/kernels/gca.md. */
#pragma once
#include "kernels/attention/attend_reference.cuh"
#include "kernels/cuda/tiles.cuh"

enum {
    DECODE_ROWS = 16,            /* query rows of an mma */
    DECODE_KEYS = 16,            /* keys of a unit that a warp has */
    DECODE_CLUSTER = 8,          /* thread blocks of a cluster at most */
    DECODE_BYTES_MAX = 96 * 1024 /* of shared memory */
};
/* Warps of a thread block at most. */
static __host__ __device__ constexpr int decode_warps(bool hopper, int dim) {
    return hopper || dim > 64 ? 8 : 16;
}

/* How a call is divided: rows of a tile; warps of a group, groups of a thread block, blocks of a cluster (ranks); all
 * units of a tile. */
struct decode_shape {
    int rows, warps, groups, ranks, units;
    __host__ __device__ int owned() const { return (rows + ranks - 1) / ranks; }
    __host__ __device__ int exchange_row(int dim) const {
        return dim + 4;
    } /* floats: a unit's result for a row, maximum, sum */
    /* Offsets in shared memory, in floats: maxima and sums [group][warp][16], then results [group][warp][row][dim],
     * then the exchange buffer [unit][owned row]. */
    __host__ __device__ int outs_at() const { return 2 * groups * warps * DECODE_ROWS; }
    __host__ __device__ int exchange_at(int dim) const { return outs_at() + groups * warps * rows * dim; }
    __host__ int bytes(int dim) const {
        return (exchange_at(dim) + units * owned() * exchange_row(dim)) * (int)sizeof(float);
    }
};

/* Stores x at the address of block `rank` of the cluster that corresponds to `at` here. */
static __device__ __forceinline__ void decode_send(float *at, int rank, float4 x) {
#if HOPPER
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
                 "st.shared::cluster.v4.f32 [there], {%2, %3, %4, %5};\n}\n" ::"r"(shared_address(at)),
                 "r"(rank), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
                 : "memory");
#else
    *(float4 *)at = x;
#endif
}
static __device__ __forceinline__ void decode_add(float4 &sum, float4 x, float factor) {
    sum.x += x.x * factor, sum.y += x.y * factor, sum.z += x.z * factor, sum.w += x.w * factor;
}

/* A warp's keys of a unit and their values, as fragments of B. Lane l has of key 8 g + l / 4 the columns
 * 32 p + l % 4 * 8 .. + 7. */
template <int DIM> struct decode_keys {
    static constexpr int PIECES = DIM / 32;
    uint4 k[2][PIECES], v[2][PIECES];

    static __device__ __forceinline__ void fetch(uint4 (&to)[2][PIECES], rows<bf16> from, key_run run, int64_t column,
                                                 int last) {
        int lane = threadIdx.x % 32;
#pragma unroll
        for (int g = 0; g < 2; g++)
#pragma unroll
            for (int p = 0; p < PIECES; p++)
                to[g][p] =
                    *(const uint4 *)(from[run.row(min(g * 8 + lane / 4, last))] + column + p * 32 + lane % 4 * 8);
    }
    __device__ __forceinline__ void load(const attend_views<bf16> &m, key_run run, int64_t column, int count) {
        fetch(k, m.k, run, column, count - 1);
        fetch(v, m.v, run, column, count - 1);
    }
    /* s[g][2 r + c]: of row lane / 4 + 8 r and key 8 g + lane % 4 * 2 + c, not scaled. */
    __device__ __forceinline__ void scores(float (&s)[2][4], const uint4 (&q)[2][PIECES]) const {
#pragma unroll
        for (int g = 0; g < 2; g++) {
            s[g][0] = s[g][1] = s[g][2] = s[g][3] = 0.0f;
#pragma unroll
            for (int p = 0; p < PIECES; p++) { /* any order of columns, the same for q and k */
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
                warp_product(out[p][j], a[0], a[1], a[2], a[3], transposed_matrix((&v[0][p].x)[j]),
                             transposed_matrix((&v[1][p].x)[j]));
            }
    }
};

template <bool WINDOW, int DIM> struct decode_block {
    static constexpr int PIECES = DIM / 32;
    const attend_task &t;
    const attend_views<bf16> &m;
    const decode_shape &f;
    float *tops, *sums, *outs, *exchange; /* all but the last: of this thread's group */
    int lane, group, warp, rank, head, block_rows;
    int64_t row0, column, low; /* window: the first key's position */
    int before, seen;          /* window: the first row's distance from that key; keys in all */
    float slope;

    __device__ __forceinline__ decode_block(const attend_task &task, const attend_views<bf16> &views,
                                            const decode_shape &shape, float *memory)
        : t(task), m(views), f(shape), lane(threadIdx.x % 32), group((int)threadIdx.x / 32 / f.warps),
          warp((int)threadIdx.x / 32 % f.warps), rank((int)blockIdx.x), head((int)blockIdx.y),
          row0((int64_t)blockIdx.z * f.rows), column((int64_t)head * DIM) {
        block_rows = t.n - row0 < f.rows ? (int)(t.n - row0) : f.rows;
        tops = memory + group * f.warps * DECODE_ROWS;
        sums = tops + f.groups * f.warps * DECODE_ROWS;
        outs = memory + f.outs_at() + group * f.warps * f.rows * DIM;
        exchange = memory + f.exchange_at(DIM);
        int64_t position = t.first + row0;
        low = WINDOW && position > t.window ? position - t.window : 0;
        before = (int)(position - low);
        seen = before + block_rows;
        slope = WINDOW ? window_slope(t, head) * ATTEND_LN2 : 0.0f;
    }
    __device__ __forceinline__ void load_queries(uint4 (&q)[2][PIECES]) const {
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int p = 0; p < PIECES; p++)
                q[r][p] = lane / 4 + 8 * r < block_rows
                              ? *(const uint4 *)(m.q[row0 + lane / 4 + 8 * r] + column + p * 32 + lane % 4 * 8)
                              : make_uint4(0, 0, 0, 0);
    }
    /* Issues the loads of this warp's keys of a unit; returns their number: 0 in an empty slot. */
    __device__ __forceinline__ int load(decode_keys<DIM> &a, float *weight, int64_t block, int unit) const {
        int key = (WINDOW ? unit * f.warps + warp : warp) * DECODE_KEYS, count = 0;
        *weight = 0.0f;
        if (WINDOW) {
            count = max(0, min(DECODE_KEYS, seen - key));
            if (count) a.load(m, {0, (low + key) % t.ring, t.ring}, column, count);
        } else if (unit < f.units) {
            int32_t slot = block_slot(t, block, unit);
            float given = block_weight(t, block, unit); /* loaded together with the slot, not after it */
            if (slot >= 0) *weight = given;
            if (*weight != 0.0f) count = max(0, min(DECODE_KEYS, t.live_rows - key));
            if (count) a.load(m, slot_run((int64_t)slot * t.slot_rows + key), column, count);
        }
        return count;
    }
    /* Scales the scores, adds the bias, masks with -inf; returns the maxima of this thread's two rows. */
    __device__ __forceinline__ float2 bias(float (&s)[2][4], int unit, int count) const {
        float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int key = i / 4 * 8 + lane % 4 * 2 + i % 2, r = i / 2 % 2;
            float &x = s[i / 4][i % 4];
            x *= t.scale;
            if (WINDOW) {
                int distance = before + lane / 4 + 8 * r - (unit * f.warps + warp) * DECODE_KEYS - key;
                x = distance < 0 || distance > t.window ? -INFINITY : x - slope * (float)distance;
            }
            if (key >= count) x = -INFINITY;
            top[r] = fmaxf(top[r], x);
        }
        return make_float2(row_max(top[0]), row_max(top[1]));
    }
    /* The warp's P V, with the group's common maximum. */
    __device__ __forceinline__ void attend(const decode_keys<DIM> &a, float (&s)[2][4], float2 *sum) const {
        float top[2] = {!WINDOW && t.null_key ? 0.0f : -INFINITY, !WINDOW && t.null_key ? 0.0f : -INFINITY};
        for (int w = 0; w < f.warps; w++)
#pragma unroll
            for (int r = 0; r < 2; r++)
                top[r] = fmaxf(top[r], tops[w * DECODE_ROWS + lane / 4 + 8 * r]);
        float all[2] = {0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int r = i / 2 % 2;
            float &x = s[i / 4][i % 4];
            x = WINDOW && top[r] == -INFINITY ? 0.0f : natural_exp(x - top[r]);
            all[r] += x;
        }
        *sum = make_float2(row_sum(all[0]), row_sum(all[1]));
        float out[PIECES][4][4];
        a.sums(out, s);
#pragma unroll
        for (int r = 0; r < 2; r++)
            if (lane / 4 + 8 * r < block_rows)
#pragma unroll
                for (int p = 0; p < PIECES; p++)
#pragma unroll
                    for (int j = 0; j < 4; j += 2)
                        *(float4 *)(outs + (warp * f.rows + lane / 4 + 8 * r) * DIM + p * 32 + lane % 4 * 8 + 2 * j) =
                            make_float4(out[p][j][2 * r], out[p][j][2 * r + 1], out[p][j + 1][2 * r],
                                        out[p][j + 1][2 * r + 1]);
    }
    __device__ __forceinline__ void keep(float *rows_of, float2 x) const {
        if (lane % 4 == 0)
            rows_of[warp * DECODE_ROWS + lane / 4] = x.x, rows_of[warp * DECODE_ROWS + lane / 4 + 8] = x.y;
    }
    /* Adds the group's warps and sends each row to its owner. Chunks: the complete softmax times the weight. */
    __device__ __forceinline__ void send(int unit, float weight) const {
        for (int i = warp * 32 + lane; i < block_rows * (DIM / 4); i += f.warps * 32) {
            int row = i / (DIM / 4), c = i % (DIM / 4) * 4;
            float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            float all = 0.0f, top = !WINDOW && t.null_key ? 0.0f : -INFINITY;
            for (int w = 0; w < f.warps; w++) {
                float part = sums[w * DECODE_ROWS + row];
                top = fmaxf(top, tops[w * DECODE_ROWS + row]);
                if (part == 0.0f) continue; /* the warp had no keys */
                decode_add(x, *(const float4 *)(outs + (w * f.rows + row) * DIM + c), 1.0f);
                all += part;
            }
            if (!WINDOW) {
                if (t.null_key) all += natural_exp(-top);
                float factor = weight == 0.0f ? 0.0f : weight / all;
                x = make_float4(x.x * factor, x.y * factor, x.z * factor, x.w * factor);
            }
            float *to = exchange + (unit * f.owned() + row / f.ranks) * f.exchange_row(DIM);
            decode_send(to + c, row % f.ranks, x);
            if (WINDOW && c == 0) decode_send(to + DIM, row % f.ranks, make_float4(top, all, 0.0f, 0.0f));
        }
    }
    /* The rows that this block owns; chunks: 0 outside of begin .. end - 1. */
    __device__ __forceinline__ void store(int units, int64_t begin, int64_t end) const {
        int mine = (block_rows - rank + f.ranks - 1) / f.ranks, step = f.owned() * f.exchange_row(DIM);
        for (int i = threadIdx.x; i < mine * (DIM / 4); i += blockDim.x) {
            int row = i / (DIM / 4), c = i % (DIM / 4) * 4;
            const float *from = exchange + row * f.exchange_row(DIM);
            int64_t at = row0 + row * f.ranks + rank;
            float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            float top = -INFINITY, sum = 0.0f;
            for (int u = 0; u < units && WINDOW; u++)
                top = fmaxf(top, from[u * step + DIM]);
#pragma unroll 4
            for (int u = 0; u < units; u++) {
                float factor = WINDOW ? natural_exp(from[u * step + DIM] - top) : 1.0f;
                decode_add(x, *(const float4 *)(from + u * step + c), factor);
                if (WINDOW) sum += factor * from[u * step + DIM + 1];
            }
            float factor = WINDOW ? 1.0f / sum : at < begin || at >= end ? 0.0f : 1.0f;
            *(uint2 *)(m.o[at] + column + c) =
                make_uint2(pack2(x.x * factor, x.y * factor), pack2(x.z * factor, x.w * factor));
        }
    }
};

template <bool WINDOW, int DIM>
static __global__ void __launch_bounds__(decode_warps(HOPPER, DIM) * 32)
    attend_decode_forward(const __grid_constant__ attend_task t, const __grid_constant__ attend_views<bf16> m,
                          const __grid_constant__ decode_shape f) {
    extern __shared__ float4 memory[];
    decode_block<WINDOW, DIM> b(t, m, f, (float *)memory);
    cluster_arrive(); /* this block runs: others may write into its shared memory after cluster_wait */
    /* With one block of rows its slots are loaded before the block's rows are known. */
    bool one = !WINDOW && t.blocks == 1;
    int64_t block = WINDOW || one ? 0 : find_block(t, b.row0);
    int64_t begin = one ? block_begin(t, 0) : 0, end = one ? block_begin(t, 1) : t.n; /* used at the end */
    int units = WINDOW ? (b.seen + f.warps * DECODE_KEYS - 1) / (f.warps * DECODE_KEYS) : block < 0 ? 0 : f.units;
    uint4 q[2][DIM / 32];
    b.load_queries(q);
    for (int first = 0; first < units || first == 0; first += f.ranks * f.groups) {
        int unit = first + b.rank * f.groups + b.group;
        decode_keys<DIM> keys;
        float weight, s[2][4];
        float2 top = make_float2(-INFINITY, -INFINITY), sum = make_float2(0.0f, 0.0f);
        int count = unit < units ? b.load(keys, &weight, block, unit) : 0;
        if (count) {
            keys.scores(s, q);
            top = b.bias(s, unit, count);
        }
        if (first) __syncthreads(); /* the last round's shared memory has been read */
        b.keep(b.tops, top);
        __syncthreads();
        if (count) b.attend(keys, s, &sum);
        b.keep(b.sums, sum);
        if (first == 0) cluster_wait();
        __syncthreads();
        if (unit < units) b.send(unit, weight);
    }
    cluster_arrive();
    if (b.rank >= b.block_rows) return;
    cluster_wait();
    b.store(units, begin, end);
}
