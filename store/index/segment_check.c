/* segment_check.c -- see segment_check_internal.h. The layout is that of FAISS's index_write.cpp (1.7 to 1.11): numbers
 * have the machine's byte order, a vector is its length (8 bytes) and its elements, and four letters name the type of
 * what follows. */
#include "base/file.h"
#include "base/memory.h"
#include "store/index/segment_check_internal.h"
#include <math.h>
#include <string.h>

enum { DEPTH_MAX = 4, TRANSFORMS_MAX = 8, LEVELS_MAX = 64, PQ_BITS_MAX = 16, INNER_PRODUCT = 0, L2 = 1 };
static const float value_max = 1e15f;

struct walk {
    const char *path;
    const uint8_t *data;
    size_t size, at;
    bool ids, known;
    int64_t first_id;
    struct segment_layout layout; /* lists > 0: an inverted file was found; the other fields describe it */
};

struct part { /* the header of the current index */
    int32_t d;
    int64_t count;
    int32_t metric;
};

static enum status segment_check_wrong(const struct walk *w, const char *what) {
    return fail(STATUS_CORRUPT, "%s: byte %zu: %s, run drt-index repair", w->path, w->at, what);
}

static enum status segment_check_take(struct walk *w, void *out, size_t bytes) {
    memset(out, 0, bytes);
    if (bytes > w->size - w->at) return segment_check_wrong(w, "the index ends in the middle");
    memcpy(out, w->data + w->at, bytes);
    w->at += bytes;
    return STATUS_OK;
}

static enum status take_flag(struct walk *w, uint8_t *out) {
    TRY(segment_check_take(w, out, 1));
    return *out > 1 ? segment_check_wrong(w, "a flag is neither 0 nor 1") : STATUS_OK;
}

/* Advances past a vector. *elements points into the file, and may be unaligned. */
static enum status take_vector(struct walk *w, const uint8_t **elements, uint64_t *n, size_t element_bytes) {
    *elements = w->data;
    TRY(segment_check_take(w, n, sizeof *n));
    if (*n > (w->size - w->at) / element_bytes) return segment_check_wrong(w, "a vector is longer than the file");
    *elements = w->data + w->at;
    w->at += (size_t)*n * element_bytes;
    return STATUS_OK;
}

static enum status take_vector_of(struct walk *w, const uint8_t **elements, uint64_t n, size_t element_bytes) {
    uint64_t there;
    TRY(take_vector(w, elements, &there, element_bytes));
    return there == n ? STATUS_OK : segment_check_wrong(w, "a vector's length does not follow from the rest");
}

static uint64_t u64_at(const uint8_t *p, uint64_t i) {
    uint64_t x;
    memcpy(&x, p + 8 * i, sizeof x);
    return x;
}

static int32_t i32_at(const uint8_t *p, uint64_t i) {
    int32_t x;
    memcpy(&x, p + 4 * i, sizeof x);
    return x;
}

static enum status check_values(struct walk *w, const uint8_t *floats, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, floats + 4 * i, sizeof x);
        if (!(fabsf(x) < value_max)) return segment_check_wrong(w, "a number of a centroid or code is out of range");
    }
    return STATUS_OK;
}

static bool segment_check_is(const char type[4], const char *name) {
    return memcmp(type, name, 4) == 0;
}

/* Records the offset of the number of rows in the header that follows. */
static void add_count(struct walk *w) {
    struct segment_layout *l = &w->layout;
    if (l->n_counts < (int)ARRAY_LEN(l->counts)) l->counts[l->n_counts] = w->at + sizeof(int32_t);
    l->n_counts++;
}

static enum status take_header(struct walk *w, struct part *p) {
    int64_t reserved[2];
    uint8_t trained;
    TRY(segment_check_take(w, &p->d, sizeof p->d));
    TRY(segment_check_take(w, &p->count, sizeof p->count));
    TRY(segment_check_take(w, reserved, sizeof reserved));
    TRY(take_flag(w, &trained));
    TRY(segment_check_take(w, &p->metric, sizeof p->metric));
    if (!trained) return segment_check_wrong(w, "an index is not trained");
    if (p->d < 1 || p->count < 0) return segment_check_wrong(w, "an index has no dimensions, or fewer than no rows");
    return p->metric == INNER_PRODUCT || p->metric == L2 ? STATUS_OK
                                                         : segment_check_wrong(w, "an index has another metric");
}

