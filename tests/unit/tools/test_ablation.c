/* test_ablation.c -- configs, plans and results of drt-eval ablation: the shipped configs, parts that rows share,
 * budgets in tokens, and damaged input, which is refused or read without a crash. */
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "tests/test.h"
#include "tools/ablation/ablation_plan.h"
#include "tools/ablation/ablation_run.h"
#include "tools/ablation/ablation_scored.h"
#include "train/run/config.h"

static const char *const shipped[] = {"minipile", "small", "small-cpu", "first"};

static void test_object(void) {
    static const char text[] = " {\"a\" : 1 , \"b\":{\"c\": [1, \"}\"]},\"d\": \"x\\\"y\" } ";
    struct object o, copy;
    char *all = NULL;
    CHECK_OK(object_read(&o, "text", text, strlen(text)));
    CHECK_EQ(o.count, 3);
    CHECK_STR(object_get(&o, "a"), "1");
    CHECK_STR(object_get(&o, "b"), "{\"c\": [1, \"}\"]}");
    CHECK(!object_get(&o, "c"));
    CHECK_OK(object_set_int(&o, "a", -7));
    CHECK_OK(object_set_string(&o, "e", "q\"\n"));
    object_remove(&o, "d");
    object_remove(&o, "none");
    CHECK_OK(object_copy(&copy, &o));
    CHECK_OK(object_text(&all, &copy));
    CHECK_STR(all, "{\"a\": -7, \"b\": {\"c\": [1, \"}\"]}, \"e\": \"q\\\"\\n\"}");
    memory_free(all);
    object_free(&o);
    object_free(&copy);
    CHECK_EQ(object_read(&o, "text", "{\"a\": 1, \"a\": 2}", 16), STATUS_INVALID);
    CHECK(strstr(status_message(), "\"a\" is given twice"));
    object_free(&o);
    CHECK(object_read(&o, "text", "[1]", 3) != STATUS_OK);
    object_free(&o);
    CHECK(object_read(&o, "text", "{} 1", 4) != STATUS_OK);
    object_free(&o);
}

static void shipped_map(struct file_map *map, const char *name) {
    char path[FILE_PATH_MAX];
    const char *source = getenv("DRT_SOURCE");
    if (!source) test_skip("DRT_SOURCE is not set");
    snprintf(path, sizeof path, "%s/docs/examples/ablation/%s.json", source, name);
    CHECK_OK(file_map(map, path));
}

/* A plan reads the sizes of texts: each text is replaced by one of so many bytes. */
static void name_texts_of(struct ablation_config *c, int64_t bytes) {
    struct object_list *lists[] = {&c->train, &c->valid, &c->other};
    FILE *f = fopen("text.jsonl", "w");
    CHECK(f && ftruncate(fileno(f), bytes) == 0);
    fclose(f);
    for (size_t l = 0; l < ARRAY_LEN(lists); l++)
        for (size_t i = 0; i < lists[l]->count; i++) {
            memory_free(lists[l]->items[i]);
            CHECK_OK(memory_copy_string(&lists[l]->items[i], "text.jsonl"));
        }
}

static void name_texts(struct ablation_config *c) {
    name_texts_of(c, 8000000);
}

static int count_parts(const struct ablation_plan *p, enum ablation_kind kind) {
    int n = 0;
    for (size_t i = 0; i < p->n_parts; i++)
        n += p->parts[i].kind == kind;
    return n;
}

static const struct ablation_model *model_named(const struct ablation_plan *p, const char *name) {
    for (int i = 0; i < p->n_models; i++)
        if (strcmp(p->models[i].name, name) == 0) return &p->models[i];
    test_fail(__FILE__, __LINE__, name);
}

/* Each part follows those that it needs; names are unique; every row has an evaluation. */
static void check_plan(const struct ablation_plan *p) {
    for (size_t i = 0; i < p->n_parts; i++) {
        CHECK(p->parts[i].spec[0]);
        for (int a = 0; a < p->parts[i].n_after; a++)
            CHECK(p->parts[i].after[a] >= 0 && p->parts[i].after[a] < (int)i);
        for (size_t j = 0; j < i; j++)
            CHECK(strcmp(p->parts[i].name, p->parts[j].name) != 0);
    }
    for (int row = 0; row < ABLATION_ROWS; row++) {
        bool made = !p->config->selected[row];
        for (size_t i = 0; i < p->n_parts; i++)
            made = made || (p->parts[i].kind >= ABLATION_SCORE && p->parts[i].of == p->rows[row].score);
        CHECK(made);
    }
}

