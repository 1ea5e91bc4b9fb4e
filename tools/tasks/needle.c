/* needle.c -- see needle.h. Statements, questions and answers are lists of ids. They are made from text, which the
 * tokenizer encodes, and from the ids of keys and values. */
#include "tools/tasks/needle.h"
#include "base/memory.h"
#include "base/minmax.h"
#include <stdio.h>
#include <string.h>

const char *const needle_task_names[NEEDLE_TASKS] = {"single", "multi-key", "multi-value", "two-hop"};

enum { RANDOM_IDS = 5, LIST_MAX = 256, SYLLABLES = 3 };
struct id_list {
    int32_t id[LIST_MAX];
    int n;
    struct needle_span value; /* ids of the value that the statement gives */
};
/* A key or a value: ids (papers) or text (RULER). */
struct symbol {
    struct id_list ids;
    char text[48];
};

struct needle_maker {
    struct needle_config config;
    struct tokenizer_scratch *scratch;
    int32_t *ordinary; /* ids that keys and values are drawn from: they have bytes and are not special */
    int64_t n_ordinary;
    int32_t *prompt, *document;
    int64_t n_prompt; /* number of ids of every prompt */
    struct riddle *riddle;
    struct rng rng;
};

/* ---- parts ----------------------------------------------------------------------------------------------- */

static enum status needle_text(struct needle_maker *m, struct id_list *to, const char *text) {
    const int32_t *ids;
    size_t n;
    TRY(tokenizer_encode(m->config.tokenizer, m->scratch, text, strlen(text), TOKENIZER_LITERAL, &ids, &n));
    if (to->n + (int)n > LIST_MAX)
        return fail(STATUS_UNSUPPORTED, "a statement of more than %d ids: the tokenizer splits it too finely",
                    LIST_MAX);
    memcpy(to->id + to->n, ids, n * sizeof *ids);
    to->n += (int)n;
    return STATUS_OK;
}

static enum status needle_list(struct id_list *to, const struct id_list *from) {
    if (to->n + from->n > LIST_MAX) return fail(STATUS_UNSUPPORTED, "a statement of more than %d ids", LIST_MAX);
    memcpy(to->id + to->n, from->id, (size_t)from->n * sizeof *from->id);
    to->n += from->n;
    return STATUS_OK;
}

static void needle_word(struct needle_maker *m, char *out) {
    static const char consonants[] = "bdfgklmnprstvz", vowels[] = "aeiou";
    for (int i = 0; i < SYLLABLES; i++) {
        *out++ = consonants[rng_below(&m->rng, sizeof consonants - 1)];
        *out++ = vowels[rng_below(&m->rng, sizeof vowels - 1)];
    }
    *out = 0;
}

static void needle_name(struct needle_maker *m, char *out) {
    for (int i = 0; i < RANDOM_IDS; i++)
        *out++ = (char)('A' + rng_below(&m->rng, 26));
    *out = 0;
}

static void needle_symbol(struct needle_maker *m, struct symbol *s, bool value) {
    char word[2][2 * SYLLABLES + 1];
    *s = (struct symbol){.ids.n = value && m->config.value_ids > 0 ? m->config.value_ids : RANDOM_IDS};
    for (int i = 0; i < s->ids.n; i++)
        s->ids.id[i] = m->ordinary[rng_below(&m->rng, (uint64_t)m->n_ordinary)];
    if (m->config.wording == NEEDLE_PAPERS) return;
    if (m->config.task == NEEDLE_TWO_HOP) {
        if (value)
            snprintf(s->text, sizeof s->text, "%d", 10000 + (int)rng_below(&m->rng, 90000));
        else
            needle_name(m, s->text);
        return;
    }
    if (value) {
        snprintf(s->text, sizeof s->text, "%d", 1000000 + (int)rng_below(&m->rng, 9000000));
        return;
    }
    needle_word(m, word[0]);
    needle_word(m, word[1]);
    snprintf(s->text, sizeof s->text, "%s-%s", word[0], word[1]);
}

/* Converts a range of bytes of a list's text to the range of ids that have a byte in it. */
static void needle_value_ids(struct needle_maker *m, struct id_list *list, size_t from, size_t to) {
    size_t at = 0, bytes;
    list->value = (struct needle_span){list->n, list->n};
    for (int i = 0; i < list->n; at += bytes, i++) {
        bytes = 0;
        (void)tokenizer_bytes(m->config.tokenizer, list->id[i], &bytes);
        if (at + bytes <= from) continue;
        if (at >= to) return;
        if (list->value.from == list->n) list->value.from = i;
        list->value.to = i + 1;
    }
}

