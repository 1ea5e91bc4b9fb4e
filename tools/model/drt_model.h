/* drt_model.h -- the parts of drt-model. Each subcommand takes argv from its own name on, with
 * an array of argc operands to fill, and returns the exit code. */
#pragma once
#include "base/file.h"
#include "base/formats/safetensors.h"
#include "base/formats/torch_checkpoint.h"
#include "model/model_config.h"
#include <stdio.h>

int model_info(int argc, char **argv, const char **operands);
int model_init(int argc, char **argv, const char **operands);
int model_convert(int argc, char **argv, const char **operands);

/* Prints the thread's last message as an error of drt-model; gives 1. */
int model_failed(void);
/* "f32", "bf16", "f16". */
enum safetensors_dtype model_dtype(const char *name);

/* A model folder in the making: written as `<folder>.tmp`, then renamed, so that nobody sees half a model. lock: on
 * that folder, until the process ends; 0: it is not ours. */
struct new_folder { char path[FILE_PATH_MAX], temporary[FILE_PATH_MAX]; bool replace; int lock; };
/* An existing folder is refused; with `force` it is replaced, if it holds nothing but a model's files. */
enum status new_folder_begin(struct new_folder *f, const char *path, bool force);
enum status new_folder_write(const struct new_folder *f, const char *name, const void *data, size_t bytes);
/* Checks that the tokenizer fits the model, and copies it. path NULL: says on stderr that there is none. */
enum status new_folder_tokenizer(const struct new_folder *f, const char *path, const struct model_config *config);
enum status new_folder_publish(struct new_folder *f);
void new_folder_discard(struct new_folder *f);            /* after a failure */

/* A checkpoint opened: its model's tensors, names cleaned and owned, data borrowed from the open file. */
struct model_source {
    struct torch_checkpoint *torch;      /* one of the two */
    struct safetensors *safetensors;
    struct tensor_view *tensors;
    int count, left_out;                 /* left_out: tensors outside of the model, such as an optimiser's */
};
enum status model_source_open(struct model_source *s, const char *path);   /* a zeroed struct; closed on failure */
void model_source_close(struct model_source *s);

/* A config.json for tensors of these names and shapes, as the released trainer names them. What shapes cannot tell is
 * assumed to be as in the released models and printed on `notes`. *json is freed with free. */
enum status model_guess_config(char **json, size_t *bytes, const struct tensor_view *tensors, int count,
                               const char *path, FILE *notes);
