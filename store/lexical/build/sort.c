/* sort.c -- see sort_internal.h.
 *
 * The records of a bucket are read as numbers, pair << 24 | chunk, with pairs less the first one of the bucket. They
 * are distributed to their ids by counting. Those of an id are in the order of the chunks, and so make the list of the
 * id. Then they are sorted by the next id, and make the lists of its pairs. If an id has many records, one pass
 * distributes their chunks alone, since the counts tell the next ids; otherwise one or two passes over digits do. */
#include "base/memory.h"
#include "store/lexical/build/sort_internal.h"
#include <string.h>

enum {
    CHUNK_BITS = 24,
    CHUNK_MASK = (1 << CHUNK_BITS) - 1,
    INSERTION_MAX = 32,
    ONE_DIGIT_MAX = 11,   /* bits */
    COLUMN_BITS_MAX = 17, /* the counts are then mostly in a processor's second cache */
    COLUMN_SHARE = 64,
    RECORD_RAM = 2 * sizeof(uint64_t) + 2 * sizeof(uint32_t) + 1,
    RECORDS_MIN = 1 << 10
};

struct sorter {
    struct sorter_config config;
    struct lists_writer lists;
    struct record_reader reader;
    size_t most; /* records in memory */
    uint64_t *sorted, *spare;
    size_t sorted_capacity, spare_capacity;
    uint32_t *column; /* chunks of the records of an id, sorted by the next id */
    size_t column_capacity;
    uint32_t *ends;    /* [2 ^ COLUMN_BITS_MAX], zero between the uses: where the records of a next id end */
    uint64_t *present; /* a bit for each of them that is not zero */
    uint32_t *chunks;  /* postings of a list */
    size_t chunks_capacity;
    uint8_t *codes;
    size_t codes_capacity;
    uint32_t *counts; /* of ids, or of digits */
    size_t counts_capacity;
};
/* Pairs of a bucket, less its first one. */
struct range {
    int bucket;
    uint64_t begin, end;
    bool tokens; /* whether its ids are whole, and their lists are to be made too */
};

enum status sorter_create(struct sorter **out, const struct sorter_config *config) {
    struct sorter *s = NULL;
    TRY(memory_allocate_zero(&s, 1));
    s->config = *config;
    const uint64_t most = config->max_ram / RECORD_RAM;
    s->most = most < RECORDS_MIN ? RECORDS_MIN : most < INT32_MAX ? (size_t)most : INT32_MAX; /* counts have 32 bits */
    s->reader = (struct record_reader){.records = config->records, .capacity = config->buffer};
    enum status status = lists_create(&s->lists, config->folder, config->chunks, config->buffer);
    if (status == STATUS_OK) status = memory_allocate(&s->reader.buffer, config->buffer + 8);
    if (status == STATUS_OK) status = memory_allocate_zero(&s->ends, (size_t)1 << COLUMN_BITS_MAX);
    if (status == STATUS_OK) status = memory_allocate_zero(&s->present, ((size_t)1 << COLUMN_BITS_MAX) / 64 + 1);
    if (status != STATUS_OK)
        sorter_free(s);
    else
        *out = s;
    return status;
}

static void free_memory(struct sorter *s) {
    memory_free(s->reader.buffer);
    memory_free(s->sorted);
    memory_free(s->spare);
    memory_free(s->column);
    memory_free(s->ends);
    memory_free(s->present);
    memory_free(s->chunks);
    memory_free(s->codes);
    memory_free(s->counts);
    s->reader.buffer = NULL;
    s->sorted = s->spare = NULL;
    s->column = s->ends = s->chunks = s->counts = NULL;
    s->present = NULL;
    s->codes = NULL;
}

void sorter_free(struct sorter *s) {
    if (!s) return;
    free_memory(s);
    lists_free(&s->lists);
    memory_free(s);
}

enum status sorter_finish(struct sorter *s) {
    free_memory(s);
    memory_free(s->lists.dense);
    s->lists.dense = NULL;
    return lists_flush(&s->lists);
}

struct lists_writer *sorter_lists(struct sorter *s) {
    return &s->lists;
}

