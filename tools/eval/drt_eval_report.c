/* drt_eval_report.c -- the tables as text. */
#include "tools/eval/drt_eval_parts.h"
#include "tools/eval/drt_eval_tokens.h"
#include "tools/shared/streams.h"

#include <math.h>

void eval_print_interval(struct ratio r, const char *number) {
    if (r.low > r.high) {
        printf("  %-21s", "(one document)");
        return;
    }
    char low[32], high[32], both[80];
    snprintf(low, sizeof low, number, r.low);
    snprintf(high, sizeof high, number, r.high);
    snprintf(both, sizeof both, "%s .. %s", low, high);
    printf("  %-21s", both);
}

static void print_files(const struct eval_result *r, const struct eval_options *o) {
    int64_t documents = 0, shorts = 0, stored = 0, skipped = 0, tokens = 0, bytes = 0;
    for (int i = 0; i < r->n_files; i++) {
        documents += r->files[i].documents;
        shorts += r->files[i].short_documents;
        stored += r->files[i].stored_documents;
        skipped += r->files[i].skipped_lines;
        tokens += r->files[i].tokens;
        bytes += r->files[i].bytes;
    }
    printf("scored     %lld tokens (%lld bytes of text) in %lld documents; %lld documents too short, left out\n",
           (long long)tokens, (long long)bytes, (long long)documents, (long long)shorts);
    if (skipped > 0) printf("skipped    %lld bad lines\n", (long long)skipped);
    if (stored > 0)
        printf("in store   %lld of the documents %s (--exclude %s)\n", (long long)stored,
               o->rule == EXCLUDE_NOTHING    ? "may find themselves: the figures of retrieval are too good"
               : o->rule == EXCLUDE_DOCUMENT ? "do not find themselves"
                                             : "do not find their own text near by",
               o->exclude);
}

static enum status print_by_file(const struct eval_result *r) {
    if (r->n_files < 2) return STATUS_OK;
    printf("\nperplexity by file\n");
    for (int mode = 0; mode < EVAL_PART_CORPUS; mode++)
        if (r->mode[mode]) printf("%13s ", eval_mode_names[mode]);
    printf("%11s %10s  file\n", "tokens", "documents");
    for (int i = 0; i < r->n_files; i++) {
        for (int mode = 0; mode < EVAL_PART_CORPUS; mode++) {
            struct ratio ratio = {0};
            if (!r->mode[mode]) continue;
            TRY(eval_figure(&ratio, r, i, mode, -1, EVAL_PER_TOKEN));
            if (r->files[i].tokens)
                printf("%13.3f ", exp(ratio.value));
            else
                printf("%13s ", "-");
        }
        streams_printf(stdout, "%11lld %10lld  %s\n", (long long)r->files[i].tokens, (long long)r->files[i].documents,
                       r->files[i].path);
    }
    return STATUS_OK;
}

static enum status print_modes(const struct eval_result *r) {
    printf("\n%-18s %11s  %-21s %10s  %-21s %9s\n", "mode", "perplexity", "95 % interval", "bits/byte", "95 % interval",
           "tokens/s");
    for (int mode = 0; mode < EVAL_MODES; mode++) {
        struct ratio nats = {0}, per_byte = {0};
        int64_t tokens = 0;
        if (!r->mode[mode]) continue;
        TRY(eval_figure(&nats, r, -1, mode, -1, EVAL_PER_TOKEN));
        TRY(eval_figure(&per_byte, r, -1, mode, -1, EVAL_PER_BYTE));
        for (int i = 0; i < r->n_files; i++)
            tokens += r->files[i].tokens;
        printf("%-18s %11.4f", eval_mode_names[mode], exp(nats.value));
        eval_print_interval(eval_map(nats, eval_to_perplexity), "%.3f");
        printf(" %10.4f", eval_to_bits(per_byte.value));
        eval_print_interval(eval_map(per_byte, eval_to_bits), "%.4f");
        printf(" %9.0f\n", r->seconds[mode] > 0 ? (double)tokens / r->seconds[mode] : 0);
    }
    return STATUS_OK;
}

static enum status print_pairs(const struct eval_result *r) {
    bool headed = false;
    for (size_t i = 0; i < EVAL_PAIRS; i++) {
        struct ratio nats = {0};
        if (!eval_has_pair(r, i)) continue;
        if (!headed)
            printf("\n%-34s %11s  95 %% interval (same positions, paired by document)\n", "difference", "perplexity");
        headed = true;
        TRY(eval_figure(&nats, r, -1, eval_pairs[i].a, eval_pairs[i].b, EVAL_PER_TOKEN));
        struct ratio percent = eval_map(nats, eval_to_percent);
        char pair[64];
        snprintf(pair, sizeof pair, "%-7s against %s", eval_mode_names[eval_pairs[i].a],
                 eval_mode_names[eval_pairs[i].b]);
        printf("%-34s %+10.2f %%", pair, percent.value);
        eval_print_interval(percent, "%+.2f %%");
        printf("\n");
    }
    return STATUS_OK;
}

static void print_memory(const struct eval_result *r) {
    const struct memory_config *c = r->memory;
    if (!c) return;
    printf("memory     ");
    if (r->memory_search.text[0]) {
        printf("chunks by %s\n           K %d", r->memory_search.text, c->k);
        if (c->order.candidates > 0) printf(" of %d candidates in a trained order", c->order.candidates);
        printf(", every %d tokens, span %d,%d, ", c->every, c->before, c->after);
    }
    printf("keys of layer %d%s%s", c->key_layer, r->memory_keys ? ", " : "", r->memory_keys ? r->memory_keys : "");
    if (r->memory_file[0]) streams_printf(stdout, "; gate of %s", r->memory_file);
    printf("\n");
}

static enum status eval_print_text(const struct eval_result *r, const struct engine *e, const struct eval_options *o) {
    if (r->partial) printf("PARTIAL    stopped by a signal: the figures are of what was scored until then\n");
    streams_printf(stdout, "model      %s\n", e->model.path);
    if (e->view)
        streams_printf(stdout, "store      %s: %lld chunks%s%s%s%s\n", o->store,
                       (long long)(e->info.chunks - e->info.dropped_chunks), e->searcher ? ", searched by " : "",
                       e->searched_by.text, o->encoder ? ", landmarks of " : "", o->encoder ? o->encoder : "");
    print_memory(r);
    for (int i = 0; i < o->base.count; i++)
        streams_printf(stdout, "%-10s %s\n", eval_mode_names[EVAL_BASE + i], o->base.items[i]);
    printf("windows    %lld tokens within a document, the first %lld of each read only\n", (long long)o->context,
           (long long)o->skip);
    print_files(r, o);
    eval_print_overlap(r);
    TRY(print_by_file(r));
    TRY(print_modes(r));
    TRY(print_pairs(r));
    TRY(eval_print_memory(r));
    printf("\nIntervals: ratio estimator over documents, Student's t.\n");
    return STATUS_OK;
}

enum status eval_report(const struct eval_result *r, const struct engine *e, const struct eval_options *o) {
    TRY((o->json ? eval_print_json : eval_print_text)(r, e, o));
    return o->plot ? eval_plot_parts(r, o->plot) : STATUS_OK;
}
