/* build_version.c -- see build_version.h. CMake defines the numbers. cmake/commit.cmake writes the commit's file when
 * the commit changes, so that nothing else is compiled again. */
#include "session/build_version.h"
#include "kernels/linear/blas_cpu.h"
#include "store/store.h"
#include <string.h>

/* Functions of OpenBLAS, whose header only kernels/ may include. They report the version and compute nothing. */
char *openblas_get_config(void);
char *openblas_get_corename(void);

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

extern const char build_version_commit[];

struct build_version build_version(void) {
    return (struct build_version){.major = DRT_VERSION_MAJOR,
                                  .minor = DRT_VERSION_MINOR,
                                  .patch = DRT_VERSION_PATCH,
                                  .commit = build_version_commit,
                                  .faiss = store_faiss_version(),
                                  .cuda = DRT_CUDA_VERSION};
}

void build_version_text(char *out, size_t bytes, const char *program) {
    const struct build_version v = build_version();
    snprintf(out, bytes, "%s %d.%d.%d (%s%s%sFAISS %s, %s%s)", program, v.major, v.minor, v.patch,
             v.commit[0] ? "commit " : "", v.commit, v.commit[0] ? ", " : "", v.faiss,
             v.cuda[0] ? "CUDA " : "without CUDA", v.cuda);
}

void build_version_print(FILE *out, const char *program) {
    const struct build_version v = build_version();
    struct store_faiss_info faiss;
    fprintf(out, "%.*s %d.%d.%d (commit %s)\n", (int)strcspn(program, " "), program, v.major, v.minor, v.patch,
            v.commit[0] ? v.commit : "unknown: built outside of a git checkout");
    fprintf(out, "store format %d\n", STORE_FORMAT_VERSION);
    fprintf(out, "compiler     %s, -march=%s\n", COMPILER, DRT_MARCH[0] ? DRT_MARCH : "(its default)");
    fprintf(out, "OpenBLAS     %s, kernels for %s\n", openblas_get_config(), openblas_get_corename());
    fprintf(out, "products     %s\n", blas_cpu_name());
    if (store_faiss_info(&faiss) == STATUS_OK)
        fprintf(out, "FAISS        %s, scan code for %s, %.0f MB/s on one thread\n", faiss.version, faiss.simd,
                faiss.scan_mb_s);
    else
        fprintf(out, "FAISS        %s\n", status_message());
    if (v.cuda[0])
        fprintf(out, "CUDA         %s, compiled for %s\n", v.cuda, DRT_CUDA_ARCHITECTURES);
    else
        fprintf(out, "CUDA         no: built without it\n");
}
