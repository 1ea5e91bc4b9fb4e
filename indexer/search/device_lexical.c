/* device_lexical.c -- see device_lexical.h.
 *
 * A batch's plan is one block of memory (queries, parts, lists), so that one copy uploads it. Threads plan several
 * queries at a time. Each query has slots for the most lists that it can have. Afterwards the lists are moved
 * together. */
#include "indexer/search/device_lexical.h"
#include "base/memory.h"
#include "indexer/search/device_search.h"
#include "kernels/device/carve.h"
#include "kernels/device/device_pair.h"
#include "kernels/ops.h"
#include "store/lexical/lexical_lists.h"
#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = DEVICE_LEXICAL_BATCH, WINDOW = LEXICAL_SCAN_WINDOW, WINDOW_BYTES = WINDOW / 8 };
static_assert((int)LEXICAL_SCAN_CODES == (int)LEXICAL_LIST_CODES);

struct device_lexical {
    struct device *dev;
    const struct lexical *index;
    struct store_dropped absent; /* for searches by the CPU */
    struct store_hole *holes;
    int64_t segments, windows;
    uint64_t *begin;             /* [segments]: offset of their postings */
    struct lexical_cache *cache; /* for batches of one query, which are often those of a running text */
    /* device memory */
    uint8_t *postings, *absent_bits;
    struct lexical_scan_segment *ranges;
    struct hit_buffer found;
    /* of a batch: memory of this process, and of the device (NULL if memory is shared) */
    struct device_stage plan;
    int64_t queued; /* number of hits of the batch that was queued last */
};

static int64_t device_lexical_windows(const struct lexical *x) {
    struct lexical_info info;
    int64_t windows = 0;
    lexical_info(x, &info);
    for (int64_t s = 0; s < info.segments; s++)
        windows += (lexical_segment_range(x, s).chunks + WINDOW - 1) / WINDOW;
    return windows;
}

static uint64_t device_lexical_postings_bytes(const struct lexical *x) {
    struct lexical_info info;
    uint64_t bytes = LEXICAL_SCAN_PAD;
    lexical_info(x, &info);
    for (int64_t s = 0; s < info.segments; s++)
        bytes += lexical_segment_postings(x, s).size;
    return bytes;
}

uint64_t device_lexical_bytes(const struct device_lexical_config *config) {
    uint64_t bits = config->absent.n > 0 ? (uint64_t)device_lexical_windows(config->index) * WINDOW_BYTES : 0;
    return device_lexical_postings_bytes(config->index) + bits;
}

/* ---- creation ---- */

/* Sets the bits of a segment's dropped chunks. bits[0] is the segment's first chunk. */
static void lexical_mark_absent(uint8_t *bits, struct lexical_range in, struct store_dropped absent) {
    for (int64_t i = 0; i < absent.n; i++) {
        int64_t begin = absent.ranges[i].begin - in.first_chunk, end = absent.ranges[i].end - in.first_chunk;
        if (begin < 0) begin = 0;
        if (end > in.chunks) end = in.chunks;
        for (int64_t c = begin; c < end; c++)
            bits[c / 8] = (uint8_t)(bits[c / 8] | 1u << (c % 8));
    }
}

static enum status lexical_copy_absent(struct device_lexical *d, struct store_dropped absent) {
    uint8_t *bits = NULL;
    size_t bytes = (size_t)d->windows * WINDOW_BYTES;
    if (absent.n == 0 || bytes == 0) return STATUS_OK;
    enum status s;
    TRY_GOTO(s, memory_allocate(&d->holes, (size_t)absent.n), out);
    memcpy(d->holes, absent.ranges, (size_t)absent.n * sizeof *d->holes);
    d->absent = (struct store_dropped){d->holes, absent.n};
    TRY_GOTO(s, memory_allocate_zero(&bits, bytes), out);
    for (int64_t i = 0, window = 0; i < d->segments; i++) {
        struct lexical_range in = lexical_segment_range(d->index, i);
        lexical_mark_absent(bits + window * WINDOW_BYTES, in, absent);
        window += (in.chunks + WINDOW - 1) / WINDOW;
    }
    TRY_GOTO(s, device_allocate(d->dev, &d->absent_bits, bytes), out);
    device_upload(d->dev, d->absent_bits, bits, bytes);
out:
    memory_free(bits);
    return s;
}

