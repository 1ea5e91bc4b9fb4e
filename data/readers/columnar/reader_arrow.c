/* reader_arrow.c -- documents from an arrow IPC file or stream: one document per row, record batch by record batch. */
#include "base/little_endian.h"
#include "base/memory.h"
#include "data/readers/columnar/arrow_internal.h"
#include <string.h>

enum { MAGIC = 6, FILE_HEAD = 8, FILE_TAIL = 10, NODE = 16, BUFFER = 16, VIEW_INLINE = 12, BLOCK = 24 };
enum { PADDING_MAX = 64 }; /* of the bytes that may follow the mark of the end: to an alignment, less than a message */
enum { MESSAGE_SCHEMA = 1, MESSAGE_DICTIONARY = 2, MESSAGE_BATCH = 3 };
static const char magic[] = "ARROW1";

struct arrow {
    struct columnar_file file;
    bool footer;               /* whether it has the file format */
    uint64_t at, end;          /* position of the next message; end of the messages */
    uint64_t batches_promised; /* by the footer */
    struct reader_buffer metadata;
    struct arrow_schema schema;
    struct arrow_body body;      /* of the open batch */
    uint64_t batches, rows, row; /* batches opened; rows of the open one */
    struct arrow_column columns[COLUMNAR_COLUMNS];
};
struct arrow_message {
    struct flat flat;
    struct flat_table head;
    int kind, version;
    uint64_t body, body_bytes;
};

static enum status reader_arrow_damaged(const struct arrow *a, const char *what) {
    return fail(STATUS_INVALID, "%s: damaged arrow file: at byte %llu: %s: write or fetch it again", a->file.path,
                (unsigned long long)a->at, what);
}

/* ---- messages --------------------------------------------------------------------------------------------------- */

/* Reads the length of the next message's metadata and moves a->at to it. Length 0: the end. */
static enum status next_length(struct arrow *a, uint64_t *bytes) {
    uint8_t head[4];
    *bytes = 0;
    if (a->at == a->end && a->footer) return STATUS_OK;
    if (a->end - a->at < 4) return reader_arrow_damaged(a, "it ends without the mark of its end, so it is cut short");
    TRY(columnar_file_read(&a->file, head, a->at, sizeof head));
    *bytes = little_endian_get(head, 4);
    if (*bytes == UINT32_MAX) { /* marks a message; files before arrow 0.15 lack it */
        if (a->end - a->at < 8) return reader_arrow_damaged(a, "it ends within a message");
        TRY(columnar_file_read(&a->file, head, a->at + 4, sizeof head));
        *bytes = little_endian_get(head, 4);
        a->at += 4;
    }
    a->at += 4;
    if (*bytes > a->end - a->at) return reader_arrow_damaged(a, "a message is longer than the file");
    return STATUS_OK;
}

static enum status next_message(struct arrow *a, struct arrow_message *m, uint64_t block_max, bool *more) {
    uint64_t bytes;
    TRY(next_length(a, &bytes));
    *more = bytes > 0;
    if (!*more) return STATUS_OK;
    if (bytes > block_max) return reader_arrow_damaged(a, "the metadata of a message is longer than any is");
    TRY(memory_grow(&a->metadata.data, &a->metadata.capacity, (size_t)bytes));
    TRY(columnar_file_read(&a->file, a->metadata.data, a->at, (size_t)bytes));
    *m = (struct arrow_message){.flat = {(const uint8_t *)a->metadata.data, (size_t)bytes, false}};
    struct flat_table root = flat_root(&m->flat);
    m->version = (int)flat_number(&m->flat, root, 0, 2);
    m->kind = (int)flat_number(&m->flat, root, 1, 1);
    m->head = flat_child(&m->flat, root, 2);
    m->body_bytes = flat_number(&m->flat, root, 3, 8);
    m->body = a->at + bytes;
    if (m->flat.bad || m->head.fields_size == 0) return reader_arrow_damaged(a, "a message is malformed");
    if (m->body_bytes > a->end - m->body)
        return reader_arrow_damaged(a, "the data of a message is longer than the file: it is cut short");
    a->at = m->body + m->body_bytes;
    return STATUS_OK;
}

