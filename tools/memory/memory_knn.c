/* memory_knn.c -- see memory_knn.h.
 *
 * topk finds largest products, not smallest distances. So keys get additional columns with -|k|^2 / 2, and queries get
 * ones in these columns. The product is then (|s|^2 - d) / 2. bf16 keys have three such columns, whose sum has the 24
 * bits of a float32. */
#include "tools/memory/memory_knn.h"
#include "base/half.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "decoder/decoder_passages.h"
#include "kernels/ops.h"
#include "kernels/search/topk.h"
#include <assert.h>
#include <math.h>
#include <string.h>

/* EXTRA: columns that are added, of which bf16 uses the first SPLIT. GROUP: queries that are searched together. BLOCK:
 * chunks of a block. HITS: hits of a query in each block after the first, unless these are too few. */
enum { EXTRA = 16, SPLIT = 3, GROUP = 4096, BLOCK = 256, BLOCK_GPU = 2048, HITS = 64 };
/* Replaces -|k|^2 / 2 if there is no value. */
static const float no_entry = -1e30F;

struct memory_knn {
    struct memory_knn_config config;
    /* number of queries; the next one to be read; chunks of a block; tokens of a chunk */
    int64_t n, next, block, length;
    size_t bytes;          /* of a number of the decoder's type */
    unsigned char *states; /* [n, d] */
    int32_t (*barred)[2];  /* [n]: the excluded document, stored twice; -2: none */
    float *square;         /* [n]: |s|^2; this and the two members before have this many entries allocated */
    size_t states_capacity, barred_capacity, square_capacity;
    float *distance; /* [n, m] */
    int32_t *value;
    bool searched;
    /* of a search */
    struct decoder_passages *passages;
    struct mat keys, extra, entries; /* [block*length, d], .. [EXTRA]; entries: both beside each other; device memory */
    struct mat queries;              /* [n, d + EXTRA] the same */
    int32_t *zero, *end;             /* [GROUP], device memory, as are the four members that follow */
    int32_t (*barred_device)[2], (*of_device)[2]; /* [n], [block*length] */
    float *square_device;                         /* [block*length] */
    int64_t *index_device;                        /* [GROUP, m] */
    float *score_device;
    int32_t *ids, *values, (*of)[2]; /* [block*length], host memory, as are the following members */
    int32_t *after;                  /* [length]: the chunk after the block */
    float *key_square;
    unsigned char *extra_host;
    int64_t *index;
    float *score;
};

/* ---- start and end ---- */

enum status memory_knn_create(struct memory_knn **out, const struct memory_knn_config *config) {
    struct memory_knn *k = NULL;
    assert(config->m >= 1 && config->m <= TOPK_SAMPLE_MAX);
    TRY(memory_allocate_zero(&k, 1));
    k->config = *config;
    k->length = config->engine->model.config.chunk;
    k->block = config->block > 0 ? config->block : config->engine->device->shares_memory ? BLOCK : BLOCK_GPU;
    k->bytes = (size_t)dtype_bytes(decoder_type(config->engine->decoder));
    *out = k;
    return STATUS_OK;
}

static void knn_release_search(struct memory_knn *k) {
    struct device *dev = k->config.engine->device;
    void *device_memory[] = {k->keys.data,     k->extra.data, k->entries.data,  k->queries.data, k->zero,        k->end,
                             k->barred_device, k->of_device,  k->square_device, k->index_device, k->score_device};
    void *host_memory[] = {k->ids, k->values, k->of, k->after, k->key_square, k->extra_host, k->index, k->score};
    decoder_passages_free(k->passages);
    for (size_t i = 0; i < ARRAY_LEN(device_memory); i++)
        device_release(dev, device_memory[i]);
    for (size_t i = 0; i < ARRAY_LEN(host_memory); i++)
        memory_free(host_memory[i]);
}

void memory_knn_free(struct memory_knn *k) {
    if (!k) return;
    if (!k->searched) knn_release_search(k);
    memory_free(k->states);
    memory_free(k->barred);
    memory_free(k->square);
    memory_free(k->distance);
    memory_free(k->value);
    memory_free(k);
}

bool memory_knn_searched(const struct memory_knn *k) {
    return k && k->searched;
}

/* ---- queries ---- */

static int64_t knn_dim(const struct memory_knn *k) {
    return model_config_key_size(&k->config.engine->model.config, k->config.key_layer);
}

