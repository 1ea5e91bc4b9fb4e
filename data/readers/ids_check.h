/* ids_check.h -- did this tokenizer make these ids? A token file does not say, and ids that fit would be read as other words.
 *
 * The first documents are turned into text and encoded again: a tokenizer's own ids come back, those of another one spell
 * nonsense that is cut up otherwise. What differs in rare tokens alone is not seen, and ids that are no text look foreign. */
#pragma once
#include "base/progress.h"
#include "data/readers/reader.h"
#include "data/tokenizer/tokenizer.h"

/* What a document's ids must keep to. `reserved` ids mark places in a model's input and are no text: the landmark, mask
 * and pad ids. */
enum { IDS_RESERVED = 3 };
struct ids_rules {
    int vocab_size;                      /* ids at or above it are of another model */
    int32_t reserved[IDS_RESERVED];      /* -1: none */
    const char *names[IDS_RESERVED];
};
/* STATUS_INVALID names the file, the document, the position and the id. */
enum status ids_check_document(const struct ids_rules *rules, const char *source, uint64_t offset, const uint32_t *ids,
                               size_t n);

/* A note for each token file of which most ids do not come back; nothing about text, or about what cannot be read. */
void ids_check(const struct progress *progress, const struct reader_config *inputs, const struct tokenizer *t);
