/* run.h -- a whole training run: a folder that fills while it goes, and goes on where it was.
 *
 *   RUN/config.json     what the run is, every default written out    RUN/log.jsonl    a line a step (run_log.h)
 *   RUN/checkpoints/    checkpoint.h                                  RUN/samples/     text, where the config asks for it
 *   RUN/plot.html       the log as a picture (plot.h), drawn anew with each checkpoint
 *
 * A run that is stopped (by its progress' request, `until`, `max_seconds`, or killed at any moment) and resumed gives the
 * losses of one that was not, bit for bit, on the same device. */
#pragma once
#include "base/progress.h"
#include "base/status.h"
#include "kernels/device/device.h"
#include "train/run/config.h"

struct run_options {
    const struct train_config *config;   /* checked */
    const char *folder;
    bool resume;                         /* an existing folder is gone on with; else it is refused */
    struct device *device;
    enum dtype type;                     /* of activations, and of the weights to compute with */
    int64_t until;                       /* stop, with a checkpoint, behind this step; 0: config's steps */
    double max_seconds;                  /* the same behind the first step that ends later; 0: no limit */
    const struct progress *progress;
    /* Processes that train together (kernels/device/collective.h), or NULL; borrowed. Rank 0 alone writes into the folder, and
     * measures; the others follow it. A request to stop, and a time that is over, count when any process has it. */
    struct collective *group;
};

struct run_report {
    int64_t first_step, step, tokens, skipped;         /* step: the last one done */
    double loss, valid_loss, valid_bits_per_byte;      /* the last ones measured; NaN: none */
    double seconds;                      /* of this process's steps */
    bool finished;                       /* all steps of the config */
};
/* STATUS_INTERRUPTED: stopped on request; a checkpoint was written. */
enum status run_train(struct run_report *out, const struct run_options *options);
