/* lexical_segment.c -- see lexical_segment_internal.h. */
#include "base/crc32c.h"
#include "store/lexical/lexical_segment_internal.h"
#include <stdio.h>
#include <string.h>

enum { CHECK_STEP = 1 << 14, SKIP_CHUNK_BITS = 24 };

static enum status lexical_segment_damaged(const struct lexical_segment *s, const char *what) {
    return fail(STATUS_CORRUPT, "%s: %s: run drt-index repair", s->path, what);
}

enum status lexical_segment_open(struct lexical_segment *out, const char *path) {
    struct lexical_segment s = {0};
    snprintf(s.path, sizeof s.path, "%s", path);
    TRY(file_map(&s.map, path));
    enum status status = s.map.size < LEXICAL_HEADER_BYTES + LEXICAL_FOOTER_BYTES
                             ? lexical_segment_damaged(&s, "is shorter than header and footer")
                             : lexical_frame_read(&s.frame, s.map.data, s.map.size, path);
    if (status != STATUS_OK) {
        file_unmap(&s.map);
        return status;
    }
    const uint8_t *at = s.map.data + LEXICAL_HEADER_BYTES;
    for (int i = 0; i < LEXICAL_PARTS; i++) {
        s.parts[i] = at;
        at += s.frame.bytes[i];
    }
    *out = s;
    return STATUS_OK;
}

void lexical_segment_close(struct lexical_segment *s) {
    file_unmap(&s->map);
}

/* ---- dictionary ---- */

int64_t lexical_segment_entries(const struct lexical_segment *s) {
    return (int64_t)(s->frame.bytes[LEXICAL_INDEX] / LEXICAL_INDEX_BYTES);
}

/* Walks over all keys in ascending order, from the first key of an index entry. */
struct lexical_keys {
    struct lexical_bytes at;
    uint64_t key, offset;
    int64_t done;
};

/* Sets k to the entry of the index. Its offsets are checked when they are used. */
static void keys_seek(const struct lexical_segment *s, struct lexical_keys *k, int64_t entry) {
    const uint8_t *at = s->parts[LEXICAL_INDEX] + entry * LEXICAL_INDEX_BYTES;
    uint64_t dictionary = little_endian_get(at + 8, 8), bytes = s->frame.bytes[LEXICAL_DICTIONARY];
    k->key = little_endian_get(at, 8);
    k->offset = little_endian_get(at + 16, 8);
    k->done = entry * LEXICAL_KEYS;
    const uint8_t *begin = s->parts[LEXICAL_DICTIONARY];
    k->at =
        (struct lexical_bytes){begin + (dictionary < bytes ? dictionary : bytes), begin + bytes, dictionary > bytes};
}

/* Reads the next key's entry, and moves the offset to the end of its list. */
static bool read_entry(const struct lexical_segment *s, struct lexical_keys *k, struct lexical_list *out) {
    uint64_t step = lexical_get_varint(&k->at), n = lexical_get_varint(&k->at), all = s->frame.bytes[LEXICAL_POSTINGS];
    *out = (struct lexical_list){.n = (int64_t)n, .limit = (uint32_t)s->frame.chunks, .blocks = 1};
    if (k->at.bad || n < 1 || n > (uint64_t)s->frame.chunks || k->offset > all) return false;
    k->key += step;
    uint64_t form = lexical_get_varint(&k->at), bytes = form;
    if (n <= LEXICAL_BLOCK) {
        out->kind = LEXICAL_SHORT;
        if (form > 127 || lexical_form_code((unsigned)form) >= LEXICAL_CODES) return false;
        out->form = (uint8_t)form;
        bytes = lexical_packed_bytes((int)n, lexical_form_width((unsigned)form));
        if (lexical_form_code((unsigned)form) > 0) bytes += lexical_get_varint(&k->at);
    } else if (form == 0) {
        out->kind = LEXICAL_DENSE;
        bytes = ((uint64_t)s->frame.chunks + 3) / 4;
    } else {
        out->kind = LEXICAL_BLOCKS;
        out->blocks = (uint32_t)((n + LEXICAL_BLOCK - 1) / LEXICAL_BLOCK);
    }
    if (k->at.bad || bytes > all - k->offset) return false;
    out->data = s->parts[LEXICAL_POSTINGS] + k->offset;
    out->bytes = bytes;
    k->offset += bytes;
    k->done++;
    if (out->kind != LEXICAL_BLOCKS) return true;
    uint64_t skips = (uint64_t)out->blocks * LEXICAL_SKIP_BYTES;
    if (skips > bytes) return false;
    out->bytes -= skips;
    out->skips = out->data + out->bytes;
    return true;
}

