/* gca.h -- grouped cross-attention: one softmax inside each retrieved chunk, one weight for each chunk
 * (model.md §5.2, §5.4, §5.5).
 *
 * K and V lie in a pool of slots and are read in place: chunk c's T live rows start at row slot*slot_rows of
 * pool.keys and pool.values [slots*slot_rows, h*dh].
 *
 * The n query rows are cut into blocks: block b is the rows row_begin[b] .. row_begin[b+1]-1 (row_begin has blocks+1
 * entries, rising; rows outside of all blocks get o = 0) and reads the chunks slot[b*K .. b*K+K-1]. A slot < 0 is an
 * empty place: o_k = 0, lse = -inf.
 *
 *   o_k = softmax_T(q K_k^T / sqrt(dh)) V_k        with off_by_one: one more key of score 0 and value 0
 *   lse_k = log sum exp of the same scores          (natural log; the null key counted)
 *   combine by weight (GCA):  o = sum_k weight[b, k] o_k       weights 0 or more; 0 at empty places
 *   combine by lse    (CCA):  o = sum_k softmax_k(lse_k) o_k   == one softmax over all keys; all empty: o = 0
 *
 * forward is partial + combine by weight without the stored partials: what the model runs. */
#pragma once
#include "kernels/device/device.h"
#include <stdbool.h>

struct gca_pool { struct mat keys, values; int slot_rows, live_rows; bool off_by_one; };
struct gca_blocks { const int64_t *row_begin; const int32_t *slot; const float *weight; int blocks, k; };
/* begin [slots+1], place [begin[slots]]: places b*K + k with slot[place] == s are place[begin[s]] .. place[begin[s+1]-1].
 * All memory of the device. */
struct gca_inverse { const int32_t *begin, *place; int64_t slots; };

struct gca_ops {
    /* part [K*n, h*dh]: o_k of query row r in row k*n + r; lse [K*n, h]. weight is not read. */
    void (*partial)(struct device *dev, struct mat part, struct mat lse, struct mat q, struct gca_pool pool,
                    struct gca_blocks blocks, int heads);
    /* blocks.weight NULL: by lse. */
    void (*combine)(struct device *dev, struct mat o, struct mat part, struct mat lse, struct gca_blocks blocks, int heads);
    /* Training: forward, and lse [K*n, h] float32 kept (k*n + r, as partial). */
    void (*forward_keep)(struct device *dev, struct mat o, struct mat lse, struct mat q, struct gca_pool pool,
                         struct gca_blocks blocks, int heads);
    /* dq [n, h*dh] is overwritten (0 outside of blocks); dkeys, dvalues (laid out as the pool's; float32 or the pool's
     * type) are added to over every place that chose a slot; dweight [blocks*K] float32 is overwritten. `inverse` lists
     * the places of each slot, rising, so that sums have one order: the result is the same bits each time. */
    void (*backward)(struct device *dev, struct mat dq, struct mat dkeys, struct mat dvalues, float *dweight, struct mat dout,
                     struct mat q, struct gca_pool pool, struct gca_blocks blocks, struct gca_inverse inverse, struct mat lse,
                     int heads);
    /* Makes a gca_inverse: begin [slots+1], place [places] from slot [places] (< 0: in no list). The places of a slot rise. */
    void (*invert)(struct device *dev, int32_t *begin, int32_t *place, const int32_t *slot, int64_t places, int64_t slots);
    /* o may be q. */
    void (*forward)(struct device *dev, struct mat o, struct mat q, struct gca_pool pool, struct gca_blocks blocks, int heads);
};
extern const struct gca_ops gca_cpu;
