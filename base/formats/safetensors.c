/* safetensors.c -- reading checks every number of the header before it is used. */
#include "base/formats/safetensors.h"
#include "base/file.h"
#include "base/formats/json.h"
#include "base/formats/text.h"
#include "base/half.h"
#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

struct metadata {
    char *key, *value;
};

struct safetensors {
    char *path;
    struct file_map map;
    struct tensor_view *tensors; /* in file order */
    int *by_name;                /* indices sorted by name */
    int count;
    size_t capacity;
    struct metadata *metadata;
    int metadata_count;
    size_t metadata_capacity;
};

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    [SAFETENSORS_F64] = {"F64", 8},   [SAFETENSORS_F32] = {"F32", 4}, [SAFETENSORS_F16] = {"F16", 2},
    [SAFETENSORS_BF16] = {"BF16", 2}, [SAFETENSORS_I64] = {"I64", 8}, [SAFETENSORS_I32] = {"I32", 4},
    [SAFETENSORS_I16] = {"I16", 2},   [SAFETENSORS_I8] = {"I8", 1},   [SAFETENSORS_U8] = {"U8", 1},
    [SAFETENSORS_BOOL] = {"BOOL", 1},
};

const char *safetensors_dtype_name(enum safetensors_dtype dtype) {
    return dtypes[dtype].name;
}
size_t safetensors_dtype_bytes(enum safetensors_dtype dtype) {
    return dtypes[dtype].bytes;
}

static enum status copy_text(char **out, const struct json *j) {
    void *text = NULL;
    TRY(memory_allocate(&text, j->length + 1));
    size_t length = 0;
    enum status s = json_string(j, text, j->length + 1, &length);
    if (s == STATUS_OK && strlen(text) != length) s = json_fail(j, "a string without NUL");
    if (s != STATUS_OK) {
        memory_free(text);
        return s;
    }
    *out = text;
    return STATUS_OK;
}

static enum status read_metadata(struct safetensors *f, struct json *j) {
    TRY(json_expect(j, JSON_OBJECT, "an object of strings"));
    for (;;) {
        enum json_event event = json_next(j);
        if (event == JSON_OBJECT_END) return STATUS_OK;
        if (event != JSON_KEY) return json_fail(j, "a metadata key");
        TRY(memory_grow(&f->metadata, &f->metadata_capacity, (size_t)f->metadata_count + 1));
        struct metadata *m = &f->metadata[f->metadata_count];
        *m = (struct metadata){0};
        f->metadata_count++;
        TRY(copy_text(&m->key, j));
        TRY(json_expect(j, JSON_STRING, "a metadata string"));
        TRY(copy_text(&m->value, j));
    }
}

static enum status read_dtype(struct tensor_view *t, struct json *j) {
    TRY(json_expect(j, JSON_STRING, "a dtype"));
    for (size_t i = 0; i < ARRAY_LEN(dtypes); i++)
        if (json_equals(j, dtypes[i].name)) {
            t->dtype = (enum safetensors_dtype)i;
            return STATUS_OK;
        }
    return fail(STATUS_UNSUPPORTED, "%s: tensor %s has dtype %.*s, which this program does not read", j->name, t->name,
                (int)(j->length < 40 ? j->length : 40), j->text);
}

static enum status read_shape(struct tensor_view *t, struct json *j) {
    TRY(json_expect(j, JSON_ARRAY, "a shape"));
    t->count = 1;
    for (t->dims = 0;; t->dims++) {
        enum json_event event = json_next(j);
        if (event == JSON_ARRAY_END) return STATUS_OK;
        if (event != JSON_NUMBER) return json_fail(j, "a dimension");
        int64_t n = 0;
        TRY(json_int(j, &n));
        if (t->dims == SAFETENSORS_DIMS_MAX || n < 0 || (n > 0 && t->count > INT64_MAX / 16 / n))
            return fail(STATUS_INVALID, "%s: tensor %s has an impossible shape", j->name, t->name);
        t->shape[t->dims] = n;
        t->count *= n;
    }
}

