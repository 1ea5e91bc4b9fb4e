/* drt_eval_report.c -- sums over documents to perplexities, differences and their intervals; printed or as JSON. */
#include "base/json.h"
#include "base/memory.h"
#include "tools/drt_eval.h"

#include <math.h>
#include <stdlib.h>

/* ---- figures --------------------------------------------------------------------------------------------- */

enum per { PER_TOKEN, PER_BYTE };

/* Documents of one file (-1: all), mode a minus mode b (b < 0: a itself), in nats. */
static enum status figure(struct ratio *out, const struct eval_result *r, int file, int a, int b, enum per per) {
    double *above = NULL, *below = NULL;
    size_t n = 0;
    enum status status = memory_allocate((void **)&above, r->n_documents, sizeof *above);
    if (status == STATUS_OK) status = memory_allocate((void **)&below, r->n_documents, sizeof *below);
    for (size_t i = 0; status == STATUS_OK && i < r->n_documents; i++) {
        const struct eval_document *d = &r->documents[i];
        if (file >= 0 && d->file != file) continue;
        above[n] = d->nll[a] - (b >= 0 ? d->nll[b] : 0);
        below[n++] = (double)(per == PER_TOKEN ? d->tokens : d->bytes);
    }
    if (status == STATUS_OK) *out = ratio_of(above, below, n);
    memory_free(above);
    memory_free(below);
    return status;
}

static struct ratio map(struct ratio r, double (*f)(double)) {
    bool interval = r.low <= r.high;
    return (struct ratio){f(r.value), interval ? f(r.low) : 1, interval ? f(r.high) : 0};
}
static double to_perplexity(double nats) {
    return exp(nats);
}
static double to_percent(double nats) {
    return 100 * expm1(nats);
}
static double to_bits(double nats) {
    return nats / M_LN2;
}

/* The pairs of modes whose difference is shown. */
static const struct {
    enum eval_mode a, b;
} PAIRS[] = {
    {EVAL_SELF, EVAL_NONE},     {EVAL_CORPUS, EVAL_NONE}, {EVAL_BOTH, EVAL_NONE},   {EVAL_RANDOM, EVAL_NONE},
    {EVAL_CORPUS, EVAL_RANDOM}, {EVAL_BOTH, EVAL_SELF},   {EVAL_BOTH, EVAL_CORPUS},
};

static bool have_pair(const struct eval_result *r, size_t i) {
    return r->mode[PAIRS[i].a] && r->mode[PAIRS[i].b];
}

/* ---- text ------------------------------------------------------------------------------------------------ */

