/* publish_lexical.c -- makes the missing segments of a generation's lexical index from the tokens of its shards.
 *
 * A segment without dropped chunks is kept. Chunks that no segment covers get new segments: chunks of new shards, the
 * remaining chunks of a segment with a dropped shard, and those of segments that repair found damaged. Older segments
 * directly before them that are not larger are made again together with them. So the number of segments grows with the
 * logarithm of the number of additions, and a chunk is indexed a logarithmic number of times. */
#include "base/memory.h"
#include "base/system/fault.h"
#include "store/lexical/lexical_build.h"
#include "store/publish_lexical_internal.h"
#include <stdlib.h>
#include <string.h>

enum { STEP = 1 << 12, OCCURRENCE_BYTES = 64 };
static const uint64_t max_ram_least = UINT64_C(1) << 20;

struct lexical_make {
    struct store_writer *w;
    const struct store_publish *how;
    const struct shard_record *shards; /* as they will be published */
    int64_t n_shards;
    struct catalog_txn *t;
    struct shard_map map; /* of the current token file, which contains shard `mapped` */
    int64_t mapped;
    struct lexical_record out;
    size_t capacity;
    int64_t chunks_max, done, total; /* done: chunks that were read, of total */
    int32_t *ids;                    /* of one chunk */
};

/* ---- reading tokens ---- */

static enum status map_tokens(struct lexical_make *m, int64_t shard) {
    const struct shard_record *r = &m->shards[shard];
    if (m->mapped == r->first_file_shard) return STATUS_OK;
    shard_close(&m->map);
    m->map = (struct shard_map){0};
    m->mapped = -1;
    struct shard_record file = record_of_shard_file(m->shards, shard);
    TRY(shard_open(&m->map, m->w->dir, SHARD_TOKENS, &file, &m->w->fingerprint));
    m->mapped = r->first_file_shard;
    return STATUS_OK;
}

static enum status bad_run(const struct store_writer *w, const struct run_record *run) {
    return fail(STATUS_CORRUPT, "%s: the run of document %lld points outside its token shard, run drt-index repair",
                catalog_path(w->catalog), (long long)run->document);
}

/* Returns the greatest id. Without a branch, so that it can be vector code. */
static uint32_t copy_ids(int32_t *ids, const struct shard_map *map, int64_t first, int64_t n) {
    const uint8_t *rows = map->rows + (size_t)first * (size_t)map->element_bytes;
    uint32_t greatest = 0;
    for (int64_t i = 0; i < n && map->element_bytes == 2; i++) {
        uint16_t id;
        memcpy(&id, rows + 2 * i, sizeof id); /* numbers are little-endian here, too */
        ids[i] = id;
        greatest = id > greatest ? id : greatest;
    }
    for (int64_t i = 0; i < n && map->element_bytes != 2; i++) {
        const uint32_t id = shard_id(map, first + i);
        ids[i] = (int32_t)id;
        greatest = id > greatest ? id : greatest;
    }
    return greatest;
}

/* Damaged tokens are refused here, so that no list is made of them. A wrong id that is in the vocabulary is found only
 * by the checksum, which verify --deep compares. */
enum status lexical_add_chunk(struct lexical_builder *b, const struct store_writer *w,
                              const struct lexical_chunk *chunk, int32_t *ids) {
    const struct store_fingerprint *f = &w->fingerprint;
    const struct shard_record *shard = chunk->shard;
    const struct run_record *run = chunk->run;
    int64_t at = chunk->in_document * f->chunk_tokens, n = run->tokens - at;
    if (n < 1 || run->token_offset + run->tokens > shard->tokens) return bad_run(w, run);
    if (n > f->chunk_tokens) n = f->chunk_tokens;
    const int64_t first = shard->first_token - chunk->map->first_row + run->token_offset + at;
    if (copy_ids(ids, chunk->map, first, n) < (uint32_t)f->vocab_size) return lexical_builder_add(b, ids, (int)n);
    int64_t bad = 0;
    while ((uint32_t)ids[bad] < (uint32_t)f->vocab_size)
        bad++;
    char path[FILE_PATH_MAX];
    TRY(shard_path(path, w->dir, SHARD_TOKENS, shard->first_file_shard, shard->last_file_shard));
    return fail(STATUS_CORRUPT, "%s: token %lld is outside the vocabulary, run drt-index verify --deep", path,
                (long long)(first + bad));
}

