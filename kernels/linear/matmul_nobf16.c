/* matmul_nobf16.c -- for targets without AVX512_BF16: `open` returns false, so nothing else of it is called. */
#include "kernels/linear/matmul_bf16.h"

static bool matmul_nobf16_never(void) {
    return false;
}

static int64_t matmul_nobf16_nothing(int64_t out, int64_t in) {
    (void)out, (void)in;
    return 0;
}

const struct matmul_bf16 matmul_bf16 = {.open = matmul_nobf16_never, .packed_elements = matmul_nobf16_nothing};
const struct matmul_bf16 matmul_bf16_fused = {.open = matmul_nobf16_never, .packed_elements = matmul_nobf16_nothing};
