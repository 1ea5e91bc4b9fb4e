/* answers.c -- see answers.h. */
#include "train/step/answers.h"
#include "base/little_endian.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

static const char answers_magic[] = "drtansw1";
enum { ANSWERS_HEAD = 24, ANSWERS_BYTES = 4 };

static enum status answers_path(char out[FILE_PATH_MAX], const char *tokens_path) {
    int n = snprintf(out, FILE_PATH_MAX, "%s.answers", tokens_path);
    return n < FILE_PATH_MAX ? STATUS_OK : fail(STATUS_INVALID, "%.80s...: the path is too long", tokens_path);
}

enum status answers_open(struct answers *out, const char *tokens_path) {
    char path[FILE_PATH_MAX];
    struct answers a = {0};
    TRY(answers_path(path, tokens_path));
    if (!file_exists(path))
        return fail(STATUS_NOT_FOUND,
                    "%s: is missing, so it is not known where the answers of %s begin: make both with drt-tokenizer "
                    "samples",
                    path, tokens_path);
    TRY(file_map(&a.map, path));
    const size_t size = a.map.size;
    const bool head = size >= ANSWERS_HEAD && memcmp(a.map.data, answers_magic, 8) == 0;
    const uint64_t samples = head ? little_endian_get(a.map.data + 8, 8) : 0;
    if (!head || (size - ANSWERS_HEAD) % ANSWERS_BYTES != 0 || samples != (size - ANSWERS_HEAD) / ANSWERS_BYTES) {
        file_unmap(&a.map);
        return fail(STATUS_INVALID, "%s: is damaged or no file of answers: make it again with drt-tokenizer samples",
                    path);
    }
    a.samples = (int64_t)samples;
    a.tokens = (int64_t)little_endian_get(a.map.data + 16, 8);
    *out = a;
    return STATUS_OK;
}

void answers_close(struct answers *a) {
    file_unmap(&a->map);
    *a = (struct answers){0};
}

int64_t answers_prompt(const struct answers *a, int64_t sample) {
    assert(sample >= 0 && sample < a->samples);
    return (int64_t)little_endian_get(a->map.data + ANSWERS_HEAD + ANSWERS_BYTES * sample, ANSWERS_BYTES);
}

enum status answers_write(const char *tokens_path, const uint32_t *prompts, int64_t samples, int64_t tokens) {
    char path[FILE_PATH_MAX];
    struct file_writer *file = NULL;
    uint8_t head[ANSWERS_HEAD], one[ANSWERS_BYTES];
    TRY(answers_path(path, tokens_path));
    memcpy(head, answers_magic, 8);
    little_endian_put(head + 8, (uint64_t)samples, 8);
    little_endian_put(head + 16, (uint64_t)tokens, 8);
    TRY(file_create(&file, path));
    enum status s = file_write(file, head, sizeof head);
    for (int64_t i = 0; i < samples && s == STATUS_OK; i++) {
        little_endian_put(one, prompts[i], ANSWERS_BYTES);
        s = file_write(file, one, sizeof one);
    }
    if (s == STATUS_OK) return file_publish(file);
    file_discard(file);
    return s;
}
