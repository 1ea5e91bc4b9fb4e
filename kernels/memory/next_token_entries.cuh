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
 * multiple of 32, take plain loops. */
#pragma once
#include "kernels/cuda/launch_cuda.cuh"
#include "kernels/memory/next_token_call.cuh"

enum { READ_WARPS = 16, READ_THREADS = 32 * READ_WARPS };
enum { READ_TILE = 8 /* entries of a warp at a time */, READ_ROUND = READ_WARPS * READ_TILE };
enum { READ_STRIP = 32 /* numbers of a key that a warp multiplies at a time */ };
enum { READ_STAGES_MIN = 2, READ_STAGES_MAX = 8 /* rounds in shared memory */ };
enum { READ_BATCH = 12 /* loads of a lane in flight */ };

/* Shared memory whose size depends on the call; every part begins at a multiple of 16 bytes. */
struct read_layout {
    size_t key, distance, token, row, stages; /* the state is at 0 */
};
static __host__ __device__ __forceinline__ size_t read_padded(size_t bytes) {
    return (bytes + 15) / 16 * 16;
}
/* entries: of a block. number: bytes of a number of a key. */
static __host__ __device__ __forceinline__ read_layout read_layout_of(int state_d, int d, int entries, size_t number) {
    read_layout l;
    l.key = read_padded(state_d * number);
    l.distance = l.key + read_padded(d * number);
    l.token = l.distance + entries * sizeof(float);
    l.row = l.token + entries * sizeof(int);
    l.stages = l.row + entries * sizeof(int);
    return l;
}
template <typename T> struct read_block {
    T *state, *key; /* key: of the state; state itself without a projection */
    /* Of the block's entries. distance is the square at first (below 0: no entry), and the exponential at last. row: of
     * slots or past, -1: none. */
    float *distance;
    int *token, *row;
    unsigned char *stages; /* of this warp */
};
static __host__ __device__ __forceinline__ size_t read_stage_bytes(int d, size_t number) {
    return (size_t)READ_TILE * d * number;
}

/* The column of an entry of this block: tiles are allocated to blocks in turn. */
static __device__ __forceinline__ int read_column(int entry) {
    return (int)((entry / READ_TILE * gridDim.x + blockIdx.x) * READ_TILE) + entry % READ_TILE;
}

/* ---- look up ---- */