/* ---- codes ---- */

static enum status take_scalar_codes(struct walk *w, int32_t d, uint64_t *code_bytes) {
    enum { BITS8, BITS4, BITS8_UNIFORM, BITS4_UNIFORM, FP16, DIRECT, BITS6, BF16, DIRECT_SIGNED, TYPES };
    static const uint8_t bits[TYPES] = {8, 4, 8, 4, 16, 8, 6, 16, 8};
    int32_t type, range;
    float argument;
    uint64_t width, n = (uint64_t)d;
    TRY(segment_check_take(w, &type, sizeof type));
    TRY(segment_check_take(w, &range, sizeof range));
    TRY(segment_check_take(w, &argument, sizeof argument));
    TRY(segment_check_take(w, &width, sizeof width));
    TRY(segment_check_take(w, code_bytes, sizeof *code_bytes));
    if (type < 0 || type >= TYPES) return segment_check_wrong(w, "a scalar code is of no known kind");
    if (width != n || *code_bytes != (n * bits[type] + 7) / 8)
        return segment_check_wrong(w, "a scalar code has another width");
    const uint8_t *trained;
    uint64_t values = type == BITS8 || type == BITS4 || type == BITS6  ? 2 * n
                      : type == BITS8_UNIFORM || type == BITS4_UNIFORM ? 2
                                                                       : 0;
    TRY(take_vector_of(w, &trained, values, sizeof(float)));
    return check_values(w, trained, values);
}

static enum status take_product_codes(struct walk *w, int32_t d, uint64_t *code_bytes) {
    uint64_t width, parts, bits;
    const uint8_t *centroids;
    TRY(segment_check_take(w, &width, sizeof width));
    TRY(segment_check_take(w, &parts, sizeof parts));
    TRY(segment_check_take(w, &bits, sizeof bits));
    if (width != (uint64_t)d || parts < 1 || parts > width || width % parts != 0 || bits < 1 || bits > PQ_BITS_MAX)
        return segment_check_wrong(w, "a product code has another width");
    *code_bytes = (parts * bits + 7) / 8;
    TRY(take_vector_of(w, &centroids, width << bits, sizeof(float)));
    return check_values(w, centroids, width << bits);
}

static enum status take_rows(struct walk *w, const struct part *p, uint64_t code_bytes) {
    const uint8_t *rows;
    if ((uint64_t)p->count > (w->size - w->at) / code_bytes)
        return segment_check_wrong(w, "there are fewer rows than it states");
    return take_vector_of(w, &rows, (uint64_t)p->count * code_bytes, 1);
}

static enum status take_flat(struct walk *w, const struct part *p) {
    const uint8_t *rows;
    uint64_t width = (uint64_t)p->d;
    if ((uint64_t)p->count > (w->size - w->at) / (4 * width))
        return segment_check_wrong(w, "there are fewer rows than it states");
    TRY(take_vector_of(w, &rows, (uint64_t)p->count * width, sizeof(float)));
    return check_values(w, rows, (uint64_t)p->count * width);
}

/* ---- a graph ---- */

struct graph {
    const uint8_t *cumulated, *levels, *offsets, *links;
    uint64_t n_cumulated, n_links;
};

/* Checks the graph's links: a node must have as many links as its levels have slots, and a link of a level must lead to
 * a node that has this level. */
static enum status check_links(struct walk *w, const struct graph *g, int64_t nodes) {
    for (int64_t i = 0; i < nodes; i++) {
        uint64_t begin = u64_at(g->offsets, (uint64_t)i);
        int32_t levels = i32_at(g->levels, (uint64_t)i);
        for (int32_t level = 0; level < levels; level++) {
            int32_t from = i32_at(g->cumulated, (uint64_t)level), to = i32_at(g->cumulated, (uint64_t)level + 1);
            for (int32_t j = from; j < to; j++) {
                int32_t link = i32_at(g->links, begin + (uint64_t)j);
                if (link < -1 || link >= nodes) return segment_check_wrong(w, "a link of the graph leads to no node");
                if (link >= 0 && i32_at(g->levels, (uint64_t)link) <= level)
                    return segment_check_wrong(w, "a link of the graph leads to a node that lacks its level");
            }
        }
    }
    return STATUS_OK;
}

