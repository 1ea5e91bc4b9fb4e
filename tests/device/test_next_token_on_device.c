/* test_next_token_on_device.c -- the distribution of the next token on a GPU against the CPU twin, which is tested
 * against an oracle: states and keys of each type, one memory, both, none, thousands of entries; projected states,
 * whose keys the CPU twin then reads; packed slots; every case twice, with the same bits; weights and p of the memories
 * have the same bits, too, when few multiprocessors read them. */
#include "tests/device/on_device.h"
#include "tests/ref/ref_token_memory_case.h"

struct shape {
    int64_t d;
    int vocab, k, slot_rows;
    int64_t past, limit;
    float tau;
    enum dtype type;
    int64_t raw_d; /* 0: not projected */
    int step;      /* of packed slots; 0: they have numbers */
};

static float round_f16(float x) {
    return as_type(x, DTYPE_F16);
}
static float round_f32(float x) {
    return x;
}

static bool marks_on_gpu; /* the next mixtures of the GPU read marks in its memory */

/* The inputs of both twins: arrays of this process. */
struct inputs {
    struct memory_case c[MEMORY_SIDES];
    struct memory_gate gate;
    float *logits, tau;
    float *raw, *projection; /* [raw_d], [d, raw_d] */
    struct shape shape;
    struct memory_marks marks[MEMORY_SIDES];
    /* of packed slots: of all rows, [k], [k] */
    int8_t *code;
    float *scale;
    int32_t *slot, *entries;
};

/* Slots overlap and begin at any row that is a multiple of the step. */
static void inputs_pack(struct inputs *x, struct device *cpu) {
    const struct shape *s = &x->shape;
    const int64_t rows = x->c[1].slot_keys;
    x->code = zeros(rows * s->d, 1), x->scale = zeros(rows, 4);
    x->slot = zeros(s->k, 4), x->entries = zeros(s->k, 4);
    cpu->ops->packed_keys->pack(cpu, x->code, x->scale, mat_f32(x->c[1].slot_key, rows, s->d));
    for (int i = 0; i < s->k; i++) {
        x->slot[i] = i % 9 == 5 ? -1 : (int32_t)rng_below(&on_rng, (uint64_t)((rows - s->slot_rows) / s->step + 1));
        x->entries[i] = i % 5 == 2 ? (int32_t)rng_below(&on_rng, (uint64_t)s->slot_rows + 1) : s->slot_rows - 1;
    }
}

static void inputs_make(struct inputs *x, struct device *cpu, struct shape s) {
    float (*round)(float) = s.type == DTYPE_F32 ? round_f32 : s.type == DTYPE_F16 ? round_f16 : store_bf16;
    const struct memory_shape of[MEMORY_SIDES] = {
        {.n = 1, .d = s.d, .length = 1, .first = s.past, .ring = s.limit + 5, .limit = (int)s.limit, .tau = s.tau},
        {.n = 1, .d = s.d, .slots = s.k + 3, .slot_rows = s.slot_rows, .blocks = 1, .k = s.k, .tau = s.tau}};
    *x = (struct inputs){.shape = s, .tau = s.tau};
    for (int side = 0; side < MEMORY_SIDES; side++) {
        struct memory_case *c = &x->c[side];
        *c = memory_case_make(&on_rng, of[side], round);
        for (int64_t i = 0; i < c->slot_keys; i++)
            c->slot_value[i] = (int32_t)rng_below(&on_rng, (uint64_t)s.vocab + 1) - 1;
        for (int64_t i = 0; i < c->past_keys; i++)
            c->past_value[i] = (int32_t)rng_below(&on_rng, (uint64_t)s.vocab);
    }
    x->logits = normals(s.vocab, 3, DTYPE_F32);
    x->raw = normals(s.raw_d, 1, s.type);
    x->projection = normals(s.d * s.raw_d, 1 / sqrtf((float)s.raw_d + 1), s.type);
    double *gate = x->gate.mean;
    for (size_t i = 0; i < sizeof x->gate / sizeof *gate; i++)
        gate[i] = 0.2 * (double)rng_normal(&on_rng);
    for (int i = 0; i < MEMORY_FEATURES; i++)
        x->gate.deviation[i] = 1 + fabs(x->gate.deviation[i]);
    x->marks[0] = (struct memory_marks){.entries = (float)(s.past < s.limit ? s.past : s.limit)};
    x->marks[1] = (struct memory_marks){(float)s.k, 3.5f, 1.25f, 2};
    if (s.step) inputs_pack(x, cpu);
}
static void inputs_drop(struct inputs *x) {
    memory_case_free(&x->c[0]), memory_case_free(&x->c[1]);
    free(x->logits), free(x->raw), free(x->projection);
    free(x->code), free(x->scale), free(x->slot), free(x->entries);
}

