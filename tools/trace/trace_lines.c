/* trace_lines.c -- a trace as text: a few lines for each chunk that had a retrieval. */
#include "base/memory.h"
#include "tools/shared/streams.h"
#include "tools/trace/trace.h"

#include <limits.h>
#include <string.h>

enum { SNIPPET_CHARACTERS = 150 };
struct terminal {
    struct trace_sink sink;
    FILE *file;
    int most; /* the most chunks of a list that are printed */
};

static void print_place(FILE *file, const struct trace_hit *hit) {
    if (hit->source == NEIGHBOUR_CORPUS) {
        streams_print_line(file, hit->document, strlen(hit->document), INT_MAX);
        fputs(hit->key[0] ? " " : "", file);
        streams_print_line(file, hit->key, strlen(hit->key), INT_MAX);
    } else {
        fprintf(file, "this text, chunk %lld", (long long)hit->chunk);
    }
    fprintf(file, ", token %lld", (long long)hit->token_offset);
}

static enum status terminal_chunk(struct trace_sink *sink, const struct trace_chunk *chunk) {
    const struct terminal *t = (const struct terminal *)sink;
    FILE *file = t->file;
    for (int g = 0; g < chunk->n_groups; g++) {
        const struct trace_group *group = &chunk->groups[g];
        if (group->n_hits == 0) continue;
        fprintf(file, "\nchunk %lld (tokens %lld..%lld) read:", (long long)chunk->number, (long long)chunk->first_token,
                (long long)chunk->first_token + chunk->n_ids - 1);
        if (chunk->n_groups > 1) fprintf(file, "  [group %d]", g);
        fputc('\n', file);
        for (int i = 0; i < group->n_hits && i < t->most; i++) {
            const struct trace_hit *hit = &group->hits[i];
            fprintf(file, "  %d. weight %.3f  score %7.3f  ", i + 1, (double)hit->weight, (double)hit->score);
            print_place(file, hit);
            fputs("\n       ", file);
            streams_print_line(file, hit->text, hit->text_bytes, SNIPPET_CHARACTERS);
            fputc('\n', file);
        }
        if (group->n_hits > t->most) fprintf(file, "  and %d more\n", group->n_hits - t->most);
    }
    fflush(file);
    return STATUS_OK;
}

static enum status terminal_end(struct trace_sink *sink, bool keep) {
    (void)keep;
    memory_free(sink);
    return STATUS_OK;
}

enum status trace_lines(struct trace_sink **out, FILE *file, int most) {
    struct terminal *t = NULL;
    TRY(memory_allocate_zero(&t, 1));
    *t = (struct terminal){{terminal_chunk, terminal_end}, file, most};
    *out = &t->sink;
    return STATUS_OK;
}
