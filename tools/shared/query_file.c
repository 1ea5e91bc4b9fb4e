/* query_file.c -- see query_file.h. */
#include "tools/shared/query_file.h"
#include "base/formats/json.h"
#include "base/half.h"
#include "base/little_endian.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "data/tokenizer/utf8.h"
#include "store/store.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_MAX = 1 << 16, ROWS_AT_ONCE = 64 };

struct query_file {
    FILE *file;
    const char *name;
    enum query_format format;
    int dim;
    bool half;
    int64_t rows, read; /* rows: of the file, if it has vectors; read: lines or rows so far */
    char *line, *field;
    size_t line_capacity, field_capacity;
    unsigned char *raw; /* [ROWS_AT_ONCE * dim * 4] */
};

static bool ends_in(const char *name, const char *ending) {
    size_t n = strlen(name), m = strlen(ending);
    return n > m && strcmp(name + n - m, ending) == 0;
}

static enum query_format format_of(const char *path) {
    if (ends_in(path, ".jsonl")) return QUERY_JSONL;
    if (ends_in(path, ".npy")) return QUERY_NPY;
    if (ends_in(path, ".fbin")) return QUERY_FBIN;
    return QUERY_TXT;
}

static enum status query_file_take(struct query_file *q, void *out, size_t bytes, const char *what) {
    errno = 0;
    if (fread(out, 1, bytes, q->file) == bytes) return STATUS_OK;
    if (ferror(q->file)) return fail_errno("%s", q->name);
    return fail(STATUS_INVALID, "%s: ends within %s", q->name, what);
}

static enum status check_shape(struct query_file *q, int64_t rows, int64_t dim) {
    if (q->dim == 0 && dim >= 1 && dim <= QUERY_DIM_MAX) q->dim = (int)dim;
    if (q->dim == 0)
        return fail(STATUS_INVALID, "%s: its vectors have %lld dimensions: must be 1 to %d", q->name, (long long)dim,
                    QUERY_DIM_MAX);
    if (dim != q->dim)
        return fail(STATUS_MISMATCH, "%s: its vectors have %lld dimensions, the store's landmarks %d", q->name,
                    (long long)dim, q->dim);
    if (rows < 0) return fail(STATUS_INVALID, "%s: its header says %lld rows", q->name, (long long)rows);
    q->rows = rows;
    return STATUS_OK;
}

static enum status open_fbin(struct query_file *q) {
    unsigned char head[8];
    TRY(query_file_take(q, head, sizeof head, "its header (int32 rows, int32 dimensions)"));
    return check_shape(q, (int32_t)(uint32_t)little_endian_get(head, 4),
                       (int32_t)(uint32_t)little_endian_get(head + 4, 4));
}

/* Finds the text after a key of the header's dict: "'shape': (3, 4)" -> "(3, 4)". NULL: there is no such key. */
static const char *npy_value(const char *header, const char *key) {
    const char *at = strstr(header, key);
    if (!at) return NULL;
    at += strlen(key);
    at += strspn(at, " ");
    if (*at++ != ':') return NULL;
    return at + strspn(at, " ");
}

static enum status npy_shape(struct query_file *q, const char *shape) {
    long long number[2] = {0};
    int n = 0;
    const char *at = shape + (*shape == '(');
    while (n < 3) {
        char *end;
        at += strspn(at, " ,");
        if (*at == ')') break;
        errno = 0;
        long long value = strtoll(at, &end, 10);
        if (end == at || errno || value < 0) n = 3;
        if (n < 2) number[n] = value;
        n++;
        at = end;
    }
    if (*shape != '(' || n < 1 || n > 2)
        return fail(STATUS_INVALID, "%s: shape %.*s: queries are an array of [n, dim] or one of [dim]", q->name,
                    (int)min_i64((int64_t)strcspn(shape, ")") + 1, 40), shape);
    return n == 2 ? check_shape(q, number[0], number[1]) : check_shape(q, 1, number[0]);
}

