/* flat_index.c -- see flat_index.h.
 *
 * topk limits each query to the first rows of a matrix, so what is excluded is left out by searching on both sides of
 * it: all queries of a batch below their own ranges, all of them behind the last range's end, and each one between its
 * range's end and that of the last, which is nothing when the ranges are one document. All rows but the excluded ones
 * are read about once. The three lists of a query are merged here. */
#include "indexer/flat_index.h"
#include "base/half.h"
#include "base/memory.h"
#include "kernels/ops.h"
#include "kernels/topk.h"
#include <assert.h>
#include <math.h>

enum { BATCH = 64 }; /* queries: what topk serves in one reading of the rows */
enum part {
    BELOW,
    BETWEEN,
    BEHIND,
    PARTS
};                                  /* in the order of ids: a merge that prefers the earlier breaks ties by id */
#define ROWS_MAX (INT64_C(1) << 30) /* topk counts rows in 32 bits */

struct flat_index {
    struct device *dev;
    struct mat rows; /* [chunks, dim] */
    /* Pairs of this process's memory and the device's (NULL where it is shared). */
    int64_t *index;   /* [PARTS, BATCH, k] */
    float *score;     /* [PARTS, BATCH, k] */
    int64_t *visible; /* [PARTS, BATCH] */
    void *index_room, *score_room, *visible_room;
    void *queries_room; /* [BATCH, dim] */
    int k;              /* places there is memory for; 0: none yet */
};

static enum dtype row_type(const struct device *dev) {
    return dev->shares_memory ? DTYPE_F32 : DTYPE_F16;
}

uint64_t flat_index_bytes(const struct device *dev, const struct store_view *view) {
    struct store_info info;
    store_view_info(view, &info);
    return (uint64_t)info.chunks * (uint64_t)info.fingerprint.dim * (uint64_t)dtype_bytes(row_type(dev));
}

static enum status allocate_rows(struct flat_index *f, const struct flat_index_config *config, uint64_t bytes) {
    void *reserve = NULL;
    double gib = (double)bytes / (1 << 30);
    if (f->rows.rows > ROWS_MAX)
        return fail(STATUS_NO_MEMORY, "%lld landmarks are more than a device searches at once",
                    (long long)f->rows.rows);
    if (config->max_bytes && bytes > config->max_bytes)
        return fail(STATUS_NO_MEMORY, "landmarks of %.2f GiB, the limit is %.2f GiB", gib,
                    (double)config->max_bytes / (1 << 30));
    TRY(device_allocate(f->dev, &f->rows.data, bytes));
    /* Taken and given back: what cannot be had now is missing later, where nothing can be done about it. */
    if (config->reserve) TRY(device_allocate(f->dev, &reserve, config->reserve));
    device_release(f->dev, reserve);
    return STATUS_OK;
}

static enum status fill_rows(struct flat_index *f, struct store_view *view) {
    int64_t n;
    for (int64_t at = 0; at < f->rows.rows; at += n) {
        const uint16_t *stored;
        TRY(store_view_landmark_rows(view, &stored, &n, at));
        struct mat to = mat_rows(f->rows, at, n);
        size_t count = (size_t)(n * to.cols);
        if (to.type == DTYPE_F16)
            device_upload(f->dev, to.data, stored, count * sizeof *stored);
        else
            half_from_f16_row(to.data, stored, count);
    }
    return device_sync(f->dev);
}

enum status flat_index_create(struct flat_index **out, const struct flat_index_config *config) {
    struct flat_index *f;
    struct store_info info;
    store_view_info(config->view, &info);
    int dim = info.fingerprint.dim;
    TRY(memory_allocate_zero((void **)&f, 1, sizeof *f));
    f->dev = config->device;
    f->rows = mat_dense(NULL, row_type(f->dev), info.chunks, dim);
    enum status s = allocate_rows(f, config, flat_index_bytes(f->dev, config->view));
    if (s == STATUS_OK) s = fill_rows(f, config->view);
    if (s == STATUS_OK) s = device_room(f->dev, &f->queries_room, BATCH * (size_t)dim * sizeof(float));
    if (s != STATUS_OK) {
        flat_index_free(f);
        return s;
    }
    *out = f;
    return STATUS_OK;
}

