/* bench_memory_text.c -- the time that a token memory adds to decoding: microseconds for each id of a text, by mode, K
 * and interval, and of the same model without a memory.
 *
 *   bench_memory_text --model DIR --store DIR --text FILE [--device cpu|cuda] [--k 8,64] [--every 16,32] [--span 0,1]
 *                     [--layer N] [--past 2048] [--prompt 1024] [--tokens 2048] [--searcher lexical|landmark|hybrid]
 *                     [--dtype auto|f32|i8] [--serial 1] [--stored 1] [--device-logits 1] [--json FILE]
 *
 * FILE is plain text. Its first --prompt ids are read at once, the others one by one, as drt-generate does it: layers,
 * search, reading and encoding of passages, mixture, log-probabilities in this process's memory; all but the sampler.
 * So a search has a query of real text. The gate gives each memory the same weight: its numbers do not change the time.
 * --serial 1 reads the memories after each decode step instead of during it. --device-logits 1 leaves log-probabilities
 * on the device, as for a pick on it, and waits until they are complete. --stored 1 takes the keys of chunks from the
 * store (drt-index keys).
 *
 * The last column is a check sum of the log-probabilities after each interval: cases with the same K and interval
 * must agree.
 * CSV, a row a case: mean of all ids; median and quartiles of the means of intervals of 64 ids; mean and median of the
 * ids that do not search; the parts of the mean for searching and for encoding chunks (on a GPU: for queueing the
 * work). A model with random weights works, since times do not depend on weights. One whose memory_layer is --layer and
 * that has a memory_size reads projected keys. */
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "session/memory_folder.h"
#include "session/memory_search.h"
#include "session/memory_text.h"
#include "tests/bench/result.h"
#include "tests/test.h"

enum { INTERVAL = 64, LIST_MAX = 8 };

struct options {
    const char *model, *store, *text, *device, *searcher, *dtype;
    int64_t k[LIST_MAX], every[LIST_MAX], span[LIST_MAX], layer[LIST_MAX], past[LIST_MAX], prompt[LIST_MAX],
        tokens[LIST_MAX], serial[LIST_MAX], stored[LIST_MAX], logits_device[LIST_MAX];
};

static void usage(const char *why) {
    fprintf(stderr, "bench_memory_text: %s\n", why);
    exit(2);
}

/* Numbers with commas between them; 0 follows the last. */
static void read_list(int64_t out[LIST_MAX], const char *text) {
    memset(out, 0, LIST_MAX * sizeof *out);
    for (int i = 0; i < LIST_MAX - 1 && *text; i++) {
        char *end;
        out[i] = strtoll(text, &end, 10);
        if (end == text || (*end && *end != ',')) usage("a list is numbers with commas between them");
        text = *end ? end + 1 : end;
    }
}

static struct options read_options(int argc, char **argv) {
    struct options o = {.device = "cpu",
                        .searcher = "lexical",
                        .dtype = "auto",
                        .k = {8, 64},
                        .every = {16},
                        .span = {0, 1},
                        .past = {2048},
                        .prompt = {1024},
                        .tokens = {2048}};
    const struct {
        const char *name;
        const char **text;
        int64_t *list;
    } names[] = {{"--model", &o.model, NULL},  {"--store", &o.store, NULL},
                 {"--text", &o.text, NULL},    {"--device", &o.device, NULL},
                 {"--k", NULL, o.k},           {"--every", NULL, o.every},
                 {"--span", NULL, o.span},     {"--layer", NULL, o.layer},
                 {"--past", NULL, o.past},     {"--prompt", NULL, o.prompt},
                 {"--tokens", NULL, o.tokens}, {"--searcher", &o.searcher, NULL},
                 {"--dtype", &o.dtype, NULL},  {"--serial", NULL, o.serial},
                 {"--stored", NULL, o.stored}, {"--device-logits", NULL, o.logits_device}};
    for (int i = 1; i < argc; i += 2) {
        size_t at = 0;
        while (at < ARRAY_LEN(names) && strcmp(argv[i], names[at].name) != 0)
            at++;
        if (at == ARRAY_LEN(names) || i + 1 == argc) usage("see the head of its source for the options");
        if (names[at].text)
            *names[at].text = argv[i + 1];
        else
            read_list(names[at].list, argv[i + 1]);
    }
    if (!o.model || !o.store || !o.text) usage("--model, --store and --text are required");
    return o;
}

