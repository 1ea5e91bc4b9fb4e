/* bench_ceiling.cu -- the rates of a GPU for simple work: a large bf16 product (cuBLAS, random numbers, since zeros are
 * faster) and a large copy. Prints the TFLOP/s and GB/s on two lines.
 *
 *   bench_ceiling [--json FILE] */
#include "tests/bench/result.h"
#include "tests/device/bench/attention_device.cuh"
#include <cublas_v2.h>

int main(int argc, char **argv) {
    cudaDeviceProp card;
    result_begin("bench_ceiling", &argc, argv);
    GPU(cudaGetDeviceProperties(&card, 0));
    result_gpu(card.name);
    const int n = 8192;
    std::vector<bf16> host((size_t)n * n);
    for (bf16 &x : host)
        x = __float2bfloat16_rn((float)random_uniform() - 0.5f);
    bf16 *a = upload(host), *b = upload(host), *c = upload(host);
    cublasHandle_t blas;
    cudaEvent_t begin, end;
    float one = 1.0f, zero = 0.0f, ms;
    if (cublasCreate(&blas) != CUBLAS_STATUS_SUCCESS) return 1;
    GPU(cudaEventCreate(&begin));
    GPU(cudaEventCreate(&end));
    for (int turn = 0; turn < 2; turn++) {
        GPU(cudaEventRecord(begin));
        for (int i = 0; i < 20; i++)
            cublasGemmEx(blas, CUBLAS_OP_T, CUBLAS_OP_N, n, n, n, &one, a, CUDA_R_16BF, n, b, CUDA_R_16BF, n, &zero, c,
                         CUDA_R_16BF, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
        GPU(cudaEventRecord(end));
        GPU(cudaEventSynchronize(end));
        GPU(cudaEventElapsedTime(&ms, begin, end));
    }
    result_value("TFLOP/s", 20.0 * 2.0 * n * n * (double)n / ms / 1e9, "bf16 product of 8192^3");
    printf("%.1f\n", 20.0 * 2.0 * n * n * (double)n / ms / 1e9);
    size_t bytes = 2ull << 30;
    void *from, *to;
    GPU(cudaMalloc(&from, bytes));
    GPU(cudaMalloc(&to, bytes));
    GPU(cudaMemset(from, 1, bytes));
    for (int turn = 0; turn < 2; turn++) {
        GPU(cudaEventRecord(begin));
        for (int i = 0; i < 5; i++)
            GPU(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice));
        GPU(cudaEventRecord(end));
        GPU(cudaEventSynchronize(end));
        GPU(cudaEventElapsedTime(&ms, begin, end));
    }
    result_value("GB/s", 5.0 * 2.0 * (double)bytes / ms / 1e6, "copy, read and written");
    printf("%.0f\n", 5.0 * 2.0 * (double)bytes / ms / 1e6);
    result_end();
    return 0;
}
