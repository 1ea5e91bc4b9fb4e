/* decode_step_product.cuh -- matrix-vector products of the decode step: this block's rows of a matrix times the
 * residual stream, which all blocks have.
 *
 *            columns of d: warp 0      warp 1     ...     warp 7
 *   rows   [ 8 x 32 tiles  ][             ]  ...  [             ]   A: weights, from the ring into registers
 *          x  x[warp 0]        x[warp 1]     ...     x[warp 7]      B: the stream times the norm's weights, 2 x bf16
 *          =  partial sums     partial sums  ...  partial sums      through shared memory; then every warp adds all
 *
 * Each warp has STRIPS strips of 32 columns, so it waits for the sums of its own columns only, and the stream passes no
 * block barrier. Tensor cores multiply (mma.m16n8k16). A float32 of the stream is two bf16, the rounded value and its
 * residual (16 bits of mantissa together); they are two of the eight columns of B. Weights are read into registers
 * before the warp waits for the stream.
 *
 * The order of columns within a product is free, and a product of 16 rows may be two of 8: lane 4 g + k holds columns
 * 8 k .. 8 k + 7 of a strip of row g, as pairs 0 1 2 3. The tensor core takes pairs 0 and 2 as its row g, 1 and 3 as
 * its row g + 8; B's columns follow that order. So one 16-byte read and one mma serve 8 rows and 32 columns.
 *
 * Every warp adds all partial sums itself, because each warp sends the results to a different block of the cluster. */
#pragma once
#include "kernels/decode_step/decode_step_i8.cuh"
#include "kernels/decode_step/logit_share.cuh"

/* Shared memory of a block, before the ring. */
template <int DIM, int STRIPS, int UNITS> struct step_shared {
    using attention = step_attention<DIM>;
    enum { SUMS = UNITS ? 64 : 2 * UNITS_MAX, SUMMANDS = STEP_WARPS };
    uint64_t full[RING_STAGES], empty[RING_STAGES];
    uint64_t signals[3];                                   /* mbarriers: the cluster has sent vectors, parts, down */
    uint64_t gathered[STREAM_BUFFERS];                     /* mbarriers of stream */
    alignas(16) float sum[SUMS][SUMMANDS + 4];             /* partial sums of a row, by warp */
    float squares[STEP_WARPS];                             /* of the stream's columns of a warp */
    alignas(16) unsigned vectors[3 * DIM];                 /* of the head, step_split: query, new key, new value */
    alignas(16) float2 scores[STEP_CLUSTER];               /* of each block: maximum score, sum of exponentials */
    alignas(16) unsigned parts[STEP_CLUSTER][DIM / 2 + 4]; /* of each block: its weighted values, pairs of bf16 */
    alignas(16) float stream[STREAM_BUFFERS][STRIPS * 32 * STEP_WARPS]; /* sums of an exchange, by column */
    alignas(16) float down[STEP_CLUSTER][STRIPS * 32];  /* of each block, for this block's rows of Wdown */
    float rows[2][attention::WARPS * attention::WIDTH]; /* results of the attention warps, double buffered */
    /* of a warp: its strips of the stream, split; or the activations of all units */
    alignas(16) unsigned scratch[STEP_WARPS][UNITS ? STRIPS * 32 : UNITS_MAX * 4];
    alignas(16) unsigned char keys[attention::BYTES];
    unsigned long long picks[STEP_WARPS]; /* of each warp: the key of its greatest logit (decode_step_pick.cuh) */
};
enum step_signal { VECTORS, PARTS, DOWN };

