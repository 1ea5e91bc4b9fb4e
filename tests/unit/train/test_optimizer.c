/* test_optimizer.c -- every tensor is updated as by an AdamW of its own, with the right decay, although tensors are
 * joined to ranges; each part is clipped by its own norm, and the token memory's part is separate from the trunk's; a
 * gradient that is not finite updates nothing of its part. */
#include "kernels/ops.h"
#include "tests/ref/ref_backward.h"
#include "tests/test.h"
#include "train/step/optimizer.h"

enum { RETRIEVER_APART = 1, WITH_MEMORY = 2 };

static struct model_config model(int kind) {
    static const char with[] =
        "{\"memory_layer\": 2, \"memory_size\": 4, \"vocab_size\": 20, \"hidden_size\": 8, \"intermediate_size\": 12,"
        "\"num_attention_heads\": 2,"
        "\"slide_window\": 4, \"rms_norm_eps\": 1e-5, \"chunk_id\": 19, \"pad_id\": 18, \"enc_chunk_size\": 63,"
        "\"chunk_topk\": 2, \"encoder_input\": \"tokens\", \"decoder_layers\": [2, 1], \"encoder_layers\": 1}";
    static const char without[] =
        "{\"vocab_size\": 20, \"hidden_size\": 8, \"intermediate_size\": 12, \"num_attention_heads\": 2,"
        "\"slide_window\": 4, \"rms_norm_eps\": 1e-5, \"chunk_id\": 19, \"pad_id\": 18, \"enc_chunk_size\": 63,"
        "\"chunk_topk\": 2, \"encoder_input\": \"tokens\", \"decoder_layers\": [2, 1], \"encoder_layers\": 1}";
    struct model_config c;
    const char *text = kind & WITH_MEMORY ? with : without;
    CHECK_OK(model_config_parse(&c, "config", text, strlen(text)));
    return c;
}

static void fill_gradient(const struct optimizer *o, int step) {
    const struct weights *g = optimizer_gradients(o);
    float *data = g->data; /* the CPU's memory is the host's */
    for (int64_t i = 0; i < params_elements(g->table); i++)
        data[i] = sinf((float)(i * 7 + step * 13)) * 0.1f;
}

static enum optimizer_part part_of(const char *name) {
    bool retriever = strstr(name, ".gca.") || strstr(name, "lmk_") || strstr(name, "chunk_") ||
                     strstr(name, "enc_prenorm") || strstr(name, "encoder.");
    if (strstr(name, "memory.")) return OPTIMIZER_MEMORY;
    return retriever ? OPTIMIZER_RETRIEVER : OPTIMIZER_TRUNK;
}

/* The part whose norm includes a tensor. */
static enum optimizer_part norm_of(const char *name, int kind) {
    enum optimizer_part part = part_of(name);
    return part == OPTIMIZER_RETRIEVER && !(kind & RETRIEVER_APART) ? OPTIMIZER_TRUNK : part;
}

static void check_norms(struct optimizer *o, double norm[OPTIMIZER_PARTS], const struct params *table,
                        const float *gradient, int kind) {
    double squares[OPTIMIZER_PARTS] = {0};
    int64_t at = 0;
    for (int i = 0; i < params_count(table); i++) {
        const struct param *t = params_at(table, i);
        squares[norm_of(t->name, kind)] += ref_squares(gradient + at, t->rows * t->cols);
        at += t->rows * t->cols;
    }
    CHECK_OK(optimizer_gradient_norms(o, norm));
    CHECK((norm[OPTIMIZER_RETRIEVER] < 0) == !(kind & RETRIEVER_APART));
    CHECK((norm[OPTIMIZER_MEMORY] < 0) == !(kind & WITH_MEMORY));
    for (int part = 0; part < OPTIMIZER_PARTS; part++)
        if (norm[part] >= 0) CHECK(fabs(norm[part] - sqrt(squares[part])) < 1e-6 * norm[part]);
    CHECK(norm[OPTIMIZER_TRUNK] > 0.5); /* the norm is above the clip */
}

