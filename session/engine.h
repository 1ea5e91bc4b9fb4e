/* engine.h -- a model that is ready to run, with its store, for drt-generate, drt-eval, drt-serve and libdrt.
 *
 * Opening checks that the store fits the model (by fingerprint) and that the retrieval fits the model's variant. For
 * one thread at a time. */
#pragma once
#include "decoder/decoder.h"
#include "encoder/encoder.h"
#include "indexer/retrieve/device_keys.h"
#include "indexer/retrieve/retriever.h"
#include "store/store.h"
#include "session/device_choice.h"
#include "session/model_folder.h"

struct engine_config {
    const char *model;                   /* folder; NULL: the bundled one */
    const char *store;                   /* directory; NULL: none */
    const char *encoder; /* folder of the external encoder that made the store; NULL: the model made it */
    struct device_choice where;
    int threads;                         /* 0: one per processor */
    bool retrieval;                      /* retrieval of some kind is wanted, which a Base LM refuses */
    /* a token memory reads the store; without `retrieval`, only the store's tokens are used */
    bool memory;
    bool decoding; /* ids come one at a time: weights are stored in a narrower type, unless --dtype is f32 */
    /* processes that search the store's landmarks; addresses NULL: this process searches */
    struct slices_remote workers;
};
struct engine {
    struct model_folder model;
    struct device *device;
    struct weights weights;              /* on the device */
    bool rounded;                        /* passages of a token memory may be rounded to bf16: dtype is not "f32" */
    struct encoder *encoder;             /* NULL for a Base LM */
    struct external_encoder *external;   /* NULL: none is needed */
    struct decoder *decoder;
    struct store *store;
    struct store_view *view;             /* NULL without a store */
    struct store_info info;
    struct slices *slices;               /* the workers; NULL: none */
    struct searcher *searcher;           /* of the store; opened by the first retriever, and used by all of them */
    struct searcher_description searched_by;              /* how it searches; zeroed: there is none */
    report_line *report;                 /* NULL: no reports */
    int devices;                         /* of engine_config.where */
    struct device_group group;           /* the GPUs that search together; opened with the searcher */
    struct device_keys *device_keys;     /* stored keys in a GPU's memory, for all texts; NULL on a CPU */
    const struct engine *of;             /* the engine whose model and weights these are; NULL: its own */
};
enum status engine_open(struct engine *out, const struct engine_config *config);
void engine_close(struct engine *e);                      /* a zeroed struct is fine */

/* engine.rounded of a choice. */
bool engine_rounds(const struct device_choice *where);

/* Opens the same model for another thread, with its own device, towers and scratch memory, and without a store. Weights
 * are shared if both engines compute on the CPU. `of` must outlive it. */
enum status engine_share(struct engine *out, const struct engine *of, const struct device_choice *where, int threads);

/* Opens the same engine for another text: it has all of `of` except the store. Instead it gets `view` and `searcher`
 * (both may be NULL), borrowed. `of` must outlive it, and one thread at a time may use the two. engine_text_close
 * closes what the text's retriever opened. */
void engine_text_open(struct engine *out, const struct engine *of, struct store_view *view, struct searcher *searcher);
void engine_text_close(struct engine *e, const struct searcher *searcher);

/* Checks that a model can read a store. STATUS_MISMATCH: they do not belong together. STATUS_UNSUPPORTED: the model
 * reads no stores. tokens_alone: the landmarks may be another model's, because the decoder itself encodes the
 * tokens that it reads. */
enum status engine_check_store(const struct engine *e, const char *path, const struct store_info *info,
                               bool tokens_alone);

/* What a retriever searches. The first retriever with a corpus opens the searcher that all use. With neither
 * own_past nor corpus, *out is NULL, and the decoder runs without retrieval. */
struct engine_retrieval {
    enum searcher_kind searcher;         /* LEXICAL and HYBRID need a lexical index; otherwise AUTO (0) */
    bool own_past, corpus, random, exact;
    bool exact_fallback;                 /* as in indexer/search/searcher.h */
    int nprobe;                          /* 0: the index's default */
    int continuation, overlap, query_ids; /* as in indexer/retrieve/retriever.h */
    int64_t exclude_window; /* as in indexer/retrieve/retriever.h; chunk_retriever_reset names the document */
    uint64_t seed;                       /* for random chunks */
};
enum status engine_retriever(struct retriever **out, struct engine *e, const struct engine_retrieval *how);
void engine_retriever_free(struct retriever *r);          /* NULL is fine */

/* Returns the number of ids that a program should pass at a time, a whole number of chunks: those of
 * one decoder pass. */
int64_t engine_pass(const struct engine *e);
