/* token_step_product.cuh -- this block's rows of a matrix times a vector that all blocks made.
 *
 * The vector is dealt out to the warps in strips of 32 columns, so that a warp waits for words of its own columns only,
 * and the vector passes no barrier. Matrix units multiply: 16 rows, 16 columns, and of the eight columns of the other
 * side two: what bf16 keeps of a number, and what it loses (together 16 bits of it: float32 but for the last). Weights
 * are read from the ring into registers before the words are waited for. One partial sum for each row and warp goes
 * through shared memory, past the phase's only barrier; a few lanes a row add them and finish.
 *
 * Attention's parts are bf16 already: there the eight columns are eight parts of the window, or eight chunks, and the
 * factor of each part comes behind the product.
 *
 * The order of columns within a product is free, and a product of 16 rows may be two of 8: lane 4 g + k holds columns
 * 8 k .. 8 k + 7 of a strip of row g, pairs 0 1 2 3. The unit takes pairs 0 and 2 as its row g, 1 and 3 as its row g +
 * 8; so does the vector's side, in columns of its own. One read, one product for 8 rows and 32 columns. */
#pragma once
#include "kernels/token_step_ring.cuh"

enum {
    STEP_STRIPS = 8 /* of a warp at a time */,
    STEP_PARTS = 2 * STEP_WARPS /* of a row's sum */,
    SHARERS = STEP_PARTS / 4 /* lanes that add them */
};

/* What the workers share. Two buffers, used in turn: one barrier a stage is enough. */
struct step_partials {
    float sum[STEP_ROWS][STEP_PARTS + 4];
    float squares[STEP_PARTS];
};
struct step_shared {
    step_partials partials[2];
    uint64_t full[RING_SLOTS], empty[RING_SLOTS];
    step_shares shares;
    float own[16]; /* this block's rows of the residual stream */
};

/* A worker: what its thread keeps from phase to phase. D > 0: d, known to the compiler, a multiple of all warps'
 * strips. Else any d up to 1024 (0) or 2048 (-1). */
