/* drt_generate_state.h -- one run of drt-generate, shared by its set-up and its loop. */
#pragma once
#include "tools/generate/drt_generate.h"

struct generate_state {
    struct engine *engine;
    const struct generate_options *options;
    const struct progress *progress;
    struct tokenizer_scratch *scratch;
    struct retriever *retriever;
    struct decoder_state *state;
    struct sampler *sampler;
    struct printer *printer;
    struct tokenizer_stream stream;
    struct trace *trace; /* NULL: nobody looks */
    float *logits;
    int32_t *unspoken;
    int n_unspoken; /* ids of the model that the tokenizer has no text for */
    struct memory_config memory_config;
    struct lexical *lexical;
    struct memory_text *memory; /* NULL: no token memory */
    double memory_share;        /* of the tokens picked so far */
    struct chunk_retriever_times last;
    struct generate_times prompt, generated;
};

enum status generate_prepare(struct generate_state *r);   /* `r` holds engine, options and progress; else zero */
void generate_release(struct generate_state *r);          /* also after a failure */
