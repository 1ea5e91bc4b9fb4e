/* word_counts.c -- see word_counts.h. */
#include "indexer/landmarks/word_counts.h"
#include "base/memory.h"
#include "base/minmax.h"
#include <math.h>

enum { PROGRESS_CHUNKS = 4096 }; /* chunks between two reports */

struct word_counts {
    int64_t chunks;            /* so far */
    int64_t *count, *last_one; /* [vocab]: chunks that have the id; number of the last of them, from 1 */
    int32_t *ids;
};

static void word_counts_add(struct word_counts *t, int n, int vocab) {
    t->chunks++;
    for (int i = 0; i < n; i++) {
        const int32_t id = t->ids[i];
        if (id < 0 || id >= vocab || t->last_one[id] == t->chunks) continue;
        t->last_one[id] = t->chunks;
        t->count[id]++;
    }
}

static enum status word_counts_read(struct word_counts *t, struct store_view *view, const struct store_info *info,
                                    int64_t most, const struct progress *progress) {
    const struct store_dropped dropped = store_view_dropped(view);
    const int64_t step = most > 0 ? max_i64(info->chunks / most, 1) : 1;
    for (int64_t c = 0, i = 0; c < info->chunks; c += step, i++) {
        struct store_chunk found;
        if (i % PROGRESS_CHUNKS == 0) {
            if (progress_stop_requested(progress))
                return fail(STATUS_INTERRUPTED, "%s: stopped while its ids were counted", store_view_path(view));
            progress_step(progress, "count ids", "chunks", c, info->chunks);
        }
        if (!store_dropped_live(dropped, c)) continue;
        TRY(store_view_chunk(view, &found, t->ids, c));
        word_counts_add(t, found.n_tokens, info->fingerprint.vocab_size);
    }
    return STATUS_OK;
}

enum status word_counts_idf(float **out, int64_t *chunks, struct store_view *view, int64_t most,
                            const struct progress *progress) {
    struct store_info info;
    struct word_counts t = {0};
    store_view_info(view, &info);
    const size_t vocab = (size_t)info.fingerprint.vocab_size;
    TRY(memory_allocate(out, vocab));
    enum status s = memory_allocate_zero(&t.count, vocab);
    if (s == STATUS_OK) s = memory_allocate_zero(&t.last_one, vocab);
    if (s == STATUS_OK) s = memory_allocate(&t.ids, (size_t)info.fingerprint.chunk_tokens);
    if (s == STATUS_OK) s = word_counts_read(&t, view, &info, most, progress);
    for (size_t id = 0; id < vocab && s == STATUS_OK; id++)
        (*out)[id] = (float)log(1 + ((double)(t.chunks - t.count[id]) + 0.5) / ((double)t.count[id] + 0.5));
    *chunks = t.chunks;
    memory_free(t.count);
    memory_free(t.last_one);
    memory_free(t.ids);
    if (s == STATUS_OK) return s;
    memory_free(*out);
    *out = NULL;
    return s;
}