static enum status lexical_copy_postings(struct device_lexical *d, uint64_t reserve) {
    void *spare = NULL;
    struct lexical_scan_segment *ranges = NULL;
    size_t count = (size_t)d->segments;
    enum status s;
    TRY_GOTO(s, memory_allocate(&ranges, count), out);
    TRY_GOTO(s, memory_allocate(&d->begin, count), out);
    TRY_GOTO(s, device_allocate(d->dev, &d->postings, device_lexical_postings_bytes(d->index)), out);
    TRY_GOTO(s, device_allocate(d->dev, &d->ranges, count), out);
    /* Allocated and released at once: a later failure to allocate this memory would have no remedy. */
    if (reserve) TRY_GOTO(s, device_allocate(d->dev, &spare, reserve), out);
    uint64_t at = 0;
    for (int64_t i = 0, window = 0; i < d->segments; i++) {
        struct lexical_range in = lexical_segment_range(d->index, i);
        struct lexical_postings from = lexical_segment_postings(d->index, i);
        ranges[i] = (struct lexical_scan_segment){in.first_chunk, (int32_t)in.chunks, (int32_t)window};
        d->begin[i] = at;
        device_upload(d->dev, d->postings + at, from.bytes, from.size);
        at += from.size;
        window += (in.chunks + WINDOW - 1) / WINDOW;
    }
    device_upload(d->dev, d->ranges, ranges, count * sizeof *ranges);
    s = device_sync(d->dev);
out:
    device_release(d->dev, spare);
    memory_free(ranges);
    return s;
}

enum status device_lexical_create(struct device_lexical **out, const struct device_lexical_config *config) {
    struct device_lexical *d;
    struct lexical_info info;
    lexical_info(config->index, &info);
    int64_t windows = device_lexical_windows(config->index);
    if (windows > LEXICAL_SCAN_WINDOWS_MAX)
        return fail(STATUS_NO_MEMORY, "%lld chunks are more than a device searches at once", (long long)info.chunks);
    TRY(memory_allocate_zero(&d, 1));
    d->dev = config->device;
    d->index = config->index;
    d->segments = info.segments;
    d->windows = windows;
    enum status s;
    TRY_GOTO(s, lexical_cache_create(&d->cache), out);
    TRY_GOTO(s, lexical_check(config->index, config->device->threads), out);
    TRY_GOTO(s, lexical_copy_absent(d, config->absent), out);
    TRY_GOTO(s, lexical_copy_postings(d, config->reserve), out);
    *out = d;
out:
    if (s != STATUS_OK) device_lexical_free(d);
    return s;
}

void device_lexical_free(struct device_lexical *d) {
    if (!d) return;
    hit_buffer_release(&d->found, d->dev);
    device_release(d->dev, d->postings);
    device_release(d->dev, d->absent_bits);
    device_release(d->dev, d->ranges);
    device_stage_release(d->dev, &d->plan);
    lexical_cache_free(d->cache);
    memory_free(d->begin);
    memory_free(d->holes);
    memory_free(d);
}

/* ---- the plan of a batch ---- */

struct lexical_batch {
    const struct device_lexical *d;
    const struct lexical_query *queries;
    const struct lexical_search *how;
    int64_t n;
    struct lexical_scan_query *weights; /* these three are in the plan */
    struct lexical_scan_part *parts;
    struct lexical_scan_list *lists;
    int64_t first[BATCH + 1]; /* first slot of each query's lists */
    atomic_int status;        /* of the first query that failed */
    char message[1024];       /* of the thread that planned that query */
};