/* Adds a text in which %1 and %2 are replaced by two symbols. A statement gives the value of the last one. */
static enum status needle_add(struct needle_maker *m, struct id_list *to, const char *pattern, const struct symbol *a,
                              const struct symbol *b) {
    char text[512];
    size_t n = 0, from = 0, end = 0; /* range of bytes of the value, in RULER's wording */
    for (const char *p = pattern; *p; p++) {
        const struct symbol *s = p[0] == '%' ? p[1] == '1' ? a : b : NULL;
        if (!s) {
            text[n++] = *p;
            continue;
        }
        p++;
        if (m->config.wording == NEEDLE_RULER) {
            if (s == (b ? b : a)) from = n;
            n += (size_t)snprintf(text + n, sizeof text - n, "%s", s->text);
            if (s == (b ? b : a)) end = n;
            continue;
        }
        text[n] = 0;
        if (n > 0) TRY(needle_text(m, to, text));
        TRY(needle_list(to, &s->ids));
        if (s == (b ? b : a)) to->value = (struct needle_span){to->n - s->ids.n, to->n};
        n = 0;
    }
    text[n] = 0;
    if (n > 0) TRY(needle_text(m, to, text));
    if (m->config.wording == NEEDLE_RULER) needle_value_ids(m, to, from, end);
    return STATUS_OK;
}

/* ---- tasks ----------------------------------------------------------------------------------------------- */

struct riddle {
    struct id_list statement[NEEDLE_STATEMENTS], question, answer;
    int n, first; /* number of statements; index of the first one that the answer needs */
    int scored;
    char outputs[NEEDLE_KEYS][48]; /* texts of the values in the answer */
    int n_outputs;
};
/* Adds a value to the answer. */
static enum status riddle_answer(struct needle_maker *m, struct riddle *r, const char *pattern,
                                 const struct symbol *value) {
    memcpy(r->outputs[r->n_outputs++], value->text, sizeof value->text);
    return needle_add(m, &r->answer, pattern, value, NULL);
}
/* [wording] */
static const char *const key_statement[] = {"|One of the special magic numbers for %1 is %2|",
                                            "\nOne of the special magic numbers for %1 is: %2.\n"};
static const char *const key_question[] = {
    "|The value of %1is", "\nWhat is the special magic number for %1 mentioned in the provided text? The special magic "
                          "number for %1 mentioned in the provided text is"};
static const char *const keys_question[] = {
    "|The values of %1are",
    "\nWhat are all the special magic numbers for %1 mentioned in the provided text? The special "
    "magic numbers for %1 mentioned in the provided text are"};
static const char *const hop_question[] = {
    "|The path from %1is", "\nQuestion: Find all variables that are assigned the value %1 in the text above. Answer: "
                           "According to the chain(s) of variable assignment in the text above, 2 variables are "
                           "assigned the value %1, they are: "};

static enum status riddle_keys(struct needle_maker *m, struct riddle *r, int asked) {
    const enum needle_wording w = m->config.wording;
    for (int i = 0; i < r->n; i++) {
        struct symbol key, value;
        needle_symbol(m, &key, false);
        needle_symbol(m, &value, true);
        TRY(needle_add(m, &r->statement[i], key_statement[w], &key, &value));
        if (i != asked) continue;
        TRY(needle_add(m, &r->question, key_question[w], &key, NULL));
        TRY(riddle_answer(m, r, w == NEEDLE_RULER ? " %1" : "%1", &value));
    }
    r->first = asked;
    return STATUS_OK;
}

static enum status riddle_values(struct needle_maker *m, struct riddle *r) {
    const enum needle_wording w = m->config.wording;
    struct symbol key, value;
    needle_symbol(m, &key, false);
    for (int i = 0; i < r->n; i++) {
        const bool last = i == r->n - 1;
        needle_symbol(m, &value, true);
        TRY(needle_add(m, &r->statement[i], key_statement[w], &key, &value));
        if (w == NEEDLE_RULER)
            TRY(riddle_answer(m, r, i == 0 ? " %1" : last ? " and %1" : ", %1", &value));
        else
            TRY(riddle_answer(m, r, i == 0 ? "%1" : ",%1", &value));
    }
    return needle_add(m, &r->question, keys_question[w], &key, NULL);
}