static float knn_number(const struct memory_knn *k, const unsigned char *row, int64_t i) {
    uint16_t bits;
    float value;
    if (k->bytes == sizeof value) {
        memcpy(&value, row + (size_t)i * sizeof value, sizeof value);
        return value;
    }
    memcpy(&bits, row + (size_t)i * sizeof bits, sizeof bits);
    return half_from_bf16(bits);
}
static void knn_put(const struct memory_knn *k, unsigned char *row, int64_t i, float value) {
    const uint16_t bits = half_to_bf16(value);
    if (k->bytes == sizeof value)
        memcpy(row + (size_t)i * sizeof value, &value, sizeof value);
    else
        memcpy(row + (size_t)i * sizeof bits, &bits, sizeof bits);
}

enum status memory_knn_add(struct memory_knn *k, struct mat states, int64_t document) {
    struct device *dev = k->config.engine->device;
    const size_t row = (size_t)states.cols * k->bytes, n = (size_t)(k->n + states.rows);
    assert(!k->searched && states.cols == knn_dim(k));
    TRY(memory_grow(&k->states, &k->states_capacity, n * row));
    TRY(memory_grow(&k->barred, &k->barred_capacity, n));
    TRY(memory_grow(&k->square, &k->square_capacity, n));
    device_download(dev, k->states + (size_t)k->n * row, states.data, mat_bytes(states));
    TRY(device_sync(dev));
    for (int64_t i = k->n; i < (int64_t)n; i++) {
        double square = 0;
        for (int64_t j = 0; j < states.cols; j++)
            square += pow((double)knn_number(k, k->states + (size_t)i * row, j), 2);
        k->square[i] = (float)square;
        k->barred[i][0] = k->barred[i][1] = document < 0 ? -2 : (int32_t)document;
    }
    k->n = (int64_t)n;
    return STATUS_OK;
}

/* Uploads queries, with ones in the columns of the keys' squares. */
static enum status knn_upload_queries(struct memory_knn *k) {
    struct device *dev = k->config.engine->device;
    const int64_t d = knn_dim(k);
    const size_t row = (size_t)(d + EXTRA) * k->bytes, from = (size_t)d * k->bytes;
    unsigned char *group = NULL;
    TRY(memory_allocate_zero(&group, GROUP * row));
    for (int64_t first = 0; first < k->n; first += GROUP) {
        const int64_t n = min_i64(k->n - first, GROUP);
        for (int64_t i = 0; i < n; i++) {
            memcpy(group + (size_t)i * row, k->states + (size_t)(first + i) * from, from);
            for (int64_t j = 0; j < SPLIT; j++)
                knn_put(k, group + (size_t)i * row, d + j, 1);
        }
        device_upload(dev, (unsigned char *)k->queries.data + (size_t)first * row, group, (size_t)n * row);
    }
    memory_free(group);
    return device_sync(dev);
}

static enum status knn_allocate(struct memory_knn *k) {
    struct engine *e = k->config.engine;
    struct device *dev = e->device;
    const enum dtype type = decoder_type(e->decoder);
    const int64_t d = knn_dim(k), rows = k->block * k->length;
    const size_t found = (size_t)GROUP * (size_t)k->config.m, n = (size_t)rows;
    k->keys = mat_dense(NULL, type, rows, d);
    k->extra = mat_dense(NULL, type, rows, EXTRA);
    k->entries = mat_dense(NULL, type, rows, d + EXTRA);
    k->queries = mat_dense(NULL, type, k->n, d + EXTRA);
    TRY(decoder_passages_create(&k->passages, e->decoder, k->length, PASSAGES_EXACT));
    TRY(device_allocate(dev, &k->keys.data, mat_bytes(k->keys)));
    TRY(device_allocate(dev, &k->extra.data, mat_bytes(k->extra)));
    TRY(device_allocate(dev, &k->entries.data, mat_bytes(k->entries)));
    TRY(device_allocate(dev, &k->queries.data, mat_bytes(k->queries)));
    TRY(device_allocate(dev, &k->zero, GROUP));
    TRY(device_allocate(dev, &k->end, GROUP));
    TRY(device_allocate(dev, &k->barred_device, (size_t)k->n));
    TRY(device_allocate(dev, &k->of_device, n));
    TRY(device_allocate(dev, &k->square_device, n));
    TRY(device_allocate(dev, &k->index_device, found));
    TRY(device_allocate(dev, &k->score_device, found));
    TRY(memory_allocate(&k->ids, n));
    TRY(memory_allocate(&k->values, n));
    TRY(memory_allocate(&k->of, n));
    TRY(memory_allocate(&k->after, (size_t)k->length));
    TRY(memory_allocate(&k->key_square, n));
    TRY(memory_allocate_zero(&k->extra_host, mat_bytes(k->extra)));
    TRY(memory_allocate(&k->index, found));
    TRY(memory_allocate(&k->score, found));
    TRY(memory_allocate(&k->distance, (size_t)k->n * (size_t)k->config.m));
    TRY(memory_allocate(&k->value, (size_t)k->n * (size_t)k->config.m));
    for (int64_t i = 0; i < k->n * k->config.m; i++)
        k->distance[i] = INFINITY, k->value[i] = -1;
    device_clear(dev, k->zero, GROUP * sizeof *k->zero);
    device_upload(dev, k->barred_device, k->barred, (size_t)k->n * sizeof *k->barred);
    return knn_upload_queries(k);
}