static enum status publish_lexical_step(struct lexical_make *m) {
    if (m->done++ % STEP > 0) return STATUS_OK;
    progress_step(m->how->progress, "read tokens for the lexical index", "chunks", m->done - 1, m->total);
    if (!progress_stop_requested(m->how->progress)) return STATUS_OK;
    return fail(STATUS_INTERRUPTED,
                "%s: stopped while the lexical index was made; sealed shards are kept, run the command again",
                m->w->dir);
}

static enum status add_chunks(struct lexical_make *m, struct lexical_builder *b, int64_t begin, int64_t end) {
    while (begin < end) {
        struct run_record run;
        int64_t first;
        TRY(record_find_run(m->t, m->w->catalog, &first, &run, begin));
        if (run.shard >= m->n_shards || shard_is_dropped(&m->shards[run.shard])) return bad_run(m->w, &run);
        TRY(map_tokens(m, run.shard));
        for (; begin < end && begin < first + run.chunks; begin++) {
            TRY(publish_lexical_step(m));
            const struct lexical_chunk chunk = {&m->shards[run.shard], &m->map, &run, begin - first};
            TRY(lexical_add_chunk(b, m->w, &chunk, m->ids));
        }
    }
    return STATUS_OK;
}

/* ---- segments ---- */

/* Not more than the chunks need, because the memory is allocated before the number of their keys is known. */
static uint64_t sorting_bytes(const struct lexical_make *m, int64_t chunks) {
    uint64_t most = store_publish_max_ram(m->how);
    uint64_t needed = (uint64_t)chunks * (uint64_t)m->w->fingerprint.chunk_tokens * OCCURRENCE_BYTES + max_ram_least;
    return needed < most ? needed : most;
}

/* Whether the segment was made while the shards were. */
static bool take_followed(struct lexical_make *m, int64_t begin, int64_t end) {
    const struct lexical_segment_record *made = &m->w->followed;
    if (made->chunks == 0 || made->number != m->out.next_number || begin != made->first_chunk ||
        end - begin != made->chunks)
        return false;
    m->out.list[m->out.n++] = *made;
    m->out.next_number++;
    return true;
}

static enum status make_segment(struct lexical_make *m, int64_t begin, int64_t end) {
    char path[FILE_PATH_MAX];
    struct lexical_builder *b;
    TRY(memory_grow(&m->out.list, &m->capacity, (size_t)m->out.n + 1));
    if (take_followed(m, begin, end)) return STATUS_OK;
    struct lexical_segment_record r = {m->out.next_number++, begin, end - begin, {0}};
    const struct lexical_build how = {.vocab_size = m->w->fingerprint.vocab_size,
                                      .first_chunk = begin,
                                      .max_ram = sorting_bytes(m, end - begin),
                                      .progress = m->how->progress,
                                      .threads = m->how->threads};
    TRY(lexical_path(path, m->w->dir, r.number));
    TRY(lexical_builder_create(&b, path, &how));
    enum status s = add_chunks(m, b, begin, end);
    if (s != STATUS_OK) {
        lexical_builder_discard(b);
        return s;
    }
    TRY(lexical_builder_publish(b, &r.file.bytes, &r.file.crc));
    m->out.list[m->out.n++] = r;
    return fault_point("store:lexical:segment-written");
}

/* Makes segments of equal size, each of at most chunks_max chunks. */
static enum status make_range(struct lexical_make *m, struct store_range range) {
    int64_t all = range.end - range.begin, parts = (all + m->chunks_max - 1) / m->chunks_max;
    for (int64_t i = 0; i < parts; i++)
        TRY(make_segment(m, range.begin + (int64_t)((__int128)all * i / parts),
                         range.begin + (int64_t)((__int128)all * (i + 1) / parts)));
    return STATUS_OK;
}

/* Whether none of the segment's chunks is dropped. */
static bool segment_lives(const struct lexical_segment_record *s, struct store_dropped d, int64_t chunks) {
    struct store_range span = store_dropped_span(d, s->first_chunk, s->first_chunk + s->chunks);
    return s->first_chunk + s->chunks <= chunks && span.begin == s->first_chunk && span.end - span.begin == s->chunks;
}

/* Returns the range from `at` to the next segment that is kept, or the next dropped id. If kept segments directly
 * before are not larger, they are included. */
