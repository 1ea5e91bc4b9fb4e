/* run.h -- a training run in a folder, which can be stopped and resumed.
 *
 *   RUN/config.json     the config, with every default written out    RUN/log.jsonl    a line for each step (run_log.h)
 *   RUN/checkpoints/    checkpoint.h                                  RUN/samples/     text, with sample_every
 *   RUN/plot.html       the log as plots (plot.h), updated with each checkpoint
 *
 * A run may be stopped (on request, by `until` or `max_seconds`, or killed at any moment) and resumed. Its losses then
 * equal those of an uninterrupted run on the same device, bit for bit. */
#pragma once
#include "base/progress.h"
#include "base/status.h"
#include "kernels/device/device.h"
#include "train/run/config.h"

struct run_options {
    const struct train_config *config;   /* checked */
    const char *folder;
    bool resume;                         /* true: the folder must hold a run; false: it must not */
    struct device *device;
    /* of activations, and of the copy of the weights that the model computes with */
    enum dtype type;
    int64_t until;                       /* stop with a checkpoint after this step; 0: config's steps */
    double max_seconds;                  /* stop after the first step that ends later than this; 0: no limit */
    const struct progress *progress;
    /* Processes that train together (kernels/device/collective.h), or NULL; borrowed. Only rank 0 writes into the
     * folder and validates. All stop when one of them has a request to stop or exceeds its time. */
    struct collective *group;
};

struct run_report {
    int64_t first_step, step, tokens, skipped;         /* step: the last completed one */
    double loss, valid_loss, valid_bits_per_byte;      /* of the last measurement; NaN: none */
    double seconds;                      /* of this process's steps */
    bool finished;                       /* whether all steps of the config are done */
};
/* Trains until an end condition. STATUS_INTERRUPTED: stopped on request, after writing a checkpoint. A checkpoint is
 * written before every other end, too. */
enum status run_train(struct run_report *out, const struct run_options *options);