/* ---- entries ---- */

/* Gets the ids [length] and the document of a chunk. All are -1 if the chunk was dropped or is beyond the
 * end of the store. */
static enum status knn_chunk(struct memory_knn *k, int32_t *ids, int64_t *document, int64_t chunk) {
    struct store_chunk c;
    *document = -1;
    enum status s = chunk < k->config.engine->info.chunks ? store_view_chunk(k->config.engine->view, &c, ids, chunk)
                                                          : STATUS_NOT_FOUND;
    if (s == STATUS_OK) *document = c.document;
    if (s != STATUS_NOT_FOUND) return s;
    for (int64_t i = 0; i < k->length; i++)
        ids[i] = -1;
    return STATUS_OK;
}

/* Reads ids, values and documents of a block of n chunks. */
static enum status knn_read_block(struct memory_knn *k, int64_t first, int64_t n) {
    int64_t document, next;
    TRY(knn_chunk(k, k->ids, &document, first));
    for (int64_t c = 0; c < n; c++, document = next) {
        int32_t *ids = k->ids + c * k->length, *then = c + 1 < n ? ids + k->length : k->after;
        TRY(knn_chunk(k, then, &next, first + c + 1));
        for (int64_t i = 0; i < k->length; i++) {
            const int64_t at = c * k->length + i;
            const int32_t follows = i + 1 < k->length ? ids[i + 1] : next == document ? then[0] : -1;
            k->values[at] = ids[i] < 0 ? -1 : follows;
            k->of[at][0] = k->of[at][1] = (int32_t)document;
        }
    }
    return STATUS_OK;
}

/* Makes the keys of the block, with the columns of their squares, on the device. */
static enum status knn_encode_block(struct memory_knn *k, int64_t n) {
    struct engine *e = k->config.engine;
    struct device *dev = e->device;
    const int64_t rows = n * k->length, d = knn_dim(k);
    const size_t row = EXTRA * k->bytes;
    struct mat keys = mat_rows(k->keys, 0, rows), extra = mat_rows(k->extra, 0, rows),
               entries = mat_rows(k->entries, 0, rows);
    decoder_passages_encode(k->passages, keys, k->config.key_layer, k->ids, n);
    dev->ops->token_memory->squares(dev, k->square_device, keys);
    device_download(dev, k->key_square, k->square_device, (size_t)rows * sizeof *k->key_square);
    TRY(device_sync(dev));
    for (int64_t i = 0; i < rows; i++) {
        float left = k->values[i] < 0 ? no_entry : -0.5F * k->key_square[i];
        for (int64_t j = 0; j < SPLIT; j++) {
            unsigned char *to = k->extra_host + (size_t)i * row;
            knn_put(k, to, j, left);
            left = k->values[i] < 0 ? 0 : left - knn_number(k, to, j);
        }
    }
    device_upload(dev, extra.data, k->extra_host, (size_t)rows * row);
    device_copy_rows(dev, mat_cols(entries, 0, d), keys);
    device_copy_rows(dev, mat_cols(entries, d, EXTRA), extra);
    device_upload(dev, k->of_device, k->of, (size_t)rows * sizeof *k->of);
    return device_sync(dev);
}

/* ---- the nearest ---- */

struct knn_merge {
    struct memory_knn *k;
    int64_t first;   /* first query of the group */
    int hits;        /* number of hits of each query in index and score */
    float *distance; /* [workers, m] scratch, as is the next */
    int32_t *value;
};

static float knn_distance(const struct memory_knn *k, int64_t query, float score) {
    const float scale = sqrtf((float)k->queries.cols);
    return fmaxf(k->square[query] - 2 * score * scale, 0);
}

/* Merges the hits of one query into its list. Of equal distances the earlier entry stays first. */
static void knn_merge_query(const struct knn_merge *t, int64_t i, float *distance, int32_t *value) {
    const struct memory_knn *k = t->k;
    const int m = k->config.m;
    float *list = k->distance + (t->first + i) * m;
    int32_t *values = k->value + (t->first + i) * m;
    const int64_t *index = k->index + i * t->hits;
    const float *score = k->score + i * t->hits;
    int old = 0, hit = 0;
    for (int to = 0; to < m; to++) {
        while (hit < t->hits && index[hit] >= 0 && k->values[index[hit]] < 0)
            hit++;
        const bool more = hit < t->hits && index[hit] >= 0;
        const float next = more ? knn_distance(k, t->first + i, score[hit]) : INFINITY;
        if (more && next < list[old]) {
            distance[to] = next;
            value[to] = k->values[index[hit++]];
        } else {
            distance[to] = list[old];
            value[to] = values[old++];
        }
    }
    memcpy(list, distance, (size_t)m * sizeof *list);
    memcpy(values, value, (size_t)m * sizeof *values);
}
static void knn_merge_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct knn_merge *t = context;
    const int64_t at = (int64_t)worker * t->k->config.m;
    for (int64_t i = begin; i < end; i++)
        knn_merge_query(t, i, t->distance + at, t->value + at);
}

