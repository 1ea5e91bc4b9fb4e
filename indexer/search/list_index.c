/* list_index.c -- see list_index.h.
 *
 * At first the rows are in the order of chunks. The sample for k-means is a subset at equal distances, which is not
 * copied. Each row is assigned to a list. Then the rows are read again, block by block, and each is written to its slot
 * in its list. So the device has all rows once, and one block of them twice. */
#include "indexer/search/list_index.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "indexer/search/device_search.h"
#include "kernels/ops.h"
#include "kernels/search/kmeans.h"
#include <assert.h>
#include <math.h>

enum {
    BATCH = 1024,      /* queries of a call */
    BLOCK = 1 << 16,   /* rows at a time */
    PER_LIST_MIN = 39, /* with fewer rows per list, the comparison with its centroid takes more time than it saves */
    SAMPLE = 64        /* rows per list for k-means, as the store's own indexes have */
};

struct list_index {
    struct device *dev;
    struct mat rows, centroids;
    int32_t *begin, *id; /* device memory */
    int32_t *row_of;     /* list_index_lists; NULL: not made */
    int64_t largest, chunks;
    int nprobe;
    struct hit_buffer found;
    struct device_stage skip; /* int64 [BATCH][2] */
    void *queries_device;
};

static int64_t list_count(const struct list_index_config *c) {
    int64_t lists = 1, most = c->source.rows / PER_LIST_MIN;
    if (c->lists > 0) lists = c->lists;
    while (c->lists <= 0 && lists * 2 <= (int64_t)(8 * sqrt((double)c->source.rows) * 1.4143) && lists * 2 <= most)
        lists *= 2;
    if (lists > c->source.rows) lists = c->source.rows;
    return lists < IVF_SCAN_LISTS_MAX ? lists : IVF_SCAN_LISTS_MAX;
}

uint64_t list_index_bytes(const struct list_index_config *c) {
    uint64_t lists = (uint64_t)list_count(c), number = (uint64_t)dtype_bytes(landmark_source_type(c->device));
    return landmark_source_bytes(&c->source, c->device) + 4 * (uint64_t)c->source.rows +
           lists * ((uint64_t)c->source.dim * number + 4);
}

/* ---- making ---- */

/* Needed only while the index is made. */
struct making {
    struct list_index *f;
    const struct list_index_config *config;
    struct mat fine;                       /* centroids in float32 */
    int64_t *list_device, *visible_device; /* [BLOCK], device memory */
    float *score_device;                   /* [BLOCK] */
    struct mat block;                      /* [BLOCK, dim] */
    int64_t *wide;                         /* [BLOCK], this member and the following are in memory of this process */
    int32_t *list, *id;                    /* [rows]: the list of each row; the row in each slot */
    int32_t *begin, *next;                 /* [lists + 1], [lists] */
};

static enum status list_making_allocate(struct making *m) {
    struct list_index *f = m->f;
    struct device *dev = f->dev;
    const struct landmark_source *from = &m->config->source;
    size_t rows = (size_t)from->rows, lists = (size_t)list_count(m->config), dim = (size_t)from->dim;
    enum dtype type = landmark_source_type(dev);
    TRY(device_allocate(dev, &f->id, rows));
    TRY(device_allocate(dev, &f->begin, lists + 1));
    f->centroids = mat_dense(NULL, type, (int64_t)lists, from->dim);
    TRY(device_allocate(dev, &f->centroids.data, lists * dim * (size_t)dtype_bytes(type)));
    m->fine = mat_dense(NULL, DTYPE_F32, (int64_t)lists, from->dim);
    TRY(device_allocate(dev, &m->fine.data, lists * dim * sizeof(float)));
    m->block = mat_dense(NULL, type, BLOCK, from->dim);
    TRY(device_allocate(dev, &m->block.data, BLOCK * dim * (size_t)dtype_bytes(type)));
    TRY(device_allocate(dev, &m->list_device, BLOCK));
    TRY(device_allocate(dev, &m->visible_device, BLOCK));
    TRY(device_allocate(dev, &m->score_device, BLOCK));
    TRY(memory_allocate(&m->wide, BLOCK));
    TRY(memory_allocate(&m->list, rows));
    TRY(memory_allocate(&m->id, rows));
    TRY(memory_allocate_zero(&m->begin, lists + 1));
    TRY(memory_allocate(&m->next, lists));
    return landmark_source_allocate(&f->rows, from, dev, m->config->reserve);
}

