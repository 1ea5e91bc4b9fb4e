/* test_library_session.c -- drt.h: running texts, their tokens, provenance, ends and log-probabilities. */
#include "tests/unit/library/library_memory_fixture.h"

enum { VOCAB = 271, CHUNK = 63, EOS = 268 };

static struct library_world w;

static struct drt_session *open_session(const struct drt_session_config *config) {
    struct drt_session *s = NULL;
    CALL_OK(drt_session_open(&s, w.model, config));
    return s;
}

/* The text of a document, long enough for several chunks. */
static const char *prompt(void) {
    static char text[8192];
    library_text(text, 100);
    library_text(text + strlen(text), 101);
    return text;
}

/* Log-probabilities in three ways: with alternatives, without, and id by id. */
static void scores(bool self, bool corpus) {
    const struct drt_session_config config = {.size = sizeof config, .self = self, .corpus = corpus, .store = w.store};
    struct drt_scores *top = NULL, *plain = NULL, *part = NULL;
    float next[VOCAB], sum = 0;
    const char *text = prompt();
    CALL_OK(drt_score_text(w.model, &config, text, strlen(text), 3, &top));
    CALL_OK(drt_score_ids(w.model, &config, top->ids, top->n, 0, &plain));
    CHECK(top->n > 3 * CHUNK && top->n == plain->n && top->first == 0 && top->top == 3 && !top->memory_share);
    CHECK(isnan(top->logprob[0]) && isnan(plain->logprob[0]) && top->alternatives[0].id == -1);
    CHECK_CLOSE(top->logprob + 1, plain->logprob + 1, top->n - 1, 2e-4);
    struct drt_session *s = open_session(&config);
    for (int64_t i = 0; i < top->n; i++) {
        CALL_OK(drt_session_feed_ids(s, top->ids + i, 1, &part, 3));
        CHECK(part->n == 1 && part->first == i && part->ids[0] == top->ids[i]);
        if (i > 0) CHECK_CLOSE(part->logprob, top->logprob + i, 1, 2e-4);
        if (i > 0) CHECK_CLOSE(&part->alternatives[2].logprob, &top->alternatives[3 * i + 2].logprob, 1, 2e-4);
        if (i > 0) CHECK(top->alternatives[3 * i].logprob >= top->logprob[i]);
        if (i > 0) sum += top->logprob[i];
        drt_free(part);
    }
    CHECK(fabs((double)sum - top->sum) < 0.01);
    CHECK_EQ(drt_session_tokens(s), top->n);
    CALL_OK(drt_session_logprobs(s, next));
    double whole = 0;
    for (int v = 0; v < VOCAB; v++)
        whole += exp((double)next[v]);
    CHECK(fabs(whole - 1) < 1e-4);
    drt_session_close(s);
    drt_free(top);
    drt_free(plain);
}

static void check_neighbours(const struct drt_token *t, bool self, bool corpus) {
    double sum = 0;
    bool read = (self || corpus) && t->position > CHUNK + (corpus ? 0 : CHUNK);
    CHECK((t->n_neighbours > 0) == read);
    for (int i = 0; i < t->n_neighbours; i++) {
        const struct drt_neighbour *n = &t->neighbours[i];
        CHECK(n->source == DRT_SOURCE_SELF ? self : corpus);
        CHECK(n->group == 0 && n->weight >= 0 && n->weight <= 1);
        sum += (double)n->weight;
        if (n->source == DRT_SOURCE_SELF) {
            CHECK(n->document == -1 && n->token_offset == n->chunk * CHUNK && n->token_offset + CHUNK < t->position);
            continue;
        }
        struct drt_chunk c;
        CALL_OK(drt_store_chunks(w.store, &c, NULL, NULL, &n->chunk, 1));
        CHECK(c.document == n->document && c.token_offset == n->token_offset && c.document != 3);
    }
    CHECK(t->n_neighbours == 0 || fabs(sum - 1) < 1e-3);
}