/* Where a column is: its side, its number there, and whether it is of the past. */
template <typename T> struct read_spot {
    const next_side<T> *side;
    int of_side, slots;
    bool past;
};
template <typename T> static __device__ __forceinline__ read_spot<T> read_spot_of(const next_call<T> &c, int column) {
    read_spot<T> s;
    const bool second = column >= c.side[0].columns;
    s.side = second ? &c.side[1] : &c.side[0];
    s.of_side = second ? column - c.side[0].columns : column;
    s.slots = (int)memory_slot_columns(s.side->v);
    s.past = s.of_side >= s.slots;
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
template <typename T> static __device__ __forceinline__ int32_t read_newest_id(const next_call<T> &c) {
    return c.append.picked ? next_load(c.append.picked) : c.append.id;
}
/* The newest value may not have arrived yet. */
template <typename T>
static __device__ __forceinline__ void read_look_up(const next_call<T> &c, const read_block<T> &b) {
    enum { EACH = 3 }; /* chains of loads of a thread */
    const int newest0 = read_newest(c.side[0].v), newest1 = read_newest(c.side[1].v);
#pragma unroll 1
    for (int first = (int)threadIdx.x; first < c.entries; first += EACH * READ_THREADS) {
        int row[EACH], token[EACH];
        float square[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int entry = first + i * READ_THREADS, column = read_column(entry);
            row[i] = -1;
            if (entry >= c.entries || column >= c.columns) continue;
            const read_spot<T> at = read_spot_of(c, column);
            const int newest = column >= c.side[0].columns ? newest1 : newest0;
            if (at.past) row[i] = read_past_row(at.side->v, newest, at.of_side - at.slots);
            else row[i] = next_load(at.side->v.slot + at.of_side / at.side->v.slot_rows);
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            token[i] = -1, square[i] = -1.0f;
            if (row[i] < 0) continue;
            const read_spot<T> at = read_spot_of(c, read_column(first + i * READ_THREADS));
            const memory_view &v = at.side->v;
            if (!at.past) row[i] = row[i] * v.slot_rows + at.of_side % v.slot_rows;
            const int32_t *value = (at.past ? v.past_value : v.slot_value) + row[i];
            token[i] = at.past && value == c.append.value ? read_newest_id(c) : next_load(value);
            square[i] = next_load((at.past ? v.past_square : v.slot_square) + row[i]);
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
/* The key of an entry; NULL: none. */
template <typename T>
static __device__ __forceinline__ const T *read_key(const next_call<T> &c, const read_block<T> &b, int entry) {
    if (entry >= c.entries || b.row[entry] < 0) return NULL;
    const read_spot<T> at = read_spot_of(c, read_column(entry));
    return at.past ? at.side->in.past[b.row[entry]] : at.side->in.slots[b.row[entry]];
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
 * lane / 4, one of four of each strip. Strip j of the tile is at j * 512. */
template <typename T>
static __device__ __forceinline__ void read_copy(const next_call<T> &c, const read_block<T> &b, int round, int stage) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const T *key = read_key(c, b, round * READ_ROUND + warp * READ_TILE + lane / 4);
    unsigned char *to = b.stages + stage * read_stage_bytes(c.d, sizeof(T)) + lane * 16;
    const unsigned char *from = (const unsigned char *)key + lane % 4 * 16;
#pragma unroll 4
    for (int j = 0; key && j < c.d / READ_STRIP; j++)
        read_copy16(to + j * 512, from + j * 64);
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* The keys of rounds from `first` on. */
template <typename T>
static __device__ __forceinline__ void read_prefetch_keys(const next_call<T> &c, const read_block<T> &b, int first) {
    for (int entry = first * READ_ROUND + (int)threadIdx.x; entry < c.entries; entry += READ_THREADS)
        if (const T *key = read_key(c, b, entry)) prefetch_l2_range(key, (unsigned)(c.d * sizeof(T)));
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
 * the vector. */
template <typename T, bool STAGED>
static __device__ __forceinline__ void read_strips(read_sums<T> &sums, const void *from, const uint4 *y, int strips) {
    enum { BATCH = 4, STEP = STAGED ? 32 : 4 }; /* pieces from strip to strip */
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

/* ---- the key of the state ---- */

/* A warp's first rows of the projection, which need no state. */
template <typename T> struct read_projection {
    uint4 x[READ_BATCH];
    __device__ __forceinline__ const T *from(const next_call<T> &c, int tile) const {
        return c.projection + ((int64_t)tile * READ_TILE + threadIdx.x % 32 / 4) * c.state_d + threadIdx.x % 4 * 8;
    }
    /* The strips that follow those of prefetch go to shared memory: a group of copies. */
    __device__ __forceinline__ void copy(const next_call<T> &c, const read_block<T> &b) const {
        const int warp = threadIdx.x / 32;
        if (!c.project_strips) return;
        for (int i = 0; i < c.project_strips && warp * READ_TILE < c.d; i++)
            read_copy16(stage(c, b) + i * 512, from(c, warp) + (READ_BATCH + i) * READ_STRIP);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    /* Where they are: in stages that are filled when the state has been projected, or after all stages. */
    __device__ __forceinline__ unsigned char *stage(const next_call<T> &c, const read_block<T> &b) const {
        return b.stages + c.first_stages * read_stage_bytes(c.d, sizeof(T)) + threadIdx.x % 32 * 16;
    }
    __device__ __forceinline__ void prefetch(const next_call<T> &c) {
        const int warp = threadIdx.x / 32;
        if (!c.projection) return;
        for (int row = (int)(threadIdx.x * gridDim.x + blockIdx.x); c.project_tiles && row < c.d;
             row += (int)(READ_THREADS * gridDim.x))
            prefetch_l2_range(c.projection + (int64_t)row * c.state_d, (unsigned)(c.state_d * sizeof(T)));
        if (!c.project_tiles || warp * READ_TILE >= c.d) return;
#pragma unroll
        for (int i = 0; i < READ_BATCH; i++)
            if (i < c.state_d / READ_STRIP) x[i] = next_load((const uint4 *)(from(c, warp) + i * READ_STRIP));
    }
    /* Products of a warp's tile of rows with the state. */
    __device__ __forceinline__ float2 tile_products(const next_call<T> &c, const read_block<T> &b, int tile) const {
        const uint4 *y = (const uint4 *)b.state + threadIdx.x % 4;
        const int strips = c.state_d / READ_STRIP;
        read_sums<T> sums = {};
        int done = 0;
        if (tile == (int)threadIdx.x / 32) {
#pragma unroll
            for (int i = 0; i < READ_BATCH; i++)
                if (i < strips) sums.add(x[i], y[i * 4]);
            read_strips<T, true>(sums, stage(c, b), y + READ_BATCH * 4, c.project_strips);
            done = READ_BATCH + c.project_strips;
        }
        read_strips<T, false>(sums, from(c, tile) + done * READ_STRIP, y + done * 4, strips - done);
        return sums.result();
    }
    /* By all threads. */
    __device__ __forceinline__ void run(const next_call<T> &c, const read_block<T> &b) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        if (c.project_strips) read_wait_copies(c.first_stages + 1);
#pragma unroll 1
        for (int tile = warp; tile * READ_TILE < c.d; tile += READ_WARPS) {
            float2 y;
            if constexpr (sizeof(T) == 2) {
                if (c.project_tiles) y = tile_products(c, b, tile);
            }
            if (!c.project_tiles) {
                const T *row[READ_TILE];
                for (int j = 0; j < READ_TILE; j++)
                    row[j] = tile * READ_TILE + j < c.d ? c.projection + (int64_t)(tile * READ_TILE + j) * c.state_d
                                                        : NULL;
                y = read_plain(row, b.state, c.state_d);
            }
            const int to = tile * READ_TILE + 2 * lane;
            if (lane < 4 && to < c.d) b.key[to] = from_float<T>(y.x);
            if (lane < 4 && to + 1 < c.d) b.key[to + 1] = from_float<T>(y.y);
        }
        __syncthreads();
    }
};
/* Loads the state, projects it, appends it. Returns |key|^2. */
template <typename T>
static __device__ __forceinline__ float read_state(const next_call<T> &c, const read_block<T> &b,
                                                   read_projection<T> &projection) {
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
    return square;
}

/* ---- distances ---- */

template <typename T>
static __device__ __forceinline__ void read_store(const next_call<T> &c, const read_block<T> &b, int entry, float own,
                                                  float dot, next_near &near) {
    const float square = b.distance[entry];
    const float distance = square < 0.0f ? INFINITY : memory_distance(own, square, dot);
    b.distance[entry] = distance;
    if (read_column(entry) >= c.side[0].columns) near.of[1] = fminf(near.of[1], distance + 0.0f);
    else near.of[0] = fminf(near.of[0], distance + 0.0f); /* not -0: next_near_warp */
}
/* Products of this warp's tile of a round with the key of the state. */
template <typename T>
static __device__ __forceinline__ float2 read_round(const next_call<T> &c, const read_block<T> &b, int round,
                                                    int stage) {
    const int lane = threadIdx.x % 32, first = round * READ_ROUND + threadIdx.x / 32 * READ_TILE;
    if constexpr (sizeof(T) == 2) {
        const uint4 *y = (const uint4 *)b.key + lane % 4;
        const int strips = c.d / READ_STRIP;
        read_sums<T> sums = {};
        if (c.stages) {
            read_wait_copies(c.stages);
            read_strips<T, true>(sums, b.stages + stage * read_stage_bytes(c.d, sizeof(T)) + lane * 16, y, strips);
            return sums.result();
        }
        if (c.tiles) {
            const T *key = read_key(c, b, first + lane / 4);
            read_strips<T, false>(sums, (key ? key : c.state) + lane % 4 * 8, y, strips); /* no entry: any key */
            return sums.result();
        }
    }
    const T *key[READ_TILE];
#pragma unroll
    for (int j = 0; j < READ_TILE; j++)
        key[j] = read_key(c, b, first + j);
    return read_plain(key, b.key, c.d);
}
/* own: |key|^2 of the state. Returns the least distances. */
template <typename T>
static __device__ __forceinline__ next_near read_distances(const next_call<T> &c, const read_block<T> &b, float own) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    next_near near = {{INFINITY, INFINITY}};
    int stage = 0;
#pragma unroll 1
    for (int round = 0; round < c.entries / READ_ROUND; round++) {
        const float2 dot = read_round(c, b, round, stage);
        const int entry = round * READ_ROUND + warp * READ_TILE + 2 * lane;
        if (lane < 4) read_store(c, b, entry, own, dot.x, near), read_store(c, b, entry + 1, own, dot.y, near);
        if (!c.stages) continue;
        read_copy(c, b, round + c.stages, stage); /* the lane has read what it overwrites */
        stage = stage + 1 == c.stages ? 0 : stage + 1;
    }
    asm volatile("cp.async.wait_all;" ::: "memory"); /* the last ones are empty */
    return near;
}
