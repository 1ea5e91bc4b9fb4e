/* model_folder.h -- a model folder opened whole: config.json, model.safetensors and tokenizer.json together.
 *
 * Shared by the programs. What is valid file by file and wrong together (a tokenizer whose ids do not fit the
 * model's vocabulary) is refused here, with both values named. */
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
/* path NULL: the bundled model, see model_folder_default. */
enum status model_folder_open(struct model_folder *out, const char *path);
void model_folder_close(struct model_folder *m);          /* a zeroed struct is fine */

/* The folder of the bundled model: data/models/drt-28m, or share/drt/models/drt-28m where it is installed, in a folder
 * above the file that this code is in (a program or a library) or above the running program; or the folder that the
 * program was configured with. */
enum status model_folder_default(char out[FILE_PATH_MAX]);
