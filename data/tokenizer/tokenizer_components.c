/* tokenizer_components.c -- reads normalizer, pre_tokenizer, post_processor and decoder of a tokenizer.json.
 *
 * The members of each object are collected by name. An unknown member or type is an error that names it, so that no
 * file works only partly. Post-processors are checked only: they add begin and end tokens, which the caller adds. */
#include "base/formats/json.h"
#include "base/memory.h"
#include "data/tokenizer/tokenizer_internal.h"
#include "data/tokenizer/tokenizer_json.h"
#include <string.h>

static enum status refuse_type(const struct tokenizer *t, const char *part, const struct fields *f) {
    char what[80];
    int length = (int)(f->type_length < 60 ? f->type_length : 60);
    snprintf(what, sizeof what, "type \"%.*s\"", length, f->type);
    return tokenizer_refuse(t, part, what);
}

/* Reads {"String": text} or {"Regex": text}. */
static enum status read_pattern(const struct tokenizer *t, const char *part, const struct json *at, struct bytes *text,
                                bool *is_regex) {
    static const char *const names[] = {"String", "Regex"};
    struct fields f;
    TRY(fields_read(&f, t, part, *at, names, ARRAY_LEN(names)));
    *is_regex = f.present[1];
    if (f.present[0] == f.present[1]) return tokenizer_refuse(t, part, "a pattern that is neither String nor Regex");
    TRY(field_text(&f, f.present[1], text));
    if (text->size == 0) return tokenizer_refuse(t, part, "an empty pattern");
    if (memchr(text->data, '\0', text->size)) return tokenizer_refuse(t, part, "a NUL character in a pattern");
    return STATUS_OK;
}

/* Passes every item of a "Sequence" to the reader of a single component. */
typedef enum status component_reader(struct tokenizer *t, const struct json *at);

static enum status read_sequence(struct tokenizer *t, const char *part, const struct json *at, const char *list,
                                 component_reader *reader) {
    const char *const names[] = {list};
    struct fields f;
    TRY(fields_read(&f, t, part, *at, names, 1));
    if (!f.present[0]) return tokenizer_refuse(t, part, "a Sequence without its list");
    struct json j = f.value[0];
    TRY(json_expect(&j, JSON_ARRAY, "a list of components"));
    while (!json_at_array_end(&j)) {
        TRY(reader(t, &j));
        TRY(json_skip(&j));
    }
    return STATUS_OK;
}

/* ---- normalizer -------------------------------------------------------------------------------------------- */

static enum status normalizer_form(struct tokenizer *t, const struct json *at, enum normal_kind kind) {
    struct fields f;
    TRY(fields_read(&f, t, "normalizer", *at, NULL, 0));
    t->normals[t->n_normals++].kind = kind;
    return STATUS_OK;
}

static enum status normalizer_prepend(struct tokenizer *t, const struct json *at) {
    static const char *const names[] = {"prepend"};
    struct fields f;
    TRY(fields_read(&f, t, "normalizer", *at, names, 1));
    struct normal *n = &t->normals[t->n_normals++];
    n->kind = NORMAL_PREPEND;
    return field_text(&f, 0, &n->to);
}

static enum status normalizer_replace(struct tokenizer *t, const struct json *at) {
    static const char *const names[] = {"pattern", "content"};
    struct fields f;
    TRY(fields_read(&f, t, "normalizer", *at, names, 2));
    if (!f.present[0]) return tokenizer_refuse(t, "normalizer", "a Replace without pattern");
    struct normal *n = &t->normals[t->n_normals++];
    n->kind = NORMAL_REPLACE;
    bool is_regex;
    TRY(read_pattern(t, "normalizer", &f.value[0], &n->from, &is_regex));
    TRY(field_text(&f, 1, &n->to));
    if (!is_regex) return STATUS_OK;
    TRY(regex_create(&n->regex, t->path, n->from.data));
    if (!regex_matches_empty(n->regex)) return STATUS_OK;
    return tokenizer_refuse(t, "normalizer", "a Replace whose Regex matches an empty text");
}

