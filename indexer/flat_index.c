/* flat_index.c -- see flat_index.h.
 *
 * topk limits each query to the first rows of a matrix, so what is excluded is left out by searching on both sides of
 * it: all queries of a batch below their own ranges, all of them behind the last range's end, and each one between its
 * range's end and that of the last, which is nothing when the ranges are one document. All rows but the excluded ones
 * are read about once. The three lists of a query are merged here. */
#include "indexer/flat_index.h"
#include "base/memory.h"
#include "indexer/found_room.h"
#include "kernels/ops.h"
#include "kernels/search/topk.h"
#include <assert.h>
#include <math.h>
#include <string.h>

enum { BATCH = 1024 }; /* queries at a time: bound by arithmetic long before */
enum part {
    BELOW,
    BETWEEN,
    BEHIND,
    PARTS
}; /* in the order of ids: a merge that prefers the earlier breaks ties by id */

struct flat_index {
    struct device *dev;
    struct mat rows;            /* [chunks that are there, dim] */
    struct store_range *ranges; /* ids that are not */
    struct store_dropped dropped;
    /* This process's memory and the device's (a room is NULL where memory is shared). */
    struct found_room found;       /* lists: [PARTS, n, k] of a batch of n queries */
    int64_t visible[PARTS][BATCH]; /* rows of its part that a query sees */
    void *visible_room;
    bool unlimited;     /* what is in visible_room says for BELOW: all rows, for every query */
    void *queries_room; /* [BATCH, dim] */
};

static enum status copy_dropped(struct flat_index *f, struct store_dropped from) {
    if (from.n == 0) return STATUS_OK;
    TRY(memory_allocate(&f->ranges, (size_t)from.n));
    memcpy(f->ranges, from.ranges, (size_t)from.n * sizeof *f->ranges);
    f->dropped = (struct store_dropped){f->ranges, from.n};
    return STATUS_OK;
}

enum status flat_index_create(struct flat_index **out, const struct flat_index_config *config) {
    struct flat_index *f;
    uint64_t bytes = landmark_source_bytes(&config->source, config->device);
    if (config->max_bytes && bytes > config->max_bytes)
        return fail(STATUS_NO_MEMORY, "landmarks of %.2f GiB, the limit is %.2f GiB", (double)bytes / (1 << 30),
                    (double)config->max_bytes / (1 << 30));
    TRY(memory_allocate_zero(&f, 1));
    f->dev = config->device;
    enum status s = landmark_source_allocate(&f->rows, &config->source, f->dev, config->reserve);
    if (s == STATUS_OK) s = copy_dropped(f, config->source.dropped);
    if (s == STATUS_OK) s = config->source.read(config->source.context, f->dev, f->rows, 0);
    if (s == STATUS_OK) s = device_sync(f->dev);
    if (s == STATUS_OK) s = device_room(f->dev, &f->visible_room, sizeof f->visible);
    if (s == STATUS_OK) s = device_room(f->dev, &f->queries_room, BATCH * (size_t)config->source.dim * sizeof(float));
    if (s != STATUS_OK) {
        flat_index_free(f);
        return s;
    }
    *out = f;
    return STATUS_OK;
}

void flat_index_free(struct flat_index *f) {
    if (!f) return;
    found_room_release(&f->found, f->dev);
    device_release(f->dev, f->visible_room);
    device_release(f->dev, f->queries_room);
    device_release(f->dev, f->rows.data);
    memory_free(f->ranges);
    memory_free(f);
}

/* Where the batch's queries look. */
struct ranges {
    int64_t below, behind; /* no query's range begins behind `below` rows; `behind` is where the last one ends */
    int64_t begin[BATCH];  /* of BETWEEN: the query's own range's end */
    int64_t parts;         /* up to the last that anyone looks at */
};

