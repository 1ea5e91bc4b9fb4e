/* test_topk_backward.c -- softmax weights and their gradients: empty slots, empty rows, one landmark in many rows,
 * weights that underflow, gradients added to earlier values. */
#include "tests/ref/ref_backward.h"
#include "tests/twins/twins.h"

static void fill_found(int64_t *index, float *score, int64_t n, int k, int64_t landmarks, float width) {
    for (int64_t i = 0; i < n * k; i++) {
        bool empty = i / k % 4 == 3 || (i / k % 4 == 2 && i % k >= 1);
        index[i] = empty ? -1 : (int64_t)rng_below(&twin_rng, (uint64_t)landmarks);
        score[i] = empty ? -INFINITY : width * rng_normal(&twin_rng);
    }
}

static void compare(int64_t n, int64_t landmarks, int64_t d, int k, float width) {
    float *q = random_array(n * d, 1.0f), *l = random_array(landmarks * d, 1.0f), *dweight = random_array(n * k, 1.0f);
    float *dq = random_array(n * d, 1.0f), *dl = random_array(landmarks * d, 1.0f), *score = zero_array(n * k);
    float *naive = zero_array(n * k), *weight[DEVICES], *twin_dq[DEVICES], *twin_dl[DEVICES];
    double *ref = double_array(n * k), *ref_dq = double_array(n * d), *ref_dl = double_array(landmarks * d);
    int64_t *index = malloc((size_t)(n * k) * sizeof *index);
    fill_found(index, score, n, k, landmarks, width);
    for (int i = 0; i < DEVICES; i++) {
        const struct topk_ops *ops = twin_device[i]->ops->topk;
        struct guarded w = guarded_make(1, n * k, NULL), gq = guarded_make(n, d, q), gl = guarded_make(landmarks, d, l);
        struct guarded gdq = guarded_make(n, d, dq), gdl = guarded_make(landmarks, d, dl);
        ops->softmax_weights(twin_device[i], w.m.data, score, n, k);
        struct topk_weights found = {w.m.data, index, k};
        ops->backward(twin_device[i], gdq.m, gdl.m, dweight, found, gq.m, gl.m);
        weight[i] = zero_array(n * k);
        twin_dq[i] = zero_array(n * d);
        twin_dl[i] = zero_array(landmarks * d);
        guarded_take(weight[i], &w);
        guarded_take(twin_dq[i], &gdq);
        guarded_take(twin_dl[i], &gdl);
        guarded_drop(&gq), guarded_drop(&gl);
    }
    ref_softmax_weights(ref, score, n, k);
    naive_softmax_weights(naive, score, n, k);
    CHECK_TWIN(weight[0], naive, ref, n * k);
    for (int64_t i = 0; i < n * k; i++)
        if (index[i] < 0) CHECK(weight[0][i] == 0.0f);
    for (int64_t i = 0; i < n * d; i++)
        ref_dq[i] = (double)dq[i];
    for (int64_t i = 0; i < landmarks * d; i++)
        ref_dl[i] = (double)dl[i];
    ref_topk_backward(ref_dq, ref_dl, dweight, weight[0], index, q, l, n, d, k);
    naive_topk_backward(dq, dl, dweight, weight[0], index, q, l, n, d, k);
    CHECK_TWIN(twin_dq[0], dq, ref_dq, n * d);
    CHECK_TWIN(twin_dl[0], dl, ref_dl, landmarks * d);
    CHECK_BITS(weight[0], weight[1], n * k);
    CHECK_BITS(twin_dq[0], twin_dq[1], n * d);
    CHECK_BITS(twin_dl[0], twin_dl[1], landmarks * d);
    for (int i = 0; i < DEVICES; i++)
        free(weight[i]), free(twin_dq[i]), free(twin_dl[i]);
    free(q), free(l), free(dweight), free(dq), free(dl), free(score), free(naive), free(ref), free(ref_dq),
        free(ref_dl);
    free(index);
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    compare(1, 1, 5, 1, 1.0f);
    compare(4, 9, 33, 3, 1.0f);
    compare(50, 7, 200, 8, 1.0f);
    compare(2000, 30, 64, 8, 1.0f); /* all threads have rows */
    compare(40, 30, 130, 8, 100.0f);
    return twins_close();
}
