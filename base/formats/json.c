/* json.c -- the pull parser. Its state says what may come next in the current object or array. */
#include "base/formats/json.h"
#include "base/formats/text.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__AVX512BW__)
#include <immintrin.h>
#endif

/* What the parser expects. The stack stores for each open level whether it is an object. */
enum { WANT_VALUE, WANT_FIRST_KEY, WANT_KEY, WANT_FIRST_ITEM, WANT_COMMA, WANT_NOTHING, FAILED };

void json_open(struct json *j, const char *name, const void *data, size_t bytes) {
    json_open_line(j, name, data, bytes, 1);
}

void json_open_line(struct json *j, const char *name, const void *data, size_t bytes, int64_t line) {
    *j = (struct json){
        .name = name, .begin = data, .at = data, .end = (const char *)data + bytes, .line = line, .state = WANT_VALUE};
}

static void skip_space(struct json *j) {
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\t' || *j->at == '\r'))
        j->at++;
}

static enum json_event json_broken(struct json *j) {
    j->state = FAILED;
    return JSON_ERROR;
}

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* Whether one of 8 bytes is a quote, a backslash or below 0x20: bit 7 of such a byte is then set. If one is set, bits
 * of bytes after it may be wrong, which the caller does not use. */
static inline uint64_t special_bytes(uint64_t bytes) {
    const uint64_t ones = UINT64_C(0x0101010101010101), high = 0x80 * ones, quote = bytes ^ '"' * ones,
                   backslash = bytes ^ '\\' * ones;
    return (((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | ((bytes - 0x20 * ones) & ~bytes)) & high;
}

/* Returns the first byte that the loop of scan_string must look at, or one of the last seven bytes. */
static inline const char *skip_plain(const char *at, const char *end) {
#if defined(__AVX512BW__)
    for (; end - at >= 64; at += 64) {
        const __m512i bytes = _mm512_loadu_si512(at);
        const uint64_t special = _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8('"')) |
                                 _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8('\\')) |
                                 _mm512_cmplt_epu8_mask(bytes, _mm512_set1_epi8(0x20));
        if (special) return at + __builtin_ctzll(special);
    }
#endif
    for (; end - at >= 8; at += 8) {
        uint64_t bytes;
        memcpy(&bytes, at, sizeof bytes);
        const uint64_t special = special_bytes(bytes);
        if (special) return at + __builtin_ctzll(special) / 8; /* numbers are little-endian here, too */
    }
    return at;
}

static bool is_escape(char c) {
    switch (c) {
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
        return true;
    default:
        return false;
    }
}

/* On entry j->at is after the opening quote, at the end after the closing one. */
static bool scan_string(struct json *j) {
    j->text = j->at;
    j->at = skip_plain(j->at, j->end);
    while (j->at < j->end) {
        unsigned char c = (unsigned char)*j->at;
        if (c == '"') {
            j->length = (size_t)(j->at - j->text);
            j->at++;
            return true;
        }
        if (c < 0x20) return false;
        if (c == '\\') {
            if (j->end - j->at < 2) return false;
            char e = j->at[1];
            if (e == 'u') {
                if (j->end - j->at < 6) return false;
                for (int i = 2; i < 6; i++)
                    if (!is_hex(j->at[i])) return false;
                j->at += 4;
            } else if (!is_escape(e)) {
                return false;
            }
            j->at = skip_plain(j->at + 2, j->end);
            continue;
        }
        j->at++;
    }
    return false;
}

static bool scan_digits(struct json *j) {
    const char *start = j->at;
    while (j->at < j->end && *j->at >= '0' && *j->at <= '9')
        j->at++;
    return j->at > start;
}

static bool scan_number(struct json *j) {
    j->text = j->at;
    if (*j->at == '-') j->at++;
    if (j->at < j->end && *j->at == '0')
        j->at++;
    else if (!scan_digits(j))
        return false;
    if (j->at < j->end && *j->at == '.') {
        j->at++;
        if (!scan_digits(j)) return false;
    }
    if (j->at < j->end && (*j->at == 'e' || *j->at == 'E')) {
        j->at++;
        if (j->at < j->end && (*j->at == '+' || *j->at == '-')) j->at++;
        if (!scan_digits(j)) return false;
    }
    j->length = (size_t)(j->at - j->text);
    return true;
}

static bool scan_word(struct json *j, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(j->end - j->at) < n || memcmp(j->at, word, n) != 0) return false;
    j->at += n;
    return true;
}

