/* ablation_parts.c -- the parts of a plan: commands of sibling programs, in order, with the inputs of each result. */
#include "base/crc32c.h"
#include "base/formats/text.h"
#include "base/memory.h"
#include "tools/ablation/ablation_plan.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parts_made {
    int tokenizer, train_tokens, valid_tokens, model[ABLATION_MODELS], store[ABLATION_STORES];
};

/* ---- commands -------------------------------------------------------------------------------------------- */

static enum status command_add(struct ablation_part *p, const char *first, ...) {
    va_list list;
    enum status s = STATUS_OK;
    va_start(list, first);
    for (const char *word = first; word && s == STATUS_OK; word = va_arg(list, const char *))
        s = object_list_add(&p->command, word);
    va_end(list);
    return s;
}

static enum status command_add_int(struct ablation_part *p, const char *option, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return command_add(p, option, text, NULL);
}

static enum status command_add_machine(struct ablation_part *p, const struct ablation_config *c, bool device) {
    if (device) TRY(command_add(p, "--device", c->device, NULL));
    return c->threads > 0 ? command_add_int(p, "--threads", c->threads) : STATUS_OK;
}

static enum status command_add_texts(struct ablation_part *p, const char *option, const struct object_list *texts) {
    for (size_t i = 0; i < texts->count; i++) {
        if (option) TRY(command_add(p, option, NULL));
        TRY(command_add(p, texts->items[i], NULL));
    }
    return STATUS_OK;
}

/* ---- one part -------------------------------------------------------------------------------------------- */

static enum status part_add(int *out, struct ablation_plan *plan, enum ablation_kind kind, const char *name, int of) {
    TRY(memory_grow(&plan->parts, &plan->capacity, plan->n_parts + 1));
    struct ablation_part *p = &plan->parts[plan->n_parts];
    *p = (struct ablation_part){.kind = kind, .of = of};
    snprintf(p->name, sizeof p->name, "%s", name);
    *out = (int)plan->n_parts++;
    return STATUS_OK;
}

static void part_after(struct ablation_part *p, int other) {
    if (other >= 0) p->after[p->n_after++] = other;
}

/* Writes the inputs of the result as text: the command, a training's config, the sizes of its texts, and a checksum of
 * the inputs of the parts before it. */
static enum status part_spec(struct ablation_plan *plan, int part, const char *config) {
    struct ablation_part *p = &plan->parts[part];
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = text_stream_open(&text, &bytes);
    if (!f) return fail(STATUS_NO_MEMORY, "no memory for part %s", p->name);
    for (size_t i = 0; i < p->command.count; i++) {
        const char *word = p->command.items[i];
        fprintf(f, "%s%s", i ? " " : "", word);
        if (word[0] == '/') fprintf(f, " (%lld bytes)", (long long)ablation_text_bytes(word));
    }
    if (config) fprintf(f, "%s%s", p->command.count ? " " : "", config);
    for (int i = 0; i < p->n_after; i++) {
        const struct ablation_part *before = &plan->parts[p->after[i]];
        fprintf(f, " after %s %08x", before->name, crc32c(0, before->spec, strlen(before->spec)));
    }
    enum status s =
        fclose(f) == 0 ? memory_copy_string(&p->spec, text) : fail(STATUS_NO_MEMORY, "no memory for a part");
    free(text);
    return s;
}

/* ---- tokens ---------------------------------------------------------------------------------------------- */

static enum status parts_tokenizer(struct ablation_plan *plan, struct parts_made *made) {
    const struct ablation_config *c = plan->config;
    made->tokenizer = -1;
    if (c->tokenizer) return STATUS_OK;
    TRY(part_add(&made->tokenizer, plan, ABLATION_PREPARE, "tokenizer", -1));
    struct ablation_part *p = &plan->parts[made->tokenizer];
    TRY(command_add(p, "drt-tokenizer", "train", NULL));
    TRY(command_add_texts(p, NULL, &c->train));
    TRY(command_add_int(p, "--vocab-size", c->vocab_size));
    TRY(command_add(p, "--reserve", "3", "--text-field", c->text_field, "--out", "tokenizer.json", NULL));
    TRY(command_add_machine(p, c, false));
    ablation_prepare_work(p, plan->train_bytes, true);
    return part_spec(plan, made->tokenizer, NULL);
}

