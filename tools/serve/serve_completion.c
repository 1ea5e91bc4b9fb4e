/* serve_completion.c -- computes a completion in steps: a pass of a prompt, or one token. The answer to a request does
 * not depend on other requests: each prompt has its own session, and its passes always have the same ids.
 *
 * The computing thread adds tokens to `choice`. The thread of serve_writer.c takes what is there and writes it: an
 * event has one token, or more if that thread is late. */
#include "base/clock.h"
#include "base/memory.h"
#include "tools/serve/serve_choice.h"
#include "tools/serve/serve_job.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum {
    UNSENT_MAX = 256 * 1024,       /* bytes of a stream that wait for a slow client before its session pauses */
    ANSWER_MAX = 64 * 1024 * 1024, /* bytes of an answer that is not a stream, checked before its next choice */
    LATER_MAX = 48,                /* ids of a prompt that batches read, beside at least this many sessions: */
    LATER_SESSIONS = 8,
};

/* Of the prompt that was computed last. */
struct completion_times {
    double queue, prompt, generate;
    bool known; /* info is set */
    struct drt_session_info info;
};
struct completion {
    struct drt_session *session;
    int kind; /* of the session: serve_session_open */
    bool memory;
    pthread_mutex_t lock; /* protects the members below, up to the next empty line */
    struct choice choice; /* what is not written yet */
    bool event, ended;    /* there is an event to write; the answer ends after it */
    const char *finish;   /* the choice ends for this reason; NULL: it continues */
    struct completion_times times;

    pthread_mutex_t writing; /* locked before `lock`; a thread that writes holds it, for the members below */
    struct choice written;
    struct reply reply;

    int number; /* of the current choice: each prompt has completion_request.n */
    bool begun; /* whether the current choice has begun */
    size_t fed; /* number of ids of its prompt that were fed */
    double start, last_token, prompt_seconds, generate_seconds;
    int64_t created;
    char id[32];
    bool first_token, prepared; /* prepared: a batch computed the next token */
    bool reading;
    int64_t left; /* batches read the prompt; ids that were left after the last one */
};

void completion_free(struct completion *c) {
    if (!c) return;
    drt_session_close(c->session); /* NULL after completion_close */
    choice_free(&c->choice);
    choice_free(&c->written);
    reply_close(&c->reply);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->writing);
    memory_free(c);
}

void completion_close(struct serve *serve, struct job *job) {
    struct completion *c = job->work;
    if (!c) return;
    serve_session_close(&serve->sessions, c->session, c->kind, c->memory);
    c->session = NULL;
}

/* Gets the searcher of a token memory; NULL: the session opens the one that memory.json names. */
static enum status completion_memory_searcher(struct drt_searcher **out, struct serve *serve, bool searches) {
    const char *name = serve->options.memory_searcher;
    int kind = 0;
    if (!searches || !name) return STATUS_OK;
    while (kind + 1 < SEARCH_KINDS && strcmp(name, request_searcher_names[kind]) != 0)
        kind++;
    return serve_model_searcher(out, &serve->model, (enum request_searcher)kind);
}

