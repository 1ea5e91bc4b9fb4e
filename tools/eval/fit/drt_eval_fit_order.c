/* drt_eval_fit_order.c -- drt-eval fit-order: the weights that order the candidates of a token memory's searches. */
#include "base/clock.h"
#include "base/formats/json.h"
#include "base/memory.h"
#include "tools/eval/drt_eval.h"
#include "tools/eval/drt_eval_run.h"
#include "tools/eval/fit/drt_eval_fit.h"
#include "tools/eval/fit/drt_eval_searches.h"
#include "tools/memory/memory_order_fit.h"
#include "tools/shared/log.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/report.h"
#include "tools/shared/streams.h"
#include <math.h>

enum { CANDIDATES = 1024, POSITIONS = 2000 };
struct order_options {
    const char *out;
    int64_t candidates, positions, steps;
};

static int fit_order_parse(struct eval_options *o, struct order_options *order, int argc, char **argv,
                           const char **operands) {
    const struct arg_option options[] = {
        OPTION_MODEL(o->model),
        {"data", ARG_STRINGS, &o->data, "FILE", "held-out texts (required; may be given several times)", 0, 0},
        {"store", ARG_PATH, &o->store, "DIR", "store with the model's tokenizer and chunk size (required)", 0, 0},
        {"out", ARG_PATH, &order->out, "FILE",
         "configuration to write: the one that is read, with the order (required)", 0, 0},
        {"candidates", ARG_INT, &order->candidates, "N", "chunks that a search finds, above --memory-k", 2,
         MEMORY_CANDIDATES_MAX},
        {"positions", ARG_INT, &order->positions, "N",
         "searches at most, spread evenly over files and documents; a candidate of a search takes 348 bytes of memory, "
         "so the defaults take 0.7 GB",
         1, 1 << 24},
        {"steps", ARG_INT, &order->steps, "N", "steps of the training, of 256 searches each", 1, 1 << 24},
        OPTION_MEMORY_CONFIG(o->memory_options),
        MEMORY_SEARCH_OPTIONS(o->memory_options),
        OPTIONS_OF_WORKERS(o->workers),
        {"exclude", ARG_STRING, &o->exclude, "doc|none",
         "doc: a text that is also in the store does not find its own document; none: it may", 0, 0},
        OPTIONS_OF_WINDOWS(*o),
        OPTION_FORMAT(o->format, "--data"),
        OPTION_TEXT_FIELD(o->text_field),
        {"seed", ARG_INT, &o->seed, "N", "seed of the searches that a step of the training reads", 0, INFINITY},
        OPTIONS_OF_MACHINE(o->where, o->threads),
        OPTION_JSON_TABLES(o->json),
        OPTION_LOG_JSON,
    };
    const struct arg_program program = {
        .name = "drt-eval fit-order",
        .synopsis = "--data FILE --store DIR --out FILE [--model DIR] [--memory-config FILE] [options]",
        .about =
            "Trains the order in which a token memory reads the chunks that a search finds: weights of 23 features "
            "of a chunk and the text before it. A search then finds --candidates chunks, and the --memory-k of the "
            "greatest sums are read. The loss is that of the next 64 tokens, mixed by the gate of corpus of the "
            "configuration.\n\n"
            "Texts are read twice, and searched every 64 tokens, whatever --memory-every says. Every fifth "
            "document of each file is held out: the figures of these documents are for unseen text. A gate that "
            "was fitted without the order works with it; drt-eval fit-memory --memory-order FILE fits one for it.",
        .examples = "  drt-eval fit-order --data valid.jsonl.xz --store docs.store \\\n"
                    "    --model base-lm --out base-lm/order.json\n",
        .options = options,
        .n_options = ARRAY_LEN(options)};
    int n_operands = 0;
    return args_parse(&program, argc, argv, operands, &n_operands);
}

/* ---- the report ---- */

/* loss: as found and ordered, of the searches that are trained on and of those held out; NaN: there are none. */
struct order_loss {
    int k;
    double loss[2][2];
};
struct order_report {
    const struct memory_order_samples *samples;
    int64_t counted, trained, held_out;
    struct memory_order_reads reads;
    struct order_loss rows[MEMORY_ORDER_KS];
    const struct memory_config *config;
    double collect_seconds, train_seconds;
};