/* Reads the number of record batches from the footer, which begins at a->end. */
static enum status read_footer(struct arrow *a, uint64_t bytes, uint64_t block_max) {
    if (bytes > block_max)
        return fail(STATUS_UNSUPPORTED,
                    "%s: its footer takes %llu bytes, more than the limit of %llu: allow drt-index more memory "
                    "(--max-ram), or write fewer record batches",
                    a->file.path, (unsigned long long)bytes, (unsigned long long)block_max);
    TRY(memory_grow(&a->metadata.data, &a->metadata.capacity, (size_t)bytes + 1));
    TRY(columnar_file_read(&a->file, a->metadata.data, a->end, (size_t)bytes));
    struct flat f = {(const uint8_t *)a->metadata.data, (size_t)bytes, false};
    a->batches_promised = flat_vector(&f, flat_root(&f), 3, BLOCK).count;
    return f.bad ? reader_arrow_damaged(a, "its footer is malformed") : STATUS_OK;
}

/* A stream has no magic, but its first message can be recognized. */
static enum status find_messages(struct arrow *a, uint64_t block_max) {
    uint8_t head[FILE_HEAD], tail[FILE_TAIL];
    a->end = a->file.size;
    if (a->file.size < FILE_HEAD) return reader_arrow_damaged(a, "it is too short");
    TRY(columnar_file_read(&a->file, head, 0, FILE_HEAD));
    a->footer = memcmp(head, magic, MAGIC) == 0;
    if (!a->footer) return STATUS_OK;
    if (a->file.size < FILE_HEAD + FILE_TAIL) return reader_arrow_damaged(a, "it is too short");
    TRY(columnar_file_read(&a->file, tail, a->file.size - FILE_TAIL, FILE_TAIL));
    uint64_t footer = little_endian_get(tail, 4);
    if (memcmp(tail + 4, magic, MAGIC) != 0)
        return reader_arrow_damaged(a, "ARROW1 is missing at its end, so it is cut short");
    if (footer > a->file.size - FILE_HEAD - FILE_TAIL)
        return reader_arrow_damaged(a, "its footer is longer than the file");
    a->at = FILE_HEAD;
    a->end = a->file.size - FILE_TAIL - footer;
    return read_footer(a, footer, block_max);
}

enum status arrow_open(struct reader *r) {
    struct arrow *a;
    struct arrow_message m;
    bool more;
    TRY(memory_allocate_zero(&a, 1));
    r->arrow = a;
    TRY(columnar_file_open(&a->file, reader_file(r)->path));
    TRY(find_messages(a, columnar_block_max(r)));
    TRY(next_message(a, &m, columnar_block_max(r), &more));
    if (!more || m.kind != MESSAGE_SCHEMA)
        return reader_arrow_damaged(a, "there is no schema at its start; is it arrow IPC?");
    return arrow_schema_read(&a->schema, &m.flat, m.head, m.version, a->file.path, r->text_field);
}

static void free_column(struct arrow_column *c) {
    for (int i = 0; i < COLUMNAR_DEPTH_MAX + 1; i++)
        memory_free(c->valid[i].bytes.data);
    memory_free(c->offsets.bytes.data);
    memory_free(c->data.bytes.data);
}

void arrow_close(struct reader *r) {
    struct arrow *a = r->arrow;
    if (!a) return;
    for (int i = 0; i < COLUMNAR_COLUMNS; i++)
        free_column(&a->columns[i]);
    memory_free(a->metadata.data);
    columnar_file_close(&a->file);
    memory_free(a);
    r->arrow = NULL;
}

uint64_t arrow_done(const struct reader *r) {
    return r->arrow->at;
}

/* ---- record batches --------------------------------------------------------------------------------------------- */

