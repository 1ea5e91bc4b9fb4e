/* test_args.c -- options, operands, numbers, defaults, guesses and the help text. */
#include "tools/shared/args.h"

#include "tests/test.h"

static struct {
    bool flag;
    const char *text, *path, *choice;
    struct arg_strings many;
    int64_t whole;
    double real;
    uint64_t bytes;
} got;

static const struct arg_option options[] = {
    {NULL, ARG_FLAG, NULL, NULL, "Things", 0, 0},
    {"corpus-retrieval", ARG_FLAG, &got.flag, NULL, "retrieve from the store", 0, 0},
    {"text", ARG_STRING, &got.text, "TEXT", "what to say", 0, 0},
    {"store", ARG_PATH, &got.path, "STORE", "the store", 0, 0},
    {"device", ARG_CHOICE, &got.choice, "auto|cpu|cuda", "where", 0, 0},
    {"stop", ARG_STRINGS, &got.many, "STR", "where to stop", 0, 0},
    {"max-tokens", ARG_INT, &got.whole, "N", "how much, in so many words that the line must be wrapped somewhere\nhere",
     1, 100},
    {"temperature", ARG_DOUBLE, &got.real, "T", "how hot", 0, INFINITY},
    {"max-ram", ARG_BYTES, &got.bytes, "SIZE", "how large", 0, 0},
};
static const struct arg_letter letters[] = {{'n', "max-tokens"}, {'c', "corpus-retrieval"}, {0, NULL}};
static const struct arg_program program = {.name = "drt-test go",
                                           .synopsis = "FILE... [options]",
                                           .about = "Does\nthings.\n\nAnd others.",
                                           .examples = "  drt-test go a b\n",
                                           .options = options,
                                           .n_options = ARRAY_LEN(options),
                                           .max_operands = 2,
                                           .letters = letters};

/* No operands: an argument may be the store. */
static const struct arg_program of_store = {.name = "drt-test go",
                                            .synopsis = "[--store] STORE",
                                            .about = "Does.",
                                            .options = options,
                                            .n_options = ARRAY_LEN(options),
                                            .operand = "store"};
static const struct arg_program *parsed = &program;

static char captured[8192];
static const char *operands[64];
static int n_operands;

/* Parses, and captures stdout and stderr together. */
static int parse(const char *const *arguments) {
    char *argv[64] = {(char *)"drt-test"};
    int argc = 1;
    while (arguments[argc - 1]) {
        argv[argc] = (char *)arguments[argc - 1];
        argc++;
    }
    got = (typeof(got)){.whole = 7, .real = 0.5, .bytes = 8ull << 30};
    char path[600];
    snprintf(path, sizeof path, "%s/captured", test_folder());
    fflush(stdout);
    fflush(stderr);
    int saved_out = dup(1), saved_err = dup(2);
    CHECK(freopen(path, "w", stdout));
    dup2(1, 2);
    int code = args_parse(parsed, argc, argv, operands, &n_operands);
    fflush(stdout);
    dup2(saved_out, 1);
    dup2(saved_err, 2);
    close(saved_out);
    close(saved_err);
    FILE *file = fopen(path, "r");
    CHECK(file);
    captured[fread(captured, 1, sizeof captured - 1, file)] = 0;
    fclose(file);
    return code;
}
#define PARSE(...) parse((const char *const[]){__VA_ARGS__, NULL})
#define CHECK_USAGE(text, ...)                                                                                         \
    do {                                                                                                               \
        CHECK_EQ(PARSE(__VA_ARGS__), 2);                                                                               \
        if (!strstr(captured, text)) CHECK_STR(captured, text);                                                        \
        CHECK(strstr(captured, "; see drt-test go --help\n"));                                                         \
    } while (0)