struct kept {
    char text[8192];
    size_t bytes;
    int n;
    int32_t ids[256];
    float logprob[256];
    int stop_after;
};
static bool keep(void *context, const struct drt_token *t) {
    struct kept *k = context;
    CHECK(t->size == sizeof *t);
    memcpy(k->text + k->bytes, t->text, t->bytes);
    k->bytes += t->bytes;
    k->logprob[k->n] = t->logprob;
    k->ids[k->n++] = t->id;
    return k->n == k->stop_after;
}

/* Token by token and by callback. The generated ids, fed again, have the log-probabilities that were reported with
 * them. */
static void generates(bool self, bool corpus) {
    struct drt_session_config config = {.size = sizeof config,
                                        .self = self,
                                        .corpus = corpus,
                                        .store = w.store,
                                        .exclude = true,
                                        .exclude_document = 3,
                                        .temperature = 1,
                                        .seed = 11,
                                        .max_tokens = 200,
                                        .ignore_eos = true,
                                        .top = 2};
    static struct kept kept;
    struct drt_token t = {.size = sizeof t};
    struct drt_scores *again = NULL;
    struct drt_session_info info = {.size = sizeof info};
    enum drt_end end = DRT_END_NONE;
    const char *text = "Document 3. the river and the stone";
    struct drt_session *s = open_session(&config);
    CALL_OK(drt_session_feed(s, text, strlen(text), NULL, 0));
    const int64_t prompt_tokens = drt_session_tokens(s);
    memset(&kept, 0, sizeof kept);
    do {
        CALL_OK(drt_session_next(s, &t));
        CHECK(t.position == prompt_tokens + kept.n && t.n_alternatives == 2 && t.raw_bytes > 0);
        CHECK(t.alternatives[0].logprob >= t.alternatives[1].logprob && t.alternatives[0].logprob >= t.logprob);
        check_neighbours(&t, self, corpus);
        keep(&kept,
             &(struct drt_token){.size = sizeof t, .id = t.id, .text = t.text, .bytes = t.bytes, .logprob = t.logprob});
    } while (t.end == DRT_END_NONE);
    CHECK(kept.n == 200 && t.end == DRT_END_LENGTH);
    CALL_FAILS(drt_session_next(s, &t), DRT_INVALID, "ended");
    CALL_OK(drt_session_info(s, &info));
    CHECK(info.tokens == prompt_tokens + 200 && info.seconds > 0 && (info.queries > 0) == (self || corpus));
    CHECK((info.searched_by[0] != 0) == corpus);
    static struct kept called;
    memset(&called, 0, sizeof called);
    CALL_OK(drt_session_reset(s, 11));
    CHECK_EQ(drt_session_tokens(s), 0);
    CALL_OK(drt_session_feed(s, text, strlen(text), NULL, 0));
    CALL_OK(drt_session_generate(s, keep, &called, &end));
    CHECK(end == DRT_END_LENGTH && called.n == 200 && memcmp(called.ids, kept.ids, sizeof kept.ids) == 0);
    CHECK(called.bytes == kept.bytes && memcmp(called.text, kept.text, kept.bytes) == 0);
    CALL_OK(drt_session_reset(s, 12));
    CALL_OK(drt_session_feed(s, text, strlen(text), NULL, 0));
    CALL_OK(drt_session_feed_ids(s, kept.ids, kept.n, &again, 0));
    CHECK_CLOSE(again->logprob, kept.logprob, kept.n, 3e-4);
    drt_free(again);
    memset(&called, 0, sizeof called);
    called.stop_after = 5;
    CALL_OK(drt_session_generate(s, keep, &called, &end));
    CHECK(end == DRT_END_CALLBACK && called.n == 5);
    CALL_OK(drt_session_generate(s, keep, &called, NULL)); /* the rest */
    CHECK_EQ(called.n, 200);
    CALL_OK(drt_session_feed_ids(s, NULL, 0, NULL, 0)); /* no new limit: as many tokens again */
    CALL_OK(drt_session_next(s, &t));
    drt_session_close(s);
}

static bool refuse(void *context) {
    return ++*(int *)context > 3;
}

