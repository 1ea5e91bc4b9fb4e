/* bench_memory_text.c -- the time that a token memory adds to decoding: microseconds for each id of a text, by mode, K
 * and interval, and of the same model without a memory.
 *
 *   bench_memory_text --model DIR --store DIR --text FILE [--device cpu|cuda] [--k 8,64] [--every 16,32] [--span 0,1]
 *                     [--layer N] [--past 2048] [--prompt 1024] [--tokens 2048] [--searcher lexical|landmark|hybrid]
 *                     [--dtype auto|f32|i8] [--serial 1] [--stored 1] [--random-keys 1] [--device-logits 1]
 *                     [--pick 1] [--queued 2] [--json FILE]
 *
 * FILE is plain text. Its first --prompt ids are read at once, the others one by one, as drt-generate does it: layers,
 * search, reading and encoding of passages, mixture, log-probabilities in this process's memory; all but the sampler.
 * So a search has a query of real text. The gate gives each memory the same weight: its numbers do not change the time.
 * --serial 1 reads the memories after each decode step instead of during it. --device-logits 1 leaves log-probabilities
 * on the device, as for a pick on it, and waits until they are complete. --stored 1 takes the keys of chunks from the
 * store (drt-index keys), --stored 2 from a copy of all of them in the GPU's memory; it is a list like --queued.
 * --random-keys 1 writes random keys of this model to the store first, which takes seconds instead of minutes.
 * --pick 1 waits as drt-generate on a GPU does: the GPU picks an id (greedily) after each pass, and this process waits
 * for the pick. The text continues with FILE's ids nevertheless, so that all cases read the same text. --queued is a
 * list, and each case runs with each number of it in turn: 0: nothing is queued before the id is known; 1: the next
 * pass, unless it searches; 2: also a search, before the pass of its last id.
 *
 * The last column is a check sum of the log-probabilities after each interval: cases with the same K and interval
 * must agree.
 * CSV, a row a case: what is queued ahead; mean of all ids; median and quartiles of the means of intervals of 64 ids;
 * mean and median of the ids that do not search; the parts of the mean for searching and for encoding chunks (on a GPU:
 * for queueing the work). A model with random weights works, since times do not depend on weights. One whose
 * memory_layer is --layer and that has a memory_size reads projected keys. */
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "decoder/batch/decoder_ahead.h"
#include "decoder/logits/picker.h"
#include "indexer/build/stored_keys.h"
#include "kernels/ops.h"
#include "session/memory_folder.h"
#include "session/memory_search.h"
#include "session/memory_text.h"
#include "tests/bench/result.h"
#include "tests/test.h"

enum { INTERVAL = 64, LIST_MAX = 8 };

struct options {
    const char *model, *store, *text, *device, *searcher, *dtype;
    int64_t k[LIST_MAX], every[LIST_MAX], span[LIST_MAX], layer[LIST_MAX], past[LIST_MAX], prompt[LIST_MAX],
        tokens[LIST_MAX], serial[LIST_MAX], stored[LIST_MAX], random_keys[LIST_MAX], logits_device[LIST_MAX],
        pick[LIST_MAX], queued[LIST_MAX];
    int64_t n_queued, n_stored;
};

static void usage(const char *why) {
    fprintf(stderr, "bench_memory_text: %s\n", why);
    exit(2);
}

