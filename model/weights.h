/* weights.h -- a model's tensors in device memory, in the layout of struct params: adjacent without gaps, so that q, k,
 * v of a layer are one matrix. Weights (float32, or bf16 for computing), gradients and moments have the same layout.
 *
 * `table` is borrowed. Only its names and shapes are used (params_describe is enough). */
#pragma once
#include "kernels/device/device.h"
#include "model/params.h"
#include <stdbool.h>

struct weights {
    const struct params *table;
    void *data;
    enum dtype type;
    void *narrow;                        /* the bf16 copy of weights_narrow, or of weights_round on a GPU; NULL: none */
    struct weights_i8 *i8;               /* the copy of weights_round; NULL: none */
};

/* Uses the params' own memory, with which the CPU computes. It need not be released. */
struct weights weights_of_params(const struct params *p);
/* Allocates zeros. */
enum status weights_create(struct weights *out, struct device *dev, const struct params *table, enum dtype type);
/* Copies p's data to the device, rounded to `type` (float32 or bf16). */
enum status weights_upload(struct weights *out, struct device *dev, const struct params *p, enum dtype type);
/* Makes the weights that a device computes with: the params' own memory if the device shares it and `type` is float32,
 * otherwise a copy. */
enum status weights_open(struct weights *out, struct device *dev, const struct params *p, enum dtype type);
/* For float32 weights on the CPU: adds a bf16 copy of the matrices whose names `wanted` accepts. Products of few rows
 * read it in half the time (matmul.h). The copy is made only if it has exactly the same numbers, as in models that
 * are saved in bf16. */
enum status weights_narrow(struct weights *w, struct device *dev, bool (*wanted)(const char *name));
/* Returns the bf16 copy as weights, borrowed; data NULL: there is none. Tensors of one row and unwanted
 * ones are not in it. */
struct weights weights_narrowed(const struct weights *w);
/* Adds copies of the matrices whose names `wanted` accepts, in 8 bits (matmul.h), of the table's own float32 data. On a
 * GPU, whose weights are bf16, also a bf16 copy of the rounded numbers (weights_narrowed), for products of many rows.
 * STATUS_UNSUPPORTED: a matrix that one of the same shape follows, so that they may be used as one, has a number of
 * rows that is no multiple of MATMUL_I8_PANEL. */
enum status weights_round(struct weights *w, struct device *dev, bool (*wanted)(const char *name));
/* Returns the weights of which weights_round made copies, borrowed: a matrix that has a copy is DTYPE_I8, others are as
 * in `w`. data NULL: there are no copies. */
struct weights weights_rounded(const struct weights *w);
/* Releases what create, upload, open, narrow and round allocated. The params' own memory stays. data NULL is fine. */
void weights_release(struct weights *w, struct device *dev);
/* Returns a tensor as a view. Asserts that it exists. */
struct mat weights_tensor(const struct weights *w, const char *name);
