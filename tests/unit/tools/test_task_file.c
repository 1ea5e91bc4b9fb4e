/* test_task_file.c -- samples of tasks: the three layouts, refusals, and RULER's score. */
#include "tools/tasks/task_file.h"

#include "tests/test.h"

static const char path[] = "samples.jsonl";

static struct task_file *open_text(const char *text) {
    struct task_file *f;
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
    CHECK_OK(task_file_open(&f, path));
    return f;
}

static void test_layouts(void) {
    struct task_sample s;
    bool more;
    struct task_file *f =
        open_text("{\"index\": 3, \"input\": \"Say\\n\", \"outputs\": [\"x\", \"\\u00e9\"], \"length\": {}}\n"
                  " \r\n"
                  "{\"answer_prefix\": \" It is\", \"outputs\": [\"7\"], \"input\": \"What?\"}\n"
                  "{\"summary\": \"short\", \"document\": \"long\", \"id\": \"1\"}\r\n"
                  "{\"article\": \"a\", \"highlights\": \"h\"}");
    CHECK_OK(task_file_next(f, &s, &more));
    CHECK(more && s.n_outputs == 2 && s.line == 1 && !s.summary);
    CHECK(s.prompt_bytes == 4 && memcmp(s.prompt, "Say\n", 4) == 0);
    CHECK_STR(s.outputs[1], "\xc3\xa9");
    CHECK_OK(task_file_next(f, &s, &more));
    CHECK(more && s.line == 3 && s.n_outputs == 1);
    CHECK_STR(s.prompt, "What? It is");
    CHECK_OK(task_file_next(f, &s, &more));
    CHECK(more && s.summary);
    CHECK_STR(s.prompt, "long|Summary:");
    CHECK_STR(s.outputs[0], "short");
    CHECK_OK(task_file_next(f, &s, &more));
    CHECK_STR(s.prompt, "a|Summary:");
    CHECK_STR(s.outputs[0], "h");
    CHECK_OK(task_file_next(f, &s, &more));
    CHECK(!more);
    CHECK_OK(task_file_next(f, &s, &more));
    CHECK(!more);
    task_file_close(f);
}

/* A line that is longer than one read, whose parts enlarge the buffers. */
static void test_long_line(void) {
    enum { N = 700000 };
    struct task_sample s;
    bool more;
    char *text = malloc(2 * N + 200);
    size_t n = (size_t)sprintf(text, "{\"document\": \"");
    memset(text + n, 'd', N);
    n += N;
    n += (size_t)sprintf(text + n, "\", \"summary\": \"");
    memset(text + n, 's', N);
    n += N;
    sprintf(text + n, "\"}\n{\"input\": \"i\", \"outputs\": [\"o\"]}\n");
    struct task_file *f = open_text(text);
    CHECK_OK(task_file_next(f, &s, &more));
    CHECK(s.prompt_bytes == N + 9 && s.prompt[N - 1] == 'd' && strlen(s.outputs[0]) == N);
    CHECK_OK(task_file_next(f, &s, &more));
    CHECK(more && s.line == 2);
    task_file_close(f);
    free(text);
}

static void refuse(const char *text, const char *what) {
    struct task_sample s;
    bool more;
    struct task_file *f = open_text(text);
    const enum status status = task_file_next(f, &s, &more);
    if (status != STATUS_INVALID || !strstr(status_message(), what) || !strstr(status_message(), "samples.jsonl"))
        fprintf(stderr, "%s: %s\n", text, status_message());
    CHECK(status == STATUS_INVALID && strstr(status_message(), what) && strstr(status_message(), "samples.jsonl"));
    task_file_close(f);
}

static void test_refused(void) {
    refuse("[]", "an object");
    refuse("\n{\"input\": \"x\", \"outputs\": []}", "line 2 is no sample");
    refuse("{\"outputs\": [\"x\"]}", "line 1 is no sample");
    refuse("{\"document\": \"x\"}", "no sample");
    refuse("{\"input\": 3}", "a string");
    refuse("{\"input\": \"x\", \"outputs\": \"y\"}", "an array of strings");
    refuse("{\"input\": \"x\", \"outputs\": [1]}", "a string");
    refuse("{\"input\": \"x\", \"outputs\": [\"y\"]} {", "the end of the line");
    refuse("{\"input\": \"x\", \"outp", "line 1");
    refuse("\n{\"input\": 3}", "samples.jsonl: line 2, column 12: expected a string");
    refuse("{\"input\": \"x\", \"outputs\": [\"y\", \"\"]}", "line 1: an output is empty");
    refuse("{\"input\": \"x\", \"outputs\": [\"y\\u0000z\"]}", "a NUL byte");
    struct task_file *f;
    CHECK(task_file_open(&f, "no-such-file.jsonl") == STATUS_NOT_FOUND);
}

static void test_score(void) {
    const char *outputs[] = {"4278623", "ZtZyZ", ""};
    const struct task_sample s = {.outputs = outputs, .n_outputs = 3};
    CHECK(fabs(task_contained(&s, " 4278623. ztzyz", 15) - 2. / 3) < 1e-12);
    CHECK(task_contained(&s, " 427862", 7) == 0);
    CHECK(fabs(task_contained(&s, "ZTZYZ", 5) - 1. / 3) < 1e-12);
    CHECK(task_contained(&s, "ZTZYZ", 4) == 0);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    test_layouts();
    test_long_line();
    test_refused();
    test_score();
    return test_done();
}
