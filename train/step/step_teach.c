/* step_teach.c -- see step_teach_internal.h. Lists of candidates and the teacher's distribution are made on the host,
 * in double precision; scores, weights and gradients are the ops of retrieval (kernels/search/topk.h). */
#include "base/memory.h"
#include "train/step/step_teach_internal.h"
#include <assert.h>
#include <math.h>
#include <string.h>

static const char *const gradient_names[] = {"projections", "encoder", "all"};

const char *teach_gradient_name(enum teach_gradient gradient) {
    return gradient_names[gradient];
}

int teach_gradient_find(const char *name) {
    for (int i = 0; i < (int)ARRAY_LEN(gradient_names); i++)
        if (strcmp(name, gradient_names[i]) == 0) return i;
    return -1;
}

struct step_teach {
    int64_t queries;
    int each, k; /* own candidates of a query; both: these and as many of another query */
    void *memory;
    size_t bytes;
    int32_t *own_begin, *own_end, *other_begin, *other_end; /* [Q], chunks of the encoder */
    int64_t *index;                                         /* [Q*k] */
    float *score, *weight, *dweight;
    /* host */
    int32_t *ids;       /* [Q*each*S] */
    int32_t *ranges;    /* [4][Q] */
    int32_t *passage;   /* [Q*each]: its number in its block, existing ones first; -1: no more */
    int32_t *documents; /* [Q*each][2] */
    int64_t *found;     /* [Q*k]: index */
    float *gain, *weights;
};

static int step_teach_each(const struct step_config *c) {
    return c->reads.passages + c->reads.unread;
}

int64_t step_teach_chunks(const struct step_config *c, int64_t queries) {
    return c->teach ? queries * step_teach_each(c) : 0;
}

/* ---- creation -----------------------------------------------------------------------------------------------------
 */

static void step_teach_layout(void *of, struct carve *c) {
    struct step_teach *t = of;
    int64_t Q = t->queries, results = Q * t->k;
    int32_t **ranges[] = {&t->own_begin, &t->own_end, &t->other_begin, &t->other_end};
    for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
        *ranges[i] = carve_bytes(c, Q, sizeof(int32_t));
    t->index = carve_bytes(c, results, sizeof(int64_t));
    float **numbers[] = {&t->score, &t->weight, &t->dweight};
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        *numbers[i] = carve_bytes(c, results, sizeof(float));
}

static enum status step_teach_allocate(struct step_teach *t, const struct step *s) {
    size_t Q = (size_t)t->queries, candidates = Q * (size_t)t->each, results = Q * (size_t)t->k;
    TRY(carve_device(s->dev, &t->memory, &t->bytes, step_teach_layout, t));
    TRY(memory_allocate_zero(&t->ids, candidates * (size_t)s->positions));
    TRY(memory_allocate_zero(&t->ranges, 4 * Q));
    TRY(memory_allocate_zero(&t->passage, candidates));
    TRY(memory_allocate_zero(&t->documents, 2 * candidates));
    TRY(memory_allocate_zero(&t->found, results));
    TRY(memory_allocate_zero(&t->gain, candidates));
    return memory_allocate_zero(&t->weights, results);
}

enum status step_teach_create(struct step_teach **out, const struct step *s) {
    struct step_teach *t;
    TRY(memory_allocate_zero(&t, 1));
    t->queries = s->queries;
    t->each = step_teach_each(&s->config);
    t->k = 2 * t->each;
    enum status status = step_teach_allocate(t, s);
    if (status == STATUS_OK)
        *out = t;
    else
        step_teach_free(t, s->dev);
    return status;
}

void step_teach_free(struct step_teach *t, struct device *dev) {
    if (!t) return;
    device_release(dev, t->memory);
    void *host[] = {t->ids, t->ranges, t->passage, t->documents, t->found, t->gain, t->weights};
    for (size_t i = 0; i < ARRAY_LEN(host); i++)
        memory_free(host[i]);
    memory_free(t);
}

