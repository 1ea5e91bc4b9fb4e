/* ivf_scan_cuda.cu -- the best rows of an inverted file's lists.
 *
 *   ivf_centroid_scores      scores of all centroids            a warp: 4 centroids x all queries of the pass
 *   ivf_select_kernel        the nprobe best lists, work plan   one block for each query
 *   up to 32 queries         ivf_scan_lists_cuda.cuh            all warps share the rows equally; then lists are merged
 *   one, best 33 to 1024     ivf_scan_best_cuda.cuh             the same; keys are merged by thresholds
 *   more, to 1024 a pass     ivf_scan_many_cuda.cuh             blocks draw pieces of lists
 *
 * With up to 32 queries each kernel except the first is launched early and waits for the kernel before it. The
 * order (score, then smaller id) is total, and masks and lists are sets: the same bits however blocks are scheduled.
 *
 * Bound by memory: 2 d bytes a centroid, 2 d bytes a row that any query scans. Best measured (H200, 20M x 768, 16,384
 * lists, best 8): one query 56 us with 32 lists, 156 us with 256 (docs/kernels/search.md). */
#include "kernels/search/ivf_scan_many_cuda.cuh"
#include "kernels/search/ivf_scan_best_cuda.cuh"

static_assert((int)IVF_SCAN_ONCE == (int)TOPK_LIST_MAX);

static size_t ivf_query_bytes(int units) {
    return (size_t)units * 256 * sizeof(float);
}

/* How many queries fit that many bytes of shared memory, with a list for each warp. */
static int ivf_queries_that_fit(size_t bytes, int units, int k, int warps) {
    int n = (int)(bytes / (ivf_query_bytes(units) + (size_t)warps * (size_t)k * 8));
    assert(n >= 1);
    return n < IVF_SCAN_QUERIES ? n : IVF_SCAN_QUERIES;
}

static int ivf_scan_pass_queries(struct device *dev, int units, int k) {
    return ivf_queries_that_fit((size_t)device_cuda_shared_bytes(dev) - sizeof(ivf_lists_block) - 1024, units, k,
                                IVF_SCAN_WARPS);
}

/* Queries of a block of ivf_scan_many_kernel: with two blocks on a multiprocessor if each still has 8, else with
 * one. */
static int ivf_scan_many_queries(struct device *dev, int units, int k) {
    size_t all = (size_t)device_cuda_shared_bytes(dev), half = all / 2 - sizeof(ivf_many_block) - 1024;
    int n = half / (ivf_query_bytes(units) + (size_t)MANY_WARPS * (size_t)k * 8) >= 8
                ? ivf_queries_that_fit(half, units, k, MANY_WARPS)
                : ivf_queries_that_fit(all - sizeof(ivf_many_block) - 1024, units, k, MANY_WARPS);
    assert(n >= MANY_AT_ONCE);
    return n / MANY_AT_ONCE * MANY_AT_ONCE;
}

static void *ivf_scan_carve(unsigned char **at, size_t bytes) {
    void *piece = *at;
    *at += (bytes + 255) / 256 * 256;
    return piece;
}

struct ivf_scan_inputs {
    rows<const float> queries;
    rows<const __half> centroids, rows;
};
static ivf_scan_inputs ivf_scan_inputs_of(struct mat queries, struct ivf_scan_lists in) {
    return {{(const float *)queries.data, queries.stride},
            {(const __half *)in.centroids.data, in.centroids.stride},
            {(const __half *)in.rows.data, in.rows.stride}};
}

/* As many queries at a time as fit shared memory. */
template <int UNITS> static void ivf_score_centroids(struct device *dev, ivf_scan_task t, ivf_scan_inputs in) {
    int blocks = device_cuda_processors(dev), enough = (int)blocks_for(t.lists, IVF_SCAN_WARPS * IVF_SCAN_GROUP),
        n = t.queries;
    int most = ivf_queries_that_fit((size_t)device_cuda_shared_bytes(dev) - 1024, UNITS, 0, 0);
    for (int first = 0; first < n; first += most) {
        t.queries = n - first < most ? n - first : most;
        size_t shared = (size_t)t.queries * ivf_query_bytes(UNITS);
        (void)cudaFuncSetAttribute(ivf_centroid_scores<UNITS>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   (int)shared);
        launch(dev, "ivf_scan.forward", ivf_centroid_scores<UNITS>, (unsigned)(enough < blocks ? enough : blocks),
               IVF_SCAN_THREADS, shared, t,
               rows<const float>{in.queries.data + first * in.queries.stride, in.queries.stride}, in.centroids);
        t.plan.score += (int64_t)t.queries * t.lists;
    }
}

