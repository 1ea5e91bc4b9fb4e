/* wordpiece.c -- the vocabulary of a BERT-type encoder, and the greedy division of words into its pieces.
 * wordpiece_text.c normalises the text. */
#include "base/file.h"
#include "base/formats/json.h"
#include "base/memory.h"
#include "data/tokenizer/utf8.h"
#include "data/wordpiece/wordpiece_internal.h"
#include <assert.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* puts the hash state on the stack */
#include <xxhash.h>

enum { VOCAB_MAX = 1 << 22, TOKEN_BYTES_MAX = 1024 };

struct wordpiece_token {
    uint32_t offset, bytes;
};

struct wordpiece {
    struct wordpiece_options options;
    char *text; /* the bytes of the file */
    size_t text_bytes;
    struct wordpiece_token *tokens; /* [n] */
    size_t capacity;
    int32_t n;
    int32_t *table; /* [mask + 1] ids by hash, -1: free */
    uint64_t mask;
    size_t longest; /* the most bytes of a token */
    int32_t unknown, begin, end;
};

/* ---- the vocabulary --------------------------------------------------------------------------------------- */

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static enum status cut_lines(struct wordpiece *w, const char *name) {
    for (size_t at = 0; at < w->text_bytes; w->n++) {
        const char *line = w->text + at, *newline = memchr(line, '\n', w->text_bytes - at);
        size_t bytes = newline ? (size_t)(newline - line) : w->text_bytes - at;
        at += bytes + (newline != NULL);
        while (bytes > 0 && is_blank(line[bytes - 1]))
            bytes--;
        if (bytes > TOKEN_BYTES_MAX)
            return fail(STATUS_INVALID, "%s: line %d has %zu bytes: a vocabulary has a token a line", name, w->n + 1,
                        bytes);
        if (w->n == VOCAB_MAX)
            return fail(STATUS_INVALID, "%s: has more than %d lines: a vocabulary has a token a line", name, VOCAB_MAX);
        TRY(memory_grow(&w->tokens, &w->capacity, (size_t)w->n + 1));
        w->tokens[w->n] = (struct wordpiece_token){(uint32_t)(line - w->text), (uint32_t)bytes};
        if (bytes > w->longest) w->longest = bytes;
    }
    return STATUS_OK;
}

/* Returns the cell of this token, or the free cell for it. */
static int32_t *find_cell(const struct wordpiece *w, const char *text, size_t bytes) {
    uint64_t i = XXH3_64bits(text, bytes) & w->mask;
    for (;; i = (i + 1) & w->mask) {
        int32_t id = w->table[i];
        if (id < 0) return &w->table[i];
        const struct wordpiece_token *t = &w->tokens[id];
        if (t->bytes == bytes && memcmp(w->text + t->offset, text, bytes) == 0) return &w->table[i];
    }
}

static enum status fill_table(struct wordpiece *w) {
    uint64_t size = 16;
    while (size < 2 * (uint64_t)w->n)
        size *= 2;
    w->mask = size - 1;
    TRY(memory_allocate(&w->table, size));
    memset(w->table, -1, size * sizeof *w->table);
    for (int32_t id = 0; id < w->n; id++) /* of equal lines the last one is used, as in a Python dictionary */
        *find_cell(w, w->text + w->tokens[id].offset, w->tokens[id].bytes) = id;
    return STATUS_OK;
}

static enum status find_special(const struct wordpiece *w, int32_t *out, const char *name, const char *token) {
    *out = *find_cell(w, token, strlen(token));
    if (*out >= 0) return STATUS_OK;
    return fail(STATUS_UNSUPPORTED, "%s: has no token %s: this is not the vocabulary of a BERT-type encoder", name,
                token);
}

