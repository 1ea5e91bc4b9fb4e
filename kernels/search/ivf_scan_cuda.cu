/* ivf_scan_cuda.cu -- the best rows of the lists that a query visits: scores of centroids and which lists are visited
 * (ivf_select_lists_cuda.cuh), then their rows. Up to 32 queries, whose rows are dealt to all warps alike, and joining what blocks
 * find: ivf_scan_lists_cuda.cuh; each kernel but the first is launched early, and waits inside for the one before. More queries, to
 * MANY_QUERIES a pass: ivf_scan_many_cuda.cuh.
 *
 * Bound by memory: 2 d bytes a centroid, 2 d bytes a row that anyone visits.
 *
 * Measured (H200, 2026-11-22, 20M x 768, 16,384 lists, best 8, hits in host memory): one query 56, 100, 156, 262 us with 32, 128,
 * 256, 512 lists; 4, 16, 64, 256, 1024 queries with 256: 0.54, 1.77, 5.7, 10.4, 24.7 ms.
 *
 * The order (score, then smaller id) is total, and masks and lists are sets: the same bits however blocks are timed. */
#include "kernels/search/ivf_scan_many_cuda.cuh"
#include "kernels/search/ivf_select_lists_cuda.cuh"
#include "kernels/search/ivf_scan_lists_cuda.cuh"

static_assert((int)IVF_SCAN_ONCE == (int)LIST_MAX);

static size_t query_bytes(int units) {
    return (size_t)units * 256 * sizeof(float);
}

/* How many queries, with a list for each warp, so much shared memory holds. */
static int queries_in_room(size_t room, int units, int k, int warps) {
    int n = (int)(room / (query_bytes(units) + (size_t)warps * (size_t)k * 8));
    assert(n >= 1);
    return n < IVF_SCAN_QUERIES ? n : IVF_SCAN_QUERIES;
}

static int pass_queries(struct device *dev, int units, int k) {
    return queries_in_room((size_t)device_cuda_shared_bytes(dev) - sizeof(scan_block) - 1024, units, k, IVF_SCAN_WARPS);
}

/* Two blocks of scan_many a processor where each then takes some queries at a time, else one. */
static int many_at_a_time(struct device *dev, int units, int k) {
    size_t all = (size_t)device_cuda_shared_bytes(dev), half = all / 2 - sizeof(many_block) - 1024;
    int n = half / (query_bytes(units) + (size_t)MANY_WARPS * (size_t)k * 8) >= 8
                ? queries_in_room(half, units, k, MANY_WARPS)
                : queries_in_room(all - sizeof(many_block) - 1024, units, k, MANY_WARPS);
    assert(n >= MANY_AT_ONCE);
    return n / MANY_AT_ONCE * MANY_AT_ONCE;
}

static void *piece_of(unsigned char **at, size_t bytes) {
    void *piece = *at;
    *at += (bytes + 255) / 256 * 256;
    return piece;
}

struct inputs {
    rows<const float> queries;
    rows<const __half> centroids, rows;
};
static inputs inputs_of(struct mat queries, struct ivf_scan_lists in) {
    return {{(const float *)queries.data, queries.stride},
            {(const __half *)in.centroids.data, in.centroids.stride},
            {(const __half *)in.rows.data, in.rows.stride}};
}

