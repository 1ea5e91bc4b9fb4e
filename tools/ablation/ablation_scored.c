/* ablation_scored.c -- see ablation_scored.h. Members that no table needs are skipped. */
#include "tools/ablation/ablation_scored.h"
#include "base/file.h"
#include "base/formats/json.h"
#include "base/memory.h"
#include <string.h>

/* Reads the losses of the current document, whose index is n - 1. */
static enum status scored_losses(struct ablation_scored *s, struct json *j, const char *const *modes, int n_modes) {
    bool found[ABLATION_MODES] = {false};
    TRY(json_expect(j, JSON_OBJECT, "the losses of a document"));
    for (enum json_event e; (e = json_next(j)) != JSON_OBJECT_END;) {
        int mode = 0;
        if (e != JSON_KEY) return json_fail(j, "a mode");
        while (mode < n_modes && !json_equals(j, modes[mode]))
            mode++;
        if (mode == n_modes) {
            TRY(json_skip(j));
            continue;
        }
        TRY(memory_grow(&s->nll[mode], &s->nll_capacity[mode], s->n));
        TRY(json_next_double(j, &s->nll[mode][s->n - 1]));
        found[mode] = true;
    }
    for (int mode = 0; mode < n_modes; mode++)
        if (!found[mode]) return fail(STATUS_CORRUPT, "%s: has nothing of mode %s", j->name, modes[mode]);
    return STATUS_OK;
}

static enum status scored_document(struct ablation_scored *s, struct json *j, const char *const *modes, int n_modes) {
    struct ablation_document d = {.file = -1, .number = -1, .tokens = -1, .bytes = -1};
    int64_t file = -1;
    bool losses = false;
    TRY(memory_grow(&s->documents, &s->capacity, ++s->n));
    for (enum json_event e; (e = json_next(j)) != JSON_OBJECT_END;) {
        if (e != JSON_KEY) return json_fail(j, "a member of a document");
        if (json_equals(j, "in_file"))
            TRY(json_next_int(j, &file));
        else if (json_equals(j, "number"))
            TRY(json_next_int(j, &d.number));
        else if (json_equals(j, "scored_tokens"))
            TRY(json_next_int(j, &d.tokens));
        else if (json_equals(j, "scored_bytes"))
            TRY(json_next_int(j, &d.bytes));
        else if (json_equals(j, "nll")) {
            TRY(scored_losses(s, j, modes, n_modes));
            losses = true;
        } else
            TRY(json_skip(j));
    }
    if (!losses || file < 0 || file >= ABLATION_FILES_MAX || d.tokens < 1 || d.bytes < 0 || d.number < 0)
        return fail(STATUS_CORRUPT, "%s: document %zu lacks a member", j->name, s->n - 1);
    d.file = (int)file;
    s->documents[s->n - 1] = d;
    return STATUS_OK;
}

static enum status overlap_document(struct ablation_overlap *o, struct json *j) {
    for (enum json_event e; (e = json_next(j)) != JSON_OBJECT_END;) {
        if (e != JSON_KEY) return json_fail(j, "a member of a document's overlap");
        if (json_equals(j, "shared_13_grams"))
            TRY(json_next_double(j, &o->shared));
        else if (json_equals(j, "covered_tokens"))
            TRY(json_next_double(j, &o->covered));
        else if (json_equals(j, "longest_run"))
            TRY(json_next_int(j, &o->longest));
        else
            TRY(json_skip(j));
    }
    return STATUS_OK;
}

/* Reads the value of the key "overlap": null, or an object. */
static enum status scored_overlap(struct ablation_scored *s, struct json *j) {
    enum json_event e = json_next(j);
    if (e == JSON_NULL) return STATUS_OK;
    if (e != JSON_OBJECT) return json_fail(j, "an object or null");
    TRY(memory_allocate_zero(&s->overlap, s->n));
    size_t n = 0;
    while ((e = json_next(j)) != JSON_OBJECT_END) {
        if (e != JSON_KEY) return json_fail(j, "a key");
        if (!json_equals(j, "documents")) {
            TRY(json_skip(j));
            continue;
        }
        TRY(json_expect(j, JSON_ARRAY, "a list"));
        while ((e = json_next(j)) == JSON_OBJECT && n < s->n)
            TRY(overlap_document(&s->overlap[n++], j));
        if (e != JSON_ARRAY_END) return json_fail(j, "as many documents as were scored");
    }
    return n == s->n ? STATUS_OK : fail(STATUS_CORRUPT, "%s: has overlap of %zu of %zu documents", j->name, n, s->n);
}

static enum status scored_documents(struct ablation_scored *s, struct json *j, const char *const *modes, int n_modes) {
    TRY(json_expect(j, JSON_ARRAY, "a list of documents"));
    for (enum json_event e; (e = json_next(j)) != JSON_ARRAY_END;) {
        if (e != JSON_OBJECT) return json_fail(j, "a document");
        TRY(scored_document(s, j, modes, n_modes));
    }
    return STATUS_OK;
}

enum status ablation_scored_parse(struct ablation_scored *out, const char *name, const char *text, size_t bytes,
                                  const char *const *modes, int n_modes) {
    struct json j;
    *out = (struct ablation_scored){0};
    json_open(&j, name, text, bytes);
    TRY(json_expect(&j, JSON_OBJECT, "an object"));
    for (enum json_event e; (e = json_next(&j)) != JSON_OBJECT_END;) {
        bool partial = false;
        if (e != JSON_KEY) return json_fail(&j, "a key");
        if (json_equals(&j, "scored")) {
            if (out->n > 0) return json_fail(&j, "one list of scored documents");
            TRY(scored_documents(out, &j, modes, n_modes));
        } else if (json_equals(&j, "overlap")) {
            if (out->overlap) return json_fail(&j, "one object of overlap");
            TRY(scored_overlap(out, &j));
        } else if (json_equals(&j, "partial"))
            TRY(json_next_bool(&j, &partial));
        else
            TRY(json_skip(&j));
        if (partial) return fail(STATUS_CORRUPT, "%s: is of a part of the texts only: remove it and its record", name);
    }
    TRY(json_expect(&j, JSON_END, "the end of the file"));
    return out->n > 0 ? STATUS_OK : fail(STATUS_CORRUPT, "%s: has no scored documents", name);
}

enum status ablation_scored_read(struct ablation_scored *out, const char *path, const char *const *modes, int n_modes) {
    struct file_map map;
    *out = (struct ablation_scored){0};
    TRY(file_map(&map, path));
    enum status s = ablation_scored_parse(out, path, (const char *)map.data, map.size, modes, n_modes);
    file_unmap(&map);
    return s;
}

void ablation_scored_free(struct ablation_scored *s) {
    for (int mode = 0; mode < ABLATION_MODES; mode++)
        memory_free(s->nll[mode]);
    memory_free(s->documents);
    memory_free(s->overlap);
    *s = (struct ablation_scored){0};
}
