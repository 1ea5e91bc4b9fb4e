/* step_choice.c -- neighbours of a step's queries, and the gradient of their weights (model.md §4, §6.5). */
#include "train/step_internal.h"
#include <assert.h>

static uint64_t noise_seed(const struct step_task *task, int group) {
    return step_mix(task->seed + (uint64_t)group + 1);
}

static bool noisy(const struct step *s, const struct step_task *task) {
    return s->config.gumbel && task->now && !task->now->no_noise;
}

void step_encode(struct step *s, const struct step_task *task, struct mat lower) {
    int64_t chunks = s->queries, candidates = s->queries * s->config.candidates;
    if (s->model.encoder_input == ENCODER_INPUT_HIDDEN) {
        encoder_train_forward(s->encoder, NULL, lower, chunks);
        return;
    }
    if (task->choose && task->pool == POOL_CORPUS) {
        /* The first group's queries find candidates for all groups: the encoder runs once, before the other groups'
         * queries are known. */
        struct mat query = decoder_train_query(s->decoder, 0);
        corpus_pool_search(s->corpus, s->encoder_ids + s->rows, s->visible.document_of + chunks, query,
                           (const int32_t(*)[2])s->visible.barred, noisy(s, task), noise_seed(task, -1));
        chunks += candidates;
    }
    encoder_train_forward(s->encoder, s->encoder_ids, (struct mat){0}, chunks);
}

static struct topk_rows rows_of(const struct step *s, enum pool_kind pool) {
    const struct step_visible *v = &s->visible;
    struct topk_rows rows = {.own_begin = v->own_begin, .own_end = v->own_end, .sequence_end = v->sequence_end};
    if (pool == POOL_OWN) return rows;
    rows.other_begin = pool == POOL_BATCH ? v->none : v->candidates_begin;
    rows.other_end = pool == POOL_BATCH ? v->batch_end : v->candidates_end;
    rows.document_of = (const int32_t(*)[2])v->document_of;
    rows.document_barred = (const int32_t(*)[2])v->barred;
    return rows;
}

static struct gca_blocks blocks_of(const struct step *s, const struct step_choice *c) {
    return (struct gca_blocks){
        .row_begin = s->row_begin, .slot = c->slot, .weight = c->weight, .blocks = (int)s->queries, .k = s->model.topk};
}

void step_group_forward(struct step *s, const struct step_task *task, int group) {
    const struct topk_ops *topk = s->dev->ops->topk;
    struct step_choice *c = &s->choices[group];
    int k = s->model.topk;
    if (task->choose || task->contrast) c->query = decoder_train_query(s->decoder, group);
    if (!task->choose) {
        decoder_train_group(s->decoder, group, (struct gca_pool){0}, (struct gca_blocks){0});
        return;
    }
    topk->choose(s->dev, c->index, c->slot + k, c->score, c->query, encoder_train_landmarks(s->encoder),
                 rows_of(s, task->pool), k, noisy(s, task), noise_seed(task, group));
    topk->weigh(s->dev, c->weight + k, c->score, s->queries, k);
    decoder_train_group(s->decoder, group, encoder_train_pool(s->encoder), blocks_of(s, c));
}

/* Chunks are known by their number in the encoder's last forward. */
static struct gca_inverse invert(struct step *s, const struct step_choice *c) {
    int64_t slots = encoder_train_landmarks(s->encoder).rows;
    s->dev->ops->gca->invert(s->dev, s->inverse_begin, s->inverse_place, c->slot, s->queries * s->model.topk, slots);
    return (struct gca_inverse){.begin = s->inverse_begin, .place = s->inverse_place, .slots = slots};
}

void step_choices_sum(struct step *s, struct step_sums *sums) {
    int64_t places = s->queries * s->model.topk, corpus = s->queries; /* the corpus' chunks lie behind the batch's */
    int32_t *slot = s->host_ids;
    for (int g = 0; g < s->model.groups; g++)
        for (int64_t first = 0, n; first < places; first += n) {
            const struct step_choice *c = &s->choices[g];
            n = places - first < s->rows ? places - first : s->rows;
            device_download(s->dev, slot, c->slot + s->model.topk + first, (size_t)n * sizeof *slot);
            device_download(s->dev, s->host_floats, c->weight + s->model.topk + first, (size_t)n * sizeof(float));
            for (int64_t i = 0; i < n; i++) {
                sums->weight += (double)s->host_floats[i];
                if (slot[i] >= corpus) sums->corpus_weight += (double)s->host_floats[i];
            }
        }
}

void step_group_backward(struct step *s, const struct step_task *task, int group) {
    struct step_choice *c = &s->choices[group];
    int k = s->model.topk;
    if (task->choose) {
        decoder_train_group_backward(s->decoder, group, encoder_train_dkeys(s->encoder),
                                     encoder_train_dvalues(s->encoder), c->dweight, invert(s, c));
        s->dev->ops->topk->backward(s->dev, c->dquery, encoder_train_dlandmarks(s->encoder), c->dweight + k,
                                    c->weight + k, c->index, c->query, encoder_train_landmarks(s->encoder), k);
    } else {
        decoder_train_group_backward(s->decoder, group, (struct mat){0}, (struct mat){0}, NULL,
                                     (struct gca_inverse){0});
    }
    bool cut = task->contrast && c->dquery_cut.data;
    if (task->choose || (task->contrast && !cut)) decoder_train_query_backward(s->decoder, group, c->dquery, false);
    if (cut) decoder_train_query_backward(s->decoder, group, c->dquery_cut, true);
}
