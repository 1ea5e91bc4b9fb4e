/* reader_megatron.c -- Megatron-LM indexed datasets: <prefix>.idx has the positions of the sequences in <prefix>.bin.
 *
 * idx, little-endian: "MMIDIDX\0\0", u64 version 1, u8 type code, u64 sequences, u64 entries of the document index,
 * i32 lengths[sequences], i64 pointers[sequences] (bytes in .bin), i64 documents[entries] (first sequence of each
 * document, and the end), optionally i8 modes[sequences]. All of it is checked when the file is opened. */
#include "base/little_endian.h"
#include "base/memory.h"
#include "data/readers/reader_internal.h"
#include <string.h>

enum { HEADER = 34 };
static const char magic[9] = "MMIDIDX\0";

static int64_t length_of(const struct megatron *m, uint64_t i) {
    return (int32_t)little_endian_get(m->lengths + 4 * i, 4);
}
static int64_t pointer_of(const struct megatron *m, uint64_t i) {
    return (int64_t)little_endian_get(m->pointers + 8 * i, 8);
}
static int64_t document_of(const struct megatron *m, uint64_t i) {
    return (int64_t)little_endian_get(m->documents + 8 * i, 8);
}

static int width_of(int code) {
    switch (code) {
    case 1:
    case 2:
        return 1;
    case 3:
    case 8:
        return 2;
    case 4:
        return 4;
    case 5:
        return 8;
    default:
        return 0;
    }
}

static enum status check_header(struct megatron *m, const char *path) {
    const uint8_t *p = m->index.data;
    if (m->index.size < HEADER || memcmp(p, magic, sizeof magic) != 0)
        return fail(STATUS_INVALID, "%s: is not a Megatron index (MMIDIDX is missing at its start)", path);
    if (little_endian_get(p + 9, 8) != 1)
        return fail(STATUS_VERSION, "%s: version %llu; only 1 is known", path,
                    (unsigned long long)little_endian_get(p + 9, 8));
    m->code = p[17];
    m->width = width_of(m->code);
    if (m->width == 0) return fail(STATUS_UNSUPPORTED, "%s: type code %d is not one of integers", path, m->code);
    m->n_sequences = little_endian_get(p + 18, 8);
    uint64_t entries = little_endian_get(p + 26, 8), body = m->index.size - HEADER;
    bool fits = m->n_sequences <= body / 12 && entries <= body / 8 && entries >= 1;
    uint64_t need = fits ? 12 * m->n_sequences + 8 * entries : 0;
    if (!fits || (body != need && body != need + m->n_sequences))
        return fail(STATUS_INVALID, "%s: its size of %zu bytes does not fit %llu sequences and %llu document entries",
                    path, m->index.size, (unsigned long long)m->n_sequences, (unsigned long long)entries);
    m->n_documents = entries - 1;
    m->lengths = p + HEADER;
    m->pointers = m->lengths + 4 * m->n_sequences;
    m->documents = m->pointers + 8 * m->n_sequences;
    return STATUS_OK;
}

static enum status check_entries(const struct megatron *m, const char *path) {
    for (uint64_t i = 0; i < m->n_sequences; i++) {
        int64_t length = length_of(m, i), at = pointer_of(m, i);
        if (length < 0 || at < 0 || (uint64_t)at > m->data.size ||
            (uint64_t)length > (m->data.size - (uint64_t)at) / (unsigned)m->width)
            return fail(STATUS_INVALID, "%s: sequence %llu (%lld ids from byte %lld) lies outside of %s with %zu bytes",
                        path, (unsigned long long)i, (long long)length, (long long)at, m->data_path, m->data.size);
    }
    for (uint64_t i = 0; i <= m->n_documents; i++) {
        int64_t low = i == 0 ? 0 : document_of(m, i - 1), here = document_of(m, i);
        bool good = here >= low && (uint64_t)here <= m->n_sequences;
        if (i == 0) good = here == 0;
        if (i == m->n_documents) good = good && (uint64_t)here == m->n_sequences;
        if (!good)
            return fail(STATUS_INVALID, "%s: entry %llu of the document index is %lld, out of order for %llu sequences",
                        path, (unsigned long long)i, (long long)here, (unsigned long long)m->n_sequences);
    }
    return STATUS_OK;
}

