/* tile_maps.cuh -- TMA descriptors (tensor maps) of tiles: rows of 64 numbers of 16 bits (128 bytes), with the 128-byte
 * swizzle: 16-byte pieces are permuted by the row's low three bits. */
#pragma once
#include "kernels/cuda/cuda.cuh"
#include <cudaTypedefs.h>

/* Looked up in the driver at run time, not linked: a program built with CUDA also runs where there is no driver. */
static PFN_cuTensorMapEncodeTiled_v12000 tile_encoder(void) {
    void *function = nullptr;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found) !=
        cudaSuccess)
        return nullptr;
    return found == cudaDriverEntryPointSuccess ? (PFN_cuTensorMapEncodeTiled_v12000)function : nullptr;
}

/* Makes the tensor map of tiles of `rows` rows of a matrix for which vectors_fit; outside of it elements read as 0.
 * `promotion`: how much the L2 cache fetches at once. False where TMA does not take the matrix. */
static bool tile_map_of(CUtensorMap *map, struct mat m, int rows, CUtensorMapL2promotion promotion) {
    static const PFN_cuTensorMapEncodeTiled_v12000 encode = tile_encoder();
    cuuint64_t size[] = {(cuuint64_t)m.cols, (cuuint64_t)m.rows}, stride[] = {(cuuint64_t)m.stride * 2};
    cuuint32_t box[] = {64, (cuuint32_t)rows}, step[] = {1, 1};
    CUtensorMapDataType type =
        m.type == DTYPE_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    return encode && encode(map, type, 2, m.data, size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                            CU_TENSOR_MAP_SWIZZLE_128B, promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
