/* test_norm.c -- odd widths, in place, with and without rstd, both epsilons of the model, tiny rows, whose result
 * depends on epsilon. */
#include "tests/twins/twins.h"

static void compare(int64_t n, int64_t d, float scale, float eps, bool in_place, bool want_rstd) {
    float *x = random_array(n * d, scale), *w = random_array(d, 1.0f);
    float *naive = zero_array(n * d), *naive_rstd = zero_array(n), *twin[DEVICES], *rstd[DEVICES];
    double *ref = double_array(n * d), *rstd_ref = double_array(n);
    ref_norm(ref, rstd_ref, x, w, n, d, eps);
    naive_norm(naive, naive_rstd, x, w, n, d, eps);
    for (int i = 0; i < DEVICES; i++) {
        struct device *dev = twin_device[i];
        struct guarded gx = guarded_make(n, d, x), y = guarded_make(n, d, NULL), gr = guarded_make(n, 1, NULL);
        twin[i] = zero_array(n * d);
        rstd[i] = zero_array(n);
        dev->ops->norm->forward(dev, in_place ? gx.m : y.m, want_rstd ? gr.m : mat_f32(NULL, n, 1), gx.m,
                                mat_f32(w, 1, d), eps);
        guarded_take(twin[i], in_place ? &gx : &y);
        guarded_drop(in_place ? &y : &gx);
        guarded_take(rstd[i], &gr);
        for (int64_t r = 0; r < n && !want_rstd; r++)
            CHECK(rstd[i][r] == guard_value);
    }
    CHECK_TWIN(twin[0], naive, ref, n * d);
    CHECK_BITS(twin[0], twin[1], n * d);
    if (want_rstd) CHECK_TWIN(rstd[0], naive_rstd, rstd_ref, n);
    free(x), free(w), free(naive), free(naive_rstd), free(ref), free(rstd_ref);
    for (int i = 0; i < DEVICES; i++)
        free(twin[i]), free(rstd[i]);
}

int main(int argc, char **argv) {
    static const int64_t widths[] = {1, 15, 16, 17, 64, 96, 387};
    twins_open(argc, argv);
    for (size_t i = 0; i < ARRAY_LEN(widths); i++)
        for (int in_place = 0; in_place < 2; in_place++) {
            compare(1, widths[i], 1.0f, 1e-5f, in_place, true);
            compare(9, widths[i], 0.02f, 1e-6f, in_place, false);
            compare(300, widths[i], 1e-3f, 1e-6f, in_place, true);
        }
    compare(3, 64, 0.0f, 1e-5f, false, true); /* all zero: epsilon keeps it finite */
    return twins_close();
}