static enum status report_make(struct order_report *r, struct threads *threads) {
    for (int64_t i = 0; i < r->samples->n; i++)
        *(r->samples->search[i].held_out ? &r->held_out : &r->trained) += 1;
    for (int i = 0; i < r->reads.ks; i++) {
        r->rows[i].k = r->reads.k[i];
        for (int held = 0; held < 2; held++)
            for (int ordered = 0; ordered < 2; ordered++)
                TRY(memory_order_read_loss(&r->rows[i].loss[held][ordered], r->samples,
                                           ordered ? r->config->order.weights : NULL, r->reads.k[i], held, threads));
    }
    return STATUS_OK;
}

static double change_percent(const double loss[2]) {
    return eval_to_percent(loss[1] - loss[0]);
}

static void print_losses(const double loss[2]) {
    if (isnan(loss[0]))
        printf(" %11s %11s %9s", "-", "-", "-");
    else
        printf(" %11.4f %11.4f %+7.2f %%", loss[0], loss[1], change_percent(loss));
}

static void print_text(const struct order_report *r, const struct engine *e, const struct eval_options *o) {
    const struct memory_config *c = r->config;
    streams_printf(stdout, "model      %s\n", e->model.path);
    streams_printf(stdout, "store      %s: %lld chunks\n", o->store,
                   (long long)(e->info.chunks - e->info.dropped_chunks));
    printf("memory     chunks by %s, %d candidates, K %d, span %d,%d, keys of layer %d\n",
           memory_searcher_names[c->searcher], c->order.candidates, c->k, c->before, c->after, c->key_layer);
    printf("searches   %lld of %lld: %lld trained on in %.1f s (collected in %.1f s), %lld held out\n",
           (long long)r->samples->n, (long long)r->counted, (long long)r->trained, r->train_seconds, r->collect_seconds,
           (long long)r->held_out);
    printf(
        "\nnats a token, mean over files, with the first chunks read as found and in the trained order\n%6s %11s %11s "
        "%9s %11s %11s %9s\n",
        "chunks", "found", "ordered", "change", "held: found", "ordered", "change");
    for (int i = 0; i < r->reads.ks; i++) {
        printf("%6d", r->rows[i].k);
        print_losses(r->rows[i].loss[0]);
        print_losses(r->rows[i].loss[1]);
        printf("\n");
    }
}

static void write_losses(struct json_writer *w, const char *name, const double loss[2]) {
    json_write_key(w, name);
    if (isnan(loss[0])) {
        json_write_null(w);
        return;
    }
    json_write_object(w);
    json_write_key(w, "found"), json_write_double(w, loss[0]);
    json_write_key(w, "ordered"), json_write_double(w, loss[1]);
    json_write_key(w, "change_percent"), json_write_double(w, change_percent(loss));
    json_write_object_end(w);
}

static void print_json(const struct order_report *r, const struct engine *e, const struct eval_options *o) {
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"candidates", r->config->order.candidates},
                   {"k", r->config->k},
                   {"searches", r->samples->n},
                   {"counted", r->counted},
                   {"trained", r->trained},
                   {"held_out", r->held_out}};
    struct json_writer w;
    json_write_open(&w, stdout, 0);
    json_write_object(&w);
    json_write_key(&w, "model"), json_write_string(&w, e->model.path);
    json_write_key(&w, "store"), json_write_string(&w, o->store);
    json_write_key(&w, "searcher"), json_write_string(&w, memory_searcher_names[r->config->searcher]);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        json_write_key(&w, numbers[i].name), json_write_int(&w, numbers[i].value);
    json_write_key(&w, "losses");
    json_write_array(&w);
    for (int i = 0; i < r->reads.ks; i++) {
        json_write_object(&w);
        json_write_key(&w, "chunks"), json_write_int(&w, r->rows[i].k);
        write_losses(&w, "trained", r->rows[i].loss[0]);
        write_losses(&w, "held_out", r->rows[i].loss[1]);
        json_write_object_end(&w);
    }
    json_write_array_end(&w);
    json_write_key(&w, "weights");
    json_write_array(&w);
    for (int i = 0; i < CANDIDATE_FEATURES; i++)
        json_write_double(&w, r->config->order.weights[i]);
    json_write_array_end(&w);
    json_write_object_end(&w);
    printf("\n");
}

/* Of texts that were not trained on, by the number of chunks that the memory reads. */
static void note_no_gain(const struct order_report *r) {
    const double *held_out = r->rows[0].loss[1];
    if (!isnan(held_out[0]) && held_out[1] >= held_out[0])
        log_line(LOG_INFO, "note", "drt-eval",
                 "note: the order does not lower the loss of the documents that are held out: give texts for more "
                 "searches, or let the memory read chunks as found");
}

/* ---- the command ---- */

