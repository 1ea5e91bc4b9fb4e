/* test_rouge.c -- ROUGE against the figures of the Python package rouge-score 0.1.2 (RougeScorer(["rouge1", "rouge2",
 * "rougeL"]), no stemmer), and its properties on random texts.
 *
 * `test_rouge pairs` prints the figures of each line "target TAB answer" of standard input, for
 * tests/oracles/rouge.py. */
#include "base/memory.h"
#include "base/rng.h"
#include "tools/tasks/rouge.h"

#include "tests/test.h"

static const struct {
    const char *target, *answer;
    struct rouge_score want[ROUGE_KINDS];
} cases[] = {
    {"The cat sat on the mat.",
     "the cat was on the mat",
     {{0.833333, 0.833333, 0.833333}, {0.600000, 0.600000, 0.600000}, {0.833333, 0.833333, 0.833333}}},
    {"", "", {{0.000000, 0.000000, 0.000000}, {0.000000, 0.000000, 0.000000}, {0.000000, 0.000000, 0.000000}}},
    {"a", "A", {{1.000000, 1.000000, 1.000000}, {0.000000, 0.000000, 0.000000}, {1.000000, 1.000000, 1.000000}}},
    {"one", "two", {{0.000000, 0.000000, 0.000000}, {0.000000, 0.000000, 0.000000}, {0.000000, 0.000000, 0.000000}}},
    {"It's 3.14, e.g. GPT-2's O'Neil",
     "its 3 14 eg gpt 2 s o neil",
     {{0.777778, 0.636364, 0.700000}, {0.625000, 0.500000, 0.555556}, {0.777778, 0.636364, 0.700000}}},
    {"a\xc4\xb0"
     "b c",
     "ai b c",
     {{1.000000, 1.000000, 1.000000}, {1.000000, 1.000000, 1.000000}, {1.000000, 1.000000, 1.000000}}},
    {"\xe2\x84\xaa"
     "elvin 20",
     "kelvin 20",
     {{1.000000, 1.000000, 1.000000}, {1.000000, 1.000000, 1.000000}, {1.000000, 1.000000, 1.000000}}},
    {"x x x x y",
     "x y x z x x x",
     {{0.714286, 1.000000, 0.833333}, {0.500000, 0.750000, 0.600000}, {0.571429, 0.800000, 0.666667}}},
    {"na\xc3\xaf"
     "ve caf\xc3\xa9"
     "",
     "nave caf",
     {{0.500000, 0.333333, 0.400000}, {0.000000, 0.000000, 0.000000}, {0.500000, 0.333333, 0.400000}}},
    {"repeated words words words",
     "words words repeated",
     {{1.000000, 0.750000, 0.857143}, {0.500000, 0.333333, 0.400000}, {0.666667, 0.500000, 0.571429}}},
    {"on winding under north seven under lights under table ring the lights sand seven stone table the and river north "
     "sand lights stone other ring river on stone the under stone other winding and lights seven other and seven seven",
     "river and on on sand and and the lights the stone seven stone and lights and winding north stone ring table "
     "table stone and under stone other winding the north",
     {{0.866667, 0.650000, 0.742857}, {0.206897, 0.153846, 0.176471}, {0.466667, 0.350000, 0.400000}}},
    {"other and and winding river north winding lights on on the on table under north river winding north lights "
     "winding sand under north and sand sand under and the winding the under north lights other the ring seven other "
     "north other on lights the sand the under and on stone river seven stone lights sand north ring north ring "
     "winding seven sand river on under seven seven north lights winding the other river stone north ring on north and "
     "north winding under ring river winding table north winding and seven river table and under under winding sand "
     "and under the river on ring other the stone under on north lights winding sand table other and the table the "
     "seven sand",
     "north lights stone and under on and table seven other river and other north and the lights other winding and "
     "sand on lights and ring sand sand under under north sand winding winding sand other and river other lights ring "
     "and table sand lights north and river sand winding ring seven ring lights ring north river seven seven seven "
     "north under on table the seven winding north ring under table winding lights sand winding seven under under "
     "winding north table and on lights the sand ring seven winding north table",
     {{0.955556, 0.716667, 0.819048}, {0.426966, 0.319328, 0.365385}, {0.488889, 0.366667, 0.419048}}},
    {"winding sand winding lights ring table table",
     "seven north north winding table north under lights other north lights and lights lights under sand north north "
     "ring and ring and stone lights north lights sand winding under river under table under other and on seven on "
     "ring table other winding on ring seven lights table winding under the stone and on sand on table and stone seven "
     "table and table under the sand stone and the and river north and sand stone ring the other sand north other "
     "table on river on stone stone under north the north other winding lights other lights river under lights ring "
     "north the ring on winding river winding ring ring north on winding north lights and other other lights on table "
     "ring north sand and and on other on sand stone and on river north lights table the other river north on on ring "
     "and north table on other other other stone sand winding sand under other other lights and on on winding under "
     "winding sand winding other the north winding sand winding and sand the river table on sand stone winding the "
     "seven and lights other the sand ring ring winding stone sand seven the stone sand winding lights and under",
     {{0.035000, 1.000000, 0.067633}, {0.025126, 0.833333, 0.048780}, {0.035000, 1.000000, 0.067633}}},
};

