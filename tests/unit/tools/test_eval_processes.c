/* test_eval_processes.c -- documents that are divided among processes (drt-eval fit-memory --devices) give the bytes of
 * one process: samples, documents, classes of tokens, losses of a Base LM, with and without limits. CPU processes stand
 * for those of GPUs. A process that fails or ends is an error that names it. */
#include "tests/library_fixture.h"
#include "tests/test.h"
#include "tools/eval/drt_eval_run.h"
#include "tools/eval/fit/drt_eval_processes.h"
#include "tools/eval/fit/drt_eval_samples.h"
#include <unistd.h>

int eval_usage(const char *command, const char *what) {
    return fprintf(stderr, "%s: %s\n", command, what), 2;
}
int eval_failed(enum status status) {
    (void)status;
    return 1;
}

enum { FILES = 2, CASES = 3 };
static char model[600], store[600], texts[FILES][600];

/* Documents of 0 to 3 texts. One text alone is a document of the store. */
static void write_texts(const char *path, int first, int documents) {
    FILE *f = fopen(path, "w");
    char text[4096];
    CHECK(f);
    for (int i = 0; i < documents; i++) {
        const int parts = (i * 7 + first) % 4;
        fprintf(f, "{\"text\": \"");
        for (int part = 0; part < parts; part++) {
            library_text(text, first + 2 * i + part);
            fputs(text, f);
        }
        fprintf(f, "%s\"}\n", parts == 1 ? "" : "short");
    }
    CHECK(fclose(f) == 0);
}

static struct eval_options options(int limits, const char *const names[FILES]) {
    struct eval_options o = {.where = {.device = "cpu", .dtype = "auto"},
                             .model = model,
                             .store = store,
                             .searcher = "landmark",
                             .format = "auto",
                             .exclude = "doc",
                             .documents = "all",
                             .text_field = "text",
                             .oracle = "none",
                             .gca = "none",
                             .memory = "own,corpus,both,random",
                             .context = 126,
                             .skip = 20,
                             .eod_id = -1,
                             .rule = -1,
                             .threads = 1};
    o.data = (struct arg_strings){.count = FILES};
    for (int i = 0; i < FILES; i++)
        o.data.items[i] = names[i];
    o.base = (struct arg_strings){.count = 1, .items = {model}};
    o.memory_options.unfitted = true;
    o.memory_options.k = 3;
    if (limits == 1) o.max_tokens = 1701;
    if (limits == 2) o.document_tokens = 77, o.max_documents = 4;
    return o;
}

static enum status score(struct eval_result *r, struct memory_samples *s, struct eval_machine **m,
                         const struct eval_options *o) {
    const struct engine_config config = {
        .model = o->model, .store = o->store, .where = o->where, .threads = (int)o->threads, .memory = true};
    TRY(eval_machine_open(m, &config, o));
    return eval_run(r, &(*m)->engines, o, s, NULL);
}

struct run {
    struct eval_result result;
    struct memory_samples samples;
    char path[600];
};

static void processes_run(struct run *out, int n, int limits) {
    const char *const names[FILES] = {texts[0], texts[1]};
    struct eval_options o = options(limits, names);
    struct eval_machine *m = NULL;
    *out = (struct run){0};
    CHECK_EQ(eval_modes("fit-memory", out->result.mode, &o), -1);
    out->result.mode[EVAL_NONE] = false;
    if (n > 1) CHECK_OK(eval_processes_start(&o.processes, n, false));
    if (eval_processes_number(o.processes) > 0) {
        const enum status status = score(&out->result, &out->samples, &m, &o);
        eval_processes_finish(o.processes, status, &out->result, &out->samples);
    }
    CHECK_OK(score(&out->result, &out->samples, &m, &o));
    if (n > 1) CHECK_OK(eval_processes_collect(o.processes, &out->result, &out->samples));
    snprintf(out->path, sizeof out->path, "%s/samples-%d-%d", test_folder(), limits, n);
    CHECK_OK(eval_samples_keep(&out->result, &out->samples, &m->engines.memory, out->path));
    eval_processes_end(o.processes);
    eval_machine_close(m);
}

static void run_free(struct run *r) {
    eval_result_free(&r->result);
    memory_samples_free(&r->samples);
}

static bool same_bytes(const char *a, const char *b) {
    char command[1300];
    snprintf(command, sizeof command, "cmp '%s' '%s'", a, b);
    return system(command) == 0;
}

