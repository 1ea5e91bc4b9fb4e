/* tokenizer_train.c -- creates and frees the trainer, and writes its file. */
#include "data/tokenizer/tokenizer_train.h"
#include "base/file.h"
#include "base/formats/json.h"
#include "base/formats/text.h"
#include "base/memory.h"
#include "data/tokenizer/tokenizer_train_internal.h"
#include <assert.h>
#include <stdlib.h>

enum { BYTES = 256, VOCAB_MAX = 1 << 24 }; /* VOCAB_MAX: the limit of the loader, too */

static enum status check_sizes(const struct tokenizer_train_config *c) {
    if (c->vocab_size < 1 || c->vocab_size > VOCAB_MAX)
        return fail(STATUS_INVALID, "a vocabulary of %d ids: must be 1 to %d", c->vocab_size, VOCAB_MAX);
    if (c->reserve < 0 || c->n_specials < 0 || c->min_frequency < 0)
        return fail(STATUS_INVALID, "reserve and min_frequency cannot be negative");
    int64_t least = (int64_t)c->reserve + c->n_specials + BYTES;
    if (c->vocab_size < least)
        return fail(STATUS_INVALID,
                    "a vocabulary of %d ids is too small: %d special tokens, 256 bytes and a reserve of %d need %lld",
                    c->vocab_size, c->n_specials, c->reserve, (long long)least);
    return STATUS_OK;
}

static enum status trainer_prepare(struct tokenizer_trainer *t, const struct tokenizer_train_config *c,
                                   struct threads *pool) {
    t->limit = (size_t)(c->vocab_size - c->reserve);
    t->min_frequency = c->min_frequency > 0 ? (uint64_t)c->min_frequency : 1;
    TRY(counter_create(&t->counter, c->pattern, pool));
    return vocabulary_create(&t->vocabulary, c->specials, c->n_specials, t->limit);
}

enum status tokenizer_trainer_create(struct tokenizer_trainer **out, const struct tokenizer_train_config *config,
                                     struct threads *pool) {
    TRY(check_sizes(config));
    struct tokenizer_trainer *t;
    TRY(memory_allocate_zero(&t, 1));
    enum status status = trainer_prepare(t, config, pool);
    if (status == STATUS_OK)
        *out = t;
    else
        tokenizer_trainer_free(t);
    return status;
}

void tokenizer_trainer_free(struct tokenizer_trainer *t) {
    if (!t) return;
    counter_free(&t->counter);
    vocabulary_free(&t->vocabulary);
    memory_free(t->merges);
    memory_free(t);
}

enum status tokenizer_trainer_add(struct tokenizer_trainer *t, const char *text, size_t bytes) {
    assert(!t->merged);
    t->report.documents++;
    t->report.bytes += (int64_t)bytes;
    return counter_add(&t->counter, text, bytes);
}

enum status tokenizer_trainer_merge(struct tokenizer_trainer *t, const struct progress *progress) {
    assert(!t->merged);
    t->merged = true;
    TRY(counter_flush(&t->counter));
    TRY(train_merges(t, progress));
    t->report.vocab = (int64_t)t->vocabulary.count;
    t->report.merges = (int64_t)t->n_merges;
    return STATUS_OK;
}

