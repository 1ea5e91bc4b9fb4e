/* drt_eval_samples.c -- see drt_eval_samples.h. Tables are tensors of int32; the setting and the names of texts are
 * metadata. */
#include "tools/eval/fit/drt_eval_samples.h"
#include "base/formats/json.h"
#include "base/formats/text.h"
#include "base/memory.h"
#include "session/memory_folder.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TABLES = 5, DOCUMENT_TABLES = 4, NAME = 32, SETTING = 1024 };
static const char *const table_names[TABLES] = {"doc.file", "doc.number", "doc.tokens", "doc.bytes", "run"};

/* Writes the setting that must be the same in all files, as one line of text. */
static void setting_text(char *out, size_t size, const struct memory_config *c) {
    char prints[65];
    for (size_t i = 0; i < 32; i++)
        snprintf(prints + 2 * i, 3, "%02x", i < 16 ? c->tokenizer[i] : c->weights[i - 16]);
    int n = snprintf(out, size, "%s %d %d %d %d %d", prints, c->key_layer, c->k, c->every, c->before, c->after);
    /* files that were written before there were other kinds, or an order, lack these */
    if (c->searcher != MEMORY_LEXICAL || c->order.candidates > 0)
        n += snprintf(out + n, size - (size_t)n, " %s", memory_searcher_names[c->searcher]);
    if (c->order.candidates == 0) return;
    n += snprintf(out + n, size - (size_t)n, " order %d", c->order.candidates);
    for (int i = 0; i < CANDIDATE_FEATURES; i++)
        n += snprintf(out + n, size - (size_t)n, " %.17g", c->order.weights[i]);
    assert((size_t)n < size);
}

/* Reads what follows the searcher: nothing, or the order. */
static bool setting_order(struct order_weights *order, const char *text) {
    int used = 0;
    *order = (struct order_weights){0};
    if (!*text) return true;
    if (sscanf(text, " order %d%n", &order->candidates, &used) != 1 || order->candidates < 1 ||
        order->candidates > MEMORY_CANDIDATES_MAX)
        return false;
    for (int i = 0; i < CANDIDATE_FEATURES; i++) {
        char *end;
        order->weights[i] = strtod(text + used, &end);
        if (end == text + used || !isfinite(order->weights[i])) return false;
        used = (int)(end - text);
    }
    return !text[used];
}

static bool setting_parse(struct memory_config *c, const char *text) {
    char searcher[16] = "lexical";
    int used = 0, more = 0;
    if (strlen(text) <= 64) return false;
    const char *numbers = text + 64;
    if (sscanf(numbers, " %d %d %d %d %d%n", &c->key_layer, &c->k, &c->every, &c->before, &c->after, &used) != 5)
        return false;
    if (numbers[used] && sscanf(numbers + used, " %15s%n", searcher, &more) != 1) return false;
    for (int i = 0; i < MEMORY_SEARCHERS; i++)
        if (strcmp(searcher, memory_searcher_names[i]) == 0) {
            c->searcher = (enum memory_searcher)i;
            return setting_order(&c->order, numbers + used + more);
        }
    return false;
}

/* ---- writing ---- */

static enum status metadata_text(char **text, const struct eval_result *r, const struct memory_config *config) {
    size_t bytes = 0;
    char setting[SETTING], name[NAME];
    FILE *f = text_stream_open(text, &bytes);
    if (!f) return fail(STATUS_NO_MEMORY, "no memory for the samples' metadata");
    struct json_writer w;
    setting_text(setting, sizeof setting, config);
    json_write_open(&w, f, 0);
    json_write_object(&w);
    json_write_key(&w, "setting");
    json_write_string(&w, setting);
    for (int i = 0; i < r->n_files; i++) {
        snprintf(name, sizeof name, "file%d", i);
        json_write_key(&w, name);
        json_write_string(&w, r->files[i].path);
    }
    json_write_object_end(&w);
    return fclose(f) == 0 ? STATUS_OK : fail(STATUS_NO_MEMORY, "no memory for the samples' metadata");
}

