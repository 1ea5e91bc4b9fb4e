/* task_run.c -- see task_run.h. */
#include "tools/tasks/task_run.h"
#include "base/memory.h"
#include "tools/shared/report.h"
#include <string.h>

const char *task_run_usage(const struct task_run_options *o) {
    if (o->corpus && !o->store) return "--corpus-retrieval needs --store DIR";
    if (o->store && !o->corpus) return "--store needs --corpus-retrieval (without it the store is not used)";
    if (SEARCH_OPTIONS_GIVEN(*o) && !o->corpus)
        return "--searcher, --exact, --exact-fallback, --nprobe, --continuation, --overlap and --query-tokens need "
               "--store DIR --corpus-retrieval";
    return SEARCH_OPTIONS_WRONG(*o);
}

enum status task_run_open(struct task_run *out, const struct task_run_options *o, int64_t max_tokens,
                          const struct arg_strings *stops, const struct progress *progress) {
    const struct engine_config config = {.model = o->model,
                                         .store = o->store,
                                         .where = o->where,
                                         .threads = (int)o->threads,
                                         .retrieval = o->corpus || o->own_past,
                                         .decoding = true};
    *out = (struct task_run){0};
    TRY(engine_open(&out->engine, &config));
    const struct generation_config generation = {.engine = &out->engine,
                                                 .retrieval = RETRIEVAL_OF_SEARCH(*o),
                                                 .exclude_document = -1,
                                                 .sampler = {.top_p = 1},
                                                 .stops = stops ? stops->items : NULL,
                                                 .n_stops = stops ? stops->count : 0,
                                                 .max_tokens = max_tokens,
                                                 .logprobs = true,
                                                 .top = 1,
                                                 .progress = progress};
    enum status status = generation_create(&out->generation, &generation);
    if (status != STATUS_OK) task_run_close(out);
    return status;
}

void task_run_close(struct task_run *r) {
    generation_free(r->generation);
    engine_close(&r->engine);
    *r = (struct task_run){0};
}

/* Feeds the padding ids before a prompt of n ids. */
static enum status task_run_pads(struct task_run *r, int64_t n) {
    const struct model_config *model = &r->engine.model.config;
    int32_t *pads = NULL;
    const int64_t over = (n - 1) % model->chunk, count = over > 0 ? model->chunk - over : 0;
    if (count == 0) return STATUS_OK;
    TRY(memory_allocate(&pads, (size_t)count));
    for (int64_t i = 0; i < count; i++)
        pads[i] = model->pad_id;
    enum status status = generation_feed(r->generation, pads, count, NULL);
    memory_free(pads);
    return status;
}

enum status task_run_answer(struct task_run *r, const char *prompt, size_t prompt_bytes, char **answer,
                            size_t *capacity, size_t *bytes, const struct progress *progress) {
    const int32_t *ids = NULL;
    int64_t n = 0;
    struct generation_token token = {0};
    *bytes = 0;
    TRY(generation_reset(r->generation, 0));
    TRY(generation_encode(r->generation, &ids, &n, prompt, prompt_bytes));
    if (r->align) {
        TRY(task_run_pads(r, n));
        /* encoded again, because the pads have overwritten the ids */
        TRY(generation_encode(r->generation, &ids, &n, prompt, prompt_bytes));
    }
    TRY(generation_feed(r->generation, ids, n, NULL));
    do {
        if (progress_stop_requested(progress)) return fail(STATUS_INTERRUPTED, "stopped");
        TRY(generation_next(r->generation, &token));
        TRY(memory_grow(answer, capacity, *bytes + token.bytes + 1));
        if (token.bytes) memcpy(*answer + *bytes, token.text, token.bytes);
        *bytes += token.bytes;
    } while (token.end == GENERATION_RUNNING);
    return STATUS_OK;
}
