/* test_library_threads.c -- drt.h from several threads: each gets the results of a single thread. ./check runs it under
 * ThreadSanitizer. */
#include "base/system/threads.h"
#include "tests/library_fixture.h"
#include <stdatomic.h>

enum { THREADS = 4, ROUNDS = 3, TOKENS = 12, K = 5, DIM = 32, OPENS = 1500 };

static struct library_world w;

struct answer {
    int32_t ids[TOKENS];
    float logprob[TOKENS];
    struct drt_hit hits[K];
    size_t n_ids;
    int64_t sample[K], document;
};
struct task {
    struct drt_model *model;
    struct drt_store *store;
    struct drt_searcher *searcher;
    struct answer answer;
};

static void generate(struct task *t, struct answer *a) {
    const struct drt_session_config config = {.size = sizeof config,
                                              .corpus = true,
                                              .self = true,
                                              .searcher = t->searcher,
                                              .temperature = 1,
                                              .seed = 5,
                                              .ignore_eos = true};
    struct drt_session *s = NULL;
    struct drt_token token = {.size = sizeof token};
    char text[4096];
    library_text(text, 9);
    CALL_OK(drt_session_open(&s, t->model, &config));
    CALL_OK(drt_session_feed(s, text, 300, NULL, 0));
    for (int i = 0; i < TOKENS; i++) {
        CALL_OK(drt_session_next(s, &token));
        a->ids[i] = token.id;
        a->logprob[i] = token.logprob;
    }
    drt_session_close(s);
}

static void work(struct task *t, struct answer *a) {
    static const char *const texts[] = {"the river and the stone"};
    struct drt_tokenizer *tokenizer = drt_model_tokenizer(t->model);
    struct drt_search how = {.size = sizeof how, .k = K};
    struct drt_document *d = NULL;
    char text[4096], *decoded = NULL;
    int32_t *ids = NULL;
    size_t bytes = 0;
    memset(a, 0, sizeof *a);
    library_text(text, 12);
    CALL_OK(drt_tokenizer_encode(tokenizer, &ids, &a->n_ids, text, strlen(text), false));
    CALL_OK(drt_tokenizer_decode(tokenizer, &decoded, &bytes, ids, a->n_ids, false));
    CHECK_STR(decoded, text);
    drt_free(decoded);
    drt_free(ids);
    CALL_OK(drt_search_texts(t->searcher, a->hits, texts, NULL, 1, &how));
    CALL_OK(drt_store_sample(t->store, a->sample, K, 3));
    CALL_OK(drt_store_chunk_text(t->store, tokenizer, &decoded, &bytes, a->sample[0]));
    drt_free(decoded);
    CALL_OK(drt_store_document(t->store, &d, 5));
    a->document = d->first_chunk;
    drt_free(d);
    generate(t, a);
}

static void *thread_body(void *context) {
    struct task *t = context;
    struct answer again;
    work(t, &t->answer);
    for (int i = 1; i < ROUNDS; i++) {
        work(t, &again);
        CHECK(memcmp(&again, &t->answer, sizeof again) == 0);
    }
    return NULL;
}

static void threads_run(struct task tasks[THREADS], const struct answer *alone) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(threads_start(&threads[i], thread_body, &tasks[i]));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        CHECK(memcmp(&tasks[i].answer, alone, sizeof *alone) == 0);
}

static atomic_int opened, opens;

/* A process has a store open once: of several threads that open it at the same time one does, and the others are
 * refused. */
static void *opener(void *context) {
    (void)context;
    for (int i = 0; i < OPENS; i++) {
        struct drt_store *s = NULL;
        int64_t chunk;
        const enum drt_status status = drt_store_open(&s, w.store_path);
        if (status == DRT_BUSY) continue;
        CHECK_EQ(status, DRT_OK);
        CHECK_EQ(atomic_fetch_add(&opened, 1), 0);
        CALL_OK(drt_store_sample(s, &chunk, 1, 1));
        atomic_fetch_add(&opens, 1);
        atomic_fetch_sub(&opened, 1);
        drt_store_close(s);
    }
    return NULL;
}

static void open_once(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(threads_start(&threads[i], opener, NULL));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(opens > 0);
}

int main(int argc, char **argv) {
    struct task tasks[THREADS] = {0}, one = {0};
    const struct drt_model_config config = {.size = sizeof config, .device = "cpu", .threads = 2};
    test_start(argc, argv, 1);
    library_world_open(&w);
    one.model = w.model, one.store = w.store;
    CALL_OK(drt_searcher_open(&one.searcher, w.store, w.model, NULL));
    work(&one, &one.answer);
    for (int i = 0; i < THREADS; i++)
        tasks[i] = one; /* all threads share one of each */
    threads_run(tasks, &one.answer);
    for (int i = 0; i < THREADS; i++) { /* each thread has its own, with shared weights and one directory */
        CALL_OK(drt_model_share(&tasks[i].model, w.model, &config));
        CALL_OK(drt_store_view(&tasks[i].store, w.store));
        CALL_OK(drt_searcher_open(&tasks[i].searcher, tasks[i].store, tasks[i].model, NULL));
    }
    drt_searcher_close(one.searcher);
    library_world_close(&w);
    threads_run(tasks, &one.answer);
    for (int i = 0; i < THREADS; i++) {
        drt_model_close(tasks[i].model);
        drt_store_close(tasks[i].store);
        drt_searcher_close(tasks[i].searcher);
    }
    open_once();
    return test_done();
}
