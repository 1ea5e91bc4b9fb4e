/* golden_train.c -- the same texts through a training step: the results of forward, and every gradient. */
#include "tests/golden/golden.h"
#include "train/step/step_internal.h"

static const char suffix[] = " (training)";

/* A whole file as one micro-batch, landmarks in place; rows as train/step/batch.h has them. */
struct whole_batch {
    struct batch batch;
    int32_t *ids, *targets, *mask, (*documents)[2];
    int64_t length, rows, chunk, positions; /* of a sequence; of all; chunk, positions 1 and 1 for a Base LM */
};

/* The row of real id i of sequence s. */
static int64_t row_of(const struct whole_batch *b, int64_t s, int64_t i) {
    return s * b->batch.chunks * b->positions + i / b->chunk * b->positions + i % b->chunk;
}

static void make_batch(struct whole_batch *b, struct golden *g) {
    const struct tensor_view *shape = golden_tensor(g, "in.ids");
    int32_t *ids = golden_ints(g, "in.ids"), *mask = golden_has(g, "in.mask") ? golden_ints(g, "in.mask") : NULL;
    int32_t *labels = golden_ints(g, golden_has(g, "in.labels") ? "in.labels" : "in.ids");
    *b = (struct whole_batch){.length = shape->shape[1], .chunk = 1, .positions = 1};
    if (model_config_landmarks(&g->config)) b->chunk = g->config.chunk, b->positions = b->chunk + 1;
    b->batch.sequences = (int)shape->shape[0];
    b->batch.chunks = b->length / b->chunk;
    b->rows = b->batch.sequences * b->batch.chunks * b->positions;
    b->ids = golden_zeroed(b->rows, sizeof *b->ids);
    b->targets = golden_zeroed(b->rows, sizeof *b->targets);
    b->mask = golden_zeroed(b->rows, sizeof *b->mask);
    b->documents = golden_zeroed(b->rows, sizeof *b->documents);
    for (int64_t r = 0; r < b->rows; r++)
        b->ids[r] = g->config.landmark_id, b->targets[r] = -1;
    for (int64_t i = 0; i < b->batch.sequences * b->length; i++) {
        int64_t s = i / b->length, at = i % b->length, row = row_of(b, s, at);
        b->ids[row] = ids[i];
        b->targets[row] = at + 1 < b->length && labels[i + 1] >= 0 ? labels[i + 1] : -1;
        b->batch.scored += b->targets[row] >= 0;
        b->mask[row] = mask && mask[i];
    }
    b->batch.ids = b->ids, b->batch.targets = b->targets, b->batch.mask = mask ? b->mask : NULL;
    b->batch.documents = (const int32_t(*)[2])b->documents;
    free(ids), free(mask), free(labels);
}

static void free_batch(struct whole_batch *b) {
    free(b->ids), free(b->targets), free(b->mask), free(b->documents);
}

/* Losses of the ids without landmarks, from the device's rows. */
static float *real_rows(struct golden *g, const struct whole_batch *b, const float *rows_device) {
    float *all = golden_zeroed(b->rows, sizeof *all), *real = golden_zeroed(b->rows, sizeof *real);
    golden_get_bytes(g, all, rows_device, b->rows, sizeof *all);
    for (int64_t i = 0; i < b->batch.sequences * b->length; i++)
        real[i] = all[row_of(b, i / b->length, i % b->length)];
    free(all);
    return real;
}

/* The masked rows' losses, 0 elsewhere. */
static void compare_masked(struct golden *g, const struct step *s, const struct whole_batch *b) {
    float *all = golden_zeroed(b->rows, sizeof *all), *real = golden_zeroed(b->rows, sizeof *real);
    int64_t used = 0;
    golden_get_bytes(g, all, s->masked.nll, s->masked.count, sizeof *all);
    for (int64_t i = 0; i < b->batch.sequences * b->length; i++)
        if (b->mask[row_of(b, i / b->length, i % b->length)]) real[i] = all[used++];
    CHECK_EQ(used, s->masked.count);
    golden_compare(g, "out.mlm_nll", real, b->batch.sequences * b->length, TOLERANCE);
    free(all), free(real);
}