static enum status parts_encode(int *out, struct ablation_plan *plan, const struct parts_made *made, const char *name,
                                const struct object_list *texts) {
    const struct ablation_config *c = plan->config;
    char part[ABLATION_NAME], file[64];
    snprintf(part, sizeof part, "tokens-%s", name);
    snprintf(file, sizeof file, "tokens/%s.%s", name, plan->models[0].config.vocab_size > 65536 ? "u32" : "u16");
    TRY(part_add(out, plan, ABLATION_PREPARE, part, -1));
    struct ablation_part *p = &plan->parts[*out];
    TRY(command_add(p, "drt-tokenizer", "encode", NULL));
    TRY(command_add_texts(p, NULL, texts));
    TRY(command_add(p, "--tokenizer", c->tokenizer ? c->tokenizer : "tokenizer.json", "--text-field", c->text_field,
                    "--out", file, NULL));
    TRY(command_add_int(p, "--eod-id", plan->models[0].config.eos_id));
    TRY(command_add_machine(p, c, false));
    ablation_prepare_work(p, texts == &c->train ? plan->train_bytes : plan->valid_bytes, false);
    part_after(p, made->tokenizer);
    return part_spec(plan, *out, NULL);
}

/* ---- models ---------------------------------------------------------------------------------------------- */

static enum status parts_model(struct ablation_plan *plan, struct parts_made *made, int model) {
    const struct ablation_config *c = plan->config;
    struct ablation_model *m = &plan->models[model];
    char name[ABLATION_NAME], config[FILE_PATH_MAX], folder[FILE_PATH_MAX];
    if (m->taken || made->model[model] >= 0) return STATUS_OK;
    if (m->view_of >= 0) {
        TRY(parts_model(plan, made, m->view_of));
        snprintf(name, sizeof name, "view-%.40s", m->name);
        TRY(part_add(&made->model[model], plan, ABLATION_VIEW, name, model));
        part_after(&plan->parts[made->model[model]], made->model[m->view_of]);
        return part_spec(plan, made->model[model], m->json);
    }
    if (made->train_tokens < 0) {
        TRY(parts_encode(&made->train_tokens, plan, made, "train", &c->train));
        TRY(parts_encode(&made->valid_tokens, plan, made, "valid", &c->valid));
    }
    snprintf(name, sizeof name, "train-%.40s", m->name);
    snprintf(config, sizeof config, "configs/%s.json", m->name);
    snprintf(folder, sizeof folder, "models/%s", m->name);
    TRY(part_add(&made->model[model], plan, ABLATION_TRAIN, name, model));
    struct ablation_part *p = &plan->parts[made->model[model]];
    TRY(command_add(p, "drt-train", "--config", config, "--out", folder, NULL));
    TRY(command_add_machine(p, c, true));
    ablation_train_work(p, plan, m);
    part_after(p, made->train_tokens);
    part_after(p, made->valid_tokens);
    return part_spec(plan, made->model[model], m->training);
}

/* ---- stores ---------------------------------------------------------------------------------------------- */

static enum status parts_store(struct ablation_plan *plan, struct parts_made *made, int store) {
    const struct ablation_config *c = plan->config;
    const struct ablation_store_use *s = &plan->stores[store];
    const struct ablation_model *m = &plan->models[s->model];
    char name[ABLATION_NAME], folder[FILE_PATH_MAX];
    if (made->store[store] >= 0) return STATUS_OK;
    TRY(parts_model(plan, made, s->model));
    snprintf(name, sizeof name, "store-%.40s", s->name);
    snprintf(folder, sizeof folder, "stores/%s", s->name);
    TRY(part_add(&made->store[store], plan, ABLATION_BUILD, name, store));
    struct ablation_part *p = &plan->parts[made->store[store]];
    TRY(command_add(p, "drt-index", "build", NULL));
    TRY(command_add_texts(p, NULL, s->what == ABLATION_STORE_OTHER ? &c->other : &c->train));
    TRY(command_add(p, "--out", folder, "--model", m->folder, "--text-field", c->text_field, NULL));
    if (s->what == ABLATION_STORE_EXTERNAL) TRY(command_add(p, "--encoder", c->external, NULL));
    const bool lexical = s->model == 0 && s->what != ABLATION_STORE_EXTERNAL;
    if (!lexical) TRY(command_add(p, "--lexical", "off", NULL));
    TRY(command_add_machine(p, c, true));
    ablation_build_work(p, plan, s, lexical);
    part_after(p, made->model[s->model]);
    return part_spec(plan, made->store[store], NULL);
}

/* ---- evaluations ----------------------------------------------------------------------------------------- */

static enum status command_add_scope(struct ablation_part *p, const struct ablation_plan *plan) {
    const struct ablation_config *c = plan->config;
    TRY(command_add_texts(p, "--data", &c->valid));
    TRY(command_add(p, "--text-field", c->text_field, NULL));
    TRY(command_add_int(p, "--context", c->context));
    TRY(command_add_int(p, "--skip", c->skip));
    if (c->max_documents > 0) TRY(command_add_int(p, "--max-documents", c->max_documents));
    if (c->max_tokens > 0) TRY(command_add_int(p, "--max-tokens", c->max_tokens));
    if (c->document_tokens > 0) TRY(command_add_int(p, "--document-tokens", c->document_tokens));
    return command_add_machine(p, c, true);
}