static void test_cases(void) {
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rouge_score s[ROUGE_KINDS];
        CHECK_OK(rouge(s, cases[i].target, strlen(cases[i].target), cases[i].answer, strlen(cases[i].answer)));
        for (int k = 0; k < ROUGE_KINDS; k++) {
            const struct rouge_score *w = &cases[i].want[k];
            const bool same = fabs(s[k].precision - w->precision) < 1e-6 && fabs(s[k].recall - w->recall) < 1e-6 &&
                              fabs(s[k].f - w->f) < 1e-6;
            if (!same)
                fprintf(stderr, "%s of case %zu: %f %f %f\n", rouge_names[k], i, s[k].precision, s[k].recall, s[k].f);
            CHECK(same);
        }
    }
}

/* Exchanging the texts exchanges precision and recall; a text against itself scores 1; ROUGE-L is at most ROUGE-1. */
static void test_properties(void) {
    struct rng rng = rng_make(test_seed(), 0);
    for (int round = 0; round < 300; round++) {
        char text[2][400];
        size_t n[2];
        struct rouge_score one[ROUGE_KINDS], other[ROUGE_KINDS];
        for (int t = 0; t < 2; t++) {
            n[t] = (size_t)rng_below(&rng, sizeof text[t]);
            for (size_t i = 0; i < n[t]; i++)
                text[t][i] = "ab c\xc4\xb0\xe2\x84\xaa 7Q."[rng_below(&rng, 14)];
        }
        CHECK_OK(rouge(one, text[0], n[0], text[1], n[1]));
        CHECK_OK(rouge(other, text[1], n[1], text[0], n[0]));
        for (int k = 0; k < ROUGE_KINDS; k++) {
            CHECK(fabs(one[k].precision - other[k].recall) < 1e-12 && fabs(one[k].f - other[k].f) < 1e-12);
            CHECK(one[k].f >= 0 && one[k].f <= 1);
        }
        CHECK(one[ROUGE_L].f <= one[ROUGE_1].f + 1e-12);
        CHECK_OK(rouge(one, text[0], n[0], text[0], n[0]));
        CHECK(one[ROUGE_1].f == 0 || (fabs(one[ROUGE_1].f - 1) < 1e-12 && fabs(one[ROUGE_L].f - 1) < 1e-12));
    }
}

static int print_pairs(void) {
    char *line = NULL;
    size_t capacity = 0;
    for (ssize_t n; (n = getline(&line, &capacity, stdin)) > 0;) {
        struct rouge_score s[ROUGE_KINDS];
        char *tab = strchr(line, '\t');
        CHECK(tab && line[n - 1] == '\n');
        CHECK_OK(rouge(s, line, (size_t)(tab - line), tab + 1, (size_t)(line + n - 1 - (tab + 1))));
        for (int k = 0; k < ROUGE_KINDS; k++)
            printf("%.17g %.17g %.17g%c", s[k].precision, s[k].recall, s[k].f, k + 1 < ROUGE_KINDS ? ' ' : '\n');
    }
    free(line);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "pairs") == 0) return print_pairs();
    test_start(argc, argv, 1);
    test_cases();
    test_properties();
    return test_done();
}