static void release_places(struct flat_index *f) {
    device_release_host(f->dev, f->index);
    device_release_host(f->dev, f->score);
    device_release_host(f->dev, f->visible);
    device_release(f->dev, f->index_room);
    device_release(f->dev, f->score_room);
    device_release(f->dev, f->visible_room);
    f->index = f->visible = NULL;
    f->score = NULL;
    f->index_room = f->score_room = f->visible_room = NULL;
    f->k = 0;
}

void flat_index_free(struct flat_index *f) {
    if (!f) return;
    release_places(f);
    device_release(f->dev, f->queries_room);
    device_release(f->dev, f->rows.data);
    memory_free(f);
}

static enum status ensure_places(struct flat_index *f, int k) {
    if (k <= f->k) return STATUS_OK;
    size_t places = (size_t)PARTS * BATCH * (size_t)k, visible_bytes = PARTS * BATCH * sizeof *f->visible;
    release_places(f);
    TRY(device_allocate_host(f->dev, (void **)&f->index, places * sizeof *f->index));
    TRY(device_allocate_host(f->dev, (void **)&f->score, places * sizeof *f->score));
    TRY(device_allocate_host(f->dev, (void **)&f->visible, visible_bytes));
    TRY(device_room(f->dev, &f->index_room, places * sizeof *f->index));
    TRY(device_room(f->dev, &f->score_room, places * sizeof *f->score));
    TRY(device_room(f->dev, &f->visible_room, visible_bytes));
    f->k = k;
    return STATUS_OK;
}

/* Where the batch's queries look: each below `visible[BELOW]` rows, from `begin` on in the other parts. */
struct ranges {
    int64_t below, behind; /* no query's range begins behind `below` rows; `behind` is where the last one ends */
    int64_t begin[BATCH];  /* of BETWEEN: the query's own range's end */
};

static void find_ranges(struct flat_index *f, struct ranges *r, const struct store_range *exclude, int64_t n) {
    int64_t rows = f->rows.rows;
    r->below = 0;
    r->behind = -1;
    for (int64_t i = 0; i < n; i++) {
        struct store_range hole = exclude ? exclude[i] : (struct store_range){0};
        if (hole.begin < 0) hole.begin = 0;
        if (hole.end > rows) hole.end = rows;
        if (hole.begin >= hole.end) hole.begin = hole.end = rows; /* all rows are below an empty range at the end */
        f->visible[BELOW * BATCH + i] = hole.begin;
        r->begin[i] = hole.end;
        if (hole.begin > r->below) r->below = hole.begin;
        if (hole.begin < rows && hole.end > r->behind) r->behind = hole.end;
    }
    if (r->behind < 0) r->behind = rows;
    for (int64_t i = 0; i < n; i++) {
        bool hole = f->visible[BELOW * BATCH + i] < rows;
        f->visible[BETWEEN * BATCH + i] = hole ? r->behind - r->begin[i] : 0;
        f->visible[BEHIND * BATCH + i] = hole ? rows - r->behind : 0;
    }
}

/* Queries i .. i+n-1 over `count` rows from `first` on, into their places of a part. */
static void look(struct flat_index *f, enum part part, struct mat queries, int64_t i, int64_t n, int64_t first,
                 int64_t count, int k) {
    int64_t *index = device_side(f->dev, f->index, f->index_room);
    float *score = device_side(f->dev, f->score, f->score_room);
    int64_t *visible = device_side(f->dev, f->visible, f->visible_room);
    int64_t at = ((int64_t)part * BATCH + i) * k;
    if (count > 0)
        f->dev->ops->topk->forward(f->dev, index + at, score + at, mat_rows(queries, i, n),
                                   mat_rows(f->rows, first, count), visible + (int64_t)part * BATCH + i, k);
}

