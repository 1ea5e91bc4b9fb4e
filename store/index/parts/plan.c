/* plan.c -- see index_parts_internal.h. The training writes the file `plan` last, so that the folder has a complete
 * plan or none:
 *
 * bytes     content (numbers little-endian)
 * 0-11      "drtiplan", version: 1, or 2 if the method of assigning rows to lists is not FAISS's
 * 12-59     fingerprint: encoder, tokenizer, chunk tokens, dimensions, vocabulary, metric
 * 60-83     generation, chunks, documents
 * 84-87     CRC32C of a sample of the documents' records
 * 88-99     bytes and CRC32C of template.faiss
 * 100, 101  1 if the user chose the factory string, plus 2 times the method (enum store_assign_method); the length of
 *           the string
 * then      the factory string; CRC32C of all bytes before */
#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/memory.h"
#include "base/system/fault.h"
#include "store/index/parts/index_parts_internal.h"
#include "store/parts/part_record_internal.h"
#include <string.h>

enum {
    VERSION = 2,
    FIXED_BYTES = 102,
    PLAN_MAX = FIXED_BYTES + RECORD_INDEX_MAX + 4,
    DOCUMENTS_SAMPLE = 64,
    ROWS_SAMPLE = 16
};
static const char magic[9] = "drtiplan";
static const char remedy[] = "remove this folder, and train again";

enum status index_parts_template_path(char out[FILE_PATH_MAX], const char *work) {
    return file_join(out, work, "template.faiss");
}

enum status index_parts_plan_write(struct index_parts_plan *p, const char *work) {
    uint8_t out[PLAN_MAX] = {0};
    char path[FILE_PATH_MAX];
    const struct store_fingerprint *f = &p->fingerprint;
    const size_t length = strlen(p->factory);
    memcpy(out, magic, 8);
    /* programs that know no other method read plans of FAISS's, and refuse others */
    little_endian_put(out + 8, p->method == STORE_ASSIGN_FAISS ? 1 : VERSION, 4);
    memcpy(out + 12, f->encoder, 16);
    memcpy(out + 28, f->tokenizer, 16);
    const int32_t numbers[4] = {f->chunk_tokens, f->dim, f->vocab_size, f->metric};
    for (int i = 0; i < 4; i++)
        little_endian_put(out + 44 + 4 * i, (uint32_t)numbers[i], 4);
    little_endian_put(out + 60, p->generation, 8);
    little_endian_put(out + 68, (uint64_t)p->chunks, 8);
    little_endian_put(out + 76, (uint64_t)p->documents, 8);
    little_endian_put(out + 84, p->documents_crc, 4);
    little_endian_put(out + 88, p->template_file.bytes, 8);
    little_endian_put(out + 96, p->template_file.crc, 4);
    out[100] = (uint8_t)(p->chosen + 2 * p->method);
    out[101] = (uint8_t)length;
    memcpy(out + FIXED_BYTES, p->factory, length);
    p->id = crc32c(0, out, FIXED_BYTES + length);
    little_endian_put(out + FIXED_BYTES + length, p->id, 4);
    TRY(file_join(path, work, "plan"));
    TRY(fault_point("store:parts:template-written"));
    TRY(file_save(path, out, FIXED_BYTES + length + 4));
    return fault_point("store:parts:plan-written");
}