/* After a value, a comma or the end of the level is expected, or the end of the text. */
static void value_done(struct json *j) {
    j->state = j->depth == 0 ? WANT_NOTHING : WANT_COMMA;
}

static enum json_event open_level(struct json *j, bool object) {
    if (j->depth == JSON_DEPTH_MAX) return json_broken(j);
    j->stack[j->depth++] = object;
    j->at++;
    j->state = object ? WANT_FIRST_KEY : WANT_FIRST_ITEM;
    return object ? JSON_OBJECT : JSON_ARRAY;
}

static enum json_event close_level(struct json *j) {
    bool object = j->stack[--j->depth];
    j->at++;
    value_done(j);
    return object ? JSON_OBJECT_END : JSON_ARRAY_END;
}

static enum json_event read_key(struct json *j) {
    if (j->at == j->end || *j->at != '"') return json_broken(j);
    j->at++;
    if (!scan_string(j)) return json_broken(j);
    skip_space(j);
    if (j->at == j->end || *j->at != ':') return json_broken(j);
    j->at++;
    j->state = WANT_VALUE;
    return JSON_KEY;
}

static enum json_event read_value(struct json *j) {
    if (j->at == j->end) return json_broken(j);
    enum json_event event;
    bool good;
    switch (*j->at) {
    case '{':
        return open_level(j, true);
    case '[':
        return open_level(j, false);
    case '"':
        j->at++;
        event = JSON_STRING;
        good = scan_string(j);
        break;
    case 't':
        event = JSON_TRUE;
        good = scan_word(j, "true");
        break;
    case 'f':
        event = JSON_FALSE;
        good = scan_word(j, "false");
        break;
    case 'n':
        event = JSON_NULL;
        good = scan_word(j, "null");
        break;
    default:
        event = JSON_NUMBER;
        good = scan_number(j);
    }
    if (!good) return json_broken(j);
    value_done(j);
    return event;
}

enum json_event json_next(struct json *j) {
    if (j->state == FAILED) return JSON_ERROR;
    skip_space(j);
    if (j->state == WANT_COMMA) {
        if (j->at == j->end) return json_broken(j);
        bool object = j->stack[j->depth - 1];
        if (*j->at == (object ? '}' : ']')) return close_level(j);
        if (*j->at != ',') return json_broken(j);
        j->at++;
        skip_space(j);
        j->state = object ? WANT_KEY : WANT_VALUE;
    }
    switch (j->state) {
    case WANT_FIRST_KEY:
        if (j->at < j->end && *j->at == '}') return close_level(j);
        return read_key(j);
    case WANT_KEY:
        return read_key(j);
    case WANT_FIRST_ITEM:
        if (j->at < j->end && *j->at == ']') return close_level(j);
        return read_value(j);
    case WANT_NOTHING:
        return j->at == j->end ? JSON_END : json_broken(j);
    default:
        return read_value(j);
    }
}

enum status json_fail(const struct json *j, const char *expected) {
    long line = (long)j->line, column = 1;
    for (const char *p = j->begin; p < j->at && p < j->end; p++) {
        column++;
        if (*p == '\n') {
            line++;
            column = 1;
        }
    }
    bool whole = j->state == WANT_NOTHING; /* the value is complete, but not of the expected kind */
    const char *found = j->at >= j->end && !whole ? " but the text ends there" : "";
    return fail(STATUS_INVALID, "%s: line %ld, column %ld: expected %s%s", j->name, line, column, expected, found);
}

enum status json_skip_rest(struct json *j) {
    int depth = j->depth - 1;
    while (j->depth > depth)
        if (json_next(j) == JSON_ERROR) return json_fail(j, "valid JSON");
    return STATUS_OK;
}

enum status json_skip(struct json *j) {
    switch (json_next(j)) {
    case JSON_OBJECT:
    case JSON_ARRAY:
        return json_skip_rest(j);
    case JSON_STRING:
    case JSON_NUMBER:
    case JSON_TRUE:
    case JSON_FALSE:
    case JSON_NULL:
        return STATUS_OK;
    default:
        return json_fail(j, "a value");
    }
}

static uint32_t json_hex4(const char *p) {
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        v = v << 4 | (uint32_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    return v;
}

static size_t put_utf8(char out[4], uint32_t c) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 63));
        out[2] = (char)(0x80 | (c & 63));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 63));
    out[2] = (char)(0x80 | (c >> 6 & 63));
    out[3] = (char)(0x80 | (c & 63));
    return 4;
}

