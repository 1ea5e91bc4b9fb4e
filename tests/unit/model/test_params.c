/* test_params.c -- the table of model.md §12, and files that do not fit it: the error names the tensor and both
 * values. */
#include "model/block.h"
#include "model/params.h"
#include "tests/test.h"

static struct model_config config(const char *extra) {
    char text[1024];
    struct model_config c;
    snprintf(text, sizeof text,
             "{\"vocab_size\": 20, \"hidden_size\": 8, \"intermediate_size\": 12, \"num_attention_heads\": 2,"
             "\"slide_window\": 4, \"rms_norm_eps\": 1e-5, \"chunk_id\": 19, \"pad_id\": 18, \"enc_chunk_size\": 63,"
             "\"chunk_topk\": 2, \"encoder_input\": \"tokens\", %s}",
             extra);
    CHECK_OK(model_config_parse(&c, "config", text, strlen(text)));
    return c;
}

/* The published model: 151 tensors, 145,980,672 numbers; [6,3,3] has one more norm (model.md §12). */
static void counts(void) {
    struct model_config c = config("\"decoder_layers\": [6, 6], \"encoder_layers\": 2");
    struct params *p;
    c.vocab_size = 50265;
    c.hidden = 768;
    c.ffn = 2048;
    CHECK_OK(params_describe(&p, &c));
    CHECK_EQ(params_count(p), 151);
    CHECK_EQ(params_elements(p), 145980672);
    CHECK_STR(params_at(p, 0)->name, "model.embed_tokens.weight");
    CHECK_STR(params_at(p, 1)->name, "model.lower_layers.0.self_attn.q_proj.weight");
    CHECK(params_at(p, 0)->data == NULL);
    params_free(p);
    c.groups = 2;
    c.group_layers[0] = c.group_layers[1] = 3;
    CHECK_OK(params_describe(&p, &c));
    CHECK_EQ(params_elements(p), 145981440);
    params_free(p);
}

/* Random weights, saved and loaded: the same numbers (F32), or the nearest 16-bit ones; fused views have the offsets
 * that block.c reads. */
static void round_trip(const char *layers) {
    struct model_config c = config(layers);
    struct params *a, *b;
    struct safetensors *file;
    char path[600];
    static const double relative[] = {0.0, 0x1p-10, 0x1p-7};
    static const enum safetensors_dtype types[] = {SAFETENSORS_F32, SAFETENSORS_F16, SAFETENSORS_BF16};
    CHECK_OK(params_init(&a, &c, 5));
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        snprintf(path, sizeof path, "%s/model.safetensors", test_folder());
        CHECK_OK(params_save(a, path, types[t], "{\"format\": \"pt\"}"));
        CHECK_OK(safetensors_open(&file, path));
        CHECK_EQ(safetensors_count(file), params_count(a));
        CHECK_OK(params_load(&b, &c, file));
        for (int i = 0; i < params_count(a); i++) {
            const struct param *x = params_at(a, i), *y = params_at(b, i);
            CHECK_STR(x->name, y->name);
            CHECK_CLOSE(x->data, y->data, x->rows * x->cols, relative[t] * 2.0 + 1e-7 * (t > 0));
        }
        uint8_t fa[16], fb[16];
        params_landmark_fingerprint(a, fa);
        params_landmark_fingerprint(b, fb);
        if (!c.base_lm) CHECK_EQ(memcmp(fa, fb, 16) == 0, t == 0);
        safetensors_close(file);
        params_free(b);
    }
    struct weights weights = weights_of_params(a);
    for (int i = 0; i < model_config_layers(&c); i++) {
        struct block_weights w;
        block_weights_decoder(&w, &c, &weights, i);
        CHECK(w.qkv.data == w.q.data && w.qkv.rows == 3 * c.hidden && w.gate_up.rows == 2 * c.ffn);
        CHECK_EQ(w.gca_q.data != NULL, i >= c.lower_layers);
    }
    params_free(a);
}

/* The fingerprint changes with the weights that a landmark depends on, and with no others. */
static void fingerprint(void) {
    struct model_config c = config("\"decoder_layers\": [1, 1], \"encoder_layers\": 1, \"retrieval_proj\": true");
    static const char *const moving[] = {"model.embed_tokens.weight", "model.enc_prenorm.weight",
                                         "model.encoder.norm.weight", "model.encoder.layers.0.mlp.up_proj.weight",
                                         "model.lmk_k_proj.weight"};
    static const char *const still[] = {"model.chunk_k_proj.weight", "model.chunk_v_proj.weight", "model.norm.weight",
                                        "model.lmk_q_proj.0.weight", "model.lower_layers.0.self_attn.q_proj.weight"};
    struct params *p;
    uint8_t before[16], after[16];
    CHECK_OK(params_init(&p, &c, 1));
    params_landmark_fingerprint(p, before);
    for (size_t i = 0; i < ARRAY_LEN(moving) + ARRAY_LEN(still); i++) {
        bool moves = i < ARRAY_LEN(moving);
        float *data = (float *)params_get(p, moves ? moving[i] : still[i - ARRAY_LEN(moving)]);
        float old = data[3];
        data[3] += 0.5f;
        params_landmark_fingerprint(p, after);
        CHECK_EQ(memcmp(before, after, 16) != 0, moves);
        data[3] = old;
    }
    params_free(p);
}

