/* checkpoint.h -- checkpoint folders: a model that drt-generate loads, and the state that a resumed run needs.
 *
 *   RUN/checkpoints/step-<n>/  config.json, model.safetensors, tokenizer.json: a model folder
 *                              state.safetensors: both moments, the step, the float32 weights if the model's are
 *                              rounded, and the weights of the corpus index if the next step does not compute it
 *                              again. Noise, masks and the order of data follow from step and seed.
 *
 * A checkpoint is written to `step-<n>.tmp`, synced file by file, and then renamed, so that a folder with its final
 * name is complete. The newest checkpoint is found by listing the folder; no file names it. One process at a time
 * writes into a run's folder. */
#pragma once
#include "base/file.h"
#include "base/formats/safetensors.h"
#include "base/status.h"
#include "model/model_config.h"
#include "model/params.h"
#include <stdint.h>

struct checkpoint {
    int64_t step;
    /* of all steps so far; -1: the program that saved the checkpoint did not count them */
    int64_t tokens;
    int64_t skipped;                     /* steps so far whose gradient was not finite */
    uint64_t data;                       /* batches_fingerprint of the training data */
    struct params *params;               /* float32 */
    float *moments[2];                   /* [params_elements] */
    /* pool corpus: the weights that computed the current index; NULL: the next step computes the index again */
    float *index_weights;
};

/* Constant during a run; all strings are borrowed. */
struct checkpoint_kind {
    const char *run;                     /* the run's folder */
    const char *model_json;              /* text of config.json */
    const char *tokenizer;               /* path of the tokenizer.json that is copied */
    enum safetensors_dtype type;         /* of model.safetensors: F32 or BF16 */
};

/* Creates RUN/checkpoints if it is missing, and removes the incomplete checkpoints of killed writers. */
enum status checkpoint_prepare(const char *run);
enum status checkpoint_save(const struct checkpoint *c, const struct checkpoint_kind *kind);
/* Removes all checkpoints but the `keep` newest. */
enum status checkpoint_trim(const char *run, int64_t keep);
/* Step of the newest checkpoint; -1: there is none. */
enum status checkpoint_latest(int64_t *step, const char *run);
/* Free with checkpoint_free, also after a failure. STATUS_CORRUPT, STATUS_MISMATCH, STATUS_VERSION name the file. */
enum status checkpoint_load(struct checkpoint *out, const char *run, int64_t step, const struct model_config *model);
void checkpoint_free(struct checkpoint *c);               /* a zeroed struct is fine */
enum status checkpoint_path(char out[FILE_PATH_MAX], const char *run, int64_t step);
