/* step_choice.c -- neighbours of a step's queries, and the gradient of their weights (model.md §4, §6.5). */
#include "train/step/step_internal.h"
#include <assert.h>

static uint64_t noise_seed(const struct step_task *task, int group) {
    return step_mix(task->seed + (uint64_t)group + 1);
}

static bool noisy(const struct step *s, const struct step_task *task) {
    return s->config.gumbel && task->now && !task->now->no_noise;
}

static bool asks_corpus(const struct step_task *task) {
    return task->choose && task->pool == POOL_CORPUS;
}

/* What a group's queries find in the corpus, behind what is encoded so far. */
static void find_candidates(struct step *s, const struct step_task *task, int group, struct mat query) {
    int64_t first = step_candidates_begin(s, group);
    int stream = group == 0 ? -1 : MODEL_GROUPS_MAX + group; /* of the noise: apart from the choices' own */
    corpus_pool_search(s->corpus, s->encoder_ids + first * s->positions, s->visible.document_of + first, query,
                       (const int32_t(*)[2])s->visible.barred, noisy(s, task), noise_seed(task, stream));
    step_copies_write(s, task, first);
}

void step_encode(struct step *s, const struct step_task *task, struct mat lower) {
    int64_t chunks = s->queries;
    if (s->model.encoder_input == ENCODER_INPUT_HIDDEN) {
        encoder_train_forward(s->encoder, NULL, lower, chunks);
        return;
    }
    if (asks_corpus(task)) { /* the first group's queries are known before anything is encoded: one pass for both */
        find_candidates(s, task, 0, decoder_train_query(s->decoder, 0));
        chunks = step_candidates_begin(s, 1);
    }
    encoder_train_forward(s->encoder, s->encoder_ids, (struct mat){0}, chunks);
}

static struct topk_rows rows_of(const struct step *s, enum pool_kind pool, int group) {
    const struct step_visible *v = &s->visible;
    struct topk_rows rows = {.own_begin = v->own_begin, .own_end = v->own_end, .sequence_end = v->sequence_end};
    if (pool == POOL_OWN) return rows;
    rows.other_begin = pool == POOL_BATCH ? v->none : v->candidates_begin + group * s->queries;
    rows.other_end = pool == POOL_BATCH ? v->batch_end : v->candidates_end + group * s->queries;
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
    if (asks_corpus(task) && group > 0) {
        find_candidates(s, task, group, c->query);
        encoder_train_append(s->encoder, step_candidates_begin(s, 1) - s->queries);
    }
    topk->sample(s->dev, c->index, c->slot + k, c->score, c->query, encoder_train_landmarks(s->encoder),
                 rows_of(s, task->pool, group), k, noisy(s, task), noise_seed(task, group));
    topk->softmax_weights(s->dev, c->weight + k, c->score, s->queries, k);
    decoder_train_group(s->decoder, group, encoder_train_pool(s->encoder), blocks_of(s, c));
}

/* Chunks that were encoded when the group chose; known by their number in the encoder. */
static int64_t chunks_at(const struct step *s, const struct step_task *task, int group) {
    return asks_corpus(task) ? step_candidates_begin(s, group + 1) : s->queries;
}

static struct gca_inverse invert(struct step *s, const struct step_choice *c, int64_t slots) {
    s->dev->ops->gca->invert(s->dev, s->inverse_begin, s->inverse_entry, c->slot, s->queries * s->model.topk, slots);
    return (struct gca_inverse){.begin = s->inverse_begin, .entry = s->inverse_entry, .slots = slots};
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
        int64_t chunks = chunks_at(s, task, group), rows = chunks * s->positions;
        decoder_train_group_backward(s->decoder, group, mat_rows(encoder_train_dkeys(s->encoder), 0, rows),
                                     mat_rows(encoder_train_dvalues(s->encoder), 0, rows), c->dweight,
                                     invert(s, c, chunks));
        s->dev->ops->topk->backward(s->dev, c->dquery, mat_rows(encoder_train_dlandmarks(s->encoder), 0, chunks),
                                    c->dweight + k, c->weight + k, c->index, c->query,
                                    mat_rows(encoder_train_landmarks(s->encoder), 0, chunks), k);
    } else {
        decoder_train_group_backward(s->decoder, group, (struct mat){0}, (struct mat){0}, NULL,
                                     (struct gca_inverse){0});
    }
    bool cut = task->contrast && c->dquery_cut.data;
    if (task->choose || (task->contrast && !cut)) decoder_train_query_backward(s->decoder, group, c->dquery, false);
    if (cut) decoder_train_query_backward(s->decoder, group, c->dquery_cut, true);
}
