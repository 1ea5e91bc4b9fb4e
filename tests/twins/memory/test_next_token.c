/* test_next_token.c -- the mixture of a model and two memories against plain loops in double precision: one memory,
 * both, none, an empty one; a newest position that is added to its own past; states that are projected; packed slots;
 * logits of any size, NaN. */
#include "kernels/memory/next_token.h"
#include "tests/ref/ref_token_memory_case.h"
#include "tests/twins/twins.h"

enum { WORDS = 203, SLOT_ROWS = 9, SLOT_STEP = 4, PACKED_ROWS = 80, PACKED_D_MAX = 64, K_MAX = 8 };

static float as_is(float x) {
    return x;
}

struct world {
    struct memory_case c[MEMORY_SIDES]; /* of slots alone, of the past alone */
    struct memory_gate gate;
    float logits[WORDS], *state, *square[MEMORY_SIDES], *p[MEMORY_SIDES], *w[MEMORY_SIDES];
    float tau[MEMORY_SIDES];
    struct memory_marks marks[MEMORY_SIDES];
    float *raw, *projection; /* [raw_d], [d, raw_d]: the state is their product; NULL: not projected */
    int64_t d, raw_d;
    struct packed { /* what the slots of the corpus are copies of */
        bool used;
        int8_t code[PACKED_ROWS * PACKED_D_MAX];
        float scale[PACKED_ROWS];
        int32_t value[PACKED_ROWS], slot[K_MAX], entries[K_MAX];
    } packed;
};

/* Packed slots, which overlap, of any number of entries; the slots of the case get their keys and values. */
static void world_pack(struct world *x, struct rng *rng) {
    struct packed *p = &x->packed;
    struct memory_case *c = &x->c[1];
    CHECK(x->d <= PACKED_D_MAX && c->shape.k <= K_MAX);
    p->used = true;
    for (int64_t i = 0; i < PACKED_ROWS * x->d; i++)
        p->code[i] = (int8_t)((int)rng_below(rng, 255) - 127);
    for (int r = 0; r < PACKED_ROWS; r++)
        p->scale[r] = 0.01F + 0.01F * (float)rng_uniform(rng),
        p->value[r] = (int32_t)rng_below(rng, CASE_WORDS + 1) - 1;
    for (int i = 0; i < c->shape.k; i++) {
        p->slot[i] = i % 7 == 3 ? -1 : (int32_t)rng_below(rng, (PACKED_ROWS - SLOT_ROWS) / SLOT_STEP + 1);
        p->entries[i] = i ? (int32_t)rng_below(rng, SLOT_ROWS + 1) : SLOT_ROWS;
        c->slot[i] = p->slot[i] < 0 ? -1 : i;
        for (int j = 0; p->slot[i] >= 0 && j < SLOT_ROWS; j++) {
            const int r = p->slot[i] * SLOT_STEP + j, at = i * SLOT_ROWS + j;
            c->slot_value[at] = j < p->entries[i] ? p->value[r] : -1;
            for (int64_t col = 0; col < x->d; col++)
                c->slot_key[at * x->d + col] = p->scale[r] * (float)p->code[r * x->d + col];
        }
    }
}

/* Makes the state the projection of a random one. */
static void world_project(struct world *x, struct rng *rng, int64_t raw_d) {
    x->raw_d = raw_d;
    if (raw_d == 0) return;
    x->raw = zero_array(raw_d), x->projection = zero_array(x->d * raw_d);
    for (int64_t i = 0; i < raw_d; i++)
        x->raw[i] = rng_normal(rng);
    for (int64_t j = 0; j < x->d; j++) {
        double sum = 0;
        for (int64_t i = 0; i < raw_d; i++) {
            x->projection[j * raw_d + i] = rng_normal(rng) / sqrtf((float)raw_d);
            sum += (double)x->projection[j * raw_d + i] * (double)x->raw[i];
        }
        x->c[0].states[j] = (float)sum;
    }
}

