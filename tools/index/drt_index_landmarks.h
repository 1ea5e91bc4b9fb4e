/* drt_index_landmarks.h -- landmarks of a build that the model does not make, but an external encoder or a file. */
#pragma once
#include "indexer/build/external_encoder.h"
#include "indexer/build/indexer.h"
#include "tools/index/drt_index.h"
#include "tools/shared/query_file.h"

struct landmark_options {
    const char *encoder, *kind;          /* folder; auto, cosine, dot or e5 */
    const char *vectors, *name;          /* file; what made its rows */
    const char *type;                    /* f16, i8 or none */
};
struct landmark_maker {
    struct indexer_landmarks landmarks;  /* for indexer_config */
    struct external_encoder *external;   /* of --encoder */
    struct query_file *file;             /* of --vectors */
    const char *path;
    int64_t used;                        /* number of rows of the file that were used */
    float *skipped;
};
/* The variables of these options. Each macro is one entry of a table of struct arg_option. */
#define OPTIONS_OF_ENCODER(o)                                                                                          \
    {"encoder", ARG_PATH, &(o).encoder, "DIR",                                                                         \
     "external encoder in place of the model's: the Hugging Face folder of a BERT-type encoder "                       \
     "(docs/external-encoders.md)",                                                                                    \
     0, 0},                                                                                                            \
    {"encoder-kind", ARG_CHOICE, &(o).kind, "auto|cosine|dot|e5",                                                      \
     "how its vectors are compared: cosine; dot: inner products; e5: cosine, with \"query: \" and \"passage: \" "      \
     "before the texts; auto: that of the store, cosine for a new store (default: auto)",                              \
     0, 0}

#define OPTIONS_OF_VECTORS(o)                                                                                          \
    {"vectors", ARG_PATH, &(o).vectors, "FILE",                                                                        \
     "landmarks that another program made: a row for each chunk of the corpus, in the order of drt-index export; "     \
     ".npy (float32 or float16) or .fbin",                                                                             \
     0, 0},                                                                                                            \
    {"vectors-name", ARG_STRING, &(o).name, "NAME",                                                                    \
     "name of their encoder; a store accepts more vectors only under the same name (default: a name made from this "   \
     "file)", 0, 0}

bool landmark_options_none(const struct landmark_options *o);     /* whether --landmarks none was given */
enum external_kind landmark_kind(const char *name);       /* NULL: AUTO */
/* Opens the maker. Without options *out is zeroed, and the model makes the landmarks. `append`: `store` exists, and its
 * kind of landmarks is used. */
enum status landmark_maker_open(struct landmark_maker *out, const struct landmark_options *o,
                                 const struct external_encoder_config *config, const char *store, bool append);
void landmark_maker_close(struct landmark_maker *s);    /* call before the device is closed; a zeroed one is fine */
/* Returns -1, or the exit code if the options contradict each other. */
int landmark_options_check(const char *command, const struct landmark_options *o, bool append);