static void test_values(void) {
    CHECK_EQ(PARSE("a", "--corpus-retrieval", "--text", "-hello", "--stop=", "--stop", "b=c", "--max-tokens=12", "-",
                   "--temperature", "1e-3", "--max-ram", "1.5k"),
             -1);
    CHECK(got.flag);
    CHECK_STR(got.text, "-hello");
    CHECK_EQ(got.many.count, 2);
    CHECK_STR(got.many.items[0], "");
    CHECK_STR(got.many.items[1], "b=c");
    CHECK_EQ(got.whole, 12);
    CHECK(got.real == 1e-3);
    CHECK_EQ(got.bytes, 1536);
    CHECK_EQ(n_operands, 2);
    CHECK_STR(operands[1], "-");
    CHECK_EQ(PARSE("--", "--text", "-h"), -1);
    CHECK_EQ(n_operands, 2);
    CHECK_EQ(PARSE("--text=--flag-like"), -1);
    CHECK_STR(got.text, "--flag-like");
    CHECK_EQ(PARSE("--device", "cpu"), -1);
    CHECK_STR(got.choice, "cpu");
    CHECK_EQ(PARSE("--device=cuda"), -1);
    CHECK_STR(got.choice, "cuda");
    CHECK_EQ(PARSE("--max-ram", "2GiB"), -1);
    CHECK_EQ(got.bytes, 2ll << 30);
    CHECK_EQ(PARSE("--max-ram", "123"), -1);
    CHECK_EQ(got.bytes, 123);
}

static void test_refusals(void) {
    CHECK_USAGE("unknown option --txet (did you mean --text?)", "--txet", "x");
    CHECK_USAGE("unknown option --corpus (did you mean --corpus-retrieval?)", "--corpus");
    CHECK_USAGE("unknown option --tokens (did you mean --max-tokens?)", "--tokens=3");
    CHECK_USAGE("unknown option --zzzzzz;", "--zzzzzz");
    CHECK_USAGE("unknown option -t", "-t");
    CHECK_USAGE("--text needs a value (TEXT)", "--text");
    CHECK_USAGE("--text needs a value (TEXT), but --stop follows (if that is the value: --text=--stop)", "--text",
                "--stop", "a");
    CHECK_USAGE("--corpus-retrieval takes no value (got 'yes')", "--corpus-retrieval=yes");
    const char *no_choice[] = {"", "cp", "cpux", "cpu|cuda", "auto|", "|", "CPU"};
    for (size_t i = 0; i < ARRAY_LEN(no_choice); i++)
        CHECK_USAGE("must be one of auto|cpu|cuda", "--device", no_choice[i]);
    const char *bad_whole[] = {"", " 1", "1 ", "1.0", "0x10", "1e3", "abc", "--5"};
    for (size_t i = 0; i < ARRAY_LEN(bad_whole); i++) {
        char argument[64];
        snprintf(argument, sizeof argument, "--max-tokens=%s", bad_whole[i]);
        CHECK_USAGE("not a whole number", argument);
    }
    CHECK_USAGE("--max-tokens 99999999999999999999: too large", "--max-tokens", "99999999999999999999");
    CHECK_USAGE("--max-tokens 0: must be between 1 and 100", "--max-tokens", "0");
    CHECK_USAGE("--max-tokens -5: must be between 1 and 100", "--max-tokens", "-5");
    CHECK_USAGE("--temperature -0.1: must be at least 0", "--temperature", "-0.1");
    CHECK_USAGE("not a number", "--temperature", "nan");
    CHECK_USAGE("not a number", "--temperature", "0x1p3");
    CHECK_USAGE("not a number", "--temperature", "");
    CHECK_USAGE("not a size", "--max-ram", "8X");
    CHECK_USAGE("not a size", "--max-ram", "-8");
    CHECK_USAGE("not a size", "--max-ram", "8GG");
    CHECK_USAGE("too large", "--max-ram", "99999999T");
    CHECK_USAGE("'c' is one argument too many", "a", "b", "c");
    const char *many[140];
    for (int i = 0; i < 65; i++)
        many[i] = "--stop=x";
    many[65] = NULL;
    /* The argv of the other cases holds only 63 arguments, so the capacity of a repeated option is tested here. */
    struct arg_program copy = program;
    char *argv[67] = {(char *)"drt-test"};
    for (int i = 0; i < 65; i++)
        argv[i + 1] = (char *)many[i];
    got.many.count = 0;
    int count;
    const char *texts[67];
    int saved = dup(2);
    CHECK(freopen("/dev/null", "w", stderr));
    CHECK_EQ(args_parse(&copy, 66, argv, texts, &count), 2);
    fflush(stderr);
    dup2(saved, 2);
}

