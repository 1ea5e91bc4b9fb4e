/* trace.c -- keeps the neighbours that the decoder reports until the chunk that read them is complete. Then it looks up
 * documents and texts, and passes one record to every sink. */
#include "tools/trace/trace.h"
#include "base/arena.h"
#include "base/memory.h"
#include "session/memory_text.h"

#include <string.h>

struct list_head {
    int64_t chunk;
    int group, first, count;
}; /* the list that the query of `chunk` found: entries[first..] */
struct entry {
    float weight, score;
    int64_t id;
    int16_t offset; /* as in struct neighbours */
    int8_t source;
};

/* A token of the next record, and the entries that contributed to it: contributors[first..]. */
struct given {
    int64_t position, begin, end; /* position in the text; range of characters in the chunk's text */
    float share;
    int first, count;
};

struct trace {
    struct trace_config config;
    struct tokenizer_scratch *scratch;
    struct tokenizer_stream stream;
    int32_t *ids;
    size_t n_ids, ids_capacity; /* ids of the whole running text, because its own chunks can be neighbours */
    size_t n_prompt;
    int64_t next; /* number of the next chunk to be recorded */
    char *text;
    size_t text_bytes, prompt_text_bytes, text_capacity; /* lengths of that chunk's text */
    struct list_head *lists;
    size_t n_lists, lists_capacity;
    struct entry *entries;
    size_t n_entries, entries_capacity;
    struct given *given; /* tokens of the next record, and the next id */
    size_t n_given, given_capacity;
    struct memory_contributor *contributors;
    size_t n_contributors, contributors_capacity;
    bool awaited;        /* whether the last of `given` is for an id that was not added yet */
    struct arena *arena; /* memory of one record */
    int32_t *chunk_ids;
    enum status failed; /* a failure of the watch function, which cannot return it */
};

enum status trace_create(struct trace **out, const struct trace_config *config) {
    struct trace *t = NULL;
    enum status status = memory_allocate_zero(&t, 1);
    if (status != STATUS_OK) {
        for (int i = 0; i < config->n_sinks; i++)
            (void)config->sinks[i]->end(config->sinks[i], false);
        return status;
    }
    t->config = *config;
    TRY_GOTO(status, tokenizer_scratch_create(&t->scratch, config->tokenizer), out);
    TRY_GOTO(status, arena_create(&t->arena, 1 << 16), out);
    TRY_GOTO(status, memory_allocate(&t->chunk_ids, (size_t)config->chunk), out);
    tokenizer_stream_start(&t->stream, false);
    *out = t;
    return STATUS_OK;
out:
    (void)trace_end(t, false);
    return status;
}

/* ---- watching ------------------------------------------------------------------------------------------- */

static enum status keep_list(struct trace *t, int group, int64_t chunk, const struct neighbours *n, int64_t row) {
    TRY(memory_grow(&t->lists, &t->lists_capacity, t->n_lists + 1));
    TRY(memory_grow(&t->entries, &t->entries_capacity, t->n_entries + (size_t)n->k));
    struct list_head *list = &t->lists[t->n_lists++];
    *list = (struct list_head){.chunk = chunk, .group = group, .first = (int)t->n_entries};
    for (int64_t i = row * n->k; i < (row + 1) * n->k; i++) {
        if (n->source[i] == NEIGHBOUR_NONE || n->id[i] < 0) continue;
        t->entries[t->n_entries++] =
            (struct entry){n->weight[i], n->score[i], n->id[i], n->offset ? n->offset[i] : 0, n->source[i]};
        list->count++;
    }
    return STATUS_OK;
}

static void on_retrieval(void *context, int group, int64_t first_chunk, const struct neighbours *neighbours) {
    struct trace *t = context;
    for (int64_t row = 0; row < neighbours->n && t->failed == STATUS_OK; row++)
        t->failed = keep_list(t, group, first_chunk + row, neighbours, row);
}

struct decoder_watch trace_watch(struct trace *t) {
    return (struct decoder_watch){.context = t, .retrieval = on_retrieval};
}

/* ---- records -------------------------------------------------------------------------------------------- */

static enum status keep_text(struct trace *t, const char **out, const char *text, size_t bytes) {
    char *copy = NULL;
    TRY(arena_push(t->arena, &copy, bytes + 1));
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    *out = copy;
    return STATUS_OK;
}

static enum status keep_decoded(struct trace *t, struct trace_hit *hit, const int32_t *ids, int n) {
    const char *text = NULL;
    TRY(tokenizer_decode(t->config.tokenizer, t->scratch, ids, (size_t)n, false, &text, &hit->text_bytes));
    return keep_text(t, &hit->text, text, hit->text_bytes);
}

