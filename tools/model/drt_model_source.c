/* drt_model_source.c -- a checkpoint's tensors under the names of the model's table.
 *
 * Data-parallel training prefixes names with "module.", training scripts with a wrapper such as "state_dict."; the head
 * is stored a second time, and ALiBi slopes are stored as buffers. All of these are removed. */
#include "base/memory.h"
#include "tools/model/drt_model.h"

#include <string.h>

static enum status open_input(struct model_source *s, const char *path) {
    struct file_map map = {0};
    TRY(file_map(&map, path));
    bool torch = torch_checkpoint_looks_like(map.data, map.size);
    file_unmap(&map);
    if (torch) return torch_checkpoint_open(&s->torch, path);
    return safetensors_open(&s->safetensors, path);
}

static int input_count(const struct model_source *s) {
    return s->torch ? torch_checkpoint_count(s->torch) : safetensors_count(s->safetensors);
}
static const struct tensor_view *input_at(const struct model_source *s, int i) {
    return s->torch ? torch_checkpoint_at(s->torch, i) : safetensors_at(s->safetensors, i);
}

/* Removes every "module.", as the released trainer's loader does. */
static void strip_module(char *name) {
    for (char *found; (found = strstr(name, "module."));)
        memmove(found, found + 7, strlen(found + 7) + 1);
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Returns the length of the wrapper before all names ("state_dict."), found by the embedding's name; -1: there
 * is no embedding. */
static int64_t wrapper_length(const struct model_source *s) {
    static const char *const ROOTS[] = {"language_model.model.embed_tokens.weight", "model.embed_tokens.weight"};
    for (size_t r = 0; r < ARRAY_LEN(ROOTS); r++)
        for (int i = 0; i < s->count; i++)
            if (ends_with(s->tensors[i].name, ROOTS[r]))
                return (int64_t)(strlen(s->tensors[i].name) - strlen(ROOTS[r]));
    return -1;
}

/* Keeps the tensors of the input under their cleaned names, without ALiBi slopes (they follow from the number of heads)
 * and without tensors outside of the wrapper (optimiser state). */
static enum status model_source_clean(struct model_source *s, const char *path) {
    TRY(memory_allocate_zero(&s->tensors, (size_t)input_count(s)));
    for (int i = 0; i < input_count(s); i++) {
        char *name = NULL;
        TRY(memory_copy_string(&name, input_at(s, i)->name));
        strip_module(name);
        s->tensors[s->count] = *input_at(s, i);
        s->tensors[s->count++].name = name;
    }
    int64_t wrapper = wrapper_length(s);
    if (wrapper < 0)
        return fail(STATUS_NOT_FOUND,
                    "%s: no tensor is called model.embed_tokens.weight: not a DRT checkpoint "
                    "(first tensor: %s)",
                    path, s->tensors[0].name);
    char *prefix = NULL;
    for (int i = 0; i < s->count && !prefix; i++)
        if (ends_with(s->tensors[i].name, "model.embed_tokens.weight"))
            TRY(memory_copy_string(&prefix, s->tensors[i].name));
    int kept = 0;
    for (int i = 0; i < s->count; i++) {
        char *name = (char *)s->tensors[i].name;
        bool mine = prefix && strncmp(name, prefix, (size_t)wrapper) == 0;
        if (mine) memmove(name, name + wrapper, strlen(name + wrapper) + 1);
        if (mine && !ends_with(name, ".self_attn.m")) {
            s->tensors[kept++] = s->tensors[i];
            continue;
        }
        s->left_out += !mine;
        memory_free(name);
    }
    s->count = kept;
    memory_free(prefix);
    return STATUS_OK;
}

void model_source_close(struct model_source *s) {
    for (int i = 0; i < s->count; i++)
        memory_free((void *)s->tensors[i].name);
    memory_free(s->tensors);
    torch_checkpoint_close(s->torch);
    safetensors_close(s->safetensors);
}

static struct tensor_view *model_source_find(const struct model_source *s, const char *name) {
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->tensors[i].name, name) == 0) return &s->tensors[i];
    return NULL;
}

/* Removes the head after checking that it equals the embedding byte by byte. */
static enum status drop_head(struct model_source *s, const char *path) {
    static const char *const PAIRS[][2] = {
        {"lm_head.weight", "model.embed_tokens.weight"},
        {"language_model.lm_head.weight", "language_model.model.embed_tokens.weight"}};
    for (size_t i = 0; i < ARRAY_LEN(PAIRS); i++) {
        struct tensor_view *head = model_source_find(s, PAIRS[i][0]), *embedding = model_source_find(s, PAIRS[i][1]);
        if (!head || !embedding) continue;
        if (head->dtype != embedding->dtype || head->count != embedding->count ||
            memcmp(head->data, embedding->data, (size_t)head->count * safetensors_dtype_bytes(head->dtype)) != 0)
            return fail(STATUS_UNSUPPORTED, "%s: %s differs from the embedding: only models with a tied head are read",
                        path, PAIRS[i][0]);
        memory_free((void *)head->name);
        *head = s->tensors[--s->count];
    }
    return STATUS_OK;
}

enum status model_source_open(struct model_source *s, const char *path) {
    enum status status;
    TRY_GOTO(status, open_input(s, path), out);
    TRY_GOTO(status, model_source_clean(s, path), out);
    status = drop_head(s, path);
out:
    if (status != STATUS_OK) model_source_close(s);
    return status;
}