/* ---- reading ---- */

static inline uint64_t record_at(const uint8_t *bytes, uint64_t mask) {
    uint64_t record;
    memcpy(&record, bytes, sizeof record); /* numbers are little-endian here, too */
    return record & mask;
}

static inline uint64_t number_of(uint64_t record, uint32_t first_chunk) {
    return (record >> BUCKETS_CHUNK_BITS) << CHUNK_BITS | (first_chunk + (record & ((1u << BUCKETS_CHUNK_BITS) - 1)));
}

static uint64_t record_mask(const struct bucket *b) {
    return UINT64_MAX >> (64 - 8 * b->bytes);
}

static enum status count_range(struct sorter *s, const struct range *x, int64_t *n) {
    const struct bucket *bucket = &s->config.buckets->list[x->bucket];
    const uint64_t mask = record_mask(bucket), low = x->begin << BUCKETS_CHUNK_BITS,
                   span = (x->end - x->begin) << BUCKETS_CHUNK_BITS;
    const size_t each = (size_t)bucket->bytes;
    struct record_block block;
    record_reader_begin(&s->reader, x->bucket);
    for (*n = 0;;) {
        TRY(record_reader_next(&s->reader, &block));
        if (block.n == 0) return STATUS_OK;
        for (size_t i = 0; i < block.n; i++)
            *n += record_at(block.bytes + i * each, mask) - low < span;
    }
}

static inline void load_block(uint64_t *out, const struct record_block *block, size_t each, uint64_t mask) {
    for (size_t i = 0; i < block->n; i++)
        out[i] = number_of(record_at(block->bytes + i * each, mask), block->first_chunk);
}

/* Reads the n records of the range into s->sorted. */
static enum status sort_load(struct sorter *s, const struct range *x, bool whole, size_t n) {
    const struct bucket *bucket = &s->config.buckets->list[x->bucket];
    const uint64_t mask = record_mask(bucket), low = x->begin << BUCKETS_CHUNK_BITS,
                   span = (x->end - x->begin) << BUCKETS_CHUNK_BITS;
    const size_t each = (size_t)bucket->bytes;
    struct record_block block;
    TRY(memory_grow(&s->sorted, &s->sorted_capacity, n + 1));
    TRY(memory_grow(&s->spare, &s->spare_capacity, n + 1));
    TRY(memory_grow(&s->column, &s->column_capacity, n + 1));
    TRY(memory_grow(&s->chunks, &s->chunks_capacity, n + 1));
    TRY(memory_grow(&s->codes, &s->codes_capacity, n + 1));
    record_reader_begin(&s->reader, x->bucket);
    for (uint64_t *out = s->sorted;;) {
        TRY(record_reader_next(&s->reader, &block));
        if (block.n == 0) {
            assert(out == s->sorted + n);
            return STATUS_OK;
        }
        if (whole) {
            if (each == 4) /* as in most buckets, so that it can be vector code */
                load_block(out, &block, 4, UINT32_MAX);
            else
                load_block(out, &block, each, mask);
            out += block.n;
            continue;
        }
        for (size_t i = 0; i < block.n; i++) { /* the last one is overwritten if it is not in the range */
            const uint64_t record = record_at(block.bytes + i * each, mask);
            *out = number_of(record, block.first_chunk);
            out += record - low < span;
        }
    }
}

/* ---- lists of records in memory ---- */

/* The list of an id, from its records in the order of chunks. */
static enum status make_token(struct sorter *s, int32_t id, const uint64_t *x, size_t n) {
    uint32_t *restrict chunks = s->chunks; /* copies, because a code that is written might alias a member of s */
    uint8_t *restrict codes = s->codes;
    size_t k = 0;
    uint32_t before = (uint32_t)x[0] & CHUNK_MASK, code = 0;
    chunks[0] = before;
    codes[0] = 0;
    for (size_t i = 1; i < n; i++) {
        const uint32_t chunk = (uint32_t)x[i] & CHUNK_MASK, more = code + (code < LEXICAL_CODES - 1);
        k += chunk != before;
        code = chunk != before ? 0 : more;
        before = chunk;
        chunks[k] = chunk;
        codes[k] = (uint8_t)code;
    }
    return lists_add(&s->lists, LISTS_TOKENS, (uint64_t)id, s->chunks, s->codes, (int64_t)k + 1);
}