enum status index_parts_plan_decode(struct index_parts_plan *out, const uint8_t *b, size_t size, const char *path) {
    struct index_parts_plan p = {0};
    struct store_fingerprint *f = &p.fingerprint;
    if (size < FIXED_BYTES + 4 || memcmp(b, magic, 8) != 0)
        return fail(STATUS_CORRUPT, "%s: is not the plan of an index: %s", path, remedy);
    p.id = crc32c(0, b, size - 4);
    if (p.id != little_endian_get(b + size - 4, 4)) return fail(STATUS_CORRUPT, "%s: is damaged: %s", path, remedy);
    const uint64_t version = little_endian_get(b + 8, 4);
    if (version < 1 || version > VERSION)
        return fail(STATUS_VERSION, "%s: has version %llu of plans, this program reads 1 to %d: use that program", path,
                    (unsigned long long)version, VERSION);
    memcpy(f->encoder, b + 12, 16);
    memcpy(f->tokenizer, b + 28, 16);
    f->chunk_tokens = (int32_t)little_endian_get(b + 44, 4);
    f->dim = (int32_t)little_endian_get(b + 48, 4);
    f->vocab_size = (int32_t)little_endian_get(b + 52, 4);
    f->metric = (int32_t)little_endian_get(b + 56, 4);
    p.generation = little_endian_get(b + 60, 8);
    p.chunks = (int64_t)little_endian_get(b + 68, 8);
    p.documents = (int64_t)little_endian_get(b + 76, 8);
    p.documents_crc = (uint32_t)little_endian_get(b + 84, 4);
    p.template_file = (struct stored_file){little_endian_get(b + 88, 8), (uint32_t)little_endian_get(b + 96, 4)};
    p.chosen = b[100] & 1;
    p.method = (enum store_assign_method)(b[100] >> 1);
    const size_t length = b[101];
    if (size != FIXED_BYTES + length + 4 || length < 1 || memchr(b + FIXED_BYTES, 0, length) || f->dim < 1 ||
        f->dim > 65536 || p.chunks < 1 || p.chunks > INT64_MAX / 1024 || p.documents < 1 ||
        p.documents > INT64_MAX / 1024 || p.method > STORE_ASSIGN_F32 ||
        (version == 1) != (p.method == STORE_ASSIGN_FAISS))
        return fail(STATUS_CORRUPT, "%s: has impossible numbers: %s", path, remedy);
    memcpy(p.factory, b + FIXED_BYTES, length);
    *out = p;
    return STATUS_OK;
}

enum status index_parts_plan_read(struct index_parts_plan *out, const char *work) {
    char path[FILE_PATH_MAX];
    struct file_map map;
    TRY(file_join(path, work, "plan"));
    if (!file_exists(path))
        return fail(STATUS_NOT_FOUND, "%s: no plan of an index is here: run drt-index index train first", work);
    TRY(file_map(&map, path));
    enum status s = index_parts_plan_decode(out, map.data, map.size, path);
    file_unmap(&map);
    return s;
}

struct store_range index_parts_range(const struct index_parts_plan *p, int part, int parts) {
    const int64_t block = index_build_block(p->fingerprint.dim), blocks = (p->chunks + block - 1) / block;
    const int64_t begin = (int64_t)((__int128)blocks * (part - 1) / parts) * block;
    const int64_t end = (int64_t)((__int128)blocks * part / parts) * block;
    return (struct store_range){begin < p->chunks ? begin : p->chunks, end < p->chunks ? end : p->chunks};
}

/* ---- the store ---- */

static enum status open_records(struct index_parts_store *s) {
    int format;
    TRY(catalog_open(&s->catalog, s->dir, false, 0));
    TRY(catalog_begin(&s->t, s->catalog, false));
    TRY(record_get_identity(s->t, s->catalog, &s->fingerprint, &format, &s->type));
    TRY(catalog_check_record(s->catalog, format));
    TRY(record_get_generation(s->t, s->catalog, &s->generation));
    if (s->generation.number == 0)
        return fail(STATUS_NOT_FOUND, "%s: nothing is published yet, finish the build or join first", s->dir);
    TRY(record_list_shards(s->t, s->catalog, &s->shards, s->generation.shards));
    TRY(record_get_encoded(s->t, s->catalog, &s->encoded));
    return landmarks_open(&s->landmarks, s->dir, &s->fingerprint,
                          (struct landmarks_list){s->type, s->shards, s->generation.shards}, s->generation.chunks,
                          (struct store_ranges){0});
}

enum status index_parts_store_open(struct index_parts_store *s, const char *dir) {
    *s = (struct index_parts_store){.dir = dir};
    enum status status = open_records(s);
    if (status == STATUS_OK && shard_records_chunks(s->shards, s->generation.shards) != s->generation.chunks)
        status = fail(STATUS_CORRUPT, "%s: shards and generation disagree about the chunks, run drt-index verify",
                      catalog_path(s->catalog));
    if (status != STATUS_OK) index_parts_store_close(s);
    return status;
}

