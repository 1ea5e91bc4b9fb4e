/* test_plot.c -- plots of training logs: reading, subsampling, axes, and the structure of page and picture. */
#include "base/file.h"
#include "tests/test.h"
#include "train/plot/plot_internal.h"
#include <ctype.h>

static void parse(struct plot_log *log, const char *text) {
    CHECK_OK(plot_log_parse(log, "log", text, strlen(text)));
}

static void fails(const char *text, const char *message) {
    struct plot_log log;
    CHECK_FAILS(plot_log_parse(&log, "log", text, strlen(text)), STATUS_CORRUPT, message);
    plot_log_free(&log);
}

static void test_log(void) {
    struct plot_log log;
    parse(&log, "");
    CHECK_EQ(log.n_rows, 0);
    plot_log_free(&log);
    parse(&log, "{\"step\":1,\"tokens\":10,\"loss\":2.5,\"new\":[1,{\"a\":[]}],\"lr\":null}\r\n\n"
                "{\"tokens\":20,\"step\":2,\"valid_loss\":1,\"loss\":1e300}\n");
    CHECK_EQ(log.n_rows, 2);
    CHECK_EQ(log.rows[0].has, 1 << PLOT_LOSS | 1 << PLOT_LEARNING_RATE);
    CHECK(log.rows[0].values[PLOT_LOSS] == 2.5 && isnan(log.rows[0].values[PLOT_LEARNING_RATE]));
    CHECK(log.rows[1].values[PLOT_VALID_LOSS] == 1 && isnan(log.rows[1].values[PLOT_LOSS]));
    plot_log_free(&log);
    /* A run in progress: its last line is cut anywhere, or complete without its line break. */
    const char *whole = "{\"step\":1,\"tokens\":1,\"loss\":3}\n{\"step\":2,\"tokens\":2,\"loss\":4}";
    size_t line = strcspn(whole, "\n") + 1;
    for (size_t n = line; n <= strlen(whole); n++) {
        CHECK_OK(plot_log_parse(&log, "log", whole, n));
        CHECK_EQ(log.n_rows, n == strlen(whole) ? 2 : 1);
        plot_log_free(&log);
    }
    fails("{\"step\":1,\"tokens\":1}\n{\"step\":2,\"tok\n{\"step\":3,\"tokens\":3}\n", "log: line 2 of the log");
    fails("{\"step\":1,\"tokens\":1,\"loss\":\"x\"}\n", "expected a number or null");
    fails("{\"tokens\":1}\n", "no \"step\"");
    fails("{\"step\":1}\n", "no \"tokens\"");
    fails("{\"step\":1.5,\"tokens\":1}\n", "line 1");
    fails("[]\n", "expected an object");
    fails("{\"step\":1,\"tokens\":1} {}\n", "expected the end of the line");
    fails("{\"step\":1,\"tokens\":9}\n{\"step\":2,\"tokens\":8}\n", "step 2 has seen 8 tokens");
}

/* The run was resumed from step 2: the first run's steps and validations from 3 on do not count. */
static void test_resumed(void) {
    struct plot_log log;
    parse(&log, "{\"step\":1,\"tokens\":1,\"loss\":1}\n{\"step\":2,\"tokens\":2,\"loss\":2}\n{\"step\":2,\"tokens\":2,"
                "\"valid_loss\":2}\n"
                "{\"step\":3,\"tokens\":3,\"loss\":3}\n{\"step\":4,\"tokens\":4,\"loss\":4}\n{\"step\":4,\"tokens\":4,"
                "\"valid_loss\":4}\n"
                "{\"step\":3,\"tokens\":3,\"loss\":33}\n{\"step\":4,\"tokens\":5,\"loss\":44}\n");
    struct plot_series s;
    CHECK_OK(plot_subsample(&s, &log, PLOT_LOSS, PLOT_STEPS, 0, 4, 1000));
    CHECK_EQ(s.n_columns, 4);
    CHECK(s.columns[2].last == 33 && s.columns[3].last == 44);
    plot_series_free(&s);
    CHECK_OK(plot_subsample(&s, &log, PLOT_VALID_LOSS, PLOT_STEPS, 0, 4, 1000));
    CHECK_EQ(s.n_columns, 1);
    plot_series_free(&s);
    plot_log_free(&log);
}

