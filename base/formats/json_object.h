/* json_object.h -- a JSON object as a list of members whose values keep the text of the file.
 *
 * Most members of a config are for other programs. Here they are only copied, replaced or left out. For one thread at a
 * time per object. */
#pragma once
#include "base/status.h"
#include <stddef.h>

struct object_member { char *key, *value; };    /* value: JSON text without surrounding white space */
struct object { struct object_member *items; size_t count, capacity; };

/* `text` must be one object; `name` is for messages. STATUS_INVALID: not JSON, not an object, or a key that occurs
 * twice. Free *out also after a failure. */
enum status object_read(struct object *out, const char *name, const char *text, size_t bytes);
void object_free(struct object *m);                     /* a zeroed object is fine */
const char *object_get(const struct object *m, const char *key);     /* NULL: none */
/* Replaces the member or adds it at the end. */
enum status object_set(struct object *m, const char *key, const char *value);
enum status object_set_string(struct object *m, const char *key, const char *text);   /* as a JSON string */
enum status object_set_int(struct object *m, const char *key, long long value);
void object_remove(struct object *m, const char *key);  /* does nothing if there is none */
enum status object_copy(struct object *out, const struct object *from);
/* Writes the object on one line. Free *out with memory_free. */
enum status object_text(char **out, const struct object *m);

/* Read a value that must be a string, or a list of strings. `name` and `key` are for messages. */
enum status object_string(char **out, const char *name, const char *key, const char *value);
struct object_list { char **items; size_t count, capacity; };
enum status object_strings(struct object_list *out, const char *name, const char *key, const char *value);
enum status object_list_add(struct object_list *list, const char *text);
void object_list_free(struct object_list *list);
