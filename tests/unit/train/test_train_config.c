/* test_train_config.c -- a run's config: defaults, refusals by name, a written config reads back; and the schedule. */
#include "tests/test.h"
#include "train/run/config.h"

#define MODEL "\"model\": {" MODEL_KEYS "}"
#define MODEL_KEYS                                                                                                     \
    "\"vocab_size\": 20, \"hidden_size\": 8, \"intermediate_size\": 12, \"num_attention_heads\": 2,"                   \
    "\"slide_window\": 4, \"rms_norm_eps\": 1e-5, \"chunk_id\": 19, \"pad_id\": 18, \"eos_id\": 3,"                    \
    "\"enc_chunk_size\": 63, \"chunk_topk\": 2, \"encoder_input\": \"tokens\", \"decoder_layers\": [1, 1],"            \
    "\"encoder_layers\": 1"
#define BASE_MODEL "\"model\": {" BASE_KEYS "}"
#define BASE_KEYS                                                                                                      \
    "\"vocab_size\": 20, \"hidden_size\": 8, \"intermediate_size\": 12, \"num_attention_heads\": 2,"                   \
    "\"slide_window\": 4, \"rms_norm_eps\": 1e-5, \"decoder_layers\": [2]"
#define REST ", \"tokenizer\": \"t.json\", \"data\": [\"a.u16\"]"

static enum status parse(struct train_config *c, const char *text) {
    CHECK_OK(config_defaults(c));
    enum status s = config_read(c, "run.json", text, strlen(text));
    if (s == STATUS_OK) s = config_check(c);
    if (s != STATUS_OK) config_free(c);
    return s;
}

#define REFUSED(text, code, message)                                                                                   \
    do {                                                                                                               \
        struct train_config c_;                                                                                        \
        CHECK_FAILS(parse(&c_, text), code, message);                                                                  \
    } while (0)

static void reads(void) {
    struct train_config c;
    CHECK_OK(parse(&c,
                   "{" MODEL REST ", \"lr\": 3e-4, \"pool\": \"batch\", \"mlm\": {\"until\": 0.25}, \"length\": 630,"
                   "\"sampling\": \"random\", \"gumbel\": false, \"prompts\": [\"a\\\"b\", \"\"]}"));
    CHECK(c.schedule.lr == 3e-4 && c.schedule.mlm_until == 0.25 && c.beta2 == 0.95);
    CHECK_EQ(c.pool, POOL_BATCH);
    CHECK_EQ(c.schedule.pool, POOL_BATCH);
    CHECK_EQ(c.sampling, SAMPLING_RANDOM);
    CHECK_EQ(c.gumbel, false);
    CHECK_EQ(c.end_id, 3);
    CHECK_EQ(config_chunks(&c), 10);
    CHECK_EQ(c.prompts.count, 2);
    CHECK_STR(c.prompts.items[0], "a\"b");
    CHECK_OK(config_set(&c, "lr=0.5"));
    CHECK_OK(config_set(&c, "contrastive.weight=0.03"));
    CHECK_OK(config_set(&c, "pool=own"));
    CHECK_OK(config_set(&c, "valid=[\"v.u16\", \"w.u32\"]"));
    CHECK(c.schedule.lr == 0.5 && c.schedule.contrastive_weight == 0.03 && c.valid.count == 2);
    CHECK_FAILS(config_set(&c, "lrr=1"), STATUS_INVALID, "no key \"lrr\": did you mean \"lr\"?");
    CHECK_FAILS(config_set(&c, "lr"), STATUS_INVALID, "KEY=VALUE");
    CHECK_FAILS(config_set(&c, "lr=1x"), STATUS_INVALID, "lr");
    CHECK_FAILS(config_set(&c, "lr=11"), STATUS_INVALID, "must be from 0 to 10");
    CHECK_FAILS(config_set(&c, "steps=1.5"), STATUS_INVALID, "steps");
    CHECK_FAILS(config_set(&c, "pool=all"), STATUS_INVALID, "none, own, batch or corpus");
    config_free(&c);
}

/* A model folder's other keys are kept when a run writes its config, and when it reads that again. */
static void keys_of_others(void) {
    char text[1024], path[600];
    snprintf(path, sizeof path, "%s/config.json", test_folder());
    FILE *file = fopen(path, "w");
    CHECK(file && fputs("{\"architectures\": [\"DRT\"], " MODEL_KEYS "}", file) >= 0 && fclose(file) == 0);
    struct train_config c;
    snprintf(text, sizeof text, "{\"model\": \"%s\"" REST "}", test_folder());
    CHECK_OK(parse(&c, text));
    CHECK(strstr(c.model_json, "\"architectures\""));
    char *written;
    size_t bytes;
    FILE *memory = open_memstream(&written, &bytes);
    config_write(&c, memory);
    fclose(memory);
    config_free(&c);
    CHECK_OK(parse(&c, written));
    config_free(&c);
    free(written);
}

