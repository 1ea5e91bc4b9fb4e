/* test_landmark_attention.c -- Landmark Attention against the grouped softmax in plain loops: a text in pieces with the
 * best blocks of each row, whole sequences, gradients; the oracle's gradient against finite differences of its
 * forward. */
#include "tests/ref/landmark/ref_landmark.h"
#include "tests/twins/twins.h"

static struct landmark_shape shape_of(const struct ref_landmark *s) {
    return (struct landmark_shape){s->heads, s->block, s->window};
}

/* s.n rows from position s.first on. in_place: o is q. */
static void landmark_forward(struct ref_landmark s, bool in_place) {
    int64_t d = (int64_t)s.heads * s.dim, keys = s.first + s.n, all = s.n * d;
    float *q = random_array(all, 1.0f), *k = random_array(keys * d, 1.0f), *v = random_array(keys * d, 1.0f);
    float *naive = zero_array(all), *naive_lse = zero_array(s.n * s.heads), *bits = NULL;
    double *ref = double_array(all), *lse = double_array(s.n * s.heads);
    ref_landmark(ref, lse, q, k, v, s);
    naive_landmark(naive, naive_lse, q, k, v, s);
    for (int i = 0; i < DEVICES; i++) {
        struct guarded gq = guarded_make(s.n, d, q), go = guarded_make(s.n, d, NULL);
        struct guarded gk = guarded_make(keys, d, k), gv = guarded_make(keys, d, v);
        float *o = zero_array(all);
        twin_device[i]->ops->landmark_attention->forward(twin_device[i], in_place ? gq.m : go.m, gq.m, gk.m, gv.m,
                                                         s.first, shape_of(&s), s.topk);
        guarded_take(o, in_place ? &gq : &go);
        guarded_drop(in_place ? &go : &gq);
        guarded_drop(&gk);
        guarded_drop(&gv);
        CHECK_ATTENTION(o, naive, ref, all, 1.0);
        if (bits) CHECK_BITS(bits, o, all);
        free(bits);
        bits = o;
    }
    free(bits), free(q), free(k), free(v), free(naive), free(naive_lse), free(ref), free(lse);
}

struct results {
    float *o, *lse, *d[3];
};

static struct results sequences_run(struct device *dev, struct ref_landmark s, int64_t n, float *const in[4]) {
    const struct landmark_attention_ops *ops = dev->ops->landmark_attention;
    int64_t d = (int64_t)s.heads * s.dim;
    float *qkv = zero_array(3 * n * d), *joined = zero_array(3 * n * d);
    for (int64_t r = 0; r < n; r++)
        for (int part = 0; part < 3; part++)
            memcpy(qkv + (r * 3 + part) * d, in[part] + r * d, (size_t)d * sizeof(float));
    struct guarded all = guarded_make(n, 3 * d, qkv), dall = guarded_make(n, 3 * d, NULL);
    struct guarded dout = guarded_make(n, d, in[3]), o = guarded_make(n, d, NULL), lse = guarded_make(n, s.heads, NULL);
    struct landmark_sequences seen = {mat_cols(all.m, 0, d), mat_cols(all.m, d, d), mat_cols(all.m, 2 * d, d), s.n,
                                      shape_of(&s)};
    ops->forward_sequences(dev, o.m, lse.m, &seen);
    ops->backward_sequences(dev, mat_cols(dall.m, 0, d), mat_cols(dall.m, d, d), mat_cols(dall.m, 2 * d, d), dout.m,
                            o.m, lse.m, &seen);
    struct results out = {.o = zero_array(n * d), .lse = zero_array(n * s.heads)};
    guarded_take(out.o, &o);
    guarded_take(out.lse, &lse);
    guarded_take(joined, &dall);
    for (int part = 0; part < 3; part++) {
        out.d[part] = zero_array(n * d);
        for (int64_t r = 0; r < n; r++)
            memcpy(out.d[part] + r * d, joined + (r * 3 + part) * d, (size_t)d * sizeof(float));
    }
    guarded_drop(&all);
    guarded_drop(&dout);
    free(qkv), free(joined);
    return out;
}

static void results_free(struct results *r) {
    free(r->o), free(r->lse), free(r->d[0]), free(r->d[1]), free(r->d[2]);
}

