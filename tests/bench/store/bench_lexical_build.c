/* bench_lexical_build.c -- how the making of a lexical segment scales over threads, and where its time is.
 *
 *   bench_lexical_build FILE.u16 FOLDER [--reserve] [threads]...
 *
 * FILE.u16 has ids below 65536 (bench_index --tokens makes one), which become chunks of 64. FOLDER gets the segment.
 * For each number of threads (1, 2, 4, ... by default): seconds until all chunks are added, until all lists are sorted,
 * and until the file is written; tokens a second of all three; processor seconds of all and of the last two; checksum
 * of the file. --reserve: space for the file is taken while chunks are added, as a build does that waits for its
 * encoder. */
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/system/processors.h"
#include "store/lexical/lexical_build.h"
#include "tests/bench/result.h"
#include "tests/test.h"
#include <stdlib.h>
#include <sys/resource.h>

enum { CHUNK = 64, VOCABULARY = 1 << 16 };
static const uint64_t max_ram = UINT64_C(16) << 30;

static double processor_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* When the first bytes of lists are written: after all lists are sorted. */
struct sorted {
    double clock, processor;
};
static void note_sorted(void *context, const struct progress_event *event) {
    struct sorted *sorted = context;
    if (sorted->clock == 0 && event->done > 0) *sorted = (struct sorted){clock_seconds(), processor_seconds()};
}

static void measure(const struct file_map *map, const char *folder, int count, bool reserve) {
    struct threads *threads;
    struct lexical_builder *b;
    char path[FILE_PATH_MAX];
    int32_t ids[CHUNK];
    uint64_t bytes;
    uint32_t crc;
    struct sorted noted = {0};
    const int64_t n = (int64_t)(map->size / 2);
    const struct progress progress = {.report = note_sorted, .context = &noted};
    CHECK_OK(threads_create(&threads, count));
    snprintf(path, sizeof path, "%s/bench.lexical", folder);
    const double begin = clock_seconds(), processor = processor_seconds();
    CHECK_OK(lexical_builder_create(&b, path,
                                    &(struct lexical_build){.vocab_size = VOCABULARY,
                                                            .max_ram = max_ram,
                                                            .progress = &progress,
                                                            .reserve = reserve,
                                                            .threads = threads}));
    for (int64_t i = 0; i < n; i += CHUNK) {
        const int have = n - i < CHUNK ? (int)(n - i) : CHUNK;
        for (int k = 0; k < have; k++)
            ids[k] = map->data[2 * (i + k)] | map->data[2 * (i + k) + 1] << 8;
        CHECK_OK(lexical_builder_add(b, ids, have));
    }
    const double added = clock_seconds(), processor_added = processor_seconds();
    CHECK_OK(lexical_builder_publish(b, &bytes, &crc));
    const double end = clock_seconds(), sorted = noted.clock, processor_sorted = noted.processor;
    const double processor_end = processor_seconds();
    printf("%d,%.3f,%.3f,%.3f,%.1f,%.2f,%.2f,%.2f,%llu,%08x\n", count, added - begin, sorted - added, end - sorted,
           (double)n / (end - begin) * 1e-6, processor_end - processor, processor_sorted - processor_added,
           processor_end - processor_sorted, (unsigned long long)bytes, crc);
    result_value("M tokens/s", (double)n / (end - begin) * 1e-6, "lexical index, %d threads", count);
    result_value("ns", (processor_end - processor) / (double)n * 1e9, "processor time of a token, %d threads", count);
    threads_free(threads);
    CHECK_OK(file_remove(path));
}

int main(int argc, char **argv) {
    struct file_map map;
    result_begin("bench_lexical_build", &argc, argv);
    if (argc < 3) {
        fprintf(stderr, "usage: bench_lexical_build FILE.u16 FOLDER [--reserve] [threads]... [--json FILE]\n");
        return 2;
    }
    CHECK_OK(file_map(&map, argv[1]));
    printf("threads,add s,sort s,write s,M tokens/s,processor s,of sorting,of writing,bytes,crc\n");
    const bool reserve = argc > 3 && strcmp(argv[3], "--reserve") == 0;
    const int first = reserve ? 4 : 3;
    for (int i = first; i < argc; i++)
        measure(&map, argv[2], atoi(argv[i]), reserve);
    for (int count = 1; argc == first && count <= processors_available(); count *= 2)
        measure(&map, argv[2], count, reserve);
    file_unmap(&map);
    result_end();
    return 0;
}
