/* next_token_entries.cuh -- what the reading kernel does with single entries and with the state.
 *
 *   look up     row, token and square of all entries of the block into shared memory, one entry a thread
 *   copy        keys, eight entries a warp at a time: rounds of them into shared memory before the state is there, as
 *               many as fit; the rest into the L2 cache
 *   project     the key of the state, by every block alone: an exchange between blocks would take longer. A warp has
 *               the first strips of its rows of P in registers, and others in shared memory, before the state is there
 *   distances   |k - k_i|^2 of the block's entries
 *
 * Entries, and rows of P, are multiplied by a vector eight at a time on the tensor cores: column n of B is the entry,
 * all rows of A are the vector. Of each 32 numbers a lane has eight, the same ones of entry and vector, so that both
 * are loaded 16 bytes at a time; the order of the numbers within a product does not matter. A result depends on its
 * entry and the vector alone, not on the other entries or the number of blocks. Numbers of 32 bits, and d that is no
 * multiple of 32, take plain loops.
 *
 * Codes of 8 bits are multiplied as they are, sixteen entries at a time, which have the bytes of eight entries of 16
 * bits. The vector is an integer of READ_DIGITS digits of 8 bits a number: row i of A has digit i. So a product is
 * exact until it becomes float32, and nothing is unpacked. d that is no multiple of 64 takes plain loops. */
#pragma once
#include "kernels/cuda/launch_cuda.cuh"
#include "kernels/memory/next_token_call.cuh"

enum { READ_WARPS = 16, READ_THREADS = 32 * READ_WARPS };
enum { READ_TILE = 8 /* entries of a warp at a time */, READ_CODES = 16 /* the same of codes */ };
enum { READ_DIGITS = 3 };
enum { READ_STRIP = 32 /* numbers of a key that a warp multiplies at a time */, READ_CODE_STRIP = 64 };
enum { READ_STAGES_MIN = 2, READ_STAGES_MAX = 8 /* rounds in shared memory */ };
enum { READ_BATCH = 12 /* loads of a lane in flight */ };
#define READ_VECTOR 8.0e6f /* the greatest number of a vector of digits; three digits represent 8,355,711 */

/* Modes of the kernel, each with no more code than it needs: plain loops; tensor cores, where no side has codes; tensor
 * cores, where one has. */
enum { READ_PLAIN, READ_NUMBERS, READ_PACKED };
template <typename T, int M> struct read_call;
template <typename T> struct read_call<T, READ_PLAIN> : next_call<T> {};
template <typename T> struct read_call<T, READ_NUMBERS> : next_call<T> {
    static constexpr int tile = READ_TILE;
};
template <typename T> struct read_call<T, READ_PACKED> : next_call<T> {
    static constexpr int tile = READ_CODES;
};

/* Shared memory whose size depends on the call; every part begins at a multiple of 16 bytes. */
struct read_layout {
    size_t key, digits, distance, token, row, stages; /* the state is at 0 */
};
static __host__ __device__ __forceinline__ size_t read_padded(size_t bytes) {
    return (bytes + 15) / 16 * 16;
}
/* entries: of a block, in tiles of `tile`. number: bytes of a number of a key. */
static __host__ __device__ __forceinline__ read_layout read_layout_of(int state_d, int d, int tile, int entries,
                                                                      size_t number) {
    read_layout l;
    l.key = read_padded(state_d * number);
    l.digits = l.key + read_padded(d * number);
    l.distance = l.digits + (tile == READ_CODES ? read_padded((READ_DIGITS + 1) * (size_t)d) : 0);
    l.token = l.distance + entries * sizeof(float);
    l.row = l.token + entries * sizeof(int);
    l.stages = l.row + entries * sizeof(int);
    return l;
}
template <typename T> struct read_block {
    T *state, *key; /* key: of the state; state itself without a projection */
    /* [READ_DIGITS + 1, d], for codes: the digits of the key, the greatest first, and zeros. The key is by_digits times
     * the integer. */
    int8_t *digits;
    float by_digits;
    /* Of the block's entries. distance is at first the square, or the scale of codes (below 0: no entry), and at last
     * the exponential. row: of slots or past, -1: none. */
    float *distance;
    int *token, *row;
    unsigned char *stages; /* of this warp */
};
static __host__ __device__ __forceinline__ size_t read_stage_bytes(int d, size_t number) {
    return (size_t)READ_TILE * d * number;
}

