/* memory_order_fit.c -- see memory_order_fit.h. A thread computes a search alone; the sums of the searches are then
 * added in order. Each pass over z and right serves all k: 16 tokens are the lanes of vectors. */
#include "tools/memory/memory_order_fit.h"
#include "base/half.h"
#include "base/memory.h"
#include "base/rng.h"
#include <math.h>
#include <string.h>

enum { F = CANDIDATE_FEATURES, T = MEMORY_ORDER_TOKENS, KS = MEMORY_ORDER_KS, LANES = 16, VECTORS = T / LANES };
enum { WARM = 40, BATCH = 256, FILES = 64 };
static const double rate = 2.5e-3, beta1 = 0.9, beta2 = 0.98, tiny = 1e-8;
static const double least_p = 1e-12; /* keeps the logarithm finite */

/* ---- samples ---- */

enum status memory_order_samples_create(struct memory_order_samples *out, int64_t capacity, int candidates) {
    const size_t n = (size_t)capacity, rows = n * (size_t)candidates;
    *out = (struct memory_order_samples){.capacity = capacity, .candidates = candidates};
    enum status s = memory_allocate_zero(&out->search, n);
    if (s == STATUS_OK) s = memory_allocate_aligned(&out->features, rows * F);
    if (s == STATUS_OK) s = memory_allocate_aligned(&out->z, rows * T);
    if (s == STATUS_OK) s = memory_allocate_aligned(&out->right, rows * T);
    if (s == STATUS_OK) s = memory_allocate_zero(&out->lm, n * T);
    if (s == STATUS_OK) s = memory_allocate_zero(&out->gate, n * T);
    if (s != STATUS_OK) memory_order_samples_free(out);
    return s;
}

void memory_order_samples_free(struct memory_order_samples *s) {
    void *memory[] = {s->search, s->features, s->z, s->right, s->lm, s->gate};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        memory_free(memory[i]);
    *s = (struct memory_order_samples){0};
}

struct memory_order_reads memory_order_reads_of(int k) {
    enum { LEAST = 8 };
    struct memory_order_reads reads = {1, {k}};
    for (int of = 4; of <= 16; of *= 4)
        if (k / of >= LEAST) reads.k[reads.ks++] = k / of;
    return reads;
}

/* ---- one search ---- */

/* What a candidate counts for each k; 0 for numbers that are not read. */
struct share {
    float of[KS + 1];
};
/* Memory of a thread: of the candidates of one search. */
struct order_scratch {
    float *sum, *sorted;         /* [candidates] */
    struct share *share, *slope; /* slope: of the loss in the shares */
};
/* Of each k and token: the sums of a z and a n, then the gradient in z and in n. */
struct order_tokens {
    float z[KS][T], right[KS][T];
};
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef uint32_t bit_lanes __attribute__((vector_size(LANES * sizeof(uint32_t))));
typedef uint16_t half_lanes16 __attribute__((vector_size(LANES * sizeof(uint16_t)), aligned(2), may_alias));
struct lanes_pair {
    lanes z, right;
};

static void lanes_load(struct lanes_pair *out, const uint16_t *z, const uint16_t *right) {
    out->z = (lanes)(__builtin_convertvector(*(const half_lanes16 *)z, bit_lanes) << 16);
    out->right = (lanes)(__builtin_convertvector(*(const half_lanes16 *)right, bit_lanes) << 16);
}

static void sums_of(float *out, const struct memory_order_samples *s, int64_t search, const double *weights) {
    const float *x = s->features + search * s->candidates * F;
    for (int i = 0; i < s->search[search].found; i++, x += F) {
        double sum = 0;
        for (int f = 0; f < F; f++)
            sum += weights[f] * (double)x[f];
        out[i] = (float)sum;
    }
}

/* Returns the k-th greatest of x [n], 1 <= k <= n, which it reorders. */
static float kth_greatest(float *x, int n, int k) {
    int low = 0, high = n - 1;
    while (low < high) {
        const float pivot = x[low + (high - low) / 2];
        int i = low, j = high;
        while (i <= j) {
            while (x[i] > pivot)
                i++;
            while (x[j] < pivot)
                j--;
            if (i > j) break;
            const float swap = x[i];
            x[i++] = x[j];
            x[j--] = swap;
        }
        if (k - 1 <= j)
            high = j;
        else if (k - 1 >= i)
            low = i;
        else
            break;
    }
    return x[k - 1];
}

