/* test_bert_oracle.c -- ids and vectors of a real BERT-type encoder against those that `transformers` made: the folder
 * in DRT_BERT_FOLDER, the cases in DRT_BERT_CASES. tests/oracles/minilm.py makes both and runs this program; without
 * them it is skipped. */
#include "base/formats/safetensors.h"
#include "data/wordpiece/wordpiece.h"
#include "encoder/bert/bert_encoder.h"
#include "tests/test.h"

struct cases {
    struct safetensors *file;
    const char *text;
    int32_t *text_begin, *ids, *ids_begin;
    float *units;
    int64_t n, dim;
};

static int32_t *numbers(const struct cases *c, const char *name, int64_t *count) {
    const struct tensor_view *v = safetensors_find(c->file, name);
    CHECK(v && v->dims == 1);
    int32_t *out = calloc((size_t)v->count + 1, sizeof *out);
    CHECK_OK(safetensors_to_i32(out, v));
    *count = v->count;
    return out;
}

static void open_cases(struct cases *c, const char *path) {
    int64_t count;
    CHECK_OK(safetensors_open(&c->file, path));
    c->text_begin = numbers(c, "text_begin", &count);
    c->n = count - 1;
    c->ids_begin = numbers(c, "ids_begin", &count);
    CHECK_EQ(count, c->n + 1);
    c->ids = numbers(c, "ids", &count);
    CHECK_EQ(count, c->ids_begin[c->n]);
    const struct tensor_view *text = safetensors_find(c->file, "text"), *units = safetensors_find(c->file, "units");
    CHECK(text && units && units->dims == 2 && units->shape[0] == c->n && c->n > 0);
    c->text = text->data;
    c->dim = units->shape[1];
    c->units = calloc((size_t)units->count, sizeof *c->units);
    CHECK_OK(safetensors_to_f32(c->units, units));
}

static void compare_ids(const struct cases *c, const char *folder, size_t most) {
    struct wordpiece *w;
    struct wordpiece_scratch *s;
    CHECK_OK(wordpiece_open(&w, folder));
    CHECK_OK(wordpiece_scratch_create(&s));
    for (int64_t i = 0; i < c->n; i++) {
        const int32_t *ids;
        size_t n, want = (size_t)(c->ids_begin[i + 1] - c->ids_begin[i]);
        CHECK_OK(wordpiece_encode(w, s, c->text + c->text_begin[i], (size_t)(c->text_begin[i + 1] - c->text_begin[i]),
                                  most, &ids, &n));
        if (n == want && memcmp(ids, c->ids + c->ids_begin[i], n * sizeof *ids) == 0) continue;
        fprintf(stderr, "text %lld: %.*s\n", (long long)i, (int)(c->text_begin[i + 1] - c->text_begin[i]),
                c->text + c->text_begin[i]);
        test_fail(__FILE__, __LINE__, "ids differ from BertTokenizer's");
    }
    wordpiece_scratch_free(s);
    wordpiece_free(w);
}

int main(int argc, char **argv) {
    const char *folder = getenv("DRT_BERT_FOLDER"), *path = getenv("DRT_BERT_CASES");
    struct cases c = {0};
    struct device *dev;
    struct bert *b;
    test_start(argc, argv, 1);
    if (!folder || !path) test_skip("no model and cases: run tests/oracles/minilm.py");
    open_cases(&c, path);
    CHECK_OK(device_open(&dev, "cpu", 0));
    CHECK_OK(bert_open(&b, folder, dev, DTYPE_F32));
    CHECK_EQ(bert_config_of(b)->hidden, c.dim);
    compare_ids(&c, folder, (size_t)bert_config_of(b)->max_tokens);
    int64_t *begin = calloc((size_t)c.n + 1, sizeof *begin);
    float *rows = calloc((size_t)(c.n * c.dim), sizeof *rows), worst = 0;
    for (int64_t i = 0; i <= c.n; i++)
        begin[i] = c.ids_begin[i];
    CHECK_OK(bert_encode(b, rows, c.ids, begin, c.n, true));
    for (int64_t i = 0; i < c.n * c.dim; i++)
        worst = fmaxf(worst, fabsf(rows[i] - c.units[i]));
    printf("%lld texts, %lld ids: largest difference of a coordinate %.3g\n", (long long)c.n, (long long)begin[c.n],
           (double)worst);
    CHECK_CLOSE(rows, c.units, c.n * c.dim, 1e-5);
    bert_close(b);
    device_close(dev);
    safetensors_close(c.file);
    free(begin), free(rows), free(c.text_begin), free(c.ids), free(c.ids_begin), free(c.units);
    return test_done();
}
