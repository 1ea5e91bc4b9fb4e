/* test_train_run.c -- a run whose gradient is not finite: steps are skipped and counted, the weights do not change, and
 * in the end the run fails with a message. (tests/cli/train/train_run.sh tests normal runs.) */
#include "model/params.h"
#include "tests/test.h"
#include "train/run/checkpoint.h"
#include "train/run/run.h"

static char start[600], run[600], tokens[600];

static void make_data(void) {
    FILE *f = fopen(tokens, "wb");
    CHECK(f);
    for (int i = 0; i < 1000; i++)
        fputc(i % 200, f), fputc(0, f);
    CHECK(fclose(f) == 0);
}

static void copy_file(const char *from, const char *name) {
    char command[2000];
    snprintf(command, sizeof command, "cp '%s' '%s/%s'", from, start, name);
    CHECK(system(command) == 0);
}

/* A model folder with numbers so large that sums over them are infinite. */
static void make_start(const char *source) {
    char path[700];
    struct model_config m;
    struct params *p;
    CHECK(mkdir(start, 0777) == 0);
    snprintf(path, sizeof path, "%s/tests/cli/tiny/config.json", source);
    copy_file(path, "config.json");
    snprintf(path, sizeof path, "%s/tests/cli/tiny/tokenizer.json", source);
    copy_file(path, "tokenizer.json");
    CHECK_OK(model_config_load(&m, start));
    CHECK_OK(params_init(&p, &m, 1));
    float *norm = (float *)params_get(p, "model.norm.weight");
    for (int i = 0; i < m.hidden; i++)
        norm[i] = 3e38f;
    snprintf(path, sizeof path, "%s/model.safetensors", start);
    CHECK_OK(params_save(p, path, SAFETENSORS_F32, "{\"format\":\"pt\"}"));
    params_free(p);
}

static int count_lines(const char *path, const char *with) {
    char text[2000];
    int n = 0;
    FILE *f = fopen(path, "r");
    CHECK(f);
    while (fgets(text, sizeof text, f))
        n += strstr(text, with) != NULL;
    fclose(f);
    return n;
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    const char *source = getenv("DRT_SOURCE"), *folder = test_folder();
    if (!source) test_skip("DRT_SOURCE is not set");
    snprintf(start, sizeof start, "%s/start", folder);
    snprintf(run, sizeof run, "%s/run", folder);
    snprintf(tokens, sizeof tokens, "%s/data.u16", folder);
    make_data();
    make_start(source);

    struct train_config c;
    struct device *dev;
    struct run_report report;
    const char *files[] = {tokens};
    char model[700], log[700], other[700];
    int64_t latest;
    CHECK_OK(config_defaults(&c));
    snprintf(model, sizeof model, "model=%s", start);
    CHECK_OK(config_set(&c, model));
    CHECK_OK(config_set_strings(&c.data, files, 1));
    CHECK_OK(config_set(&c, "length=126"));
    CHECK_OK(config_set(&c, "sequences=1"));
    CHECK_OK(config_set(&c, "save_every=10"));
    CHECK_OK(config_check(&c));
    CHECK_OK(device_open(&dev, "cpu", 2));
    struct run_options options = {.config = &c, .folder = run, .device = dev, .type = DTYPE_F32, .until = 10};
    CHECK_OK(run_train(&report, &options)); /* a run that is stopped has a checkpoint of its last step */
    CHECK_EQ(report.skipped, 10);
    /* While steps are skipped there is no other: it would be one of weights that may have broken the loss. */
    options.resume = true;
    options.until = 0;
    CHECK_FAILS(run_train(&report, &options), STATUS_INVALID,
                "up to step 30; no such gradient reached the weights; the last checkpoint is of step 10: resume");
    CHECK_EQ(report.step, 30);
    CHECK_EQ(report.skipped, 30);
    CHECK(!report.finished);
    snprintf(log, sizeof log, "%s/log.jsonl", run);
    CHECK_EQ(count_lines(log, "\"skipped\":true"), 30);
    CHECK_EQ(count_lines(log, "\"loss\":null"), 30);
    CHECK_EQ(count_lines(log, "\"skipped_for\":\"loss "), 30);
    CHECK_EQ(count_lines(log, "-nan"), 0);
    CHECK(isnan(report.loss)); /* no step had one */

    /* The checkpoint of step 10 has the weights of the start. */
    struct checkpoint saved;
    struct params *first;
    struct safetensors *file;
    CHECK_OK(checkpoint_latest(&latest, run));
    CHECK_EQ(latest, 10);
    CHECK_OK(checkpoint_load(&saved, run, latest, &c.model));
    CHECK_EQ(saved.skipped, 10);
    snprintf(model, sizeof model, "%s/model.safetensors", start);
    CHECK_OK(safetensors_open(&file, model));
    CHECK_OK(params_load(&first, &c.model, file));
    CHECK(memcmp(params_at(first, 0)->data, params_at(saved.params, 0)->data,
                 (size_t)params_elements(first) * sizeof(float)) == 0);
    safetensors_close(file);
    params_free(first);
    checkpoint_free(&saved);

    /* A run without a checkpoint does not name one. */
    CHECK_OK(config_set(&c, "save_every=1000"));
    snprintf(other, sizeof other, "%s/other", folder);
    options.folder = other;
    options.resume = false;
    CHECK_FAILS(run_train(&report, &options), STATUS_INVALID,
                "there is no checkpoint yet: begin again with a lower lr");
    config_free(&c);
    device_close(dev);
    return test_done();
}