static void ends(void) {
    static struct kept kept;
    int called = 0;
    char stop[4] = "";
    const char *const stops[] = {stop};
    struct drt_session_config config = {
        .size = sizeof config, .temperature = 1000, .seed = 3, .max_tokens = 100, .ignore_eos = true};
    enum drt_end end = DRT_END_NONE;
    struct drt_session *s = open_session(&config);
    CALL_OK(drt_session_feed(s, "", 0, NULL, 0)); /* the eos_id */
    CHECK_EQ(drt_session_tokens(s), 1);
    CALL_OK(drt_session_generate(s, keep, &kept, &end));
    drt_session_close(s);
    CHECK(kept.bytes > 20);
    snprintf(stop, sizeof stop, "%.3s", kept.text + kept.bytes / 2);
    const size_t where = (size_t)(strstr(kept.text, stop) - kept.text);
    CHECK(where > 0);
    static struct kept stopped;
    config.stops = stops, config.n_stops = 1;
    s = open_session(&config);
    CALL_OK(drt_session_feed(s, "", 0, NULL, 0));
    CALL_OK(drt_session_generate(s, keep, &stopped, &end));
    CHECK(end == DRT_END_STOP && stopped.bytes == where && memcmp(stopped.text, kept.text, where) == 0);
    drt_session_close(s);
    config = (struct drt_session_config){.size = sizeof config, .temperature = 1000, .seed = 1};
    s = open_session(&config); /* uniform over 269 ids, eos among them */
    struct drt_token t = {.size = sizeof t};
    CALL_OK(drt_session_feed(s, "x", 1, NULL, 0));
    do
        CALL_OK(drt_session_next(s, &t));
    while (t.end == DRT_END_NONE);
    CHECK(t.end == DRT_END_EOS && t.id == EOS && drt_session_tokens(s) < 5000);
    drt_session_close(s);
    config.progress = (struct drt_progress){.stop = refuse, .context = &called};
    s = open_session(&config);
    CALL_OK(drt_session_feed(s, "x", 1, NULL, 0));
    enum drt_status status = DRT_OK;
    for (int i = 0; i < 10 && status == DRT_OK; i++)
        status = drt_session_next(s, &t);
    CHECK(status == DRT_INTERRUPTED && strstr(drt_message(), "stopped"));
    drt_session_close(s);
}

/* After n tokens, the shown text and the text of drt_session_stop are the beginning of the whole text. A last character
 * that is cut is U+FFFD. */
static size_t check_stopped(struct drt_session *s, int n, const struct kept *whole) {
    static struct kept part;
    struct drt_token t = {.size = sizeof t};
    const char *rest = NULL;
    size_t bytes = 0;
    memset(&part, 0, sizeof part);
    CALL_OK(drt_session_reset(s, 3));
    CALL_OK(drt_session_feed(s, "", 0, NULL, 0));
    for (int i = 0; i < n; i++) {
        CALL_OK(drt_session_next(s, &t));
        keep(&part, &t);
    }
    CALL_OK(drt_session_stop(s, &rest, &bytes));
    CHECK(part.bytes + bytes < sizeof part.text);
    memcpy(part.text + part.bytes, rest, bytes);
    part.bytes += bytes;
    const bool cut = part.bytes >= 3 && memcmp(part.text + part.bytes - 3, "\xEF\xBF\xBD", 3) == 0;
    CHECK(memcmp(part.text, whole->text, part.bytes - (cut ? 3 : 0)) == 0);
    CALL_FAILS(drt_session_next(s, &t), DRT_INVALID, "ended");
    return cut ? 0 : bytes;
}

