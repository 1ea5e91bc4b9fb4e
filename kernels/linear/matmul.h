/* matmul.h -- y = x w^T (+ y): the Linear layer without bias (model.md §Notation).
 *
 * y [n, out], x [n, in], w [out, in]. y may not overlap x or w. Sums run in float32. On the CPU w of forward and
 * forward_add may be bf16 with float32 x and y of up to MATMUL_FEW_ROWS rows, whose product is bound by reading w. The
 * bits are those of float32 weights with the same values.
 *
 * forward_each is for rows of different texts that one step computes together: a row of y has the same bits whatever
 * rows are computed with it. On the CPU they are those that forward gives the row alone, and w, which may be bf16 for
 * any number of rows, is read once for all of them.
 *
 * Weights for products with many rows may be packed once, into packed_elements(out, in) numbers of w's type. A packed
 * product gives a row of y the same bits whatever rows are computed with it: landmarks, which are stored, are
 * computed so.
 * Packed weights are valid on this device and its workers only. Very small numbers, infinities and NaN on AMX tiles:
 * matmul_amx.h.
 *
 * Weights of 8 bits: pack_i8 rounds float32 weights w to DTYPE_I8, a matrix of matmul_i8_bytes(out, in) bytes, aligned
 * to 64. A weight is an integer of at most 127, times a scale of its output and block of 64 inputs. forward,
 * forward_each and forward_add on a CPU take such a w for any number of rows. They round x to 16 bits with a scale for
 * each row and block, and compute the sum of a block exactly; so all three give a row the same bits, whatever rows are
 * computed with it (matmul_i8.h). They take at most 31,744 inputs. Two such matrices that are adjacent in memory are
 * one, if the first one's number of outputs is a multiple of 16. On a GPU the step of one id alone takes such a w
 * (kernels/decode_step/decode_step.h); pack_i8 and unpack_i8 of matmul_cpu make it in host memory, with any device's
 * threads. unpack_i8 writes w's numbers, rounded to bf16.
 *
 * pack_rounded and forward_rounded are pack and forward_packed with x and w rounded to bf16 (to nearest even) before
 * they are multiplied. Sums, y and the promise of equal bits are the same. `rounds`: whether the device does so, which
 * is a CPU with AVX512_BF16, also with AMX (matmul_bf16.h). Elsewhere the two are pack and forward_packed, unless
 * matmul_round_plainly was called. */
#pragma once
#include "kernels/device/device.h"
#include <stdbool.h>

enum { MATMUL_FEW_ROWS = 8, MATMUL_I8_PANEL = 16, MATMUL_I8_BLOCK = 64 };
static inline int64_t matmul_i8_bytes(int64_t out, int64_t in) {
    const int64_t panels = (out + MATMUL_I8_PANEL - 1) / MATMUL_I8_PANEL;
    return panels * ((in + MATMUL_I8_BLOCK - 1) / MATMUL_I8_BLOCK) * MATMUL_I8_PANEL * (MATMUL_I8_BLOCK + 4);
}

struct matmul_ops {
    void (*forward)(struct device *dev, struct mat y, struct mat x, struct mat w, bool accumulate);
    void (*forward_each)(struct device *dev, struct mat y, struct mat x, struct mat w, bool accumulate);
    /* y = base + x w^T, base of y's type and shape; y may be base. */
    void (*forward_add)(struct device *dev, struct mat y, struct mat base, struct mat x, struct mat w);
    /* both = x w^T [n, 2f], w [2f, in]; gated [n, f] = silu of both's first f columns times its last f. */
    void (*forward_gated)(struct device *dev, struct mat gated, struct mat both, struct mat x, struct mat w);
    /* dx = dy w (+ dx). */
    void (*backward_input)(struct device *dev, struct mat dx, struct mat dy, struct mat w, bool accumulate);
    /* dgated = dy w, dy [n, d], w [d, f]; both [n, 2f], the gate and up of forward_gated, becomes its own gradient.
     * dgated [n, f] is scratch: its values afterwards are not defined. */
    void (*backward_gated)(struct device *dev, struct mat both, struct mat dgated, struct mat dy, struct mat w);
    /* dw += dy^T x, dw float32. */
    void (*backward_weight)(struct device *dev, struct mat dw, struct mat dy, struct mat x);
    int64_t (*packed_elements)(int64_t out, int64_t in);
    void (*pack)(struct device *dev, float *packed, struct mat w);
    void (*forward_packed)(struct device *dev, struct mat y, struct mat x, const float *packed, bool accumulate);
    /* So many rows, and multiples, are divided among threads without loss: a packed product computes them together.
     * NULL, and so the next two: not a CPU */
    int64_t (*rows_together)(struct device *dev);
    void (*pack_i8)(struct device *dev, void *packed, struct mat w);
    void (*unpack_i8)(struct device *dev, uint16_t *numbers, struct mat w);
    bool (*rounds)(struct device *dev);
    void (*pack_rounded)(struct device *dev, float *packed, struct mat w);
    void (*forward_rounded)(struct device *dev, struct mat y, struct mat x, const float *packed, bool accumulate);
};
extern const struct matmul_ops matmul_cpu;
/* From now on `rounds` is true for this device, if it is a CPU: one without the instructions computes rounded products
 * in plain C, with the bits of AVX512_BF16, many times more slowly than products of float32. Before anything is packed
 * with pack_rounded. */
void matmul_round_plainly(struct device *dev);
