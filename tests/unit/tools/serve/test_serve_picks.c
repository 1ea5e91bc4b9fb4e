/* test_serve_picks.c -- drt-serve's threads as on a GPU, without one: a CPU device that acts as if its memory were its
 * own, with the decoding kernels as plain loops. Sessions are warmed, used again and batched with a pass queued ahead;
 * first ids join a batch, and batches read short prompts. Under load each answer is that of the idle server: streams
 * and whole answers, greedy and sampled, of any length, with stop strings, several prompts, own past, clients that
 * leave. */
#include "base/clock.h"
#include "library/library_internal.h"
#include "tests/model_fixture.h"
#include "tools/serve/serve_connections.h"
#include "tools/serve/serve_http.h"
#include "tools/serve/serve_job.h"

#include <time.h>

enum { HIDDEN = 64, FFN = 96, KEYS = 80, LAYERS = 8, VOCAB = 271, REQUESTS = 40, ANSWER = 4096 };
#include "tests/ref/plain_decode.inc"

static const char *make_model(void) {
    static char folder[600], path[700];
    snprintf(folder, sizeof folder, "%s/model", test_folder());
    snprintf(path, sizeof path, "%s/config.json", folder);
    CHECK(mkdir(folder, 0777) == 0);
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    fprintf(f,
            "{\"vocab_size\": %d, \"hidden_size\": %d, \"intermediate_size\": %d, \"num_attention_heads\": 1, "
            "\"decoder_layers\": [2, 2], \"encoder_layers\": 1, \"enc_chunk_size\": 63, \"chunk_topk\": 2, "
            "\"chunk_id\": 270, \"encoder_input\": \"tokens\", \"pad_id\": 269, \"eos_id\": 268, "
            "\"slide_window\": 64, \"rms_norm_eps\": 1e-5}\n",
            VOCAB, HIDDEN, FFN);
    CHECK(fclose(f) == 0);
    model_fixture_copy(folder, "tokenizer.json");
    model_fixture_weights(folder, 3);
    return folder;
}

/* The server's model on a device that does not share its memory. */
static void as_on_a_gpu(struct serve *serve) {
    struct engine *e = &serve->model.model->engine;
    decoder_free(e->decoder);
    encoder_free(e->encoder);
    e->device->shares_memory = false;
    CHECK_OK(decoder_create(&e->decoder, e->device, &e->model.config, &e->weights, 0));
    CHECK_OK(encoder_create(&e->encoder, e->device, &e->model.config, &e->weights, 8));
    serve->model.info.device = "cuda";
}

static struct serve *start(void) {
    struct serve *serve = calloc(1, sizeof *serve);
    CHECK(serve);
    serve->options = (struct serve_options){.model = make_model(),
                                            .device = "cpu",
                                            .dtype = "f32",
                                            .retrieval = "none",
                                            .threads = 2,
                                            .sessions = 12,
                                            .batch = 9,
                                            .queue = REQUESTS,
                                            .prefill_chunks = 1,
                                            .request_seconds = 200,
                                            .max_body = 1 << 16};
    serve->limits = (struct request_limits){.max_tokens = 200, .max_prompt_tokens = 300, .max_prompts = 3};
    CHECK_OK(metrics_create(&serve->metrics));
    CHECK_OK(serve_model_open(&serve->model, &serve->options));
    serve->limits.vocab_size = serve->model.info.vocab_size;
    as_on_a_gpu(serve);
    CHECK_OK(serve_sessions_create(&serve->sessions, serve->options.sessions, true));
    serve_warm(serve);
    CHECK_EQ(serve->sessions.n, serve->options.sessions);
    CHECK_OK(serve_queue_create(&serve->queue, serve));
    return serve;
}

static void stop(struct serve *serve) {
    serve_queue_free(serve->queue);
    CHECK_EQ(serve->sessions.n, serve->options.sessions); /* each was given back */
    serve_sessions_free(&serve->sessions);
    serve->model.model->engine.device->shares_memory = true; /* as when its weights were opened */
    serve_model_close(&serve->model);
    metrics_free(serve->metrics);
    free(serve);
}

