/* drt_eval_searches.c -- see drt_eval_searches.h. */
#include "tools/eval/fit/drt_eval_searches.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "tools/memory/memory_window.h"

enum { HELD_OUT = 5, FILES = 64 };

/* has: searches of the document; take: those that are selected; read: those of its windows that were read. */
struct searches_document {
    int64_t has, take, read;
    int file;
    bool held_out;
};
struct eval_searches {
    int64_t limit, counted;
    int candidates;
    bool selected;
    struct searches_document *documents;
    size_t n_documents, capacity;
    struct memory_order_samples samples;
    int64_t *at; /* of a window */
    size_t at_capacity;
};

enum status eval_searches_create(struct eval_searches **out, int64_t limit, int candidates) {
    TRY(memory_allocate_zero(out, 1));
    (*out)->limit = limit;
    (*out)->candidates = candidates;
    return STATUS_OK;
}

void eval_searches_free(struct eval_searches *s) {
    if (!s) return;
    memory_order_samples_free(&s->samples);
    memory_free(s->documents);
    memory_free(s->at);
    memory_free(s);
}

const struct memory_order_samples *eval_searches_samples(const struct eval_searches *s) {
    return &s->samples;
}
int64_t eval_searches_counted(const struct eval_searches *s) {
    return s->counted;
}

/* ---- the selection ---- */

/* Shares `limit` among n as equally as has[i] allows. What is left is spread evenly over those that have more. */
static void searches_share(int64_t *take, const int64_t *has, int64_t n, int64_t limit) {
    int64_t low = 0, high = limit + 1, rest = limit, more = 0, seen = 0;
    while (high - low > 1) { /* the most that all may take */
        const int64_t level = low + (high - low) / 2;
        int64_t sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += min_i64(has[i], level);
        *(sum <= limit ? &low : &high) = level;
    }
    for (int64_t i = 0; i < n; i++) {
        take[i] = min_i64(has[i], low);
        rest -= take[i];
        more += has[i] > low;
    }
    for (int64_t i = 0; i < n && rest < more; i++) {
        if (has[i] <= low) continue;
        take[i] += (seen + 1) * rest / more > seen * rest / more;
        seen++;
    }
}

static enum status documents_share(struct eval_searches *s, int file, int64_t limit) {
    int64_t *numbers = NULL, n = 0, held = 0;
    TRY(memory_allocate(&numbers, 2 * s->n_documents));
    int64_t *has = numbers, *take = numbers + s->n_documents;
    for (size_t d = 0; d < s->n_documents; d++)
        if (s->documents[d].file == file) has[n++] = s->documents[d].has;
    searches_share(take, has, n, limit);
    n = 0;
    for (size_t d = 0; d < s->n_documents; d++) {
        struct searches_document *to = &s->documents[d];
        if (to->file != file) continue;
        to->take = take[n++];
        if (to->take > 0) to->held_out = ++held % HELD_OUT == 0;
    }
    memory_free(numbers);
    return STATUS_OK;
}

enum status eval_searches_select(struct eval_searches *s) {
    int64_t has[FILES] = {0}, take[FILES], all = 0;
    for (size_t d = 0; d < s->n_documents; d++)
        has[s->documents[d].file] += s->documents[d].has;
    searches_share(take, has, FILES, s->limit);
    for (int file = 0; file < FILES; file++) {
        if (has[file] > 0) TRY(documents_share(s, file, take[file]));
        all += take[file];
        s->counted += has[file];
    }
    s->selected = true;
    return memory_order_samples_create(&s->samples, all, s->candidates);
}

/* ---- the runs ---- */

enum status eval_searches_prepare(struct eval_run *r) {
    const struct eval_engines *e = r->engines;
    const struct memory_window_config config = {.engine = r->engine,
                                                .memory = &e->memory,
                                                .finder = memory_search_finder(e->search),
                                                .context = r->options->context,
                                                .past = 1,
                                                .progress = &r->in_window,
                                                .candidates = e->searches->candidates};
    if (!e->searches->selected) return STATUS_OK;
    r->reads[0] = (struct memory_read){
        .what = MEMORY_READ_FOUND, .taus = 1, .tau = {(float)e->memory.mixture[MEMORY_CORPUS].tau[MEMORY_CORPUS]}};
    return memory_window_create(&r->memory, &config, r->reads, 1);
}

/* Lists the selected searches among the document's numbers d->read .. end-1. */
static enum status window_list(struct eval_searches *s, const struct searches_document *d, int64_t end, int64_t first,
                               int64_t *listed) {
    *listed = 0;
    TRY(memory_grow(&s->at, &s->at_capacity, (size_t)(end - d->read)));
    for (int64_t j = 0; j < d->take; j++) {
        const int64_t number = (2 * j + 1) * d->has / (2 * d->take);
        if (number >= d->read && number < end) s->at[(*listed)++] = first + (number - d->read) * MEMORY_ORDER_TOKENS;
    }
    return STATUS_OK;
}

enum status eval_searches_window(struct eval_run *r, const int32_t *ids, int64_t n, int64_t first) {
    struct eval_searches *s = r->engines->searches;
    const size_t document = r->result->n_documents;
    const int64_t searches = (n - first + MEMORY_ORDER_TOKENS - 1) / MEMORY_ORDER_TOKENS, begin = s->samples.n;
    if (!s->selected) {
        TRY(memory_grow(&s->documents, &s->capacity, document + 1));
        if (document == s->n_documents)
            s->documents[s->n_documents++] = (struct searches_document){.file = r->result->n_files - 1};
        s->documents[document].has += searches;
        return STATUS_OK;
    }
    if (document >= s->n_documents) return fail(STATUS_INVALID, "the texts changed while they were read: start again");
    struct searches_document *d = &s->documents[document];
    const struct memory_window_text text = {ids, n, first, r->stored};
    int64_t listed;
    TRY(window_list(s, d, d->read + searches, first, &listed));
    d->read += searches;
    if (listed > 0) TRY(memory_window_candidates(r->memory, &s->samples, &text, s->at, listed));
    for (int64_t i = begin; i < s->samples.n; i++) {
        s->samples.search[i].file = d->file;
        s->samples.search[i].held_out = d->held_out;
    }
    return STATUS_OK;
}
