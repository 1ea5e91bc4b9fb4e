/* drt_eval_overlap.c -- the overlap of the evaluated documents with the store (contamination; indexer/overlap.h). */
#include "base/formats/json.h"
#include "base/memory.h"
#include "data/readers/reader.h"
#include "indexer/build/indexer.h"
#include "tools/eval/drt_eval_run.h"
#include "tools/shared/streams.h"
#include <string.h>

/* Sums over all documents, or over those of one file. */
struct overlap_sum {
    int64_t documents, touched;             /* touched: documents with a 13-gram that the store has, too */
    int64_t tokens, grams, shared, covered; /* as in struct overlap_text */
    int64_t longest, longest_document;      /* index into r->documents; -1: no document */
};

static struct overlap_sum overlap_sum(const struct eval_result *r, int file) {
    struct overlap_sum sum = {.longest_document = -1};
    for (size_t i = 0; i < r->n_documents; i++) {
        if (file >= 0 && r->documents[i].file != file) continue;
        const struct overlap_text t = overlap_text(r->overlap, (int64_t)i);
        sum.documents++;
        sum.touched += t.shared > 0;
        sum.tokens += t.tokens;
        sum.grams += t.grams;
        sum.shared += t.shared;
        sum.covered += t.covered;
        if (sum.longest_document < 0 || t.longest > sum.longest) {
            sum.longest = t.longest;
            sum.longest_document = (int64_t)i;
        }
    }
    return sum;
}

static double eval_overlap_share(int64_t part, int64_t all) {
    return all > 0 ? (double)part / (double)all : 0.0;
}

void eval_print_overlap(const struct eval_result *r) {
    if (!r->overlap) return;
    const struct overlap_sum all = overlap_sum(r, -1);
    printf("overlap    %lld of %lld documents share %d tokens in a row with the store; of all %d-grams %.2f %%\n",
           (long long)all.touched, (long long)all.documents, OVERLAP_GRAM, OVERLAP_GRAM,
           100 * eval_overlap_share(all.shared, all.grams));
    for (int i = 0; i < r->n_files; i++) {
        const struct overlap_sum f = overlap_sum(r, i);
        if (f.longest_document < 0) continue;
        printf("           ");
        streams_printf(stdout, "%s: %.2f %%, longest shared run %lld tokens (document %lld)\n", r->files[i].path,
                       100 * eval_overlap_share(f.shared, f.grams), (long long)f.longest,
                       (long long)r->documents[f.longest_document].number);
    }
}

static void put_int(struct json_writer *w, const char *key, int64_t value) {
    json_write_key(w, key);
    json_write_int(w, value);
}

static void write_shares(struct json_writer *w, int64_t shared, int64_t grams, int64_t covered, int64_t tokens) {
    json_write_key(w, "shared_13_grams"), json_write_double(w, eval_overlap_share(shared, grams));
    json_write_key(w, "covered_tokens"), json_write_double(w, eval_overlap_share(covered, tokens));
}

void eval_write_overlap(struct json_writer *w, const struct eval_result *r) {
    json_write_key(w, "overlap");
    if (!r->overlap) {
        json_write_null(w);
        return;
    }
    const struct overlap_sum all = overlap_sum(r, -1);
    json_write_object(w);
    put_int(w, "documents_with_13_gram", all.touched);
    write_shares(w, all.shared, all.grams, all.covered, all.tokens);
    put_int(w, "longest_run", all.longest);
    json_write_key(w, "documents");
    json_write_array(w);
    for (size_t i = 0; i < r->n_documents; i++) {
        const struct overlap_text t = overlap_text(r->overlap, (int64_t)i);
        json_write_object(w);
        put_int(w, "file", r->documents[i].file);
        put_int(w, "number", r->documents[i].number);
        put_int(w, "tokens", t.tokens);
        write_shares(w, t.shared, t.grams, t.covered, t.tokens);
        put_int(w, "longest_run", t.longest);
        json_write_object_end(w);
    }
    json_write_array_end(w);
    json_write_object_end(w);
}

enum status eval_add_overlap(struct eval_result *r, const int32_t *ids, int64_t n, int64_t stored) {
    if (!r->overlap) return STATUS_OK;
    TRY(overlap_add(r->overlap, NULL, ids, n));
    return stored >= 0 ? overlap_exclude(r->overlap, stored) : STATUS_OK;
}

enum status eval_find_overlap(struct eval_result *r, struct store_view *view, const struct progress *progress) {
    if (!r->overlap) return STATUS_OK;
    enum status s = r->partial ? STATUS_INTERRUPTED : overlap_find(r->overlap, view, progress);
    if (s == STATUS_OK) return STATUS_OK;
    overlap_free(r->overlap);
    r->overlap = NULL;
    /* all tokens are scored, so the report is printed without the overlap */
    return s == STATUS_INTERRUPTED ? STATUS_OK : s;
}

/* The scored tokens of two windows are never adjacent, because each window begins with a token that is not scored. */
enum status eval_find_runs(struct eval_result *r, int64_t first) {
    struct eval_tokens *t = &r->tokens;
    uint8_t *reach = NULL;
    size_t capacity = 0;
    enum status s = STATUS_OK;
    for (int64_t i = 0, n; i < t->n; i += n) {
        for (n = 1; i + n < t->n && t->run_at[i + n] == t->run_at[i] + n;)
            n++;
        TRY_GOTO(s, memory_grow(&reach, &capacity, (size_t)(first + n)), out);
        overlap_reach(r->overlap, reach, t->run_at[i] - first, first + n, eval_run_lengths, EVAL_RUN_CLASSES - 1);
        memcpy(t->run + i, reach + first, (size_t)n);
    }
    t->runs_known = true;
out:
    memory_free(reach);
    return s;
}

enum status eval_find_stored(int64_t *stored, struct eval_run *r, const struct document *document, const int32_t *ids,
                             size_t n) {
    uint8_t hash[16];
    struct document other = {.ids = (const uint32_t *)ids, .n_ids = n};
    indexer_document_hash(hash, document);
    TRY(store_view_find_document(r->engine->view, stored, hash));
    if (*stored >= 0) return STATUS_OK;
    if (document->ids) {
        other.ids = NULL;
        TRY(tokenizer_decode(r->engine->model.tokenizer, r->decoding, ids, n, false, &other.text, &other.bytes));
    }
    indexer_document_hash(hash, &other);
    return store_view_find_document(r->engine->view, stored, hash);
}