static enum status npy_header(struct query_file *q, const char *header) {
    const char *type = npy_value(header, "'descr'"), *order = npy_value(header, "'fortran_order'");
    const char *shape = npy_value(header, "'shape'");
    if (!type || !order || !shape)
        return fail(STATUS_INVALID, "%s: its NumPy header has no descr, fortran_order or shape", q->name);
    q->half = strncmp(type, "'<f2'", 5) == 0;
    if (!q->half && strncmp(type, "'<f4'", 5) != 0)
        return fail(STATUS_UNSUPPORTED, "%s: type %.*s: save it as little-endian float32 or float16 (<f4, <f2)",
                    q->name, (int)min_i64((int64_t)strcspn(type, ",}"), 40), type);
    if (strncmp(order, "False", 5) != 0)
        return fail(STATUS_UNSUPPORTED, "%s: is in Fortran order: save numpy.ascontiguousarray(a)", q->name);
    return npy_shape(q, shape);
}

static enum status open_npy(struct query_file *q) {
    unsigned char head[12];
    char *header;
    TRY(query_file_take(q, head, 10, "its NumPy header"));
    if (memcmp(head, "\x93NUMPY", 6) != 0)
        return fail(STATUS_INVALID, "%s: does not begin as a NumPy file does", q->name);
    size_t bytes = (size_t)little_endian_get(head + 8, 2);
    if (head[6] >= 2) {
        TRY(query_file_take(q, head + 10, 2, "its NumPy header"));
        bytes = (size_t)little_endian_get(head + 8, 4);
    }
    if (head[6] < 1 || head[6] > 3 || bytes > HEADER_MAX)
        return fail(STATUS_UNSUPPORTED, "%s: NumPy format %d with a header of %zu bytes", q->name, head[6], bytes);
    TRY(memory_allocate(&header, bytes + 1));
    enum status s = query_file_take(q, header, bytes, "its NumPy header");
    header[bytes] = 0;
    if (s == STATUS_OK) s = npy_header(q, header);
    memory_free(header);
    return s;
}

static enum status query_file_prepare(struct query_file *q, const char *path) {
    q->file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rbe");
    if (!q->file) return fail_errno("%s", path);
    if (!query_file_has_vectors(q)) return STATUS_OK;
    TRY(q->format == QUERY_NPY ? open_npy(q) : open_fbin(q));
    return memory_allocate(&q->raw, (size_t)ROWS_AT_ONCE * (size_t)q->dim * sizeof(float));
}

enum status query_file_open(struct query_file **out, const char *path, enum query_format format, int dim) {
    struct query_file *q;
    TRY(memory_allocate_zero(&q, 1));
    *q = (struct query_file){.name = strcmp(path, "-") == 0 ? "standard input" : path,
                             .format = format == QUERY_AUTO ? format_of(path) : format,
                             .dim = dim};
    enum status s = query_file_prepare(q, path);
    if (s != STATUS_OK) {
        query_file_close(q);
        return s;
    }
    *out = q;
    return STATUS_OK;
}

void query_file_close(struct query_file *q) {
    if (!q) return;
    if (q->file && q->file != stdin) fclose(q->file);
    memory_free(q->line);
    memory_free(q->field);
    memory_free(q->raw);
    memory_free(q);
}

bool query_file_has_vectors(const struct query_file *q) {
    return q->format == QUERY_NPY || q->format == QUERY_FBIN;
}
int query_file_dim(const struct query_file *q) {
    return q->dim;
}
int64_t query_file_total(const struct query_file *q) {
    return q->rows;
}

/* ---- texts ----------------------------------------------------------------------------------------------- */