/* A long log by hand: value(i) at step i, which may be NaN. */
static void make_log(struct plot_log *log, size_t n, double (*value)(size_t i)) {
    *log = (struct plot_log){.n_rows = n, .rows = calloc(n, sizeof *log->rows)};
    CHECK(log->rows);
    for (size_t i = 0; i < n; i++) {
        log->rows[i] = (struct plot_row){.step = (int64_t)i, .tokens = 100 * (int64_t)i, .has = 1 << PLOT_LOSS};
        log->rows[i].values[PLOT_LOSS] = value(i);
    }
}

static double spikes(size_t i) {
    return i == 123457 ? 1e30 : i == 200001 ? -7 : i == 50000 ? NAN : 3 + (double)(i * 7919 % 1000) / 1000;
}
static double constant(size_t i) {
    return i >= 1500 && i < 1600 ? NAN : 2;
}
static double slope(size_t i) {
    return 10 - (double)i / 100;
}

static void test_thin(void) {
    struct plot_log log;
    struct plot_series s;
    make_log(&log, 300000, spikes);
    CHECK_OK(plot_subsample(&s, &log, PLOT_LOSS, PLOT_TOKENS, 0, 300000 * 100, 1000));
    CHECK_EQ(s.n_columns, 1000);
    int64_t finite = 0, broken = 0;
    for (size_t i = 0; i < s.n_columns; i++) {
        const struct plot_column *c = &s.columns[i];
        double low = INFINITY, high = -INFINITY, sum = 0; /* each column against its 300 points */
        for (size_t k = 300 * i; k < 300 * i + 300; k++)
            if (isfinite(spikes(k))) low = fmin(low, spikes(k)), high = fmax(high, spikes(k)), sum += spikes(k);
        CHECK(c->low == low && c->high == high && c->last == spikes(300 * i + 299));
        CHECK(fabs(c->mean - sum / (double)c->finite) <= 1e-9 * fmax(1, fabs(c->mean)));
        finite += c->finite;
        broken += c->broken;
    }
    CHECK_EQ(finite, 299999);
    CHECK_EQ(broken, 1);
    /* The spike raises the points near it and no others. */
    plot_smooth(&s, PLOT_TOKENS, 300000 * 100 / 150.);
    CHECK(s.columns[411].smooth > 1e20 && fabs(s.columns[440].smooth - 3.5) < 0.02 &&
          fabs(s.columns[380].smooth - 3.5) < 0.02);
    plot_series_free(&s);
    free(log.rows);
}

static void test_smooth(void) {
    struct plot_log log;
    struct plot_series s;
    make_log(&log, 3000, constant);
    CHECK_OK(plot_subsample(&s, &log, PLOT_LOSS, PLOT_STEPS, 0, 3000, 30000));
    plot_smooth(&s, PLOT_STEPS, 20);
    for (size_t i = 0; i < s.n_columns; i++) {
        CHECK(s.columns[i].finite == 0 || fabs(s.columns[i].smooth - 2) < 1e-12);
        CHECK_EQ(s.columns[i].gap, s.columns[i].along[PLOT_STEPS] == 1600);
    }
    plot_series_free(&s);
    free(log.rows);
    make_log(&log, 800, slope);
    CHECK_OK(plot_subsample(&s, &log, PLOT_LOSS, PLOT_STEPS, 0, 800, 8000));
    plot_smooth(&s, PLOT_STEPS, 30);
    for (size_t i = 0; i < 700; i++) /* the beginning of a slope is not flattened */
        CHECK(fabs(s.columns[i].smooth - slope(i)) < 1e-9);
    plot_series_free(&s);
    free(log.rows);
}

static void check_labels(const char *what, const struct plot_axis *axis, const char *wanted) {
    char all[PLOT_TICKS_MAX * (PLOT_LABEL_MAX + 1)] = "";
    size_t used = 0;
    for (int i = 0; i < axis->n_ticks; i++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? "," : "", axis->labels[i]);
    if (strcmp(all, wanted) != 0) fprintf(stderr, "%s\n", what);
    CHECK_STR(all, wanted);
}