/* The state of a consumer thread. */
template <int DIM, int STRIPS, int UNITS, bool I8> struct step_block {
    using sizes = step_sizes<DIM, STRIPS, UNITS, I8>;
    using shared_memory = step_shared<DIM, STRIPS, UNITS>;
    enum { COLUMNS = STRIPS * 32 /* of a warp */, PAIRS = (STRIPS + 1) / 2 };
    const step_task &t;
    shared_memory &s;
    step_ring ring;
    int lane, warp, rank;       /* rank: of the block in its cluster */
    unsigned peer_base;         /* shared memory of the peer: warp w sends to block w of the cluster */
    int units;                  /* of the block */
    unsigned phases;            /* parity bit of each of `signals` */
    step_accumulator *exchange; /* accumulators of the next exchange */
    unsigned exchanges_made;
    bool pending, aside; /* the last exchange is not in x yet; it must not be added to x */
    float2 x[PAIRS];     /* the residual stream, float32: pairs lane + 32 i of this warp's columns */
    int eight;           /* 8 bits: the number of the block's first eight of units in its block of 64 */
    float vector_scale;  /* 8 bits: of the vector that load_vector has made */

    __device__ __forceinline__ bool has(int pair, int cols) const { /* is pair lane + 32 * pair below `cols`? */
        return lane + 32 * pair < COLUMNS / 2 && warp * COLUMNS + 2 * lane + 64 * pair < cols;
    }
    __device__ __forceinline__ void begin() {
        const int id = t.picked ? *t.picked : t.id;
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            const bf16 *from = t.embed + (int64_t)id * t.d + warp * COLUMNS + 2 * lane + 64 * i;
            unsigned both = has(i, t.d) ? *(const unsigned *)from : 0;
            x[i] = make_float2(step_low(both), step_high(both));
        }
    }
    /* h = x + the sums of the last exchange; x = h unless `aside`. Waits for the exchange warps of the cluster. */
    __device__ __forceinline__ void add_exchange(float2 (&h)[PAIRS]) {
        unsigned slot = (exchanges_made - 1) % STREAM_BUFFERS;
        step_wait(shared_address(&s.gathered[slot]), (exchanges_made - 1) / STREAM_BUFFERS % 2);
        pending = false;
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            if (lane + 32 * i >= COLUMNS / 2) continue;
            float2 more = *(const float2 *)&s.stream[slot][warp * COLUMNS + 2 * lane + 64 * i];
            h[i] = make_float2(x[i].x + more.x, x[i].y + more.y);
            if (!aside) x[i] = h[i];
        }
    }
    /* This block has added its summands of an exchange. `for_mlp`: GCA's output is added to the MLP's input only, not
     * to the residual stream (model.md §5). */
    __device__ __forceinline__ void end_exchange(bool for_mlp) {
        float2 h[PAIRS];
        if (pending) add_exchange(h);
        pending = true, aside = for_mlp, exchange += sizes::P, exchanges_made++;
    }
    __device__ __forceinline__ unsigned peer(const void *own) const {
        return peer_base + (shared_address(own) - shared_address(&s));
    }
    __device__ __forceinline__ unsigned peer_signal(step_signal what) const {
        return peer(&s.signals[what]);
    }
    /* Called by all threads; those with `waits` false only keep the parity. */
    __device__ __forceinline__ void wait_signal(step_signal what, bool waits) {
        if (waits) step_wait(shared_address(&s.signals[what]), phases >> what & 1);
        phases ^= 1u << what;
    }
    __device__ __forceinline__ void expect(step_signal what, int bytes) {
        if (threadIdx.x == 0) barrier_expect(shared_address(&s.signals[what]), (unsigned)bytes);
    }
    __device__ __forceinline__ unsigned wait_stage(int bytes) {
        unsigned stage = ring.address_of(bytes);
        step_wait(ring.full + ring.slot(), ring.parity());
        return stage;
    }
    /* The warp has read the stage into registers: the producer may overwrite it. */
    __device__ __forceinline__ void release_stage(int bytes) {
        __syncwarp();
        if (lane == 0)
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(ring.empty + ring.slot()) : "memory");
        ring.advance(bytes);
    }

    /* b: the residual stream times the norm's weights at `norm` (`cols` of them), as fragments of B. squares: this
     * lane's sum of the stream's squares. `copy` [d], unless NULL, gets the stream. */
    __device__ __forceinline__ void load_vector(uint2 (&b)[STRIPS], float &squares, unsigned norm, int cols,
                                                bf16 *copy) {
        unsigned by[PAIRS];
        int column = warp * COLUMNS + 2 * lane;
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            asm volatile("ld.shared.u32 %0, [%1];"
                         : "=r"(by[i])
                         : "r"(norm + (has(i, cols) ? column + 64 * i : 0) * 2)
                         : "memory");
            if (!has(i, cols)) by[i] = 0;
        }
        float2 h[PAIRS];
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            h[i] = x[i];
        if (pending) add_exchange(h);
        squares = 0.0f;
        float2 y[PAIRS];
        unsigned *to = s.scratch[warp] + lane / 4 * 4 + lane % 2 * 2 + lane / 2 % 2; /* of four pairs 0 2 1 3 */
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            if (copy && has(i, t.d)) *(unsigned *)(copy + column + 64 * i) = pack2(h[i].x, h[i].y);
            squares += h[i].x * h[i].x + h[i].y * h[i].y;
            float low = h[i].x * step_low(by[i]), high = h[i].y * step_high(by[i]);
            y[i] = make_float2(low, high);
            if constexpr (I8) continue;
            unsigned rounded = pack2(low, high);
            if (lane + 32 * i < COLUMNS / 2)
                to[32 * i] = rounded, to[32 * i + STRIPS * 16] = step_residual(low, high, rounded);
        }
        if constexpr (I8) return step_load_digits(*this, b, y);
        __syncwarp();
        /* four of B's columns: rounded value and residual for row g, then for row g + 8 */
        unsigned at = shared_address(s.scratch[warp]) + lane / 4 % 2 * STRIPS * 64 + lane % 4 * 16 + lane / 8 % 2 * 8;
