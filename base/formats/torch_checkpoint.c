/* torch_checkpoint.c -- joins the pickle's tensors with the archive's members, and checks that they agree.
 *
 * A contiguous tensor is a view into the mapped file. Other tensors (a transposed weight that was saved as it was) are
 * copied into contiguous memory once. The sum of the copies is limited by the file's size, so that overlapping strides
 * cannot exhaust memory. */
#include "base/formats/torch_checkpoint.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/formats/torch_pickle.h"
#include "base/formats/zip.h"
#include "base/memory.h"

#include <string.h>

enum {
    PICKLE_BYTES_MAX = 256 << 20,
    NESTING_MAX = 4,
    NAME_BYTES_MAX = 1024,
    VISITS_MAX = 4 << 20,
    TENSORS_MAX = 1 << 18
};

struct torch_checkpoint {
    const char *name;
    struct file_map map; /* zeroed if the caller owns the bytes */
    size_t bytes;
    struct zip *zip;
    struct arena *arena;         /* names, and copies of tensors that are not contiguous */
    const uint8_t **member_data; /* [zip_count], NULL until read and checked */
    struct pickle pickle;
    const char *folder;
    size_t folder_bytes; /* of "archive/", with which every member's name begins */
    struct tensor_view *tensors;
    size_t n_tensors, tensors_capacity;
    int64_t left_out, visits;
    uint64_t copied;
};

bool torch_checkpoint_looks_like(const void *data, size_t bytes) {
    const uint8_t *p = data;
    return bytes >= 4 && (memcmp(p, "PK\3\4", 4) == 0 || (p[0] == 0x80 && p[1] <= 5));
}

