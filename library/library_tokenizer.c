/* library_tokenizer.c -- tokenizers, which any number of threads may use; each call has its own scratch memory. */
#include "base/memory.h"
#include "library/library_internal.h"
#include <string.h>

enum status library_tokenizer_create(struct drt_tokenizer **out, struct tokenizer *tokenizer, bool borrowed) {
    struct drt_tokenizer *t = NULL;
    TRY(memory_allocate_zero(&t, 1));
    t->tokenizer = tokenizer;
    t->borrowed = borrowed;
    pthread_mutex_init(&t->lock, NULL);
    *out = t;
    return STATUS_OK;
}

void library_tokenizer_free(struct drt_tokenizer *t) {
    if (!t) return;
    for (int i = 0; i < t->n_idle; i++)
        tokenizer_scratch_free(t->idle[i]);
    if (!t->borrowed) tokenizer_free(t->tokenizer);
    pthread_mutex_destroy(&t->lock);
    memory_free(t);
}

enum status library_scratch_take(struct drt_tokenizer *t, struct tokenizer_scratch **out) {
    struct tokenizer_scratch *s = NULL;
    library_lock(&t->lock);
    if (t->n_idle > 0) s = t->idle[--t->n_idle];
    library_unlock(&t->lock);
    if (!s) return tokenizer_scratch_create(out, t->tokenizer);
    *out = s;
    return STATUS_OK;
}

void library_scratch_give(struct drt_tokenizer *t, struct tokenizer_scratch *s) {
    if (!s) return;
    library_lock(&t->lock);
    bool kept = t->n_idle < LIBRARY_SCRATCHES;
    if (kept) t->idle[t->n_idle++] = s;
    library_unlock(&t->lock);
    if (!kept) tokenizer_scratch_free(s);
}

enum drt_status drt_tokenizer_open(struct drt_tokenizer **out, const char *path) {
    struct tokenizer *tokenizer = NULL;
    char file[FILE_PATH_MAX];
    LIBRARY_NEEDS(out);
    LIBRARY_NEEDS(path);
    if (file_is_directory(path)) {
        LIBRARY_TRY(file_join(file, path, "tokenizer.json"));
        path = file;
    }
    LIBRARY_TRY(tokenizer_open(&tokenizer, path));
    enum status status = library_tokenizer_create(out, tokenizer, false);
    if (status != STATUS_OK) tokenizer_free(tokenizer);
    return (enum drt_status)status;
}

void drt_tokenizer_close(struct drt_tokenizer *tokenizer) {
    if (tokenizer && !tokenizer->borrowed) library_tokenizer_free(tokenizer);
}

int drt_tokenizer_vocab_size(const struct drt_tokenizer *tokenizer) {
    return tokenizer ? tokenizer_vocab_size(tokenizer->tokenizer) : 0;
}

static enum status library_encode_text(struct drt_tokenizer *t, int32_t **ids, size_t *n, const char *text,
                                       size_t bytes, bool special) {
    struct tokenizer_scratch *scratch = NULL;
    const int32_t *found = NULL;
    int32_t *copy = NULL;
    size_t count = 0;
    TRY(library_scratch_take(t, &scratch));
    enum status status = tokenizer_encode(t->tokenizer, scratch, text, bytes,
                                          special ? TOKENIZER_RECOGNISE : TOKENIZER_LITERAL, &found, &count);
    if (status == STATUS_OK) status = memory_allocate(&copy, count);
    if (status == STATUS_OK && count) memcpy(copy, found, count * sizeof *copy);
    library_scratch_give(t, scratch);
    TRY(status);
    *ids = copy;
    *n = count;
    return STATUS_OK;
}

enum drt_status drt_tokenizer_encode(struct drt_tokenizer *tokenizer, int32_t **ids, size_t *n, const char *text,
                                     size_t bytes, bool special) {
    LIBRARY_NEEDS(tokenizer);
    LIBRARY_NEEDS(ids);
    LIBRARY_NEEDS(n);
    LIBRARY_CHECK(text || bytes == 0, "%s: text is NULL", __func__);
    return (enum drt_status)library_encode_text(tokenizer, ids, n, text ? text : "", bytes, special);
}

enum status library_decode(struct drt_tokenizer *t, char **text, size_t *bytes, const int32_t *ids, size_t n,
                           bool skip_special) {
    struct tokenizer_scratch *scratch = NULL;
    const char *found = NULL;
    char *copy = NULL;
    size_t count = 0;
    TRY(library_scratch_take(t, &scratch));
    enum status status = tokenizer_decode(t->tokenizer, scratch, ids, n, skip_special, &found, &count);
    if (status == STATUS_OK) status = memory_allocate(&copy, count + 1);
    if (status == STATUS_OK) {
        memcpy(copy, found, count);
        copy[count] = 0;
    }
    library_scratch_give(t, scratch);
    TRY(status);
    *text = copy;
    *bytes = count;
    return STATUS_OK;
}

enum drt_status drt_tokenizer_decode(struct drt_tokenizer *tokenizer, char **text, size_t *bytes, const int32_t *ids,
                                     size_t n, bool skip_special) {
    LIBRARY_NEEDS(tokenizer);
    LIBRARY_NEEDS(text);
    LIBRARY_NEEDS(bytes);
    LIBRARY_CHECK(ids || n == 0, "%s: ids is NULL", __func__);
    return (enum drt_status)library_decode(tokenizer, text, bytes, ids, n, skip_special);
}

enum drt_status drt_tokenizer_bytes(const struct drt_tokenizer *tokenizer, const char **data, size_t *bytes,
                                    int32_t id) {
    LIBRARY_NEEDS(tokenizer);
    LIBRARY_NEEDS(data);
    LIBRARY_NEEDS(bytes);
    const char *found = tokenizer_bytes(tokenizer->tokenizer, id, bytes);
    if (!found) return (enum drt_status)fail(STATUS_NOT_FOUND, "no token has the id %d", (int)id);
    *data = found;
    return DRT_OK;
}

const char *drt_tokenizer_spelling(const struct drt_tokenizer *tokenizer, int32_t id) {
    return tokenizer ? tokenizer_token(tokenizer->tokenizer, id) : NULL;
}

int32_t drt_tokenizer_id(const struct drt_tokenizer *tokenizer, const char *spelling) {
    return tokenizer && spelling ? tokenizer_id(tokenizer->tokenizer, spelling) : -1;
}

bool drt_tokenizer_is_special(const struct drt_tokenizer *tokenizer, int32_t id) {
    return tokenizer && tokenizer_is_special(tokenizer->tokenizer, id);
}