static void insertion_sort(uint64_t *x, size_t n) {
    for (size_t i = 1; i < n; i++) {
        const uint64_t value = x[i];
        size_t at = i;
        for (; at > 0 && x[at - 1] > value; at--)
            x[at] = x[at - 1];
        x[at] = value;
    }
}

static void starts_of(uint32_t *counts, size_t n) {
    uint32_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t count = counts[i];
        counts[i] = sum;
        sum += count;
    }
}

/* Sorts by the low `bits` bits of the pair, stably. Returns where the result is: in x or in spare. */
static uint64_t *sort_pairs(struct sorter *s, uint64_t *x, uint64_t *spare, size_t n, int bits) {
    if (n <= INSERTION_MAX) {
        insertion_sort(x, n);
        return x;
    }
    if (bits == 0) return x;
    const int passes = bits <= ONE_DIGIT_MAX ? 1 : 2, digit = (bits + passes - 1) / passes;
    const size_t digits = (size_t)1 << digit;
    const uint64_t mask = digits - 1;
    uint32_t *low = s->counts, *high = low + digits;
    memset(low, 0, 2 * digits * sizeof *low);
    for (size_t i = 0; i < n; i++) {
        low[x[i] >> CHUNK_BITS & mask]++;
        high[x[i] >> (CHUNK_BITS + digit) & mask]++;
    }
    starts_of(low, digits);
    for (size_t i = 0; i < n; i++)
        spare[low[x[i] >> CHUNK_BITS & mask]++] = x[i];
    if (passes == 1) return spare;
    starts_of(high, digits);
    for (size_t i = 0; i < n; i++)
        x[high[spare[i] >> (CHUNK_BITS + digit) & mask]++] = spare[i];
    return x;
}

/* The lists of the pairs of an id, from its sorted records. pair: of the first record's bucket. */
static enum status make_pairs(struct sorter *s, uint64_t first_pair, const uint64_t *x, size_t n) {
    const struct buckets *b = s->config.buckets;
    const uint64_t vocab = (uint64_t)b->vocab;
    uint32_t *restrict chunks = s->chunks;
    uint8_t *restrict codes = s->codes;
    for (size_t i = 0; i < n;) {
        const uint64_t pair = first_pair + (x[i] >> CHUNK_BITS), next = (uint64_t)bucket_next(b, pair);
        if (next == vocab) break; /* the last tokens of chunks: after all pairs */
        const uint64_t key = vocab + (uint64_t)bucket_id(b, pair) * vocab + next;
        const uint64_t bits = x[i] >> CHUNK_BITS;
        if (i + 1 == n || x[i + 1] >> CHUNK_BITS != bits) {
            TRY(lists_add_one(&s->lists, LISTS_PAIRS, key, (uint32_t)x[i] & CHUNK_MASK));
            i++;
            continue;
        }
        size_t k = 0;
        uint32_t code = 0;
        chunks[0] = (uint32_t)x[i] & CHUNK_MASK;
        codes[0] = 0;
        for (i++; i < n && x[i] >> CHUNK_BITS == bits; i++) {
            const uint32_t more = code + (code < LEXICAL_CODES - 1);
            k += x[i] != x[i - 1];
            code = x[i] != x[i - 1] ? 0 : more;
            chunks[k] = (uint32_t)x[i] & CHUNK_MASK;
            codes[k] = (uint8_t)code;
        }
        TRY(lists_add(&s->lists, LISTS_PAIRS, key, chunks, codes, (int64_t)k + 1));
    }
    return STATUS_OK;
}

