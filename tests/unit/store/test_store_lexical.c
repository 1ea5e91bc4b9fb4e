/* test_store_lexical.c -- the lexical index as a part of a store: made with the store or later; complete after
 * additions, dropped shards, and repairs of damage; removal; refusals. */
#include "store/catalog/record_lexical_internal.h"
#include "store/view_internal.h"
#include "tests/unit/store/store_lexical_fixture.h"
#include <dirent.h>

static char dir[600];
static struct rng random_numbers;

static void fresh(const char *name) {
    snprintf(dir, sizeof dir, "%s/%s", test_folder(), name);
}

static int64_t check(void) {
    return store_lexical_check(dir, 4, &random_numbers);
}

/* Counts these files of the folder; `numbers` gets their numbers. */
static int files_of(int64_t numbers[64]) {
    char path[700];
    int n = 0;
    snprintf(path, sizeof path, "%s/lexical", dir);
    DIR *folder = opendir(path);
    CHECK(folder);
    for (struct dirent *e; (e = readdir(folder));)
        if (e->d_name[0] != '.') numbers[n++] = strtoll(e->d_name, NULL, 10);
    closedir(folder);
    return n;
}

/* A store without one gets it in one generation; a second call changes nothing; after its removal the file is
 * deleted. */
static void test_afterwards(void) {
    struct store_publish how = store_lexical_publish(STORE_LEXICAL_KEEP);
    int64_t numbers[64];
    fresh("afterwards");
    CHECK_OK(store_lexical_add(dir, 0, 60, 20, &how));
    CHECK(!fixture_info(dir).lexical);
    CHECK_EQ(files_of(numbers), 0);
    how.lexical = STORE_LEXICAL_ON;
    CHECK_OK(store_lexical(dir, &how));
    CHECK_EQ(check(), 1);
    struct store_info info = fixture_info(dir);
    CHECK(info.lexical && info.lexical_segments == 1 && info.lexical_bytes > 1000 && info.generation == 2);
    CHECK_OK(store_lexical(dir, &how));
    CHECK_EQ(fixture_info(dir).generation, 2);
    CHECK_EQ(store_lexical_problems(dir), 0);
    how.lexical = STORE_LEXICAL_OFF;
    CHECK_OK(store_lexical(dir, &how));
    info = fixture_info(dir);
    CHECK(!info.lexical && info.lexical_segments == 0 && info.lexical_bytes == 0 && info.generation == 3);
    CHECK_OK(store_lexical_add(dir, 60, 70, 20, &how)); /* this writer removes what no record names */
    CHECK_EQ(files_of(numbers), 0);
    CHECK_EQ(store_lexical_problems(dir), 0);
}

/* The bytes of the only file of the lexical index. */
static void only_file(struct file_map *out, int64_t wanted) {
    char path[FILE_PATH_MAX];
    int64_t numbers[64];
    CHECK_EQ(files_of(numbers), 1);
    CHECK_EQ(numbers[0], wanted);
    CHECK_OK(lexical_path(path, dir, numbers[0]));
    CHECK_OK(file_map(out, path));
}

/* Makes a store whose lexical index is made while shards are sealed, in two runs: the first one ends after `stop` of
 * its documents, without publishing. */
static enum status follow(int64_t end, int64_t each, int64_t stop, int threads, const struct store_publish *how) {
    const struct store_writer_config config = fixture_config(8, STORE_LEXICAL_VOCAB);
    struct store_writer *w;
    CHECK_OK(store_writer_open(&w, dir, &config, true));
    CHECK_OK(store_writer_follow(w, 1 << 20, threads, false));
    for (int64_t i = 0; i < stop; i += each)
        CHECK_OK(fixture_shard(w, &config, i, i + each < stop ? i + each : stop));
    store_writer_close(w);
    CHECK_OK(store_writer_open(&w, dir, &config, true)); /* what the first run made is removed */
    CHECK_EQ(files_of((int64_t[64]){0}), 0);
    CHECK_OK(store_writer_follow(w, 1 << 20, threads, false));
    for (int64_t i = stop; i < end; i += each)
        CHECK_OK(fixture_shard(w, &config, i, i + each < end ? i + each : end));
    if (threads > 1) store_writer_follow_end(w);
    const enum status s = store_writer_publish(w, how);
    store_writer_close(w);
    return s;
}

