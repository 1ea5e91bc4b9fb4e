/* tokenizer_load.c -- reads a tokenizer.json: vocabulary, merges, added tokens.
 *
 * The members of the file may have any order. One pass stores their positions. Then they are read in the order of their
 * dependencies. */
#include "base/memory.h"
#include "data/tokenizer/tokenizer_internal.h"
#include "data/tokenizer/tokenizer_json.h"
#include "data/tokenizer/utf8.h"
#include <string.h>

enum { ID_MAX = 1 << 24 }; /* far above any vocabulary; limits the memory that a damaged file can request */

enum status tokenizer_refuse(const struct tokenizer *t, const char *part, const char *what) {
    return fail(STATUS_UNSUPPORTED, "%s: %s: %s is not supported", t->path, part, what);
}

static size_t hash_spelling(const char *text, size_t bytes) {
    uint64_t h = 0xCBF29CE484222325u ^ bytes;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ (uint8_t)text[i]) * 0x100000001B3u;
    return (size_t)(h ^ h >> 32);
}

static bool tokenizer_load_spelled(const struct tokenizer *t, int32_t id, const char *text, size_t bytes) {
    const struct token *token = &t->tokens[id];
    return token->bytes == bytes && memcmp(t->spellings.data + token->at, text, bytes) == 0;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t bytes) {
    for (size_t i = hash_spelling(text, bytes);; i++) {
        int32_t id = t->by_spelling[i & t->spelling_mask];
        if (id < 0 || tokenizer_load_spelled(t, id, text, bytes)) return id;
    }
}

static void insert_spelling(struct tokenizer *t, int32_t id) {
    const struct token *token = &t->tokens[id];
    size_t i = hash_spelling(t->spellings.data + token->at, token->bytes);
    while (t->by_spelling[i & t->spelling_mask] >= 0)
        i++;
    t->by_spelling[i & t->spelling_mask] = id;
}

static size_t table_size(size_t items) {
    size_t size = 16;
    while (size < 2 * items + 2)
        size *= 2;
    return size;
}

/* Appends the current string of `j` and a NUL to the spellings. */
static enum status add_spelling(struct tokenizer *t, const struct json *j, uint32_t *at, uint32_t *bytes) {
    size_t start = t->spellings.size, length;
    if (start + j->length + 1 > UINT32_MAX) return tokenizer_refuse(t, "model", "more than 4 GiB of tokens");
    /* so that the capacity suffices: unescaped text is never longer */
    TRY(bytes_append(&t->spellings, j->text, j->length));
    TRY(json_string(j, t->spellings.data + start, t->spellings.capacity - start, &length));
    t->spellings.size = start + length + 1;
    *at = (uint32_t)start;
    *bytes = (uint32_t)length;
    return STATUS_OK;
}

static enum status add_token(struct tokenizer *t, int64_t id, uint32_t at, uint32_t bytes, uint8_t flags) {
    if (id < 0 || id >= ID_MAX) return fail(STATUS_INVALID, "%s: the id %lld is out of range", t->path, (long long)id);
    if ((size_t)id >= t->n_tokens) {
        TRY(memory_grow(&t->tokens, &t->tokens_capacity, (size_t)id + 1));
        memset(t->tokens + t->n_tokens, 0, ((size_t)id + 1 - t->n_tokens) * sizeof *t->tokens);
        t->n_tokens = (size_t)id + 1;
    }
    if (t->tokens[id].flags & TOKEN_KNOWN)
        return fail(STATUS_INVALID, "%s: two tokens have the id %lld", t->path, (long long)id);
    t->tokens[id] = (struct token){.at = at, .bytes = bytes, .flags = (uint8_t)(TOKEN_KNOWN | flags)};
    return STATUS_OK;
}

static enum status rebuild_spellings(struct tokenizer *t, size_t items) {
    memory_free(t->by_spelling);
    t->by_spelling = NULL;
    size_t size = table_size(items);
    TRY(memory_allocate(&t->by_spelling, size));
    t->spelling_mask = size - 1;
    memset(t->by_spelling, 0xFF, size * sizeof *t->by_spelling);
    for (size_t id = 0; id < t->n_tokens; id++) {
        const struct token *token = &t->tokens[id];
        if (!(token->flags & TOKEN_KNOWN)) continue;
        if (tokenizer_find(t, t->spellings.data + token->at, token->bytes) >= 0)
            return fail(STATUS_INVALID, "%s: the token \"%.60s\" occurs twice in the vocabulary", t->path,
                        t->spellings.data + token->at);
        insert_spelling(t, (int32_t)id);
    }
    return STATUS_OK;
}

