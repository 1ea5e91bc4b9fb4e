/* parquet_footer.c -- reads the schema and the row groups of a parquet file.
 *
 * The footer is one Thrift struct at the file's end. Its schema is read first, to find the columns; then its row
 * groups, of which only these columns are kept. Every range is checked here against the file. */
#include "base/little_endian.h"
#include "base/memory.h"
#include "data/readers/columnar/parquet_internal.h"
#include "data/readers/columnar/thrift.h"
#include <string.h>

enum { TAIL = 8, MAGIC = 4 };
static const char magic[] = "PAR1", encrypted_magic[] = "PARE";

struct element { /* of the schema */
    int64_t type, repetition, children, converted;
    bool has_type, text, number, is_unsigned, other_logical;
    struct thrift_bytes name;
};
struct schema_walk {
    struct columnar_choice *choice;
    struct parquet_leaf leaves[COLUMNAR_COLUMNS];
    int n_leaves;
    struct {
        size_t path;
        int64_t left;
        int levels;
        bool repeated;
    } open[COLUMNAR_DEPTH_MAX];
    int depth;
    char path[COLUMNAR_PATH_MAX];
};
struct footer_read {
    struct parquet_footer *out;
    const struct columnar_file *file;
    uint64_t data_end; /* start of the footer */
    struct schema_walk walk;
    struct columnar_choice choice;
};

static enum status parquet_footer_damaged(const struct columnar_file *file, const char *what) {
    return fail(STATUS_INVALID, "%s: damaged parquet file: %s: write or fetch it again", file->path, what);
}

/* ---- schema ----------------------------------------------------------------------------------------------------- */

/* LogicalType: STRING 1, ENUM 4, INTEGER 10 {bits, is signed}, JSON 12. */
static void read_logical(struct thrift *t, struct thrift_field in, struct element *e) {
    struct thrift_field f = {0};
    if (!thrift_struct(t, in)) return;
    while (thrift_next(t, &f)) {
        struct thrift_field g = {0};
        e->text = e->text || f.id == 1 || f.id == 4 || f.id == 12;
        e->other_logical = e->other_logical || (f.id != 10 && !e->text);
        if (f.id != 10) {
            thrift_skip(t, f.type);
            continue;
        }
        if (!thrift_struct(t, f)) return;
        while (thrift_next(t, &g)) {
            if (g.id == 2)
                e->is_unsigned = !thrift_bool(t, g);
            else
                thrift_skip(t, g.type);
        }
    }
}

static void read_element(struct thrift *t, struct element *e) {
    struct thrift_field f = {0};
    *e = (struct element){.converted = -1};
    while (thrift_next(t, &f)) {
        switch (f.id) {
        case 1:
            e->type = thrift_int(t, f);
            e->has_type = true;
            break;
        case 3:
            e->repetition = thrift_int(t, f);
            break;
        case 4:
            e->name = thrift_binary(t, f);
            break;
        case 5:
            e->children = thrift_int(t, f);
            break;
        case 6:
            e->converted = thrift_int(t, f);
            break;
        case 10:
            read_logical(t, f, e);
            break;
        default:
            thrift_skip(t, f.type);
        }
    }
    /* ConvertedType, of older writers: UTF8 0, ENUM 4, UINT_8 11 to UINT_64 14, INT_8 15 to INT_64 18, JSON 19. */
    e->text = e->text || e->converted == 0 || e->converted == 4 || e->converted == 19;
    e->is_unsigned = e->is_unsigned || (e->converted >= 11 && e->converted <= 14);
    e->other_logical = e->other_logical || (e->converted > 0 && e->converted < 11 && e->converted != 4);
}

