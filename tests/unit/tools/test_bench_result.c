/* test_bench_result.c -- the results that benchmarks write: quartiles, peers, the arguments, and a file that cannot be
 * written. */
#include "base/file.h"
#include "session/build_version.h"
#include "tests/bench/result.h"
#include "tests/test.h"
#include <sys/wait.h>

static void quantiles(void) {
    const double one[] = {4}, four[] = {4, 1, 3, 2};
    CHECK(samples_quantile(one, 1, 0.0) == 4 && samples_quantile(one, 1, 0.5) == 4 && samples_quantile(one, 1, 1) == 4);
    CHECK(samples_quantile(four, 4, 0.5) == 2.5);
    CHECK(samples_quantile(four, 4, 0.25) == 1.75);
    CHECK(samples_quantile(four, 4, 0.75) == 3.25);
    CHECK(samples_quantile(four, 4, 0) == 1 && samples_quantile(four, 4, 1) == 4);
    struct samples s = {0};
    for (int i = 100; i >= 0; i--)
        samples_add(&s, i);
    CHECK_EQ(s.count, 101);
    CHECK(samples_quantile(s.at, s.count, 0.25) == 25);
    samples_free(&s);
    CHECK(!s.at && s.count == 0);
}

/* Runs like a benchmark, in a separate process; returns its exit status. */
static int run_bench(const char *json, const char *commit) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char *argv[] = {(char *)"bench", (char *)"a b", (char *)"--json", (char *)json, (char *)"c", NULL};
        int argc = 5;
        const double seconds[] = {0.002, 0.001, 0.004};
        setenv("DRT_COMMIT", commit, 1);
        result_begin("bench_test", &argc, argv);
        if (argc != 3 || strcmp(argv[1], "a b") != 0 || strcmp(argv[2], "c") != 0 || argv[3]) _exit(9);
        struct figure f = {.unit = "ms", .values = seconds, .count = 3, .scale = 1e3, .peer = "a \"peer\"", .ratio = 2};
        result_gpu("card");
        result_figure(&f, "case %d", 1);
        f = (struct figure){.unit = "items/s", .values = seconds, .count = 3, .work = 8};
        result_figure(&f, "case 2");
        result_value("s", 1.0 / 3, "third");
        result_end();
        _exit(0); /* exit would remove test_folder */
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static bool holds(const struct file_map *map, const char *text) {
    if (memmem(map->data, map->size, text, strlen(text))) return true;
    fprintf(stderr, "not found: %s\nin: %.*s\n", text, (int)map->size, (const char *)map->data);
    return false;
}

static void written(void) {
    char path[600], commit[100];
    struct file_map map;
    snprintf(path, sizeof path, "%s/result.json", test_folder());
    CHECK_EQ(run_bench(path, ""), 0);
    CHECK_OK(file_map(&map, path));
    snprintf(commit, sizeof commit, "\"commit\": \"%s\"",
             build_version().commit[0] ? build_version().commit : "unknown");
    CHECK(holds(&map, commit));
    file_unmap(&map);
    CHECK_EQ(run_bench(path, "1234abc"), 0);
    CHECK_OK(file_map(&map, path));
    CHECK(holds(&map, "\"name\": \"bench_test\"") && holds(&map, "\"commit\": \"1234abc\""));
    CHECK(holds(&map, "\"command\": \"bench 'a b' c\"") && holds(&map, "\"gpu\": \"card\""));
    CHECK(holds(&map, "{\"name\":\"case 1\",\"unit\":\"ms\",\"median\":2,\"q1\":1.5,\"q3\":3,\"n\":3,"
                      "\"peer\":\"a \\\"peer\\\"\",\"ratio\":2}"));
    CHECK(holds(&map, "{\"name\":\"case 2\",\"unit\":\"items/s\",\"median\":4000,\"q1\":3000,\"q3\":6000,\"n\":3}"));
    CHECK(holds(&map, "\"median\":0.333333,"));
    file_unmap(&map);
}

static void not_written(void) {
    char path[600];
    snprintf(path, sizeof path, "%s/no/such/folder.json", test_folder());
    CHECK_EQ(run_bench(path, "1234abc"), 1);
    CHECK(!file_exists(path));
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    quantiles();
    written();
    not_written();
    return test_done();
}
