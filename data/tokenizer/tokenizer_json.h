/* tokenizer_json.h -- members of a JSON object by name, for the readers of tokenizer.json.
 *
 * A value is stored as a parser that is positioned before it. A struct json can be copied, so a copy keeps the
 * position. */
#pragma once
#include "base/formats/json.h"
#include "data/tokenizer/tokenizer_internal.h"

enum { FIELDS_MAX = 16 };
struct fields {
    const struct tokenizer *tokenizer;
    const char *part;                        /* for messages: "decoder" */
    bool is_null;
    const char *type; size_t type_length;    /* the value of "type", still escaped */
    int count;
    const char *const *names;
    bool present[FIELDS_MAX];                /* whether the member exists and is not null */
    struct json value[FIELDS_MAX];
};

/* Finds the members in `names`, and "type"; any other member is an error that names it. */
enum status fields_read(struct fields *f, const struct tokenizer *t, const char *part, struct json at,
                        const char *const *names, int count);
/* Finds only "type"; another reader reads the other members. The value may be null. */
enum status fields_type(struct fields *f, const struct tokenizer *t, const char *part, struct json at);

bool field_is_type(const struct fields *f, const char *type);
/* whether it is a string that equals `text` */
bool field_is(const struct fields *f, int index, const char *text);
enum status field_text(const struct fields *f, int index, struct bytes *out);  /* a missing member is an error */
enum status field_bool(const struct fields *f, int index, bool missing, bool *out);
enum status field_int(const struct fields *f, int index, int64_t missing, int64_t *out);

/* Inside an array: whether no item follows. The end is not consumed. */
bool json_at_array_end(const struct json *j);
