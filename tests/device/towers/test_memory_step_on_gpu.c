/* test_memory_step_on_gpu.c -- a token memory beside the decode step: the mixture has the same bits whether the memory
 * is read during the step or after it; what the step leaves (count of the key state, shares of the logits) agrees with
 * its logits. The same with a model that projects key states: the mixture projects them, and agrees with keys that the
 * matrix product makes. */
#include "base/rng.h"
#include "decoder/decoder_internal.h"
#include "tests/device/towers/machine.h"

enum { LENGTH = 220, PROMPT = 70, PAST = 100, VOCAB = 5000 };

static float *download(struct device *dev, const void *from, int64_t n) {
    float *to = malloc((size_t)n * sizeof *to);
    device_download(dev, to, from, (size_t)n * sizeof *to);
    CHECK_OK(device_sync(dev));
    return to;
}

/* The shares are those of the logits, and the key state has been counted. */
static void check_result(struct device *dev, struct decode_step_result r, const float *logits) {
    struct logit_share all = logit_share_none(), *shares = malloc((size_t)r.n_shares * sizeof *shares);
    const float *logits_host = download(dev, logits, VOCAB);
    double sum = 0, moment = 0;
    uint32_t ready;
    int top = 0;
    device_download(dev, shares, r.shares, (size_t)r.n_shares * sizeof *shares);
    device_download(dev, &ready, r.ready, sizeof ready);
    for (int i = 0; i < r.n_shares; i++)
        all = logit_share_join(all, shares[i]);
    for (int v = 0; v < VOCAB; v++)
        top = logits_host[v] > logits_host[top] ? v : top;
    for (int v = 0; v < VOCAB; v++) {
        const double below = (double)logits_host[v] - (double)logits_host[top];
        sum += exp(below), moment += exp(below) * below;
    }
    CHECK_EQ(ready, r.at);
    CHECK(all.top == logits_host[top] && all.token == top);
    CHECK(fabs((double)all.sum - sum) <= 1e-4 * sum && fabs((double)all.moment - moment) <= 1e-4 * -moment);
    free(shares), free((void *)logits_host);
}

/* The memory is read during the step, or after it; or keys are made by the op matmul, and read after it. */
enum how { DURING, AFTER, PRODUCT };

/* log p after each id from PROMPT on [LENGTH - PROMPT, VOCAB]. */
static float *mixed_run(struct machine *m, const struct model_config *c, const int32_t *ids, int layer, enum how how) {
    struct device *dev = m->dev;
    struct decoder_state *s;
    const struct mat projection = decoder_projection(m->decoder, layer);
    struct mat state = mat_dense(NULL, DTYPE_BF16, 1, c->hidden);
    struct memory_gate gate = {.b2 = {0.3, -0.2}}, *gate_device;
    const float tau = 64;
    float *logits, *log_p, *w, *p, *square, *tau_device, *out = malloc((LENGTH - PROMPT) * VOCAB * sizeof *out);
    double *g;
    int32_t *value;
    struct mat keys = mat_dense(NULL, DTYPE_BF16, LENGTH, model_config_key_size(c, layer));
    for (int i = 0; i < MEMORY_FEATURES; i++)
        gate.deviation[i] = 2, gate.w1[i % MEMORY_GATE_HIDDEN][i] = 0.5;
    for (int i = 0; i < MEMORY_GATE_HIDDEN; i++)
        gate.w2[0][i] = i % 2 ? 0.2 : -0.3;
    CHECK_OK(device_allocate(dev, &keys.data, mat_bytes(keys)));
    CHECK_OK(device_allocate(dev, &state.data, mat_bytes(state)));
    CHECK_OK(device_allocate(dev, &gate_device, 1));
    CHECK_OK(device_allocate(dev, &logits, VOCAB));
    CHECK_OK(device_allocate_host(dev, &log_p, VOCAB));
    CHECK_OK(device_allocate_host(dev, &g, 1 + MEMORY_SIDES));
    CHECK_OK(device_allocate(dev, &w, PAST));
    CHECK_OK(device_allocate(dev, &p, VOCAB));
    CHECK_OK(device_allocate(dev, &square, LENGTH));
    CHECK_OK(device_allocate(dev, &value, LENGTH));
    CHECK_OK(device_allocate(dev, &tau_device, 1));
    device_upload(dev, gate_device, &gate, sizeof gate);
    device_upload(dev, tau_device, &tau, sizeof tau);
    CHECK_OK(decoder_state_create(&s, m->decoder, NULL));
    const struct decoder_output prompt = {.keys = mat_rows(keys, 0, PROMPT), .key_layer = layer};
    CHECK_OK(decoder_forward(s, &prompt, ids, PROMPT));
    dev->ops->token_memory->squares(dev, square, mat_rows(keys, 0, PROMPT));
    device_upload(dev, value, ids + 1, (PROMPT - 1) * sizeof *value);
    for (int n = PROMPT; n < LENGTH; n++) {
        const struct mat row = mat_rows(keys, n, 1);
        const struct decoder_output one = {
            .logits_device = logits, .keys = projection.data ? state : row, .key_layer = layer, .states = true};
        CHECK_OK(decoder_forward(s, &one, ids + n, 1));
        struct next_token_task task = {.gate = gate_device,
                                       .logits = logits,
                                       .vocab = VOCAB,
                                       .state = one.keys,
                                       .append = {square + n, value + n - 1, ids[n], NULL, NULL},
                                       .step = decoder_state_step(s)};
        if (projection.data && how == PRODUCT) {
            dev->ops->matmul->forward(dev, row, state, projection, false);
            task.state = row;
        } else if (projection.data) {
            task.projection = projection, task.append.key = row.data;
        }
        const struct memory_past past = {
            .keys = keys, .value = value, .square = square, .length = 1, .first = n, .ring = LENGTH, .limit = PAST};
        task.side[0] = (struct next_token_side){.memory = {.past = past, .tau = tau_device},
                                                .marks = {.entries = (float)(n < PAST ? n : PAST)},
                                                .weights = mat_f32(w, 1, PAST),
                                                .p = p};
        CHECK(task.step.ready && task.step.shares && task.step.idle > 0);
        if (how != DURING) task.step.ready = NULL;
        dev->ops->next_token->mix(dev, device_reach(dev, log_p), device_reach(dev, g), &task);
        device_fetch(dev, log_p, device_reach(dev, log_p), VOCAB * sizeof *log_p);
        device_fetch_wait(dev);
        if (n % 50 == 0) check_result(dev, decoder_state_step(s), logits);
        double sum = 0;
        for (int v = 0; v < VOCAB; v++)
            sum += exp((double)log_p[v]);
        CHECK(fabs(sum - 1) <= 1e-4 && g[0] > 0 && g[1] > 0 && g[2] == 0);
        memcpy(out + (int64_t)(n - PROMPT) * VOCAB, log_p, VOCAB * sizeof *out);
    }
    CHECK_OK(device_sync(dev));
    decoder_state_free(s);
    void *device_memory[] = {keys.data, state.data, gate_device, logits, w, p, square, value, tau_device};
    for (size_t i = 0; i < ARRAY_LEN(device_memory); i++)
        device_release(dev, device_memory[i]);
    device_release_host(dev, log_p);
    device_release_host(dev, g);
    return out;
}

