/* embed_cpu.c -- rows of the embedding table (a task is a range of rows), and the sum of their gradients (a range of
 * columns). Bound by memory. */
#include "kernels/pointwise/embed.h"
#include "kernels/pointwise/simd_internal.h"
#include <assert.h>
#include <string.h>

struct embed_task {
    struct mat x, table;
    const int32_t *ids;
    int32_t pad_id;
};

static void embed_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct embed_task *t = context;
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        int32_t id = t->ids[row] < 0 ? t->pad_id : t->ids[row];
        assert(id >= 0 && id < t->table.rows);
        memcpy(mat_row(t->x, row), mat_row(t->table, id), (size_t)t->x.cols * sizeof(float));
    }
}

static void embed_forward(struct device *dev, struct mat x, struct mat table, const int32_t *ids, int32_t pad_id) {
    assert(x.cols == table.cols && x.cols > 0);
    struct embed_task t = {x, table, ids, pad_id};
    threads_for(dev->threads, x.rows, 1 + 16384 / x.cols, embed_rows, &t);
}

/* A task has a range of columns and adds all rows in order: no two threads write the same numbers of the table, and the
 * sum of an id's rows has one order for any number of threads. */
enum { COLUMNS = 4 * LANES };

static void embed_backward_columns(void *context, int64_t begin, int64_t end, int worker) {
    const struct embed_task *t = context;
    (void)worker;
    int64_t last = end * COLUMNS < t->x.cols ? end * COLUMNS : t->x.cols;
    for (int64_t row = 0; row < t->x.rows; row++) {
        int32_t id = t->ids[row];
        if (id < 0 || id == t->pad_id) continue;
        assert(id < t->table.rows);
        const float *dx = mat_row(t->x, row);
        float *to = mat_row(t->table, id);
        int64_t i = begin * COLUMNS;
        for (; i + LANES <= last; i += LANES)
            v_store(to + i, v_load(to + i) + v_load(dx + i));
        for (; i < last; i++)
            to[i] += dx[i];
    }
}

static void embed_backward(struct device *dev, struct mat dtable, struct mat dx, const int32_t *ids, int32_t pad_id) {
    assert(dx.cols == dtable.cols && dx.cols > 0);
    struct embed_task t = {dx, dtable, ids, pad_id};
    threads_for(dev->threads, (dx.cols + COLUMNS - 1) / COLUMNS, 1, embed_backward_columns, &t);
}

const struct embed_ops embed_cpu = {.forward = embed_forward, .backward = embed_backward};
