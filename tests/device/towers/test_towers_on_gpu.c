/* test_towers_on_gpu.c -- decoding id by id on a GPU (bf16: the single kernel of kernels/decode_step/decode_step.h)
 * against the same text in one call and against the CPU, over variants, head sizes, windows and K; and equal bits in
 * two runs. The same with weights of 8 bits, against the CPU's. The same with one op after another, as on GPUs before
 * Hopper. K and V of a chunk by all paths: among many, few at a time (recorded), part by part. Key states of passages,
 * likewise. */
#include "base/half.h"
#include "base/rng.h"
#include "decoder/decoder_internal.h"
#include "decoder/decoder_passages.h"
#include "encoder/encoder_internal.h"
#include "indexer/retrieve/retriever.h"
#include "tests/device/towers/machine.h"

enum { LENGTH = 300, VOCAB = 200 };

struct variant {
    const char *name, *layers, *input;
    int hidden, ffn, heads, encoder_layers, chunk, topk, window;
    bool proj, retrieval;
};

static const struct variant variants[] = {
    {"base", "[3]", "hidden", 384, 1000, 6, 0, 63, 0, 100, false, false},
    {"base, 768", "[2]", "hidden", 768, 2048, 12, 0, 63, 0, 100, false, false},
    {"base, 384", "[3]", "hidden", 384, 1024, 6, 0, 63, 0, 100, false, false},
    {"base, 768, more units", "[2]", "hidden", 768, 4096, 12, 0, 63, 0, 100, false, false},
    {"base, 768, most units", "[1]", "hidden", 768, 9280, 12, 0, 63, 0, 100, false, false},
    {"base, 1024", "[2]", "hidden", 1024, 2816, 16, 0, 63, 0, 100, false, false},
    {"base, wide heads", "[2]", "hidden", 256, 512, 2, 0, 63, 0, 40, false, false},
    {"Block-Recurrent Transformer", "[3], \"recurrent_layer\": 2, \"recurrent_states\": 50, \"recurrent_block\": 60",
     "hidden", 256, 640, 4, 0, 63, 0, 100, false, false},
    {"Block-Recurrent Transformer, more states than a tile",
     "[2], \"recurrent_layer\": 1, \"recurrent_states\": 140, \"recurrent_block\": 90", "hidden", 128, 256, 2, 0, 63, 0,
     100, false, false},
    {"Landmark Attention", "[3], \"landmark_block\": 30, \"landmark_topk\": 64", "hidden", 256, 640, 4, 0, 63, 0, 100,
     false, false},
    {"own past", "[1, 2]", "tokens", 256, 640, 4, 2, 63, 3, 64, true, true},
    {"own past, two groups, wide heads", "[1, 1, 1]", "tokens", 512, 512, 4, 1, 64, 8, 500, false, true},
    {"own past, 768, more neighbours than blocks", "[1, 2]", "tokens", 768, 2048, 12, 1, 63, 20, 100, false, true},
    {"own past, more heads than clusters", "[1, 1]", "tokens", 1088, 512, 17, 1, 63, 3, 64, false, true},
    {"decoder variant", "[2, 2]", "hidden", 128, 256, 2, 1, 63, 2, 30, false, true},
    {"no retrieval", "[1, 2]", "tokens", 128, 256, 2, 1, 63, 2, 64, false, false},
};

/* The single kernel supports neither a recurrent state nor Landmark Attention: such models are decoded by ops alone. */
static bool has_step(const struct model_config *c) {
    return c->recurrent_layer == 0 && c->landmark_block == 0;
}

/* The path of a GPU without the single kernel. */
static void step_off(struct decoder_state *s, const struct model_config *c) {
    CHECK((s->step != NULL) == has_step(c)); /* else the tests above ran the ops, too */
    decode_step_free(s->step);
    s->step = NULL;
}

/* All logits [LENGTH, VOCAB], in calls of up to `longest` ids after a first one of `prompt`. by_ops: without the
 * single kernel. */
