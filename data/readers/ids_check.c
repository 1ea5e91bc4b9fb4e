/* ids_check.c -- see ids_check.h. */
#include "data/readers/ids_check.h"
#include "base/file.h"
#include "data/readers/reader_internal.h"

enum { DOCUMENTS = 16, IDS = 512, ENOUGH = 64 };

struct check {
    struct tokenizer_scratch *texts, *again; /* two scratches, because each keeps only its last result */
    size_t ids, same;
};

/* Counts equal ids at the start and at the end, so that one difference, such as a cut at the end, counts as one. */
static size_t count_same(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b) {
    size_t n = n_a < n_b ? n_a : n_b, head = 0, tail = 0;
    while (head < n && a[head] == b[head])
        head++;
    while (tail < n - head && a[n_a - 1 - tail] == b[n_b - 1 - tail])
        tail++;
    return head + tail;
}

static enum status check_document(struct check *c, const struct tokenizer *t, const struct document *d) {
    const char *text;
    size_t bytes, n, n_ids = d->n_ids < IDS ? d->n_ids : IDS;
    const int32_t *ids = (const int32_t *)d->ids, *again;
    TRY(tokenizer_decode(t, c->texts, ids, n_ids, false, &text, &bytes));
    TRY(tokenizer_encode(t, c->again, text, bytes, TOKENIZER_RECOGNISE, &again, &n));
    c->ids += n_ids;
    c->same += count_same(ids, n_ids, again, n);
    return STATUS_OK;
}

static enum status check_file(struct check *c, const struct reader_config *file, const struct tokenizer *t) {
    struct reader *reader;
    struct document d;
    int more = 1;
    c->ids = c->same = 0;
    TRY(reader_open(&reader, file));
    enum status s = STATUS_OK;
    for (int i = 0; s == STATUS_OK && more && i < DOCUMENTS; i++) {
        s = reader_next(reader, &d, &more);
        if (s == STATUS_OK && more && d.n_ids > 0) s = check_document(c, t, &d);
    }
    reader_close(reader);
    return s;
}

/* Only files of a token format are opened, because a pipe can be read only once. */
static bool holds_ids(enum reader_format *format, const char *path) {
    if (*format == READER_AUTO) *format = reader_format_of_path(path);
    return *format == READER_U16 || *format == READER_U32 || *format == READER_MEGATRON;
}

void ids_check(const struct progress *progress, const struct reader_config *inputs, const struct tokenizer *t) {
    struct check c = {0};
    enum status s = tokenizer_scratch_create(&c.texts, t);
    if (s == STATUS_OK) s = tokenizer_scratch_create(&c.again, t);
    for (int i = 0; s == STATUS_OK && i < inputs->n_inputs; i++) {
        struct reader_config file = *inputs;
        file.inputs = &inputs->inputs[i];
        file.n_inputs = 1;
        file.max_document_bytes = 64 << 20;
        if (!holds_ids(&file.format, file.inputs[0]) || check_file(&c, &file, t) != STATUS_OK) continue;
        if (c.ids < ENOUGH || 2 * c.same >= c.ids) continue;
        progress_note(progress,
                      "%s: of its first %zu ids %zu come back when their text is encoded again: it was made with "
                      "another tokenizer, or holds no text",
                      file.inputs[0], c.ids, c.same);
    }
    tokenizer_scratch_free(c.texts);
    tokenizer_scratch_free(c.again);
}

static enum status ids_check_refuse(const struct ids_rules *rules, const char *source, uint64_t offset, size_t i,
                                    uint32_t id) {
    if (id >= (uint32_t)rules->vocab_size)
        return fail(STATUS_INVALID,
                    "%s: document at byte %llu: its token %zu is id %u, but the model's vocabulary has %d ids: these "
                    "tokens were made for another model",
                    source, (unsigned long long)offset, i, id, rules->vocab_size);
    const char *name = "";
    for (int k = 0; k < IDS_RESERVED; k++)
        if (rules->reserved[k] == (int64_t)id) name = rules->names[k];
    return fail(
        STATUS_INVALID,
        "%s: document at byte %llu: its token %zu is id %u, the model's %s, which must not be in text: leave it out of "
        "token files, or name it with --eod-id where it ends documents",
        source, (unsigned long long)offset, i, id, name);
}

enum status ids_check_document(const struct ids_rules *rules, const char *source, uint64_t offset, const uint32_t *ids,
                               size_t n) {
    const uint32_t vocab = (uint32_t)rules->vocab_size, a = (uint32_t)rules->reserved[0],
                   b = (uint32_t)rules->reserved[1], c = (uint32_t)rules->reserved[2];
    uint32_t bad = 0; /* without an early exit, which would keep the loop from being vector code */
    for (size_t i = 0; i < n; i++)
        bad |= (ids[i] >= vocab) | (ids[i] == a) | (ids[i] == b) | (ids[i] == c);
    for (size_t i = 0; i < n && bad; i++)
        if (ids[i] >= vocab || ids[i] == a || ids[i] == b || ids[i] == c)
            return ids_check_refuse(rules, source, offset, i, ids[i]);
    return STATUS_OK;
}