/* Decodes one character of an escaped string and advances *p. The scanner has already checked the escapes. */
static size_t unescape_one(char out[4], const char **p, const char *end) {
    if (**p != '\\') {
        out[0] = *(*p)++;
        return 1;
    }
    char e = (*p)[1];
    *p += 2;
    switch (e) {
    case 'b':
        out[0] = '\b';
        return 1;
    case 'f':
        out[0] = '\f';
        return 1;
    case 'n':
        out[0] = '\n';
        return 1;
    case 'r':
        out[0] = '\r';
        return 1;
    case 't':
        out[0] = '\t';
        return 1;
    case 'u':
        break;
    default:
        out[0] = e;
        return 1;
    }
    uint32_t c = json_hex4(*p);
    *p += 4;
    if (c >= 0xd800 && c < 0xdc00 && end - *p >= 6 && (*p)[0] == '\\' && (*p)[1] == 'u') {
        uint32_t low = json_hex4(*p + 2);
        if (low >= 0xdc00 && low < 0xe000) {
            *p += 6;
            return put_utf8(out, 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00));
        }
    }
    return put_utf8(out, c >= 0xd800 && c < 0xe000 ? 0xfffd : c);
}

bool json_equals(const struct json *j, const char *text) {
    const char *p = j->text, *end = j->text + j->length;
    while (p < end) {
        char one[4];
        size_t n = unescape_one(one, &p, end);
        if (strncmp(text, one, n) != 0 || memchr(one, 0, n)) return false;
        text += n;
    }
    return *text == 0;
}

enum status json_string(const struct json *j, char *out, size_t capacity, size_t *length) {
    const char *p = j->text, *end = j->text + j->length;
    size_t used = 0;
    while (p < end) {
        const char *plain = memchr(p, '\\', (size_t)(end - p));
        size_t run = (size_t)((plain ? plain : end) - p);
        if (run >= capacity - used) return json_fail(j, "a shorter string");
        memcpy(out + used, p, run);
        used += run;
        p += run;
        if (p == end) break;
        char one[4];
        size_t n = unescape_one(one, &p, end);
        if (n >= capacity - used) return json_fail(j, "a shorter string");
        memcpy(out + used, one, n);
        used += n;
    }
    out[used] = 0;
    if (length) *length = used;
    return STATUS_OK;
}

/* Copies the number as a terminated string for the C library. */
static bool number_text(const struct json *j, char out[64]) {
    if (j->length >= 64) return false;
    memcpy(out, j->text, j->length);
    out[j->length] = 0;
    return true;
}

/* Fails at the start of the current number. */
static enum status number_fail(const struct json *j, const char *expected) {
    struct json there = *j;
    there.at = j->text;
    return json_fail(&there, expected);
}

enum status json_int(const struct json *j, int64_t *out) {
    char text[64], *end;
    if (!number_text(j, text)) return json_fail(j, "an integer");
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (*end != 0 || errno != 0) return number_fail(j, "an integer of 64 bits");
    *out = value;
    return STATUS_OK;
}

enum status json_double(const struct json *j, double *out) {
    char text[64];
    if (!number_text(j, text)) return json_fail(j, "a shorter number");
    *out = text_read_number(text);
    return isfinite(*out) ? STATUS_OK : number_fail(j, "a finite number");
}

enum status json_expect(struct json *j, enum json_event event, const char *expected) {
    return json_next(j) == event ? STATUS_OK : json_fail(j, expected);
}

enum status json_next_int(struct json *j, int64_t *out) {
    TRY(json_expect(j, JSON_NUMBER, "an integer"));
    return json_int(j, out);
}

enum status json_next_int_in(struct json *j, const char *key, int32_t lowest, int32_t highest, int32_t *out) {
    int64_t value;
    TRY(json_next_int(j, &value));
    if (value < lowest || value > highest)
        return fail(STATUS_INVALID, "%s: %s is %lld: must be from %d to %d", j->name, key, (long long)value, lowest,
                    highest);
    *out = (int32_t)value;
    return STATUS_OK;
}

enum status json_next_double(struct json *j, double *out) {
    TRY(json_expect(j, JSON_NUMBER, "a number"));
    return json_double(j, out);
}

enum status json_next_bool(struct json *j, bool *out) {
    enum json_event event = json_next(j);
    if (event != JSON_TRUE && event != JSON_FALSE) return json_fail(j, "true or false");
    *out = event == JSON_TRUE;
    return STATUS_OK;
}