static void world_make_with(struct world *x, struct rng *rng, int64_t d, int64_t raw_d, int k, int64_t past,
                            float spread, bool packed) {
    const struct memory_shape shape[MEMORY_SIDES] = {
        {.n = 1,
         .d = d,
         .length = 1,
         .first = past,
         .ring = past + 3,
         .limit = past > 4 ? (int)past - 2 : 4,
         .tau = 20},
        {.n = 1, .d = d, .slots = k + 2, .slot_rows = SLOT_ROWS, .blocks = 1, .k = k, .tau = 15}};
    *x = (struct world){.d = d};
    for (int side = 0; side < MEMORY_SIDES; side++) {
        x->c[side] = memory_case_make(rng, shape[side], as_is);
        x->tau[side] = shape[side].tau;
    }
    world_project(x, rng, raw_d);
    for (int i = 0; i < d; i++)
        x->c[1].states[i] = x->c[0].states[i];
    if (packed) world_pack(x, rng);
    for (int side = 0; side < MEMORY_SIDES; side++)
        memory_case_solve(&x->c[side]);
    x->state = x->c[0].states;
    for (int v = 0; v < WORDS; v++)
        x->logits[v] = spread * rng_normal(rng);
    double *gate = x->gate.mean;
    for (size_t i = 0; i < sizeof x->gate / sizeof *gate; i++)
        gate[i] = 0.3 * (double)rng_normal(rng);
    for (int i = 0; i < MEMORY_FEATURES; i++)
        x->gate.deviation[i] = 0.5 + fabs(x->gate.deviation[i]);
    x->marks[0] = (struct memory_marks){.entries = (float)past};
    x->marks[1] = (struct memory_marks){(float)k, 3.5F, 1.25F, 2};
}

static void world_make(struct world *x, struct rng *rng, int64_t d, int64_t raw_d, int k, int64_t past, float spread) {
    world_make_with(x, rng, d, raw_d, k, past, spread, false);
}

static struct memory_slots slots_of(struct world *x, struct device *dev) {
    const struct memory_case *c = &x->c[1];
    struct memory_slots m = {.keys = mat_f32(c->slot_key, c->slot_keys, x->d),
                             .value = c->slot_value,
                             .slot = c->slot,
                             .square = x->square[1],
                             .row_begin = c->row_begin,
                             .slot_rows = SLOT_ROWS,
                             .blocks = 1,
                             .k = c->shape.k,
                             .block_rows = 1};
    dev->ops->token_memory->squares(dev, x->square[1], m.keys);
    if (!x->packed.used) return m;
    m.keys = mat_f32(NULL, PACKED_ROWS, x->d);
    m.value = x->packed.value, m.slot = x->packed.slot, m.square = NULL;
    m.packed = (struct packed_keys){x->packed.code, x->packed.scale};
    m.entries = x->packed.entries, m.slot_step = SLOT_STEP;
    return m;
}

static struct next_token_task task_of(struct world *x, int device, bool own, bool corpus) {
    struct device *dev = twin_device[device];
    struct next_token_task t = {
        .gate = &x->gate, .logits = x->logits, .vocab = WORDS, .state = mat_f32(x->state, 1, x->d)};
    if (x->raw) t.state = mat_f32(x->raw, 1, x->raw_d), t.projection = mat_f32(x->projection, x->d, x->raw_d);
    for (int side = 0; side < MEMORY_SIDES; side++) {
        const struct memory_case *c = &x->c[side];
        const struct memory_shape *s = &c->shape;
        struct token_memory *m = &t.side[side].memory;
        if (!(side ? corpus : own)) continue;
        m->tau = &x->tau[side];
        x->square[side] = zero_array(c->slot_keys + c->past_keys);
        if (side) {
            m->slots = slots_of(x, dev);
        } else {
            m->past = (struct memory_past){.keys = mat_f32(c->past_key, c->past_keys, s->d),
                                           .value = c->past_value,
                                           .square = x->square[side],
                                           .length = 1,
                                           .first = s->first,
                                           .ring = s->ring,
                                           .limit = s->limit};
            dev->ops->token_memory->squares(dev, x->square[side], m->past.keys);
        }
        const int64_t columns = token_memory_columns(m);
        x->w[side] = zero_array(columns), x->p[side] = zero_array(WORDS);
        t.side[side].marks = x->marks[side];
        t.side[side].weights = mat_f32(x->w[side], 1, columns);
        t.side[side].p = x->p[side];
    }
    return t;
}
static void task_drop(struct world *x) {
    for (int side = 0; side < MEMORY_SIDES; side++) {
        free(x->square[side]), free(x->w[side]), free(x->p[side]);
        x->square[side] = x->w[side] = x->p[side] = NULL;
    }
}