/* Written, read, written: the same text. */
static void round_trip(void) {
    struct train_config c, again;
    char *first, *second;
    size_t bytes;
    CHECK_OK(parse(&c, "{" MODEL REST ", \"seed\": 123456789012, \"eps\": 1e-9, \"contrastive\": {\"ramp\": 7}}"));
    FILE *f = open_memstream(&first, &bytes);
    config_write(&c, f);
    fclose(f);
    CHECK_OK(parse(&again, first));
    f = open_memstream(&second, &bytes);
    config_write(&again, f);
    fclose(f);
    CHECK_STR(first, second);
    CHECK(again.eps == 1e-9 && again.seed == 123456789012 && again.schedule.contrastive_ramp == 7);
    CHECK(strstr(first, "\"decoder_layers\"") && strstr(first, "\"beta1\": 0.9"));
    free(first), free(second);
    config_free(&c), config_free(&again);
}

static void refusals(void) {
    REFUSED("{" MODEL REST ", \"learning_rate\": 1}", STATUS_INVALID,
            "run.json: there is no key \"learning_rate\": did you mean \"lr\"?");
    REFUSED("{" MODEL REST ", \"pasages\": 1}", STATUS_INVALID, "did you mean \"memory.passages\"?");
    REFUSED("{" MODEL REST ", \"mml\": {\"rate\": 1}}", STATUS_INVALID, "did you mean \"mlm\"?");
    REFUSED("{" MODEL REST ", \"nothing_like_it\": 1}", STATUS_INVALID, "\"nothing_like_it\"; drt-train --help");
    REFUSED("{" MODEL REST ", \"mlm\": {\"rat\": 1}}", STATUS_INVALID,
            "no key \"mlm.rat\": did you mean \"mlm.rate\"?");
    REFUSED("{" MODEL REST ", \"memory\": {\"pasages\": 1}}", STATUS_INVALID, "did you mean \"memory.passages\"?");
    REFUSED("{" MODEL REST ", \"warmup_steps\": 1}", STATUS_INVALID, "did you mean \"warmup\"?");
    REFUSED("{" MODEL REST ", \"mlm\": 1}", STATUS_INVALID, "run.json");
    REFUSED("{" MODEL REST ", \"mlm.rate\": 1}", STATUS_INVALID, "no key \"mlm.rate\": write \"mlm\": {\"rate\": ...}");
    REFUSED("{" MODEL REST ", \"lr\": 1, \"lr\": 1}", STATUS_INVALID, "lr is given twice");
    REFUSED("{" MODEL REST ", \"lr\": \"1\"}", STATUS_INVALID, "lr");
    REFUSED("{" MODEL REST ", \"lr\": 1} x", STATUS_INVALID, "nothing after");
    REFUSED("{" MODEL REST ", \"beta1\": 1}", STATUS_INVALID, "beta1 is 1: must be from 0 to");
    REFUSED("{" MODEL REST ", \"sequences\": 0}", STATUS_INVALID, "sequences is 0");
    REFUSED("{" MODEL REST ", \"length\": 100}", STATUS_INVALID, "as 126 is");
    REFUSED("{" MODEL REST ", \"steps\": 10, \"warmup\": 11}", STATUS_INVALID, "warmup is 11");
    REFUSED("{" MODEL REST ", \"lr\": 1e-5}", STATUS_INVALID, "min_lr is 0.0001: must be at most lr");
    REFUSED("{" MODEL REST ", \"mlm\": {\"rate\": 0.15}}", STATUS_INVALID, "no mask_id");
    REFUSED("{" MODEL REST ", \"type\": \"f16\"}", STATUS_INVALID, "must be auto, f32 or bf16");
    REFUSED("{" MODEL REST ", \"pool\": \"corpus\", \"candidates\": 1}", STATUS_INVALID, "chunk_topk, 2");
    REFUSED("{" MODEL REST ", \"pool\": \"corpus\", \"candidates\": 4096}", STATUS_INVALID, "from 1 to 2048");
    REFUSED("{" MODEL REST ", \"end_id\": 99999}", STATUS_INVALID, "end_id is 99999: the model has ids up to");
    REFUSED("{" MODEL REST ", \"pool\": \"none\", \"pool_start\": 5}", STATUS_INVALID, "or before it in the order");
    REFUSED("{" MODEL ", \"data\": [\"a.u16\"]}", STATUS_INVALID, "tokenizer is missing");
    REFUSED("{" MODEL ", \"tokenizer\": \"t\"}", STATUS_INVALID, "data is missing");
    REFUSED("{\"data\": [\"a.u16\"]}", STATUS_INVALID, "model is missing");
    REFUSED("{\"model\": {\"vocab_size\": 20}" REST "}", STATUS_INVALID, "hidden_size is missing");
    REFUSED("{\"model\": {\"retreival_proj\": true, \"eos\": 1, " MODEL_KEYS "}" REST "}", STATUS_INVALID,
            "model: no such key: retreival_proj, eos (");
    REFUSED("{\"model\": \"/nowhere/at/all\"" REST "}", STATUS_NOT_FOUND, "/nowhere/at/all/config.json");
    REFUSED("{" BASE_MODEL REST ", \"pool\": \"batch\"}", STATUS_INVALID, "pool must be none");
    REFUSED("{" BASE_MODEL REST ", \"contrastive\": {\"weight\": 1}}", STATUS_INVALID, "Base LM");
    REFUSED("{\"model\": {\"landmark_sketch\": 8, " BASE_KEYS "}" REST "}", STATUS_INVALID,
            "landmark_sketch: is fitted after training, by drt-model sketch");
    REFUSED("[]", STATUS_INVALID, "an object of configuration keys");
    struct train_config c;
    CHECK_OK(parse(&c, "{" BASE_MODEL REST "}")); /* the default pool, own, is none here */
    CHECK_EQ(c.schedule.pool, POOL_NONE);
    CHECK_EQ(c.eval_pool, POOL_NONE);
    CHECK_EQ(config_chunks(&c), 1008);
    config_free(&c);
}

