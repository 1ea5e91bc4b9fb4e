/* tokenizer_train_internal.h -- the parts of a trainer, for the tokenizer_train_*.c files. */
#pragma once
#include "data/tokenizer/tokenizer_internal.h"
#include "data/tokenizer/tokenizer_train.h"

/* tokenizer_train_words.c: distinct words and how often each was seen. */
struct word_count { uint64_t at, hash, count; uint32_t bytes; };
struct word_table {
    struct word_count *items; size_t count, capacity;
    uint64_t *slots; size_t mask;            /* high half of the hash, number of the item + 1; 0: free */
    struct bytes text;
};
void word_table_free(struct word_table *w);

/* Texts wait in a batch, which all threads count at once: each counts its part, then takes its share of the words. */
struct slice { size_t at, bytes; };
struct counter {
    struct threads *pool;
    enum scanner scanner;
    uint8_t *classes;
    struct bytes batch;
    struct slice *slices; size_t n_slices, slices_capacity;
    int n_tables;                            /* one a thread */
    /* parts: words of the current batch; shares: of all texts, each word in one of them */
    struct word_table *parts, *shares;
    uint64_t *words;                         /* of each thread */
    bool *failed;
};
enum status counter_create(struct counter *c, const char *pattern, struct threads *pool);
enum status counter_add(struct counter *c, const char *text, size_t bytes);
enum status counter_flush(struct counter *c);
void counter_free(struct counter *c);

/* tokenizer_train_vocabulary.c: tokens as they are spelled in the file, by id. */
struct spelling { uint64_t at; uint32_t bytes; };
struct vocabulary {
    struct bytes text;
    struct spelling *items; size_t count, capacity;
    int32_t *slots; size_t mask;             /* -1: free */
    int n_specials;
    int32_t byte_id[256];
};
enum status vocabulary_create(struct vocabulary *v, const char *const *specials, int n_specials, size_t limit);
void vocabulary_free(struct vocabulary *v);
/* Returns the id of the joined spellings of left and right: a new one, unless a special token has that spelling. */
enum status vocabulary_join(struct vocabulary *v, int32_t left, int32_t right, int32_t *id);

/* tokenizer_train_pairs.c: pairs of ids by number, and the queue of merges to come. */
struct pair {
    uint64_t key;                            /* bpe_pair */
    int64_t count;
    uint32_t step, fresh;                    /* fresh: its number among the new pairs of step `step` */
};
struct pair_table { struct pair *items; size_t count, capacity; uint32_t *slots; size_t mask; };
/* a new pair is added with count 0 */
enum status pair_table_find(struct pair_table *p, uint64_t key, uint32_t *number);
void pair_table_free(struct pair_table *p);

/* A pair, its count when it was queued, and the words in which its step made it. */
struct candidate { uint64_t count, key, at; uint32_t n; };
struct queue { struct candidate *items; size_t count, capacity; };
enum status queue_push(struct queue *q, const struct candidate *c);
void queue_pop(struct queue *q);                           /* the first */
void queue_lower(struct queue *q, uint64_t count);         /* changes the first's count and moves it */
void queue_free(struct queue *q);

/* tokenizer_train_merge.c */
struct trained_merge { int32_t left, right; };
struct tokenizer_trainer {
    struct counter counter;
    struct vocabulary vocabulary;
    struct trained_merge *merges; size_t n_merges, merges_capacity;
    size_t limit;                            /* ids that tokens may take */
    uint64_t min_frequency;
    bool merged;
    struct tokenizer_train_report report;
};
enum status train_merges(struct tokenizer_trainer *t, const struct progress *progress);