enum status eval_samples_keep(const struct eval_result *r, const struct memory_samples *samples,
                              const struct memory_config *config, const char *path) {
    int32_t *table[TABLES] = {0};
    struct tensor_view views[TABLES];
    char *metadata = NULL;
    enum status s = STATUS_OK;
    for (int i = 0; i < TABLES && s == STATUS_OK; i++) {
        int64_t n = i < DOCUMENT_TABLES ? (int64_t)r->n_documents : r->tokens.n;
        s = memory_allocate(&table[i], (size_t)n);
        views[i] = (struct tensor_view){table_names[i], SAFETENSORS_I32, 1, {n}, table[i], n};
    }
    for (size_t d = 0; d < r->n_documents && s == STATUS_OK; d++) {
        const struct eval_document *from = &r->documents[d];
        const int64_t values[DOCUMENT_TABLES] = {from->file, from->number, from->tokens, from->bytes};
        for (int i = 0; i < DOCUMENT_TABLES; i++)
            table[i][d] = (int32_t)values[i];
    }
    for (int64_t i = 0; i < r->tokens.n && s == STATUS_OK; i++)
        table[DOCUMENT_TABLES][i] = r->tokens.run[i];
    if (s == STATUS_OK) s = metadata_text(&metadata, r, config);
    if (s == STATUS_OK)
        s = memory_samples_save(samples, path, views, r->tokens.runs_known ? TABLES : DOCUMENT_TABLES, metadata);
    for (int i = 0; i < TABLES; i++)
        memory_free(table[i]);
    free(metadata);
    return s;
}

/* ---- reading ---- */

static enum status bad_file(const struct safetensors *f, const char *what) {
    return fail(STATUS_INVALID, "%s: %s: collect the samples again with drt-eval fit-memory --keep",
                safetensors_path(f), what);
}

/* *out is NULL if the file has no such table. */
static enum status table_read(int32_t **out, int64_t *n, const struct safetensors *f, const char *name) {
    const struct tensor_view *t = safetensors_find(f, name);
    *out = NULL;
    *n = t ? t->count : 0;
    if (!t) return STATUS_OK;
    TRY(memory_allocate(out, (size_t)t->count));
    return safetensors_to_i32(*out, t);
}

static enum status check_tables(const struct safetensors *f, int32_t *const table[TABLES], const int64_t n[TABLES],
                                const struct memory_samples *s) {
    int64_t tokens = 0;
    for (int i = 0; i < DOCUMENT_TABLES; i++)
        if (!table[i] || n[i] != n[0]) return bad_file(f, "has no table of documents");
    if (table[DOCUMENT_TABLES] && n[DOCUMENT_TABLES] != s->n) return bad_file(f, "has not one run a token");
    for (int64_t d = 0, at = 0; d < n[0]; d++) {
        if (table[2][d] < 1 || table[0][d] < 0 || table[0][d] >= 64) return bad_file(f, "has an impossible document");
        for (tokens += table[2][d]; at < s->n && at < tokens; at++)
            if (s->document[at] != d) return bad_file(f, "has tokens out of order");
    }
    for (int64_t i = 0; table[DOCUMENT_TABLES] && i < s->n; i++)
        if (table[DOCUMENT_TABLES][i] < 0 || table[DOCUMENT_TABLES][i] >= EVAL_RUN_CLASSES)
            return bad_file(f, "has an impossible run");
    return tokens == s->n && s->n > 0 ? STATUS_OK : bad_file(f, "has not the tokens of its documents");
}

/* Finds the result's number of text `local` of the file. Texts are matched by name, so several files may have
 * parts of one text. */
static enum status text_number(int *out, struct eval_result *r, const struct safetensors *f, int local) {
    char key[NAME];
    snprintf(key, sizeof key, "file%d", local);
    const char *path = safetensors_metadata(f, key);
    if (!path) path = safetensors_path(f);
    for (*out = 0; *out < r->n_files; ++*out)
        if (strcmp(r->files[*out].path, path) == 0) return STATUS_OK;
    if (r->n_files == (int)ARRAY_LEN(r->files)) return bad_file(f, "has more texts than fit into one report");
    r->files[r->n_files] = (struct eval_file){0};
    TRY(memory_copy_string(&r->names[r->n_files], path));
    r->files[r->n_files].path = r->names[r->n_files];
    r->n_files++;
    return STATUS_OK;
}