static void list_making_release(struct making *m) {
    struct device *dev = m->f->dev;
    device_release(dev, m->fine.data);
    device_release(dev, m->block.data);
    device_release(dev, m->list_device);
    device_release(dev, m->visible_device);
    device_release(dev, m->score_device);
    memory_free(m->wide);
    memory_free(m->list);
    memory_free(m->id);
    memory_free(m->begin);
    memory_free(m->next);
}

static enum status list_check_stop(const struct making *m) {
    bool stop = m->config->stop && m->config->stop(m->config->context);
    return stop ? fail(STATUS_INTERRUPTED, "the index on the device was stopped while it was made") : STATUS_OK;
}

/* Reads the rows in the order of chunks, and computes the centroids. */
static enum status list_find_centroids(struct making *m) {
    struct list_index *f = m->f;
    const struct landmark_source *from = &m->config->source;
    for (int64_t at = 0; at < from->rows; at += BLOCK) {
        TRY(landmark_source_rows(from, f->dev, mat_rows(f->rows, at, min_i64(from->rows - at, BLOCK)), at));
        TRY(list_check_stop(m));
    }
    int64_t wanted = f->centroids.rows * SAMPLE, step = from->rows > wanted ? from->rows / wanted : 1;
    struct mat sample = f->rows;
    sample.rows /= step;
    sample.stride *= step;
    const struct kmeans_config how = {.seed = m->config->seed, .stop = m->config->stop, .context = m->config->context};
    TRY(kmeans_fit(f->dev, m->fine, sample, &how));
    f->dev->ops->kmeans_assign->unit(f->dev, f->centroids, m->fine);
    return STATUS_OK;
}

/* Computes the list of each row, and where lists begin. */
static enum status list_assign_rows(struct making *m) {
    struct list_index *f = m->f;
    int64_t rows = f->rows.rows, lists = f->centroids.rows;
    for (int64_t i = 0; i < BLOCK; i++)
        m->wide[i] = lists;
    device_upload(f->dev, m->visible_device, m->wide, BLOCK * sizeof *m->wide);
    for (int64_t at = 0; at < rows; at += BLOCK) {
        int64_t n = min_i64(rows - at, BLOCK);
        kmeans_assign(f->dev, m->list_device, m->score_device, mat_rows(f->rows, at, n), f->centroids,
                      m->visible_device);
        device_download(f->dev, m->wide, m->list_device, (size_t)n * sizeof *m->wide);
        TRY(device_sync(f->dev));
        for (int64_t i = 0; i < n; i++) {
            int64_t list = m->wide[i] < 0 ? 0 : m->wide[i]; /* a row that contains NaN has no best list */
            m->list[at + i] = (int32_t)list;
            m->begin[list + 1]++;
        }
        TRY(list_check_stop(m));
    }
    for (int64_t l = 0; l < lists; l++) {
        f->largest = m->begin[l + 1] > f->largest ? m->begin[l + 1] : f->largest;
        m->begin[l + 1] += m->begin[l];
        m->next[l] = m->begin[l];
    }
    return STATUS_OK;
}