static void find_ranges(struct flat_index *f, struct ranges *r, const struct store_range *exclude, int64_t n) {
    int64_t rows = f->rows.rows;
    r->below = 0;
    r->behind = -1;
    for (int64_t i = 0; i < n; i++) {
        struct store_range hole = exclude ? exclude[i] : (struct store_range){0};
        hole.begin = store_dropped_rank(f->dropped, hole.begin);
        hole.end = store_dropped_rank(f->dropped, hole.end);
        if (hole.begin < 0) hole.begin = 0;
        if (hole.end > rows) hole.end = rows;
        if (hole.begin >= hole.end) hole.begin = hole.end = rows; /* all rows are below an empty range at the end */
        f->visible[BELOW][i] = hole.begin;
        r->begin[i] = hole.end;
        if (hole.begin > r->below) r->below = hole.begin;
        if (hole.begin < rows && hole.end > r->behind) r->behind = hole.end;
    }
    if (r->behind < 0) r->behind = rows;
    r->parts = 1;
    for (int64_t i = 0; i < n; i++) {
        bool hole = f->visible[BELOW][i] < rows;
        f->visible[BETWEEN][i] = hole ? r->behind - r->begin[i] : 0;
        f->visible[BEHIND][i] = hole ? rows - r->behind : 0;
        if (f->visible[BETWEEN][i] > 0) r->parts = 2;
    }
    if (r->behind < rows) r->parts = 3;
}

/* Where nothing is excluded the device knows already what is visible: one round trip less for a step of decoding. */
static void upload_visible(struct flat_index *f, bool limited, int64_t parts, int64_t n) {
    int64_t(*there)[BATCH] = device_side(f->dev, f->visible, f->visible_room);
    if (f->unlimited && !limited) return;
    for (int64_t p = 0; p < parts; p++)
        device_upload(f->dev, there[p], f->visible[p], (size_t)n * sizeof **there);
    f->unlimited = !limited;
}

/* Queries i .. i+n-1 of the batch over `count` rows from `first` on, into their places of a part. */
static void look(struct flat_index *f, struct found_places there, enum part part, struct mat queries, int64_t i,
                 int64_t n, int64_t first, int64_t count, int k) {
    int64_t(*visible)[BATCH] = device_side(f->dev, f->visible, f->visible_room);
    int64_t at = ((int64_t)part * queries.rows + i) * k;
    if (count > 0)
        f->dev->ops->topk->forward(f->dev, there.index + at, there.score + at, mat_rows(queries, i, n),
                                   mat_rows(f->rows, first, count), visible[part] + i, k);
}

/* Merges the parts of query i of n, of which those with nothing visible hold nothing. */
static void merge(const struct flat_index *f, struct store_hit *hits, struct found_places here, const struct ranges *r,
                  int64_t i, int64_t n, int k) {
    int64_t first[PARTS] = {0, r->begin[i], r->behind};
    int at[PARTS] = {0};
    for (int j = 0; j < k; j++) {
        hits[j] = (struct store_hit){.chunk = -1, .score = -INFINITY};
        int best = -1;
        for (int p = 0; p < PARTS; p++) {
            int64_t place = (p * n + i) * k + at[p];
            if (f->visible[p][i] <= 0 || at[p] >= k || here.index[place] < 0) continue;
            if (best >= 0 && !(here.score[place] > hits[j].score)) continue;
            best = p;
            hits[j] = (struct store_hit){.chunk = store_dropped_nth(f->dropped, first[p] + here.index[place]),
                                         .score = here.score[place]};
        }
        if (best >= 0) at[best]++;
    }
}

static enum status search_batch(struct flat_index *f, struct store_hit *hits, struct mat queries, int k,
                                const struct store_range *exclude) {
    struct ranges r;
    int64_t n = queries.rows;
    find_ranges(f, &r, exclude, exclude ? n : BATCH);
    upload_visible(f, exclude, r.parts, exclude ? n : BATCH);
    int64_t places = r.parts * n * k;
    struct found_places here = found_here(&f->found, places), there = found_there(&f->found, f->dev, places);
    look(f, there, BELOW, queries, 0, n, 0, r.below, k);
    for (int64_t i = 0; i < n; i++)
        if (f->visible[BETWEEN][i] > 0) look(f, there, BETWEEN, queries, i, 1, r.begin[i], r.behind - r.begin[i], k);
    if (r.behind < f->rows.rows) look(f, there, BEHIND, queries, 0, n, r.behind, f->rows.rows - r.behind, k);
    device_download(f->dev, here.index, there.index, found_bytes(places));
    TRY(device_sync(f->dev));
    for (int64_t i = 0; i < n; i++)
        merge(f, hits + i * k, here, &r, i, n, k);
    return STATUS_OK;
}

enum status flat_index_search(struct flat_index *f, struct store_hit *hits, struct mat queries, int k,
                              const struct store_range *exclude) {
    assert(k > 0 && queries.type == DTYPE_F32 && queries.cols == f->rows.cols);
    TRY(found_room_reserve(&f->found, f->dev, PARTS * (queries.rows < BATCH ? queries.rows : BATCH) * k));
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
