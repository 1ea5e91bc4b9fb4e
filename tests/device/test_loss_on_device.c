/* test_loss_on_device.c -- log-likelihood and its gradients on a GPU: odd vocabularies, targets that do not count, more
 * rows than fit a slice of the scratch. And matmul.forward_gated, whose kernel differs from the loss's in its epilogue
 * alone, and matmul.backward_gated. */
#include "tests/device/on_device.h"

struct results {
    float *nll, *dx, *dtable, *alone;
};

struct inputs {
    const float *x, *table, *base;
    const int32_t *targets;
    const float *weight;
    int64_t n, d, words;
    float scale;
    enum dtype type;
};

static struct results loss_run(const struct inputs *in) {
    struct results r;
    int64_t n = in->n, d = in->d, words = in->words;
    enum dtype type = in->type;
    struct mat mx = put_plain(in->x, type, n, d), mt = put_plain(in->table, type, words, d),
               nll = put_plain(NULL, DTYPE_F32, 1, n);
    struct mat dx = put_plain(NULL, type, n, d), dt = put_plain(in->base, DTYPE_F32, words, d);
    struct mat alone = put_plain(NULL, DTYPE_F32, 1, n);
    int32_t *targets_device = put_bytes(in->targets, (size_t)n * sizeof *in->targets);
    gpu->ops->loss->forward(gpu, alone.data, mx, mt, targets_device);
    float *weight = in->weight ? put_bytes(in->weight, (size_t)n * sizeof *in->weight) : NULL;
    struct loss_rows rows = {.targets = targets_device, .weight = weight, .scale = in->scale};
    gpu->ops->loss->forward_backward(gpu, nll.data, dx, dt, mx, mt, rows);
    r = (struct results){take(nll), take(dx), take(dt), take(alone)};
    drop_all();
    return r;
}

static void drop_results(struct results r) {
    free(r.nll), free(r.dx), free(r.dtable), free(r.alone);
}

/* bf16: dtable is a sum over rows of products of two rounded numbers, the gradient of a logit and a number of x (which
 * a GPU may scale by the row's factor first). bf16 has 8 significant bits: each is within 2^-8 of its own size, so an
 * element is within 2^-7 sum |g x| of the exact sum. The target's g is p - 1, so this is relative to p - 1 also where
 * the target is nearly certain. The naive loop rounds only the first number, and in few rows its worst error is far
 * below the bound. */
static void check_dtable(const float *twin, const double *ref, const struct inputs *in, int64_t n) {
    int64_t d = in->d, words = in->words;
    double *size = zeros(words * d, 8), *p = zeros(words, 8);
    for (int64_t r = 0; r < n; r++) {
        double top = -INFINITY, sum = 0.0, scale = in->scale * (in->weight ? in->weight[r] : 1.0);
        if (in->targets[r] < 0) continue;
        ref_scores(p, in->x + r * d, in->table, 1, words, d); /* logits divided by the root of d */
        for (int64_t v = 0; v < words; v++)
            p[v] *= sqrt((double)d), top = fmax(top, p[v]);
        for (int64_t v = 0; v < words; v++)
            sum += exp(p[v] - top);
        for (int64_t v = 0; v < words; v++) {
            double g = scale * fabs(exp(p[v] - top) / sum - (v == in->targets[r] ? 1.0 : 0.0));
            for (int64_t i = 0; i < d; i++)
                size[v * d + i] += g * fabs((double)in->x[r * d + i]);
        }
    }
    int64_t outside = 0, worst = 0;
    double most = 0.0;
    for (int64_t i = 0; i < words * d; i++) {
        double over = fabs((double)twin[i] - ref[i]) / (1.02 * 0x1p-7 * size[i] + 0x1p-20 * fabs(ref[i]) + 1e-6);
        outside += !(over <= 1.0);
        if (over > most || over != over) most = over, worst = i;
    }
    if (outside) {
        fprintf(
            stderr,
            "loss dtable, %lld rows, d %lld, %lld words: %lld numbers outside; the worst is word %lld, column %lld: "
            "%.9g, ref %.9g, sum of sizes %g, %g times the bound\n",
            (long long)n, (long long)d, (long long)words, (long long)outside, (long long)(worst / d),
            (long long)(worst % d), (double)twin[worst], ref[worst], size[worst], most);
        test_fail(__FILE__, __LINE__, "dtable is outside of its bound");
    }
    free(size), free(p);
}

/* The same rows `copies` times: every copy must have the first one's result, and dtable is `copies` times that of one
 * copy. */
