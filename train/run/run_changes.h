/* run_changes.h -- which keys of a config have changed since a run was stopped. */
#pragma once
#include "train/run/config.h"

enum { RUN_CHANGES_MAX = 240 };

/* Writes the names of the keys of `now` that differ from RUN/config.json, or for the model from the config.json of the
 * checkpoint folder, as "lr, model.slide_window"; "..." at the end if there are too many, "" if there are none or if
 * these files cannot be read. `now` was checked by config_check. */
enum status run_changes(char out[RUN_CHANGES_MAX], const char *run, const char *checkpoint,
                        const struct train_config *now);