static enum status riddle_hops(struct needle_maker *m, struct riddle *r) {
    const enum needle_wording w = m->config.wording;
    for (int chain = 0; chain < 2; chain++) {
        struct symbol s[3];
        for (int i = 0; i < 3; i++)
            needle_symbol(m, &s[i], i == 0);
        struct id_list *one = &r->statement[2 * chain], *two = one + 1;
        TRY(needle_add(m, one, w == NEEDLE_RULER ? "\nVAR %2 = %1\n" : "|DEF%1->%2|", &s[0], &s[1]));
        TRY(needle_add(m, two, w == NEEDLE_RULER ? "\nVAR %2 = VAR %1\n" : "|DEF%1->%2|", &s[1], &s[2]));
        if (chain > 0) continue;
        TRY(needle_add(m, &r->question, hop_question[w], &s[0], NULL));
        TRY(riddle_answer(m, r, "%1", &s[1]));
        TRY(riddle_answer(m, r, w == NEEDLE_RULER ? " %1" : ",%1", &s[2]));
    }
    return STATUS_OK;
}

static enum status needle_riddle(struct needle_maker *m, struct riddle *r) {
    static const int statements[NEEDLE_TASKS] = {1, NEEDLE_KEYS, 4, 4};
    memset(r, 0, sizeof *r);
    r->n = statements[m->config.task];
    if (m->config.task == NEEDLE_MULTI_KEY && m->config.keys > 0) r->n = m->config.keys;
    if (m->config.task == NEEDLE_TWO_HOP) {
        TRY(riddle_hops(m, r));
    } else if (m->config.task == NEEDLE_MULTI_VALUE) {
        TRY(riddle_values(m, r));
    } else if (m->config.task == NEEDLE_SINGLE && m->config.wording == NEEDLE_PAPERS) {
        struct symbol value;
        needle_symbol(m, &value, true);
        TRY(needle_add(m, &r->statement[0], "|The passkey is:%1|", &value, NULL));
        TRY(needle_add(m, &r->question, "|What is the passkey? The passkey is", NULL, NULL));
        TRY(riddle_answer(m, r, "%1", &value));
    } else {
        TRY(riddle_keys(m, r, (int)rng_below(&m->rng, (uint64_t)r->n)));
    }
    if (r->answer.n > NEEDLE_ANSWER_MAX)
        return fail(STATUS_UNSUPPORTED, "an answer of more than %d ids: the tokenizer splits it too finely",
                    NEEDLE_ANSWER_MAX);
    r->scored = m->config.task == NEEDLE_SINGLE ? 0 : r->answer.n - 1;
    return STATUS_OK;
}

/* ---- the text -------------------------------------------------------------------------------------------- */

/* Statements are inserted between ids of the haystack, in random order, except that the values of one
 * key stay in order. */
struct spot {
    int64_t at;
    int statement;
};

static void needle_spots(struct needle_maker *m, struct spot spot[NEEDLE_STATEMENTS], int n, int64_t hay) {
    int order[NEEDLE_STATEMENTS];
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0 && m->config.task != NEEDLE_MULTI_VALUE; i--) {
        const int j = (int)rng_below(&m->rng, (uint64_t)i + 1), was = order[i];
        order[i] = order[j];
        order[j] = was;
    }
    for (int i = 0; i < n; i++) {
        struct spot p = {.at = (int64_t)rng_below(&m->rng, (uint64_t)hay + 1)};
        int j = i;
        for (; j > 0 && spot[j - 1].at > p.at; j--)
            spot[j] = spot[j - 1];
        spot[j] = p;
    }
    for (int i = 0; i < n; i++)
        spot[i].statement = order[i];
}

static bool riddle_needs(const struct needle_maker *m, const struct riddle *r, int statement) {
    if (m->config.task == NEEDLE_MULTI_VALUE) return true;
    return m->config.task == NEEDLE_TWO_HOP ? statement < 2 : statement == r->first;
}

static int64_t needle_hay(struct needle_maker *m, int32_t *out, int64_t *from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        out[i] = m->config.haystack[(*from + i) % m->config.n_haystack];
    *from += n;
    return n;
}

/* Writes `hay` ids of the haystack, with the riddle's statements inserted. No statement is inserted into the
 * last `tail` ids. */
static int64_t needle_fill(struct needle_maker *m, int32_t *out, const struct riddle *r, int64_t hay, int64_t tail,
                           int64_t from, struct needle_sample *sample) {
    struct spot spot[NEEDLE_STATEMENTS];
    int64_t n = 0, used = 0, first = -1;
    needle_spots(m, spot, r->n, hay - tail);
    for (int i = 0; i < r->n; i++) {
        const struct id_list *s = &r->statement[spot[i].statement];
        n += needle_hay(m, out + n, &from, spot[i].at - used);
        used = spot[i].at;
        if (riddle_needs(m, r, spot[i].statement)) {
            if (first < 0) first = n;
            sample->value[sample->n_values++] = (struct needle_span){n + s->value.from, n + s->value.to};
        }
        memcpy(out + n, s->id, (size_t)s->n * sizeof *s->id);
        n += s->n;
    }
    n += needle_hay(m, out + n, &from, hay - used);
    sample->depth = (double)first / (double)n;
    return n;
}

