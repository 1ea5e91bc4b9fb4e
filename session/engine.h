/* engine.h -- a model made ready to run, with its store: what drt-generate and drt-eval both start from.
 *
 * Opening checks what must fit together: store and model by fingerprint, retrieval and variant. One thread at a
 * time. */
#pragma once
#include "decoder/decoder.h"
#include "encoder/encoder.h"
#include "indexer/retrieve/retriever.h"
#include "store/store.h"
#include "session/device_choice.h"
#include "session/model_folder.h"

struct engine_config {
    const char *model;                   /* folder; NULL: the bundled one */
    const char *store;                   /* directory; NULL: none */
    const char *encoder;                 /* folder of the external encoder that made the store; NULL: the model did */
    struct device_choice where;
    int threads;                         /* 0: all processors */
    bool retrieval;                      /* some kind is wanted: refused for a Base LM */
    /* a token memory reads the store: without `retrieval`, only its tokens matter */
    bool memory;
    bool decoding;                       /* ids come one by one: weights are narrowed, but by --dtype f32 */
    struct slices_remote workers;        /* that search the store's landmarks; addresses NULL: this process does */
};
struct engine {
    struct model_folder model;
    struct device *device;
    struct weights weights;              /* on the device */
    struct encoder *encoder;             /* NULL for a Base LM */
    struct external_encoder *external;   /* NULL: none */
    struct decoder *decoder;
    struct store *store;
    struct store_view *view;             /* NULL without a store */
    struct store_info info;
    struct slices *slices;               /* the workers; NULL: none */
    struct searcher *searcher;           /* of the store, once a retriever needs it; shared by all of them */
    struct searcher_description searched_by;              /* what it does; zeroed: there is none */
    report_line *report;                 /* NULL: nobody reads */
    const struct engine *of;             /* whose model and weights these are; NULL: its own */
};
enum status engine_open(struct engine *out, const struct engine_config *config);
void engine_close(struct engine *e);                      /* a zeroed struct is fine */

/* The same model for another thread: device, towers and scratch memory of its own. Weights are shared where both
 * compute on the CPU. Without a store. `of` must outlive it. */
enum status engine_share(struct engine *out, const struct engine *of, const struct device_choice *where, int threads);

/* The same engine for another text: all that `of` has but its store, in place of which come view and searcher (NULL is
 * fine), borrowed. `of` must outlive it, and both are used by one thread at a time. engine_text_close closes what the
 * text's retriever opened. */
void engine_text_open(struct engine *out, const struct engine *of, struct store_view *view, struct searcher *searcher);
void engine_text_close(struct engine *e, const struct searcher *searcher);

/* Whether model and store belong together: STATUS_MISMATCH, or STATUS_UNSUPPORTED where the model reads no stores.
 * tokens_alone: landmarks may be another model's, since the decoder encodes what it reads of the store itself. */
enum status engine_check_store(const struct engine *e, const char *path, const struct store_info *info,
                               bool tokens_alone);

/* What a retriever looks at. The first one with a corpus opens the searcher for all of them.
 * Neither self nor corpus: *out is NULL, which the decoder takes as "no retrieval". */
struct engine_retrieval {
    enum searcher_kind searcher;         /* LEXICAL and HYBRID need a lexical index; else AUTO (0) */
    bool self, corpus, random, exact;
    bool exact_fallback;                 /* as in indexer/search/searcher.h */
    int nprobe;                          /* 0: the index's default */
    int64_t exclude_window;              /* as in indexer/retrieve/retriever.h; which document: chunk_retriever_reset */
    uint64_t seed;                       /* of random */
};
enum status engine_retriever(struct retriever **out, struct engine *e, const struct engine_retrieval *how);
void engine_retriever_free(struct retriever *r);          /* NULL is fine */

/* Ids worked on in one decoder pass that a tool should feed at a time, a whole number of chunks. */
int64_t engine_pass(const struct engine *e);
