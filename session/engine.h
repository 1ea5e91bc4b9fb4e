/* engine.h -- a model made ready to run, with its store: what drt-generate and drt-eval both start from.
 *
 * Opening checks what must fit together: store and model by fingerprint, retrieval and variant. One thread at a
 * time. */
#pragma once
#include "decoder/decoder.h"
#include "encoder/encoder.h"
#include "indexer/retriever.h"
#include "store/store.h"
#include "session/device_choice.h"
#include "session/model_folder.h"

struct engine_config {
    const char *model;                   /* folder; NULL: the bundled one */
    const char *store;                   /* directory; NULL: none */
    struct device_choice where;
    int threads;                         /* 0: all processors */
    bool retrieval;                      /* some kind is wanted: refused for a Base LM */
    /* a token memory reads the store: without `retrieval`, only its tokens matter */
    bool memory;
    bool decoding;                       /* ids come one by one: weights are narrowed, but by --dtype f32 */
};
struct engine {
    struct model_folder model;
    struct device *device;
    struct weights weights;              /* on the device */
    struct encoder *encoder;             /* NULL for a Base LM */
    struct decoder *decoder;
    struct store *store;
    struct store_view *view;             /* NULL without a store */
    struct store_info info;
    struct searcher *searcher;           /* of the store, once a retriever needs it; shared by all of them */
    struct searcher_description searched_by;              /* what it does; zeroed: there is none */
    report_line *report;                 /* NULL: nobody reads */
};
enum status engine_open(struct engine *out, const struct engine_config *config);
void engine_close(struct engine *e);                      /* a zeroed struct is fine */

/* What a retriever looks at. The first one with a corpus opens the searcher (SEARCHER_AUTO) for all of them.
 * Neither self nor corpus: *out is NULL, which the decoder takes as "no retrieval". */
struct engine_retrieval {
    bool self, corpus, random, exact;
    bool exact_fallback;                 /* as in indexer/searcher.h */
    int nprobe;                          /* 0: the index's default */
    int64_t exclude_window;              /* as in indexer/retriever.h; which document: chunk_retriever_reset */
    uint64_t seed;                       /* of random */
};
enum status engine_retriever(struct retriever **out, struct engine *e, const struct engine_retrieval *how);
void engine_retriever_free(struct retriever *r);          /* NULL is fine */

/* Ids worked on in one decoder pass that a tool should feed at a time, a whole number of chunks. */
int64_t engine_pass(const struct engine *e);