/* `sequences` of s.n rows. */
static void training(struct ref_landmark s, int64_t sequences) {
    int64_t d = (int64_t)s.heads * s.dim, each = s.n * d, n = sequences * s.n;
    float *in[4];
    struct results twin[DEVICES];
    for (int i = 0; i < 4; i++)
        in[i] = random_array(n * d, 1.0f);
    for (int i = 0; i < DEVICES; i++)
        twin[i] = sequences_run(twin_device[i], s, n, in);
    for (int64_t at = 0; at < sequences; at++) {
        const float *q = in[0] + at * each, *k = in[1] + at * each, *v = in[2] + at * each, *dout = in[3] + at * each;
        double *o = double_array(each), *lse = double_array(s.n * s.heads), *g[3];
        struct results naive = {zero_array(each), zero_array(s.n * s.heads), {0}};
        for (int i = 0; i < 3; i++)
            g[i] = double_array(each), naive.d[i] = zero_array(each);
        ref_landmark(o, lse, q, k, v, s), naive_landmark(naive.o, naive.lse, q, k, v, s);
        ref_landmark_backward(g[0], g[1], g[2], dout, q, k, v, s);
        naive_landmark_backward(naive.d[0], naive.d[1], naive.d[2], dout, q, k, v, s);
        CHECK_ATTENTION(twin[0].o + at * each, naive.o, o, each, 1.0);
        CHECK_ATTENTION(twin[0].lse + at * s.n * s.heads, naive.lse, lse, s.n * s.heads, 1.0);
        for (int i = 0; i < 3; i++) {
            CHECK_GRADIENT(twin[0].d[i] + at * each, naive.d[i], g[i], each);
            free(g[i]);
        }
        free(o), free(lse);
        results_free(&naive);
    }
    CHECK_BITS(twin[0].o, twin[1].o, n * d);
    CHECK_BITS(twin[0].lse, twin[1].lse, n * s.heads);
    for (int i = 0; i < 3; i++)
        CHECK_BITS(twin[0].d[i], twin[1].d[i], n * d);
    for (int i = 0; i < DEVICES; i++)
        results_free(&twin[i]);
    for (int i = 0; i < 4; i++)
        free(in[i]);
}

static double objective(float *const in[4], struct ref_landmark s) {
    int64_t all = s.n * s.heads * s.dim;
    double *o = double_array(all), *lse = double_array(s.n * s.heads), sum = 0;
    ref_landmark(o, lse, in[0], in[1], in[2], s);
    for (int64_t i = 0; i < all; i++)
        sum += o[i] * (double)in[3][i];
    free(o), free(lse);
    return sum;
}

static void differences(struct ref_landmark s) {
    const float step = 1.0f / 1024;
    int64_t all = s.n * s.heads * s.dim;
    float *in[4];
    double *grad[3];
    for (int i = 0; i < 4; i++)
        in[i] = random_array(all, 1.0f);
    for (int i = 0; i < 3; i++)
        grad[i] = double_array(all);
    ref_landmark_backward(grad[0], grad[1], grad[2], in[3], in[0], in[1], in[2], s);
    for (int part = 0; part < 3; part++)
        for (int64_t i = 0; i < all; i++) {
            float old = in[part][i], high = old + step, low = old - step;
            in[part][i] = high;
            double up = objective(in, s);
            in[part][i] = low;
            double down = objective(in, s);
            in[part][i] = old;
            double want = (up - down) / ((double)high - (double)low);
            CHECK(fabs(want - grad[part][i]) <= 1e-4 * fmax(1.0, fabs(want)));
        }
    for (int i = 0; i < 4; i++)
        free(in[i]);
    for (int i = 0; i < 3; i++)
        free(grad[i]);
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    /* n, first, heads, dim, block, window, topk */
    for (int in_place = 0; in_place < 2; in_place++) {
        landmark_forward((struct ref_landmark){1, 0, 1, 2, 1, 0, 1}, in_place);
        landmark_forward((struct ref_landmark){1, 700, 3, 64, 63, 100, 2}, in_place);
        landmark_forward((struct ref_landmark){1, 99, 2, 32, 4, 1000, 64}, in_place); /* fewer blocks than topk */
        landmark_forward((struct ref_landmark){7, 93, 2, 34, 9, 30, 3}, in_place);    /* from the middle of a block */
        landmark_forward((struct ref_landmark){300, 0, 4, 16, 63, 128, 1}, in_place);
        landmark_forward((struct ref_landmark){150, 140, 1, 128, 64, 90, 2}, in_place); /* two tiles a block */
    }
    training((struct ref_landmark){2, 0, 1, 2, 1, 5, 0}, 1);
    training((struct ref_landmark){30, 0, 2, 33, 5, 12, 0}, 3);
    training((struct ref_landmark){256, 0, 3, 32, 63, 100, 0}, 2);
    training((struct ref_landmark){195, 0, 2, 16, 64, 1000, 0}, 1);
    differences((struct ref_landmark){12, 0, 2, 3, 3, 5, 0});
    differences((struct ref_landmark){10, 0, 1, 4, 1, 3, 0});
    return twins_close();
}