template <int D> struct step_worker {
    static constexpr bool EXACT = D > 0;
    static constexpr int STRIPS = EXACT    ? D / 32 / STEP_WARPS
                                  : D == 0 ? 4
                                           : 8,
                         NEXT = STEP_WARPS * 32; /* NEXT: columns from strip to strip */
    const step_task &t;
    step_shared &shared;
    unsigned char *scratch; /* of this warp */
    step_ring ring;
    int lane, warp;
    int turn; /* which of the two partials comes next */

    __device__ __forceinline__ int d() const { return EXACT ? D : t.d; }

    /* Eight rows of a stage, from a column of this warp's on, a strip after the other. Behind the last row, the last
     * again; behind the last column (where the vector is 0), the last. */
    template <int N, typename S>
    __device__ __forceinline__ void fragments(uint4 (&a)[N], const S &s, unsigned stage, int rows, int tile,
                                              unsigned lane, int first) const {
        unsigned column = first + warp * 32 + lane % 4 * 8,
                 row = stage + min(tile * 8 + (int)(lane / 4), rows - 1) * s.stride();
#pragma unroll
        for (int j = 0; j < N; j++)
            a[j] =
                step_read(row + (EXACT && S::WIDTH_IS_D ? column + j * NEXT : min(column + j * NEXT, s.in - 8u)) * 2);
    }
    template <typename S> __device__ __forceinline__ unsigned arrived(const S &s, int round) {
        unsigned stage = ring.place(s.stage_bytes(round));
        ring_wait(ring.full + ring.slot(), ring.parity());
        return stage;
    }
    /* The stage is in registers: its place may be filled anew. */
    template <typename S> __device__ __forceinline__ void done(const S &s, int round, unsigned lane) {
        __syncwarp();
        if (lane == 0)
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(ring.empty + ring.slot()) : "memory");
        ring.next(s.stage_bytes(round));
    }
    /* Sums of a tile's rows: two lanes have one each. */
    __device__ __forceinline__ void keep(int tile, unsigned lane, float first, float second) {
        if (lane % 4 < 2)
            shared.partials[turn].sum[tile * 8 + lane / 4][warp * 2 + lane % 4] = lane % 4 ? second : first;
    }

    /* Behind the barrier: sums of a stage's rows, and what becomes of them. */
    template <step_phase PHASE>
    __device__ __forceinline__ void finish(const step_share<PHASE, STRIPS> &s, const step_layer &l, unsigned number,
                                           int round, unsigned lane) {
        enum { EACH = 32 / SHARERS }; /* units a warp */
        const step_partials &p = shared.partials[turn];
        turn ^= 1;
        step_barrier();
        int units = s.stage_units(round), u = warp * EACH + (int)(lane / SHARERS);
        if (warp * EACH >= units) return;
        auto four = [&](const float *from) {
            float4 x = *(const float4 *)from;
            return x.x + x.y + (x.z + x.w);
        };
        unsigned quarter = lane % SHARERS * 4;
        float y = four(&p.sum[u][quarter]), z = s.PAIR ? four(&p.sum[units + u][quarter]) : 0.0f;
        float squares = s.NORMED ? four(&p.squares[quarter]) : 0.0f;
#pragma unroll
        for (int offset = 1; offset < SHARERS; offset *= 2) {
            y += __shfl_xor_sync(~0u, y, offset);
            if (s.PAIR) z += __shfl_xor_sync(~0u, z, offset);
            if (s.NORMED) squares += __shfl_xor_sync(~0u, squares, offset);
        }
        if (lane % SHARERS || u >= units) return;
        if (s.NORMED) {
            float scale = rsqrtf(squares * (1.0f / (float)d()) + t.eps);
            y *= scale, z *= scale;
        }
        int mine = round * s.each + u, unit = s.begin + mine;
        if (PHASE == OUTPUT || PHASE == DOWN) y += shared.own[mine], shared.own[mine] = y;
        switch (PHASE) {
        case QKV:
            step_put(t.qkv + unit, y, number);
            if (unit >= d()) l.ring[t.row * 2 * d() + unit - d()] = from_float<bf16>(y);
            break;
        case OUTPUT:
            step_put(t.middle + unit, y, number);
            break;
        case FUSE_QUERY:
            step_put(t.query + unit, y, number);
            break;
        case FUSE_OUTPUT:
            step_put(t.sum + unit, shared.own[mine] + y, number);
            break;
        case GATE_UP:
            step_put(t.act + unit, __fdividef(y, 1.0f + __expf(-y)) * z, number);
            break;
        case DOWN:
            step_put(t.end + unit, y, number);
            break;
        default:
            t.logits[unit] = y;
        }
    }

    /* Numbers of this warp's N strips, dealt out to its lanes in pairs (pair lane + 32 i), as two pairs of bf16 for the
     * matrix units: the scratch has the greater parts of all strips, then the lesser; of four pairs 0 2 1 3. */
    template <int N> __device__ __forceinline__ void split(unsigned lane, int i, float2 x) {
        unsigned great = step_pack(x.x, x.y),
                 *to = (unsigned *)scratch + lane / 4 * 4 + lane % 2 * 2 + lane / 2 % 2 + 32 * i;
        to[0] = great;
        to[N * 16] = step_pack(x.x - step_low(great), x.y - step_high(great));
    }
    /* The vector's side of a strip: of four columns of the product, great and less for row g, and for row g + 8. */
    template <int N> __device__ __forceinline__ uint2 split_strip(int strip, unsigned lane) const {
        uint2 x;
        unsigned at = shared_address(scratch) + lane / 4 % 2 * N * 64 + lane % 4 * 16 + lane / 8 % 2 * 8 + strip * 64;
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(at) : "memory");
        return x;
    }

    /* QKV, FUSE_QUERY, GATE_UP, HEAD. x: words of phase `made`, or (NULL) a row of the embedding; `copy` [d] gets x. */
    template <step_phase PHASE>
    __device__ __forceinline__ void normed(const step_layer &l, unsigned number, const step_word *x, unsigned made,
                                           bf16 *copy) {
        enum { TILES = step_tiles(PHASE, STRIPS), PAIRS = (STRIPS + 1) / 2 };
        step_share<PHASE, STRIPS> s(t, shared.shares);
        unsigned lane = step_anew(this->lane);
        float squares = 0.0f;
        uint2 b[STRIPS];
#pragma unroll 1
        for (int round = 0; round * s.each < s.units; round++) {
            unsigned stage = arrived(s, round);
            uint4 a[TILES][STRIPS];
#pragma unroll
            for (int m = 0; m < TILES; m++)
                fragments(a[m], s, stage, s.stage_rows(round), m, lane, 0);
            if (round == 0) {
                unsigned by[PAIRS], norm = stage + s.stage_rows(0) * s.stride();
                bool wanted[PAIRS];
                const step_word *from[PAIRS];
                uint4 raw[PAIRS];
                int column = warp * 32 + (int)(lane / 16 * NEXT + lane % 16 * 2);
#pragma unroll
                for (int i = 0; i < PAIRS; i++) {
                    int at = column + i * 2 * NEXT;
                    wanted[i] = EXACT ? lane + 32 * i < STRIPS * 16 : at < s.in;
                    from[i] = x + at;
                    asm volatile("ld.shared.u32 %0, [%1];"
                                 : "=r"(by[i])
                                 : "r"(norm + (wanted[i] ? at : 0) * 2)
                                 : "memory");
                    raw[i] = make_uint4(0, 0, 0, 0);
                    if (wanted[i] && PHASE == QKV && !x) {
                        unsigned both = *(const unsigned *)(t.embed + (int64_t)t.id * t.d + at);
                        raw[i].x = both << 16, raw[i].z = both & 0xffff0000u;
                    }
                }
                done(s, round, lane);
                if (PHASE != QKV || x) step_take(raw, from, wanted, made);
#pragma unroll
                for (int i = 0; i < PAIRS; i++) {
                    float2 y = make_float2(__uint_as_float(raw[i].x), __uint_as_float(raw[i].z));
                    if (PHASE == QKV && copy && wanted[i])
                        *(unsigned *)(copy + column + i * 2 * NEXT) = step_pack(y.x, y.y);
                    squares += y.x * y.x + y.y * y.y;
                    if (lane + 32 * i < STRIPS * 16)
                        split<STRIPS>(lane, i, make_float2(y.x * step_low(by[i]), y.y * step_high(by[i])));
                }
                __syncwarp();
#pragma unroll
                for (int j = 0; j < STRIPS; j++)
                    b[j] = split_strip<STRIPS>(j, lane);
            } else {
                done(s, round, lane);
            }
            float4 c[TILES] = {};
#pragma unroll
            for (int j = 0; j < STRIPS; j++)
#pragma unroll
                for (int m = 0; m < TILES; m++)
                    step_multiply(c[m], a[m][j], b[j].x, b[j].y);
            if (round == 0) squares = warp_sum(squares);
#pragma unroll
            for (int m = 0; m < TILES; m++)
                keep(m, lane, c[m].x + c[m].y, c[m].z + c[m].w);
            if (lane < 2) shared.partials[turn].squares[warp * 2 + lane] = lane ? 0.0f : squares;
            finish(s, l, number, round, lane);
        }
    }

    /* DOWN. */
    __device__ __forceinline__ void down(const step_layer &l, unsigned number, unsigned made) {
        enum { N = STEP_STRIPS, PAIRS = N / 2 };
        step_share<DOWN, STRIPS> s(t, shared.shares);
        unsigned lane = step_anew(this->lane);
#pragma unroll 1
        for (int round = 0; round * s.each < s.units; round++) {
            unsigned stage = arrived(s, round);
            float4 c[2] = {};
#pragma unroll 1
            for (int first = 0; first < s.in; first += N * NEXT) {
                uint4 a[N], raw[PAIRS];
                const step_word *from[PAIRS];
                bool wanted[PAIRS];
                fragments(a, s, stage, s.stage_rows(round), 0, lane, first);
                int column = first + warp * 32 + (int)(lane / 16 * NEXT + lane % 16 * 2);
#pragma unroll
                for (int i = 0; i < PAIRS; i++) {
                    wanted[i] = column + i * 2 * NEXT < s.in;
                    from[i] = t.act + column + i * 2 * NEXT;
                }
                if (first + N * NEXT >= s.in) done(s, round, lane);
                step_take(raw, from, wanted, made);
#pragma unroll
                for (int i = 0; i < PAIRS; i++)
                    split<N>(lane, i, make_float2(__uint_as_float(raw[i].x), __uint_as_float(raw[i].z)));
                __syncwarp();
#pragma unroll
                for (int j = 0; j < N; j++) {
                    uint2 b = split_strip<N>(j, lane);
                    step_multiply(c[j % 2], a[j], b.x, b.y);
                }
                __syncwarp(); /* before the scratch is written anew */
            }
            keep(0, lane, c[0].x + c[0].y + (c[1].x + c[1].y), c[0].z + c[0].w + (c[1].z + c[1].w));
            finish(s, l, number, round, lane);
        }
    }

    /* OUTPUT (parts: each head's window in `count` <= 8 pieces), FUSE_OUTPUT (a part for each of `count` chunks). A
     * part: words of two columns, then the highest score and the sum. Lane 4 g + k is for part g of the strip's head.
     */
    template <step_phase PHASE, int DIM>
    __device__ __forceinline__ void join(const step_layer &l, unsigned number, const step_word *parts, int count,
                                         unsigned made) {
        enum { WORDS = DIM / 2 + 2, N = STRIPS > 4 ? 4 : STRIPS };
        constexpr bool window = PHASE == OUTPUT;
        step_share<PHASE, STRIPS> s(t, shared.shares);
        unsigned lane = step_anew(this->lane);
        int g = lane / 4, k = lane % 4;
#pragma unroll 1
        for (int round = 0; round * s.each < s.units; round++) {
            unsigned stage = arrived(s, round);
            float y = 0.0f;
#pragma unroll 1
            for (int begin = 0; begin < (EXACT ? D : s.in); begin += N * NEXT) {
                uint4 a[N];
                fragments(a, s, stage, s.stage_rows(round), 0, lane, begin);
                float4 c[N] = {}, e[N] = {}; /* of rows g, of rows g + 8 */
                float factor = 1.0f;         /* of strip k */
#pragma unroll 1
                for (int first = 0; first < count; first += 8) {
                    uint4 raw[2 * N + window];
                    const step_word *from[2 * N + window];
                    bool wanted[2 * N + window];
#pragma unroll
                    for (int j = 0; j < N; j++) {
                        int column = begin + warp * 32 + j * NEXT, head = column / DIM;
                        wanted[2 * j] = wanted[2 * j + 1] = (EXACT || column < s.in) && first + g < count;
                        from[2 * j] = parts + (head * count + first + g) * WORDS + column % DIM / 2 + k * 4;
                        from[2 * j + 1] = from[2 * j] + 2;
                    }
                    int column = begin + warp * 32 + k * NEXT;
                    bool scored = window && k < N && (EXACT || column < s.in) && g < count;
                    if (window)
                        wanted[2 * N] = scored, from[2 * N] = parts + (column / DIM * count + g) * WORDS + DIM / 2;
                    step_take(raw, from, wanted, made);
#pragma unroll
                    for (int j = 0; j < N; j++) {
                        step_multiply(c[j], a[j], raw[2 * j].x, raw[2 * j + 1].x);
                        step_multiply(e[j], a[j], raw[2 * j].z, raw[2 * j + 1].z);
                    }
                    if (!window) continue;
                    float high = scored ? __uint_as_float(raw[2 * N].x) : -INFINITY, most = high,
                          sum = __uint_as_float(raw[2 * N].z);
#pragma unroll
                    for (int offset = 4; offset < 32; offset *= 2)
                        most = fmaxf(most, __shfl_xor_sync(~0u, most, offset));
                    factor = high == -INFINITY ? 0.0f : __expf(high - most);
                    sum *= factor;
#pragma unroll
                    for (int offset = 4; offset < 32; offset *= 2)
                        sum += __shfl_xor_sync(~0u, sum, offset);
                    factor = __fdividef(factor, sum);
                }
#pragma unroll
                for (int j = 0; j < N; j++) { /* columns 2 k and 2 k + 1 of the product are those parts' */
                    if (window) {
                        float even = __shfl_sync(~0u, factor, 8 * k + j), odd = __shfl_sync(~0u, factor, 8 * k + 4 + j);
                        if (!EXACT && begin + warp * 32 + j * NEXT >= s.in) continue;
                        y += (c[j].x + e[j].z) * even + (c[j].y + e[j].w) * odd;
                    } else {
                        y += c[j].x + c[j].y + (e[j].z + e[j].w);
                    }
                }
            }
            done(s, round, lane);
            y += __shfl_xor_sync(~0u, y, 2);
            keep(0, lane, y, y);
            finish(s, l, number, round, lane);
        }
    }
};