enum { CONTRIBUTORS = 3 };
struct result {
    float *log_p, *w[MEMORY_SIDES], *p[MEMORY_SIDES], square;
    float *key; /* of a projected state */
    int32_t value;
    double g[1 + MEMORY_SIDES];
    int32_t column[CONTRIBUTORS]; /* of packed slots, of the token 0 */
};
static void result_drop(struct result *r) {
    free(r->log_p), free(r->key);
    for (int side = 0; side < MEMORY_SIDES; side++)
        free(r->w[side]), free(r->p[side]);
}

/* Memory of the device with these numbers. */
static void *to_device(struct device *dev, const void *from, size_t bytes) {
    void *to = NULL;
    if (dev == gpu) return put_bytes(from, bytes);
    to = malloc(bytes + 1);
    memcpy(to, from, bytes);
    return to;
}
static struct mat matrix_to_device(struct device *dev, const float *from, enum dtype type, int64_t rows, int64_t cols) {
    if (dev == gpu) return put_plain(from, type, rows, cols);
    return mat_f32(to_device(dev, from, (size_t)(rows * cols) * sizeof *from), rows, cols);
}
static float *back(struct device *dev, float *from, int64_t n) {
    return dev == gpu ? take_floats(from, n) : from;
}

/* What a decode step leaves: shares of the logits, of uneven size; a count of the key state that has wrapped around. */
enum { SHARES = 37 };
static struct decode_step_result step_result(const struct inputs *x, int idle) {
    static const uint32_t ready = 3;
    struct logit_share shares[SHARES];
    for (int64_t i = 0; i < SHARES; i++) {
        shares[i] = logit_share_none();
        for (int64_t v = x->shape.vocab * i * i / SHARES / SHARES;
             v < x->shape.vocab * (i + 1) * (i + 1) / SHARES / SHARES; v++)
            shares[i] = logit_share_add(shares[i], x->logits[v], (int32_t)v);
    }
    return (struct decode_step_result){.ready = put_bytes(&ready, sizeof ready),
                                       .at = idle % 2 ? 3 : UINT32_MAX - 4,
                                       .done = idle % 2 ? NULL : put_bytes(&ready, sizeof ready),
                                       .done_at = 2,
                                       .shares = put_bytes(shares, sizeof shares),
                                       .n_shares = SHARES,
                                       .idle = idle};
}

static void pack_slots(struct device *dev, struct memory_slots *to, const struct inputs *x) {
    const struct shape *s = &x->shape;
    const int64_t rows = x->c[1].slot_keys;
    to->keys.data = NULL, to->square = NULL;
    to->packed = (struct packed_keys){to_device(dev, x->code, (size_t)(rows * s->d)),
                                      to_device(dev, x->scale, (size_t)rows * 4)};
    to->slot = to_device(dev, x->slot, (size_t)s->k * 4);
    to->entries = to_device(dev, x->entries, (size_t)s->k * 4);
    to->slot_step = s->step;
}

