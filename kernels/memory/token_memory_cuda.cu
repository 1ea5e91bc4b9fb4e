/* token_memory_cuda.cu -- token memories on a GPU: bf16 with full tiles by tensor cores (token_memory_tiles.cuh,
 * token_memory_sums.cuh), other cases and few rows by ordinary arithmetic (token_memory_plain.cuh). These files name
 * their bounds. */
#include "base/minmax.h"
#include "kernels/memory/token_memory_plain.cuh"
#include "kernels/memory/token_memory_sums.cuh"

enum { FEW_ROWS = 16, PART_COLUMNS = 128, SPARE_BYTES = 4096 };

/* ---- arguments of an op ---- */

static void squares_of(struct device *dev, const char *op, float *square, struct mat keys) {
    auto run = [&](auto kernel, auto view) {
        launch(dev, op, kernel, (unsigned)blocks_for(keys.rows, PLAIN_WARPS), PLAIN_THREADS, 0, square, view, keys.rows,
               (int)keys.cols);
    };
    if (keys.type == DTYPE_F32) run(plain_squares<float>, rows<const float>{(const float *)keys.data, keys.stride});
    else if (keys.type == DTYPE_BF16) run(plain_squares<bf16>, rows<const bf16>{(const bf16 *)keys.data, keys.stride});
    else run(plain_squares<__half>, rows<const __half>{(const __half *)keys.data, keys.stride});
}

/* For forward and backward: a limit far above the number of positions has no cost. */
static memory_view reach_of(struct mat states, const struct token_memory *m, const int32_t *target) {
    assert(!m->slots.packed.code);
    memory_view v = memory_view_of(states, m, target);
    if (v.limit > v.first + v.length) v.limit = (int)(v.first + v.length);
    return v;
}

/* Pieces of the scratch. */
struct scratch_cursor {
    unsigned char *at, *end;
    void *take(size_t bytes) {
        void *piece = at;
        at += (bytes + 255) / 256 * 256;
        assert(at <= end);
        return piece;
    }
    size_t left() const { return (size_t)(end - at); }
};
static scratch_cursor scratch_of(struct device *dev) {
    size_t bytes = device_cuda_scratch_bytes(dev);
    unsigned char *at = (unsigned char *)device_cuda_scratch(dev, bytes);
    return {at, at + bytes};
}
static void state_squares(struct device *dev, const char *op, scratch_cursor &scratch, memory_view &v,
                          struct mat states) {
    float *square = (float *)scratch.take((size_t)v.n * sizeof(float));
    squares_of(dev, op, square, states);
    v.state_square = square;
}

template <typename... Parameters, typename... Arguments>
static void launch_plain(struct device *dev, const char *op, void (*kernel)(Parameters...), dim3 grid, size_t shared,
                         Arguments... arguments) {
    if (shared > 48 << 10)
        (void)cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    launch(dev, op, kernel, grid, PLAIN_THREADS, shared, arguments...);
}
template <typename... Parameters, typename... Arguments>
static void launch_group(struct device *dev, const char *op, void (*kernel)(Parameters...), dim3 grid, size_t shared,
                         Arguments... arguments) {
    (void)cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    launch(dev, op, kernel, grid, WARPGROUP, shared, arguments...);
}

/* ---- tiles ---- */

struct tiles_plan {
    tile_matrix states, slots, past;
    size_t score_bytes;
    int chunks, stages;
};
/* False if the tensor core kernels do not support the call. */
static bool tiles_suit(struct device *dev, tiles_plan &p, const memory_view &v, struct mat states,
                       const struct token_memory *m) {
    bool hopper = device_cuda_hopper(dev);
    if (device_cuda_architecture(dev) < 80 || states.type != DTYPE_BF16 || v.n < FEW_ROWS || v.d % TILE ||
        v.d > MEMORY_WIDTH)
        return false;
    if (v.k > MEMORY_SLOTS_MAX || (v.limit && v.first + v.length > v.ring)) return false;
    p.chunks = v.d / TILE;
    /* Two groups on each multiprocessor if each then has some stages, else one. */
    int all = device_cuda_shared_bytes(dev), own = p.chunks * TILE_BYTES, more = (int)sizeof(score_shared) + 2048;
    p.stages = (all / 2 - more - own) / TILE_BYTES;
    if (p.stages < 4) p.stages = (all - more - own) / TILE_BYTES;
    p.stages = p.stages > MEMORY_STAGES ? (int)MEMORY_STAGES : p.stages;
    if (p.stages < 2) return false;
    p.score_bytes = 1024 + (size_t)own + (size_t)p.stages * TILE_BYTES;
    return tile_matrix_of(&p.states, states, TILE, hopper) &&
           (!v.k || tile_matrix_of(&p.slots, m->slots.keys, TILE, hopper)) &&
           (!v.limit || tile_matrix_of(&p.past, m->past.keys, TILE, hopper));
}

