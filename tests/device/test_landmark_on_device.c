/* test_landmark_on_device.c -- Landmark Attention on a GPU against the grouped softmax in double: a text from any
 * position with all or the best blocks of each row, whole sequences, gradients; both storage types, heads of several
 * sizes, rows with gaps, o over q. Tolerance: a fraction of the largest element of the result, by its storage type. */
#include "tests/device/on_device.h"
#include "tests/ref/landmark/ref_landmark.h"

static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16};

static struct landmark_shape shape_of(const struct ref_landmark *s) {
    return (struct landmark_shape){s->heads, s->block, s->window};
}

static void case_forward(struct ref_landmark s, enum dtype type, int pad, bool in_place) {
    int64_t d = (int64_t)s.heads * s.dim, keys = s.first + s.n, all = s.n * d;
    float *q = normals(all, 1.0f, type), *k = normals(keys * d, 1.0f, type), *v = normals(keys * d, 1.0f, type),
          *got[2];
    double *ref = zeros(all, 8), *lse = zeros(s.n * s.heads, 8);
    ref_landmark(ref, lse, q, k, v, s);
    for (int pass = 0; pass < 2; pass++) {
        struct mat mq = put(q, type, s.n, d, pad, 0), mo = in_place ? mq : put(NULL, type, s.n, d, pad, 0);
        gpu->ops->landmark_attention->forward(gpu, mo, mq, put(k, type, keys, d, pad, 0), put(v, type, keys, d, pad, 0),
                                              s.first, shape_of(&s), s.topk);
        got[pass] = take(mo);
        drop_all();
    }
    check_part("landmark_attention.forward", got[0], ref, all, type == DTYPE_F32 ? 2e-5 : 1e-2);
    CHECK_SAME(got[0], got[1], all);
    free(q), free(k), free(v), free(ref), free(lse), free(got[0]), free(got[1]);
}

/* got: o, lse, dq, dk, dv of `sequences` of s.n rows. */
static void run_sequences(float *got[5], const struct ref_landmark *s, int64_t n, float *const in[4], enum dtype type,
                          int pad) {
    int64_t d = (int64_t)s->heads * s->dim;
    struct mat q = put(in[0], type, n, d, pad, 0), k = put(in[1], type, n, d, pad, 0),
               v = put(in[2], type, n, d, pad, 0);
    struct mat dout = put(in[3], type, n, d, pad, 0), out[5];
    for (int i = 0; i < 5; i++)
        out[i] = i == 1 ? put(NULL, DTYPE_F32, n, s->heads, 0, 0) : put(NULL, type, n, d, pad, 0);
    struct landmark_sequences seen = {q, k, v, s->n, shape_of(s)};
    gpu->ops->landmark_attention->forward_sequences(gpu, out[0], out[1], &seen);
    gpu->ops->landmark_attention->backward_sequences(gpu, out[2], out[3], out[4], dout, out[0], out[1], &seen);
    for (int i = 0; i < 5; i++)
        got[i] = take(out[i]);
    drop_all();
}

static void case_sequences(struct ref_landmark s, int64_t sequences, enum dtype type, int pad) {
    static const char *const names[5] = {"landmark_attention.forward_sequences", "lse", "dq", "dk", "dv"};
    int64_t d = (int64_t)s.heads * s.dim, n = sequences * s.n;
    float *in[4], *got[2][5];
    double *ref[5];
    for (int i = 0; i < 4; i++)
        in[i] = normals(n * d, 1.0f, type);
    for (int i = 0; i < 5; i++)
        ref[i] = zeros(n * d, 8);
    for (int64_t at = 0; at < n; at += s.n) {
        const float *q = in[0] + at * d, *k = in[1] + at * d, *v = in[2] + at * d;
        ref_landmark(ref[0] + at * d, ref[1] + at * s.heads, q, k, v, s);
        ref_landmark_backward(ref[2] + at * d, ref[3] + at * d, ref[4] + at * d, in[3] + at * d, q, k, v, s);
    }
    for (int pass = 0; pass < 2; pass++)
        run_sequences(got[pass], &s, n, in, type, pad);
    for (int i = 0; i < 5; i++) {
        int64_t count = i == 1 ? n * s.heads : n * d;
        /* Gradients in bf16 are computed from rounded o and dout . o: twice the fraction. */
        check_part(names[i], got[0][i], ref[i], count, type == DTYPE_F32 || i == 1 ? 2e-5 : i == 0 ? 1e-2 : 2e-2);
        CHECK_SAME(got[0][i], got[1][i], count);
        free(ref[i]), free(got[0][i]), free(got[1][i]);
    }
    for (int i = 0; i < 4; i++)
        free(in[i]);
}

int main(int argc, char **argv) {
    on_device_open(argc, argv);
    for (int t = 0; t < 2; t++) { /* n, first, heads, dim, block, window, topk */
        case_forward((struct ref_landmark){1, 0, 1, 2, 1, 0, 1}, types[t], 0, false);
        case_forward((struct ref_landmark){1, 700, 2, 64, 63, 100, 2}, types[t], 0, true);
        case_forward((struct ref_landmark){7, 93, 2, 34, 9, 30, 3}, types[t], 3, true);
        case_forward((struct ref_landmark){1, 99, 2, 32, 4, 1000, 64}, types[t], 0, false); /* fewer blocks than topk */
        case_sequences((struct ref_landmark){30, 0, 2, 33, 5, 12, 0}, 3, types[t], 1);
        case_sequences((struct ref_landmark){128, 0, 2, 64, 63, 100, 0}, 2, types[t], 0);
        if (on_short) continue;
        case_forward((struct ref_landmark){300, 0, 4, 16, 63, 128, 1}, types[t], 0, false);
        case_forward((struct ref_landmark){20, 3000, 1, 128, 5, 90, 20}, types[t], 0, false); /* 500 blocks */
        case_sequences((struct ref_landmark){195, 0, 2, 128, 64, 1000, 0}, 1, types[t], 0);
        case_sequences((struct ref_landmark){40, 0, 1, 300, 3, 20, 0}, 2, types[t], 0);
    }
    return on_device_close();
}