/* *bytes is -1 at the end of the file. */
static enum status next_line(struct query_file *q, int64_t *bytes) {
    size_t n = 0;
    int c;
    errno = 0;
    while ((c = getc_unlocked(q->file)) != EOF && c != '\n') {
        if (n == QUERY_LINE_MAX)
            return fail(STATUS_INVALID, "%s, line %lld: longer than %d bytes: is this a text file?", q->name,
                        (long long)q->read + 1, QUERY_LINE_MAX);
        TRY(memory_grow(&q->line, &q->line_capacity, n + 1));
        q->line[n++] = (char)c;
    }
    if (c == EOF && ferror(q->file)) return fail_errno("%s", q->name);
    bool end = c == EOF && n == 0;
    if (n > 0 && q->line[n - 1] == '\r') n--;
    if (q->read == 0) {
        const size_t mark = utf8_mark(q->line, n);
        n -= mark;
        if (mark > 0) memmove(q->line, q->line + mark, n);
    }
    *bytes = end ? -1 : (int64_t)n;
    q->read += !end;
    return STATUS_OK;
}

static enum status read_object(struct query_file *q, struct json *j, size_t *bytes) {
    bool found = false;
    TRY(json_expect(j, JSON_OBJECT, "an object"));
    for (enum json_event e = json_next(j); e != JSON_OBJECT_END; e = json_next(j)) {
        if (e != JSON_KEY) return json_fail(j, "a member");
        if (found || !(json_equals(j, "text") || json_equals(j, "query"))) {
            TRY(json_skip(j));
            continue;
        }
        TRY(json_expect(j, JSON_STRING, "a string: the query"));
        TRY(memory_grow(&q->field, &q->field_capacity, j->length + 1));
        TRY(json_string(j, q->field, q->field_capacity, bytes));
        found = true;
    }
    TRY(json_expect(j, JSON_END, "the end of the line"));
    return found
               ? STATUS_OK
               : fail(STATUS_INVALID, "%s: line %lld: has neither \"text\" nor \"query\"", q->name, (long long)q->read);
}

enum status query_file_text(struct query_file *q, const char **text, size_t *bytes) {
    int64_t n = 0;
    *text = NULL;
    *bytes = 0;
    TRY(next_line(q, &n));
    if (n < 0) return STATUS_OK;
    *text = n ? q->line : "";
    *bytes = (size_t)n;
    if (q->format != QUERY_JSONL || n == 0) return STATUS_OK;
    struct json j;
    json_open_line(&j, q->name, q->line, (size_t)n, q->read);
    TRY(read_object(q, &j, bytes));
    *text = q->field;
    return STATUS_OK;
}

/* ---- vectors --------------------------------------------------------------------------------------------- */

static enum status read_some(struct query_file *q, float *rows, int64_t n) {
    size_t values = (size_t)n * (size_t)q->dim;
    char what[64];
    snprintf(what, sizeof what, "rows %lld to %lld of %lld", (long long)q->read, (long long)(q->read + n - 1),
             (long long)q->rows);
    TRY(query_file_take(q, q->raw, values * (q->half ? 2 : 4), what));
    for (size_t i = 0; i < values; i++) {
        if (q->half) {
            rows[i] = half_from_f16((uint16_t)little_endian_get(q->raw + 2 * i, 2));
        } else {
            uint32_t bits = (uint32_t)little_endian_get(q->raw + 4 * i, 4);
            memcpy(&rows[i], &bits, sizeof bits);
        }
        if (!(fabsf(rows[i]) <= STORE_QUERY_MAX))
            return fail(STATUS_INVALID, "%s: row %lld, column %lld is not a finite number of at most %g", q->name,
                        (long long)(q->read + (int64_t)i / q->dim), (long long)i % q->dim, (double)STORE_QUERY_MAX);
    }
    q->read += n;
    return STATUS_OK;
}

enum status query_file_rows(struct query_file *q, float *rows, int64_t most, int64_t *n) {
    int64_t left = q->rows - q->read;
    *n = left < most ? left : most;
    for (int64_t at = 0, part; at < *n; at += part) {
        part = *n - at < ROWS_AT_ONCE ? *n - at : ROWS_AT_ONCE;
        TRY(read_some(q, rows + at * q->dim, part));
    }
    if (q->read == q->rows && q->rows > 0 && *n == 0 && getc(q->file) != EOF)
        return fail(STATUS_INVALID, "%s: has more bytes than its header's %lld rows", q->name, (long long)q->rows);
    return STATUS_OK;
}
