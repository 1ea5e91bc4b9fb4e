/* wordpiece_internal.h -- for wordpiece.c and wordpiece_text.c. */
#pragma once
#include "data/wordpiece/wordpiece.h"

enum { WORDPIECE_WORD_MAX = 100 };       /* a longer word (in characters) is [UNK] */

struct wordpiece_scratch {
    uint32_t *codes; size_t n_codes, codes_capacity;      /* words, each followed by 0 */
    int32_t *ids; size_t n_ids, ids_capacity;
};

/* Normalises a text and divides it into words: s->codes. */
enum status wordpiece_text(struct wordpiece_scratch *s, struct wordpiece_options options, const char *text,
                           size_t bytes);
