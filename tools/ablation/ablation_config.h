/* ablation_config.h -- the config of drt-eval ablation: JSON; docs/ablation.md lists its keys.
 *
 * Reading checks each key separately, and that every file exists. The plan checks what the rows need (ablation_plan.h).
 * A failure is one line with the file's name, the key and a remedy. */
#pragma once
#include "tools/ablation/ablation_rows.h"
#include "base/formats/json_object.h"
#include <stdbool.h>
#include <stdint.h>

enum { ABLATION_FILES_MAX = 32 }; /* texts of one kind; the number of options of one name that a program accepts */

struct ablation_config {
    char *path;                          /* of the file, for messages */
    struct object_list train, valid, other, gpus, rows;   /* texts as absolute paths */
    struct object_list domains;          /* a short name of each text of `valid` */
    char *tokenizer;                     /* file, absolute; NULL: one is trained */
    int64_t vocab_size;                  /* of a tokenizer that is trained; otherwise 0 */
    char *text_field, *device, *variant_mode, *vary_k, *external;   /* external: folder, absolute; NULL: none */
    double external_parameters;          /* of the layers of `external`: those that a token passes */
    struct object model, training, taken;                /* taken: name of a model -> folder, absolute */
    int64_t steps, tokens, seconds;      /* the budget; 0: not given */
    int64_t context, skip, max_tokens, document_tokens, max_documents, threads;
    int64_t memory_k, memory_every;
    int64_t chunk_topk, groups;          /* of `model` */
    bool selected[ABLATION_ROWS];        /* the rows of `rows`, and those of every table */
};

/* `folder`: paths of texts, tokenizer and models are relative to it; NULL: the folder of the config. */
enum status ablation_config_load(struct ablation_config *out, const char *path, const char *folder);
/* Reads a config from memory, and does not check that files exist. For tests. */
enum status ablation_config_parse(struct ablation_config *out, const char *name, const char *text, size_t bytes);
void ablation_config_free(struct ablation_config *c);     /* a zeroed struct is fine */