void index_parts_store_close(struct index_parts_store *s) {
    landmarks_close(&s->landmarks);
    memory_free(s->shards);
    catalog_abort(s->t);
    catalog_close(s->catalog);
    *s = (struct index_parts_store){0};
}

enum status index_parts_documents(uint32_t *crc, struct catalog_txn *t, const struct catalog *c, int64_t n) {
    const int64_t sample = n < DOCUMENTS_SAMPLE ? n : DOCUMENTS_SAMPLE;
    *crc = 0;
    for (int64_t i = 0; i < sample; i++) {
        struct document_record d;
        uint8_t fields[24];
        const int64_t number = sample > 1 ? (int64_t)((__int128)(n - 1) * i / (sample - 1)) : 0;
        TRY(record_get_document(t, c, &d, number));
        little_endian_put(fields, (uint64_t)number, 8);
        little_endian_put(fields + 8, (uint64_t)d.first_chunk, 8);
        little_endian_put(fields + 16, (uint64_t)d.tokens, 8);
        *crc = crc32c(*crc, fields, sizeof fields);
        *crc = crc32c(*crc, d.hash, sizeof d.hash);
    }
    return STATUS_OK;
}

enum status index_parts_check_store(const struct index_parts_plan *p, const char *work, const char *dir,
                                    struct catalog_txn *t, const struct catalog *c,
                                    const struct store_fingerprint *fingerprint, const struct generation_record *g) {
    uint32_t crc = 0;
    TRY(store_check_fingerprint(dir, fingerprint, work, &p->fingerprint));
    bool same = g->chunks >= p->chunks && g->documents >= p->documents;
    if (same) TRY(index_parts_documents(&crc, t, c, p->documents));
    if (same && crc == p->documents_crc) return STATUS_OK;
    return fail(
        STATUS_MISMATCH,
        "%s: is the work of an index of another store than %s (%lld chunks of %lld documents, generation %llu): "
        "name that store, or another --work",
        work, dir, (long long)p->chunks, (long long)p->documents, (unsigned long long)p->generation);
}

static uint32_t shards_crc(const struct index_parts_rows *r, struct store_range range) {
    uint32_t crc = 0;
    int64_t low = 0, high = r->n_shards; /* the first shard that ends after the range's beginning */
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (r->shards[middle].first_chunk + r->shards[middle].chunks <= range.begin)
            low = middle + 1;
        else
            high = middle;
    }
    for (int64_t i = low; i < r->n_shards && r->shards[i].first_chunk < range.end; i++) {
        uint8_t fields[24];
        little_endian_put(fields, (uint64_t)r->shards[i].number, 8);
        little_endian_put(fields + 8, (uint64_t)r->shards[i].first_chunk, 8);
        little_endian_put(fields + 16, (uint64_t)r->shards[i].chunks, 8);
        crc = crc32c(crc, fields, sizeof fields);
    }
    return crc;
}

enum status index_parts_rows_crc(uint32_t *crc, const struct index_parts_rows *r, struct store_range range) {
    const int64_t n = range.end - range.begin, sample = n < ROWS_SAMPLE ? n : ROWS_SAMPLE;
    const size_t dim = (size_t)r->landmarks->dim;
    uint8_t encoded[8];
    little_endian_put(encoded, (uint64_t)r->encoded, 8);
    *crc = crc32c(shards_crc(r, range), encoded, sizeof encoded);
    for (int64_t i = 0; i < sample; i++) {
        const int64_t chunk = range.begin + (int64_t)((__int128)n * i / sample);
        int64_t mapped;
        TRY(landmarks_map(r->landmarks, &mapped, chunk, 1));
        const struct store_rows rows = landmarks_rows(r->landmarks, chunk);
        if (rows.half) *crc = crc32c(*crc, rows.half, dim * sizeof *rows.half);
        if (rows.codes) *crc = crc32c(crc32c(*crc, rows.codes, dim), rows.scales, sizeof *rows.scales);
    }
    return STATUS_OK;
}