static enum status read_vocab(struct tokenizer *t, struct json j) {
    TRY(json_expect(&j, JSON_OBJECT, "an object of tokens and ids"));
    enum json_event event;
    size_t count = 0;
    while ((event = json_next(&j)) == JSON_KEY) {
        uint32_t at = 0, bytes = 0;
        int64_t id = 0;
        TRY(add_spelling(t, &j, &at, &bytes));
        TRY(json_next_int(&j, &id));
        TRY(add_token(t, id, at, bytes, TOKEN_OF_MODEL));
        count++;
    }
    if (event != JSON_OBJECT_END) return json_fail(&j, "a token");
    return rebuild_spellings(t, count);
}

/* ---- merges ---------------------------------------------------------------------------------------------------- */

static enum status merge_id(const struct tokenizer *t, const char *text, size_t bytes, int32_t *id) {
    *id = tokenizer_find(t, text, bytes);
    if (*id >= 0) return STATUS_OK;
    return fail(STATUS_INVALID, "%s: a merge needs the token \"%.*s\", which is not in the vocabulary", t->path,
                (int)(bytes < 60 ? bytes : 60), text);
}

/* Looks up two spellings in `text`, the second from `second` on. */
static enum status add_merge(struct tokenizer *t, int32_t rank, const char *text, size_t first, const char *second,
                             size_t second_bytes, struct bytes *joined) {
    int32_t left, right, id;
    TRY(merge_id(t, text, first, &left));
    TRY(merge_id(t, second, second_bytes, &right));
    joined->size = 0;
    TRY(bytes_append(joined, text, first));
    TRY(bytes_append(joined, second, second_bytes));
    TRY(merge_id(t, joined->data, joined->size, &id));
    uint64_t pair = bpe_pair(left, right);
    size_t i = bpe_slot(pair);
    while (t->merges[i & t->merge_mask].rank >= 0 && t->merges[i & t->merge_mask].pair != pair)
        i++;
    t->merges[i & t->merge_mask] = (struct merge){pair, rank, id}; /* of equal merges the last one is used */
    return STATUS_OK;
}

static enum status read_string(const struct json *j, struct bytes *out) {
    out->size = 0;
    TRY(bytes_append(out, j->text, j->length));
    return json_string(j, out->data, out->capacity, &out->size);
}

/* Reads "left right" or ["left", "right"]. */
static enum status read_merge(struct tokenizer *t, struct json *j, enum json_event event, int32_t rank,
                              struct bytes work[3]) {
    if (event == JSON_ARRAY) {
        for (int i = 0; i < 2; i++) {
            TRY(json_expect(j, JSON_STRING, "a token of a merge"));
            TRY(read_string(j, &work[i]));
        }
        TRY(json_expect(j, JSON_ARRAY_END, "the end of a merge of two tokens"));
        return add_merge(t, rank, work[0].data, work[0].size, work[1].data, work[1].size, &work[2]);
    }
    if (event != JSON_STRING) return json_fail(j, "a merge");
    TRY(read_string(j, &work[0]));
    const char *text = work[0].data, *space = memchr(text, ' ', work[0].size);
    size_t first = space ? (size_t)(space - text) : 0;
    if (!space || memchr(space + 1, ' ', work[0].size - first - 1))
        return json_fail(j, "two tokens with a space between");
    return add_merge(t, rank, text, first, space + 1, work[0].size - first - 1, &work[2]);
}