/* Items in so many parts that `groups` of them keep the GPU busy, of at least `least` items. */
static int part_items(struct device *dev, int64_t groups, int64_t items, int64_t least) {
    int64_t wanted = blocks_for(4 * device_cuda_processors(dev), groups < 1 ? 1 : groups);
    int64_t each = blocks_for(items, wanted < 1 ? 1 : wanted);
    return (int)min_i64(max_i64(each, least), MEMORY_SLOTS_MAX);
}

/* Slots and own past as tasks of the tile kernels; `part` and `sums` are the caller's. */
struct tiles_tasks {
    memory_tiles_task slots, past;
    int64_t past_groups;
    int parts;
};
static tiles_tasks tasks_of(struct device *dev, const tiles_plan &p, const memory_view &v) {
    tiles_tasks t = {};
    memory_tiles_task all = {};
    all.v = v, all.chunks = p.chunks, all.stages = p.stages;
    t.slots = t.past = all;
    if (v.k) {
        int64_t tiles = blocks_for(v.slot_rows, TILE);
        t.slots.part_items = part_items(dev, v.blocks, v.k, blocks_for(4, tiles));
        t.slots.parts = (int)blocks_for(v.k, t.slots.part_items);
        t.slots.row_tiles = (int)blocks_for(v.block_rows > 0 ? v.block_rows : 1, TILE);
        t.slots.row_stride = v.k * tiles;
    }
    if (v.limit) {
        t.past_groups = v.n / v.length * blocks_for(v.length, TILE);
        t.past.row_tiles = 1, t.past.row_stride = blocks_for(v.limit, TILE) + 2;
        t.past.part_items = part_items(dev, t.past_groups, t.past.row_stride, 4);
        t.past.parts = (int)blocks_for(t.past.row_stride, t.past.part_items);
    }
    t.past.first_part = t.slots.parts;
    t.parts = t.slots.all_parts = t.past.all_parts = t.slots.parts + t.past.parts;
    return t;
}

static bool forward_by_tiles(struct device *dev, struct token_memory_stats out, struct mat states,
                             const struct token_memory *m, memory_view v) {
    const char *op = "token_memory.forward";
    tiles_plan p;
    if (!tiles_suit(dev, p, v, states, m)) return false;
    tiles_tasks t = tasks_of(dev, p, v);
    scratch_cursor scratch = scratch_of(dev);
    int64_t parts = v.n * t.parts;
    if ((size_t)v.n * sizeof(float) + (size_t)parts * sizeof(memory_part) + SPARE_BYTES > scratch.left()) return false;
    state_squares(dev, op, scratch, v, states);
    memory_part *part = (memory_part *)scratch.take((size_t)parts * sizeof(memory_part));
    for (memory_tiles_task *task : {&t.slots, &t.past})
        task->v = v, task->part = part;
    launch(dev, op, parts_clear, (unsigned)blocks_for(parts, 256), 256, 0, part, parts);
    if (v.k)
        launch_group(dev, op, score_tiles<false, false>, dim3((unsigned)v.blocks, (unsigned)t.slots.parts),
                     p.score_bytes, p.states, p.slots, t.slots);
    if (v.limit)
        launch_group(dev, op, score_tiles<true, false>, dim3((unsigned)t.past_groups, (unsigned)t.past.parts),
                     p.score_bytes, p.states, p.past, t.past);
    launch(dev, op, plain_join, (unsigned)blocks_for(v.n, PLAIN_THREADS), PLAIN_THREADS, 0, out, part, t.parts, v);
    return true;
}

/* Column tiles in each slice. */
static int slice_tiles(int chunks) {
    int tiles = SUM_TILES;
    while (chunks % tiles)
        tiles--;
    return tiles;
}