static void check_variants(const struct ablation_plan *p, const struct ablation_model *drt) {
    const struct ablation_model *deep = model_named(p, "base-deep");
    CHECK(deep->parameters >= drt->parameters && (double)deep->parameters < 1.1 * (double)drt->parameters);
    CHECK(model_named(p, "k-16")->view_of == 0 && model_named(p, "k-16")->config.topk == 16);
}

/* small-cpu: four layers, a window of 256, sequences of 504. */
static void check_recurrent(const struct model_config *c) {
    CHECK(c->base_lm && c->lower_layers == 4);
    CHECK_EQ(c->recurrent_layer, 4);
    CHECK_EQ(c->recurrent_block, 252);
    CHECK_EQ(c->recurrent_states, 252);
}

/* Blocks are DRT's chunks; a step has DRT's number of tokens, in shorter sequences if DRT's are long. */
static void check_landmark(const struct ablation_model *m, const struct ablation_model *drt, int i) {
    static const int64_t lengths[] = {945, 1008, 504};
    CHECK(m->config.base_lm && m->config.landmark_block == 63 && m->config.landmark_topk == drt->config.topk);
    CHECK_EQ(m->length, lengths[i]);
    CHECK_EQ(m->step_tokens, drt->step_tokens);
    CHECK(m->parameters == 0 || m->parameters < drt->parameters);
}

static void test_shipped(struct ablation_plan *p) {
    for (size_t i = 0; i < ARRAY_LEN(shipped); i++) {
        struct ablation_config c;
        struct file_map map;
        shipped_map(&map, shipped[i]);
        CHECK_OK(ablation_config_parse(&c, shipped[i], (const char *)map.data, map.size));
        file_unmap(&map);
        name_texts(&c);
        CHECK_OK(ablation_plan_make(p, &c));
        check_plan(p);
        const struct ablation_model *drt = model_named(p, "drt");
        static const int trainings[] = {11, 12, 9, 3}; /* minipile trains DRT on its own past */
        CHECK_EQ(count_parts(p, ABLATION_TRAIN), trainings[i]);
        CHECK_EQ(model_named(p, "base")->config.lower_layers, model_config_layers(&drt->config));
        CHECK_EQ(model_named(p, "base-full")->config.window, c.context);
        if (i < 3) check_variants(p, drt);
        if (i < 3) check_landmark(model_named(p, "landmark-attention"), drt, (int)i);
        if (i == 2) check_recurrent(&model_named(p, "block-recurrent")->config);
        static const int64_t steps[] = {76313, 250, 250, 250}; /* 3e10 / 393120, rounded up */
        CHECK_EQ(drt->steps, steps[i]);
        if (i == 0) CHECK_EQ(drt->step_tokens, 393120);
        if (i == 1 || i == 3) CHECK_EQ(drt->step_tokens, 96768);
        ablation_plan_free(p);
        ablation_config_free(&c);
    }
}

static double part_seconds(const struct ablation_plan *p, const char *name, double rate) {
    for (size_t i = 0; i < p->n_parts; i++)
        if (strcmp(p->parts[i].name, name) == 0) return ablation_part_seconds(p, &p->parts[i], rate);
    test_fail(__FILE__, __LINE__, name);
}

static void make_plan(struct ablation_plan *p, struct ablation_config *c, const char *name, int64_t bytes) {
    struct file_map map;
    shipped_map(&map, name);
    CHECK_OK(ablation_config_parse(c, name, (const char *)map.data, map.size));
    file_unmap(&map);
    c->threads = 16; /* of the machine of these measurements */
    name_texts_of(c, bytes);
    CHECK_OK(ablation_plan_make(p, c));
}

/* Estimates, with the rate of an H200 and texts of the real sizes, against measured times: of trainings of this size,
 * of a store of 987,509 chunks, and of a memory's evaluation and fit with a larger K. */
