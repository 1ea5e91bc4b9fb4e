/* ivf_scan_cpu.c -- a query is a task: scores of the centroids, the lists to visit by a heap, their rows one by one. */
#include "kernels/device/device_internal.h"
#include "kernels/pointwise/simd_internal.h"
#include "kernels/search/ivf_scan.h"
#include "kernels/search/topk_list_internal.h"
#include <assert.h>
#include <math.h>

struct task {
    struct device *dev;
    struct topk_list out;
    struct mat queries;
    struct ivf_scan_lists lists;
    const int64_t (*hole)[2];
    int nprobe, k;
    float scale;
};

struct visit {
    float score;
    int32_t list;
};

/* Whether a is to be visited rather than b. */
static bool rather(struct visit a, struct visit b) {
    return a.score > b.score || (a.score == b.score && a.list < b.list);
}

/* A heap whose first is the one to be dropped next. */
static void sink(struct visit *heap, int n, int at) {
    for (int child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && rather(heap[child], heap[child + 1])) child++;
        if (!rather(heap[at], heap[child])) return;
        struct visit moved = heap[at];
        heap[at] = heap[child];
        heap[child] = moved;
        at = child;
    }
}

static int choose_lists(const struct task *t, struct visit *heap, const float *query) {
    int used = 0;
    for (int32_t l = 0; l < t->lists.centroids.rows; l++) {
        if (t->lists.begin[l] == t->lists.begin[l + 1]) continue;
        struct visit v = {v_dot(query, mat_row(t->lists.centroids, l), t->queries.cols), l};
        if (used < t->nprobe) {
            heap[used++] = v;
            for (int i = used / 2 - 1; i >= 0 && used == t->nprobe; i--)
                sink(heap, used, i);
        } else if (rather(v, heap[0])) {
            heap[0] = v;
            sink(heap, used, 0);
        }
    }
    return used;
}

static void search(const struct task *t, int64_t q, int worker) {
    struct visit *heap = device_scratch(t->dev, worker);
    const float *query = mat_row(t->queries, q);
    struct topk_list best = list_at(t->out, q * t->k);
    list_clear(best, t->k);
    int visits = choose_lists(t, heap, query);
    for (int v = 0; v < visits; v++)
        for (int64_t row = t->lists.begin[heap[v].list]; row < t->lists.begin[heap[v].list + 1]; row++) {
            int64_t id = t->lists.id[row];
            if (t->hole && id >= t->hole[q][0] && id < t->hole[q][1]) continue;
            list_offer(best, t->k, v_dot(query, mat_row(t->lists.rows, row), t->queries.cols) * t->scale, id);
        }
}

static void body(void *context, int64_t begin, int64_t end, int worker) {
    for (int64_t q = begin; q < end; q++)
        search(context, q, worker);
}

static void forward(struct device *dev, int64_t *index, float *score, struct mat queries, struct ivf_scan_lists lists,
                    const int64_t (*hole)[2], int nprobe, int k) {
    assert(k >= 1 && nprobe >= 1 && lists.centroids.rows >= 1 && lists.centroids.rows <= IVF_SCAN_LISTS_MAX);
    assert(queries.cols == lists.centroids.cols && queries.cols == lists.rows.cols);
    static_assert(IVF_SCAN_LISTS_MAX * sizeof(struct visit) <= DEVICE_SCRATCH_BYTES);
    if (nprobe > lists.centroids.rows) nprobe = (int)lists.centroids.rows;
    struct task t = {dev, {index, score}, queries, lists, hole, nprobe, k, 1.0f / sqrtf((float)queries.cols)};
    threads_for(dev->threads, queries.rows, 1, body, &t);
}

const struct ivf_scan_ops ivf_scan_cpu = {.forward = forward};