/* Random chunks are a part of every fit, so that each gate learns to close for them. */
static enum status command_add_fit(struct ablation_part *p, const struct ablation_plan *plan,
                                   const struct ablation_score *s) {
    char memories[64] = "", file[FILE_PATH_MAX];
    static const char *const names[] = {"own", "corpus", "both", "random"};
    for (size_t n = 0; n < ARRAY_LEN(names); n++) {
        bool wanted = n == 1 || n == 3;
        for (int i = 0; i < s->n_modes; i++)
            wanted = wanted || strcmp(s->modes[i] + strlen("memory-"), names[n]) == 0;
        if (!wanted) continue;
        size_t at = strlen(memories);
        snprintf(memories + at, sizeof memories - at, "%s%s", at ? "," : "", names[n]);
    }
    snprintf(file, sizeof file, "scores/%s.memory.json", s->name);
    TRY(command_add(p, "--memory", memories, "--out", file, NULL));
    TRY(command_add_int(p, "--memory-k", plan->config->memory_k));
    TRY(command_add_int(p, "--memory-every", s->every));
    return s->how == ABLATION_FIT_GCA ? command_add(p, "--gca", "both", NULL) : STATUS_OK;
}

/* Overlap depends only on the texts, so that of DRT's stores is valid for all rows. */
static bool reports_overlap(const struct ablation_score *s) {
    return s->store >= 0 && s->model == 0 && s->how == ABLATION_PPL && s->what != ABLATION_STORE_EXTERNAL;
}

static enum status command_add_modes(struct ablation_part *p, const struct ablation_plan *plan,
                                     const struct ablation_score *s) {
    static const char *const names[] = {"none", "self", "corpus", "both", "random"};
    char modes[64] = "";
    for (size_t n = 0; n < ARRAY_LEN(names); n++)
        for (int i = 0; i < s->n_modes; i++) {
            size_t at = strlen(modes);
            if (strcmp(s->modes[i], names[n]) == 0)
                snprintf(modes + at, sizeof modes - at, "%s%s", at ? "," : "", names[n]);
        }
    TRY(command_add(p, "--modes", modes, NULL));
    if (s->how == ABLATION_LEXICAL) TRY(command_add(p, "--searcher", "lexical", NULL));
    if (s->what == ABLATION_STORE_EXTERNAL) TRY(command_add(p, "--encoder", plan->config->external, NULL));
    return s->store >= 0 && !reports_overlap(s) ? command_add(p, "--no-overlap", NULL) : STATUS_OK;
}

static enum status parts_score(struct ablation_plan *plan, struct parts_made *made, int score) {
    const struct ablation_score *s = &plan->scores[score];
    const bool fit = s->how >= ABLATION_FIT;
    char folder[FILE_PATH_MAX];
    int at;
    TRY(parts_model(plan, made, s->model));
    if (s->store >= 0) TRY(parts_store(plan, made, s->store));
    TRY(part_add(&at, plan, fit ? ABLATION_MEMORY : ABLATION_SCORE, s->name, score));
    struct ablation_part *p = &plan->parts[at];
    TRY(command_add(p, "drt-eval", fit ? "fit-memory" : "ppl", "--model", plan->models[s->model].folder, NULL));
    if (s->store >= 0) {
        snprintf(folder, sizeof folder, "stores/%s", plan->stores[s->store].name);
        TRY(command_add(p, "--store", folder, NULL));
    }
    TRY(fit ? command_add_fit(p, plan, s) : command_add_modes(p, plan, s));
    TRY(command_add_scope(p, plan));
    TRY(command_add(p, "--json", NULL));
    ablation_score_work(p, plan, s, reports_overlap(s));
    part_after(p, made->model[s->model]);
    if (s->store >= 0) part_after(p, made->store[s->store]);
    return part_spec(plan, at, NULL);
}

enum status ablation_parts_make(struct ablation_plan *plan) {
    struct parts_made made = {.train_tokens = -1, .valid_tokens = -1};
    memset(made.model, -1, sizeof made.model);
    memset(made.store, -1, sizeof made.store);
    TRY(parts_tokenizer(plan, &made));
    for (int row = 0; row < ABLATION_ROWS; row++) {
        bool first = plan->rows[row].score >= 0;
        for (int before = 0; before < row; before++)
            first = first && plan->rows[before].score != plan->rows[row].score;
        if (first) TRY(parts_score(plan, &made, plan->rows[row].score));
    }
    return STATUS_OK;
}