/* Everything up to the last part that was looked at comes back in one copy each. */
static void bring(struct flat_index *f, int64_t places) {
    if (places == 0) return;
    device_download(f->dev, f->index, device_side(f->dev, f->index, f->index_room), (size_t)places * sizeof *f->index);
    device_download(f->dev, f->score, device_side(f->dev, f->score, f->score_room), (size_t)places * sizeof *f->score);
}

/* Merges the parts of query i, of which those with nothing visible hold nothing. */
static void merge(const struct flat_index *f, struct store_hit *hits, const struct ranges *r, int64_t i, int k) {
    int64_t first[PARTS] = {0, r->begin[i], r->behind};
    int at[PARTS] = {0};
    for (int j = 0; j < k; j++) {
        hits[j] = (struct store_hit){.chunk = -1, .score = -INFINITY};
        int best = -1;
        for (int p = 0; p < PARTS; p++) {
            int64_t place = ((int64_t)p * BATCH + i) * k + at[p];
            if (f->visible[p * BATCH + i] <= 0 || at[p] >= k || f->index[place] < 0) continue;
            if (best >= 0 && !(f->score[place] > hits[j].score)) continue;
            best = p;
            hits[j] = (struct store_hit){.chunk = first[p] + f->index[place], .score = f->score[place]};
        }
        if (best >= 0) at[best]++;
    }
}

static enum status search_batch(struct flat_index *f, struct store_hit *hits, struct mat queries, int k,
                                const struct store_range *exclude) {
    struct ranges r;
    int64_t n = queries.rows, used = 1;
    find_ranges(f, &r, exclude, n);
    device_upload(f->dev, device_side(f->dev, f->visible, f->visible_room), f->visible,
                  PARTS * BATCH * sizeof *f->visible);
    look(f, BELOW, queries, 0, n, 0, r.below, k);
    for (int64_t i = 0; i < n; i++)
        if (f->visible[BETWEEN * BATCH + i] > 0) {
            look(f, BETWEEN, queries, i, 1, r.begin[i], r.behind - r.begin[i], k);
            used = 2;
        }
    if (r.behind < f->rows.rows) {
        look(f, BEHIND, queries, 0, n, r.behind, f->rows.rows - r.behind, k);
        used = 3;
    }
    bring(f, ((used - 1) * BATCH + n) * k);
    TRY(device_sync(f->dev));
    for (int64_t i = 0; i < n; i++)
        merge(f, hits + i * k, &r, i, k);
    return STATUS_OK;
}

enum status flat_index_search(struct flat_index *f, struct store_hit *hits, struct mat queries, int k,
                              const struct store_range *exclude) {
    assert(k > 0 && queries.type == DTYPE_F32 && queries.cols == f->rows.cols);
    TRY(ensure_places(f, k));
    for (int64_t i = 0; i < queries.rows; i += BATCH) {
        int64_t n = queries.rows - i < BATCH ? queries.rows - i : BATCH;
        TRY(search_batch(f, hits + i * k, mat_rows(queries, i, n), k, exclude ? exclude + i : NULL));
    }
    return STATUS_OK;
}

enum status flat_index_search_host(struct flat_index *f, struct store_hit *hits, const float *queries, int64_t n, int k,
                                   const struct store_range *exclude) {
    int64_t dim = f->rows.cols;
    for (int64_t i = 0; i < n; i += BATCH) {
        int64_t batch = n - i < BATCH ? n - i : BATCH;
        const float *from = queries + i * dim;
        float *to = f->queries_room;
        if (to) device_upload(f->dev, to, from, (size_t)(batch * dim) * sizeof *to);
        TRY(flat_index_search(f, hits + i * k, mat_f32(to ? to : from, batch, dim), k, exclude ? exclude + i : NULL));
    }
    return STATUS_OK;
}