/* Reads the rows again, and writes each to its slot. */
static enum status list_write_rows(struct making *m) {
    struct list_index *f = m->f;
    const struct landmark_source *from = &m->config->source;
    for (int64_t at = 0; at < from->rows; at += BLOCK) {
        int64_t n = min_i64(from->rows - at, BLOCK);
        for (int64_t i = 0; i < n; i++) {
            m->wide[i] = m->next[m->list[at + i]]++;
            m->id[m->wide[i]] = (int32_t)store_dropped_nth(from->dropped, from->first + at + i);
        }
        TRY(landmark_source_rows(from, f->dev, mat_rows(m->block, 0, n), at));
        device_upload(f->dev, m->list_device, m->wide, (size_t)n * sizeof *m->wide);
        f->dev->ops->kmeans_assign->scatter_rows(f->dev, f->rows, mat_rows(m->block, 0, n), m->list_device);
        TRY(list_check_stop(m));
    }
    f->chunks = store_dropped_nth(from->dropped, from->first + from->rows - 1) + 1;
    device_upload(f->dev, f->id, m->id, (size_t)from->rows * sizeof *m->id);
    device_upload(f->dev, f->begin, m->begin, (size_t)(f->centroids.rows + 1) * sizeof *m->begin);
    return device_sync(f->dev);
}

static enum status list_make(struct list_index *f, const struct list_index_config *config) {
    struct making m = {.f = f, .config = config};
    enum status s;
    TRY_GOTO(s, list_making_allocate(&m), out);
    TRY_GOTO(s, list_find_centroids(&m), out);
    TRY_GOTO(s, list_assign_rows(&m), out);
    s = list_write_rows(&m);
out:
    list_making_release(&m);
    return s;
}

enum status list_index_create(struct list_index **out, const struct list_index_config *config) {
    struct list_index *f;
    bool shared = config->device->shares_memory;
    int dim = config->source.dim;
    assert(config->source.rows > 0);
    if (!shared && (dim % 8 != 0 || dim > IVF_SCAN_WIDTH_MAX))
        return fail(STATUS_UNSUPPORTED, "landmarks of %d dimensions: the GPU's lists take multiples of 8 up to %d", dim,
                    IVF_SCAN_WIDTH_MAX);
    TRY(memory_allocate_zero(&f, 1));
    f->dev = config->device;
    int64_t lists = list_count(config);
    f->nprobe = config->nprobe > 0 ? config->nprobe : (int)(2 * sqrt((double)lists));
    if (config->nprobe <= 0 && f->nprobe < 8) f->nprobe = 8;
    if (f->nprobe > lists) f->nprobe = (int)lists;
    enum status s;
    TRY_GOTO(s, list_make(f, config), out);
    TRY_GOTO(s, device_stage_reserve(f->dev, &f->skip, sizeof(int64_t[BATCH][2])), out);
    TRY_GOTO(s, device_buffer(f->dev, &f->queries_device, BATCH * (size_t)dim * sizeof(float)), out);
    *out = f;
out:
    if (s != STATUS_OK) list_index_free(f);
    return s;
}

void list_index_free(struct list_index *f) {
    if (!f) return;
    hit_buffer_release(&f->found, f->dev);
    device_release(f->dev, f->rows.data);
    device_release(f->dev, f->centroids.data);
    device_release(f->dev, f->begin);
    device_release(f->dev, f->id);
    device_release(f->dev, f->row_of);
    device_stage_release(f->dev, &f->skip);
    device_release(f->dev, f->queries_device);
    memory_free(f);
}

struct list_index_info list_index_info(const struct list_index *f) {
    return (struct list_index_info){
        .rows = f->rows.rows, .lists = f->centroids.rows, .largest = f->largest, .nprobe = f->nprobe};
}

static enum status list_find_rows(struct list_index *f) {
    const size_t rows = (size_t)f->rows.rows;
    int32_t *id_host;
    TRY(memory_allocate(&id_host, rows));
    device_download(f->dev, id_host, f->id, rows * sizeof *id_host);
    enum status s = device_sync(f->dev);
    if (s == STATUS_OK) s = landmark_rows_of(f->dev, &f->row_of, id_host, f->rows.rows, f->chunks);
    memory_free(id_host);
    return s;
}

enum status list_index_lists(struct list_index *f, struct landmark_lists *out) {
    if (!f->row_of) TRY(list_find_rows(f));
    *out = (struct landmark_lists){{f->centroids, f->rows, f->begin, f->id}, f->nprobe, f->row_of, f->chunks};
    return STATUS_OK;
}

/* ---- searching ---- */