static enum status read_merges(struct tokenizer *t, struct json j) {
    struct json counting = j;
    size_t count = 0;
    TRY(json_expect(&counting, JSON_ARRAY, "a list of merges"));
    for (; !json_at_array_end(&counting); count++)
        TRY(json_skip(&counting));
    if (count > ID_MAX) return tokenizer_refuse(t, "model", "a longer list of merges");
    size_t size = 2 * table_size(count); /* mostly pairs without a merge are looked up: they end at a free slot */
    TRY(memory_allocate(&t->merges, size));
    t->merge_mask = size - 1;
    t->n_ranks = count;
    for (size_t i = 0; i < size; i++)
        t->merges[i].rank = -1;
    struct bytes work[3] = {{0}};
    enum status status = json_expect(&j, JSON_ARRAY, "a list of merges");
    for (int32_t rank = 0; status == STATUS_OK && (size_t)rank < count; rank++)
        status = read_merge(t, &j, json_next(&j), rank, work);
    for (int i = 0; i < 3; i++)
        bytes_free(&work[i]);
    return status;
}

/* The merges in the order of their left ids: those of `left` are items[begin[left] .. begin[left + 1]). */
struct merges_by_left {
    size_t *begin;
    const struct merge **items;
};

static enum status sort_by_left(struct merges_by_left *out, const struct tokenizer *t) {
    TRY(memory_allocate_zero(&out->begin, t->n_tokens + 2));
    size_t *next = out->begin + 1; /* of `left`: where its next merge is written, in the end begin[left + 1] */
    for (size_t i = 0; i <= t->merge_mask; i++)
        if (t->merges[i].rank >= 0) next[(t->merges[i].pair >> 32) + 1]++;
    for (size_t left = 0; left < t->n_tokens; left++)
        next[left + 1] += next[left];
    TRY(memory_allocate(&out->items, next[t->n_tokens]));
    for (size_t i = 0; i <= t->merge_mask; i++)
        if (t->merges[i].rank >= 0) out->items[next[t->merges[i].pair >> 32]++] = &t->merges[i];
    return STATUS_OK;
}

/* The slots while rows are placed: a bit of `used` for each, and more bytes, because all bits of a window are read. */
struct placing {
    uint8_t *used;
    size_t used_capacity, slots, slots_capacity;
};
enum { WINDOW = 57 }; /* bits of a 64-bit number that begins at a byte, from any bit of this byte on */

/* Makes the first `needed` slots. The positions of slots have 31 bits. */
static enum status need_slots(struct tokenizer *t, struct placing *p, size_t needed) {
    if (needed > INT32_MAX) return tokenizer_refuse(t, "model", "a table of merges of more than 16 GB");
    const size_t before = p->used_capacity;
    if (p->slots_capacity < needed) TRY(memory_grow(&t->pairs.slots, &p->slots_capacity, needed));
    TRY(memory_grow(&p->used, &p->used_capacity, (needed + WINDOW) / 8 + 2 * sizeof(uint64_t)));
    memset(p->used + before, 0, p->used_capacity - before);
    for (; p->slots < needed; p->slots++)
        t->pairs.slots[p->slots] = (struct pair_slot){-1, 0};
    return STATUS_OK;
}

/* Returns the first row of row .. row + WINDOW - 1 where the slots of all items are free, or WINDOW more if there is
 * none. */
static size_t find_row(const struct placing *p, size_t row, const struct merge *const *items, size_t n) {
    const uint64_t all = (UINT64_C(1) << WINDOW) - 1;
    uint64_t taken = 0;
    for (size_t i = 0; i < n && taken != all; i++) {
        const size_t at = row + (uint32_t)items[i]->pair;
        uint64_t bits;
        memcpy(&bits, p->used + at / 8, sizeof bits);
        taken |= bits >> at % 8 & all;
    }
    return row + (size_t)__builtin_ctzll(~taken);
}

/* Rows of many merges come first, because rows of few fit into their gaps. Each search begins at the last row of about
 * the same length, so that it takes linear time. A row has a slot for each id, and one for the id after the last, which
 * is in no pair. */
static enum status place_rows(struct tokenizer *t, const struct merges_by_left *by, struct placing *p) {
    const size_t row_slots = t->n_tokens + 1;
    TRY(need_slots(t, p, row_slots + WINDOW));
    for (size_t least = ID_MAX; least > 0; least /= 2) {
        size_t row = 0;
        for (size_t left = 0; left < t->n_tokens; left++) {
            const struct merge *const *items = by->items + by->begin[left];
            const size_t count = by->begin[left + 1] - by->begin[left];
            if (count < least || count >= 2 * least) continue;
            size_t from;
            do {
                from = row;
                TRY(need_slots(t, p, from + WINDOW + row_slots));
                row = find_row(p, from, items, count);
            } while (row == from + WINDOW);
            t->pairs.rows[left] = (uint32_t)row;
            for (size_t i = 0; i < count; i++) {
                const size_t at = row + (uint32_t)items[i]->pair;
                t->pairs.slots[at] = (struct pair_slot){(int32_t)left, (uint32_t)items[i]->rank};
                p->used[at / 8] |= (uint8_t)(1 << at % 8);
            }
        }
    }
    return STATUS_OK;
}

