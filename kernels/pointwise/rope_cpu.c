/* rope_cpu.c -- rotary positions from a table of cosines and sines, computed in double and kept by the device:
 * computing it costs as much as rotating a hundred chunks. A shape too large for the table computes each row's angles
 * in each call. A task is a range of rows. Bound by memory. */
#include "kernels/device/device_internal.h"
#include "kernels/pointwise/rope.h"
#include "kernels/pointwise/simd_internal.h"
#include <assert.h>
#include <math.h>
#include <stdbool.h>

struct rope_task {
    struct device *dev;
    struct mat x;
    int half, period;
    float theta;
    bool table;
    float direction; /* 1, or -1: the inverse */
};

static void rope_angles(float *cosine, float *sine, int half, int64_t position, float theta) {
    for (int t = 0; t < half; t++) {
        double angle = (double)position * pow((double)theta, -(double)t / half);
        cosine[t] = (float)cos(angle);
        sine[t] = (float)sin(angle);
    }
}

static bool rope_fill_table(struct device_rope *rope, int half, int period, float theta) {
    if ((int64_t)half * period > DEVICE_ROPE_MAX) return false;
    if (rope->half == half && rope->theta == theta && rope->period == period) return true;
    for (int p = 0; p < period; p++)
        rope_angles(rope->cosine + p * half, rope->sine + p * half, half, p, theta);
    rope->half = half;
    rope->period = period;
    rope->theta = theta;
    return true;
}

static void rope_rotate(float *x, const float *cosine, const float *sine, int half, float direction) {
    int t = 0;
    for (; t + LANES <= half; t += LANES) {
        vf a = v_load(x + t), b = v_load(x + half + t), c = v_load(cosine + t), s = direction * v_load(sine + t);
        v_store(x + t, a * c - b * s);
        v_store(x + half + t, b * c + a * s);
    }
    for (; t < half; t++) {
        float a = x[t], b = x[half + t], s = direction * sine[t];
        x[t] = a * cosine[t] - b * s;
        x[half + t] = b * cosine[t] + a * s;
    }
}

static void rope_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct rope_task *t = context;
    const struct device_rope *rope = &device_cpu(t->dev)->rope;
    float *own = device_scratch(t->dev, worker);
    for (int64_t row = begin; row < end; row++) {
        int64_t position = row % t->period;
        const float *cosine = rope->cosine + position * t->half, *sine = rope->sine + position * t->half;
        if (!t->table) {
            rope_angles(own, own + t->half, t->half, position, t->theta);
            cosine = own;
            sine = own + t->half;
        }
        float *x = mat_row(t->x, row);
        for (int64_t head = 0; head < t->x.cols; head += 2 * t->half)
            rope_rotate(x + head, cosine, sine, t->half, t->direction);
    }
}

static void rope_apply(struct device *dev, struct mat x, int heads, int period, float theta, float direction) {
    assert(heads > 0 && period > 0 && x.cols % heads == 0 && x.cols / heads % 2 == 0);
    struct rope_task t = {.dev = dev,
                          .x = x,
                          .half = (int)(x.cols / heads / 2),
                          .period = period,
                          .theta = theta,
                          .direction = direction};
    assert((size_t)t.half * 2 * sizeof(float) <= DEVICE_SCRATCH_BYTES);
    t.table = rope_fill_table(&device_cpu(dev)->rope, t.half, period, theta);
    threads_for(dev->threads, x.rows, 1 + 16384 / x.cols, rope_rows, &t);
}

static void rope_forward(struct device *dev, struct mat x, int heads, int period, float theta) {
    rope_apply(dev, x, heads, period, theta, 1.0f);
}

static void rope_backward(struct device *dev, struct mat dx, int heads, int period, float theta) {
    rope_apply(dev, dx, heads, period, theta, -1.0f);
}

const struct rope_ops rope_cpu = {.forward = rope_forward, .backward = rope_backward};