static void stops_early(void) {
    static struct kept whole;
    struct drt_session_config config = {
        .size = sizeof config, .temperature = 1000, .seed = 3, .max_tokens = 40, .ignore_eos = true};
    struct drt_session *s = open_session(&config);
    CALL_OK(drt_session_feed(s, "", 0, NULL, 0));
    CALL_OK(drt_session_generate(s, keep, &whole, NULL));
    drt_session_close(s);
    /* Stop strings that never occur; each character that may begin one is held back. */
    static char never[95][8];
    const char *stops[95];
    for (int i = 0; i < 95; i++) {
        snprintf(never[i], sizeof never[i], "%c\001\002", ' ' + i);
        stops[i] = never[i];
    }
    config.stops = stops, config.n_stops = 95;
    s = open_session(&config);
    size_t held = 0;
    for (int n = 0; n < 40; n++)
        held += check_stopped(s, n, &whole);
    CHECK(held > 0);
    CALL_OK(drt_session_feed(s, "more", 4, NULL, 0));
    CALL_OK(drt_session_next(s, &(struct drt_token){.size = sizeof(struct drt_token)}));
    CALL_OK(drt_session_stop(s, NULL, NULL));
    CALL_FAILS(drt_session_stop(s, &(const char *){NULL}, NULL), DRT_INVALID, "both");
    CALL_FAILS(drt_session_stop(NULL, NULL, NULL), DRT_INVALID, "NULL");
    drt_session_close(s);
}

/* The ids of a session that was opened so, or renewed so. `offsets`: whether a neighbour began within a chunk. */
static void generated(struct kept *out, bool *offsets, struct drt_session *s) {
    struct drt_token t = {.size = sizeof t};
    char text[4096];
    memset(out, 0, sizeof *out);
    *offsets = false;
    library_text(text, 5);
    CALL_OK(drt_session_feed(s, text, strlen(text), NULL, 0));
    do {
        CALL_OK(drt_session_next(s, &t));
        for (int i = 0; i < t.n_neighbours; i++)
            *offsets = *offsets || t.neighbours[i].token_offset % CHUNK != 0;
        keep(out, &t);
    } while (t.end == DRT_END_NONE);
}

/* Passages that overlap what they continue begin within a chunk; a session that is renewed reads them as a new one
 * does, and no longer once its config has none. */
static void overlaps(bool corpus) {
    struct drt_session_config plain = {.size = sizeof plain,
                                       .self = !corpus,
                                       .corpus = corpus,
                                       .store = corpus ? w.store : NULL,
                                       .ignore_eos = true,
                                       .max_tokens = 60};
    struct drt_session_config with = plain;
    static struct kept first, second;
    bool offsets;
    with.continuation = 1, with.overlap = 31;
    struct drt_session *s = open_session(&with);
    generated(&first, &offsets, s);
    CHECK(offsets);
    CALL_OK(drt_session_renew(s, &plain));
    generated(&second, &offsets, s);
    CHECK(!offsets);
    CALL_OK(drt_session_renew(s, &with));
    generated(&second, &offsets, s);
    CHECK(offsets && second.n == first.n && memcmp(second.ids, first.ids, sizeof first.ids) == 0);
    drt_session_close(s);
}

