/* attention_guarded.cuh -- matrices on a GPU whose surroundings must not change, and comparisons with the oracle, for
 * test_attention_device.cu. */
#pragma once
#include "tests/device/bench/attention_device.cuh"

static int failures, checks;
static const char *place_name = "";

/* A matrix on the device with 8 columns more on either side and a row before and after. */
struct guarded {
    struct mat m;
    void *memory;
    int64_t bytes;
};
static guarded guarded_make(enum dtype type, int64_t rows, int64_t cols, const std::vector<float> *content) {
    int64_t stride = cols + 16, size = (rows + 2) * stride, each = dtype_bytes(type);
    std::vector<float> all(size, -777.0f);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            all[(r + 1) * stride + 8 + c] = content ? (*content)[r * cols + c] : NAN;
    guarded g;
    g.bytes = size * each;
    GPU(cudaMalloc(&g.memory, g.bytes));
    std::vector<bf16> narrow(size);
    for (int64_t i = 0; i < size; i++)
        narrow[i] = __float2bfloat16_rn(all[i]);
    GPU(cudaMemcpy(g.memory, type == DTYPE_F32 ? (void *)all.data() : (void *)narrow.data(), g.bytes,
                   cudaMemcpyHostToDevice));
    g.m = {(char *)g.memory + (stride + 8) * each, type, rows, cols, stride};
    return g;
}
static std::vector<float> guarded_read(const guarded &g) {
    std::vector<float> all(g.bytes / dtype_bytes(g.m.type)), out(g.m.rows * g.m.cols);
    GPU(cudaDeviceSynchronize());
    if (g.m.type == DTYPE_F32) {
        GPU(cudaMemcpy(all.data(), g.memory, g.bytes, cudaMemcpyDeviceToHost));
    } else {
        std::vector<bf16> narrow(all.size());
        GPU(cudaMemcpy(narrow.data(), g.memory, g.bytes, cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < all.size(); i++)
            all[i] = __bfloat162float(narrow[i]);
    }
    float guard = g.m.type == DTYPE_F32 ? -777.0f : as_bf16(-777.0f);
    for (int64_t r = 0; r < g.m.rows + 2; r++)
        for (int64_t c = 0; c < g.m.stride; c++) {
            bool inside = r >= 1 && r <= g.m.rows && c >= 8 && c < 8 + g.m.cols;
            if (inside)
                out[(r - 1) * g.m.cols + c - 8] = all[r * g.m.stride + c];
            else if (all[r * g.m.stride + c] != guard)
                printf("FAILED %s: wrote outside of it\n", place_name), failures++, r = g.m.rows + 2, c = g.m.stride;
        }
    return out;
}
static void guarded_drop(guarded &g) {
    GPU(cudaFree(g.memory));
}

static void compare(const char *what, const std::vector<float> &twin, const std::vector<float> &naive,
                    const std::vector<double> &truth, double least = 1e-6) {
    double worst = 0.0, found = 0.0;
    size_t at = 0;
    for (size_t i = 0; i < truth.size(); i++)
        if (isfinite(truth[i])) worst = fmax(worst, fabs((double)naive[i] - truth[i]));
    bool wrong = false;
    for (size_t i = 0; i < truth.size(); i++) {
        double error = isfinite(truth[i]) ? fabs((double)twin[i] - truth[i]) : twin[i] == truth[i] ? 0.0 : INFINITY;
        if (!(error <= found)) found = error, at = i;
        wrong = wrong || !(error <= 2.0 * worst + least);
    }
    checks++;
    if (!wrong) return;
    failures++;
    printf("FAILED %s, %s: index %zu of %zu is %.9g, truth %.9g; worst error of the naive loops %g\n", place_name, what,
           at, truth.size(), (double)twin[at], truth[at], worst);
}
static void same_bits(const char *what, const std::vector<float> &a, const std::vector<float> &b) {
    checks++;
    if (memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0) return;
    printf("FAILED %s, %s: the bits differ\n", place_name, what), failures++;
}
