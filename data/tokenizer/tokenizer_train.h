/* tokenizer_train.h -- makes a byte-level BPE tokenizer.json from texts.
 *
 * The file is the one that `BpeTrainer` of the `tokenizers` package makes of the same documents (vocabulary, merges
 * and their order; the bytes of the file too): special tokens first, then the 256 bytes in the order of their
 * characters, then merges, most frequent pair first, the pair of lowest ids among equals. It is the same for any
 * number of threads and any order of the documents. Known differences: counts are 64 bits wide (there 32, and wrong
 * beyond 2^31), and letters, numbers and spaces are those of our utf8proc's Unicode version.
 *
 * Memory: the distinct words (pre-tokens) of the texts, not the texts. Counting takes a word's bytes and 48 bytes for
 * each, and a batch of text (8 MiB a thread); merging takes 4 bytes for each byte of the distinct words, 12 for each
 * word, at most 12 more for each byte for the lists of occurrences, and 80 for each distinct pair. About 100 MB for
 * 50 MB of English. The time of a merge grows with the lengths of the words that it changes: texts without spaces and
 * punctuation are slow.
 *
 * One thread calls; the pool given at create does the work. */
#pragma once
#include "base/progress.h"
#include "base/status.h"
#include "base/system/threads.h"
#include <stddef.h>
#include <stdint.h>

struct tokenizer_train_config {
    int vocab_size;                      /* ids of the model: special tokens, 256 bytes, merges, and the reserve */
    int reserve;                         /* the last ids, which no token gets: a model's own (padding, landmark) */
    int64_t min_frequency;               /* a pair seen less often is not merged; 0 is as 1 */
    const char *pattern;                 /* how words are cut: "gpt2" (also NULL), "llama3", "qwen2" */
    const char *const *specials; int n_specials;   /* get the ids 0, 1, ... */
};

struct tokenizer_train_report {
    int64_t documents, bytes;            /* given */
    int64_t words, distinct;             /* pre-tokens in them; different ones */
    int64_t merges, vocab;               /* in the file */
    int64_t tokens;                      /* of the texts, encoded with what was trained */
};

struct tokenizer_trainer;
/* Texts in the config are copied. `pool` stays the caller's; NULL: one thread. */
enum status tokenizer_trainer_create(struct tokenizer_trainer **out, const struct tokenizer_train_config *config,
                                     struct threads *pool);
void tokenizer_trainer_free(struct tokenizer_trainer *t);          /* NULL is fine */

/* A document. Words do not cross documents. Invalid UTF-8 counts as U+FFFD. */
enum status tokenizer_trainer_add(struct tokenizer_trainer *t, const char *text, size_t bytes);
/* Call it once, after the last document. With few texts it stops below vocab_size: no pair is left. */
enum status tokenizer_trainer_merge(struct tokenizer_trainer *t, const struct progress *progress);
/* Call it after merge. The file is published whole or not at all; an existing file is replaced. */
enum status tokenizer_trainer_save(const struct tokenizer_trainer *t, const char *path);
struct tokenizer_train_report tokenizer_trainer_report(const struct tokenizer_trainer *t);
