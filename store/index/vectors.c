/* vectors.c -- the only C file that includes FAISS.
 *
 * It works around these properties of FAISS 1.11. The value of FAISS_IO_FLAG_MMAP in the C header is wrong: it reads
 * everything into memory. An error thrown inside an OpenMP region cannot be caught and aborts, so adding to a mapped
 * index is refused here. "x4fs" codes can neither be mapped nor filtered. Error text is valid only until the next call,
 * so it is copied at once. Only inverted files store chunk ids; other types number vectors from 0, and an offset is
 * added here. */
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/system/fault.h"
#include "store/index/list_scan_internal.h"
#include "store/index/vectors_graph_internal.h"
#include "store/index/vectors_internal.h"
#include "store/index/vectors_prefetch_internal.h"
#include <assert.h>
#include <errno.h>
#include <faiss/c_api/IndexIVF_c.h>
#include <faiss/c_api/IndexPreTransform_c.h>
#include <faiss/c_api/Index_c.h>
#include <faiss/c_api/error_c.h>
#include <faiss/c_api/impl/AuxIndexStructures_c.h>
#include <faiss/c_api/index_factory_c.h>
#include <faiss/c_api/index_io_c.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Declared here for compilers whose OpenMP header is in another package. The setting holds for this thread only. */
int omp_get_max_threads(void);
void omp_set_num_threads(int count);
/* A function of the BLAS that FAISS calls, if that is OpenBLAS; kernels/linear/blas_cpu.c calls it, too. */
void openblas_set_num_threads(int count) __attribute__((weak));
/* Exported by the library, but missing from the headers of 1.11. */
const char *faiss_get_version(void);

enum { MAP_LISTS = 0x646f0008, MAP_CODES = 0x200 }; /* IO_FLAG_MMAP, for the lists of an IVF; IO_FLAG_MMAP_IFC */

struct vectors {
    FaissIndex *index;
    FaissIndexIVF *ivf; /* the inverted file inside the index, borrowed; NULL: none */
    /* the transform before the inverted file, if this program made it separately; borrowed */
    FaissVectorTransform *rotation;
    int64_t first_id; /* id of vector 0, if the index is not an inverted file */
    bool mapped;
    struct list_scan *scan; /* of a mapped inverted file of 8-bit codes; NULL: FAISS searches */
};

static enum status fail_faiss_text(enum status code, const char *what, const char *text) {
    errno = strstr(text, "File too large") ? EFBIG : strstr(text, "No space left") ? ENOSPC : 0;
    if (errno) return fail_errno("%s: cannot write", what);
    if (strstr(text, "bad_alloc")) code = STATUS_NO_MEMORY;
    /* Shortens FAISS's text "Error in <function> at <file>:<line>: Error: '<condition>' failed: <reason>" to the
     * reason. */
    const char *reason = strstr(text, "failed: "), *file = strstr(text, ".cpp:");
    const char *after_file = file ? strstr(file, ": ") : NULL;
    if (reason)
        text = reason + 8;
    else if (after_file)
        text = after_file + 2;
    char line[400];
    snprintf(line, sizeof line, "%s", text);
    for (char *p = line; *p; p++)
        if (*p == '\n') *p = ' ';
    return fail(code, "%s: FAISS: %s", what, line);
}

static enum status fail_faiss(enum status code, const char *what) {
    const char *text = faiss_get_last_error();
    return fail_faiss_text(code, what, text ? text : "no reason given");
}

static int use_threads(int threads) {
    int before = omp_get_max_threads();
    omp_set_num_threads(threads > 0 ? threads : 1);
    return before;
}

const char *vectors_version(void) {
    return faiss_get_version();
}

/* ---- factory strings ---- */

static bool read_number(const char **at, int64_t *out) {
    const char *p = *at;
    int64_t n = 0;
    while (*p >= '0' && *p <= '9' && n < (int64_t)1 << 40)
        n = n * 10 + (*p++ - '0');
    if (p == *at) return false;
    *out = n;
    *at = p;
    return true;
}