/* A sketch has one tensor, after all others, which is part of the fingerprint; without the key there is none. */
static void sketch(void) {
    struct model_config c = config("\"decoder_layers\": [1], \"memory_layer\": 1, \"landmark_sketch\": 8"),
                        without = config("\"decoder_layers\": [1], \"memory_layer\": 1");
    struct params *p, *q;
    uint8_t before[16], after[16];
    CHECK_OK(params_init(&p, &c, 1));
    CHECK_OK(params_init(&q, &without, 1));
    CHECK_EQ(params_count(p), params_count(q) + 1);
    CHECK_EQ(params_elements(p), params_elements(q) + 20);
    const struct param *t = params_at(p, params_count(p) - 1);
    CHECK_STR(t->name, "landmark_sketch.idf");
    CHECK_EQ(t->rows, 1);
    CHECK_EQ(t->cols, 20);
    for (int i = 0; i < 20; i++)
        CHECK(params_get(p, "landmark_sketch.idf")[i] == 1.0f);
    params_landmark_fingerprint(p, before);
    params_landmark_fingerprint(q, after);
    CHECK(memcmp(before, after, 16) != 0);
    float idf[20] = {[19] = 2.5f};
    params_set(p, "landmark_sketch.idf", idf);
    params_landmark_fingerprint(p, after);
    CHECK(memcmp(before, after, 16) != 0);
    ((float *)params_get(p, "memory.log_tau"))[0] += 0.5f;
    params_landmark_fingerprint(p, before);
    CHECK(memcmp(before, after, 16) == 0);
    params_free(p), params_free(q);
}

static void initialisation(void) {
    struct model_config c = config("\"decoder_layers\": [1, 1], \"encoder_layers\": 1, \"retrieval_proj\": true");
    struct params *p, *same, *other;
    c.vocab_size = 2000;
    CHECK_OK(params_init(&p, &c, 1));
    CHECK_OK(params_init(&same, &c, 1));
    CHECK_OK(params_init(&other, &c, 2));
    const float *e = params_get(p, "model.embed_tokens.weight");
    double sum = 0.0, square = 0.0, n = 2000.0 * 8.0 - 8.0;
    for (int i = 0; i < 2000 * 8; i++)
        sum += (double)e[i], square += (double)e[i] * (double)e[i];
    CHECK(fabs(sum / n) < 0.001 && fabs(sqrt(square / n) - 0.02) < 0.001);
    for (int i = 0; i < 8; i++)
        CHECK(e[18 * 8 + i] == 0.0f);
    CHECK(params_get(p, "model.norm.weight")[7] == 1.0f);
    CHECK(fabsf(params_get(p, "model.lmk_k_proj.weight")[9] - 1.0f) < 0.2f &&
          fabsf(params_get(p, "model.lmk_k_proj.weight")[1]) < 0.2f);
    CHECK(memcmp(e, params_get(same, "model.embed_tokens.weight"), 2000 * 8 * sizeof *e) == 0);
    CHECK(memcmp(e, params_get(other, "model.embed_tokens.weight"), 2000 * 8 * sizeof *e) != 0);
    params_free(p), params_free(same), params_free(other);
}

/* Writes the model's tensors with one of them changed, and loads the file. */
struct change {
    const char *name, *rename;
    int dims;
    int64_t shape[2];
    enum safetensors_dtype dtype;
    bool drop, poison;
};

static enum status load_changed(const struct model_config *c, const struct change *change) {
    struct params *p, *loaded = NULL;
    struct tensor_view views[80];
    struct safetensors *file;
    char path[600];
    int count = 0;

    CHECK_OK(params_init(&p, c, 3));
    for (int i = 0; i < params_count(p); i++) {
        const struct param *t = params_at(p, i);
        struct tensor_view v = {.name = t->name,
                                .dtype = SAFETENSORS_F32,
                                .dims = t->rows == 1 ? 1 : 2,
                                .data = t->data,
                                .count = t->rows * t->cols};
        v.shape[0] = t->rows == 1 ? t->cols : t->rows;
        v.shape[1] = t->rows == 1 ? 0 : t->cols;
        if (strcmp(t->name, change->name) == 0) {
            if (change->drop) continue;
            if (change->dims) v.dims = change->dims, v.shape[0] = change->shape[0], v.shape[1] = change->shape[1];
            if (change->dtype != SAFETENSORS_F64) v.dtype = change->dtype;
            if (change->poison) ((float *)t->data)[5] = NAN;
            if (change->rename) {
                views[count++] = v;
                v.name = change->rename;
            }
        }
        views[count++] = v;
    }
    snprintf(path, sizeof path, "%s/changed.safetensors", test_folder());
    CHECK_OK(safetensors_write(path, views, count, NULL));
    CHECK_OK(safetensors_open(&file, path));
    enum status s = params_load(&loaded, c, file);
    if (s == STATUS_OK) params_free(loaded);
    safetensors_close(file);
    params_free(p);
    return s;
}

