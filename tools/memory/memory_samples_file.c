/* memory_samples_file.c -- samples as a safetensors file: a tensor for each array, and the tables that the caller adds.
 */
#include "base/formats/safetensors.h"
#include "base/memory.h"
#include "tools/memory/memory_samples.h"
#include <math.h>
#include <stdio.h>

static const char *const mark_names[MEMORY_MARKS] = {"nearest", "entries", "best", "kth", "mean"};
static const char *const column_names[MEMORY_COLUMNS] = {"log_p",  "lse",       "squares", "top",
                                                         "of_top", "lm_of_top", "token"};

enum {
    LM = 3,
    PER_READ = MEMORY_MARKS + MEMORY_TAUS * MEMORY_COLUMNS,
    FLOATS = LM + MEMORY_READS * PER_READ,
    NAME = 40
};

struct sample_arrays {
    float **data[FLOATS];
    char name[FLOATS][NAME];
    int n;
};

/* Lists the names and arrays of the tables that exist or will exist. */
static void arrays_list(struct sample_arrays *a, struct memory_samples *s) {
    float **lm[LM] = {&s->log_lm, &s->entropy, &s->largest};
    static const char *const lm_names[LM] = {"log_lm", "entropy", "largest"};
    a->n = 0;
    for (int i = 0; i < LM; i++) {
        snprintf(a->name[a->n], NAME, "%s", lm_names[i]);
        a->data[a->n++] = lm[i];
    }
    for (int r = 0; r < MEMORY_READS; r++) {
        if (!s->has[r]) continue;
        for (int i = 0; i < MEMORY_MARKS; i++) {
            snprintf(a->name[a->n], NAME, "%s.%s", memory_read_names[r], mark_names[i]);
            a->data[a->n++] = &s->of[r].mark[i];
        }
        for (int t = 0; t < MEMORY_TAUS; t++)
            for (int i = 0; i < MEMORY_COLUMNS; i++) {
                snprintf(a->name[a->n], NAME, "%s.%g.%s", memory_read_names[r], memory_taus[t], column_names[i]);
                a->data[a->n++] = &s->of[r].column[t][i];
            }
    }
}

enum status memory_samples_save(const struct memory_samples *s, const char *path, const struct tensor_view *more,
                                int n_more, const char *metadata_json) {
    struct memory_samples copy = *s;
    struct sample_arrays *a = NULL;
    struct tensor_view *views = NULL;
    int n = 0;
    enum status status;
    TRY_GOTO(status, memory_allocate(&a, 1), out);
    TRY_GOTO(status, memory_allocate_zero(&views, (size_t)(FLOATS + 1 + n_more)), out);
    arrays_list(a, &copy);
    views[n++] = (struct tensor_view){"document", SAFETENSORS_I32, 1, {s->n}, s->document, s->n};
    for (int i = 0; i < a->n; i++)
        views[n++] = (struct tensor_view){a->name[i], SAFETENSORS_F32, 1, {s->n}, *a->data[i], s->n};
    for (int i = 0; i < n_more; i++)
        views[n++] = more[i];
    status = safetensors_write(path, views, n, metadata_json);
out:
    memory_free(views);
    memory_free(a);
    return status;
}

/* Finds the tensor, which must have n elements. Otherwise an error names it. */
static enum status tensor_of(const struct tensor_view **out, const struct safetensors *file, const char *name,
                             int64_t n) {
    *out = safetensors_find(file, name);
    if (*out && (*out)->dims == 1 && (n < 0 || (*out)->count == n)) return STATUS_OK;
    return fail(STATUS_INVALID,
                "%s: the tensor %s is missing or has another size: collect the samples again with "
                "drt-eval fit-memory --keep",
                safetensors_path(file), name);
}

/* Infinities are valid, because a memory without the token gives them. A NaN is refused, because the
 * fit would be NaN. */
static enum status check_numbers(const struct safetensors *file, const char *name, const float *values, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (isnan(values[i]))
            return fail(STATUS_INVALID,
                        "%s: number %lld of %s is NaN: collect the samples again with drt-eval "
                        "fit-memory --keep",
                        safetensors_path(file), (long long)i, name);
    return STATUS_OK;
}

enum status memory_samples_load(struct memory_samples *s, const struct safetensors *file) {
    const struct tensor_view *t;
    struct sample_arrays *a = NULL;
    char name[NAME];
    TRY(tensor_of(&t, file, "document", -1));
    *s = (struct memory_samples){.n = t->count};
    for (int r = 0; r < MEMORY_READS; r++) {
        snprintf(name, sizeof name, "%s.%s", memory_read_names[r], mark_names[0]);
        s->has[r] = safetensors_find(file, name) != NULL;
    }
    TRY(memory_samples_reserve(s, s->n));
    TRY(safetensors_to_i32(s->document, t));
    enum status status = memory_allocate(&a, 1);
    if (status == STATUS_OK) arrays_list(a, s);
    for (int i = 0; status == STATUS_OK && i < a->n; i++) {
        status = tensor_of(&t, file, a->name[i], s->n);
        if (status == STATUS_OK) status = safetensors_to_f32(*a->data[i], t);
        if (status == STATUS_OK) status = check_numbers(file, a->name[i], *a->data[i], s->n);
    }
    memory_free(a);
    return status;
}
