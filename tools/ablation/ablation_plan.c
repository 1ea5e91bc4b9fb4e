/* ablation_plan.c -- see ablation_plan.h. */
#include "tools/ablation/ablation_plan.h"
#include "base/memory.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- sizes of texts -------------------------------------------------------------------------------------- */

/* Estimates the bytes of text in a file or folder. Compressed files count with a multiple of their size. */
static int64_t text_bytes(const char *path, int depth) {
    static const struct {
        const char *end;
        double factor;
    } packed[] = {{".xz", 3.8}, {".gz", 3.0}, {".zst", 3.2}, {".parquet", 2}, {".u16", 2}, {".u32", 1}};
    struct stat info;
    if (stat(path, &info) != 0) return 0;
    if (!S_ISDIR(info.st_mode)) {
        for (size_t i = 0; i < ARRAY_LEN(packed); i++) {
            size_t n = strlen(path), m = strlen(packed[i].end);
            if (n > m && strcmp(path + n - m, packed[i].end) == 0)
                return (int64_t)((double)info.st_size * packed[i].factor);
        }
        return info.st_size;
    }
    DIR *d = depth < 8 ? opendir(path) : NULL;
    int64_t sum = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char inner[FILE_PATH_MAX];
        if (e->d_name[0] != '.' && file_join(inner, path, e->d_name) == STATUS_OK) sum += text_bytes(inner, depth + 1);
    }
    if (d) closedir(d);
    return sum;
}

int64_t ablation_text_bytes(const char *path) {
    return text_bytes(path, 0);
}

static int64_t list_bytes(const struct object_list *list) {
    int64_t sum = 0;
    for (size_t i = 0; i < list->count; i++)
        sum += ablation_text_bytes(list->items[i]);
    return sum;
}

/* ---- stores and evaluations ------------------------------------------------------------------------------ */

/* Finds the store of a model. A view has the weights of another model, and a token memory reads only the tokens of a
 * store, so both use the other model's store. */
static enum status store_of(int *out, struct ablation_plan *plan, int model, enum ablation_how how,
                            enum ablation_store what) {
    if (plan->models[model].view_of >= 0) model = plan->models[model].view_of;
    if (how >= ABLATION_FIT || what == ABLATION_STORE_EXTERNAL) model = 0;
    for (*out = 0; *out < plan->n_stores; (*out)++)
        if (plan->stores[*out].model == model && plan->stores[*out].what == what) return STATUS_OK;
    if (plan->n_stores == ABLATION_STORES) return fail(STATUS_INVALID, "%s: too many stores", plan->config->path);
    struct ablation_store_use *s = &plan->stores[plan->n_stores++];
    char name[ABLATION_NAME];
    memcpy(name, plan->models[model].name, sizeof name);
    *s = (struct ablation_store_use){.model = model, .what = what};
    snprintf(s->name, sizeof s->name, "%.36s%s", name,
             what == ABLATION_STORE_OTHER      ? "-other"
             : what == ABLATION_STORE_EXTERNAL ? "-external"
                                               : "");
    return STATUS_OK;
}

static void score_name(struct ablation_score *s, const struct ablation_plan *plan) {
    static const char *const of_store[] = {"", "", "-other", "-external"};
    const char *model = plan->models[s->model].name;
    if (s->how >= ABLATION_FIT)
        snprintf(s->name, sizeof s->name, "memory-%.20s%s%s-every-%d", model, of_store[s->what],
                 s->how == ABLATION_FIT_GCA ? "-gca" : "", s->every);
    else
        snprintf(s->name, sizeof s->name, "score-%.24s%s%s", model, of_store[s->what],
                 s->how == ABLATION_LEXICAL ? "-bm25" : "");
}

static void score_mode(struct ablation_score *s, const char *mode) {
    for (int i = 0; i < s->n_modes; i++)
        if (strcmp(s->modes[i], mode) == 0) return;
    s->modes[s->n_modes++] = mode;
}

