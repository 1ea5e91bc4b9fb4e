/* test_step_pick_on_gpu.c -- the greedy pick that the decode step makes itself: the same id and ticket as the op `pick`
 * gives for the step's logits, with ties, NaN and banned ids; and the same text whether a step waits for its id here or
 * reads it on the device. */
#include "base/rng.h"
#include "decoder/batch/decoder_ahead.h"
#include "kernels/ops.h"
#include "tests/device/towers/machine.h"

enum { VOCAB = 5001, LENGTH = 150, FIRST_ODD = 4000 }; /* rows of the head from FIRST_ODD on: see make */

struct picks {
    struct device *dev;
    float *logits; /* [VOCAB], and the rest [2], of the device: */
    int32_t *id;
    uint32_t *banned;
    struct pick_result *result; /* [2], pinned */
};

static struct pick_row row_of(const struct picks *p, int slot, bool banned) {
    return (struct pick_row){.logits = p->logits,
                             .rule = {.scale = 0, .penalty = 1, .share = 1ULL << 32, .least = 1},
                             .banned = banned ? p->banned : NULL,
                             .id = p->id + slot,
                             .result = (struct pick_result *)device_reach(p->dev, p->result) + slot,
                             .ticket = (uint64_t)(slot + 5) << 32};
}

/* Pairs of rows are equal, so all greatest logits are ties. Of the last rows some are NaN. */
static struct params *make(const struct model_config *c) {
    struct params *p;
    struct rng rng = rng_make(3, 1);
    CHECK_OK(params_init(&p, c, 5));
    for (int i = 0; i < params_count(p); i++) {
        const struct param *t = params_at(p, i);
        float *x = (float *)t->data;
        if (t->rows != VOCAB) continue;
        for (int64_t j = 0; j < t->rows * t->cols; j++)
            x[j] *= 10;
        for (int64_t v = 0; v + 2500 < FIRST_ODD; v++) /* in another block: 2,500 rows further */
            memcpy(x + (v + 2500) * t->cols, x + v * t->cols, (size_t)t->cols * sizeof *x);
        for (int64_t v = FIRST_ODD; v < VOCAB; v++)
            if (rng_below(&rng, 20) == 0) x[v * t->cols] = NAN;
        x[(VOCAB - 1) * t->cols] = NAN;
    }
    return p;
}

static int32_t greatest(const float *logits, const uint32_t *banned) {
    int32_t best = -1;
    for (int32_t v = 0; v < VOCAB; v++) {
        if (banned && banned[v / 32] >> v % 32 & 1) continue;
        const float now = best < 0 || isnan(logits[best]) ? -INFINITY : logits[best];
        if (best < 0 || logits[v] > now || (isnan(logits[best]) && !isnan(logits[v]))) best = v;
    }
    return best;
}

/* A step with a pick, and the op on the logits that the step left. */
static int32_t check_position(struct picks *p, struct decoder_state *s, int32_t id, const uint32_t *banned) {
    const struct pick_row own = row_of(p, 0, banned), other = row_of(p, 1, banned);
    const struct decoder_output out = {.logits_device = p->logits, .pick = &own};
    float *logits = malloc(VOCAB * sizeof *logits);
    int32_t ids[2] = {-1, -1};
    memset(p->result, 0, 2 * sizeof *p->result);
    CHECK(decode_step_picks(&own));
    if (banned) device_upload(p->dev, p->banned, banned, (VOCAB + 31) / 32 * sizeof *banned);
    CHECK_OK(decoder_forward(s, &out, &id, 1));
    p->dev->ops->pick->rows(p->dev, &other, 1, VOCAB);
    device_download(p->dev, ids, p->id, sizeof ids);
    device_download(p->dev, logits, p->logits, VOCAB * sizeof *logits);
    CHECK_OK(device_sync(p->dev));
    CHECK_EQ(ids[0], greatest(logits, banned));
    CHECK_EQ(ids[0], ids[1]);
    CHECK(p->result[0].ticket == (own.ticket | (uint32_t)ids[0]));
    CHECK(p->result[1].ticket == (other.ticket | (uint32_t)ids[1]));
    free(logits);
    return ids[0];
}

