/* test_catalog_map.c -- a catalog with limited address space (ulimit -v): reads, reads while another process adds,
 * writes until the address space is used up, and the error line with its remedy. */
#include "base/memory.h"
#include "store/catalog/catalog_internal.h"
#include "tests/test.h"
#include <sys/resource.h>
#include <sys/wait.h>

enum { VALUE = 1 << 20, MIB = 1 << 20 };

/* Limits the address space to so many bytes more than are in use. */
static void limit_address_space(uint64_t more) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%lu", &pages) == 1 && fclose(file) == 0);
    struct rlimit limit;
    CHECK_EQ(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + more;
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    CHECK(memory_has_address_space(more / 4) && !memory_has_address_space(2 * more));
}

/* One transaction: records `first` .. first + n - 1, a MiB each. */
static enum status add(struct catalog *c, uint64_t first, uint64_t n) {
    struct catalog_txn *t;
    void *value;
    CHECK_OK(memory_allocate_zero(&value, VALUE));
    TRY(catalog_begin(&t, c, true));
    enum status s = STATUS_OK;
    for (uint64_t i = 0; i < n && s == STATUS_OK; i++) {
        memcpy(value, &(uint64_t){first + i}, sizeof(uint64_t));
        const struct catalog_key key = catalog_key(first + i);
        s = catalog_append(t, TABLE_RUNS, key.bytes, sizeof key.bytes, value, VALUE);
    }
    memory_free(value);
    if (s == STATUS_OK) return catalog_commit(t);
    catalog_abort(t);
    return s;
}

static uint64_t last_of(struct catalog_txn *t) {
    uint64_t key = 0, inside = 0;
    struct bytes value;
    CHECK_OK(catalog_get_last(t, &key, &value, TABLE_RUNS));
    CHECK_EQ(value.size, VALUE);
    memcpy(&inside, value.data, sizeof inside);
    CHECK_EQ(inside, key);
    return key;
}

static void notify(int pipe_end) {
    CHECK_EQ(write(pipe_end, "x", 1), 1);
}
static void await(int pipe_end) {
    char c;
    CHECK_EQ(read(pipe_end, &c, 1), 1);
}

/* Reads with two transactions that pause between uses, while another process enlarges the file several times. */
static void reader(const char *store, int from, int to) {
    struct catalog *c;
    struct catalog_txn *one, *two, *three;
    limit_address_space(160 * MIB);
    CHECK_OK(catalog_open(&c, store, false, 0));
    CHECK_OK(catalog_begin(&one, c, false));
    CHECK_EQ(last_of(one), 2);
    catalog_pause(one);
    CHECK_OK(catalog_begin(&two, c, false));
    catalog_pause(two);
    notify(to), await(from);
    CHECK_OK(catalog_renew(one));
    CHECK_EQ(last_of(one), 42);
    CHECK_OK(catalog_renew(two));
    CHECK_EQ(last_of(two), 42);
    catalog_pause(two);
    notify(to), await(from);
    /* The map must not move during a transaction: the open one continues, a new one gets STATUS_BUSY. */
    CHECK_FAILS(catalog_renew(two), STATUS_BUSY, "open the store again");
    CHECK_EQ(last_of(one), 42);
    catalog_pause(one);
    CHECK_OK(catalog_renew(two));
    CHECK_EQ(last_of(two), 72);
    CHECK_OK(catalog_begin(&three, c, false));
    CHECK_EQ(last_of(three), 72);
    catalog_abort(one), catalog_abort(two), catalog_abort(three);
    catalog_close(c);
    _exit(0); /* the folder is the parent's */
}

/* Writes until the address space is full; all committed records remain. */
static void writer(const char *store) {
    struct catalog *c;
    struct catalog_txn *t;
    limit_address_space(256 * MIB);
    CHECK_OK(catalog_open(&c, store, true, 0));
    uint64_t next = 1;
    enum status s = STATUS_OK;
    while (s == STATUS_OK && next < 400) {
        s = add(c, next, 5);
        if (s == STATUS_OK) next += 5;
    }
    CHECK_EQ(s, STATUS_NO_SPACE);
    CHECK(strstr(status_message(), "raise ulimit -v"));
    CHECK(next > 60); /* more than the first map holds */
    CHECK_OK(catalog_begin(&t, c, false));
    CHECK_EQ(last_of(t), next - 1);
    catalog_abort(t);
    catalog_close(c);
    _exit(0); /* the folder is the parent's */
}

static void wait_for(pid_t child) {
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void check_reader(const char *store) {
    struct catalog *c;
    int there[2], back[2];
    CHECK_OK(catalog_open(&c, store, true, 0));
    CHECK_OK(add(c, 1, 2));
    catalog_close(c);
    CHECK_EQ(pipe(there) + pipe(back), 0);
    pid_t child = fork();
    if (child == 0) reader(store, there[0], back[1]);
    CHECK(child > 0);
    await(back[0]);
    CHECK_OK(catalog_open(&c, store, true, 0));
    CHECK_OK(add(c, 3, 40));
    notify(there[1]), await(back[0]);
    CHECK_OK(add(c, 43, 30));
    notify(there[1]);
    wait_for(child);
    catalog_close(c);
}

static void check_writer(const char *store) {
    pid_t child = fork();
    if (child == 0) writer(store);
    CHECK(child > 0);
    wait_for(child);
}

/* Too little memory for any work: one line with its remedy. */
static void check_none(const char *store) {
    pid_t child = fork();
    if (child == 0) {
        struct catalog *c;
        limit_address_space(40 * MIB);
        CHECK_FAILS(catalog_open(&c, store, false, 0), STATUS_NO_MEMORY, "raise ulimit -v");
        _exit(0); /* the folder is the parent's */
    }
    CHECK(child > 0);
    wait_for(child);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    test_skip("a sanitizer's own maps are beyond any limit");
#endif
    char read_store[600], written_store[600];
    snprintf(read_store, sizeof read_store, "%s/read", test_folder());
    snprintf(written_store, sizeof written_store, "%s/written", test_folder());
    CHECK_EQ(mkdir(read_store, 0700) + mkdir(written_store, 0700), 0);
    check_reader(read_store);
    check_none(read_store);
    check_writer(written_store);
    return test_done();
}
