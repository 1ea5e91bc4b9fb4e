/* decode_step_product.cuh -- this block's rows of a matrix times a vector that all blocks made.
 *
 * The vector is dealt out to the warps in strips of 32 columns, so that a warp waits for words of its own columns only,
 * and the vector passes no barrier. Matrix units multiply: 16 rows, 16 columns, and of the eight columns of the other
 * side two: what bf16 keeps of a number, and what it loses (together 16 bits of it: float32 but for the last). Weights
 * are read from the ring into registers before the words are waited for. One partial sum for each row and warp goes
 * through shared memory, past a barrier; then every warp adds all of them, since it has to tell a block of its own.
 *
 * The order of columns within a product is free, and a product of 16 rows may be two of 8: lane 4 g + k holds columns
 * 8 k .. 8 k + 7 of a strip of row g, pairs 0 1 2 3. The unit takes pairs 0 and 2 as its row g, 1 and 3 as its row g +
 * 8; so does the vector's side, in columns of its own. One read, one product for 8 rows and 32 columns. */
#pragma once
#include "kernels/decode_step/decode_step_attention.cuh"

/* What the workers of a block share. */
template <int DIM, int STRIPS, int UNITS> struct step_shared {
    using attention = step_attention<DIM>;
    enum { SUMS = UNITS ? 64 : 2 * UNITS_MAX, SUMMANDS = 2 * STEP_WARPS };
    uint64_t full[RING_SLOTS], empty[RING_SLOTS];
    uint64_t told[3];                                      /* of vectors, parts, down: by the cluster */
    uint64_t gathered[STREAM_SLOTS];                       /* of stream */
    alignas(16) float sum[SUMS][SUMMANDS + 4];             /* of a row, by all warps */
    float squares[STEP_WARPS];                             /* of the vector */
    alignas(16) unsigned vectors[3 * DIM];                 /* of the head, in two parts: query, new key, new value */
    alignas(16) float2 scores[STEP_CLUSTER];               /* of the blocks: the highest score, the sum */
    alignas(16) unsigned parts[STEP_CLUSTER][DIM / 2 + 4]; /* of the blocks: pairs of bf16 */
    alignas(16) float stream[STREAM_SLOTS][STRIPS * 32 * STEP_WARPS]; /* what an exchange adds to it */
    alignas(16) float down[STEP_CLUSTER][STRIPS * 32];                /* of the blocks, for this block's rows */
    float rows[2][attention::WARPS * attention::WIDTH];               /* of the warps in attention; used in turn */
    /* of a warp: the vector's strips, split; or the activations of its units */
    alignas(16) unsigned scratch[STEP_WARPS][UNITS ? STRIPS * 32 : UNITS_MAX * 4];
    alignas(16) unsigned char keys[attention::BYTES];
};
enum step_told { VECTORS, PARTS, DOWN };

