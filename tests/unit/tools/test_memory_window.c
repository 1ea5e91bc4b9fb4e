/* test_memory_window.c -- a window read with token memories against plain loops in double precision: the keys of single
 * passages, the distances, the softmax, the mixed probabilities; the same bits with any number of threads. */
#include "tests/unit/tools/memory_window_fixture.h"

/* ---- by plain loops ---- */

/* Key states of a text by the decoder alone, in calls of `step` ids; also logits, if requested. */
static void plain_keys(const struct world *w, float *keys, float *logits, const int32_t *ids, int64_t n, int64_t step) {
    struct decoder_state *state;
    CHECK_OK(decoder_state_create(&state, w->engine.decoder, NULL));
    for (int64_t i = 0; i < n; i += step) {
        int64_t part = n - i < step ? n - i : step;
        const struct decoder_output out = {.logits = logits ? logits + i * VOCAB : NULL,
                                           .logits_all = logits != NULL,
                                           .keys = mat_f32(keys + i * D, part, D),
                                           .key_layer = w->memory.key_layer};
        CHECK_OK(decoder_forward(state, &out, ids + i, part));
    }
    decoder_state_free(state);
}

struct entries {
    float key[CONTEXT + K * 3 * CHUNK][D];
    int32_t value[CONTEXT + K * 3 * CHUNK];
    int n;
};

static void add_entries(struct entries *e, const float *keys, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; i + 1 < n; i++) {
        memcpy(e->key[e->n], keys + i * D, sizeof e->key[0]);
        e->value[e->n++] = ids[i + 1];
    }
}

/* The passage of a chunk, as its document has it. */
static void add_passage(const struct world *w, struct entries *e, int64_t chunk) {
    static float keys[3 * CHUNK * D];
    int32_t ids[3 * CHUNK];
    int64_t n = 0;
    for (int64_t c = chunk - 1; c <= chunk + 1; c++) {
        if (c < 0 || c >= w->first_chunk[DOCUMENTS] || w->document[c] != w->document[chunk]) continue;
        for (int i = 0; i < CHUNK && w->ids[c][i] >= 0; i++)
            ids[n++] = w->ids[c][i];
    }
    plain_keys(w, keys, NULL, ids, n, 1000);
    add_entries(e, keys, ids, n);
}

/* Every column of a read at one temperature, in double precision. */
static void check_row(const struct entries *e, const float *state, const struct memory_lm *lm,
                      const struct memory_read *read, int t, const float *logits, int64_t i, int32_t target) {
    double nearest = INFINITY, sum = 0, squares = 0, largest = -INFINITY, all = 0, entropy = 0, p[VOCAB] = {0};
    static double z[CONTEXT + K * 3 * CHUNK];
    float *const *column = read->column[t];
    int top = 0, lm_top = 0;
    for (int j = 0; j < e->n; j++) {
        double d2 = 0;
        for (int c = 0; c < D; c++)
            d2 += pow((double)state[c] - (double)e->key[j][c], 2);
        nearest = fmin(nearest, d2);
        z[j] = -d2 / (double)read->tau[t];
        sum += exp(z[j]);
    }
    for (int j = 0; j < e->n; j++) {
        squares += pow(exp(z[j]) / sum, 2);
        p[e->value[j]] += exp(z[j]) / sum;
    }
    for (int v = 0; v < VOCAB; v++) {
        all += exp((double)logits[v]), largest = fmax(largest, (double)logits[v]);
        top = p[v] > p[top] ? v : top;
        lm_top = logits[v] > logits[lm_top] ? v : lm_top;
    }
    for (int v = 0; v < VOCAB; v++)
        entropy -= exp((double)logits[v]) / all * log(exp((double)logits[v]) / all);
    double log_lm = (double)logits[target] - log(all);
    CHECK(fabs((double)lm->log_p[i] - (log_lm)) <= 1e-4);
    CHECK(fabs((double)lm->largest[i] - (largest - log(all))) <= 1e-4);
    CHECK(fabs((double)lm->entropy[i] - (entropy)) <= 1e-4);
    CHECK(fabs((double)read->mark[MEMORY_NEAREST][i] - (nearest)) <= 1e-3 * (1 + nearest));
    CHECK(fabs((double)column[MEMORY_LSE][i] - (log(sum))) <= 2e-3);
    CHECK(fabs((double)column[MEMORY_SQUARES][i] - (squares)) <= 2e-3);
    CHECK(fabs(exp((double)column[MEMORY_LOG_P][i]) - p[target]) <= 2e-3);
    CHECK(fabs(exp((double)column[MEMORY_OF_TOP][i]) - p[lm_top]) <= 2e-3);
    CHECK(fabs(exp((double)column[MEMORY_TOP][i]) - p[top]) <= 2e-3);
    int token = (int)column[MEMORY_TOKEN][i];
    CHECK(token >= 0 && token < VOCAB && p[token] >= p[top] - 2e-3);
    CHECK(fabs((double)column[MEMORY_LM_OF_TOP][i] - ((double)logits[token] - log(all))) <= 1e-4);
}