static bool vectors_starts(const char **at, const char *word) {
    size_t n = strlen(word);
    if (strncmp(*at, word, n) != 0) return false;
    *at += n;
    return true;
}

/* Returns the bytes of one vector under the last component of the string; 0: unknown. */
static int64_t code_bytes(const char *codec, int64_t dim) {
    int64_t m = 0, bits = 8;
    if (strcmp(codec, "Flat") == 0) return dim * 4;
    if (strcmp(codec, "SQ8") == 0) return dim;
    if (strcmp(codec, "SQ6") == 0) return (dim * 6 + 7) / 8;
    if (strcmp(codec, "SQ4") == 0) return (dim + 1) / 2;
    if (strcmp(codec, "SQfp16") == 0 || strcmp(codec, "SQbf16") == 0) return dim * 2;
    if (!vectors_starts(&codec, "PQ") || !read_number(&codec, &m)) return 0;
    if (vectors_starts(&codec, "x") && !read_number(&codec, &bits)) return 0;
    vectors_starts(&codec, "np");
    return *codec == 0 ? (m * bits + 7) / 8 : 0;
}

struct vectors_plan vectors_plan(const char *factory, int dim) {
    struct vectors_plan plan = {.width = dim};
    int64_t width = dim, ignored;
    for (const char *part = factory; part;) {
        const char *comma = strchr(part, ','), *p = part;
        char word[64];
        size_t length = comma ? (size_t)(comma - part) : strlen(part);
        if (length >= sizeof word) return (struct vectors_plan){0};
        memcpy(word, part, length);
        word[length] = 0;
        p = word;
        if (vectors_starts(&p, "OPQ") && read_number(&p, &ignored)) {
            plan.rotated = true;
            if (vectors_starts(&p, "_") && !read_number(&p, &width)) return (struct vectors_plan){0};
        } else if (p = word, (vectors_starts(&p, "PCAWR") || vectors_starts(&p, "PCAW") || vectors_starts(&p, "PCAR") ||
                              vectors_starts(&p, "PCA") || vectors_starts(&p, "RR")) &&
                                 read_number(&p, &width)) {
            /* this branch sets width */
        } else if (p = word, vectors_starts(&p, "IVF") && read_number(&p, &plan.lists)) {
            /* the rest of this part is the coarse quantizer */
        } else if (!comma) {
            plan.code_bytes = code_bytes(word, width);
            plan.width = width;
            if (vectors_starts(&p, "PQ") && !read_number(&p, &plan.parts)) plan.parts = 0;
        } else if (strcmp(word, "RR") != 0 && strcmp(word, "ITQ") != 0) {
            return (struct vectors_plan){.lists = plan.lists};
        }
        part = comma ? comma + 1 : NULL;
    }
    return plan;
}

/* ---- making and filling ---- */

/* Parses "OPQ64_256,", a rotation with a number of parts and of dimensions. *rest points after it. */
static bool starts_with_rotation(const char **rest, const char *factory, int64_t *parts, int64_t *width, int dim) {
    *width = dim;
    if (!vectors_starts(&factory, "OPQ") || !read_number(&factory, parts)) return false;
    if (vectors_starts(&factory, "_") && !read_number(&factory, width)) return false;
    if (!vectors_starts(&factory, ",") || *parts < 1 || *width < 1 || *width > dim) return false;
    *rest = factory;
    return true;
}