struct sums_call {
    struct device *dev;
    const tiles_plan *plan;
    struct mat dstates, dkeys, keys;
    sum_keys_task of_keys;
    int64_t key_tiles; /* of all */
};
template <int TILES, bool PAST> static void launch_sums(const sums_call &c, const memory_tiles_task &t) {
    const char *op = "token_memory.backward";
    size_t bytes = 1024 + (size_t)SUM_STAGES * sum_group<TILES>::STAGE_BYTES;
    unsigned slices = (unsigned)(c.plan->chunks / TILES);
    if (c.dstates.data)
        launch_group(c.dev, op, sum_states<TILES, PAST>, dim3((unsigned)c.of_keys.groups, slices), bytes,
                     PAST ? c.plan->past : c.plan->slots, t, rows_of<float>(c.dstates));
    if (c.dkeys.data)
        launch_group(c.dev, op, sum_keys<TILES, PAST>, dim3((unsigned)c.key_tiles, slices), bytes, c.plan->states, t,
                     rows_of<float>(c.dkeys), rows<const bf16>{(const bf16 *)c.keys.data, c.keys.stride}, c.of_keys);
}

/* u of as many groups as fit the scratch, then the sums of it. */
template <bool PAST> static void backward_groups(sums_call c, memory_tiles_task t, int64_t groups, size_t u_bytes) {
    int64_t each = t.row_tiles * t.row_stride * TILE_BYTES, most = (int64_t)u_bytes / each;
    auto sums = slice_tiles(c.plan->chunks);
    auto run = sums == 1   ? launch_sums<1, PAST>
               : sums == 2 ? launch_sums<2, PAST>
               : sums == 3 ? launch_sums<3, PAST>
                           : launch_sums<4, PAST>;
    assert(most >= 1);
    for (t.first = 0; t.first < groups; t.first += most) {
        c.of_keys.groups = (int)min_i64(most, groups - t.first);
        launch_group(c.dev, "token_memory.backward", score_tiles<PAST, true>,
                     dim3((unsigned)c.of_keys.groups, (unsigned)t.parts), c.plan->score_bytes, c.plan->states,
                     PAST ? c.plan->past : c.plan->slots, t);
        run(c, t);
    }
}

static bool backward_by_tiles(struct device *dev, const struct token_memory_gradients *to, struct mat states,
                              const struct token_memory *m, memory_view v, struct token_memory_stats stats) {
    const char *op = "token_memory.backward";
    tiles_plan p;
    struct mat outs[] = {to->dstates, to->dkeys, to->dpast};
    for (struct mat o : outs)
        if (o.data && ((uintptr_t)o.data % 8 || o.stride % 2)) return false;
    if (!tiles_suit(dev, p, v, states, m)) return false;
    tiles_tasks t = tasks_of(dev, p, v);
    scratch_cursor scratch = scratch_of(dev);
    size_t n = (size_t)v.n, need = n * 8 + n * (size_t)t.parts * sizeof(float2) + SPARE_BYTES;
    int64_t u_slots = t.slots.row_tiles * t.slots.row_stride * TILE_BYTES, u_past = t.past.row_stride * TILE_BYTES;
    if (need + (size_t)(u_slots > u_past ? u_slots : u_past) > scratch.left()) return false;
    state_squares(dev, op, scratch, v, states);
    float *moment = (float *)scratch.take(n * sizeof(float));
    float2 *sums = (float2 *)scratch.take(n * (size_t)t.parts * sizeof(float2));
    device_clear(dev, sums, n * (size_t)t.parts * sizeof(float2));
    for (memory_tiles_task *task : {&t.slots, &t.past}) {
        task->v = v, task->sums = sums, task->u = scratch.at, task->stats = stats;
        task->dlog_p = to->dlog_p, task->dlse = to->dlse;
    }
    sums_call c = {dev, &p, to->dstates, to->dkeys, m->slots.keys, {to->inverse.begin, to->inverse.entry, 0, 0, 0}, 0};
    if (v.k) {
        c.key_tiles = to->inverse.slots * blocks_for(v.slot_rows, TILE);
        backward_groups<false>(c, t.slots, v.blocks, scratch.left());
    }
    if (v.limit) {
        int64_t low = (v.first > v.limit ? v.first - v.limit : 0) / TILE;
        c.dkeys = to->dpast, c.keys = m->past.keys, c.of_keys.low = low;
        c.of_keys.key_tiles = blocks_for(v.first + v.length, TILE) - low;
        c.key_tiles = v.n / v.length * c.of_keys.key_tiles;
        backward_groups<true>(c, t.past, t.past_groups, scratch.left());
    }
    launch(dev, op, sum_rows, (unsigned)blocks_for(v.n, 8), 256, 0,
           rows<float>{(float *)to->dstates.data, to->dstates.stride}, moment,
           rows<const bf16>{(const bf16 *)states.data, states.stride}, (const float2 *)sums, t.parts, v);
    if (to->dtau) launch(dev, op, plain_tau, 1, 1024, 0, to->dtau, (const float *)moment, v.n, v.tau);
    return true;
}

