/* landmark_fixture.h -- the type of landmarks that the stores of a test have: fp16, or with DRT_TEST_LANDMARKS=i8 8-bit
 * codes. tests/CMakeLists.txt registers some tests a second time with it. Also a look at a store that is closed. */
#pragma once
#include "base/half.h"
#include "store/shards/row_codes_internal.h"
#include "store/store.h"
#include "tests/test.h"

[[maybe_unused]] static enum store_landmarks fixture_type(void) {
    const char *name = getenv("DRT_TEST_LANDMARKS");
    return name && strcmp(name, "i8") == 0 ? STORE_LANDMARKS_I8 : STORE_LANDMARKS_F16;
}
[[maybe_unused]] static int fixture_format(void) {
    return fixture_type() == STORE_LANDMARKS_I8 ? STORE_FORMAT_VERSION : STORE_FORMAT_F16;
}
/* "landmarks/00001.f16", or .i8: for a few names at a time. */
[[maybe_unused]] static const char *fixture_file(const char *name) {
    static char names[8][64];
    static unsigned next;
    char *out = names[next++ % ARRAY_LEN(names)];
    size_t n = strlen(name);
    bool replaced = n > 4 && strcmp(name + n - 4, ".f16") == 0 && fixture_type() == STORE_LANDMARKS_I8;
    snprintf(out, sizeof names[0], "%.*s%s", (int)(replaced ? n - 4 : n), name, replaced ? ".i8" : "");
    return out;
}

/* Rounds a landmark as a store of fixture_type does. */
[[maybe_unused]] static void fixture_round(float *row, int dim) {
    int8_t codes[256];
    float scale;
    CHECK(dim <= (int)ARRAY_LEN(codes));
    if (fixture_type() == STORE_LANDMARKS_I8) {
        row_codes_make(codes, &scale, row, dim);
        row_codes_to_float(row, codes, scale, dim);
    }
    for (int i = 0; i < dim; i++) row[i] = half_from_f16(half_to_f16(row[i]));
}

/* ---- stores that this process does not have open ---- */

static inline void fixture_print_problem(void *context, const char *file, const char *problem, const char *remedy) {
    (void)context;
    fprintf(stderr, "  %s: %s; %s\n", file, problem, remedy);
}

/* Checks that the store has no defect. */
[[maybe_unused]] static void fixture_verify(const char *dir, bool deep) {
    int64_t problems;
    CHECK_OK(store_verify(dir, deep, NULL, fixture_print_problem, NULL, &problems));
    CHECK_EQ(problems, 0);
}

/* What the newest view has. Its strings are copies. */
[[maybe_unused]] static struct store_info fixture_info(const char *dir) {
    struct store *s;
    struct store_view *v;
    struct store_info info;
    CHECK_OK(store_open(&s, dir));
    CHECK_OK(store_view_open(&v, s));
    store_view_info(v, &info);
    store_view_close(v);
    store_close(s);
    return info;
}