static float *towers_run(struct machine *m, const struct model_config *c, const struct variant *v, const int32_t *ids,
                         int prompt, int longest, bool by_ops) {
    struct retriever *r = NULL;
    struct decoder_state *s;
    float *logits = malloc(sizeof *logits * LENGTH * VOCAB);
    CHECK(logits);
    if (v->retrieval) {
        struct chunk_retriever_config how = {
            .device = m->dev, .model = c, .encoder = m->encoder, .own_past = true, .exclude_document = -1};
        CHECK_OK(chunk_retriever_create(&r, &how));
    }
    CHECK_OK(decoder_state_create(&s, m->decoder, r));
    if (by_ops) step_off(s, c);
    for (int done = 0, n; done < LENGTH; done += n) {
        n = done == 0 ? prompt : longest;
        if (n > LENGTH - done) n = LENGTH - done;
        struct decoder_output out = {.logits = logits + (size_t)done * VOCAB, .logits_all = true};
        CHECK_OK(decoder_forward(s, &out, ids + done, n));
    }
    decoder_state_free(s);
    if (r) r->free(r);
    return logits;
}

static double relative(const float *a, const float *b) {
    return relative_of(a, b, (int64_t)LENGTH * VOCAB);
}

/* Key states [LENGTH, hidden] of a layer, in calls of up to `longest` ids after a first one of 70; the last id's logits
 * stay on the device until the end. */
static float *keys_run(struct machine *m, const struct model_config *c, const int32_t *ids, int layer, int longest,
                       float last[VOCAB]) {
    const size_t row = (size_t)c->hidden * (size_t)dtype_bytes(m->decoder->type);
    struct mat keys = mat_dense(NULL, m->decoder->type, LENGTH, c->hidden);
    float *logits, *out = malloc(sizeof *out * LENGTH * (size_t)c->hidden);
    struct decoder_state *s;
    CHECK(out);
    CHECK_OK(device_allocate_bytes(m->dev, &keys.data, LENGTH * row));
    CHECK_OK(device_allocate(m->dev, &logits, VOCAB));
    CHECK_OK(decoder_state_create(&s, m->decoder, NULL));
    for (int done = 0, n; done < LENGTH; done += n) {
        n = done == 0 ? 70 : longest;
        if (n > LENGTH - done) n = LENGTH - done;
        const struct decoder_output o = {.logits_device = logits, .keys = mat_rows(keys, done, n), .key_layer = layer};
        CHECK_OK(decoder_forward(s, &o, ids + done, n));
    }
    device_download(m->dev, last, logits, VOCAB * sizeof *last);
    uint16_t *half = malloc(LENGTH * row);
    device_download(m->dev, half, keys.data, LENGTH * row);
    CHECK_OK(device_sync(m->dev));
    for (int64_t i = 0; i < LENGTH * (int64_t)c->hidden; i++)
        out[i] = m->decoder->type == DTYPE_BF16 ? half_from_bf16(half[i]) : ((float *)(void *)half)[i];
    free(half);
    decoder_state_free(s);
    device_release(m->dev, keys.data);
    device_release(m->dev, logits);
    return out;
}

/* The key states of each layer, id by id by the single kernel, against those of one call. */
static void check_keys(struct machine *cpu, struct machine *gpu, const struct model_config *c, const int32_t *ids) {
    const int64_t n = LENGTH * (int64_t)c->hidden;
    for (int layer = 1; layer <= model_config_layers(c); layer++) {
        float logits[3][VOCAB];
        float *truth = keys_run(cpu, c, ids, layer, LENGTH, logits[0]),
              *whole = keys_run(gpu, c, ids, layer, LENGTH, logits[1]),
              *steps = keys_run(gpu, c, ids, layer, 1, logits[2]);
        const double error = relative_of(steps, truth, n), bound = 1.5 * relative_of(whole, truth, n) + 0.01;
        const double last = relative_of(logits[2], logits[0], VOCAB);
        printf("  key states of layer %d: %.4f, logits %.4f\n", layer, error, last);
        CHECK(error < bound && last < 1.5 * relative_of(logits[1], logits[0], VOCAB) + 0.01);
        free(truth), free(whole), free(steps);
    }
}