/* What a thread of the workers keeps from phase to phase. */
template <int DIM, int STRIPS, int UNITS> struct step_block {
    using sizes = step_sizes<DIM, STRIPS, UNITS>;
    using shared_memory = step_shared<DIM, STRIPS, UNITS>;
    enum { COLUMNS = STRIPS * 32 /* of a warp */, PAIRS = (STRIPS + 1) / 2 };
    const step_task &t;
    shared_memory &s;
    step_ring ring;
    int lane, warp, rank; /* rank: of the block in its cluster */
    unsigned there;       /* the shared memory of the block of the warp's number */
    int units;            /* of the block */
    unsigned phases;      /* a bit for each of `told` */
    step_word *words;     /* of the exchange to be made */
    unsigned made;        /* exchanges */
    bool pending, aside;  /* the last is not in x yet; it shall not be */
    float2 x[PAIRS];      /* the residual stream: pairs lane + 32 i of this warp's columns */

    __device__ __forceinline__ bool has(int pair, int cols) const { /* pair lane + 32 * pair, of so many columns */
        return lane + 32 * pair < COLUMNS / 2 && warp * COLUMNS + 2 * lane + 64 * pair < cols;
    }
    __device__ __forceinline__ void begin() {
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            const bf16 *from = t.embed + (int64_t)t.id * t.d + warp * COLUMNS + 2 * lane + 64 * i;
            unsigned both = has(i, t.d) ? *(const unsigned *)from : 0;
            x[i] = make_float2(step_low(both), step_high(both));
        }
    }
    /* What the exchange before added: to x, unless it is `aside`; h: with it. */
    __device__ __forceinline__ void collect(float2 (&h)[PAIRS]) {
        unsigned slot = (made - 1) % STREAM_SLOTS;
        step_wait(shared_address(&s.gathered[slot]), (made - 1) / STREAM_SLOTS % 2);
        pending = false;
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            if (lane + 32 * i >= COLUMNS / 2) continue;
            float2 more = *(const float2 *)&s.stream[slot][warp * COLUMNS + 2 * lane + 64 * i];
            h[i] = make_float2(x[i].x + more.x, x[i].y + more.y);
            if (!aside) x[i] = h[i];
        }
    }
    /* An exchange is made, as far as this block is concerned. `for_mlp`: what chunks add is for the MLP alone, and not
     * part of the stream. */
    __device__ __forceinline__ void exchanged(bool for_mlp) {
        float2 h[PAIRS];
        if (pending) collect(h);
        pending = true, aside = for_mlp, words += sizes::P, made++;
    }
    __device__ __forceinline__ unsigned peer(const void *of_here) const {
        return there + (shared_address(of_here) - shared_address(&s));
    }
    __device__ __forceinline__ unsigned peer_told(step_told what) const {
        return peer(&s.told[what]);
    }
    /* By all threads; `waits` false: one that needs nothing of it. */
    __device__ __forceinline__ void wait_told(step_told what, bool waits) {
        if (waits) step_wait(shared_address(&s.told[what]), phases >> what & 1);
        phases ^= 1u << what;
    }
    __device__ __forceinline__ void expect(step_told what, int bytes) {
        if (threadIdx.x == 0) barrier_expect(shared_address(&s.told[what]), (unsigned)bytes);
    }
    __device__ __forceinline__ unsigned arrived(int bytes) {
        unsigned stage = ring.place(bytes);
        step_wait(ring.full + ring.slot(), ring.parity());
        return stage;
    }
    /* The stage is in registers: its place may be filled anew. */
    __device__ __forceinline__ void done(int bytes) {
        __syncwarp();
        if (lane == 0)
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(ring.empty + ring.slot()) : "memory");
        ring.next(bytes);
    }

    /* The residual stream times the norm's weights at `norm` (`cols` of them), as the matrix units' side; squares: this
     * lane's sum of them. `copy` [d] gets the stream. */
    __device__ __forceinline__ void vector(uint2 (&b)[STRIPS], float &squares, unsigned norm, int cols, bf16 *copy) {
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
        if (pending) collect(h);
        squares = 0.0f;
        unsigned *to = s.scratch[warp] + lane / 4 * 4 + lane % 2 * 2 + lane / 2 % 2; /* of four pairs 0 2 1 3 */
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            if (copy && has(i, t.d)) *(unsigned *)(copy + column + 64 * i) = pack2(h[i].x, h[i].y);
            squares += h[i].x * h[i].x + h[i].y * h[i].y;
            float low = h[i].x * step_low(by[i]), high = h[i].y * step_high(by[i]);
            unsigned great = pack2(low, high);
            if (lane + 32 * i < COLUMNS / 2) to[32 * i] = great, to[32 * i + STRIPS * 16] = step_rest(low, high, great);
        }
        __syncwarp();
        /* of four columns of the product, the greater part and the rest for row g, and for row g + 8 */
        unsigned at = shared_address(s.scratch[warp]) + lane / 4 % 2 * STRIPS * 64 + lane % 4 * 16 + lane / 8 % 2 * 8;