/* The list of a pair, from the chunks of its records, which become those of the list. */
static enum status make_column(struct sorter *s, uint64_t key, uint32_t *restrict chunks, size_t n) {
    uint8_t *restrict codes = s->codes;
    uint32_t before = chunks[0], code = 0;
    size_t k = 0;
    if (n == 1) return lists_add_one(&s->lists, LISTS_PAIRS, key, before);
    codes[0] = 0;
    for (size_t i = 1; i < n; i++) {
        const uint32_t chunk = chunks[i], more = code + (code < LEXICAL_CODES - 1);
        k += chunk != before;
        code = chunk != before ? 0 : more;
        before = chunk;
        chunks[k] = chunk;
        codes[k] = (uint8_t)code;
    }
    return lists_add(&s->lists, LISTS_PAIRS, key, chunks, codes, (int64_t)k + 1);
}

/* Whether one pass over the next ids, in `bits` bits, is faster than two over digits. */
static bool is_column(size_t n, int bits) {
    return n > INSERTION_MAX && bits <= COLUMN_BITS_MAX && n >= ((size_t)1 << bits) / COLUMN_SHARE;
}

/* ---- columns: the chunks of an id's records, sorted by the next id ---- */

static size_t column_words(int bits) {
    return ((size_t)1 << bits) / 64 + 1;
}

static inline void column_count(struct sorter *s, uint64_t next) {
    s->ends[next]++;
    s->present[next / 64] |= UINT64_C(1) << next % 64;
}

/* The counts become the starts of the next ids. */
static void column_starts(struct sorter *s, int bits) {
    uint32_t sum = 0;
    for (size_t word = 0; word < column_words(bits); word++)
        for (uint64_t left = s->present[word]; left; left &= left - 1) {
            uint32_t *end = &s->ends[word * 64 + (size_t)__builtin_ctzll(left)];
            const uint32_t count = *end;
            *end = sum;
            sum += count;
        }
}

/* Makes the lists of the column, whose ends are set, and leaves both tables empty. first: the pair of the number 0. */
static enum status column_lists(struct sorter *s, uint64_t first, int bits) {
    const struct buckets *b = s->config.buckets;
    const uint64_t vocab = (uint64_t)b->vocab, next = (uint64_t)bucket_next(b, first),
                   key = vocab + (uint64_t)bucket_id(b, first) * vocab + next;
    enum status status = STATUS_OK;
    uint32_t at = 0;
    for (size_t word = 0; word < column_words(bits); word++) {
        for (uint64_t left = s->present[word]; left; left &= left - 1) {
            const uint64_t number = word * 64 + (uint64_t)__builtin_ctzll(left);
            const uint32_t end = s->ends[number];
            s->ends[number] = 0;
            if (next + number < vocab && status == STATUS_OK) /* the last tokens of chunks have none */
                status = make_column(s, key + number, s->column + at, end - at);
            at = end;
        }
        s->present[word] = 0;
    }
    return status;
}

/* The same lists as of sort_pairs and make_pairs. first: the pair of the number 0 in the low `bits` bits of records. */
static enum status make_columns(struct sorter *s, uint64_t first, const uint64_t *restrict x, size_t n, int bits) {
    const uint64_t mask = (UINT64_C(1) << bits) - 1;
    uint32_t *restrict ends = s->ends, *restrict column = s->column;
    for (size_t i = 0; i < n; i++)
        column_count(s, x[i] >> CHUNK_BITS & mask);
    column_starts(s, bits);
    for (size_t i = 0; i < n; i++)
        column[ends[x[i] >> CHUNK_BITS & mask]++] = (uint32_t)x[i] & CHUNK_MASK;
    return column_lists(s, first, bits);
}

/* The same for all n pairs of a bucket of one id, from its records, which are read twice and not copied. */
static enum status make_bucket_columns(struct sorter *s, int number, size_t n, int bits) {
    const struct bucket *bucket = &s->config.buckets->list[number];
    const size_t each = (size_t)bucket->bytes;
    const uint64_t mask = record_mask(bucket);
    struct record_block block;
    TRY(memory_grow(&s->column, &s->column_capacity, n + 1));
    TRY(memory_grow(&s->codes, &s->codes_capacity, n + 1));
    for (record_reader_begin(&s->reader, number);;) {
        TRY(record_reader_next(&s->reader, &block));
        if (block.n == 0) break;
        for (size_t i = 0; i < block.n; i++)
            column_count(s, record_at(block.bytes + i * each, mask) >> BUCKETS_CHUNK_BITS);
    }
    column_starts(s, bits);
    uint32_t *restrict ends = s->ends, *restrict column = s->column;
    for (record_reader_begin(&s->reader, number);;) {
        TRY(record_reader_next(&s->reader, &block));
        if (block.n == 0) break;
        for (size_t i = 0; i < block.n; i++) {
            const uint64_t record = record_at(block.bytes + i * each, mask);
            column[ends[record >> BUCKETS_CHUNK_BITS]++] =
                block.first_chunk + ((uint32_t)record & ((1u << BUCKETS_CHUNK_BITS) - 1));
        }
    }
    return column_lists(s, bucket->begin, bits);
}