#pragma unroll
        for (int j = 0; j < STRIPS; j++)
            b[j] = step_shared_load2(at + j * 64);
    }
    /* Stores this warp's partial sums of a tile. Two lanes of each row have a part; they are added first, because every
     * warp then reads all partial sums, and that takes most of the time. */
    __device__ __forceinline__ void store_sums(int tile, const float4 &c) {
        float part = lane % 2 ? c.z + c.w : c.x + c.y, other = __shfl_xor_sync(~0u, part, 1);
        if (lane % 4 == 0) s.sum[tile * 8 + lane / 4][warp] = part + other;
    }
    /* The sum of a row over all warps; after step_barrier. */
    __device__ __forceinline__ float total(int row) const {
        const float4 *p = (const float4 *)s.sum[row];
        float4 a = p[0], b = p[1];
        return (a.x + a.y + (a.z + a.w)) + (b.x + b.y + (b.z + b.w));
    }
    __device__ __forceinline__ float scale() const {
        const float4 *p = (const float4 *)s.squares;
        float4 a = p[0], b = p[1];
        float sum = a.x + a.y + (a.z + a.w) + (b.x + b.y + (b.z + b.w));
        return rsqrtf(sum * t.share + t.eps);
    }
    /* `steps` of the five steps of a warp sum, from `step` on. The caller spreads them between products, as each step
     * waits for the one before. */
    static __device__ __forceinline__ float sum_squares(float squares, int step, int steps) {
#pragma unroll
        for (int i = step; i < step + steps && i < 5; i++)
            squares += __shfl_xor_sync(~0u, squares, 16 >> i);
        return squares;
    }
    __device__ __forceinline__ void store_squares(float squares) {
        if (lane == 0) s.squares[warp] = squares;
    }

    /* `staged` tiles of a product. */
    template <int EACH>
    __device__ __forceinline__ void load_tiles(step_tiles<STRIPS, EACH, I8> &w, unsigned stage, int staged) const {
        unsigned from = stage + warp * STRIPS * 512 + lane * 16;
#pragma unroll
        for (int m = 0; m < EACH; m++)
#pragma unroll
            for (int j = 0; j < STRIPS; j++)
                w.a[m][j] = m < staged ? step_shared_load4(from + m * sizes::TILE + j * 512) : make_uint4(0, 0, 0, 0);
    }
    /* Their products with b, as partial sums of tile `first` and the next ones; with_squares: also the warp's sum of
     * `squares`. */
    template <int EACH>
    __device__ __forceinline__ void store_products(int first, int staged, const step_tiles<STRIPS, EACH, I8> &w,
                                                   const uint2 (&b)[STRIPS], float &squares, bool with_squares) {
        float4 c[EACH] = {};
#pragma unroll
        for (int j = 0; j < STRIPS; j++) {
#pragma unroll
            for (int m = 0; m < EACH; m++)
                if (m < staged) step_mma(c[m], w.a[m][j], b[j].x, b[j].y);
            if (with_squares) squares = sum_squares(squares, 2 * j, j + 1 < STRIPS ? 2 : 5);
        }
        if (with_squares) store_squares(squares);
#pragma unroll
        for (int m = 0; m < EACH; m++)
            if (m < staged) store_sums(first + m, c[m]);
    }
    /* Products of `tiles` tiles with the stream, EACH tiles a stage; partial sums go to shared memory. */
    template <int EACH> __device__ __forceinline__ void product(int tiles, bf16 *copy) {
        uint2 b[STRIPS];
        float squares = 0.0f;
#pragma unroll 1
        for (int first = 0; first < tiles; first += EACH) {
            int staged = min(EACH, tiles - first), bytes = staged * sizes::TILE + (first ? 0 : sizes::NORM);
            unsigned stage = wait_stage(bytes);
            step_tiles<STRIPS, EACH, I8> w;
            if constexpr (I8)
                step_load_tiles<true>(*this, w, stage, staged, sizes::P);
            else
                load_tiles(w, stage, staged);
            if (first == 0) load_vector(b, squares, stage + staged * sizes::TILE, sizes::P, copy);
            release_stage(bytes);
            if constexpr (I8) {
                if (first == 0) store_squares(sum_squares(squares, 0, 5));
                step_store_products(*this, first, staged, w, b);
            } else {
                store_products(first, staged, w, b, squares, first == 0);
            }
        }
    }

    /* keys has the residual stream, written by this thread: it becomes its norm. */
    __device__ __forceinline__ void norm_keys(bf16 *keys, const bf16 *norm, float by) const {
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            int column = warp * COLUMNS + 2 * lane + 64 * i;
            if (!has(i, t.d)) continue;
            unsigned x = *(const unsigned *)(keys + column), w = *(const unsigned *)(norm + column);
            *(unsigned *)(keys + column) = pack2(step_low(x) * by * step_low(w), step_high(x) * by * step_high(w));
        }
    }

    /* After the products with gate and up: the factor of all sums. */
    template <bool KEYS> __device__ __forceinline__ float finish_product(int layer) {
        step_barrier();
        float by = scale();
        if (KEYS && step_has_keys(t, layer)) {
            norm_keys(t.key_state, t.norms + ((int64_t)layer * 3 + 2) * sizes::P, by);
            step_keys_arrive(); /* without a wait: all blocks wait for this block's part of the MLP */
        }
        return by;
    }
    /* SwiGLU of a row of gate; lanes of rows of up, which are eight rows after it, get other numbers. */
    __device__ __forceinline__ float activation(int row, float by, int units) const {
        float y = row < 2 * units ? total(row) * by : 0.0f, z = __shfl_xor_sync(~0u, y, 8);
        return __fdividef(y, 1.0f + power2(y * -STEP_LOG2E)) * z;
    }
    /* Results of a stage of Wdown, tiles `first` and the next ones: of two rows, in each fourth lane. */
    __device__ __forceinline__ void send_down(int first, const float2 (&sum)[sizes::DOWN_STAGE]) const {
#pragma unroll
        for (int i = 0; i < sizes::DOWN_STAGE && lane % 4 == 0; i += 2)
            step_send(peer(&s.down[rank][lane / 4 * 4 * STRIPS + (first + i) * 2]),
                      make_float4(sum[i].x, sum[i].y, sum[i + 1].x, sum[i + 1].y), peer_signal(DOWN));
    }
    /* The block's columns of Wdown times its activations. Each result goes to the owner of its row. */
    template <int KNOWN, bool KEYS> __device__ __forceinline__ void down(int layer) {
        int units = KNOWN ? KNOWN : this->units;
        constexpr int STEPS = KNOWN ? KNOWN / 8 : 1; /* of 8 units */
        int tile = sizes::down(units, 0), bytes = sizes::DOWN_STAGE * tile;
        unsigned stage = wait_stage(bytes) + warp * tile / STEP_WARPS + lane * 8;
        uint2 a[sizes::DOWN_STAGE][STEPS];
        if (KNOWN) {
#pragma unroll
            for (int i = 0; i < sizes::DOWN_STAGE; i++)
#pragma unroll
                for (int j = 0; j < STEPS; j++)
                    a[i][j] = step_shared_load2(stage + i * tile + j * 256);
            release_stage(bytes);
        }
        unsigned b[STEPS], *activations = s.scratch[warp];
        float by = finish_product<KEYS>(layer);
#pragma unroll
        for (int pass = 0; pass * 16 < units; pass++) { /* of four tiles: gate, up, gate, up */
            int k = lane % 4;
            float act = activation(pass * 32 + lane, by, units);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float x = __shfl_sync(~0u, act, half * 16 + 2 * k), next = __shfl_sync(~0u, act, half * 16 + 2 * k + 1);
                unsigned rounded = pack2(x, next), mine = lane / 4 % 2 ? step_residual(x, next, rounded) : rounded;
                if (!KNOWN)
                    activations[(pass * 2 + half) * 32 + lane] = mine;
                else if (pass * 2 + half < STEPS)
                    b[pass * 2 + half] = mine;
            }
        }
