/* tokenizer_regex.c -- runs the patterns of a tokenizer.json with PCRE2.
 *
 * The patterns are written for Oniguruma (Ruby syntax). Constructs with the same meaning in both are not changed. \s
 * and \w, whose Unicode meaning differs, are replaced by explicit classes. Constructs whose meaning differs in another
 * way are an error when the file is loaded. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/memory.h"
#include "data/tokenizer/tokenizer_internal.h"
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

struct regex {
    pcre2_code *code;
    char *name;
};
struct regex_scratch {
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

enum { JIT_STACK_START = 32 << 10, JIT_STACK_MAX = 8 << 20, PATTERN_MAX = 64 << 10 };

#define SPACES                                                                                                         \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NOT_SPACES                                                                                                     \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"                    \
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
/* The class of \w: alphabetic, marks, decimal digits, connectors, circled letters (alphabetic symbols). Outside of a
 * class it also has the superscript digits and fractions below U+0100, which are in Oniguruma's table of the first 256
 * characters; those above are not. */
#define WORDS                                                                                                          \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}"                   \
    "\\x{1f170}-\\x{1f189}"
#define WORDS_ALONE WORDS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

static void *tokenizer_regex_allocate(size_t bytes, void *context) {
    (void)context;
    void *p;
    return memory_allocate(&p, bytes) == STATUS_OK ? p : NULL;
}

static void tokenizer_regex_release(void *p, void *context) {
    (void)context;
    memory_free(p);
}

static enum status tokenizer_regex_refuse(const char *name, const char *what) {
    return fail(STATUS_UNSUPPORTED, "%s: the pattern uses %s, which is not supported", name, what);
}

/* Returns the replacement for an escape, or NULL to keep it. */
static const char *tokenizer_regex_escape(char letter, bool in_class) {
    switch (letter) {
    case 's':
        return in_class ? SPACES : "[" SPACES "]";
    case 'S':
        return in_class ? NOT_SPACES : "[" NOT_SPACES "]";
    case 'w':
        return in_class ? WORDS : "[" WORDS_ALONE "]";
    case 'W':
        return in_class ? NULL : "[^" WORDS_ALONE "]";
    default:
        return NULL;
    }
}

/* Whether it is the name of a script. */
static bool is_script(const char *name, size_t bytes) {
    char pattern[64];
    int error;
    size_t offset;
    const int n = snprintf(pattern, sizeof pattern, "\\p{sc:%.*s}", (int)bytes, name);
    if (n < 0 || (size_t)n >= sizeof pattern) return false;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &offset, NULL);
    pcre2_code_free(code);
    return code != NULL;
}

/* Copies \p{..}, \P{..} or \x{..} and moves *at to its last character. In Oniguruma a script's name means the
 * characters of that script, and in PCRE2 also those that it shares with others. */
static enum status copy_braces(struct bytes *out, const char *name, const char **at) {
    const char *p = *at, *inside = p + 3 + (p[3] == '^'), *end = strchr(inside, '}');
    if (!end) return tokenizer_regex_refuse(name, "{ without }");
    TRY(bytes_append(out, p, (size_t)(inside - p)));
    if (p[1] != 'x' && is_script(inside, (size_t)(end - inside))) TRY(bytes_append(out, "sc:", 3));
    *at = end;
    return bytes_append(out, inside, (size_t)(end + 1 - inside));
}

/* Refuses the intervals that differ: {n,m}+ and {n}? repeat the interval in Oniguruma, and {,n} is text in PCRE2. */
static enum status check_interval(const char *name, const char *p) {
    const size_t first = strspn(p + 1, "0123456789"), comma = p[1 + first] == ',';
    const size_t second = comma ? strspn(p + 2 + first, "0123456789") : 0;
    const char *end = p + 1 + first + comma + second;
    if (*end != '}' || first + second == 0) return STATUS_OK;
    if (first == 0) return tokenizer_regex_refuse(name, "{,n}");
    if (end[1] == '+') return tokenizer_regex_refuse(name, "+ after {n,m}");
    return end[1] == '?' && !comma ? tokenizer_regex_refuse(name, "{n}?") : STATUS_OK;
}