static enum status read_normalizer(struct tokenizer *t, const struct json *at) {
    struct fields f;
    TRY(fields_type(&f, t, "normalizer", *at));
    if (f.is_null) return STATUS_OK;
    if (field_is_type(&f, "Sequence")) return read_sequence(t, "normalizer", at, "normalizers", read_normalizer);
    if (t->n_normals == STEPS_MAX) return tokenizer_refuse(t, "normalizer", "more than 16 parts");
    if (field_is_type(&f, "NFC")) return normalizer_form(t, at, NORMAL_NFC);
    if (field_is_type(&f, "NFD")) return normalizer_form(t, at, NORMAL_NFD);
    if (field_is_type(&f, "NFKC")) return normalizer_form(t, at, NORMAL_NFKC);
    if (field_is_type(&f, "NFKD")) return normalizer_form(t, at, NORMAL_NFKD);
    if (field_is_type(&f, "Prepend")) return normalizer_prepend(t, at);
    if (field_is_type(&f, "Replace")) return normalizer_replace(t, at);
    return refuse_type(t, "normalizer", &f);
}

enum status tokenizer_load_normalizer(struct tokenizer *t, struct json *j) {
    return read_normalizer(t, j);
}

/* ---- pre_tokenizer ------------------------------------------------------------------------------------------- */

static struct step *add_step(struct tokenizer *t, enum step_kind kind) {
    struct step *step = &t->steps[t->n_steps++];
    step->kind = kind;
    return step;
}

static enum status pre_byte_level(struct tokenizer *t, const struct json *at) {
    static const char *const names[] = {"add_prefix_space", "trim_offsets", "use_regex"};
    struct fields f;
    bool prefix, use_regex;
    TRY(fields_read(&f, t, "pre_tokenizer", *at, names, 3));
    TRY(field_bool(&f, 0, true, &prefix));
    TRY(field_bool(&f, 2, true, &use_regex));
    if (prefix) (void)add_step(t, STEP_PREFIX_SPACE);
    if (use_regex) add_step(t, STEP_SCAN)->scanner = SCANNER_GPT2;
    t->byte_level = true;
    return STATUS_OK;
}

static enum status read_behaviour(const struct tokenizer *t, const struct fields *f, int index,
                                  enum split_behaviour *out) {
    static const struct {
        const char *name;
        enum split_behaviour behaviour;
    } behaviours[] = {
        {"Isolated", SPLIT_ISOLATED},   {"Removed", SPLIT_REMOVED},       {"MergedWithPrevious", SPLIT_PREVIOUS},
        {"MergedWithNext", SPLIT_NEXT}, {"Contiguous", SPLIT_CONTIGUOUS},
    };
    for (size_t i = 0; i < ARRAY_LEN(behaviours); i++)
        if (field_is(f, index, behaviours[i].name)) {
            *out = behaviours[i].behaviour;
            return STATUS_OK;
        }
    return tokenizer_refuse(t, "pre_tokenizer", "a Split without a known behavior");
}

static enum status pre_split(struct tokenizer *t, const struct json *at) {
    static const char *const names[] = {"pattern", "behavior", "invert"};
    struct fields f;
    TRY(fields_read(&f, t, "pre_tokenizer", *at, names, 3));
    if (!f.present[0]) return tokenizer_refuse(t, "pre_tokenizer", "a Split without pattern");
    struct step *step = add_step(t, STEP_LITERAL);
    TRY(read_behaviour(t, &f, 1, &step->behaviour));
    TRY(field_bool(&f, 2, false, &step->invert));
    bool is_regex;
    TRY(read_pattern(t, "pre_tokenizer", &f.value[0], &step->literal, &is_regex));
    if (!is_regex) return STATUS_OK;
    step->scanner = scanner_find(step->literal.data);
    step->kind = step->scanner == SCANNER_NONE ? STEP_REGEX : STEP_SCAN;
    return step->kind == STEP_REGEX ? regex_create(&step->regex, t->path, step->literal.data) : STATUS_OK;
}

static enum status pre_digits(struct tokenizer *t, const struct json *at) {
    static const char *const names[] = {"individual_digits"};
    struct fields f;
    bool individual;
    TRY(fields_read(&f, t, "pre_tokenizer", *at, names, 1));
    TRY(field_bool(&f, 0, false, &individual));
    add_step(t, STEP_NUMBERS)->behaviour = individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
    return STATUS_OK;
}

