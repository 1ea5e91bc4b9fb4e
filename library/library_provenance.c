/* library_provenance.c -- the chunks that a running text reads: those that its retriever found for the last two chunks.
 *
 * The query at the end of chunk c finds the neighbours for the tokens of chunk c+1 (docs/model.md §7). The logits of a
 * position are computed from the id before it. */
#include "base/memory.h"
#include "library/library_internal.h"
#include <string.h>

enum { KEPT = 2 }; /* chunks: that of the current position, and the next one */

struct provenance_list {
    int64_t chunk; /* the chunk whose query found the neighbours; -1: none */
    int n;
    bool known; /* the documents were looked up */
};

struct library_provenance {
    int chunk, groups, k;
    struct provenance_list lists[KEPT];
    struct drt_neighbour *neighbours; /* [KEPT, groups * k] */
    int16_t *offsets;                 /* of the same shape: where in its chunk a neighbour begins */
};

enum status library_provenance_create(struct library_provenance **out, const struct model_config *model) {
    struct library_provenance *p = NULL;
    TRY(memory_allocate_zero(&p, 1));
    p->chunk = model->chunk;
    p->groups = model->groups;
    p->k = model->topk;
    const size_t n = KEPT * (size_t)p->groups * (size_t)p->k;
    enum status status = memory_allocate_zero(&p->neighbours, n);
    if (status == STATUS_OK) status = memory_allocate_zero(&p->offsets, n);
    if (status != STATUS_OK) {
        library_provenance_free(p);
        return status;
    }
    library_provenance_reset(p);
    *out = p;
    return STATUS_OK;
}

void library_provenance_free(struct library_provenance *p) {
    if (!p) return;
    memory_free(p->neighbours);
    memory_free(p->offsets);
    memory_free(p);
}

void library_provenance_reset(struct library_provenance *p) {
    for (int i = 0; i < KEPT; i++)
        p->lists[i] = (struct provenance_list){.chunk = -1};
}

static struct drt_neighbour *provenance_row(struct library_provenance *p, int64_t chunk) {
    return p->neighbours + (chunk % KEPT) * p->groups * p->k;
}

/* Keeps the neighbours of one group. Groups are retrieved in order. */
static void provenance_keep(struct library_provenance *p, int group, int64_t chunk, const struct neighbours *n,
                            int64_t row) {
    struct provenance_list *list = &p->lists[chunk % KEPT];
    struct drt_neighbour *to = provenance_row(p, chunk);
    if (list->chunk != chunk) *list = (struct provenance_list){.chunk = chunk};
    for (int64_t i = row * n->k; i < (row + 1) * n->k && list->n < p->groups * p->k; i++) {
        if (n->source[i] == NEIGHBOUR_NONE || n->id[i] < 0) continue;
        bool corpus = n->source[i] == NEIGHBOUR_CORPUS;
        const int16_t offset = n->offset ? n->offset[i] : 0;
        p->offsets[to - p->neighbours + list->n] = offset;
        to[list->n++] = (struct drt_neighbour){.source = corpus ? DRT_SOURCE_CORPUS : DRT_SOURCE_SELF,
                                               .group = group,
                                               .chunk = n->id[i],
                                               .document = -1,
                                               .token_offset = corpus ? -1 : n->id[i] * p->chunk + offset,
                                               .weight = n->weight[i],
                                               .score = n->score[i]};
    }
}

static void provenance_retrieval(void *context, int group, int64_t first_chunk, const struct neighbours *neighbours) {
    for (int64_t row = neighbours->n > KEPT ? neighbours->n - KEPT : 0; row < neighbours->n; row++)
        provenance_keep(context, group, first_chunk + row, neighbours, row);
}

struct decoder_watch library_provenance_watch(struct library_provenance *p) {
    return (struct decoder_watch){.context = p, .retrieval = provenance_retrieval};
}

static enum status provenance_documents(const struct library_provenance *p, struct provenance_list *list,
                                        struct drt_neighbour *neighbours, struct store_view *view) {
    struct store_chunk chunk;
    int32_t *ids = NULL;
    enum status status = STATUS_OK;
    TRY(memory_allocate(&ids, (size_t)p->chunk));
    for (int i = 0; i < list->n && status == STATUS_OK; i++) {
        if (neighbours[i].source != DRT_SOURCE_CORPUS) continue;
        status = store_view_chunk(view, &chunk, ids, neighbours[i].chunk);
        neighbours[i].document = chunk.document;
        neighbours[i].token_offset = chunk.token_offset + p->offsets[neighbours - p->neighbours + i];
    }
    memory_free(ids);
    list->known = status == STATUS_OK;
    return status;
}

enum status library_provenance_list(struct library_provenance *p, const struct drt_neighbour **list, int32_t *n,
                                    int64_t position, struct store_view *view) {
    const int64_t chunk = (position - 1) / p->chunk - 1;
    *n = 0;
    *list = NULL;
    if (position < 1 || chunk < 0) return STATUS_OK;
    struct provenance_list *kept = &p->lists[chunk % KEPT];
    struct drt_neighbour *row = provenance_row(p, chunk);
    if (kept->chunk != chunk) return STATUS_OK;
    if (!kept->known && view) TRY(provenance_documents(p, kept, row, view));
    *list = row;
    *n = kept->n;
    return STATUS_OK;
}