enum status wordpiece_parse(struct wordpiece **out, const char *name, const void *data, size_t bytes,
                            struct wordpiece_options options) {
    struct wordpiece *w;
    enum status s;
    if (bytes >= UINT32_MAX) return fail(STATUS_INVALID, "%s: %zu bytes are not a vocabulary", name, bytes);
    TRY(memory_allocate_zero(&w, 1));
    w->options = options;
    if (options.strip_accents < 0) w->options.strip_accents = options.lower;
    w->text_bytes = bytes;
    TRY_GOTO(s, memory_allocate(&w->text, bytes + 1), out);
    memcpy(w->text, data, bytes);
    TRY_GOTO(s, cut_lines(w, name), out);
    TRY_GOTO(s, fill_table(w), out);
    TRY_GOTO(s, find_special(w, &w->unknown, name, "[UNK]"), out);
    TRY_GOTO(s, find_special(w, &w->begin, name, "[CLS]"), out);
    TRY_GOTO(s, find_special(w, &w->end, name, "[SEP]"), out);
out:
    if (s == STATUS_OK)
        *out = w;
    else
        wordpiece_free(w);
    return s;
}

void wordpiece_free(struct wordpiece *w) {
    if (!w) return;
    memory_free(w->text);
    memory_free(w->tokens);
    memory_free(w->table);
    memory_free(w);
}

int32_t wordpiece_vocab_size(const struct wordpiece *w) {
    return w->n;
}

bool wordpiece_lowers(const struct wordpiece *w) {
    return w->options.lower;
}

void wordpiece_fingerprint(const struct wordpiece *w, uint8_t out[16]) {
    const uint8_t options[3] = {w->options.lower, w->options.chinese, w->options.strip_accents > 0};
    XXH3_state_t state;
    XXH128_canonical_t canonical;
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, options, sizeof options);
    for (int32_t id = 0; id < w->n; id++) {
        XXH3_128bits_update(&state, w->text + w->tokens[id].offset, w->tokens[id].bytes);
        XXH3_128bits_update(&state, "\n", 1);
    }
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
    memcpy(out, canonical.digest, 16);
}

/* ---- the folder --------------------------------------------------------------------------------------------- */

static enum status read_flag(struct json *j, int *out, const char *expected) {
    enum json_event event = json_next(j);
    if (event == JSON_NULL) return STATUS_OK;
    if (event != JSON_TRUE && event != JSON_FALSE) return json_fail(j, expected);
    *out = event == JSON_TRUE;
    return STATUS_OK;
}

static enum status read_class(struct json *j) {
    struct json class = *j;
    if (json_next(&class) == JSON_STRING && json_equals(&class, "BertJapaneseTokenizer"))
        return fail(STATUS_UNSUPPORTED,
                    "%s: tokenizer_class is \"BertJapaneseTokenizer\": it divides text into words "
                    "with a dictionary, which is not supported",
                    j->name);
    return json_skip(j);
}

enum status wordpiece_options_parse(struct wordpiece_options *out, const char *name, const void *data, size_t bytes) {
    struct json j;
    int lower = 1, chinese = 1, accents = -1;
    json_open(&j, name, data, bytes);
    TRY(json_expect(&j, JSON_OBJECT, "an object"));
    for (enum json_event e = json_next(&j); e != JSON_OBJECT_END; e = json_next(&j)) {
        if (e != JSON_KEY) return json_fail(&j, "a member");
        if (json_equals(&j, "do_lower_case"))
            TRY(read_flag(&j, &lower, "do_lower_case: true, false or null"));
        else if (json_equals(&j, "tokenize_chinese_chars"))
            TRY(read_flag(&j, &chinese, "tokenize_chinese_chars: true, false or null"));
        else if (json_equals(&j, "strip_accents"))
            TRY(read_flag(&j, &accents, "strip_accents: true, false or null"));
        else if (json_equals(&j, "tokenizer_class"))
            TRY(read_class(&j));
        else
            TRY(json_skip(&j));
    }
    TRY(json_expect(&j, JSON_END, "the end of the file"));
    *out = (struct wordpiece_options){.lower = lower, .chinese = chinese, .strip_accents = accents};
    return STATUS_OK;
}

