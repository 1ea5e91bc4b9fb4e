/* config_internal.h -- shared by config.c and config_check.c. */
#pragma once
#include "train/run/config.h"

/* Rewrites JSON text in one layout, so that a run and its resumption have the same bytes. */
enum status config_tidy(char **json);
/* Sets the model to an object's text. */
enum status config_set_model(struct train_config *c, const char *json, size_t bytes);