static enum status check_nodes(struct walk *w, const struct graph *g, int64_t nodes) {
    if (g->n_cumulated < 2 || g->n_cumulated > LEVELS_MAX || i32_at(g->cumulated, 0) != 0)
        return segment_check_wrong(w, "the graph's table of levels is malformed");
    for (uint64_t i = 1; i < g->n_cumulated; i++)
        if (i32_at(g->cumulated, i) < i32_at(g->cumulated, i - 1))
            return segment_check_wrong(w, "the graph's table of levels is malformed");
    uint64_t next = 0;
    for (int64_t i = 0; i < nodes; i++) {
        int32_t levels = i32_at(g->levels, (uint64_t)i);
        if (levels < 1 || (uint64_t)levels >= g->n_cumulated)
            return segment_check_wrong(w, "a node of the graph has no such level");
        if (u64_at(g->offsets, (uint64_t)i) != next)
            return segment_check_wrong(w, "a node's links do not follow the one before");
        next += (uint64_t)i32_at(g->cumulated, (uint64_t)levels);
    }
    if (u64_at(g->offsets, (uint64_t)nodes) != next || next != g->n_links)
        return segment_check_wrong(w, "the graph has more or fewer links than its nodes");
    return check_links(w, g, nodes);
}

static enum status take_graph(struct walk *w, int64_t nodes) {
    struct graph g;
    const uint8_t *chances;
    uint64_t n;
    int32_t tail[5]; /* entry point, its level, efConstruction, efSearch, and one that FAISS no longer uses */
    TRY(take_vector(w, &chances, &n, sizeof(double)));
    TRY(take_vector(w, &g.cumulated, &g.n_cumulated, sizeof(int32_t)));
    TRY(take_vector_of(w, &g.levels, (uint64_t)nodes, sizeof(int32_t)));
    TRY(take_vector_of(w, &g.offsets, (uint64_t)nodes + 1, sizeof(uint64_t)));
    TRY(take_vector(w, &g.links, &g.n_links, sizeof(int32_t)));
    TRY(check_nodes(w, &g, nodes));
    TRY(segment_check_take(w, tail, sizeof tail));
    if (tail[0] == -1 && nodes == 0) return STATUS_OK;
    if (tail[0] < 0 || tail[0] >= nodes || tail[1] < 0 || tail[1] != i32_at(g.levels, (uint64_t)tail[0]) - 1)
        return segment_check_wrong(w, "the graph's entry point is no node, or not of its level");
    return tail[3] > 0 && tail[3] <= 1 << 20 ? STATUS_OK
                                             : segment_check_wrong(w, "the graph's efSearch is out of range");
}

/* ---- inverted lists ---- */

/* Each id must be in the segment's range and occur once. A bitmap records the ids. */
static enum status check_ids(struct walk *w, const uint8_t *sizes, uint64_t n_sizes, size_t stride, int64_t count,
                             uint64_t code_bytes) {
    uint8_t *seen;
    size_t at = w->at;
    TRY(memory_allocate_zero(&seen, (size_t)count / 8 + 1));
    enum status s = STATUS_OK;
    for (uint64_t l = 0; l < n_sizes && s == STATUS_OK; l += stride) {
        uint64_t n = u64_at(sizes, l + stride - 1);
        w->at += (size_t)(n * code_bytes);
        for (uint64_t i = 0; i < n && s == STATUS_OK; i++, w->at += 8) {
            uint64_t row = u64_at(w->data + w->at, 0) - (uint64_t)w->first_id;
            if (row >= (uint64_t)count)
                s = segment_check_wrong(w, "an id is not one of the segment's");
            else if (seen[row / 8] >> row % 8 & 1)
                s = segment_check_wrong(w, "an id is there twice");
            else
                seen[row / 8] |= (uint8_t)(1 << row % 8);
        }
    }
    memory_free(seen);
    if (s == STATUS_OK) w->at = at;
    return s;
}

