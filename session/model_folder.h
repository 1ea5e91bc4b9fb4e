/* model_folder.h -- opens the files of a model folder: config.json, model.safetensors and tokenizer.json.
 *
 * Files that are valid alone but do not fit together, such as a tokenizer with ids outside the model's vocabulary, are
 * refused with a message that has both values. */
#pragma once
#include "base/file.h"
#include "base/status.h"
#include "data/tokenizer/tokenizer.h"
#include "model/model_config.h"
#include "model/params.h"

struct model_folder {
    char path[FILE_PATH_MAX];
    struct model_config config;
    struct params *params;
    struct tokenizer *tokenizer;
};
/* path NULL: the bundled model (model_folder_default). */
enum status model_folder_open(struct model_folder *out, const char *path);
void model_folder_close(struct model_folder *m);          /* a zeroed struct is fine */

/* Checks that the folder and its files exist. Without `tokenizer` it may lack tokenizer.json. */
enum status model_folder_check(const char *folder, bool tokenizer);
/* Finds the folder of the bundled model. That is data/models/drt-28m, or share/drt/models/drt-28m of an installation,
 * in a folder above the file that contains this code (a program or a library) or above the running program; otherwise
 * the folder that the program was configured with. */
enum status model_folder_default(char out[FILE_PATH_MAX]);