#pragma unroll
        for (int first = 0; first < sizes::DOWN_TILES; first += sizes::DOWN_STAGE) {
            if (first) stage = wait_stage(bytes) + warp * tile / STEP_WARPS + lane * 8;
            float4 c[sizes::DOWN_STAGE] = {};
            for (int j = 0; KNOWN ? j < STEPS : j * 8 < units; j++)
#pragma unroll
                for (int i = 0; i < sizes::DOWN_STAGE; i++) {
                    if (KNOWN)
                        step_mma(c[i], a[i][j], b[j]);
                    else
                        step_mma(c[i], step_shared_load2(stage + i * tile + j * 256), activations[j * 32 + lane]);
                }
            float2 sum[sizes::DOWN_STAGE];
#pragma unroll
            for (int i = 0; i < sizes::DOWN_STAGE; i++)
                sum[i] = make_float2(c[i].x + c[i].y, c[i].z + c[i].w);
            send_down(first, sum);
            if (!KNOWN) release_stage(bytes);
        }
    }

    /* The MLP: gate and up of this block's units, SwiGLU, and their columns of Wdown. Each block of the cluster sends
     * its contribution to the owner of each row; the owner adds them and makes one summand of the exchange. */
    template <int KNOWN, bool KEYS> /* KNOWN: units of this block; 0: any number */
    __device__ __forceinline__ void mlp(int layer) {
        int units = KNOWN ? KNOWN : this->units;
        product<KNOWN ? KNOWN / 4 : sizes::GATE_STAGE>(units / 4, KEYS && step_has_keys(t, layer) ? t.key_state : NULL);
        expect(DOWN, STEP_CLUSTER * sizes::SHARE * 4);
        if constexpr (I8)
            step_down_i8<KNOWN, KEYS>(*this, layer);
        else
            down<KNOWN, KEYS>(layer);
        wait_signal(DOWN, threadIdx.x < sizes::SHARE);
        if (threadIdx.x < sizes::SHARE) {
            float y[STEP_CLUSTER];
#pragma unroll
            for (int i = 0; i < STEP_CLUSTER; i++)
                y[i] = s.down[i][threadIdx.x];
            step_add(exchange + rank * sizes::SHARE + threadIdx.x,
                     ((y[0] + y[1]) + (y[2] + y[3])) + ((y[4] + y[5]) + (y[6] + y[7])));
        }
        end_exchange(false);
    }

    /* This block's rows of the output matrix, the head's columns of it, times the head's vector. That vector is the sum
     * of the parts of all blocks; WINDOW: each part rescaled to the common maximum, and divided by the sum. */
    template <bool WINDOW> __device__ __forceinline__ void output() {
        enum { TILES = 2 * STRIPS, ROUNDS = (TILES + STEP_WARPS - 1) / STEP_WARPS };
        enum { STEPS = I8 ? DIM / 32 : DIM / 16 }; /* of 512 bytes of a tile */
        unsigned whole = wait_stage(sizes::OUTPUT), stage = whole + lane * 16;
        uint4 a[ROUNDS][STEPS];
        float row_scale[ROUNDS]; /* 8 bits: of the row that this lane adds */
#pragma unroll
        for (int i = 0; i < ROUNDS; i++)
#pragma unroll
            for (int j = 0; j < STEPS; j++)
                a[i][j] = step_shared_load4(stage + (min(warp + i * STEP_WARPS, TILES - 1) * STEPS + j) * 512);
        if (I8)
#pragma unroll
            for (int i = 0; i < ROUNDS; i++) {
                int row = min(warp + i * STEP_WARPS, TILES - 1) * 16 + lane / 4 + lane % 2 * 8;
                row_scale[i] = step_shared_load(whole + TILES * STEPS * 512 + row * 4);
            }
        release_stage(sizes::OUTPUT);
        wait_signal(PARTS, warp < TILES);
        if (warp >= TILES) return;
        int g = lane / 4, k = lane % 4;
        float4 c[ROUNDS][2] = {};
        int upper[ROUNDS][4] = {}, lower[ROUNDS][4] = {};
#pragma unroll
        for (int j = 0; j < STEPS; j++) {
            if constexpr (I8) {
                uint4 p = *(const uint4 *)&s.parts[g][8 * k + 4 * j]; /* of eight columns, as pairs of digits */
#pragma unroll
                for (int i = 0; i < ROUNDS; i++) {
                    const uint4 &w = a[i][j];
                    warp_product_bytes(upper[i], w.x, w.y, w.z, w.w, step_digit(p.x, p.y, 0), step_digit(p.z, p.w, 0));
                    warp_product_bytes(lower[i], w.x, w.y, w.z, w.w, step_digit(p.x, p.y, 1), step_digit(p.z, p.w, 1));
                }
                continue;
            }
            unsigned low = s.parts[g][j * 8 + k], high = s.parts[g][j * 8 + 4 + k];
#pragma unroll
            for (int i = 0; i < ROUNDS; i++)
                step_mma(c[i][j % 2], a[i][j], low, high);
        }
        float even = 1.0f, odd = 1.0f; /* factors of parts 2 k and 2 k + 1, computed while the products run */
        if (WINDOW) {
            const float4 *score = (const float4 *)s.scores; /* of two parts each: maximum score, sum */
            float4 own = score[k];
            float most = -INFINITY;
#pragma unroll
            for (int i = 0; i < STEP_CLUSTER / 2; i++)
                most = fmaxf(most, fmaxf(score[i].x, score[i].z));
            even = power2(own.x - most), odd = power2(own.z - most);
            float all = even * own.y + odd * own.w;
            all += __shfl_xor_sync(~0u, all, 1);
            all += __shfl_xor_sync(~0u, all, 2);
            even = __fdividef(even, all), odd = __fdividef(odd, all);
        }
        if (I8) {
            even *= __uint_as_float(s.parts[2 * k][DIM / 2]), odd *= __uint_as_float(s.parts[2 * k + 1][DIM / 2]);
#pragma unroll
            for (int i = 0; i < ROUNDS; i++)
                c[i][0] = make_float4(step_joined(upper[i][0], lower[i][0]), step_joined(upper[i][1], lower[i][1]),
                                      step_joined(upper[i][2], lower[i][2]), step_joined(upper[i][3], lower[i][3]));
        }
#pragma unroll
        for (int i = 0; i < ROUNDS; i++) {
            float y = (c[i][0].x + c[i][1].x) * even + (c[i][0].y + c[i][1].y) * odd,
                  z = (c[i][0].z + c[i][1].z) * even + (c[i][0].w + c[i][1].w) * odd;
#pragma unroll
            for (int offset = 1; offset < 4; offset *= 2)
                y += __shfl_xor_sync(~0u, y, offset), z += __shfl_xor_sync(~0u, z, offset);
            int row = rank * sizes::SHARE + (warp + i * STEP_WARPS) * 16 + g + k * 8;
            if (k > 1 || warp + i * STEP_WARPS >= TILES) continue;
            step_add(exchange + row, I8 ? (k ? z : y) * row_scale[i] : k ? z : y);
        }
    }

    /* Joins the warp's key (decode_step_pick.cuh) with all others. */
    __device__ __forceinline__ void pick(unsigned long long key) {
        if (lane == 0) s.picks[warp] = key;
        step_barrier();
        if (threadIdx.x > 0) return;
#pragma unroll
        for (int i = 1; i < STEP_WARPS; i++)
            key = max(key, s.picks[i]);
        step_pick_join(t.pick, key);
    }
    /* Logits of this block's rows of the vocabulary. SHARES: also each warp's share of them. */
    template <bool SHARES> __device__ __forceinline__ void head() {
        enum { TILES = sizes::HEAD_TILES, ROWS = sizes::HEAD_ROWS };
        int begin = step_vocab_begin<I8>(t, blockIdx.x), rows = step_vocab_begin<I8>(t, blockIdx.x + 1) - begin;
        int stride = t.d * 2;
        uint2 b[STRIPS];
        float by = 0.0f;
        logit_share share = logit_share_none();
        step_candidate best = {0, -1};
#pragma unroll 1
        for (int round = 0; round * ROWS < rows; round++) {
            int staged = min((int)ROWS, rows - round * ROWS), all = step_head_bytes<I8>(t, staged);
            int bytes = all + (round == 0) * stride, row_buffer = round % 2 * TILES;
            unsigned stage = wait_stage(bytes);
            step_tiles<STRIPS, TILES, I8> w;
            float squares;
            if constexpr (I8) {
                step_load_tiles<false>(*this, w, stage, staged / 8, t.d);
                if (round == 0) load_vector(b, squares, stage + all, t.d, NULL);
                release_stage(bytes);
                if (round == 0) store_squares(sum_squares(squares, 0, 5));
                step_store_products(*this, row_buffer, staged / 8, w, b);
            } else {
#pragma unroll
                for (int m = 0; m < TILES; m++)
#pragma unroll
                    for (int j = 0; j < STRIPS;
                         j++) { /* past the last row or column, whose products are not used: the last one again */
                        int row = min(m * 8 + lane / 4, staged - 1), column = warp * COLUMNS + j * 32 + lane % 4 * 8;
                        w.a[m][j] = step_shared_load4(stage + row * stride + min(column, t.d - 8) * 2);
                    }
                if (round == 0) load_vector(b, squares, stage + all, t.d, NULL);
                release_stage(bytes);
                float4 c[TILES] = {};
#pragma unroll
                for (int j = 0; j < STRIPS; j++)
#pragma unroll
                    for (int m = 0; m < TILES; m++)
                        step_mma(c[m], w.a[m][j], b[j].x, b[j].y);
                if (round == 0) store_squares(sum_squares(squares, 0, 5));
#pragma unroll
                for (int m = 0; m < TILES; m++)
                    store_sums(row_buffer + m, c[m]);
            }
            step_barrier();
            if (round == 0) by = scale();
            bool own = warp == round % STEP_WARPS && lane < staged;
            const int id = begin + round * ROWS + lane;
            if (own && (!I8 || id < t.vocab)) {
                const float logit = total(row_buffer * 8 + lane) * by;
                t.logits[id] = logit;
                if (SHARES)
                    share = logit_share_add(share, logit, id);
                else if (t.pick.id)
                    best.add(logit, id, t.pick.banned);
            }
        }
        if (!SHARES && t.pick.id) pick(best.key());
        if (t.written) {
            step_barrier();
            if (threadIdx.x == 0)
                asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(t.written + blockIdx.x), "r"(t.step)
                             : "memory");
        }
        if (SHARES) {
            share = logit_share_warp(share);
            if (lane == 0) t.shares[blockIdx.x * STEP_WARPS + warp] = share;
            step_barrier(); /* one addition a block: 960 at once would take a microsecond */
            if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(t.done) : "memory");
        }
    }
};