static enum status read_metaspace(const struct tokenizer *t, const char *part, const struct json *at,
                                  struct bytes *mark, enum prepend *prepend, bool *split) {
    static const char *const names[] = {"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"};
    struct fields f;
    bool prefix;
    TRY(fields_read(&f, t, part, *at, names, 5));
    TRY(field_text(&f, 0, mark));
    if (mark->size == 0 || mark->size > 4)
        return tokenizer_refuse(t, part, "a Metaspace without replacement character");
    TRY(field_bool(&f, 2, true, split));
    TRY(field_bool(&f, 3, true, &prefix));
    *prepend = prefix ? PREPEND_ALWAYS : PREPEND_NEVER;
    if (!f.present[1]) return STATUS_OK;
    if (field_is(&f, 1, "always"))
        *prepend = PREPEND_ALWAYS;
    else if (field_is(&f, 1, "first"))
        *prepend = PREPEND_FIRST;
    else if (field_is(&f, 1, "never"))
        *prepend = PREPEND_NEVER;
    else
        return tokenizer_refuse(t, part, "a Metaspace with an unknown prepend_scheme");
    return STATUS_OK;
}

static enum status pre_metaspace(struct tokenizer *t, const struct json *at) {
    struct step *step = add_step(t, STEP_METASPACE);
    bool split;
    TRY(read_metaspace(t, "pre_tokenizer", at, &step->literal, &step->prepend, &split));
    if (!split) return STATUS_OK;
    struct step *cut = add_step(t, STEP_LITERAL);
    cut->behaviour = SPLIT_NEXT;
    return bytes_append(&cut->literal, step->literal.data, step->literal.size);
}

static enum status read_pre_tokenizer(struct tokenizer *t, const struct json *at) {
    struct fields f;
    TRY(fields_type(&f, t, "pre_tokenizer", *at));
    if (f.is_null) return STATUS_OK;
    if (t->byte_level) return tokenizer_refuse(t, "pre_tokenizer", "a part after ByteLevel");
    if (field_is_type(&f, "Sequence"))
        return read_sequence(t, "pre_tokenizer", at, "pretokenizers", read_pre_tokenizer);
    if (t->n_steps + 2 > STEPS_MAX) return tokenizer_refuse(t, "pre_tokenizer", "more than 16 parts");
    if (field_is_type(&f, "ByteLevel")) return pre_byte_level(t, at);
    if (field_is_type(&f, "Split")) return pre_split(t, at);
    if (field_is_type(&f, "Digits")) return pre_digits(t, at);
    if (field_is_type(&f, "Metaspace")) return pre_metaspace(t, at);
    return refuse_type(t, "pre_tokenizer", &f);
}

/* A Replace of several bytes at the start of a text moves what the reference takes for its first word. */
static enum status check_first(const struct tokenizer *t) {
    bool first = false;
    for (int i = 0; i < t->n_steps; i++)
        first = first || (t->steps[i].kind == STEP_METASPACE && t->steps[i].prepend == PREPEND_FIRST);
    for (int i = 0; i < t->n_normals && first; i++)
        if (t->normals[i].kind == NORMAL_REPLACE && (t->normals[i].regex || t->normals[i].from.size > 1))
            return tokenizer_refuse(t, "pre_tokenizer",
                                    "prepend_scheme \"first\" after a Replace of several characters");
    return STATUS_OK;
}

enum status tokenizer_load_pre_tokenizer(struct tokenizer *t, struct json *j) {
    TRY(read_pre_tokenizer(t, j));
    TRY(check_first(t));
    if (t->n_steps == 0) return STATUS_OK;
    const struct step *last = &t->steps[t->n_steps - 1];
    if (last->kind == STEP_SCAN && last->behaviour == SPLIT_ISOLATED) {
        t->scanner = last->scanner; /* fused; the step keeps what it owns */
        t->n_steps--;
    }
    return STATUS_OK;
}

/* ---- post_processor -------------------------------------------------------------------------------------------- */

