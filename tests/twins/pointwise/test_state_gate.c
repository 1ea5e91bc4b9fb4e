/* test_state_gate.c -- the gate of a recurrent state against plain loops in double precision, with the output in
 * separate memory and in its inputs; its gradient against finite differences of the loops. */
#include "tests/twins/twins.h"

static double gate_of(float b) {
    return 1.0 / (1.0 + exp(-(double)b));
}

/* sum of dy * y, by the definition. */
static double total(const float *dy, const float *c, const float *z, const float *b, int64_t n, int64_t cols) {
    double sum = 0;
    for (int64_t i = 0; i < n * cols; i++) {
        double g = gate_of(b[i % cols]);
        sum += (double)dy[i] * (g * (double)c[i] + (1.0 - g) * (double)z[i]);
    }
    return sum;
}

/* alias 0: y in separate memory, 1: in c, 2: in z. */
static void gate_forward(int64_t n, int64_t cols, float scale, int alias) {
    float *c = random_array(n * cols, 1.0f), *z = random_array(n * cols, 1.0f), *b = random_array(cols, scale);
    for (int i = 0; i < DEVICES; i++) {
        struct guarded g[3] = {guarded_make(n, cols, NULL), guarded_make(n, cols, c), guarded_make(n, cols, z)};
        struct guarded gb = guarded_make(1, cols, b);
        float *y = zero_array(n * cols);
        twin_device[i]->ops->state_gate->forward(twin_device[i], g[alias].m, g[1].m, g[2].m, gb.m);
        for (int j = 0; j < 3; j++) {
            if (j == alias)
                guarded_take(y, &g[j]);
            else
                guarded_drop(&g[j]);
        }
        guarded_drop(&gb);
        for (int64_t k = 0; k < n * cols; k++) {
            double gate = gate_of(b[k % cols]), want = gate * (double)c[k] + (1.0 - gate) * (double)z[k];
            CHECK(fabs((double)y[k] - want) <= 1e-6);
        }
        free(y);
    }
    free(c), free(z), free(b);
}

/* A finite difference of the loops along one number of c, z and b. */
static double slope(const float *dy, float *const in[3], int which, int64_t at, int64_t n, int64_t cols) {
    const float by = 1.0f / 256;
    float before = in[which][at];
    in[which][at] = before + by;
    double above = total(dy, in[0], in[1], in[2], n, cols);
    in[which][at] = before - by;
    double below = total(dy, in[0], in[1], in[2], n, cols);
    in[which][at] = before;
    return (above - below) / (double)(2 * by);
}

static void gate_backward(int64_t n, int64_t cols, bool alias) {
    float *dy = random_array(n * cols, 1.0f), *c = random_array(n * cols, 1.0f), *z = random_array(n * cols, 1.0f);
    float *b = random_array(cols, 2.0f), *start = random_array(cols, 1.0f);
    float *const in[3] = {c, z, b};
    float *bits = NULL;
    for (int i = 0; i < DEVICES; i++) {
        struct guarded gdy = guarded_make(n, cols, dy), gdc = guarded_make(n, cols, NULL);
        struct guarded gdz = guarded_make(n, cols, NULL), gdb = guarded_make(1, cols, start);
        float *got[3] = {zero_array(n * cols), zero_array(n * cols), zero_array(cols)};
        struct state_gate_gradients to = {alias ? gdy.m : gdc.m, gdz.m, gdb.m};
        twin_device[i]->ops->state_gate->backward(twin_device[i], &to, gdy.m, mat_f32(c, n, cols), mat_f32(z, n, cols),
                                                  mat_f32(b, 1, cols));
        guarded_take(got[0], alias ? &gdy : &gdc);
        guarded_drop(alias ? &gdc : &gdy);
        guarded_take(got[1], &gdz);
        guarded_take(got[2], &gdb);
        for (int64_t k = 0; k < cols; k++)
            got[2][k] -= start[k];
        for (int which = 0; which < 3; which++)
            for (int64_t k = 0; k < (which == 2 ? cols : n * cols); k++)
                CHECK(fabs((double)got[which][k] - slope(dy, in, which, k, n, cols)) <= 2e-5 * sqrt((double)n) + 1e-5);
        if (bits) CHECK_BITS(bits, got[2], cols);
        free(bits);
        bits = got[2];
        free(got[0]), free(got[1]);
    }
    free(bits), free(dy), free(c), free(z), free(b), free(start);
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    for (int alias = 0; alias < 3; alias++) {
        gate_forward(1, 1, 1.0f, alias);
        gate_forward(7, 33, 3.0f, alias);
        gate_forward(300, 130, 60.0f, alias); /* closed and open gates */
    }
    for (int alias = 0; alias < 2; alias++) {
        gate_backward(1, 1, alias);
        gate_backward(9, 70, alias);
    }
    return twins_close();
}
