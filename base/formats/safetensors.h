/* safetensors.h -- named arrays in one mapped file (the safetensors format: u64 header length, JSON header, data).
 *
 * Opening checks everything: header length against the file, JSON, dtypes, shapes against byte ranges, ranges against
 * the file and against each other. Pointers to data are borrowed from the map until safetensors_close. */
#pragma once
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum { SAFETENSORS_DIMS_MAX = 8 };
enum safetensors_dtype {
    SAFETENSORS_F64, SAFETENSORS_F32, SAFETENSORS_F16, SAFETENSORS_BF16, SAFETENSORS_I64, SAFETENSORS_I32,
    SAFETENSORS_I16, SAFETENSORS_I8, SAFETENSORS_U8, SAFETENSORS_BOOL,
};

struct safetensors;
struct tensor_view {
    const char *name;
    enum safetensors_dtype dtype;
    int dims;
    int64_t shape[SAFETENSORS_DIMS_MAX];
    const void *data;                    /* may be unaligned for its type: read it with safetensors_to_f32/i32 */
    int64_t count;                       /* elements */
};

enum status safetensors_open(struct safetensors **out, const char *path);
void safetensors_close(struct safetensors *file);         /* NULL is fine */
/* STATUS_UNSUPPORTED: the folder has its weights in several files, which model.safetensors.index.json lists. */
enum status safetensors_check_folder(const char *folder);
const char *safetensors_path(const struct safetensors *file);
int safetensors_count(const struct safetensors *file);
const struct tensor_view *safetensors_at(const struct safetensors *file, int index);      /* in file order */
const struct tensor_view *safetensors_find(const struct safetensors *file, const char *name);   /* NULL: none */
const char *safetensors_metadata(const struct safetensors *file, const char *key);        /* NULL: none */
const char *safetensors_dtype_name(enum safetensors_dtype dtype);                         /* "BF16" */
size_t safetensors_dtype_bytes(enum safetensors_dtype dtype);

/* Convert all elements. STATUS_MISMATCH: conversions from integer to float and from F64 to F32 are not supported. */
enum status safetensors_to_f32(float *out, const struct tensor_view *tensor);   /* from F32, F16, BF16 */
enum status safetensors_to_i32(int32_t *out, const struct tensor_view *tensor); /* from I32 */

/* Writes a new file and publishes it. The tensors are complete and in order. `metadata_json`: the text of an object of
 * strings, or NULL. */
enum status safetensors_write(const char *path, const struct tensor_view *tensors, int count,
                              const char *metadata_json);
