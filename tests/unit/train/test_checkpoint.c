/* test_checkpoint.c -- checkpoints are read back bit for bit, the newest complete one is found, errors name damage; the
 * log is truncated where a run continues. */
#include "model/params.h"
#include "tests/test.h"
#include "train/run/checkpoint.h"
#include "train/run/run_log.h"

static const char json[] =
    "{\"vocab_size\": 20, \"hidden_size\": 8, \"intermediate_size\": 12, \"num_attention_heads\": 2,"
    "\"slide_window\": 4, \"rms_norm_eps\": 1e-5, \"chunk_id\": 19, \"pad_id\": 18, \"enc_chunk_size\": 63,"
    "\"chunk_topk\": 2, \"encoder_input\": \"tokens\", \"decoder_layers\": [1, 1], \"encoder_layers\": 1}";

static struct model_config model(void) {
    struct model_config c;
    CHECK_OK(model_config_parse(&c, "config", json, sizeof json - 1));
    return c;
}

static void put_file(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static struct checkpoint make(int64_t step) {
    struct model_config m = model();
    struct checkpoint c = {.step = step, .tokens = 77 * step, .skipped = 3, .data = 0xfedcba9876543210u};
    CHECK_OK(params_init(&c.params, &m, (uint64_t)step));
    size_t n = (size_t)params_elements(c.params);
    for (int i = 0; i < 2; i++) {
        c.moments[i] = aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64);
        for (size_t j = 0; j < n; j++)
            c.moments[i][j] = sinf((float)(j + 100 * (size_t)i)) * 1e-20f;
    }
    return c;
}

static void check_same(const struct checkpoint *a, const struct checkpoint *b) {
    size_t bytes = (size_t)params_elements(a->params) * sizeof(float);
    CHECK_EQ(a->step, b->step);
    CHECK_EQ(a->tokens, b->tokens);
    CHECK_EQ(a->skipped, b->skipped);
    CHECK(a->data == b->data);
    CHECK(memcmp(params_at(a->params, 0)->data, params_at(b->params, 0)->data, bytes) == 0);
    CHECK(memcmp(a->moments[0], b->moments[0], bytes) == 0);
    CHECK(memcmp(a->moments[1], b->moments[1], bytes) == 0);
}

static void round_trip(enum safetensors_dtype type, const char *name) {
    struct model_config m = model();
    const char *run = test_path(name);
    struct checkpoint_kind kind = {.run = run, .model_json = json, .tokenizer = test_path("t.json"), .type = type};
    struct checkpoint loaded, c;
    int64_t latest;
    put_file(kind.tokenizer, "{}");
    CHECK(mkdir(run, 0777) == 0);
    CHECK_OK(checkpoint_latest(&latest, run));
    CHECK_EQ(latest, -1);
    CHECK_OK(checkpoint_prepare(run));
    for (int64_t step = 8; step <= 12; step += 2) {
        c = make(step);
        CHECK_OK(checkpoint_save(&c, &kind));
        CHECK_OK(checkpoint_load(&loaded, run, step, &m));
        check_same(&loaded, &c);
        checkpoint_free(&loaded), checkpoint_free(&c);
    }
    /* An incomplete checkpoint of a killed writer, and other names, are ignored. 12 is the newest, not "8". */
    CHECK(mkdir(test_path(type == SAFETENSORS_F32 ? "a/checkpoints/step-99.tmp" : "b/checkpoints/step-99.tmp"), 0777) ==
          0);
    CHECK(mkdir(test_path(type == SAFETENSORS_F32 ? "a/checkpoints/step-98x" : "b/checkpoints/step-98x"), 0777) == 0);
    CHECK_OK(checkpoint_latest(&latest, run));
    CHECK_EQ(latest, 12);
    CHECK_OK(checkpoint_prepare(run));
    CHECK(!file_exists(test_path(type == SAFETENSORS_F32 ? "a/checkpoints/step-99.tmp" : "b/checkpoints/step-99.tmp")));
    CHECK_OK(checkpoint_trim(run, 2));
    CHECK(!file_is_directory(test_path(type == SAFETENSORS_F32 ? "a/checkpoints/step-8" : "b/checkpoints/step-8")));
    CHECK_OK(checkpoint_load(&loaded, run, 10, &m));
    checkpoint_free(&loaded);
    CHECK_OK(checkpoint_trim(run, 1));
    CHECK_FAILS(checkpoint_load(&loaded, run, 10, &m), STATUS_NOT_FOUND, "step-10");
    CHECK_OK(checkpoint_load(&loaded, run, 12, &m));
    checkpoint_free(&loaded);
}

