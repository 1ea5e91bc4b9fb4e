/* test_adamw.c -- the sum of squares and the update: lengths around a part, first and late steps, clipping above and
 * below the norm and off, and the copy in both types. */
#include "base/half.h"
#include "tests/ref/ref_backward.h"
#include "tests/twins/twins.h"

struct state {
    float *p, *m, *v;
};

static struct state copy_state(const struct state *s, int64_t n) {
    struct state c = {zero_array(n), zero_array(n), zero_array(n)};
    memcpy(c.p, s->p, (size_t)n * sizeof(float));
    memcpy(c.m, s->m, (size_t)n * sizeof(float));
    memcpy(c.v, s->v, (size_t)n * sizeof(float));
    return c;
}

static void free_state(struct state *s) {
    free(s->p), free(s->m), free(s->v);
}

static void check_copy(const void *copy, const float *p, int64_t n, enum dtype type) {
    for (int64_t i = 0; i < n; i++)
        if (type == DTYPE_F32)
            CHECK(((const float *)copy)[i] == p[i]);
        else
            CHECK_EQ(((const uint16_t *)copy)[i], half_to_bf16(p[i]));
}

static void compare(int64_t n, float clip, int64_t step, enum dtype type) {
    struct adamw_step how = {.lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0.1f, .step = step};
    struct ref_adamw shape = {how.lr, how.beta1, how.beta2, how.eps, how.decay, clip, step};
    struct state start = {random_array(n, 1.0f), random_array(n, 0.1f), random_array(n, 0.1f)}, twin[DEVICES];
    float *g = random_array(n, 1.0f), sum[DEVICES];
    for (int64_t i = 0; i < n; i++)
        start.v[i] = start.v[i] * start.v[i] + 1e-3f;
    for (int i = 0; i < DEVICES; i++) {
        const struct adamw_ops *ops = twin_device[i]->ops->adamw;
        float *copy = zero_array(n);
        twin[i] = copy_state(&start, n);
        ops->norm(twin_device[i], &sum[i], g, n);
        struct adamw_state state = {twin[i].p, twin[i].m, twin[i].v, mat_dense(i ? NULL : copy, type, 1, n)};
        ops->update(twin_device[i], state, g, n, &sum[i], clip, how);
        if (i == 0) check_copy(copy, twin[i].p, n, type);
        free(copy);
    }
    struct state naive = copy_state(&start, n);
    double *p = double_array(n), *m = double_array(n), *v = double_array(n), squares = ref_squares(g, n);
    for (int64_t i = 0; i < n; i++)
        p[i] = (double)start.p[i], m[i] = (double)start.m[i], v[i] = (double)start.v[i];
    ref_adamw(p, m, v, g, n, shape);
    naive_adamw(naive.p, naive.m, naive.v, g, n, shape);
    CHECK(fabs((double)sum[0] - squares) <= 1e-7 * squares);
    CHECK_TWIN(twin[0].p, naive.p, p, n);
    CHECK_TWIN(twin[0].m, naive.m, m, n);
    CHECK_TWIN(twin[0].v, naive.v, v, n);
    CHECK_BITS(&sum[0], &sum[1], 1);
    CHECK_BITS(twin[0].p, twin[1].p, n);
    CHECK_BITS(twin[0].m, twin[1].m, n);
    CHECK_BITS(twin[0].v, twin[1].v, n);
    free_state(&twin[0]), free_state(&twin[1]), free_state(&start), free_state(&naive);
    free(g), free(p), free(m), free(v);
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    compare(1, 0.0f, 1, DTYPE_F32);
    compare(17, 1.0f, 1, DTYPE_BF16);
    compare(1000, 1e6f, 3, DTYPE_BF16); /* a clip above the norm */
    compare(65536, 1.0f, 1000, DTYPE_F32);
    compare(65537, 0.5f, 2, DTYPE_BF16);
    compare(200003, 1.0f, 100000, DTYPE_BF16);
    return twins_close();
}