static void add_leaf(struct schema_walk *w, const struct element *e, int levels, bool repeated) {
    static const char *const types[PARQUET_TYPES] = {"boolean", "int32",  "int64",  "int96",
                                                     "float",   "double", "binary", "fixed-size binary"};
    const struct parquet_leaf leaf = {w->n_leaves, (enum parquet_type)e->type, levels};
    enum columnar_kind kind = COLUMN_OTHER;
    if (!repeated && e->type == PARQUET_BYTE_ARRAY && e->text) kind = COLUMN_TEXT;
    if (!repeated && (e->type == PARQUET_INT32 || e->type == PARQUET_INT64) && !e->other_logical)
        kind = e->is_unsigned ? COLUMN_UNSIGNED : COLUMN_SIGNED;
    struct columnar_choice *c = w->choice;
    const char *type = types[e->type];
    if (e->type == PARQUET_BYTE_ARRAY && e->text) type = "a list of texts";
    columnar_choice_add(c, w->path, kind, type, w->n_leaves);
    for (int i = 0; i < COLUMNAR_COLUMNS; i++)
        if (c->number[i] == w->n_leaves) w->leaves[i] = leaf;
    w->n_leaves++;
}

/* Reads one element below the root. Returns false if the tree is malformed. */
static bool walk_element(struct schema_walk *w, const struct element *e) {
    while (w->depth > 0 && w->open[w->depth - 1].left == 0)
        w->depth--;
    if (w->depth == 0 || e->repetition < 0 || e->repetition > 2 || e->children < 0) return false;
    bool repeated = w->open[w->depth - 1].repeated || e->repetition == 2;
    int levels = w->open[w->depth - 1].levels + (e->repetition != 0);
    w->open[w->depth - 1].left--;
    size_t path = columnar_path_add(w->path, w->open[w->depth - 1].path, e->name.data, e->name.size);
    if (e->has_type) {
        if (e->type < 0 || e->type >= PARQUET_TYPES || e->children != 0) return false;
        add_leaf(w, e, levels, repeated);
        return true;
    }
    if (w->depth == COLUMNAR_DEPTH_MAX) return false;
    /* whether a struct or a list has that name, which is not the path of a leaf */
    bool named = strcmp(w->path, w->choice->text_field) == 0;
    if (named) columnar_choice_add(w->choice, w->path, COLUMN_OTHER, "a list or a struct", -1);
    w->open[w->depth].path = path;
    w->open[w->depth].left = e->children;
    w->open[w->depth].levels = levels;
    w->open[w->depth++].repeated = repeated;
    return true;
}

static bool read_schema(struct thrift *t, struct thrift_field f, struct schema_walk *w) {
    size_t count = thrift_list(t, f, THRIFT_STRUCT);
    struct element e;
    for (size_t i = 0; i < count && !t->bad; i++) {
        read_element(t, &e);
        if (t->bad) return false;
        if (i == 0) {
            if (e.children < 0) return false;
            w->depth = 1;
            w->open[0].left = e.children;
        } else if (!walk_element(w, &e)) {
            return false;
        }
    }
    for (int i = 0; i < w->depth; i++)
        if (w->open[i].left > 0) return false;
    return count > 0 && !t->bad;
}

/* ---- row groups ------------------------------------------------------------------------------------------------- */

struct chunk_read {
    int64_t type, codec, values, bytes, data_at, dictionary_at;
    bool has_meta, elsewhere, encrypted;
};

static void read_column_meta(struct thrift *t, struct thrift_field in, struct chunk_read *c) {
    struct thrift_field f = {0};
    c->has_meta = thrift_struct(t, in);
    while (!t->bad && thrift_next(t, &f)) {
        int64_t *to = f.id == 1    ? &c->type
                      : f.id == 4  ? &c->codec
                      : f.id == 5  ? &c->values
                      : f.id == 7  ? &c->bytes
                      : f.id == 9  ? &c->data_at
                      : f.id == 11 ? &c->dictionary_at
                                   : NULL;
        if (to)
            *to = thrift_int(t, f);
        else
            thrift_skip(t, f.type);
    }
}

static void read_chunk(struct thrift *t, struct chunk_read *c) {
    struct thrift_field f = {0};
    *c = (struct chunk_read){.type = -1, .codec = -1, .data_at = -1};
    while (thrift_next(t, &f)) {
        c->elsewhere = c->elsewhere || f.id == 1;
        c->encrypted = c->encrypted || f.id == 8 || f.id == 9;
        if (f.id == 3)
            read_column_meta(t, f, c);
        else
            thrift_skip(t, f.type);
    }
}