/* Every kind of damage to `a`, which has step 12. */
static void damage(void) {
    struct model_config m = model(), other = model();
    struct checkpoint loaded;
    const char *state = test_path("a/checkpoints/step-12/state.safetensors");
    uint64_t size;
    other.ffn = 16;
    CHECK_FAILS(checkpoint_load(&loaded, test_path("a"), 12, &other), STATUS_MISMATCH, "gate_proj");
    CHECK(rename(test_path("a/checkpoints/step-12"), test_path("a/checkpoints/step-13")) == 0);
    CHECK_FAILS(checkpoint_load(&loaded, test_path("a"), 13, &m), STATUS_CORRUPT, "is the state of step 12");
    CHECK(rename(test_path("a/checkpoints/step-13"), test_path("a/checkpoints/step-12")) == 0);
    CHECK_OK(file_size(&size, state));
    CHECK(truncate(state, (off_t)size - 4) == 0);
    CHECK(checkpoint_load(&loaded, test_path("a"), 12, &m) != STATUS_OK);
    CHECK(strstr(status_message(), "state.safetensors"));
    CHECK_OK(file_remove(state));
    CHECK_FAILS(checkpoint_load(&loaded, test_path("a"), 12, &m), STATUS_NOT_FOUND, "state.safetensors");
}

static struct run_log_line line(int64_t step) {
    return (struct run_log_line){.step = step,
                                 .tokens = step * 10,
                                 .report = {.loss = 5.5,
                                            .mlm_loss = NAN,
                                            .contrastive_loss = NAN,
                                            .contrastive_accuracy = NAN,
                                            .corpus_weight = NAN,
                                            .memory_loss = NAN,
                                            .memory_gate = NAN,
                                            .memory_share = NAN,
                                            .teach_loss = NAN,
                                            .teach_accuracy = NAN,
                                            .teach_gain = NAN,
                                            .teach_best_gain = NAN,
                                            .gradient_norm = step == 2 ? NAN : 1.0,
                                            .memory_gradient_norm = step == 2 ? NAN : -1.0,
                                            .retriever_gradient_norm = -1.0},
                                 .lr = (double)0.005f,
                                 .pool = "own",
                                 .valid_memory_loss = NAN,
                                 .valid_memory_bits_per_byte = NAN,
                                 .valid_memory_gain_95 = NAN,
                                 .skipped = step == 2};
}

static void check_file(const char *path, const char *want) {
    struct file_map map;
    CHECK_OK(file_map(&map, path));
    char *text = malloc(map.size + 1);
    memcpy(text, map.data, map.size);
    text[map.size] = 0;
    CHECK_STR(text, want);
    free(text);
    file_unmap(&map);
}

#define LINE(step, tokens, norm, more)                                                                                 \
    "{\"step\":" step ",\"tokens\":" tokens ",\"loss\":5.5,\"lr\":0.005,\"gradient_norm\":" norm                       \
    ",\"pool\":\"own\"," more "\"tokens_per_second\":0,\"seconds\":0,\"device_bytes\":0}\n"

/* The figures of each file follow those of all files. */
static void log_names_files(void) {
    static const char *const names[] = {"a.u16", "b.u16"};
    static const struct validation_figure figures[] = {{3.0, 1.5, NAN, NAN, NAN}, {2.0, 1.25, NAN, NAN, NAN}};
    const char *path = test_path("files.jsonl");
    struct run_log_line l = line(1);
    struct run_log *log;
    l.validated = true;
    l.valid_loss = 2.5;
    l.valid_bits_per_byte = 1.375;
    l.valid_files = names;
    l.valid_figures = figures;
    l.n_valid_files = 2;
    CHECK_OK(run_log_open(&log, path, 0));
    CHECK_OK(run_log_write(log, &l));
    run_log_close(log);
    check_file(path, LINE("1", "10", "1",
                          "\"valid_loss\":2.5,\"valid_bits_per_byte\":1.375,"
                          "\"valid_bits_per_byte_by_file\":{\"a.u16\":1.5,\"b.u16\":1.25},"));
}

static void log_is_cut(void) {
    const char *path = test_path("log.jsonl");
    struct run_log *log;
    CHECK_OK(run_log_open(&log, path, 0));
    for (int64_t step = 1; step <= 3; step++) {
        struct run_log_line l = line(step);
        CHECK_OK(run_log_write(log, &l));
    }
    run_log_close(log);
    static const char two[] = LINE("1", "10", "1", "")
        LINE("2", "20", "null,\"memory_gradient_norm\":null",
             "\"skipped\":true,\"skipped_for\":\"loss 5.5, gradient norm nan, memory's nan\",");
    FILE *f = fopen(path, "a");
    CHECK(f && fputs("{\"step\":4,\"tok", f) >= 0 && fclose(f) == 0); /* killed while writing */
    CHECK_OK(run_log_open(&log, path, 2));
    run_log_close(log);
    check_file(path, two);
    CHECK_OK(run_log_open(&log, path, 100)); /* nothing to truncate */
    run_log_close(log);
    check_file(path, two);
    CHECK_OK(run_log_open(&log, path, 0));
    run_log_close(log);
    check_file(path, "");
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    round_trip(SAFETENSORS_F32, "a");
    round_trip(SAFETENSORS_BF16, "b");
    damage();
    log_is_cut();
    log_names_files();
    return test_done();
}