static void torch_checkpoint_printable(char out[64], const char *text, size_t bytes) {
    size_t n = bytes < 63 ? bytes : 63;
    for (size_t i = 0; i < n; i++)
        out[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    out[n] = 0;
}

/* ---- the archive --------------------------------------------------------------------------------------- */

static const struct zip_member *member_of(const struct torch_checkpoint *c, const char *name, size_t name_bytes) {
    char path[512];
    if (c->folder_bytes + name_bytes > sizeof path) return NULL;
    memcpy(path, c->folder, c->folder_bytes);
    memcpy(path + c->folder_bytes, name, name_bytes);
    return zip_find(c->zip, path, c->folder_bytes + name_bytes);
}

static enum status open_archive(struct torch_checkpoint *c, const uint8_t *data) {
    if (c->bytes >= 2 && data[0] == 0x80)
        return fail(STATUS_UNSUPPORTED,
                    "%s: a torch file from before torch 1.6 (or a plain pickle): load it with a newer "
                    "torch and save it again, torch.save(torch.load(old), new)",
                    c->name);
    if (!torch_checkpoint_looks_like(data, c->bytes))
        return fail(STATUS_INVALID, "%s: not a torch checkpoint (no zip archive)", c->name);
    TRY(zip_open(&c->zip, c->name, data, c->bytes));
    TRY(memory_allocate_zero(&c->member_data, (size_t)zip_count(c->zip)));
    const struct zip_member *pickle = NULL;
    for (int64_t i = 0; i < zip_count(c->zip) && !pickle; i++) {
        const struct zip_member *m = zip_at(c->zip, i);
        const char *slash = memchr(m->name, '/', m->name_bytes);
        size_t folder = slash ? (size_t)(slash - m->name) + 1 : 0;
        if (m->name_bytes - folder == 8 && memcmp(m->name + folder, "data.pkl", 8) == 0) {
            pickle = m;
            c->folder = m->name;
            c->folder_bytes = folder;
        }
    }
    if (!pickle) return fail(STATUS_INVALID, "%s: a zip archive without data.pkl: not a torch checkpoint", c->name);
    const uint8_t *order = NULL, *program = NULL;
    const struct zip_member *byteorder = member_of(c, "byteorder", 9);
    if (byteorder) {
        TRY(zip_read(&order, c->zip, byteorder));
        if (byteorder->bytes != 6 || memcmp(order, "little", 6) != 0)
            return fail(STATUS_UNSUPPORTED,
                        "%s: saved on a big-endian machine: load it with torch on a little-endian one "
                        "and save it again",
                        c->name);
    }
    if (pickle->bytes > PICKLE_BYTES_MAX)
        return fail(STATUS_UNSUPPORTED, "%s: data.pkl has %llu bytes; no model checkpoint needs that", c->name,
                    (unsigned long long)pickle->bytes);
    TRY(zip_read(&program, c->zip, pickle));
    return pickle_run(&c->pickle, c->name, program, pickle->bytes);
}

/* Returns the bytes of a storage. The CRC is checked once, also if several tensors share the storage. */
static enum status storage_data(struct torch_checkpoint *c, const uint8_t **out, const struct pickle_storage *storage) {
    char path[300] = "data/", shown[64];
    torch_checkpoint_printable(shown, storage->key.bytes, storage->key.length);
    const struct zip_member *m = NULL;
    if (storage->key.length < sizeof path - 5) {
        memcpy(path + 5, storage->key.bytes, storage->key.length);
        m = member_of(c, path, storage->key.length + 5);
    }
    if (!m) return fail(STATUS_INVALID, "%s: storage '%s' is missing from the archive", c->name, shown);
    if ((uint64_t)storage->elements > m->bytes / safetensors_dtype_bytes(storage->dtype))
        return fail(STATUS_INVALID, "%s: storage '%s' has %llu bytes, too few for its %lld elements of %s", c->name,
                    shown, (unsigned long long)m->bytes, (long long)storage->elements,
                    safetensors_dtype_name(storage->dtype));
    int64_t index = m - zip_at(c->zip, 0);
    if (!c->member_data[index]) TRY(zip_read(&c->member_data[index], c->zip, m));
    *out = c->member_data[index];
    return STATUS_OK;
}

/* ---- tensors ------------------------------------------------------------------------------------------- */

/* Copies a tensor that is not contiguous, in row-major order. */
static enum status torch_checkpoint_gather(struct torch_checkpoint *c, struct tensor_view *view, const uint8_t *base,
                                           const struct pickle_tensor *t, size_t size) {
    uint64_t bytes = (uint64_t)view->count * size;
    if (bytes > c->bytes - c->copied)
        return fail(STATUS_UNSUPPORTED, "%s: tensor '%s' repeats its elements (expanded): save it with .contiguous()",
                    c->name, view->name);
    c->copied += bytes;
    void *copy = NULL;
    TRY(arena_push_bytes(c->arena, &copy, (size_t)view->count, size));
    uint8_t *out = copy;
    view->data = out;
    int64_t index[SAFETENSORS_DIMS_MAX] = {0}, at = 0;
    for (int64_t i = 0; i < view->count; i++, out += size) {
        memcpy(out, base + at * (int64_t)size, size);
        for (int d = view->dims - 1; d >= 0; d--) {
            at += t->stride[d];
            if (++index[d] < view->shape[d]) break;
            at -= t->stride[d] * view->shape[d];
            index[d] = 0;
        }
    }
    return STATUS_OK;
}

static enum status add_tensor(struct torch_checkpoint *c, const char *name, const struct pickle_tensor *t) {
    const struct pickle_storage *storage = &c->pickle.storages[t->storage];
    struct tensor_view view = {.name = name, .dtype = storage->dtype, .dims = t->dims, .count = 1};
    int64_t last = t->offset, packed = 1;
    bool sound = t->offset >= 0, contiguous = true;
    for (int d = t->dims - 1; d >= 0 && sound; d--) {
        int64_t reach = 0;
        view.shape[d] = t->shape[d];
        sound = t->shape[d] >= 0 && t->stride[d] >= 0 && !__builtin_mul_overflow(view.count, t->shape[d], &view.count);
        if (!sound || t->shape[d] <= 1) continue;
        sound = !__builtin_mul_overflow(t->shape[d] - 1, t->stride[d], &reach) &&
                !__builtin_add_overflow(last, reach, &last);
        contiguous = contiguous && t->stride[d] == packed;
        sound = sound && !__builtin_mul_overflow(packed, t->shape[d], &packed);
    }
    if (!sound || (view.count > 0 && last >= storage->elements))
        return fail(STATUS_INVALID, "%s: tensor '%s' reaches out of its storage of %lld elements", c->name, name,
                    (long long)storage->elements);
    const uint8_t *data = NULL;
    TRY(storage_data(c, &data, storage));
    size_t size = safetensors_dtype_bytes(storage->dtype);
    if (view.count == 0)
        view.data = data;
    else if (contiguous)
        view.data = data + t->offset * (int64_t)size;
    else
        TRY(torch_checkpoint_gather(c, &view, data + t->offset * (int64_t)size, t, size));
    if (c->n_tensors >= TENSORS_MAX) return fail(STATUS_UNSUPPORTED, "%s: more than %d tensors", c->name, TENSORS_MAX);
    TRY(memory_grow(&c->tensors, &c->tensors_capacity, c->n_tensors + 1));
    c->tensors[c->n_tensors++] = view;
    return STATUS_OK;
}

/* Makes name = prefix + key, after checking the key. */
static enum status join_name(struct torch_checkpoint *c, char **out, const char *prefix,
                             const struct pickle_object *key) {
    size_t before = strlen(prefix);
    if (key->kind != PICKLE_TEXT)
        return fail(STATUS_UNSUPPORTED, "%s: a tensor under a key that is not text, in '%s'", c->name, prefix);
    if (before + key->text.length > NAME_BYTES_MAX)
        return fail(STATUS_UNSUPPORTED, "%s: a tensor name of more than %d bytes", c->name, NAME_BYTES_MAX);
    TRY(arena_push(c->arena, out, before + key->text.length + 2));
    memcpy(*out, prefix, before);
    memcpy(*out + before, key->text.bytes, key->text.length);
    (*out)[before + key->text.length] = 0;
    for (const char *p = *out; p < *out + before + key->text.length; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            return fail(STATUS_INVALID, "%s: control characters in a tensor name", c->name);
    return STATUS_OK;
}

/* Walks dictionaries. They may be shared or contain themselves, so depth and steps are limited. */
static enum status torch_checkpoint_collect(struct torch_checkpoint *c, const struct pickle_object *dict,
                                            const char *prefix, int depth) {
    const struct pickle *p = &c->pickle;
    for (int32_t i = dict->dict.first; i >= 0; i = p->pairs[i].next) {
        if (++c->visits > VISITS_MAX)
            return fail(STATUS_UNSUPPORTED, "%s: dictionaries with more than %d entries", c->name, VISITS_MAX);
        const struct pickle_object *key = &p->objects[p->pairs[i].key], *value = &p->objects[p->pairs[i].value];
        char *name = NULL;
        if (value->kind == PICKLE_TENSOR) {
            TRY(join_name(c, &name, prefix, key));
            TRY(add_tensor(c, name, &p->tensors[value->index]));
        } else if (value->kind == PICKLE_DICT && key->kind == PICKLE_TEXT && depth < NESTING_MAX) {
            TRY(join_name(c, &name, prefix, key));
            memcpy(name + strlen(name), ".", 2); /* join_name allocated one byte more */
            TRY(torch_checkpoint_collect(c, value, name, depth + 1));
        } else {
            c->left_out++;
        }
    }
    return STATUS_OK;
}

/* ---- open and close ------------------------------------------------------------------------------------ */

static enum status torch_checkpoint_load(struct torch_checkpoint *c, const void *data) {
    TRY(arena_create(&c->arena, 1 << 16));
    TRY(open_archive(c, data));
    const struct pickle_object *result = &c->pickle.objects[c->pickle.result];
    if (result->kind != PICKLE_DICT)
        return fail(STATUS_UNSUPPORTED,
                    "%s: does not hold a dictionary of tensors: save it with "
                    "torch.save(model.state_dict(), ...)",
                    c->name);
    TRY(torch_checkpoint_collect(c, result, "", 1));
    if (c->n_tensors == 0) return fail(STATUS_INVALID, "%s: holds no tensors", c->name);
    return STATUS_OK;
}

enum status torch_checkpoint_open_memory(struct torch_checkpoint **out, const char *name, const void *data,
                                         size_t bytes) {
    struct torch_checkpoint *c = NULL;
    TRY(memory_allocate_zero(&c, 1));
    c->name = name;
    c->bytes = bytes;
    enum status status = torch_checkpoint_load(c, data);
    if (status != STATUS_OK) {
        torch_checkpoint_close(c);
        return status;
    }
    pickle_free(&c->pickle);
    *out = c;
    return STATUS_OK;
}

enum status torch_checkpoint_open(struct torch_checkpoint **out, const char *path) {
    struct file_map map = {0};
    TRY(file_map(&map, path));
    enum status status = torch_checkpoint_open_memory(out, path, map.data, map.size);
    if (status != STATUS_OK) {
        file_unmap(&map);
        return status;
    }
    (*out)->map = map;
    (*out)->name = NULL; /* the name is borrowed, for messages during opening only */
    return STATUS_OK;
}

void torch_checkpoint_close(struct torch_checkpoint *c) {
    if (!c) return;
    pickle_free(&c->pickle);
    zip_close(c->zip);
    memory_free(c->member_data);
    memory_free(c->tensors);
    arena_free(c->arena);
    file_unmap(&c->map);
    memory_free(c);
}

int torch_checkpoint_count(const struct torch_checkpoint *c) {
    return (int)c->n_tensors;
}
const struct tensor_view *torch_checkpoint_at(const struct torch_checkpoint *c, int index) {
    return &c->tensors[index];
}
int64_t torch_checkpoint_left_out(const struct torch_checkpoint *c) {
    return c->left_out;
}