/* ---- any shape ---- */

template <typename T>
static void forward_plain(struct device *dev, struct token_memory_stats out, struct mat states,
                          const struct token_memory *m, memory_view v) {
    const char *op = "token_memory.forward";
    scratch_cursor scratch = scratch_of(dev);
    state_squares(dev, op, scratch, v, states);
    int64_t each = PART_COLUMNS, columns = memory_columns(v);
    while (v.n * blocks_for(columns, each) * (int64_t)sizeof(memory_part) > (int64_t)scratch.left() / 2 ||
           blocks_for(columns, each) > 65535 ||
           v.n * blocks_for(columns, each) > 64 * (int64_t)device_cuda_processors(dev)) {
        if (each >= columns) break;
        each *= 2;
    }
    int parts = (int)blocks_for(columns, each);
    memory_part *part = (memory_part *)scratch.take((size_t)v.n * (size_t)parts * sizeof(memory_part));
    launch_plain(dev, op, plain_parts<T>, dim3((unsigned)v.n, (unsigned)parts), (size_t)v.d * sizeof(float), part, v,
                 memory_sources_of<T>(states, m), each);
    launch(dev, op, plain_join, (unsigned)blocks_for(v.n, PLAIN_THREADS), PLAIN_THREADS, 0, out,
           (const memory_part *)part, parts, v);
}

template <typename T>
static void backward_plain(struct device *dev, const struct token_memory_gradients *to, struct mat states,
                           const struct token_memory *m, memory_view v, struct token_memory_stats stats) {
    const char *op = "token_memory.backward";
    scratch_cursor scratch = scratch_of(dev);
    state_squares(dev, op, scratch, v, states);
    float *moment = (float *)scratch.take((size_t)v.n * sizeof(float));
    plain_task t = {stats, to->dlog_p, to->dlse, moment, to->inverse.begin, to->inverse.entry};
    memory_sources<T> in = memory_sources_of<T>(states, m);
    size_t shared = 2 * (size_t)v.d * sizeof(float);
    launch_plain(dev, op, plain_states<T>, (unsigned)v.n, shared,
                 rows<float>{(float *)to->dstates.data, to->dstates.stride}, v, in, t);
    if (to->dtau) launch(dev, op, plain_tau, 1, 1024, 0, to->dtau, (const float *)moment, v.n, v.tau);
    if (v.k && to->dkeys.data)
        launch_plain(dev, op, plain_slot_keys<T>, (unsigned)(to->inverse.slots * v.slot_rows), shared,
                     rows_of<float>(to->dkeys), v, in, t);
    if (v.limit && to->dpast.data) {
        int64_t low = v.first > v.limit ? v.first - v.limit : 0;
        launch_plain(dev, op, plain_past_keys<T>, (unsigned)(v.n / v.length * (v.first + v.length - low)), shared,
                     rows_of<float>(to->dpast), v, in, t, low);
    }
}

template <typename T>
static void weights_plain(struct device *dev, struct mat w, struct mat states, const struct token_memory *m) {
    const char *op = "token_memory.weights";
    assert(!m->slots.packed.code);
    memory_view v = memory_view_of(states, m, NULL);
    scratch_cursor scratch = scratch_of(dev);
    state_squares(dev, op, scratch, v, states);
    int64_t each = PART_COLUMNS / 2;
    launch_plain(dev, op, plain_distances<T>, dim3((unsigned)v.n, (unsigned)blocks_for(w.cols, each)),
                 (size_t)v.d * sizeof(float), rows_of<float>(w), v, memory_sources_of<T>(states, m), each);
    launch(dev, op, plain_softmax, (unsigned)v.n, 1024, 0, rows_of<float>(w), w.cols, v.tau);
}

/* ---- ops ---- */

static void token_memory_squares(struct device *dev, float *square, struct mat keys) {
    squares_of(dev, "token_memory.squares", square, keys);
}

static void token_memory_forward(struct device *dev, struct token_memory_stats out, struct mat states,
                                 const struct token_memory *memory, const int32_t *target) {
    memory_view v = reach_of(states, memory, target);
    if (v.n == 0 || forward_by_tiles(dev, out, states, memory, v)) return;
    if (states.type == DTYPE_F32) forward_plain<float>(dev, out, states, memory, v);
    else if (states.type == DTYPE_BF16) forward_plain<bf16>(dev, out, states, memory, v);
    else forward_plain<__half>(dev, out, states, memory, v);
}

