/* drt_model.h -- the parts of drt-model. Each subcommand gets argv from its own name on, and an array of argc operands
 * to fill. It returns the exit code. */
#pragma once
#include "base/file.h"
#include "base/formats/safetensors.h"
#include "base/formats/torch_checkpoint.h"
#include "model/model_config.h"
#include <stdio.h>

int model_info(int argc, char **argv, const char **operands);
int model_init(int argc, char **argv, const char **operands);
int model_project(int argc, char **argv, const char **operands);
int model_sketch(int argc, char **argv, const char **operands);
int model_convert(int argc, char **argv, const char **operands);

/* Prints the thread's last message as an error of drt-model; returns 1. */
int model_failed(void);
/* "f32", "bf16", "f16". */
enum safetensors_dtype model_dtype(const char *name);

/* A new model folder. It is written as `<folder>.tmp` and then renamed, so that no program sees an incomplete model.
 * lock: of the temporary folder, until the process ends; 0: the folder does not belong to this process. */
struct new_folder { char path[FILE_PATH_MAX], temporary[FILE_PATH_MAX]; bool replace; int lock; };
/* Begins a folder. An existing folder is an error; with `force` it is replaced, if it contains only files of a
 * model. */
enum status new_folder_begin(struct new_folder *f, const char *path, bool force);
enum status new_folder_write(const struct new_folder *f, const char *name, const void *data, size_t bytes);
/* Checks that the tokenizer fits the model, and copies it. path NULL: prints a note that there is none. */
enum status new_folder_tokenizer(const struct new_folder *f, const char *path, const struct model_config *config);
enum status new_folder_publish(struct new_folder *f);
void new_folder_discard(struct new_folder *f);            /* call it after a failure */

/* The tensors of an open checkpoint. Names are cleaned and owned; data is borrowed from the open file. */
struct model_source {
    struct torch_checkpoint *torch;      /* one of these two is open */
    struct safetensors *safetensors;
    struct tensor_view *tensors;
    int count, left_out;                 /* left_out: tensors that do not belong to the model, such as an optimiser's */
};
/* *s must be zeroed; it is closed on failure */
enum status model_source_open(struct model_source *s, const char *path);
void model_source_close(struct model_source *s);

/* Makes a config.json for tensors of these names and shapes. The names are those of the released trainer. Values that
 * shapes do not determine are assumed to be those of the released models, and printed on `notes`. *json is freed with
 * free. */
enum status model_guess_config(char **json, size_t *bytes, const struct tensor_view *tensors, int count,
                               const char *path, FILE *notes);