static enum status make_pair_rows(struct tokenizer *t) {
    struct merges_by_left by = {0};
    struct placing placing = {0};
    enum status status;
    TRY_GOTO(status, memory_allocate_zero(&t->pairs.rows, t->n_tokens), out);
    TRY_GOTO(status, memory_allocate_zero(&t->pairs.made, t->n_ranks), out);
    TRY_GOTO(status, sort_by_left(&by, t), out);
    TRY_GOTO(status, place_rows(t, &by, &placing), out);
    for (size_t i = 0; i <= t->merge_mask; i++) {
        const struct merge *m = &t->merges[i];
        if (m->rank >= 0) t->pairs.made[m->rank] = (struct made){m->id, t->pairs.rows[m->id]};
    }
out:
    memory_free(by.begin);
    memory_free(by.items);
    memory_free(placing.used);
    return status;
}

/* ---- model and added tokens -------------------------------------------------------------------------------------- */

static enum status read_unknown(struct tokenizer *t, const struct fields *f, int index) {
    if (!f->present[index]) return STATUS_OK;
    struct bytes unk = {0};
    enum status status = field_text(f, index, &unk);
    if (status == STATUS_OK) {
        t->unk_id = tokenizer_find(t, unk.data, unk.size);
        if (t->unk_id < 0) status = fail(STATUS_INVALID, "%s: the unk_token is not in the vocabulary", t->path);
    }
    bytes_free(&unk);
    return status;
}

static enum status read_model(struct tokenizer *t, const struct json *at) {
    static const char *const names[] = {
        "vocab",    "merges",        "unk_token",    "dropout", "continuing_subword_prefix", "end_of_word_suffix",
        "fuse_unk", "byte_fallback", "ignore_merges"};
    struct fields type, f;
    TRY(fields_type(&type, t, "model", *at));
    if (type.type && !field_is_type(&type, "BPE")) return tokenizer_refuse(t, "model", "any type other than BPE");
    TRY(fields_read(&f, t, "model", *at, names, ARRAY_LEN(names)));
    if (!f.present[0] || !f.present[1])
        return fail(STATUS_INVALID, "%s: the model has no vocab and merges of a BPE", t->path);
    TRY(read_vocab(t, f.value[0]));
    TRY(read_merges(t, f.value[1]));
    TRY(read_unknown(t, &f, 2));
    if (f.present[3]) {
        struct json j = f.value[3];
        double dropout;
        TRY(json_next_double(&j, &dropout));
        if (dropout != 0) return tokenizer_refuse(t, "model", "dropout");
    }
    if (f.present[4] && !field_is(&f, 4, "")) return tokenizer_refuse(t, "model", "continuing_subword_prefix");
    if (f.present[5] && !field_is(&f, 5, "")) return tokenizer_refuse(t, "model", "end_of_word_suffix");
    TRY(field_bool(&f, 6, false, &t->fuse_unk));
    TRY(field_bool(&f, 7, false, &t->byte_fallback));
    return field_bool(&f, 8, false, &t->ignore_merges);
}

