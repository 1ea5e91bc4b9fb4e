/* test_base.c -- memory, arena, files, checksums, 16-bit floats, random numbers. */
#include "base/arena.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/half.h"
#include "base/memory.h"
#include "base/printable.h"
#include "base/rng.h"
#include "base/system/threads.h"
#include "tests/test.h"
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static void test_messages(void) {
    CHECK(fail(STATUS_CORRUPT, "%s: byte %d", "x.tok", 7) == STATUS_CORRUPT);
    CHECK_STR(status_message(), "x.tok: byte 7");
    CHECK(fail_context(STATUS_CORRUPT, "store") == STATUS_CORRUPT);
    CHECK_STR(status_message(), "store: x.tok: byte 7");
    CHECK(fail(STATUS_IO, "again: %s", status_message()) == STATUS_IO);
    CHECK_STR(status_message(), "again: store: x.tok: byte 7");
    struct file_map map;
    CHECK_FAILS(file_map(&map, "/no/such/file"), STATUS_NOT_FOUND, "/no/such/file: No such file");
}

/* Every message shows control characters, and characters that reorder a line, as escapes; other UTF-8 is unchanged. */
static void test_printable(void) {
    static const char *const cases[][2] = {
        {"plain \xC3\xA9\xC4\x9B \xE4\xB8\x80 \xF0\x9F\x98\x80", NULL},
        {"a\033[31m\n\t\r\x7F", "a\\x1b[31m\\n\\t\\x0d\\x7f"},
        {"\xC2\x9B"
         "31m\xC2\x80\xC2\x9F\xC2\xA0",
         "\\u009b31m\\u0080\\u009f\xC2\xA0"},
        {"\x9B"
         "31m \xFF\xE4\xB8",
         "\\x9b31m \xFF\xE4\xB8"},
        {"\xE2\x80\xAA\xE2\x80\xAE\xE2\x80\xAF", "\\u202a\\u202e\xE2\x80\xAF"},
        {"\xE2\x81\xA6\xE2\x81\xA9\xE2\x80\x8E\xE2\x80\x8F\xD8\x9C", "\\u2066\\u2069\\u200e\\u200f\\u061c"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *shown = cases[i][1] ? cases[i][1] : cases[i][0];
        char out[200], again[200];
        printable_copy(out, sizeof out, cases[i][0]);
        CHECK_STR(out, shown);
        printable_copy(again, sizeof again, out);
        CHECK_STR(again, shown);
        CHECK(fail(STATUS_IO, "%s: x", cases[i][0]) == STATUS_IO);
        CHECK(strncmp(status_message(), shown, strlen(shown)) == 0);
    }
    char small[6];
    printable_copy(small, sizeof small, "abc\033d");
    CHECK_STR(small, "abc");
}

static void test_memory(void) {
    void *p = NULL;
    CHECK_FAILS(memory_allocate_bytes(&p, SIZE_MAX / 2, 4), STATUS_NO_MEMORY, "out of memory");
    size_t capacity = 0;
    int *numbers = NULL;
    for (int i = 0; i < 1000; i++) {
        CHECK_OK(memory_grow(&numbers, &capacity, (size_t)i + 1));
        numbers[i] = i;
    }
    for (int i = 0; i < 1000; i++)
        CHECK_EQ(numbers[i], i);
    memory_free(numbers);
    CHECK(memory_resident() > 0 && memory_resident_peak() >= memory_resident() / 2);
}

static void test_arena(void) {
    struct arena *a = NULL;
    CHECK_OK(arena_create(&a, 100));
    struct arena_mark start = arena_mark(a);
    void *first = NULL, *p = NULL;
    CHECK_OK(arena_push_bytes(a, &first, 10, 10));
    memset(first, 7, 100);
    for (int i = 0; i < 100; i++) {
        CHECK_OK(arena_push_zero_bytes(a, &p, 1000, (size_t)i));
        CHECK_EQ((uintptr_t)p % 64, 0);
        memset(p, i, 1000 * (size_t)i);
    }
    CHECK_EQ(((unsigned char *)first)[99], 7);
    size_t bytes = arena_bytes(a);
    arena_reset(a, start);
    CHECK_OK(arena_push_bytes(a, &p, 10, 10));
    CHECK(p == first);
    for (int i = 0; i < 100; i++)
        CHECK_OK(arena_push_bytes(a, &p, 1000, (size_t)i));
    CHECK_EQ(arena_bytes(a), bytes); /* the second round reuses the blocks */
    arena_free(a);
}

/* Byte i of a file is a function of i, so that a block in a wrong position is found. */
static uint8_t block_byte(uint64_t i) {
    return (uint8_t)(i * 2654435761u >> 13);
}

static void block_fill(void *context, uint8_t *out, uint64_t at, size_t n) {
    const uint64_t *first = context;
    for (size_t i = 0; i < n; i++)
        out[i] = block_byte(*first + at + i);
}

/* Blocks of several threads between ordinary writes: the bytes, and the checksums of the blocks and of the file. */
static void test_file_blocks(int threads) {
    enum { FIRST = 1000, BLOCKS = 5 << 20 | 77, LAST = 500 };
    char path[FILE_PATH_MAX];
    struct threads *pool;
    struct file_writer *w = NULL;
    struct file_map map;
    static uint8_t bytes[BLOCKS];
    uint64_t first = FIRST;
    uint32_t crc, none = 1;
    CHECK_OK(threads_create(&pool, threads));
    CHECK_OK(file_join(path, test_folder(), "blocks"));
    CHECK_OK(file_create(&w, path));
    block_fill(&(uint64_t){0}, bytes, 0, FIRST);
    CHECK_OK(file_write(w, bytes, FIRST));
    CHECK_OK(file_write_blocks(w, BLOCKS, pool, block_fill, &first, &crc));
    CHECK_OK(file_write_blocks(w, 0, pool, block_fill, &first, &none));
    block_fill(&first, bytes, 0, BLOCKS);
    CHECK_EQ(crc, crc32c(0, bytes, BLOCKS));
    CHECK_EQ(none, 0);
    block_fill(&(uint64_t){FIRST + BLOCKS}, bytes, 0, LAST);
    CHECK_OK(file_write(w, bytes, LAST));
    CHECK_EQ(file_written(w), FIRST + BLOCKS + LAST);
    crc = file_crc32c(w);
    CHECK_OK(file_publish(w));
    CHECK_OK(file_map(&map, path));
    CHECK_EQ(map.size, FIRST + BLOCKS + LAST);
    CHECK_EQ(crc, crc32c(0, map.data, map.size));
    for (size_t i = 0; i < map.size; i++)
        if (map.data[i] != block_byte(i)) CHECK_EQ(i, map.size);
    file_unmap(&map);
    threads_free(pool);
}

/* Space that was taken and not written is given back, and changes no byte. A file system in memory has blocks written
 * through a map. */
static void test_file_reserve(const char *folder, bool too_much) {
    enum { RESERVED = 40 << 20, BLOCKS = 3 << 20 | 5 };
    char path[FILE_PATH_MAX];
    struct threads *pool;
    struct file_writer *w = NULL;
    struct file_map map;
    struct stat there;
    uint64_t first = 3;
    CHECK_OK(threads_create(&pool, 2));
    char name[40];
    snprintf(name, sizeof name, "drt-reserved-%d", (int)getpid());
    CHECK_OK(file_join(path, folder, name));
    CHECK_OK(file_create(&w, path));
    file_reserve(w, 1);
    CHECK_OK(file_write(w, "abc", 3));
    file_reserve(w, RESERVED);
    file_reserve(w, 5);
    if (too_much) file_reserve(w, UINT64_C(1) << 60); /* more than the disk has: nothing happens */
    file_reserve(w, RESERVED);
    CHECK_OK(file_write_blocks(w, BLOCKS, pool, block_fill, &first, NULL));
    CHECK_EQ(file_written(w), 3 + BLOCKS);
    first += BLOCKS;
    CHECK_OK(file_write_blocks(w, BLOCKS, pool, block_fill, &first, NULL));
    CHECK_OK(file_write(w, "xyz", 3));
    CHECK_EQ(file_written(w), 6 + 2 * BLOCKS);
    const uint32_t crc = file_crc32c(w);
    CHECK_OK(file_publish(w));
    CHECK_OK(file_map(&map, path));
    CHECK_EQ(map.size, 6 + 2 * BLOCKS);
    CHECK_EQ(crc, crc32c(0, map.data, map.size));
    CHECK(memcmp(map.data, "abc", 3) == 0 && memcmp(map.data + 3 + 2 * BLOCKS, "xyz", 3) == 0);
    for (size_t i = 3; i + 3 < map.size; i++)
        if (map.data[i] != block_byte(i)) CHECK_EQ(i, map.size);
    file_unmap(&map);
    CHECK(stat(path, &there) == 0);
    CHECK(there.st_blocks * 512 < RESERVED / 4);
    CHECK_OK(file_remove(path));
    threads_free(pool);
}

static void test_file(void) {
    char path[FILE_PATH_MAX];
    CHECK_OK(file_join(path, test_folder(), "data"));
    struct file_writer *w = NULL;
    CHECK_OK(file_create(&w, path));
    char block[3000];
    uint32_t crc = 0;
    for (int i = 0; i < 1000; i++) {
        memset(block, i, sizeof block);
        CHECK_OK(file_write(w, block, sizeof block));
        crc = crc32c(crc, block, sizeof block);
    }
    CHECK_EQ(file_written(w), 3000000);
    CHECK_EQ(file_crc32c(w), crc);
    CHECK(!file_exists(path));
    CHECK_OK(file_publish(w));
    uint32_t again = 0;
    CHECK_OK(file_checksum(&again, path));
    CHECK_EQ(again, crc);
    struct file_map map;
    CHECK_OK(file_map(&map, path));
    CHECK_EQ(map.size, 3000000);
    CHECK_EQ(map.data[2999999], 999 & 255);
    file_unmap(&map);
    CHECK_OK(file_create(&w, path));
    CHECK_OK(file_write(w, "x", 1));
    file_discard(w);
    uint64_t size = 0;
    CHECK_OK(file_size(&size, path));
    CHECK_EQ(size, 3000000);
    CHECK_OK(file_remove(path));
    CHECK_OK(file_remove(path));
    CHECK_FAILS(file_create(&w, "/no/such/folder/x"), STATUS_NOT_FOUND, "/no/such/folder/x");
    CHECK_FAILS(file_make_directory(""), STATUS_INVALID, "is empty");
    CHECK_FAILS(file_make_directory("/no/such/folder"), STATUS_NOT_FOUND, "its parent does not exist");

    /* Only a plain file is replaced, not a folder, a link such as /dev/stdout, or a device. */
    CHECK_FAILS(file_create(&w, test_folder()), STATUS_INVALID, "not a plain file");
    CHECK_FAILS(file_create(&w, ""), STATUS_INVALID, "is empty");
    CHECK_FAILS(file_create(&w, "/dev/null"), STATUS_INVALID, "/dev/null");
    char link[FILE_PATH_MAX];
    CHECK_OK(file_join(link, test_folder(), "link"));
    CHECK_EQ(symlink(path, link), 0);
    CHECK_FAILS(file_create(&w, link), STATUS_INVALID, "not a plain file");
}

/* A relative path gets the working directory, which may be the root. */
static void test_file_absolute(void) {
    char path[FILE_PATH_MAX], wanted[FILE_PATH_MAX], before[FILE_PATH_MAX], *long_path = NULL;
    CHECK(getcwd(before, sizeof before));
    CHECK_EQ(chdir(test_folder()), 0);
    char here[FILE_PATH_MAX];
    CHECK(getcwd(here, sizeof here));
    CHECK_OK(file_join(wanted, here, "a/b"));
    CHECK_OK(file_absolute(path, "a/b"));
    CHECK_STR(path, wanted);
    CHECK_EQ(chdir("/"), 0);
    CHECK_OK(file_absolute(path, "a"));
    CHECK_STR(path, "/a");
    CHECK_OK(file_absolute(path, "/a/b"));
    CHECK_STR(path, "/a/b");
    CHECK_OK(file_absolute(path, ""));
    CHECK_STR(path, "");
    CHECK_OK(memory_allocate_zero(&long_path, FILE_PATH_MAX + 1));
    memset(long_path, 'a', FILE_PATH_MAX);
    CHECK_FAILS(file_absolute(path, long_path), STATUS_INVALID, "too long");
    long_path[0] = '/';
    CHECK_FAILS(file_absolute(path, long_path), STATUS_INVALID, "too long");
    memory_free(long_path);
    CHECK_EQ(chdir(before), 0);
}

static int temporaries(void) {
    int n = 0;
    DIR *folder = opendir(test_folder());
    for (struct dirent *entry; (entry = readdir(folder));)
        n += strstr(entry->d_name, ".tmp") != NULL;
    closedir(folder);
    return n;
}

static void write_whole(const char *path, char byte, size_t bytes) {
    char block[5000];
    struct file_writer *w;
    memset(block, byte, sizeof block);
    CHECK_OK(file_create(&w, path));
    for (; bytes > 0; bytes -= sizeof block)
        CHECK_OK(file_write(w, block, sizeof block));
    CHECK_OK(file_publish(w));
}

/* Several writers of one path write a file each; the file of a killed writer is overwritten. */
static void test_same_path(void) {
    char path[FILE_PATH_MAX], left[FILE_PATH_MAX];
    CHECK_OK(file_join(path, test_folder(), "shared"));
    CHECK_OK(file_join(left, test_folder(), "shared.tmp"));
    struct file_writer *a, *b, *c;
    struct file_map map;
    FILE *dead = fopen(left, "w");
    CHECK(dead && fprintf(dead, "%099999d", 1) > 0 && fclose(dead) == 0);
    CHECK_OK(file_create(&a, path));
    CHECK_OK(file_create(&b, path));
    CHECK_OK(file_create(&c, path));
    CHECK_EQ(temporaries(), 3);
    CHECK_OK(file_write(a, "aaa", 3));
    CHECK_OK(file_write(b, "bb", 2));
    file_discard(c);
    CHECK_OK(file_publish(b));
    CHECK_OK(file_map(&map, path));
    CHECK(map.size == 2 && memcmp(map.data, "bb", 2) == 0);
    file_unmap(&map);
    CHECK_OK(file_publish(a));
    CHECK_OK(file_map(&map, path));
    CHECK(map.size == 3 && memcmp(map.data, "aaa", 3) == 0);
    file_unmap(&map);
    CHECK_EQ(temporaries(), 0);

    pid_t children[4];
    for (int i = 0; i < 4; i++)
        if ((children[i] = fork()) == 0) {
            for (int round = 0; round < 60; round++)
                write_whole(path, (char)('0' + i), 5000 * (size_t)(1 + i));
            _exit(0);
        }
    for (int i = 0, how; i < 4; i++)
        CHECK(waitpid(children[i], &how, 0) == children[i] && how == 0);
    CHECK_OK(file_map(&map, path));
    CHECK_EQ(map.size, 5000 * (size_t)(1 + map.data[0] - '0'));
    for (size_t i = 0; i < map.size; i++)
        CHECK_EQ(map.data[i], map.data[0]);
    file_unmap(&map);
    CHECK_EQ(temporaries(), 0);
}

static void test_no_space(void) {
    errno = ENOSPC;
    CHECK_FAILS(fail_errno("a.tmp: cannot write"), STATUS_NO_SPACE,
                "a.tmp: cannot write: No space left on device (free");
    errno = EDQUOT;
    CHECK_FAILS(fail_errno("a"), STATUS_NO_SPACE, "raise the quota");
    errno = EIO;
    CHECK_FAILS(fail_errno("a"), STATUS_IO, "a: Input/output error");
    CHECK(!strchr(status_message(), '('));
}

/* `ulimit -f`: the error names the remedy, as for a full disk; no file is left. */
static void test_size_limit(void) {
    char path[FILE_PATH_MAX];
    static char block[3 << 20];
    struct file_writer *w;
    struct rlimit before, limit = {.rlim_cur = 10000};
    CHECK_OK(file_join(path, test_folder(), "limited"));
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    limit.rlim_max = before.rlim_max;
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK_OK(file_create(&w, path));
    CHECK_FAILS(file_write(w, block, sizeof block), STATUS_NO_SPACE,
                "limited.tmp: cannot write: File too large (raise ulimit -f");
    file_discard(w);
    CHECK_OK(file_create(&w, path));
    CHECK_OK(file_write(w, block, 10001)); /* in the buffer */
    CHECK_FAILS(file_publish(w), STATUS_NO_SPACE, "limited.tmp: cannot write");
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK(!file_exists(path));
    CHECK_EQ(temporaries(), 0);
}

static void test_crc(void) { /* RFC 3720 B.4 */
    unsigned char bytes[32];
    memset(bytes, 0, 32);
    CHECK_EQ(crc32c(0, bytes, 32), 0x8a9136aau);
    memset(bytes, 0xff, 32);
    CHECK_EQ(crc32c(0, bytes, 32), 0x62a8ab43u);
    for (int i = 0; i < 32; i++)
        bytes[i] = (unsigned char)i;
    CHECK_EQ(crc32c(0, bytes, 32), 0x46dd794eu);
    CHECK_EQ(crc32c(crc32c(0, bytes, 13), bytes + 13, 19), 0x46dd794eu);
}

/* Every fp16 value is converted to float32 and back, rows and single values agree, and ties are rounded to even. */
static void test_half(void) {
    uint16_t bits[1000];
    float row[1000];
    for (unsigned first = 0; first < 65536; first += 1000) {
        size_t n = 65536 - first < 1000 ? 65536 - first : 1000;
        for (size_t i = 0; i < n; i++)
            bits[i] = (uint16_t)(first + i);
        half_from_f16_row(row, bits, n);
        for (size_t i = 0; i < n; i++) {
            float single = half_from_f16(bits[i]);
            CHECK(isnan(single) ? isnan(row[i]) : memcmp(&single, &row[i], 4) == 0);
            if (!isnan(single))
                CHECK_EQ(half_to_f16(single), bits[i]);
            else
                CHECK((half_to_f16(single) & 0x7fff) > 0x7c00);
        }
    }
    CHECK_EQ(half_to_f16(1.0f + 0x1p-11f), 0x3c00); /* half way: to even */
    CHECK_EQ(half_to_f16(1.0f + 3 * 0x1p-11f), 0x3c02);
    CHECK_EQ(half_to_f16(65519.0f), 0x7bff);
    CHECK_EQ(half_to_f16(65520.0f), 0x7c00);
    CHECK_EQ(half_to_f16(0x1p-25f), 0);
    CHECK_EQ(half_to_f16(0x1.8p-25f), 1);
    CHECK_EQ(half_to_bf16(1.0f + 0x1p-8f), 0x3f80);
    CHECK_EQ(half_to_bf16(1.0f + 3 * 0x1p-8f), 0x3f82);
    struct rng rng = rng_make(test_seed(), 0);
    float values[100];
    uint16_t rounded[100];
    for (int k = 0; k < 1000; k++) {
        for (int i = 0; i < 100; i++)
            values[i] = rng_normal(&rng) * ldexpf(1, (int)rng_below(&rng, 50) - 30);
        half_to_f16_row(rounded, values, 100);
        for (int i = 0; i < 100; i++)
            CHECK_EQ(rounded[i], half_to_f16(values[i]));
    }
}

static void test_rng(void) {
    uint32_t out[4]; /* known answer of the authors' test vectors */
    rng_philox(out, 0, 0, 0);
    CHECK_EQ(out[0], 0x6627e8d5u);
    CHECK_EQ(out[3], 0x9b00dbd8u);
    struct rng a = rng_make(1, 2), b = rng_make(1, 3);
    int same = 0;
    double sum = 0, squares = 0;
    for (int i = 0; i < 20000; i++) {
        same += rng_u32(&a) == rng_u32(&b);
        float x = rng_normal(&a);
        sum += (double)x;
        squares += (double)x * (double)x;
        CHECK(rng_below(&b, 7) < 7);
        float u = rng_uniform(&b);
        CHECK(u >= 0 && u < 1);
    }
    CHECK(same < 3);
    CHECK(fabs(sum / 20000) < 0.04 && fabs(squares / 20000 - 1) < 0.06);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 42);
    test_messages();
    test_printable();
    test_memory();
    test_arena();
    test_file_absolute();
    test_file_reserve(test_folder(), true);
    test_file_reserve(test_folder(), false);
    if (access("/dev/shm", W_OK) == 0) test_file_reserve("/dev/shm", false);
    test_file();
    test_file_blocks(1);
    test_file_blocks(3);
    test_same_path();
    test_no_space();
    test_size_limit();
    test_crc();
    test_half();
    test_rng();
    return test_done();
}
