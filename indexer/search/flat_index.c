/* flat_index.c -- see flat_index.h.
 *
 * topk limits each query to the first rows of a matrix. So a range is excluded by searching on both sides of it, in
 * three parts. All queries of a batch are searched BELOW their own ranges and ABOVE the end of the last range. Each
 * query is searched BETWEEN the end of its own range and that of the last. The part BETWEEN is empty if all ranges are
 * the same document. All rows that are not excluded are read about once. The three lists of a query are then merged. */
#include "indexer/search/flat_index.h"
#include "base/memory.h"
#include "indexer/search/device_search.h"
#include "indexer/search/landmark_load.h"
#include "kernels/device/device_group.h"
#include "kernels/ops.h"
#include "kernels/search/topk.h"
#include <assert.h>
#include <math.h>
#include <string.h>

enum { BATCH = FLAT_INDEX_BATCH }; /* more queries at once would not be faster: arithmetic is the limit already */
enum part {
    BELOW,
    BETWEEN,
    ABOVE,
    PARTS
}; /* in the order of ids: the merge prefers earlier parts, so ties are ordered by id */

/* The rows that each part of a batch searches. */
struct ranges {
    int64_t below, above; /* the beginning and the end of the last range */
    int64_t begin[BATCH]; /* BETWEEN: the end of the query's own range */
    int64_t parts;        /* the number of parts, up to the last one that is not empty */
};

struct flat_index {
    struct device *dev;
    struct mat rows;           /* [existing chunks, dim] */
    struct store_hole *ranges; /* ids that do not exist */
    struct store_dropped dropped;
    struct hit_buffer found;     /* lists: [PARTS, n, k] of a batch of n queries */
    struct device_stage visible; /* int64 [PARTS][BATCH]: number of rows of the part that a query sees */
    bool unlimited;              /* its [BELOW] on the device is the number of all rows, for every query */
    void *queries_device;        /* [BATCH, dim] */
    int64_t first;               /* rows of the source that precede these rows */
    struct ranges now;           /* the batch that is being searched: n queries, k hits for each */
    int64_t n;
    int k;
    struct landmark_lists as_lists; /* flat_index_lists; nprobe 0: not made */
};

static enum status flat_copy_dropped(struct flat_index *f, struct store_dropped from) {
    if (from.n == 0) return STATUS_OK;
    TRY(memory_allocate(&f->ranges, (size_t)from.n));
    memcpy(f->ranges, from.ranges, (size_t)from.n * sizeof *f->ranges);
    f->dropped = (struct store_dropped){f->ranges, from.n};
    return STATUS_OK;
}

/* Everything except the rows. */
static enum status flat_open(struct flat_index **out, const struct flat_index_config *config) {
    struct flat_index *f;
    uint64_t bytes = landmark_source_bytes(&config->source, config->device);
    if (config->max_bytes && bytes > config->max_bytes)
        return fail(STATUS_NO_MEMORY, "landmarks of %.2f GiB, the limit is %.2f GiB", (double)bytes / (1 << 30),
                    (double)config->max_bytes / (1 << 30));
    TRY(memory_allocate_zero(&f, 1));
    f->dev = config->device;
    f->first = config->source.first;
    enum status s;
    TRY_GOTO(s, landmark_source_allocate(&f->rows, &config->source, f->dev, config->reserve), out);
    TRY_GOTO(s, flat_copy_dropped(f, config->source.dropped), out);
    TRY_GOTO(s, device_stage_reserve(f->dev, &f->visible, sizeof(int64_t[PARTS][BATCH])), out);
    TRY_GOTO(s, device_buffer(f->dev, &f->queries_device, BATCH * (size_t)config->source.dim * sizeof(float)), out);
    *out = f;
out:
    if (s != STATUS_OK) flat_index_free(f);
    return s;
}

enum status flat_index_create_all(struct flat_index **out, const struct flat_index_config *configs, int n) {
    struct landmark_load *loads;
    enum status s = STATUS_OK;
    for (int i = 0; i < n; i++)
        out[i] = NULL;
    TRY(memory_allocate(&loads, (size_t)n));
    for (int i = 0; i < n && s == STATUS_OK; i++) {
        device_enter(configs[i].device);
        s = flat_open(&out[i], &configs[i]);
        if (s == STATUS_OK) loads[i] = (struct landmark_load){configs[i].device, &configs[i].source, out[i]->rows};
    }
    if (s == STATUS_OK) s = landmark_load(loads, n, configs[0].device->threads, -1);
    for (int i = 0; i < n && s != STATUS_OK; i++) {
        device_enter(configs[i].device);
        flat_index_free(out[i]);
        out[i] = NULL;
    }
    device_enter(configs[0].device);
    memory_free(loads);
    return s;
}

enum status flat_index_create(struct flat_index **out, const struct flat_index_config *config) {
    return flat_index_create_all(out, config, 1);
}

/* ---- all rows as one list ---- */