/* BM25 of the chunks found, per token of the query. */
static void check_marks(const struct memory_read *read, const struct store_hit hits[K], int64_t length, int64_t i) {
    double mean = 0, kth = hits[K - 1].chunk < 0 ? 0 : (double)hits[K - 1].score;
    int found = 0;
    for (int j = 0; j < K; j++)
        if (hits[j].chunk >= 0) found++, mean += (double)hits[j].score / K;
    CHECK_EQ((int)read->mark[MEMORY_ENTRIES][i], found);
    CHECK(fabs((double)read->mark[MEMORY_BEST][i] - (double)hits[0].score / (double)length) <= 1e-5);
    CHECK(fabs((double)read->mark[MEMORY_KTH][i] - kth / (double)length) <= 1e-5);
    CHECK(fabs((double)read->mark[MEMORY_MEAN][i] - mean / (double)length) <= 1e-5);
}

/* The expected entries of a read of the window. */
static void check_read(const struct world *w, const struct memory_lm *lm, const struct memory_read *read,
                       struct store_range exclude) {
    static float keys[CONTEXT * D], logits[CONTEXT * VOCAB];
    static struct entries found, all;
    plain_keys(w, keys, logits, w->text, CONTEXT, 50);
    for (int64_t t = FIRST; t < CONTEXT; t++) {
        int64_t at = FIRST + (t - FIRST) / EVERY * EVERY, length = at < MEMORY_LOOK_BACK ? at : MEMORY_LOOK_BACK;
        struct store_hit hits[K];
        const struct lexical_query query = {w->text + at - length, (int)length};
        const struct lexical_search how = {.k = K, .pair_weight = LEXICAL_PAIR_WEIGHT, .exclude = &exclude};
        CHECK_OK(lexical_search(w->lexical, hits, &query, 1, &how));
        bool finds = read->what != MEMORY_READ_PAST;
        if (t == at) found.n = 0;
        for (int i = 0; finds && t == at && i < K && hits[i].chunk >= 0; i++)
            add_passage(w, &found, hits[i].chunk);
        all = found;
        if (finds) {
            check_marks(read, hits, length, t - FIRST);
        } else {
            const int64_t oldest = t - 1 > WINDOW_PAST ? t - 1 - WINDOW_PAST : 0;
            add_entries(&all, keys + oldest * D, w->text + oldest, t - oldest);
            CHECK_EQ((int64_t)read->mark[MEMORY_ENTRIES][t - FIRST], t - 1 - oldest);
        }
        for (int tau = 0; tau < read->taus; tau++)
            check_row(&all, keys + (t - 1) * D, lm, read, tau, logits + (t - 1) * VOCAB, t - FIRST, w->text[t]);
    }
}

enum { READS = 5 };