/* Key states of passages: many in one call, and few, whose ops are recorded and replayed. */
static void check_passages(const struct machine *m, const struct model_config *c, const int32_t *ids) {
    enum { MANY = 20, FEW = 3, TIMES = 4 };
    const int64_t length = 2 * (int64_t)c->chunk, d = c->hidden, numbers = FEW * length * d;
    const int layer = model_config_layers(c);
    struct decoder_passages *p;
    struct mat keys = mat_dense(NULL, DTYPE_BF16, MANY * length, d);
    int32_t *texts = malloc((size_t)(MANY * length) * sizeof *texts);
    uint16_t *many = malloc(mat_bytes(keys)), *few = malloc(mat_bytes(keys)), *before = malloc(mat_bytes(keys));
    float *expected = malloc((size_t)numbers * sizeof *expected), *got = malloc((size_t)numbers * sizeof *got);
    for (int64_t i = 0; i < MANY * length; i++)
        texts[i] = i % length > length - 9 ? -1 : ids[(i * 7 + i / length) % LENGTH];
    CHECK_OK(decoder_passages_create(&p, m->decoder, length, PASSAGES_EXACT));
    CHECK_OK(device_allocate(m->dev, &keys.data, mat_bytes(keys)));
    decoder_passages_encode(p, keys, layer, texts, MANY);
    device_download(m->dev, many, keys.data, mat_bytes(keys));
    for (int round = 0; round < TIMES; round++) {
        const int64_t first = round == TIMES - 1 ? 5 : 2; /* the last replay has other passages */
        device_clear(m->dev, keys.data, mat_bytes(keys));
        decoder_passages_encode(p, mat_rows(keys, length, FEW * length), layer, texts + first * length, FEW);
        device_download(m->dev, few, keys.data, mat_bytes(keys));
        CHECK_OK(device_sync(m->dev));
        for (int64_t i = 0; i < numbers; i++) {
            expected[i] = half_from_bf16(many[first * length * d + i]);
            got[i] = half_from_bf16(few[length * d + i]);
        }
        CHECK(relative_of(got, expected, numbers) < 0.01);
        if (round > 0 && round < TIMES - 1) CHECK(memcmp(few, before, (size_t)(4 * length * d) * sizeof *few) == 0);
        memcpy(before, few, mat_bytes(keys));
    }
    device_release(m->dev, keys.data);
    decoder_passages_free(p);
    free(texts), free(many), free(few), free(before), free(expected), free(got);
}

/* 8-bit weights on a GPU: heads of 64, at most 1,024 columns; gate and up are one matrix. */
static bool has_i8(const struct variant *v, const struct model_config *c) {
    return has_step(c) && v->hidden == v->heads * 64 && v->hidden <= 1024 && v->ffn % 16 == 0;
}

/* Weights of 8 bits: the step has the numbers of the CPU's, so it is closer to it than one call, which has them as
 * bf16. */