/* The entries that gave most of token 0. */
static void take_contributors(struct device *dev, struct result *r, const struct next_token_side *side) {
    const int32_t token = 0, none[CONTRIBUTORS] = {0};
    const float weights[CONTRIBUTORS] = {0};
    int32_t *column = to_device(dev, none, sizeof none), *of = to_device(dev, &token, sizeof token);
    float *weight = to_device(dev, weights, sizeof weights);
    dev->ops->token_memory->contributors(dev, column, weight, side->weights, &side->memory, of, CONTRIBUTORS, 0);
    device_download(dev, r->column, column, sizeof r->column);
}

/* idle: multiprocessors that read the memories, as if a decode step had the others; 0: no decode step. */
static struct result compute_with(struct device *dev, const struct inputs *x, bool own, bool corpus, int idle) {
    const struct shape *s = &x->shape;
    const int64_t newest = s->past % (s->limit + 5), before = (newest + s->limit + 4) % (s->limit + 5);
    struct result r = {0};
    float *log_p = to_device(dev, x->logits, (size_t)s->vocab * sizeof(float)), *square[MEMORY_SIDES] = {0};
    double *g = to_device(dev, r.g, sizeof r.g);
    struct next_token_task t = {.gate = to_device(dev, &x->gate, sizeof x->gate),
                                .logits = to_device(dev, x->logits, (size_t)s->vocab * sizeof(float)),
                                .vocab = s->vocab,
                                .state = matrix_to_device(dev, x->c[0].states, s->type, 1, s->d)};
    int32_t *value = NULL;
    for (int side = 0; side < MEMORY_SIDES; side++) {
        const struct memory_case *c = &x->c[side];
        struct token_memory *m = &t.side[side].memory;
        if (!(side ? corpus : own)) continue;
        const int64_t rows = side ? c->slot_keys : c->past_keys;
        struct mat keys = matrix_to_device(dev, side ? c->slot_key : c->past_key, s->type, rows, s->d);
        float *none = zeros(rows > s->vocab ? rows : s->vocab, 4);
        square[side] = to_device(dev, none, (size_t)rows * 4);
        dev->ops->token_memory->squares(dev, square[side], keys);
        m->tau = to_device(dev, &x->tau, sizeof x->tau);
        if (side) {
            m->slots = (struct memory_slots){.keys = keys,
                                             .value = to_device(dev, c->slot_value, (size_t)rows * 4),
                                             .slot = to_device(dev, c->slot, (size_t)s->k * 4),
                                             .square = square[side],
                                             .row_begin = to_device(dev, c->row_begin, 2 * sizeof *c->row_begin),
                                             .slot_rows = s->slot_rows,
                                             .blocks = 1,
                                             .k = s->k,
                                             .block_rows = 1};
            if (s->step) pack_slots(dev, &m->slots, x);
        } else {
            value = to_device(dev, c->past_value, (size_t)rows * 4);
            m->past = (struct memory_past){.keys = keys,
                                           .value = value,
                                           .square = square[side],
                                           .length = 1,
                                           .first = s->past,
                                           .ring = s->limit + 5,
                                           .limit = (int)s->limit};
            t.append = (struct next_token_append){
                .square = square[side] + newest, .value = s->past ? value + before : NULL, .id = 3};
        }
        const int64_t columns = token_memory_columns(m);
        float *w = zeros(columns, 4);
        t.side[side].weights = mat_f32(to_device(dev, w, (size_t)columns * 4), 1, columns);
        t.side[side].p = to_device(dev, none, (size_t)s->vocab * 4);
        t.side[side].marks = x->marks[side];
        if (dev == gpu && marks_on_gpu) {
            t.side[side].found = to_device(dev, &x->marks[side], sizeof x->marks[side]);
            t.side[side].marks = (struct memory_marks){1, 99, 99, 99};
        }
        free(w), free(none);
    }
    if (idle) t.step = step_result(x, idle);
    struct mat key = {0};
    if (dev == gpu && s->raw_d) {
        t.state = put_plain(x->raw, s->type, 1, s->raw_d);
        t.projection = put_plain(x->projection, s->type, s->d, s->raw_d);
        key = put_plain(NULL, s->type, 1, s->d);
        t.append.key = key.data;
    }
    CHECK_OK(device_sync(dev));
    dev->ops->next_token->mix(dev, log_p, g, &t);
    device_download(dev, r.g, g, sizeof r.g);
    r.log_p = back(dev, log_p, s->vocab);
    for (int side = 0; side < MEMORY_SIDES; side++) {
        if (!t.side[side].memory.tau) continue;
        r.w[side] = back(dev, t.side[side].weights.data, t.side[side].weights.cols);
        r.p[side] = back(dev, t.side[side].p, s->vocab);
    }
    if (key.data) r.key = take(key);
    if (corpus && s->step) take_contributors(dev, &r, &t.side[1]);
    if (own) {
        device_download(dev, &r.square, square[0] + newest, 4);
        device_download(dev, &r.value, value + before, 4);
    }
    CHECK_OK(device_sync(dev));
    if (dev == gpu) drop_all();
    return r;
}

