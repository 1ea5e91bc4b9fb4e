/* word_sketch.c -- see word_sketch.h. */
#include "indexer/landmarks/word_sketch.h"
#include "base/memory.h"
#include "base/rng.h"
#include "kernels/lexical/saturated.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 0x736b6574, BITS = 32 };

struct word_sketch {
    int vocab, size, owned; /* owned: coordinates that are an id's own */
    float *root;            /* [vocab]: sqrt of the idf */
    int32_t *coordinate;    /* [vocab]: the id's own one; -1: signs */
    int32_t *own;           /* [owned]: the ids that have one */
    uint32_t *signs;        /* [vocab][words]: bit j is the sign in coordinate owned + j */
    int64_t words;
};

/* ---- which ids have a coordinate of their own ---- */

/* What an id adds to the squared length of the sketch of a chunk and of a text, on average. */
struct id_energy {
    double chunk, text;
    int32_t id;
};

static int by_energy(const void *a, const void *b) {
    const struct id_energy *x = a, *y = b;
    if (x->chunk != y->chunk) return x->chunk < y->chunk ? 1 : -1;
    return x->id - y->id;
}

/* The number of own coordinates with which the noise of the others is least. Where two ids differ, their vectors'
 * product has a mean square of 1 / (size - own). So the noise's mean square is the text's energy times the chunk's over
 * the coordinates that are left. */
static int own_number(const struct id_energy *e, int n, int size) {
    double chunk = 0, text = 0, least = INFINITY;
    int best = 0;
    for (int i = 0; i < n; i++)
        chunk += e[i].chunk, text += e[i].text;
    for (int i = 0; i < size - size / 8 && i < n; i++) {
        const double noise = chunk * text / (size - i);
        if (noise < least) least = noise, best = i;
        chunk -= e[i].chunk, text -= e[i].text;
    }
    return best;
}

static enum status sketch_own(struct word_sketch *s, const float *idf) {
    struct id_energy *e;
    TRY(memory_allocate(&e, (size_t)s->vocab));
    for (int32_t id = 0; id < s->vocab; id++) {
        const double p = exp(-(double)idf[id]); /* the share of chunks that have it; a text is about two chunks */
        e[id] = (struct id_energy){p * (double)idf[id], (1 - (1 - p) * (1 - p)) * (double)idf[id], id};
    }
    qsort(e, (size_t)s->vocab, sizeof *e, by_energy);
    s->owned = own_number(e, s->vocab, s->size);
    const enum status status = memory_allocate(&s->own, (size_t)s->owned + 1);
    for (int i = 0; i < s->owned && status == STATUS_OK; i++) {
        s->own[i] = e[i].id;
        s->coordinate[e[i].id] = i;
    }
    memory_free(e);
    return status;
}

/* ---- start and end ---- */

static enum status sketch_fill(struct word_sketch *s, const float *idf) {
    const size_t vocab = (size_t)s->vocab;
    TRY(memory_allocate(&s->root, vocab));
    TRY(memory_allocate(&s->coordinate, vocab));
    for (size_t id = 0; id < vocab; id++) {
        if (!isfinite(idf[id]) || idf[id] < 0)
            return fail(STATUS_INVALID,
                        "the model's landmark_sketch.idf is %g at id %zu, and must be 0 or more: make the model again "
                        "with drt-model sketch",
                        (double)idf[id], id);
        s->root[id] = sqrtf(idf[id]);
        s->coordinate[id] = -1;
    }
    TRY(sketch_own(s, idf));
    s->words = (s->size - s->owned + BITS - 1) / BITS;
    TRY(memory_allocate(&s->signs, vocab * (size_t)s->words));
    for (size_t id = 0; id < vocab; id++) {
        struct rng rng = rng_make(SEED, id);
        for (int64_t i = 0; i < s->words; i++)
            s->signs[id * (size_t)s->words + (size_t)i] = rng_u32(&rng);
    }
    return STATUS_OK;
}

enum status word_sketch_create(struct word_sketch **out, const float *idf, int vocab, int size) {
    struct word_sketch *s = NULL;
    TRY(memory_allocate_zero(&s, 1));
    s->vocab = vocab;
    s->size = size;
    const enum status status = sketch_fill(s, idf);
    if (status == STATUS_OK)
        *out = s;
    else
        word_sketch_free(s);
    return status;
}

void word_sketch_free(struct word_sketch *s) {
    if (!s) return;
    void *memory[] = {s->root, s->coordinate, s->own, s->signs, s};
    for (size_t i = 0; i < ARRAY_LEN(memory); i++)
        memory_free(memory[i]);
}

int word_sketch_own(const struct word_sketch *s, const int32_t **ids) {
    *ids = s->own;
    return s->owned;
}

/* ---- sketches ---- */

/* Adds weight * r(id). The sign of float32 is its highest bit. */
static void sketch_add(const struct word_sketch *s, float *out, int32_t id, float weight) {
    const int rest = s->size - s->owned;
    const uint32_t *signs = s->signs + id * s->words;
    if (s->coordinate[id] >= 0) {
        out[s->coordinate[id]] += weight;
        return;
    }
    float *to = out + s->owned;
    const float each = weight / sqrtf((float)rest);
    uint32_t bits;
    memcpy(&bits, &each, sizeof bits);
    for (int at = 0; at < rest; at += BITS) {
        const uint32_t word = signs[at / BITS];
        const int n = rest - at < BITS ? rest - at : BITS;
        for (int j = 0; j < n; j++) {
            const uint32_t signed_bits = bits ^ (word << (BITS - 1 - j) & 0x80000000U);
            float x;
            memcpy(&x, &signed_bits, sizeof x);
            to[at + j] += x;
        }
    }
}

/* counted: an id counts s(f) times, otherwise once. */
static void sketch_sum(const struct word_sketch *s, float *out, const int32_t *ids, int64_t n, bool counted) {
    memset(out, 0, (size_t)s->size * sizeof *out);
    for (int64_t i = 0; i < n; i++) {
        int before = 0, f = 1;
        if (ids[i] < 0 || ids[i] >= s->vocab) continue;
        for (int64_t j = 0; j < i; j++)
            before += ids[j] == ids[i];
        if (before > 0) continue;
        for (int64_t j = i + 1; j < n && counted; j++)
            f += ids[j] == ids[i];
        sketch_add(s, out, ids[i], s->root[ids[i]] * (counted ? saturated_count(f) : 1));
    }
}

void word_sketch_chunk(const struct word_sketch *s, float *out, const int32_t *ids, int64_t n) {
    sketch_sum(s, out, ids, n, true);
}

void word_sketch_text(const struct word_sketch *s, float *out, const int32_t *ids, int64_t n) {
    sketch_sum(s, out, ids, n, false);
}