static struct store_range missing_range(const struct lexical_make *m, struct lexical_record *kept, int64_t before,
                                        struct store_range range) {
    while (before > 0) {
        struct lexical_segment_record *s = &kept->list[before - 1];
        int64_t fresh = range.end - range.begin;
        if (s->chunks > fresh || s->chunks + fresh > m->chunks_max || s->first_chunk + s->chunks != range.begin) break;
        range.begin = s->first_chunk;
        s->chunks = 0; /* it will be made again */
        before--;
    }
    return range;
}

/* Finds the ranges that no segment of `kept` covers, in ascending order. */
static enum status find_missing(const struct lexical_make *m, struct lexical_record *kept, struct store_dropped d,
                                int64_t chunks, struct store_range **out, int64_t *n) {
    size_t capacity = 0;
    *out = NULL;
    *n = 0;
    for (int64_t at = 0, next = 0; at < chunks;) {
        if (next < kept->n && kept->list[next].first_chunk == at) {
            at += kept->list[next++].chunks;
            continue;
        }
        struct store_range range = store_dropped_span(d, at, next < kept->n ? kept->list[next].first_chunk : chunks);
        at = range.end;
        if (range.begin == range.end) continue;
        TRY(memory_grow(out, &capacity, (size_t)*n + 1));
        (*out)[(*n)++] = missing_range(m, kept, next, range);
    }
    return STATUS_OK;
}

static int by_first_chunk(const void *a, const void *b) {
    const struct lexical_segment_record *x = a, *y = b;
    return (x->first_chunk > y->first_chunk) - (x->first_chunk < y->first_chunk);
}

/* Makes the missing segments. In `kept`, a segment that is made again has no chunks. If tokens cannot be read, the
 * segments made so far are kept and `damaged` is set. The index then lacks chunks until repair makes them. */
static enum status make_missing(struct lexical_make *m, const struct lexical_record *kept,
                                const struct store_range *ranges, int64_t n, bool *damaged) {
    for (int64_t i = 0; i < n; i++)
        m->total += ranges[i].end - ranges[i].begin;
    for (int64_t i = 0; i < kept->n; i++) {
        if (kept->list[i].chunks == 0) continue;
        TRY(memory_grow(&m->out.list, &m->capacity, (size_t)m->out.n + 1));
        m->out.list[m->out.n++] = kept->list[i];
    }
    for (int64_t i = 0; i < n; i++) {
        enum status s = make_range(m, ranges[i]);
        if (s != STATUS_CORRUPT) TRY(s);
        *damaged = *damaged || s == STATUS_CORRUPT;
    }
    if (m->out.n) qsort(m->out.list, (size_t)m->out.n, sizeof *m->out.list, by_first_chunk);
    return STATUS_OK;
}

static enum status make_all(struct lexical_make *m, const struct lexical_record *old, bool *damaged) {
    struct lexical_record kept = {0};
    struct store_range *missing = NULL;
    struct store_hole *ranges = NULL;
    struct store_dropped d = {0};
    int64_t chunks = shard_records_chunks(m->shards, m->n_shards), n = 0;
    enum status s;
    TRY(record_dropped_holes(&ranges, &d.n, m->shards, m->n_shards));
    d.ranges = ranges;
    TRY_GOTO(s, memory_allocate(&kept.list, (size_t)old->n + 1), out);
    for (int64_t i = 0; i < old->n; i++)
        if (segment_lives(&old->list[i], d, chunks)) kept.list[kept.n++] = old->list[i];
    TRY_GOTO(s, find_missing(m, &kept, d, chunks, &missing, &n), out);
    TRY_GOTO(s, memory_allocate(&m->ids, (size_t)m->w->fingerprint.chunk_tokens), out);
    TRY_GOTO(s, catalog_begin(&m->t, m->w->catalog, false), out);
    s = make_missing(m, &kept, missing, n, damaged);
out:
    catalog_abort(m->t);
    shard_close(&m->map);
    memory_free(m->ids);
    memory_free(kept.list);
    memory_free(missing);
    memory_free(ranges);
    return s;
}

static bool records_equal(const struct lexical_record *a, const struct lexical_record *b) {
    bool same = a->wanted == b->wanted && a->n == b->n;
    for (int64_t i = 0; i < a->n && same; i++)
        same = a->list[i].number == b->list[i].number;
    return same;
}