static void configurations(void) {
    struct drt_session *s = NULL;
    struct drt_searcher *searcher = NULL;
    const char *const stops[] = {""};
    struct drt_session_config c = {.size = sizeof c, .corpus = true};
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "needs a store");
    c.corpus = false, c.top = 65;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "top 65");
    c.top = 0, c.max_tokens = -1;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "max_tokens");
    c.max_tokens = 0, c.skip = -1;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "skip -1");
    c.skip = 0, c.n_stops = 1;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "stops is NULL");
    c.stops = stops;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "stops[0]");
    c.n_stops = 0, c.temperature = -1;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "temperature");
    c.temperature = 0, c.memory = DRT_MEMORY_OWN, c.self = true;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "without self");
    c.self = false;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_NOT_FOUND, "memory.json");
    c.memory = DRT_MEMORY_NONE, c.continuation = 1;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "set corpus");
    c.continuation = -1;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "continuation -1");
    c = (struct drt_session_config){.size = sizeof c, .self = true, .overlap = 1};
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "set continuation");
    c.continuation = 1, c.overlap = 0;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "set corpus, or overlap");
    c.overlap = CHUNK;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "must be 0 to 62");
    c.overlap = -1;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "overlap -1");
    c = (struct drt_session_config){.size = sizeof c, .corpus = true, .store = w.store, .exclude = true};
    c.exclude_document = 1 << 20;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_NOT_FOUND, "exclude_document 1048576: there is no such document");
    c.exclude_document = -1;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_NOT_FOUND, "exclude_document -1");
    c = (struct drt_session_config){.size = sizeof c, .self = true};
    c.overlap = 0, c.continuation = 0, c.query_tokens = 129;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "must be 0 to 128");
    c.query_tokens = 8, c.corpus = true, c.store = w.store; /* its searcher would be one of landmarks */
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "by words");
    c = (struct drt_session_config){.size = sizeof c};
    c.memory = DRT_MEMORY_OWN, c.continuation = 0, c.memory_past = -1;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "memory_past");
    c.memory_past = 0, c.memory_keys = (enum drt_memory_keys)4;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "memory_keys 4");
    c.memory_keys = DRT_MEMORY_KEYS_AUTO, c.memory_k = 2;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "of a memory of the corpus");
    c.memory_k = 0, c.memory_every = 1025;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "memory_every 1025: must be 0 to");
    c.memory_every = 0;
    c.memory = (enum drt_memory)7;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "memory 7");
    c = (struct drt_session_config){.size = sizeof c};
    CALL_FAILS(drt_session_open(NULL, w.model, &c), DRT_INVALID, "out is NULL");
    CALL_FAILS(drt_session_open(&s, NULL, &c), DRT_INVALID, "model is NULL");
    CALL_OK(drt_searcher_open(&searcher, w.store, NULL, NULL));
    c.searcher = searcher, c.store = w.store;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "set corpus");
    c.corpus = true;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "another store or model");
    c.corpus = false, c.memory = DRT_MEMORY_OWN;
    CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "set corpus or memory");
    drt_searcher_close(searcher);
}

static void failures(void) {
    const int32_t wrong[] = {VOCAB};
    struct drt_scores *scores = NULL;
    struct drt_token t = {.size = sizeof t};
    float logprobs[VOCAB];
    struct drt_session *s = open_session(NULL);
    CALL_FAILS(drt_session_next(s, &t), DRT_INVALID, "empty");
    CALL_FAILS(drt_session_logprobs(s, logprobs), DRT_INVALID, "empty");
    CALL_FAILS(drt_session_feed_ids(s, wrong, 1, NULL, 0), DRT_INVALID, "271");
    CALL_FAILS(drt_session_feed_ids(s, NULL, 1, NULL, 0), DRT_INVALID, "ids is NULL");
    CALL_FAILS(drt_session_feed_ids(s, wrong, -1, NULL, 0), DRT_INVALID, "-1");
    CALL_FAILS(drt_session_feed_ids(NULL, wrong, 1, NULL, 0), DRT_INVALID, "session is NULL");
    CALL_FAILS(drt_session_feed(s, NULL, 1, NULL, 0), DRT_INVALID, "text is NULL");
    CALL_FAILS(drt_session_feed(s, "x", 1, &scores, 65), DRT_INVALID, "top is 65");
    CALL_FAILS(drt_session_feed(NULL, "x", 1, NULL, 0), DRT_INVALID, "session is NULL");
    CALL_FAILS(drt_session_next(s, NULL), DRT_INVALID, "out is NULL");
    CALL_FAILS(drt_session_next(s, &(struct drt_token){0}), DRT_INVALID, "size");
    CALL_FAILS(drt_session_next(NULL, &t), DRT_INVALID, "session is NULL");
    CALL_FAILS(drt_session_logprobs(s, NULL), DRT_INVALID, "logprobs is NULL");
    CALL_FAILS(drt_session_generate(s, NULL, NULL, NULL), DRT_INVALID, "on_token is NULL");
    CALL_FAILS(drt_session_reset(NULL, 0), DRT_INVALID, "session is NULL");
    CALL_FAILS(drt_session_info(NULL, NULL), DRT_INVALID, "session is NULL");
    CALL_FAILS(drt_session_info(s, NULL), DRT_INVALID, "out is NULL");
    CALL_FAILS(drt_score_text(w.model, NULL, "x", 1, 0, NULL), DRT_INVALID, "scores is NULL");
    CALL_FAILS(drt_score_ids(w.model, NULL, wrong, 1, 0, &scores), DRT_INVALID, "271");
    CALL_OK(drt_session_feed(s, "x", 1, NULL, 0)); /* an invalid call leaves a session as it was */
    CALL_OK(drt_session_next(s, &t));
    CHECK_EQ(drt_session_tokens(NULL), 0);
    drt_session_close(s);
    drt_session_close(NULL);
}

