/* golden_run.c -- a text through decoder and retriever, and all intermediate results. */
#include "tests/golden/golden.h"

void golden_run_create(struct golden_run *r, const struct golden *g, int64_t length) {
    const struct model_config *c = &g->config;
    *r = (struct golden_run){.length = length, .k = c->topk, .d = c->hidden, .groups = c->groups};
    r->chunk_positions = model_config_positions(c);
    r->chunks = model_config_landmarks(c) ? length / c->chunk : 0;
    r->positions = length + r->chunks;
    r->lower = golden_zeroed(r->positions * r->d, sizeof *r->lower);
    r->gca0 = golden_zeroed(r->positions * r->d, sizeof *r->gca0);
    r->final = golden_zeroed(r->positions * r->d, sizeof *r->final);
    r->logits = golden_zeroed(length * c->vocab_size, sizeof *r->logits);
    r->nll = golden_zeroed(length, sizeof *r->nll);
    for (int i = 0; i < r->groups; i++) {
        struct golden_group *p = &r->group[i];
        p->query = golden_zeroed(r->chunks * r->d, sizeof *p->query);
        p->score = golden_zeroed(r->chunks * r->k, sizeof *p->score);
        p->weight = golden_zeroed(r->chunks * r->k, sizeof *p->weight);
        p->index = golden_zeroed(r->chunks * r->k, sizeof *p->index);
        p->source = golden_zeroed(r->chunks * r->k, sizeof *p->source);
    }
}

void golden_run_free(struct golden_run *r) {
    free(r->lower), free(r->gca0), free(r->final), free(r->logits), free(r->nll);
    for (int i = 0; i < r->groups; i++) {
        struct golden_group *p = &r->group[i];
        free(p->query), free(p->score), free(p->weight), free(p->index), free(p->source);
    }
    *r = (struct golden_run){0};
}

static void watch_rows(void *context, const char *what, int group, int64_t first, const float *rows, int64_t n,
                       int64_t cols) {
    struct golden_run *r = context;
    bool query = strcmp(what, "query") == 0;
    float *to = query                        ? r->group[group].query
                : strcmp(what, "lower") == 0 ? r->lower
                : strcmp(what, "gca0") == 0  ? r->gca0
                : strcmp(what, "final") == 0 ? r->final
                                             : NULL;
    CHECK(to && cols == r->d && first >= 0 && first + n <= (query ? r->chunks : r->positions));
    memcpy(to + first * cols, rows, (size_t)(n * cols) * sizeof *rows);
}

static void watch_retrieval(void *context, int group, int64_t first_chunk, const struct neighbours *found) {
    struct golden_run *r = context;
    struct golden_group *p = &r->group[group];
    CHECK(found->k == r->k && first_chunk + found->n <= r->chunks);
    for (int64_t i = 0; i < found->n * found->k; i++) {
        int64_t at = first_chunk * r->k + i;
        p->index[at] = (int32_t)found->id[i];
        p->source[at] = found->source[i];
        p->weight[at] = found->weight[i];
        p->score[at] = found->score[i];
    }
}

struct decoder_watch golden_run_watch(struct golden_run *r) {
    return (struct decoder_watch){.context = r, .rows = watch_rows, .retrieval = watch_retrieval};
}

void golden_run_forward(struct golden_run *r, struct golden *g, struct retriever *retriever, const int32_t *ids,
                        const int32_t *labels) {
    int32_t *targets = golden_zeroed(r->length, sizeof *targets);
    for (int64_t i = 0; i < r->length; i++)
        targets[i] = i + 1 < r->length ? labels[i + 1] : -100;
    struct decoder_state *s;
    CHECK_OK(decoder_state_create(&s, g->decoder, retriever));
    struct decoder_watch watch = golden_run_watch(r);
    decoder_state_watch(s, &watch);
    struct decoder_output out = {.logits = r->logits, .logits_all = true, .targets = targets, .nll = r->nll};
    CHECK_OK(decoder_forward(s, &out, ids, r->length));
    CHECK_EQ(decoder_state_tokens(s), r->length);
    decoder_state_free(s);
    free(targets);
}

double golden_run_loss(const struct golden_run *r, const int32_t *labels, int64_t *count) {
    double sum = 0;
    for (int64_t i = 0; i + 1 < r->length; i++)
        if (labels[i + 1] >= 0) {
            sum += (double)r->nll[i];
            ++*count;
        }
    return sum;
}

/* Index of the file's selection in the row of results, or -1. */
static int place_of(const struct golden_choice *ours, int64_t row, int32_t index, const int32_t *source) {
    for (int i = 0; i < ours->k; i++) {
        int64_t at = row * ours->k + i;
        if (ours->index[at] == index && (!source || ours->source[at] == *source)) return i;
    }
    return -1;
}

/* Counts neighbours that differ, and ranks whose order contradicts their scores. */
static double wrong_places(const struct golden_choice *ours, const int32_t *index, const int32_t *source, int k) {
    double wrong = 0;
    for (int64_t row = 0; row < ours->rows; row++) {
        int theirs_count = 0, ours_count = 0;
        for (int i = 0; i < k; i++) {
            int64_t at = row * k + i;
            if (index[at] < 0) continue;
            theirs_count++;
            wrong += place_of(ours, row, index[at], source ? &source[at] : NULL) < 0;
        }
        for (int i = 0; i < ours->k; i++) {
            ours_count += ours->index[row * ours->k + i] >= 0;
            wrong += i > 0 && ours->score && ours->score[row * ours->k + i] > ours->score[row * ours->k + i - 1];
        }
        wrong += abs(theirs_count - ours_count);
    }
    return wrong;
}

void golden_compare_choice(struct golden *g, const struct golden_choice *ours, const char *index, const char *source,
                           const char *weight, const char *score, double tolerance) {
    if (!golden_has(g, index)) return;
    const struct tensor_view *t = golden_tensor(g, index);
    int k = (int)t->shape[t->dims - 1];
    CHECK_EQ(t->count, ours->rows * k);
    int32_t *their_index = golden_ints(g, index), *their_source = source ? golden_ints(g, source) : NULL;
    double wrong = wrong_places(ours, their_index, their_source, k);
    double allowed = g->type == DTYPE_F32 ? 0 : CHOICES_BF16 * (double)(ours->rows * k);
    golden_line(g, index, wrong, allowed);
    if (source) golden_line(g, source, wrong, allowed); /* an id is equal only with the same source */

    const char *names[] = {weight, score};
    const float *values[] = {ours->weight, ours->score};
    for (int what = 0; what < 2; what++) {
        if (!names[what] || !golden_has(g, names[what])) continue;
        float *theirs = golden_floats(g, names[what]);
        double worst = 0;
        for (int64_t i = 0; i < ours->rows * k; i++) {
            int rank =
                their_index[i] < 0 ? -1 : place_of(ours, i / k, their_index[i], their_source ? &their_source[i] : NULL);
            if (rank < 0 && their_index[i] >= 0 && g->type != DTYPE_F32) continue; /* counted above */
            double empty = what == 0 ? 0 : -INFINITY;
            double mine = rank < 0 ? empty : (double)values[what][i / k * ours->k + rank], other = (double)theirs[i];
            double difference = mine == other ? 0 : fabs(mine - other);
            if (!(difference <= worst)) worst = difference;
            if (isnan(difference)) break;
        }
        golden_line(g, names[what], worst, g->type == DTYPE_F32 ? tolerance : TOLERANCE_BF16);
        free(theirs);
    }
    free(their_index), free(their_source);
}
