/* run_memory.c -- see run_memory.h. */
#include "train/run/run_memory.h"
#include "base/file.h"
#include "base/memory.h"
#include "kernels/device/collective.h"

struct run_memory {
    struct similar *neighbours;
    int32_t **ids, **documents; /* [micro-batches + 1]: the last one is the validation's */
    int buffers;
};

/* threads of the search if the device's threads are busy with a GPU; else NULL */
static enum status run_memory_search(struct run_memory *m, const struct run_options *o,
                                     const struct run_memory_texts *texts, const char *path, bool make) {
    const struct train_config *c = o->config;
    struct threads *pool = NULL;
    if (make && !o->device->threads) TRY(threads_create(&pool, 0));
    const struct similar_config how = {.text = texts->text,
                                       .pool = texts->pool,
                                       .valid = texts->valid,
                                       .model = &c->model,
                                       .passages = (int)c->memory_passages,
                                       .coming = c->schedule.teach_weight > 0 ? (int)c->teach_coming : 0,
                                       .span = (int)c->memory_span,
                                       .path = path,
                                       .make = make,
                                       .progress = o->progress,
                                       .threads = pool ? pool : o->device->threads};
    enum status s = similar_open(&m->neighbours, &how);
    threads_free(pool);
    return s;
}

/* Rank 0 searches first. The others wait for it, even when it fails. */
static enum status run_memory_find(struct run_memory *m, const struct run_options *o,
                                   const struct run_memory_texts *texts) {
    char own[FILE_PATH_MAX];
    const char *path = o->config->memory_neighbours;
    int rank = o->group ? collective_rank(o->group) : 0;
    if (!path) {
        TRY(file_join(own, o->folder, "neighbours.safetensors"));
        path = own;
    }
    enum status s = rank == 0 ? run_memory_search(m, o, texts, path, true) : STATUS_OK;
    double failed = s != STATUS_OK;
    if (o->group) {
        enum status together = collective_sum_host(o->group, &failed, 1);
        if (s == STATUS_OK && together != STATUS_OK) return together;
    }
    TRY(s);
    if (failed > 0) return fail(STATUS_INVALID, "%s: the first process could not make it", path);
    return rank == 0 ? STATUS_OK : run_memory_search(m, o, texts, path, false);
}

static enum status run_memory_allocate(struct run_memory *m, const struct train_config *c) {
    int64_t blocks = c->sequences * (c->length / c->model.chunk);
    int buffers = (int)c->accumulate + 1;
    TRY(memory_allocate_zero(&m->ids, (size_t)buffers));
    TRY(memory_allocate_zero(&m->documents, (size_t)buffers));
    m->buffers = buffers;
    for (int i = 0; i < buffers; i++) {
        TRY(memory_allocate(&m->ids[i], similar_ids(m->neighbours, blocks)));
        TRY(memory_allocate(&m->documents[i], similar_documents(m->neighbours, blocks)));
    }
    return STATUS_OK;
}

enum status run_memory_open(struct run_memory **out, const struct run_options *options,
                            const struct run_memory_texts *texts) {
    const struct train_config *c = options->config;
    struct run_memory *m;
    *out = NULL;
    if (!config_reads_passages(c)) return STATUS_OK;
    TRY(memory_allocate_zero(&m, 1));
    enum status s = run_memory_find(m, options, texts);
    if (s == STATUS_OK) s = run_memory_allocate(m, c);
    if (s == STATUS_OK && c->memory_pack)
        s = similar_set_group(m->neighbours, batches_length(texts->text), (int)c->memory_group);
    if (s != STATUS_OK) {
        run_memory_close(m);
        return s;
    }
    if (c->memory_pack) batches_set_order(texts->text, similar_arrange, m->neighbours);
    *out = m;
    return STATUS_OK;
}

void run_memory_close(struct run_memory *m) {
    if (!m) return;
    similar_free(m->neighbours);
    for (int i = 0; i < m->buffers; i++) {
        memory_free(m->ids[i]);
        memory_free(m->documents[i]);
    }
    memory_free(m->ids);
    memory_free(m->documents);
    memory_free(m);
}

void run_memory_prepare(struct run_memory *m, struct batch *batch, int number) {
    if (m) similar_fill(m->neighbours, batch, m->ids[number], m->documents[number], false);
}

void run_memory_prepare_valid(struct run_memory *m, struct batch *batch) {
    if (m) similar_fill(m->neighbours, batch, m->ids[m->buffers - 1], m->documents[m->buffers - 1], true);
}
