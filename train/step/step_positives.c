/* step_positives.c -- the positive of each query of the contrastive loss (step_losses.c).
 *
 * In running text it is one of the next chunks. Of a sample it is the chunk of the prompt that has the longest run of
 * the answer's ids, and only the query before the answer has one: so a landmark learns to tell what a question names.
 * Of several such chunks a hash of the step's seed and of the query's number in the step selects one. */
#include "train/step/step_internal.h"

enum { ANSWER_MOST = 128, RUN_LEAST = 3 };

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

/* Length of the longest run of ids that a chunk and the answer share. */
static int step_longest_run(const struct step *s, const int32_t *chunk, const int32_t *answer, int n) {
    int longest = 0, run[ANSWER_MOST + 1] = {0}; /* run[j + 1]: the one that ends at the chunk's id and at answer[j] */
    for (int64_t i = 0; i + 1 < s->positions; i++)
        for (int j = n; j > 0; j--) {
            run[j] = chunk[i] == answer[j - 1] ? run[j - 1] + 1 : 0;
            if (run[j] > longest) longest = run[j];
        }
    return longest;
}

static int64_t step_answer_chunk(const struct step *s, const struct batch *b, int64_t r, uint64_t hash) {
    const int64_t first = r / s->config.chunks * s->config.chunks;
    int32_t answer[ANSWER_MOST];
    int longest = RUN_LEAST - 1;
    int64_t found = -1;
    uint64_t equal = 0;
    if (r + 1 >= first + s->config.chunks || step_has_target(s, b, r) || !step_has_target(s, b, r + 1)) return -1;
    const int n = step_answer(s, answer, b, r + 1);
    for (int64_t c = first; c < r; c++) {
        const int run = step_longest_run(s, b->ids + c * s->positions, answer, n);
        if (run < longest || run < RUN_LEAST) continue;
        equal = run > longest ? 1 : equal + 1;
        longest = run;
        if (hash % equal == 0) found = c;
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