static void lexical_keys_begin(const struct lexical_segment *s, struct lexical_keys *k, int64_t entry) {
    keys_seek(s, k, entry);
    if (entry > 0) k->key--; /* a stand-in for the previous key, which is smaller */
}

static bool keys_at_one_entry(const struct lexical_keys *a, const struct lexical_keys *b) {
    return a->at.at == b->at.at && a->offset == b->offset;
}

static enum status lexical_keys_next(const struct lexical_segment *s, struct lexical_keys *k,
                                     struct lexical_list *out) {
    struct lexical_keys named = *k;
    uint64_t before = k->key;
    bool first = k->done % LEXICAL_KEYS == 0;
    if (first) keys_seek(s, &named, k->done / LEXICAL_KEYS);
    if (!keys_at_one_entry(&named, k) || (first && k->done > 0 && named.key <= before))
        return lexical_segment_damaged(s, "the index of the dictionary does not fit it");
    k->key = named.key;
    if (!read_entry(s, k, out) || (first ? k->key != named.key : k->key <= before))
        return lexical_segment_damaged(s, "the dictionary is damaged");
    return STATUS_OK;
}

enum status lexical_segment_find(const struct lexical_segment *s, struct lexical_list *out, uint64_t key) {
    *out = (struct lexical_list){.kind = LEXICAL_ABSENT};
    int64_t low = 0, high = lexical_segment_entries(s); /* finds the last entry whose first key is not greater */
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (little_endian_get(s->parts[LEXICAL_INDEX] + middle * LEXICAL_INDEX_BYTES, 8) <= key)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0) return STATUS_OK;
    struct lexical_keys k;
    keys_seek(s, &k, low - 1);
    for (int i = 0; i < LEXICAL_KEYS && k.done < s->frame.keys; i++) {
        struct lexical_list list;
        if (!read_entry(s, &k, &list)) return lexical_segment_damaged(s, "the dictionary is damaged");
        if (k.key > key) break;
        if (k.key == key) {
            *out = list;
            break;
        }
    }
    return STATUS_OK;
}

/* ---- lists ---- */

static uint32_t skip_last(const struct lexical_list *list, uint32_t block) {
    return (uint32_t)little_endian_get(list->skips + (size_t)block * LEXICAL_SKIP_BYTES, 4) & (LEXICAL_CHUNKS_MAX - 1);
}