/* Tiles are allocated to blocks in turn, those of the first side first. */
template <typename T, int M> static __device__ __forceinline__ int read_tile_of(const read_call<T, M> &c, int entry) {
    return (int)((c.tile == READ_CODES ? entry / READ_CODES : entry / READ_TILE) * gridDim.x + blockIdx.x);
}
template <typename T, int M>
static __device__ __forceinline__ bool read_of_second(const read_call<T, M> &c, int entry) {
    return read_tile_of(c, entry) >= c.side[0].tiles;
}
/* Whether an entry and the others of its tile have codes. */
template <typename T, int M>
static __device__ __forceinline__ bool read_has_codes(const read_call<T, M> &c, int entry) {
    return c.tile == READ_CODES && (read_of_second(c, entry) ? c.side[1].packed.code : c.side[0].packed.code);
}

/* ---- look up ---- */

/* Where an entry of this block is: its side, its column there (-1: it is none), and whether it is of the past. */
template <typename T> struct read_spot {
    const next_side<T> *side;
    int column, slots;
    bool past, second;
};
template <typename T, int M>
static __device__ __forceinline__ read_spot<T> read_spot_of(const read_call<T, M> &c, int entry) {
    read_spot<T> s;
    s.second = read_of_second(c, entry);
    s.side = s.second ? &c.side[1] : &c.side[0];
    const bool codes = c.tile == READ_CODES && s.side->packed.code;
    const int in = entry & (c.tile - 1), size = codes ? (int)READ_CODES : (int)READ_TILE;
    s.column = (read_tile_of(c, entry) - (s.second ? c.side[0].tiles : 0)) * size + in;
    if (in >= size || s.column >= s.side->columns || entry >= c.entries) s.column = -1;
    s.slots = (int)memory_slot_columns(s.side->v);
    s.past = s.column >= s.slots;
    return s;
}
/* The ring row of the newest position that is read. */
static __device__ __forceinline__ int read_newest(const memory_view &v) {
    return v.first > 0 ? (int)((v.first - 1) % v.ring) : 0;
}
/* That of the j-th position before it; -1: there is none. */
static __device__ __forceinline__ int read_past_row(const memory_view &v, int newest, int j) {
    if (j >= v.first) return -1;
    return newest >= j ? newest - j : newest - j + (int)v.ring;
}
/* The id that follows the newest position that is read. The pick that wrote it ended before the decode step began. */
template <typename T, int M> static __device__ __forceinline__ int32_t read_newest_id(const read_call<T, M> &c) {
    return c.append.picked ? next_load(c.append.picked) : c.append.id;
}
/* The newest value may not have arrived yet. */
template <typename T, int M>
static __device__ __forceinline__ void read_look_up(const read_call<T, M> &c, const read_block<T> &b) {
    enum { EACH = 3 }; /* chains of loads of a thread */
    const int newest0 = read_newest(c.side[0].v), newest1 = read_newest(c.side[1].v);
#pragma unroll 1
    for (int first = (int)threadIdx.x; first < c.entries; first += EACH * READ_THREADS) {
        int row[EACH], token[EACH];
        float square[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const read_spot<T> at = read_spot_of(c, first + i * READ_THREADS);
            const memory_view &v = at.side->v;
            row[i] = -1;
            if (at.column < 0) continue;
            if (at.past) {
                row[i] = read_past_row(v, at.second ? newest1 : newest0, at.column - at.slots);
                continue;
            }
            const int slot = at.column / v.slot_rows, in = at.column - slot * v.slot_rows;
            row[i] = next_load(v.slot + slot);
            if (c.tile == READ_CODES && v.entries && in >= next_load(v.entries + slot)) row[i] = -1;
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            token[i] = -1, square[i] = -1.0f;
            if (row[i] < 0) continue;
            const read_spot<T> at = read_spot_of(c, first + i * READ_THREADS);
            const memory_view &v = at.side->v;
            if (!at.past) row[i] = row[i] * v.slot_step + at.column % v.slot_rows;
            const int32_t *value = (at.past ? v.past_value : v.slot_value) + row[i];
            token[i] = at.past && value == c.append.value ? read_newest_id(c) : next_load(value);
            const bool codes = c.tile == READ_CODES && at.side->packed.code;
            const float *of_slots = codes ? at.side->packed.scale : v.slot_square;
            square[i] = next_load((at.past ? v.past_square : of_slots) + row[i]);
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int entry = first + i * READ_THREADS;
            if (entry >= c.entries) break;
            b.token[entry] = token[i], b.row[entry] = token[i] < 0 ? -1 : row[i];
            b.distance[entry] = token[i] < 0 ? -1.0f : square[i];
        }
    }
}
/* The key of an entry; NULL: none. Numbers, or codes. */
template <typename T, int M>
static __device__ __forceinline__ const T *read_key(const read_call<T, M> &c, const read_block<T> &b, int entry) {
    if (entry >= c.entries || b.row[entry] < 0) return NULL;
    const read_spot<T> at = read_spot_of(c, entry);
    return at.past ? at.side->in.past[b.row[entry]] : at.side->in.slots[b.row[entry]];
}
template <typename T, int M>
static __device__ __forceinline__ const int8_t *read_code(const read_call<T, M> &c, const read_block<T> &b, int entry) {
    if (entry >= c.entries || b.row[entry] < 0) return NULL;
    return (read_of_second(c, entry) ? c.side[1] : c.side[0]).packed.code + (int64_t)b.row[entry] * c.d;
}
/* The first entry of this warp's tile of a round. */
template <typename T, int M> static __device__ __forceinline__ int read_first(const read_call<T, M> &c, int round) {
    return (round * READ_WARPS + (int)threadIdx.x / 32) * c.tile;
}