#pragma unroll
        for (int j = 0; j < STRIPS; j++)
            b[j] = step_read_two(at + j * 64);
    }
    /* This warp's sums of a tile: two lanes of each row have one. */
    __device__ __forceinline__ void keep(int tile, const float4 &c) {
        if (lane % 4 < 2) s.sum[tile * 8 + lane / 4][warp * 2 + lane % 4] = lane % 4 ? c.z + c.w : c.x + c.y;
    }
    /* Behind a barrier. */
    __device__ __forceinline__ float total(int row) const {
        const float4 *p = (const float4 *)s.sum[row];
        float4 a = p[0], b = p[1], c = p[2], d = p[3];
        return ((a.x + a.y + (a.z + a.w)) + (b.x + b.y + (b.z + b.w))) +
               ((c.x + c.y + (c.z + c.w)) + (d.x + d.y + (d.z + d.w)));
    }
    __device__ __forceinline__ float scale() const {
        const float4 *p = (const float4 *)s.squares;
        float4 a = p[0], b = p[1];
        float sum = a.x + a.y + (a.z + a.w) + (b.x + b.y + (b.z + b.w));
        return rsqrtf(sum * t.share + t.eps);
    }
    /* Some of the five steps of the warp's sum, between products: each waits for the one before. */
    static __device__ __forceinline__ float sum_squares(float squares, int step, int steps) {
#pragma unroll
        for (int i = step; i < step + steps && i < 5; i++)
            squares += __shfl_xor_sync(~0u, squares, 16 >> i);
        return squares;
    }
    __device__ __forceinline__ void keep_squares(float squares) {
        if (lane == 0) s.squares[warp] = squares;
    }

    /* Sums of `tiles` tiles, EACH of a stage. */
    template <int EACH> __device__ __forceinline__ void product(int tiles, bf16 *copy) {
        uint2 b[STRIPS];
        float squares = 0.0f;
#pragma unroll 1
        for (int first = 0; first < tiles; first += EACH) {
            int here = min(EACH, tiles - first), bytes = here * sizes::TILE + (first ? 0 : sizes::NORM);
            unsigned stage = arrived(bytes), from = stage + warp * STRIPS * 512 + lane * 16;
            uint4 a[EACH][STRIPS];
#pragma unroll
            for (int m = 0; m < EACH; m++)
#pragma unroll
                for (int j = 0; j < STRIPS; j++)
                    a[m][j] = m < here ? step_read(from + m * sizes::TILE + j * 512) : make_uint4(0, 0, 0, 0);
            if (first == 0) vector(b, squares, stage + here * sizes::TILE, sizes::P, copy);
            done(bytes);
            float4 c[EACH] = {};
#pragma unroll
            for (int j = 0; j < STRIPS; j++) {
#pragma unroll
                for (int m = 0; m < EACH; m++)
                    if (m < here) step_multiply(c[m], a[m][j], b[j].x, b[j].y);
                if (first == 0) squares = sum_squares(squares, 2 * j, j + 1 < STRIPS ? 2 : 5);
            }
            if (first == 0) keep_squares(squares);
#pragma unroll
            for (int m = 0; m < EACH; m++)
                if (m < here) keep(first + m, c[m]);
        }
    }

    /* Gate and up of this block's units, and what they add to all rows: the blocks of a cluster tell each other, for
     * each a share of the rows. */
    template <int KNOWN> __device__ __forceinline__ void mlp() { /* KNOWN: its units; 0: any number */
        constexpr int STEPS = KNOWN ? KNOWN / 8 : 1;             /* of 8 units */
        int units = KNOWN ? KNOWN : this->units;
        product<KNOWN ? KNOWN / 4 : sizes::GATE_STAGE>(units / 4, NULL);
        expect(DOWN, STEP_CLUSTER * sizes::SHARE * 4);
        int tile = sizes::down(units), bytes = sizes::DOWN_STAGE * tile;
        unsigned stage = arrived(bytes) + warp * tile / STEP_WARPS + lane * 8;
        uint2 a[sizes::DOWN_STAGE][STEPS];
        if (KNOWN) {
#pragma unroll
            for (int i = 0; i < sizes::DOWN_STAGE; i++)
#pragma unroll
                for (int j = 0; j < STEPS; j++)
                    a[i][j] = step_read_two(stage + i * tile + j * 256);
            done(bytes);
        }
        step_barrier();
        unsigned b[STEPS], *activations = s.scratch[warp];
        float by = scale();
#pragma unroll
        for (int pass = 0; pass * 16 < units; pass++) { /* of four tiles: gate, up, gate, up */
            int row = pass * 32 + lane, k = lane % 4;
            float y = row < 2 * units ? total(row) * by : 0.0f, z = __shfl_xor_sync(~0u, y, 8);
            float act = __fdividef(y, 1.0f + power2(y * -STEP_LOG2E)) * z;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float x = __shfl_sync(~0u, act, half * 16 + 2 * k), next = __shfl_sync(~0u, act, half * 16 + 2 * k + 1);
                unsigned great = pack2(x, next), mine = lane / 4 % 2 ? step_rest(x, next, great) : great;
                if (!KNOWN)
                    activations[(pass * 2 + half) * 32 + lane] = mine;
                else if (pass * 2 + half < STEPS)
                    b[pass * 2 + half] = mine;
            }
        }
