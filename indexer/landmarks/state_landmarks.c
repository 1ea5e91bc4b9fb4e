/* state_landmarks.c -- see state_landmarks.h. Key states of chunks are copied to the host, which sums them in
 * float64. */
#include "indexer/landmarks/state_landmarks.h"
#include "base/half.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "kernels/device/device_pair.h"
#include "kernels/ops.h"
#include <assert.h>
#include <math.h>
#include <string.h>

enum { BATCH = 64, CENTRE_CHUNKS = 16 };

struct state_landmarks {
    struct device *device;
    const struct model_config *config;
    struct decoder_passages *passages;
    struct word_sketch *sketch; /* NULL: the landmarks have none */
    float *words;               /* [landmark_sketch]: of one text */
    int64_t dim;                /* of a landmark */
    struct mat keys;            /* [BATCH * chunk, hidden] */
    void *keys_host;            /* the same in host memory */
    float *row;                 /* [hidden] */
    double *mean;               /* [hidden] */
    struct device_pair centre;  /* double [hidden] */
};

/* ---- the state part ---- */

/* Adds the key states of one row, in host memory, to s->mean. */
static void states_add(struct state_landmarks *s, struct mat states, int64_t row) {
    const size_t cols = (size_t)states.cols, at = (size_t)row * cols;
    const float *x = (const float *)states.data + at;
    if (states.type != DTYPE_F32) {
        half_from_bf16_row(s->row, (const uint16_t *)states.data + at, cols);
        x = s->row;
    }
    for (size_t j = 0; j < cols; j++)
        s->mean[j] += (double)x[j];
}

static void states_divide(struct state_landmarks *s, int64_t n) {
    for (int64_t j = 0; j < s->keys.cols && n > 0; j++)
        s->mean[j] /= (double)n;
}

/* s->mean less the centre, with length 1. NaN where numbers of the model overflow, which no shard takes. */
static void states_direction(struct state_landmarks *s, float *out) {
    const int64_t cols = s->keys.cols;
    const double *centre = s->centre.host;
    double square = 0;
    for (int64_t j = 0; j < cols; j++) {
        s->mean[j] -= centre[j];
        square += s->mean[j] * s->mean[j];
    }
    for (int64_t j = 0; j < cols; j++)
        out[j] = square == 0 ? 0 : (float)(s->mean[j] / sqrt(square));
}

/* The mean state of a chunk's ids, into s->mean. A chunk without ids has mean 0. */
static void states_mean(struct state_landmarks *s, const int32_t *ids, int64_t chunk) {
    const int64_t length = s->config->chunk;
    struct mat states = s->keys;
    int64_t n = 0;
    states.data = s->keys_host;
    memset(s->mean, 0, (size_t)states.cols * sizeof *s->mean);
    for (int64_t i = 0; i < length; i++) {
        if (ids[i] < 0) continue;
        states_add(s, states, chunk * length + i);
        n++;
    }
    states_divide(s, n);
}

static enum status states_read(struct state_landmarks *s, const int32_t *ids, int64_t n) {
    struct mat keys = mat_rows(s->keys, 0, n * s->config->chunk);
    decoder_passages_encode(s->passages, keys, model_config_layers(s->config), ids, n);
    device_download(s->device, s->keys_host, keys.data, mat_bytes(keys));
    return device_sync(s->device);
}

static enum status states_centre(struct state_landmarks *s) {
    const int64_t chunk = s->config->chunk, all = CENTRE_CHUNKS * chunk, vocab = s->config->vocab_size;
    double *centre = s->centre.host;
    int32_t *ids;
    TRY(memory_allocate(&ids, (size_t)all));
    for (int64_t i = 0; i < all; i++) /* ids that are adjacent in the vocabulary get into different chunks */
        ids[i % CENTRE_CHUNKS * chunk + i / CENTRE_CHUNKS] = (int32_t)(i * vocab / all);
    enum status status = states_read(s, ids, CENTRE_CHUNKS);
    for (int64_t i = 0; i < CENTRE_CHUNKS && status == STATUS_OK; i++) {
        states_mean(s, ids + i * chunk, i);
        for (int64_t j = 0; j < s->keys.cols; j++)
            centre[j] += s->mean[j] / CENTRE_CHUNKS;
    }
    device_pair_upload(s->device, &s->centre, (size_t)s->keys.cols * sizeof *centre);
    memory_free(ids);
    return status;
}

/* ---- the sketch ---- */

static enum status sketch_open(struct state_landmarks *s, const struct params *params) {
    const struct model_config *c = s->config;
    s->dim = model_config_landmark_size(c);
    if (c->landmark_sketch == 0) return STATUS_OK;
    TRY(memory_allocate(&s->words, (size_t)c->landmark_sketch));
    return word_sketch_create(&s->sketch, params_get(params, "landmark_sketch.idf"), c->vocab_size, c->landmark_sketch);
}