static void test_estimate(struct ablation_plan *p) {
    const double rate = 6.5e14, base = 250 * 0.055, full = 250 * 0.073, store = 17, memory = 110;
    const int64_t bytes = 49000000;
    struct ablation_config c;
    double by_kind[ABLATION_KINDS];
    make_plan(p, &c, "small", bytes);
    const double seconds = part_seconds(p, "train-base", rate), drt = part_seconds(p, "train-drt", rate);
    CHECK(seconds > base && seconds < 1.5 * base + 3);
    const double more = part_seconds(p, "train-base-full", rate) - seconds;
    CHECK(more > 0.5 * (full - base) && more < 3 * (full - base));
    CHECK(drt > 1.5 * seconds && drt < 4 * seconds);
    CHECK(part_seconds(p, "store-drt", rate) > 0.7 * store && part_seconds(p, "store-drt", rate) < 1.6 * store);
    CHECK(part_seconds(p, "memory-base-every-16", rate) > 0.4 * memory);
    CHECK(part_seconds(p, "memory-base-every-16", rate) < memory);
    const double recurrent = part_seconds(p, "train-block-recurrent", rate), /* each costs more than a Base LM */
        landmark = part_seconds(p, "train-landmark-attention", rate);
    CHECK(recurrent > 1.5 * seconds && landmark > recurrent && landmark < 20 * seconds);
    CHECK(ablation_seconds_left(p, rate, by_kind) < 25 * 60); /* docs/ablation.md */
    CHECK(by_kind[ABLATION_TRAIN] > 0 && by_kind[ABLATION_BUILD] > 0 && by_kind[ABLATION_MEMORY] > 0);
    for (size_t i = 0; i < p->n_parts; i++) /* finished parts correct the estimates of their kind */
        if (strcmp(p->parts[i].name, "train-base") == 0) p->parts[i].done = true, p->parts[i].seconds = 3 * seconds;
    CHECK(fabs(part_seconds(p, "train-drt", rate) - 3 * drt) < 1e-9 * drt);
    ablation_plan_free(p);
    ablation_config_free(&c);
    make_plan(p, &c, "first", bytes);
    CHECK(ablation_seconds_left(p, rate, by_kind) < 8 * 60);
    ablation_plan_free(p);
    ablation_config_free(&c);
}

/* A row removes its part of the training, and nothing else. */
static void test_trainings(struct ablation_plan *p) {
    struct ablation_config c;
    struct file_map map;
    struct train_config drt, other;
    shipped_map(&map, "small");
    CHECK_OK(ablation_config_parse(&c, "small", (const char *)map.data, map.size));
    file_unmap(&map);
    name_texts(&c);
    CHECK_OK(ablation_plan_make(p, &c));
    static const char *const names[] = {"drt",      "no-gumbel", "no-mlm", "no-contrastive",
                                        "groups-2", "base",      "own",    "own-taught"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const struct ablation_model *m = model_named(p, names[i]);
        struct train_config *t = i == 0 ? &drt : &other;
        CHECK_OK(config_defaults(t));
        CHECK_OK(config_read(t, names[i], m->training, strlen(m->training)));
        CHECK_OK(config_check(t));
        CHECK_EQ(t->gumbel, strcmp(names[i], "no-gumbel") != 0);
        CHECK_EQ(t->schedule.mlm_rate > 0, i != 2 && i != 5);
        CHECK_EQ(t->schedule.contrastive_weight > 0, i != 3 && i != 5 && i != 7);
        CHECK_EQ(t->schedule.teach_weight > 0, i == 7);
        CHECK_EQ(t->pool, i == 5 ? POOL_NONE : i > 5 ? POOL_OWN_PAST : POOL_CORPUS);
        CHECK_EQ(t->model.groups, i == 4 ? 2 : i == 5 ? 0 : 1);
        CHECK_EQ(t->model.base_lm, i == 5);
        CHECK_EQ(model_config_layers(&t->model), model_config_layers(&drt.model));
        CHECK(t->schedule.steps == drt.schedule.steps && t->sequences == drt.sequences && t->seed == drt.seed);
        CHECK(t->schedule.lr == drt.schedule.lr && t->length == drt.length);
        if (i > 0) config_free(t);
    }
    config_free(&drt);
    ablation_plan_free(p);
    ablation_config_free(&c);
}

/* ---- results --------------------------------------------------------------------------------------------- */

static const char result[] =
    "{\"model\":\"m\",\"partial\":false,\"scored\":[{\"in_file\":0,\"number\":0,\"scored_tokens\":4,\"scored_bytes\":9,"
    "\"nll\":{\"none\":8.5,\"both\":7.25}},{\"in_file\":1,\"number\":2,\"scored_tokens\":3,\"scored_bytes\":5,\"nll\":"
    "{\"none\":3,\"both\":4}}],\"files\":[{\"tokens\":4}],\"overlap\":{\"longest_run\":20,\"documents\":[{\"file\":0,"
    "\"covered_tokens\":0.5,\"shared_13_grams\":0.25,\"longest_run\":20},{\"longest_run\":3}]}}\n";