/* ---- copies of keys ---- */

static __device__ __forceinline__ void read_copy16(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
/* Waits until at most stages - 1 of the newest groups of copies are incomplete. */
static __device__ __forceinline__ void read_wait_copies(int stages) {
    if (stages == 1) asm volatile("cp.async.wait_group 0;" ::: "memory");
    else if (stages == 2) asm volatile("cp.async.wait_group 1;" ::: "memory");
    else if (stages == 3) asm volatile("cp.async.wait_group 2;" ::: "memory");
    else if (stages == 4) asm volatile("cp.async.wait_group 3;" ::: "memory");
    else if (stages == 5) asm volatile("cp.async.wait_group 4;" ::: "memory");
    else if (stages == 6) asm volatile("cp.async.wait_group 5;" ::: "memory");
    else if (stages == 7) asm volatile("cp.async.wait_group 6;" ::: "memory");
    else asm volatile("cp.async.wait_group 7;" ::: "memory");
}
/* Begins to copy the keys of this warp's tile of a round. A lane copies the pieces that it reads itself: those of entry
 * lane / 4, one of four of each strip. Strip j of the tile is at j * 512. Of codes a strip is 64 numbers of entry
 * lane / 4, and then the same of entry 8 + lane / 4. */
template <typename T, int M>
static __device__ __forceinline__ void read_copy(const read_call<T, M> &c, const read_block<T> &b, int round,
                                                 int stage) {
    const int lane = threadIdx.x % 32, entry = read_first(c, round) + lane / 4;
    const bool codes = read_has_codes(c, entry);
    const int strips = codes ? c.d / READ_CODE_STRIP : c.d / READ_STRIP, step = codes ? 1024 : 512;
#pragma unroll 1
    for (int half = 0; half <= codes; half++) {
        const unsigned char *from = codes ? (const unsigned char *)read_code(c, b, entry + 8 * half)
                                          : (const unsigned char *)read_key(c, b, entry);
        unsigned char *to = b.stages + stage * read_stage_bytes(c.d, sizeof(T)) + half * 512 + lane * 16;
#pragma unroll 4
        for (int j = 0; from && j < strips; j++)
            read_copy16(to + j * step, from + lane % 4 * 16 + j * 64);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* The keys of rounds from `first` on. */
template <typename T, int M>
static __device__ __forceinline__ void read_prefetch_keys(const read_call<T, M> &c, const read_block<T> &b, int first) {
    for (int entry = first * READ_WARPS * c.tile + (int)threadIdx.x; entry < c.entries; entry += READ_THREADS) {
        const bool codes = read_has_codes(c, entry);
        const void *key = codes ? (const void *)read_code(c, b, entry) : (const void *)read_key(c, b, entry);
        if (key) prefetch_l2_range(key, (unsigned)(codes ? c.d : c.d * sizeof(T)));
    }
}

/* ---- products ---- */

static __device__ __forceinline__ float next_float(const float *p) {
    return next_load(p);
}
template <typename T> static __device__ __forceinline__ float next_float(const T *p) {
    const unsigned short bits = next_load((const unsigned short *)p);
    T x;
    memcpy(&x, &bits, sizeof x);
    return to_float(x);
}
/* d += of a warp: all rows of A are the vector. */
static __device__ __forceinline__ void read_mma(float *d, uint32_t a0, uint32_t a2, uint32_t b0, uint32_t b1, bf16) {
    warp_product(d, a0, 0, a2, 0, b0, b1);
}
static __device__ __forceinline__ void read_mma(float *d, uint32_t a0, uint32_t a2, uint32_t b0, uint32_t b1, __half) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(0), "r"(a2), "r"(0), "r"(b0), "r"(b1));
}
/* Products of eight entries with a vector, strip after strip. */
template <typename T> struct read_sums {
    float even[4], odd[4];
    __device__ __forceinline__ void add(const uint4 &x, const uint4 &y) {
        read_mma(even, y.x, y.y, x.x, x.y, T{}), read_mma(odd, y.z, y.w, x.z, x.w, T{});
    }
    /* of entries 2 (lane % 4) and the next */
    __device__ __forceinline__ float2 result() const { return make_float2(even[0] + odd[0], even[1] + odd[1]); }
};
/* Adds strips: `from` is the first piece of this lane, in a stage (STAGED) or in global memory; y is its first piece of
 * the vector. BATCH: of them in flight. */
template <typename T, bool STAGED, int BATCH = 4>
static __device__ __forceinline__ void read_strips(read_sums<T> &sums, const void *from, const uint4 *y, int strips) {
    enum { STEP = STAGED ? 32 : 4 }; /* pieces from strip to strip */
    const uint4 *piece = (const uint4 *)from;
#pragma unroll 1
    for (int j = 0; j < strips; j += BATCH) {
        uint4 x[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            if (j + i < strips) x[i] = STAGED ? piece[(j + i) * STEP] : next_load(piece + (j + i) * STEP);
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            if (j + i < strips) sums.add(x[i], y[(j + i) * 4]);
    }
}
/* By plain loops: key[j] NULL: none. */
template <typename T>
static __device__ __forceinline__ float2 read_plain(const T *const (&key)[READ_TILE], const T *vector, int d) {
    const int lane = threadIdx.x % 32;
    float dot[READ_TILE] = {};
#pragma unroll 1
    for (int i = lane; i < d; i += 32) {
        const float y = to_float(vector[i]);
#pragma unroll
        for (int j = 0; j < READ_TILE; j++)
            if (key[j]) dot[j] += y * next_float(key[j] + i);
    }
    float2 mine = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int j = 0; j < READ_TILE; j++) {
        const float sum = warp_sum(dot[j]);
        if (lane % 4 == j / 2) (j % 2 ? mine.y : mine.x) = sum;
    }
    return mine;
}

/* Products of sixteen entries with the digits of the vector: sums[half] of entries 8 half + .., squares of the codes of
 * entries lane / 4 and 8 + lane / 4, as far as this lane has them. */
struct read_code_sums {
    int sums[2][4], squares[2];
    __device__ __forceinline__ void add(const uint4 &x, const uint4 &y, int half) {
        add(x.x, x.y, y.x, y.y, half), add(x.z, x.w, y.z, y.w, half);
    }
    __device__ __forceinline__ void add(uint32_t x0, uint32_t x1, uint32_t y0, uint32_t y1, int half) {
        warp_product_bytes(sums[half], y0, 0, y1, 0, x0, x1);
        squares[half] = __dp4a((int)x0, (int)x0, __dp4a((int)x1, (int)x1, squares[half]));
    }
    /* Of entries 8 half + 2 lane and the next, for lanes below 4: products with the vector; squares. */
    __device__ __forceinline__ float2 products(int half) const {
        return make_float2(product(sums[half][0]), product(sums[half][1]));
    }
    static __device__ __forceinline__ float product(int digit) { /* row i of the result is in lanes 4 i .. 4 i + 3 */
        static_assert((int)READ_DIGITS == 3, "rows that are added");
        const int second = __shfl_down_sync(~0u, digit, 4), third = __shfl_down_sync(~0u, digit, 8);
        return (float)digit * 65536.0f + ((float)second * 256.0f + (float)third);
    }
    __device__ __forceinline__ float2 own(int half) const {
        int all = squares[half];
        all += __shfl_xor_sync(~0u, all, 1), all += __shfl_xor_sync(~0u, all, 2); /* the lanes of an entry */
        const int from = threadIdx.x % 4 * 8;
        return make_float2((float)__shfl_sync(~0u, all, from), (float)__shfl_sync(~0u, all, from + 4));
    }
};
/* from, next: the first pieces of this lane of both halves, in a stage (STAGED) or in global memory; y: its first piece
 * of its row of digits. */
template <bool STAGED>
static __device__ __forceinline__ void read_code_strips(read_code_sums &sums, const uint4 *from, const uint4 *next,
                                                        const uint4 *y, int strips) {
    enum { BATCH = 2, STEP = STAGED ? 64 : 4 }; /* pieces from strip to strip */
#pragma unroll 1
    for (int j = 0; j < strips; j += BATCH) {
        uint4 x[BATCH][2];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            if (j + i >= strips) break;
            x[i][0] = STAGED ? from[(j + i) * STEP] : next_load(from + (j + i) * STEP);
            x[i][1] = STAGED ? next[(j + i) * STEP] : next_load(next + (j + i) * STEP);
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            if (j + i >= strips) break;
            const uint4 digits = y[(j + i) * 4];
            sums.add(x[i][0], digits, 0), sums.add(x[i][1], digits, 1);
        }
    }
}