static enum status list_search_batch(struct list_index *f, struct store_hit *hits, struct mat queries, int k,
                                     int nprobe, const struct store_range *exclude) {
    int64_t n = queries.rows, count = n * k;
    struct hit_list hits_host = hit_buffer_host(&f->found, count);
    struct hit_list hits_device =
        k <= IVF_SCAN_ONCE ? hit_buffer_mapped(&f->found, count) : hit_buffer_device(&f->found, count);
    int64_t(*skip)[2] = f->skip.host;
    for (int64_t i = 0; exclude && i < n; i++) {
        skip[i][0] = exclude[i].begin;
        skip[i][1] = exclude[i].end;
    }
    if (exclude) device_stage_upload(f->dev, &f->skip, (size_t)n * sizeof *skip);
    const struct ivf_scan_lists lists = {f->centroids, f->rows, f->begin, f->id};
    f->dev->ops->ivf_scan->forward(f->dev, hits_device.index, hits_device.score, queries, lists,
                                   exclude ? device_stage_device(f->dev, &f->skip) : NULL,
                                   nprobe > 0 ? nprobe : f->nprobe, k);
    device_fetch(f->dev, hits_host.index, hits_device.index, hit_list_bytes(count));
    device_fetch_wait(f->dev);
    TRY(device_fault(f->dev));
    for (int64_t i = 0; i < count; i++)
        hits[i] = (struct store_hit){.chunk = hits_host.index[i], .score = hits_host.score[i]};
    return STATUS_OK;
}

/* Whether hits are missing although rows outside the range remain. */
static bool list_hits_missing(const struct list_index *f, const struct store_hit *hits, int k,
                              const struct store_range *exclude) {
    int64_t there = f->rows.rows;
    if (exclude) {
        int64_t begin = exclude->begin > 0 ? exclude->begin : 0, end = min_i64(exclude->end, there);
        if (end > begin) there -= end - begin;
    }
    int64_t wanted = min_i64(there, k);
    return wanted > 0 && hits[wanted - 1].chunk < 0;
}

/* Visits all lists for a query with too few hits. If many landmarks are nearly equal, the nearest lists can
 * have too few rows. */
static enum status list_search_wider(struct list_index *f, struct store_hit *hits, struct mat queries, int k,
                                     int nprobe, const struct store_range *exclude) {
    int lists = (int)f->centroids.rows;
    for (int64_t i = 0; i < queries.rows && (nprobe > 0 ? nprobe : f->nprobe) < lists; i++) {
        const struct store_range *range = exclude ? exclude + i : NULL;
        if (list_hits_missing(f, hits + i * k, k, range))
            TRY(list_search_batch(f, hits + i * k, mat_rows(queries, i, 1), k, lists, range));
    }
    return STATUS_OK;
}

enum status list_index_search(struct list_index *f, struct store_hit *hits, struct mat queries, int k, int nprobe,
                              const struct store_range *exclude) {
    assert(k > 0 && queries.type == DTYPE_F32 && queries.cols == f->rows.cols);
    TRY(hit_buffer_reserve(&f->found, f->dev, min_i64(queries.rows, BATCH) * k));
    for (int64_t i = 0; i < queries.rows; i += BATCH)
        TRY(list_search_batch(f, hits + i * k, mat_rows(queries, i, min_i64(queries.rows - i, BATCH)), k, nprobe,
                              exclude ? exclude + i : NULL));
    return list_search_wider(f, hits, queries, k, nprobe, exclude);
}

enum status list_index_search_host(struct list_index *f, struct store_hit *hits, const float *queries, int64_t n, int k,
                                   int nprobe, const struct store_range *exclude) {
    int64_t dim = f->rows.cols;
    for (int64_t i = 0; i < n; i += BATCH) {
        int64_t batch = min_i64(n - i, BATCH);
        const float *from = queries + i * dim;
        float *to = f->queries_device;
        if (to) device_upload(f->dev, to, from, (size_t)(batch * dim) * sizeof *to);
        TRY(list_index_search(f, hits + i * k, mat_f32(to ? to : from, batch, dim), k, nprobe,
                              exclude ? exclude + i : NULL));
    }
    return STATUS_OK;
}