static enum status open_column(struct arrow *a, int column, struct flat_vector nodes, struct flat_vector buffers,
                               struct flat_vector views) {
    const struct arrow_leaf *leaf = &a->schema.leaves[column];
    struct arrow_column *c = &a->columns[column];
    uint64_t shift = 0; /* number of buffers of the views before this column */
    for (size_t i = 0; i < leaf->views; i++)
        shift += little_endian_get(views.data + 8 * i, 8);
    if (little_endian_get(nodes.data + NODE * leaf->node, 8) != a->rows)
        return arrow_batch_fail(&a->body, "a column has another number of rows");
    c->n_valid = 0;
    for (int i = 0; i < leaf->n_parents; i++)
        TRY(arrow_buffer_open(&c->valid[c->n_valid++], &a->body, buffers.data + BUFFER * (leaf->parents[i] + shift)));
    const uint8_t *own = buffers.data + BUFFER * (leaf->buffer + shift);
    TRY(arrow_buffer_open(&c->valid[c->n_valid++], &a->body, own));
    if (a->schema.kinds[column] != COLUMN_TEXT) return arrow_buffer_open(&c->data, &a->body, own + BUFFER);
    TRY(arrow_buffer_open(&c->offsets, &a->body, own + BUFFER));
    if (leaf->view) {
        c->entries = own + 2 * BUFFER;
        c->n_entries = little_endian_get(views.data + 8 * leaf->views, 8);
        c->entry = UINT64_MAX;
        return STATUS_OK;
    }
    return arrow_buffer_open(&c->data, &a->body, own + 2 * BUFFER);
}

static enum status open_batch(struct arrow *a, struct arrow_message *m, uint64_t block_max) {
    struct flat *f = &m->flat;
    struct flat_vector nodes = flat_vector(f, m->head, 1, NODE), buffers = flat_vector(f, m->head, 2, BUFFER);
    struct flat_vector views = flat_vector(f, m->head, 4, 8);
    struct flat_table compression = flat_child(f, m->head, 3);
    uint64_t n_buffers = a->schema.n_buffers;
    a->body = (struct arrow_body){&a->file, m->body, m->body_bytes, a->batches++, block_max, CODEC_NONE};
    a->rows = flat_number(f, m->head, 0, 8);
    a->row = 0;
    if (compression.fields_size) a->body.codec = flat_number(f, compression, 0, 1) == 0 ? CODEC_LZ4_FRAME : CODEC_ZSTD;
    if (f->bad || a->rows > INT64_MAX || nodes.count != a->schema.n_nodes || views.count != a->schema.n_views)
        return arrow_batch_fail(&a->body, "its description does not fit the schema");
    for (size_t i = 0; i < views.count; i++) {
        uint64_t more = little_endian_get(views.data + 8 * i, 8);
        if (more > buffers.count) return arrow_batch_fail(&a->body, "its description does not fit the schema");
        n_buffers += more;
    }
    if (buffers.count != n_buffers) return arrow_batch_fail(&a->body, "its description does not fit the schema");
    for (int k = 0; k < COLUMNAR_COLUMNS; k++)
        if (a->schema.leaves[k].present) TRY(open_column(a, k, nodes, buffers, views));
    return STATUS_OK;
}

/* An empty validity buffer means that all rows are valid. */
static enum status is_null(struct arrow *a, struct arrow_column *c, bool *null) {
    *null = false;
    for (int i = 0; i < c->n_valid && !*null; i++) {
        const uint8_t *bits;
        if (c->valid[i].size == 0) continue;
        TRY(arrow_buffer_get(&c->valid[i], &bits, &a->body, a->row / 8, 1));
        *null = !(*bits >> (a->row % 8) & 1);
    }
    return STATUS_OK;
}