static void check_i8(const struct variant *v, const struct model_config *c, const struct params *p,
                     const int32_t *ids) {
    struct machine cpu, gpu;
    const enum status status = start_i8(&gpu, c, p, "cuda");
    if (!has_i8(v, c)) {
        CHECK_EQ(status, STATUS_UNSUPPORTED);
        return;
    }
    CHECK_OK(status);
    CHECK_OK(start_i8(&cpu, c, p, "cpu"));
    float *truth = towers_run(&cpu, c, v, ids, LENGTH, LENGTH, false),
          *whole = towers_run(&gpu, c, v, ids, LENGTH, LENGTH, false), *all = towers_run(&gpu, c, v, ids, 1, 1, false),
          *again = towers_run(&gpu, c, v, ids, 1, 1, false), *ops = towers_run(&gpu, c, v, ids, 1, 1, true);
    const double whole_error = relative(whole, truth), all_error = relative(all, truth),
                 ops_error = relative(ops, truth);
    printf("  8 bits: one call %.4f, id by id %.4f, op by op %.4f\n", whole_error, all_error, ops_error);
    CHECK(memcmp(all, again, sizeof *all * LENGTH * VOCAB) == 0);
    CHECK(whole_error < 0.05 && all_error < whole_error && ops_error < 1.5 * whole_error + 0.01);
    free(truth), free(whole), free(all), free(again), free(ops);
    if (!v->retrieval) check_keys(&cpu, &gpu, c, ids);
    stop(&cpu);
    stop(&gpu);
}

static void check(const struct variant *v) {
    char text[800];
    struct model_config c;
    struct params *p;
    struct machine cpu, gpu, narrow; /* the last one: several passes, and the rings wrap */
    int32_t ids[LENGTH];
    struct rng rng = rng_make(test_seed(), 3);
    snprintf(text, sizeof text,
             "{\"vocab_size\": %d, \"hidden_size\": %d, \"intermediate_size\": %d, \"num_attention_heads\": %d, "
             "\"decoder_layers\": %s, \"encoder_layers\": %d, \"enc_chunk_size\": %d, \"chunk_topk\": %d, "
             "\"slide_window\": %d, \"rms_norm_eps\": 1e-5, \"chunk_id\": 199, \"mask_id\": 198, \"pad_id\": 197, "
             "\"encoder_input\": \"%s\", \"retrieval_proj\": %s}",
             VOCAB, v->hidden, v->ffn, v->heads, v->layers, v->encoder_layers, v->chunk, v->topk, v->window, v->input,
             v->proj ? "true" : "false");
    CHECK_OK(model_config_parse(&c, v->name, text, strlen(text)));
    CHECK_OK(params_init(&p, &c, 5));
    for (int i = 0; i < params_count(p); i++) { /* larger than at the start of training, so that a mistake shows */
        const struct param *t = params_at(p, i);
        for (int64_t j = 0; t->rows > 1 && j < t->rows * t->cols; j++)
            ((float *)t->data)[j] *= t->rows == VOCAB ? 10 : 2;
    }
    for (int i = 0; i < LENGTH; i++)
        ids[i] = (int32_t)rng_below(&rng, 190);
    ids[70] = -1;
    start(&cpu, &c, p, "cpu", DTYPE_F32, 0);
    start(&gpu, &c, p, "cuda", DTYPE_BF16, 0);
    start(&narrow, &c, p, "cuda", DTYPE_BF16, 130);
    float *truth = towers_run(&cpu, &c, v, ids, LENGTH, LENGTH, false),
          *whole = towers_run(&gpu, &c, v, ids, LENGTH, LENGTH, false);
    float *steps = towers_run(&gpu, &c, v, ids, 70, 1, false), *again = towers_run(&gpu, &c, v, ids, 70, 1, false),
          *all = towers_run(&gpu, &c, v, ids, 1, 1, false), *cut = towers_run(&narrow, &c, v, ids, 10, LENGTH, false),
          *ops = towers_run(&gpu, &c, v, ids, 1, 1, true);
    double whole_error = relative(whole, truth), step_error = relative(steps, truth), all_error = relative(all, truth);
    double cut_error = relative(cut, truth), ops_error = relative(ops, truth);
    printf("%s: one call %.4f, passes from id 10 on %.4f, id by id %.4f, from the first id %.4f, op by op %.4f\n",
           v->name, whole_error, cut_error, step_error, all_error, ops_error);
    CHECK(memcmp(steps, again, sizeof *steps * LENGTH * VOCAB) == 0);
    CHECK((memcmp(ops, all, sizeof *ops * LENGTH * VOCAB) != 0) == has_step(&c)); /* the other path ran */
    CHECK(cut_error < 1.5 * whole_error + 0.01 && ops_error < 1.5 * whole_error + 0.01);
    CHECK(whole_error < 0.05 && step_error < 1.5 * whole_error + 0.01 && all_error < 1.5 * whole_error + 0.01);
    free(truth), free(whole), free(steps), free(again), free(all), free(cut), free(ops);
    if (!v->retrieval) check_keys(&cpu, &gpu, &c, ids);
    if (c.recurrent_layer == 0 && c.landmark_block == 0) check_passages(&gpu, &c, ids);
    check_i8(v, &c, p, ids);
    stop(&cpu);
    stop(&gpu);
    stop(&narrow);
    params_free(p);
}

