/* drt_model_sketch.c -- drt-model sketch: a copy of a Base LM whose landmarks have a sketch of the chunk's words. */
#include "base/memory.h"
#include "indexer/landmarks/word_counts.h"
#include "tools/model/drt_model_copy.h"
#include "tools/shared/args.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/report.h"
#include "tools/shared/streams.h"

static enum status sketch_check(const struct model_copy *c) {
    const struct model_config *model = &c->engine.model.config;
    const char *path = c->engine.model.path;
    if (model->landmark_sketch > 0)
        return fail(STATUS_INVALID, "%s: has a sketch already (landmark_sketch %d): take the model without one", path,
                    model->landmark_sketch);
    if (!model->base_lm || model->recurrent_layer > 0 || model->landmark_block > 0)
        return fail(STATUS_UNSUPPORTED,
                    "%s: is no plain Base LM, and only the landmarks of such a model have a sketch: take a Base LM",
                    path);
    return STATUS_OK;
}

static enum status sketch_make(struct model_copy *c, const void *context) {
    const int64_t size = c->options->size;
    const struct model_member member = {"landmark_sketch", size};
    int64_t chunks;
    float *idf = NULL;
    (void)context;
    TRY(sketch_check(c));
    TRY(model_copy_begin(c, &member, 1));
    enum status s = word_counts_idf(&idf, &chunks, c->engine.view, 0, c->progress);
    if (s == STATUS_OK && chunks == 0)
        s = fail(STATUS_INVALID, "%s: has no chunks to count ids in: take a store with text", c->options->store);
    if (s == STATUS_OK) s = model_copy_publish(c, "landmark_sketch.idf", idf);
    if (s == STATUS_OK)
        streams_printf(stdout, "%s: landmarks with a sketch of %lld numbers, idf of %d ids counted in %lld chunks\n",
                       c->folder.path, (long long)size, c->engine.model.config.vocab_size, (long long)chunks);
    memory_free(idf);
    return s;
}

int model_sketch(int argc, char **argv, const char **operands) {
    struct model_copy_options o = {.where = DEVICE_CHOICE_DEFAULT, .size = 384};
    o.where.device = "cpu"; /* the model computes nothing */
    const struct arg_option options[] = {
        MODEL_COPY_OPTIONS(o, "the ids are counted in"),
        {"size", ARG_INT, &o.size, "N", "numbers of the sketch in a landmark", 8, 1 << 16},
        MODEL_COPY_WEIGHTS(o),
        OPTION_FORCE(o.force),
    };
    const struct arg_program program = {
        .name = "drt-model sketch",
        .synopsis = "--model DIR --store STORE --out DIR [options]",
        .about = "Makes a copy of a Base LM whose landmarks have --size numbers more: a sketch of the chunk's words, "
                 "so that a search by landmarks also ranks by words. The copy has the idf of each id, counted in all "
                 "chunks of the store. Nothing else of the model changes. Landmarks, stored keys and a gate belong to "
                 "one model: run drt-index build, drt-index keys and drt-eval fit-memory for the copy. The model must "
                 "not have a sketch already.",
        .examples = "  drt-model sketch --model models/base --store store --out base-sketch\n",
        .options = options,
        .n_options = ARRAY_LEN(options)};
    int n_operands = 0, code = args_parse(&program, argc, argv, operands, &n_operands);
    return code >= 0 ? code : model_copy_run(program.name, &o, sketch_make, NULL);
}
