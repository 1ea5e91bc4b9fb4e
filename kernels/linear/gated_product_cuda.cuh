/* gated_product_cuda.cuh -- the first product of a SwiGLU on Hopper, with the gate in its epilogue:
 *
 *   both = x w^T    [n, 2f]: f columns of the gate, f of up
 *   gated = silu(gate) up    [n, f], of gate and up as they are stored
 *
 * The mapping is that of wide_product_cuda.cuh. A tile has 128 columns of the gate and the same 128 of up, so a thread
 * has both numbers of each pair. This saves the pass that reads both and writes gated. */
#pragma once
#include "kernels/linear/wide_product_cuda.cuh"

struct gated_epilogue {
    struct parameters {
        CUtensorMap both, gated;
        int f; /* a multiple of WIDE_HALF */
    };
    static __device__ __forceinline__ int w_row(const parameters &p, int tile, int rank) {
        return rank * p.f + tile * WIDE_HALF;
    }
#if HOPPER
    const parameters &p;
    uint8_t (*buffers)[WIDE_BUFFER];
    int row, column; /* of the warp's first number */

    __device__ __forceinline__ gated_epilogue(const parameters &from, uint8_t (*in)[WIDE_BUFFER])
        : p(from), buffers(in), row(0), column(0) {}
    __device__ __forceinline__ void begin(int first_row, int tile) { row = first_row, column = tile * WIDE_HALF; }

    /* Two pairs, rounded as they are stored -> their gated values. */
    static __device__ __forceinline__ void gate2(float &g0, float &g1, float u0, float u1) {
        uint32_t g = pack2(g0, g1), u = pack2(u0, u1);
        float x0 = __uint_as_float(g << 16), x1 = __uint_as_float(g & 0xffff0000u);
        g0 = x0 * __uint_as_float(u << 16) * __fdividef(1.0f, 1.0f + power2(-1.44269504f * x0));
        g1 = x1 * __uint_as_float(u & 0xffff0000u) * __fdividef(1.0f, 1.0f + power2(-1.44269504f * x1));
    }
    __device__ __forceinline__ void finish(float (&d)[128]) {
#pragma unroll
        for (int chunk = 0; chunk < 2; chunk++) {
            float *gate = d + chunk * 32, *up = d + 64 + chunk * 32;
            wide_product_store(gate, buffers[chunk], &p.both, column + chunk * 64, row);
            wide_product_store(up, buffers[1 - chunk], &p.both, p.f + column + chunk * 64, row);
#pragma unroll
            for (int i = 0; i < 32; i += 2)
                gate2(gate[i], gate[i + 1], up[i], up[i + 1]);
            wide_product_store(gate, buffers[chunk], &p.gated, column + chunk * 64, row);
        }
    }
    __device__ __forceinline__ void end() {
        if (threadIdx.x % 32 == 0) tensor_store_wait_written();
    }
#endif
};

/* False: this GPU or these matrices are not taken. */
static bool gated_product(struct device *dev, const char *op, struct mat gated, struct mat both, struct mat x,
                          struct mat w) {
    wide_product_task t;
    gated_epilogue::parameters p = {{}, {}, (int)gated.cols};
    if (gated.cols % WIDE_HALF != 0 || !wide_product_plan(dev, &t, x, w, gated.cols / WIDE_HALF) ||
        !wide_product_map(&p.both, both) || !wide_product_map(&p.gated, gated))
        return false;
    wide_product_launch<gated_epilogue>(dev, op, t, p);
    return true;
}