/* 1 for the first k candidates: as found, or those of the greatest sums; of equal sums those found first. Column q. */
static void shares_set(const struct order_scratch *at, int found, int k, int q, bool ordered) {
    float th = 0;
    int equal = k;
    if (ordered && found > k) {
        memcpy(at->sorted, at->sum, (size_t)found * sizeof *at->sorted);
        th = kth_greatest(at->sorted, found, k);
        for (int i = 0; i < found; i++)
            equal -= at->sum[i] > th;
    }
    for (int i = 0; i < found; i++) {
        const bool all = found <= k, above = ordered && at->sum[i] > th, level = !ordered || at->sum[i] == th;
        at->share[i].of[q] = all || above || (level && equal-- > 0) ? 1 : 0;
    }
}

/* How near the candidates are to being exchanged for the k-th: K of memory_order_fit.h. Into column q of the shares; 0
 * if all are read, or all sums are equal. */
static void shares_near(const struct order_scratch *at, int found, int k, int q) {
    float th = 0, width = 0;
    if (found > k) {
        memcpy(at->sorted, at->sum, (size_t)found * sizeof *at->sorted);
        const float low = kth_greatest(at->sorted, found, 2 * k < found ? 2 * k : found);
        const float high = kth_greatest(at->sorted, found, (k + 1) / 2);
        th = kth_greatest(at->sorted, found, k);
        width = (high - low) / 4;
    }
    for (int i = 0; i < found; i++) {
        const float a = width > 0 ? 1 / (1 + expf((th - at->sum[i]) / width)) : 0;
        at->share[i].of[q] = a * (1 - a);
    }
}

static void tokens_sum(struct order_tokens *out, const struct memory_order_samples *s, int64_t search,
                       const struct share *share) {
    const uint16_t *z = s->z + search * s->candidates * T, *right = s->right + search * s->candidates * T;
    for (int v = 0; v < T; v += LANES) {
        lanes a[KS] = {0}, b[KS] = {0};
        for (int i = 0; i < s->search[search].found; i++) {
            struct lanes_pair x;
            lanes_load(&x, z + i * T + v, right + i * T + v);
            for (int q = 0; q < KS; q++)
                a[q] += share[i].of[q] * x.z, b[q] += share[i].of[q] * x.right;
        }
        for (int q = 0; q < KS; q++) {
            memcpy(out->z[q] + v, &a[q], sizeof a[q]);
            memcpy(out->right[q] + v, &b[q], sizeof b[q]);
        }
    }
}

/* Returns the sum over tokens of a search's loss, a mean over ks, and replaces the sums by their gradient. */
static double tokens_loss(struct order_tokens *t, const struct memory_order_samples *s, int64_t search, int ks) {
    const float *lm = s->lm + search * T, *gate = s->gate + search * T;
    double loss = 0;
    for (int q = 0; q < KS; q++)
        for (int i = 0; i < T; i++) {
            const double z = (double)t->z[q][i], right = (double)t->right[q][i], g = (double)gate[i];
            const bool counts = q < ks && i < s->search[search].tokens;
            const double p = z > 0 ? right / z : 0, mixed = (1 - g) * (double)lm[i] + g * p + least_p;
            const double slope = counts && z > 0 ? -g / (mixed * z * ks) : 0;
            if (counts) loss -= log(mixed) / ks;
            t->right[q][i] = (float)slope;
            t->z[q][i] = (float)(-slope * p);
        }
    return loss;
}

/* The slope of a search's loss in what a candidate counts, of each k. */
static void slopes_set(float out[KS], const struct order_tokens *t, const uint16_t *z, const uint16_t *right) {
    lanes sum[KS] = {0};
    for (int v = 0; v < T; v += LANES) {
        struct lanes_pair x;
        lanes_load(&x, z + v, right + v);
        for (int q = 0; q < KS; q++) {
            lanes to_z, to_right;
            memcpy(&to_z, t->z[q] + v, sizeof to_z);
            memcpy(&to_right, t->right[q] + v, sizeof to_right);
            sum[q] += to_z * x.z + to_right * x.right;
        }
    }
    for (int q = 0; q < KS; q++) {
        out[q] = 0;
        for (int l = 0; l < LANES; l++)
            out[q] += sum[q][l];
    }
}

/* Replaces the slopes of one k by what is left of them beside a straight line over the sums, which is fitted with the
 * shares as weights, times the share. */