static void token_memory_backward(struct device *dev, const struct token_memory_gradients *to, struct mat states,
                                  const struct token_memory *memory, const int32_t *target,
                                  struct token_memory_stats stats) {
    memory_view v = reach_of(states, memory, target);
    assert(!to->dstates.data || (to->dstates.type == DTYPE_F32 && to->dstates.rows == states.rows));
    assert(!to->dkeys.data || !v.k || (to->dkeys.type == DTYPE_F32 && to->inverse.begin));
    assert(!to->dpast.data || to->dpast.type == DTYPE_F32);
    if (v.n == 0 || backward_by_tiles(dev, to, states, memory, v, stats)) return;
    if (states.type == DTYPE_F32) backward_plain<float>(dev, to, states, memory, v, stats);
    else if (states.type == DTYPE_BF16) backward_plain<bf16>(dev, to, states, memory, v, stats);
    else backward_plain<__half>(dev, to, states, memory, v, stats);
}

static void token_memory_mix_rows(struct device *dev, struct token_memory_mix out, const float *log_lm,
                                  const float *log_p, const float *gate, const int32_t *target, int64_t n,
                                  float scale) {
    launch(dev, "token_memory.mix", plain_mix, (unsigned)blocks_for(n, PLAIN_THREADS), PLAIN_THREADS, 0, out, log_lm,
           log_p, gate, target, n, scale);
}

static void token_memory_weights(struct device *dev, struct mat w, struct mat states,
                                 const struct token_memory *memory) {
    assert(w.type == DTYPE_F32 && w.rows == states.rows && w.cols == token_memory_columns(memory));
    if (states.type == DTYPE_F32) weights_plain<float>(dev, w, states, memory);
    else if (states.type == DTYPE_BF16) weights_plain<bf16>(dev, w, states, memory);
    else weights_plain<__half>(dev, w, states, memory);
}

/* A view for ops that read weights; its rows are those of w. */
static memory_view places_view(struct mat w, const struct token_memory *m) {
    assert(w.type == DTYPE_F32 && w.cols == token_memory_columns(m) && w.cols < INT32_MAX);
    struct mat rows_only = {};
    rows_only.rows = w.rows, rows_only.cols = m->slots.k ? m->slots.keys.cols : m->past.keys.cols;
    rows_only.type = m->slots.k ? m->slots.keys.type : m->past.keys.type;
    return memory_view_of(rows_only, m, NULL);
}

static void token_memory_distribution(struct device *dev, struct mat p, struct mat w,
                                      const struct token_memory *memory) {
    const char *op = "token_memory.distribution";
    assert(p.type == DTYPE_F32 && p.rows == w.rows);
    memory_view v = places_view(w, memory);
    size_t row_bytes = (size_t)p.cols * sizeof(unsigned long long);
    int64_t most = (int64_t)(device_cuda_scratch_bytes(dev) / row_bytes);
    assert(most >= 1);
    rows<const float> from = {(const float *)w.data, w.stride};
    for (int64_t first = 0; first < p.rows; first += most) {
        int64_t n = min_i64(most, p.rows - first);
        unsigned long long *sum = (unsigned long long *)device_cuda_scratch(dev, (size_t)n * row_bytes);
        device_clear(dev, sum, (size_t)n * row_bytes);
        launch(dev, op, plain_scatter, dim3((unsigned)n, (unsigned)blocks_for(w.cols, PLAIN_THREADS)), PLAIN_THREADS, 0,
               sum, p.cols, from, first, v);
        launch(dev, op, plain_words, dim3((unsigned)n, (unsigned)blocks_for(p.cols, PLAIN_THREADS)), PLAIN_THREADS, 0,
               rows_of<float>(p), (const unsigned long long *)sum, p.cols, from, first, w.cols);
    }
}

static void token_memory_contributors(struct device *dev, int32_t *column, float *weight, struct mat w,
                                      const struct token_memory *memory, const int32_t *token, int k, float threshold) {
    assert(k >= 1);
    launch(dev, "token_memory.contributors", plain_contributors, (unsigned)w.rows, PLAIN_THREADS, 0, column, weight,
           rows<const float>{(const float *)w.data, w.stride}, places_view(w, memory), token, k, threshold);
}

extern "C" const struct token_memory_ops token_memory_cuda = {
    .squares = token_memory_squares,
    .forward = token_memory_forward,
    .backward = token_memory_backward,
    .mix = token_memory_mix_rows,
    .weights = token_memory_weights,
    .distribution = token_memory_distribution,
    .contributors = token_memory_contributors,
};
