/* checkpoint.h -- checkpoint folders: a model that drt-generate loads, and the state that a resumed run needs.
 *
 *   RUN/checkpoints/step-<n>/  config.json, model.safetensors, tokenizer.json: a model folder
 *                              state.safetensors: both moments, the step, the float32 weights if the model's are
 *                              rounded, and the weights of the corpus index if the next step does not compute it
 *                              again. Noise, masks and the order of data follow from step and seed.
 *
 * A checkpoint is written to `step-<n>.tmp`, synced file by file, and renamed: a folder with its final name is
 * complete. The newest is found by listing the folder; no file names it. */
#pragma once
#include "base/file.h"
#include "base/formats/safetensors.h"
#include "base/status.h"
#include "model/model_config.h"
#include "model/params.h"
#include <stdint.h>

struct checkpoint {
    int64_t step;
    int64_t tokens;                      /* so far; -1: saved by a program that did not count them */
    int64_t skipped;                     /* steps so far whose gradient was not finite */
    uint64_t data;                       /* batches_fingerprint of the training data */
    struct params *params;               /* float32 */
    float *moments[2];                   /* [params_elements] */
    /* pool corpus: the weights its index was computed with; NULL: the next step computes it */
    float *index_weights;
};

/* Constant over a run; borrowed. */
struct checkpoint_kind {
    const char *run;                     /* its folder */
    const char *model_json;              /* config.json's text */
    const char *tokenizer;               /* tokenizer.json to copy */
    enum safetensors_dtype type;         /* of model.safetensors: F32 or BF16 */
};

/* Creates RUN/checkpoints if missing; removes orphan files of killed writers. */
enum status checkpoint_prepare(const char *run);
enum status checkpoint_save(const struct checkpoint *c, const struct checkpoint_kind *kind);
/* Removes all but the `keep` newest. */
enum status checkpoint_trim(const char *run, int64_t keep);
/* -1: there is none. */
enum status checkpoint_latest(int64_t *step, const char *run);
/* Free with checkpoint_free. */
enum status checkpoint_load(struct checkpoint *out, const char *run, int64_t step, const struct model_config *model);
void checkpoint_free(struct checkpoint *c);               /* a zeroed struct is fine */
enum status checkpoint_path(char out[FILE_PATH_MAX], const char *run, int64_t step);
