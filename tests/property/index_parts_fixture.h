/* index_parts_fixture.h -- an index that is filled in parts, for tests: all steps, files compared, hits compared. */
#pragma once
#include "base/file.h"
#include "base/memory.h"
#include "store/index/parts/index_parts.h"
#include "tests/store_fixture.h"

static const struct store_publish parts_how = {.seed = 1};

/* Fills the parts in a random order; `most`: rows of a file at most, approximately (0: no limit). */
[[maybe_unused]] static void parts_fill(const char *dir, const char *work, int parts, uint64_t max_ram,
                                        struct rng *r) {
    struct store_index_parts_report report;
    struct store_publish how = parts_how;
    how.max_ram = max_ram;
    for (int i = 0, first = (int)rng_below(r, (uint64_t)parts); i < parts; i++)
        CHECK_OK(store_index_fill(&report, dir, work, (first + i) % parts + 1, parts, &how));
}

[[maybe_unused]] static void parts_make(struct store_index_parts_report *out, const char *dir, const char *work,
                                        const char *index, int parts, uint64_t max_ram, struct rng *r) {
    struct store_publish how = parts_how;
    how.index = index;
    CHECK_OK(store_index_train(out, dir, work, &how));
    CHECK(!out->already);
    parts_fill(dir, work, parts, max_ram, r);
    CHECK_OK(store_index_merge(out, dir, work, &parts_how));
    CHECK(!out->already);
}

[[maybe_unused]] static bool parts_same_file(const char *a, const char *b) {
    struct file_map x, y;
    CHECK_OK(file_map(&x, a));
    CHECK_OK(file_map(&y, b));
    bool same = x.size == y.size && memcmp(x.data, y.data, x.size) == 0;
    if (!same) fprintf(stderr, "%s and %s differ (%zu and %zu bytes)\n", a, b, x.size, y.size);
    file_unmap(&x);
    file_unmap(&y);
    return same;
}

/* Opens a store and its view. */
struct parts_view { struct store *store; struct store_view *view; struct store_info info; };
[[maybe_unused]] static void parts_view_open(struct parts_view *v, const char *dir) {
    CHECK_OK(store_open(&v->store, dir));
    CHECK_OK(store_view_open(&v->view, v->store));
    store_view_info(v->view, &v->info);
}
[[maybe_unused]] static void parts_view_close(struct parts_view *v) {
    store_view_close(v->view);
    store_close(v->store);
}

/* Hits of random queries with random options, [n * k] each. Equal seeds give equal searches. */
[[maybe_unused]] static void parts_search(struct store_hit *hits, const char *dir, int n, int k, uint64_t seed) {
    struct parts_view v;
    parts_view_open(&v, dir);
    struct rng r = rng_make(seed, 5);
    int dim = v.info.fingerprint.dim;
    float *query = malloc((size_t)dim * sizeof *query);
    for (int i = 0; i < n; i++) {
        int64_t begin = (int64_t)rng_below(&r, (uint64_t)v.info.chunks);
        const struct store_range exclude = {begin, begin + (int64_t)rng_below(&r, 500)};
        const struct store_search how = {.k = k, .nprobe = (int)rng_below(&r, 40),
                                         .candidates = rng_below(&r, 2) ? 0 : (int)rng_below(&r, 100),
                                         .exclude = rng_below(&r, 2) ? &exclude : NULL};
        fixture_vector(query, dim, rng_below(&r, 1000), 0.7f);
        CHECK_OK(store_view_search(v.view, hits + i * k, query, 1, &how));
    }
    free(query);
    parts_view_close(&v);
}

[[maybe_unused]] static void parts_verify(const char *dir) {
    fixture_verify(dir, true);
}