uint32_t lexical_list_seek(const struct lexical_list *list, uint32_t from, uint32_t chunk) {
    if (list->kind != LEXICAL_BLOCKS) return from;
    uint32_t low = from, high = list->blocks;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (skip_last(list, middle) < chunk)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t lexical_list_next(const struct lexical_list *list, uint32_t from, uint32_t chunk) {
    if (list->kind != LEXICAL_BLOCKS) return from;
    while (from < list->blocks && skip_last(list, from) < chunk)
        from++;
    return from;
}

bool lexical_list_block(const struct lexical_list *list, struct lexical_block *out, uint32_t block) {
    if (list->kind == LEXICAL_SHORT)
        return lexical_block_decode(out, list->data, list->bytes, (int)list->n, list->form, 0, list->limit);
    const uint8_t *skip = list->skips + (size_t)block * LEXICAL_SKIP_BYTES;
    uint64_t begin = block ? little_endian_get(skip - 4, 4) : 0, end = little_endian_get(skip + 4, 4);
    uint32_t base = block ? skip_last(list, block - 1) + 1 : 0, last = skip_last(list, block);
    int64_t left = list->n - (int64_t)block * LEXICAL_BLOCK;
    bool ends = block + 1 == list->blocks;
    if (begin > end || end > list->bytes || (ends && end != list->bytes) || base > last || last >= list->limit)
        return false;
    return lexical_block_decode(out, list->data + begin, end - begin, left < LEXICAL_BLOCK ? (int)left : LEXICAL_BLOCK,
                                skip[3], base, last + 1) &&
           out->chunks[out->n - 1] == last;
}

/* ---- verify ---- */

static bool dense_fits(const struct lexical_list *list) {
    int64_t found = 0;
    for (int64_t i = 0; i < (int64_t)list->bytes * 4; i++) {
        int code = lexical_dense_code(list->data, i);
        if (code && i >= list->limit) return false;
        found += code != 0;
    }
    return found == list->n;
}

static bool blocks_fit(const struct lexical_list *list) {
    struct lexical_block block;
    for (uint32_t b = 0; b < list->blocks; b++)
        if (!lexical_list_block(list, &block, b)) return false;
    return true;
}

enum status lexical_segment_check(const struct lexical_segment *s, int64_t *postings, int64_t from, int64_t end,
                                  const struct progress *progress) {
    struct lexical_keys k, next;
    struct lexical_list list;
    int64_t last = end * LEXICAL_KEYS < s->frame.keys ? end * LEXICAL_KEYS : s->frame.keys;
    lexical_keys_begin(s, &k, from);
    while (k.done < last) {
        TRY(lexical_keys_next(s, &k, &list));
        if (!(list.kind == LEXICAL_DENSE ? dense_fits(&list) : blocks_fit(&list)))
            return lexical_segment_damaged(s, "a list of postings is damaged");
        *postings += list.n;
        if (k.done % CHECK_STEP == 0 && progress_stop_requested(progress))
            return fail(STATUS_INTERRUPTED, "%s: verify was stopped", s->path);
    }
    if (end < lexical_segment_entries(s)) {
        keys_seek(s, &next, end);
        return keys_at_one_entry(&k, &next) && next.key > k.key
                   ? STATUS_OK
                   : lexical_segment_damaged(s, "the index of the dictionary does not fit it");
    }
    return k.at.at == k.at.end && k.offset == s->frame.bytes[LEXICAL_POSTINGS]
               ? STATUS_OK
               : lexical_segment_damaged(s, "the lists are not those that the footer counts");
}

enum status lexical_segment_check_count(const struct lexical_segment *s, int64_t postings) {
    bool fits = s->frame.keys > 0 || (s->frame.bytes[LEXICAL_DICTIONARY] == 0 && s->frame.bytes[LEXICAL_POSTINGS] == 0);
    return fits && postings == s->frame.postings
               ? STATUS_OK
               : lexical_segment_damaged(s, "the lists are not those that the footer counts");
}

static enum status verify_lists(const struct lexical_segment *s, const struct progress *progress) {
    int64_t postings = 0, entries = lexical_segment_entries(s);
    if (entries > 0) TRY(lexical_segment_check(s, &postings, 0, entries, progress));
    return lexical_segment_check_count(s, postings);
}

enum status lexical_verify(struct lexical_range *out, const char *path, const struct progress *progress) {
    static const char *const names[LEXICAL_PARTS] = {"postings", "dictionary", "index of the dictionary"};
    struct lexical_segment s;
    TRY(lexical_segment_open(&s, path));
    enum status status = STATUS_OK;
    for (int i = 0; i < LEXICAL_PARTS && status == STATUS_OK; i++) {
        uint32_t crc = crc32c(0, s.parts[i], s.frame.bytes[i]);
        if (crc != s.frame.crc[i])
            status = fail(STATUS_CORRUPT,
                          "%s: the bytes of the %s changed: CRC32C %08x, recorded %08x, run drt-index repair", path,
                          names[i], crc, s.frame.crc[i]);
    }
    if (status == STATUS_OK) status = verify_lists(&s, progress);
    if (status == STATUS_OK) *out = (struct lexical_range){s.frame.first_chunk, s.frame.chunks};
    lexical_segment_close(&s);
    return status;
}
