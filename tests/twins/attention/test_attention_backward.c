/* test_attention_backward.c -- whole sequences of sliding-window attention, and chunks without a mask: o, lse and the
 * three gradients. q, k, v are views of one matrix, as a projection gives them. */
#include "tests/ref/ref_attend_backward.h"
#include "tests/twins/twins.h"

struct shape {
    int64_t sequences, length;
    int heads, dim, window; /* window < 0: chunk attention */
    float scale;
};
struct results {
    float *o, *lse, *dq, *dk, *dv;
};

static struct results results_create(int64_t n, int64_t d, int heads) {
    return (struct results){zero_array(n * d), zero_array(n * heads), zero_array(n * d), zero_array(n * d),
                            zero_array(n * d)};
}

static void attention_backward_run(struct results *out, int device, const struct shape *s, const float *qkv,
                                   const float *dout) {
    struct device *dev = twin_device[device];
    int64_t n = s->sequences * s->length, d = (int64_t)s->heads * s->dim;
    struct guarded all = guarded_make(n, 3 * d, qkv), dall = guarded_make(n, 3 * d, NULL),
                   gd = guarded_make(n, d, dout);
    struct guarded o = guarded_make(n, d, NULL), lse = guarded_make(n, s->heads, NULL);
    struct mat q = mat_cols(all.m, 0, d), k = mat_cols(all.m, d, d), v = mat_cols(all.m, 2 * d, d);
    struct mat dq = mat_cols(dall.m, 0, d), dk = mat_cols(dall.m, d, d), dv = mat_cols(dall.m, 2 * d, d);
    if (s->window >= 0) {
        const struct attention_ops *ops = dev->ops->attention;
        struct attention_sequences in = {q, k, v, s->length, s->heads, s->window};
        ops->forward_sequences(dev, o.m, lse.m, &in);
        ops->backward_sequences(dev, dq, dk, dv, gd.m, o.m, lse.m, &in);
    } else {
        const struct chunk_attention_ops *ops = dev->ops->chunk_attention;
        ops->forward_keep(dev, o.m, lse.m, q, k, v, s->heads, (int)s->length);
        struct chunk_attention_kept kept = {o.m, lse.m, q, k, v, s->heads, (int)s->length};
        ops->backward(dev, dq, dk, dv, gd.m, &kept);
    }
    float *joined = zero_array(3 * n * d), *to[3] = {out->dq, out->dk, out->dv};
    guarded_take(out->o, &o);
    guarded_take(out->lse, &lse);
    guarded_take(joined, &dall);
    for (int64_t r = 0; r < n; r++)
        for (int part = 0; part < 3; part++)
            memcpy(to[part] + r * d, joined + (r * 3 + part) * d, (size_t)d * sizeof(float));
    guarded_drop(&all);
    guarded_drop(&gd);
    free(joined);
}

/* One sequence from row `at` on: `part` of [o, lse, dq, dk, dv]. */
static void check_sequence(const struct shape *s, const struct results *twin, float *const in[4], int64_t first) {
    int64_t n = s->length, d = (int64_t)s->heads * s->dim, at = first * d;
    struct ref_attention shape = {n, 0, s->heads, s->dim, s->window};
    struct ref_chunk_attention chunk = {1, s->heads, s->dim, (int)n};
    const float *q = in[0] + at, *k = in[1] + at, *v = in[2] + at, *dout = in[3] + at;
    struct results naive = results_create(n, d, s->heads);
    double *o = double_array(n * d), *lse = double_array(n * s->heads), *dq = double_array(n * d);
    double *dk = double_array(n * d), *dv = double_array(n * d);
    if (s->window >= 0) {
        ref_attention(o, q, k, v, shape), naive_attention(naive.o, q, k, v, shape);
        ref_attention_lse(lse, q, k, shape), naive_attention_lse(naive.lse, q, k, shape);
        ref_attention_backward(dq, dk, dv, dout, q, k, v, shape);
        naive_attention_backward(naive.dq, naive.dk, naive.dv, dout, q, k, v, shape);
        CHECK_TWIN(twin->lse + first * s->heads, naive.lse, lse, n * s->heads);
    } else {
        ref_chunk_attention(o, q, k, v, chunk), naive_chunk_attention(naive.o, q, k, v, chunk);
        ref_chunk_attention_backward(dq, dk, dv, dout, q, k, v, chunk);
        naive_chunk_attention_backward(naive.dq, naive.dk, naive.dv, dout, q, k, v, chunk);
    }
    CHECK_TWIN(twin->o + at, naive.o, o, n * d);
    CHECK_GRADIENT(twin->dq + at, naive.dq, dq, n * d);
    CHECK_GRADIENT(twin->dk + at, naive.dk, dk, n * d);
    CHECK_GRADIENT(twin->dv + at, naive.dv, dv, n * d);
    free(naive.o), free(naive.lse), free(naive.dq), free(naive.dk), free(naive.dv);
    free(o), free(lse), free(dq), free(dk), free(dv);
}

