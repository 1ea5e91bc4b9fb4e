/* bert.h -- the ops of BERT-type encoders that our own towers do not have (docs/external-encoders.md).
 *
 *   layer_norm: y[r] = (s - mean(s)) / sqrt(var(s) + eps) * w + b,  s = x[r] + residual[r] + bias;
 *               var is the mean of (s - mean(s))^2. residual or bias with data NULL: nothing is added.
 *   add_bias:   y[r] = x[r] + bias
 *   gelu:       y[r] = gelu(x[r] + bias),  gelu(z) = z (1 + erf(z / sqrt(2))) / 2, the exact form
 *   mean:       y[i] = mean of the rows begin[i] .. begin[i+1]-1 of x; with `unit` divided by its length (0 stays 0)
 *
 * x, residual [n, d]; w, b, bias [1, d]; y [n, d] may be x or residual. begin [m+1] rises, in memory of the device; y
 * of mean [m, d] is float32. All other matrices of a call have one type. Forward only: these encoders are fixed. */
#pragma once
#include "kernels/device/device.h"
#include <stdbool.h>

struct bert_norm { struct mat w, b; float eps; };

struct bert_ops {
    void (*layer_norm)(struct device *dev, struct mat y, struct mat x, struct mat residual, struct mat bias,
                       struct bert_norm norm);
    void (*add_bias)(struct device *dev, struct mat y, struct mat x, struct mat bias);
    void (*gelu)(struct device *dev, struct mat y, struct mat x, struct mat bias);
    void (*mean)(struct device *dev, struct mat y, struct mat x, const int64_t *begin, bool unit);
};
extern const struct bert_ops bert_cpu;
