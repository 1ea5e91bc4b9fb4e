/* test_train_memory.c -- the loss with a token memory. Its value equals that of plain loops in double precision over
 * the entries that a row may read. Its gradients reach the tensors that the config names; neither threads,
 * recomputation nor the division into micro-batches changes them. (test_train_gradients.c tests that they are
 * right.) */
#include "decoder/decoder_passages.h"
#include "tests/memory_fixture.h"

/* ---- the value */

static bool shares_document(const int32_t a[2], const int32_t b[2]) {
    for (int32_t d = a[0]; d <= a[1]; d++)
        if (d >= b[0] && d <= b[1]) return true;
    return false;
}

struct reading {
    double *mass, all, nearest;
    int entries;
};

/* Adds an entry for a row: its key and value are rows of the step's matrices. */
static void read_entry(struct reading *r, const struct memory_loss *m, int64_t row, int64_t entry, double tau) {
    double distance = 0;
    int64_t size = m->keys.cols;
    const float *s = (const float *)m->keys.data + row * size, *k = (const float *)m->keys.data + entry * size;
    if (m->value[entry] < 0) return;
    for (int64_t i = 0; i < size; i++)
        distance += ((double)s[i] - (double)k[i]) * ((double)s[i] - (double)k[i]);
    r->nearest = fmin(r->nearest, distance);
    r->mass[m->value[entry]] += exp(-distance / tau);
    r->all += exp(-distance / tau);
    r->entries++;
}

/* All entries that a row may read, derived from the case and the documents alone. */
static void read_all(struct reading *r, const struct memory_case *c, const struct memory_loss *m,
                     const struct batch *batch, int64_t row, double tau) {
    int64_t S = c->base ? MEMORY_CHUNK : MEMORY_CHUNK + 1, each = c->blocks, block = row / S, own = block / each;
    int64_t past = c->reads.past * S / MEMORY_CHUNK, n = c->sequences * each * S;
    bool last = block % each == each - 1;
    const int32_t barred[2] = {batch->documents[block][0], batch->documents[last ? block : block + 1][1]};
    *r = (struct reading){.mass = calloc(VOCAB, sizeof(double)), .nearest = INFINITY};
    CHECK(r->mass);
    for (int64_t p = row - past; p < row; p++)
        if (p >= own * each * S) read_entry(r, m, row, p, tau);
    for (int64_t b = 0; b < c->sequences * each; b++)
        if (c->reads.group > 1 && b / each != own && b / each / c->reads.group == own / c->reads.group &&
            !shares_document(batch->documents[b], barred))
            for (int64_t i = 0; i < S; i++)
                read_entry(r, m, row, b * S + i, tau);
    for (int q = 0; q < c->reads.read && c->reads.passages > 0; q++) {
        int64_t from = block - q / c->reads.passages;
        if (from < own * each) break;
        int64_t p = from * (c->reads.passages + c->reads.unread) + q % c->reads.passages;
        int32_t document = batch->passage_documents[p];
        if (document < 0 || (document >= barred[0] && document <= barred[1])) continue;
        for (int64_t i = 0; i < MEMORY_SPAN * S; i++)
            read_entry(r, m, row, n + p * MEMORY_SPAN * S + i, tau);
    }
}

