/* test_tokenizer_text.c -- on random text: decoding restores the encoded text, a stream of pieces equals the decoding,
 * and the merges equal those of the definition. Here byte-pair merges are a plain quadratic loop; the tokenizer has
 * linear search, frequent pairs, a heap, cuts and a cache. */
#include "base/rng.h"
#include "data/tokenizer/tokenizer_internal.h"
#include "data/tokenizer/utf8.h"
#include "tests/test.h"

enum { ROUNDS = 1200, LENGTH_MAX = 200 };

struct opened {
    struct tokenizer *t;
    struct tokenizer_scratch *s;
};

static struct opened open_tokenizer(const char *name) {
    struct opened o;
    char path[4096];
    const char *source = getenv("DRT_SOURCE");
    snprintf(path, sizeof path, "%s/tests/unit/data/tokenizer/%s.json", source ? source : ".", name);
    CHECK_OK(tokenizer_open(&o.t, path));
    CHECK_OK(tokenizer_scratch_create(&o.s, o.t));
    return o;
}

static void close_tokenizer(struct opened *o) {
    tokenizer_scratch_free(o->s);
    tokenizer_free(o->t);
}

/* Letters that merge often, and sometimes any character. */
static size_t random_text(struct rng *rng, char *out, bool with_mark) {
    size_t bytes = 0;
    int length = (int)rng_below(rng, LENGTH_MAX);
    uint64_t spaces = rng_below(rng, 12);
    for (int i = 0; i < length; i++) {
        uint32_t code = (uint32_t)(uint8_t) "etaoinshrdluthe"[rng_below(rng, 15)];
        if (rng_below(rng, 12) < spaces) code = ' ';
        if (rng_below(rng, 40) == 0) code = (uint32_t)rng_below(rng, 0x110000);
        if (rng_below(rng, 40) == 0) code = 0x2581;
        if (code == 0x2581 && !with_mark) code = 'x';
        if (code < 0xD800 || code >= 0xE000) bytes += (size_t)utf8_encode(out + bytes, code);
    }
    return bytes;
}

static int32_t *copy_ids(const int32_t *ids, size_t n) {
    int32_t *copy = malloc(n * sizeof *copy + 1);
    memcpy(copy, ids, n * sizeof *copy);
    return copy;
}

static void check_back(struct opened *o, const int32_t *ids, size_t n, const char *text, size_t bytes) {
    const char *out;
    size_t got, used = 0;
    CHECK_OK(tokenizer_decode(o->t, o->s, ids, n, false, &out, &got));
    CHECK_EQ(got, bytes);
    CHECK(memcmp(out, text, bytes) == 0);
    struct tokenizer_stream st;
    tokenizer_stream_start(&st, false);
    for (size_t i = 0; i <= n; i++) {
        if (i < n)
            CHECK_OK(tokenizer_stream_push(o->t, &st, o->s, ids[i], &out, &got));
        else
            CHECK_OK(tokenizer_stream_flush(&st, o->s, &out, &got));
        CHECK_EQ(utf8_valid_prefix(out, got), got);
        CHECK(used + got <= bytes && memcmp(out, text + used, got) == 0);
        used += got;
    }
    CHECK_EQ(used, bytes);
}

static void test_back(const char *name) {
    struct opened o = open_tokenizer(name);
    struct rng rng = rng_make(test_seed(), 1);
    char text[4 * LENGTH_MAX];
    for (int round = 0; round < ROUNDS; round++) {
        size_t bytes = random_text(&rng, text, o.t->byte_level), n; /* elsewhere a mark is a space */
        const int32_t *ids;
        CHECK_OK(tokenizer_encode(o.t, o.s, text, bytes, TOKENIZER_LITERAL, &ids, &n));
        int32_t *copy = copy_ids(ids, n);
        check_back(&o, copy, n, text, bytes);
        free(copy);
    }
    close_tokenizer(&o);
}