/* Reads one added token. Its spelling is appended to t->spellings, and `a->at` is its position there. */
static enum status read_added(struct tokenizer *t, struct json at, struct added *a) {
    static const char *const names[] = {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"};
    struct fields f;
    int64_t id;
    TRY(fields_read(&f, t, "added_tokens", at, names, ARRAY_LEN(names)));
    TRY(field_int(&f, 0, -1, &id));
    TRY(field_bool(&f, 2, false, &a->single_word));
    TRY(field_bool(&f, 3, false, &a->lstrip));
    TRY(field_bool(&f, 4, false, &a->rstrip));
    TRY(field_bool(&f, 6, false, &a->special));
    TRY(field_bool(&f, 5, !a->special, &a->normalized));
    struct json content = f.value[1];
    if (!f.present[1]) return fail(STATUS_INVALID, "%s: an added token has no content", t->path);
    TRY(json_expect(&content, JSON_STRING, "a string"));
    TRY(add_spelling(t, &content, &a->at, &a->bytes));
    const char *text = t->spellings.data + a->at;
    int32_t known = tokenizer_find(t, text, a->bytes);
    if (known >= 0 && known != id)
        return fail(STATUS_INVALID, "%s: the added token \"%.60s\" has the id %lld, and %d in the vocabulary", t->path,
                    text, (long long)id, known);
    uint8_t special = a->special ? TOKEN_SPECIAL : 0;
    if (known >= 0)
        t->tokens[known].flags |= special;
    else
        TRY(add_token(t, id, a->at, a->bytes, special));
    a->id = (int32_t)id;
    return STATUS_OK;
}

/* Added tokens are searched in this order of kinds: special ones first, as in the reference's automaton. */
static enum status read_added_tokens(struct tokenizer *t, struct json j, struct added **items, int *count) {
    size_t capacity = 0;
    TRY(json_expect(&j, JSON_ARRAY, "a list of added tokens"));
    while (!json_at_array_end(&j)) {
        TRY(memory_grow(items, &capacity, (size_t)*count + 1));
        struct added *a = &(*items)[*count];
        *a = (struct added){0};
        TRY(read_added(t, j, a));
        TRY(json_skip(&j));
        if (a->bytes > 0) ++*count;
        if (*count == ID_MAX) return tokenizer_refuse(t, "added_tokens", "a longer list");
    }
    size_t known = 0;
    for (size_t id = 0; id < t->n_tokens; id++)
        known += t->tokens[id].flags & TOKEN_KNOWN;
    return rebuild_spellings(t, known);
}

enum status tokenizer_load(struct tokenizer *t, const char *data, size_t bytes) {
    static const char *const names[] = {"model",   "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                                        "decoder", "truncation",   "padding",    "version"};
    size_t valid = utf8_valid_prefix(data, bytes);
    if (valid != bytes) return fail(STATUS_INVALID, "%s: byte %zu is not valid UTF-8", t->path, valid);
    struct json j;
    json_open(&j, t->path, data, bytes);
    struct json whole = j;
    TRY(json_skip(&whole));
    TRY(json_expect(&whole, JSON_END, "nothing after the object"));
    struct fields f;
    TRY(fields_read(&f, t, "tokenizer.json", j, names, ARRAY_LEN(names)));
    if (!f.present[0]) return fail(STATUS_INVALID, "%s: no model; this is not a tokenizer.json", t->path);
    if (f.present[6]) return tokenizer_refuse(t, "truncation", "anything but null");
    if (f.present[7]) return tokenizer_refuse(t, "padding", "anything but null");
    TRY(scanner_classes(&t->classes));
    TRY(read_model(t, &f.value[0]));
    struct added *added = NULL;
    struct tokenizer_scratch *scratch = NULL;
    int count = 0;
    enum status status = STATUS_OK;
    if (f.present[1]) TRY_GOTO(status, read_added_tokens(t, f.value[1], &added, &count), out);
    if (f.present[2]) TRY_GOTO(status, tokenizer_load_normalizer(t, &f.value[2]), out);
    if (f.present[3]) TRY_GOTO(status, tokenizer_load_pre_tokenizer(t, &f.value[3]), out);
    if (f.present[4]) TRY_GOTO(status, tokenizer_load_post_processor(t, &f.value[4]), out);
    if (f.present[5]) TRY_GOTO(status, tokenizer_load_decoder(t, &f.value[5]), out);
    TRY_GOTO(status, make_pair_rows(t), out);
    TRY_GOTO(status, bpe_prepare(t), out);
    TRY_GOTO(status, tokenizer_scratch_create(&scratch, t), out);
    TRY_GOTO(status, added_prepare(t, scratch, added, &t->spellings, count), out);
    TRY_GOTO(status, decode_prepare(t), out);
out:
    tokenizer_scratch_free(scratch);
    memory_free(added);
    return status;
}