/* Reads the texts: counts the searches, or collects the selected ones. */
static enum status read_texts(struct eval_machine *m, const struct eval_options *o, const struct progress *progress) {
    struct eval_result *result = NULL; /* too large for a small stack */
    TRY(memory_allocate_zero(&result, 1));
    result->mode[EVAL_MEMORY_CORPUS] = true;
    enum status s = eval_run(result, &m->engines, o, NULL, progress);
    if (s == STATUS_OK && result->partial) s = fail(STATUS_INTERRUPTED, "stopped by a signal: nothing was fitted");
    eval_result_free(result);
    memory_free(result);
    return s;
}

/* The weights of the order in which a search finds chunks: by its scores, and by words and landmarks also by cosines.
 */
static void start_weights(double *start, const struct eval_machine *m) {
    const float weight = memory_search_finder(m->engines.search).landmark_weight;
    start[CANDIDATE_SCORE] = 1;
    if (m->engines.memory.searcher == MEMORY_HYBRID)
        start[CANDIDATE_COSINE] = (double)weight / sqrt(m->model.info.fingerprint.dim);
}

static enum status fit_order(struct order_report *r, struct eval_machine *m, const struct eval_options *o,
                             const struct order_options *order, const struct progress *progress) {
    struct memory_config *c = &m->engines.memory;
    struct threads *threads = m->model.device->threads;
    struct memory_order_fit_config fit = {.seed = (uint64_t)o->seed, .steps = (int)order->steps, .progress = progress};
    const double begin = clock_seconds();
    if (c->k >= order->candidates)
        return fail(STATUS_INVALID, "--candidates %lld: must be above the %d chunks that are read (--memory-k)",
                    (long long)order->candidates, c->k);
    TRY(memory_options_fitted(c, m->engines.memory_file, MEMORY_CORPUS));
    TRY(eval_searches_create(&m->engines.searches, order->positions, (int)order->candidates));
    TRY(read_texts(m, o, progress));
    TRY(eval_searches_select(m->engines.searches));
    TRY(read_texts(m, o, progress));
    *r = (struct order_report){.samples = eval_searches_samples(m->engines.searches),
                               .counted = eval_searches_counted(m->engines.searches),
                               .reads = memory_order_reads_of(c->k),
                               .config = c};
    r->collect_seconds = clock_seconds() - begin;
    fit.reads = r->reads;
    start_weights(fit.start, m);
    TRY(memory_order_fit(c->order.weights, r->samples, &fit, threads));
    c->order.candidates = (int)order->candidates;
    r->train_seconds = clock_seconds() - begin - r->collect_seconds;
    TRY(report_make(r, threads));
    if (!m->engines.memory_file[0]) /* no gate was fitted */
        for (int kind = 0; kind < MEMORY_KINDS; kind++)
            c->mixture[kind] = (struct memory_mixture){0};
    return memory_config_save(c, order->out);
}

static int fit_order_check(struct eval_options *o, const struct order_options *order) {
    const bool modes[EVAL_MODES] = {[EVAL_MEMORY_CORPUS] = true};
    if (!o->store) return eval_usage("fit-order", "--store DIR is missing");
    const int code = eval_check("fit-order", o, modes);
    if (code >= 0) return code;
    return order->out ? -1 : eval_usage("fit-order", "--out FILE is missing");
}

int eval_fit_order(int argc, char **argv, const char **operands) {
    struct eval_options o = {EVAL_OPTIONS_DEFAULT, .memory = "corpus", .context = 2048};
    struct order_options order = {.candidates = CANDIDATES, .positions = POSITIONS, .steps = MEMORY_ORDER_STEPS};
    int code = fit_order_parse(&o, &order, argc, argv, operands);
    if (code < 0) code = fit_order_check(&o, &order);
    if (code >= 0) return code;
    const struct engine_config config = {
        .model = o.model, .store = o.store, .where = o.where, .threads = (int)o.threads, .memory = true};
    struct eval_machine *machine = NULL;
    struct progress_line *line = NULL;
    struct order_report report;
    enum status status = eval_fit_apart(&o, order.out);
    if (status == STATUS_OK) status = progress_line_start(&line, "drt-eval");
    if (status != STATUS_OK) return eval_failed(status);
    status = eval_machine_open(&machine, &config, &o);
    if (status == STATUS_OK) status = fit_order(&report, machine, &o, &order, progress_line_progress(line));
    progress_line_end(line);
    if (status == STATUS_OK) {
        (o.json ? print_json : print_text)(&report, &machine->model, &o);
        note_no_gain(&report);
    }
    eval_machine_close(machine);
    return status == STATUS_OK ? 0 : eval_failed(status);
}