static void compare(int64_t n, int64_t d, int64_t words, enum dtype type, int64_t copies, float width) {
    float *x = normals(n * copies * d, width, type), *table = normals(words * d, 0.2f, type), scale = 0.37f;
    float *base = normals(words * d, 0.1f, DTYPE_F32), *naive = zeros(n, 4), *naive_x = zeros(n * d, 4),
          *naive_t = zeros(words * d, 4);
    double *ref = zeros(n, 8), *ref_x = zeros(n * d, 8), *ref_t = zeros(words * d, 8);
    int32_t *targets = zeros(n * copies, 4);
    for (int64_t r = 0; r < n; r++)
        targets[r] = r % 7 == 3 ? -100 : r % 5 == 1 ? (int32_t)words - 1 : (int32_t)rng_below(&on_rng, (uint64_t)words);
    for (int64_t r = n; r < n * copies; r++) {
        targets[r] = targets[r % n];
        memcpy(x + r * d, x + r % n * d, (size_t)d * sizeof *x);
    }
    for (int64_t i = 0; i < words * d; i++)
        naive_t[i] = base[i] / (float)copies, ref_t[i] = (double)base[i] / (double)copies;
    ref_loss(ref, x, table, targets, n, d, words);
    naive_loss(naive, x, table, targets, n, d, words);
    ref_loss_backward(ref_x, ref_t, x, table, targets, n, d, words, scale, NULL);
    naive_loss_backward(naive_x, naive_t, x, table, targets, n, d, words, scale,
                        type == DTYPE_BF16 ? store_bf16 : NULL);
    /* Rows with twice the weight and half the scale give the same result. */
    float *weight = zeros(n * copies, sizeof *weight);
    for (int64_t r = 0; r < n * copies; r++)
        weight[r] = 2.0f;
    const bool weighted = words % 2 == 0 || copies > 1;
    const struct inputs in = {
        x, table, base, targets, weighted ? weight : NULL, n * copies, d, words, weighted ? scale / 2 : scale, type};
    struct results a = loss_run(&in), b = loss_run(&in);
    for (int64_t i = 0; i < words * d; i++)
        a.dtable[i] /= (float)copies, b.dtable[i] /= (float)copies;
    for (int64_t c = 0; c<copies; c += copies> 1 ? copies - 1 : 1) { /* the first and the last */
        CHECK_ON("loss.forward", a.alone + c * n, naive, ref, n, DTYPE_F32);
        CHECK_ON("loss nll", a.nll + c * n, naive, ref, n, DTYPE_F32);
        CHECK_ON("loss dx", a.dx + c * n * d, naive_x, ref_x, n * d, type);
    }
    /* Sums are `copies` times as long as the naive loop's; rounding errors grow with the square root. */
    for (int64_t i = 0; i < words * d; i++)
        naive_t[i] = (float)(ref_t[i] + ((double)naive_t[i] - ref_t[i]) * sqrt((double)copies));
    if (type == DTYPE_F32)
        CHECK_ON("loss dtable", a.dtable, naive_t, ref_t, words * d, DTYPE_F32);
    else
        check_dtable(a.dtable, ref_t, &in, n);
    CHECK_SAME(a.nll, b.nll, n * copies);
    CHECK_SAME(a.dx, b.dx, n * copies * d);
    CHECK_SAME(a.dtable, b.dtable, words * d);
    drop_results(a), drop_results(b);
    free(x), free(table), free(base), free(naive), free(naive_x), free(naive_t), free(ref), free(ref_x), free(ref_t),
        free(targets), free(weight);
}