static enum status read_tensor(struct safetensors *f, struct json *j, size_t data_start) {
    TRY(memory_grow(&f->tensors, &f->capacity, (size_t)f->count + 1));
    struct tensor_view *t = &f->tensors[f->count];
    *t = (struct tensor_view){0};
    char *name = NULL;
    TRY(copy_text(&name, j));
    t->name = name;
    f->count++;
    int64_t range[2] = {-1, -1};
    bool have_dtype = false, have_shape = false;
    TRY(json_expect(j, JSON_OBJECT, "an object with dtype, shape and data_offsets"));
    for (enum json_event event; (event = json_next(j)) != JSON_OBJECT_END;) {
        if (event != JSON_KEY) return json_fail(j, "dtype, shape or data_offsets");
        if (json_equals(j, "dtype")) {
            TRY(read_dtype(t, j));
            have_dtype = true;
        } else if (json_equals(j, "shape")) {
            TRY(read_shape(t, j));
            have_shape = true;
        } else if (json_equals(j, "data_offsets")) {
            TRY(json_expect(j, JSON_ARRAY, "two offsets"));
            TRY(json_next_int(j, &range[0]));
            TRY(json_next_int(j, &range[1]));
            TRY(json_expect(j, JSON_ARRAY_END, "two offsets"));
        } else {
            return json_fail(j, "dtype, shape or data_offsets");
        }
    }
    if (!have_dtype || !have_shape || range[0] < 0)
        return fail(STATUS_INVALID, "%s: tensor %s lacks dtype, shape or data_offsets", f->path, name);
    int64_t bytes = t->count * (int64_t)dtypes[t->dtype].bytes, data_bytes = (int64_t)(f->map.size - data_start);
    if (range[1] < range[0] || range[1] - range[0] != bytes)
        return fail(STATUS_INVALID, "%s: tensor %s: shape needs %lld bytes, data_offsets give %lld", f->path, name,
                    (long long)bytes, (long long)(range[1] - range[0]));
    if (range[1] > data_bytes)
        return fail(STATUS_CORRUPT,
                    "%s: tensor %s ends at byte %lld of the data, but the file has %lld: it is truncated", f->path,
                    name, (long long)range[1], (long long)data_bytes);
    t->data = f->map.data + data_start + range[0];
    return STATUS_OK;
}

/* Compares two indices by the names of their tensors. */
static int compare_names(const void *a, const void *b, void *tensors) {
    const struct tensor_view *t = tensors;
    return strcmp(t[*(const int *)a].name, t[*(const int *)b].name);
}
static int compare_data(const void *a, const void *b) {
    const char *x = ((const struct tensor_view *)a)->data, *y = ((const struct tensor_view *)b)->data;
    return x < y ? -1 : x > y;
}

static enum status check_layout(struct safetensors *f) {
    if (f->count == 0) return STATUS_OK;
    qsort(f->tensors, (size_t)f->count, sizeof *f->tensors, compare_data);
    for (int i = 1; i < f->count; i++) {
        const struct tensor_view *a = &f->tensors[i - 1], *b = &f->tensors[i];
        if ((const char *)a->data + (size_t)a->count * dtypes[a->dtype].bytes > (const char *)b->data)
            return fail(STATUS_INVALID, "%s: tensors %s and %s overlap", f->path, a->name, b->name);
    }
    TRY(memory_allocate(&f->by_name, (size_t)f->count));
    for (int i = 0; i < f->count; i++)
        f->by_name[i] = i;
    qsort_r(f->by_name, (size_t)f->count, sizeof *f->by_name, compare_names, f->tensors);
    for (int i = 1; i < f->count; i++)
        if (strcmp(f->tensors[f->by_name[i - 1]].name, f->tensors[f->by_name[i]].name) == 0)
            return fail(STATUS_INVALID, "%s: tensor %s occurs twice", f->path, f->tensors[f->by_name[i]].name);
    return STATUS_OK;
}

static enum status read_header(struct safetensors *f) {
    uint64_t length = 0;
    if (f->map.size < 8)
        return fail(STATUS_CORRUPT, "%s: %zu bytes is too short for a safetensors file", f->path, f->map.size);
    memcpy(&length, f->map.data, 8);
    if (length > f->map.size - 8)
        return fail(STATUS_CORRUPT,
                    "%s: the header claims %llu bytes, but the file has %zu: it is truncated or no safetensors file",
                    f->path, (unsigned long long)length, f->map.size);
    struct json j;
    json_open(&j, f->path, f->map.data + 8, (size_t)length);
    TRY(json_expect(&j, JSON_OBJECT, "a safetensors header (an object)"));
    for (enum json_event event; (event = json_next(&j)) != JSON_OBJECT_END;) {
        if (event != JSON_KEY) return json_fail(&j, "a tensor's name");
        if (json_equals(&j, "__metadata__"))
            TRY(read_metadata(f, &j));
        else
            TRY(read_tensor(f, &j, 8 + (size_t)length));
    }
    return json_expect(&j, JSON_END, "nothing after the header's object");
}

enum status safetensors_open(struct safetensors **out, const char *path) {
    struct safetensors *f;
    TRY(memory_allocate_zero(&f, 1));
    enum status s;
    TRY_GOTO(s, memory_copy_string(&f->path, path), failed);
    TRY_GOTO(s, file_map(&f->map, path), failed);
    TRY_GOTO(s, read_header(f), failed);
    TRY_GOTO(s, check_layout(f), failed);
    *out = f;
    return STATUS_OK;
failed:
    safetensors_close(f);
    return s;
}

enum status safetensors_check_folder(const char *folder) {
    char path[FILE_PATH_MAX];
    TRY(file_join(path, folder, "model.safetensors.index.json"));
    if (!file_exists(path)) return STATUS_OK;
    return fail(STATUS_UNSUPPORTED,
                "%s: the weights are in several files, which is not supported: write them into one model.safetensors "
                "(transformers: save_pretrained with a large max_shard_size)",
                path);
}

