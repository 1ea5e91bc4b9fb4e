/* bert_fixture.h -- tests/oracles/bert/: a small BERT and the vectors that `transformers` computes with it
 * (make_bert.py). */
#pragma once
#include "base/file.h"
#include "base/formats/json.h"
#include "tests/test.h"

enum { ORACLE_TEXTS_MAX = 32, ORACLE_IDS_MAX = 128, ORACLE_DIM = 32, ORACLE_MODES = 3 };
static const char *const oracle_modes[ORACLE_MODES] = {"uncased", "cased", "accents"};

struct oracle {
    int n, max_tokens;
    char text[ORACLE_TEXTS_MAX][1024]; size_t bytes[ORACLE_TEXTS_MAX];
    int32_t ids[ORACLE_MODES][ORACLE_TEXTS_MAX][ORACLE_IDS_MAX]; int n_ids[ORACLE_MODES][ORACLE_TEXTS_MAX];
    float rows[2][ORACLE_TEXTS_MAX][ORACLE_DIM];          /* means, and the same with length 1; of mode 0 */
};

static inline const char *oracle_folder(void) {
    static char path[1024];
    const char *source = getenv("DRT_SOURCE");
    snprintf(path, sizeof path, "%s/tests/oracles/bert", source ? source : ".");
    return path;
}

static inline void oracle_ids(struct oracle *o, struct json *j) {
    CHECK_OK(json_expect(j, JSON_OBJECT, "modes"));
    for (int mode = 0; json_next(j) == JSON_KEY; mode++) {
        CHECK(mode < ORACLE_MODES && json_equals(j, oracle_modes[mode]));
        CHECK_OK(json_expect(j, JSON_ARRAY, "texts"));
        for (int t = 0; json_next(j) == JSON_ARRAY; t++)
            for (int64_t id; json_next(j) == JSON_NUMBER;) {
                CHECK_OK(json_int(j, &id));
                CHECK(o->n_ids[mode][t] < ORACLE_IDS_MAX);
                o->ids[mode][t][o->n_ids[mode][t]++] = (int32_t)id;
            }
    }
}

static inline void oracle_rows(float (*rows)[ORACLE_DIM], struct json *j) {
    CHECK_OK(json_expect(j, JSON_ARRAY, "rows"));
    for (int t = 0; json_next(j) == JSON_ARRAY; t++) {
        double value;
        int i = 0;
        for (; json_next(j) == JSON_NUMBER; i++) {
            CHECK(i < ORACLE_DIM);
            CHECK_OK(json_double(j, &value));
            rows[t][i] = (float)value;
        }
        CHECK_EQ(i, ORACLE_DIM);
    }
}

static inline struct oracle *oracle_open(void) {
    struct oracle *o = calloc(1, sizeof *o);
    struct file_map map;
    struct json j;
    char path[2048];
    snprintf(path, sizeof path, "%s/expected.json", oracle_folder());
    CHECK_OK(file_map(&map, path));
    json_open(&j, path, map.data, map.size);
    CHECK_OK(json_expect(&j, JSON_OBJECT, "an object"));
    while (json_next(&j) == JSON_KEY) {
        int64_t value;
        if (json_equals(&j, "max_tokens")) {
            CHECK_OK(json_next_int(&j, &value));
            o->max_tokens = (int)value;
        } else if (json_equals(&j, "texts")) {
            CHECK_OK(json_expect(&j, JSON_ARRAY, "texts"));
            for (; json_next(&j) == JSON_STRING; o->n++)
                CHECK_OK(json_string(&j, o->text[o->n], sizeof o->text[0], &o->bytes[o->n]));
        } else if (json_equals(&j, "ids")) {
            oracle_ids(o, &j);
        } else {
            oracle_rows(o->rows[json_equals(&j, "units")], &j);
        }
    }
    CHECK(o->n >= 16 && o->max_tokens >= 3);
    file_unmap(&map);
    return o;
}