/* As many queries at a time as shared memory holds. */
template <int UNITS> static void score_centroids(struct device *dev, ivf_scan_task t, inputs in) {
    int blocks = device_cuda_processors(dev), enough = (int)blocks_for(t.lists, IVF_SCAN_WARPS * IVF_SCAN_GROUP), n = t.queries;
    int most = queries_in_room((size_t)device_cuda_shared_bytes(dev) - 1024, UNITS, 0, 0);
    for (int first = 0; first < n; first += most) {
        t.queries = n - first < most ? n - first : most;
        size_t shared = (size_t)t.queries * query_bytes(UNITS);
        (void)cudaFuncSetAttribute(centroid_scores<UNITS>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
        launch(dev, "probe.forward", centroid_scores<UNITS>, (unsigned)(enough < blocks ? enough : blocks), IVF_SCAN_THREADS, shared,
               t, rows<const float>{in.queries.data + first * in.queries.stride, in.queries.stride}, in.centroids);
        t.plan.score += (int64_t)t.queries * t.lists;
    }
}

static void pick(struct device *dev, const ivf_scan_task &t, int each) {
    auto kernel = t.lists <= 4 * PICK_THREADS    ? pick_lists<4>
                  : t.lists <= 16 * PICK_THREADS ? pick_lists<16>
                  : t.lists <= 32 * PICK_THREADS ? pick_lists<32>
                                                 : pick_lists<0>;
    launch_dependent(dev, "probe.forward", kernel, (unsigned)t.queries, PICK_THREADS, 0, t, each);
}

template <int UNITS> static void pass_few(struct device *dev, ivf_scan_task t, inputs in) {
    const char *op = "probe.forward";
    int blocks = device_cuda_processors(dev);
    size_t lists = (size_t)t.lists, n = (size_t)t.queries, places = (size_t)blocks * n * (size_t)t.out.k;
    unsigned char *at = (unsigned char *)device_cuda_scratch(dev, 4 * (n * lists + 4 * lists + 2 * places) + 16 * 256);
    t.plan.score = (float *)piece_of(&at, n * lists * 4);
    t.plan.mask = (uint32_t *)piece_of(&at, lists * 4);
    t.plan.list = (int32_t *)piece_of(&at, lists * 4);
    t.plan.who = (uint32_t *)piece_of(&at, lists * 4);
    t.plan.piece = (int32_t *)piece_of(&at, (lists + 1) * 4);
    t.plan.counts = (int32_t *)piece_of(&at, 3 * 4);
    t.block_score = (float *)piece_of(&at, places * 4);
    t.block_id = (int32_t *)piece_of(&at, places * 4);
    score_centroids<UNITS>(dev, t, in);
    pick(dev, t, IVF_SCAN_GROUP);
    size_t shared = n * query_bytes(UNITS) + (size_t)IVF_SCAN_WARPS * n * (size_t)t.out.k * 8;
    (void)cudaFuncSetAttribute(scan_lists<UNITS>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    launch_dependent(dev, op, scan_lists<UNITS>, (unsigned)blocks, IVF_SCAN_THREADS, shared, t, in.queries, in.rows);
    launch_dependent(dev, op, join_lists, (unsigned)n, 32 * JOIN_WARPS, 0, t, blocks);
}

/* Bytes of scratch for n queries: what grows with them, and what does not. */
static size_t many_bytes(size_t lists, size_t pieces, size_t n) {
    return n * (6 * lists + LIST_MAX * 8 + 4) + 4 * lists + 8 * pieces + 16 * 256;
}
static size_t many_pieces(size_t lists, int64_t rows) {
    return (size_t)rows / MANY_ROWS + lists;
}

template <int UNITS> static void pass_many(struct device *dev, ivf_scan_task t, inputs in, int64_t rows_all) {
    const char *op = "probe.forward";
    size_t lists = (size_t)t.lists, n = (size_t)t.queries, pieces = many_pieces(lists, rows_all);
    unsigned char *at = (unsigned char *)device_cuda_scratch(dev, many_bytes(lists, pieces, n));
    many_lists all;
    t.plan.score = (float *)piece_of(&at, n * lists * 4);
    t.plan.mask = (uint32_t *)piece_of(&at, lists * 4);
    t.plan.visitor = (uint16_t *)piece_of(&at, n * lists * 2);
    t.plan.list = (int32_t *)piece_of(&at, pieces * 4);
    t.plan.piece = (int32_t *)piece_of(&at, pieces * 4);
    t.plan.counts = (int32_t *)piece_of(&at, 3 * 4);
    all.score = (float *)piece_of(&at, n * LIST_MAX * 4);
    all.id = (int32_t *)piece_of(&at, n * LIST_MAX * 4);
    all.lock = (int32_t *)piece_of(&at, n * 4);
    launch(dev, op, many_clear, (unsigned)blocks_for((int64_t)n * LIST_MAX, MANY_THREADS), MANY_THREADS, 0, all,
           (int)n * LIST_MAX);
    score_centroids<UNITS>(dev, t, in);
    pick(dev, t, MANY_ROWS);
    int most = many_at_a_time(dev, UNITS, t.out.k);
    size_t shared = (size_t)most * (query_bytes(UNITS) + (size_t)MANY_WARPS * (size_t)t.out.k * 8);
    (void)cudaFuncSetAttribute(scan_many<UNITS>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    launch(dev, op, scan_many<UNITS>, (unsigned)(2 * device_cuda_processors(dev)), MANY_THREADS, shared, t, all, in.queries,
           in.rows, most);
    launch(dev, op, many_out, (unsigned)blocks_for((int64_t)n * t.out.k, MANY_THREADS), MANY_THREADS, 0, t, all);
}

template <int UNITS>
static void run(struct device *dev, ivf_scan_task t, struct mat queries, struct ivf_scan_lists in, int64_t many) {
    int64_t most = queries.rows > IVF_SCAN_QUERIES ? many : pass_queries(dev, UNITS, t.out.k);
    for (int64_t q = 0; q < queries.rows; q += most) {
        t.first_query = q;
        t.queries = (int)(queries.rows - q < most ? queries.rows - q : most);
        inputs from = inputs_of(mat_rows(queries, q, t.queries), in);
        if (queries.rows > IVF_SCAN_QUERIES) pass_many<UNITS>(dev, t, from, in.rows.rows);
        else pass_few<UNITS>(dev, t, from);
    }
}

static void forward(struct device *dev, int64_t *index, float *score, struct mat queries, struct ivf_scan_lists in,
                    const int64_t (*hole)[2], int nprobe, int k) {
    int64_t lists = in.centroids.rows, d = queries.cols, many = MANY_QUERIES;
    assert(k >= 1 && nprobe >= 1 && lists >= 1 && lists <= IVF_SCAN_LISTS_MAX && d <= IVF_SCAN_WIDTH_MAX);
    assert(queries.type == DTYPE_F32 && in.centroids.type == DTYPE_F16 && in.rows.type == DTYPE_F16);
    assert(d == in.centroids.cols && d == in.rows.cols && vectors_fit(in.centroids) && vectors_fit(in.rows));
    assert(in.rows.rows <= 1 << 30);
    while (many_bytes((size_t)lists, many_pieces((size_t)lists, in.rows.rows), (size_t)many) > device_cuda_scratch_bytes(dev))
        many /= 2;
    int units = (int)blocks_for(d, 256);
    auto pass = units == 1 ? run<1> : units == 2 ? run<2> : units == 3 ? run<3> : units == 4 ? run<4> : run<8>;
    ivf_scan_task t = {};
    t.begin = in.begin, t.id = in.id, t.hole = hole;
    t.lists = (int)lists, t.d = (int)d, t.nprobe = (int)(nprobe < lists ? nprobe : lists), t.scale = 1.0f / sqrtf((float)d);
    for (int first = 0; first < k; first += LIST_MAX) {
        t.out = {index, score, k, first, k - first < LIST_MAX ? k - first : LIST_MAX};
        pass(dev, t, queries, in, many);
    }
}

extern "C" const struct ivf_scan_ops ivf_scan_cuda = {.forward = forward};
