/* token_memory.h -- a distribution over the tokens of a memory (docs/kernels/memory.md).
 *
 *   z_i = -|s - k_i|^2 / tau    w = softmax(z)    p_mem(y) = sum of w_i over the entries i whose value is y
 *
 * states s [n, d]. An entry is a key (a row of a matrix [.., d]), its value (the token that follows it) and the key's
 * squared norm. Entries of value < 0 are ignored; their keys must be finite numbers in backward. A row reads, in one
 * softmax, the entries of its block's slots and of its own past. On the CPU states are float32 and keys of any type; on
 * a GPU keys have the type of the states. Sums run in float32. Squared distances are |s|^2 + |k|^2 - 2 s.k, not below
 * 0; an entry at distance +infinity is ignored. NaN in a state or key that is read reaches every result of the row.
 *
 * The same bits each time, with any number of threads. Bound (GPU): 2 d bytes of bf16 for each key and block of
 * rows, 2 d operations for each row and entry (backward: 6 d). Only `weights` keeps anything of size [n, entries]. */
#pragma once
#include "kernels/attention/gca.h"
#include "kernels/memory/packed_keys.h"

/* Retrieved entries. Slot s is rows s*slot_rows .. of keys, value and square. Block b is the rows row_begin[b] ..
 * row_begin[b+1]-1 (at most block_rows of them; blocks+1 numbers, rising) and reads the slots slot[b*k .. b*k+k-1]; <
 * 0: none. Blocks may share slots. Rows outside of all blocks read none. k 0: no slots.
 *
 * Packed slots, for next_token.mix and contributors alone: packed.code is not NULL. The key of row r is scale[r]
 * code[r], not rounded; keys has its shape and the type of the states, but no data, and square is not read. Slots are
 * passages of chunks of slot_step rows (packed_keys.passages): slot s begins at row s*slot_step, and of the rows of the
 * one in slot[i] only the first entries[i] are there (NULL: all). A memory with packed slots has no own past. */
struct memory_slots {
    struct mat keys;
    const int32_t *value, *slot;
    const float *square;
    const int64_t *row_begin;
    int slot_rows, blocks, k, block_rows;
    struct packed_keys packed;
    const int32_t *entries;
    int slot_step;
};

/* Own past. The states are sequences of `length` rows each; row t of sequence s has position q = first + t and
 * reads the positions max(0, q - limit) .. q-1. Position p lies in row s*ring + p % ring of keys, value and square;
 * ring >= limit + length, or all positions fit. In training keys may be the states themselves: ring = length, first 0,
 * and value of position p is the target of row p. limit 0: no past. */
struct memory_past {
    struct mat keys;
    const int32_t *value;
    const float *square;
    int64_t length, first, ring;
    int limit;
};
struct token_memory {
    struct memory_slots slots;
    struct memory_past past;
    const float *tau; /* [1], above 0 */
};

/* Of each row [n]. A row without entries: log_p and lse -inf, nearest +inf, squares and largest 0. */
struct token_memory_stats {
    float *log_p;   /* log p_mem(target); -inf if no entry has that value, or target < 0 */
    float *lse;     /* log sum exp z */
    float *nearest; /* smallest squared distance */
    float *squares; /* sum of w^2 */
    float *largest; /* largest w */
};

/* dstates [n, d], dkeys and dpast (laid out as the keys; .data NULL: not wanted) and dtau [1] (NULL: not wanted) are
 * float32 and added to; dpast may be dstates. dlog_p and dlse [n] come from the loss; nearest, squares and largest are
 * features without gradient. The gradient of a log_p that is -inf counts as 0. inverse: which blocks read each slot
 * (gca_ops.invert), for dkeys. */
struct token_memory_gradients {
    struct mat dstates, dkeys, dpast;
    float *dtau;
    const float *dlog_p, *dlse;
    struct gca_inverse inverse;
};

/* p = (1 - g) p_lm + g p_mem with g = sigmoid(gate): nll = -log p(target), and scale times its gradients. All [n]. */
struct token_memory_mix { float *nll, *dgate, *dlog_lm, *dlog_p; };

/* Columns of weights: entry j of a block's slot i is column i*slot_rows + j; then position q-1-j is column k*slot_rows
 * + j. */
static inline int64_t token_memory_columns(const struct token_memory *m) {
    return (int64_t)m->slots.k * m->slots.slot_rows + m->past.limit;
}

struct token_memory_ops {
    /* square[r] = |keys[r]|^2. */
    void (*squares)(struct device *dev, float *square, struct mat keys);
    void (*forward)(struct device *dev, struct token_memory_stats out, struct mat states,
                    const struct token_memory *memory, const int32_t *target);
    /* stats: of forward on the same arguments. */
    void (*backward)(struct device *dev, const struct token_memory_gradients *to, struct mat states,
                     const struct token_memory *memory, const int32_t *target, struct token_memory_stats stats);
    /* log_lm: log p_lm(target). Rows of target < 0: all 0. */
    void (*mix)(struct device *dev, struct token_memory_mix out, const float *log_lm, const float *log_p,
                const float *gate, const int32_t *target, int64_t n, float scale);
    /* For few rows. w [n, columns] float32: the softmax weights; 0 in columns without an entry (a row with NaN is NaN
     * in all columns). */
    void (*weights)(struct device *dev, struct mat w, struct mat states, const struct token_memory *memory);
    /* p [n, words] float32: p_mem from w. Values are below `words`. */
    void (*distribution)(struct device *dev, struct mat p, struct mat w, const struct token_memory *memory);
    /* The k columns of greatest weight, of `threshold` or more, whose value is token[r]: column and weight [n*k],
     * greatest first, ties by smaller column; -1 and 0 where there are fewer. */
    void (*contributors)(struct device *dev, int32_t *column, float *weight, struct mat w,
                         const struct token_memory *memory, const int32_t *token, int k, float threshold);
};
extern const struct token_memory_ops token_memory_cpu;