static void slopes_rest(const struct order_scratch *at, int found, int q) {
    double n = 0, u = 0, x = 0, xx = 0, ux = 0;
    for (int i = 0; i < found; i++) {
        const double near = (double)at->share[i].of[q];
        n += near, u += near * (double)at->slope[i].of[q], x += near * (double)at->sum[i];
    }
    if (n > 0) u /= n, x /= n;
    for (int i = 0; i < found; i++) {
        const double near = (double)at->share[i].of[q], d = (double)at->sum[i] - x;
        xx += near * d * d, ux += near * d * (double)at->slope[i].of[q];
    }
    const double rise = xx > 0 ? ux / xx : 0;
    for (int i = 0; i < found; i++) {
        const double line = u + rise * ((double)at->sum[i] - x);
        at->slope[i].of[q] = (float)((double)at->share[i].of[q] * ((double)at->slope[i].of[q] - line));
    }
}

static void add_gradient(double *gradient, const struct memory_order_loss *of, int64_t search,
                         const struct order_tokens *t, const struct order_scratch *at) {
    const struct memory_order_samples *s = of->samples;
    const int64_t first = search * s->candidates;
    const int found = s->search[search].found;
    for (int i = 0; i < found; i++)
        slopes_set(at->slope[i].of, t, s->z + (first + i) * T, s->right + (first + i) * T);
    for (int q = 0; q < of->reads.ks; q++) {
        shares_near(at, found, of->reads.k[q], q);
        slopes_rest(at, found, q);
    }
    for (int i = 0; i < found; i++) {
        double ds = 0;
        for (int q = 0; q < of->reads.ks; q++)
            ds += (double)at->slope[i].of[q];
        for (int f = 0; f < F; f++)
            gradient[f] += ds * (double)s->features[(first + i) * F + f];
    }
}

/* ---- the loss ---- */

struct order_rows {
    const struct memory_order_loss *of;
    const int64_t *searches;
    double (*sums)[F + 1]; /* of each search: gradient and loss */
    struct order_scratch *scratch;
    bool gradient;
};
static void loss_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct order_rows *c = context;
    const struct memory_order_loss *of = c->of;
    const struct order_scratch *at = &c->scratch[worker];
    for (int64_t b = begin; b < end; b++) {
        const int64_t search = c->searches[b];
        const int found = of->samples->search[search].found;
        struct order_tokens t;
        sums_of(at->sum, of->samples, search, of->weights);
        for (int q = 0; q < of->reads.ks; q++)
            shares_set(at, found, of->reads.k[q], q, true);
        tokens_sum(&t, of->samples, search, at->share);
        memset(c->sums[b], 0, sizeof c->sums[b]);
        c->sums[b][F] = tokens_loss(&t, of->samples, search, of->reads.ks);
        if (c->gradient) add_gradient(c->sums[b], of, search, &t, at);
    }
}

static void scratch_free(struct order_scratch *s, int threads) {
    for (int i = 0; s && i < threads; i++) {
        memory_free(s[i].sum);
        memory_free(s[i].sorted);
        memory_free(s[i].share);
        memory_free(s[i].slope);
    }
    memory_free(s);
}

static enum status scratch_allocate(struct order_scratch **out, int candidates, int threads) {
    TRY(memory_allocate_zero(out, (size_t)threads));
    enum status s = STATUS_OK;
    for (int i = 0; i < threads && s == STATUS_OK; i++) {
        s = memory_allocate(&(*out)[i].sum, (size_t)candidates);
        if (s == STATUS_OK) s = memory_allocate(&(*out)[i].sorted, (size_t)candidates);
        if (s == STATUS_OK) s = memory_allocate_zero(&(*out)[i].share, (size_t)candidates);
        if (s == STATUS_OK) s = memory_allocate(&(*out)[i].slope, (size_t)candidates);
    }
    if (s == STATUS_OK) return s;
    scratch_free(*out, threads);
    *out = NULL;
    return s;
}

/* The mean over the tokens of the searches. */
static double loss_of(double *gradient, const struct order_rows *c, int64_t n, struct threads *threads) {
    double loss = 0, tokens = 0;
    threads_for(threads, n, 1, loss_body, (void *)c);
    for (int f = 0; gradient && f < F; f++)
        gradient[f] = 0;
    for (int64_t b = 0; b < n; b++) {
        for (int f = 0; gradient && f < F; f++)
            gradient[f] += c->sums[b][f];
        loss += c->sums[b][F];
        tokens += c->of->samples->search[c->searches[b]].tokens;
    }
    for (int f = 0; gradient && f < F; f++)
        gradient[f] /= tokens;
    return loss / tokens;
}

enum status memory_order_loss(double *loss, double *gradient, const struct memory_order_loss *of,
                              const int64_t *searches, int64_t n, struct threads *threads) {
    struct order_rows c = {.of = of, .searches = searches, .gradient = gradient != NULL};
    TRY(scratch_allocate(&c.scratch, of->samples->candidates, threads_count(threads)));
    enum status s = memory_allocate(&c.sums, (size_t)n);
    if (s == STATUS_OK) *loss = loss_of(gradient, &c, n, threads);
    memory_free(c.sums);
    scratch_free(c.scratch, threads_count(threads));
    return s;
}