static enum status check_chunk(struct footer_read *r, const struct chunk_read *c, size_t group, int column) {
    const char *path = r->file->path, *name = column == COLUMNAR_TEXT ? r->choice.text_field : "id";
    struct parquet_group *g = &r->out->groups[group];
    int64_t at = c->dictionary_at > 0 && c->dictionary_at < c->data_at ? c->dictionary_at : c->data_at;
    if (c->encrypted)
        return fail(STATUS_UNSUPPORTED, "%s: row group %zu: the column \"%s\" is encrypted: decrypt the file first",
                    path, group, name);
    if (c->elsewhere)
        return fail(STATUS_UNSUPPORTED, "%s: row group %zu: the column \"%s\" is in another file: name that one", path,
                    group, name);
    bool in_file = c->has_meta && at >= MAGIC && c->bytes >= 0 && (uint64_t)at <= r->data_end &&
                   (uint64_t)c->bytes <= r->data_end - (uint64_t)at;
    if (!in_file || c->type != (int64_t)r->out->leaves[column].type || c->values < 0 || (uint64_t)c->values != g->rows)
        return fail(STATUS_INVALID,
                    "%s: row group %zu: the column \"%s\" (%lld values, %lld bytes from byte %lld) fits neither the "
                    "schema nor the file: it is damaged, write or fetch it again",
                    path, group, name, (long long)c->values, (long long)c->bytes, (long long)at);
    if (!codec_known(c->codec) || c->codec == CODEC_LZ4_FRAME)
        return fail(
            STATUS_UNSUPPORTED,
            "%s: row group %zu: the column \"%s\" is compressed by method %lld%s%s, which is not supported: write it "
            "again with zstd",
            path, group, name, (long long)c->codec, c->codec == CODEC_LZO ? ", lzo" : "",
            c->codec == CODEC_LZ4_HADOOP ? ", the old framing of lz4" : "");
    g->chunks[column] = (struct parquet_chunk){(enum codec)c->codec, (uint64_t)at, (uint64_t)(at + c->bytes)};
    return STATUS_OK;
}

/* The chunks come before the number of rows, against which they are checked. */
static enum status read_group(struct thrift *t, struct footer_read *r, size_t group) {
    struct thrift_field f = {0};
    struct chunk_read wanted[COLUMNAR_COLUMNS] = {0}, c;
    size_t n_chunks = 0;
    int64_t rows = -1;
    while (thrift_next(t, &f)) {
        if (f.id == 1) {
            n_chunks = thrift_list(t, f, THRIFT_STRUCT);
            for (size_t i = 0; i < n_chunks && !t->bad; i++) {
                read_chunk(t, &c);
                for (int k = 0; k < COLUMNAR_COLUMNS; k++)
                    if (r->out->leaves[k].number == (int)i) wanted[k] = c;
            }
        } else if (f.id == 3) {
            rows = thrift_int(t, f);
        } else {
            thrift_skip(t, f.type);
        }
    }
    if (t->bad || rows < 0 || n_chunks != (size_t)r->walk.n_leaves)
        return fail(STATUS_INVALID,
                    "%s: row group %zu: its description in the footer is damaged: write or fetch the "
                    "file again",
                    r->file->path, group);
    r->out->groups[group].rows = (uint64_t)rows;
    r->out->rows += (uint64_t)rows;
    for (int k = 0; k < COLUMNAR_COLUMNS && rows > 0; k++)
        if (r->out->leaves[k].number >= 0) TRY(check_chunk(r, &wanted[k], group, k));
    return STATUS_OK;
}

static enum status read_groups(struct thrift *t, struct thrift_field f, struct footer_read *r) {
    size_t count = thrift_list(t, f, THRIFT_STRUCT);
    if (t->bad) return STATUS_OK;
    TRY(memory_allocate_zero(&r->out->groups, count));
    r->out->n_groups = count;
    for (size_t i = 0; i < count; i++)
        TRY(read_group(t, r, i));
    return STATUS_OK;
}

