/* gca.h -- grouped cross-attention: one softmax inside each retrieved chunk, one weight for each chunk
 * (model.md §5.2, §5.4, §5.5).
 *
 * K and V lie in a pool of slots and are read in place: the T live rows of the chunk in a slot start at row
 * slot*slot_rows of pool.keys and pool.values [slots*slot_rows, h*dh].
 *
 * The n query rows are divided into blocks: block b is the rows row_begin[b] .. row_begin[b+1]-1 (row_begin has
 * blocks+1 numbers, rising; rows outside of all blocks get o = 0). It reads the chunks in slot[b*K .. b*K+K-1]. The
 * index b*K+k of that array is called an entry. An entry with a slot < 0 is empty: o_k = 0, lse = -inf.
 *
 *   o_k = softmax_T(q K_k^T / sqrt(dh)) V_k        with off_by_one: one more key of score 0 and value 0
 *   lse_k = log sum exp of the same scores          (natural log; the null key included)
 *   combine by weight (GCA):  o = sum_k weight[b, k] o_k       weights 0 or more; 0 at empty entries
 *   combine by lse    (CCA):  o = sum_k softmax_k(lse_k) o_k   == one softmax over all keys; all empty: o = 0
 *
 * forward is partial + combine by weight, without storing the parts. The model runs forward. */
#pragma once
#include "kernels/device/device.h"
#include <stdbool.h>

struct gca_pool { struct mat keys, values; int slot_rows, live_rows; bool off_by_one; };
struct gca_blocks { const int64_t *row_begin; const int32_t *slot; const float *weight; int blocks, k; };
/* The entries of each slot: entry[begin[s]] .. entry[begin[s+1]-1] are the entries e with slot[e] == s, rising.
 * begin [slots+1], entry [begin[slots]]; memory of the device. */
struct gca_inverse { const int32_t *begin, *entry; int64_t slots; };
/* Results of backward. dq [n, h*dh] is overwritten (0 outside of blocks). dkeys, dvalues (shaped as the pool's; float32
 * or the pool's type) are added to, over every entry that reads a slot. dweight [blocks*K] float32 is overwritten. */
struct gca_gradients { struct mat dq, dkeys, dvalues; float *dweight; };

struct gca_ops {
    /* part [K*n, h*dh]: o_k of query row r in row k*n + r; lse [K*n, h]. weight is not read. */
    void (*partial)(struct device *dev, struct mat part, struct mat lse, struct mat q, struct gca_pool pool,
                    struct gca_blocks blocks, int heads);
    /* blocks.weight NULL: by lse. */
    void (*combine)(struct device *dev, struct mat o, struct mat part, struct mat lse, struct gca_blocks blocks,
                    int heads);
    /* Training: forward; lse [h*K, n] float32 (row head*K + k: lse_k of that head's query rows) is kept for backward. A
     * GPU computes one head at a time, so it reads and writes whole lines. */
    void (*forward_keep)(struct device *dev, struct mat o, struct mat lse, struct mat q, struct gca_pool pool,
                         struct gca_blocks blocks, int heads);
    /* lse [h*K, n]: what forward_keep wrote. The inverse list gives sums a fixed order: the result has the same bits
     * each time. Heads: lse.rows / K; K at least 1. */
    void (*backward)(struct device *dev, const struct gca_gradients *to, struct mat dout, struct mat q,
                     struct gca_pool pool, struct gca_blocks blocks, struct gca_inverse inverse, struct mat lse);
    /* Makes a gca_inverse: begin [slots+1], entry [entries] from slot [entries] (< 0: in no list). */
    void (*invert)(struct device *dev, int32_t *begin, int32_t *entry, const int32_t *slot, int64_t entries,
                   int64_t slots);
    /* o may be q. */
    void (*forward)(struct device *dev, struct mat o, struct mat q, struct gca_pool pool, struct gca_blocks blocks,
                    int heads);
};
extern const struct gca_ops gca_cpu;