/* The same with marks that the GPU has. */
static struct result compute_found(const struct inputs *x, bool own, bool corpus) {
    marks_on_gpu = true;
    struct result r = compute_with(gpu, x, own, corpus, 0);
    marks_on_gpu = false;
    return r;
}

static struct result compute(struct device *dev, const struct inputs *x, bool own, bool corpus) {
    return compute_with(dev, x, own, corpus, 0);
}

static void check_near(const char *what, const float *a, const float *b, int64_t n, double within) {
    for (int64_t i = 0; i < n; i++) {
        if (a[i] == b[i] || fabs((double)a[i] - (double)b[i]) <= within * (1 + fabs((double)b[i]))) continue;
        fprintf(stderr, "%s %lld of %lld: %.9g, CPU %.9g\n", what, (long long)i, (long long)n, (double)a[i],
                (double)b[i]);
        test_fail(__FILE__, __LINE__, "next_token.mix differs from the CPU twin");
    }
}

/* The key is the product, with one rounding. The CPU twin then has this key as its state. */
static void take_key(struct inputs *x, const float *key) {
    const double rounding = x->shape.type == DTYPE_F32 ? 1e-6 : x->shape.type == DTYPE_F16 ? 0x1p-11 : 0x1p-8;
    for (int64_t j = 0; key && j < x->shape.d; j++) {
        double sum = 0, size = 0;
        for (int64_t i = 0; i < x->shape.raw_d; i++) {
            const double product = (double)x->projection[j * x->shape.raw_d + i] * (double)x->raw[i];
            sum += product, size += fabs(product);
        }
        CHECK(fabs((double)key[j] - sum) <= rounding * fabs(sum) + 1e-6 * size);
        x->c[0].states[j] = x->c[1].states[j] = key[j];
    }
}

/* Those of the GPU are entries of the token, the greatest weight first. */
static void check_contributors(const struct inputs *x, const struct result *r) {
    const struct shape *s = &x->shape;
    int64_t with = 0;
    for (int64_t i = 0; i < (int64_t)s->k * s->slot_rows; i++) {
        const int64_t slot = x->slot[i / s->slot_rows], in = i % s->slot_rows;
        with += slot >= 0 && in < x->entries[i / s->slot_rows] && x->c[1].slot_value[slot * s->step + in] == 0 &&
                r->w[1][i] > 0;
    }
    for (int i = 0; i < CONTRIBUTORS; i++) {
        const int32_t column = r->column[i];
        CHECK((column >= 0) == (i < with));
        if (column < 0) continue;
        const int64_t row = (int64_t)x->slot[column / s->slot_rows] * s->step + column % s->slot_rows;
        CHECK(column % s->slot_rows < x->entries[column / s->slot_rows] && x->c[1].slot_value[row] == 0);
        CHECK(i == 0 || r->w[1][column] <= r->w[1][r->column[i - 1]]);
    }
}