/* size: numbers of a projected key of layer 2; 0: no projection. */
static void check_model(int size) {
    char text[600];
    snprintf(text, sizeof text,
             "{\"vocab_size\": 5000, \"hidden_size\": 384, \"intermediate_size\": 1000, "
             "\"num_attention_heads\": 6, \"decoder_layers\": [3], \"encoder_layers\": 0, "
             "\"enc_chunk_size\": 63, \"chunk_topk\": 0, \"slide_window\": 100, \"rms_norm_eps\": 1e-5, "
             "\"memory_layer\": %d, \"memory_size\": %d, "
             "\"chunk_id\": 4999, \"mask_id\": 4998, \"pad_id\": 4997}",
             size ? 2 : 0, size);
    struct model_config c;
    struct params *p;
    struct machine gpu;
    int32_t ids[LENGTH];
    struct rng rng = rng_make(11, 3);
    CHECK_OK(model_config_parse(&c, "base", text, strlen(text)));
    CHECK_OK(params_init(&p, &c, 5));
    for (int i = 0; i < params_count(p); i++) {
        const struct param *t = params_at(p, i);
        for (int64_t j = 0; t->rows > 1 && j < t->rows * t->cols; j++)
            ((float *)t->data)[j] *= t->rows == VOCAB ? 10 : 2;
    }
    for (int i = 0; i < LENGTH; i++)
        ids[i] = (int32_t)rng_below(&rng, 300);
    start(&gpu, &c, p, "cuda", DTYPE_BF16, 0);
    if (!gpu.decoder->step_weights) test_skip("this GPU has no decode step");
    for (int layer = 1; layer <= 3; layer++) {
        if (size && layer != 2) continue;
        float *after = mixed_run(&gpu, &c, ids, layer, AFTER), *during = mixed_run(&gpu, &c, ids, layer, DURING);
        CHECK(memcmp(after, during, (LENGTH - PROMPT) * VOCAB * sizeof *after) == 0);
        if (size) {
            float *product = mixed_run(&gpu, &c, ids, layer, PRODUCT);
            for (int64_t i = 0; i < (LENGTH - PROMPT) * VOCAB; i++)
                CHECK(fabsf(product[i] - after[i]) <= 0.1F);
            free(product);
        }
        free(after);
        free(during);
    }
    stop(&gpu);
    params_free(p);
}

int main(void) {
    need_gpu();
    check_model(0);
    check_model(64);
    check_model(128);
    check_model(40); /* plain loops read these keys */
    check_model(5);  /* and make these */
    return 0;
}