/* The oracle: p of each memory and its features, from the oracle of token memories. */
static struct memory_evidence plain_side(const struct world *x, int side, double p[WORDS], const double lm[WORDS],
                                         int64_t top) {
    const struct memory_case *c = &x->c[side];
    const int64_t columns = ref_token_memory_columns(&c->m);
    int64_t best = 0;
    memset(p, 0, WORDS * sizeof *p);
    for (int64_t i = 0; i < columns; i++) {
        int past;
        const int64_t at = ref_token_memory_key(&c->m, 0, i, &past);
        if (at >= 0) p[(past ? c->past_value : c->slot_value)[at]] += c->w[i];
    }
    if (!(x->marks[side].entries > 0)) return (struct memory_evidence){0};
    for (int v = 1; v < WORDS; v++)
        best = p[v] > p[best] * (1 + 1e-9) ? v : best;
    return (struct memory_evidence){.entries = x->marks[side].entries,
                                    .nearest = (float)c->stats[2],
                                    .lse = (float)c->stats[1],
                                    .squares = (float)c->stats[3],
                                    .top = (float)log(p[best]),
                                    .of_top = (float)log(p[top]),
                                    .lm_of_top = (float)log(lm[best]),
                                    .token = (float)best,
                                    .best = x->marks[side].best,
                                    .kth = x->marks[side].kth,
                                    .mean = x->marks[side].mean};
}

static void plain_mix(double log_p[WORDS], double g[1 + MEMORY_SIDES], const struct world *x, bool own, bool corpus) {
    double lm[WORDS], p[MEMORY_SIDES][WORDS] = {0}, sum = 0, entropy = 0;
    struct memory_evidence of[MEMORY_SIDES] = {0};
    int64_t top = 0;
    for (int v = 0; v < WORDS; v++)
        top = x->logits[v] > x->logits[top] ? v : top;
    for (int v = 0; v < WORDS; v++)
        sum += lm[v] = exp((double)x->logits[v] - (double)x->logits[top]);
    for (int v = 0; v < WORDS; v++) {
        lm[v] /= sum;
        entropy -= lm[v] > 0 ? lm[v] * log(lm[v]) : 0;
    }
    if (own) of[0] = plain_side(x, 0, p[0], lm, top);
    if (corpus) of[1] = plain_side(x, 1, p[1], lm, top);
    const struct memory_lm_evidence evidence = {(float)entropy, (float)log(lm[top])};
    memory_gate_weights(g, &x->gate, &evidence, of);
    for (int v = 0; v < WORDS; v++)
        log_p[v] = log(g[0] * lm[v] + g[1] * p[0][v] + g[2] * p[1][v]);
}

static void check_mix(int device, struct world *x, bool own, bool corpus) {
    struct device *dev = twin_device[device];
    double want[WORDS], want_g[1 + MEMORY_SIDES], g[1 + MEMORY_SIDES], again_g[1 + MEMORY_SIDES];
    float got[WORDS], again[WORDS];
    const struct next_token_task t = task_of(x, device, own, corpus);
    plain_mix(want, want_g, x, own, corpus);
    dev->ops->next_token->mix(dev, got, g, &t);
    dev->ops->next_token->mix(dev, again, again_g, &t);
    CHECK(memcmp(got, again, sizeof got) == 0 && memcmp(g, again_g, sizeof g) == 0);
    double all = 0;
    for (int i = 0; i <= MEMORY_SIDES; i++)
        CHECK(fabs(g[i] - want_g[i]) <= 2e-5);
    for (int v = 0; v < WORDS; v++) {
        if (!(fabs((double)got[v] - want[v]) <= 1e-4 * (1 + fabs(want[v])))) {
            fprintf(stderr, "id %d: %.9g, want %.9g\n", v, (double)got[v], want[v]);
            CHECK(!"log p differs from the oracle");
        }
        all += exp((double)got[v]);
    }
    CHECK(fabs(all - 1) <= 1e-5);
    for (int side = 0; side < MEMORY_SIDES; side++) {
        if (!(side ? corpus : own)) continue;
        for (int64_t i = 0; i < token_memory_columns(&t.side[side].memory); i++)
            CHECK(fabs((double)x->w[side][i] - x->c[side].w[i]) <= 1e-5);
    }
    task_drop(x);
}

static void world_drop(struct world *x) {
    for (int side = 0; side < MEMORY_SIDES; side++)
        memory_case_free(&x->c[side]);
    free(x->raw), free(x->projection);
}