/* ---- the key of the state ---- */

/* A warp's first rows of the projection, which need no state. */
template <typename T, int M> struct read_projection {
    uint4 x[READ_BATCH];
    __device__ __forceinline__ const T *from(const read_call<T, M> &c, int tile) const {
        return c.projection + ((int64_t)tile * READ_TILE + threadIdx.x % 32 / 4) * c.state_d + threadIdx.x % 4 * 8;
    }
    /* The strips that follow those of prefetch go to shared memory: a group of copies. */
    __device__ __forceinline__ void copy(const read_call<T, M> &c, const read_block<T> &b) const {
        const int warp = threadIdx.x / 32;
        if (!c.project_strips) return;
        for (int i = 0; i < c.project_strips && warp * READ_TILE < c.d; i++)
            read_copy16(stage(c, b) + i * 512, from(c, warp) + (READ_BATCH + i) * READ_STRIP);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    /* Where they are: in stages that are filled when the state has been projected, or after all stages. */
    __device__ __forceinline__ unsigned char *stage(const read_call<T, M> &c, const read_block<T> &b) const {
        return b.stages + c.first_stages * read_stage_bytes(c.d, sizeof(T)) + threadIdx.x % 32 * 16;
    }
    __device__ __forceinline__ void prefetch(const read_call<T, M> &c) {
        if constexpr (M != READ_PLAIN) {
            const int warp = threadIdx.x / 32;
            if (!c.projection) return;
            for (int row = (int)(threadIdx.x * gridDim.x + blockIdx.x); row < c.d;
                 row += (int)(READ_THREADS * gridDim.x))
                prefetch_l2_range(c.projection + (int64_t)row * c.state_d, (unsigned)(c.state_d * sizeof(T)));
            if (warp * READ_TILE >= c.d) return;
#pragma unroll
            for (int i = 0; i < READ_BATCH; i++)
                if (i < c.state_d / READ_STRIP) x[i] = next_load((const uint4 *)(from(c, warp) + i * READ_STRIP));
        }
    }
    /* Products of a warp's tile of rows with the state. FIRST: of its first tile, some of which it has. */
    template <bool FIRST>
    __device__ __forceinline__ float2 tile_products(const read_call<T, M> &c, const read_block<T> &b, int tile) const {
        const uint4 *y = (const uint4 *)b.state + threadIdx.x % 4;
        const int strips = c.state_d / READ_STRIP;
        read_sums<T> sums = {};
        int done = 0;
        if (FIRST) {
#pragma unroll
            for (int i = 0; i < READ_BATCH; i++)
                if (i < strips) sums.add(x[i], y[i * 4]);
            read_strips<T, true>(sums, stage(c, b), y + READ_BATCH * 4, c.project_strips);
            done = READ_BATCH + c.project_strips;
        }
        read_strips<T, false, READ_BATCH>(sums, from(c, tile) + done * READ_STRIP, y + done * 4, strips - done);
        return sums.result();
    }
    static __device__ __forceinline__ void store(const read_call<T, M> &c, const read_block<T> &b, int tile, float2 y) {
        const int lane = threadIdx.x % 32, to = tile * READ_TILE + 2 * lane;
        if (lane < 4 && to < c.d) b.key[to] = from_float<T>(y.x);
        if (lane < 4 && to + 1 < c.d) b.key[to + 1] = from_float<T>(y.y);
    }
    /* By all threads. */
    __device__ __forceinline__ void run(const read_call<T, M> &c, const read_block<T> &b) {
        const int warp = threadIdx.x / 32;
        if constexpr (M == READ_PLAIN) {
#pragma unroll 1
            for (int tile = warp; tile * READ_TILE < c.d; tile += READ_WARPS) {
                const T *row[READ_TILE];
                for (int j = 0; j < READ_TILE; j++)
                    row[j] = tile * READ_TILE + j < c.d ? c.projection + (int64_t)(tile * READ_TILE + j) * c.state_d
                                                        : NULL;
                store(c, b, tile, read_plain(row, b.state, c.state_d));
            }
        } else {
            if (c.project_strips) read_wait_copies(c.first_stages + 1);
            if (warp * READ_TILE < c.d) store(c, b, warp, tile_products<true>(c, b, warp));
#pragma unroll 1
            for (int tile = warp + READ_WARPS; tile * READ_TILE < c.d; tile += READ_WARPS)
                store(c, b, tile, tile_products<false>(c, b, tile));
        }
        __syncthreads();
    }
};
/* The digits of the key. own: |key|^2, so that no number is greater than its root. */
template <typename T, int M>
static __device__ __forceinline__ void read_make_digits(const read_call<T, M> &c, read_block<T> &b, float own) {
    const float most = sqrtf(own), by = READ_VECTOR / most;
    b.by_digits = most / READ_VECTOR;
    for (int i = threadIdx.x; i < c.d; i += READ_THREADS) {
        int rest = __float2int_rn(to_float(b.key[i]) * by); /* 0 for NaN */
        b.digits[READ_DIGITS * c.d + i] = 0;
#pragma unroll
        for (int digit = READ_DIGITS - 1; digit >= 0; digit--) {
            const int8_t last = (int8_t)rest;
            b.digits[digit * c.d + i] = last, rest = (rest - last) >> 8;
        }
    }
    __syncthreads();
}
/* Loads the state, projects it, appends it. Returns |key|^2. */
template <typename T, int M>
static __device__ __forceinline__ float read_state(const read_call<T, M> &c, read_block<T> &b,
                                                   read_projection<T, M> &projection) {
    __shared__ float of_warp[READ_WARPS];
    float square = 0.0f;
    for (int i = threadIdx.x; i < c.state_d; i += READ_THREADS)
        b.state[i] = from_float<T>(next_float(c.state + i));
    __syncthreads();
    if (c.projection) projection.run(c, b);
    for (int i = c.first_stages; i < c.stages; i++) /* a lane overwrites what only it has read */
        read_copy(c, b, i, i);
    for (int i = threadIdx.x; i < c.d; i += READ_THREADS) {
        const float x = to_float(b.key[i]);
        square += x * x;
        if (blockIdx.x == 0 && c.append.key) ((T *)c.append.key)[i] = b.key[i];
    }
    square = block_sum(square, of_warp);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        if (c.append.square) *c.append.square = square;
        if (c.append.value) *c.append.value = read_newest_id(c);
    }
    if constexpr (M == READ_PACKED) read_make_digits(c, b, square);
    return square;
}

