/* torch_pickle.h -- the restricted unpickler of torch_checkpoint: reads a pickle into a tree of dictionaries.
 *
 * A storage is only a key and a type here. torch_checkpoint joins storages with the archive's members and checks the
 * tensors against them. Strings are borrowed from the pickle's bytes. */
#pragma once
#include "base/formats/safetensors.h"
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum pickle_kind {
    PICKLE_NONE, PICKLE_BOOL, PICKLE_INT, PICKLE_FLOAT, PICKLE_TEXT, PICKLE_TUPLE, PICKLE_LIST, PICKLE_DICT,
    PICKLE_GLOBAL, PICKLE_STORAGE, PICKLE_TENSOR,
};
struct pickle_text { const char *bytes; uint32_t length; };
struct pickle_tuple { int32_t first, count; };            /* in pickle.items */
struct pickle_object {
    enum pickle_kind kind;
    union {
        int64_t integer;                 /* BOOL, INT */
        struct pickle_text text;
        struct pickle_tuple tuple;
        struct { int32_t first, last; } dict;             /* chain in pickle.pairs; -1: empty */
        int32_t index;                   /* STORAGE, TENSOR: its number; GLOBAL: which global */
    };
};
struct pickle_pair { int32_t key, value, next; };         /* objects; next pair or -1 */
struct pickle_storage { struct pickle_text key; enum safetensors_dtype dtype; int64_t elements; };
struct pickle_tensor {
    int32_t storage;
    int dims;
    int64_t offset, shape[SAFETENSORS_DIMS_MAX], stride[SAFETENSORS_DIMS_MAX];
};

struct pickle {
    struct pickle_object *objects; size_t n_objects, objects_capacity;
    struct pickle_pair *pairs; size_t n_pairs, pairs_capacity;
    int32_t *items; size_t n_items, items_capacity;
    struct pickle_storage *storages; size_t n_storages, storages_capacity;
    struct pickle_tensor *tensors; size_t n_tensors, tensors_capacity;
    int32_t result;                      /* object */
};
/* The caller zeroes `out`, and frees it with pickle_free, also after a failure. */
enum status pickle_run(struct pickle *out, const char *name, const uint8_t *data, size_t bytes);
void pickle_free(struct pickle *p);