static enum status completion_open(struct serve *serve, struct job *job, struct completion *c) {
    const struct completion_request *r = &job->completion;
    struct serve_model *m = &serve->model;
    const enum retrieval_source source = r->source;
    const bool corpus = source == RETRIEVAL_CORPUS || source == RETRIEVAL_BOTH;
    struct drt_searcher *searcher = NULL;
    if (corpus) TRY(serve_model_searcher(&searcher, m, r->searcher));
    TRY(completion_memory_searcher(&searcher, serve, !corpus && r->memory >= RETRIEVAL_MEMORY_CORPUS));
    const struct drt_session_config config = {
        .size = sizeof config,
        .self = source == RETRIEVAL_OWN_PAST || source == RETRIEVAL_BOTH,
        .corpus = corpus,
        .store = corpus || r->memory >= RETRIEVAL_MEMORY_CORPUS ? m->store : NULL,
        .searcher = searcher,
        .memory = (enum drt_memory)r->memory,
        .memory_config = serve->options.memory_config,
        .temperature = (float)r->temperature,
        .top_p = (float)r->top_p,
        .min_p = (float)r->min_p,
        .top_k = (int)r->top_k,
        .repeat_penalty = (float)r->repeat_penalty,
        .seed = r->seed,
        .max_tokens = r->max_tokens,
        .stops = (const char *const *)r->stops,
        .n_stops = r->n_stops,
        .ignore_eos = r->ignore_eos,
        .top = r->logprobs > 0 ? r->logprobs : 0,
        .continuation = (int)r->continuation,
        .overlap = (int)r->overlap,
        .query_tokens = (int)r->query_tokens,
        .no_logprob = (r->logprobs < 0),
        .skip = r->skip,
        .rewind = (r->n > 1),
        .memory_keys = serve_memory_keys(m),
    };
    c->memory = r->memory != RETRIEVAL_MEMORY_NONE;
    c->kind = (int)source | (corpus ? (int)r->searcher + 1 : 0) << 2 | config.continuation << 5 | config.overlap << 12 |
              config.query_tokens << 20;
    return serve_status(serve_session_open(&c->session, &serve->sessions, m->model, &config, c->kind));
}

static int64_t completion_choices(const struct job *job) {
    return job->completion.n * job->completion.n_prompts;
}

/* Index of the prompt of the current choice. */
static int64_t completion_prompt(const struct job *job, const struct completion *c) {
    return c->number / job->completion.n;
}

static enum status completion_begin(struct serve *serve, struct job *job) {
    struct completion *c = NULL;
    uint64_t id = 0;
    TRY(memory_allocate_zero(&c, 1));
    job->work = c;
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->writing, NULL);
    TRY(reply_open(&c->reply));
    if (getrandom(&id, sizeof id, 0) != (ssize_t)sizeof id) return fail_errno("a random number");
    snprintf(c->id, sizeof c->id, "cmpl-%016" PRIx64, id);
    c->created = (int64_t)time(NULL);
    c->start = clock_seconds();
    c->choice.logprobs = job->completion.logprobs >= 0;
    c->choice.show = (int)job->completion.show;
    c->choice.retrieval = c->choice.show > 0;
    job->queued = c->start - job->submitted;
    metrics_observe(serve->metrics, METRICS_QUEUE_SECONDS, job->queued);
    enum status status = completion_open(serve, job, c);
    metrics_spend(serve->metrics, METRICS_STAGE_OPEN, clock_seconds() - c->start);
    return status;
}

/* ---- the answer ---- */

static void completion_head(struct completion *c, struct serve *serve) {
    struct json_writer *w = &c->reply.json;
    json_write_object(w);
    json_write_key(w, "id");
    json_write_string(w, c->id);
    json_write_key(w, "object");
    json_write_string(w, "text_completion");
    json_write_key(w, "created");
    json_write_int(w, c->created);
    json_write_key(w, "model");
    json_write_string(w, serve->model.name);
    json_write_key(w, "choices");
    json_write_array(w);
}

static void completion_usage(struct json_writer *w, const struct job *job) {
    json_write_key(w, "usage");
    json_write_object(w);
    json_write_key(w, "prompt_tokens");
    json_write_int(w, job->prompt_tokens);
    json_write_key(w, "completion_tokens");
    json_write_int(w, job->tokens);
    json_write_key(w, "total_tokens");
    json_write_int(w, job->prompt_tokens + job->tokens);
    json_write_object_end(w);
}