static void check_model(const char *layers, enum dtype type) {
    char text[600];
    snprintf(text, sizeof text,
             "{\"vocab_size\": %d, \"hidden_size\": 384, \"intermediate_size\": 1024, \"num_attention_heads\": 6, "
             "\"decoder_layers\": %s, \"encoder_layers\": 0, \"enc_chunk_size\": 63, \"chunk_topk\": 0, "
             "\"slide_window\": 100, \"rms_norm_eps\": 1e-5, \"chunk_id\": 4999, \"mask_id\": 4998, \"pad_id\": 4997}",
             VOCAB, layers);
    struct model_config c;
    struct machine gpu;
    struct decoder_state *s;
    struct picks p;
    struct rng rng = rng_make(11, 3);
    uint32_t banned[(VOCAB + 31) / 32] = {0};
    int32_t ids[LENGTH];
    CHECK_OK(model_config_parse(&c, "base", text, strlen(text)));
    struct params *params = make(&c);
    if (type == DTYPE_I8) {
        if (start_i8(&gpu, &c, params, "cuda") != STATUS_OK) test_skip("this GPU has no decode step");
    } else {
        start(&gpu, &c, params, "cuda", type, 0);
    }
    if (!gpu.decoder->step_weights) test_skip("this GPU has no decode step");
    p.dev = gpu.dev;
    CHECK_OK(device_allocate(p.dev, &p.logits, VOCAB));
    CHECK_OK(device_allocate(p.dev, &p.id, 2));
    CHECK_OK(device_allocate(p.dev, &p.banned, (VOCAB + 31) / 32));
    CHECK_OK(device_allocate_host(p.dev, &p.result, 2));
    CHECK_OK(decoder_state_create(&s, gpu.decoder, NULL));
    int32_t id = 7, ties = 0;
    for (int i = 0; i < LENGTH; i++) { /* bans what it has picked, so that other ids win */
        ids[i] = id;
        id = check_position(&p, s, id, i % 3 ? banned : NULL);
        ties += id < 1500;
        if (i % 3) banned[id / 32] |= 1U << id % 32;
        if (id >= FIRST_ODD) id = (int32_t)rng_below(&rng, 1500); /* its embedding may be NaN */
    }
    CHECK(ties > LENGTH / 4);
    CHECK_EQ(check_position(&p, s, VOCAB - 1, NULL), 0); /* all logits are NaN: the first id */
    banned[0] |= 0xFFU;
    CHECK(check_position(&p, s, 5, banned) > 7);
    decoder_state_free(s);

    /* Ids that only the device knows. Without bans the text soon repeats; the positions still differ. */
    int32_t waited[LENGTH], ahead[LENGTH];
    CHECK_OK(decoder_state_create(&s, gpu.decoder, NULL));
    waited[0] = ahead[0] = ids[0];
    memset(banned, 0, sizeof banned);
    for (int v = FIRST_ODD; v < VOCAB; v++)
        banned[v / 32] |= 1U << v % 32;
    for (int i = 0; i + 1 < LENGTH; i++)
        waited[i + 1] = check_position(&p, s, waited[i], banned);
    decoder_state_free(s);
    CHECK_OK(decoder_state_create(&s, gpu.decoder, NULL));
    for (int i = 0; i + 1 < LENGTH; i++) {
        const struct pick_row row = row_of(&p, i % 2, true);
        const struct decoder_output out = {.logits_device = p.logits, .pick = &row};
        if (i == 0)
            CHECK_OK(decoder_forward(s, &out, &ahead[0], 1));
        else
            CHECK_OK(decoder_ahead_step(s, &out, p.id + (i - 1) % 2));
        if (i > 0) decoder_ahead_known(s, waited[i]);
        if (i % 20 == 19) { /* the others overlap */
            device_download(p.dev, &ahead[i + 1], p.id + i % 2, sizeof *ahead);
            CHECK_OK(device_sync(p.dev));
            CHECK_EQ(ahead[i + 1], waited[i + 1]);
        }
    }
    CHECK_OK(device_sync(p.dev));
    decoder_state_free(s);
    device_release(p.dev, p.logits);
    device_release(p.dev, p.id);
    device_release(p.dev, p.banned);
    device_release_host(p.dev, p.result);
    stop(&gpu);
    params_free(params);
}

int main(void) {
    need_gpu();
    check_model("[3]", DTYPE_BF16);
    check_model("[3]", DTYPE_I8);
    return 0;
}