static enum status load_options(struct wordpiece_options *out, const char *folder) {
    char path[FILE_PATH_MAX];
    struct file_map map = {0};
    *out = (struct wordpiece_options){.lower = true, .chinese = true, .strip_accents = -1};
    TRY(file_join(path, folder, "tokenizer_config.json"));
    if (!file_exists(path)) return STATUS_OK;
    TRY(file_map(&map, path));
    enum status s = wordpiece_options_parse(out, path, map.data, map.size);
    file_unmap(&map);
    return s;
}

enum status wordpiece_open(struct wordpiece **out, const char *folder) {
    char path[FILE_PATH_MAX];
    struct wordpiece_options options;
    struct file_map map = {0};
    TRY(file_join(path, folder, "vocab.txt"));
    if (!file_exists(path))
        return fail(STATUS_NOT_FOUND, "%s: no such file; the folder of a BERT-type encoder has its vocabulary there",
                    path);
    TRY(load_options(&options, folder));
    TRY(file_map(&map, path));
    enum status s = wordpiece_parse(out, path, map.data, map.size, options);
    file_unmap(&map);
    return s;
}

/* ---- encoding ------------------------------------------------------------------------------------------------ */

enum status wordpiece_scratch_create(struct wordpiece_scratch **out) {
    return memory_allocate_zero(out, 1);
}

void wordpiece_scratch_free(struct wordpiece_scratch *s) {
    if (!s) return;
    memory_free(s->codes);
    memory_free(s->ids);
    memory_free(s);
}

static enum status push_id(struct wordpiece_scratch *s, int32_t id) {
    TRY(memory_grow(&s->ids, &s->ids_capacity, s->n_ids + 1));
    s->ids[s->n_ids++] = id;
    return STATUS_OK;
}

/* Finds the longest piece at byte `at` of the word; -1: none. The buffer has "##" before the word, for all pieces
 * after the first. */
static int32_t longest_piece(const struct wordpiece *w, char *word, const uint16_t *ends, int n, int first, int *next) {
    size_t begin = first > 0 ? ends[first - 1] : 2, from = first > 0 ? begin - 2 : begin;
    char kept[2] = {word[from], word[from + 1]};
    int32_t id = -1;
    if (first > 0) memcpy(word + from, "##", 2);
    for (int last = n; last > first && id < 0; last--) {
        if (ends[last - 1] - from > w->longest) continue;
        id = *find_cell(w, word + from, ends[last - 1] - from);
        *next = last;
    }
    if (first > 0) memcpy(word + from, kept, 2);
    return id;
}

/* A word that cannot be divided into pieces is one [UNK]. */
static enum status encode_word(const struct wordpiece *w, struct wordpiece_scratch *s, const uint32_t *codes,
                               size_t n) {
    char word[2 + 4 * WORDPIECE_WORD_MAX];
    uint16_t ends[WORDPIECE_WORD_MAX];
    size_t before = s->n_ids, bytes = 2;
    if (n > WORDPIECE_WORD_MAX) return push_id(s, w->unknown);
    for (size_t i = 0; i < n; i++) {
        bytes += (size_t)utf8_encode(word + bytes, codes[i]);
        ends[i] = (uint16_t)bytes;
    }
    for (int first = 0; first < (int)n;) {
        int32_t id = longest_piece(w, word, ends, (int)n, first, &first);
        if (id < 0) {
            s->n_ids = before;
            return push_id(s, w->unknown);
        }
        TRY(push_id(s, id));
    }
    return STATUS_OK;
}

enum status wordpiece_encode(const struct wordpiece *w, struct wordpiece_scratch *s, const char *text, size_t bytes,
                             size_t most, const int32_t **ids, size_t *n) {
    assert(most >= 3);
    s->n_ids = 0;
    TRY(push_id(s, w->begin));
    TRY(wordpiece_text(s, w->options, text, bytes));
    for (size_t at = 0, end; at < s->n_codes && s->n_ids < most; at = end + 1) {
        for (end = at; end < s->n_codes && s->codes[end];)
            end++;
        if (end > at) TRY(encode_word(w, s, s->codes + at, end - at));
    }
    if (s->n_ids > most - 1) s->n_ids = most - 1;
    TRY(push_id(s, w->end));
    *ids = s->ids;
    *n = s->n_ids;
    return STATUS_OK;
}
