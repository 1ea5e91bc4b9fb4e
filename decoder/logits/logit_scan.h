/* logit_scan.h -- passes over the logits of a vocabulary in blocks of 64 ids: largest logits, weights, units
 * (kernels/pick/pick_rule.h) and their running sums, the best ids. The sampler and log-probabilities are made of them.
 *
 * All results have the same bits on every target: exp is a polynomial, 16 lanes are summed in a fixed order, and
 * products and sums are not contracted (CMakeLists.txt). NaN is in no result: it counts as -infinity.
 *
 * Logits are borrowed and not changed. A block with changed logits is a copy ("own"); the last block is one if the
 * vocabulary does not fill it. One thread at a time. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

enum { LOGIT_BLOCK = 64, LOGIT_BEST_MAX = 512 };

/* Of which ids `sums` are: logits of at least `logit` in blocks up to `last`, `above` after it, units of `least`. */
struct logit_counted { float logit, above; int64_t last; uint32_t least; };
struct logit_scan {
    int64_t n, blocks;                   /* ids; blocks of them */
    const float *logits;                 /* [n] of logit_scan_begin */
    uint8_t *is_own;                     /* [blocks] */
    float *own;                          /* [blocks, LOGIT_BLOCK]; only blocks with is_own are set */
    float *tops; float top;              /* [blocks + 3], of logit_scan_tops */
    uint32_t *units;                     /* [blocks, LOGIT_BLOCK], of logit_scan_units */
    uint64_t *sums;                      /* [blocks] running sums of units, of logit_scan_units and _narrow */
    struct logit_counted counted;
    int64_t *keys;                       /* [3, LOGIT_BEST_MAX] of logit_scan_gather, _best, _few; the rest: scratch */
};
/* n > 0. A failure leaves nothing to release. */
enum status logit_scan_create(struct logit_scan *out, int64_t n);
void logit_scan_release(struct logit_scan *s);            /* a zeroed struct is fine */

/* Other logits [n], borrowed while they are scanned; nothing is changed in them yet. */
void logit_scan_begin(struct logit_scan *s, const float *logits);
/* Logits of a block, to be changed before logit_scan_tops. */
float *logit_scan_change(struct logit_scan *s, int64_t block);
/* The id counts as one of logit -infinity; also after logit_scan_tops, if tops may then be too large. */
void logit_scan_hide(struct logit_scan *s, int64_t id);
float logit_scan_at(const struct logit_scan *s, int64_t id);

/* The largest logit of each block and of all; -infinity where there is no number above it. */
void logit_scan_tops(struct logit_scan *s);
/* The smallest id with that logit, which is not -infinity. */
int64_t logit_scan_first_top(const struct logit_scan *s);

/* The sum of exp(logit - top), each within 2 ulp, 0 below e^-86. top is finite. */
double logit_scan_sum_exp(const struct logit_scan *s);
/* scale of pick_rule.h; temperature > 0. */
float logit_scale(float temperature);
/* units = pick_unit of each logit; their running sums and total. top is finite. */
uint64_t logit_scan_units(struct logit_scan *s, float scale);
/* The same units of other logits, [n rounded up to a multiple of LOGIT_BLOCK]. */
void logit_units(uint32_t *out, const float *logits, int64_t n, float top, float scale);
/* Running sums of the units >= `least` of those ids alone whose logit is greater than `logit`, or equal and the id is
 * in a block up to that of `id`. least >= 1. Returns the total. */
uint64_t logit_scan_narrow(struct logit_scan *s, float logit, int64_t id, uint32_t least);
/* The id at which the running sums exceed `draw` < total; its unit is not 0. */
int64_t logit_scan_find(const struct logit_scan *s, uint64_t draw);

/* Keys of the ids with logits >= `least`, ascending by id; -1 if they are more than `most` <= LOGIT_BEST_MAX. After
 * _tops. */
int64_t logit_scan_gather(struct logit_scan *s, float least, int64_t most);
/* Keys sort as ids do: larger logits first, equal ones by id. -0 is 0. */
void logit_keys_sort(int64_t *keys, int64_t *scratch, int64_t n);
static inline int32_t logit_key_id(int64_t key) { return (int32_t)(uint32_t)((uint64_t)key & UINT32_MAX); }
float logit_key_logit(int64_t key);
/* Keys of the k <= LOGIT_BEST_MAX best ids, sorted; fewer if fewer logits are above -infinity. After _tops. Hides ids
 * outside of them. */
int64_t logit_scan_best(struct logit_scan *s, int64_t k);
/* The same ids, ascending by id. */
int64_t logit_scan_few(struct logit_scan *s, int64_t k);
/* The smallest logit of the k best. Hides the ids that are equal to it and not among them. -FLT_MAX if fewer than k
 * logits are above -infinity. After _tops. */
float logit_scan_kth(struct logit_scan *s, int64_t k);