static void check_contributors(const struct drt_token *t, const int32_t *ids) {
    double sum = 0;
    for (int i = 0; i < t->n_neighbours; i++) {
        const struct drt_neighbour *n = &t->neighbours[i];
        CHECK(n->group == -1 && n->weight > 0 && (i == 0 || n->weight <= n[-1].weight));
        sum += (double)n->weight;
        if (n->source == DRT_SOURCE_SELF) {
            CHECK(n->document == -1 && n->token_offset < t->position && n->chunk == n->token_offset / CHUNK);
            CHECK_EQ(ids[n->token_offset], t->id);
        } else {
            CHECK(n->document >= 0 && n->document < LIBRARY_DOCUMENTS && n->chunk >= 0 && n->token_offset >= 0);
        }
    }
    CHECK(sum <= (double)t->memory_share + 1e-5);
    CHECK(t->memory_share == 0 || t->n_neighbours > 0);
}

/* Each token names the entries of the token memory that gave it. */
static void contributors(enum drt_memory memory) {
    const struct drt_session_config c = {.size = sizeof c,
                                         .memory = memory,
                                         .memory_config = library_memory_file(&w),
                                         .store = memory == DRT_MEMORY_OWN ? NULL : w.store,
                                         .temperature = 1,
                                         .seed = 5,
                                         .ignore_eos = true};
    struct drt_scores *scores = NULL;
    struct drt_session *s = open_session(&c);
    int32_t ids[4096];
    int given = 0, corpus = 0;
    CALL_OK(drt_score_text(w.model, NULL, prompt(), strlen(prompt()), 0, &scores));
    int64_t n = scores->n;
    CHECK(n + 200 < 4096);
    memcpy(ids, scores->ids, (size_t)n * sizeof *ids);
    drt_free(scores);
    CALL_OK(drt_session_feed_ids(s, ids, n, NULL, 0));
    for (int i = 0; i < 150; i++) {
        struct drt_token t = {.size = sizeof t};
        CALL_OK(drt_session_next(s, &t));
        CHECK_EQ(t.position, n);
        check_contributors(&t, ids);
        given += t.n_neighbours > 0;
        for (int j = 0; j < t.n_neighbours; j++)
            corpus += t.neighbours[j].source == DRT_SOURCE_CORPUS;
        ids[n++] = t.id;
    }
    CHECK(given > 50);
    CHECK((corpus > 0) == (memory != DRT_MEMORY_OWN));
    drt_session_close(s);
}

/* A memory of the corpus with the caller's searcher: by words it equals the default, with both lists merged it works,
 * and it is refused if the gate was not fitted for its scores. */