enum { CHUNKS = 24, SLOTS = 40, ROUNDS = 5 };

struct pools {
    struct mat keys, values;
    float *landmarks;
};

static void make_pools(struct pools *p, struct device *dev, const struct model_config *c, int64_t slots) {
    size_t bytes = (size_t)(slots * 64 * c->hidden) * 2;
    p->keys = p->values = mat_dense(NULL, DTYPE_BF16, slots * 64, c->hidden);
    CHECK_OK(device_allocate(dev, &p->keys.data, bytes));
    CHECK_OK(device_allocate(dev, &p->values.data, bytes));
    CHECK_OK(device_allocate(dev, &p->landmarks, slots * c->hidden));
}

static void free_pools(struct pools *p, struct device *dev) {
    device_release(dev, p->keys.data);
    device_release(dev, p->values.data);
    device_release(dev, p->landmarks);
}

/* Slot `slot` of a pool against slot `chunk` of another. */
static void check_slot(struct device *dev, struct mat a, int64_t slot, struct mat b, int64_t chunk) {
    size_t n = (size_t)(64 * a.cols);
    uint16_t *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
    CHECK(x && y);
    device_download(dev, x, mat_rows(a, slot * 64, 64).data, n * sizeof *x);
    device_download(dev, y, mat_rows(b, chunk * 64, 64).data, n * sizeof *y);
    CHECK(memcmp(x, y, n * sizeof *x) == 0);
    free(x), free(y);
}

/* n chunks from `first` on into separate slots, repeated until the recorded work runs; another pool in between.
 */
static void few_at_a_time(const struct machine *m, const struct model_config *c, const int32_t *ids,
                          const struct pools *all, int64_t n) {
    struct pools few[2];
    int32_t slot[16];
    for (int i = 0; i < 2; i++)
        make_pools(&few[i], m->dev, c, SLOTS);
    for (int round = 0; round < ROUNDS; round++) {
        struct pools *p = &few[round == 3];
        int64_t first = round * 2;
        for (int64_t i = 0; i < n; i++)
            slot[i] = (int32_t)((round * 7 + i * 3) % SLOTS);
        struct encoder_output out = {.keys = p->keys, .values = p->values, .slot = slot};
        encoder_encode(m->encoder, &out, ids + first * c->chunk, n);
        for (int64_t i = 0; i < n; i++) {
            check_slot(m->dev, p->keys, slot[i], all->keys, first + i);
            check_slot(m->dev, p->values, slot[i], all->values, first + i);
        }
    }
    for (int i = 0; i < 2; i++)
        free_pools(&few[i], m->dev);
}

/* A chunk is begun and a few of its parts are issued, then other chunks are encoded: the results must be
 * independent. */