static uint64_t megatron_document_at(const struct megatron *m, uint64_t byte) {
    return (uint64_t)(((unsigned __int128)byte * m->n_documents + m->data.size - 1) / m->data.size);
}

enum status megatron_open(struct reader *r) {
    struct megatron *m = &r->megatron;
    char bin[FILE_PATH_MAX], idx[FILE_PATH_MAX];
    (void)megatron_path(bin, reader_file(r)->path, ".bin");
    (void)megatron_path(idx, reader_file(r)->path, ".idx");
    TRY(memory_copy_string(&m->data_path, bin));
    TRY(file_map(&m->index, idx));
    TRY(file_map(&m->data, bin));
    TRY(check_header(m, idx));
    TRY(check_entries(m, idx));
    /* A part's range of bytes is used as a range of documents, because documents may be anywhere in .bin. */
    const struct input_file *f = reader_file(r);
    m->next = m->data.size ? megatron_document_at(m, f->begin) : 0;
    m->last = f->end < m->data.size ? megatron_document_at(m, f->end) : m->n_documents;
    r->position.offset = m->next;
    return STATUS_OK;
}

void megatron_close(struct reader *r) {
    struct megatron *m = &r->megatron;
    file_unmap(&m->index);
    file_unmap(&m->data);
    memory_free(m->data_path);
    m->data_path = NULL;
    m->index = m->data = (struct file_map){0};
}

/* Reads one id. Returns false if it is negative or has more than 32 bits. */
static bool read_id(const struct megatron *m, const uint8_t *p, uint32_t *out) {
    uint64_t value = little_endian_get(p, m->width);
    bool is_signed = m->code >= 2 && m->code <= 5;
    if (is_signed && value >> (8 * m->width - 1)) return false;
    *out = (uint32_t)value;
    return value <= UINT32_MAX;
}

enum status megatron_next(struct reader *r, struct document *d, int *more) {
    struct megatron *m = &r->megatron;
    *more = m->next < m->last;
    if (!*more) return STATUS_OK;
    uint64_t begin = (uint64_t)document_of(m, m->next), end = (uint64_t)document_of(m, m->next + 1);
    size_t n = 0;
    for (uint64_t s = begin; s < end; s++) {
        size_t length = (size_t)length_of(m, s);
        if ((n + length) * (size_t)m->width > r->max_bytes)
            return fail(STATUS_UNSUPPORTED, "%s: document %llu is longer than the limit of %llu bytes",
                        reader_file(r)->path, (unsigned long long)m->next, (unsigned long long)r->max_bytes);
        TRY(memory_grow(&m->ids, &m->ids_capacity, n + length + 1));
        const uint8_t *p = m->data.data + pointer_of(m, s);
        for (size_t i = 0; i < length; i++)
            if (!read_id(m, p + i * (size_t)m->width, &m->ids[n + i]))
                return fail(STATUS_INVALID, "%s: the id at byte %lld is negative or too large", m->data_path,
                            (long long)(pointer_of(m, s) + (int64_t)i * m->width));
        n += length;
    }
    TRY(memory_grow(&m->ids, &m->ids_capacity, 1));
    reader_part_add(r, &(uint64_t){n}, sizeof(uint64_t));
    reader_part_add(r, m->ids, n * sizeof *m->ids);
    if (n > 0 && r->eod_id >= 0 && (int64_t)m->ids[n - 1] == r->eod_id) n--;
    d->ids = m->ids;
    d->n_ids = n;
    d->offset = begin < end ? (uint64_t)pointer_of(m, begin) : 0;
    r->position.offset = ++m->next; /* counts documents, because sequences may be anywhere in .bin */
    return STATUS_OK;
}