/* ---- training ---- */

/* deviation: of a feature within the searches; 0: each search has one value. together: of two features, products of
 * deviations. */
struct order_scale {
    double deviation[F], together[F][F];
};

static void add_products(double together[F][F], const float *x, int found) {
    double mean[F] = {0}, d[F]; /* differences to the first candidate are exactly 0 if there is one value */
    for (int i = 0; i < found; i++)
        for (int f = 0; f < F; f++)
            mean[f] += ((double)x[i * F + f] - (double)x[f]) / found;
    for (int i = 0; i < found; i++) {
        for (int f = 0; f < F; f++)
            d[f] = (double)x[i * F + f] - (double)x[f] - mean[f];
        for (int f = 0; f < F; f++)
            for (int g = 0; g < F; g++)
                together[f][g] += d[f] * d[g];
    }
}

static void scale_of(struct order_scale *out, const struct memory_order_samples *s) {
    double n = 0;
    *out = (struct order_scale){0};
    for (int64_t p = 0; p < s->n; p++) {
        if (s->search[p].held_out) continue;
        add_products(out->together, s->features + p * s->candidates * F, s->search[p].found);
        n += s->search[p].found;
    }
    for (int f = 0; f < F; f++)
        for (int g = 0; g < F; g++)
            out->together[f][g] /= n > 0 ? n : 1;
    for (int f = 0; f < F; f++)
        out->deviation[f] = sqrt(out->together[f][f]);
}

/* The searches that are trained on, by file. */
struct order_files {
    int64_t *searches, begin[FILES + 1];
    int used[FILES], n; /* the files that have any */
};

static enum status files_of(struct order_files *out, const struct memory_order_samples *s) {
    int64_t at = 0;
    *out = (struct order_files){0};
    TRY(memory_allocate(&out->searches, (size_t)s->n));
    for (int file = 0; file < FILES; file++) {
        out->begin[file] = at;
        for (int64_t p = 0; p < s->n; p++)
            if (s->search[p].file == file && !s->search[p].held_out) out->searches[at++] = p;
        if (at > out->begin[file]) out->used[out->n++] = file;
    }
    out->begin[FILES] = at;
    return STATUS_OK;
}

static void batch_draw(int64_t *searches, const struct order_files *files, struct rng *rng) {
    for (int i = 0; i < BATCH; i++) {
        const int file = files->used[rng_below(rng, (uint64_t)files->n)];
        const uint64_t n = (uint64_t)(files->begin[file + 1] - files->begin[file]);
        searches[i] = files->searches[files->begin[file] + (int64_t)rng_below(rng, n)];
    }
}

struct order_adam {
    double w[F], first[F], second[F]; /* w: of features divided by their deviations */
};

/* Scales w so that the sums of a search have deviation 1. */
static void adam_scale(struct order_adam *a, const struct order_scale *scale) {
    double square = 0;
    for (int f = 0; f < F; f++)
        for (int g = 0; g < F && scale->deviation[f] != 0; g++)
            if (scale->deviation[g] != 0)
                square += a->w[f] * a->w[g] * scale->together[f][g] / (scale->deviation[f] * scale->deviation[g]);
    for (int f = 0; f < F && square > 0; f++)
        a->w[f] /= sqrt(square);
}

/* All features but the last say that candidate and text agree. Weights below 0 would fit what a few searches have by
 * chance, and lead this gradient, which is no loss's, away from the least loss. */
static void adam_step(struct order_adam *a, const struct order_scale *scale, const double *gradient, int step,
                      double done) {
    const double warm = step < WARM ? (step + 1.0) / WARM : 1;
    const double now = rate * warm * (0.5 + 0.5 * cos(3.14159265358979323846 * done));
    for (int f = 0; f < F; f++) {
        if (scale->deviation[f] == 0) continue;
        const double d = gradient[f] / scale->deviation[f];
        a->first[f] += (1 - beta1) * (d - a->first[f]);
        a->second[f] += (1 - beta2) * (d * d - a->second[f]);
        a->w[f] -=
            now * (a->first[f] / (1 - pow(beta1, step + 1))) / (sqrt(a->second[f] / (1 - pow(beta2, step + 1))) + tiny);
    }
    for (int f = 0; f < CANDIDATE_LENGTH; f++)
        if (a->w[f] < 0) a->w[f] = 0;
    adam_scale(a, scale);
}