void safetensors_close(struct safetensors *f) {
    if (!f) return;
    for (int i = 0; i < f->count; i++)
        memory_free((void *)(uintptr_t)f->tensors[i].name);
    for (int i = 0; i < f->metadata_count; i++) {
        memory_free(f->metadata[i].key);
        memory_free(f->metadata[i].value);
    }
    memory_free(f->metadata);
    memory_free(f->tensors);
    memory_free(f->by_name);
    memory_free(f->path);
    file_unmap(&f->map);
    memory_free(f);
}

const char *safetensors_path(const struct safetensors *f) {
    return f->path;
}
int safetensors_count(const struct safetensors *f) {
    return f->count;
}
const struct tensor_view *safetensors_at(const struct safetensors *f, int index) {
    return &f->tensors[index];
}

const struct tensor_view *safetensors_find(const struct safetensors *f, const char *name) {
    int low = 0, high = f->count - 1;
    while (low <= high) {
        int middle = low + (high - low) / 2;
        const struct tensor_view *t = &f->tensors[f->by_name[middle]];
        int order = strcmp(name, t->name);
        if (order == 0) return t;
        if (order < 0)
            high = middle - 1;
        else
            low = middle + 1;
    }
    return NULL;
}

const char *safetensors_metadata(const struct safetensors *f, const char *key) {
    for (int i = 0; i < f->metadata_count; i++)
        if (strcmp(f->metadata[i].key, key) == 0) return f->metadata[i].value;
    return NULL;
}

enum status safetensors_to_f32(float *out, const struct tensor_view *t) {
    switch (t->dtype) {
    case SAFETENSORS_F32:
        memcpy(out, t->data, (size_t)t->count * 4);
        return STATUS_OK;
    case SAFETENSORS_F16:
    case SAFETENSORS_BF16:
        break;
    default:
        return fail(STATUS_MISMATCH, "tensor %s is %s; weights must be F32, F16 or BF16", t->name,
                    dtypes[t->dtype].name);
    }
    uint16_t block[256]; /* copied first, because the address of the data may be odd */
    for (int64_t i = 0; i < t->count; i += 256) {
        size_t n = (size_t)(t->count - i < 256 ? t->count - i : 256);
        memcpy(block, (const char *)t->data + i * 2, n * 2);
        if (t->dtype == SAFETENSORS_F16)
            half_from_f16_row(out + i, block, n);
        else
            half_from_bf16_row(out + i, block, n);
    }
    return STATUS_OK;
}

enum status safetensors_to_i32(int32_t *out, const struct tensor_view *t) {
    if (t->dtype != SAFETENSORS_I32)
        return fail(STATUS_MISMATCH, "tensor %s is %s, not I32", t->name, dtypes[t->dtype].name);
    memcpy(out, t->data, (size_t)t->count * 4);
    return STATUS_OK;
}

static enum status write_header(struct file_writer *w, FILE *text, char **buffer, size_t *length) {
    while (ftell(text) % 8 != 0)
        fputc(' ', text);
    if (fflush(text) != 0 || ferror(text)) return fail(STATUS_NO_MEMORY, "out of memory for a header");
    uint64_t bytes = *length;
    TRY(file_write(w, &bytes, 8));
    return file_write(w, *buffer, *length);
}

enum status safetensors_write(const char *path, const struct tensor_view *tensors, int count,
                              const char *metadata_json) {
    char *buffer = NULL;
    size_t length = 0;
    FILE *text = text_stream_open(&buffer, &length);
    if (!text) return fail_errno("%s", path);
    fputc('{', text);
    if (metadata_json) fprintf(text, "\"__metadata__\":%s%s", metadata_json, count ? "," : "");
    uint64_t offset = 0;
    for (int i = 0; i < count; i++) {
        const struct tensor_view *t = &tensors[i];
        uint64_t bytes = (uint64_t)t->count * dtypes[t->dtype].bytes;
        struct json_writer j;
        json_write_open(&j, text, 0);
        json_write_string(&j, t->name);
        fprintf(text, ":{\"dtype\":\"%s\",\"shape\":[", dtypes[t->dtype].name);
        for (int k = 0; k < t->dims; k++)
            fprintf(text, "%s%lld", k ? "," : "", (long long)t->shape[k]);
        fprintf(text, "],\"data_offsets\":[%llu,%llu]}%s", (unsigned long long)offset,
                (unsigned long long)(offset + bytes), i + 1 < count ? "," : "");
        offset += bytes;
    }
    fputc('}', text);
    struct file_writer *w = NULL;
    enum status s = file_create(&w, path);
    if (s == STATUS_OK) s = write_header(w, text, &buffer, &length);
    for (int i = 0; i < count && s == STATUS_OK; i++)
        s = file_write(w, tensors[i].data, (size_t)tensors[i].count * dtypes[tensors[i].dtype].bytes);
    fclose(text);
    free(buffer);
    if (s == STATUS_OK) return file_publish(w);
    file_discard(w);
    return s;
}