static void test_shapes(int device) {
    struct rng rng = rng_make(3, 0);
    static const struct {
        int64_t d, raw_d;
        int k;
        int64_t past;
        float spread;
    } shapes[] = {{16, 0, 3, 12, 1},  {64, 0, 1, 1, 3},    {40, 0, 8, 50, 6}, {7, 0, 2, 5, 30},
                  {384, 0, 5, 31, 2}, {64, 384, 3, 40, 2}, {9, 50, 2, 7, 1}};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (int reads = 0; reads < 4; reads++) {
            struct world x;
            world_make(&x, &rng, shapes[i].d, shapes[i].raw_d, shapes[i].k, shapes[i].past, shapes[i].spread);
            check_mix(device, &x, reads & 1, reads & 2);
            world_drop(&x);
        }
}

/* Packed slots against the oracle, and against slots that have their numbers: the same bits, and the same entries that
 * gave a token's probability. */
static void test_packed(int device) {
    struct rng rng = rng_make(9, 0);
    struct device *dev = twin_device[device];
    static const int64_t sizes[] = {1, 16, 33, 64};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct world x;
        float got[2][WORDS], weight[2][4];
        double g[2][1 + MEMORY_SIDES];
        int32_t column[2][4];
        world_make_with(&x, &rng, sizes[i], 0, K_MAX - (int)i, 20, 2, true);
        check_mix(device, &x, false, true);
        check_mix(device, &x, true, true);
        for (int packed = 0; packed < 2; packed++) {
            x.packed.used = packed;
            const struct next_token_task t = task_of(&x, device, true, true);
            dev->ops->next_token->mix(dev, got[packed], g[packed], &t);
            const int32_t token = 2;
            dev->ops->token_memory->contributors(dev, column[packed], weight[packed], t.side[1].weights,
                                                 &t.side[1].memory, &token, 4, 0);
            task_drop(&x);
        }
        CHECK_BITS(got[0], got[1], WORDS);
        CHECK(memcmp(g[0], g[1], sizeof g[0]) == 0 && memcmp(weight[0], weight[1], sizeof weight[0]) == 0);
        CHECK(memcmp(column[0], column[1], sizeof column[0]) == 0 && column[0][0] >= 0);
        world_drop(&x);
    }
}

/* A past without positions: nothing is mixed, and the distribution is the model's. */
static void test_empty(int device) {
    struct rng rng = rng_make(4, 0);
    struct world x;
    world_make(&x, &rng, 16, 0, 2, 0, 2);
    check_mix(device, &x, true, false);
    check_mix(device, &x, true, true);
    world_drop(&x);
}

/* The same, with the newest position's square, projected key and the preceding value passed to the mixture. */
static void test_append(int device, int64_t raw_d) {
    struct rng rng = rng_make(5, 0);
    struct device *dev = twin_device[device];
    struct world x;
    float want[WORDS], got[WORDS];
    double g[1 + MEMORY_SIDES];
    world_make(&x, &rng, 24, raw_d, 2, 9, 2);
    struct memory_case *c = &x.c[0];
    const int64_t newest = c->shape.first % c->shape.ring, before = newest - 1;
    c->past_value[before] = 4;
    struct next_token_task t = task_of(&x, device, true, true);
    dev->ops->next_token->mix(dev, want, g, &t);
    c->past_value[before] = 1;
    float square = x.square[0][newest] = -1, sum = 0;
    float *row = c->past_key + newest * x.d, key[24];
    memcpy(key, row, sizeof key);
    t.append = (struct next_token_append){&x.square[0][newest], &c->past_value[before], 4, raw_d ? row : NULL, NULL};
    dev->ops->next_token->mix(dev, got, g, &t);
    CHECK(memcmp(want, got, sizeof got) == 0 && c->past_value[before] == 4);
    for (int i = 0; i < x.d; i++) {
        sum += x.state[i] * x.state[i];
        CHECK(raw_d ? fabsf(row[i] - x.state[i]) <= 1e-5F : row[i] == key[i]);
    }
    square = x.square[0][newest];
    CHECK(fabsf(square - sum) <= 1e-4F * sum);
    task_drop(&x);
    world_drop(&x);
}

