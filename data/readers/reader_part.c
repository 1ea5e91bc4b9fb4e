/* reader_part.c -- selects the share of the inputs that one of several processes reads.
 *
 * The bytes (on disk) of all inputs, one after another, are divided into N ranges. Part i has the bytes from
 * floor((i-1) * all / N) to floor(i * all / N), and the records that begin there: lines of plain jsonl, documents of
 * u16, u32 and Megatron files. Any other file is one record. So each process computes its share from names and sizes.
 * Every record is in exactly one part, in the order of the inputs.
 *
 * A part reads the file in which it begins from the file's start, to count lines, because line numbers are those of the
 * file. */
#include "base/memory.h"
#include "data/readers/reader_internal.h"
#include <string.h>
#include <xxhash.h>

static bool part_can_cut(const struct reader *r, const struct input_file *f, enum status *status) {
    bool plain = false;
    switch (f->format) {
    case READER_JSONL:
        *status = stream_is_plain(&plain, f->path);
        return plain;
    case READER_U16:
    case READER_U32:
        return r->eod_id >= 0;
    case READER_MEGATRON:
        return true;
    default:
        return false;
    }
}

/* Reduces f to its share of the bytes low .. high-1, where f begins at byte `start`. *none: f has no share. */
static enum status part_of_file(const struct reader *r, struct input_file *f, uint64_t start, struct reader_span share,
                                bool *none) {
    uint64_t bytes = (uint64_t)f->bytes, end = start + bytes;
    enum status s = STATUS_OK;
    bool at_edge = (share.begin > start && share.begin < end) || (share.end > start && share.end < end);
    *none = start < share.begin || start >= share.end;
    if (!at_edge || !part_can_cut(r, f, &s)) return s;
    *none = end <= share.begin || start >= share.end;
    if (share.begin > start) f->begin = share.begin - start;
    if (share.end < end) f->end = share.end - start;
    return STATUS_OK;
}

static uint64_t part_boundary(uint64_t all, int part, int parts) {
    return (uint64_t)((unsigned __int128)all * (unsigned)part / (unsigned)parts);
}

/* Computes a hash of names, formats and sizes of all inputs, which is the same in all parts of a corpus. */
static enum status part_list_hash(struct reader *r) {
    XXH64_hash_t h = 0;
    for (size_t i = 0; i < r->n_files; i++) {
        const struct input_file *f = &r->files[i];
        int64_t fields[2] = {f->bytes, (int64_t)f->format};
        if (f->bytes < 0)
            return fail(STATUS_INVALID, "%s: a part can be read only of plain files, whose size is known", f->path);
        h = XXH3_64bits_withSeed(f->path, strlen(f->path), h);
        h = XXH3_64bits_withSeed(fields, sizeof fields, h);
    }
    r->list_hash = h;
    return STATUS_OK;
}

enum status reader_take_part(struct reader *r, int part, int parts) {
    uint64_t all = 0, start = 0;
    TRY(part_list_hash(r));
    for (size_t i = 0; i < r->n_files; i++)
        all += (uint64_t)r->files[i].bytes;
    struct reader_span share = {part_boundary(all, part - 1, parts), part_boundary(all, part, parts)};
    if (part == parts) share.end = UINT64_MAX; /* includes empty files at the end */
    size_t kept = 0;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < r->n_files; i++) {
        struct input_file f = r->files[i];
        uint64_t bytes = (uint64_t)f.bytes;
        bool none = true;
        if (status == STATUS_OK) status = part_of_file(r, &f, start, share, &none);
        start += bytes;
        if (f.end < bytes) f.bytes = (int64_t)f.end; /* for progress */
        if (none)
            memory_free(f.path);
        else
            r->files[kept++] = f;
    }
    r->n_files = kept;
    return status;
}

uint64_t reader_list_hash(const struct reader *r) {
    return r->list_hash;
}
