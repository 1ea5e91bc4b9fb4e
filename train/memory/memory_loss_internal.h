/* memory_loss_internal.h -- what the files of the loss through a token memory share: memory_loss.c has creation and the
 * two passes, memory_loss_batch.c what each block reads, memory_gains.c what it gains, memory_mixture.c the mixture. */
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
    struct decoder_train *passages;      /* NULL: none are read */
    enum dtype type;
    int64_t rows, sequence_rows, blocks, blocks_each;     /* n; of a sequence; N*B; B */
    int block_rows;
    int64_t all_rows;                    /* n and the passages' */
    int64_t slots;                       /* of block_rows rows each: all_rows / block_rows */
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
    int32_t *host_ids;
    float *host;                         /* [STATS + 1][n]: stats, then nll of the decoder; later what goes back */
    float *nll, *host_weight;            /* [n] */
    struct memory_loss_mixture mixture;
    bool reads;                          /* the last forward's rows had something to read at all */
    struct token_memory now;             /* of the last forward */
    float part;                          /* its weight */
    struct mat states;
};

/* Passages of a block, read or not. */
static inline int memory_passages(const struct memory_loss *m) { return m->config.passages + m->config.unread; }
struct token_memory_stats memory_loss_stats(const struct memory_loss *m);
/* Slots [blocks * k], of which the first `blocks` block_rows are: what the blocks read. */
struct memory_slots memory_loss_slots(const struct memory_loss *m, int k);

/* Whether two ranges of documents, first and last, share one. */
static inline bool memory_shares(const int32_t a[2], const int32_t b[2]) { return a[0] <= b[1] && b[0] <= a[1]; }

/* Uploads what the blocks of a batch read: slots, the passages' ids, all values. */
void memory_loss_upload(struct memory_loss *m, const struct batch *batch, bool alone);