/* Makes the same index as index_factory does, but so that the rotation can be trained separately. */
static int make_rotated(FaissIndex **out, FaissVectorTransform **rotation, const char *rest, int64_t parts,
                        int64_t width, int dim) {
    FaissOPQMatrix *matrix = NULL;
    FaissIndex *inner = NULL;
    FaissIndexPreTransform *outer = NULL;
    int rc = faiss_index_factory(&inner, (int)width, rest, METRIC_INNER_PRODUCT);
    if (rc == 0) rc = faiss_OPQMatrix_new_with(&matrix, dim, (int)parts, (int)width);
    if (rc == 0) rc = faiss_IndexPreTransform_new_with_transform(&outer, (FaissVectorTransform *)matrix, inner);
    if (rc != 0) {
        if (matrix) faiss_VectorTransform_free((FaissVectorTransform *)matrix);
        if (inner) faiss_Index_free(inner);
        return rc;
    }
    faiss_IndexPreTransform_set_own_fields(outer, 1);
    *rotation = (FaissVectorTransform *)matrix;
    *out = (FaissIndex *)outer;
    return 0;
}

static enum status vectors_wrap(struct vectors **out, FaissIndex *index, int64_t first_id, bool mapped) {
    struct vectors *v;
    enum status s = memory_allocate_zero(&v, 1);
    if (s != STATUS_OK) {
        faiss_Index_free(index);
        return s;
    }
    *v = (struct vectors){.index = index, .first_id = first_id, .mapped = mapped};
    FaissIndexPreTransform *outer = faiss_IndexPreTransform_cast(index);
    v->ivf = faiss_IndexIVF_cast(outer ? faiss_IndexPreTransform_index(outer) : index);
    *out = v;
    return STATUS_OK;
}

enum status vectors_make(struct vectors **out, const char *factory, int dim) {
    if (strstr(factory, "fs") || strstr(factory, "IDMap") || strstr(factory, "RaBitQ"))
        return fail(STATUS_INVALID,
                    "index %s: fast-scan codes, IDMap and RaBitQ cannot be served from a mapped file with id filters; "
                    "choose SQ8, SQfp16, Flat or PQ..np after an IVF",
                    factory);
    TRY(factory_check(factory));
    /* FAISS 1.11 leaks the coarse quantizer when it refuses this itself. */
    struct vectors_plan plan = vectors_plan(factory, dim);
    if (plan.parts > 0 && plan.width % plan.parts != 0)
        return fail(STATUS_INVALID,
                    "index %s: %lld dimensions cannot be cut into %lld equal parts, choose a divisor or SQ8", factory,
                    (long long)plan.width, (long long)plan.parts);
    char what[320];
    snprintf(what, sizeof what, "index %.255s for %d dimensions", factory, dim);
    FaissIndex *index = NULL;
    FaissVectorTransform *rotation = NULL;
    const char *rest;
    int64_t parts, width;
    int rc = starts_with_rotation(&rest, factory, &parts, &width, dim)
                 ? make_rotated(&index, &rotation, rest, parts, width, dim)
                 : faiss_index_factory(&index, dim, factory, METRIC_INNER_PRODUCT);
    if (rc != 0) return fail_faiss(STATUS_INVALID, what);
    TRY(vectors_wrap(out, index, 0, false));
    (*out)->rotation = rotation;
    return STATUS_OK;
}

void vectors_free(struct vectors *v) {
    if (!v) return;
    list_scan_free(v->scan);
    faiss_Index_free(v->index);
    memory_free(v);
}

static void loop_threads(void *pool, int64_t n, void (*body)(void *context, int64_t begin, int64_t end, int worker),
                         void *context) {
    threads_for(pool, n, 1, body, context);
}

static enum status add_centroids(struct vectors *v, const float *centroids, int64_t lists, struct threads *threads) {
    FaissIndex *quantizer = faiss_IndexIVF_quantizer(v->ivf);
    const struct vectors_loop loop = {loop_threads, threads, threads_count(threads)};
    bool failed;
    if (vectors_graph_add(quantizer, centroids, lists, &loop, &failed))
        return failed ? fail(STATUS_IO, "adding centroids to the index: FAISS failed, or there is not enough memory")
                      : STATUS_OK;
    if (faiss_Index_add(quantizer, lists, centroids) == 0) return STATUS_OK;
    return fail_faiss(STATUS_INVALID, "adding centroids to the index");
}

