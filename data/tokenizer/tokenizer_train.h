/* tokenizer_train.h -- makes a byte-level BPE tokenizer.json from texts.
 *
 * The file has the same bytes as the one that `BpeTrainer` of the `tokenizers` package makes from the same documents.
 * Special tokens come first, then the 256 bytes in the order of their characters, then merges, the most frequent pair
 * first, and of equally frequent pairs the one with the lowest ids. The file depends neither on the number of threads
 * nor on the order of the documents. There are two known differences: counts have 64 bits (there 32, and wrong beyond
 * 2^31), and the classes of letters, numbers and spaces are those of utf8proc's Unicode version.
 *
 * Memory grows with the distinct words (pre-tokens), not with the texts. Counting takes 48 bytes and the word's bytes
 * for each word, and a batch of text (8 MiB per thread). Merging takes 4 bytes for each byte of the distinct words, 12
 * for each word, at most 12 more for each byte for the lists of occurrences, and 80 for each distinct pair: about 100
 * MB for 50 MB of English. The time of a merge grows with the lengths of the words that it changes, so texts without
 * spaces and punctuation are slow.
 *
 * One thread calls these functions. The threads of `pool` do the work. */
#pragma once
#include "base/progress.h"
#include "base/status.h"
#include "base/system/threads.h"
#include <stddef.h>
#include <stdint.h>

struct tokenizer_train_config {
    int vocab_size;                      /* ids of the model: special tokens, 256 bytes, merges, and the reserve */
    /* the last ids, which get no token; a model can use them (padding, landmark) */
    int reserve;
    int64_t min_frequency;               /* pairs that occur less often are not merged; 0 is the same as 1 */
    const char *pattern;                 /* how text is divided into words: "gpt2" (also NULL), "llama3", "qwen2" */
    const char *const *specials; int n_specials;   /* these get the ids 0, 1, ... */
};

struct tokenizer_train_report {
    int64_t documents, bytes;            /* numbers of documents and bytes that were added */
    int64_t words, distinct;             /* words: pre-tokens in the documents; distinct: different ones */
    int64_t merges, vocab;               /* in the file */
    int64_t tokens;                      /* number of tokens of the texts when they are encoded with the result */
};

struct tokenizer_trainer;
/* Texts in the config are copied. `pool` is borrowed until the trainer is freed; NULL: one thread. */
enum status tokenizer_trainer_create(struct tokenizer_trainer **out, const struct tokenizer_train_config *config,
                                     struct threads *pool);
void tokenizer_trainer_free(struct tokenizer_trainer *t);          /* NULL is fine */

/* Adds a document. Words do not cross documents. Invalid UTF-8 counts as U+FFFD. */
enum status tokenizer_trainer_add(struct tokenizer_trainer *t, const char *text, size_t bytes);
/* Call it once, after the last document. The vocabulary is smaller than vocab_size if no pair is left. */
enum status tokenizer_trainer_merge(struct tokenizer_trainer *t, const struct progress *progress);
/* Call it after merge. The file is written under a temporary name and renamed; an existing file is replaced. */
enum status tokenizer_trainer_save(const struct tokenizer_trainer *t, const char *path);
struct tokenizer_train_report tokenizer_trainer_report(const struct tokenizer_trainer *t);
