/* answers.h -- the file beside a token file of samples that says where each sample's answer begins (docs/tasks.md).
 *
 * "<tokens>.answers": the 8 bytes "drtansw1", then little-endian: the number of samples and of tokens (8 bytes each),
 * and for each sample the ids of its prompt (4 bytes). A sample is a document of the token file; its answer is the
 * rest of it, with the id that ends the document. */
#pragma once
#include "base/file.h"
#include <stdint.h>

struct answers { struct file_map map; int64_t samples, tokens; };
/* Of the token file `tokens_path`. STATUS_NOT_FOUND: there is none; STATUS_INVALID: it is damaged. */
enum status answers_open(struct answers *out, const char *tokens_path);
void answers_close(struct answers *a);                    /* a zeroed struct is fine */
int64_t answers_prompt(const struct answers *a, int64_t sample);   /* ids of its prompt, 0 <= sample < samples */
/* Published whole or not at all. prompts [samples]. */
enum status answers_write(const char *tokens_path, const uint32_t *prompts, int64_t samples, int64_t tokens);