static void compare(struct shape s) {
    int64_t n = s.sequences * s.length, d = (int64_t)s.heads * s.dim;
    float *in[4], *qkv = zero_array(3 * n * d);
    for (int i = 0; i < 4; i++)
        in[i] = random_array(n * d, i < 2 ? s.scale : 1.0f);
    for (int64_t r = 0; r < n; r++)
        for (int part = 0; part < 3; part++)
            memcpy(qkv + (r * 3 + part) * d, in[part] + r * d, (size_t)d * sizeof(float));
    struct results twin[DEVICES];
    for (int i = 0; i < DEVICES; i++) {
        twin[i] = results_create(n, d, s.heads);
        attention_backward_run(&twin[i], i, &s, qkv, in[3]);
    }
    for (int64_t i = 0; i < s.sequences; i++)
        check_sequence(&s, &twin[0], in, i * s.length);
    CHECK_BITS(twin[0].o, twin[1].o, n * d);
    CHECK_BITS(twin[0].lse, twin[1].lse, n * s.heads);
    CHECK_BITS(twin[0].dq, twin[1].dq, n * d);
    CHECK_BITS(twin[0].dk, twin[1].dk, n * d);
    CHECK_BITS(twin[0].dv, twin[1].dv, n * d);
    for (int i = 0; i < DEVICES; i++)
        free(twin[i].o), free(twin[i].lse), free(twin[i].dq), free(twin[i].dk), free(twin[i].dv);
    for (int i = 0; i < 4; i++)
        free(in[i]);
    free(qkv);
}

/* The oracle against finite differences of the forward oracle; window < 0: chunk attention. */
static double objective(float *const in[4], struct ref_attention s) {
    int64_t all = s.n * s.heads * s.dim;
    double *o = double_array(all), sum = 0;
    struct ref_chunk_attention chunk = {1, s.heads, s.dim, (int)s.n};
    if (s.window >= 0)
        ref_attention(o, in[0], in[1], in[2], s);
    else
        ref_chunk_attention(o, in[0], in[1], in[2], chunk);
    for (int64_t i = 0; i < all; i++)
        sum += o[i] * (double)in[3][i];
    free(o);
    return sum;
}

static void differences(struct ref_attention s) {
    const float step = 1.0f / 1024;
    int64_t all = s.n * s.heads * s.dim;
    struct ref_chunk_attention chunk = {1, s.heads, s.dim, (int)s.n};
    float *in[4];
    double *grad[3];
    for (int i = 0; i < 4; i++)
        in[i] = random_array(all, 1.0f);
    for (int i = 0; i < 3; i++)
        grad[i] = double_array(all);
    if (s.window >= 0)
        ref_attention_backward(grad[0], grad[1], grad[2], in[3], in[0], in[1], in[2], s);
    else
        ref_chunk_attention_backward(grad[0], grad[1], grad[2], in[3], in[0], in[1], in[2], chunk);
    for (int part = 0; part < 3; part++)
        for (int64_t i = 0; i < all; i++) {
            float old = in[part][i], high = old + step, low = old - step;
            in[part][i] = high;
            double up = objective(in, s);
            in[part][i] = low;
            double down = objective(in, s), slope = (up - down) / ((double)high - (double)low);
            in[part][i] = old;
            CHECK(fabs(slope - grad[part][i]) <= 1e-4 * (1 + fabs(slope)));
        }
    for (int i = 0; i < 4; i++)
        free(in[i]);
    for (int i = 0; i < 3; i++)
        free(grad[i]);
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    compare((struct shape){1, 1, 1, 8, 5, 1});
    compare((struct shape){2, 90, 2, 64, 512, 1}); /* window longer than the text */
    compare((struct shape){2, 200, 3, 32, 70, 1}); /* window edges inside tiles */
    compare((struct shape){1, 300, 1, 33, 64, 1});
    compare((struct shape){3, 65, 2, 16, 0, 1}); /* each position reads itself only */
    compare((struct shape){1, 130, 1, 64, 20, 3});
    compare((struct shape){3, 64, 2, 64, -1, 1});
    compare((struct shape){2, 1, 2, 18, -1, 1});
    compare((struct shape){2, 130, 3, 20, -1, 1});
    compare((struct shape){1, 64, 2, 64, -1, 3});
    differences((struct ref_attention){7, 0, 2, 3, 3});
    differences((struct ref_attention){5, 0, 2, 4, -1});
    return twins_close();
}