static void compare(struct device *cpu, struct shape s) {
    struct inputs x;
    inputs_make(&x, cpu, s);
    for (int reads = 0; reads < 4; reads++) {
        const bool own = reads & 1, corpus = reads & 2;
        struct result got = compute(gpu, &x, own, corpus), again = compute_found(&x, own, corpus);
        take_key(&x, got.key);
        struct result want = compute(cpu, &x, own, corpus);
        for (int idle = 4; idle < 14; idle += 5) {
            struct result early = compute_with(gpu, &x, own, corpus, idle);
            for (int i = 0; i <= MEMORY_SIDES; i++)
                CHECK(fabs(early.g[i] - got.g[i]) <= 1e-5);
            check_near("log p during a step", early.log_p, got.log_p, s.vocab, 1e-5);
            for (int side = 0; side < MEMORY_SIDES; side++) {
                if (!got.w[side]) continue;
                const int64_t columns = side ? (int64_t)s.k * s.slot_rows : s.limit;
                CHECK(memcmp(early.w[side], got.w[side], (size_t)columns * 4) == 0);
                CHECK(memcmp(early.p[side], got.p[side], (size_t)s.vocab * 4) == 0);
            }
            result_drop(&early);
        }
        CHECK(memcmp(got.log_p, again.log_p, (size_t)s.vocab * 4) == 0 && memcmp(got.g, again.g, sizeof got.g) == 0);
        for (int i = 0; i <= MEMORY_SIDES; i++)
            CHECK(fabs(got.g[i] - want.g[i]) <= 2e-4);
        check_near("log p", got.log_p, want.log_p, s.vocab, 5e-4);
        for (int side = 0; side < MEMORY_SIDES; side++) {
            if (!want.w[side]) continue;
            const int64_t columns = side ? (int64_t)s.k * s.slot_rows : s.limit;
            check_near("weight", got.w[side], want.w[side], columns, 2e-5);
            check_near("p", got.p[side], want.p[side], s.vocab, 2e-5);
        }
        if (corpus && s.step) check_contributors(&x, &got);
        CHECK(!own || (fabsf(got.square - want.square) <= 1e-4f * want.square && got.value == want.value));
        result_drop(&want), result_drop(&got), result_drop(&again);
    }
    inputs_drop(&x);
}

static void compare_marks(int k) {
    int64_t *chunk = zeros(k, 8);
    float *score = normals(k, 30, DTYPE_F32);
    struct memory_marks got, want;
    for (int i = 0; i < k; i++)
        chunk[i] = i > 0 && i >= k - k / 5 ? -1 : (int64_t)rng_below(&on_rng, 1000000);
    want = memory_marks_of(chunk, score, k, 77);
    void *chunk_device = put_bytes(chunk, (size_t)k * 8), *score_device = put_bytes(score, (size_t)k * 4);
    struct memory_marks *out = put_bytes(&want, sizeof want);
    device_clear(gpu, out, sizeof want);
    gpu->ops->next_token->marks(gpu, out, chunk_device, score_device, k, 77);
    device_download(gpu, &got, out, sizeof got);
    CHECK_OK(device_sync(gpu));
    CHECK(memcmp(&got, &want, sizeof got) == 0);
    drop_all();
    free(chunk), free(score);
}

static void nan_reaches_all(struct device *cpu) {
    for (int where = 0; where < 5; where++) {
        struct inputs x;
        const int step = where == 4 ? 10 : 0;
        inputs_make(&x, cpu, (struct shape){64, 500, 3, 20, 30, 40, 16, DTYPE_BF16, where == 3 ? 96 : 0, step});
        for (int64_t i = 0; step && i < x.c[1].slot_keys; i++)
            x.c[1].slot_value[i] = 9, x.scale[i] = NAN;
        if (where == 3) x.raw[90] = NAN;
        if (where == 0) x.logits[77] = NAN;
        if (where == 1) x.c[0].states[5] = NAN;
        if (where == 2)
            for (int64_t i = 0; i < x.c[1].slot_keys; i++)
                x.c[1].slot_value[i] = 9, x.c[1].slot_key[i * 64 + 3] = NAN;
        struct result r = compute(gpu, &x, true, true);
        for (int v = 0; v < 500; v++)
            CHECK(isnan(r.log_p[v]));
        result_drop(&r);
        inputs_drop(&x);
    }
}