static enum status read_post_processor(struct tokenizer *t, const struct json *at) {
    struct fields f;
    TRY(fields_type(&f, t, "post_processor", *at));
    if (f.is_null) return STATUS_OK;
    if (field_is_type(&f, "Sequence")) return read_sequence(t, "post_processor", at, "processors", read_post_processor);
    if (field_is_type(&f, "ByteLevel") || field_is_type(&f, "TemplateProcessing") ||
        field_is_type(&f, "RobertaProcessing") || field_is_type(&f, "BertProcessing"))
        return STATUS_OK;
    return refuse_type(t, "post_processor", &f);
}

enum status tokenizer_load_post_processor(struct tokenizer *t, struct json *j) {
    return read_post_processor(t, j);
}

/* ---- decoder ------------------------------------------------------------------------------------------------------
 */

static enum status decoder_replace(struct tokenizer *t, const struct json *at) {
    static const char *const names[] = {"pattern", "content"};
    struct fields f;
    TRY(fields_read(&f, t, "decoder", *at, names, 2));
    if (!f.present[0] || t->n_decode_replaces > 0 || t->decode_bytes)
        return tokenizer_refuse(t, "decoder", "this use of Replace");
    bool is_regex;
    TRY(read_pattern(t, "decoder", &f.value[0], &t->decode_from, &is_regex));
    if (is_regex) return tokenizer_refuse(t, "decoder", "Replace with a Regex");
    TRY(field_text(&f, 1, &t->decode_to));
    t->n_decode_replaces = 1;
    return STATUS_OK;
}

static enum status decoder_strip(struct tokenizer *t, const struct json *at) {
    static const char *const names[] = {"content", "start", "stop"};
    struct fields f;
    int64_t start, stop;
    TRY(fields_read(&f, t, "decoder", *at, names, 3));
    TRY(field_int(&f, 1, 0, &start));
    TRY(field_int(&f, 2, 0, &stop));
    if (!field_is(&f, 0, " ") || start != 1 || stop != 0 || !t->decode_fused || t->strip_space)
        return tokenizer_refuse(t, "decoder", "a Strip that is not of one leading space after Fuse");
    t->strip_space = true;
    return STATUS_OK;
}

/* Reads one part of a Sequence, which must come after the parts that it needs. */
static enum status read_decoder_part(struct tokenizer *t, const struct json *at) {
    struct fields f;
    TRY(fields_type(&f, t, "decoder", *at));
    if (f.is_null) return tokenizer_refuse(t, "decoder", "null inside a Sequence");
    if (t->strip_space) return tokenizer_refuse(t, "decoder", "a part after Strip");
    if (field_is_type(&f, "Strip")) return decoder_strip(t, at);
    if (t->decode_fused) return refuse_type(t, "decoder", &f);
    if (field_is_type(&f, "Replace")) return decoder_replace(t, at);
    if (field_is_type(&f, "ByteFallback")) return t->decode_bytes = true, STATUS_OK;
    if (field_is_type(&f, "Fuse")) return t->decode_fused = true, STATUS_OK;
    return refuse_type(t, "decoder", &f);
}

static enum status decoder_metaspace(struct tokenizer *t, const struct json *at) {
    enum prepend prepend;
    bool split;
    TRY(read_metaspace(t, "decoder", at, &t->decode_from, &prepend, &split));
    t->decoder = DECODER_METASPACE;
    t->metaspace_drop = prepend != PREPEND_NEVER;
    t->n_decode_replaces = 1;
    return bytes_append(&t->decode_to, " ", 1);
}

enum status tokenizer_load_decoder(struct tokenizer *t, struct json *j) {
    struct fields f;
    TRY(fields_type(&f, t, "decoder", *j));
    t->decoder = DECODER_JOIN;
    if (f.is_null) return STATUS_OK; /* the reference then puts spaces between tokens */
    t->decoder = DECODER_SEQUENCE;
    if (field_is_type(&f, "Sequence")) return read_sequence(t, "decoder", j, "decoders", read_decoder_part);
    if (field_is_type(&f, "Metaspace")) return decoder_metaspace(t, j);
    if (!field_is_type(&f, "ByteLevel")) return read_decoder_part(t, j);
    t->decoder = DECODER_BYTE_LEVEL;
    return STATUS_OK;
}
