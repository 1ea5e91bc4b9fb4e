/* adamw_cpu.c -- the AdamW update, and the sum of squares that clips the gradient. A task is a range of parameters.
 * Both are bound by memory: 28 bytes a parameter and its copy, and 4. */
#include "base/half.h"
#include "kernels/device/device_internal.h"
#include "kernels/pointwise/adamw.h"
#include "kernels/pointwise/simd_internal.h"
#include <assert.h>
#include <math.h>

enum { PART = 1 << 16, PARTS_MAX = DEVICE_SCRATCH_BYTES / sizeof(double) };

/* Divided into parts whose length depends on n alone. One task sums each part in double; the parts are added in
 * order. */
struct adamw_norm_task {
    const float *gradient;
    int64_t n, part;
    double *sum; /* [parts] */
};

static double adamw_squares(const float *g, int64_t n) {
    enum { DOUBLES = LANES / 2 };
    typedef double vd __attribute__((vector_size(LANES * 4)));
    typedef float half __attribute__((vector_size(LANES * 2), aligned(4), may_alias));
    vd sum = {0};
    double all = 0.0;
    int64_t i = 0;
    for (; i + DOUBLES <= n; i += DOUBLES) {
        vd x = __builtin_convertvector(*(const half *)(g + i), vd);
        sum += x * x;
    }
    for (; i < n; i++)
        all += (double)g[i] * (double)g[i];
    for (int lane = 0; lane < DOUBLES; lane++)
        all += sum[lane];
    return all;
}

static void adamw_norm_parts(void *context, int64_t begin, int64_t end, int worker) {
    const struct adamw_norm_task *t = context;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i * t->part;
        t->sum[i] = adamw_squares(t->gradient + first, t->n - first < t->part ? t->n - first : t->part);
    }
}

static void adamw_norm(struct device *dev, float *sum_of_squares, const float *gradient, int64_t n) {
    int64_t part = n / PARTS_MAX < PART ? PART : n / PARTS_MAX + 1, parts = (n + part - 1) / part;
    struct adamw_norm_task t = {gradient, n, part, device_scratch(dev, 0)};
    threads_for(dev->threads, parts, 1, adamw_norm_parts, &t);
    double sum = 0.0;
    for (int64_t i = 0; i < parts; i++)
        sum += t.sum[i];
    *sum_of_squares = (float)sum;
}

struct adamw_update_task {
    float *p, *m, *v;
    const float *gradient;
    int64_t n;
    struct mat copy;
    float scale, correction1, correction2; /* corrections: 1 / (1 - beta^step) */
    struct adamw_step how;
};

static void adamw_store_copy(const struct adamw_update_task *t, int64_t i) {
    int64_t at = i / t->copy.cols * t->copy.stride + i % t->copy.cols;
    if (t->copy.type == DTYPE_F32)
        ((float *)t->copy.data)[at] = t->p[i];
    else
        ((uint16_t *)t->copy.data)[at] = half_to_bf16(t->p[i]);
}

static void adamw_update_range(void *context, int64_t begin, int64_t end, int worker) {
    const struct adamw_update_task *t = context;
    const struct adamw_step *how = &t->how;
    (void)worker;
    begin *= PART;
    end = end * PART < t->n ? end * PART : t->n;
    for (int64_t i = begin; i < end; i++) {
        float g = t->gradient[i] * t->scale;
        float m = how->beta1 * t->m[i] + (1.0f - how->beta1) * g;
        float v = how->beta2 * t->v[i] + (1.0f - how->beta2) * g * g;
        float step = m * t->correction1 / (sqrtf(v * t->correction2) + how->eps) + how->decay * t->p[i];
        t->m[i] = m;
        t->v[i] = v;
        t->p[i] -= how->lr * step;
    }
    for (int64_t i = begin; i < end && t->copy.data; i++)
        adamw_store_copy(t, i);
}

static void adamw_update(struct device *dev, struct adamw_state state, const float *gradient, int64_t n,
                         const float *sum_of_squares, float clip, struct adamw_step how) {
    assert(how.step >= 1 && clip >= 0.0f && (clip == 0.0f || sum_of_squares));
    assert(!state.copy.data || (state.copy.rows * state.copy.cols == n && state.copy.type != DTYPE_F16));
    if (sum_of_squares && !isfinite(*sum_of_squares)) return;
    float length = clip > 0.0f ? sqrtf(*sum_of_squares) : 0.0f;
    struct adamw_update_task t = {.p = state.p,
                                  .m = state.m,
                                  .v = state.v,
                                  .gradient = gradient,
                                  .n = n,
                                  .copy = state.copy,
                                  .scale = clip > 0.0f && length > clip ? clip / length : 1.0f,
                                  .correction1 = (float)(1.0 / (1.0 - pow((double)how.beta1, (double)how.step))),
                                  .correction2 = (float)(1.0 / (1.0 - pow((double)how.beta2, (double)how.step))),
                                  .how = how};
    threads_for(dev->threads, (n + PART - 1) / PART, 1, adamw_update_range, &t);
}

const struct adamw_ops adamw_cpu = {.norm = adamw_norm, .update = adamw_update};