/* One query that is being planned. */
struct lexical_planned {
    const struct device_lexical *d;
    struct lexical_scan_part *parts; /* [segments] */
    struct lexical_scan_list *lists;
    int32_t n;
};

static void lexical_batch_divide(struct lexical_batch *b, struct carve *c) {
    b->weights = carve_bytes(c, b->n, sizeof *b->weights);
    b->parts = carve_bytes(c, b->n * b->d->segments, sizeof *b->parts);
    b->lists = carve_bytes(c, b->first[b->n], sizeof *b->lists);
}

static void lexical_take(void *context, const struct lexical_query_list *list) {
    struct lexical_planned *p = context;
    struct lexical_scan_part *part = &p->parts[list->segment];
    if (part->sparse + part->dense == 0) part->first = p->n;
    *(list->dense ? &part->dense : &part->sparse) += 1;
    p->lists[p->n++] = (struct lexical_scan_list){
        .begin = p->d->begin[list->segment] + list->begin,
        .bytes = list->bytes,
        .n = list->n,
        .form = list->form,
        .from = list->from,
        .until = list->until,
        .weight = {list->weight[0], list->weight[1], list->weight[2]},
    };
}

static void lexical_plan_body(void *context, int64_t begin, int64_t end, int worker) {
    struct lexical_batch *b = context;
    (void)worker;
    for (int64_t q = begin; q < end; q++) {
        const struct store_range *exclude = b->how->exclude ? b->how->exclude + q : NULL;
        struct lexical_planned p = {b->d, b->parts + q * b->d->segments, b->lists + b->first[q], 0};
        struct lexical_scan_query *w = &b->weights[q];
        int none = STATUS_OK;
        memset(p.parts, 0, (size_t)b->d->segments * sizeof *p.parts);
        *w = (struct lexical_scan_query){.hole = {exclude ? exclude->begin : 0, exclude ? exclude->end : 0}};
        struct lexical_cache *cache = b->n == 1 ? b->d->cache : NULL;
        enum status s = lexical_query_lists(b->d->index, &b->queries[q], b->how, cache, &w->unit, lexical_take, &p);
        if (s != STATUS_OK && atomic_compare_exchange_strong(&b->status, &none, s))
            snprintf(b->message, sizeof b->message, "%s", status_message());
    }
}

/* Moves the lists of all queries together, without the free slots between them. Returns their number. */
static int64_t lexical_move_together(struct lexical_batch *b) {
    int64_t at = 0;
    for (int64_t q = 0; q < b->n; q++) {
        int64_t n = 0;
        for (int64_t s = 0; s < b->d->segments; s++) {
            struct lexical_scan_part *part = &b->parts[q * b->d->segments + s];
            n += part->sparse + part->dense;
            part->first += (int32_t)at;
        }
        memmove(b->lists + at, b->lists + b->first[q], (size_t)n * sizeof *b->lists);
        at += n;
    }
    return at;
}

/* Makes the plan and uploads it. The pointers of *out are the device's. */
static enum status lexical_batch_plan(struct device_lexical *d, struct lexical_scan *out, struct lexical_batch *b) {
    struct carve size = {0}, plan_device = {0};
    for (int64_t q = 0; q < b->n; q++)
        b->first[q + 1] = b->first[q] + 2 * (int64_t)b->queries[q].n * d->segments;
    lexical_batch_divide(b, &size);
    TRY(device_stage_reserve(d->dev, &d->plan, size.used));
    struct carve plan_host = {.base = d->plan.host};
    lexical_batch_divide(b, &plan_host);
    threads_for(d->dev->threads, b->n, 1, lexical_plan_body, b);
    if (b->status != STATUS_OK) return fail((enum status)b->status, "%s", b->message);
    b->first[b->n] = lexical_move_together(b);
    plan_device.base = device_stage_device(d->dev, &d->plan);
    lexical_batch_divide(b, &plan_device);
    device_stage_upload(d->dev, &d->plan, plan_device.used);
    *out = (struct lexical_scan){d->postings,    d->ranges,   b->lists, b->parts,  b->weights,
                                 d->absent_bits, d->segments, b->n,     d->windows};
    return STATUS_OK;
}

