/* ivf_scan_cpu.c -- the best rows of an inverted file: a query is a task. Its products with all centroids select the
 * lists (a heap of the best nprobe), then every row of these lists is scored.
 *
 * Bound by memory: 4 d bytes a centroid and 4 d bytes a row that is scored. */
#include "base/top_list.h"
#include "kernels/device/device_internal.h"
#include "kernels/pointwise/simd_internal.h"
#include "kernels/search/ivf_scan.h"
#include <assert.h>
#include <math.h>

struct ivf_scan_task {
    struct device *dev;
    int64_t *index;
    float *score;
    struct mat queries;
    struct ivf_scan_lists lists;
    const int64_t (*hole)[2];
    int nprobe, k;
    float scale;
};

enum { SELECT_MAX = 1 << 17 }; /* lists of one round: as many as fit a worker's scratch */

/* Finds the best lists that are worse than the last of the round before (first: of all), into `selected`. Empty lists
 * are ignored. */
static void ivf_select_lists(struct top_list selected, const struct ivf_scan_task *t, const float *query, bool first) {
    float last_score = selected.score[0];
    int64_t last = selected.id[0];
    top_list_clear(selected);
    for (int64_t l = 0; l < t->lists.centroids.rows; l++) {
        if (t->lists.begin[l] == t->lists.begin[l + 1]) continue;
        float score = v_dot(query, mat_row(t->lists.centroids, l), t->queries.cols);
        if (first || top_list_better(last_score, last, score, l)) top_list_offer(selected, score, l);
    }
}

static void ivf_scan_list(struct top_list best, const struct ivf_scan_task *t, int64_t q, int64_t list) {
    const float *query = mat_row(t->queries, q);
    for (int64_t row = t->lists.begin[list]; row < t->lists.begin[list + 1]; row++) {
        int64_t id = t->lists.id[row];
        if (t->hole && id >= t->hole[q][0] && id < t->hole[q][1]) continue;
        top_list_offer(best, v_dot(query, mat_row(t->lists.rows, row), t->queries.cols) * t->scale, id);
    }
}

static void ivf_scan_query(const struct ivf_scan_task *t, int64_t q, int worker) {
    struct top_list best = {t->index + q * t->k, t->score + q * t->k, t->k};
    int64_t *id = device_scratch(t->dev, worker);
    struct top_list selected = {id, (float *)(void *)(id + SELECT_MAX), 0};
    top_list_clear(best);
    for (int done = 0; done < t->nprobe; done += selected.k) {
        selected.k = t->nprobe - done < SELECT_MAX ? t->nprobe - done : SELECT_MAX;
        ivf_select_lists(selected, t, mat_row(t->queries, q), done == 0);
        for (int i = 0; i < selected.k; i++)
            if (selected.id[i] >= 0) ivf_scan_list(best, t, q, selected.id[i]);
        if (selected.id[0] < 0) break; /* no list is left */
    }
    top_list_sort(best);
}

static void ivf_scan_queries(void *context, int64_t begin, int64_t end, int worker) {
    for (int64_t q = begin; q < end; q++)
        ivf_scan_query(context, q, worker);
}

static void ivf_scan_forward(struct device *dev, int64_t *index, float *score, struct mat queries,
                             struct ivf_scan_lists lists, const int64_t (*hole)[2], int nprobe, int k) {
    assert(k >= 1 && nprobe >= 1 && lists.centroids.rows >= 1 && lists.centroids.rows <= IVF_SCAN_LISTS_MAX);
    assert(queries.cols == lists.centroids.cols && queries.cols == lists.rows.cols);
    static_assert(SELECT_MAX * (sizeof(int64_t) + sizeof(float)) <= DEVICE_SCRATCH_BYTES);
    if (nprobe > lists.centroids.rows) nprobe = (int)lists.centroids.rows;
    struct ivf_scan_task t = {dev, index, score, queries, lists, hole, nprobe, k, 1.0f / sqrtf((float)queries.cols)};
    threads_for(dev->threads, queries.rows, 1, ivf_scan_queries, &t);
}

const struct ivf_scan_ops ivf_scan_cpu = {.forward = ivf_scan_forward};
