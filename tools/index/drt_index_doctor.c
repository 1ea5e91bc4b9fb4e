/* drt_index_doctor.c -- drt-index doctor: the linked libraries, the machine's features, and advice. */
#include "base/memory.h"
#include "base/system/processors.h"
#include "kernels/linear/blas_cpu.h"
#include "session/build_version.h"
#include "tools/index/drt_index.h"
#include "tools/shared/args.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/streams.h"
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

static void print_machine(void) {
    char memory[32];
    uint64_t ram = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t group = memory_group_limit("");
    double quota = processors_quota("");
    printf("processors   %d for this process, %ld in the machine\n", processors_available(),
           sysconf(_SC_NPROCESSORS_ONLN));
    printf("memory       %s", progress_bytes_text(memory, ram));
    if (group > 0) printf(", of which its control group allows %s", progress_bytes_text(memory, group));
    printf("; default of --max-ram: %s", progress_bytes_text(memory, drt_index_max_ram()));
    if (quota > 0) printf("\nquota        %.1f processors: more --threads than that make the program slower", quota);
    printf("\n");
}

static bool cpu_has_avx2(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2");
#else
    return false;
#endif
}

static void print_advice(void) {
    struct store_faiss_info faiss;
    if (cpu_has_avx2() && store_faiss_info(&faiss) == STATUS_OK && strcasestr(faiss.simd, "sse2 only"))
        printf("advice       this processor has AVX2 and the linked FAISS does not use it: a FAISS built with "
               "-march=x86-64-v3\n"
               "             scans 7 to 10 times faster; name its folder in CMAKE_PREFIX_PATH for cmake\n");
    if (blas_cpu_wanted())
        printf("advice       OpenBLAS does not know this processor and takes kernels for an older one. FAISS uses them "
               "to\n"
               "             train and to search many queries: export OPENBLAS_CORETYPE=%s\n",
               blas_cpu_wanted());
}

static const char *network_name(long type) {
    switch ((unsigned long)type & 0xffffffffUL) {
    case 0x6969:
        return "NFS";
    case 0xff534d42:
        return "CIFS";
    case 0xfe534d42:
        return "SMB2";
    case 0x517b:
        return "SMB";
    case 0x00c36400:
        return "Ceph";
    case 0x0bd00bd0:
        return "Lustre";
    case 0x47504653:
        return "GPFS";
    case 0x01021997:
        return "9p";
    case 0x65735546:
        return "FUSE";
    case 0x5346414f:
        return "AFS";
    }
    return NULL;
}

static enum status print_store(const char *dir) {
    struct opened_store s;
    struct statfs fs;
    uint64_t space;
    char text[32];
    TRY(opened_store_open(&s, dir));
    streams_printf(stdout, "store        %s: %lld chunks, generation %llu, index %s\n", dir,
                   (long long)(s.info.chunks - s.info.dropped_chunks), (unsigned long long)s.info.generation,
                   s.info.index);
    const struct lexical *index;
    if (!s.info.lexical)
        printf("advice       it has no lexical index: drt-index lexical makes it, for searches by words and token "
               "memories\n");
    else if (store_view_lexical(&index, s.view) != STATUS_OK)
        streams_printf(stdout, "advice       %s\n", status_message());
    opened_store_close(&s);
    TRY(file_free_space(&space, dir));
    printf("free space   %s\n", progress_bytes_text(text, space));
    if (statfs(dir, &fs) == 0 && network_name((long)fs.f_type))
        printf("advice       the store is on %s: any machine may read it there, but only one may write, because locks "
               "and\n"
               "             syncs may not reach the others; better build on a local disk and copy the folder\n",
               network_name((long)fs.f_type));
    if (access(dir, W_OK) != 0)
        printf("advice       the store's folder cannot be written: searching works, drt-index add does not\n");
    return STATUS_OK;
}

int drt_index_doctor(int argc, char **argv, const char **operands) {
    const char *dir = NULL;
    const struct arg_option options[] = {
        {"store", ARG_PATH, &dir, "STORE", "also check this store and its file system", 0, 0}};
    const struct arg_program program = {
        .name = "drt-index doctor",
        .synopsis = "[[--store] STORE]",
        .about = "Shows the linked libraries and the machine's limits, and gives advice where one of them costs speed "
                 "or safety.",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .operand = "store",
    };
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    char model[FILE_PATH_MAX];
    build_version_print(stdout, "drt-index");
    print_advice();
    print_machine();
    printf("model        %s\n", model_folder_default(model) == STATUS_OK ? model : status_message());
    return dir ? drt_index_exit(print_store(dir)) : 0;
}
