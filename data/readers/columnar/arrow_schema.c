/* arrow_schema.c -- finds the columns of a document in an arrow schema. A record batch has its buffers in the order of
 * a walk over the schema's fields, and each type has its own number of buffers. */
#include "data/readers/columnar/arrow_internal.h"
#include <string.h>

enum { /* of Schema.fbs, union Type */
       TYPE_NULL = 1,
       TYPE_INT = 2,
       TYPE_BINARY = 4,
       TYPE_UTF8 = 5,
       TYPE_LIST = 12,
       TYPE_STRUCT = 13,
       TYPE_UNION = 14,
       TYPE_FIXED_LIST = 16,
       TYPE_MAP = 17,
       TYPE_LARGE_BINARY = 19,
       TYPE_LARGE_UTF8 = 20,
       TYPE_LARGE_LIST = 21,
       TYPE_RUNS = 22,
       TYPE_BINARY_VIEW = 23,
       TYPE_UTF8_VIEW = 24,
       TYPE_LIST_VIEW = 25,
       TYPE_LARGE_LIST_VIEW = 26,
       TYPES = 27
};
enum { VERSION_5 = 4 };

struct arrow_walk {
    struct arrow_schema *out;
    struct flat *flat;
    struct columnar_choice *choice;
    int version, n_leaves;
    size_t fields_left; /* limits the walk: tables can be shared, so its length could grow exponentially */
    size_t parents[COLUMNAR_DEPTH_MAX];
    char path[COLUMNAR_PATH_MAX];
};
/* Position of a field in the walk. */
struct arrow_position {
    size_t path;
    int depth;
    bool structs_only;
};

static const char *type_name(uint64_t type) {
    static const char *const names[TYPES] = {"nothing",
                                             "nulls",
                                             "integers",
                                             "floating-point numbers",
                                             "binary",
                                             "text",
                                             "booleans",
                                             "decimals",
                                             "dates",
                                             "times",
                                             "timestamps",
                                             "intervals",
                                             "a list",
                                             "a struct",
                                             "a union",
                                             "fixed-size binary",
                                             "a list",
                                             "a map",
                                             "durations",
                                             "binary",
                                             "text",
                                             "a list",
                                             "run-end encoded values",
                                             "binary_view",
                                             "text",
                                             "a list",
                                             "a list"};
    return type < TYPES ? names[type] : "an unknown type";
}

/* Returns the number of buffers of the type itself. A view has more, whose number is in each batch. */
static size_t type_buffers(const struct arrow_walk *w, uint64_t type, bool dense) {
    switch (type) {
    case TYPE_NULL:
        return 0;
    case TYPE_RUNS:
        return w->version < VERSION_5;
    case TYPE_STRUCT:
    case TYPE_FIXED_LIST:
        return 1;
    case TYPE_BINARY:
    case TYPE_UTF8:
    case TYPE_LARGE_BINARY:
    case TYPE_LARGE_UTF8:
    case TYPE_LIST_VIEW:
    case TYPE_LARGE_LIST_VIEW:
        return 3;
    case TYPE_UNION:
        return 1u + dense + (w->version < VERSION_5);
    default:
        return 2;
    }
}

static void add_column(struct arrow_walk *w, struct flat_table field, struct arrow_position p, uint64_t type) {
    struct flat_table of = flat_child(w->flat, field, 3);
    struct arrow_leaf leaf = {.present = true,
                              .node = w->out->n_nodes,
                              .buffer = w->out->n_buffers,
                              .n_parents = p.depth,
                              .views = w->out->n_views};
    enum columnar_kind kind = COLUMN_OTHER;
    const char *name = type_name(type);
    if (p.depth > 0) memcpy(leaf.parents, w->parents, (size_t)p.depth * sizeof *leaf.parents);
    uint64_t bits = type == TYPE_INT ? flat_number(w->flat, of, 0, 4) : 0;
    if (type == TYPE_UTF8 || type == TYPE_LARGE_UTF8 || type == TYPE_UTF8_VIEW) {
        leaf.view = type == TYPE_UTF8_VIEW;
        leaf.width = leaf.view ? 16 : type == TYPE_UTF8 ? 4 : 8;
        kind = COLUMN_TEXT;
    } else if (bits == 8 || bits == 16 || bits == 32 || bits == 64) {
        leaf.width = (int)(bits / 8);
        kind = flat_number(w->flat, of, 1, 1) ? COLUMN_SIGNED : COLUMN_UNSIGNED;
    }
    if (flat_child(w->flat, field, 4).fields_size) {
        kind = COLUMN_OTHER;
        name = "dictionary-encoded values, which are not supported (cast them to string)";
    }
    if (!p.structs_only) kind = COLUMN_OTHER;
    columnar_choice_add(w->choice, w->path, kind, name, w->n_leaves);
    for (int i = 0; i < COLUMNAR_COLUMNS; i++)
        if (w->choice->number[i] == w->n_leaves) w->out->leaves[i] = leaf;
    w->n_leaves++;
}

static bool walk_field(struct arrow_walk *w, struct flat_table field, struct arrow_position p) {
    struct flat *f = w->flat;
    if (w->fields_left-- == 0 || p.depth >= COLUMNAR_DEPTH_MAX || f->bad) return false;
    struct flat_vector name = flat_vector(f, field, 0, 1), children = flat_vector(f, field, 5, 4);
    uint64_t type = flat_number(f, field, 2, 1);
    bool encoded = flat_child(f, field, 4).fields_size > 0;
    bool dense = type == TYPE_UNION && flat_number(f, flat_child(f, field, 3), 0, 2) == 1;
    if (type == 0 || type >= TYPES) return false;
    p.path = columnar_path_add(w->path, p.path, name.data, name.count);
    add_column(w, field, p, type);
    w->parents[p.depth++] = w->out->n_buffers;
    w->out->n_nodes++;
    w->out->has_dictionaries = w->out->has_dictionaries || encoded;
    w->out->n_buffers += encoded ? 2 : type_buffers(w, type, dense); /* encoded: the buffers of the indices */
    w->out->n_views += !encoded && (type == TYPE_BINARY_VIEW || type == TYPE_UTF8_VIEW);
    p.structs_only = p.structs_only && type == TYPE_STRUCT;
    for (size_t i = 0; i < children.count && !encoded; i++) {
        struct flat_table child = flat_element(f, children, i);
        if (!walk_field(w, child, p)) return false;
    }
    return !f->bad;
}

enum status arrow_schema_read(struct arrow_schema *out, struct flat *f, struct flat_table schema, int version,
                              const char *path, const char *text_field) {
    struct columnar_choice choice;
    struct arrow_walk w = {.out = out, .flat = f, .choice = &choice, .version = version, .fields_left = f->size / 8};
    columnar_choice_begin(&choice, text_field);
    struct flat_vector fields = flat_vector(f, schema, 1, 4);
    bool good = !f->bad;
    if (flat_number(f, schema, 0, 2) != 0)
        return fail(STATUS_UNSUPPORTED, "%s: its numbers are big-endian, which is not supported", path);
    for (size_t i = 0; i < fields.count && good; i++) {
        struct flat_table field = flat_element(f, fields, i);
        good = walk_field(&w, field, (struct arrow_position){.structs_only = true});
    }
    if (!good || f->bad)
        return fail(STATUS_INVALID, "%s: damaged arrow file: its schema is malformed: write or fetch it again", path);
    for (int i = 0; i < COLUMNAR_COLUMNS; i++)
        out->kinds[i] = choice.kind[i];
    return columnar_choice_check(&choice, path);
}