/* Documents of a shard that is discarded are not in the index. */
static void test_followed_and_discarded(void) {
    const struct store_writer_config config = fixture_config(8, STORE_LEXICAL_VOCAB);
    const struct store_publish how = store_lexical_publish(STORE_LEXICAL_ON);
    struct store_writer *w;
    bool duplicate;
    fresh("discarded");
    CHECK_OK(store_writer_open(&w, dir, &config, true));
    CHECK_OK(store_writer_follow(w, 1 << 20, 2, false));
    CHECK_OK(store_shard_begin(w));
    CHECK_OK(fixture_add(w, &config, 7, &duplicate));
    store_shard_discard(w);
    CHECK_OK(store_shard_begin(w));
    CHECK_OK(fixture_add(w, &config, 7, &duplicate));
    CHECK(!duplicate);
    CHECK_OK(fixture_add(w, &config, 7, &duplicate));
    CHECK(duplicate);
    CHECK_OK(store_shard_seal(w, NULL, 0));
    CHECK_OK(store_writer_publish(w, &how));
    store_writer_close(w);
    CHECK_EQ(check(), 1);
    CHECK_EQ(store_lexical_problems(dir), 0);
}

/* The same file as afterwards, also by several threads and after a run that was stopped; none if it is not wanted;
 * several segments if one cannot have all chunks. */
static void test_followed(void) {
    struct store_publish how = store_lexical_publish(STORE_LEXICAL_ON);
    struct file_map plain, followed;
    int64_t numbers[64];
    fresh("plain");
    CHECK_OK(store_lexical_add(dir, 0, 300, 40, &how));
    only_file(&plain, 1);
    for (int threads = 1; threads <= 3; threads++) {
        char name[30];
        snprintf(name, sizeof name, "followed-%d", threads);
        fresh(name);
        CHECK_OK(follow(300, 40, 120 * (threads - 1), threads, &how));
        only_file(&followed, 1);
        CHECK(followed.size == plain.size && memcmp(followed.data, plain.data, plain.size) == 0);
        file_unmap(&followed);
        CHECK_EQ(check(), 1);
        CHECK_EQ(store_lexical_problems(dir), 0);
        CHECK_OK(store_lexical_add(dir, 300, 310, 20, &how)); /* follows nothing */
        CHECK_EQ(store_lexical_problems(dir), 0);
    }
    file_unmap(&plain);
    how.lexical = STORE_LEXICAL_OFF;
    fresh("not-followed");
    CHECK_OK(follow(60, 20, 20, 2, &how));
    CHECK_EQ(files_of(numbers), 0);
    CHECK(!fixture_info(dir).lexical);
    how.lexical = STORE_LEXICAL_ON;
    how.lexical_chunks = 100;
    fresh("divided");
    CHECK_OK(follow(300, 40, 0, 2, &how));
    CHECK(check() > 1);
    CHECK_OK(store_lexical_add(dir, 300, 310, 20, &how)); /* removes the file that was not used */
    CHECK_EQ(store_lexical_problems(dir), 0);
}

static void segment_path(char out[700], int number) {
    snprintf(out, 700, "%s/lexical/%05d.lex", dir, number);
}

static bool always(void *context) {
    (void)context;
    return true;
}

/* The file is complete before publishing begins, which then does not want it, does not come or is stopped. No file
 * stays that nothing names, and the next writer publishes what is sealed, with the same file. */
static void test_completed_early(void) {
    const struct store_writer_config config = fixture_config(8, STORE_LEXICAL_VOCAB);
    const struct progress stop = {.stop_requested = always};
    enum { UNWANTED, ABANDONED, STOPPED, WAYS };
    for (int way = 0; way < WAYS; way++) {
        struct store_publish how = store_lexical_publish(way == UNWANTED ? STORE_LEXICAL_OFF : STORE_LEXICAL_ON);
        struct store_writer *w;
        char name[30], path[700];
        int64_t numbers[64];
        snprintf(name, sizeof name, "early%d", way);
        fresh(name);
        segment_path(path, 1);
        CHECK_OK(store_writer_open(&w, dir, &config, true));
        CHECK_OK(store_writer_follow(w, 1 << 20, 2, false));
        for (int64_t at = 0; at < 60; at += 20)
            CHECK_OK(fixture_shard(w, &config, at, at + 20));
        store_writer_follow_end(w);
        while (access(path, F_OK) != 0)
            usleep(1000);
        if (way == STOPPED) how.progress = &stop;
        if (way != ABANDONED) {
            const enum status s = store_writer_publish(w, &how);
            CHECK(s == STATUS_OK || (way == STOPPED && s == STATUS_INTERRUPTED)); /* little is left to stop */
        }
        store_writer_close(w);
        if (way != STOPPED) CHECK_EQ(files_of(numbers), 0);
        if (way == UNWANTED) {
            CHECK(!fixture_info(dir).lexical);
            CHECK_EQ(store_lexical_problems(dir), 0);
            continue;
        }
        how.progress = NULL;
        CHECK_OK(store_writer_open(&w, dir, &config, true));
        CHECK_OK(store_writer_publish(w, &how));
        store_writer_close(w);
        CHECK_EQ(check(), 1);
        CHECK_EQ(files_of(numbers), 1);
        CHECK_EQ(store_lexical_problems(dir), 0);
    }
}

