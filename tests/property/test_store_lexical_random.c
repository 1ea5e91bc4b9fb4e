/* test_store_lexical_random.c -- random additions, drops, damage with repair, and removals of the lexical index: after
 * each, the hits are those of plain loops over the remaining chunks, and verify --deep finds no problem. */
#include "tests/unit/store/store_lexical_fixture.h"

enum { STORES = 6, OPERATIONS = 25, EACH = 4 };

struct state {
    char dir[600];
    int64_t documents, shards;
    bool on, dropped[400];
    struct rng r;
};

static void add(struct state *s) {
    int64_t shards = 1 + (int64_t)rng_below(&s->r, 4), end = s->documents + shards * EACH;
    struct store_publish how = store_lexical_publish(STORE_LEXICAL_KEEP);
    how.lexical_chunks = rng_below(&s->r, 3) == 0 ? 30 + (int64_t)rng_below(&s->r, 50) : 0;
    how.merge_chunks = rng_below(&s->r, 2) == 0 ? 60 : 0;
    if (rng_below(&s->r, 6) == 0 || s->shards == 0) {
        s->on = s->shards == 0 || !s->on;
        how.lexical = s->on ? STORE_LEXICAL_ON : STORE_LEXICAL_OFF;
    }
    CHECK_OK(store_lexical_add(s->dir, s->documents, end, EACH, &how));
    s->documents = end;
    s->shards += shards;
}

static void drop(struct state *s) {
    int64_t shard = (int64_t)rng_below(&s->r, (uint64_t)s->shards);
    CHECK_OK(store_lexical_drop(s->dir, shard));
    s->dropped[shard] = true;
}

/* Removes one random segment, or all of them. */
static void damage(struct state *s) {
    char path[700];
    int64_t problems = 0;
    bool all = rng_below(&s->r, 4) == 0;
    for (int i = 1; i < 200; i++) {
        snprintf(path, sizeof path, "%s/lexical/%05d.lex", s->dir, i);
        if (all || rng_below(&s->r, 3) == 0) (void)unlink(path);
    }
    CHECK_OK(store_repair(s->dir, NULL, NULL, fixture_print_problem, NULL, &problems));
    CHECK_EQ(problems, 0);
}

static void toggle(struct state *s) {
    const struct store_publish how = store_lexical_publish(s->on ? STORE_LEXICAL_OFF : STORE_LEXICAL_ON);
    CHECK_OK(store_lexical(s->dir, &how));
    s->on = !s->on;
}

static void check(struct state *s) {
    CHECK_EQ(store_lexical_problems(s->dir), 0);
    if (s->on) {
        store_lexical_check(s->dir, 2, &s->r);
        return;
    }
    struct store *store;
    struct store_view *v;
    const struct lexical *x;
    CHECK_OK(store_open(&store, s->dir));
    CHECK_OK(store_view_open(&v, store));
    CHECK_FAILS(store_view_lexical(&x, v), STATUS_UNSUPPORTED, "no lexical index");
    store_view_close(v);
    store_close(store);
}

static void run_store(int number) {
    static struct state s;
    s = (struct state){.r = rng_make(test_seed(), (uint64_t)number)};
    snprintf(s.dir, sizeof s.dir, "%s/store%d", test_folder(), number);
    for (int i = 0; i < OPERATIONS; i++) {
        uint32_t what = (uint32_t)rng_below(&s.r, 10);
        if (s.shards == 0 || what < 5)
            add(&s);
        else if (what < 7)
            drop(&s);
        else if (what < 9)
            damage(&s);
        else
            toggle(&s);
        check(&s);
    }
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    for (int i = 0; i < STORES; i++)
        run_store(i);
    return test_done();
}
