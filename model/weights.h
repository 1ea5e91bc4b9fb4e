/* weights.h -- a model's tensors in the memory of a device, laid out as struct params lays them out: one after another
 * without gaps, so that q, k, v of a layer are one matrix. One layout serves weights (float32, or bf16 to compute
 * with), gradients and moments.
 *
 * `table` is borrowed: names and shapes (params_describe is enough). */
#pragma once
#include "kernels/device/device.h"
#include "model/params.h"
#include <stdbool.h>

struct weights {
    const struct params *table;
    void *data;
    enum dtype type;
    void *narrow;                        /* weights_narrow's copy; NULL: none */
};

/* The params' own memory: what the CPU computes with. Nothing to release. */
struct weights weights_of_params(const struct params *p);
/* Zeros. */
enum status weights_create(struct weights *out, struct device *dev, const struct params *table, enum dtype type);
/* A copy of p's data on the device, rounded to `type` (float32 or bf16). */
enum status weights_upload(struct weights *out, struct device *dev, const struct params *p, enum dtype type);
/* What a device computes with: the params' own memory where the device shares it and `type` is float32, else a copy. */
enum status weights_open(struct weights *out, struct device *dev, const struct params *p, enum dtype type);
/* Of float32 weights of the CPU: a bf16 copy of the matrices that are `wanted`, by name, beside them, which products of
 * few rows read in half the time (matmul.h). Only where it holds the same numbers, as those of models that are saved in
 * bf16: else there is none. */
enum status weights_narrow(struct weights *w, struct device *dev, bool (*wanted)(const char *name));
/* The bf16 copy as weights of its own, borrowed; data NULL: there is none. Tensors of one row and unwanted ones are not
 * in it. */
struct weights weights_narrowed(const struct weights *w);
/* Of create, upload, open, and narrow; the params' own memory stays. data NULL is fine. */
void weights_release(struct weights *w, struct device *dev);
/* A tensor as a view; asserts that it exists. */
struct mat weights_tensor(const struct weights *w, const char *name);
