/* config.h -- the configuration of a training run, as JSON. One table has every key with its type, range and
 * default. */
#pragma once
#include "base/status.h"
#include "model/model_config.h"
#include "train/step/batches.h"
#include "train/step/schedule.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct config_strings { char **items; size_t count, capacity; };

struct train_config {
    /* model_json: text as in a model folder's config.json. start_from: folder of the initial weights; NULL: random
     * weights */
    char *model_json;
    char *start_from;
    double renew;                        /* as params_renew's cosine; 1: off */
    struct model_config model;           /* parsed by config_check */
    char *tokenizer;
    struct config_strings data, valid, pool_data, prompts;
    int64_t end_id;
    int sampling;                        /* enum sampling */
    bool samples, align;
    int64_t sequences, length, accumulate;
    struct schedule schedule;            /* steps, learning rate, pool, mlm, contrastive, seed */
    double beta1, beta2, eps, weight_decay, clip, trunk_lr;
    bool decay_embedding;
    int pool, pool_before, eval_pool;    /* enum pool_kind */
    int64_t candidates, refresh, seed;
    bool gumbel, cut_query, recompute;
    /* Token memory (training-keys.md): sizes of what is read; gradient: enum memory_gradient */
    int64_t memory_past, memory_group, memory_passages, memory_read, memory_span;
    int memory_gradient;
    bool memory_pack;
    char *memory_neighbours;
    int64_t teach_coming;
    int teach_gradient;                  /* enum teach_gradient */
    char *type;                          /* "auto", "f32", "bf16" */
    char *checkpoint_type;               /* "f32", "bf16" */
    int64_t save_every, keep, eval_every, eval_windows, sample_every, sample_tokens;
};

/* All defaults. Free with config_free. */
enum status config_defaults(struct train_config *out);
void config_free(struct train_config *c);                 /* a zeroed struct is fine */
/* Sets keys from JSON text; messages use `name` as the file's name. Fails, naming the key, for an unknown key, a wrong
 * type, a value out of range and a key given twice. */
enum status config_read(struct train_config *c, const char *name, const void *json, size_t bytes);
enum status config_load(struct train_config *c, const char *path);
/* Sets one key, as in "lr=3e-4", "mlm.rate=0.15", "pool=batch": the value is JSON, or text without quotes. */
enum status config_set(struct train_config *c, const char *assignment);
/* Replaces a key that is a list ("data", "valid"). */
enum status config_set_strings(struct config_strings *list, const char *const *items, int count);
/* Checks the keys against each other. Then completes the model (reads it from its folder), the tokenizer's path and the
 * schedule. */
enum status config_check(struct train_config *c);
/* Chunks of a sequence; for a Base LM its positions. Call after config_check. */
int64_t config_chunks(const struct train_config *c);
/* Whether the loss through a token memory reads passages of a corpus. */
bool config_reads_passages(const struct train_config *c);
/* Writes the config as JSON that config_read accepts. */
void config_write(const struct train_config *c, FILE *out);
/* Prints the table for --help: a line for each key with its default. */
void config_help(FILE *out);
