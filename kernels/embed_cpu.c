/* embed_cpu.c -- rows of the embedding table. */
#include "kernels/embed.h"
#include <assert.h>
#include <string.h>

struct task {
    struct mat x, table;
    const int32_t *ids;
    int32_t pad_id;
};

static void body(void *context, int64_t begin, int64_t end, int worker) {
    const struct task *t = context;
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        int32_t id = t->ids[row] < 0 ? t->pad_id : t->ids[row];
        assert(id >= 0 && id < t->table.rows);
        memcpy(mat_row(t->x, row), mat_row(t->table, id), (size_t)t->x.cols * sizeof(float));
    }
}

static void forward(struct device *dev, struct mat x, struct mat table, const int32_t *ids, int32_t pad_id) {
    assert(x.cols == table.cols && x.cols > 0);
    struct task t = {x, table, ids, pad_id};
    threads_for(dev->threads, x.rows, 1 + 16384 / x.cols, body, &t);
}

const struct embed_ops embed_cpu = {.forward = forward};