/* Numbers with commas between them; 0 follows the last. Returns how many. */
static int64_t read_list(int64_t out[LIST_MAX], const char *text) {
    memset(out, 0, LIST_MAX * sizeof *out);
    int i = 0;
    for (; i < LIST_MAX - 1 && *text; i++) {
        char *end;
        out[i] = strtoll(text, &end, 10);
        if (end == text || (*end && *end != ',')) usage("a list is numbers with commas between them");
        text = *end ? end + 1 : end;
    }
    return i;
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
                        .tokens = {2048},
                        .queued = {2},
                        .n_queued = 1,
                        .n_stored = 1};
    const struct {
        const char *name;
        const char **text;
        int64_t *list;
    } names[] = {{"--model", &o.model, NULL},
                 {"--store", &o.store, NULL},
                 {"--text", &o.text, NULL},
                 {"--device", &o.device, NULL},
                 {"--k", NULL, o.k},
                 {"--every", NULL, o.every},
                 {"--span", NULL, o.span},
                 {"--layer", NULL, o.layer},
                 {"--past", NULL, o.past},
                 {"--prompt", NULL, o.prompt},
                 {"--tokens", NULL, o.tokens},
                 {"--searcher", &o.searcher, NULL},
                 {"--dtype", &o.dtype, NULL},
                 {"--serial", NULL, o.serial},
                 {"--stored", NULL, o.stored},
                 {"--device-logits", NULL, o.logits_device},
                 {"--pick", NULL, o.pick},
                 {"--queued", NULL, o.queued},
                 {"--random-keys", NULL, o.random_keys}};
    for (int i = 1; i < argc; i += 2) {
        size_t at = 0;
        while (at < ARRAY_LEN(names) && strcmp(argv[i], names[at].name) != 0)
            at++;
        if (at == ARRAY_LEN(names) || i + 1 == argc) usage("see the head of its source for the options");
        if (names[at].text)
            *names[at].text = argv[i + 1];
        else if (names[at].list == o.queued)
            o.n_queued = read_list(o.queued, argv[i + 1]);
        else if (names[at].list == o.stored)
            o.n_stored = read_list(o.stored, argv[i + 1]);
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

/* Writes the files of keys of the model's store. Every file has the same numbers. */
static void make_random_keys(const struct engine *e, const struct options *o) {
    const int layer = o->layer[0] ? (int)o->layer[0] : model_config_key_layer(&e->model.config);
    uint8_t weights[16];
    struct keys_layout layout;
    params_fingerprint(e->model.params, weights);
    struct store_keys_spec spec = stored_keys_spec(&e->model.config, weights, layer, KEY_STEP);
    spec.rounding = STORE_KEYS_BF16;
    const int64_t rows = (int64_t)STORE_KEYS_CHUNKS * spec.chunk_tokens;
    int8_t *code = malloc((size_t)(rows * spec.size));
    float *scale = malloc((size_t)rows * sizeof *scale);
    struct rng rng = rng_make(1, 1);
    for (int64_t i = 0; i < rows * spec.size; i++)
        code[i] = (int8_t)((int)rng_below(&rng, 255) - 127);
    for (int64_t i = 0; i < rows; i++)
        scale[i] = 0.01F + 0.01F * (float)rng_uniform(&rng);
    CHECK_OK(keys_layout_open(&layout, e->view));
    for (int64_t i = 0; i < layout.files; i++) {
        struct store_keys_file *file;
        const struct keys_range range = keys_layout_range(&layout, i);
        CHECK_OK(store_keys_begin(&file, e->view, &layout, i, &spec));
        CHECK_OK(store_keys_append(file, (struct store_key_rows){code, scale}, range.end - range.begin));
        CHECK_OK(store_keys_publish(file));
    }
    keys_layout_free(&layout);
    free(code), free(scale);
}

struct memory_case {
    const char *name;
    int kind; /* -1: no memory */
    int64_t k, every, queued, stored;
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
    printf("%s,%lld,%lld,%lld,%lld,%.1f,%.1f,%.1f,%.1f,%.1f,%.1f,%.1f,%.1f,%.2f,%08llx\n", c->name, (long long)c->k,
           (long long)c->every, (long long)c->queued, (long long)c->stored, mean_of(s),
           samples_quantile(s->at, s->count, 0.5) * 1e6, samples_quantile(s->at, s->count, 0.25) * 1e6,
           samples_quantile(s->at, s->count, 0.75) * 1e6, mean_of(between),
           between->count ? samples_quantile(between->at, between->count, 0.5) * 1e6 : 0, t.find / ids, t.encode / ids,
           t.queries ? (double)(t.encoded + t.copied) / (double)t.queries : 0,
           (unsigned long long)(bits ^ bits >> 32) & 0xffffffff);
    fflush(stdout);
    const struct figure f = {.unit = "us", .values = s->at, .count = s->count, .scale = 1e6};
    if (c->kind < 0)
        result_figure(&f, "an id, no memory");
    else
        result_figure(&f, "an id, %s, K %lld every %lld", c->name, (long long)c->k, (long long)c->every);
}

/* A text that is decoded id by id. */
struct run {
    struct engine *e;
    const struct options *o;
    const int32_t *ids;
    int64_t end, vocab, queued;
    struct memory_text *t; /* NULL: no memory */
    struct decoder_state *state;
    float *logits, *logits_device; /* logits_device NULL: log-probabilities go to `logits` */
    /* with --pick */
    struct sampler *sampler;
    struct picker *picker;
    int32_t *ids_device;
    float *buffers[2], *latest; /* buffers: of a text without a memory */
    bool ahead;                 /* the pass of the next id is queued */
    int64_t pass;               /* number of the id whose pass was queued last */
    float *kept;                /* [ids / INTERVAL, vocab] mixtures, on the device */
};

static void open_pick(struct run *r) {
    const struct sampler_config greedy = {.top_p = 1};
    CHECK_OK(sampler_create(&r->sampler, &greedy, (int)r->vocab));
    CHECK_OK(picker_create(&r->picker, r->e->device, r->sampler, &greedy, (int)r->vocab));
    CHECK_OK(device_allocate(r->e->device, &r->ids_device, (size_t)r->end));
    device_upload(r->e->device, r->ids_device, r->ids, (size_t)r->end * sizeof *r->ids);
    for (int i = 0; i < 2; i++)
        CHECK_OK(device_allocate(r->e->device, &r->buffers[i], (size_t)r->vocab));
    CHECK_OK(device_allocate(r->e->device, &r->kept, (size_t)(r->o->tokens[0] / INTERVAL * r->vocab)));
}

static void close_pick(struct run *r) {
    picker_free(r->picker);
    sampler_free(r->sampler);
    void *device_memory[] = {r->ids_device, r->buffers[0], r->buffers[1], r->kept};
    for (size_t i = 0; i < ARRAY_LEN(device_memory); i++)
        device_release(r->e->device, device_memory[i]);
}

/* Queues the pick after a pass, and keeps some of what it reads. */
static void queue_pick(void *context, struct device *dev) {
    struct run *r = context;
    struct pick_row row;
    const int64_t number = r->pass - r->o->prompt[0] + 1;
    picker_queue(r->picker, &row, r->latest, false, 0);
    dev->ops->pick->rows(dev, &row, 1, r->vocab);
    if (number % INTERVAL == 0)
        device_copy(dev, r->kept + (number / INTERVAL - 1) * r->vocab, r->latest, (size_t)r->vocab * sizeof(float));
}

static void queue_pass(struct run *r, int64_t at) {
    r->pass = at;
    if (r->t) {
        CHECK_OK(memory_text_feed_on_device(r->t, r->state, &r->latest, r->ids + at, 1));
        queue_pick(r, r->e->device);
        return;
    }
    r->latest = r->buffers[at % 2];
    const struct decoder_output out = {.logits_device = r->latest, .then = queue_pick, .context = r};
    CHECK_OK(decoder_forward(r->state, &out, r->ids + at, 1));
}

static bool queue_ahead(struct run *r, int64_t at) {
    const bool takes = r->t ? memory_text_ahead_takes(r->t, r->state) : decoder_ahead_takes(r->state, true);
    if (at >= r->end || r->queued == 0 || !takes) return false;
    r->pass = at;
    if (r->t) {
        CHECK_OK(memory_text_ahead(r->t, r->state, &r->latest, r->ids_device + at, queue_pick, r));
        return true;
    }
    r->latest = r->buffers[at % 2];
    const struct decoder_output out = {.logits_device = r->latest, .then = queue_pick, .context = r};
    CHECK_OK(decoder_ahead_step(r->state, &out, r->ids_device + at));
    return true;
}

/* The pass of an id and its pick, as session/generation_batch.c makes them. */
static void step_picked(struct run *r, int64_t at) {
    const struct pick_result *result;
    if (!r->ahead) queue_pass(r, at);
    r->ahead = queue_ahead(r, at + 1);
    if (r->t && !r->ahead) CHECK_OK(memory_text_prepare(r->t));
    CHECK_OK(picker_wait(r->picker, &result));
    sampler_picked(r->sampler, result->id);
    if (!r->ahead) return;
    if (!r->t) {
        decoder_ahead_known(r->state, r->ids[at + 1]);
        return;
    }
    CHECK_OK(memory_text_ahead_known(r->t, r->state, r->ids[at + 1]));
    memory_text_ahead_joins(r->t);
}

static void step(struct run *r, int64_t at, int64_t n) {
    const bool prompt = at < r->o->prompt[0];
    if (r->picker && !prompt) {
        step_picked(r, at);
        return;
    }
    float *logits = at + n < r->o->prompt[0] ? NULL : r->logits, *logits_device = prompt ? NULL : r->logits_device;
    const struct decoder_output out = {.logits = logits_device ? NULL : logits, .logits_device = logits_device};
    if (!r->t)
        CHECK_OK(decoder_forward(r->state, &out, r->ids + at, n));
    else if (logits_device)
        CHECK_OK(memory_text_feed_on_device(r->t, r->state, &logits_device, r->ids + at, n));
    else
        CHECK_OK(memory_text_feed(r->t, r->state, logits, r->ids + at, n));
    if (logits_device) CHECK_OK(device_sync(r->e->device));
}

/* Of the mixtures that were kept. */
static uint64_t kept_sum(struct run *r, uint64_t sum) {
    for (int64_t i = 0; i < r->o->tokens[0] / INTERVAL; i++) {
        device_download(r->e->device, r->logits, r->kept + i * r->vocab, (size_t)r->vocab * sizeof *r->logits);
        sum = check_sum(sum, r->logits, r->vocab);
    }
    return sum;
}

static void open_memory(struct run *r, struct memory_config *memory, struct memory_finder finder,
                        const struct memory_case *c) {
    const struct options *o = r->o;
    static const enum memory_keys keys[] = {MEMORY_KEYS_ENCODED, MEMORY_KEYS_STORED, MEMORY_KEYS_DEVICE};
    const double tau = (double)r->e->model.config.hidden / 8;
    *memory = (struct memory_config){.key_layer = (int)o->layer[0],
                                     .k = (int)c->k,
                                     .every = (int)c->every,
                                     .before = (int)o->span[0],
                                     .after = (int)o->span[1]};
    memory->keys = keys[c->stored];
    memory_folder_sign(memory, &r->e->model);
    if (memory->key_layer == 0) memory->key_layer = model_config_key_layer(&r->e->model.config);
    memory->mixture[c->kind] =
        (struct memory_mixture){true, {tau, tau}, memory_gate_fixed((enum memory_kind)c->kind, 0.3)};
    const struct memory_text_config config = {.engine = r->e,
                                              .memory = memory,
                                              .finder = finder,
                                              .kind = (enum memory_kind)c->kind,
                                              .past = o->past[0],
                                              .serial = o->serial[0] != 0,
                                              .late = c->queued < 2};
    CHECK_OK(memory_text_create(&r->t, &config));
}

static void run_case(struct engine *e, const struct options *o, const int32_t *ids, struct memory_finder finder,
                     struct memory_case c) {
    const int64_t pass = engine_pass(e), prompt = o->prompt[0];
    struct run r = {.e = e, .o = o, .ids = ids, .end = prompt + o->tokens[0], .queued = c.queued};
    struct memory_config memory;
    struct samples times = {0}, between = {0};
    r.vocab = e->model.config.vocab_size;
    CHECK_OK(device_allocate_host(e->device, &r.logits, (size_t)r.vocab));
    if (o->logits_device[0]) CHECK_OK(device_allocate(e->device, &r.logits_device, (size_t)r.vocab));
    if (o->pick[0]) open_pick(&r);
    CHECK_OK(decoder_state_create(&r.state, e->decoder, NULL));
    if (c.kind >= 0) open_memory(&r, &memory, finder, &c);
    double begin = 0;
    uint64_t sum = 0;
    struct memory_text_times before = {0}, after = {0};
    bool searched = false; /* the id before, or a search for this one, which began before it */
    for (int64_t at = 0, n; at < r.end; at += n) {
        n = at < prompt ? (prompt - at < pass ? prompt - at : pass) : 1;
        if (at >= prompt && (at - prompt) % INTERVAL == 0) {
            if (at > prompt) samples_add(&times, (clock_seconds() - begin) / INTERVAL);
            if (at == prompt && r.t) before = memory_text_times(r.t);
            if (at == prompt || !r.picker) sum = check_sum(sum, r.logits, r.vocab);
            begin = clock_seconds();
        }
        const int64_t queries = r.t ? memory_text_times(r.t).queries : 0;
        const double start = clock_seconds();
        step(&r, at, n);
        const double seconds = clock_seconds() - start;
        const bool searches = r.t && memory_text_times(r.t).queries > queries;
        if (at >= prompt && !searches && !searched) samples_add(&between, seconds);
        searched = searches;
    }
    samples_add(&times, (clock_seconds() - begin) / INTERVAL);
    if (r.t) after = memory_text_times(r.t);
    after.find -= before.find, after.encode -= before.encode;
    after.queries -= before.queries, after.encoded -= before.encoded, after.copied -= before.copied;
    sum = r.picker ? kept_sum(&r, sum) : check_sum(sum, r.logits, r.vocab);
    report(&c, &times, &between, after, o->tokens[0], sum);
    memory_text_free(r.t);
    decoder_state_free(r.state);
    if (r.picker) close_pick(&r);
    device_release(e->device, r.logits_device);
    device_release_host(e->device, r.logits);
    samples_free(&times);
    samples_free(&between);
}

/* With each number of --queued, and of --stored if the case reads the corpus. */
static void run_cases(struct engine *e, const struct options *o, const int32_t *ids, struct memory_finder finder,
                      struct memory_case c) {
    const int64_t n_stored = c.k > 1 ? o->n_stored : 1;
    for (int64_t i = 0; i < o->n_queued * n_stored; i++) {
        c.queued = o->queued[i / n_stored];
        c.stored = o->stored[i % n_stored];
        run_case(e, o, ids, finder, c);
    }
}

static void tell(const char *line) {
    fprintf(stderr, "%s\n", line);
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
    for (int64_t i = 0; i < o.n_stored; i++)
        if (o.stored[i] < 0 || o.stored[i] > 2) usage("--stored is a list of 0, 1 and 2");
    if (o.pick[0] && strcmp(o.device, "cuda") != 0) usage("--pick needs --device cuda");
    CHECK_OK(engine_open(
        &e,
        &(struct engine_config){
            .model = o.model, .store = o.store, .where = {o.device, o.dtype, tell}, .memory = true, .decoding = true}));
    CHECK_OK(memory_search_open(&search, &(struct memory_search_config){
                                             .engine = &e, .kind = (enum memory_searcher)searcher, .store = o.store}));
    const struct memory_finder finder = memory_search_finder(search);
    const int32_t *ids = read_text(&e, &o);
    if (o.random_keys[0]) make_random_keys(&e, &o);
    printf("# %s; %lld chunks; searched by %s\n", o.model, (long long)e.info.chunks,
           memory_search_describe(search, (int)o.k[0]).text);
    printf("mode,k,every,queued,stored,us mean,median,q1,q3,mean without search,median,finding,encoding,passages "
           "encoded a "
           "search,"
           "check sum\n");
    run_cases(&e, &o, ids, finder, (struct memory_case){.name = "none", .kind = -1});
    run_cases(&e, &o, ids, finder, (struct memory_case){"own", MEMORY_OWN_PAST, 1, 16, 0, 0});
    for (int i = 0; o.k[i]; i++)
        for (int j = 0; o.every[j]; j++) {
            run_cases(&e, &o, ids, finder, (struct memory_case){"corpus", MEMORY_CORPUS, o.k[i], o.every[j], 0, 0});
            run_cases(&e, &o, ids, finder, (struct memory_case){"both", MEMORY_BOTH, o.k[i], o.every[j], 0, 0});
        }
    run_cases(&e, &o, ids, finder, (struct memory_case){.name = "none", .kind = -1});
    memory_search_close(search);
    engine_close(&e);
    free((void *)ids);
    result_end();
    return 0;
}
