/* test_safetensors.c -- files are written and read back; every kind of wrong header is refused. */
#include "base/file.h"
#include "base/formats/safetensors.h"
#include "base/half.h"
#include "tests/test.h"

static char path[FILE_PATH_MAX];

static void write_raw(uint64_t length, const char *header, size_t data_bytes) {
    FILE *file = fopen(path, "wb");
    CHECK(file);
    fwrite(&length, 8, 1, file);
    fputs(header, file);
    for (size_t i = 0; i < data_bytes; i++)
        fputc((int)i, file);
    fclose(file);
}

static void refuse(const char *header, size_t data_bytes, enum status code, const char *text) {
    struct safetensors *f = NULL;
    write_raw(strlen(header), header, data_bytes);
    CHECK_FAILS(safetensors_open(&f, path), code, text);
    CHECK(strstr(status_message(), path));
}

static void test_round_trip(void) {
    float a[6] = {1, -2, 3.5f, 0, 1e-30f, 5};
    uint16_t h[2] = {0x3c00, 0xc000}, b[2] = {0x3f80, 0xc000};
    int32_t n[1] = {-7};
    struct tensor_view tensors[] = {
        {"w", SAFETENSORS_F32, 2, {2, 3}, a, 6},    {"half \"quoted\"", SAFETENSORS_F16, 1, {2}, h, 2},
        {"brain", SAFETENSORS_BF16, 1, {2}, b, 2},  {"ids", SAFETENSORS_I32, 1, {1}, n, 1},
        {"none", SAFETENSORS_F32, 2, {0, 4}, a, 0},
    };
    CHECK_OK(safetensors_write(path, tensors, 5, "{\"config\":\"{}\"}"));
    struct safetensors *f = NULL;
    CHECK_OK(safetensors_open(&f, path));
    CHECK_EQ(safetensors_count(f), 5);
    CHECK_STR(safetensors_metadata(f, "config"), "{}");
    CHECK(!safetensors_metadata(f, "other") && !safetensors_find(f, "other"));
    float out[6];
    const struct tensor_view *t = safetensors_find(f, "w");
    CHECK(t && t->dims == 2 && t->shape[1] == 3);
    CHECK_OK(safetensors_to_f32(out, t));
    CHECK(memcmp(out, a, sizeof a) == 0);
    CHECK_OK(safetensors_to_f32(out, safetensors_find(f, "half \"quoted\"")));
    CHECK(out[0] == 1 && out[1] == -2);
    CHECK_OK(safetensors_to_f32(out, safetensors_find(f, "brain")));
    CHECK(out[0] == 1 && out[1] == -2);
    int32_t id = 0;
    CHECK_OK(safetensors_to_i32(&id, safetensors_find(f, "ids")));
    CHECK_EQ(id, -7);
    CHECK_FAILS(safetensors_to_f32(out, safetensors_find(f, "ids")), STATUS_MISMATCH, "ids is I32");
    safetensors_close(f);
}

static void test_wrong_headers(void) {
    struct safetensors *f = NULL;
    write_raw(1u << 30, "{}", 0);
    CHECK_FAILS(safetensors_open(&f, path), STATUS_CORRUPT, "truncated or no safetensors file");
    write_raw(UINT64_MAX, "{}", 0);
    CHECK_FAILS(safetensors_open(&f, path), STATUS_CORRUPT, "claims");
    refuse("{\"a\":", 0, STATUS_INVALID, "expected");
    refuse("[]", 0, STATUS_INVALID, "expected a safetensors header");
    refuse("{} {}", 0, STATUS_INVALID, "nothing after");
    refuse("{\"a\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, STATUS_UNSUPPORTED, "dtype F31");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, STATUS_CORRUPT, "truncated");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 8, STATUS_INVALID, "needs 8 bytes");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 8, STATUS_INVALID, "needs 4 bytes");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 8, STATUS_INVALID, "lacks");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 8, STATUS_INVALID, "impossible shape");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,9],\"data_offsets\":[0,4]}}", 8, STATUS_INVALID,
           "impossible");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 8, STATUS_INVALID,
           "impossible");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
           "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}",
           8, STATUS_INVALID, "overlap");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
           "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
           8, STATUS_INVALID, "twice");
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    CHECK_OK(file_join(path, test_folder(), "t.safetensors"));
    test_round_trip();
    test_wrong_headers();
    return test_done();
}