static void run_window(struct world *w, struct memory_read reads[READS], struct memory_lm *lm, int64_t document,
                       struct memory_window **window) {
    const struct memory_window_config config = {.engine = &w->engine,
                                                .memory = &w->memory,
                                                .finder = w->finder,
                                                .context = CONTEXT,
                                                .past = WINDOW_PAST,
                                                .seed = 3};
    reads[0] = (struct memory_read){.what = MEMORY_READ_PAST, .taus = 2, .tau = {15, 40}};
    reads[1] = (struct memory_read){.what = MEMORY_READ_FOUND, .taus = 3, .tau = {8, 20, 30}};
    reads[2] = (struct memory_read){.what = MEMORY_READ_RANDOM, .taus = 1, .tau = {30}};
    reads[3] = (struct memory_read){.what = MEMORY_READ_ORACLE, .taus = 1, .tau = {30}};
    reads[4] =
        (struct memory_read){.what = MEMORY_READ_PART + 1, .taus = 3, .tau = {8, 16, 32}}; /* a quarter of the store */
    CHECK_OK(memory_window_create(window, &config, reads, READS));
    CHECK_OK(memory_window_run(*window, lm, w->text, CONTEXT, FIRST, document));
}

/* Random chunks have the scores of the query that they replace; the oracle searches with the following text. */
static void check_others(const struct world *w, const struct memory_read reads[READS]) {
    struct store_hit best;
    const struct lexical_query ahead = {w->text + FIRST, CHUNK};
    CHECK_OK(lexical_search(w->lexical, &best, &ahead, 1,
                            &(struct lexical_search){.k = 1, .pair_weight = LEXICAL_PAIR_WEIGHT}));
    CHECK(fabs((double)reads[3].mark[MEMORY_BEST][0] - (double)best.score / CHUNK) <= 1e-5);
    for (int64_t i = 0; i < CONTEXT - FIRST; i++) {
        CHECK(reads[2].mark[MEMORY_ENTRIES][i] == K);
        CHECK(reads[2].mark[MEMORY_BEST][i] <= reads[1].mark[MEMORY_BEST][i]);
        CHECK(reads[2].mark[MEMORY_MEAN][i] < reads[1].mark[MEMORY_MEAN][i]);
    }
}

static void test_window(bool base_lm) {
    static struct world w, threaded;
    struct memory_window *window, *other;
    struct memory_read reads[READS], threaded_reads[READS];
    struct memory_lm lm, threaded_lm;
    make_world(&w, base_lm, 1, base_lm ? "base" : "drt");
    const struct store_range none = {0};
    run_window(&w, reads, &lm, -1, &window);
    for (int i = 0; i < 2; i++)
        check_read(&w, &lm, &reads[i], none);
    check_read(&w, &lm, &reads[4], (struct store_range){w.first_chunk[DOCUMENTS] / 4, w.first_chunk[DOCUMENTS]});
    check_others(&w, reads);

    make_world(&threaded, base_lm, 3, base_lm ? "base3" : "drt3");
    run_window(&threaded, threaded_reads, &threaded_lm, -1, &other);
    size_t bytes = (CONTEXT - FIRST) * sizeof(float);
    CHECK(memcmp(lm.log_p, threaded_lm.log_p, bytes) == 0);
    for (int i = 0; i < READS; i++)
        for (int c = 0; c < MEMORY_COLUMNS; c++)
            CHECK(memcmp(reads[i].column[0][c], threaded_reads[i].column[0][c], bytes) == 0);
    memory_window_free(other);
    free_world(&threaded);

    /* Without the document of the best chunk of the first search. */
    struct store_hit best;
    const struct lexical_query query = {w.text, FIRST};
    CHECK_OK(lexical_search(w.lexical, &best, &query, 1,
                            &(struct lexical_search){.k = 1, .pair_weight = LEXICAL_PAIR_WEIGHT}));
    int document = w.document[best.chunk];
    const struct store_range out = {w.first_chunk[document], w.first_chunk[document + 1]};
    CHECK_OK(memory_window_run(window, &lm, w.text, CONTEXT, FIRST, document));
    check_read(&w, &lm, &reads[1], out);
    memory_window_free(window);
    free_world(&w);
}