static enum status give_centroids(struct vectors *v, const struct store_clustering *clustering, const float *rows,
                                  int64_t n, int64_t all, struct threads *threads, const struct progress *progress) {
    FaissIndexPreTransform *outer = faiss_IndexPreTransform_cast(v->index);
    int dim = faiss_Index_d(outer ? faiss_IndexPreTransform_index(outer) : v->index);
    int64_t lists = vectors_lists(v);
    float *rotated = NULL, *centroids = NULL;
    enum status s = STATUS_OK;
    if (v->rotation) {
        s = memory_allocate(&rotated, (size_t)(n * dim));
        struct progress_clock *clock;
        progress_clock_start(&clock, progress, "train index rotation", "by FAISS");
        if (s == STATUS_OK && faiss_VectorTransform_train(v->rotation, all, rows) != 0)
            s = fail_faiss(STATUS_INVALID, "training the rotation");
        progress_clock_stop(clock);
        if (s == STATUS_OK) faiss_VectorTransform_apply_noalloc(v->rotation, n, rows, rotated);
    }
    if (s == STATUS_OK) s = memory_allocate(&centroids, (size_t)(lists * dim));
    if (s == STATUS_OK)
        s = clustering->fit(clustering->context, centroids, rotated ? rotated : rows, n, dim, lists, progress);
    memory_free(rotated);
    if (s == STATUS_OK) s = add_centroids(v, centroids, lists, threads);
    memory_free(centroids);
    return s;
}

enum status vectors_give_centroids(struct vectors *v, const struct store_clustering *clustering, const float *rows,
                                   int64_t n, int64_t all, struct threads *threads, const struct progress *progress) {
    bool transformed = faiss_IndexPreTransform_cast(v->index) != NULL;
    if (!v->ivf || (transformed && !v->rotation) || n < vectors_lists(v))
        return fail(STATUS_UNSUPPORTED, "no lists whose centroids can be set");
    FaissIndex *quantizer = faiss_IndexIVF_quantizer(v->ivf);
    if (faiss_Index_ntotal(quantizer) > 0 || !faiss_Index_is_trained(quantizer))
        return fail(STATUS_UNSUPPORTED, "centroids that are coded cannot be set");
    int before = use_threads(threads_count(threads));
    enum status s = give_centroids(v, clustering, rows, n, all, threads, progress);
    omp_set_num_threads(before);
    return s;
}

enum status vectors_train(struct vectors *v, const float *rows, int64_t n, int threads) {
    int before = use_threads(threads);
    int rc = faiss_Index_train(v->index, n, rows);
    omp_set_num_threads(before);
    return rc == 0 ? STATUS_OK : fail_faiss(STATUS_INVALID, "training the index");
}

static bool vectors_trained(const struct vectors *v) {
    return faiss_Index_is_trained(v->index) != 0;
}
bool vectors_adds_apart(const struct vectors *v) {
    return vectors_adds_rows_apart(v->index);
}

const float *vectors_centroids(const struct vectors *v) {
    int64_t lists;
    int dim;
    return vectors_ivf_centroids(v->index, &lists, &dim);
}

enum status vectors_encode(const struct vectors *v, uint8_t *codes, const float *rows, const int64_t *list, int64_t n) {
    char error[VECTORS_ERROR_BYTES];
    if (vectors_ivf_encode(v->index, codes, rows, list, n, error)) return STATUS_OK;
    return fail_faiss_text(STATUS_INVALID, "coding rows of the index", error);
}

static int64_t vectors_count(const struct vectors *v) {
    return faiss_Index_ntotal(v->index);
}
int64_t vectors_lists(const struct vectors *v) {
    return v->ivf ? (int64_t)faiss_IndexIVF_nlist(v->ivf) : 0;
}

