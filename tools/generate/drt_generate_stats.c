/* drt_generate_stats.c -- prints the times of decoder and retriever as one table. Also the output of the text. */
#include "base/memory.h"
#include "tools/generate/drt_generate.h"
#include "tools/shared/progress_line.h"

struct generate_times generate_times_take(struct generation *g, struct generate_sums *last, double seconds,
                                          int64_t tokens) {
    const struct decoder_times decoder = decoder_state_times(generation_state(g), true);
    const struct retriever *retriever = generation_retriever(g);
    const struct memory_text *memory = generation_memory(g);
    struct generate_sums now = {0};
    if (retriever) now.retriever = chunk_retriever_times(retriever);
    if (memory) now.memory = memory_text_times(memory);
    const struct chunk_retriever_times *r = &now.retriever, *old = &last->retriever;
    const struct memory_text_times *m = &now.memory, *before = &last->memory;
    const struct generate_times t = {.total = seconds,
                                     .layers = decoder.layers,
                                     .query = decoder.query,
                                     .fuse = decoder.fuse,
                                     .head = decoder.head,
                                     .search = r->search - old->search + m->find - before->find,
                                     .read = r->read - old->read,
                                     .encode = r->encode - old->encode + m->encode - before->encode,
                                     .mix = m->mix - before->mix,
                                     .tokens = tokens,
                                     .queries = r->queries - old->queries + m->queries - before->queries,
                                     .cache_hits = r->cache_hits - old->cache_hits,
                                     .cache_misses = r->cache_misses - old->cache_misses + m->encoded - before->encoded,
                                     .copied = m->copied - before->copied};
    *last = now;
    return t;
}

static void generate_stats_row(FILE *file, const char *name, double prompt, double generated, int64_t prompt_tokens,
                               int64_t generated_tokens) {
    fprintf(file, "  %-26s %9.3f s %9.3f ms   %9.3f s %9.3f ms\n", name, prompt,
            prompt_tokens ? 1e3 * prompt / (double)prompt_tokens : 0, generated,
            generated_tokens ? 1e3 * generated / (double)generated_tokens : 0);
}

static double generate_stats_rate(const struct generate_times *t) {
    return t->total > 0 ? (double)t->tokens / t->total : 0;
}

void generate_times_print(FILE *file, const char *searched_by, const struct generate_times *prompt,
                          const struct generate_times *generated) {
    const int64_t n = prompt->tokens, m = generated->tokens;
    const struct generate_times *both[2] = {prompt, generated};
    double other[2];
    for (int i = 0; i < 2; i++) {
        const struct generate_times *t = both[i];
        other[i] = t->total - t->layers - t->query - t->search - t->read - t->encode - t->fuse - t->head - t->mix;
    }
    fprintf(file, "\n  %-26s %11s %12s   %11s %12s\n", "time", "prompt", "a token", "generated", "a token");
    generate_stats_row(file, "decode (layers)", prompt->layers, generated->layers, n, m);
    generate_stats_row(file, "query", prompt->query, generated->query, n, m);
    generate_stats_row(file, "search", prompt->search, generated->search, n, m);
    generate_stats_row(file, "read chunks", prompt->read, generated->read, n, m);
    generate_stats_row(file, "re-encode chunks", prompt->encode, generated->encode, n, m);
    generate_stats_row(file, "fuse (cross-attention)", prompt->fuse, generated->fuse, n, m);
    generate_stats_row(file, "head", prompt->head, generated->head, n, m);
    generate_stats_row(file, "read and mix token memory", prompt->mix, generated->mix, n, m);
    generate_stats_row(file, "sample, print, the rest", other[0], other[1], n, m);
    generate_stats_row(file, "total", prompt->total, generated->total, n, m);
    char memory[32];
    if (searched_by[0]) fprintf(file, "  corpus searched by %s\n", searched_by);
    fprintf(file, "  prompt %lld tokens (%.1f/s), generated %lld tokens (%.1f/s)\n", (long long)n,
            generate_stats_rate(prompt), (long long)m, generate_stats_rate(generated));
    fprintf(file, "  queries %lld, encoded chunks found in the cache %lld, encoded anew %lld, ",
            (long long)(prompt->queries + generated->queries), (long long)(prompt->cache_hits + generated->cache_hits),
            (long long)(prompt->cache_misses + generated->cache_misses));
    if (prompt->copied + generated->copied > 0)
        fprintf(file, "passages with stored keys %lld, ", (long long)(prompt->copied + generated->copied));
    fprintf(file, "memory at peak %s\n", progress_bytes_text(memory, memory_resident_peak()));
}

/* ---- the text ---- */

enum status printer_put(struct printer *p, const char *text, size_t bytes) {
    if (bytes == 0) return STATUS_OK;
    if (fwrite(text, 1, bytes, p->file) != bytes || fflush(p->file) != 0) return fail_errno("standard output");
    p->ended = text[bytes - 1] == '\n';
    return STATUS_OK;
}

enum status printer_end(struct printer *p) {
    if (!p->ended && (fputc('\n', p->file) == EOF || fflush(p->file) != 0)) return fail_errno("standard output");
    return STATUS_OK;
}
