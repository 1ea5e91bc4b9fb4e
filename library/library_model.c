/* library_model.c -- models: their properties, landmarks of chunks, query vectors. */
#include "base/file.h"
#include "base/memory.h"
#include "library/library_internal.h"
#include "session/text_query.h"
#include <string.h>

/* ---- handles ------------------------------------------------------------------------------------------------ */

struct drt_model *library_model_use(struct drt_model *m) {
    if (m) atomic_fetch_add(&m->users, 1);
    return m;
}

void library_model_release(struct drt_model *m) {
    if (!m || atomic_fetch_sub(&m->users, 1) > 1) return;
    library_tokenizer_free(m->tokenizer);
    encoder_free(m->many);
    engine_close(&m->engine);
    library_model_release(m->of);
    pthread_mutex_destroy(&m->lock);
    memory_free(m);
}

static bool library_is_one_of(const char *text, const char *a, const char *b, const char *c) {
    return strcmp(text, a) == 0 || strcmp(text, b) == 0 || strcmp(text, c) == 0;
}

static enum status library_where(struct device_choice *out, struct drt_model_config *c, const void *given) {
    TRY(library_take(c, sizeof *c, given, "struct drt_model_config"));
    *out = (struct device_choice){.device = c->device ? c->device : "auto", .dtype = c->dtype ? c->dtype : "auto"};
    if (!library_is_one_of(out->device, "auto", "cpu", "cuda"))
        return fail(STATUS_INVALID, "device %s: must be auto, cpu or cuda", out->device);
    if (!library_is_one_of(out->dtype, "auto", "f32", "bf16") && strcmp(out->dtype, "i8") != 0)
        return fail(STATUS_INVALID, "dtype %s: must be auto, f32, bf16 or i8", out->dtype);
    if (c->threads < 0 || c->threads > THREADS_MAX)
        return fail(STATUS_INVALID, "threads %d: must be 0 to %d", c->threads, THREADS_MAX);
    return STATUS_OK;
}

/* of NULL: opens the folder. Otherwise shares the weights of `of`. */
static enum status library_model_create(struct drt_model **out, struct drt_model *of, const char *folder,
                                        const struct drt_model_config *config) {
    struct drt_model_config c;
    struct engine_config engine = {.model = folder, .decoding = true};
    struct drt_model *m = NULL;
    char absolute[FILE_PATH_MAX]; /* memory.json is opened by a session */
    TRY(library_where(&engine.where, &c, config));
    if (folder) {
        TRY(file_absolute(absolute, folder));
        engine.model = absolute;
    }
    engine.threads = c.threads;
    TRY(memory_allocate_zero(&m, 1));
    m->users = 1;
    m->of = library_model_use(of);
    pthread_mutex_init(&m->lock, NULL);
    enum status status =
        of ? engine_share(&m->engine, &of->engine, &engine.where, c.threads) : engine_open(&m->engine, &engine);
    if (status == STATUS_OK) status = library_tokenizer_create(&m->tokenizer, m->engine.model.tokenizer, true);
    if (status != STATUS_OK) {
        library_model_release(m);
        return status;
    }
    *out = m;
    return STATUS_OK;
}

enum drt_status drt_model_open(struct drt_model **out, const char *folder, const struct drt_model_config *config) {
    LIBRARY_NEEDS(out);
    return (enum drt_status)library_model_create(out, NULL, folder, config);
}

enum drt_status drt_model_share(struct drt_model **out, struct drt_model *model,
                                const struct drt_model_config *config) {
    LIBRARY_NEEDS(out);
    LIBRARY_NEEDS(model);
    return (enum drt_status)library_model_create(out, model->of ? model->of : model, NULL, config);
}

void drt_model_close(struct drt_model *model) {
    library_model_release(model);
}

struct drt_tokenizer *drt_model_tokenizer(struct drt_model *model) {
    return model ? model->tokenizer : NULL;
}