static void completion_timings(struct completion *c, const struct completion_times *t) {
    struct json_writer *w = &c->reply.json;
    json_write_key(w, "timings");
    json_write_object(w);
    const struct {
        const char *name;
        double seconds;
    } own[] = {{"queue_seconds", t->queue}, {"prompt_seconds", t->prompt}, {"generate_seconds", t->generate}};
    for (size_t i = 0; i < ARRAY_LEN(own); i++) {
        json_write_key(w, own[i].name);
        json_write_double(w, own[i].seconds);
    }
    if (t->known) {
        json_write_key(w, "search_seconds");
        json_write_double(w, t->info.search_seconds);
        json_write_key(w, "read_seconds");
        json_write_double(w, t->info.read_seconds);
        json_write_key(w, "encode_seconds");
        json_write_double(w, t->info.encode_seconds);
        json_write_key(w, "searched_by");
        json_write_string(w, t->info.searched_by);
    }
    json_write_object_end(w);
}

/* Writes one event of a stream: the contents of `written`. */
static enum status completion_event(struct serve *serve, struct job *job, const char *finish,
                                    const struct completion_times *times) {
    struct completion *c = job->work;
    struct json_writer *w = &c->reply.json;
    reply_event_begin(&c->reply);
    completion_head(c, serve);
    choice_write(&c->written, &serve->model, &c->reply, finish);
    json_write_array_end(w);
    if (job->completion.include_usage) {
        json_write_key(w, "usage");
        json_write_null(w);
    }
    if (finish) completion_timings(c, times);
    json_write_object_end(w);
    TRY(reply_event_end(&c->reply));
    return job_put(job, &c->reply);
}

static enum status completion_end(struct serve *serve, struct job *job, const struct completion_times *times) {
    struct completion *c = job->work;
    struct json_writer *w = &c->reply.json;
    if (job->completion.stream && job->completion.include_usage) {
        reply_event_begin(&c->reply);
        completion_head(c, serve);
    }
    if (!job->completion.stream || job->completion.include_usage) {
        json_write_array_end(w);
        completion_usage(w, job);
        if (!job->completion.stream) completion_timings(c, times);
        json_write_object_end(w);
    }
    if (job->completion.stream) {
        if (job->completion.include_usage) TRY(reply_event_end(&c->reply));
        TRY(reply_event_done(&c->reply));
    }
    TRY(reply_flush(&c->reply));
    job_finish(job, 200, &c->reply);
    return STATUS_OK;
}

/* Writes a choice of an answer that is not a stream. */
static enum status completion_whole(struct serve *serve, struct job *job, const char *finish) {
    struct completion *c = job->work;
    const int64_t done = c->written.index + 1, all = completion_choices(job);
    choice_write(&c->written, &serve->model, &c->reply, finish);
    TRY(reply_flush(&c->reply));
    if (c->reply.bytes <= ANSWER_MAX || done == all) return STATUS_OK;
    return fail(STATUS_INVALID, "the answer has more than %d bytes after %lld of %lld choices: send fewer at once",
                ANSWER_MAX, (long long)done, (long long)all);
}

/* Call it with `writing` held. */
static enum status completion_write_news(struct serve *serve, struct job *job) {
    struct completion *c = job->work;
    struct completion_times times;
    pthread_mutex_lock(&c->lock);
    const bool news = c->event || c->finish, ended = c->ended;
    const char *finish = c->finish;
    if (news) choice_take(&c->written, &c->choice);
    times = c->times;
    c->event = c->ended = false;
    c->finish = NULL;
    pthread_mutex_unlock(&c->lock);
    if (news && job->completion.stream)
        TRY(completion_event(serve, job, finish, &times));
    else if (news)
        TRY(completion_whole(serve, job, finish));
    return ended ? completion_end(serve, job, &times) : STATUS_OK;
}

enum status completion_write(struct serve *serve, struct job *job) {
    struct completion *c = job->work;
    if (!c) return STATUS_OK;
    pthread_mutex_lock(&c->writing);
    const double start = clock_seconds();
    enum status status = completion_write_news(serve, job);
    metrics_spend(serve->metrics, METRICS_STAGE_TEXT, clock_seconds() - start);
    pthread_mutex_unlock(&c->writing);
    return status;
}