static void ivf_select(struct device *dev, const ivf_scan_task &t, int each) {
    auto kernel = t.lists <= 4 * SELECT_THREADS    ? ivf_select_kernel<4>
                  : t.lists <= 16 * SELECT_THREADS ? ivf_select_kernel<16>
                  : t.lists <= 32 * SELECT_THREADS ? ivf_select_kernel<32>
                                                 : ivf_select_kernel<0>;
    launch_dependent(dev, "ivf_scan.forward", kernel, (unsigned)t.queries, SELECT_THREADS, 0, t, each);
}

/* The plan of up to IVF_SCAN_QUERIES queries, and `more` bytes of scratch, which are returned. */
template <int UNITS> static void *ivf_plan_few(struct device *dev, ivf_scan_task *t, ivf_scan_inputs in, size_t more) {
    size_t lists = (size_t)t->lists, n = (size_t)t->queries;
    unsigned char *at = (unsigned char *)device_cuda_scratch(dev, 4 * (n * lists + 4 * lists) + 16 * 256 + more);
    t->plan.score = (float *)ivf_scan_carve(&at, n * lists * 4);
    t->plan.mask = (uint32_t *)ivf_scan_carve(&at, lists * 4);
    t->plan.list = (int32_t *)ivf_scan_carve(&at, lists * 4);
    t->plan.who = (uint32_t *)ivf_scan_carve(&at, lists * 4);
    t->plan.piece = (int32_t *)ivf_scan_carve(&at, (lists + 1) * 4);
    t->plan.counts = (int32_t *)ivf_scan_carve(&at, 3 * 4);
    ivf_score_centroids<UNITS>(dev, *t, in);
    ivf_select(dev, *t, IVF_SCAN_GROUP);
    return at;
}