/* The ids of the text, at most the requested number. */
static const int32_t *read_text(const struct engine *e, const struct options *o) {
    struct file_map file;
    struct tokenizer_scratch *scratch;
    const int32_t *ids;
    size_t n;
    CHECK_OK(file_map(&file, o->text));
    CHECK_OK(tokenizer_scratch_create(&scratch, e->model.tokenizer));
    CHECK_OK(tokenizer_encode(e->model.tokenizer, scratch, (const char *)file.data, file.size, 0, &ids, &n));
    if ((int64_t)n < o->prompt[0] + o->tokens[0]) usage("the text has fewer ids than --prompt and --tokens");
    int32_t *out = malloc(n * sizeof *out);
    memcpy(out, ids, n * sizeof *out);
    tokenizer_scratch_free(scratch);
    file_unmap(&file);
    return out;
}

struct memory_case {
    const char *name;
    int kind; /* -1: no memory */
    int64_t k, every;
};

static uint64_t check_sum(uint64_t sum, const float *log_p, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, log_p + i, sizeof bits);
        sum = (sum ^ bits) * 1099511628211u;
    }
    return sum;
}

static double mean_of(const struct samples *s) {
    double sum = 0;
    for (int64_t i = 0; i < s->count; i++)
        sum += s->at[i];
    return s->count ? sum / (double)s->count * 1e6 : 0;
}

/* s: means of intervals; between: of single ids that do not search. */
static void report(const struct memory_case *c, const struct samples *s, const struct samples *between,
                   struct memory_text_times t, int64_t tokens, uint64_t bits) {
    const double ids = (double)tokens * 1e-6;
    printf("%s,%lld,%lld,%.1f,%.1f,%.1f,%.1f,%.1f,%.1f,%.1f,%.1f,%.2f,%08llx\n", c->name, (long long)c->k,
           (long long)c->every, mean_of(s), samples_quantile(s->at, s->count, 0.5) * 1e6,
           samples_quantile(s->at, s->count, 0.25) * 1e6, samples_quantile(s->at, s->count, 0.75) * 1e6,
           mean_of(between), between->count ? samples_quantile(between->at, between->count, 0.5) * 1e6 : 0,
           t.find / ids, t.encode / ids, t.queries ? (double)(t.encoded + t.copied) / (double)t.queries : 0,
           (unsigned long long)(bits ^ bits >> 32) & 0xffffffff);
    fflush(stdout);
    const struct figure f = {.unit = "us", .values = s->at, .count = s->count, .scale = 1e6};
    if (c->kind < 0)
        result_figure(&f, "an id, no memory");
    else
        result_figure(&f, "an id, %s, K %lld every %lld", c->name, (long long)c->k, (long long)c->every);
}

/* Log-probabilities go to logits, or stay in `logits_device`, which is not NULL; t NULL: no memory. */
static void feed(struct memory_text *t, struct decoder_state *state, float *logits, float *logits_device,
                 const int32_t *ids, int64_t n) {
    const struct decoder_output out = {.logits = logits_device ? NULL : logits, .logits_device = logits_device};
    if (!t)
        CHECK_OK(decoder_forward(state, &out, ids, n));
    else if (logits_device)
        CHECK_OK(memory_text_feed_on_device(t, state, &logits_device, ids, n));
    else
        CHECK_OK(memory_text_feed(t, state, logits, ids, n));
}