/* ---- steps ---- */

/* What follows an addition to the choice. finish NULL: it continues. The last choice ends the answer. */
static enum status completion_added(struct serve *serve, struct job *job, struct completion *c, const char *finish) {
    struct completion_times times = {.queue = c->start - job->submitted,
                                     .prompt = c->prompt_seconds,
                                     .generate = c->generate_seconds,
                                     .info = {.size = sizeof times.info}};
    if (finish) {
        times.known = drt_session_info(c->session, &times.info) == DRT_OK;
        c->number++;
        c->begun = false;
    }
    const bool ended = c->number == completion_choices(job);
    pthread_mutex_lock(&c->lock);
    const bool news = c->choice.bytes || c->choice.n_tokens || c->choice.n_records;
    c->event = c->event || (job->completion.stream && news);
    c->finish = finish;
    if (finish) c->times = times;
    c->ended = ended;
    const bool write = c->event || finish;
    pthread_mutex_unlock(&c->lock);
    /* The next choice uses the same memory. */
    if (finish && !ended) return completion_write(serve, job);
    if (write) serve_writer_add(serve->writer, job);
    return STATUS_OK;
}

static enum status completion_echo(struct serve *serve, const struct job *job, struct completion *c) {
    const int64_t number = completion_prompt(job, c);
    const struct request_text *prompt = &job->completion.prompts[number];
    if (prompt->data) return choice_text(&c->choice, prompt->data, prompt->bytes);
    for (size_t i = 0; i < job->n_prompt_ids[number]; i++) {
        const char *data = "";
        size_t bytes = 0;
        if (drt_tokenizer_bytes(serve->model.tokenizer, &data, &bytes, job->prompt_ids[number][i]) == DRT_OK)
            TRY(choice_text(&c->choice, data, bytes));
    }
    return STATUS_OK;
}

/* Whether batches read the prompt, an id in each pass: on a GPU, a short prompt beside many other sessions. A prompt's
 * own passes take as long as a batch's, whatever its length; as a row of a batch an id takes the batch's time divided
 * by its sessions. */
static bool completion_reads_later(const struct serve *serve, const struct job *job, const struct completion *c) {
    const int64_t n = (int64_t)job->n_prompt_ids[completion_prompt(job, c)], most = serve->active + serve->active / 2;
    if (!serve_model_on_gpu(&serve->model) || serve->options.batch == 1 || serve->options.same_answers) return false;
    if (c->memory || (job->completion.echo && job->completion.logprobs >= 0)) return false;
    return serve->active >= LATER_SESSIONS && n <= (most < LATER_MAX ? most : LATER_MAX);
}

/* Whether batches are to read more of the prompt, or have just read its end: its first id is picked in the next round,
 * in which a pass follows it. Without a batch that read from it, its session reads the rest. */
static bool completion_reads(struct completion *c) {
    const int64_t before = c->left;
    const bool prepared = c->prepared;
    if (!c->reading) return false;
    c->prepared = false;
    c->reading =
        before > 0 && prepared && drt_session_feed_later(c->session, NULL, 0, &c->left) == DRT_OK && c->left < before;
    if (!c->reading) c->prepared = prepared;
    return c->reading;
}

int64_t completion_part(const struct serve *serve) {
    return serve->options.prefill_chunks * serve->model.info.chunk;
}

