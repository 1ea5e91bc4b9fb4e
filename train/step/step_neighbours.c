/* step_neighbours.c -- retrieves neighbours for a step's queries, and the gradient of their weights
 * (model.md §4, §6.5). */
#include "train/step/step_internal.h"
#include <assert.h>

static uint64_t step_noise_seed(const struct step_task *task, int group) {
    return step_mix(task->seed + (uint64_t)group + 1);
}

static bool step_has_noise(const struct step *s, const struct step_task *task) {
    return s->config.gumbel && task->now && !task->now->no_noise;
}

static bool step_searches_corpus(const struct step_task *task) {
    return task->retrieve && task->pool == POOL_CORPUS;
}

/* Searches the corpus for a group's queries: the chunks found follow those that are encoded already. */
static void step_find_candidates(struct step *s, const struct step_task *task, int group, struct mat query) {
    int64_t first = step_candidates_begin(s, group);
    int stream = group == 0 ? -1 : MODEL_GROUPS_MAX + group; /* of the noise: not one of step_group_forward's */
    corpus_pool_search(s->corpus, s->encoder_ids + first * s->positions, s->visible.document_of + first, query,
                       (const int32_t(*)[2])s->visible.barred, step_has_noise(s, task), step_noise_seed(task, stream));
    step_copies_write(s, task, first);
}

void step_encode(struct step *s, const struct step_task *task, struct mat lower) {
    int64_t chunks = s->queries;
    if (s->model.encoder_input == ENCODER_INPUT_HIDDEN) {
        encoder_train_forward(s->encoder, NULL, lower, chunks);
        return;
    }
    /* The first group's queries need no encoded chunk, so the batch and their candidates are encoded together. */
    if (step_searches_corpus(task)) {
        step_find_candidates(s, task, 0, decoder_train_query(s->decoder, 0));
        chunks = step_candidates_begin(s, 1);
    }
    encoder_train_forward(s->encoder, s->encoder_ids, (struct mat){0}, chunks);
}

static struct topk_rows step_visible_rows(const struct step *s, enum pool_kind pool, int group) {
    const struct step_visible *v = &s->visible;
    struct topk_rows rows = {.own_begin = v->own_begin, .own_end = v->own_end, .sequence_end = v->sequence_end};
    if (pool == POOL_OWN_PAST) return rows;
    rows.other_begin = pool == POOL_BATCH ? v->none : v->candidates_begin + group * s->queries;
    rows.other_end = pool == POOL_BATCH ? v->batch_end : v->candidates_end + group * s->queries;
    rows.document_of = (const int32_t(*)[2])v->document_of;
    rows.document_barred = (const int32_t(*)[2])v->barred;
    return rows;
}

static struct gca_blocks step_gca_blocks(const struct step *s, const struct step_neighbours *c) {
    return (struct gca_blocks){
        .row_begin = s->row_begin, .slot = c->slot, .weight = c->weight, .blocks = (int)s->queries, .k = s->model.topk};
}

void step_group_forward(struct step *s, const struct step_task *task, int group) {
    const struct topk_ops *topk = s->dev->ops->topk;
    struct step_neighbours *c = &s->neighbours[group];
    int k = s->model.topk;
    if (task->retrieve || task->contrast || task->teach) c->query = decoder_train_query(s->decoder, group);
    if (!task->retrieve) {
        decoder_train_group(s->decoder, group, (struct gca_pool){0}, (struct gca_blocks){0});
        return;
    }
    if (step_searches_corpus(task) && group > 0) {
        step_find_candidates(s, task, group, c->query);
        encoder_train_append(s->encoder, step_candidates_begin(s, 1) - s->queries);
    }
    struct topk_sampling sampling = {.queries = c->query,
                                     .landmarks = encoder_train_landmarks(s->encoder),
                                     .rows = step_visible_rows(s, task->pool, group),
                                     .k = k,
                                     .gumbel = step_has_noise(s, task),
                                     .seed = step_noise_seed(task, group)};
    topk->sample(s->dev, c->index, c->slot + k, c->score, &sampling);
    topk->softmax_weights(s->dev, c->weight + k, c->score, s->queries, k);
    decoder_train_group(s->decoder, group, encoder_train_pool(s->encoder), step_gca_blocks(s, c));
}

/* Chunks that were encoded when the group retrieved. */
static int64_t step_encoded_chunks(const struct step *s, const struct step_task *task, int group) {
    return step_searches_corpus(task) ? step_candidates_begin(s, group + 1) : s->queries;
}

static struct gca_inverse step_gca_inverse(struct step *s, const struct step_neighbours *c, int64_t slots) {
    s->dev->ops->gca->invert(s->dev, s->inverse_begin, s->inverse_entry, c->slot, s->queries * s->model.topk, slots);
    return (struct gca_inverse){.begin = s->inverse_begin, .entry = s->inverse_entry, .slots = slots};
}

void step_neighbours_sum(struct step *s, struct step_sums *sums) {
    int64_t results = s->queries * s->model.topk, corpus = s->queries; /* the corpus's chunks follow the batch's */
    int32_t *slot = s->ids_host;
    for (int g = 0; g < s->model.groups; g++)
        for (int64_t first = 0, n; first < results; first += n) {
            const struct step_neighbours *c = &s->neighbours[g];
            n = results - first < s->rows ? results - first : s->rows;
            device_download(s->dev, slot, c->slot + s->model.topk + first, (size_t)n * sizeof *slot);
            device_download(s->dev, s->floats_host, c->weight + s->model.topk + first, (size_t)n * sizeof(float));
            for (int64_t i = 0; i < n; i++) {
                sums->weight += (double)s->floats_host[i];
                if (slot[i] >= corpus) sums->corpus_weight += (double)s->floats_host[i];
            }
        }
}

void step_group_backward(struct step *s, const struct step_task *task, int group) {
    struct step_neighbours *c = &s->neighbours[group];
    int k = s->model.topk;
    if (task->retrieve) {
        int64_t chunks = step_encoded_chunks(s, task, group), rows = chunks * s->positions;
        decoder_train_group_backward(s->decoder, group, mat_rows(encoder_train_dkeys(s->encoder), 0, rows),
                                     mat_rows(encoder_train_dvalues(s->encoder), 0, rows), c->dweight,
                                     step_gca_inverse(s, c, chunks));
        struct topk_weights found = {.weight = c->weight + k, .index = c->index, .k = k};
        s->dev->ops->topk->backward(s->dev, c->dquery, mat_rows(encoder_train_dlandmarks(s->encoder), 0, chunks),
                                    c->dweight + k, found, c->query,
                                    mat_rows(encoder_train_landmarks(s->encoder), 0, chunks));
    } else {
        decoder_train_group_backward(s->decoder, group, (struct mat){0}, (struct mat){0}, NULL,
                                     (struct gca_inverse){0});
    }
    bool contrast_cut = task->contrast && s->config.cut_query, contrast_full = task->contrast && !s->config.cut_query;
    bool teach_cut = task->teach && s->config.teach_gradient != TEACH_ALL, cut = contrast_cut || teach_cut;
    if (task->retrieve || contrast_full || (task->teach && !teach_cut))
        decoder_train_query_backward(s->decoder, group, c->dquery, false);
    if (cut) decoder_train_query_backward(s->decoder, group, c->dquery_cut, true);
}