static void print_interval(struct ratio r, const char *number) {
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

static void print_files(const struct eval_result *r) {
    int64_t documents = 0, shorts = 0, tokens = 0, bytes = 0;
    for (int i = 0; i < r->n_files; i++) {
        documents += r->files[i].documents;
        shorts += r->files[i].short_documents;
        tokens += r->files[i].tokens;
    }
    for (size_t i = 0; i < r->n_documents; i++)
        bytes += r->documents[i].bytes;
    printf("scored     %lld tokens (%lld bytes of text) in %lld documents; %lld documents too short, left out\n",
           (long long)tokens, (long long)bytes, (long long)documents, (long long)shorts);
}

static enum status print_by_file(const struct eval_result *r) {
    if (r->n_files < 2) return STATUS_OK;
    printf("\nperplexity by file\n");
    for (int mode = 0; mode < EVAL_MODES; mode++)
        if (r->mode[mode]) printf("%9s ", eval_mode_names[mode]);
    printf("%11s %10s  file\n", "tokens", "documents");
    for (int i = 0; i < r->n_files; i++) {
        for (int mode = 0; mode < EVAL_MODES; mode++) {
            struct ratio ratio = {0};
            if (!r->mode[mode]) continue;
            TRY(figure(&ratio, r, i, mode, -1, PER_TOKEN));
            if (r->files[i].tokens)
                printf("%9.3f ", exp(ratio.value));
            else
                printf("%9s ", "-");
        }
        printf("%11lld %10lld  %s\n", (long long)r->files[i].tokens, (long long)r->files[i].documents,
               r->files[i].path);
    }
    return STATUS_OK;
}

static enum status print_modes(const struct eval_result *r) {
    printf("\n%-8s %11s  %-21s %10s  %-21s %9s\n", "mode", "perplexity", "95 % interval", "bits/byte", "95 % interval",
           "tokens/s");
    for (int mode = 0; mode < EVAL_MODES; mode++) {
        struct ratio nats = {0}, per_byte = {0};
        int64_t tokens = 0;
        if (!r->mode[mode]) continue;
        TRY(figure(&nats, r, -1, mode, -1, PER_TOKEN));
        TRY(figure(&per_byte, r, -1, mode, -1, PER_BYTE));
        for (int i = 0; i < r->n_files; i++)
            tokens += r->files[i].tokens;
        printf("%-8s %11.4f", eval_mode_names[mode], exp(nats.value));
        print_interval(map(nats, to_perplexity), "%.3f");
        printf(" %10.4f", to_bits(per_byte.value));
        print_interval(map(per_byte, to_bits), "%.4f");
        printf(" %9.0f\n", r->seconds[mode] > 0 ? (double)tokens / r->seconds[mode] : 0);
    }
    return STATUS_OK;
}

static enum status print_pairs(const struct eval_result *r) {
    bool headed = false;
    for (size_t i = 0; i < ARRAY_LEN(PAIRS); i++) {
        struct ratio nats = {0};
        if (!have_pair(r, i)) continue;
        if (!headed)
            printf("\n%-24s %11s  95 %% interval (same positions, paired by document)\n", "difference", "perplexity");
        headed = true;
        TRY(figure(&nats, r, -1, PAIRS[i].a, PAIRS[i].b, PER_TOKEN));
        struct ratio percent = map(nats, to_percent);
        printf("%-7s against %-8s %+10.2f %%", eval_mode_names[PAIRS[i].a], eval_mode_names[PAIRS[i].b], percent.value);
        print_interval(percent, "%+.2f %%");
        printf("\n");
    }
    return STATUS_OK;
}

static enum status print_text(const struct eval_result *r, const struct engine *e, const struct eval_options *o) {
    printf("model      %s\n", e->model.path);
    if (e->view)
        printf("store      %s: %lld chunks, index %s%s\n", o->store, (long long)e->info.chunks, e->info.index,
               o->exact ? " (not used: --exact)" : "");
    printf("windows    %lld tokens within a document, the first %lld of each read only\n", (long long)o->context,
           (long long)o->skip);
    print_files(r);
    TRY(print_by_file(r));
    TRY(print_modes(r));
    TRY(print_pairs(r));
    printf("\nIntervals: ratio estimator over documents, Student's t.\n");
    return STATUS_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------------------ */

static void put_int(struct json_writer *w, const char *key, int64_t value) {
    json_write_key(w, key);
    json_write_int(w, value);
}
static void put_text(struct json_writer *w, const char *key, const char *value) {
    json_write_key(w, key);
    if (value)
        json_write_string(w, value);
    else
        json_write_null(w);
}
static void put_ratio(struct json_writer *w, const char *key, struct ratio r) {
    json_write_key(w, key);
    json_write_double(w, r.value);
    json_write_key(w, key[0] == 'p' ? "perplexity_interval" : key[0] == 'b' ? "bits_per_byte_interval" : "interval");
    json_write_array(w);
    json_write_double(w, r.low > r.high ? NAN : r.low);
    json_write_double(w, r.low > r.high ? NAN : r.high);
    json_write_array_end(w);
}

static enum status write_modes(struct json_writer *w, const struct eval_result *r, int file) {
    json_write_key(w, "modes");
    json_write_object(w);
    for (int mode = 0; mode < EVAL_MODES; mode++) {
        struct ratio nats = {0}, per_byte = {0};
        if (!r->mode[mode]) continue;
        TRY(figure(&nats, r, file, mode, -1, PER_TOKEN));
        TRY(figure(&per_byte, r, file, mode, -1, PER_BYTE));
        json_write_key(w, eval_mode_names[mode]);
        json_write_object(w);
        put_ratio(w, "perplexity", map(nats, to_perplexity));
        put_ratio(w, "bits_per_byte", map(per_byte, to_bits));
        json_write_object_end(w);
    }
    json_write_object_end(w);
    return STATUS_OK;
}

static enum status write_pairs(struct json_writer *w, const struct eval_result *r) {
    json_write_key(w, "differences");
    json_write_array(w);
    for (size_t i = 0; i < ARRAY_LEN(PAIRS); i++) {
        struct ratio nats = {0};
        if (!have_pair(r, i)) continue;
        TRY(figure(&nats, r, -1, PAIRS[i].a, PAIRS[i].b, PER_TOKEN));
        json_write_object(w);
        put_text(w, "mode", eval_mode_names[PAIRS[i].a]);
        put_text(w, "against", eval_mode_names[PAIRS[i].b]);
        put_ratio(w, "difference_percent", map(nats, to_percent));
        json_write_object_end(w);
    }
    json_write_array_end(w);
    return STATUS_OK;
}

static enum status print_json(const struct eval_result *r, const struct engine *e, const struct eval_options *o) {
    struct json_writer w;
    json_write_open(&w, stdout, 0);
    json_write_object(&w);
    put_text(&w, "model", e->model.path);
    put_text(&w, "store", o->store);
    put_int(&w, "context", o->context);
    put_int(&w, "skip", o->skip);
    put_int(&w, "seed", o->seed);
    json_write_key(&w, "exact");
    json_write_bool(&w, o->exact);
    put_text(&w, "interval_method", "95 %, ratio estimator over documents, Student's t");
    json_write_key(&w, "files");
    json_write_array(&w);
    for (int i = 0; i < r->n_files; i++) {
        json_write_object(&w);
        put_text(&w, "file", r->files[i].path);
        put_int(&w, "documents", r->files[i].documents);
        put_int(&w, "documents_too_short", r->files[i].short_documents);
        put_int(&w, "tokens", r->files[i].tokens);
        TRY(write_modes(&w, r, i));
        json_write_object_end(&w);
    }
    json_write_array_end(&w);
    TRY(write_modes(&w, r, -1));
    TRY(write_pairs(&w, r));
    json_write_object_end(&w);
    printf("\n");
    return STATUS_OK;
}

enum status eval_print(const struct eval_result *r, const struct engine *e, const struct eval_options *o) {
    TRY(o->json ? print_json(r, e, o) : print_text(r, e, o));
    return fflush(stdout) != 0 || ferror(stdout) ? fail_errno("standard output") : STATUS_OK;
}
