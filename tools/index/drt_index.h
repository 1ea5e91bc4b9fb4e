/* drt_index.h -- the subcommands of drt-index, and functions for several of them. */
#pragma once
#include "decoder/decoder.h"
#include "store/store.h"
#include "session/model_folder.h"
#include <stdio.h>

/* Each gets argv with its own name first, and an array of argc operands to fill. It returns the exit code. */
int drt_index_build(int argc, char **argv, const char **operands);
int drt_index_join(int argc, char **argv, const char **operands);
int drt_index_add(int argc, char **argv, const char **operands);
int drt_index_worker(int argc, char **argv, const char **operands);
int drt_index_update(int argc, char **argv, const char **operands);
int drt_index_search(int argc, char **argv, const char **operands);
int drt_index_get(int argc, char **argv, const char **operands);
int drt_index_stats(int argc, char **argv, const char **operands);
int drt_index_verify(int argc, char **argv, const char **operands);
int drt_index_repair(int argc, char **argv, const char **operands);
int drt_index_drop(int argc, char **argv, const char **operands);
int drt_index_delete(int argc, char **argv, const char **operands);
int drt_index_compact(int argc, char **argv, const char **operands);
int drt_index_freeze(int argc, char **argv, const char **operands);
int drt_index_recall(int argc, char **argv, const char **operands);
int drt_index_export(int argc, char **argv, const char **operands);
int drt_index_keys(int argc, char **argv, const char **operands);
int drt_index_lexical(int argc, char **argv, const char **operands);
int drt_index_index(int argc, char **argv, const char **operands);
int drt_index_doctor(int argc, char **argv, const char **operands);

/* Prints "drt-index: <this thread's last message>" and returns exit code 1 (0 for STATUS_OK). */
int drt_index_exit(enum status status);
/* A store_problem that prints a line or a JSON object; context: const bool *json. */
void drt_index_problem(void *context, const char *file, const char *problem, const char *remedy);
/* Returns the exit code of a check: 0 if the store is undamaged (prints `sound`), 1 if problems remain. */
int drt_index_conclude(enum status status, const char *dir, int64_t problems, const char *sound, bool json);
/* Prints a usage error and returns exit code 2. */
int drt_index_usage(const char *command, const char *what);
/* The default of --max-ram: three quarters of what the machine and its control groups allow, at most 4 GiB. */
uint64_t drt_index_max_ram(void);
/* Members of an object that are whole numbers. */
struct json_number { const char *key; int64_t value; };
struct json_writer;
void drt_index_numbers(struct json_writer *w, const struct json_number *numbers, size_t n);
const char *drt_index_hex(char out[33], const uint8_t bytes[16]);

/* Prints the result of a build or add, as text or as one JSON object. keys: of JSON; NULL: none were to make. */
struct indexer_report;
struct stored_keys_report;
void drt_index_build_report(const struct indexer_report *r, const struct stored_keys_report *keys, const char *store,
                            bool json);
void drt_index_update_report(const struct indexer_report *r, const struct stored_keys_report *keys, const char *store,
                             bool dry_run, bool json);

/* Parses --lexical on|off; NULL: keeps what the store has. */
enum store_lexical_choice drt_index_lexical_choice(const char *text);
/* build --part. `text`: the option's value; NULL: the whole corpus. drt_index_part_check sets the other members and
 * returns -1, or the exit code of a usage error. _enter makes the folders STORE and STORE/part-i-of-N and sets *store
 * to the second. After a failure _leave removes those that are empty and that _enter made. */
struct drt_index_part {
    const char *text; int part, parts;
    const char *folder; bool made_folder, made_store;     /* STORE; what _enter made */
    char store[FILE_PATH_MAX];
};
int drt_index_part_check(struct drt_index_part *p, const char *index, const char *vectors);
/* Parses "i/N", with i from 1 to N. Returns false for other texts. */
bool drt_index_part_parse(struct drt_index_part *p);
enum status drt_index_part_enter(struct drt_index_part *p, const char **store);
void drt_index_part_leave(const struct drt_index_part *p, enum status s);

/* The documents that a command removes: prints the first 10 of them, all, or JSON. _add is the callback of store_drop
 * and store_delete. */
struct drt_index_listing { bool json, all; int64_t listed; };
void drt_index_listing_add(void *context, int64_t shard, const struct store_document *d);
void drt_index_listing_end(const struct drt_index_listing *l, int64_t documents);
/* Prints the last line: on standard output, or after JSON on standard error. */
void drt_index_listing_report(const struct drt_index_listing *l, const char *text);

/* A store and its newest view, opened together. */
struct opened_store { struct store *store; struct store_view *view; struct store_info info; };
enum status opened_store_open(struct opened_store *out, const char *dir);
void opened_store_close(struct opened_store *s);          /* a zeroed struct is fine */

/* A chunk with its position and text, as search and get print it. rank 0: it is not a hit of a search,
 * and has no score. */
struct hit_view {
    int rank;
    float score;
    const struct store_chunk *chunk;
    const struct store_document *document;
    const char *text; size_t bytes;
};
/* Prints it to stdout as text: the position, then the text on one line. */
void drt_index_hit_text(const struct hit_view *h);
/* Writes it as one object. method: of the search (searcher_describe); NULL: left out. */
void drt_index_hit_json(struct json_writer *w, const struct hit_view *h, const char *method);
/* Writes the members "source", "key", "line", "offset" of a document. */
void drt_index_document_json(struct json_writer *w, const struct store_document *d);