static void contrast(int64_t n, int64_t d, int64_t words, float scale, float weight, enum dtype type) {
    float *x = normals(n * d, 1.0f, type), *table = normals(words * d, 1.0f, type), *got[2][4];
    float *base_x = normals(n * d, 0.1f, DTYPE_F32), *base_t = normals(words * d, 0.1f, DTYPE_F32);
    float *naive = zeros(n, 4), *naive_x = zeros(n * d, 4), *naive_t = zeros(words * d, 4);
    double *ref = zeros(n, 8), *ref_x = zeros(n * d, 8), *ref_t = zeros(words * d, 8);
    int32_t *targets = zeros(n, 4), *excluded = zeros(n, 4);
    float *alone = zeros(words, 4);
    for (int64_t w = 1; w < words; w += 4)
        alone[w] = 1.0f;
    for (int64_t r = 0; r < n; r++) {
        targets[r] = r % 5 == 4 ? -1 : (int32_t)rng_below(&on_rng, (uint64_t)words);
        excluded[r] = r % 3 == 0 || words < 2 ? -1 : (int32_t)((targets[r] + 1 + r % (words - 1)) % words);
        if (excluded[r] == targets[r]) excluded[r] = -1;
    }
    for (int64_t i = 0; i < n * d; i++)
        naive_x[i] = base_x[i], ref_x[i] = (double)base_x[i];
    for (int64_t i = 0; i < words * d; i++)
        naive_t[i] = base_t[i], ref_t[i] = (double)base_t[i];
    float (*store)(float) = type == DTYPE_BF16 ? store_bf16 : NULL;
    ref_contrastive(ref, ref_x, ref_t, x, table, targets, excluded, alone, n, d, words, scale, weight, NULL);
    naive_contrastive(naive, naive_x, naive_t, x, table, targets, excluded, alone, n, d, words, scale, weight, store);
    for (int pass = 0; pass < 2; pass++) {
        struct mat nll = put_plain(NULL, DTYPE_F32, 1, n), hit = put_plain(NULL, DTYPE_F32, 1, n);
        struct mat dx = put_plain(base_x, DTYPE_F32, n, d), dt = put_plain(base_t, DTYPE_F32, words, d);
        struct loss_contrast how = {put_bytes(targets, (size_t)n * 4), put_bytes(excluded, (size_t)n * 4),
                                    put_bytes(alone, (size_t)words * 4), scale, weight};
        gpu->ops->loss->contrastive(gpu, nll.data, hit.data, dx, dt, put_plain(x, type, n, d),
                                    put_plain(table, type, words, d), how);
        got[pass][0] = take(nll), got[pass][1] = take(hit), got[pass][2] = take(dx), got[pass][3] = take(dt);
        drop_all();
    }
    CHECK_ON("contrastive nll", got[0][0], naive, ref, n, DTYPE_F32);
    CHECK_ON("contrastive dx", got[0][2], naive_x, ref_x, n * d, DTYPE_F32);
    CHECK_ON("contrastive dtable", got[0][3], naive_t, ref_t, words * d, DTYPE_F32);
    const int64_t sizes[] = {n, n, n * d, words * d};
    double *score = zeros(n * words, 8);
    ref_scores(score, x, table, n, words, d);
    for (int64_t r = 0; r < n; r++) {
        double best = -INFINITY, own = targets[r] < 0 ? 0.0 : score[r * words + targets[r]];
        for (int64_t w = 0; w < words; w++)
            if (w != excluded[r] && w != targets[r] && alone[w] == 0.0f) best = fmax(best, score[r * words + w]);
        if (fabs(own - best) > 1e-4) CHECK(got[0][1][r] == (targets[r] >= 0 && own > best ? 1.0f : 0.0f));
    }
    for (int i = 0; i < 4; i++) {
        CHECK_SAME(got[0][i], got[1][i], sizes[i]);
        free(got[0][i]), free(got[1][i]);
    }
    free(x), free(table), free(base_x), free(base_t), free(naive), free(naive_x), free(naive_t), free(ref), free(ref_x),
        free(ref_t), free(targets), free(excluded), free(alone), free(score);
}

/* Both halves of a product, and the first gated by the second. */
static void case_gated(int64_t n, int64_t f, int64_t in, enum dtype type) {
    float *x = normals(n * in, 1.0f, type), *w = normals(2 * f * in, 0.3f, type), *naive[3], *got[2][2];
    double *ref[3];
    for (int i = 0; i < 3; i++) {
        naive[i] = zeros(n * f, 4), ref[i] = zeros(n * f, 8);
        if (i == 2) break;
        ref_matmul(ref[i], x, w + i * f * in, n, f, in, NULL);
        naive_matmul(naive[i], x, w + i * f * in, n, f, in, NULL);
        for (int64_t j = 0; j < n * f; j++)
            naive[i][j] = as_type(naive[i][j], type);
    }
    for (int64_t j = 0; j < n * f; j++) {
        ref[2][j] = ref[0][j] / (1.0 + exp(-ref[0][j])) * ref[1][j];
        naive[2][j] = naive[0][j] / (1.0f + expf(-naive[0][j])) * naive[1][j];
    }
    for (int pass = 0; pass < 2; pass++) {
        struct mat both = put(NULL, type, n, 2 * f, 16, 0), gated = put(NULL, type, n, f, 8, 0);
        gpu->ops->matmul->forward_gated(gpu, gated, both, put(x, type, n, in, 8, 0), put_plain(w, type, 2 * f, in));
        got[pass][0] = take(both), got[pass][1] = take(gated);
        drop_all();
    }
    float *half = zeros(n * f, 4);
    for (int i = 0; i < 2; i++) {
        for (int64_t j = 0; j < n * f; j++)
            half[j] = got[0][0][j / f * 2 * f + i * f + j % f];
        CHECK_ON("matmul.forward_gated, both", half, naive[i], ref[i], n * f, type);
    }
    CHECK_ON("matmul.forward_gated", got[0][1], naive[2], ref[2], n * f, type);
    CHECK_SAME(got[0][0], got[1][0], 2 * n * f);
    CHECK_SAME(got[0][1], got[1][1], n * f);
    for (int i = 0; i < 3; i++)
        free(naive[i]), free(ref[i]);
    for (int i = 0; i < 4; i++)
        free(got[i / 2][i % 2]);
    free(x), free(w), free(half);
}