enum drt_status drt_model_info(struct drt_model *model, struct drt_model_info *out) {
    LIBRARY_NEEDS(model);
    LIBRARY_NEEDS(out);
    const struct engine *e = &model->engine;
    const struct model_config *c = &e->model.config;
    const char *dtype = e->weights.i8 ? "i8" : e->weights.type == DTYPE_BF16 ? "bf16" : "f32";
    const char *variant = c->encoder_input == ENCODER_INPUT_TOKENS ? "encoder-decoder" : "decoder";
    const struct drt_model_info info = {.path = e->model.path,
                                        .variant = c->base_lm ? "base" : variant,
                                        .device = e->device->name,
                                        .dtype = dtype,
                                        .dim = model_config_landmark_size(c),
                                        .vocab_size = c->vocab_size,
                                        .layers = model_config_layers(c),
                                        .encoder_layers = c->base_lm ? 0 : c->encoder_layers,
                                        .heads = c->heads,
                                        .groups = c->base_lm ? 0 : c->groups,
                                        .chunk = c->chunk,
                                        .window = c->window,
                                        .neighbours = c->base_lm ? 0 : c->topk,
                                        .eos_id = c->eos_id,
                                        .pad_id = c->pad_id,
                                        .landmark_id = c->landmark_id,
                                        .parameters = params_elements(e->model.params),
                                        .threads = threads_count(e->device->threads)};
    return (enum drt_status)library_fill(out, &info, sizeof info, "struct drt_model_info");
}

/* ---- landmarks ---------------------------------------------------------------------------------------------- */

enum status library_model_encodes(const struct drt_model *m) {
    const struct model_config *c = &m->engine.model.config;
    if (c->base_lm) return fail(STATUS_UNSUPPORTED, "%s: is a Base LM, which has no encoder", m->engine.model.path);
    if (c->encoder_input != ENCODER_INPUT_TOKENS)
        return fail(STATUS_UNSUPPORTED,
                    "%s: is the decoder variant, whose chunks depend on the text before them: they are not encoded "
                    "alone",
                    m->engine.model.path);
    return STATUS_OK;
}

/* The engine's encoder has memory for the chunks of a retrieval, which are too few to fill a GPU. An encoder for larger
 * batches is made when it is first needed. */
static enum status library_encoder(struct encoder **out, struct drt_model *m, int64_t n) {
    const struct engine *e = &m->engine;
    *out = e->encoder;
    if (e->device->shares_memory || n <= encoder_batch(e->encoder)) return STATUS_OK;
    if (!m->many) TRY(encoder_create(&m->many, e->device, &e->model.config, &e->weights, 0));
    *out = m->many;
    return STATUS_OK;
}

/* Encodes as many chunks at a time as the device can use. Call it with the model's lock. */
static enum status library_encode(struct drt_model *m, float *rows, const int32_t *ids, int64_t n) {
    struct device *dev = m->engine.device;
    struct encoder *encoder;
    void *buffer = NULL;
    TRY(library_encoder(&encoder, m, n));
    const int64_t batch = encoder_batch(encoder), dim = m->engine.model.config.hidden,
                  chunk = m->engine.model.config.chunk;
    TRY(device_buffer(dev, &buffer, (size_t)(batch * dim) * sizeof *rows));
    for (int64_t at = 0; at < n; at += batch) {
        int64_t now = n - at < batch ? n - at : batch;
        float *landmarks_device = device_side(dev, rows + at * dim, buffer);
        encoder_encode(encoder, &(struct encoder_output){.landmarks = landmarks_device}, ids + at * chunk, now);
        device_download(dev, rows + at * dim, landmarks_device, (size_t)(now * dim) * sizeof *rows);
    }
    enum status status = device_sync(dev);
    device_release(dev, buffer);
    return status;
}

static enum status library_check_chunks(const struct drt_model *m, const int32_t *ids, int64_t n) {
    const struct model_config *c = &m->engine.model.config;
    TRY(library_model_encodes(m));
    TRY(library_check_ids(ids, n * c->chunk, c->vocab_size, true));
    for (int64_t i = 0; i < n; i++) {
        const int32_t *chunk = ids + i * c->chunk;
        int wrong = chunk[0] < 0;
        for (int j = 1; j < c->chunk; j++)
            wrong |= chunk[j - 1] < 0 && chunk[j] >= 0;
        if (wrong)
            return fail(STATUS_INVALID, "chunk %lld: begins with -1, or has an id after one: -1 may only fill its end",
                        (long long)i);
    }
    return STATUS_OK;
}