/* Finds the evaluation that has a row's figure. */
static enum status score_of(struct ablation_plan *plan, int row) {
    const struct ablation_row *r = &ablation_rows[row];
    const char *mode = r->mode ? r->mode : plan->config->variant_mode;
    struct ablation_score want = {.how = r->how, .what = r->store, .store = -1};
    TRY(ablation_model_of(&want.model, plan, r->model, r->value));
    if (want.how == ABLATION_PPL && !ablation_mode_reads_store(mode)) want.what = ABLATION_NO_STORE;
    /* at least one row of DRT reads a store, so one evaluation has all of DRT's modes */
    if (want.how == ABLATION_PPL && want.what == ABLATION_NO_STORE && want.model == 0) want.what = ABLATION_STORE;
    if (want.how >= ABLATION_FIT) want.every = r->every ? r->every : (int)plan->config->memory_every;
    int at = 0;
    while (at < plan->n_scores && (plan->scores[at].model != want.model || plan->scores[at].how != want.how ||
                                   plan->scores[at].what != want.what || plan->scores[at].every != want.every))
        at++;
    if (at == ABLATION_SCORES) return fail(STATUS_INVALID, "%s: too many evaluations", plan->config->path);
    if (at == plan->n_scores) {
        if (want.what != ABLATION_NO_STORE) TRY(store_of(&want.store, plan, want.model, want.how, want.what));
        score_name(&want, plan);
        plan->scores[plan->n_scores++] = want;
    }
    score_mode(&plan->scores[at], mode);
    plan->rows[row].score = at;
    plan->rows[row].mode = mode;
    return STATUS_OK;
}

static enum status plan_check(const struct ablation_plan *plan) {
    const struct ablation_config *c = plan->config;
    const struct ablation_model *drt = &plan->models[0];
    for (int i = 0; i < plan->n_models; i++)
        if (plan->models[i].config.vocab_size != drt->config.vocab_size ||
            plan->models[i].config.chunk !=
                (plan->models[i].config.base_lm ? plan->models[i].config.chunk : drt->config.chunk))
            return fail(STATUS_INVALID, "%s: models.%s has %d ids, models.drt %d: rows need the same tokenizer",
                        c->path, plan->models[i].name, plan->models[i].config.vocab_size, drt->config.vocab_size);
    for (int i = 0; i < plan->n_models; i++) {
        const struct ablation_model *m = &plan->models[i];
        if (m->training && plan->train_bytes < m->step_tokens)
            return fail(STATUS_INVALID,
                        "%s: train has about %lld bytes of text, and a step takes %lld tokens: give more "
                        "text, or lower training.sequences, length or accumulate",
                        c->path, (long long)plan->train_bytes, (long long)m->step_tokens);
    }
    if (drt->config.chunk > 0 && c->context <= 2 * drt->config.chunk)
        return fail(STATUS_INVALID, "%s: score.context is %lld: a window must have more than two chunks of %d tokens",
                    c->path, (long long)c->context, drt->config.chunk);
    return STATUS_OK;
}

enum status ablation_plan_make(struct ablation_plan *out, const struct ablation_config *config) {
    int drt;
    *out = (struct ablation_plan){.config = config};
    out->train_bytes = list_bytes(&config->train);
    out->other_bytes = list_bytes(&config->other);
    out->valid_bytes = list_bytes(&config->valid);
    TRY(ablation_model_of(&drt, out, ABLATION_DRT, 0)); /* the other models are made from this one */
    for (int row = 0; row < ABLATION_ROWS; row++) {
        out->rows[row].score = -1;
        if (config->selected[row]) TRY(score_of(out, row));
    }
    TRY(plan_check(out));
    return ablation_parts_make(out);
}

void ablation_plan_free(struct ablation_plan *plan) {
    for (int i = 0; i < plan->n_models; i++) {
        memory_free(plan->models[i].json);
        memory_free(plan->models[i].training);
    }
    for (size_t i = 0; i < plan->n_parts; i++) {
        object_list_free(&plan->parts[i].command);
        memory_free(plan->parts[i].spec);
    }
    memory_free(plan->parts);
    *plan = (struct ablation_plan){0};
}
