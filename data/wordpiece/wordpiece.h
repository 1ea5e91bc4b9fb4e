/* wordpiece.h -- text to the ids of a BERT-type encoder, from the vocab.txt of a Hugging Face folder.
 *
 * The ids are those of BertTokenizer: control characters go, Chinese characters stand alone, accents and case go where
 * the folder says so (tokenizer_config.json: do_lower_case, strip_accents, tokenize_chinese_chars), text is cut at
 * white space and punctuation, and each word becomes the longest pieces of the vocabulary from left to right. [CLS]
 * comes first, [SEP] last. The spelling of a special token inside a text is ordinary text. Characters that Unicode got
 * after version 8 have the properties of this machine's utf8proc (the `tokenizers` package has those of version 8).
 * A wordpiece may be used by many threads, each with a scratch of its own. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As tokenizer_config.json has them. strip_accents -1: as `lower`. */
struct wordpiece_options { bool lower, chinese; int strip_accents; };

struct wordpiece;
/* Reads vocab.txt, and tokenizer_config.json where there is one. STATUS_NOT_FOUND, STATUS_INVALID name the file. */
enum status wordpiece_open(struct wordpiece **out, const char *folder);
/* From the bytes of a vocab.txt, copied: a token a line, whose number from 0 is its id. `name` is for messages. */
enum status wordpiece_parse(struct wordpiece **out, const char *name, const void *data, size_t bytes,
                            struct wordpiece_options options);
/* The options that the bytes of a tokenizer_config.json give; other members are skipped. */
enum status wordpiece_options_parse(struct wordpiece_options *out, const char *name, const void *data, size_t bytes);
void wordpiece_free(struct wordpiece *w);                 /* NULL is fine */
int32_t wordpiece_vocab_size(const struct wordpiece *w);
/* XXH3-128 of the vocabulary and the options. */
void wordpiece_fingerprint(const struct wordpiece *w, uint8_t out[16]);

struct wordpiece_scratch;                                 /* per thread */
enum status wordpiece_scratch_create(struct wordpiece_scratch **out);
void wordpiece_scratch_free(struct wordpiece_scratch *s); /* NULL is fine */
/* At most `most` ids (at least 3), [CLS] and [SEP] included: what follows in the text is cut off. *ids is owned by the
 * scratch until its next use. Any bytes are safe: an invalid UTF-8 sequence is dropped, as U+FFFD is. */
enum status wordpiece_encode(const struct wordpiece *w, struct wordpiece_scratch *s, const char *text, size_t bytes,
                             size_t most, const int32_t **ids, size_t *n);
