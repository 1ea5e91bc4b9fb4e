/* rouge.h -- ROUGE-1, ROUGE-2 and ROUGE-L (Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", 2004) as the
 * Python package rouge-score computes them without its stemmer: words are the runs of a-z and 0-9 of the text in lower
 * case; for ROUGE-L the whole text is one sentence. */
#pragma once
#include "base/status.h"
#include <stddef.h>

enum rouge_kind { ROUGE_1, ROUGE_2, ROUGE_L, ROUGE_KINDS };
extern const char *const rouge_names[ROUGE_KINDS];        /* "rouge1", "rouge2", "rougeL" */

/* Each is in [0, 1]. All are 0 if one of the texts has no word (ROUGE-2: fewer than two words). */
struct rouge_score { double precision, recall, f; };
/* Scores the text `answer` against `target`. The time is proportional to the product of their numbers of words. */
enum status rouge(struct rouge_score out[ROUGE_KINDS], const char *target, size_t target_bytes, const char *answer,
                  size_t answer_bytes);