static enum status take_lists(struct walk *w, uint64_t lists, uint64_t code_bytes, int64_t count) {
    char type[4], kind[4];
    uint64_t there[2], n, total = 0;
    const uint8_t *sizes;
    TRY(segment_check_take(w, type, sizeof type));
    if (!segment_check_is(type, "ilar"))
        return segment_check_wrong(w, "its lists are of another kind than it was made with");
    TRY(segment_check_take(w, there, sizeof there));
    if (there[0] != lists || there[1] != code_bytes) return segment_check_wrong(w, "its lists do not fit its codes");
    TRY(segment_check_take(w, kind, sizeof kind));
    bool sparse = segment_check_is(kind, "sprs");
    if (!sparse && !segment_check_is(kind, "full"))
        return segment_check_wrong(w, "its list sizes are of no known kind");
    TRY(take_vector(w, &sizes, &n, sizeof(uint64_t)));
    if (sparse ? n % 2 != 0 || n / 2 > lists : n != lists)
        return segment_check_wrong(w, "it has sizes of more or fewer lists");
    size_t stride = sparse ? 2 : 1;
    for (uint64_t l = 0, before = 0; l < n; l += stride) {
        uint64_t size = u64_at(sizes, l + stride - 1);
        if (sparse && (u64_at(sizes, l) >= lists || (l > 0 && u64_at(sizes, l) <= before)))
            return segment_check_wrong(w, "a list's number is invalid or out of order");
        before = sparse ? u64_at(sizes, l) : 0;
        if (size > (uint64_t)count - total) return segment_check_wrong(w, "its lists hold more rows than it has");
        total += size;
    }
    if (total != (uint64_t)count) return segment_check_wrong(w, "its lists hold fewer rows than it has");
    if (total > (w->size - w->at) / (code_bytes + 8))
        return segment_check_wrong(w, "its lists are longer than the file");
    if (w->ids) TRY(check_ids(w, sizes, n, stride, count, code_bytes));
    w->at += (size_t)(total * (code_bytes + 8));
    return STATUS_OK;
}

/* ---- indexes, one within the other ---- */

static enum status take_index(struct walk *w, struct part *p, int depth);

static enum status take_inverted_file(struct walk *w, struct part *p, const char type[4], int depth) {
    uint64_t lists, visited, code_bytes = 0, again = 0, n;
    uint8_t residual, map;
    const uint8_t *mapped;
    struct part centroids;
    bool outer = w->layout.lists == 0; /* only of the outer index: centroids may be of any type */
    if (outer) add_count(w);
    TRY(take_header(w, p));
    TRY(segment_check_take(w, &lists, sizeof lists));
    if (outer) w->layout.lists = lists;
    TRY(segment_check_take(w, &visited, sizeof visited));
    TRY(take_index(w, &centroids, depth + 1));
    if (!w->known) return STATUS_OK;
    if (lists < 1 || centroids.d != p->d || (uint64_t)centroids.count != lists || visited < 1)
        return segment_check_wrong(w, "its lists and their centroids do not fit");
    TRY(segment_check_take(w, &map, sizeof map));
    TRY(take_vector(w, &mapped, &n, sizeof(uint64_t)));
    if (map != 0 || n != 0) return segment_check_wrong(w, "it has a map of ids, which this program does not write");
    if (segment_check_is(type, "IwFl")) {
        code_bytes = again = 4 * (uint64_t)p->d;
    } else if (segment_check_is(type, "IwSq")) {
        TRY(take_scalar_codes(w, p->d, &code_bytes));
        TRY(segment_check_take(w, &again, sizeof again));
        TRY(take_flag(w, &residual));
    } else {
        TRY(take_flag(w, &residual));
        TRY(segment_check_take(w, &again, sizeof again));
        TRY(take_product_codes(w, p->d, &code_bytes));
    }
    if (again != code_bytes) return segment_check_wrong(w, "its codes have another width");
    if (outer) w->layout.lists_at = w->at;
    if (outer) w->layout.code_bytes = code_bytes;
    return take_lists(w, lists, code_bytes, p->count);
}