#pragma unroll
        for (int first = 0; first < sizes::DOWN_TILES; first += sizes::DOWN_STAGE) {
            if (first) stage = arrived(bytes) + warp * tile / STEP_WARPS + lane * 8;
            float4 c[sizes::DOWN_STAGE] = {};
            for (int j = 0; KNOWN ? j < STEPS : j * 8 < units; j++)
#pragma unroll
                for (int i = 0; i < sizes::DOWN_STAGE; i++) {
                    if (KNOWN)
                        step_multiply(c[i], a[i][j], b[j]);
                    else
                        step_multiply(c[i], step_read_two(stage + i * tile + j * 256), activations[j * 32 + lane]);
                }
#pragma unroll
            for (int i = 0; i < sizes::DOWN_STAGE && lane % 4 == 0; i += 2)
                step_send(
                    peer(&s.down[rank][lane / 4 * 4 * STRIPS + (first + i) * 2]),
                    make_float4(c[i].x + c[i].y, c[i].z + c[i].w, c[i + 1].x + c[i + 1].y, c[i + 1].z + c[i + 1].w),
                    peer_told(DOWN));
            if (!KNOWN) done(bytes);
        }
        wait_told(DOWN, threadIdx.x < sizes::SHARE);
        if (threadIdx.x < sizes::SHARE) {
            float y[STEP_CLUSTER];
#pragma unroll
            for (int i = 0; i < STEP_CLUSTER; i++)
                y[i] = s.down[i][threadIdx.x];
            step_add(words + rank * sizes::SHARE + threadIdx.x,
                     ((y[0] + y[1]) + (y[2] + y[3])) + ((y[4] + y[5]) + (y[6] + y[7])));
        }
        exchanged(false);
    }

    /* The share of the output matrix: rows of this block, columns of the head, whose vector is the parts' sum, divided
     * (WINDOW). */
    template <bool WINDOW> __device__ __forceinline__ void output() {
        enum { STEPS = DIM / 16, TILES = 2 * STRIPS, TURNS = (TILES + STEP_WARPS - 1) / STEP_WARPS };
        unsigned stage = arrived(sizes::OUTPUT) + lane * 16;
        uint4 a[TURNS][STEPS];
#pragma unroll
        for (int i = 0; i < TURNS; i++)
#pragma unroll
            for (int j = 0; j < STEPS; j++)
                a[i][j] = step_read(stage + (min(warp + i * STEP_WARPS, TILES - 1) * STEPS + j) * 512);
        done(sizes::OUTPUT);
        wait_told(PARTS, warp < TILES);
        if (warp >= TILES) return;
        int g = lane / 4, k = lane % 4;
        float4 c[TURNS][2] = {};
#pragma unroll
        for (int j = 0; j < STEPS; j++) {
            unsigned low = s.parts[g][j * 8 + k], high = s.parts[g][j * 8 + 4 + k];
#pragma unroll
            for (int i = 0; i < TURNS; i++)
                step_multiply(c[i][j % 2], a[i][j], low, high);
        }
        float even = 1.0f, odd = 1.0f; /* factors of parts 2 k and 2 k + 1, worked out while the products run */
        if (WINDOW) {
            const float4 *score = (const float4 *)s.scores; /* of two parts each: the highest score, the sum */
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
#pragma unroll
        for (int i = 0; i < TURNS; i++) {
            float y = (c[i][0].x + c[i][1].x) * even + (c[i][0].y + c[i][1].y) * odd,
                  z = (c[i][0].z + c[i][1].z) * even + (c[i][0].w + c[i][1].w) * odd;
#pragma unroll
            for (int offset = 1; offset < 4; offset *= 2)
                y += __shfl_xor_sync(~0u, y, offset), z += __shfl_xor_sync(~0u, z, offset);
            int row = rank * sizes::SHARE + (warp + i * STEP_WARPS) * 16 + g + k * 8;
            if (k > 1 || warp + i * STEP_WARPS >= TILES) continue;
            step_add(words + row, k ? z : y);
        }
    }

    /* Logits of this block's words. */
    __device__ __forceinline__ void head() {
        enum { TILES = sizes::HEAD_TILES, ROWS = sizes::HEAD_ROWS };
        int begin = step_vocab_begin(t, blockIdx.x), rows = step_vocab_begin(t, blockIdx.x + 1) - begin;
        int stride = t.d * 2;
        uint2 b[STRIPS];
        float by = 0.0f;
#pragma unroll 1
        for (int round = 0; round * ROWS < rows; round++) {
            int here = min((int)ROWS, rows - round * ROWS), bytes = (here + (round == 0)) * stride;
            unsigned stage = arrived(bytes);
            uint4 a[TILES][STRIPS];
#pragma unroll
            for (int m = 0; m < TILES; m++)
#pragma unroll
                for (int j = 0; j < STRIPS; j++) { /* behind the last row or column, where nothing counts, the last */
                    int row = min(m * 8 + lane / 4, here - 1), column = warp * COLUMNS + j * 32 + lane % 4 * 8;
                    a[m][j] = step_read(stage + row * stride + min(column, t.d - 8) * 2);
                }
            float squares;
            if (round == 0) vector(b, squares, stage + here * stride, t.d, NULL);
            done(bytes);
            float4 c[TILES] = {};
#pragma unroll
            for (int j = 0; j < STRIPS; j++)
#pragma unroll
                for (int m = 0; m < TILES; m++)
                    step_multiply(c[m], a[m][j], b[j].x, b[j].y);
            if (round == 0) keep_squares(sum_squares(squares, 0, 5));
            int turn = round % 2 * TILES;
#pragma unroll
            for (int m = 0; m < TILES; m++)
                keep(turn + m, c[m]);
            step_barrier();
            if (round == 0) by = scale();
            if (warp == round % STEP_WARPS && lane < here)
                t.logits[begin + round * ROWS + lane] = total(turn * 8 + lane) * by;
        }
    }
};