/* A view has a length, then either the text, or four bytes of it, the number of its buffer, and its position there. */
static enum status view_value(struct arrow *a, struct arrow_column *c, struct columnar_value *v, uint64_t most) {
    const uint8_t *view;
    TRY(arrow_buffer_get(&c->offsets, &view, &a->body, a->row * BUFFER, BUFFER));
    v->size = (size_t)little_endian_get(view, 4);
    if (v->size > INT32_MAX) return arrow_batch_fail(&a->body, "a text of negative length");
    if (v->size <= VIEW_INLINE) {
        v->data = view + 4;
        return STATUS_OK;
    }
    uint64_t entry = little_endian_get(view + 8, 4), at = little_endian_get(view + 12, 4);
    if (entry >= c->n_entries) return arrow_batch_fail(&a->body, "a text lies outside of its buffers");
    if (entry != c->entry) TRY(arrow_buffer_open(&c->data, &a->body, c->entries + BUFFER * entry));
    c->entry = entry;
    return v->size > most ? STATUS_OK : arrow_buffer_get(&c->data, &v->data, &a->body, at, v->size);
}

/* A text that is longer than `most` is not read: data stays NULL. */
static enum status row_value(struct arrow *a, int column, struct columnar_value *v, uint64_t most) {
    struct arrow_column *c = &a->columns[column];
    uint64_t width = (uint64_t)a->schema.leaves[column].width;
    const uint8_t *offsets;
    *v = (struct columnar_value){0};
    TRY(is_null(a, c, &v->null));
    if (v->null) return STATUS_OK;
    if (a->schema.kinds[column] != COLUMN_TEXT) {
        v->size = (size_t)width;
        return arrow_buffer_get(&c->data, &v->data, &a->body, a->row * width, width);
    }
    if (a->schema.leaves[column].view) return view_value(a, c, v, most);
    TRY(arrow_buffer_get(&c->offsets, &offsets, &a->body, a->row * width, 2 * width));
    uint64_t begin = little_endian_get(offsets, (int)width), end = little_endian_get(offsets + width, (int)width);
    if (begin > end || end > c->data.size) return arrow_batch_fail(&a->body, "a text lies outside of its buffer");
    v->size = (size_t)(end - begin);
    return v->size > most ? STATUS_OK : arrow_buffer_get(&c->data, &v->data, &a->body, begin, v->size);
}

static enum status check_end(struct arrow *a) {
    if (a->end - a->at >= PADDING_MAX)
        return fail(STATUS_INVALID,
                    "%s: damaged arrow file: %llu bytes follow the mark of its end at byte %llu: if files were joined, "
                    "name them one by one; otherwise write or fetch it again",
                    a->file.path, (unsigned long long)(a->end - a->at), (unsigned long long)a->at);
    if (a->footer && a->batches != a->batches_promised)
        return fail(STATUS_INVALID,
                    "%s: damaged arrow file: it holds %llu record batches, and its footer lists %llu: write or fetch "
                    "it again",
                    a->file.path, (unsigned long long)a->batches, (unsigned long long)a->batches_promised);
    a->at = a->end;
    return STATUS_OK;
}

static enum status next_batch(struct reader *r, bool *more) {
    struct arrow *a = r->arrow;
    struct arrow_message m;
    TRY(next_message(a, &m, columnar_block_max(r), more));
    if (!*more) return check_end(a);
    if (m.kind == MESSAGE_DICTIONARY && a->schema.has_dictionaries) return STATUS_OK;
    if (m.kind != MESSAGE_BATCH) return reader_arrow_damaged(a, "a message of a kind that does not fit the schema");
    return open_batch(a, &m, columnar_block_max(r));
}

enum status arrow_next(struct reader *r, struct document *d, int *more) {
    struct arrow *a = r->arrow;
    for (bool skipped = true, open = true; skipped;) {
        while (a->row == a->rows && open)
            TRY(next_batch(r, &open));
        *more = open;
        if (!open) return STATUS_OK;
        struct columnar_value values[COLUMNAR_COLUMNS] = {[COLUMNAR_KEY] = {.null = true}};
        for (int i = 0; i < COLUMNAR_COLUMNS; i++)
            if (a->schema.leaves[i].present) TRY(row_value(a, i, &values[i], r->max_bytes));
        a->row++;
        TRY(columnar_row(r, d, &skipped, values, a->schema.kinds,
                         (struct columnar_part){"record batch", a->body.batch}));
    }
    return STATUS_OK;
}