static void run_case(struct engine *e, const struct options *o, const int32_t *ids, struct memory_finder finder,
                     struct memory_case c) {
    const int64_t vocab = e->model.config.vocab_size, pass = engine_pass(e), prompt = o->prompt[0];
    struct memory_config memory = {.key_layer = (int)o->layer[0],
                                   .k = (int)c.k,
                                   .every = (int)c.every,
                                   .before = (int)o->span[0],
                                   .after = (int)o->span[1]};
    struct memory_text *t = NULL;
    struct decoder_state *state;
    struct samples times = {0}, between = {0};
    float *logits, *logits_device = NULL;
    const struct model_config *model = &e->model.config;
    memory.keys = o->stored[0] ? MEMORY_KEYS_STORED : MEMORY_KEYS_ENCODED;
    memory_folder_sign(&memory, &e->model);
    if (memory.key_layer == 0) memory.key_layer = model_config_key_layer(model);
    CHECK_OK(device_allocate_host(e->device, &logits, (size_t)vocab));
    if (o->logits_device[0]) CHECK_OK(device_allocate(e->device, &logits_device, (size_t)vocab));
    CHECK_OK(decoder_state_create(&state, e->decoder, NULL));
    if (c.kind >= 0) {
        const double tau = (double)e->model.config.hidden / 8;
        memory.mixture[c.kind] =
            (struct memory_mixture){true, {tau, tau}, memory_gate_fixed((enum memory_kind)c.kind, 0.3)};
        const struct memory_text_config config = {.engine = e,
                                                  .memory = &memory,
                                                  .finder = finder,
                                                  .kind = (enum memory_kind)c.kind,
                                                  .past = o->past[0],
                                                  .serial = o->serial[0] != 0};
        CHECK_OK(memory_text_create(&t, &config));
    }
    double begin = 0;
    uint64_t sum = 0;
    struct memory_text_times before = {0}, after = {0};
    for (int64_t at = 0, n; at < prompt + o->tokens[0]; at += n) {
        n = at < prompt ? (prompt - at < pass ? prompt - at : pass) : 1;
        if (at >= prompt && (at - prompt) % INTERVAL == 0) {
            if (at > prompt) samples_add(&times, (clock_seconds() - begin) / INTERVAL);
            if (at == prompt && t) before = memory_text_times(t);
            sum = check_sum(sum, logits, vocab);
            begin = clock_seconds();
        }
        const int64_t queries = t ? memory_text_times(t).queries : 0;
        const double start = clock_seconds();
        feed(t, state, at + n < prompt ? NULL : logits, at < prompt ? NULL : logits_device, ids + at, n);
        if (logits_device) CHECK_OK(device_sync(e->device));
        if (at >= prompt && (!t || memory_text_times(t).queries == queries))
            samples_add(&between, clock_seconds() - start);
    }
    samples_add(&times, (clock_seconds() - begin) / INTERVAL);
    if (t) after = memory_text_times(t);
    after.find -= before.find, after.encode -= before.encode;
    after.queries -= before.queries, after.encoded -= before.encoded, after.copied -= before.copied;
    report(&c, &times, &between, after, o->tokens[0], check_sum(sum, logits, vocab));
    memory_text_free(t);
    decoder_state_free(state);
    device_release(e->device, logits_device);
    device_release_host(e->device, logits);
    samples_free(&times);
    samples_free(&between);
}

int main(int argc, char **argv) {
    result_begin("bench_memory_text", &argc, argv);
    struct options o = read_options(argc, argv);
    struct engine e = {0};
    struct memory_search *search = NULL;
    int searcher = 0;
    o.tokens[0] -= o.tokens[0] % INTERVAL;
    while (searcher < MEMORY_SEARCHERS && strcmp(o.searcher, memory_searcher_names[searcher]) != 0)
        searcher++;
    if (searcher == MEMORY_SEARCHERS || o.tokens[0] < INTERVAL)
        usage("--searcher is lexical, landmark or hybrid, --tokens 64 or more");
    CHECK_OK(engine_open(
        &e,
        &(struct engine_config){
            .model = o.model, .store = o.store, .where = {o.device, o.dtype, NULL}, .memory = true, .decoding = true}));
    CHECK_OK(memory_search_open(&search, &(struct memory_search_config){
                                             .engine = &e, .kind = (enum memory_searcher)searcher, .store = o.store}));
    const struct memory_finder finder = memory_search_finder(search);
    const int32_t *ids = read_text(&e, &o);
    printf("# %s; %lld chunks; searched by %s\n", o.model, (long long)e.info.chunks,
           memory_search_describe(search, (int)o.k[0]).text);
    printf("mode,k,every,us mean,median,q1,q3,mean without search,median,finding,encoding,passages encoded a search,"
           "check sum\n");
    run_case(&e, &o, ids, finder, (struct memory_case){"none", -1, 0, 0});
    run_case(&e, &o, ids, finder, (struct memory_case){"own", MEMORY_OWN_PAST, 1, 16});
    for (int i = 0; o.k[i]; i++)
        for (int j = 0; o.every[j]; j++) {
            run_case(&e, &o, ids, finder, (struct memory_case){"corpus", MEMORY_CORPUS, o.k[i], o.every[j]});
            run_case(&e, &o, ids, finder, (struct memory_case){"both", MEMORY_BOTH, o.k[i], o.every[j]});
        }
    run_case(&e, &o, ids, finder, (struct memory_case){"none", -1, 0, 0});
    memory_search_close(search);
    engine_close(&e);
    free((void *)ids);
    result_end();
    return 0;
}
