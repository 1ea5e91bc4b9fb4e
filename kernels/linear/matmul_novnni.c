/* matmul_novnni.c -- for targets without AVX2 and VNNI: no path has vectors of its own, so 8-bit products take the loop
 * of matmul_i8.c, which the compiler vectorises for the target. */
#include "kernels/linear/matmul_i8.h"

struct matmul_i8_method matmul_i8_vectors(enum matmul_i8_path path) {
    const struct matmul_i8_method none = {.panels = NULL, .split = false};
    (void)path;
    return none;
}