static enum status add_rows(struct vectors *v, const float *rows, int64_t n, int64_t first_id) {
    if (!v->ivf) {
        if (vectors_count(v) == 0) v->first_id = first_id;
        assert(v->first_id + vectors_count(v) == first_id);
        return faiss_Index_add(v->index, n, rows) == 0 ? STATUS_OK : fail_faiss(STATUS_INVALID, "adding to the index");
    }
    int64_t *ids;
    TRY(memory_allocate(&ids, (size_t)n));
    for (int64_t i = 0; i < n; i++)
        ids[i] = first_id + i;
    int rc = faiss_Index_add_with_ids(v->index, n, rows, ids);
    memory_free(ids);
    return rc == 0 ? STATUS_OK : fail_faiss(STATUS_INVALID, "adding to the index");
}

enum status vectors_add(struct vectors *v, const float *rows, int64_t n, int64_t first_id, int threads) {
    assert(!v->mapped && vectors_trained(v));
    /* The rounding of a product depends on how OpenBLAS divides it among threads. A different rounding can move a row
     * between two lists whose centroids are equally near. With one thread the result does not depend on the number of
     * processors. */
    if (!vectors_adds_apart(v) && openblas_set_num_threads) openblas_set_num_threads(1);
    int before = use_threads(threads);
    enum status s = add_rows(v, rows, n, first_id);
    omp_set_num_threads(before);
    return s;
}

int64_t vectors_code_bytes(const struct vectors *v) {
    return v->ivf ? vectors_ivf_code_bytes(v->ivf) : 0;
}

struct vectors_list vectors_list_of(const struct vectors *v, int64_t list) {
    struct vectors_list out;
    const void *ids;
    assert(v->ivf && !v->mapped);
    vectors_ivf_list(v->ivf, list, &out.codes, &ids, &out.n);
    out.ids = ids;
    return out;
}

/* ---- files ---- */

static enum status write_stream(const struct vectors *v, int fd, const char *path) {
    int copy = dup(fd);
    FILE *stream = copy >= 0 ? fdopen(copy, "wb") : NULL;
    if (!stream) {
        enum status s = fail_errno("%s: cannot write", path);
        if (copy >= 0) close(copy);
        return s;
    }
    int rc = faiss_write_index(v->index, stream);
    enum status s = rc == 0 ? STATUS_OK : fail_faiss(STATUS_IO, path);
    if (fflush(stream) != 0 && s == STATUS_OK) s = fail_errno("%s: cannot write", path);
    if (fclose(stream) != 0 && s == STATUS_OK) s = fail_errno("%s: cannot write", path);
    return s;
}

enum status vectors_write(const struct vectors *v, const char *path) {
    struct file_writer *file;
    TRY(file_create(&file, path));
    int fd = file_descriptor(file);
    enum status s = fd < 0 ? STATUS_IO : write_stream(v, fd, path);
    if (s == STATUS_OK) s = fault_point("store:segment:written");
    if (s == STATUS_OK) return file_publish(file);
    file_discard(file);
    return s;
}

/* Makes a list_scan of the lists that FAISS has mapped, if their codes are supported. */
static enum status scan_open(struct vectors *v) {
    struct vectors_lists from;
    struct list_scan_list *list = NULL;
    float *ranges = NULL;
    if (!vectors_lists_of(v->index, &from)) return STATUS_OK;
    size_t dim = (size_t)from.dim;
    enum status s = memory_allocate(&list, (size_t)from.lists);
    if (s == STATUS_OK) s = memory_allocate(&ranges, 2 * dim);
    if (s == STATUS_OK) {
        for (int64_t l = 0; l < from.lists; l++)
            vectors_list_at(v->index, l, &list[l].codes, &list[l].ids, &list[l].n);
        for (size_t i = 0; i < dim; i++) {
            ranges[dim + i] = from.range[i] / 255;
            ranges[i] = from.least[i] + 0.5f * ranges[dim + i];
        }
        s = list_scan_make(&v->scan, &(struct list_scan_source){.dim = from.dim,
                                                                .lists = from.lists,
                                                                .centroids = from.centroids,
                                                                .list = list,
                                                                .low = ranges,
                                                                .step = ranges + dim,
                                                                .residual = from.residual});
    }
    memory_free(list);
    memory_free(ranges);
    return s;
}