/* Random ids make incomplete characters: stream and whole text must agree on them, too. */
static void test_random_ids(const char *name) {
    struct opened o = open_tokenizer(name);
    struct rng rng = rng_make(test_seed(), 2);
    int32_t ids[LENGTH_MAX];
    for (int round = 0; round < ROUNDS; round++) {
        size_t n = (size_t)rng_below(&rng, LENGTH_MAX);
        for (size_t i = 0; i < n; i++)
            ids[i] = (int32_t)rng_below(&rng, round % 2 ? 300 : (uint64_t)tokenizer_vocab_size(o.t) + 2) - 1;
        const char *out;
        size_t got;
        CHECK_OK(tokenizer_decode(o.t, o.s, ids, n, false, &out, &got));
        char *whole = malloc(got + 1);
        memcpy(whole, out, got + 1);
        check_back(&o, ids, n, whole, got);
        free(whole);
    }
    close_tokenizer(&o);
}

/* The definition: merge the pair of lowest rank, the leftmost first, until no pair has a rank. */
static size_t merge_plainly(const struct tokenizer *t, int32_t *ids, size_t n) {
    for (;;) {
        int32_t rank = INT32_MAX, id = -1;
        size_t where = 0;
        for (size_t i = 0; i + 1 < n; i++)
            for (size_t slot = bpe_slot(bpe_pair(ids[i], ids[i + 1])); t->merges[slot & t->merge_mask].rank >= 0;
                 slot++) {
                const struct merge *m = &t->merges[slot & t->merge_mask];
                if (m->pair == bpe_pair(ids[i], ids[i + 1]) && m->rank < rank) {
                    rank = m->rank;
                    id = m->id;
                    where = i;
                }
            }
        if (id < 0) return n;
        ids[where] = id;
        memmove(ids + where + 1, ids + where + 2, (n - where - 2) * sizeof *ids);
        n--;
    }
}

/* The table of merges by rows has the ranks and ids of all merges, and of no other pairs. */
static void check_rows(const struct tokenizer *t) {
    struct rng rng = rng_make(test_seed(), 5);
    const struct pair_rows *p = &t->pairs;
    for (size_t i = 0; i <= t->merge_mask; i++) {
        const struct merge *m = &t->merges[i];
        if (m->rank < 0) continue;
        const int32_t left = (int32_t)(m->pair >> 32);
        const struct pair_slot slot = p->slots[p->rows[left] + (uint32_t)m->pair];
        CHECK_EQ(slot.left, left);
        CHECK_EQ(slot.rank, m->rank);
        CHECK_EQ(p->made[m->rank].id, m->id);
        CHECK_EQ(p->made[m->rank].row, p->rows[m->id]);
    }
    for (int round = 0; round < 100 * ROUNDS; round++) {
        const uint64_t below = round % 2 && t->n_tokens > 400 ? 400 : t->n_tokens;
        int32_t ids[2] = {(int32_t)rng_below(&rng, below), (int32_t)rng_below(&rng, below)};
        const bool merged = merge_plainly(t, ids, 2) == 1;
        if (!merged) CHECK(p->slots[p->rows[ids[0]] + (uint32_t)ids[1]].left != ids[0]);
    }
}

/* Words of a few letters that repeat often, and of many that do not, and runs of one letter, so that the cache finds,
 * replaces and reorders words of all lengths: the ids are those of the definition. */
