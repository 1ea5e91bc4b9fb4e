/* step_copies.c -- some queries get a single neighbour that contains ids of the next chunk (step.h, copy_rate).
 *
 * The query's last candidate is used: a run of its ids is overwritten by a run of the sequence, from near the start of
 * the next chunk. Half of the runs are as long as the chunk and begin up to half a chunk earlier or later. The others
 * are short and at any offset of the candidate, so that the model finds them by content, not by position. Queries and
 * runs depend on a hash of the step's seed and the query's number in the step. */
#include "train/step/step_internal.h"

enum { SHORTEST = 8 };

bool step_copy_wanted(const struct step *s, const struct step_task *task, int64_t r, uint64_t *hash) {
    float rate = task->now && task->pool == POOL_CORPUS ? task->now->copy_rate : 0.0f;
    if (rate <= 0.0f || r % s->config.chunks == s->config.chunks - 1) return false;
    uint64_t seed = step_mix(task->now->seed ^ 0x636f7079u);
    *hash = step_mix(seed + (uint64_t)(task->first_row / s->positions + r));
    return (float)(*hash >> 40) < rate * 0x1p24f;
}

/* 0 .. n-1, from some bits of a hash. */
static int64_t step_hash_below(uint64_t hash, int from_bit, int64_t n) {
    return (int64_t)(hash >> from_bit & 0xfff) % n;
}

void step_copies_write(struct step *s, const struct step_task *task, int64_t first) {
    int64_t C = s->config.chunks, P = s->positions, real = P - 1, k = s->config.candidates;
    int32_t *run = s->ids_host;
    for (int64_t r = 0; r < s->queries; r++) {
        uint64_t hash;
        if (!step_copy_wanted(s, task, r, &hash)) continue;
        int64_t least = real < SHORTEST ? real : SHORTEST;
        int64_t length = hash & 1 ? real : least + step_hash_below(hash, 1, real - least + 1);
        int64_t at = step_hash_below(hash, 13, real - length + 1);
        int64_t next = (r % C + 1) * real, early = length / 2; /* counted in ids of the sequence */
        int64_t from = next - early + step_hash_below(hash, 25, real - length + 2 * early + 1);
        if (from > C * real - length) from = C * real - length;
        const int32_t *ids = task->batch->ids + r / C * C * P;
        for (int64_t i = 0; i < length; i++)
            run[i] = ids[(from + i) / real * P + (from + i) % real];
        int32_t *to = s->encoder_ids + (first + r * k + k - 1) * P + at;
        device_upload(s->dev, to, run, (size_t)length * sizeof *run);
    }
}