/* Selections of the landmarks in a step: no chunk reads the last landmark of a sequence. */
static void compare_neighbours(struct golden *g, const struct step *s, const struct whole_batch *b, int group) {
    char index_name[96], weight_name[96];
    golden_name(index_name, "out.index.g%d", group);
    golden_name(weight_name, "out.weight.g%d", group);
    if (!golden_has(g, index_name)) return;
    const struct tensor_view *t = golden_tensor(g, index_name);
    int64_t theirs_k = t->shape[t->dims - 1], k = g->config.topk, C = b->batch.chunks, Q = s->queries;
    CHECK_EQ(t->count, Q * theirs_k);
    int64_t *ours = golden_zeroed(Q * k, sizeof *ours);
    float *weight = golden_zeroed(Q * k, sizeof *weight), *their_weight = golden_floats(g, weight_name);
    int32_t *theirs = golden_ints(g, index_name);
    golden_get_bytes(g, ours, s->neighbours[group].index, Q * k, sizeof *ours);
    golden_get_bytes(g, weight, s->neighbours[group].weight + k, Q * k, sizeof *weight);
    double wrong = 0, worst = 0;
    for (int64_t r = 0; r < Q; r++) {
        int found = 0, wanted = 0, held = 0;
        for (int64_t j = 0; j < k; j++)
            held += ours[r * k + j] >= 0;
        for (int64_t i = 0; i < theirs_k && r % C < C - 1; i++) {
            int64_t at = r * theirs_k + i, e = theirs[at] + r / C * C; /* a step counts over the batch */
            wanted += theirs[at] >= 0;
            for (int64_t j = r * k; theirs[at] >= 0 && j < (r + 1) * k; j++)
                if (ours[j] == e) found++, worst = fmax(worst, fabs((double)(weight[j] - their_weight[at])));
        }
        wrong += wanted - found + abs(held - wanted);
    }
    bool exact = g->type == DTYPE_F32;
    golden_line(g, index_name, wrong, exact ? 0 : CHOICES_BF16 * (double)t->count);
    golden_line(g, weight_name, worst, exact ? TOLERANCE : TOLERANCE_BF16);
    free(ours), free(weight), free(their_weight), free(theirs);
}

static void compare_forward(struct golden *g, const struct step *s, const struct whole_batch *b,
                            const struct step_report *report) {
    int64_t n = b->batch.sequences * b->length;
    float loss = (float)report->loss, *nll = real_rows(g, b, s->nll);
    golden_compare(g, "out.nll", nll, n, TOLERANCE);
    free(nll);
    if (b->batch.mask) {
        float mlm = (float)report->mlm_loss, both = (float)(report->loss + report->mlm_loss);
        golden_compare(g, "out.ar_loss", &loss, 1, TOLERANCE_LOSS);
        golden_compare(g, "out.mlm_loss", &mlm, 1, TOLERANCE_LOSS);
        golden_compare(g, "out.loss", &both, 1, TOLERANCE_LOSS);
        compare_masked(g, s, b);
    } else {
        golden_compare(g, "out.loss", &loss, 1, TOLERANCE_LOSS);
    }
    for (int i = 0; i < g->config.groups; i++)
        compare_neighbours(g, s, b, i);
    if (!golden_has(g, "out.landmark")) return;
    struct mat landmarks = encoder_train_landmarks(s->encoder);
    struct mat wide = golden_put(g, NULL, landmarks.rows, landmarks.cols, DTYPE_F32);
    float *ours = golden_zeroed(landmarks.rows * landmarks.cols, sizeof *ours);
    g->dev->ops->elementwise->convert(g->dev, wide, landmarks);
    golden_get(g, ours, wide);
    golden_compare(g, "out.landmark", ours, landmarks.rows * landmarks.cols, TOLERANCE);
    free(ours);
}

/* Within 1e-4 of a tensor's largest element (tests/golden/README.md). */
static void compare_gradients(struct golden *g, struct step *s) {
    struct params *gradients;
    CHECK_OK(params_init(&gradients, &g->config, 1)); /* overwrites its data */
    CHECK_OK(step_gradients(s, gradients));
    for (int i = 0; i < params_count(gradients); i++) {
        const struct param *p = params_at(gradients, i);
        char name[160];
        snprintf(name, sizeof name, "grad.%s", p->name);
        float *theirs = golden_floats(g, name); /* the program ends when one is missing */
        double largest = 0;
        for (int64_t j = 0; j < p->rows * p->cols; j++)
            largest = fmax(largest, fabs((double)theirs[j]));
        golden_compare(g, name, p->data, p->rows * p->cols, 1e-4 * largest);
        free(theirs);
    }
    params_free(gradients);
}

static bool has_gradients(const struct golden *g) {
    for (int i = 0; i < safetensors_count(g->file); i++)
        if (strncmp(safetensors_at(g->file, i)->name, "grad.", 5) == 0) return true;
    return false;
}

void golden_train(struct golden *g) {
    struct whole_batch b;
    struct step *s;
    struct step_report report;
    make_batch(&b, g);
    bool retrieval = !g->config.base_lm, mlm = b.batch.mask != NULL;
    struct step_config config = {.sequences = b.batch.sequences,
                                 .chunks = b.batch.chunks,
                                 .type = g->type,
                                 .pool = retrieval ? POOL_OWN_PAST : POOL_NONE,
                                 .mlm = mlm};
    struct step_now now = {
        .optimizer = {.lr = -1.0f, .step = 1}, .mlm_rate = mlm ? 1.0f : 0.0f, .mlm_weight = 1.0f, .pool = config.pool};
    CHECK_OK(step_create(&s, g->dev, &g->config, &config, g->params, NULL));
    CHECK_OK(step_run(s, &report, &b.batch, 1, &now));
    g->suffix = suffix;
    compare_forward(g, s, &b, &report);
    g->suffix = NULL;
    if (has_gradients(g)) compare_gradients(g, s);
    step_free(s);
    free_batch(&b);
}