static const char *const modes[] = {"both", "none"};

static void test_scored(void) {
    struct ablation_scored s;
    CHECK_OK(ablation_scored_parse(&s, "result", result, strlen(result), modes, 2));
    CHECK_EQ(s.n, 2);
    CHECK(s.nll[0][0] == 7.25 && s.nll[0][1] == 4 && s.nll[1][0] == 8.5 && s.nll[1][1] == 3);
    CHECK(s.documents[1].file == 1 && s.documents[1].number == 2 && s.documents[1].tokens == 3);
    CHECK(s.overlap && s.overlap[0].covered == 0.5 && s.overlap[0].longest == 20 && s.overlap[1].longest == 3);
    CHECK_EQ(ablation_class(&s.overlap[0]), 2);
    CHECK_EQ(ablation_class(&s.overlap[1]), 0);
    ablation_scored_free(&s);
    static const char *const missing[] = {"corpus"};
    CHECK_EQ(ablation_scored_parse(&s, "result", result, strlen(result), missing, 1), STATUS_CORRUPT);
    CHECK(strstr(status_message(), "nothing of mode corpus"));
    ablation_scored_free(&s);
    CHECK_EQ(ablation_scored_parse(&s, "result", "{\"partial\":true}", 16, modes, 2), STATUS_CORRUPT);
    ablation_scored_free(&s);
    CHECK_EQ(ablation_scored_parse(&s, "result", "{}", 2, modes, 2), STATUS_CORRUPT);
    ablation_scored_free(&s);
}

/* Damaged text: a replaced byte, a removed piece, a truncated end. */
static size_t damage(char *out, const char *text, size_t n, struct rng *rng) {
    static const char likely[] = "{}[]\":,0-9eE.\\untf \n";
    memcpy(out, text, n);
    for (int times = 1 + (int)rng_below(rng, 3); times > 0 && n > 2; times--) {
        size_t at = (size_t)rng_below(rng, n), length = 1 + (size_t)rng_below(rng, n - at < 40 ? n - at : 40);
        switch (rng_below(rng, 4)) {
        case 0:
            out[at] = likely[rng_below(rng, sizeof likely - 1)];
            break;
        case 1:
            out[at] = (char)rng_below(rng, 256);
            break;
        case 2:
            memmove(out + at, out + at + length, n - at - length), n -= length;
            break;
        default:
            n = rng_below(rng, 8) == 0 ? at : n;
        }
    }
    return n;
}

static void test_damaged(struct ablation_plan *p) {
    struct rng rng = rng_make(test_seed(), 0);
    struct file_map map;
    int read = 0, planned = 0, results = 0;
    shipped_map(&map, "small");
    char *text = malloc(map.size + 1), *other = malloc(sizeof result);
    CHECK(text && other);
    for (int i = 0; i < 1500; i++) {
        struct ablation_config c;
        size_t n = damage(text, (const char *)map.data, map.size, &rng);
        if (ablation_config_parse(&c, "damaged", text, n) == STATUS_OK) {
            read++;
            name_texts(&c);
            planned += ablation_plan_make(p, &c) == STATUS_OK;
            ablation_plan_free(p);
        } else
            CHECK(status_message()[0] && !strchr(status_message(), '\n'));
        ablation_config_free(&c);
        struct ablation_scored s;
        n = damage(other, result, sizeof result - 1, &rng);
        results += ablation_scored_parse(&s, "damaged", other, n, modes, 2) == STATUS_OK;
        ablation_scored_free(&s);
    }
    free(text);
    free(other);
    file_unmap(&map);
    CHECK(read > 50 && read < 1400 && planned > 20 && planned <= read && results > 20 && results < 1400);
}

int main(int argc, char **argv) {
    struct ablation_plan *plan;
    test_start(argc, argv, 1);
    CHECK_OK(memory_allocate_zero(&plan, 1));
    test_object();
    test_shipped(plan);
    test_trainings(plan);
    test_estimate(plan);
    test_scored();
    test_damaged(plan);
    memory_free(plan);
    return test_done();
}