/* A pool too small for a window gives the same bits as a large one. */
static void test_small_pool(void) {
    static struct world w;
    enum { BLOCKS = 4 };
    int64_t chunks[BLOCKS * K] = {0, 5, 9, 5, -1, 20, 9, 11, 12, 0, 5, 24}, row_begin[] = {0, 5};
    struct memory_source *large, *small;
    make_world(&w, true, 1, "pool");
    struct memory_source_config config = {.device = w.engine.device,
                                          .model = &w.engine.model.config,
                                          .decoder = w.engine.decoder,
                                          .view = w.engine.view,
                                          .finder = w.finder,
                                          .k = K,
                                          .after = 1,
                                          .key_layer = 3};
    CHECK_OK(memory_source_create(&large, &config));
    config.slots = K + 1;
    CHECK_OK(memory_source_create(&small, &config));
    for (int b = 0; b < BLOCKS; b++) {
        struct memory_slots x, y;
        CHECK_OK(memory_source_load(large, &x, chunks + b * K, row_begin, 1));
        CHECK_OK(memory_source_load(small, &y, chunks + b * K, row_begin, 1));
        for (int i = 0; i < K; i++) {
            int64_t from = (int64_t)x.slot[i] * x.slot_rows, to = (int64_t)y.slot[i] * y.slot_rows;
            CHECK_EQ(x.slot[i] < 0, y.slot[i] < 0);
            if (x.slot[i] < 0) continue;
            CHECK(memcmp(mat_row(x.keys, from), mat_row(y.keys, to), (size_t)x.slot_rows * D * sizeof(float)) == 0);
            CHECK(memcmp(x.value + from, y.value + to, (size_t)x.slot_rows * sizeof *x.value) == 0);
        }
    }
    CHECK(memory_source_stats(small).dropped > 0 && memory_source_stats(large).dropped == 0);
    CHECK_EQ(memory_source_stats(large).encoded, 7);
    memory_source_free(large);
    memory_source_free(small);
    free_world(&w);
}

/* Random chunks are distinct and not of the excluded document; in a small store they are all chunks. */
static void test_draw(void) {
    static struct world w;
    int64_t chunks[2 * 24], at[] = {64, 128};
    struct memory_source *m;
    make_world(&w, true, 1, "draw");
    const struct memory_source_config config = {.device = w.engine.device,
                                                .model = &w.engine.model.config,
                                                .decoder = w.engine.decoder,
                                                .view = w.engine.view,
                                                .k = 24,
                                                .key_layer = 1};
    const struct store_range out = {w.first_chunk[2], w.first_chunk[3]}; /* 5 of 25 chunks */
    CHECK_OK(memory_source_create(&m, &config));
    CHECK_OK(memory_source_draw(m, chunks, at, 2, out, 7));
    for (int row = 0; row < 2; row++)
        for (int i = 0; i < 24; i++) {
            int64_t chunk = chunks[row * 24 + i];
            CHECK_EQ(chunk < 0, i >= 20);
            CHECK(chunk < out.begin || chunk >= out.end);
            for (int j = 0; j < i && chunk >= 0; j++)
                CHECK(chunks[row * 24 + j] != chunk);
        }
    memory_source_free(m);
    free_world(&w);
}

/* Random chunks are none of a deleted document, and a passage ends before one. */
static void test_deleted(void) {
    static struct world w;
    enum { GONE = 2 };
    char store[600];
    int64_t chunks[24], at = 64, row_begin[] = {0, 1}, last = -1, deleted = GONE;
    struct store_delete_report report;
    struct memory_source *m;
    struct memory_slots slots;
    make_world(&w, true, 1, "deleted");
    snprintf(store, sizeof store, "%s/deleted", test_folder());
    store_view_close(w.engine.view);
    store_close(w.engine.store);
    CHECK_OK(store_delete(&report, store, &(struct store_delete){.documents = &deleted, .n_documents = 1}));
    CHECK_OK(store_open(&w.engine.store, store));
    CHECK_OK(store_view_open(&w.engine.view, w.engine.store));
    struct memory_source_config config = {.device = w.engine.device,
                                          .model = &w.engine.model.config,
                                          .decoder = w.engine.decoder,
                                          .view = w.engine.view,
                                          .k = 24,
                                          .after = 1,
                                          .key_layer = 1};
    const struct store_range out = {w.first_chunk[4], w.first_chunk[5]}; /* 9 of 20 chunks that are left */
    CHECK_OK(memory_source_create(&m, &config));
    CHECK_OK(memory_source_draw(m, chunks, &at, 1, out, 7));
    for (int i = 0; i < 24; i++) {
        CHECK_EQ(chunks[i] < 0, i >= 11);
        CHECK(chunks[i] < 0 || (chunks[i] < w.first_chunk[4] && w.document[chunks[i]] != GONE));
        if (chunks[i] == w.first_chunk[GONE] - 1) last = i;
    }
    CHECK(last >= 0);
    CHECK_OK(memory_source_load(m, &slots, chunks, row_begin, 1));
    for (int64_t j = CHUNK; j < slots.slot_rows; j++) /* the chunk before the deleted ones has none after it */
        CHECK(slots.value[(int64_t)slots.slot[last] * slots.slot_rows + j] < 0);
    memory_source_free(m);
    free_world(&w);
}

