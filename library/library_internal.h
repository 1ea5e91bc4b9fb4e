/* library_internal.h -- the structs of the handles of include/drt.h, and functions that check arguments.
 *
 * Locks are taken in this order: a model's, then a store's. A callback is called without these locks, except the
 * callbacks of a build (its model's lock is held) and those for progress. Handles count their users, so they can be
 * closed in any order. */
#pragma once
#include "include/drt.h"
#include "session/engine.h"
#include "session/generation.h"
#include <pthread.h>
#include <stdatomic.h>

/* ---- arguments and structs ------------------------------------------------------------------------------ */

/* TRY for the functions of drt.h. */
#define LIBRARY_TRY(expr)                                                       \
    do {                                                                        \
        enum status library_status_ = (expr);                                   \
        if (library_status_ != STATUS_OK) return (enum drt_status)library_status_; \
    } while (0)
#define LIBRARY_INVALID(...) return (enum drt_status)fail(STATUS_INVALID, __VA_ARGS__)
#define LIBRARY_NEEDS(argument)                                                 \
    do {                                                                        \
        if (!(argument)) LIBRARY_INVALID("%s: %s is NULL", __func__, #argument); \
    } while (0)
#define LIBRARY_CHECK(condition, ...)                                           \
    do {                                                                        \
        if (!(condition)) LIBRARY_INVALID(__VA_ARGS__);                         \
    } while (0)

/* Copies a caller's struct into this library's version of it. Members that an older caller's struct lacks become
 * zero. given NULL: all zero. Members that only a newer caller's struct has must be zero (STATUS_UNSUPPORTED). `name`
 * is for messages. */
enum status library_take(void *out, size_t size, const void *given, const char *name);
/* Copies a result into a struct of the caller, which may be older or newer. *given keeps its size. */
enum status library_fill(void *given, const void *filled, size_t size, const char *name);
/* STATUS_INVALID unless all ids are in 0 .. vocab - 1, or -1 if `pad`. */
enum status library_check_ids(const int32_t *ids, int64_t n, int vocab, bool pad);

/* Convert the caller's callbacks. `progress` borrows `from`. */
struct progress library_progress(const struct drt_progress *from);

/* ---- handles ------------------------------------------------------------------------------------------------ */

enum { LIBRARY_SCRATCHES = 16 };         /* of the scratches that no thread uses, the most that are kept */
struct drt_tokenizer {
    struct tokenizer *tokenizer;
    bool borrowed;                       /* it is part of a model */
    pthread_mutex_t lock;                /* protects the next two members */
    struct tokenizer_scratch *idle[LIBRARY_SCRATCHES];
    int n_idle;
};
enum status library_tokenizer_create(struct drt_tokenizer **out, struct tokenizer *tokenizer, bool borrowed);
void library_tokenizer_free(struct drt_tokenizer *t);     /* NULL is fine */
/* Takes a scratch for one call. */
enum status library_scratch_take(struct drt_tokenizer *t, struct tokenizer_scratch **out);
void library_scratch_give(struct drt_tokenizer *t, struct tokenizer_scratch *s);     /* NULL is fine */
/* *text: free with drt_free. */
enum status library_decode(struct drt_tokenizer *t, char **text, size_t *bytes, const int32_t *ids, size_t n,
                           bool skip_special);

struct drt_model {
    atomic_int users;
    struct drt_model *of;                /* the model whose weights it uses; NULL: its own */
    pthread_mutex_t lock;
    struct engine engine;                /* without a store */
    struct encoder *many;                /* of large batches, on a GPU; NULL: not needed yet */
    struct drt_tokenizer *tokenizer;
};
struct drt_model *library_model_use(struct drt_model *m); /* adds a user; NULL is fine */
void library_model_release(struct drt_model *m);          /* removes a user; NULL is fine */
/* STATUS_UNSUPPORTED: a Base LM, or a model of the decoder variant, whose chunks need the text before them. */
enum status library_model_encodes(const struct drt_model *m);

/* Converts a document for drt.h. Its strings are borrowed. */
struct drt_document library_document_of(const struct store_document *d);

struct library_directory { atomic_int users; struct store *store; };
struct drt_store {
    atomic_int users;
    struct library_directory *directory;
    pthread_mutex_t lock;
    struct store_view *view;
    struct store_info info;
    int64_t keys_files, keys_chunks;     /* when the view was made */
    char path[FILE_PATH_MAX];
};
struct drt_store *library_store_use(struct drt_store *s); /* adds a user; NULL is fine */
void library_store_release(struct drt_store *s);
/* Gets the absolute path of a store for a call that changes or reads it as a whole: another thread may change the
 * working directory meanwhile. STATUS_BUSY: this process has the store open. */
enum status library_store_path(char out[FILE_PATH_MAX], const char *path);

struct drt_searcher {
    atomic_int users;
    struct drt_model *model;             /* NULL: searches only by vectors */
    struct drt_store *store;
    struct device *device;               /* used if there is no model */
    pthread_mutex_t lock;                /* used instead of a model's lock */
    bool words; /* the store has no landmarks: it is searched only by words, and scores are BM25's */
    struct slices *slices;               /* the worker processes of the config; NULL: none */
    struct device_group group;           /* the devices of the config; zeroed: only one */
    struct searcher *searcher;
    struct state_landmarks *states;      /* of a Base LM, under the model's lock; NULL: no text was searched yet */
};
struct drt_searcher *library_searcher_use(struct drt_searcher *s);         /* adds a user; NULL is fine */
void library_searcher_release(struct drt_searcher *s);

/* library_provenance.c: the chunks that a running text reads at present. */
struct library_provenance;
enum status library_provenance_create(struct library_provenance **out, const struct model_config *model);
void library_provenance_free(struct library_provenance *p);                /* NULL is fine */
void library_provenance_reset(struct library_provenance *p);
struct decoder_watch library_provenance_watch(struct library_provenance *p);
/* Gets the chunks that were read for the logits of `position`. *list is borrowed until the next call. */
enum status library_provenance_list(struct library_provenance *p, const struct drt_neighbour **list, int32_t *n,
                                    int64_t position, struct store_view *view);

static inline void library_lock(pthread_mutex_t *lock) { pthread_mutex_lock(lock); }
static inline void library_unlock(pthread_mutex_t *lock) { pthread_mutex_unlock(lock); }
