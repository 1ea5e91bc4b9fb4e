/* config.h -- the config file of a training run: JSON; one table has every key with type, range and default. */
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
    /* model_json: text as in a model folder's config.json; start_from: the folder of the initial weights */
    char *model_json;
    char *start_from;
    struct model_config model;           /* parsed by config_check */
    char *tokenizer;
    struct config_strings data, valid, pool_data, prompts;
    int64_t end_id;
    int sampling;                        /* enum sampling */
    bool samples;
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
/* Sets the keys of JSON text; `name` is for messages. An unknown key, a wrong type, a value out of range and a
 * repeated key are errors that name the key. */
enum status config_read(struct train_config *c, const char *name, const void *json, size_t bytes);
enum status config_load(struct train_config *c, const char *path);
/* "lr=3e-4", "mlm.rate=0.15", "pool=batch": one key, the value as JSON (text without quotes). */
enum status config_set(struct train_config *c, const char *assignment);
/* Replaces a list: "data", "valid". */
enum status config_set_strings(struct config_strings *list, const char *const *items, int count);
/* Checks keys against each other, and completes the model (read from its folder), the tokenizer's path and the
 * schedule. */
enum status config_check(struct train_config *c);
/* Chunks of a sequence (Base LM: positions). After config_check. */
int64_t config_chunks(const struct train_config *c);
/* Whether the loss through a token memory reads passages of a corpus. */
bool config_reads_passages(const struct train_config *c);
/* As JSON that config_read takes; for the run's folder. */
void config_write(const struct train_config *c, FILE *out);
/* The table, a line for each key with its default, for --help. */
void config_help(FILE *out);