static void check_value(const struct memory_case *c, uint64_t seed) {
    struct model m;
    struct memory_text t;
    struct step_report report;
    make_memory_model(&m, c, seed);
    make_memory_text(&t, c, 0, c->sequences);
    struct device *dev = open_device(2);
    struct step *s = make_memory_step(dev, &m, c, c->sequences);
    struct step_now now = memory_now(c, 0.75F);
    const float gate[] = {-0.05F, 0.07F, -0.03F, 0.04F, 0.02F};
    memcpy(weights_tensor(optimizer_master(step_optimizer(s)), "memory.gate.weight").data, gate, sizeof gate);
    CHECK_OK(step_run(s, &report, &t.t.batch, 1, &now));
    const struct memory_loss *ml = s->mixture;
    double tau = (double)(float)exp((double)logf(15.0F)), sum = 0, shares = 0;
    int64_t rows = ml->rows, empty = 0, scored = 0;
    for (int64_t row = 0; row < rows; row++) {
        int32_t target = t.t.targets[row];
        struct reading r;
        double wrong = (double)memory_loss_nll(ml)[row];
        if (target < 0) CHECK(wrong == 0.0);
        if (target < 0) continue;
        read_all(&r, c, ml, &t.t.batch, row, tau);
        double lm = exp(-(double)s->nll[row]), g = 0, p_mem = r.entries ? r.mass[target] / r.all : 0;
        if (r.entries) {
            double squares = 0, largest = 0, lse = log(r.all);
            squares = (double)ml->stats[3 * rows + row], largest = (double)ml->stats[4 * rows + row];
            double near = fmin(r.nearest / tau, 30.0);
            g = 1 / (1 + exp(-10 * ((double)gate[0] + (double)gate[1] * lse / 10 + (double)gate[2] * near / 10 +
                                    (double)gate[3] * squares + (double)gate[4] * largest)));
        }
        double nll = -log((1 - g) * lm + g * p_mem);
        if (!(fabs(nll - wrong) < 1e-4 * (1 + nll)))
            fprintf(stderr, "%s: row %lld: %g, not %g\n", c->name, (long long)row, wrong, nll);
        CHECK(fabs(nll - wrong) < 1e-4 * (1 + nll));
        sum += nll, shares += g * p_mem / ((1 - g) * lm + g * p_mem), scored++, empty += r.entries == 0;
        free(r.mass);
    }
    CHECK(fabs(sum / (double)scored - report.memory_loss) < 1e-5 * sum);
    CHECK(fabs(shares / (double)scored - report.memory_share) < 1e-4);
    CHECK(empty < scored && (empty > 0 || c->reads.past == 0 || c->reads.group > 1));
    double sums[8], mixed[8], whole = 0;
    CHECK_OK(step_evaluate(s, sums, mixed, &t.t.batch, now.pool));
    for (int i = 0; i < c->sequences; i++)
        whole += mixed[i];
    /* Held-out texts do not read each other. */
    CHECK((fabs(whole / (double)scored - report.memory_loss) < 1e-6) == (c->reads.group < 2));
    step_free(s), free_memory_text(&t), params_free(m.params), device_close(dev);
}

/* ---- the gradient */

static float *gradients_with(const struct model *m, const struct memory_case *c, int threads, float weight) {
    struct memory_text t;
    struct step_report report;
    struct step_now now = memory_now(c, weight);
    struct device *dev = open_device(threads);
    struct step *s = make_memory_step(dev, m, c, c->sequences);
    make_memory_text(&t, c, 0, c->sequences);
    float *g = train_fixture_run(s, m, &t.t.batch, 1, &now, &report);
    step_free(s), free_memory_text(&t), device_close(dev);
    return g;
}

/* Largest difference of a tensor's gradients, divided by its largest element, over the tensors whose names have, or do
 * not have, a prefix. */
static double difference(const struct model *m, const float *a, const float *b, bool memory) {
    double worst = 0;
    for (int i = 0; i < params_count(m->params); i++) {
        const struct param *p = params_at(m->params, i);
        double largest = 1e-12, here = 0;
        for (int64_t j = 0; j < p->rows * p->cols; j++, a++, b++) {
            largest = fmax(largest, fabs((double)*a));
            here = fmax(here, fabs((double)*a - (double)*b));
        }
        if ((strncmp(p->name, "memory.", 7) == 0) == memory) worst = fmax(worst, here / largest);
    }
    return worst;
}

/* "projection": the trunk's gradients have the bits of a step without a memory, and the memory's tensors learn as with
 * "all". "states": keys are constants, so a part of the gradient is missing. */