struct tokenizer_train_report tokenizer_trainer_report(const struct tokenizer_trainer *t) {
    return t->report;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static void write_flag(struct json_writer *w, const char *key, bool value) {
    json_write_key(w, key);
    json_write_bool(w, value);
}

static void write_nulls(struct json_writer *w, const char *const *keys, size_t n) {
    for (size_t i = 0; i < n; i++) {
        json_write_key(w, keys[i]);
        json_write_null(w);
    }
}

static void write_spelling(struct json_writer *w, const struct vocabulary *v, int32_t id) {
    json_write_bytes(w, v->text.data + v->items[id].at, v->items[id].bytes);
}

static void write_added_tokens(struct json_writer *w, const struct vocabulary *v) {
    json_write_key(w, "added_tokens");
    json_write_array(w);
    for (int32_t id = 0; id < v->n_specials; id++) {
        json_write_object(w);
        json_write_key(w, "id");
        json_write_int(w, id);
        json_write_key(w, "content");
        write_spelling(w, v, id);
        static const char *const flags[] = {"single_word", "lstrip", "rstrip", "normalized"};
        for (size_t i = 0; i < ARRAY_LEN(flags); i++)
            write_flag(w, flags[i], false);
        write_flag(w, "special", true);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

static void write_byte_level(struct json_writer *w, bool prefix_space, bool use_regex) {
    json_write_object(w);
    json_write_key(w, "type");
    json_write_string(w, "ByteLevel");
    write_flag(w, "add_prefix_space", prefix_space);
    write_flag(w, "trim_offsets", true);
    write_flag(w, "use_regex", use_regex);
    json_write_object_end(w);
}

/* GPT-2's pattern is part of ByteLevel; others are a Split before it. */
static void write_pre_tokenizer(struct json_writer *w, enum scanner scanner) {
    json_write_key(w, "pre_tokenizer");
    if (scanner == SCANNER_GPT2) {
        write_byte_level(w, false, true);
        return;
    }
    json_write_object(w);
    json_write_key(w, "type");
    json_write_string(w, "Sequence");
    json_write_key(w, "pretokenizers");
    json_write_array(w);
    json_write_object(w);
    json_write_key(w, "type");
    json_write_string(w, "Split");
    json_write_key(w, "pattern");
    json_write_object(w);
    json_write_key(w, "Regex");
    json_write_string(w, scanner_pattern(scanner));
    json_write_object_end(w);
    json_write_key(w, "behavior");
    json_write_string(w, "Isolated");
    write_flag(w, "invert", false);
    json_write_object_end(w);
    write_byte_level(w, false, false);
    json_write_array_end(w);
    json_write_object_end(w);
}

/* Writes a key without json_write_key, which needs a NUL at the end: spellings have none. */
static enum status write_vocab(struct json_writer *w, const struct vocabulary *v) {
    struct bytes key = {0};
    enum status status = STATUS_OK;
    json_write_key(w, "vocab");
    json_write_object(w);
    for (size_t id = 0; id < v->count && status == STATUS_OK; id++) {
        key.size = 0;
        status = bytes_append(&key, v->text.data + v->items[id].at, v->items[id].bytes);
        if (status != STATUS_OK) break;
        json_write_key(w, key.data);
        json_write_int(w, (int64_t)id);
    }
    json_write_object_end(w);
    bytes_free(&key);
    return status;
}

static enum status write_model(struct json_writer *w, const struct tokenizer_trainer *t) {
    static const char *const nulls[] = {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"};
    json_write_key(w, "model");
    json_write_object(w);
    json_write_key(w, "type");
    json_write_string(w, "BPE");
    write_nulls(w, nulls, ARRAY_LEN(nulls));
    write_flag(w, "fuse_unk", false);
    write_flag(w, "byte_fallback", false);
    write_flag(w, "ignore_merges", false);
    TRY(write_vocab(w, &t->vocabulary));
    json_write_key(w, "merges");
    json_write_array(w);
    for (size_t i = 0; i < t->n_merges; i++) {
        json_write_array(w);
        write_spelling(w, &t->vocabulary, t->merges[i].left);
        write_spelling(w, &t->vocabulary, t->merges[i].right);
        json_write_array_end(w);
    }
    json_write_array_end(w);
    json_write_object_end(w);
    return STATUS_OK;
}

static enum status write_all(struct json_writer *w, const struct tokenizer_trainer *t) {
    static const char *const nulls[] = {"truncation", "padding"};
    json_write_object(w);
    json_write_key(w, "version");
    json_write_string(w, "1.0");
    write_nulls(w, nulls, ARRAY_LEN(nulls));
    write_added_tokens(w, &t->vocabulary);
    json_write_key(w, "normalizer");
    json_write_null(w);
    write_pre_tokenizer(w, t->counter.scanner);
    json_write_key(w, "post_processor");
    json_write_null(w);
    json_write_key(w, "decoder");
    write_byte_level(w, true, true);
    TRY(write_model(w, t));
    json_write_object_end(w);
    return STATUS_OK;
}

/* No newline follows the object, so that the file equals the reference's byte for byte. */
enum status tokenizer_trainer_save(const struct tokenizer_trainer *t, const char *path) {
    assert(t->merged);
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = text_stream_open(&text, &bytes);
    if (!memory) return fail_errno("%s: no memory for the file's text", path);
    struct json_writer w;
    json_write_open(&w, memory, 2);
    enum status status = write_all(&w, t);
    bool failed = ferror(memory) != 0;
    if (fclose(memory) != 0 || failed) status = fail(STATUS_NO_MEMORY, "%s: no memory for the file's text", path);
    if (status == STATUS_OK) status = file_save(path, text, bytes - 1);
    free(text);
    return status;
}