/* The gradient of gate and up [n, f] each, from that of what a product with w [d, f] made of them. */
static void case_gated_backward(int64_t n, int64_t f, int64_t d, enum dtype type) {
    float *dy = normals(n * d, 1.0f, type), *w = normals(d * f, 0.3f, type), *both = normals(n * 2 * f, 1.5f, type);
    float *wt = zeros(f * d, 4), *naive_d = zeros(n * f, 4), *naive = zeros(n * 2 * f, 4), *got[2];
    double *ref_d = zeros(n * f, 8), *ref = zeros(n * 2 * f, 8);
    for (int64_t i = 0; i < d * f; i++)
        wt[i % f * d + i / f] = w[i];
    ref_matmul(ref_d, dy, wt, n, f, d, NULL);
    naive_matmul(naive_d, dy, wt, n, f, d, NULL);
    for (int64_t i = 0; i < n * f; i++) {
        int64_t gate = i / f * 2 * f + i % f, up = gate + f;
        double s = 1.0 / (1.0 + exp(-(double)both[gate]));
        float h = 1.0f / (1.0f + expf(-both[gate])), from = as_type(naive_d[i], type);
        ref[gate] = ref_d[i] * both[up] * s * (1.0 + both[gate] * (1.0 - s)), ref[up] = ref_d[i] * both[gate] * s;
        naive[gate] = from * both[up] * h * (1.0f + both[gate] * (1.0f - h)), naive[up] = from * both[gate] * h;
    }
    for (int pass = 0; pass < 2; pass++) {
        struct mat to = put(both, type, n, 2 * f, 16, 0), scratch = put_plain(NULL, type, n, f);
        gpu->ops->matmul->backward_gated(gpu, to, scratch, put(dy, type, n, d, 8, 0), put(w, type, d, f, 24, 0));
        got[pass] = take(to);
        drop_all();
    }
    CHECK_ON("matmul.backward_gated", got[0], naive, ref, n * 2 * f, type);
    CHECK_SAME(got[0], got[1], n * 2 * f);
    free(dy), free(w), free(both), free(wt), free(naive_d), free(naive), free(ref_d), free(ref), free(got[0]),
        free(got[1]);
}

int main(int argc, char **argv) {
    on_device_open(argc, argv);
    for (int t = 0; t < 2; t++) {
        enum dtype type = t ? DTYPE_BF16 : DTYPE_F32;
        case_gated(70, 40, 24, type);
        if (!on_short) case_gated(4500, 128, 72, type); /* the gate is in the product's epilogue on Hopper */
        if (!on_short) case_gated(4096, 384, 136, type);
        case_gated_backward(70, 40, 24, type);
        case_gated_backward(4100, 256, 72, type); /* in the product's kernel on Hopper: a part of a tile of rows */
        if (!on_short && t) case_gated_backward(4100, 1280, 72, type); /* more tiles than clusters */
        contrast(1, 16, 1, 0.25f, 1.0f, type);
        contrast(70, 64, 513, 0.125f, 0.01f, type);
        contrast(130, 96, 1040, 0.1f, 1.0f, type);
        contrast(33, 33, 5003, 0.17f, 0.3f, type);
        compare(1, 64, 7, type, 1, 1.0f);
        compare(70, 128, 5000, type, 1, 1.0f);
        compare(33, 96, 8193, type, 1, 1.0f);
        compare(40, 64, 50265, type, 1, 1.0f);
        compare(300, 72, 5003, type, 1, 1.0f); /* rows of three tiles, a width that is no whole tile */
        compare(21, 64, 1000, type, 1,
                60.0f); /* logits in the hundreds: exponentials relative to the target overflow */
        compare(600, 64, 777, type, 1, 3.0f);
        compare(200, 64, 300, type, 1, 8.0f); /* some targets are nearly certain */
        if (on_short) continue;
        compare(13, 16, 200003, type, 300, 1.0f); /* slices: some 2600 rows of 200003 words fill the scratch */
    }
    return on_device_close();
}