static void part_by_part(const struct machine *m, const struct model_config *c, const int32_t *ids,
                         const struct pools *all) {
    struct pools p;
    make_pools(&p, m->dev, c, SLOTS);
    for (int parts = 0; parts < 12; parts++) {
        int32_t slot = parts, others[2] = {20, 21}, mine[64];
        struct encoder_output out = {.landmarks = p.landmarks, .keys = p.keys, .values = p.values, .slot = &slot};
        struct encoder_output beside = {.keys = p.keys, .values = p.values, .slot = others};
        memcpy(mine, ids + parts * c->chunk, (size_t)c->chunk * sizeof *mine);
        encoder_begin(m->encoder, &out, mine, (struct mat){0});
        memset(mine, 0, sizeof mine);
        slot = 30;
        for (int i = 0; i < parts; i++)
            encoder_advance(m->encoder);
        encoder_encode(m->encoder, &beside, ids + 12 * c->chunk, 2);
        encoder_finish(m->encoder);
        CHECK(!encoder_advance(m->encoder));
        check_slot(m->dev, p.keys, parts, all->keys, parts);
        check_slot(m->dev, p.values, parts, all->values, parts);
        check_slot(m->dev, p.keys, 20, all->keys, 12);
        check_slot(m->dev, p.values, 21, all->values, 13);
        float row[2][1024];
        device_download(m->dev, row[0], p.landmarks, (size_t)c->hidden * sizeof(float));
        device_download(m->dev, row[1], all->landmarks + parts * c->hidden, (size_t)c->hidden * sizeof(float));
        CHECK(memcmp(row[0], row[1], (size_t)c->hidden * sizeof(float)) == 0);
    }
    free_pools(&p, m->dev);
}

/* shape: sizes, layers of the encoder and special ids. */
static struct params *encoder_model(struct model_config *c, const char *shape, int chunk, bool proj) {
    char text[600];
    struct params *params;
    snprintf(text, sizeof text,
             "{%s, \"intermediate_size\": 640, \"decoder_layers\": [1, 1], \"enc_chunk_size\": %d, \"chunk_topk\": 3, "
             "\"slide_window\": 64, \"rms_norm_eps\": 1e-5, \"encoder_input\": \"tokens\", \"retrieval_proj\": %s}",
             shape, chunk, proj ? "true" : "false");
    CHECK_OK(model_config_parse(c, "encoder", text, strlen(text)));
    CHECK_OK(params_init(&params, c, 6));
    return params;
}

static void check_encoder(int chunk, bool proj) {
    struct model_config c;
    struct machine m;
    struct pools all;
    struct rng rng = rng_make(test_seed(), 9);
    int32_t ids[CHUNKS * 64];
    struct params *params = encoder_model(&c,
                                          "\"vocab_size\": 200, \"hidden_size\": 256, \"num_attention_heads\": 4, "
                                          "\"encoder_layers\": 2, \"chunk_id\": 199, \"mask_id\": 198, \"pad_id\": 197",
                                          chunk, proj);
    for (int i = 0; i < CHUNKS * 64; i++)
        ids[i] = (int32_t)rng_below(&rng, 190);
    ids[5] = -1;
    start(&m, &c, params, "cuda", DTYPE_BF16, 0);
    make_pools(&all, m.dev, &c, CHUNKS);
    struct encoder_output out = {.landmarks = all.landmarks, .keys = all.keys, .values = all.values};
    encoder_encode(m.encoder, &out, ids, CHUNKS);
    for (int64_t n = 1; n <= 16; n += 5)
        few_at_a_time(&m, &c, ids, &all, n);
    part_by_part(&m, &c, ids, &all);
    free_pools(&all, m.dev);
    stop(&m);
    params_free(params);
}

