/* sequence_model.c -- texts, landmarks and keys from numbers, and questions to the model. */
#include "tests/property/store_sequence/sequence.h"

void sequence_path(char out[700], const struct sequence *m, const char *name) {
    snprintf(out, 700, "%s/%s", m->base, name);
}

const char *sequence_dir(const struct sequence *m) {
    static _Thread_local char dir[700];
    snprintf(dir, sizeof dir, "%s/s%d", m->base, m->number);
    return dir;
}

struct store_writer_config sequence_config(const struct sequence *m) {
    const bool none = m->type == STORE_LANDMARKS_NONE;
    struct store_writer_config c = fixture_config(none ? 0 : SEQUENCE_DIM, sequence_vocab());
    c.landmarks = m->type;
    if (none) memset(c.fingerprint.encoder, 0, sizeof c.fingerprint.encoder);
    return c;
}

uint64_t sequence_below(struct sequence *m, uint64_t n) {
    return rng_below(&m->r, n);
}
bool sequence_one_in(struct sequence *m, uint64_t n) {
    return rng_below(&m->r, n) == 0;
}

/* ---- texts ---- */

bool sequence_wide;

int sequence_vocab(void) {
    return sequence_wide ? SEQUENCE_VOCAB * SEQUENCE_WIDE : SEQUENCE_VOCAB;
}

size_t sequence_ids(int32_t ids[FIXTURE_IDS_MAX], int64_t text) {
    const size_t n = fixture_ids(ids, text % SEQUENCE_SAME_IDS, SEQUENCE_VOCAB);
    for (size_t i = 0; i < n && sequence_wide; i++)
        ids[i] *= SEQUENCE_WIDE;
    return n;
}

int sequence_chunk_ids(int32_t ids[FIXTURE_CHUNK], const struct sequence_document *d, int64_t in_document) {
    int32_t all[FIXTURE_IDS_MAX];
    const int64_t n = (int64_t)sequence_ids(all, d->text), at = in_document * FIXTURE_CHUNK;
    for (int64_t i = 0; i < FIXTURE_CHUNK; i++)
        ids[i] = at + i < n ? all[at + i] : -1;
    return (int)(n - at < FIXTURE_CHUNK ? n - at : FIXTURE_CHUNK);
}

static uint64_t hash_of(const int32_t *ids, uint64_t start) {
    uint64_t h = start;
    for (int i = 0; i < FIXTURE_CHUNK; i++)
        h = (h ^ (uint64_t)(ids[i] + 1)) * UINT64_C(0x9e3779b97f4a7c15) + 7;
    return h >> 16;
}

/* One number is 127, so that the scale of 8-bit codes is 1 and they keep all numbers. */
void sequence_landmark(float *row, const int32_t *ids) {
    const uint64_t kind = hash_of(ids, 1) % 71;
    struct rng r = rng_make(21, kind);
    for (int i = 0; i < SEQUENCE_DIM; i++)
        row[i] = (float)((int)rng_below(&r, 81) - 40);
    row[kind % SEQUENCE_DIM] = 127;
}

struct store_keys_spec sequence_keys_spec(int spec) {
    struct store_keys_spec s = {.layer = 2,
                                .size = SEQUENCE_KEY,
                                .chunk_tokens = FIXTURE_CHUNK,
                                .window = 32,
                                .step = 24,
                                .rounding = STORE_KEYS_F32};
    memset(s.model, spec, sizeof s.model);
    return s;
}

void sequence_key(int8_t *codes, float *scales, int spec, const int32_t *ids) {
    const uint64_t h = hash_of(ids, (uint64_t)spec + 100);
    for (int t = 0; t < FIXTURE_CHUNK; t++) {
        scales[t] = ids[t] < 0 ? 0 : (float)(1 + (h + (uint64_t)t) % 9);
        for (int i = 0; i < SEQUENCE_KEY; i++)
            codes[t * SEQUENCE_KEY + i] = ids[t] < 0 ? 0 : (int8_t)((h >> (i + t)) & 127);
    }
}

void sequence_source(char out[64], int64_t name) {
    snprintf(out, 64, "part-%lld.jsonl", (long long)(name % SEQUENCE_SOURCES));
}

/* ---- documents ---- */

void sequence_add_document(struct sequence *m, int64_t text, int64_t name) {
    int32_t ids[FIXTURE_IDS_MAX];
    CHECK(m->sealed < SEQUENCE_DOCUMENTS);
    struct sequence_document *d = &m->documents[m->sealed];
    const int64_t tokens = (int64_t)sequence_ids(ids, text);
    *d = (struct sequence_document){.text = text, .name = name, .tokens = tokens, .shard = m->sealed_shards};
    d->chunks = (tokens + FIXTURE_CHUNK - 1) / FIXTURE_CHUNK;
    d->first_chunk = sequence_chunks(m, m->sealed);
    m->sealed++;
}

int64_t sequence_chunks(const struct sequence *m, int64_t documents) {
    if (documents == 0) return 0;
    const struct sequence_document *last = &m->documents[documents - 1];
    return last->first_chunk + last->chunks;
}

bool sequence_gone(const struct sequence *m, int64_t document) {
    const struct sequence_document *d = &m->documents[document];
    return d->deleted || m->shards[d->shard].dropped;
}

int64_t sequence_holder(const struct sequence *m, int64_t text) {
    for (int64_t i = 0; i < m->sealed; i++)
        if (m->documents[i].text == text && !sequence_gone(m, i)) return i;
    return -1;
}

int64_t sequence_indexed(const struct sequence *m) {
    int64_t n = 0;
    for (int64_t i = 0; i < m->published; i++)
        n += m->shards[m->documents[i].shard].dropped ? 0 : m->documents[i].chunks;
    return n;
}

int64_t sequence_alive(const struct sequence *m) {
    int64_t n = 0;
    for (int64_t i = 0; i < m->published; i++)
        n += sequence_gone(m, i) ? 0 : m->documents[i].chunks;
    return n;
}

void sequence_forget_journal(struct sequence *m) {
    m->sealed = m->published;
    m->sealed_shards = m->published_shards;
    m->duplicates_sealed = m->duplicates_published;
    m->unchecked = false;
}

/* The documents that are left, as a compacted store has them. */
void sequence_compacted(struct sequence *m, int64_t shard_chunks) {
    static struct sequence old;
    old = *m;
    m->published = m->sealed = m->published_shards = m->sealed_shards = 0;
    int64_t in_shard = 0;
    m->shards[0] = (struct sequence_shard){0};
    for (int64_t i = 0; i < old.published; i++) {
        if (sequence_gone(&old, i)) continue;
        sequence_add_document(m, old.documents[i].text, old.documents[i].name);
        in_shard += old.documents[i].chunks;
        if (in_shard < shard_chunks) continue;
        in_shard = 0;
        m->shards[++m->sealed_shards] = (struct sequence_shard){.first_document = m->sealed};
    }
    if (in_shard > 0) m->shards[++m->sealed_shards] = (struct sequence_shard){.first_document = m->sealed};
    m->published = m->sealed;
    m->published_shards = m->sealed_shards;
    m->duplicates_published = m->duplicates_sealed = 0;
    m->unchecked = false;
    m->keys_chunks = m->keys ? sequence_chunks(m, m->published) : 0;
}