static void memory_searchers(void) {
    static const enum drt_search_kind kinds[] = {DRT_SEARCH_LEXICAL, DRT_SEARCH_HYBRID, DRT_SEARCH_AUTO};
    struct drt_session_config c = {.size = sizeof c,
                                   .memory = DRT_MEMORY_CORPUS,
                                   .memory_config = library_memory_file(&w),
                                   .store = w.store,
                                   .ignore_eos = true};
    struct drt_session_info info = {.size = sizeof info};
    float without[VOCAB], with[VOCAB];
    struct drt_session *s = open_session(&c);
    CALL_OK(drt_session_feed(s, prompt(), strlen(prompt()), NULL, 0));
    CALL_OK(drt_session_logprobs(s, without));
    CALL_OK(drt_session_info(s, &info));
    CHECK(strstr(info.searched_by, "lexical") == info.searched_by);
    drt_session_close(s);
    for (int kind = 0; kind < 3; kind++) {
        const struct drt_searcher_config how = {.size = sizeof how, .kind = kinds[kind]};
        struct drt_searcher *searcher = NULL;
        CALL_OK(drt_searcher_open(&searcher, w.store, w.model, &how));
        c.searcher = searcher;
        if (kinds[kind] == DRT_SEARCH_AUTO) {
            CALL_FAILS(drt_session_open(&s, w.model, &c), DRT_INVALID, "the scores of a lexical search");
        } else {
            s = open_session(&c);
            CALL_OK(drt_session_feed(s, prompt(), strlen(prompt()), NULL, 0));
            CALL_OK(drt_session_logprobs(s, with));
            CALL_OK(drt_session_info(s, &info));
            CHECK((strstr(info.searched_by, "hybrid") != NULL) == (kinds[kind] == DRT_SEARCH_HYBRID));
            if (kinds[kind] == DRT_SEARCH_LEXICAL) CHECK(memcmp(with, without, sizeof with) == 0);
            drt_session_close(s);
        }
        drt_searcher_close(searcher);
    }
}

static void logprobs_of(float out[VOCAB], const struct drt_session_config *c) {
    struct drt_session *s = open_session(c);
    CALL_OK(drt_session_feed(s, prompt(), strlen(prompt()), NULL, 0));
    CALL_OK(drt_session_logprobs(s, out));
    drt_session_close(s);
}

/* memory_k and memory_every are as if they were in the file. */
static void memory_settings(void) {
    const char *file = library_memory_file(&w);
    static struct memory_config changed;
    char path[700];
    float with[VOCAB], without[VOCAB], wanted[VOCAB];
    struct drt_session_config c = {
        .size = sizeof c, .memory = DRT_MEMORY_CORPUS, .memory_config = file, .store = w.store, .skip = 1};
    logprobs_of(without, &c);
    CHECK_OK(memory_config_load(&changed, file));
    changed.k = 1, changed.every = 5;
    snprintf(path, sizeof path, "%s/memory-changed.json", test_folder());
    CHECK_OK(memory_config_save(&changed, path));
    c.memory_k = 1, c.memory_every = 5;
    logprobs_of(with, &c);
    c.memory_k = 0, c.memory_every = 0, c.memory_config = path;
    logprobs_of(wanted, &c);
    CHECK(memcmp(with, wanted, sizeof with) == 0 && memcmp(with, without, sizeof with) != 0);
}

/* Two sessions on one searcher; both keep the handles that they use open. */
static void lifetimes(void) {
    struct drt_searcher *searcher = NULL;
    struct drt_session *s[2];
    struct drt_token t = {.size = sizeof t};
    CALL_OK(drt_searcher_open(&searcher, w.store, w.model, NULL));
    const struct drt_session_config c = {.size = sizeof c, .corpus = true, .searcher = searcher};
    for (int i = 0; i < 2; i++)
        s[i] = open_session(&c);
    drt_searcher_close(searcher);
    library_world_close(&w);
    for (int i = 0; i < 2; i++)
        CALL_OK(drt_session_feed(s[i], prompt(), strlen(prompt()), NULL, 0));
    int32_t first = -1;
    for (int i = 0; i < 2; i++) {
        CALL_OK(drt_session_next(s[i], &t));
        CHECK(t.n_neighbours == 4 && (i == 0 || t.id == first));
        first = t.id;
        drt_session_close(s[i]);
    }
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    library_world_open(&w);
    for (int mode = 0; mode < 4; mode++) {
        scores(mode & 1, mode & 2);
        generates(mode & 1, mode & 2);
    }
    ends();
    stops_early();
    overlaps(false);
    overlaps(true);
    configurations();
    memory_searchers();
    memory_settings();
    for (int memory = DRT_MEMORY_OWN; memory <= DRT_MEMORY_BOTH; memory++)
        contributors((enum drt_memory)memory);
    failures();
    lifetimes();
    return test_done();
}
