/* test_bert_encoder.c -- vectors of a small BERT against those of `transformers`, from both kinds of files; the same
 * bits in any batch and with any number of threads; folders that cannot be used. */
#include "base/rng.h"
#include "encoder/bert/bert_encoder.h"
#include "tests/oracles/bert_fixture.h"

enum { MANY = 3000, DIM = ORACLE_DIM };

static void vectors_of(float *rows, struct bert *b, const struct oracle *o, bool unit) {
    static int32_t ids[ORACLE_TEXTS_MAX * ORACLE_IDS_MAX];
    int64_t begin[ORACLE_TEXTS_MAX + 1] = {0};
    for (int t = 0; t < o->n; t++) {
        memcpy(ids + begin[t], o->ids[0][t], (size_t)o->n_ids[0][t] * sizeof *ids);
        begin[t + 1] = begin[t] + o->n_ids[0][t];
    }
    CHECK_OK(bert_encode(b, rows, ids, begin, o->n, unit));
}

static void equals_transformers(struct bert *b, const struct oracle *o) {
    static float rows[ORACLE_TEXTS_MAX * DIM];
    for (int unit = 0; unit < 2; unit++) {
        vectors_of(rows, b, o, unit);
        CHECK_CLOSE(rows, o->rows[unit][0], o->n * DIM, unit ? 1e-6 : 1e-5);
    }
}

/* Many texts of random lengths, one call; then one text a call, and with other threads. */
static void same_bits(const char *folder) {
    int64_t *begin = calloc(MANY + 1, sizeof *begin);
    struct rng rng = rng_make(test_seed(), 3);
    for (int i = 0; i < MANY; i++)
        begin[i + 1] = begin[i] + 1 + (int64_t)rng_below(&rng, 64);
    int32_t *ids = calloc((size_t)begin[MANY], sizeof *ids);
    for (int64_t i = 0; i < begin[MANY]; i++)
        ids[i] = (int32_t)rng_below(&rng, 152);
    float *rows[2];
    for (int threads = 1; threads <= 2; threads++) {
        struct device *dev;
        struct bert *b;
        CHECK_OK(device_open(&dev, "cpu", threads));
        CHECK_OK(bert_open(&b, folder, dev, DTYPE_F32));
        float *r = rows[threads - 1] = calloc((size_t)MANY * DIM, sizeof *r), one[DIM];
        CHECK_OK(bert_encode(b, r, ids, begin, MANY, true));
        for (int i = 0; i < MANY; i += 17) {
            int64_t part[2] = {0, begin[i + 1] - begin[i]};
            CHECK_OK(bert_encode(b, one, ids + begin[i], part, 1, true));
            CHECK(memcmp(one, r + i * DIM, sizeof one) == 0);
        }
        CHECK_OK(bert_encode(b, r, ids, begin, 0, true));
        bert_close(b);
        device_close(dev);
    }
    CHECK(memcmp(rows[0], rows[1], (size_t)MANY * DIM * sizeof(float)) == 0);
    free(begin), free(ids), free(rows[0]), free(rows[1]);
}

/* A copy of the folder in which some files are missing or changed. */
static const char *copy_with(const char *change) {
    static char folder[1024], command[4096];
    static int count;
    snprintf(folder, sizeof folder, "%s/copy%d", test_folder(), count++);
    snprintf(command, sizeof command, "cp -r '%s' '%s' && cd '%s' && %s", oracle_folder(), folder, folder, change);
    CHECK_EQ(system(command), 0);
    return folder;
}