/* Request i. */
static struct exchange *submit(struct serve *serve, int i) {
    static const char words[] =
        "the river and the stone winding north other sand ring on table under seven lights of a";
    const struct exchange_head head = {.method = "POST", .path = "/v1/completions", .host = "127.0.0.1"};
    char body[1024];
    struct exchange *e = NULL;
    const int from = i * 5 % 30, length = 1 + i * 11 % 50;
    const int n = snprintf(
        body, sizeof body,
        "{\"prompt\": [\"%.*s\"%s], \"max_tokens\": %d, \"temperature\": %s, \"top_p\": 0.9, \"seed\": %d, "
        "\"repetition_penalty\": %s, \"ignore_eos\": %s, \"stop\": [\"%s\"], \"stream\": %s, "
        "%s\"retrieval\": {\"source\": \"%s\"}}",
        length, words + from, i % 9 == 4 ? ", \"a second prompt\"" : "", 1 + i * 17 % 150, i % 3 == 0 ? "0" : "0.9", i,
        i % 4 == 3 ? "1.2" : "1", i % 2 ? "true" : "false", i % 6 == 5 ? "q" : "never to be found",
        i % 2 ? "true" : "false", i % 5 == 0 ? "\"logprobs\": 2, " : "", i % 7 == 3 ? "self" : "none");
    CHECK(n > 0 && n < (int)sizeof body);
    CHECK_OK(exchange_create(&e, serve, &head));
    CHECK(exchange_body(e, body, (size_t)n));
    exchange_run(e);
    if (!e->job) fprintf(stderr, "%.*s\n%s\n", (int)e->reply.bytes, e->reply.data, body);
    CHECK(e->job != NULL);
    return e;
}

/* The texts of all choices, as JSON writes them, joined. */
static void take(struct exchange *e, char *answer) {
    const struct timespec pause = {.tv_nsec = 200 * 1000};
    const double until = clock_seconds() + 100;
    size_t bytes = 0;
    for (bool finished = false; !finished;) {
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
        CHECK(clock_seconds() < until);
        pthread_mutex_lock(&e->job->lock);
        finished = e->job->finished;
        pthread_mutex_unlock(&e->job->lock);
    }
    CHECK_EQ(e->job->status, 200);
    CHECK_OK(reply_add(&e->job->out, "", 1));
    answer[0] = '\0';
    for (const char *at = e->job->out.data; (at = strstr(at, "\"text\":\"")) != NULL;) {
        at += 8;
        for (; *at != '"'; at++) {
            CHECK(*at && bytes + 3 < ANSWER);
            if (*at == '\\') answer[bytes++] = *at++;
            answer[bytes++] = *at;
        }
        answer[bytes] = '\0';
    }
    CHECK(!e->job->streams || strstr(e->job->out.data, "data: [DONE]\n\n"));
    exchange_free(e, "test", true);
}

int main(int argc, char **argv) {
    static char idle[REQUESTS][ANSWER], loaded[ANSWER];
    struct exchange *all[REQUESTS];
    test_start(argc, argv, 1);
    struct serve *serve = start();
    for (int i = 0; i < REQUESTS; i++)
        take(submit(serve, i), idle[i]);
    const int64_t passes = plain_passes;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < REQUESTS; i++) {
            all[i] = submit(serve, i);
            if (i % 10 == 9) (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = 5000000}, NULL);
        }
        struct exchange *leaves = NULL;
        for (int i = 0; i < REQUESTS; i++) {
            take(all[i], loaded);
            if (strcmp(loaded, idle[i]) != 0) {
                fprintf(stderr, "request %d:\n%s\ninstead of\n%s\n", i, loaded, idle[i]);
                CHECK(false);
            }
            if (i == REQUESTS / 2) leaves = submit(serve, 13);
            if (!leaves || i != REQUESTS / 2 + 2) continue;
            atomic_store(&leaves->job->cancelled, true);
            exchange_free(leaves, "test", false);
            leaves = NULL;
        }
    }
    CHECK(plain_passes - passes > 200);
    stop(serve);
    return test_done();
}