enum status vectors_open(struct vectors **out, const char *path, int dim, int64_t count, int64_t first_id,
                         bool mapped) {
    FaissIndex *index = NULL;
    /* One flag maps lists, another the codes of other types; FAISS refuses both together. */
    int rc = faiss_read_index_fname(path, mapped ? MAP_LISTS : 0, &index);
    if (rc != 0) return fail_faiss(STATUS_CORRUPT, path);
    if (faiss_Index_d(index) != dim || faiss_Index_ntotal(index) != count ||
        faiss_Index_metric_type(index) != METRIC_INNER_PRODUCT || !faiss_Index_is_trained(index)) {
        faiss_Index_free(index);
        return fail(STATUS_CORRUPT, "%s: not the index that is recorded, run drt-index repair", path);
    }
    struct vectors *v;
    TRY(vectors_wrap(&v, index, first_id, mapped));
    if (v->ivf && mapped) vectors_no_prefetch(v->ivf);
    enum status s = mapped ? scan_open(v) : STATUS_OK;
    if (s != STATUS_OK) {
        vectors_free(v);
        return s;
    }
    *out = v;
    return STATUS_OK;
}

/* ---- searching ---- */

int64_t vectors_visited(const struct vectors *v, int nprobe) {
    int64_t lists = vectors_lists(v), usual = (int64_t)(2 * sqrt((double)lists));
    int64_t visited = nprobe > 0 ? nprobe : usual < 8 ? 8 : usual;
    return visited < lists ? visited : lists;
}

struct selection {
    FaissIDSelectorRange *range;
    FaissIDSelectorNot *outside;
    FaissSearchParametersIVF *params;
};

static void selection_free(struct selection *s) {
    if (s->params) faiss_SearchParametersIVF_free(s->params);
    if (s->outside) faiss_IDSelector_free((FaissIDSelector *)s->outside);
    if (s->range) faiss_IDSelector_free((FaissIDSelector *)s->range);
}

static enum status selection_make(struct selection *s, const struct store_range *exclude, size_t nprobe) {
    *s = (struct selection){0};
    int rc = 0;
    if (exclude) rc = faiss_IDSelectorRange_new(&s->range, exclude->begin, exclude->end);
    if (exclude && rc == 0) rc = faiss_IDSelectorNot_new(&s->outside, (FaissIDSelector *)s->range);
    if (rc == 0) rc = faiss_SearchParametersIVF_new_with(&s->params, (FaissIDSelector *)s->outside, nprobe, 0);
    if (rc == 0) return STATUS_OK;
    selection_free(s);
    return fail_faiss(STATUS_NO_MEMORY, "search parameters");
}

static enum status search_ivf(const struct vectors *v, int64_t *ids, float *scores, const float *queries, int64_t n,
                              int k, int nprobe, const struct store_range *exclude) {
    struct selection s;
    int64_t visited = vectors_visited(v, nprobe);
    TRY(selection_make(&s, exclude, (size_t)visited));
    enum status status = STATUS_OK;
    char error[VECTORS_ERROR_BYTES];
    if (visited == vectors_lists(v)) {
        if (!vectors_search_all_lists(v->index, ids, scores, queries, n, k, s.params, error))
            status = fail_faiss_text(STATUS_UNSUPPORTED, "searching the index", error);
    } else if (faiss_Index_search_with_params(v->index, n, queries, k, (FaissSearchParameters *)s.params, scores,
                                              ids) != 0) {
        status = fail_faiss(STATUS_UNSUPPORTED, "searching the index");
    }
    selection_free(&s);
    return status;
}

/* Searches a type that has no filters: requests as many more hits as the range can contain, then removes those in the
 * range. */
