/* memory_loss_internal.h -- shared by the files of the loss through a token memory. memory_loss.c: creation and the two
 * passes; memory_loss_batch.c: lists of slots; memory_gains.c: gains of passages; memory_mixture.c: the mixture. */
#pragma once
#include "kernels/device/carve.h"
#include "kernels/ops.h"
#include "train/memory/memory_loss.h"
#include "train/memory/memory_mixture.h"

enum { STATS = 5 };                      /* arrays of token_memory_stats */

struct memory_loss {
    struct device *dev;
    struct model_config model;
    struct memory_loss_config config;
    const struct weights *weights, *gradients, *parameters;
    struct decoder_train *passages;      /* NULL: no passages are read */
    enum dtype type;
    int64_t rows, sequence_rows, blocks, blocks_each;     /* n; n / N; N*B; B */
    int block_rows;
    int64_t all_rows;                    /* of block_rows rows each: all_rows / block_rows */
    int64_t slots;                       /* most slots that a block reads */
    int k;                               /* slots that a block lists */
    void *memory;
    size_t bytes;
    struct mat keys, gradient, dkeys, dkeys_typed;        /* [all_rows, key size]; the middle two float32 */
    struct mat dstates, dpassages;       /* [n, d], [passages' rows, d]; data NULL without a trunk's gradient */
    int32_t *value, *slot, *passage_ids;
    float *square, *stats, *dlog_p, *dlse, *row_weight, *tau, *dtau;
    int64_t *row_begin;
    int32_t *inverse_begin, *inverse_entry;
    /* host */
    int32_t *ids_host;
    /* [STATS + 1][n]: statistics, then the decoder's nll; after the mixture, the gradients to upload */
    float *host;
    float *nll, *weight_host;            /* [n] */
    struct memory_loss_mixture mixture;
    bool reads;                          /* whether the rows of the last forward could read entries */
    struct token_memory now;             /* arguments of the last forward's op */
    float part;                          /* weight of the mixture in the last forward */
    struct mat states;
};

/* Number of passages of a block, read or not. */
static inline int memory_passages(const struct memory_loss *m) { return m->config.passages + m->config.unread; }
struct token_memory_stats memory_loss_stats(const struct memory_loss *m);
/* Slots that the blocks read, [blocks * k]. The first `blocks` slots are the blocks themselves. */
struct memory_slots memory_loss_slots(const struct memory_loss *m, int k);

/* Whether two ranges of documents, each [first, last], have a document in common. */
static inline bool memory_shares(const int32_t a[2], const int32_t b[2]) { return a[0] <= b[1] && b[0] <= a[1]; }

/* Uploads the lists of slots of a batch, the ids of the passages, and the value of every entry. */
void memory_loss_upload(struct memory_loss *m, const struct batch *batch, bool alone);
