/* test_packed_keys_on_device.c -- keys in 8 bits a number on a GPU: codes, scales and keys have the bits of the CPU
 * twin, whose test has plain loops; squares have those of token_memory_ops.squares. */
#include "tests/device/on_device.h"

static void check_pack(struct device *cpu, enum dtype type, int64_t n, int64_t m) {
    float *keys = normals(n * m, 3, type), *scale = zeros(n, 4), *blank = zeros(n, 4);
    int8_t *code = zeros(n * m, 1), *got = zeros(n * m, 1);
    memset(keys + m, 0, (size_t)m * sizeof *keys); /* scale 0 */
    keys[2 * m] = INFINITY, keys[3 * m + m - 1] = NAN;
    cpu->ops->packed_keys->pack(cpu, code, scale, mat_f32(keys, n, m));
    for (int64_t r = 0; r < n; r++)
        blank[r] = -1;
    for (int64_t pad = 0; pad < 8; pad += 5) {
        struct mat keys_device = put(keys, type, n, m, pad, pad > 0);
        int8_t *code_device = put_bytes(got, (size_t)(n * m));
        float *scale_device = put_bytes(blank, (size_t)n * sizeof *blank);
        gpu->ops->packed_keys->pack(gpu, code_device, scale_device, keys_device);
        float *scales = take_floats(scale_device, n);
        device_download(gpu, got, code_device, (size_t)(n * m));
        CHECK_OK(device_sync(gpu));
        CHECK(memcmp(got, code, (size_t)(n * m)) == 0);
        for (int64_t r = 0; r < n; r++)
            CHECK(r == 2 || r == 3 ? isnan(scales[r]) : scales[r] == scale[r]);
        free(scales);
        drop_all();
    }
    free(keys), free(scale), free(blank), free(code), free(got);
}

static void check_unpack(struct device *cpu, enum dtype type, int64_t n, int64_t m, bool mixed) {
    const int64_t slots = n + 20;
    int32_t *from = zeros(n, 4);
    float *scale = normals(n, 0.1f, DTYPE_F32), *keys = normals(slots * m, 1, type);
    int8_t *code = zeros(n * m, 1);
    int32_t *to = zeros(n, 4);
    for (int64_t i = 0; i < n * m; i++)
        code[i] = (int8_t)((int)rng_below(&on_rng, 255) - 127);
    for (int64_t r = 0; r < n; r++)
        to[r] = r % 5 == 2 ? -1 : (int32_t)(slots - 1 - r), from[r] = (int32_t)rng_below(&on_rng, (uint64_t)n);
    struct mat want = mat_dense(malloc((size_t)(slots * m) * 4), type, slots, m);
    for (int64_t i = 0; i < slots * m; i++)
        put_number((char *)want.data + i * dtype_bytes(type), keys[i], type);
    float *none = zeros(slots, 4);
    cpu->ops->packed_keys->unpack(cpu, want, none, (struct packed_keys){code, scale}, mixed ? from : NULL, to, n);
    for (int64_t pad = 0; pad < 8; pad += 5) {
        struct mat keys_device = put(keys, type, slots, m, pad, pad > 0);
        for (int64_t r = 0; r < slots; r++)
            none[r] = -1;
        float *square = put_bytes(none, (size_t)slots * 4), *again = put_bytes(none, (size_t)slots * 4);
        const struct packed_keys packed = {put_bytes(code, (size_t)(n * m)), put_bytes(scale, (size_t)n * 4)};
        gpu->ops->packed_keys->unpack(gpu, keys_device, square, packed, mixed ? put_bytes(from, (size_t)n * 4) : NULL,
                                      put_bytes(to, (size_t)n * 4), n);
        gpu->ops->token_memory->squares(gpu, again, keys_device);
        float *got = take(keys_device), *squares = take_floats(square, slots), *same = take_floats(again, slots);
        for (int64_t s = 0; s < slots; s++) {
            const int64_t r = slots - 1 - s;
            CHECK(squares[s] == (r < n && to[r] >= 0 ? same[s] : -1));
            for (int64_t j = 0; j < m; j++)
                CHECK(got[s * m + j] == take_number((char *)want.data + (s * m + j) * dtype_bytes(type), type));
        }
        free(got), free(squares), free(same);
        drop_all();
    }
    free(scale), free(keys), free(code), free(to), free(from), free(want.data), free(none);
}

/* Random documents of up to four chunks. The CPU twin's test has plain loops. */
static void check_passages(struct device *cpu, int chunk_rows, int64_t n, int before, int after) {
    const int64_t chunks = 3 * n, rows = chunks * chunk_rows;
    int32_t *value = zeros(rows, 4), *want = zeros(2 * n, 4), *got = zeros(2 * n, 4);
    int64_t *chunk = zeros(n, 8), passages = 0;
    for (int64_t c = 0, left = 0; c < chunks; c++, left--) {
        if (left == 0) left = 1 + (int64_t)rng_below(&on_rng, 4);
        const int64_t with = left > 1 ? chunk_rows : (int64_t)rng_below(&on_rng, (uint64_t)chunk_rows); /* 0: deleted */
        for (int64_t i = 0; i < chunk_rows; i++)
            value[c * chunk_rows + i] = i < with ? (int32_t)rng_below(&on_rng, 50000) : -1;
    }
    for (int64_t i = 0; i < n; i++)
        chunk[i] = i == 1 ? -1 : i == 2 ? chunks - 1 : i == 3 ? 0 : (int64_t)rng_below(&on_rng, (uint64_t)chunks);
    const struct packed_chunks of = {.value = value, .chunks = chunks, .chunk_rows = chunk_rows};
    const struct packed_chunks of_device = {
        .value = put_bytes(value, (size_t)rows * 4), .chunks = chunks, .chunk_rows = chunk_rows};
    int32_t *out = put_bytes(got, (size_t)n * 8);
    cpu->ops->packed_keys->passages(cpu, (struct packed_passages){want, want + n}, &of, chunk, n, before, after);
    gpu->ops->packed_keys->passages(gpu, (struct packed_passages){out, out + n}, &of_device,
                                    put_bytes(chunk, (size_t)n * 8), n, before, after);
    device_download(gpu, got, out, (size_t)n * 8);
    CHECK_OK(device_sync(gpu));
    CHECK(memcmp(got, want, (size_t)n * 8) == 0);
    for (int64_t i = 0; i < n; i++)
        passages += got[n + i] > chunk_rows;
    CHECK(passages > 0 || before + after == 0);
    drop_all();
    free(value), free(want), free(got), free(chunk);
}

int main(int argc, char **argv) {
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    struct device *cpu;
    on_device_open(argc, argv);
    CHECK_OK(device_open(&cpu, "cpu", 1));
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        check_pack(cpu, types[t], 77, 128);
        check_unpack(cpu, types[t], 77, 128, false);
        check_unpack(cpu, types[t], 77, 128, true);
        check_pack(cpu, types[t], 9, 37);
        check_unpack(cpu, types[t], 9, 37, false);
        check_unpack(cpu, types[t], 9, 37, true);
    }
    check_passages(cpu, 63, 20, 0, 1);
    check_passages(cpu, 3, 1000, 2, 2);
    check_passages(cpu, 64, 6, 0, 0);
    if (!on_short) check_pack(cpu, DTYPE_BF16, 20000, 64), check_unpack(cpu, DTYPE_BF16, 20000, 64, true);
    device_close(cpu);
    return on_device_close();
}