/* ---- searching ---- */

enum status device_lexical_queue_into(struct device_lexical *d, int64_t *chunk, float *score,
                                      const struct lexical_query *queries, int64_t n, const struct lexical_search *how,
                                      const struct device_lexical_given *given) {
    const struct lexical_scan_ops *ops = d->dev->ops->lexical_scan;
    struct lexical_batch b = {.d = d, .queries = queries, .how = how, .n = n, .status = STATUS_OK};
    struct lexical_scan scan;
    TRY(lexical_batch_plan(d, &scan, &b));
    ops->forward(d->dev, chunk, score, &scan, how->k);
    if (given) ops->score(d->dev, given->score, &scan, given->chunk, given->n);
    return STATUS_OK;
}

static enum status lexical_queue_batch(struct device_lexical *d, const struct lexical_query *queries, int64_t n,
                                       const struct lexical_search *how) {
    const int64_t count = n * how->k;
    TRY(hit_buffer_reserve(&d->found, d->dev, count));
    struct hit_list hits_host = hit_buffer_host(&d->found, count), hits_device = hit_buffer_mapped(&d->found, count);
    TRY(device_lexical_queue_into(d, hits_device.index, hits_device.score, queries, n, how, NULL));
    device_fetch(d->dev, hits_host.index, hits_device.index, hit_list_bytes(count));
    d->queued = count;
    return STATUS_OK;
}

static enum status lexical_collect_batch(struct device_lexical *d, struct store_hit *hits) {
    struct hit_list hits_host = hit_buffer_host(&d->found, d->queued);
    device_fetch_wait(d->dev);
    TRY(device_fault(d->dev));
    for (int64_t i = 0; i < d->queued; i++)
        hits[i] = (struct store_hit){.chunk = hits_host.index[i], .score = hits_host.score[i]};
    return STATUS_OK;
}

bool device_lexical_takes(const struct device_lexical *d, int k) {
    return k <= LEXICAL_SCAN_K_MAX && d->windows > 0;
}

enum status device_lexical_search(struct device_lexical *d, struct store_hit *hits, const struct lexical_query *queries,
                                  int64_t n_queries, const struct lexical_search *how) {
    struct lexical_search batch = *how;
    assert(how->k > 0);
    if (!device_lexical_takes(d, how->k)) {
        batch.absent = d->absent;
        return lexical_search(d->index, hits, queries, n_queries, &batch);
    }
    for (int64_t q = 0; q < n_queries; q += BATCH) {
        int64_t n = n_queries - q < BATCH ? n_queries - q : BATCH;
        batch.exclude = how->exclude ? how->exclude + q : NULL;
        TRY(lexical_queue_batch(d, queries + q, n, &batch));
        TRY(lexical_collect_batch(d, hits + q * how->k));
    }
    return STATUS_OK;
}

enum status device_lexical_queue(struct device_lexical *d, bool *queued, const struct lexical_query *query,
                                 const struct lexical_search *how) {
    *queued = false;
    if (!device_lexical_takes(d, how->k)) return STATUS_OK;
    TRY(lexical_queue_batch(d, query, 1, how));
    *queued = true;
    return STATUS_OK;
}

enum status device_lexical_collect(struct device_lexical *d, struct store_hit *hits) {
    assert(d->queued > 0);
    return lexical_collect_batch(d, hits);
}

static void lexical_ignore(void *context, const struct lexical_query_list *list) {
    (void)context, (void)list;
}

void device_lexical_prepare(struct device_lexical *d, const struct lexical_query *query,
                            const struct lexical_search *how) {
    float unit;
    (void)lexical_query_lists(d->index, query, how, d->cache, &unit, lexical_ignore, NULL);
}