static void check_reach(const struct memory_case *of, uint64_t seed) {
    struct memory_case c = *of;
    struct model m;
    make_memory_model(&m, &c, seed);
    float *all = gradients_with(&m, &c, 1, 0.6F), *without = gradients_with(&m, &c, 1, 0.0F);
    c.reads.gradient = MEMORY_GRADIENT_PROJECTION;
    float *projection = gradients_with(&m, &c, 1, 0.6F);
    c.reads.gradient = MEMORY_GRADIENT_STATES;
    float *states = gradients_with(&m, &c, 1, 0.6F);
    CHECK(difference(&m, without, projection, false) <= 0);
    CHECK(difference(&m, all, projection, true) <= 0);
    CHECK(difference(&m, all, without, false) > 0.01);
    CHECK(difference(&m, all, states, false) > 0.01 && difference(&m, without, states, false) > 0.01);
    free(all), free(without), free(projection), free(states), params_free(m.params);
}

/* ---- inference: the decoder's keys, of a text and of passages, are those of training */

/* Rows [n] of the step's keys against [n, cols], whose columns after the key's size are 0. */
static void check_keys(const struct memory_loss *ml, const int64_t *rows, struct mat found, int64_t n) {
    int64_t size = ml->keys.cols;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < found.cols; j++) {
            double want = j < size ? (double)((const float *)ml->keys.data)[rows[i] * size + j] : 0;
            CHECK(fabs((double)mat_row(found, i)[j] - want) < 2e-4 * (1 + fabs(want)));
        }
}

static void check_inference(const struct memory_case *of, uint64_t seed) {
    struct memory_case c = *of;
    struct model m;
    struct memory_text t;
    struct step_report report;
    struct decoder *decoder;
    struct decoder_state *state;
    struct decoder_passages *passages;
    make_memory_model(&m, &c, seed);
    make_memory_text(&t, &c, 0, c.sequences);
    struct device *dev = open_device(2);
    struct step *s = make_memory_step(dev, &m, &c, c.sequences);
    struct step_now now = memory_now(&c, 0.5F);
    now.pool = POOL_NONE; /* passages and this text have no neighbours */
    CHECK_OK(step_run(s, &report, &t.t.batch, 1, &now));
    struct weights weights = weights_of_params(m.params);
    CHECK_OK(decoder_create(&decoder, dev, &m.config, &weights, 40));
    CHECK_OK(decoder_state_create(&state, decoder, NULL));
    int64_t S = t.t.positions == 1 ? MEMORY_CHUNK : MEMORY_CHUNK + 1, n = (int64_t)c.blocks * MEMORY_CHUNK;
    int64_t length = (int64_t)MEMORY_SPAN * MEMORY_CHUNK, most = n > length ? n : length, hidden = m.config.hidden;
    int32_t *ids = calloc((size_t)most, sizeof *ids);
    int64_t *rows = calloc((size_t)most, sizeof *rows);
    float *keys = calloc((size_t)(most * hidden), sizeof *keys);
    CHECK(ids && rows && keys);
    for (int64_t i = 0; i < n; i++) {
        rows[i] = i / MEMORY_CHUNK * S + i % MEMORY_CHUNK;
        ids[i] = t.t.ids[rows[i]];
    }
    const struct decoder_output out = {.keys = mat_f32(keys, n, hidden), .key_layer = c.key_layer};
    CHECK_OK(decoder_forward(state, &out, ids, n));
    check_keys(s->mixture, rows, out.keys, n);
    const struct mat of_passage = mat_f32(keys, length, s->mixture->keys.cols);
    CHECK_OK(decoder_passages_create(&passages, decoder, length, PASSAGES_EXACT));
    for (int64_t p = 0; p < (int64_t)c.sequences * c.blocks * c.reads.passages; p++) {
        if (t.passage_documents[p] < 0 || t.passages[(p + 1) * MEMORY_NUMBERS - 2] < 0) continue;
        for (int64_t i = 0; i < length; i++)
            rows[i] = s->mixture->rows + p * MEMORY_SPAN * S + i / MEMORY_CHUNK * S + i % MEMORY_CHUNK;
        decoder_passages_encode(passages, of_passage, c.key_layer, t.passages + p * MEMORY_NUMBERS, 1);
        check_keys(s->mixture, rows, of_passage, length);
    }
    decoder_passages_free(passages), decoder_state_free(state), decoder_free(decoder), step_free(s);
    free_memory_text(&t), free(ids), free(rows), free(keys), params_free(m.params), device_close(dev);
}

