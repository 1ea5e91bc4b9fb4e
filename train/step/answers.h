/* answers.h -- the file of answers beside a token file of samples: it tells where each sample's answer begins
 * (docs/tasks.md).
 *
 * "<tokens>.answers" holds the 8 bytes "drtansw1", then in little-endian order the number of samples and of tokens (8
 * bytes each), and for each sample the number of ids of its prompt (4 bytes). A sample is a document of the token file.
 * Its answer is the rest of the document, including the id that ends it. */
#pragma once
#include "base/file.h"
#include <stdint.h>

struct answers { struct file_map map; int64_t samples, tokens; };
/* Opens the file of answers of the token file `tokens_path`. STATUS_NOT_FOUND: there is none. STATUS_INVALID: it is
 * damaged. */
enum status answers_open(struct answers *out, const char *tokens_path);
void answers_close(struct answers *a);                    /* a zeroed struct is fine */
int64_t answers_prompt(const struct answers *a, int64_t sample);   /* ids of the prompt of sample 0 .. samples - 1 */
/* Writes the file, whole or not at all. prompts [samples]: ids of each prompt. */
enum status answers_write(const char *tokens_path, const uint32_t *prompts, int64_t samples, int64_t tokens);
