/* matmul_noamx.c -- for targets without AMX: amx_open returns false, so nothing else of it is called. */
#include "kernels/linear/matmul_amx.h"

static bool matmul_noamx_never(void) {
    return false;
}

static int64_t matmul_noamx_nothing(int64_t out, int64_t in) {
    (void)out, (void)in;
    return 0;
}

const struct matmul_amx matmul_amx = {.open = matmul_noamx_never, .packed_elements = matmul_noamx_nothing};