/* Sixty-four additions of about equal size make a logarithmic number of segments, and each generation is complete. */
static void test_additions(void) {
    fresh("additions");
    struct store_publish how = store_lexical_publish(STORE_LEXICAL_ON);
    int64_t most = 0;
    for (int i = 0; i < 64; i++) {
        CHECK_OK(store_lexical_add(dir, i * 3, i * 3 + 3, 3, &how));
        how.lexical = STORE_LEXICAL_KEEP; /* as it is */
        int64_t segments = i % 8 == 7 ? check() : fixture_info(dir).lexical_segments;
        if (segments > most) most = segments;
    }
    CHECK(most >= 2 && most <= 8);
    int64_t numbers[64];
    CHECK(files_of(numbers) <= 2 * most); /* the next writer removes those of the last generation */
    CHECK_EQ(store_lexical_problems(dir), 0);
}

/* A segment that loses a shard is rebuilt without it, in parts; the others do not change. */
static void test_dropped(void) {
    fresh("dropped");
    struct store_publish how = store_lexical_publish(STORE_LEXICAL_ON);
    how.lexical_chunks = 40;
    CHECK_OK(store_lexical_add(dir, 0, 80, 5, &how));
    int64_t before = check();
    CHECK(before > 3);
    static const int64_t shards[] = {0, 7, 8, 15};
    for (size_t i = 0; i < ARRAY_LEN(shards); i++) {
        CHECK_OK(store_lexical_drop(dir, shards[i]));
        check();
        CHECK_EQ(store_lexical_problems(dir), 0);
    }
    int64_t numbers[64], old = 0;
    int n = files_of(numbers);
    for (int i = 0; i < n; i++)
        old += numbers[i] <= before;
    CHECK(old > 0);
    CHECK_OK(store_lexical_add(dir, 80, 90, 5, &how));
    check();
    CHECK_EQ(store_lexical_problems(dir), 0);
}

static void flip(const char *path, long at) {
    FILE *f = fopen(path, "r+b");
    CHECK(f && fseek(f, at, SEEK_SET) == 0);
    int c = fgetc(f);
    CHECK(c != EOF && fseek(f, at, SEEK_SET) == 0 && fputc(c ^ 4, f) != EOF && fclose(f) == 0);
}

/* A value in table meta, as stored. */
static void put_record(const char *value, size_t bytes) {
    struct catalog *c;
    struct catalog_txn *t;
    CHECK_OK(catalog_open(&c, dir, true, 256 << 20));
    CHECK_OK(catalog_begin(&t, c, true));
    CHECK_OK(catalog_put(t, TABLE_META, "lexical", 7, value, bytes));
    CHECK_OK(catalog_commit(t));
    catalog_close(c);
}

static void damage(int how) {
    char path[700];
    segment_path(path, 2);
    if (how == 0) CHECK(unlink(path) == 0);
    if (how == 1) CHECK(truncate(path, 900) == 0);
    if (how == 2) flip(path, 70); /* in the postings */
    if (how == 3) flip(path, 20); /* in the header */
    if (how == 4) put_record("\1garbage of no meaning", 22);
    if (how == 5) put_record("", 0);
}

/* With any damage the store opens, dense searches work, verify names the damage, and repair rebuilds the damaged
 * segments. */