static void sketch_scale(const struct state_landmarks *s, float *sketch) {
    const float by = 1 / sqrtf(STATE_LANDMARKS_COSINE);
    for (int i = 0; i < s->config->landmark_sketch; i++)
        sketch[i] *= by;
}

static void sketch_of_text(struct state_landmarks *s, float *out, const int32_t *ids, int64_t n, enum state_query how) {
    const int64_t used = how == STATE_QUERY_NO_SKETCH ? 0 : min_i64(n, STATE_LANDMARKS_WORDS);
    word_sketch_text(s->sketch, out, ids + n - used, used);
    sketch_scale(s, out);
}

void state_landmarks_sketch(struct state_landmarks *s, float *landmark, const int32_t *ids, int64_t n,
                            enum state_query how) {
    if (s->sketch) sketch_of_text(s, landmark + s->config->hidden, ids, n, how);
}

/* ---- start and end ---- */

static enum status states_allocate(struct state_landmarks *s, struct decoder *decoder) {
    const size_t cols = (size_t)s->config->hidden;
    s->keys = mat_dense(NULL, decoder_type(decoder), (int64_t)BATCH * s->config->chunk, s->config->hidden);
    TRY(decoder_passages_create(&s->passages, decoder, s->config->chunk, PASSAGES_EXACT));
    TRY(device_allocate(s->device, &s->keys.data, mat_bytes(s->keys)));
    TRY(device_allocate_host(s->device, &s->keys_host, mat_bytes(s->keys)));
    TRY(memory_allocate(&s->row, cols));
    TRY(memory_allocate(&s->mean, cols));
    TRY(device_pair_allocate(s->device, &s->centre, cols * sizeof(double)));
    return states_centre(s);
}

enum status state_landmarks_create(struct state_landmarks **out, struct device *device, struct decoder *decoder,
                                   const struct model_config *config, const struct params *params) {
    struct state_landmarks *s = NULL;
    TRY(memory_allocate_zero(&s, 1));
    s->device = device;
    s->config = config;
    enum status status = sketch_open(s, params);
    if (status == STATUS_OK) status = states_allocate(s, decoder);
    if (status != STATUS_OK) {
        state_landmarks_free(s);
        return status;
    }
    *out = s;
    return STATUS_OK;
}

void state_landmarks_free(struct state_landmarks *s) {
    if (!s) return;
    decoder_passages_free(s->passages);
    device_release(s->device, s->keys.data);
    device_release_host(s->device, s->keys_host);
    memory_free(s->row);
    memory_free(s->mean);
    memory_free(s->words);
    word_sketch_free(s->sketch);
    device_pair_release(s->device, &s->centre);
    memory_free(s);
}

int64_t state_landmarks_batch(const struct state_landmarks *s) {
    (void)s;
    return BATCH;
}

enum status state_landmarks_make(struct state_landmarks *s, float *landmarks, const int32_t *ids, int64_t n) {
    const int64_t chunk = s->config->chunk;
    for (int64_t at = 0, part; at < n; at += part) {
        part = n - at < BATCH ? n - at : BATCH;
        TRY(states_read(s, ids + at * chunk, part));
        for (int64_t i = 0; i < part; i++) {
            float *landmark = landmarks + (at + i) * s->dim, *sketch = landmark + s->config->hidden;
            states_mean(s, ids + (at + i) * chunk, i);
            states_direction(s, landmark);
            if (!s->sketch) continue;
            word_sketch_chunk(s->sketch, sketch, ids + (at + i) * chunk, chunk);
            sketch_scale(s, sketch);
        }
    }
    return STATUS_OK;
}

void state_landmarks_of_text(struct state_landmarks *s, float *query, const struct state_text *text,
                             enum state_query how) {
    assert(text->ring.cols == s->keys.cols && text->ring.type == s->keys.type);
    s->device->ops->hybrid->query(s->device, query, text->ring, text->first, text->states, s->centre.device);
    if (!s->sketch) return;
    sketch_of_text(s, s->words, text->ids, text->n, how);
    device_upload(s->device, query + s->config->hidden, s->words, (size_t)s->config->landmark_sketch * sizeof *query);
}

/* ---- a tower of either kind ---- */

enum status chunk_tower_open(struct chunk_tower *t, struct device *device, const struct model_config *config,
                             const struct weights *weights) {
    if (!config->base_lm) return encoder_create(&t->encoder, device, config, weights, 0);
    TRY(decoder_create(&t->decoder, device, config, weights, 0));
    return state_landmarks_create(&t->states, device, t->decoder, config, weights->table);
}

void chunk_tower_close(struct chunk_tower *t) {
    state_landmarks_free(t->states);
    decoder_free(t->decoder);
    encoder_free(t->encoder);
    *t = (struct chunk_tower){0};
}
