/* wordpiece.h -- encodes text to the ids of a BERT-type encoder, with the vocab.txt of a Hugging Face folder.
 *
 * The ids are those of BertTokenizer. Control characters are dropped, and each Chinese character becomes a word.
 * Accents and case are removed if the folder requires it (tokenizer_config.json: do_lower_case, strip_accents,
 * tokenize_chinese_chars). Text is divided at white space and punctuation, and each word into the longest pieces of the
 * vocabulary from left to right. [CLS] comes first, [SEP] last. The spelling of a special token within a text is
 * ordinary text. Characters that Unicode added after version 8 have the properties of this machine's utf8proc (the
 * `tokenizers` package uses version 8). Many threads may use one wordpiece, each with its own scratch. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Options of tokenizer_config.json. strip_accents -1: as `lower`. */
struct wordpiece_options { bool lower, chinese; int strip_accents; };

struct wordpiece;
/* Reads vocab.txt, and tokenizer_config.json if there is one. STATUS_NOT_FOUND, STATUS_INVALID: the message
 * names the file. */
enum status wordpiece_open(struct wordpiece **out, const char *folder);
/* Reads the bytes of a vocab.txt, which are copied. Each line is a token, and its number from 0 is the token's id.
 * Messages use `name`. */
enum status wordpiece_parse(struct wordpiece **out, const char *name, const void *data, size_t bytes,
                            struct wordpiece_options options);
/* Reads the options from the bytes of a tokenizer_config.json; other members are ignored. STATUS_UNSUPPORTED: a
 * tokenizer_class that divides words in another manner. */
enum status wordpiece_options_parse(struct wordpiece_options *out, const char *name, const void *data, size_t bytes);
void wordpiece_free(struct wordpiece *w);                 /* NULL is fine */
int32_t wordpiece_vocab_size(const struct wordpiece *w);
bool wordpiece_lowers(const struct wordpiece *w);         /* text is in lower case before it is divided */
/* Computes XXH3-128 of the vocabulary and the options. */
void wordpiece_fingerprint(const struct wordpiece *w, uint8_t out[16]);

struct wordpiece_scratch;                                 /* for one thread */
enum status wordpiece_scratch_create(struct wordpiece_scratch **out);
void wordpiece_scratch_free(struct wordpiece_scratch *s); /* NULL is fine */
/* Encodes a text to at most `most` ids (at least 3), with [CLS] and [SEP]; the rest of the text is ignored. The scratch
 * owns *ids until its next use. Any bytes are safe: an invalid UTF-8 sequence is dropped, like U+FFFD. */
enum status wordpiece_encode(const struct wordpiece *w, struct wordpiece_scratch *s, const char *text, size_t bytes,
                             size_t most, const int32_t **ids, size_t *n);