static void same(const struct run *a, const struct run *b) {
    CHECK(same_bytes(a->path, b->path));
    CHECK_EQ(a->result.n_documents, b->result.n_documents);
    CHECK_EQ(a->result.n_files, b->result.n_files);
    CHECK_EQ(a->result.tokens.n, b->result.tokens.n);
    CHECK(a->result.tokens.runs_known && b->result.tokens.runs_known);
    CHECK(memcmp(a->result.tokens.nll[EVAL_BASE], b->result.tokens.nll[EVAL_BASE],
                 (size_t)a->result.tokens.n * sizeof(float)) == 0);
    for (size_t i = 0; i < a->result.n_documents; i++)
        CHECK(a->result.documents[i].nll[EVAL_BASE] == b->result.documents[i].nll[EVAL_BASE]);
    for (int i = 0; i < a->result.n_files; i++) {
        const struct eval_file *x = &a->result.files[i], *y = &b->result.files[i];
        CHECK_EQ(x->documents, y->documents);
        CHECK_EQ(x->short_documents, y->short_documents);
        CHECK_EQ(x->read_documents, y->read_documents);
        CHECK_EQ(x->stored_documents, y->stored_documents);
        CHECK_EQ(x->tokens, y->tokens);
        CHECK_EQ(x->bytes, y->bytes);
    }
}

static void test_equal(int limits) {
    static const int processes[] = {2, 3, 7};
    struct run one, some;
    processes_run(&one, 1, limits);
    CHECK(one.result.n_documents >= 3 && one.samples.n == one.result.tokens.n);
    CHECK(limits == 1 || one.result.files[0].stored_documents > 0);
    CHECK(one.result.files[0].short_documents > 0);
    for (size_t i = limits ? 1 : 0; i < (limits ? 2 : ARRAY_LEN(processes)); i++) {
        processes_run(&some, processes[i], limits);
        same(&one, &some);
        run_free(&some);
    }
    run_free(&one);
}

/* One process of three fails: at once with a message, or by ending. */
static void test_failure(bool message) {
    struct eval_result result = {0};
    struct memory_samples samples = {0};
    struct eval_processes *processes;
    CHECK_OK(eval_processes_start(&processes, 3, false));
    if (eval_processes_number(processes) == 1 && message)
        eval_processes_finish(processes, fail(STATUS_NO_MEMORY, "the GPU is full"), NULL, NULL);
    if (eval_processes_number(processes) == 1) _exit(0);
    if (eval_processes_number(processes) == 2) eval_processes_finish(processes, STATUS_OK, &result, &samples);
    if (message)
        CHECK_FAILS(eval_processes_collect(processes, &result, &samples), STATUS_NO_MEMORY,
                    "process 2 of 3: the GPU is full");
    else
        CHECK_FAILS(eval_processes_collect(processes, &result, &samples), STATUS_IO,
                    "process 2 of 3: it ended without");
    eval_processes_end(processes);
}

/* The failure of a process is found while the others still work. */
static void test_check(void) {
    struct eval_processes *processes;
    CHECK_OK(eval_processes_start(&processes, 3, false));
    if (eval_processes_number(processes) == 1)
        eval_processes_finish(processes, fail(STATUS_NO_MEMORY, "the GPU is full"), NULL, NULL);
    if (eval_processes_number(processes) == 2) pause(); /* eval_processes_end ends it */
    enum status s;
    while ((s = eval_processes_check(processes)) == STATUS_OK)
        usleep(1000);
    CHECK_FAILS(s, STATUS_NO_MEMORY, "process 2 of 3: the GPU is full");
    eval_processes_end(processes);
}

static void test_refused(void) {
    struct eval_processes *processes;
    CHECK_FAILS(eval_processes_start(&processes, EVAL_PROCESSES_MAX + 1, false), STATUS_INVALID, "at most 64");
    CHECK(eval_processes_take(NULL, 1));
    CHECK_EQ(eval_processes_count(NULL), 1);
    CHECK_EQ(eval_processes_number(NULL), 0);
}

int main(void) {
    struct library_world w = {0};
    library_world_open(&w);
    snprintf(model, sizeof model, "%s", w.folder);
    snprintf(store, sizeof store, "%s", w.store_path);
    library_world_close(&w);
    for (int i = 0; i < FILES; i++) {
        snprintf(texts[i], sizeof texts[i], "%s/text%d.jsonl", test_folder(), i);
        write_texts(texts[i], i ? 60 : 20, 9);
    }
    for (int limits = 0; limits < CASES; limits++)
        test_equal(limits);
    test_failure(true);
    test_failure(false);
    test_check();
    test_refused();
    return 0;
}