static void misfits(void) {
    struct model_config c = config("\"decoder_layers\": [1, 1], \"encoder_layers\": 1");
    const char *q = "model.upper_layers.0.0.gca.q_proj.weight";
    CHECK_FAILS(load_changed(&c, &(struct change){.name = q, .drop = true}), STATUS_MISMATCH,
                "tensor model.upper_layers.0.0.gca.q_proj.weight is missing");
    CHECK_FAILS(load_changed(&c, &(struct change){.name = q, .dims = 2, .shape = {4, 16}}), STATUS_MISMATCH,
                "gca.q_proj.weight has shape [4, 16]: config.json requires [8, 8]");
    CHECK_FAILS(load_changed(&c, &(struct change){.name = q, .dims = 1, .shape = {64, 0}}), STATUS_MISMATCH,
                "has shape [64]");
    CHECK_FAILS(load_changed(&c, &(struct change){.name = "model.norm.weight", .dims = 2, .shape = {1, 8}}),
                STATUS_MISMATCH, "model.norm.weight has shape [1, 8]: config.json requires [8]");
    CHECK_FAILS(load_changed(&c, &(struct change){.name = q, .dtype = SAFETENSORS_I32}), STATUS_MISMATCH,
                "is I32: weights are F32, F16 or BF16");
    CHECK_FAILS(load_changed(&c, &(struct change){.name = q, .poison = true}), STATUS_CORRUPT,
                "element 5 is not a finite number");
    CHECK_FAILS(load_changed(&c, &(struct change){.name = q, .rename = "model.upper_layers.0.1.gca.q_proj.weight"}),
                STATUS_MISMATCH, "model.upper_layers.0.1.gca.q_proj.weight is not part");
    CHECK_FAILS(load_changed(&c, &(struct change){.name = q, .rename = "module.model.norm.weight"}), STATUS_MISMATCH,
                "module.model.norm.weight is not part");
    static const char *const passed_over[] = {
        "lm_head.weight", "model.lower_layers.0.self_attn.m", "out.x", "in.y", "grad.z", "alt.w"};
    for (size_t i = 0; i < ARRAY_LEN(passed_over); i++)
        CHECK_OK(load_changed(&c, &(struct change){.name = q, .rename = passed_over[i]}));
}

/* The tensor and the key of a sketch need each other. */
static void sketch_misfits(void) {
    struct model_config c = config("\"decoder_layers\": [1], \"landmark_sketch\": 8"),
                        without = config("\"decoder_layers\": [1]");
    const char *idf = "landmark_sketch.idf", *norm = "language_model.model.norm.weight";
    CHECK_OK(load_changed(&c, &(struct change){.name = "none"}));
    CHECK_FAILS(load_changed(&c, &(struct change){.name = idf, .drop = true}), STATUS_MISMATCH,
                "tensor landmark_sketch.idf is missing: config.json requires it, with shape [20]");
    CHECK_FAILS(load_changed(&c, &(struct change){.name = idf, .dims = 2, .shape = {4, 5}}), STATUS_MISMATCH,
                "landmark_sketch.idf has shape [4, 5]: config.json requires [20]");
    CHECK_FAILS(load_changed(&c, &(struct change){.name = idf, .poison = true}), STATUS_CORRUPT,
                "landmark_sketch.idf: element 5 is not a finite number");
    CHECK_FAILS(load_changed(&without, &(struct change){.name = norm, .rename = idf}), STATUS_MISMATCH,
                "landmark_sketch.idf is not part of a model with this config");
}

static void too_large_for_f16(void) {
    struct model_config c = config("\"decoder_layers\": [1, 1], \"encoder_layers\": 1");
    struct params *p;
    char path[600];
    CHECK_OK(params_init(&p, &c, 1));
    ((float *)params_get(p, "model.norm.weight"))[2] = 1e6f;
    snprintf(path, sizeof path, "%s/large.safetensors", test_folder());
    CHECK_FAILS(params_save(p, path, SAFETENSORS_F16, NULL), STATUS_UNSUPPORTED,
                "tensor model.norm.weight: element 2 is 1e+06, too large for F16");
    CHECK(access(path, F_OK) != 0);
    CHECK_OK(params_save(p, path, SAFETENSORS_BF16, NULL));
    CHECK_FAILS(params_save(p, path, SAFETENSORS_I8, NULL), STATUS_UNSUPPORTED, "F32, F16 or BF16");
    params_free(p);
}

int main(void) {
    counts();
    round_trip("\"decoder_layers\": [2, 1, 2], \"encoder_layers\": 2");
    round_trip("\"decoder_layers\": [3], \"encoder_layers\": 0");
    round_trip("\"decoder_layers\": [3], \"landmark_sketch\": 16");
    fingerprint();
    sketch();
    initialisation();
    misfits();
    sketch_misfits();
    too_large_for_f16();
    return test_done();
}