/* ---- distances ---- */

/* dot: the product of an entry with the key of the state. codes: of its own codes with themselves; below 0: it has
 * none. */
template <typename T, int M>
static __device__ __forceinline__ void read_store(const read_call<T, M> &c, const read_block<T> &b, int entry,
                                                  float own, float dot, float codes, next_near &near) {
    float square = b.distance[entry];
    if (codes >= 0.0f && !(square < 0.0f)) dot *= square, square *= square * codes;
    const float distance = square < 0.0f ? INFINITY : memory_distance(own, square, dot);
    b.distance[entry] = distance;
    if (read_of_second(c, entry)) near.of[1] = fminf(near.of[1], distance + 0.0f);
    else near.of[0] = fminf(near.of[0], distance + 0.0f); /* not -0: next_near_warp */
}
/* Products of eight entries from `first` on with the key of the state. from: their first piece of this lane, in a
 * stage; NULL: there are no stages. */
template <typename T, int M>
static __device__ __forceinline__ float2 read_numbers(const read_call<T, M> &c, const read_block<T> &b, int first,
                                                      const unsigned char *from) {
    const int lane = threadIdx.x % 32;
    if constexpr (M == READ_PLAIN) {
        const T *key[READ_TILE];
#pragma unroll
        for (int j = 0; j < READ_TILE; j++)
            key[j] = read_key(c, b, first + j);
        return read_plain(key, b.key, c.d);
    } else {
        const uint4 *y = (const uint4 *)b.key + lane % 4;
        const int strips = c.d / READ_STRIP;
        read_sums<T> sums = {};
        if (from) {
            read_strips<T, true>(sums, from, y, strips);
        } else {
            const T *key = read_key(c, b, first + lane / 4);
            read_strips<T, false>(sums, (key ? key : c.state) + lane % 4 * 8, y, strips); /* no entry: any key */
        }
        return sums.result();
    }
}
/* Stores the distances of entry and the next, by lanes below 4. */
template <typename T, int M>
static __device__ __forceinline__ void read_store_two(const read_call<T, M> &c, const read_block<T> &b, int first,
                                                      float own, float2 dot, float2 codes, next_near &near) {
    const int lane = threadIdx.x % 32, entry = first + 2 * lane;
    if (lane >= 4) return;
    read_store(c, b, entry, own, dot.x, codes.x, near), read_store(c, b, entry + 1, own, dot.y, codes.y, near);
}
/* The same of sixteen entries that have codes, and stores their distances. */
template <typename T, int M>
static __device__ __forceinline__ void read_codes(const read_call<T, M> &c, const read_block<T> &b, int first,
                                                  const unsigned char *from, float own, next_near &near) {
    const int lane = threadIdx.x % 32;
    if constexpr (M == READ_PLAIN) {
#pragma unroll 1
        for (int entry = first; entry < first + READ_CODES; entry++) {
            const int8_t *code = read_code(c, b, entry);
            float dot = 0.0f, codes = 0.0f;
#pragma unroll 1
            for (int i = lane; code && i < c.d; i += 32) {
                const float x = (float)next_load(code + i);
                dot += x * to_float(b.key[i]), codes += x * x;
            }
            dot = warp_sum(dot), codes = warp_sum(codes);
            if (lane == 0) read_store(c, b, entry, own, dot, codes, near);
        }
    } else {
        const uint4 *y = (const uint4 *)(b.digits + min(lane / 4, (int)READ_DIGITS) * c.d) + lane % 4;
        read_code_sums sums = {};
        if (from) {
            read_code_strips<true>(sums, (const uint4 *)from, (const uint4 *)from + 32, y, c.d / READ_CODE_STRIP);
        } else {
            const int8_t *any = (read_of_second(c, first) ? c.side[1] : c.side[0]).packed.code;
            const int8_t *code = read_code(c, b, first + lane / 4), *next = read_code(c, b, first + 8 + lane / 4);
            read_code_strips<false>(sums, (const uint4 *)(code ? code : any) + lane % 4,
                                    (const uint4 *)(next ? next : any) + lane % 4, y, c.d / READ_CODE_STRIP);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float2 dot = sums.products(half), codes = sums.own(half);
            read_store_two(c, b, first + 8 * half, own, make_float2(dot.x * b.by_digits, dot.y * b.by_digits), codes,
                           near);
        }
    }
}
/* own: |key|^2 of the state. Returns the least distances. */
template <typename T, int M>
static __device__ __forceinline__ next_near read_distances(const read_call<T, M> &c, const read_block<T> &b,
                                                           float own) {
    const int lane = threadIdx.x % 32;
    next_near near = {{INFINITY, INFINITY}};
    int stage = 0;
#pragma unroll 1
    for (int round = 0; round < c.entries / (READ_WARPS * c.tile); round++) {
        const int first = read_first(c, round);
        const unsigned char *from = NULL;
        if (c.stages) {
            read_wait_copies(c.stages);
            from = b.stages + stage * read_stage_bytes(c.d, sizeof(T)) + lane * 16;
        }
        if (read_has_codes(c, first)) {
            read_codes(c, b, first, from, own, near);
        } else {
            read_store_two(c, b, first, own, read_numbers(c, b, first, from), make_float2(-1.0f, -1.0f), near);
            if (lane >= 4 && 2 * lane < c.tile) /* none */
                b.distance[first + 2 * lane] = b.distance[first + 2 * lane + 1] = INFINITY;
        }
        if (!c.stages) continue;
        read_copy(c, b, round + c.stages, stage); /* the lane has read what it overwrites */
        stage = stage + 1 == c.stages ? 0 : stage + 1;
    }
    asm volatile("cp.async.wait_all;" ::: "memory"); /* the last ones are empty */
    return near;
}