static enum status tokenizer_regex_translate(struct bytes *out, const char *name, const char *p) {
    bool in_class = false;
    for (; *p; p++) {
        const char *replacement = NULL;
        if (*p == '\\' && p[1]) {
            if (strchr("hHbBRXKGAZzyYOWC0123456789gk", p[1]) && !(p[1] == 'W' && !in_class)) {
                char what[] = {'\\', p[1], '\0'};
                return tokenizer_regex_refuse(name, what);
            }
            if (strchr("pPx", p[1]) && p[2] == '{') {
                TRY(copy_braces(out, name, &p));
                continue;
            }
            replacement = tokenizer_regex_escape(p[1], in_class);
            if (replacement)
                TRY(bytes_append(out, replacement, strlen(replacement)));
            else
                TRY(bytes_append(out, p, 2));
            p++;
            continue;
        }
        if (!in_class && *p == '(' && p[1] == '?') {
            /* Groups and inline options. In Oniguruma (?m) means "dot matches newline". */
            const char *end = p + 2;
            while (*end == '-' || *end == 'i' || *end == 'x' || *end == 'm')
                if (*end++ == 'm') return tokenizer_regex_refuse(name, "(?m)");
            if (!strchr(":=!<>)", *end) || *end == '\0') return tokenizer_regex_refuse(name, "a special group");
        }
        if (!in_class && *p == '{') TRY(check_interval(name, p));
        if (in_class && *p == '[') return tokenizer_regex_refuse(name, "a class inside a class");
        if (in_class && *p == '&' && p[1] == '&') return tokenizer_regex_refuse(name, "an intersection of classes");
        TRY(bytes_append(out, p, 1));
        if (!in_class && *p == '[') {
            in_class = true;
            if (p[1] == '^') TRY(bytes_append(out, ++p, 1));
            if (p[1] == ']') return tokenizer_regex_refuse(name, "] as the first of a class");
        } else if (in_class && *p == ']') {
            in_class = false;
        }
    }
    return bytes_append(out, "", 1);
}

static enum status tokenizer_regex_compile(struct regex *r, const char *pattern) {
    pcre2_general_context *general =
        pcre2_general_context_create(tokenizer_regex_allocate, tokenizer_regex_release, NULL);
    pcre2_compile_context *context = general ? pcre2_compile_context_create(general) : NULL;
    enum status status = STATUS_OK;
    if (!context) {
        status = fail(STATUS_NO_MEMORY, "%s: out of memory for a pattern", r->name);
    } else {
        int error;
        size_t offset;
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        /* Ruby's ^ and $ match at every line. */
        uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
        r->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, &error, &offset, context);
        if (!r->code) {
            char text[160] = "";
            pcre2_get_error_message(error, (PCRE2_UCHAR *)text, sizeof text);
            status = fail(STATUS_UNSUPPORTED, "%s: the pattern is not understood: %s", r->name, text);
        } else {
            /* without a JIT compiler the pattern is interpreted */
            (void)pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE);
        }
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    return status;
}

enum status regex_create(struct regex **out, const char *name, const char *pattern) {
    if (strlen(pattern) > PATTERN_MAX) return tokenizer_regex_refuse(name, "more than 64 KiB");
    struct regex *r;
    TRY(memory_allocate_zero(&r, 1));
    struct bytes translated = {0};
    enum status status;
    TRY_GOTO(status, memory_copy_string(&r->name, name), out);
    TRY_GOTO(status, tokenizer_regex_translate(&translated, name, pattern), out);
    TRY_GOTO(status, tokenizer_regex_compile(r, translated.data), out);
    *out = r;
out:
    bytes_free(&translated);
    if (status != STATUS_OK) regex_free(r);
    return status;
}

bool regex_matches_empty(const struct regex *r) {
    uint32_t empty = 0;
    return pcre2_pattern_info(r->code, PCRE2_INFO_MATCHEMPTY, &empty) != 0 || empty != 0;
}

void regex_free(struct regex *r) {
    if (!r) return;
    pcre2_code_free(r->code);
    memory_free(r->name);
    memory_free(r);
}

enum status regex_scratch_create(struct regex_scratch **out) {
    struct regex_scratch *s;
    TRY(memory_allocate_zero(&s, 1));
    pcre2_general_context *general =
        pcre2_general_context_create(tokenizer_regex_allocate, tokenizer_regex_release, NULL);
    if (general) {
        s->match = pcre2_match_data_create(1, general);
        s->context = pcre2_match_context_create(general);
        s->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, general);
    }
    pcre2_general_context_free(general);
    if (!s->match || !s->context) {
        regex_scratch_free(s);
        return fail(STATUS_NO_MEMORY, "out of memory for pattern matching");
    }
    if (s->stack) pcre2_jit_stack_assign(s->context, NULL, s->stack);
    *out = s;
    return STATUS_OK;
}

void regex_scratch_free(struct regex_scratch *s) {
    if (!s) return;
    pcre2_jit_stack_free(s->stack);
    pcre2_match_context_free(s->context);
    pcre2_match_data_free(s->match);
    memory_free(s);
}

enum status regex_search(const struct regex *r, struct regex_scratch *s, const char *text, size_t bytes, size_t at,
                         bool *found, size_t *begin, size_t *end) {
    int result = pcre2_match(r->code, (PCRE2_SPTR)text, bytes, at, PCRE2_NO_UTF_CHECK, s->match, s->context);
    *found = result >= 0;
    if (result >= 0) {
        const size_t *where = pcre2_get_ovector_pointer(s->match);
        *begin = where[0];
        *end = where[1];
        return STATUS_OK;
    }
    if (result == PCRE2_ERROR_NOMATCH) return STATUS_OK;
    char message[160] = "";
    pcre2_get_error_message(result, (PCRE2_UCHAR *)message, sizeof message);
    return fail(STATUS_UNSUPPORTED, "%s: the split pattern failed on a text of %zu bytes: %s", r->name, bytes, message);
}
