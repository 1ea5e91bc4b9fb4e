/* test_memory_gate_fit.c -- the gate's loss against plain loops over struct memory_gate, its gradient against finite
 * differences, the same bits with any number of threads, and a true minimum. */
#include "base/rng.h"
#include "tests/test.h"
#include "tools/memory/memory_gate_fit.h"
#include <string.h>

enum { ROWS = 1300, N = MEMORY_GATE_PARAMETERS }; /* more than two blocks of rows */
static struct memory_gate_row rows[ROWS];

static double draw(struct rng *rng) {
    return 2 * (double)rng_uniform(rng) - 1;
}

/* Every kind of row: without memories, without one of them, with a token that a memory does not have, and excluded
 * rows. */
static void make_rows(void) {
    struct rng rng = rng_make(11, 0);
    for (int i = 0; i < ROWS; i++) {
        struct memory_gate_row *row = &rows[i];
        *row = (struct memory_gate_row){.share = i % 7 == 3 ? 0 : (double)rng_uniform(&rng) / ROWS,
                                        .there = {i % 5 != 0, i % 3 != 0}};
        for (int j = 0; j < MEMORY_FEATURES; j++) {
            int side = memory_feature_side(j);
            row->x[j] = side < 0 || row->there[side] ? 2 * draw(&rng) : 0;
        }
        row->p[0] = 0.05 + (double)rng_uniform(&rng);
        for (int side = 0; side < MEMORY_SIDES; side++)
            row->p[1 + side] = row->there[side] && i % 4 != 1 ? (double)rng_uniform(&rng) : 0;
    }
}

static void make_gate(struct memory_gate *gate, double scale) {
    struct rng rng = rng_make(12, 0);
    double *parameters = &gate->w1[0][0];
    *gate = (struct memory_gate){0};
    for (int j = 0; j < MEMORY_FEATURES; j++)
        gate->deviation[j] = 1;
    for (int i = 0; i < N; i++)
        parameters[i] = scale * draw(&rng);
}

/* The same loss, from the weights that programs mix with. The features are already standardised. */
static double plain_loss(const struct memory_gate *gate) {
    double loss = 0;
    for (int i = 0; i < ROWS; i++) {
        const struct memory_gate_row *row = &rows[i];
        double a[1 + MEMORY_SIDES] = {0}, sum = 0, mixed = 0;
        for (int side = 0; side < MEMORY_SIDES; side++) {
            a[1 + side] = gate->b2[side];
            for (int h = 0; h < MEMORY_GATE_HIDDEN; h++) {
                double x = gate->b1[h];
                for (int j = 0; j < MEMORY_FEATURES; j++)
                    x += gate->w1[h][j] * row->x[j];
                a[1 + side] += gate->w2[side][h] * tanh(x);
            }
        }
        for (int k = 0; k <= MEMORY_SIDES; k++)
            sum += k == 0 || row->there[k - 1] ? exp(a[k]) : 0;
        for (int k = 0; k <= MEMORY_SIDES; k++)
            mixed += k == 0 || row->there[k - 1] ? exp(a[k]) / sum * row->p[k] : 0;
        loss -= row->share * log(mixed);
    }
    return loss;
}

static void test_loss(void) {
    struct memory_gate gate;
    double loss;
    make_gate(&gate, 0.7);
    CHECK_OK(memory_gate_loss(&loss, NULL, &gate.w1[0][0], rows, ROWS, NULL));
    CHECK(fabs(loss - plain_loss(&gate)) <= 1e-12);
}

static void test_gradient(void) {
    static double gradient[N], threaded[N];
    struct memory_gate gate;
    struct threads *threads;
    double loss, other;
    make_gate(&gate, 0.7);
    double *parameters = &gate.w1[0][0];
    CHECK_OK(memory_gate_loss(&loss, gradient, parameters, rows, ROWS, NULL));
    CHECK_OK(threads_create(&threads, 3));
    CHECK_OK(memory_gate_loss(&other, threaded, parameters, rows, ROWS, threads));
    CHECK(memcmp(&loss, &other, sizeof loss) == 0 && memcmp(gradient, threaded, sizeof gradient) == 0);
    threads_free(threads);
    double largest = 0, furthest = 0;
    for (int i = 0; i < N; i++) {
        const double at = parameters[i], step = 1e-4;
        double ends[2];
        for (int end = 0; end < 2; end++) {
            parameters[i] = at + (end ? step : -step);
            CHECK_OK(memory_gate_loss(&ends[end], NULL, parameters, rows, ROWS, NULL));
        }
        parameters[i] = at;
        double difference = (ends[1] - ends[0]) / (2 * step);
        largest = fmax(largest, fabs(gradient[i]));
        furthest = fmax(furthest, fabs(gradient[i] - difference));
    }
    CHECK(largest > 1e-3);
    CHECK(furthest <= 1e-8);
}

/* One feature says which memory has the token. A gate that reads it has a much lower loss than any fixed weights; a
 * large penalty removes most of this gain. */
static void test_minimum(void) {
    static struct memory_gate_row known[ROWS];
    struct rng rng = rng_make(13, 0);
    struct memory_gate gate, again, held;
    double loss, penalised;
    for (int i = 0; i < ROWS; i++) {
        bool own = rng_below(&rng, 2) == 0;
        known[i] =
            (struct memory_gate_row){.share = 1.0 / ROWS, .there = {true, true}, .p = {0.1, own ? 1 : 0, own ? 0 : 1}};
        for (int j = 0; j < MEMORY_FEATURES; j++)
            known[i].x[j] = j == 4 ? (own ? 1 : -1) : draw(&rng);
    }
    make_gate(&gate, 0);
    again = held = gate;
    CHECK_OK(memory_gate_fit(&gate, known, ROWS, 0, NULL));
    CHECK_OK(memory_gate_fit(&again, known, ROWS, 0, NULL));
    CHECK(memcmp(&gate, &again, sizeof gate) == 0);
    CHECK_OK(memory_gate_fit(&held, known, ROWS, 10, NULL));
    CHECK_OK(memory_gate_loss(&loss, NULL, &gate.w1[0][0], known, ROWS, NULL));
    CHECK_OK(memory_gate_loss(&penalised, NULL, &held.w1[0][0], known, ROWS, NULL));
    CHECK(loss < 0.05);
    CHECK(penalised > 0.6); /* the best fixed weights are a half each: log 2 */
}

int main(void) {
    make_rows();
    test_loss();
    test_gradient();
    test_minimum();
    return 0;
}
