/* fuzz_index_parts.c -- any bytes as a file of lists, as the plan of an index, or as a template of which a segment's
 * head is made: reading must end with a status. The first byte selects which.
 *
 * Checksums would keep damaged numbers from being read: those of headers and plans are made right first. */
#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/memory.h"
#include "store/index/parts/index_parts_internal.h"
#include "store/index/parts/list_file_internal.h"
#include "store/index/segment_check_internal.h"
#include "tests/test.h"

enum { HEADER = 128, FOOTER = 16, LISTS_MAX = 1 << 16, DIM = 16 };

static void mend(uint8_t *bytes, size_t end, size_t from) {
    little_endian_put(bytes + end, crc32c(0, bytes + from, end - from), 4);
}

static void read_section(const struct list_file *file, enum list_section section, const char *path) {
    uint8_t buffer[64];
    struct list_stream s;
    list_stream_begin(&s, file, section, buffer, sizeof buffer);
    for (;;) {
        const uint8_t *bytes;
        size_t n;
        if (list_stream_read(&s, &bytes, &n, 24, path) != STATUS_OK) break;
        CHECK(n >= 1 && n <= 24 && bytes >= buffer && bytes + n <= buffer + sizeof buffer);
    }
    enum status ignored = list_stream_end(&s, file, section, path);
    /* the same bytes at once */
    uint8_t *all;
    list_stream_begin(&s, file, section, buffer, sizeof buffer);
    if (s.end - s.at <= 1 << 20) {
        CHECK_OK(memory_allocate(&all, (size_t)(s.end - s.at) + 1));
        ignored = list_stream_take(&s, all, s.end - s.at, path);
        memory_free(all);
    }
    (void)ignored;
}

static void read_lists(uint8_t *bytes, size_t size) {
    char path[600];
    struct list_file file;
    if (size >= HEADER + FOOTER) {
        mend(bytes, HEADER - 4, 0);
        mend(bytes, size - 4, size - FOOTER);
    }
    snprintf(path, sizeof path, "%s/x.lists", test_folder());
    CHECK_OK(file_save(path, bytes, size));
    if (list_file_open(&file, path) != STATUS_OK) return;
    CHECK(file.head.lists >= 1 && file.head.rows >= 1 && file.head.part <= file.head.parts);
    enum status ignored = list_file_verify(&file, path);
    (void)ignored;
    for (enum list_section i = LIST_SIZES; i < LIST_SECTIONS; i++)
        read_section(&file, i, path);
}

static void read_plan(uint8_t *bytes, size_t size) {
    struct index_parts_plan plan;
    if (size >= 4) mend(bytes, size - 4, 0);
    if (index_parts_plan_decode(&plan, bytes, size, "plan") != STATUS_OK) return;
    CHECK(plan.chunks >= 1 && plan.fingerprint.dim >= 1 && strlen(plan.factory) < sizeof plan.factory);
    const struct store_range first = index_parts_range(&plan, 1, 7), last = index_parts_range(&plan, 7, 7);
    CHECK(first.begin == 0 && last.end == plan.chunks && first.end <= last.begin);
}

static void make_head(const uint8_t *bytes, size_t size) {
    struct segment_layout layout;
    const struct segment_shape shape = {.dim = DIM};
    uint8_t *head;
    uint64_t *sizes;
    size_t n;
    if (segment_layout(&layout, "template", &shape, bytes, size) != STATUS_OK || layout.lists > LISTS_MAX) return;
    CHECK_OK(memory_allocate_zero(&sizes, (size_t)layout.lists));
    CHECK_OK(segment_head(&head, &n, bytes, &layout, sizes, 0));
    bool known;
    CHECK_OK(segment_check("head", &shape, head, n, true, &known)); /* without rows it is a template again */
    CHECK(known);
    memory_free(head);
    memory_free(sizes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!test_folder_path[0] && access("/dev/shm", W_OK) == 0) setenv("DRT_TEST_TMP", "/dev/shm", 1);
    if (size == 0) return 0;
    uint8_t *bytes = malloc(size);
    CHECK(bytes);
    memcpy(bytes, data + 1, size - 1);
    if (data[0] % 3 == 0)
        read_lists(bytes, size - 1);
    else if (data[0] % 3 == 1)
        read_plan(bytes, size - 1);
    else
        make_head(bytes, size - 1);
    free(bytes);
    return 0;
}
