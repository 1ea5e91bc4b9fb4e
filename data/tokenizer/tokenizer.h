/* tokenizer.h -- text to ids and back, from a Hugging Face tokenizer.json.
 *
 * Supports byte-level BPE (GPT-2, GPT-NeoX, Llama-3, Qwen split patterns; NFC) and SentencePiece-style BPE with byte
 * fallback, with added and special tokens. The ids are those of the `tokenizers` package, also for the characters that
 * its versions of Unicode lack or add (9 for normal forms, 16 for letters and numbers). Only split patterns other than
 * the three named above, and single_word, have the versions of this machine's PCRE2 and utf8proc. A part of the file
 * that is not supported is an error that names it; no part is ignored. Many threads may use one tokenizer, each with
 * its own tokenizer_scratch. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;
enum status tokenizer_open(struct tokenizer **out, const char *path);
void tokenizer_free(struct tokenizer *t);                 /* NULL is fine */
int tokenizer_vocab_size(const struct tokenizer *t);      /* highest id + 1, added tokens included */
int32_t tokenizer_id(const struct tokenizer *t, const char *token);   /* id of a token's spelling; -1: none */
const char *tokenizer_token(const struct tokenizer *t, int32_t id);   /* the spelling; NULL: no such id */
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);
/* Returns the bytes of an id within a text, which may be a part of a character. They are borrowed and have no NUL.
 * NULL: no such id. */
const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *bytes);
/* XXH3-128 of the file's bytes, for fingerprints. */
void tokenizer_fingerprint(const struct tokenizer *t, uint8_t out[16]);

struct tokenizer_scratch;                                 /* for one thread: buffers, and a cache of words */
enum status tokenizer_scratch_create(struct tokenizer_scratch **out, const struct tokenizer *t);
void tokenizer_scratch_free(struct tokenizer_scratch *s); /* NULL is fine */

enum tokenizer_specials {
    TOKENIZER_LITERAL,                   /* corpora: the spelling of a special token is ordinary text */
    TOKENIZER_RECOGNISE,                 /* prompts: special tokens written out become their ids */
};
/* Encodes; *ids is owned by the scratch and valid until its next use. No template (BOS, EOS) is added. Any bytes are
 * safe: an invalid UTF-8 sequence counts as U+FFFD. At most 512 MiB at once. */
enum status tokenizer_encode(const struct tokenizer *t, struct tokenizer_scratch *s, const char *text, size_t bytes,
                             enum tokenizer_specials specials, const int32_t **ids, size_t *n_ids);

/* Decodes all ids into the scratch (NUL-terminated). skip_special drops special tokens. An id without a token gives
 * U+FFFD. */
enum status tokenizer_decode(const struct tokenizer *t, struct tokenizer_scratch *s, const int32_t *ids, size_t n_ids,
                             bool skip_special, const char **text, size_t *bytes);

/* Decodes ids as they arrive, without returning parts of a UTF-8 character. The bytes of all calls, including the final
 * flush, are those of tokenizer_decode. Invalid sequences become U+FFFD. */
struct tokenizer_stream { uint8_t pending[8]; int n_pending; bool started, skip_special; };
void tokenizer_stream_start(struct tokenizer_stream *st, bool skip_special);
enum status tokenizer_stream_push(const struct tokenizer *t, struct tokenizer_stream *st, struct tokenizer_scratch *s,
                                  int32_t id, const char **text, size_t *bytes);
enum status tokenizer_stream_flush(struct tokenizer_stream *st, struct tokenizer_scratch *s, const char **text,
                                   size_t *bytes);