static enum status corpus_hit(struct trace *t, struct trace_hit *hit, int offset) {
    struct store_chunk chunk;
    struct store_document document;
    TRY(store_view_ids(t->config.view, &chunk, t->chunk_ids, hit->chunk, offset));
    /* A Base LM has no chunks of its own, so those of the store may be shorter than the trace's. */
    TRY(keep_decoded(t, hit, t->chunk_ids, chunk.n_tokens));
    TRY(store_view_document(t->config.view, &document, chunk.document));
    hit->document_id = document.id;
    hit->byte_offset = document.offset;
    hit->line = document.line;
    hit->token_offset = chunk.token_offset;
    TRY(keep_text(t, &hit->document, document.source, strlen(document.source)));
    return keep_text(t, &hit->key, document.key, strlen(document.key));
}

static enum status make_hit(struct trace *t, struct trace_hit *hit, const struct entry *entry) {
    *hit = (struct trace_hit){.source = entry->source,
                              .chunk = entry->id,
                              .document = "",
                              .key = "",
                              .document_id = -1,
                              .score = entry->score,
                              .weight = entry->weight};
    if (entry->source == NEIGHBOUR_CORPUS) return corpus_hit(t, hit, entry->offset);
    hit->token_offset = entry->id * t->config.chunk + entry->offset;
    int64_t rest = (int64_t)t->n_ids - hit->token_offset;
    return keep_decoded(t, hit, t->ids + hit->token_offset, rest < t->config.chunk ? (int)rest : t->config.chunk);
}

/* ---- token memory --------------------------------------------------------------------------------------- */