enum drt_status drt_model_encode(struct drt_model *model, float *rows, const int32_t *ids, int64_t n) {
    LIBRARY_NEEDS(model);
    LIBRARY_CHECK(n >= 0, "%s: n is %lld", __func__, (long long)n);
    LIBRARY_CHECK((rows && ids) || n == 0, "%s: rows or ids is NULL", __func__);
    LIBRARY_TRY(library_check_chunks(model, ids, n));
    library_lock(&model->lock);
    enum status status = library_encode(model, rows, ids, n);
    library_unlock(&model->lock);
    return (enum drt_status)status;
}

enum drt_status drt_model_encode_device(struct drt_model *model, void *rows, const int32_t *ids, int64_t n) {
    LIBRARY_NEEDS(model);
    LIBRARY_CHECK(n >= 0, "%s: n is %lld", __func__, (long long)n);
    LIBRARY_CHECK((rows && ids) || n == 0, "%s: rows or ids is NULL", __func__);
    LIBRARY_TRY(library_check_chunks(model, ids, n));
    struct encoder *encoder;
    library_lock(&model->lock);
    enum status status = library_encoder(&encoder, model, n);
    if (status == STATUS_OK && n > 0) {
        encoder_encode(encoder, &(struct encoder_output){.landmarks = rows}, ids, n);
        status = device_sync(model->engine.device);
    }
    library_unlock(&model->lock);
    return (enum drt_status)status;
}

static enum status library_encode_cut(struct drt_model *m, float **rows, int32_t **chunks, int64_t *n,
                                      const int32_t *ids, int64_t n_ids) {
    const int64_t chunk = m->engine.model.config.chunk, count = (n_ids + chunk - 1) / chunk;
    int32_t *cut = NULL;
    float *landmarks = NULL;
    enum status status = memory_allocate(&cut, (size_t)(count * chunk));
    if (status == STATUS_OK && rows)
        status = memory_allocate(&landmarks, (size_t)(count * m->engine.model.config.hidden));
    if (status == STATUS_OK) {
        for (int64_t i = 0; i < count * chunk; i++)
            cut[i] = i < n_ids ? ids[i] : -1;
        library_lock(&m->lock);
        if (rows) status = library_encode(m, landmarks, cut, count);
        library_unlock(&m->lock);
    }
    if (status != STATUS_OK || !chunks) {
        memory_free(cut);
        cut = NULL;
    }
    if (status != STATUS_OK) {
        memory_free(landmarks);
        return status;
    }
    if (rows) *rows = landmarks;
    if (chunks) *chunks = cut;
    *n = count;
    return STATUS_OK;
}

enum drt_status drt_model_encode_text(struct drt_model *model, float **rows, int32_t **ids, int64_t *n,
                                      const char *text, size_t bytes) {
    int32_t *found = NULL;
    size_t count = 0;
    LIBRARY_NEEDS(model);
    LIBRARY_NEEDS(n);
    LIBRARY_CHECK(text || bytes == 0, "%s: text is NULL", __func__);
    LIBRARY_TRY(library_model_encodes(model));
    enum drt_status status = drt_tokenizer_encode(model->tokenizer, &found, &count, text, bytes, false);
    if (status != DRT_OK) return status;
    enum status encoded = library_encode_cut(model, rows, ids, n, found, (int64_t)count);
    memory_free(found);
    return (enum drt_status)encoded;
}

enum drt_status drt_model_query(struct drt_model *model, float *vector, const int32_t *ids, int64_t n) {
    LIBRARY_NEEDS(model);
    LIBRARY_NEEDS(vector);
    LIBRARY_NEEDS(ids);
    LIBRARY_CHECK(n >= 1, "%s: n is %lld, and a query needs an id", __func__, (long long)n);
    const struct model_config *c = &model->engine.model.config;
    if (c->base_lm)
        return (enum drt_status)fail(STATUS_UNSUPPORTED, "%s: is a Base LM, which makes no queries",
                                     model->engine.model.path);
    LIBRARY_TRY(library_check_ids(ids, n, c->vocab_size, false));
    const struct text_query_model query = {
        .device = model->engine.device, .decoder = model->engine.decoder, .config = c};
    library_lock(&model->lock);
    enum status status = text_query(vector, &query, ids, n);
    library_unlock(&model->lock);
    return (enum drt_status)status;
}