/* Feeds at most `prefill_chunks` chunks, so that the tokens of other sessions do not wait for a long prompt. */
static enum status completion_feed(struct serve *serve, struct job *job, struct completion *c) {
    const struct completion_request *r = &job->completion;
    const int32_t *ids = job->prompt_ids[completion_prompt(job, c)] + c->fed;
    const size_t all = job->n_prompt_ids[completion_prompt(job, c)];
    const bool scored = r->echo && r->logprobs >= 0;
    size_t n = (size_t)completion_part(serve);
    struct drt_scores *scores = NULL;
    if (n > all - c->fed) n = all - c->fed;
    c->reading = c->fed == 0 && n == all && completion_reads_later(serve, job, c);
    if (c->reading)
        TRY(serve_status(drt_session_feed_later(c->session, ids, (int64_t)n, &c->left)));
    else
        TRY(serve_status(
            drt_session_feed_ids(c->session, ids, (int64_t)n, scored ? &scores : NULL, scored ? r->logprobs : 0)));
    enum status status = STATUS_OK;
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; scored && status == STATUS_OK && i < n; i++)
        status = choice_scored(&c->choice, &serve->model, ids[i], scores->logprob[i],
                               scores->top ? scores->alternatives + i * (size_t)scores->top : NULL, scores->top);
    pthread_mutex_unlock(&c->lock);
    drt_free(scores);
    TRY(status);
    c->fed += n;
    if (c->number % r->n == 0) job->prompt_tokens += (int64_t)n; /* OpenAI counts a prompt once for all its choices */
    metrics_add(serve->metrics, METRICS_PROMPT_TOKENS, (int64_t)n);
    if (c->fed < all) return STATUS_OK;
    if (r->echo) {
        pthread_mutex_lock(&c->lock);
        status = completion_echo(serve, job, c);
        pthread_mutex_unlock(&c->lock);
        TRY(status);
    }
    if (r->max_tokens == 0) return completion_added(serve, job, c, "length");
    return r->echo && r->stream ? completion_added(serve, job, c, NULL) : STATUS_OK;
}

static enum status completion_next(struct serve *serve, struct job *job, struct completion *c) {
    struct drt_token token = {.size = sizeof token};
    const double start = clock_seconds();
    TRY(serve_status(drt_session_next(c->session, &token)));
    double now = clock_seconds();
    metrics_spend(serve->metrics, c->prepared ? METRICS_STAGE_PICK : METRICS_STAGE_ALONE, now - start);
    c->prepared = false;
    if (!c->first_token)
        metrics_observe(serve->metrics, METRICS_FIRST_TOKEN_SECONDS, now - job->submitted);
    else
        metrics_observe(serve->metrics, METRICS_TOKEN_SECONDS, now - c->last_token);
    c->first_token = true;
    c->last_token = now;
    job->tokens++;
    metrics_add(serve->metrics, METRICS_TOKENS, 1);
    pthread_mutex_lock(&c->lock);
    enum status status = choice_generated(&c->choice, &serve->model, &token);
    pthread_mutex_unlock(&c->lock);
    TRY(status);
    if (token.end != DRT_END_NONE)
        return completion_added(serve, job, c, token.end == DRT_END_LENGTH ? "length" : "stop");
    return job->completion.stream ? completion_added(serve, job, c, NULL) : STATUS_OK;
}

/* Begins the current choice. A further choice of the same prompt begins at its end, where the session can go back to
 * it. Not where the answer has log-probabilities of the prompt, which the feed computes. */
static enum status completion_choose(struct serve *serve, const struct job *job, struct completion *c) {
    const struct completion_request *r = &job->completion;
    const uint64_t seed = r->seed + (uint64_t)(c->number % r->n);
    const bool generates = r->max_tokens > 0 && !(r->echo && r->logprobs >= 0);
    const bool again = c->number % r->n > 0 && generates && drt_session_rewind(c->session, seed) == DRT_OK;
    if (c->number > 0 && !again) TRY(serve_status(drt_session_reset(c->session, seed)));
    pthread_mutex_lock(&c->lock);
    choice_begin(&c->choice, c->number);
    enum status status = again && r->echo ? completion_echo(serve, job, c) : STATUS_OK;
    pthread_mutex_unlock(&c->lock);
    c->begun = true;
    c->fed = again ? job->n_prompt_ids[completion_prompt(job, c)] : 0;
    return status;
}

