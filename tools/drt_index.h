/* drt_index.h -- the subcommands of drt-index and what they share. */
#pragma once
#include "decoder/decoder.h"
#include "store/store.h"
#include "tools/model_folder.h"
#include <stdio.h>

/* Each gets argv[0] = its own name and room for argc operands, and returns the exit code. */
int drt_index_build(int argc, char **argv, const char **operands);
int drt_index_add(int argc, char **argv, const char **operands);
int drt_index_search(int argc, char **argv, const char **operands);
int drt_index_stats(int argc, char **argv, const char **operands);
int drt_index_verify(int argc, char **argv, const char **operands);
int drt_index_repair(int argc, char **argv, const char **operands);
int drt_index_recall(int argc, char **argv, const char **operands);
int drt_index_export(int argc, char **argv, const char **operands);
int drt_index_doctor(int argc, char **argv, const char **operands);

/* Prints "drt-index: <this thread's last message>" and gives exit code 1 (0 for STATUS_OK). */
int drt_index_exit(enum status status);
/* Prints a usage error and gives exit code 2. */
int drt_index_usage(const char *command, const char *what);
const char *drt_index_hex(char out[33], const uint8_t bytes[16]);

/* A store and its newest view, opened together. */
struct opened_store { struct store *store; struct store_view *view; struct store_info info; };
enum status opened_store_open(struct opened_store *out, const char *dir);
void opened_store_close(struct opened_store *s);          /* a zeroed struct is fine */

/* The decoder's own query for a text: the normed landmark state behind its last chunk (see drt_index_query.c).
 * out [hidden]. */
enum status drt_index_query(float *out, struct device *device, const struct model_folder *model, const char *text, size_t bytes);