static void bad_folders(struct device *dev) {
    static const struct {
        const char *change, *message;
        enum status status;
    } cases[] = {
        {"rm config.json", "config.json: no such file", STATUS_NOT_FOUND},
        {"rm model.safetensors pytorch_model.bin", "has neither model.safetensors nor", STATUS_NOT_FOUND},
        {"rm pytorch_model.bin && mv model.safetensors model-00001-of-00002.safetensors && "
         "echo {} > model.safetensors.index.json",
         "model.safetensors.index.json: the weights are in several files", STATUS_UNSUPPORTED},
        {"sed -i s/gelu/relu/ config.json", "hidden_act is \"relu\"", STATUS_UNSUPPORTED},
        {"sed -i 's/\"bert\"/\"mpnet\"/' config.json", "model_type is \"mpnet\"", STATUS_UNSUPPORTED},
        {"sed -i 's/\"absolute\"/\"relative_key\"/' config.json", "position_embedding_type", STATUS_UNSUPPORTED},
        {"sed -i 's/\"hidden_size\": 32/\"hidden_size\": 30/' config.json", "not a multiple", STATUS_INVALID},
        {"sed -i 's/\"hidden_size\": 32/\"hidden_size\": 36/' config.json", "word_embeddings.weight has 4864 numbers",
         STATUS_MISMATCH},
        {"sed -i '/num_hidden_layers/d' config.json", "num_hidden_layers is missing", STATUS_INVALID},
        {"sed -i 's/\"num_hidden_layers\": 2/\"num_hidden_layers\": 3/' config.json",
         "encoder.layer.2.attention.self.query.weight is missing", STATUS_MISMATCH},
        {"sed -i 's/1e-12/0/' config.json", "layer_norm_eps is 0", STATUS_INVALID},
        {"echo '{' > config.json", "config.json", STATUS_INVALID},
        {"echo '{\"max_seq_length\": 73}' > sentence_bert_config.json", "max_seq_length is 73", STATUS_INVALID},
        {"mkdir 1_Pooling && echo '{\"pooling_mode_cls_token\": true}' > 1_Pooling/config.json",
         "pooling_mode_cls_token is true", STATUS_UNSUPPORTED},
        {"mkdir 1_Pooling && echo '{\"pooling_mode\": \"cls\"}' > 1_Pooling/config.json",
         "pooling_mode is not \"mean\"", STATUS_UNSUPPORTED},
        {"mkdir 1_Pooling && echo '{\"pooling_mode\": [\"mean\", \"max\"]}' > 1_Pooling/config.json",
         "pooling_mode is not \"mean\"", STATUS_UNSUPPORTED},
        {"echo '[{\"type\": \"st.models.Transformer\"}, {\"path\": \"\", \"type\": \"st.models.Dense\"}]' > "
         "modules.json",
         "modules.json: has a module Dense", STATUS_UNSUPPORTED},
        {"echo '{}' > modules.json", "modules.json", STATUS_INVALID},
        {"head -c 4000 model.safetensors > x && mv x model.safetensors", "model.safetensors", STATUS_CORRUPT},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct bert *b = NULL;
        enum status s = bert_open(&b, copy_with(cases[i].change), dev, DTYPE_F32);
        if (s != cases[i].status || !strstr(status_message(), cases[i].message)) {
            fprintf(stderr, "%s: %s: %s\n", cases[i].change, status_text(s), status_message());
            test_fail(__FILE__, __LINE__, "wrong failure");
        }
    }
    struct bert *b;
    CHECK_FAILS(bert_open(&b, "/nowhere", dev, DTYPE_F32), STATUS_NOT_FOUND, "/nowhere: no such folder");
}

int main(int argc, char **argv) {
    struct device *dev;
    struct bert *b;
    uint8_t safe[16], torch[16];
    test_start(argc, argv, 1);
    struct oracle *o = oracle_open();
    CHECK_OK(device_open(&dev, "cpu", 2));
    CHECK_OK(bert_open(&b, oracle_folder(), dev, DTYPE_F32));
    CHECK_EQ(bert_config_of(b)->max_tokens, o->max_tokens);
    equals_transformers(b, o);
    bert_fingerprint(b, safe);
    bert_close(b);
    CHECK_OK(bert_open(&b, copy_with("rm model.safetensors"), dev, DTYPE_F32));
    equals_transformers(b, o);
    bert_fingerprint(b, torch);
    CHECK(memcmp(safe, torch, sizeof safe) == 0); /* of the numbers, not of the file */
    bert_close(b);
    CHECK_OK(bert_open(&b,
                       copy_with("mkdir 1_Pooling && echo '{\"pooling_mode\": [\"mean\"], \"include_prompt\": true}' > "
                                 "1_Pooling/config.json && echo '[{\"idx\": 0, \"type\": \"st.Transformer\"}, "
                                 "{\"type\": \"Pooling\"}, {\"type\": \"a.b.Normalize\"}]' > modules.json"),
                       dev, DTYPE_F32));
    equals_transformers(b, o);
    bert_close(b);
    bad_folders(dev);
    device_close(dev);
    same_bits(oracle_folder());
    free(o);
    return test_done();
}
