/* trace_json.c -- a trace as JSON lines: one object for each chunk of the running text. */
#include "base/file.h"
#include "base/formats/json.h"
#include "base/formats/text.h"
#include "base/memory.h"
#include "tools/trace/trace.h"

#include <stdlib.h>
#include <string.h>

static void put_int(struct json_writer *w, const char *key, int64_t value) {
    json_write_key(w, key);
    json_write_int(w, value);
}
static void put_double(struct json_writer *w, const char *key, double value) {
    json_write_key(w, key);
    json_write_double(w, value);
}
static void put_text(struct json_writer *w, const char *key, const char *text, size_t bytes) {
    json_write_key(w, key);
    json_write_bytes(w, text, bytes);
}

static int64_t trace_json_characters(const char *text, size_t bytes) {
    int64_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

/* Writes the members of both kinds of record. */
static void write_position(struct json_writer *w, const struct trace_hit *hit) {
    bool corpus = hit->source == NEIGHBOUR_CORPUS;
    put_text(w, "source", corpus ? "corpus" : "self", corpus ? 6 : 4);
    put_int(w, "chunk", hit->chunk);
    if (corpus) {
        put_text(w, "document", hit->document, strlen(hit->document));
        put_text(w, "key", hit->key, strlen(hit->key));
        put_int(w, "document_id", hit->document_id);
        put_int(w, "byte_offset", (int64_t)hit->byte_offset);
        put_int(w, "line", (int64_t)hit->line);
    }
    put_int(w, "offset", hit->token_offset);
}

static void write_hit(struct json_writer *w, const struct trace_hit *hit, int rank) {
    json_write_object(w);
    put_int(w, "rank", rank);
    write_position(w, hit);
    put_double(w, "score", (double)hit->score);
    put_double(w, "weight", (double)hit->weight);
    put_text(w, "text", hit->text, hit->text_bytes);
    json_write_object_end(w);
}

static void write_given(struct json_writer *w, const struct trace_given *g) {
    json_write_object(w);
    put_int(w, "token", g->token);
    put_int(w, "begin", g->begin);
    put_int(w, "end", g->end);
    put_double(w, "share", (double)g->share);
    json_write_key(w, "from");
    json_write_array(w);
    for (int i = 0; i < g->n_parts; i++) {
        const struct trace_part *part = &g->parts[i];
        json_write_object(w);
        put_int(w, "passage", part->hit);
        put_int(w, "offset", part->offset);
        put_int(w, "begin", part->begin);
        put_int(w, "end", part->end);
        put_double(w, "share", (double)part->share);
        json_write_object_end(w);
    }
    json_write_array_end(w);
    json_write_object_end(w);
}

/* Writes each passage once per record, because many tokens come from the same few passages. */
static void write_memory(struct json_writer *w, const struct trace_chunk *chunk) {
    json_write_key(w, "memory");
    json_write_array(w);
    for (int i = 0; i < chunk->n_given; i++)
        write_given(w, &chunk->given[i]);
    json_write_array_end(w);
    json_write_key(w, "passages");
    json_write_array(w);
    for (int i = 0; i < chunk->n_passages; i++) {
        const struct trace_hit *hit = &chunk->passages[i];
        json_write_object(w);
        write_position(w, hit);
        put_text(w, "text", hit->text, hit->text_bytes);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

void trace_write_json(struct json_writer *w, const struct trace_chunk *chunk) {
    json_write_object(w);
    put_int(w, "chunk", chunk->number);
    put_int(w, "first_token", chunk->first_token);
    put_int(w, "n_tokens", chunk->n_ids);
    put_int(w, "prompt_tokens", chunk->n_prompt);
    put_int(w, "prompt_characters", trace_json_characters(chunk->text, chunk->prompt_text_bytes));
    put_text(w, "text", chunk->text, chunk->text_bytes);
    json_write_key(w, "tokens");
    json_write_array(w);
    for (int i = 0; i < chunk->n_ids; i++)
        json_write_int(w, chunk->ids[i]);
    json_write_array_end(w);
    json_write_key(w, "groups");
    json_write_array(w);
    for (int g = 0; g < chunk->n_groups; g++) {
        json_write_object(w);
        put_int(w, "group", g);
        json_write_key(w, "retrieved");
        json_write_array(w);
        for (int i = 0; i < chunk->groups[g].n_hits; i++)
            write_hit(w, &chunk->groups[g].hits[i], i + 1);
        json_write_array_end(w);
        json_write_object_end(w);
    }
    json_write_array_end(w);
    if (chunk->n_given > 0) write_memory(w, chunk);
    json_write_object_end(w);
}

struct lines {
    struct trace_sink sink;
    struct file_writer *file;
};

static enum status lines_chunk(struct trace_sink *sink, const struct trace_chunk *chunk) {
    struct lines *l = (struct lines *)sink;
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = text_stream_open(&text, &bytes);
    if (!memory) return fail(STATUS_NO_MEMORY, "no memory for a line of the trace");
    struct json_writer w;
    json_write_open(&w, memory, 0);
    trace_write_json(&w, chunk);
    fputc('\n', memory);
    enum status status = fclose(memory) == 0 ? file_write(l->file, text, bytes)
                                             : fail(STATUS_NO_MEMORY, "no memory for a line of the trace");
    free(text);
    return status;
}

static enum status lines_end(struct trace_sink *sink, bool keep) {
    struct lines *l = (struct lines *)sink;
    enum status status = STATUS_OK;
    if (keep)
        status = file_publish(l->file);
    else
        file_discard(l->file);
    memory_free(l);
    return status;
}

static enum status trace_jsonl(struct trace_sink **out, const char *path) {
    struct lines *l = NULL;
    TRY(memory_allocate_zero(&l, 1));
    enum status status = file_create(&l->file, path);
    if (status != STATUS_OK) {
        memory_free(l);
        return status;
    }
    l->sink = (struct trace_sink){.chunk = lines_chunk, .end = lines_end};
    *out = &l->sink;
    return STATUS_OK;
}

enum status trace_sink_for(struct trace_sink **out, const char *path, const char *title) {
    size_t n = strlen(path);
    if (n > 6 && strcmp(path + n - 6, ".jsonl") == 0) return trace_jsonl(out, path);
    if (n > 5 && strcmp(path + n - 5, ".html") == 0) return trace_html(out, path, title);
    return fail(STATUS_INVALID, "--trace %s: the name must end in .jsonl (for programs) or .html (for a browser)",
                path);
}
