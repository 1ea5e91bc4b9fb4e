/* run_changes.c -- see run_changes.h. Both configs are compared as config_write writes them. */
#include "train/run/run_changes.h"
#include "base/file.h"
#include "base/formats/json_object.h"
#include "base/formats/text.h"
#include "train/run/config_internal.h"
#include <stdlib.h>
#include <string.h>

static void changes_add(char out[RUN_CHANGES_MAX], const char *prefix, const char *key) {
    size_t used = strlen(out), capacity = RUN_CHANGES_MAX - used;
    int n = snprintf(out + used, capacity, "%s%s%s", used ? ", " : "", prefix, key);
    if (n < 0 || (size_t)n >= capacity) memcpy(out + RUN_CHANGES_MAX - sizeof "...", "...", sizeof "...");
}

static enum status changes_compare(char out[RUN_CHANGES_MAX], const char *a, const char *b, const char *prefix) {
    struct object old = {0}, now = {0};
    enum status s;
    TRY_GOTO(s, object_read(&old, "old config", a, strlen(a)), out);
    TRY_GOTO(s, object_read(&now, "config", b, strlen(b)), out);
    for (size_t i = 0; i < now.count; i++) {
        const char *key = now.items[i].key, *value = now.items[i].value, *was = object_get(&old, key);
        if (was && strcmp(was, value) == 0) continue;
        if (was && was[0] == '{' && value[0] == '{' && !prefix[0]) {
            char inner[64];
            snprintf(inner, sizeof inner, "%.60s.", key);
            TRY_GOTO(s, changes_compare(out, was, value, inner), out);
            continue;
        }
        changes_add(out, prefix, key);
    }
    for (size_t i = 0; i < old.count; i++)
        if (!object_get(&now, old.items[i].key)) changes_add(out, prefix, old.items[i].key);
out:
    object_free(&old);
    object_free(&now);
    return s;
}

static enum status changes_text(char **out, const struct train_config *c) {
    size_t bytes = 0;
    FILE *memory = text_stream_open(out, &bytes);
    if (!memory) return fail_errno("config");
    config_write(c, memory);
    return fclose(memory) == 0 ? STATUS_OK : fail_errno("config");
}

/* The config that the run had, with the model of its checkpoint. */
static enum status changes_load(struct train_config *c, const char *run, const char *checkpoint) {
    char path[FILE_PATH_MAX];
    struct file_map map;
    TRY(file_join(path, run, "config.json"));
    TRY(config_defaults(c));
    TRY(config_load(c, path));
    TRY(file_join(path, checkpoint, "config.json"));
    TRY(file_map(&map, path));
    enum status s = config_set_model(c, (const char *)map.data, map.size);
    file_unmap(&map);
    return s == STATUS_OK ? config_check(c) : s;
}

enum status run_changes(char out[RUN_CHANGES_MAX], const char *run, const char *checkpoint,
                        const struct train_config *now) {
    struct train_config old = {0};
    char *texts[2] = {NULL, NULL};
    enum status s = STATUS_OK;
    out[0] = '\0';
    if (changes_load(&old, run, checkpoint) != STATUS_OK) goto out;
    TRY_GOTO(s, changes_text(&texts[0], &old), out);
    TRY_GOTO(s, changes_text(&texts[1], now), out);
    s = changes_compare(out, texts[0], texts[1], "");
out:
    free(texts[0]);
    free(texts[1]);
    config_free(&old);
    return s;
}