static int64_t trace_characters(const char *text, size_t bytes) {
    int64_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

enum status trace_memory(struct trace *t, double share, const struct memory_contributor *from, int n) {
    TRY(memory_grow(&t->given, &t->given_capacity, t->n_given + 1));
    TRY(memory_grow(&t->contributors, &t->contributors_capacity, t->n_contributors + (size_t)n));
    t->n_given -= t->awaited; /* removes an entry whose id was never added */
    t->given[t->n_given++] = (struct given){
        .position = (int64_t)t->n_ids, .share = (float)share, .first = (int)t->n_contributors, .count = n};
    for (int i = 0; i < n; i++)
        t->contributors[t->n_contributors++] = from[i];
    t->awaited = true;
    return STATUS_OK;
}

/* Finds the passage of an entry among those of the record. It is added if it is new. */
static enum status find_passage(struct trace *t, int *out, struct trace_hit *passages, int *n,
                                const struct memory_contributor *from) {
    struct entry entry = {.id = from->own_past ? from->offset / t->config.chunk : from->chunk,
                          .source = from->own_past ? NEIGHBOUR_OWN_PAST : NEIGHBOUR_CORPUS};
    for (*out = 0; *out < *n; ++*out)
        if (passages[*out].chunk == entry.id && (int8_t)passages[*out].source == entry.source) return STATUS_OK;
    TRY(make_hit(t, &passages[*out], &entry));
    ++*n;
    return STATUS_OK;
}

/* Finds the characters of one token in its passage: the difference between the texts before and after it. */
static enum status find_token(struct trace *t, struct trace_part *part, const struct trace_hit *passage) {
    const int32_t *ids = t->ids + passage->token_offset;
    int64_t at = part->offset - passage->token_offset;
    struct store_chunk chunk;
    const char *text;
    size_t bytes;
    if (passage->source == NEIGHBOUR_CORPUS) {
        TRY(store_view_chunk(t->config.view, &chunk, t->chunk_ids, passage->chunk));
        ids = t->chunk_ids;
    }
    TRY(tokenizer_decode(t->config.tokenizer, t->scratch, ids, (size_t)at, false, &text, &bytes));
    part->begin = trace_characters(text, bytes);
    TRY(tokenizer_decode(t->config.tokenizer, t->scratch, ids, (size_t)at + 1, false, &text, &bytes));
    part->end = trace_characters(text, bytes);
    return STATUS_OK;
}

static enum status make_given(struct trace *t, struct trace_chunk *record) {
    struct trace_given *given = NULL;
    struct trace_hit *passages = NULL;
    if (t->n_given == 0) return STATUS_OK;
    TRY(arena_push(t->arena, &given, t->n_given));
    TRY(arena_push(t->arena, &passages, t->n_contributors + 1));
    for (size_t i = 0; i < t->n_given; i++) {
        const struct given *g = &t->given[i];
        struct trace_part *parts = NULL;
        if (g->position >= record->first_token + record->n_ids) break;
        TRY(arena_push(t->arena, &parts, (size_t)g->count + 1));
        for (int k = 0; k < g->count; k++) {
            const struct memory_contributor *from = &t->contributors[g->first + k];
            parts[k] = (struct trace_part){.offset = from->offset, .share = (float)from->share};
            TRY(find_passage(t, &parts[k].hit, passages, &record->n_passages, from));
            TRY(find_token(t, &parts[k], &passages[parts[k].hit]));
        }
        given[record->n_given++] =
            (struct trace_given){(int)(g->position - record->first_token), g->begin, g->end, g->share, parts, g->count};
    }
    record->given = given;
    record->passages = passages;
    t->n_given = t->n_contributors = 0;
    t->awaited = false;
    return STATUS_OK;
}

static enum status give_out(struct trace *t, int n_ids) {
    const int chunk = t->config.chunk;
    struct arena_mark mark = arena_mark(t->arena);
    struct trace_group *groups = NULL;
    TRY(arena_push_zero(t->arena, &groups, (size_t)t->config.groups));
    struct trace_chunk record = {.number = t->next,
                                 .first_token = t->next * chunk,
                                 .ids = t->ids + t->next * chunk,
                                 .n_ids = n_ids,
                                 .text = t->text ? t->text : "",
                                 .text_bytes = t->text_bytes,
                                 .prompt_text_bytes = t->prompt_text_bytes,
                                 .groups = groups,
                                 .n_groups = 0};
    if ((int64_t)t->n_prompt > record.first_token) {
        int64_t prompt = (int64_t)t->n_prompt - record.first_token;
        record.n_prompt = prompt < n_ids ? (int)prompt : n_ids;
    }
    for (size_t i = 0; i < t->n_lists; i++) {
        const struct list_head *list = &t->lists[i];
        if (list->chunk != t->next - 1) continue;
        struct trace_hit *hits = NULL;
        TRY(arena_push(t->arena, &hits, (size_t)list->count));
        for (int k = 0; k < list->count; k++)
            TRY(make_hit(t, &hits[k], &t->entries[list->first + k]));
        groups[list->group] = (struct trace_group){hits, list->count};
        if (list->group >= record.n_groups) record.n_groups = list->group + 1;
    }
    TRY(make_given(t, &record));
    for (int i = 0; i < t->config.n_sinks; i++)
        TRY(t->config.sinks[i]->chunk(t->config.sinks[i], &record));
    arena_reset(t->arena, mark);
    t->next++;
    t->text_bytes = t->prompt_text_bytes = 0;
    return STATUS_OK;
}

/* A list is kept until the record of the next chunk is written. */
static void drop_old_lists(struct trace *t) {
    size_t kept = 0, kept_entries = 0;
    for (size_t i = 0; i < t->n_lists; i++) {
        struct list_head list = t->lists[i];
        if (list.chunk < t->next - 1) continue;
        memmove(t->entries + kept_entries, t->entries + list.first, (size_t)list.count * sizeof *t->entries);
        list.first = (int)kept_entries;
        kept_entries += (size_t)list.count;
        t->lists[kept++] = list;
    }
    t->n_lists = kept;
    t->n_entries = kept_entries;
}

static enum status add_text(struct trace *t, const char *text, size_t bytes) {
    TRY(memory_grow(&t->text, &t->text_capacity, t->text_bytes + bytes));
    if (bytes) memcpy(t->text + t->text_bytes, text, bytes);
    t->text_bytes += bytes;
    return STATUS_OK;
}

enum status trace_tokens(struct trace *t, const int32_t *ids, int64_t n, bool prompt) {
    if (t->failed != STATUS_OK) return t->failed;
    TRY(memory_grow(&t->ids, &t->ids_capacity, t->n_ids + (size_t)n));
    if (n > 0) memcpy(t->ids + t->n_ids, ids, (size_t)n * sizeof *ids);
    if (prompt) t->n_prompt += (size_t)n;
    for (int64_t i = 0; i < n; i++) {
        const char *text = "";
        size_t bytes = 0;
        TRY(tokenizer_stream_push(t->config.tokenizer, &t->stream, t->scratch, ids[i], &text, &bytes));
        struct given *given = t->awaited ? &t->given[t->n_given - 1] : NULL;
        if (given) given->begin = trace_characters(t->text, t->text_bytes);
        TRY(add_text(t, text, bytes));
        if (given) given->end = trace_characters(t->text, t->text_bytes);
        t->awaited = false;
        if (prompt) t->prompt_text_bytes = t->text_bytes;
        t->n_ids++;
        if (t->n_ids % (size_t)t->config.chunk == 0) TRY(give_out(t, t->config.chunk));
    }
    drop_old_lists(t);
    return STATUS_OK;
}

enum status trace_end(struct trace *t, bool keep) {
    if (!t) return STATUS_OK;
    enum status status = keep ? t->failed : STATUS_OK;
    if (keep && status == STATUS_OK) {
        const char *text = "";
        size_t bytes = 0;
        int rest = (int)(t->n_ids % (size_t)t->config.chunk);
        status = tokenizer_stream_flush(&t->stream, t->scratch, &text, &bytes);
        if (status == STATUS_OK && rest > 0) status = add_text(t, text, bytes);
        t->n_given -= t->awaited; /* removes an entry whose id was never added */
        if (status == STATUS_OK && rest > 0) status = give_out(t, rest);
    }
    for (int i = 0; i < t->config.n_sinks; i++) {
        enum status end = t->config.sinks[i]->end(t->config.sinks[i], keep && status == STATUS_OK);
        if (status == STATUS_OK) status = end;
    }
    tokenizer_scratch_free(t->scratch);
    arena_free(t->arena);
    memory_free(t->chunk_ids);
    memory_free(t->ids);
    memory_free(t->text);
    memory_free(t->lists);
    memory_free(t->entries);
    memory_free(t->given);
    memory_free(t->contributors);
    memory_free(t);
    return status;
}
