/* memory_window_order.c -- what each candidate of a search gives to the tokens after it (memory_order_fit.h).
 *
 * The source loads at most MEMORY_K_MAX candidates at once. The op gives the weights of a group as a softmax over the
 * group alone; with the group's lse they become weights relative to those of the first group. */
#include "base/half.h"
#include "base/minmax.h"
#include "kernels/memory/next_token.h"
#include "kernels/ops.h"
#include "tools/memory/memory_window_internal.h"
#include <math.h>
#include <string.h>

/* A search that is being read. row: its first row of the window; lse [rows] of the first group, then of each. */
struct order_search {
    struct memory_window *w;
    struct memory_order_samples *to;
    const struct memory_window_text *text;
    int64_t search, row, rows; /* search: its number in the samples */
    float first_lse[MEMORY_ORDER_TOKENS];
};

/* ---- the gate ---- */

/* Reads the first k candidates, whose slots are the first of `memory`, and writes p and g of the tokens. */
static enum status order_gate(const struct order_search *c, struct token_memory memory) {
    struct memory_window *w = c->w;
    const struct memory_config *config = w->config.memory;
    struct memory_read *read = &w->reads[0];
    const int64_t at = c->row + 1, to = c->row - (c->text->first - 1);
    const bool words = searcher_tokens(w->config.finder.searcher) > 0;
    const float query = words ? (float)max_i64(memory_source_query(w->source, at), 1) : 1;
    for (int i = 0; i < config->k; i++) {
        w->chunks[i] = w->hits[i].chunk;
        w->scores[i] = w->hits[i].score;
    }
    const struct memory_marks marks = memory_marks_of(w->chunks, w->scores, config->k, query);
    memory.slots.k = config->k;
    TRY(memory_window_read(w, read, &memory, c->text->first, c->row, c->row + c->rows));
    for (int64_t t = 0; t < c->rows; t++) {
        const struct memory_lm_evidence lm = {w->entropy[to + t], w->largest[to + t]};
        struct memory_evidence of[MEMORY_SIDES] = {0};
        double g[1 + MEMORY_SIDES];
        read->mark[MEMORY_ENTRIES][to + t] = marks.entries;
        read->mark[MEMORY_BEST][to + t] = marks.best;
        read->mark[MEMORY_KTH][to + t] = marks.kth;
        read->mark[MEMORY_MEAN][to + t] = marks.mean;
        of[MEMORY_CORPUS] = memory_evidence_of(read->mark, read->column[0], to + t);
        memory_gate_weights(g, &config->mixture[MEMORY_CORPUS].gate, &lm, of);
        c->to->lm[c->search * MEMORY_ORDER_TOKENS + t] = expf(w->log_p[to + t]);
        c->to->gate[c->search * MEMORY_ORDER_TOKENS + t] = (float)g[1 + MEMORY_CORPUS];
    }
    return STATUS_OK;
}

/* ---- the candidates ---- */

struct order_group {
    const struct order_search *of;
    struct memory_slots_host slots;
    int64_t columns;
    int first, slot_rows;
    float factor[MEMORY_ORDER_TOKENS]; /* of the group's weights */
};

static void candidate_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct order_group *g = context;
    const struct order_search *c = g->of;
    const struct memory_window *w = c->w;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = c->search * c->to->candidates + g->first + i;
        const int32_t *value = g->slots.slot[i] < 0 ? NULL : g->slots.value + (int64_t)g->slots.slot[i] * g->slot_rows;
        uint16_t *z = c->to->z + row * MEMORY_ORDER_TOKENS, *right = c->to->right + row * MEMORY_ORDER_TOKENS;
        memset(z, 0, MEMORY_ORDER_TOKENS * sizeof *z);
        memset(right, 0, MEMORY_ORDER_TOKENS * sizeof *right);
        for (int64_t t = 0; value && t < c->rows; t++) {
            const float *x = w->weights + t * g->columns + i * g->slot_rows;
            float all = 0, same = 0;
            for (int j = 0; j < g->slot_rows; j++) {
                all += value[j] >= 0 ? x[j] : 0;
                same += value[j] == w->next[c->row + t] ? x[j] : 0;
            }
            z[t] = half_to_bf16(all * g->factor[t]);
            right[t] = half_to_bf16(same * g->factor[t]);
        }
    }
}