/* Adds the documents and texts of one file to the result. */
static enum status result_add(struct eval_result *r, const struct safetensors *f, int32_t *const table[TABLES],
                              const int64_t n[TABLES]) {
    const size_t first = r->n_documents;
    TRY(memory_grow(&r->documents, &r->capacity, first + (size_t)n[0]));
    for (int64_t d = 0; d < n[0]; d++) {
        int file;
        TRY(text_number(&file, r, f, table[0][d]));
        struct eval_document *to = &r->documents[r->n_documents];
        *to = (struct eval_document){.file = file, .number = table[1][d], .tokens = table[2][d], .bytes = table[3][d]};
        r->files[file].documents++;
        r->files[file].tokens += to->tokens;
        r->files[file].bytes += to->bytes;
        int64_t token;
        TRY(eval_tokens_add(&r->tokens, r->mode, to->tokens, (int32_t)r->n_documents, &token));
        r->n_documents++;
    }
    int64_t runs = table[DOCUMENT_TABLES] ? n[DOCUMENT_TABLES] : 0;
    for (int64_t i = 0; i < runs; i++)
        r->tokens.run[r->tokens.n - runs + i] = (uint8_t)table[DOCUMENT_TABLES][i];
    r->tokens.runs_known = runs > 0 && (first == 0 || r->tokens.runs_known);
    return STATUS_OK;
}

static enum status file_load(struct eval_result *r, struct memory_samples *all, const struct safetensors *f) {
    struct memory_samples s = {0};
    int32_t *table[TABLES] = {0};
    int64_t n[TABLES] = {0};
    const int32_t first = (int32_t)r->n_documents;
    enum status status = memory_samples_load(&s, f);
    for (int i = 0; i < TABLES && status == STATUS_OK; i++)
        status = table_read(&table[i], &n[i], f, table_names[i]);
    if (status == STATUS_OK) status = check_tables(f, table, n, &s);
    if (status == STATUS_OK && all->n > 0 && memcmp(all->has, s.has, sizeof s.has) != 0)
        status = bad_file(f, "has other memories than the file before it");
    if (status == STATUS_OK) status = result_add(r, f, table, n);
    if (status == STATUS_OK) status = memory_samples_append(all, &s, first);
    for (int i = 0; i < TABLES; i++)
        memory_free(table[i]);
    memory_samples_free(&s);
    return status;
}

enum status eval_samples_load(struct eval_result *r, struct memory_samples *samples, struct memory_config *config,
                              const struct model_folder *model, const struct arg_strings *paths) {
    char wanted[SETTING] = "";
    enum status status = STATUS_OK;
    for (int i = 0; i < paths->count && status == STATUS_OK; i++) {
        struct safetensors *f = NULL;
        TRY(safetensors_open(&f, paths->items[i]));
        const char *setting = safetensors_metadata(f, "setting");
        if (!setting || !setting_parse(config, setting)) status = bad_file(f, "does not name its setting");
        if (status == STATUS_OK && i == 0) {
            memory_folder_sign(config, model);
            setting_text(wanted, sizeof wanted, config);
        }
        if (status == STATUS_OK && strcmp(setting, wanted) != 0)
            status = fail(STATUS_MISMATCH, "%s: was collected with another model than %s, or another setting than %s",
                          paths->items[i], model->path, paths->items[0]);
        if (status == STATUS_OK) status = file_load(r, samples, f);
        safetensors_close(f);
    }
    return status;
}

enum status eval_samples_other(struct memory_samples *samples, const struct memory_config *config, const char *path) {
    char wanted[SETTING];
    struct memory_samples other = {0};
    struct safetensors *f = NULL;
    enum status status;
    TRY(safetensors_open(&f, path));
    setting_text(wanted, sizeof wanted, config);
    const char *setting = safetensors_metadata(f, "setting");
    if (!setting || strcmp(setting, wanted) != 0) {
        status = fail(STATUS_MISMATCH,
                      "%s: was collected with another model or another setting: collect it again with "
                      "drt-eval fit-memory --keep, with the options of the other samples",
                      path);
        goto out;
    }
    TRY_GOTO(status, memory_samples_load(&other, f), out);
    status = memory_samples_other(samples, &other, path);
out:
    memory_samples_free(&other);
    safetensors_close(f);
    return status;
}