/* The lists of one id: n records at x, of which spare has as many. */
static enum status make_id(struct sorter *s, const struct range *r, uint64_t *x, uint64_t *spare, size_t n) {
    const struct buckets *b = s->config.buckets;
    const struct bucket *bucket = &b->list[r->bucket];
    const int bits = bucket->divided == 1 ? b->next_bits : bucket_bits(bucket->end - bucket->begin);
    if (n == 0) return STATUS_OK;
    if (r->tokens) TRY(make_token(s, bucket_id(b, bucket->begin + (x[0] >> CHUNK_BITS)), x, n));
    if (is_column(n, bits)) {
        const uint64_t number = x[0] >> CHUNK_BITS;
        return make_columns(s, bucket->begin + (number >> bits << bits), x, n, bits);
    }
    return make_pairs(s, bucket->begin, sort_pairs(s, x, spare, n, bits), n);
}

static enum status make_loaded(struct sorter *s, const struct range *r, size_t n) {
    const struct buckets *b = s->config.buckets;
    const uint64_t first = b->list[r->bucket].begin;
    const int32_t begin = bucket_id(b, first + r->begin), end = bucket_id(b, first + r->end - 1) + 1;
    const size_t ids = (size_t)(end - begin), digits = (size_t)2 << ONE_DIGIT_MAX;
    TRY(memory_grow(&s->counts, &s->counts_capacity, digits + ids + 1));
    if (ids == 1) return make_id(s, r, s->sorted, s->spare, n);
    uint32_t *starts = s->counts + digits; /* starts[i + 1] becomes the end of id i */
    /* a bucket of whole ids begins with the first pair of one, so its ids are the high bits */
    const int shift = CHUNK_BITS + b->next_bits;
    const uint64_t skip = r->begin >> b->next_bits;
    memset(starts, 0, (ids + 1) * sizeof *starts);
    const uint64_t *restrict sorted = s->sorted;
    uint64_t *restrict spare = s->spare;
    for (size_t i = 0; i < n; i++)
        starts[(sorted[i] >> shift) - skip]++;
    starts_of(starts, ids);
    for (size_t i = 0; i < n; i++)
        spare[starts[(sorted[i] >> shift) - skip]++] = sorted[i];
    for (size_t id = 0, at = 0; id < ids; id++) {
        const size_t have = starts[id] - at;
        TRY(make_id(s, r, s->spare + at, s->sorted + at, have));
        at += have;
    }
    return STATUS_OK;
}

/* ---- lists of more records than memory has ---- */

/* Adds the records of the range to the dense list. *n: its postings. */
static enum status add_dense(struct sorter *s, const struct range *x, int64_t *n) {
    const struct bucket *bucket = &s->config.buckets->list[x->bucket];
    const uint64_t mask = record_mask(bucket), low = x->begin << BUCKETS_CHUNK_BITS,
                   span = (x->end - x->begin) << BUCKETS_CHUNK_BITS;
    const size_t each = (size_t)bucket->bytes;
    uint8_t *dense = s->lists.dense;
    struct record_block block;
    record_reader_begin(&s->reader, x->bucket);
    for (;;) {
        TRY(record_reader_next(&s->reader, &block));
        if (block.n == 0) return STATUS_OK;
        for (size_t i = 0; i < block.n; i++) {
            const uint64_t record = record_at(block.bytes + i * each, mask),
                           number = number_of(record, block.first_chunk);
            const uint32_t chunk = (uint32_t)number & CHUNK_MASK, shift = chunk % 4 * 2;
            if (record - low >= span) continue;
            const uint32_t code = (uint32_t)dense[chunk / 4] >> shift & 3;
            *n += code == 0;
            dense[chunk / 4] = (uint8_t)(dense[chunk / 4] + ((code < LEXICAL_CODES) << shift));
        }
    }
}