static void schedule(void) {
    struct schedule s = {.steps = 110,
                         .warmup = 10,
                         .lr = 1.0,
                         .min_lr = 0.1,
                         .mlm_rate = 0.15,
                         .mlm_weight = 2.0,
                         .mlm_until = 0.5,
                         .contrastive_weight = 0.4,
                         .contrastive_start = 20,
                         .contrastive_ramp = 10,
                         .contrastive_reach = 3,
                         .gumbel_until = 0.5,
                         .corpus_alone = 0.25,
                         .copies_rate = 0.4,
                         .copies_until = 0.5,
                         .pool = POOL_CORPUS,
                         .pool_before = POOL_BATCH,
                         .pool_start = 30,
                         .seed = 5};
    struct step_now now, next;
    static const struct {
        int64_t step;
        double lr, mlm, contrastive;
        enum pool_kind pool;
    } rows[] = {
        {1, 0.1, 0.15, 0.0, POOL_BATCH},      {10, 1.0, 0.15, 0.0, POOL_BATCH},     {25, 0.9510, 0.15, 0.2, POOL_BATCH},
        {30, 0.9141, 0.15, 0.4, POOL_CORPUS}, {55, 0.6204, 0.15, 0.4, POOL_CORPUS}, {56, 0.6063, 0.0, 0.4, POOL_CORPUS},
        {60, 0.55, 0.0, 0.4, POOL_CORPUS},    {110, 0.1, 0.0, 0.4, POOL_CORPUS},    {200, 0.1, 0.0, 0.4, POOL_CORPUS}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        schedule_at(&now, &s, rows[i].step);
        CHECK(fabs((double)now.optimizer.lr - rows[i].lr) < 1e-4);
        CHECK(fabs((double)now.mlm_rate - rows[i].mlm) < 1e-6);
        CHECK(fabs((double)now.contrastive_weight - rows[i].contrastive) < 1e-6);
        CHECK_EQ(now.pool, rows[i].pool);
        CHECK_EQ(now.no_noise, rows[i].step > 55);
        CHECK(now.corpus_alone == 0.25f && now.contrastive_reach == 3);
        CHECK(fabs((double)now.copy_rate - fmax(0.0, 0.4 * (1.0 - (double)rows[i].step / 55.0))) < 1e-6);
        CHECK_EQ(now.optimizer.step, rows[i].step);
        schedule_at(&next, &s, rows[i].step + 1);
        CHECK(next.seed != now.seed);
    }
    s.warmup = 0;
    schedule_at(&now, &s, 1);
    CHECK(now.optimizer.lr > 0.999f && now.optimizer.lr <= 1.0f);
    s.warmup = s.steps;
    schedule_at(&now, &s, s.steps);
    CHECK(now.optimizer.lr == 1.0f);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    reads();
    round_trip();
    keys_of_others();
    refusals();
    schedule();
    return test_done();
}