/* Whether the last hit of some query would enter its list, so that there may be more hits for the list. */
static bool knn_too_few(const struct memory_knn *k, int64_t first, int64_t n, int hits) {
    for (int64_t i = 0; i < n; i++) {
        const int64_t last = i * hits + hits - 1;
        const float worst = k->distance[(first + i + 1) * k->config.m - 1];
        if (k->index[last] >= 0 && knn_distance(k, first + i, k->score[last]) < worst) return true;
    }
    return false;
}

static enum status knn_group(struct memory_knn *k, struct knn_merge *merge, int64_t rows) {
    struct device *dev = k->config.engine->device;
    const int64_t first = merge->first, n = min_i64(k->n - first, GROUP);
    for (;; merge->hits = (int)min_i64(4 * (int64_t)merge->hits, k->config.m)) {
        const struct topk_sampling in = {.queries = mat_rows(k->queries, first, n),
                                         .landmarks = mat_rows(k->entries, 0, rows),
                                         .rows = {.own_begin = k->zero,
                                                  .own_end = k->zero,
                                                  .sequence_end = k->zero,
                                                  .other_begin = k->zero,
                                                  .other_end = k->end,
                                                  .document_of = k->of_device,
                                                  .document_barred = k->barred_device + first},
                                         .k = merge->hits};
        const size_t found = (size_t)n * (size_t)merge->hits;
        dev->ops->topk->sample(dev, k->index_device, NULL, k->score_device, &in);
        device_download(dev, k->index, k->index_device, found * sizeof *k->index);
        device_download(dev, k->score, k->score_device, found * sizeof *k->score);
        TRY(device_sync(dev));
        if (merge->hits == k->config.m || !knn_too_few(k, first, n, merge->hits)) break;
    }
    threads_for(dev->threads, n, 1, knn_merge_body, merge);
    return STATUS_OK;
}

static enum status knn_block(struct memory_knn *k, struct knn_merge *merge, int64_t first, int64_t n) {
    struct device *dev = k->config.engine->device;
    int32_t end[GROUP];
    TRY(knn_read_block(k, first, n));
    TRY(knn_encode_block(k, n));
    for (int i = 0; i < GROUP; i++)
        end[i] = (int32_t)(n * k->length);
    device_upload(dev, k->end, end, sizeof end);
    for (merge->first = 0; merge->first < k->n; merge->first += GROUP) {
        merge->hits = (int)min_i64(first == 0 ? k->config.m : HITS, k->config.m);
        TRY(knn_group(k, merge, n * k->length));
    }
    return STATUS_OK;
}

static enum status knn_blocks(struct memory_knn *k, struct knn_merge *merge, const struct progress *progress) {
    const int64_t chunks = k->config.engine->info.chunks;
    for (int64_t first = 0, n; first < chunks; first += n) {
        n = min_i64(chunks - first, k->block);
        if (progress_stop_requested(progress)) return fail(STATUS_INTERRUPTED, "stopped while the store was read");
        TRY(knn_block(k, merge, first, n));
        progress_step(progress, "kNN-LM", "chunks of the store", first + n, chunks);
    }
    return STATUS_OK;
}

enum status memory_knn_search(struct memory_knn *k, const struct progress *progress) {
    struct knn_merge merge = {.k = k};
    const size_t scratch = (size_t)threads_count(k->config.engine->device->threads) * (size_t)k->config.m;
    enum status s;
    assert(!k->searched && k->n > 0);
    TRY_GOTO(s, knn_allocate(k), out);
    TRY_GOTO(s, memory_allocate(&merge.distance, scratch), out);
    TRY_GOTO(s, memory_allocate(&merge.value, scratch), out);
    TRY_GOTO(s, knn_blocks(k, &merge, progress), out);
    knn_release_search(k);
    k->searched = true;
out:
    memory_free(merge.distance);
    memory_free(merge.value);
    return s;
}

struct memory_nearest memory_knn_next(struct memory_knn *k, int64_t n) {
    const int64_t first = k->next, m = k->config.m;
    assert(k->searched && first + n <= k->n);
    k->next += n;
    return (struct memory_nearest){k->distance + first * m, k->value + first * m, (int)m};
}