/* Landmarks of an encoder of one layer have the same bits with its table of ids and without. */
static void check_known(int chunk, bool proj, enum dtype type) {
    struct model_config c;
    struct machine m;
    struct rng rng = rng_make(test_seed(), 10);
    int32_t ids[CHUNKS * 64];
    float *landmarks;
    struct params *params =
        encoder_model(&c,
                      "\"vocab_size\": 1500, \"hidden_size\": 384, \"num_attention_heads\": 6, "
                      "\"encoder_layers\": 1, \"chunk_id\": 1499, \"mask_id\": 1498, \"pad_id\": 1497",
                      chunk, proj);
    for (int i = 0; i < CHUNKS * 64; i++)
        ids[i] = i % 64 > 40 && i / 64 % 5 == 1 ? -1 : (int32_t)rng_below(&rng, 1490);
    start(&m, &c, params, "cuda", type, 0);
    CHECK_OK(device_allocate(m.dev, &landmarks, CHUNKS * c.hidden));
    struct encoder_known *known = &m.encoder->known;
    const struct encoder_output out = {.landmarks = landmarks};
    for (int64_t n = 1; n <= CHUNKS; n += n) {
        float *rows[2];
        for (int table = 0; table < 2; table++) {
            known->made = false;
            known->chunks = table ? c.vocab_size : INT64_MIN / 2;
            encoder_encode(m.encoder, &out, ids, n);
            CHECK_EQ(known->made, table);
            rows[table] = malloc((size_t)(n * c.hidden) * sizeof(float));
            device_download(m.dev, rows[table], landmarks, (size_t)(n * c.hidden) * sizeof(float));
        }
        const double error = relative_of(rows[1], rows[0], n * c.hidden);
        printf("  %d landmarks by a table of ids, %s: %.1e\n", (int)n, type == DTYPE_F32 ? "f32" : "bf16", error);
        CHECK(memcmp(rows[0], rows[1], (size_t)(n * c.hidden) * sizeof(float)) == 0);
        free(rows[0]), free(rows[1]);
    }
    device_release(m.dev, landmarks);
    stop(&m);
    params_free(params);
}

/* If one weight of a layer's output is NaN, all logits are NaN. The same for a sum that does not fit a column. */
static void check_lost(const char *name, float weight, bool i8) {
    const char *text =
        "{\"vocab_size\": 200, \"hidden_size\": 128, \"intermediate_size\": 256, "
        "\"num_attention_heads\": 2, \"decoder_layers\": [2], \"slide_window\": 64, \"rms_norm_eps\": 1e-5}";
    struct model_config c;
    struct params *p;
    struct machine m;
    struct decoder_state *s;
    float logits[VOCAB];
    CHECK_OK(model_config_parse(&c, "lost", text, strlen(text)));
    CHECK_OK(params_init(&p, &c, 7));
    for (int i = 0; i < params_count(p); i++) {
        const struct param *t = params_at(p, i);
        if (strstr(t->name, name)) ((float *)t->data)[77 * t->cols + 5] = weight;
    }
    if (i8)
        CHECK_OK(start_i8(&m, &c, p, "cuda"));
    else
        start(&m, &c, p, "cuda", DTYPE_BF16, 0);
    CHECK_OK(decoder_state_create(&s, m.decoder, NULL));
    CHECK(s->step); /* else the ops would be tested */
    for (int32_t id = 3; id < 6; id++) {
        struct decoder_output out = {.logits = logits};
        CHECK_OK(decoder_forward(s, &out, &id, 1));
        for (int i = 0; i < VOCAB; i++)
            CHECK(weight == weight && fabsf(weight) < 1 ? isfinite(logits[i]) : isnan(logits[i]));
    }
    decoder_state_free(s);
    stop(&m);
    params_free(p);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 4);
    need_gpu();
    for (size_t i = 0; i < ARRAY_LEN(variants); i++)
        check(&variants[i]);
    const char *added[] = {"o_proj", "down_proj"};
    const float lost[] = {NAN, INFINITY, -1e30f, 0.5f};
    for (size_t i = 0; i < ARRAY_LEN(added) * ARRAY_LEN(lost); i++) {
        check_lost(added[i % 2], lost[i / 2], false);
        check_lost(added[i % 2], lost[i / 2], true);
    }
    check_encoder(63, false);
    check_encoder(64, true);
    for (int type = DTYPE_F32; type <= DTYPE_BF16; type++) {
        check_known(63, false, (enum dtype)type);
        check_known(64, true, (enum dtype)type);
    }
    return test_done();
}