static void test_damaged(void) {
    struct store_publish how = store_lexical_publish(STORE_LEXICAL_ON);
    how.lexical_chunks = 100;
    for (int kind = 0; kind < 6; kind++) {
        char name[32];
        snprintf(name, sizeof name, "damaged%d", kind);
        fresh(name);
        CHECK_OK(store_lexical_add(dir, 0, 90, 30, &how));
        int64_t segments = check();
        CHECK(segments > 2);
        damage(kind);
        struct store *s;
        struct store_view *v;
        const struct lexical *x;
        struct store_hit hit;
        float query[8] = {1};
        int64_t problems = 0;
        CHECK_OK(store_open(&s, dir));
        CHECK_OK(store_view_open(&v, s));
        CHECK_OK(store_view_search(v, &hit, query, 1, &(struct store_search){.k = 1}));
        CHECK(hit.chunk >= 0);
        if (kind != 2) CHECK_FAILS(store_view_lexical(&x, v), STATUS_CORRUPT, "run drt-index repair");
        store_view_close(v);
        store_close(s);
        CHECK(store_lexical_problems(dir) > 0);
        CHECK_OK(store_repair(dir, NULL, NULL, fixture_print_problem, NULL, &problems));
        CHECK_EQ(problems, 0);
        CHECK_EQ(store_lexical_problems(dir), 0);
        check();
        CHECK_EQ(fixture_info(dir).generation, 2);
        /* The damaged segment is rebuilt together with the one before it, which is not larger; those after it do not
         * change. */
        CHECK_EQ(fixture_info(dir).lexical_segments, kind < 4 ? segments - 1 : 1);
    }
}

/* If tokens are lost, the other shards are indexed, the gap is reported, and dropping the shard closes it. */
static void test_lost_tokens(void) {
    char path[700];
    int64_t problems = 0;
    fresh("lost");
    struct store_publish how = store_lexical_publish(STORE_LEXICAL_ON);
    CHECK_OK(store_lexical_add(dir, 0, 60, 20, &how));
    snprintf(path, sizeof path, "%s/tokens/00001.tok", dir);
    CHECK(truncate(path, 100) == 0);
    segment_path(path, 1);
    CHECK(unlink(path) == 0);
    CHECK_OK(store_repair(dir, NULL, NULL, NULL, NULL, &problems));
    CHECK_EQ(problems, 2); /* the tokens, and the lexical index that needs them */
    CHECK_OK(store_lexical_drop(dir, 1));
    CHECK_OK(store_repair(dir, NULL, NULL, fixture_print_problem, NULL, &problems));
    CHECK_EQ(problems, 0);
    CHECK_EQ(check(), 2);
    /* Two shards are lost: a command drops each. */
    CHECK_OK(store_lexical_add(dir, 60, 120, 20, &how));
    check();
    for (int i = 3; i <= 4; i++) {
        snprintf(path, sizeof path, "%s/tokens/%05d.tok", dir, i);
        CHECK(unlink(path) == 0);
    }
    CHECK_OK(store_lexical_drop(dir, 3));
    CHECK_OK(store_lexical_drop(dir, 4));
    check();
    CHECK_EQ(store_lexical_problems(dir), 0);
}

static void test_refusals(void) {
    struct store_publish how = store_lexical_publish(STORE_LEXICAL_ON);
    fresh("refused");
    CHECK_FAILS(store_lexical(dir, &how), STATUS_NOT_FOUND, "no store here");
    struct store_publish without = store_lexical_publish(STORE_LEXICAL_KEEP);
    CHECK_OK(store_lexical_add(dir, 0, 30, 10, &without));
    const struct progress stop = {.stop_requested = always};
    how.progress = &stop;
    CHECK_FAILS(store_lexical(dir, &how), STATUS_INTERRUPTED, "stopped");
    CHECK(!fixture_info(dir).lexical);
    how.progress = NULL;
    CHECK_OK(store_lexical(dir, &how));
    check();
    struct store_writer_config large = fixture_config(8, LEXICAL_VOCAB_MAX + 1);
    fresh("large");
    struct store_writer *w;
    CHECK_OK(store_writer_open(&w, dir, &large, true));
    CHECK_OK(fixture_shard(w, &large, 0, 10));
    CHECK_OK(store_writer_publish(w, &how)); /* with a note, and without */
    store_writer_close(w);
    CHECK(!fixture_info(dir).lexical);
    CHECK_FAILS(store_lexical(dir, &how), STATUS_UNSUPPORTED, "262144");
}

