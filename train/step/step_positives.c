/* step_positives.c -- the positive of each query of the contrastive loss (step_losses.c).
 *
 * In running text it is one of the next chunks. Of a sample only the query before the answer has one: a chunk of the
 * prompt that has a run of the answer's ids. So a landmark learns to tell what a question names. If the end of a chunk
 * cuts a statement before its value, the words of the question are in the chunk before, which is then the positive. Of
 * several chunks a hash of the step's seed and of the query's number in the step selects one, so that over the steps
 * all of them are ranked above the others. */
#include "train/step/step_internal.h"

enum { ANSWER_MOST = 128, QUESTION = 24, RUN_LEAST = 3 };

static uint64_t step_positive_hash(const struct step *s, const struct step_now *now, int64_t r, int64_t first_row) {
    return step_mix(step_mix(now->seed ^ 0x7265616368u) + (uint64_t)(first_row / s->positions + r));
}

static bool step_has_target(const struct step *s, const struct batch *b, int64_t chunk) {
    for (int64_t i = 0; i < s->positions; i++)
        if (b->targets[chunk * s->positions + i] >= 0) return true;
    return false;
}

/* The ids of the answer whose first target is in chunk c, without the end of the document. */
static int step_answer(const struct step *s, int32_t ids[ANSWER_MOST], const struct batch *b, int64_t c) {
    const int64_t end = (c / s->config.chunks + 1) * s->config.chunks * s->positions;
    int n = 0;
    for (int64_t row = c * s->positions; row < end && n < ANSWER_MOST; row++)
        if (b->targets[row] >= 0) ids[n++] = b->targets[row];
    return n > 1 ? n - 1 : n;
}

/* The last ids of the prompt whose answer's first target is in chunk c. */
static int step_question(const struct step *s, int32_t ids[QUESTION], const struct batch *b, int64_t c) {
    int64_t row = c * s->positions, first = c / s->config.chunks * s->config.chunks * s->positions;
    int n = 0;
    while (b->targets[row] < 0)
        row++;
    for (; row >= first && n < QUESTION; row--)
        if (row % s->positions != s->positions - 1) ids[QUESTION - ++n] = b->ids[row];
    for (int i = 0; i < QUESTION - n; i++)
        ids[i] = -1;
    return QUESTION;
}

/* Whether chunk c has a run of RUN_LEAST of these ids. */
static bool step_shares_run(const struct step *s, const struct batch *b, int64_t c, const int32_t *ids, int n) {
    const int32_t *chunk = b->ids + c * s->positions;
    for (int64_t i = 0; i + RUN_LEAST < s->positions; i++)
        for (int j = 0; j + RUN_LEAST <= n; j++) {
            int run = 0;
            while (run < RUN_LEAST && chunk[i + run] == ids[j + run] && ids[j + run] >= 0)
                run++;
            if (run == RUN_LEAST) return true;
        }
    return false;
}

static int64_t step_answer_chunk(const struct step *s, const struct batch *b, int64_t r, uint64_t hash) {
    const int64_t first = r / s->config.chunks * s->config.chunks;
    int32_t answer[ANSWER_MOST], question[QUESTION];
    int64_t found = -1;
    uint64_t equal = 0;
    if (r + 1 >= first + s->config.chunks || step_has_target(s, b, r) || !step_has_target(s, b, r + 1)) return -1;
    const int n = step_answer(s, answer, b, r + 1), m = step_question(s, question, b, r + 1);
    for (int64_t c = first; c < r; c++) {
        if (!step_shares_run(s, b, c, answer, n)) continue;
        const bool cut =
            c > first && !step_shares_run(s, b, c, question, m) && step_shares_run(s, b, c - 1, question, m);
        if (hash % ++equal == 0) found = cut ? c - 1 : c;
    }
    return found;
}

int64_t step_positive(const struct step *s, const struct batch *b, const struct step_now *now, int64_t r,
                      int64_t first_row) {
    const uint64_t hash = step_positive_hash(s, now, r, first_row);
    const int64_t reach = now->contrastive_reach;
    if (b->samples) return step_answer_chunk(s, b, r, hash);
    int64_t by = reach > 1 ? 1 + (int64_t)(hash % (uint64_t)reach) : 1;
    while (by > 0 && !step_chunk_continues(s, b, r, by))
        by--;
    return by > 0 ? r + by : -1;
}