enum status lexical_record_make(struct lexical_record *record, struct store_writer *w, const struct store_publish *how,
                                const struct lexical_request *request) {
    struct lexical_make m = {
        .w = w, .how = how, .shards = request->shards, .n_shards = request->n_shards, .mapped = -1};
    bool damaged = false;
    *request->changed = false;
    m.out.next_number = record->next_number;
    m.out.wanted = how->lexical == STORE_LEXICAL_KEEP ? record->wanted : how->lexical == STORE_LEXICAL_ON;
    m.chunks_max = how->lexical_chunks > 0 ? how->lexical_chunks : LEXICAL_CHUNKS_MAX;
    if (m.out.wanted && w->fingerprint.vocab_size > LEXICAL_VOCAB_MAX) {
        progress_note(how->progress, "%s: no lexical index: its vocabulary has %d ids, and %d at most can be indexed",
                      w->dir, w->fingerprint.vocab_size, LEXICAL_VOCAB_MAX);
        m.out.wanted = false;
    }
    enum status s = m.out.wanted ? make_all(&m, record, &damaged) : STATUS_OK;
    if (s == STATUS_OK && damaged && request->strict) s = fail(STATUS_CORRUPT, "%s", status_message());
    if (s != STATUS_OK) {
        lexical_record_free(&m.out);
        return s;
    }
    if (damaged)
        progress_note(how->progress,
                      "%s: the lexical index does not cover all chunks, searches by words wait for drt-index repair: "
                      "%s",
                      w->dir, status_message());
    *request->changed = request->damaged || !records_equal(record, &m.out);
    lexical_record_free(record);
    *record = m.out;
    return STATUS_OK;
}

/* ---- a generation that changes nothing else ---- */

static enum status record_lexical_generation(struct catalog_txn *t, const struct lexical_record *record,
                                             const struct generation_record *g) {
    TRY(record_put_lexical(t, record));
    TRY(record_put_generation(t, g));
    return fault_point("store:lexical:before-commit");
}

static enum status commit_lexical(struct store_writer *w, const struct lexical_record *record) {
    struct generation_record g = w->published;
    struct catalog_txn *t;
    g.number++;
    TRY(catalog_begin(&t, w->catalog, true));
    enum status s = record_lexical_generation(t, record, &g);
    if (s != STATUS_OK) {
        catalog_abort(t);
        return s;
    }
    TRY(catalog_commit(t));
    w->published = g;
    return fault_point("store:lexical:committed");
}

enum status publish_lexical(struct store_writer *w, const struct store_publish *how, const struct lexical_record *stays,
                            bool damaged) {
    struct lexical_record record = {0};
    struct shard_record *shards = NULL;
    struct catalog_txn *t;
    bool changed = false;
    TRY(catalog_begin(&t, w->catalog, false));
    enum status s = record_list_shards(t, w->catalog, &shards, w->published.shards);
    if (s == STATUS_OK && !stays) s = record_get_lexical(t, w->catalog, &record);
    catalog_abort(t);
    if (s == STATUS_OK && stays) {
        record = *stays;
        record.list = NULL;
        s = memory_allocate(&record.list, (size_t)stays->n + 1);
        for (int64_t i = 0; i < stays->n && s == STATUS_OK; i++)
            record.list[i] = stays->list[i];
    }
    const struct lexical_request request = {.shards = shards,
                                            .n_shards = w->published.shards,
                                            .strict = stays || how->lexical == STORE_LEXICAL_ON,
                                            .damaged = damaged,
                                            .changed = &changed};
    if (s == STATUS_OK) s = lexical_record_make(&record, w, how, &request);
    if (s == STATUS_OK && changed) s = commit_lexical(w, &record);
    lexical_record_free(&record);
    memory_free(shards);
    return s;
}

enum status store_lexical(const char *dir, const struct store_publish *how) {
    struct store_writer *w;
    TRY(writer_open(&w, dir, NULL, false));
    enum status s = STATUS_OK;
    if (w->published.number == 0)
        s = fail(STATUS_NOT_FOUND, "%s: nothing is published yet, finish the build first", dir);
    if (s == STATUS_OK && how->lexical == STORE_LEXICAL_ON && w->fingerprint.vocab_size > LEXICAL_VOCAB_MAX)
        s = fail(STATUS_UNSUPPORTED, "%s: its vocabulary has %d ids, a lexical index has %d at most: search by vectors",
                 dir, w->fingerprint.vocab_size, LEXICAL_VOCAB_MAX);
    if (s == STATUS_OK) s = publish_lexical(w, how, NULL, false);
    store_writer_close(w);
    return s;
}
