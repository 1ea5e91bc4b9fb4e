/* rouge.c -- see rouge.h. Words are numbered once. N-grams of two words are then 64-bit keys, which are
 * counted by sorting. */
#include "tools/tasks/rouge.h"
#include "base/memory.h"
#include "base/minmax.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

const char *const rouge_names[ROUGE_KINDS] = {"rouge1", "rouge2", "rougeL"};

struct rouge_word {
    const char *text;
    uint32_t bytes, number;
};
struct rouge_text {
    char *lower;
    struct rouge_word *words;
    uint64_t *ids;
    size_t n;
};

static void rouge_text_free(struct rouge_text *t) {
    memory_free(t->lower);
    memory_free(t->words);
    memory_free(t->ids);
}

/* Handles the two characters beyond ASCII whose lower case begins with an ASCII letter: U+0130, a capital i with a dot,
 * whose lower case also has a mark, and U+212A, the kelvin sign. *used: their bytes. */
static char rouge_fold(const char *text, size_t bytes, size_t *used) {
    const unsigned char c = (unsigned char)text[0];
    *used = 1;
    if (c >= 'A' && c <= 'Z') return (char)(c - 'A' + 'a');
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) return (char)c;
    if (bytes >= 2 && memcmp(text, "\xc4\xb0", 2) == 0) {
        *used = 2;
        return 'i';
    }
    if (bytes >= 3 && memcmp(text, "\xe2\x84\xaa", 3) == 0) {
        *used = 3;
        return 'k';
    }
    return 0;
}

static enum status rouge_read(struct rouge_text *t, const char *text, size_t bytes) {
    size_t n = 0;
    if (bytes > UINT32_MAX) return fail(STATUS_INVALID, "a text of more than 4 GiB");
    TRY(memory_allocate(&t->lower, bytes + 1));
    TRY(memory_allocate(&t->words, bytes / 2 + 1));
    TRY(memory_allocate(&t->ids, bytes / 2 + 1));
    for (size_t at = 0, start = 0; at <= bytes;) {
        size_t used = 1;
        char c = at < bytes ? rouge_fold(text + at, bytes - at, &used) : 0;
        if (c) t->lower[n++] = c;
        /* the mark in the lower case of U+0130 separates words */
        if ((!c || used == 2) && n > start) {
            t->words[t->n] =
                (struct rouge_word){.text = t->lower + start, .bytes = (uint32_t)(n - start), .number = (uint32_t)t->n};
            t->n++;
        }
        if (!c || used == 2) start = n;
        at += used;
    }
    return STATUS_OK;
}

static int rouge_compare_words(const void *a, const void *b) {
    const struct rouge_word *const *x = a, *const *y = b;
    int order = memcmp((*x)->text, (*y)->text, (size_t)min_i64((*x)->bytes, (*y)->bytes));
    return order ? order : ((*x)->bytes > (*y)->bytes) - ((*x)->bytes < (*y)->bytes);
}

/* Gives equal words of both texts equal ids, below 2^32. */
static enum status rouge_number(struct rouge_text *a, struct rouge_text *b) {
    const size_t n = a->n + b->n;
    const struct rouge_word **all;
    TRY(memory_allocate(&all, n + 1));
    for (size_t i = 0; i < n; i++)
        all[i] = i < a->n ? &a->words[i] : &b->words[i - a->n];
    qsort(all, n, sizeof(struct rouge_word *), rouge_compare_words);
    uint64_t id = 0;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && rouge_compare_words(&all[i - 1], &all[i]) != 0) id++;
        const bool first = all[i] >= a->words && all[i] < a->words + a->n;
        (first ? a : b)->ids[all[i]->number] = id;
    }
    memory_free(all);
    return STATUS_OK;
}

static struct rouge_score rouge_of_counts(double same, double target, double answer) {
    struct rouge_score s = {0};
    if (target <= 0 || answer <= 0) return s;
    s.precision = same / answer;
    s.recall = same / target;
    if (same > 0) s.f = 2 * s.precision * s.recall / (s.precision + s.recall);
    return s;
}

static int rouge_compare_keys(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static size_t rouge_keys(uint64_t *out, const struct rouge_text *t, size_t n) {
    const size_t count = t->n >= n ? t->n - n + 1 : 0;
    for (size_t i = 0; i < count; i++)
        out[i] = n == 1 ? t->ids[i] : t->ids[i] << 32 | t->ids[i + 1];
    qsort(out, count, sizeof *out, rouge_compare_keys);
    return count;
}

static enum status rouge_ngrams(struct rouge_score *out, const struct rouge_text *target,
                                const struct rouge_text *answer, size_t n) {
    uint64_t *a;
    TRY(memory_allocate(&a, target->n + answer->n + 2));
    uint64_t *b = a + target->n + 1;
    const size_t n_a = rouge_keys(a, target, n), n_b = rouge_keys(b, answer, n);
    size_t i = 0, j = 0, same = 0;
    while (i < n_a && j < n_b) {
        const uint64_t x = a[i], y = b[j];
        same += x == y;
        i += x <= y;
        j += y <= x;
    }
    memory_free(a);
    *out = rouge_of_counts((double)same, (double)n_a, (double)n_b);
    return STATUS_OK;
}

/* Finds the longest common subsequence, one row of the table at a time. */
static enum status rouge_longest(struct rouge_score *out, const struct rouge_text *target,
                                 const struct rouge_text *answer) {
    uint32_t *row;
    TRY(memory_allocate_zero(&row, answer->n + 1));
    for (size_t i = 0; i < target->n; i++) {
        uint32_t diagonal = 0;
        for (size_t j = 0; j < answer->n; j++) {
            const uint32_t above = row[j + 1];
            row[j + 1] = target->ids[i] == answer->ids[j] ? diagonal + 1 : above > row[j] ? above : row[j];
            diagonal = above;
        }
    }
    *out = rouge_of_counts(row[answer->n], (double)target->n, (double)answer->n);
    memory_free(row);
    return STATUS_OK;
}

static enum status rouge_score_texts(struct rouge_score out[ROUGE_KINDS], struct rouge_text *target,
                                     struct rouge_text *answer) {
    TRY(rouge_number(target, answer));
    TRY(rouge_ngrams(&out[ROUGE_1], target, answer, 1));
    TRY(rouge_ngrams(&out[ROUGE_2], target, answer, 2));
    return rouge_longest(&out[ROUGE_L], target, answer);
}

enum status rouge(struct rouge_score out[ROUGE_KINDS], const char *target, size_t target_bytes, const char *answer,
                  size_t answer_bytes) {
    struct rouge_text a = {0}, b = {0};
    enum status status;
    TRY_GOTO(status, rouge_read(&a, target, target_bytes), out);
    TRY_GOTO(status, rouge_read(&b, answer, answer_bytes), out);
    status = rouge_score_texts(out, &a, &b);
out:
    rouge_text_free(&a);
    rouge_text_free(&b);
    return status;
}