/* Adds weight times the distribution of one memory. */
static void spread(const struct entries *e, const float *state, double tau, double weight, double p[VOCAB]) {
    static double z[CONTEXT + K * 3 * CHUNK];
    double sum = 0;
    for (int j = 0; j < e->n; j++) {
        double d2 = 0;
        for (int c = 0; c < D; c++)
            d2 += pow((double)state[c] - (double)e->key[j][c], 2);
        z[j] = exp(-d2 / tau);
        sum += z[j];
    }
    for (int j = 0; j < e->n; j++)
        p[e->value[j]] += weight * z[j] / sum;
}

/* A running text: the mixture after each of its last ids, when the ring of the text's own past has wrapped. */
static void test_text(void) {
    enum { PAST = 60, LENGTH = 1300, PROMPT = 1200 };
    static struct world w;
    static int32_t text[LENGTH];
    static float keys[LENGTH * D], logits[LENGTH * VOCAB], mixed[VOCAB];
    static struct entries past, found;
    struct decoder_state *state;
    struct memory_text *t;
    struct rng rng = rng_make(10, 0);
    make_world(&w, false, 2, "text");
    w.memory.mixture[MEMORY_BOTH] = (struct memory_mixture){true, {25, 20}, memory_gate_fixed(MEMORY_BOTH, 0.4)};
    const struct memory_text_config config = {
        .engine = &w.engine, .memory = &w.memory, .finder = w.finder, .kind = MEMORY_BOTH, .past = PAST};
    for (int i = 0; i < LENGTH; i++)
        text[i] = (int32_t)rng_below(&rng, 70);
    plain_keys(&w, keys, logits, text, LENGTH, 1000);
    CHECK_OK(memory_text_create(&t, &config));
    CHECK_OK(decoder_state_create(&state, w.engine.decoder, NULL));
    CHECK_OK(memory_text_feed(t, state, NULL, text, 1000));
    CHECK_OK(memory_text_feed(t, state, mixed, text + 1000, PROMPT - 1000));
    for (int n = PROMPT; n < LENGTH; n++) {
        if ((n - PROMPT) % EVERY == 0) {
            struct store_hit hits[K];
            const struct lexical_query query = {text + n - MEMORY_LOOK_BACK, MEMORY_LOOK_BACK};
            CHECK_OK(lexical_search(w.lexical, hits, &query, 1,
                                    &(struct lexical_search){.k = K, .pair_weight = LEXICAL_PAIR_WEIGHT}));
            found.n = 0;
            for (int i = 0; i < K; i++)
                add_passage(&w, &found, hits[i].chunk);
        }
        past.n = 0;
        add_entries(&past, keys + (n - 1 - PAST) * D, text + n - 1 - PAST, PAST + 1);
        double p[VOCAB] = {0}, lm = 0;
        spread(&past, keys + (n - 1) * D, 25, 0.2, p); /* 0.4, shared by the two memories */
        spread(&found, keys + (n - 1) * D, 20, 0.2, p);
        for (int v = 0; v < VOCAB; v++)
            lm += exp((double)logits[(n - 1) * VOCAB + v]);
        for (int v = 0; v < VOCAB; v++) {
            double own = 0.6 * exp((double)logits[(n - 1) * VOCAB + v]) / lm;
            CHECK(fabs(exp((double)mixed[v]) - own - p[v]) <= 1e-3);
            CHECK(fabs(memory_text_share(t, v) - p[v] / (own + p[v])) <= 1e-2);
        }
        CHECK_OK(memory_text_feed(t, state, mixed, text + n, 1));
    }
    decoder_state_free(state);
    memory_text_free(t);
    free_world(&w);
}