static void raw_weights(double *out, const struct order_adam *a, const struct order_scale *scale) {
    for (int f = 0; f < F; f++)
        out[f] = scale->deviation[f] == 0 ? 0 : a->w[f] / scale->deviation[f];
}

static enum status order_train(double *weights, struct order_rows *c, struct memory_order_loss *of,
                               const struct order_files *files, const struct memory_order_fit_config *config,
                               struct threads *threads) {
    struct order_scale scale;
    struct order_adam adam = {0};
    int64_t searches[BATCH];
    double gradient[F];
    scale_of(&scale, of->samples);
    for (int f = 0; f < F; f++)
        adam.w[f] = config->start[f] * scale.deviation[f];
    adam_scale(&adam, &scale);
    of->weights = weights;
    c->of = of, c->searches = searches, c->gradient = true;
    for (int step = 0; step < config->steps; step++) {
        const double done = (double)step / config->steps;
        struct rng rng = rng_make(config->seed, (uint64_t)step);
        if (progress_stop_requested(config->progress))
            return fail(STATUS_INTERRUPTED, "stopped by a signal: nothing was fitted");
        progress_step(config->progress, "train the order", "steps", step, config->steps);
        batch_draw(searches, files, &rng);
        raw_weights(weights, &adam, &scale);
        (void)loss_of(gradient, c, BATCH, threads);
        adam_step(&adam, &scale, gradient, step, done);
    }
    raw_weights(weights, &adam, &scale);
    for (int f = 0; f < F; f++)
        if (!isfinite(weights[f]))
            return fail(STATUS_INVALID,
                        "weight %d of the order is not a number: numbers of the model overflow, in its "
                        "weights or in this --dtype",
                        f);
    return STATUS_OK;
}

enum status memory_order_fit(double weights[F], const struct memory_order_samples *samples,
                             const struct memory_order_fit_config *config, struct threads *threads) {
    struct memory_order_loss of = {.samples = samples, .reads = config->reads};
    struct order_rows c = {0};
    struct order_files files = {0};
    enum status s = files_of(&files, samples);
    if (s == STATUS_OK && files.n == 0)
        s = fail(STATUS_INVALID, "there is no search to train an order on: give longer texts, or a smaller --skip");
    if (s == STATUS_OK) s = scratch_allocate(&c.scratch, samples->candidates, threads_count(threads));
    if (s == STATUS_OK) s = memory_allocate(&c.sums, BATCH);
    if (s == STATUS_OK) s = order_train(weights, &c, &of, &files, config, threads);
    memory_free(c.sums);
    if (c.scratch) scratch_free(c.scratch, threads_count(threads));
    memory_free(files.searches);
    return s;
}

/* ---- the report ---- */

struct read_rows {
    const struct memory_order_samples *samples;
    const double *weights;
    struct order_scratch *scratch;
    double *loss; /* [n] sums over tokens */
    int k;
    bool held_out;
};

static void read_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct read_rows *c = context;
    const struct order_scratch *at = &c->scratch[worker];
    for (int64_t p = begin; p < end; p++) {
        struct order_tokens t;
        if (c->samples->search[p].held_out != c->held_out) continue;
        if (c->weights) sums_of(at->sum, c->samples, p, c->weights);
        shares_set(at, c->samples->search[p].found, c->k, 0, c->weights != NULL);
        tokens_sum(&t, c->samples, p, at->share);
        c->loss[p] = tokens_loss(&t, c->samples, p, 1);
    }
}

enum status memory_order_read_loss(double *out, const struct memory_order_samples *samples, const double *weights,
                                   int k, bool held_out, struct threads *threads) {
    struct read_rows c = {.samples = samples, .weights = weights, .k = k, .held_out = held_out};
    double loss[FILES] = {0}, tokens[FILES] = {0}, sum = 0;
    int files = 0;
    TRY(scratch_allocate(&c.scratch, samples->candidates, threads_count(threads)));
    enum status s = memory_allocate_zero(&c.loss, (size_t)samples->n);
    if (s == STATUS_OK) threads_for(threads, samples->n, 1, read_body, &c);
    for (int64_t p = 0; p < samples->n && s == STATUS_OK; p++) {
        if (samples->search[p].held_out != held_out) continue;
        loss[samples->search[p].file] += c.loss[p];
        tokens[samples->search[p].file] += samples->search[p].tokens;
    }
    for (int i = 0; i < FILES; i++)
        if (tokens[i] > 0) sum += loss[i] / tokens[i], files++;
    *out = files > 0 ? sum / files : NAN;
    memory_free(c.loss);
    scratch_free(c.scratch, threads_count(threads));
    return s;
}