static void test_letters(void) {
    CHECK_EQ(PARSE("-n", "12", "-c", "a"), -1);
    CHECK_EQ(got.whole, 12);
    CHECK(got.flag);
    CHECK_EQ(n_operands, 1);
    CHECK_USAGE("unknown option -n12 (the value is an argument of its own: -n 12)", "-n12");
    CHECK_USAGE("unknown option -n=12 (the value is an argument of its own: -n 12)", "-n=12");
    CHECK_USAGE("unknown option -max-tokens (did you mean --max-tokens, with two dashes?)", "-max-tokens", "3");
    CHECK_USAGE("--max-tokens needs a value (N), but -c follows", "-n", "-c");
    CHECK_USAGE("--max-tokens -5: must be between 1 and 100", "-n", "-5");
    CHECK_USAGE("--max-tokens needs a value (N)", "-n");
    CHECK_EQ(PARSE("--", "-n"), -1);
    CHECK_EQ(n_operands, 1);
    CHECK_EQ(PARSE("-h"), 0);
    CHECK(strstr(captured, "\n  -n, --max-tokens N "));
    CHECK(strstr(captured, "\n  -h, --help  "));
    CHECK(strstr(captured, "\n  -V, --version  "));
}

static void test_operand_of_option(void) {
    parsed = &of_store;
    CHECK_EQ(PARSE("a", "--text", "b"), -1);
    CHECK_STR(got.path, "a");
    CHECK_EQ(n_operands, 0);
    CHECK_EQ(PARSE("--text", "b", "a"), -1);
    CHECK_STR(got.path, "a");
    CHECK_EQ(PARSE("--store", "a"), -1);
    CHECK_STR(got.path, "a");
    CHECK_USAGE("--store is given twice: 'a' is one, too", "a", "--store", "b");
    CHECK_USAGE("'b' is one argument too many", "--store", "a", "b");
    CHECK_USAGE("'b' is one argument too many", "a", "b");
    CHECK_USAGE("--store '': the name is empty", "");
    parsed = &program;
}

static void test_version(void) {
    CHECK_EQ(PARSE("--nonsense", "--version"), 0);
    CHECK(strncmp(captured, "drt-test ", 9) == 0);
    CHECK(strstr(captured, " (commit "));
    const char *const lines[] = {"\nstore format ", "\ncompiler ", "\nOpenBLAS ", "\nFAISS ", "\nCUDA "};
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        CHECK(strstr(captured, lines[i]));
    CHECK_EQ(PARSE("-V"), 0);
    CHECK_EQ(PARSE("--help", "--version"), 0);
    CHECK(strstr(captured, "Usage: "));
    CHECK_USAGE("unknown option --versoin (did you mean --version?)", "--versoin");
}

static void test_help(void) {
    CHECK_EQ(PARSE("--max-tokens", "50", "--help"), 0);
    CHECK(strstr(captured, "Usage: drt-test go FILE... [options]\n\nDoes things.\n\nAnd others.\n\nThings:\n"));
    CHECK(strstr(captured, " here\n") || strstr(captured, " here (default")); /* a newline in mid-sentence is a space */
    CHECK(strstr(captured, "(default: 7)")); /* the default, not the 50 of this command line */
    CHECK(strstr(captured, "(default: 8G)"));
    CHECK(strstr(captured, "(default: 0.5)"));
    CHECK(strstr(captured, "\nExamples:\n  drt-test go a b\n"));
    for (const char *line = captured; *line;) {
        size_t length = strcspn(line, "\n");
        CHECK(length <= 100);
        line += length + (line[length] == '\n');
    }
    CHECK_EQ(PARSE("-h", "--nonsense"), 0);
    CHECK_EQ(PARSE("--nonsense", "--help"), 0); /* --help wins over errors */
    CHECK_EQ(PARSE("--text", "-h"), -1);        /* a value, not the option */
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    test_values();
    test_letters();
    test_operand_of_option();
    test_version();
    test_refusals(); /* keeps stderr on another descriptor */
    test_help();
    return test_done();
}