/* A view keeps its index while a writer replaces it. */
static void test_open_view(void) {
    struct store_publish how = store_lexical_publish(STORE_LEXICAL_ON);
    fresh("open");
    CHECK_OK(store_lexical_add(dir, 0, 40, 20, &how));
    struct store *s;
    struct store_view *v;
    const struct lexical *x;
    struct lexical_corpus c;
    int64_t *id;
    CHECK_OK(store_open(&s, dir));
    CHECK_OK(store_view_open(&v, s));
    CHECK_OK(store_view_lexical(&x, v));
    store_lexical_corpus(&c, &id, v);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        bool good = true;
        for (int i = 1; i < 4; i++)
            good = good && store_lexical_add(dir, 40 * i, 40 * i + 40, 20, &how) == STATUS_OK;
        _exit(good ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    for (int i = 0; i < 4; i++)
        store_lexical_check_query(x, &c, id, &random_numbers);
    free(id);
    lexical_corpus_free(&c);
    store_view_close(v);
    store_close(s);
    check();
}

/* An index that still has chunks of dropped shards: they are never hits, and others take their ranks. */
static void test_absent(void) {
    const struct store_publish how = store_lexical_publish(STORE_LEXICAL_ON);
    struct store *whole, *left;
    struct store_view *of_whole, *of_left;
    const struct lexical *x;
    struct lexical_corpus c;
    int64_t *id;
    char first[600];
    fresh("whole");
    CHECK_OK(store_lexical_add(dir, 0, 90, 15, &how));
    snprintf(first, sizeof first, "%s", dir);
    fresh("left");
    CHECK_OK(store_lexical_add(dir, 0, 90, 15, &how));
    CHECK_OK(store_lexical_drop(dir, 1));
    CHECK_OK(store_lexical_drop(dir, 4));
    CHECK_OK(store_open(&whole, first));
    CHECK_OK(store_view_open(&of_whole, whole));
    CHECK_OK(store_open(&left, dir));
    CHECK_OK(store_view_open(&of_left, left));
    CHECK_OK(store_view_lexical(&x, of_whole));
    store_lexical_corpus(&c, &id, of_left);
    CHECK_EQ(store_view_dropped(of_left).n, 2);
    float *all_scores = malloc((size_t)c.n * sizeof *all_scores);
    CHECK(all_scores);
    struct store_hit hits[STORE_LEXICAL_K];
    for (int64_t i = 0; i < c.n; i += 7) {
        const struct lexical_query query = {c.ids[i], c.lengths[i]};
        struct lexical_search search = {.k = STORE_LEXICAL_K, .pair_weight = LEXICAL_PAIR_WEIGHT};
        search.absent = store_view_dropped(of_left);
        CHECK_OK(lexical_search(x, hits, &query, 1, &search));
        float scores[STORE_LEXICAL_K];
        int64_t chunks[STORE_LEXICAL_K], n = 0, better = 0;
        for (; n < STORE_LEXICAL_K && hits[n].chunk >= 0; n++) {
            CHECK(store_dropped_live(search.absent, hits[n].chunk));
            chunks[n] = hits[n].chunk;
        }
        CHECK(n > 0);
        CHECK_OK(lexical_score(x, scores, chunks, n, &query, &search));
        CHECK(memcmp(&scores[n - 1], &hits[n - 1].score, sizeof scores[0]) == 0);
        /* Each other chunk of the store has at most the score of the last hit, or no token of the query. */
        float least = n == STORE_LEXICAL_K ? hits[n - 1].score : 0;
        CHECK_OK(lexical_score(x, all_scores, id, c.n, &query, &search));
        for (int64_t j = 0; j < c.n; j++)
            better += all_scores[j] > least;
        CHECK(n == STORE_LEXICAL_K ? better < n : better == n);
    }
    free(all_scores);
    free(id);
    lexical_corpus_free(&c);
    store_view_close(of_left);
    store_close(left);
    store_view_close(of_whole);
    store_close(whole);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    random_numbers = rng_make(test_seed(), 3);
    test_afterwards();
    test_followed();
    test_followed_and_discarded();
    test_completed_early();
    test_additions();
    test_dropped();
    test_damaged();
    test_lost_tokens();
    test_refusals();
    test_open_view();
    test_absent();
    return test_done();
}