/* FAISS itself compares the sizes of a linear transform with each other. */
static enum status take_transform(struct walk *w, int32_t *d) {
    char type[4];
    int32_t sides[2];
    uint64_t n;
    uint8_t flag;
    const uint8_t *ignored;
    TRY(segment_check_take(w, type, sizeof type));
    bool principal = segment_check_is(type, "Pcam") || segment_check_is(type, "PcAm");
    if (segment_check_is(type, "VNrm")) {
        float norm;
        TRY(segment_check_take(w, &norm, sizeof norm));
    } else if (principal || segment_check_is(type, "LTra") || segment_check_is(type, "rrot")) {
        uint8_t settings[13];
        if (principal) TRY(segment_check_take(w, settings, segment_check_is(type, "Pcam") ? 13 : 9));
        if (principal && settings[segment_check_is(type, "Pcam") ? 8 : 4] > 1)
            return segment_check_wrong(w, "a flag is neither 0 nor 1");
        for (int i = 0; principal && i < 3; i++)
            TRY(take_vector(w, &ignored, &n, sizeof(float)));
        TRY(take_flag(w, &flag));
        for (int i = 0; i < 2; i++) {
            TRY(take_vector(w, &ignored, &n, sizeof(float)));
            TRY(check_values(w, ignored, n));
        }
    } else {
        w->known = false;
        return STATUS_OK;
    }
    TRY(segment_check_take(w, sides, sizeof sides));
    TRY(take_flag(w, &flag));
    if (!flag || sides[0] != *d || sides[1] < 1)
        return segment_check_wrong(w, "a transform does not fit what is before it");
    *d = sides[1];
    return STATUS_OK;
}

static enum status take_transformed(struct walk *w, struct part *p, int depth) {
    struct part inner;
    int32_t n, d;
    if (w->layout.lists == 0) add_count(w);
    TRY(take_header(w, p));
    TRY(segment_check_take(w, &n, sizeof n));
    if (n < 0 || n > TRANSFORMS_MAX) return segment_check_wrong(w, "it has more transforms than this program writes");
    d = p->d;
    for (int32_t i = 0; i < n && w->known; i++)
        TRY(take_transform(w, &d));
    if (!w->known) return STATUS_OK;
    TRY(take_index(w, &inner, depth + 1));
    if (!w->known) return STATUS_OK;
    return inner.d == d && inner.count == p->count && inner.metric == p->metric
               ? STATUS_OK
               : segment_check_wrong(w, "an index does not fit the transform before it");
}

static enum status take_index(struct walk *w, struct part *p, int depth) {
    char type[4];
    uint64_t code_bytes = 0;
    if (depth > DEPTH_MAX) return segment_check_wrong(w, "indexes lie within each other too deep");
    TRY(segment_check_take(w, type, sizeof type));
    if (segment_check_is(type, "IxPT")) return take_transformed(w, p, depth);
    if (segment_check_is(type, "IwFl") || segment_check_is(type, "IwSq") || segment_check_is(type, "IwPQ"))
        return take_inverted_file(w, p, type, depth);
    bool flat = segment_check_is(type, "IxFI") || segment_check_is(type, "IxF2") || segment_check_is(type, "IxFl"),
         graph = segment_check_is(type, "IHNf") || segment_check_is(type, "IHNs");
    if (!flat && !graph && !segment_check_is(type, "IxSQ") && !segment_check_is(type, "IxPq")) {
        w->known = false;
        return STATUS_OK;
    }
    TRY(take_header(w, p));
    if (flat) return take_flat(w, p);
    if (graph) {
        struct part storage;
        TRY(take_graph(w, p->count));
        TRY(take_index(w, &storage, depth + 1));
        if (!w->known) return STATUS_OK;
        return storage.d == p->d && storage.count == p->count && storage.metric == p->metric
                   ? STATUS_OK
                   : segment_check_wrong(w, "a graph does not fit its rows");
    }
    bool scalar = segment_check_is(type, "IxSQ");
    TRY(scalar ? take_scalar_codes(w, p->d, &code_bytes) : take_product_codes(w, p->d, &code_bytes));
    TRY(take_rows(w, p, code_bytes));
    uint8_t settings[9], flag;
    if (scalar) return STATUS_OK;
    TRY(segment_check_take(w, settings, 4)); /* search settings: two flags and a threshold */
    TRY(take_flag(w, &flag));
    return segment_check_take(w, settings, 4);
}

