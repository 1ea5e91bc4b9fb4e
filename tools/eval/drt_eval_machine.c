/* drt_eval_machine.c -- opens the model with its store, further Base LMs, and the parts of a token memory, for the
 * commands of drt-eval. */
#include "base/memory.h"
#include "session/memory_folder.h"
#include "tools/eval/drt_eval.h"
#include "tools/eval/fit/drt_eval_searches.h"
#include "tools/memory/memory_knn.h"
#include <string.h>

/* Checks that the ids of both models have the same text. */
static enum status check_base(const struct engine *model, const struct engine *base) {
    uint8_t a[16], b[16];
    tokenizer_fingerprint(model->model.tokenizer, a);
    tokenizer_fingerprint(base->model.tokenizer, b);
    if (memcmp(a, b, sizeof a) == 0 && model->model.config.vocab_size == base->model.config.vocab_size)
        return STATUS_OK;
    return fail(STATUS_MISMATCH, "--base %s: its tokenizer is not that of %s: perplexities cannot be compared",
                base->model.path, model->model.path);
}

/* Whether a search is needed. Random chunks need one, too, because their gate reads the scores that a search
 * would give them. */
static bool eval_machine_searches(const struct eval_options *o) {
    static const char *const modes[] = {"corpus", "both", "random"};
    bool reads = o->oracle && strcmp(o->oracle, "none") != 0;
    for (size_t i = 0; i < ARRAY_LEN(modes); i++)
        reads = reads || (o->memory && strstr(o->memory, modes[i]));
    return reads;
}

static enum status open_parts(struct eval_machine *m, const struct engine_config *config,
                              const struct eval_options *o) {
    struct eval_engines *e = &m->engines;
    struct engine_config with = *config;
    char key[NETWORK_KEY_MAX];
    TRY(worker_options_remote(&with.workers, key, &o->workers));
    TRY(engine_open(&m->model, &with));
    e->model = &m->model;
    for (int i = 0; i < o->base.count; i++) {
        const struct engine_config base = {.model = o->base.items[i], .where = o->where, .threads = (int)o->threads};
        TRY(engine_open(&m->base[i], &base));
        e->base[i] = &m->base[i];
        TRY(check_base(&m->model, &m->base[i]));
    }
    if (!config->memory) return STATUS_OK;
    TRY(memory_options_config(&e->memory, e->memory_file, &o->memory_options, &m->model.model,
                              memory_folder_small(&m->model)));
    const struct memory_search_config search = {.engine = &m->model, .kind = e->memory.searcher, .store = o->store};
    return o->store && eval_machine_searches(o) ? memory_search_open(&e->search, &search) : STATUS_OK;
}

enum status eval_machine_open(struct eval_machine **out, const struct engine_config *config,
                              const struct eval_options *o) {
    struct eval_machine *m;
    TRY(memory_allocate_zero(&m, 1));
    enum status s = open_parts(m, config, o);
    if (s != STATUS_OK) {
        eval_machine_close(m);
        return s;
    }
    *out = m;
    return STATUS_OK;
}

void eval_machine_close(struct eval_machine *m) {
    if (!m) return;
    memory_search_close(m->engines.search);
    memory_knn_free(m->engines.knn);
    eval_searches_free(m->engines.searches);
    for (int i = 0; i < EVAL_BASES; i++)
        engine_close(&m->base[i]);
    engine_close(&m->model);
    memory_free(m);
}