static int64_t riddle_length(const struct riddle *r) {
    int64_t n = 0;
    for (int i = 0; i < r->n; i++)
        n += r->statement[i].n;
    return n;
}

static enum status needle_compose(struct needle_maker *m, struct riddle *r, struct needle_sample *out) {
    const int64_t chunk = m->config.chunk, stated = m->config.elsewhere ? 0 : riddle_length(r);
    const int64_t hay = m->n_prompt - r->question.n - stated;
    int64_t from = (int64_t)rng_below(&m->rng, (uint64_t)m->config.n_haystack);
    if (hay < 2 * chunk)
        return fail(
            STATUS_INVALID,
            "a context of %lld ids is too short: the statements and the question have %lld, and two chunks of %d "
            "ids come beside them",
            (long long)m->config.context, (long long)(stated + r->question.n), m->config.chunk);
    *out = (struct needle_sample){.prompt = m->prompt, .n_prompt = m->n_prompt, .scored = r->scored};
    if (m->config.elsewhere) {
        /* the document consists of the statements and four chunks of other text */
        const int64_t length = riddle_length(r);
        TRY(memory_allocate(&m->document, (size_t)(4 * chunk + length)));
        out->document = m->document;
        out->n_document = needle_fill(m, m->document, r, 4 * chunk, 0, from + m->n_prompt, out);
        needle_hay(m, m->prompt, &from, hay);
    } else {
        (void)needle_fill(m, m->prompt, r, hay, chunk, from, out);
    }
    memcpy(m->prompt + hay + stated, r->question.id, (size_t)r->question.n * sizeof *r->question.id);
    memcpy(out->answer, r->answer.id, (size_t)r->answer.n * sizeof *r->answer.id);
    out->n_answer = r->answer.n;
    for (int i = 0; i < r->n_outputs && m->config.wording == NEEDLE_RULER; i++)
        out->outputs[out->n_outputs++] = r->outputs[i];
    return STATUS_OK;
}

enum status needle_make(struct needle_maker *m, int64_t number, struct needle_sample *out) {
    m->rng = rng_make(m->config.seed, (uint64_t)m->config.task << 48 | (uint64_t)number);
    memory_free(m->document);
    m->document = NULL;
    TRY(needle_riddle(m, m->riddle));
    return needle_compose(m, m->riddle, out);
}

/* ---- set-up ---------------------------------------------------------------------------------------------- */

static enum status needle_prepare(struct needle_maker *m) {
    const struct tokenizer *t = m->config.tokenizer;
    const int vocab = tokenizer_vocab_size(t);
    /* whole chunks, then the question's last id, because a model retrieves at the end of a chunk */
    const int64_t chunks = (m->config.context - 1) / m->config.chunk;
    if (m->config.n_haystack <= 0) return fail(STATUS_INVALID, "the files of --data hold no text");
    m->n_prompt = max_i64(chunks * m->config.chunk + 1, 1);
    TRY(tokenizer_scratch_create(&m->scratch, t));
    TRY(memory_allocate(&m->ordinary, (size_t)vocab));
    TRY(memory_allocate(&m->prompt, (size_t)m->n_prompt));
    TRY(memory_allocate(&m->riddle, 1));
    for (int32_t id = 0; id < vocab; id++) {
        size_t bytes = 0;
        const char *text = tokenizer_bytes(t, id, &bytes);
        if (text && bytes > 0 && !tokenizer_is_special(t, id)) m->ordinary[m->n_ordinary++] = id;
    }
    if (m->n_ordinary >= 100) return STATUS_OK;
    return fail(STATUS_INVALID, "the tokenizer has %lld ordinary ids; needles need 100", (long long)m->n_ordinary);
}

enum status needle_maker_create(struct needle_maker **out, const struct needle_config *config) {
    struct needle_maker *m = NULL;
    TRY(memory_allocate_zero(&m, 1));
    m->config = *config;
    enum status status = needle_prepare(m);
    if (status != STATUS_OK) {
        needle_maker_free(m);
        return status;
    }
    *out = m;
    return STATUS_OK;
}

void needle_maker_free(struct needle_maker *m) {
    if (!m) return;
    tokenizer_scratch_free(m->scratch);
    memory_free(m->ordinary);
    memory_free(m->prompt);
    memory_free(m->document);
    memory_free(m->riddle);
    memory_free(m);
}