static void flat_release_lists(struct flat_index *f) {
    struct landmark_lists *l = &f->as_lists;
    void *memory[] = {l->lists.centroids.data, (void *)l->lists.begin, (void *)l->lists.id, (void *)l->row_of};
    for (size_t i = 0; i < ARRAY_LEN(memory); i++)
        device_release(f->dev, memory[i]);
    *l = (struct landmark_lists){0};
}

static enum status flat_make_lists(struct flat_index *f) {
    struct landmark_lists *l = &f->as_lists;
    const int64_t rows = f->rows.rows;
    int32_t *id_host, *id, *begin, *row_of = NULL;
    enum status s;
    TRY(memory_allocate(&id_host, (size_t)rows));
    for (int64_t r = 0; r < rows; r++)
        id_host[r] = (int32_t)store_dropped_nth(f->dropped, f->first + r);
    l->lists.rows = f->rows;
    l->lists.centroids = mat_dense(NULL, f->rows.type, 1, f->rows.cols);
    l->chunks = id_host[rows - 1] + 1;
    TRY_GOTO(s, device_allocate_bytes(f->dev, &l->lists.centroids.data, mat_bytes(l->lists.centroids)), out);
    TRY_GOTO(s, device_allocate(f->dev, &begin, 2), out);
    l->lists.begin = begin;
    TRY_GOTO(s, device_allocate(f->dev, &id, (size_t)rows), out);
    l->lists.id = id;
    if (l->chunks > rows) TRY_GOTO(s, landmark_rows_of(f->dev, &row_of, id_host, rows, l->chunks), out);
    l->row_of = row_of;
    device_upload(f->dev, begin, (const int32_t[2]){0, (int32_t)rows}, 2 * sizeof *begin);
    device_upload(f->dev, id, id_host, (size_t)rows * sizeof *id);
    l->nprobe = 1;
out:
    memory_free(id_host);
    if (s != STATUS_OK) flat_release_lists(f);
    return s;
}

enum status flat_index_lists(struct flat_index *f, struct landmark_lists *out) {
    const struct mat rows = f->rows;
    if (rows.rows == 0 || rows.cols % 8 != 0 || rows.cols > IVF_SCAN_WIDTH_MAX)
        return fail(STATUS_UNSUPPORTED,
                    "%lld landmarks of %lld dimensions: the GPU's lists take multiples of 8 up to %d",
                    (long long)rows.rows, (long long)rows.cols, IVF_SCAN_WIDTH_MAX);
    if (f->as_lists.nprobe == 0) TRY(flat_make_lists(f));
    *out = f->as_lists;
    return STATUS_OK;
}

void flat_index_free(struct flat_index *f) {
    if (!f) return;
    hit_buffer_release(&f->found, f->dev);
    device_stage_release(f->dev, &f->visible);
    device_release(f->dev, f->queries_device);
    device_release(f->dev, f->rows.data);
    flat_release_lists(f);
    memory_free(f->ranges);
    memory_free(f);
}

static void flat_find_ranges(struct flat_index *f, struct ranges *r, const struct store_range *exclude, int64_t n) {
    int64_t rows = f->rows.rows, (*visible)[BATCH] = f->visible.host;
    r->below = 0;
    r->above = -1;
    for (int64_t i = 0; i < n; i++) {
        struct store_range skip = exclude ? exclude[i] : (struct store_range){0};
        skip.begin = store_dropped_rank(f->dropped, skip.begin) - f->first;
        skip.end = store_dropped_rank(f->dropped, skip.end) - f->first;
        if (skip.begin < 0) skip.begin = 0;
        if (skip.end > rows) skip.end = rows;
        /* an empty range is moved to the end, so that all rows are below it */
        if (skip.begin >= skip.end) skip.begin = skip.end = rows;
        visible[BELOW][i] = skip.begin;
        r->begin[i] = skip.end;
        if (skip.begin > r->below) r->below = skip.begin;
        if (skip.begin < rows && skip.end > r->above) r->above = skip.end;
    }
    if (r->above < 0) r->above = rows;
    r->parts = 1;
    for (int64_t i = 0; i < n; i++) {
        bool skip = visible[BELOW][i] < rows;
        visible[BETWEEN][i] = skip ? r->above - r->begin[i] : 0;
        visible[ABOVE][i] = skip ? rows - r->above : 0;
        if (visible[BETWEEN][i] > 0) r->parts = 2;
    }
    if (r->above < rows) r->parts = 3;
}

/* If no range is excluded the device has the counts of an earlier batch, which saves one copy in a step of decoding. */
static void flat_upload_visible(struct flat_index *f, bool limited, int64_t parts, int64_t n) {
    const int64_t(*visible)[BATCH] = f->visible.host;
    int64_t(*visible_device)[BATCH] = device_stage_device(f->dev, &f->visible);
    if (f->unlimited && !limited) return;
    for (int64_t p = 0; p < parts; p++)
        device_upload(f->dev, visible_device[p], visible[p], (size_t)n * sizeof **visible_device);
    f->unlimited = !limited;
}

/* Searches queries i .. i+n-1 of the batch in a range of rows, and writes the hits into the queries'
 * slots of a part. */