/* Marks that the device has give the bits of those in the task; without entries the side is not read. */
static void test_found(int device) {
    struct rng rng = rng_make(8, 0);
    struct device *dev = twin_device[device];
    struct world x;
    float want[WORDS], got[WORDS];
    double g[2][1 + MEMORY_SIDES];
    world_make(&x, &rng, 24, 0, 3, 9, 2);
    struct next_token_task t = task_of(&x, device, true, true);
    for (int entries = 3; entries >= 0; entries -= 3) {
        struct memory_marks found = t.side[1].marks = (struct memory_marks){(float)entries, 2.5F, 0.5F, 1};
        t.side[1].found = NULL;
        dev->ops->next_token->mix(dev, want, g[0], &t);
        t.side[1].found = &found, t.side[1].marks = (struct memory_marks){1, 9, 9, 9};
        dev->ops->next_token->mix(dev, got, g[1], &t);
        CHECK(memcmp(want, got, sizeof got) == 0 && memcmp(g[0], g[1], sizeof g[0]) == 0);
        CHECK((g[1][2] > 0) == (entries > 0));
    }
    task_drop(&x);
    world_drop(&x);
}

/* Figures of a search with fewer hits than k, with none, and with scores below 0. */
static void test_marks(int device) {
    struct device *dev = twin_device[device];
    static const struct {
        int64_t chunk[4];
        float score[4], tokens;
        struct memory_marks marks;
    } cases[] = {{{5, 0, 9, 2}, {8, 6, 4, 2}, 2, {4, 4, 1, 2.5F}},
                 {{5, 0, -1, -1}, {8, 6, -INFINITY, NAN}, 2, {2, 4, 0, 1.75F}},
                 {{-1, -1, -1, -1}, {3, 3, 3, 3}, 1, {0, 0, 0, 0}},
                 {{1, 2, 3, 4}, {-8, -6, -4, -2}, 1, {4, -2, -8, -5}}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct memory_marks got;
        dev->ops->next_token->marks(dev, &got, cases[i].chunk, cases[i].score, 4, cases[i].tokens);
        CHECK(memcmp(&got, &cases[i].marks, sizeof got) == 0);
    }
}

static void test_nan(int device) {
    struct rng rng = rng_make(6, 0);
    struct device *dev = twin_device[device];
    float got[WORDS];
    double g[1 + MEMORY_SIDES];
    for (int where = 0; where < 4; where++) {
        struct world x;
        world_make(&x, &rng, 16, where == 3 ? 32 : 0, 3, 8, 1);
        struct memory_case *c = &x.c[0];
        if (where == 0) x.logits[WORDS / 2] = NAN;
        if (where == 1) x.c[1].states[3] = x.c[0].states[3] = NAN;
        if (where == 3) x.raw[7] = NAN;
        if (where == 2) c->past_value[6] = 2, c->past_key[6 * x.d + 1] = NAN;
        const struct next_token_task t = task_of(&x, device, true, true);
        dev->ops->next_token->mix(dev, got, g, &t);
        for (int v = 0; v < WORDS; v++)
            CHECK(isnan(got[v]));
        task_drop(&x);
        world_drop(&x);
    }
}

/* Shares of logits, in any division, give the sums of all; NaN, -infinity and equal logits. */
static void test_shares(void) {
    struct rng rng = rng_make(7, 0);
    for (int parts = 1; parts <= WORDS + 2; parts += 17) {
        float x[WORDS];
        struct logit_share all = logit_share_none();
        double sum = 0, moment = 0;
        int top = 0;
        for (int v = 0; v < WORDS; v++)
            x[v] = v % 50 == 3 ? -INFINITY : v % 60 == 59 ? 9 : 3 * rng_normal(&rng);
        for (int v = 0; v < WORDS; v++)
            top = x[v] > x[top] ? v : top;
        for (int v = 0; v < WORDS; v++) {
            const double below = (double)x[v] - (double)x[top];
            sum += exp(below);
            moment += below > -INFINITY ? exp(below) * below : 0;
        }
        for (int i = parts - 1; i >= 0; i--) {
            struct logit_share s = logit_share_none();
            for (int v = WORDS * i / parts; v < WORDS * (i + 1) / parts; v++)
                s = logit_share_add(s, x[v], v);
            all = logit_share_join(all, s);
        }
        CHECK(all.top == x[top] && all.token == top);
        CHECK(fabs((double)all.sum - sum) <= 1e-5 * sum && fabs((double)all.moment - moment) <= 1e-5 * -moment);
        all = logit_share_join(logit_share_add(logit_share_none(), NAN, 0), all);
        CHECK(isnan(all.sum) && all.top == x[top]);
    }
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    test_shares();
    for (int device = 0; device < DEVICES; device++) {
        test_shapes(device);
        test_packed(device);
        test_empty(device);
        test_append(device, 0);
        test_append(device, 100);
        test_found(device);
        test_marks(device);
        test_nan(device);
    }
    return twins_close();
}