static enum status check_all(struct walk *w, const struct segment_shape *shape) {
    struct part p = {0};
    enum status s = take_index(w, &p, 0);
    if (s != STATUS_OK || !w->known) return s;
    if (p.d != shape->dim || p.count != shape->count || p.metric != INNER_PRODUCT)
        return segment_check_wrong(w, "it is not the index that is recorded");
    return w->at == w->size ? STATUS_OK : segment_check_wrong(w, "the index ends before the file does");
}

enum status segment_check(const char *path, const struct segment_shape *shape, const uint8_t *bytes, size_t size,
                          bool ids, bool *known) {
    struct walk w = {.path = path, .data = bytes, .size = size, .ids = ids, .known = true, .first_id = shape->first_id};
    enum status s = check_all(&w, shape);
    if (known) *known = s == STATUS_OK && w.known;
    return s;
}

enum status segment_layout(struct segment_layout *out, const char *path, const struct segment_shape *shape,
                           const uint8_t *bytes, size_t size) {
    struct walk w = {.path = path, .data = bytes, .size = size, .known = true, .first_id = shape->first_id};
    TRY(check_all(&w, shape));
    if (!w.known || w.layout.lists == 0 || w.layout.n_counts > (int)ARRAY_LEN(w.layout.counts))
        return fail(STATUS_UNSUPPORTED, "%s: is not an inverted file of flat, scalar or product codes", path);
    *out = w.layout;
    return STATUS_OK;
}

enum status segment_check_file(const char *path, const struct segment_shape *shape, bool ids, bool *known) {
    struct file_map map;
    TRY(file_map(&map, path));
    enum status s = segment_check(path, shape, map.data, map.size, ids, known);
    file_unmap(&map);
    return s;
}

/* ---- the head of a segment ---- */

static uint8_t *put_u64(uint8_t *at, uint64_t value) {
    memcpy(at, &value, sizeof value);
    return at + sizeof value;
}

/* As FAISS's write_InvertedLists: if at most half of the lists have rows, only these are written, as pairs of
 * number and size. */
enum status segment_head(uint8_t **head, size_t *bytes, const uint8_t *template, const struct segment_layout *layout,
                         const uint64_t *sizes, int64_t rows) {
    /* "ilar" and the kind of the sizes; number of lists, bytes of a code, number of sizes */
    enum { TAGS = 8, NUMBERS = 3 };
    uint64_t filled = 0;
    for (uint64_t l = 0; l < layout->lists; l++)
        filled += sizes[l] > 0;
    const bool sparse = filled <= layout->lists / 2;
    const uint64_t values = sparse ? 2 * filled : layout->lists;
    TRY(memory_allocate(head, layout->lists_at + TAGS + 8 * (NUMBERS + (size_t)values)));
    memcpy(*head, template, layout->lists_at);
    for (int i = 0; i < layout->n_counts; i++)
        memcpy(*head + layout->counts[i], &rows, sizeof rows);
    uint8_t *at = *head + layout->lists_at;
    memcpy(at, "ilar", 4);
    at = put_u64(put_u64(at + 4, layout->lists), layout->code_bytes);
    memcpy(at, sparse ? "sprs" : "full", 4);
    at = put_u64(at + 4, values);
    for (uint64_t l = 0; l < layout->lists; l++) {
        if (sparse && sizes[l] == 0) continue;
        if (sparse) at = put_u64(at, l);
        at = put_u64(at, sizes[l]);
    }
    *bytes = (size_t)(at - *head);
    return STATUS_OK;
}