struct stop {
    int64_t steps, limit;
};
static void count_step(void *context, const struct progress_event *e) {
    struct stop *s = context;
    CHECK(e->done >= 0 && e->done < e->total);
    s->steps++;
}
static bool stop_after(void *context) {
    const struct stop *s = context;
    return s->steps >= s->limit;
}

/* A stop request ends a window before the next group of searches, and then a whole run has the results of one without
 * progress. */
static void test_stop(void) {
    static struct world w;
    struct stop stop = {0, 2};
    const struct progress progress = {count_step, stop_after, &stop};
    struct memory_window *window;
    struct memory_lm lm;
    float log_p[CONTEXT];
    const struct memory_read wanted[2] = {{.what = MEMORY_READ_FOUND, .taus = 1, .tau = {20}},
                                          {.what = MEMORY_READ_RANDOM, .taus = 1, .tau = {20}}};
    struct memory_read reads[2] = {wanted[0], wanted[1]};
    make_world(&w, true, 1, "stop");
    struct memory_window_config config = {
        .engine = &w.engine, .memory = &w.memory, .finder = w.finder, .context = CONTEXT, .progress = &progress};
    CHECK_OK(memory_window_create(&window, &config, reads, 2));
    CHECK_FAILS(memory_window_run(window, &lm, w.text, CONTEXT, FIRST, -1), STATUS_INTERRUPTED, "stopped");
    CHECK_EQ(stop.steps, 2);
    stop = (struct stop){0, 3};
    CHECK_OK(memory_window_run(window, &lm, w.text, CONTEXT, FIRST, -1));
    CHECK_EQ(stop.steps, 2);
    memcpy(log_p, reads[1].column[0][MEMORY_LOG_P], sizeof *log_p * (CONTEXT - FIRST));
    memory_window_free(window);
    config.progress = NULL;
    memcpy(reads, wanted, sizeof reads);
    CHECK_OK(memory_window_create(&window, &config, reads, 2));
    CHECK_OK(memory_window_run(window, &lm, w.text, CONTEXT, FIRST, -1));
    CHECK(memcmp(log_p, reads[1].column[0][MEMORY_LOG_P], sizeof *log_p * (CONTEXT - FIRST)) == 0);
    memory_window_free(window);
    free_world(&w);
}

/* ---- candidates ---- */

enum { CANDIDATES = 9, GROUP = 4 };

