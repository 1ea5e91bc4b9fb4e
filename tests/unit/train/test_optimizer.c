/* test_optimizer.c -- every tensor is moved as its own AdamW would move it, with the right decay, whatever ranges they
 * were joined to; the norm is over all; a broken gradient moves nothing. */
#include "kernels/ops.h"
#include "tests/ref/ref_backward.h"
#include "tests/test.h"
#include "train/step/optimizer.h"

static struct model_config model(void) {
    static const char text[] =
        "{\"vocab_size\": 20, \"hidden_size\": 8, \"intermediate_size\": 12, \"num_attention_heads\": 2,"
        "\"slide_window\": 4, \"rms_norm_eps\": 1e-5, \"chunk_id\": 19, \"pad_id\": 18, \"enc_chunk_size\": 63,"
        "\"chunk_topk\": 2, \"encoder_input\": \"tokens\", \"decoder_layers\": [2, 1], \"encoder_layers\": 1}";
    struct model_config c;
    CHECK_OK(model_config_parse(&c, "config", text, strlen(text)));
    return c;
}

static void fill_gradient(const struct optimizer *o, int step) {
    const struct weights *g = optimizer_gradients(o);
    float *data = g->data; /* the CPU's memory is ours */
    for (int64_t i = 0; i < params_elements(g->table); i++)
        data[i] = sinf((float)(i * 7 + step * 13)) * 0.1f;
}

/* Three steps, each tensor followed in double on its own. */
static void moves_each_tensor(struct device *dev, bool decay_embedding, float trunk) {
    struct model_config c = model();
    struct optimizer_config how = {0.9f, 0.95f, 1e-8f, 0.1f, 0.5f, decay_embedding, trunk};
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
        double norm, squares = ref_squares(gradient, n);
        CHECK_OK(optimizer_gradient_norm(o, &norm));
        CHECK(fabs(norm - sqrt(squares)) < 1e-6 * norm);
        CHECK(norm > 0.5); /* the clip bites: tensors share one scale */
        float *scaled = malloc((size_t)n * sizeof *scaled);
        for (int64_t i = 0; i < n; i++)
            scaled[i] = (float)((double)gradient[i] * 0.5 / norm);
        int64_t at = 0;
        for (int i = 0; i < params_count(initial); i++) {
            const struct param *t = params_at(initial, i);
            bool decays = strstr(t->name, "embed_tokens") ? decay_embedding : !strstr(t->name, "norm");
            bool retrieval = strstr(t->name, ".gca.") || strstr(t->name, "lmk_") || strstr(t->name, "chunk_") ||
                             strstr(t->name, "enc_prenorm") || strstr(t->name, "encoder.");
            struct ref_adamw shape = {
                retrieval ? 0.01f : 0.01f * trunk, 0.9f, 0.95f, 1e-8f, decays ? 0.1f : 0.0f, 0.0f, step};
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
    struct model_config c = model();
    struct optimizer_config how = {0.9f, 0.95f, 1e-8f, 0.1f, 1.0f, false, 1.0f};
    struct params *initial;
    struct optimizer *o;
    double norm;
    CHECK_OK(params_init(&initial, &c, 3));
    CHECK_OK(optimizer_create(&o, dev, &how, initial, DTYPE_F32));
    size_t bytes = (size_t)params_elements(initial) * sizeof(float);
    fill_gradient(o, 1);
    ((float *)optimizer_gradients(o)->data)[5] = what;
    optimizer_step(o, &(struct optimizer_now){.lr = 0.01f, .step = 1});
    CHECK_OK(optimizer_gradient_norm(o, &norm));
    CHECK(!isfinite(norm));
    CHECK(memcmp(optimizer_weights(o)->data, params_at(initial, 0)->data, bytes) == 0);
    CHECK(((const float *)optimizer_moment(o, 0)->data)[5] == 0.0f);
    CHECK(((const float *)optimizer_moment(o, 1)->data)[6] == 0.0f);
    optimizer_free(o);
    params_free(initial);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    struct device *dev;
    CHECK_OK(device_open(&dev, "cpu", 2));
    moves_each_tensor(dev, false, 1.0f);
    moves_each_tensor(dev, true, 1.0f);
    moves_each_tensor(dev, true, 0.25f);
    moves_each_tensor(dev, false, 0.0f);
    broken_gradient(dev, NAN);
    broken_gradient(dev, INFINITY);
    device_close(dev);
    return test_done();
}