/* The list of an id whose records are too many, or are in several buckets. */
static enum status make_large_token(struct sorter *s, const struct range *x, int buckets) {
    const struct buckets *b = s->config.buckets;
    const uint64_t first = b->list[x->bucket].begin;
    int64_t n = 0;
    TRY(lists_clear_dense(&s->lists));
    struct range part = *x;
    for (int i = 0; i < buckets; i++, part.bucket++) {
        if (i > 0) part.begin = 0;
        if (buckets > 1) part.end = b->list[part.bucket].end - b->list[part.bucket].begin;
        TRY(add_dense(s, &part, &n));
    }
    if (n == 0) return STATUS_OK;
    return lists_add_dense(&s->lists, LISTS_TOKENS, (uint64_t)bucket_id(b, first + x->begin), n);
}

static enum status make_large_pair(struct sorter *s, const struct range *x) {
    const struct buckets *b = s->config.buckets;
    const uint64_t pair = b->list[x->bucket].begin + x->begin, vocab = (uint64_t)b->vocab;
    const uint64_t next = (uint64_t)bucket_next(b, pair);
    int64_t n = 0;
    if (next >= vocab) return STATUS_OK;
    TRY(lists_clear_dense(&s->lists));
    TRY(add_dense(s, x, &n));
    return lists_add_dense(&s->lists, LISTS_PAIRS, vocab + (uint64_t)bucket_id(b, pair) * vocab + next, n);
}

static enum status make_range(struct sorter *s, struct range x) {
    const struct buckets *b = s->config.buckets;
    const struct bucket *bucket = &b->list[x.bucket];
    const bool whole = x.end - x.begin == bucket->end - bucket->begin;
    int64_t n = records_count(s->config.records, x.bucket);
    if (!whole && n > 0) TRY(count_range(s, &x, &n));
    if (n == 0) return STATUS_OK;
    const int bits = bucket_bits(bucket->end - bucket->begin);
    if (whole && bucket->divided != 1 && (uint64_t)n <= s->most && is_column((size_t)n, bits) &&
        records_in_memory(s->config.records))
        return make_bucket_columns(s, x.bucket, (size_t)n, bits);
    if ((uint64_t)n <= s->most) {
        TRY(sort_load(s, &x, whole, (size_t)n));
        return make_loaded(s, &x, (size_t)n);
    }
    const int32_t first = bucket_id(b, bucket->begin + x.begin), last = bucket_id(b, bucket->begin + x.end - 1);
    if (first == last && x.tokens) TRY(make_large_token(s, &x, 1));
    if (first == last) x.tokens = false;
    if (x.end - x.begin == 1) return make_large_pair(s, &x);
    const uint64_t middle = first == last ? x.begin + (x.end - x.begin) / 2
                                          : bucket_pair(b, first + (last - first + 1) / 2, 0) - bucket->begin;
    TRY(make_range(s, (struct range){x.bucket, x.begin, middle, x.tokens}));
    return make_range(s, (struct range){x.bucket, middle, x.end, x.tokens});
}

enum status sorter_bucket(struct sorter *s, int bucket, struct lists_piece pieces[LISTS_PARTS]) {
    const struct bucket *b = &s->config.buckets->list[bucket];
    struct range all = {.bucket = bucket, .begin = 0, .end = b->end - b->begin, .tokens = b->divided == 1};
    lists_begin(&s->lists, s->config.number);
    if (b->divided > 1) TRY(make_large_token(s, &all, b->divided));
    if (b->end > b->begin) TRY(make_range(s, all));
    for (int i = 0; i < LISTS_PARTS; i++)
        pieces[i] = s->lists.parts[i].piece;
    return STATUS_OK;
}
