/* state_gate_cpu.c -- a task is a range of columns, so that one task sums db over all rows. */
#include "kernels/pointwise/state_gate.h"
#include <assert.h>
#include <math.h>

enum { COLUMNS = 64 };

struct state_gate_task {
    struct mat y, c, z, b;
    struct state_gate_gradients to; /* backward: y is dy */
};

static float state_gate_value(struct mat b, int64_t column) {
    return 1.0f / (1.0f + expf(-mat_row(b, 0)[column]));
}

static void state_gate_forward_columns(void *context, int64_t begin, int64_t end, int worker) {
    const struct state_gate_task *t = context;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        float g = state_gate_value(t->b, i);
        for (int64_t row = 0; row < t->y.rows; row++)
            mat_row(t->y, row)[i] = g * mat_row(t->c, row)[i] + (1.0f - g) * mat_row(t->z, row)[i];
    }
}

static void state_gate_forward(struct device *dev, struct mat y, struct mat c, struct mat z, struct mat b) {
    assert(y.rows == c.rows && y.rows == z.rows && y.cols == c.cols && y.cols == z.cols && b.cols == y.cols);
    struct state_gate_task t = {.y = y, .c = c, .z = z, .b = b};
    threads_for(dev->threads, y.cols, COLUMNS, state_gate_forward_columns, &t);
}

static void state_gate_backward_columns(void *context, int64_t begin, int64_t end, int worker) {
    const struct state_gate_task *t = context;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        float g = state_gate_value(t->b, i);
        double sum = 0.0;
        for (int64_t row = 0; row < t->y.rows; row++) {
            float dy = mat_row(t->y, row)[i];
            sum += (double)dy * ((double)mat_row(t->c, row)[i] - (double)mat_row(t->z, row)[i]);
            mat_row(t->to.dc, row)[i] = g * dy;
            mat_row(t->to.dz, row)[i] = (1.0f - g) * dy;
        }
        mat_row(t->to.db, 0)[i] += (float)(sum * (double)g * (1.0 - (double)g));
    }
}

static void state_gate_backward(struct device *dev, const struct state_gate_gradients *to, struct mat dy, struct mat c,
                                struct mat z, struct mat b) {
    assert(to->dc.rows == dy.rows && to->dz.rows == dy.rows && c.rows == dy.rows && z.rows == dy.rows);
    assert(to->dc.cols == dy.cols && to->dz.cols == dy.cols && to->db.cols == dy.cols && b.cols == dy.cols);
    struct state_gate_task t = {.y = dy, .c = c, .z = z, .b = b, .to = *to};
    threads_for(dev->threads, dy.cols, COLUMNS, state_gate_backward_columns, &t);
}

const struct state_gate_ops state_gate_cpu = {
    .forward = state_gate_forward,
    .backward = state_gate_backward,
};
