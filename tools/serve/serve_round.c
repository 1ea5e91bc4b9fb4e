/* serve_round.c -- which prompts a round reads, and in which order: the shortest first, because then fewer clients wait
 * for the first token, and no more ids than a round may have, so that running streams and new requests do not wait for
 * all prompts. A prompt that several rounds left out precedes shorter ones, so that each one is read in the end.
 *
 * A round reads a part of one prompt at least, and of prompts that wait too long those first that have waited longest.
 * So k such prompts are read a part each in k rounds, whatever else arrives, and one of them alone in every
 * PATIENCE + 1 rounds (tests/unit/tools/serve/test_serve_round.c).
 *
 * The ids of a prompt stand for its time. Retrieval is not counted: it grows with the ids, too. */
#include "tools/serve/serve_job.h"

#include <assert.h>
#include <stdlib.h>

enum { PATIENCE = 4 }; /* rounds that may leave a prompt out for shorter ones */

/* Late ones by the rounds that left them out; then the others by the ids that are left. Equal ones: in order of
 * arrival.
 */
static int round_compare(const void *left, const void *right) {
    const struct round_prompt *a = left, *b = right;
    const bool a_waits = a->left_out >= PATIENCE, b_waits = b->left_out >= PATIENCE;
    if (a_waits != b_waits) return a_waits ? -1 : 1;
    if (a_waits && a->left_out != b->left_out) return a->left_out > b->left_out ? -1 : 1;
    if (!a_waits && a->ids != b->ids) return a->ids < b->ids ? -1 : 1;
    return a->job < b->job ? -1 : a->job > b->job;
}

/* What the round would read of it. */
static int64_t round_cost(const struct round_prompt *prompt, int64_t part) {
    return prompt->ids < part ? prompt->ids : part;
}

int64_t round_plan(struct round_prompt *prompts, int64_t n, int64_t part, int64_t most) {
    int64_t taken = 0, ids = 0;
    assert(part > 0);
    if (n > 1) qsort(prompts, (size_t)n, sizeof *prompts, round_compare);
    for (; taken < n; taken++) {
        const int64_t cost = round_cost(&prompts[taken], part);
        if (taken > 0 && ids + cost > most) break;
        ids += cost;
    }
    return taken;
}