size_t step_teach_bytes(const struct step_teach *t) {
    return t->bytes;
}

/* ---- candidates ---------------------------------------------------------------------------------------------------
 */

static bool step_teach_last(const struct step *s, int64_t r) {
    return r % s->config.chunks == s->config.chunks - 1;
}

int64_t step_teach_count(const struct step *s, const struct batch *batch) {
    int each = step_teach_each(&s->config);
    int64_t count = 0;
    for (int64_t r = 0; r < s->queries; r++) {
        bool any = false;
        for (int i = 0; i < each && !step_teach_last(s, r); i++)
            any = any || batch->passage_documents[(r + 1) * each + i] >= 0;
        count += any;
    }
    return count;
}

/* Candidate i of query r is a passage's first chunk; missing chunks are pads, of a document that is excluded for all
 * queries. */
static void step_teach_write(struct step_teach *t, const struct step *s, const struct batch *batch, int64_t r, int i) {
    int64_t slot = r * t->each + i, S = s->positions, chunk = s->model.chunk;
    int64_t passage = (r + 1) * t->each + t->passage[slot], numbers = s->config.reads.span * chunk + 1;
    bool there = t->passage[slot] >= 0;
    t->documents[2 * slot] = there ? batch->passage_documents[passage] : 0;
    t->documents[2 * slot + 1] = there ? t->documents[2 * slot] : INT32_MAX;
    for (int64_t j = 0; j < chunk; j++)
        t->ids[slot * S + j] = there ? batch->passages[passage * numbers + j] : -1;
    t->ids[slot * S + chunk] = s->model.landmark_id;
}

/* Lists the candidates of each query: its own, and those of the query half a micro-batch away. */
static void step_teach_list(struct step_teach *t, const struct step *s, const struct batch *batch, int64_t first) {
    int64_t Q = t->queries;
    int32_t *own_begin = t->ranges, *own_end = own_begin + Q, *other_begin = own_end + Q, *other_end = other_begin + Q;
    for (int64_t r = 0; r < Q; r++) {
        int n = 0;
        for (int i = 0; i < t->each && !step_teach_last(s, r); i++)
            if (batch->passage_documents[(r + 1) * t->each + i] >= 0) t->passage[r * t->each + n++] = i;
        own_begin[r] = (int32_t)(first + r * t->each);
        own_end[r] = own_begin[r] + n;
        while (n < t->each)
            t->passage[r * t->each + n++] = -1;
        for (int i = 0; i < t->each; i++)
            step_teach_write(t, s, batch, r, i);
    }
    for (int64_t r = 0; r < Q; r++) {
        int64_t other = (r + (Q + 1) / 2) % Q;
        bool taught = own_end[r] > own_begin[r];
        other_begin[r] = own_begin[other];
        other_end[r] = taught ? own_end[other] : other_begin[r];
    }
}

static void step_teach_encode(struct step *s, const struct step_task *task) {
    struct step_teach *t = s->teach;
    int64_t Q = t->queries, chunks = Q * t->each, first = encoder_train_landmarks(s->encoder).rows;
    int32_t *to[] = {t->own_begin, t->own_end, t->other_begin, t->other_end};
    step_teach_list(t, s, task->batch, first);
    for (int i = 0; i < (int)ARRAY_LEN(to); i++)
        device_upload(s->dev, to[i], t->ranges + i * Q, (size_t)Q * sizeof **to);
    device_upload(s->dev, s->visible.document_of + first, t->documents, 2 * (size_t)chunks * sizeof *t->documents);
    device_upload(s->dev, s->encoder_ids + first * s->positions, t->ids,
                  (size_t)(chunks * s->positions) * sizeof *t->ids);
    encoder_train_append(s->encoder, chunks);
    if (s->config.teach_gradient == TEACH_PROJECTIONS) encoder_train_keep_projection(s->encoder);
}