int main(int argc, char **argv) {
    struct device *cpu;
    on_device_open(argc, argv);
    CHECK_OK(device_open(&cpu, "cpu", 0));
    /*                           d   vocab  k  rows past limit tau */
    compare(cpu, (struct shape){16, 50, 2, 7, 12, 9, 4, DTYPE_F32, 0, 0});
    compare(cpu, (struct shape){384, 16384, 8, 126, 700, 512, 96, DTYPE_BF16, 0, 0});
    compare(cpu, (struct shape){64, 3000, 8, 126, 700, 512, 16, DTYPE_BF16, 384, 0});
    compare(cpu, (struct shape){64, 3000, 8, 126, 700, 512, 16, DTYPE_BF16, 384, 63});
    compare(cpu, (struct shape){192, 2000, 20, 126, 700, 509, 48, DTYPE_BF16, 768, 63});
    compare(cpu, (struct shape){24, 300, 6, 20, 30, 40, 8, DTYPE_BF16, 64, 5}); /* plain loops */
    nan_reaches_all(cpu);
    for (int k = 1; k <= NEXT_TOKEN_HITS_MAX; k = 3 * k + 1)
        compare_marks(k);
    compare_marks(NEXT_TOKEN_HITS_MAX);
    if (on_short) return on_device_close();
    compare(cpu, (struct shape){33, 301, 5, 20, 3, 40, 8, DTYPE_F16, 0, 0});
    compare(cpu, (struct shape){50, 1001, 3, 10, 0, 20, 8, DTYPE_BF16, 0, 0}); /* an empty own past */
    compare(cpu, (struct shape){64, 7, 1, 1, 1, 1, 16, DTYPE_BF16, 0, 0});     /* fewer ids than blocks */
    compare(cpu, (struct shape){768, 50265, 64, 126, 5000, 2048, 192, DTYPE_BF16, 0, 0});
    compare(cpu, (struct shape){384, 16384, 256, 189, 2500, 2048, 96, DTYPE_BF16, 0, 0});
    compare(cpu, (struct shape){96, 2000, 4, 50, 300, 100, 24, DTYPE_F16, 160, 0});
    compare(cpu, (struct shape){13, 300, 3, 20, 30, 40, 8, DTYPE_BF16, 64, 0}); /* plain loops */
    compare(cpu, (struct shape){20, 300, 3, 20, 30, 40, 8, DTYPE_F32, 50, 0});
    compare(cpu, (struct shape){1056, 2000, 4, 50, 100, 80, 264, DTYPE_BF16, 1088, 0}); /* no stage fits */
    compare(cpu, (struct shape){128, 50265, 64, 126, 5000, 2048, 32, DTYPE_BF16, 768, 0});
    compare(cpu, (struct shape){128, 50265, 256, 126, 2500, 2048, 32, DTYPE_BF16, 768, 0});
    compare(cpu, (struct shape){128, 50265, 256, 126, 2500, 2048, 32, DTYPE_BF16, 768, 63});
    compare(cpu, (struct shape){192, 50265, 256, 128, 2500, 2048, 48, DTYPE_BF16, 768, 64});
    compare(cpu, (struct shape){128, 2000, 300, 189, 2500, 2047, 32, DTYPE_F16, 0, 63});
    compare(cpu, (struct shape){64, 400, 5, 7, 0, 3, 16, DTYPE_F32, 0, 2});
    compare(cpu, (struct shape){1024, 2000, 9, 50, 100, 80, 264, DTYPE_BF16, 1088, 25}); /* no stage fits */
    compare(cpu, (struct shape){40, 2000, 9, 50, 100, 80, 8, DTYPE_F16, 0, 13});
    device_close(cpu);
    return on_device_close();
}
