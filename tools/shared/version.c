/* version.c -- see version.h. tools/version.cmake defines DRT_VERSION, DRT_COMMIT, DRT_CUDA_VERSION and DRT_MARCH for
 * this file alone, so that a new commit compiles one file again. */
#include "tools/shared/version.h"
#include "store/store.h"
#include <string.h>

/* Of OpenBLAS, whose header only kernels/ may include. These two functions report the version and compute nothing. */
char *openblas_get_config(void);
char *openblas_get_corename(void);

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

void version_print_details(FILE *out) {
    struct store_faiss_info faiss;
    fprintf(out, "store format %d\n", STORE_FORMAT_VERSION);
    fprintf(out, "compiler     %s, -march=%s\n", COMPILER, DRT_MARCH[0] ? DRT_MARCH : "(its default)");
    fprintf(out, "OpenBLAS     %s, kernels for %s\n", openblas_get_config(), openblas_get_corename());
    if (store_faiss_info(&faiss) == STATUS_OK)
        fprintf(out, "FAISS        %s, scan code for %s, %.0f MB/s on one thread\n", faiss.version, faiss.simd,
                faiss.scan_mb_s);
    else
        fprintf(out, "FAISS        %s\n", status_message());
    fprintf(out, "CUDA         %s\n", DRT_CUDA_VERSION[0] ? DRT_CUDA_VERSION : "no: compiled without it");
}

void version_print(FILE *out, const char *program) {
    fprintf(out, "%.*s %s (commit %s)\n", (int)strcspn(program, " "), program, DRT_VERSION,
            DRT_COMMIT[0] ? DRT_COMMIT : "unknown: configured without git");
    version_print_details(out);
}