/* ---- the loss -----------------------------------------------------------------------------------------------------
 */

/* The gain of candidate `chunk` for query r: of another query's, none. */
static double step_teach_gain(const struct step_teach *t, int64_t r, int64_t chunk) {
    int64_t i = chunk - t->ranges[r];
    return i < 0 || i >= t->each ? 0.0 : (double)t->gain[(r + 1) * t->each + t->passage[r * t->each + i]];
}

/* One query: adds its part of the sums, and replaces weights[] by the gradient of the loss with respect to them, times
 * scale. */
static void step_teach_query(struct step_teach_sums *sums, const struct step_teach *t, int64_t r, double temperature,
                             double scale) {
    const int64_t *found = t->found + r * t->k;
    float *weights = t->weights + r * t->k;
    double top = -INFINITY, sum = 0, loss = 0, first = 0, least = 1e-30;
    for (int i = 0; i < t->k && found[i] >= 0; i++)
        top = fmax(top, step_teach_gain(t, r, found[i]));
    for (int i = 0; i < t->k && found[i] >= 0; i++)
        sum += exp((step_teach_gain(t, r, found[i]) - top) / temperature);
    if (found[0] >= 0) first = step_teach_gain(t, r, found[0]);
    for (int i = 0; i < t->k; i++) {
        double p = found[i] >= 0 ? exp((step_teach_gain(t, r, found[i]) - top) / temperature) / sum : 0.0;
        double student = fmax((double)weights[i], least);
        if (p > 0) loss += p * log(p / student);
        weights[i] = (float)(-scale * p / student);
    }
    if (found[0] < 0) return;
    sums->loss += loss;
    sums->hits += first >= top;
    sums->gain += first;
    sums->best += top;
}

static void step_teach_group(struct step_teach_sums *sums, struct step *s, const struct step_task *task, int group) {
    struct step_teach *t = s->teach;
    const struct topk_ops *topk = s->dev->ops->topk;
    struct step_neighbours *c = &s->neighbours[group];
    size_t results = (size_t)(t->queries * t->k);
    const struct topk_sampling how = {.queries = c->query,
                                      .landmarks = encoder_train_landmarks(s->encoder),
                                      .rows = {.own_begin = t->own_begin,
                                               .own_end = t->own_end,
                                               .sequence_end = t->own_end,
                                               .other_begin = t->other_begin,
                                               .other_end = t->other_end,
                                               .document_of = (const int32_t(*)[2])s->visible.document_of,
                                               .document_barred = (const int32_t(*)[2])s->visible.barred},
                                      .k = t->k};
    topk->sample(s->dev, t->index, NULL, t->score, &how);
    topk->softmax_weights(s->dev, t->weight, t->score, t->queries, t->k);
    device_download(s->dev, t->found, t->index, results * sizeof *t->found);
    device_download(s->dev, t->weights, t->weight, results * sizeof *t->weights);
    for (int64_t r = 0; r < t->queries; r++)
        step_teach_query(sums, t, r, (double)task->now->teach_temperature, (double)task->teach_scale);
    device_upload(s->dev, t->dweight, t->weights, results * sizeof *t->weights);
    bool cut = s->config.teach_gradient != TEACH_ALL;
    topk->backward(s->dev, cut ? c->dquery_cut : c->dquery, encoder_train_dlandmarks(s->encoder), t->dweight,
                   (struct topk_weights){.weight = t->weight, .index = t->index, .k = t->k}, c->query, how.landmarks);
}

struct step_teach_sums step_teach_run(struct step *s, const struct step_task *task) {
    struct step_teach_sums sums = {0};
    memory_loss_gains(s->mixture, s->teach->gain, task->batch, s->targets);
    step_teach_encode(s, task);
    for (int g = 0; g < s->model.groups; g++)
        step_teach_group(&sums, s, task, g);
    return sums;
}