/* ---- the footer ------------------------------------------------------------------------------------------------- */

static enum status parse_footer(struct footer_read *r, const uint8_t *data, size_t bytes) {
    struct thrift t = {data, data + bytes, false};
    struct thrift_field f = {0};
    int64_t rows = -1;
    bool schema = false;
    columnar_choice_begin(&r->choice, r->choice.text_field);
    r->walk.choice = &r->choice;
    while (thrift_next(&t, &f)) {
        if (f.id == 2 && !schema) {
            if (!read_schema(&t, f, &r->walk)) return parquet_footer_damaged(r->file, "its schema is malformed");
            TRY(columnar_choice_check(&r->choice, r->file->path));
            for (int i = 0; i < COLUMNAR_COLUMNS; i++) {
                r->out->leaves[i] = r->walk.leaves[i];
                if (r->choice.number[i] < 0) r->out->leaves[i].number = -1;
                r->out->kinds[i] = r->choice.kind[i];
            }
            schema = true;
        } else if (f.id == 3) {
            rows = thrift_int(&t, f);
        } else if (f.id == 4 && schema && !r->out->groups) {
            TRY(read_groups(&t, f, r));
        } else {
            thrift_skip(&t, f.type);
        }
    }
    if (t.bad || !schema || !r->out->groups) return parquet_footer_damaged(r->file, "its footer is malformed");
    if (rows < 0 || (uint64_t)rows != r->out->rows)
        return parquet_footer_damaged(r->file, "its row groups hold another number of rows than its footer states");
    return STATUS_OK;
}

static enum status read_footer(struct footer_read *r, uint64_t block_max) {
    const struct columnar_file *file = r->file;
    uint8_t head[MAGIC], tail[TAIL];
    if (file->size < 2 * MAGIC + TAIL - MAGIC) return parquet_footer_damaged(file, "it is too short");
    TRY(columnar_file_read(file, head, 0, MAGIC));
    TRY(columnar_file_read(file, tail, file->size - TAIL, TAIL));
    if (memcmp(tail + 4, encrypted_magic, MAGIC) == 0)
        return fail(STATUS_UNSUPPORTED, "%s: is encrypted (its footer is PARE): decrypt it first", file->path);
    if (memcmp(head, magic, MAGIC) != 0) return parquet_footer_damaged(file, "PAR1 is missing at its start");
    if (memcmp(tail + 4, magic, MAGIC) != 0)
        return parquet_footer_damaged(file, "PAR1 is missing at its end, so it may be cut short");
    uint64_t bytes = little_endian_get(tail, 4);
    if (bytes > file->size - MAGIC - TAIL) return parquet_footer_damaged(file, "its footer is longer than the file");
    if (bytes > block_max)
        return fail(STATUS_UNSUPPORTED,
                    "%s: its footer takes %llu bytes, more than the limit of %llu: allow drt-index more memory "
                    "(--max-ram), or write fewer row groups",
                    file->path, (unsigned long long)bytes, (unsigned long long)block_max);
    r->data_end = file->size - TAIL - bytes;
    uint8_t *data;
    TRY(memory_allocate(&data, bytes));
    enum status status = columnar_file_read(file, data, r->data_end, bytes);
    if (status == STATUS_OK) status = parse_footer(r, data, bytes);
    memory_free(data);
    return status;
}

enum status parquet_footer_read(struct parquet_footer *out, const struct columnar_file *file, const char *text_field,
                                uint64_t block_max) {
    *out = (struct parquet_footer){0};
    struct footer_read *r;
    TRY(memory_allocate_zero(&r, 1));
    r->out = out;
    r->file = file;
    r->choice.text_field = text_field;
    enum status status = read_footer(r, block_max);
    memory_free(r);
    if (status != STATUS_OK) parquet_footer_free(out);
    return status;
}

void parquet_footer_free(struct parquet_footer *f) {
    memory_free(f->groups);
    *f = (struct parquet_footer){0};
}
