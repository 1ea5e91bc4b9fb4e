/* option_rows.h -- options that several programs have, as rows of their tables, with one name, one range and one help
 * text.
 *
 * A macro is one or more initialisers of struct arg_option. Its arguments are the variables that get the values. Rows
 * for searching are in search_options.h, for token memories in tools/memory/memory_options.h, for external encoders in
 * tools/index/drt_index_landmarks.h. */
#pragma once
#include "base/system/threads.h"
#include "session/device_choice.h"
#include "tools/shared/args.h"
#include <math.h>

/* ---- models and stores */
#define OPTION_MODEL(path) {"model", ARG_PATH, &(path), "DIR", "model folder (default: the bundled drt-28m)", 0, 0}
#define OPTION_STORE(path) {"store", ARG_PATH, &(path), "STORE", "the store's folder", 0, 0}
#define OPTION_STORE_OF_MODEL(path)                                                                                    \
    {"store", ARG_PATH, &(path), "DIR", "store made by drt-index build with the same model", 0, 0}
#define OPTION_ENCODER(path)                                                                                           \
    {"encoder", ARG_PATH, &(path), "DIR", "external encoder that the store was built with", 0, 0}
#define OPTION_FORCE(flag) {"force", ARG_FLAG, &(flag), NULL, "replace an existing model folder", 0, 0}

/* ---- texts; `o` has text_field (a string, not NULL), skip_bad_lines, no_follow */
#define OPTION_FORMAT(name, of)                                                                                        \
    {"format", ARG_CHOICE, &(name), "auto|jsonl|txt|u16|u32|megatron|parquet|arrow",                                   \
     "format of " of "; auto: by name, then by content", 0, 0}
#define OPTION_TEXT_FORMAT(name)                                                                                       \
    {"format", ARG_CHOICE, &(name), "auto|jsonl|txt|parquet|arrow", "auto: by name, then by content", 0, 0}
#define OPTION_TEXT_FIELD(name)                                                                                        \
    {"text-field", ARG_STRING, &(name), "NAME",                                                                        \
     "jsonl, parquet, arrow: the field or column that holds the text; in structs: a.b", 0, 0}
#define OPTIONS_OF_TEXTS(o)                                                                                            \
    OPTION_TEXT_FIELD((o).text_field),                                                                                 \
    {"skip-bad-lines", ARG_FLAG, &(o).skip_bad_lines, NULL,                                                            \
     "skip and count jsonl lines that are not documents (not JSON, no text) and rows without text; default: stop at "  \
     "the first",                                                                                                      \
     0, 0},                                                                                                            \
    {"no-follow", ARG_FLAG, &(o).no_follow, NULL, "skip symbolic links in folders; default: follow them", 0, 0}
/* For token files that are read. */
#define OPTION_EOD_ID(id)                                                                                              \
    {"eod-id", ARG_INT, &(id), "N", "u16, u32, megatron: the id between documents; -1: the model's eos_id, -2: none",  \
     -2, 4294967295.0}

/* ---- the machine */
#define OPTION_DEVICE(name, what)                                                                                      \
    {"device", ARG_CHOICE, &(name), "auto|cpu|cuda", what "; auto: a GPU if there is one", 0, 0}
#define OPTION_DTYPE(name)                                                                                             \
    {"dtype", ARG_CHOICE, &(name), "auto|f32|bf16", "a GPU computes in bf16 (auto) or float32", 0, 0}
/* For programs that decode. */
#define OPTION_DTYPE_I8(name)                                                                                          \
    {"dtype", ARG_CHOICE, &(name), "auto|f32|bf16|i8",                                                                 \
     "a GPU computes in bf16 (auto) or float32; i8: as auto, with the decoder's weights rounded to 8 bits", 0, 0}
#define OPTION_THREADS(count)                                                                                          \
    {"threads", ARG_INT, &(count), "N",                                                                                \
     "threads to use; 0: one for each processor that the affinity mask and CPU quota allow", 0, THREADS_MAX}
/* `where` has device and dtype. */
#define OPTIONS_OF_MACHINE(where, threads)                                                                             \
    OPTION_DEVICE((where).device, "where to compute"), OPTION_DTYPE_I8((where).dtype), OPTION_THREADS(threads)
/* The GPUs of this host that one program uses together. */
#define OPTION_DEVICES(text, what)                                                                                     \
    {"devices", ARG_STRING, &(text), "all|I,J,..",                                                                     \
     what ". all: every GPU that the program sees (CUDA_VISIBLE_DEVICES); I,J,..: those with these numbers, from 0. "  \
          "Implies --device cuda",                                                                                     \
     0, 0}

/* the text `what` for programs that retrieve */
#define DEVICES_SEARCH "search the store on several GPUs, each of which has a slice of the landmarks; hits are equal"

/* Sets where->devices to the number of GPUs (-1: all), and where->device to "cuda". For a list of numbers it sets
 * CUDA_VISIBLE_DEVICES, so that this process sees only those GPUs; so it must be called before a GPU is used.
 * text NULL: changes nothing. STATUS_INVALID: text is neither "all" nor a list of different numbers, or
 * where->device is "cpu". */
enum status devices_choose(struct device_choice *where, const char *text);
#define OPTION_MAX_RAM(bytes, help) {"max-ram", ARG_BYTES, &(bytes), "SIZE", help, 1, INFINITY}

/* ---- output */
#define OPTION_JSON(flag, help) {"json", ARG_FLAG, &(flag), NULL, help, 0, 0}
#define OPTION_JSON_TABLES(flag) OPTION_JSON(flag, "print one JSON object instead of tables")
#define OPTION_JSON_REPORT(flag) OPTION_JSON(flag, "print the report as one line of JSON")
