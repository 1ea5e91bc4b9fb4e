/* matmul_novnni.c -- for targets without AVX2 and VNNI: 8-bit products take the loop of matmul_i8.c. */
#include "kernels/linear/matmul_i8.h"

struct matmul_i8_method matmul_i8_vectors(enum matmul_i8_path path) {
    (void)path;
    return (struct matmul_i8_method){0};
}
