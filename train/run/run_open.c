/* run_open.c -- opens a run: its folder, data, weights and training step. */
#include "base/file.h"
#include "base/formats/text.h"
#include "base/memory.h"
#include "data/readers/ids_check.h"
#include "kernels/device/collective.h"
#include "train/run/run_changes.h"
#include "train/run/run_internal.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the folder ---------------------------------------------------------------------------------------------------
 */

static enum status run_write_config(const struct run *r) {
    char path[FILE_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    enum status s;
    FILE *memory = text_stream_open(&text, &bytes);
    if (!memory) return fail_errno("%s: config.json", r->options->folder);
    config_write(r->config, memory);
    bool broken = ferror(memory) != 0;
    if (fclose(memory) != 0 || broken) {
        s = fail(STATUS_NO_MEMORY, "%s: config.json does not fit into memory", r->options->folder);
        goto out;
    }
    TRY_GOTO(s, file_join(path, r->options->folder, "config.json"), out);
    s = file_save(path, text, bytes);
out:
    free(text);
    return s;
}

/* The run copies the tokenizer, because every checkpoint contains it. */
static enum status run_copy_tokenizer(const struct run *r) {
    struct file_map map;
    if (file_exists(r->tokenizer_path)) return STATUS_OK;
    TRY(file_map(&map, r->config->tokenizer));
    enum status s = file_save(r->tokenizer_path, map.data, map.size);
    file_unmap(&map);
    return s;
}

/* A resumed run uses the tokenizer that it started with. The file that was copied may not exist any more. */
static enum status run_check_own_tokenizer(const struct run *r) {
    struct file_map own, named = {0};
    if (!file_exists(r->config->tokenizer)) return STATUS_OK;
    TRY(file_map(&own, r->tokenizer_path));
    enum status s = file_map(&named, r->config->tokenizer);
    if (s == STATUS_OK && (own.size != named.size || memcmp(own.data, named.data, own.size) != 0))
        s = fail(STATUS_INVALID, "%s: is not the run's own %s, which cannot be changed: begin another run",
                 r->config->tokenizer, r->tokenizer_path);
    file_unmap(&named);
    file_unmap(&own);
    return s;
}

static enum status run_open_tokenizer(struct run *r) {
    bool own = file_exists(r->tokenizer_path);
    const char *path = own ? r->tokenizer_path : r->config->tokenizer;
    if (own) TRY(run_check_own_tokenizer(r));
    TRY(tokenizer_open(&r->tokenizer, path));
    int have = tokenizer_vocab_size(r->tokenizer);
    if (have <= r->config->model.vocab_size) return STATUS_OK;
    return fail(STATUS_MISMATCH, "%s: the tokenizer has ids up to %d, but the model's vocab_size is %d", path, have - 1,
                r->config->model.vocab_size);
}

/* Only one process at a time may write into a run's folder: a second one would remove the first one's unfinished
 * checkpoint as an orphan. On a file system without locks there is no check. */
static enum status run_lock_folder(struct run *r) {
    char path[FILE_PATH_MAX];
    if (r->lock >= 0 || !file_is_directory(r->options->folder)) return STATUS_OK;
    TRY(file_join(path, r->options->folder, "lock"));
    if (file_lock(&r->lock, path) != STATUS_BUSY) return STATUS_OK;
    return fail(STATUS_BUSY, "%s: another drt-train writes this run: stop it, or wait until it ends",
                r->options->folder);
}

/* Checks the folder before anything is written. */
static enum status run_check_folder(struct run *r) {
    char log[FILE_PATH_MAX], config[FILE_PATH_MAX];
    const char *folder = r->options->folder;
    int64_t latest;
    TRY(file_join(log, folder, "log.jsonl"));
    TRY(file_join(config, folder, "config.json"));
    TRY(file_join(r->tokenizer_path, folder, "tokenizer.json"));
    if (r->rank > 0) return STATUS_OK; /* rank 0 checks, and may have created the folder by now */
    bool exists = file_exists(log) || file_exists(config);
    if (exists && !r->options->resume)
        return fail(STATUS_INVALID, "%s: holds a run already: continue it with --resume, or name another folder",
                    folder);
    if (!exists && r->options->resume)
        return fail(STATUS_NOT_FOUND, "%s: holds no run to resume: start one with --config", folder);
    if (exists) return run_lock_folder(r);
    TRY(checkpoint_latest(&latest, folder));
    if (latest < 0) return STATUS_OK;
    /* checkpoint_trim would keep the old checkpoints and remove this run's, whose steps are smaller. */
    return fail(STATUS_INVALID,
                "%s: holds checkpoints of another run, up to step %lld: remove them, or name another folder", folder,
                (long long)latest);
}

static enum status run_create_folder(struct run *r) {
    char path[FILE_PATH_MAX];
    if (r->rank > 0) return STATUS_OK;
    TRY(file_make_directory(r->options->folder));
    TRY(run_lock_folder(r));
    TRY(run_write_config(r));
    TRY(run_copy_tokenizer(r));
    TRY(checkpoint_prepare(r->options->folder));
    TRY(checkpoint_trim(r->options->folder, r->config->keep)); /* a killed run may have left more than `keep` */
    if (r->config->sample_every) {
        TRY(file_join(path, r->options->folder, "samples"));
        TRY(file_make_directory(path));
    }
    TRY(file_join(path, r->options->folder, "log.jsonl"));
    return run_log_open(&r->log, path, r->state.step);
}

/* ---- weights ------------------------------------------------------------------------------------------------------
 */

/* Copies the weights of start_from, which may be of the same kind of model or a Base LM. Tensors that it lacks keep
 * their random initial values. */
static enum status run_graft(struct run *r, const struct safetensors *file) {
    const struct train_config *c = r->config;
    struct params_grafted n;
    TRY(params_graft(&r->state.params, &c->model, file, (uint64_t)c->seed, &n));
    if (n.fresh > 0)
        progress_note(r->options->progress, "%s: %d tensors taken, %d others begin anew", c->start_from, n.taken,
                      n.fresh);
    if (n.left > 0)
        progress_note(r->options->progress, "%s: %d of its tensors are left out, which the model does not have",
                      c->start_from, n.left);
    if (c->renew >= 1) return STATUS_OK;
    int64_t renewed;
    TRY(params_renew(r->state.params, &c->model, c->renew, (uint64_t)c->seed, &renewed));
    progress_note(r->options->progress, "%s: %lld embeddings begin anew (renew)", c->start_from, (long long)renewed);
    return STATUS_OK;
}

static enum status run_initial_weights(struct run *r) {
    const struct train_config *c = r->config;
    if (!c->start_from) return params_init(&r->state.params, &c->model, (uint64_t)c->seed);
    char path[FILE_PATH_MAX];
    struct safetensors *file;
    TRY(file_join(path, c->start_from, "model.safetensors"));
    TRY(safetensors_open(&file, path));
    enum status s = run_graft(r, file);
    safetensors_close(file);
    return s;
}

/* A fingerprint of all text on which a run depends. */
static uint64_t run_fingerprint(const struct run *r) {
    uint64_t text = batches_fingerprint(r->batches);
    return r->pool ? text ^ (batches_fingerprint(r->pool) * 0x9e3779b97f4a7c15u) : text;
}

/* A run may continue with other values, which the losses then depend on. */
static enum status run_note_changes(const struct run *r, int64_t latest) {
    char path[FILE_PATH_MAX], changed[RUN_CHANGES_MAX];
    if (r->rank > 0) return STATUS_OK;
    TRY(checkpoint_path(path, r->options->folder, latest));
    TRY(run_changes(changed, r->options->folder, path, r->config));
    if (changed[0])
        progress_note(r->options->progress, "%s: continues with other values than it had up to step %lld: %s",
                      r->options->folder, (long long)latest, changed);
    return STATUS_OK;
}

static enum status run_load_weights(struct run *r) {
    int64_t latest = -1;
    if (r->options->resume) TRY(checkpoint_latest(&latest, r->options->folder));
    if (latest < 0) {
        r->state.data = run_fingerprint(r);
        return run_initial_weights(r);
    }
    enum status s = checkpoint_load(&r->state, r->options->folder, latest, &r->config->model);
    if (s != STATUS_OK)
        return fail_context(s, "checkpoint of step %lld (remove its folder to go back to the one before)",
                            (long long)latest);
    r->saved = latest;
    TRY(run_note_changes(r, latest));
    if (r->state.tokens < 0) r->state.tokens = latest * r->step_tokens;
    if (r->state.tokens != latest * r->step_tokens)
        progress_note(r->options->progress,
                      "%s: the size of a step has changed: windows of the data may be used twice, or not at all",
                      r->options->folder);
    if (r->state.data == run_fingerprint(r)) return STATUS_OK;
    return fail(STATUS_MISMATCH,
                "%s: the training data differs from that of the run up to step %lld: resume with the same files, or "
                "begin another run with --set start_from=CHECKPOINT",
                r->options->folder, (long long)latest);
}

/* ---- what steps need ----------------------------------------------------------------------------------------------
 */

/* the pools batch and corpus exclude chunks by document. So every document must have an end, and must be in the data
 * and pool_data once. */
static void run_note_documents(struct run *r) {
    const struct train_config *c = r->config;
    const struct progress *p = r->options->progress;
    if (c->end_id >= 0 && batches_unended(r->batches) > 0)
        progress_note(p, "%d of %zu token files do not end with id %lld: does this id end their documents (end_id)?",
                      batches_unended(r->batches), c->data.count, (long long)c->end_id);
    for (size_t i = 1; i < c->data.count + c->pool_data.count; i++) {
        const bool pool = i >= c->data.count;
        const char *file = pool ? c->pool_data.items[i - c->data.count] : c->data.items[i];
        if (file_apart(file, (const char *const *)c->data.items, (int)(pool ? c->data.count : i)) == STATUS_OK)
            continue;
        if (c->pool >= POOL_BATCH || config_reads_passages(c))
            progress_note(p, "%s: given twice: with %s%s its documents retrieve their own copies", file,
                          c->pool >= POOL_BATCH ? "pool " : "memory.passages",
                          c->pool >= POOL_BATCH ? pool_kind_name((enum pool_kind)c->pool) : "");
    }
}

/* With start_from the model may have keys of other programs. One that differs from a key of this program by one or two
 * typing errors is rather a mistake. */
static void run_note_keys(const struct run *r) {
    const char *text = r->config->model.unread;
    while (*text) {
        const size_t length = strcspn(text, ",");
        int edits;
        const char *near = model_config_near_key(text, length, &edits);
        if (near && edits > 0 && edits <= 2)
            progress_note(r->options->progress, "model: nothing reads the key %.*s: did you mean %s?", (int)length,
                          text, near);
        text += length;
        text += strspn(text, ", ");
    }
}

/* Opens the text of pool_data. It is only retrieved from, so its windows are never used. */
static enum status run_open_pool(struct run *r) {
    const struct train_config *c = r->config;
    if (c->pool_data.count == 0) return STATUS_OK;
    struct batches_config how = {.files = (const char *const *)c->pool_data.items,
                                 .n_files = (int)c->pool_data.count,
                                 .end_id = c->end_id,
                                 .model = &c->model,
                                 .sampling = SAMPLING_ONCE,
                                 .sequences = 1,
                                 .chunks = 1,
                                 .held = 1,
                                 .first_document = (int32_t)batches_documents(r->batches)};
    TRY(batches_open(&r->pool, &how));
    const struct reader_config files = {.inputs = how.files, .n_inputs = how.n_files, .eod_id = how.end_id};
    ids_check(r->options->progress, &files, r->tokenizer);
    return STATUS_OK;
}

static enum status run_open_batches(struct run *r) {
    const struct train_config *c = r->config;
    struct batches_config how = {.files = (const char *const *)c->data.items,
                                 .n_files = (int)c->data.count,
                                 .end_id = c->end_id,
                                 .model = &c->model,
                                 .sampling = (enum sampling)c->sampling,
                                 .samples = c->samples,
                                 .align = c->align,
                                 .sequences = (int)c->sequences,
                                 .chunks = config_chunks(c),
                                 .held = (int)c->accumulate,
                                 .documents = c->schedule.memory_weight > 0,
                                 .seed = (uint64_t)c->seed};
    progress_step(r->options->progress, "read the data", "files", 0, how.n_files);
    TRY(batches_open(&r->batches, &how));
    run_note_documents(r);
    TRY(run_open_pool(r));
    if (c->pool >= POOL_BATCH && batches_documents(r->batches) == 1 && !r->pool)
        return fail(
            STATUS_INVALID,
            "%s: the training data is one document (end_id is %lld): pool %s has no other document to retrieve from",
            c->data.items[0], (long long)c->end_id, pool_kind_name((enum pool_kind)c->pool));
    const struct reader_config files = {.inputs = how.files, .n_inputs = how.n_files, .eod_id = how.end_id};
    ids_check(r->options->progress, &files, r->tokenizer);
    r->step_tokens = c->sequences * c->length * c->accumulate * r->world;
    return memory_allocate_zero(&r->batch, (size_t)c->accumulate);
}

static enum status run_open_corpus(struct run *r) {
    const struct train_config *c = r->config;
    struct batches_corpus corpus;
    enum status s = batches_corpus_make(&corpus, r->batches);
    if (s != STATUS_OK) return fail_context(s, "data");
    if (r->pool) s = batches_corpus_append(&corpus, r->pool);
    if (s != STATUS_OK) return fail_context(s, "pool_data");
    const struct corpus_pool_config config = {.type = r->options->type,
                                              .ids = corpus.ids,
                                              .documents = (const int32_t(*)[2])corpus.documents,
                                              .chunks = corpus.chunks,
                                              .max_queries = c->sequences * config_chunks(c),
                                              .candidates = (int)c->candidates};
    s = corpus_pool_create(&r->corpus, r->options->device, &c->model, &config);
    batches_corpus_free(&corpus);
    return s;
}

static enum status run_upload_state(struct run *r) {
    struct device *dev = r->options->device;
    struct optimizer *o = step_optimizer(r->step);
    size_t bytes = (size_t)params_elements(r->state.params) * sizeof(float);
    for (int i = 0; i < 2; i++)
        device_upload(dev, optimizer_moment(o, i)->data, r->state.moments[i], bytes);
    /* computes the index of the stopped run again, from the weights that it had then */
    if (r->state.index_weights && r->corpus) {
        device_upload(dev, optimizer_master(o)->data, r->state.index_weights, bytes);
        optimizer_refresh(o);
        step_refresh_corpus(r->step);
        r->refreshed = true;
        device_upload(dev, optimizer_master(o)->data, params_at(r->state.params, 0)->data, bytes);
        optimizer_refresh(o);
    }
    return device_sync(dev);
}

static enum status run_open_step(struct run *r) {
    const struct train_config *c = r->config;
    struct step_config how = {.sequences = (int)c->sequences,
                              .chunks = config_chunks(c),
                              .optimizer = {.beta1 = (float)c->beta1,
                                            .beta2 = (float)c->beta2,
                                            .eps = (float)c->eps,
                                            .decay = (float)c->weight_decay,
                                            .clip = (float)c->clip,
                                            .trunk = (float)c->trunk_lr,
                                            .retriever_apart = c->pool == POOL_NONE,
                                            .decay_embedding = c->decay_embedding},
                              .type = r->options->type,
                              .recompute = c->recompute,
                              .pool = (enum pool_kind)c->pool,
                              .candidates = (int)c->candidates,
                              .gumbel = c->gumbel,
                              .cut_query = c->cut_query,
                              .contrastive = c->schedule.contrastive_weight > 0,
                              .mlm = c->schedule.mlm_rate > 0,
                              .memory = c->schedule.memory_weight > 0,
                              .reads = {.past = c->memory_past,
                                        .group = (int)c->memory_group,
                                        .passages = (int)c->memory_passages,
                                        .read = (int)c->memory_read,
                                        .span = (int)c->memory_span,
                                        .unread = c->schedule.teach_weight > 0 ? (int)c->teach_coming : 0,
                                        .gradient = (enum memory_gradient)c->memory_gradient},
                              .teach = c->schedule.teach_weight > 0,
                              .teach_gradient = (enum teach_gradient)c->teach_gradient,
                              .group = r->options->group};
    enum status status = step_create(&r->step, r->options->device, &c->model, &how, r->state.params, r->corpus);
    if (status == STATUS_NO_MEMORY)
        return fail_context(status,
                            "%lld sequences of %lld tokens in a micro-batch (lower sequences and raise accumulate)",
                            (long long)c->sequences, (long long)c->length);
    TRY(status);
    return r->state.step == 0 ? STATUS_OK : run_upload_state(r);
}

static enum status run_open_cpu(struct run *r) {
    if (r->config->sample_every == 0 || r->rank > 0) return STATUS_OK;
    if (!r->options->device->shares_memory) return device_open(&r->cpu, "cpu", 0);
    r->cpu = r->options->device;
    return STATUS_OK;
}

size_t run_bytes(const struct run *r) {
    return step_bytes(r->step) + (r->corpus ? corpus_pool_bytes(r->corpus) : 0);
}

enum status run_open(struct run *r) {
    const struct train_config *c = r->config;
    r->rank = r->options->group ? collective_rank(r->options->group) : 0;
    r->world = r->options->group ? collective_world(r->options->group) : 1;
    TRY(run_check_folder(r));
    run_note_keys(r);
    TRY(run_open_tokenizer(r));
    TRY(run_open_batches(r));
    int64_t documents = batches_documents(r->batches) + (r->pool ? batches_documents(r->pool) : 0);
    TRY(validation_open(&r->validation, c, r->tokenizer, documents));
    TRY(run_load_weights(r));
    if (r->config->pool == POOL_CORPUS) TRY(run_open_corpus(r));
    TRY(run_open_step(r));
    TRY(run_open_cpu(r));
    TRY(run_create_folder(r));
    const struct run_memory_texts texts = {r->batches, r->pool,
                                           r->validation ? validation_batches(r->validation) : NULL};
    TRY(run_memory_open(&r->memory, r->options, &texts));
    r->kind =
        (struct checkpoint_kind){.run = r->options->folder,
                                 .model_json = c->model_json,
                                 .tokenizer = r->tokenizer_path,
                                 .type = strcmp(c->checkpoint_type, "bf16") == 0 ? SAFETENSORS_BF16 : SAFETENSORS_F32};
    progress_note(
        r->options->progress,
        "%s: %lld parameters, %lld tokens of %lld documents, %lld windows, %lld tokens a step, %.2f GiB on %s",
        r->options->folder, (long long)params_elements(r->state.params), (long long)batches_tokens(r->batches),
        (long long)batches_documents(r->batches), (long long)batches_windows(r->batches), (long long)r->step_tokens,
        (double)run_bytes(r) / 1073741824.0, r->options->device->name);
    if (r->state.step) progress_note(r->options->progress, "continues after step %lld", (long long)r->state.step);
    return STATUS_OK;
}

void run_close(struct run *r) {
    run_log_close(r->log);
    step_free(r->step);
    if (r->corpus) corpus_pool_free(r->corpus);
    validation_close(r->validation);
    run_memory_close(r->memory);
    batches_close(r->batches);
    batches_close(r->pool);
    memory_free(r->batch);
    checkpoint_free(&r->state);
    tokenizer_free(r->tokenizer);
    if (r->cpu != r->options->device) device_close(r->cpu);
    if (r->lock >= 0) close(r->lock);
}