static enum status search_plain(const struct vectors *v, int64_t *ids, const float *queries, int64_t n, int k,
                                const struct store_range *exclude) {
    int64_t count = vectors_count(v), begin = exclude ? exclude->begin - v->first_id : 0;
    int64_t end = exclude ? exclude->end - v->first_id : 0;
    if (begin < 0) begin = 0;
    if (end > count) end = count;
    int64_t wanted = k + (end > begin ? end - begin : 0);
    if (wanted > count) wanted = count;
    float *scores = NULL;
    int64_t *found = NULL;
    enum status s = memory_allocate(&scores, (size_t)(n * wanted));
    if (s == STATUS_OK) s = memory_allocate(&found, (size_t)(n * wanted));
    if (s == STATUS_OK && faiss_Index_search(v->index, n, queries, wanted, scores, found) != 0)
        s = fail_faiss(STATUS_UNSUPPORTED, "searching the index");
    for (int64_t q = 0; q < n && s == STATUS_OK; q++) {
        int64_t *out = ids + (size_t)q * (size_t)k;
        int filled = 0;
        for (int64_t i = 0; i < wanted && filled < k; i++) {
            int64_t id = found[q * wanted + i];
            if (id >= 0 && !(id >= begin && id < end)) out[filled++] = id + v->first_id;
        }
        while (filled < k)
            out[filled++] = -1;
    }
    memory_free(scores);
    memory_free(found);
    return s;
}

enum status vectors_search(const struct vectors *v, int64_t *ids, const float *queries, int64_t n, int k, int nprobe,
                           const struct store_range *exclude, int threads) {
    int64_t count = vectors_count(v);
    for (int64_t i = 0; i < n * k; i++)
        ids[i] = -1;
    if (count == 0 || n == 0) return STATUS_OK;
    int before = use_threads(threads);
    enum status s;
    if (!v->ivf) {
        s = search_plain(v, ids, queries, n, k, exclude);
    } else {
        float *scores = NULL;
        s = memory_allocate(&scores, (size_t)(n * k));
        if (s == STATUS_OK) s = search_ivf(v, ids, scores, queries, n, k, nprobe, exclude);
        memory_free(scores);
    }
    omp_set_num_threads(before);
    return s;
}

bool vectors_scans(const struct vectors *v) {
    return v->scan != NULL;
}

enum status vectors_scan(const struct vectors *v, int64_t *ids, const float *queries, int64_t n, int k, int nprobe,
                         const struct store_range *exclude, struct threads *threads) {
    const struct list_scan_search how = {.n = n,
                                         .queries = queries,
                                         .k = k,
                                         .nprobe = (int)vectors_visited(v, nprobe),
                                         .exclude = exclude,
                                         .threads = threads};
    return list_scan_find(v->scan, ids, NULL, &how);
}

enum status vectors_scan_slice(const struct vectors *v, int64_t *ids, float *scores, const struct list_scan_search *how,
                               struct store_slice slice) {
    struct list_scan_search mine = *how;
    mine.nprobe = (int)vectors_visited(v, how->nprobe);
    mine.lists = list_scan_share(v->scan, slice);
    return list_scan_find(v->scan, ids, scores, &mine);
}

/* ---- what the library can do ---- */

enum status vectors_scan_rate(double *mb_s, const float *rows, int64_t n, int dim) {
    struct vectors *v = NULL;
    int64_t ids[8];
    TRY(vectors_make(&v, "SQ8", dim));
    enum status s = vectors_train(v, rows, n, 1);
    if (s == STATUS_OK) s = vectors_add(v, rows, n, 0, 1);
    double best = 1e30;
    for (int i = 0; i < 5 && s == STATUS_OK; i++) {
        double begin = clock_seconds();
        s = vectors_search(v, ids, rows, 1, 8, 0, NULL, 1);
        double seconds = clock_seconds() - begin;
        if (seconds < best) best = seconds;
    }
    vectors_free(v);
    if (s == STATUS_OK) *mb_s = (double)n * dim / best / 1e6;
    return s;
}
