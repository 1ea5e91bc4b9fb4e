/* ids_check.h -- did this tokenizer make these ids? A token file does not say, and ids that fit would be read as other words.
 *
 * The first documents are turned into text and encoded again: a tokenizer's own ids come back, those of another one spell
 * nonsense that is cut up otherwise. What differs in rare tokens alone is not seen, and ids that are no text look foreign. */
#pragma once
#include "base/progress.h"
#include "data/readers/reader.h"
#include "data/tokenizer/tokenizer.h"

/* A note for each token file of which most ids do not come back; nothing about text, or about what cannot be read. */
void ids_check(const struct progress *progress, const struct reader_config *inputs, const struct tokenizer *t);
