/* library_fixture.h -- a tiny model and a store of it, made with the functions of drt.h alone. */
#pragma once
#include "include/drt.h"
#include "tests/model_fixture.h"

enum { LIBRARY_DOCUMENTS = 40, LIBRARY_WORDS = 120 };

/* Fails with the call's message if a call does not succeed. */
#define CALL_OK(call)                                                                                               \
    do {                                                                                                            \
        enum drt_status check_s_ = (call);                                                                          \
        if (check_s_ != DRT_OK) {                                                                                   \
            fprintf(stderr, "%s: %s: %s\n", #call, drt_status_text(check_s_), drt_message());                       \
            test_fail(__FILE__, __LINE__, "call failed");                                                           \
        }                                                                                                           \
    } while (0)
#define CALL_FAILS(call, code, text)                                                                                \
    do {                                                                                                            \
        enum drt_status check_s_ = (call);                                                                          \
        if (check_s_ != (code) || !strstr(drt_message(), text)) {                                                   \
            fprintf(stderr, "%s: %s: \"%s\", wanted %s with \"%s\"\n", #call, drt_status_text(check_s_),            \
                    drt_message(), drt_status_text(code), text);                                                    \
            test_fail(__FILE__, __LINE__, "wrong failure");                                                         \
        }                                                                                                           \
    } while (0)

/* Documents of random words; the same number gives the same text. */
struct library_corpus { int next, documents; char text[4096], key[32]; };
static inline void library_text(char out[4096], int number) {
    static const char *const word[] = {"the ",  "river ", "and ",   "stone ", "winding ", "north ",
                                       "other ", "sand ", "ring ",  "on ",    "table ",   "under ",
                                       "seven ", "lights ", "of ", "a ",     "harbour "};
    uint64_t state = (uint64_t)number * 0x9E3779B97F4A7C15u + 1;
    size_t n = (size_t)snprintf(out, 4096, "Document %d. ", number);
    for (int i = 0; i < LIBRARY_WORDS; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        n += (size_t)snprintf(out + n, 4096 - n, "%s", word[(state >> 33) % 17]);
    }
}
[[maybe_unused]] static int library_next(void *context, struct drt_text *out) {
    struct library_corpus *c = context;
    if (c->next == c->documents) return 0;
    snprintf(c->key, sizeof c->key, "doc-%d", c->next);
    library_text(c->text, c->next++);
    out->text = c->text;
    out->bytes = strlen(c->text);
    out->key = c->key;
    return 1;
}

struct library_world {
    char folder[600], store_path[600];
    struct drt_model *model;
    struct drt_store *store;
};
static inline struct drt_model *library_model(const char *folder) {
    const struct drt_model_config config = {.size = sizeof config, .device = "cpu", .threads = 2};
    struct drt_model *m = NULL;
    CALL_OK(drt_model_open(&m, folder, &config));
    return m;
}
[[maybe_unused]] static void library_world_open(struct library_world *w) {
    struct library_corpus corpus = {.documents = LIBRARY_DOCUMENTS};
    const struct drt_build_config build = {
        .size = sizeof build, .next = library_next, .next_context = &corpus, .shard_chunks = 64};
    snprintf(w->folder, sizeof w->folder, "%s/model", test_folder());
    snprintf(w->store_path, sizeof w->store_path, "%s/store", test_folder());
    model_fixture(w->folder, 3);
    w->model = library_model(w->folder);
    CALL_OK(drt_store_build(w->store_path, w->model, &build, NULL));
    CALL_OK(drt_store_open(&w->store, w->store_path));
}
[[maybe_unused]] static void library_world_close(struct library_world *w) {
    drt_store_close(w->store);
    drt_model_close(w->model);
}