/* Of each candidate and token the sums of exp(-d2 / tau), all of them and those of the token. */
static void check_candidates(const struct world *w, const struct memory_order_samples *s, int64_t search, int64_t at) {
    static float keys[CONTEXT * D], logits[CONTEXT * VOCAB];
    static struct entries e;
    const int64_t length = at < MEMORY_LOOK_BACK ? at : MEMORY_LOOK_BACK, row = search * CANDIDATES;
    struct store_hit hits[CANDIDATES];
    const struct lexical_query query = {w->text + at - length, (int)length};
    const struct lexical_search how = {.k = CANDIDATES, .pair_weight = LEXICAL_PAIR_WEIGHT};
    static struct { double z, right; } gives[CANDIDATES][MEMORY_ORDER_TOKENS];
    const int tokens = s->search[search].tokens, found = s->search[search].found;
    CHECK_OK(lexical_search(w->lexical, hits, &query, 1, &how));
    CHECK(found > GROUP && hits[found - 1].chunk >= 0 && (found == CANDIDATES || hits[found].chunk < 0));
    CHECK_EQ(tokens, CONTEXT - at < MEMORY_ORDER_TOKENS ? CONTEXT - at : MEMORY_ORDER_TOKENS);
    plain_keys(w, keys, logits, w->text, CONTEXT, 50);
    memset(gives, 0, sizeof gives);
    for (int i = 0; i < found; i++) {
        CHECK(s->features[(row + i) * CANDIDATE_FEATURES + CANDIDATE_SCORE] == hits[i].score);
        e.n = 0;
        add_passage(w, &e, hits[i].chunk);
        for (int64_t t = 0; t < tokens; t++)
            for (int j = 0; j < e.n; j++) {
                double d2 = 0;
                for (int c = 0; c < D; c++)
                    d2 += pow((double)keys[(at - 1 + t) * D + c] - (double)e.key[j][c], 2);
                gives[i][t].z += exp(-d2 / 20);
                gives[i][t].right += e.value[j] == w->text[at + t] ? exp(-d2 / 20) : 0;
            }
    }
    for (int64_t t = 0; t < tokens; t++) {
        double all = 0, plain = 0, sum = 0;
        for (int i = 0; i < found; i++)
            all += gives[i][t].z, plain += (double)half_from_bf16(s->z[(row + i) * MEMORY_ORDER_TOKENS + t]);
        for (int i = 0; i < found; i++) {
            const int64_t to = (row + i) * MEMORY_ORDER_TOKENS + t;
            CHECK(fabs((double)half_from_bf16(s->z[to]) / plain - gives[i][t].z / all) <
                  0.008 * gives[i][t].z / all + 1e-4);
            CHECK(fabs((double)half_from_bf16(s->right[to]) / plain - gives[i][t].right / all) <
                  0.008 * gives[i][t].right / all + 1e-4);
        }
        for (int v = 0; v < VOCAB; v++)
            sum += exp((double)logits[(at - 1 + t) * VOCAB + v]);
        const double p = exp((double)logits[(at - 1 + t) * VOCAB + w->text[at + t]]) / sum;
        CHECK(fabs((double)s->lm[search * MEMORY_ORDER_TOKENS + t] - p) < 1e-4);
        CHECK(fabs((double)s->gate[search * MEMORY_ORDER_TOKENS + t] - 0.3) < 1e-6);
    }
    for (int64_t t = tokens; t < MEMORY_ORDER_TOKENS; t++)
        CHECK(s->z[row * MEMORY_ORDER_TOKENS + t] == 0 && s->right[row * MEMORY_ORDER_TOKENS + t] == 0);
}

static void test_candidates(void) {
    static struct world w;
    struct memory_window *window;
    struct memory_order_samples s;
    struct memory_read read = {.what = MEMORY_READ_FOUND, .taus = 1, .tau = {20}};
    const int64_t at[] = {FIRST, FIRST + 70, CONTEXT - 10};
    make_world(&w, true, 1, "candidates");
    w.memory.mixture[MEMORY_CORPUS] = (struct memory_mixture){true, {20, 20}, memory_gate_fixed(MEMORY_CORPUS, 0.3)};
    const struct memory_window_config config = {.engine = &w.engine,
                                                .memory = &w.memory,
                                                .finder = w.finder,
                                                .context = CONTEXT,
                                                .candidates = CANDIDATES,
                                                .group = GROUP};
    CHECK_OK(memory_window_create(&window, &config, &read, 1));
    CHECK_OK(memory_order_samples_create(&s, 4, CANDIDATES));
    const struct memory_window_text text = {w.text, CONTEXT, FIRST, -1};
    CHECK_OK(memory_window_candidates(window, &s, &text, at, 1));
    CHECK_OK(memory_window_candidates(window, &s, &text, at + 1, 2));
    for (int i = 0; i < s.n; i++)
        check_candidates(&w, &s, i, at[i]);
    memory_order_samples_free(&s);
    memory_window_free(window);
    free_world(&w);
}

int main(void) {
    test_stop();
    test_text();
    test_window(true);
    test_window(false);
    test_small_pool();
    test_draw();
    test_deleted();
    test_candidates();
    return 0;
}