static void flat_search_part(struct flat_index *f, struct hit_list hits_device, enum part part, struct mat queries,
                             int64_t i, int64_t n, struct store_range rows, int k) {
    int64_t(*visible_device)[BATCH] = device_stage_device(f->dev, &f->visible);
    int64_t at = ((int64_t)part * queries.rows + i) * k;
    if (rows.begin < rows.end)
        f->dev->ops->topk->forward(f->dev, hits_device.index + at, hits_device.score + at, mat_rows(queries, i, n),
                                   mat_rows(f->rows, rows.begin, rows.end - rows.begin), visible_device[part] + i, k);
}

/* Merges the parts of query i of n. A part without visible rows has no hits. */
static void flat_merge(const struct flat_index *f, struct store_hit *hits, struct hit_list hits_host,
                       const struct ranges *r, int64_t i, int64_t n, int k) {
    const int64_t(*visible)[BATCH] = f->visible.host;
    int64_t first[PARTS] = {0, r->begin[i], r->above};
    int at[PARTS] = {0};
    for (int j = 0; j < k; j++) {
        hits[j] = (struct store_hit){.chunk = -1, .score = -INFINITY};
        int best = -1;
        for (int p = 0; p < PARTS; p++) {
            int64_t at_hit = (p * n + i) * k + at[p];
            if (visible[p][i] <= 0 || at[p] >= k || hits_host.index[at_hit] < 0) continue;
            if (best >= 0 && !(hits_host.score[at_hit] > hits[j].score)) continue;
            best = p;
            hits[j] = (struct store_hit){
                .chunk = store_dropped_nth(f->dropped, f->first + first[p] + hits_host.index[at_hit]),
                .score = hits_host.score[at_hit]};
        }
        if (best >= 0) at[best]++;
    }
}

enum status flat_index_begin(struct flat_index *f, struct mat queries, int k, const struct store_range *exclude) {
    struct ranges *r = &f->now;
    const int64_t n = queries.rows, (*visible)[BATCH] = f->visible.host;
    assert(k > 0 && n <= BATCH && queries.type == DTYPE_F32 && queries.cols == f->rows.cols);
    TRY(hit_buffer_reserve(&f->found, f->dev, PARTS * n * k));
    f->n = n;
    f->k = k;
    flat_find_ranges(f, r, exclude, exclude ? n : BATCH);
    flat_upload_visible(f, exclude, r->parts, exclude ? n : BATCH);
    struct hit_list hits_device = hit_buffer_device(&f->found, r->parts * n * k);
    flat_search_part(f, hits_device, BELOW, queries, 0, n, (struct store_range){0, r->below}, k);
    for (int64_t i = 0; i < n; i++)
        if (visible[BETWEEN][i] > 0)
            flat_search_part(f, hits_device, BETWEEN, queries, i, 1, (struct store_range){r->begin[i], r->above}, k);
    if (r->above < f->rows.rows)
        flat_search_part(f, hits_device, ABOVE, queries, 0, n, (struct store_range){r->above, f->rows.rows}, k);
    return STATUS_OK;
}

enum status flat_index_begin_host(struct flat_index *f, const float *queries, int64_t n, int k,
                                  const struct store_range *exclude) {
    float *to = f->queries_device;
    if (to) device_upload(f->dev, to, queries, (size_t)(n * f->rows.cols) * sizeof *to);
    return flat_index_begin(f, mat_f32(to ? to : queries, n, f->rows.cols), k, exclude);
}

enum status flat_index_end(struct flat_index *f, struct store_hit *hits) {
    const int64_t n = f->n, count = f->now.parts * n * f->k;
    struct hit_list hits_host = hit_buffer_host(&f->found, count), hits_device = hit_buffer_device(&f->found, count);
    device_download(f->dev, hits_host.index, hits_device.index, hit_list_bytes(count));
    TRY(device_sync(f->dev));
    for (int64_t i = 0; i < n; i++)
        flat_merge(f, hits + i * f->k, hits_host, &f->now, i, n, f->k);
    return STATUS_OK;
}

enum status flat_index_search(struct flat_index *f, struct store_hit *hits, struct mat queries, int k,
                              const struct store_range *exclude) {
    for (int64_t i = 0; i < queries.rows; i += BATCH) {
        int64_t n = queries.rows - i < BATCH ? queries.rows - i : BATCH;
        TRY(flat_index_begin(f, mat_rows(queries, i, n), k, exclude ? exclude + i : NULL));
        TRY(flat_index_end(f, hits + i * k));
    }
    return STATUS_OK;
}

enum status flat_index_search_host(struct flat_index *f, struct store_hit *hits, const float *queries, int64_t n, int k,
                                   const struct store_range *exclude) {
    for (int64_t i = 0; i < n; i += BATCH) {
        int64_t batch = n - i < BATCH ? n - i : BATCH;
        TRY(flat_index_begin_host(f, queries + i * f->rows.cols, batch, k, exclude ? exclude + i : NULL));
        TRY(flat_index_end(f, hits + i * k));
    }
    return STATUS_OK;
}