static void test_axes(void) {
    static const struct {
        double low, high;
        int most;
        bool log;
        const char *labels;
    } cases[] = {
        {0, 10, 6, false, "0,2,4,6,8,10"},
        {0, 1.32e9, 7, false, "0,0.2 G,0.4 G,0.6 G,0.8 G,1.0 G,1.2 G"},
        {0, 150e3, 4, false, "0,50 K,100 K,150 K"},
        {0, 2.3e-4, 6, false, "0,0.5e-4,1.0e-4,1.5e-4,2.0e-4"},
        {-1, 1, 5, false, "-1.0,-0.5,0,0.5,1.0"},
        {3.3, 3.3, 5, false, "3.0,3.2,3.4,3.6"},
        {0, 0, 5, false, "-1.0,-0.5,0,0.5,1.0"},
        {0.1, 120, 6, true, "0.1,1,10,100"},
        {0.3, 6, 6, true, "0.5,1,2,5"},
        {2, 11.5, 10, true, "2,3,4,5,6,7,8,9,10"},
        {1e-8, 1e6, 6, true, "1e-5,1,100 K"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plot_axis axis;
        (cases[i].log ? plot_axis_log : plot_axis_linear)(&axis, cases[i].low, cases[i].high, cases[i].most);
        char what[80];
        snprintf(what, sizeof what, "axis from %g to %g", cases[i].low, cases[i].high);
        check_labels(what, &axis, cases[i].labels);
    }
    /* For any range: between two and `most` ticks, inside, rising. */
    for (int k = 0; k < 20000; k++) {
        double low = pow(10, (k % 97) / 4. - 12), high = low * (1 + pow(10, (k % 89) / 10. - 4));
        struct plot_axis axis;
        plot_axis_linear(&axis, k & 1 ? -low : low, high, 3 + k % 9);
        CHECK(axis.n_ticks >= 1 && axis.n_ticks <= 3 + k % 9);
        for (int i = 0; i < axis.n_ticks; i++) {
            double at = plot_axis_at(&axis, axis.ticks[i]);
            CHECK(at > -1e-5 && at < 1 + 1e-5 && (i == 0 || axis.ticks[i] > axis.ticks[i - 1]));
            CHECK(i == 0 || strcmp(axis.labels[i], axis.labels[i - 1]) != 0);
        }
    }
    char text[PLOT_LABEL_MAX];
    CHECK_STR(plot_number(text, 1234567, 3), "1.23 M");
    CHECK_STR(plot_number(text, 0.000312, 3), "3.12e-4");
    CHECK_STR(plot_number(text, 2.5, 4), "2.500");
    CHECK_STR(plot_number(text, 0, 3), "0.00");
}

/* Every tag is closed by its own name, every attribute is quoted, and text has no bare '<' or '&'. This finds the
 * errors that a drawing program can make. */
static void check_xml(const char *text) {
    char stack[32][16];
    int depth = 0, roots = 0;
    const char *p = text;
    while (*p) {
        if (*p == '&') CHECK(p[1] == '#' && isdigit((unsigned char)p[2]));
        if (*p != '<') {
            CHECK(depth > 0 || isspace((unsigned char)*p));
            p++;
            continue;
        }
        const char *end = p;
        for (bool quoted = false; *end && (quoted || *end != '>'); end++) {
            if (*end == '"') quoted = !quoted;
            CHECK(end == p || *end != '<');
        }
        CHECK(*end == '>');
        char name[16] = "";
        bool close = p[1] == '/';
        CHECK_EQ(sscanf(p + 1 + close, "%15[a-z?]", name), 1);
        if (close) {
            CHECK(depth > 0);
            CHECK_STR(stack[--depth], name);
        } else if (end[-1] != '/' && end[-1] != '?') {
            CHECK(depth < 32);
            roots += depth == 0;
            memcpy(stack[depth++], name, sizeof name);
        }
        p = end + 1;
    }
    CHECK_EQ(depth, 0);
    CHECK_EQ(roots, 1);
}

static char *load(const char *path) {
    struct file_map map;
    CHECK_OK(file_map(&map, path));
    char *text = calloc(map.size + 1, 1);
    CHECK(text);
    memcpy(text, map.data, map.size);
    file_unmap(&map);
    return text;
}

static int occurrences(const char *text, const char *what) {
    int n = 0;
    for (; (text = strstr(text, what)); text++)
        n++;
    return n;
}

static const char *in_folder(char out[FILE_PATH_MAX], const char *name) {
    CHECK_OK(file_join(out, test_folder(), name));
    return out;
}

static void make_run(const char *name, const char *text) {
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
    CHECK_OK(file_make_directory(in_folder(folder, name)));
    CHECK_OK(file_join(path, folder, "log.jsonl"));
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void test_files(void) {
    make_run("a <b>&\"\x01\xff",
             "{\"step\":1,\"tokens\":1,\"loss\":3,\"lr\":1e-4}\n{\"step\":2,\"tokens\":2,\"loss\":null}\n"
             "{\"step\":3,\"tokens\":3,\"loss\":2.5,\"valid_loss\":2.75}\n");
    make_run("b", "{\"step\":1,\"tokens\":5,\"loss\":3}\n{\"step\":2,\"tokens\":10,\"loss\":2}\n");
    make_run("empty", "");
    make_run("damaged", "{\"step\":1,\"tokens\":5,\"loss\":3}\n{\"step\":2,\n{}\n");
    char a[FILE_PATH_MAX], b[FILE_PATH_MAX], empty[FILE_PATH_MAX], damaged[FILE_PATH_MAX], out[FILE_PATH_MAX];
    const char *runs[] = {in_folder(a, "a <b>&\"\x01\xff"), in_folder(b, "b"), in_folder(empty, "empty")};
    CHECK_OK(plot_write(in_folder(out, "all.svg"), runs, 3, NULL));
    char *text = load(out);
    check_xml(text);
    CHECK_EQ(occurrences(text, "run r0 line "), 2); /* loss and learning rate; every run has a line in each */
    CHECK_EQ(occurrences(text, "run r0 cross"), 1);
    CHECK_EQ(occurrences(text, "run r0 ring"), 1);
    CHECK(strstr(text, "a &#60;b&#62;&#38;&#34;\xef\xbf\xbd\xef\xbf\xbd") && strstr(text, ">3 runs<"));
    CHECK(!strstr(text, "nan") && !strstr(text, "inf"));
    CHECK_EQ(occurrences(text, "http"), 1); /* the name space: nothing is fetched */
    free(text);
    CHECK_OK(
        plot_write(in_folder(out, "all.html"), runs, 3, &(struct plot_config){.title = "<i>", .along = PLOT_STEPS}));
    text = load(out);
    CHECK(strstr(text, "<h1>&#60;i&#62;</h1>") && strstr(text, "<body class=\"steps\">"));
    CHECK_EQ(occurrences(text, "data-run="), 3);
    CHECK_EQ(occurrences(text, "<figure"), 2);
    CHECK_EQ(occurrences(text, "http"), 0);
    free(text);
    CHECK_OK(plot_write(in_folder(out, "empty.svg"), runs + 2, 1, NULL));
    text = load(out);
    check_xml(text);
    CHECK(strstr(text, "Nothing was logged yet."));
    free(text);
    /* A refresh replaces the page; a failure keeps the old one. */
    CHECK_OK(plot_refresh(b));
    CHECK_OK(plot_refresh(b));
    CHECK_OK(file_join(out, b, "plot.html"));
    CHECK(file_exists(out));
    runs[2] = in_folder(damaged, "damaged");
    text = load(in_folder(out, "all.svg"));
    CHECK_FAILS(plot_write(out, runs, 3, NULL), STATUS_CORRUPT, "damaged/log.jsonl: line 2 of the log");
    char *again = load(out);
    CHECK_STR(text, again);
    free(text);
    free(again);
    runs[0] = test_folder();
    CHECK_FAILS(plot_write(out, runs, 1, NULL), STATUS_NOT_FOUND, "has no log.jsonl");
    CHECK_FAILS(plot_write("x.png", runs, 1, NULL), STATUS_INVALID, ".html or .svg");
    CHECK_FAILS(plot_write(out, runs, PLOT_RUNS_MAX + 1, NULL), STATUS_INVALID, "line styles for 28");
}

/* The picture of a log a hundred times as long is not much larger. */
static void test_size(void) {
    struct plot_run run = {.path = "x", .name = "x"};
    struct plot_picture p = {.runs = &run, .n_runs = 1};
    make_log(&run.log, 300000, spikes);
    plot_picture_ends(&p);
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    CHECK(out);
    CHECK_OK(plot_svg(out, &p, &(struct plot_config){.title = "x"}));
    fclose(out);
    CHECK(bytes > 20000 && bytes < 120000);
    check_xml(text);
    free(text);
    free(run.log.rows);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    test_log();
    test_resumed();
    test_thin();
    test_smooth();
    test_axes();
    test_files();
    test_size();
    return test_done();
}