/* Of the rows, the group's weights relative to the first group's. */
static enum status group_factors(struct order_search *c, struct order_group *g, const struct token_memory *memory,
                                 struct mat states) {
    enum { MOST = 60 }; /* so that sums of weights stay finite */
    struct memory_window *w = c->w;
    struct device *dev = w->config.engine->device;
    float *s = w->stats_device;
    const struct token_memory_stats stats = {s, s + c->rows, s + 2 * c->rows, s + 3 * c->rows, s + 4 * c->rows};
    float lse[MEMORY_ORDER_TOKENS];
    dev->ops->token_memory->forward(dev, stats, states, memory, w->next_device + c->row);
    device_download(dev, lse, stats.lse, (size_t)c->rows * sizeof *lse);
    TRY(device_sync(dev));
    if (g->first == 0) memcpy(c->first_lse, lse, sizeof lse);
    for (int64_t t = 0; t < c->rows; t++)
        g->factor[t] = expf(fminf(lse[t] - c->first_lse[t], MOST));
    return STATUS_OK;
}

/* Loads the candidates from number `first` on, and writes their weights. */
static enum status order_group(struct order_search *c, int first) {
    struct memory_window *w = c->w;
    struct device *dev = w->config.engine->device;
    struct token_memory memory = {.tau = w->tau_device};
    const int64_t row_begin[] = {0, c->rows};
    const int found = c->to->search[c->search].found;
    for (int i = 0; i < c->w->config.group; i++)
        w->chunks[i] = first + i < found ? w->hits[first + i].chunk : -1;
    TRY(memory_source_load(w->source, &memory.slots, w->chunks, row_begin, 1));
    struct order_group g = {.of = c,
                            .slots = memory_source_slots_host(w->source),
                            .columns = token_memory_columns(&memory),
                            .first = first,
                            .slot_rows = memory.slots.slot_rows};
    if (first == 0) TRY(order_gate(c, memory));
    const struct mat states = mat_rows(w->keys, c->row, c->rows);
    for (int t = 0; t < MEMORY_ORDER_TOKENS; t++)
        g.factor[t] = 1;
    if (found > c->w->config.group) TRY(group_factors(c, &g, &memory, states));
    TRY(memory_window_reserve(w, (size_t)(c->rows * g.columns), (size_t)g.columns));
    const struct mat weights = mat_f32(w->weights_device, c->rows, g.columns);
    dev->ops->token_memory->weights(dev, weights, states, &memory);
    device_download(dev, w->weights, w->weights_device, mat_bytes(weights));
    TRY(device_sync(dev));
    threads_for(dev->threads, min_i64(c->w->config.group, c->to->candidates - first), 1, candidate_body, &g);
    return STATUS_OK;
}

/* ---- a search ---- */

static enum status order_search(struct order_search *c, struct store_range exclude) {
    struct memory_window *w = c->w;
    struct memory_order_samples *to = c->to;
    struct memory_order_search *search = &to->search[c->search];
    int found = 0;
    w->at[0] = c->row + 1;
    TRY(memory_source_find_candidates(w->source, w->hits,
                                      to->features + c->search * to->candidates * CANDIDATE_FEATURES, c->text->ids,
                                      c->row + 1, memory_window_vectors(w, c->text->ids, 1), exclude));
    while (found < to->candidates && w->hits[found].chunk >= 0)
        found++;
    *search = (struct memory_order_search){.found = found, .tokens = (int)c->rows};
    for (int first = 0; first < max_i64(found, 1); first += w->config.group)
        TRY(order_group(c, first));
    return STATUS_OK;
}

enum status memory_window_candidates(struct memory_window *w, struct memory_order_samples *to,
                                     const struct memory_window_text *text, const int64_t *at, int64_t searches) {
    struct store_range exclude;
    TRY(memory_window_trunk(w, text->ids, text->n, text->first));
    TRY(memory_source_document(w->source, &exclude, text->document));
    for (int64_t i = 0; i < searches; i++) {
        struct order_search c = {.w = w,
                                 .to = to,
                                 .text = text,
                                 .search = to->n,
                                 .row = at[i] - 1,
                                 .rows = min_i64(text->n - at[i], MEMORY_ORDER_TOKENS)};
        progress_step(w->config.progress, "candidates", "searches", i, searches);
        if (progress_stop_requested(w->config.progress)) return fail(STATUS_INTERRUPTED, "stopped in a window of text");
        TRY(order_search(&c, exclude));
        to->n++;
    }
    return STATUS_OK;
}
