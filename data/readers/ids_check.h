/* ids_check.h -- checks that token ids come from a given tokenizer. A token file does not name its tokenizer. Ids of
 * another tokenizer, if they are in the vocabulary, would be read as other words.
 *
 * The first documents are decoded and encoded again. That reproduces ids of the same tokenizer. Ids of another one
 * decode to nonsense, which has other ids. The check does not find tokenizers that differ only in rare tokens. Ids
 * without text look like those of another tokenizer. */
#pragma once
#include "base/progress.h"
#include "data/readers/reader.h"
#include "data/tokenizer/tokenizer.h"

/* The rules for a document's ids. `reserved` ids have a meaning in a model's input and must not occur in text:
 * landmark, mask and padding. */
enum { IDS_RESERVED = 3 };
struct ids_rules {
    int vocab_size;                      /* ids at or above it belong to another model */
    int32_t reserved[IDS_RESERVED];      /* -1: none */
    const char *names[IDS_RESERVED];
};
/* STATUS_INVALID: the message names the file, the document, the position and the id. */
enum status ids_check_document(const struct ids_rules *rules, const char *source, uint64_t offset, const uint32_t *ids,
                               size_t n);

/* Writes a note for each token file of which most ids are not reproduced. Text files and unreadable
 * files are skipped. */
void ids_check(const struct progress *progress, const struct reader_config *inputs, const struct tokenizer *t);