static enum status completion_work(struct serve *serve, struct job *job, bool *done) {
    if (!job->work) {
        TRY(completion_begin(serve, job));
        if (!job->completion.stream) completion_head(job->work, serve);
    }
    struct completion *c = job->work;
    double start = clock_seconds();
    if (c->begun && completion_reads(c)) return STATUS_OK;
    if (!c->begun) TRY(completion_choose(serve, job, c));
    bool next = c->fed == job->n_prompt_ids[completion_prompt(job, c)];
    if (!next) {
        TRY(completion_feed(serve, job, c));
        const double now = clock_seconds();
        c->prompt_seconds += now - start;
        metrics_spend(serve->metrics, METRICS_STAGE_PROMPT, now - start);
        start = now;
        next = c->begun && c->fed == job->n_prompt_ids[completion_prompt(job, c)] && !serve_model_on_gpu(&serve->model);
    }
    if (next) {
        TRY(completion_next(serve, job, c));
        c->generate_seconds += clock_seconds() - start;
    }
    *done = c->number == completion_choices(job);
    return STATUS_OK;
}

static bool completion_waits(struct job *job) {
    struct completion *c = job->work;
    if (!job->completion.stream || !c) return false;
    pthread_mutex_lock(&c->lock);
    const size_t held = c->choice.bytes + c->choice.n_tokens * sizeof *c->choice.tokens +
                        c->choice.n_neighbours * sizeof *c->choice.neighbours;
    pthread_mutex_unlock(&c->lock);
    return held + job_unsent(job) > UNSENT_MAX;
}

/* Whether its next step ends or pauses it. */
static bool completion_halts(const struct serve *serve, struct job *job) {
    return job_cancelled(serve, job) || clock_seconds() > job->deadline || completion_waits(job);
}

int64_t completion_unread(const struct serve *serve, struct job *job) {
    const struct completion *c = job->work;
    const int64_t prompt = c ? completion_prompt(job, c) : 0;
    if (completion_halts(serve, job)) return 0;
    return (int64_t)(job->n_prompt_ids[prompt] - (c && c->begun ? c->fed : 0));
}

struct drt_session *completion_session(const struct serve *serve, struct job *job) {
    const struct completion *c = job->work;
    if (!c || !c->begun || c->fed < job->n_prompt_ids[completion_prompt(job, c)]) return NULL;
    return completion_halts(serve, job) ? NULL : c->session;
}

void completion_prepared(struct job *job, double seconds) {
    job->work->generate_seconds += seconds;
    job->work->prepared = true;
}

/* After what is computed already. */
static void completion_fail(struct serve *serve, struct job *job, int status, const char *message) {
    (void)completion_write(serve, job);
    job_fail(job, status, message);
}

enum completion_step completion_step(struct serve *serve, struct job *job) {
    bool done = false;
    if (job_cancelled(serve, job)) {
        metrics_add(serve->metrics, METRICS_CANCELLED, 1);
        completion_fail(serve, job, 503, "the request was cancelled");
        return COMPLETION_DONE;
    }
    if (clock_seconds() > job->deadline) {
        completion_fail(serve, job, 504, "the request took longer than this server allows (--request-seconds)");
        return COMPLETION_DONE;
    }
    if (completion_waits(job)) return COMPLETION_PAUSED;
    enum status status = completion_work(serve, job, &done);
    if (status != STATUS_OK) {
        /* a 404 would be wrong: a missing file is not a path that the client named */
        int code = serve_http_status(status);
        char message[1024];
        snprintf(message, sizeof message, "%s", status_message());
        completion_fail(serve, job, code == 404 ? 400 : code, message);
        return COMPLETION_DONE;
    }
    return done ? COMPLETION_DONE : COMPLETION_MORE;
}