/* ---- the same numbers by other methods */

static void check_paths(const struct memory_case *of, uint64_t seed) {
    struct memory_case c = *of;
    struct model m;
    make_memory_model(&m, &c, seed);
    size_t bytes = (size_t)params_elements(m.params) * sizeof(float);
    float *plain = gradients_with(&m, &c, 1, 0.6F), *again = gradients_with(&m, &c, 1, 0.6F);
    CHECK(memcmp(plain, again, bytes) == 0);
    free(again);
    c.recompute = !c.recompute;
    again = gradients_with(&m, &c, 1, 0.6F);
    CHECK(memcmp(plain, again, bytes) == 0);
    free(again);
    again = gradients_with(&m, &c, 2, 0.6F);
    CHECK(difference(&m, plain, again, false) < 3e-5 && difference(&m, plain, again, true) < 3e-5);
    free(again), free(plain), params_free(m.params);
}

/* A cut into micro-batches may divide a group of sequences. Some micro-batches read no past. */
static void check_micro_batches(const struct memory_case *of, uint64_t seed) {
    struct memory_case c = *of;
    struct model m;
    struct memory_text all, part[2];
    struct step_report one, two, dropped;
    struct batch batches[2];
    int group = c.reads.group > 1 ? c.reads.group : 1;
    make_memory_model(&m, &c, seed);
    c.sequences = 2 * group;
    struct device *dev = open_device(1);
    struct step *s = make_memory_step(dev, &m, &c, c.sequences), *small = make_memory_step(dev, &m, &c, group);
    struct step_now now = memory_now(&c, 0.6F);
    make_memory_text(&all, &c, 0, c.sequences);
    for (int i = 0; i < 2; i++) {
        make_memory_text(&part[i], &c, i * group, group);
        batches[i] = part[i].t.batch;
    }
    float *a = train_fixture_run(s, &m, &all.t.batch, 1, &now, &one),
          *b = train_fixture_run(small, &m, batches, 2, &now, &two);
    CHECK(difference(&m, a, b, false) < 3e-5 && difference(&m, a, b, true) < 3e-5);
    CHECK(fabs(one.memory_loss - two.memory_loss) < 1e-6 && fabs(one.memory_gate - two.memory_gate) < 1e-6);
    now.memory_drop_past = 1.0F;
    free(b), b = train_fixture_run(s, &m, &all.t.batch, 1, &now, &dropped);
    CHECK((fabs(dropped.memory_loss - one.memory_loss) > 1e-6) == (c.reads.past > 0));
    if (c.reads.passages == 0 && c.reads.group < 2)
        CHECK(fabs(dropped.memory_loss - dropped.loss) < 1e-6); /* no entry is left to read */
    free(a), free(b), step_free(s), step_free(small), free_memory_text(&all);
    free_memory_text(&part[0]), free_memory_text(&part[1]), params_free(m.params), device_close(dev);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 17);
    for (size_t i = 0; i < ARRAY_LEN(memory_cases); i++) {
        check_value(&memory_cases[i], test_seed() + i);
        check_inference(&memory_cases[i], test_seed() + i);
        check_paths(&memory_cases[i], test_seed() + i);
        check_micro_batches(&memory_cases[i], test_seed() + i);
    }
    check_reach(&memory_cases[1], test_seed());
    check_reach(&memory_cases[3], test_seed());
    return test_done();
}