template <int UNITS> static void ivf_scan_pass_few(struct device *dev, ivf_scan_task t, ivf_scan_inputs in) {
    const char *op = "ivf_scan.forward";
    int blocks = device_cuda_processors(dev);
    size_t n = (size_t)t.queries, slots = (size_t)blocks * n * (size_t)t.out.k;
    t.block_score = (float *)ivf_plan_few<UNITS>(dev, &t, in, 2 * slots * 4);
    t.block_id = (int32_t *)(t.block_score + slots);
    size_t shared = n * ivf_query_bytes(UNITS) + (size_t)IVF_SCAN_WARPS * n * (size_t)t.out.k * 8;
    (void)cudaFuncSetAttribute(ivf_scan_lists_kernel<UNITS>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    launch_dependent(dev, op, ivf_scan_lists_kernel<UNITS>, (unsigned)blocks, IVF_SCAN_THREADS, shared, t, in.queries,
                  in.rows);
    launch_dependent(dev, op, ivf_join_lists, (unsigned)n, 32 * JOIN_WARPS, 0, t, blocks);
}

/* One query, more results than a list has, in one pass. */
template <int UNITS> static void ivf_scan_pass_one(struct device *dev, ivf_scan_task t, ivf_scan_inputs in) {
    const char *op = "ivf_scan.forward";
    int blocks = device_cuda_processors(dev), slots = t.out.k + BEST_SPARE;
    uint64_t *keys = (uint64_t *)ivf_plan_few<UNITS>(dev, &t, in, (size_t)blocks * (size_t)slots * sizeof *keys);
    size_t shared = ivf_query_bytes(UNITS) + sizeof(ivf_best_block);
    (void)cudaFuncSetAttribute(ivf_best_kernel<UNITS>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    launch_dependent(dev, op, ivf_best_kernel<UNITS>, (unsigned)blocks, IVF_SCAN_THREADS, shared, t, in.queries,
                     in.rows, keys, slots);
    launch_dependent(dev, op, ivf_best_merge, 1, IVF_BEST_MERGE_THREADS, 0, t, keys, blocks * slots);
}

/* Bytes of scratch for n queries: the part that grows with n, and the fixed part. */
static size_t ivf_scan_many_bytes(size_t lists, size_t pieces, size_t n) {
    return n * (6 * lists + TOPK_LIST_MAX * 8 + 4) + 4 * lists + 8 * pieces + 16 * 256;
}
static size_t ivf_scan_many_pieces(size_t lists, int64_t rows) {
    return (size_t)rows / MANY_ROWS + lists;
}

template <int UNITS>
static void ivf_scan_pass_many(struct device *dev, ivf_scan_task t, ivf_scan_inputs in, int64_t rows_all) {
    const char *op = "ivf_scan.forward";
    size_t lists = (size_t)t.lists, n = (size_t)t.queries, pieces = ivf_scan_many_pieces(lists, rows_all);
    unsigned char *at = (unsigned char *)device_cuda_scratch(dev, ivf_scan_many_bytes(lists, pieces, n));
    ivf_many_lists all;
    t.plan.score = (float *)ivf_scan_carve(&at, n * lists * 4);
    t.plan.mask = (uint32_t *)ivf_scan_carve(&at, lists * 4);
    t.plan.visitor = (uint16_t *)ivf_scan_carve(&at, n * lists * 2);
    t.plan.list = (int32_t *)ivf_scan_carve(&at, pieces * 4);
    t.plan.piece = (int32_t *)ivf_scan_carve(&at, pieces * 4);
    t.plan.counts = (int32_t *)ivf_scan_carve(&at, 3 * 4);
    all.score = (float *)ivf_scan_carve(&at, n * TOPK_LIST_MAX * 4);
    all.id = (int32_t *)ivf_scan_carve(&at, n * TOPK_LIST_MAX * 4);
    all.lock = (int32_t *)ivf_scan_carve(&at, n * 4);
    launch(dev, op, ivf_many_clear, (unsigned)blocks_for((int64_t)n * TOPK_LIST_MAX, MANY_THREADS), MANY_THREADS, 0,
           all, (int)n * TOPK_LIST_MAX);
    ivf_score_centroids<UNITS>(dev, t, in);
    ivf_select(dev, t, MANY_ROWS);
    int most = ivf_scan_many_queries(dev, UNITS, t.out.k);
    size_t shared = (size_t)most * (ivf_query_bytes(UNITS) + (size_t)MANY_WARPS * (size_t)t.out.k * 8);
    (void)cudaFuncSetAttribute(ivf_scan_many_kernel<UNITS>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    launch(dev, op, ivf_scan_many_kernel<UNITS>, (unsigned)(2 * device_cuda_processors(dev)), MANY_THREADS, shared, t,
           all, in.queries, in.rows, most);
    launch(dev, op, ivf_many_out, (unsigned)blocks_for((int64_t)n * t.out.k, MANY_THREADS), MANY_THREADS, 0, t, all);
}

template <int UNITS>
static void ivf_scan_passes(struct device *dev, ivf_scan_task t, struct mat queries, struct ivf_scan_lists in,
                            int64_t many) {
    if (t.out.k > TOPK_LIST_MAX) {
        t.queries = 1;
        ivf_scan_pass_one<UNITS>(dev, t, ivf_scan_inputs_of(queries, in));
        return;
    }
    int64_t most = queries.rows > IVF_SCAN_QUERIES ? many : ivf_scan_pass_queries(dev, UNITS, t.out.k);
    for (int64_t q = 0; q < queries.rows; q += most) {
        t.first_query = q;
        t.queries = (int)(queries.rows - q < most ? queries.rows - q : most);
        ivf_scan_inputs from = ivf_scan_inputs_of(mat_rows(queries, q, t.queries), in);
        if (queries.rows > IVF_SCAN_QUERIES) ivf_scan_pass_many<UNITS>(dev, t, from, in.rows.rows);
        else ivf_scan_pass_few<UNITS>(dev, t, from);
    }
}

static void ivf_scan_forward(struct device *dev, int64_t *index, float *score, struct mat queries,
                             struct ivf_scan_lists in, const int64_t (*hole)[2], int nprobe, int k) {
    int64_t lists = in.centroids.rows, d = queries.cols, many = MANY_QUERIES;
    assert(k >= 1 && nprobe >= 1 && lists >= 1 && lists <= IVF_SCAN_LISTS_MAX && d <= IVF_SCAN_WIDTH_MAX);
    assert(queries.type == DTYPE_F32 && in.centroids.type == DTYPE_F16 && in.rows.type == DTYPE_F16);
    assert(d == in.centroids.cols && d == in.rows.cols && vectors_fit(in.centroids) && vectors_fit(in.rows));
    assert(in.rows.rows <= 1 << 30);
    while (ivf_scan_many_bytes((size_t)lists, ivf_scan_many_pieces((size_t)lists, in.rows.rows), (size_t)many) >
           device_cuda_scratch_bytes(dev))
        many /= 2;
    int units = (int)blocks_for(d, 256);
    auto pass = units == 1   ? ivf_scan_passes<1>
                : units == 2 ? ivf_scan_passes<2>
                : units == 3 ? ivf_scan_passes<3>
                : units == 4 ? ivf_scan_passes<4>
                             : ivf_scan_passes<8>;
    ivf_scan_task t = {};
    t.begin = in.begin, t.id = in.id, t.hole = hole;
    t.lists = (int)lists, t.d = (int)d, t.nprobe = (int)(nprobe < lists ? nprobe : lists),
    t.scale = 1.0f / sqrtf((float)d);
    int most = queries.rows == 1 && k <= BEST_K_MAX ? k : TOPK_LIST_MAX; /* results of a round */
    for (int first = 0; first < k; first += most) {
        t.out = {index, score, k, first, k - first < most ? k - first : most};
        pass(dev, t, queries, in, many);
    }
}

extern "C" const struct ivf_scan_ops ivf_scan_cuda = {.forward = ivf_scan_forward};