static void test_words(const char *name) {
    struct opened o = open_tokenizer(name);
    struct rng rng = rng_make(test_seed(), 4);
    CHECK(o.t->byte_level && o.t->scanner != SCANNER_NONE);
    check_rows(o.t);
    for (int round = 0; round < 20 * ROUNDS; round++) {
        char text[12 * LENGTH_MAX];
        int32_t plain[12 * LENGTH_MAX], word[12 * LENGTH_MAX];
        size_t bytes = 0, n = 0, got;
        const int words = 1 + (int)rng_below(&rng, 12);
        for (int i = 0; i < words; i++) {
            const uint64_t kind = rng_below(&rng, 9),
                           letters = kind < 3    ? 26
                                     : kind == 3 ? 1
                                                 : 2,
                           length = 1 + rng_below(&rng, letters == 1   ? 130
                                                        : letters == 2 ? 30
                                                                       : 4);
            text[bytes++] = ' ';
            for (uint64_t k = 0; k < length; k++)
                text[bytes++] = "teaoinshrdlucmfwypvbgkqjxz"[rng_below(&rng, letters)];
            if (rng_below(&rng, 30) == 0) bytes += (size_t)utf8_encode(text + bytes, (uint32_t)rng_below(&rng, 0xD800));
        }
        for (size_t at = 0, length; at < bytes; at += length) {
            length = scanner_next(o.t->scanner, o.t->classes, text, bytes, at);
            for (size_t i = 0; i < length; i++)
                word[i] = o.t->byte_id[(uint8_t)text[at + i]];
            const size_t merged = merge_plainly(o.t, word, length);
            memcpy(plain + n, word, merged * sizeof *word);
            n += merged;
        }
        const int32_t *ids;
        CHECK_OK(tokenizer_encode(o.t, o.s, text, bytes, TOKENIZER_LITERAL, &ids, &got));
        CHECK_EQ(got, n);
        CHECK(memcmp(ids, plain, n * sizeof *ids) == 0);
    }
    CHECK(o.s->hits > o.s->misses / 4 && o.s->misses > 1000);
    close_tokenizer(&o);
}

/* llama2 has no pre-tokenizer, so the text is one word of marks and letters that have ids of their own. */
static void test_merges(const char *name, int length_max) {
    struct opened o = open_tokenizer(name);
    struct rng rng = rng_make(test_seed(), 3);
    for (int round = 0; round < 600; round++) {
        char text[8 * LENGTH_MAX];
        int32_t plain[2 * LENGTH_MAX];
        size_t bytes = 0, n = 0, got;
        int32_t mark = tokenizer_id(o.t, "\xE2\x96\x81");
        CHECK(mark >= 0);
        plain[n++] = mark; /* Prepend, or Metaspace "always" */
        int length = 1 + (int)rng_below(&rng, (uint64_t)length_max);
        /* Every second text repeats its first letters: all occurrences of their pairs are merged at once. */
        int period = round % 2 ? 1 + (int)rng_below(&rng, 12) : length;
        for (int i = 0; i < length; i++) {
            char letter[2] = {i < period ? "etaoinshrdluthe    "[rng_below(&rng, 19)] : text[i - period], '\0'};
            if (i == 0) letter[0] = 't';
            text[bytes++] = letter[0];
            plain[n++] = letter[0] == ' ' ? mark : tokenizer_id(o.t, letter);
            CHECK(plain[n - 1] >= 0);
        }
        n = merge_plainly(o.t, plain, n);
        const int32_t *ids;
        CHECK_OK(tokenizer_encode(o.t, o.s, text, bytes, TOKENIZER_LITERAL, &ids, &got));
        CHECK_EQ(got, n);
        CHECK(memcmp(ids, plain, n * sizeof *ids) == 0);
    }
    close_tokenizer(&o);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    static const char *const exact[] = {"cl100k", "deepseek",         "digits",
                                        "gemma",  "split-contiguous", "split-merged_with_next"};
    for (size_t i = 0; i < ARRAY_LEN(exact); i++)
        test_back(exact[i]);
    static const char *const all[] = {"cl100k", "llama2", "gemma", "metaspace", "metaspace-never", "joined"};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        test_random_ids(all[i]);
    test_words("digits");
    test_words("cl100k");
    test_merges("llama2", 30);
    test_merges("llama2", LENGTH_MAX);
    test_merges("metaspace-whole", LENGTH_MAX);
    return test_done();
}