/* Three steps; each tensor is also updated alone in double precision. */
static void moves_each_tensor(struct device *dev, bool decay_embedding, float trunk, int kind) {
    struct model_config c = model(kind);
    struct optimizer_config how = {0.9f, 0.95f, 1e-8f, 0.1f, 0.5f, decay_embedding, trunk, kind & RETRIEVER_APART};
    struct params *initial;
    struct optimizer *o;
    CHECK_OK(params_init(&initial, &c, 3));
    CHECK_OK(optimizer_create(&o, dev, &how, initial, DTYPE_F32));
    CHECK(optimizer_weights(o) == optimizer_master(o));
    int64_t n = params_elements(initial);
    double *p = malloc((size_t)n * sizeof *p), *m = calloc((size_t)n, sizeof *m), *v = calloc((size_t)n, sizeof *v);
    const float *start = params_at(initial, 0)->data, *gradient = optimizer_gradients(o)->data;
    for (int64_t i = 0; i < n; i++)
        p[i] = (double)start[i];
    for (int step = 1; step <= 3; step++) {
        fill_gradient(o, step);
        optimizer_step(o, &(struct optimizer_now){.lr = 0.01f, .step = step});
        double norms[OPTIMIZER_PARTS];
        check_norms(o, norms, initial, gradient, kind);
        float *scaled = malloc((size_t)n * sizeof *scaled);
        int64_t at = 0;
        for (int i = 0; i < params_count(initial); i++) {
            const struct param *t = params_at(initial, i);
            bool decays = strstr(t->name, "embed_tokens") ? decay_embedding : !strstr(t->name, "norm");
            decays = decays && strcmp(t->name, "memory.log_tau") != 0 && strcmp(t->name, "memory.gate.weight") != 0;
            float lr = part_of(t->name) == OPTIMIZER_TRUNK ? 0.01f * trunk : 0.01f;
            double norm = norms[norm_of(t->name, kind)];
            for (int64_t j = at; j < at + t->rows * t->cols; j++)
                scaled[j] = (float)((double)gradient[j] * (norm > 0.5 ? 0.5 / norm : 1.0));
            struct ref_adamw shape = {lr, 0.9f, 0.95f, 1e-8f, decays ? 0.1f : 0.0f, 0.0f, step};
            ref_adamw(p + at, m + at, v + at, scaled + at, t->rows * t->cols, shape);
            at += t->rows * t->cols;
        }
        free(scaled);
    }
    const float *moved = optimizer_weights(o)->data;
    for (int64_t i = 0; i < n; i++)
        CHECK(fabs((double)moved[i] - p[i]) < 2e-5);
    if (trunk == 0.0f)
        CHECK(moved[0] == start[0] && memcmp(moved, start, 20 * 8 * sizeof *moved) == 0); /* the embedding */
    optimizer_clear_gradients(o);
    CHECK(gradient[0] == 0.0f && gradient[n - 1] == 0.0f);
    free(p), free(m), free(v);
    optimizer_free(o);
    params_free(initial);
}

static void broken_gradient(struct device *dev, float what) {
    struct model_config c = model(WITH_MEMORY);
    struct optimizer_config how = {0.9f, 0.95f, 1e-8f, 0.1f, 1.0f, false, 1.0f, false};
    struct params *initial;
    struct optimizer *o;
    double norm[OPTIMIZER_PARTS];
    CHECK_OK(params_init(&initial, &c, 3));
    CHECK_OK(optimizer_create(&o, dev, &how, initial, DTYPE_F32));
    size_t bytes = 0, all = (size_t)params_elements(initial) * sizeof(float); /* bytes: before the memory's tensors */
    for (int i = 0; part_of(params_at(initial, i)->name) != OPTIMIZER_MEMORY; i++)
        bytes += (size_t)(params_at(initial, i)->rows * params_at(initial, i)->cols) * sizeof(float);
    fill_gradient(o, 1);
    ((float *)optimizer_gradients(o)->data)[5] = what;
    optimizer_step(o, &(struct optimizer_now){.lr = 0.01f, .step = 1});
    CHECK_OK(optimizer_gradient_norms(o, norm));
    CHECK(!isfinite(norm[OPTIMIZER_TRUNK]) && isfinite(norm[OPTIMIZER_MEMORY]));
    const char *now = optimizer_weights(o)->data, *before = (const char *)params_at(initial, 0)->data;
    CHECK(bytes < all && memcmp(now, before, bytes) == 0);
    CHECK(memcmp(now + bytes, before + bytes, all - bytes) != 0);
    CHECK(((const float *)optimizer_moment(o, 0)->data)[5] == 0.0f);
    CHECK(((const float *)optimizer_moment(o, 1)->data)[6] == 0.0f);
    optimizer_free(o);
    params_free(initial);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    struct device *dev;
    CHECK_OK(device_open(&dev, "cpu", 2));
    for (int kind = 0; kind < 4; kind++) {
        moves_each_tensor(dev, false, 1.0f, kind);
        moves_each_tensor(dev, true, 1.0f, kind);
        moves_each_tensor(dev, true, 0.25f, kind);
        moves_each_tensor(dev, false, 0.0f, kind);
    }
    broken_gradient(dev, NAN);
    broken_gradient(dev, INFINITY);
    device_close(dev);
    return test_done();
}
