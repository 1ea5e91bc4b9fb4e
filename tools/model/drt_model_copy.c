/* drt_model_copy.c -- see drt_model_copy.h. */
#include "tools/model/drt_model_copy.h"
#include "base/formats/json_object.h"
#include "base/memory.h"
#include "tools/shared/progress_line.h"
#include <string.h>

enum status model_copy_begin(struct model_copy *c, const struct model_member *members, int n) {
    struct object json = {0};
    struct file_map map;
    char path[FILE_PATH_MAX];
    TRY(file_join(path, c->engine.model.path, "config.json"));
    TRY(file_map(&map, path));
    enum status s = object_read(&json, path, (const char *)map.data, map.size);
    file_unmap(&map);
    for (int i = 0; i < n && s == STATUS_OK; i++)
        s = object_set_int(&json, members[i].key, members[i].value);
    if (s == STATUS_OK) s = object_text(&c->json, &json);
    object_free(&json);
    TRY(s);
    return new_folder_begin(&c->folder, c->options->out, c->options->force);
}

enum status model_copy_publish(struct model_copy *c, const char *tensor, const float *values) {
    const struct model_copy_options *o = c->options;
    struct model_config config;
    struct params *params = NULL;
    struct safetensors *file = NULL;
    struct params_grafted counts;
    char path[FILE_PATH_MAX];
    TRY(model_config_parse(&config, o->model, c->json, strlen(c->json)));
    TRY(file_join(path, c->engine.model.path, "tokenizer.json"));
    TRY(new_folder_tokenizer(&c->folder, path, &config));
    TRY(new_folder_write(&c->folder, "config.json", c->json, strlen(c->json)));
    TRY(file_join(path, c->engine.model.path, "model.safetensors"));
    TRY(safetensors_open(&file, path));
    const enum safetensors_dtype type = safetensors_at(file, 0)->dtype;
    enum status s = params_graft(&params, &config, file, 1, &counts);
    safetensors_close(file);
    if (s == STATUS_OK) {
        params_set(params, tensor, values);
        s = file_join(path, c->folder.temporary, "model.safetensors");
    }
    if (s == STATUS_OK) s = params_save(params, path, o->dtype ? model_dtype(o->dtype) : type, "{\"format\":\"pt\"}");
    params_free(params);
    TRY(s);
    return new_folder_publish(&c->folder);
}

int model_copy_run(const char *name, const struct model_copy_options *o,
                   enum status (*make)(struct model_copy *c, const void *context), const void *context) {
    struct progress_line *line = NULL;
    struct model_copy c = {.options = o};
    const struct engine_config config = {
        .model = o->model, .store = o->store, .where = o->where, .threads = (int)o->threads, .memory = true};
    const char *missing = !o->model ? "model" : !o->store ? "store" : !o->out ? "out" : NULL;
    if (missing) {
        fprintf(stderr, "%s: --%s is missing; see %s --help\n", name, missing, name);
        return 2;
    }
    enum status s = progress_line_start(&line, "drt-model");
    if (s == STATUS_OK) s = engine_open(&c.engine, &config);
    c.progress = progress_line_progress(line);
    if (s == STATUS_OK) s = make(&c, context);
    progress_line_end(line);
    if (s != STATUS_OK && c.folder.temporary[0]) {
        char why[1024];
        snprintf(why, sizeof why, "%s", status_message());
        new_folder_discard(&c.folder);
        s = fail(s, "%s", why);
    }
    memory_free(c.json);
    engine_close(&c.engine);
    return s == STATUS_OK ? 0 : model_failed();
}
