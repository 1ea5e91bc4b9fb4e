/* build_version.c -- see build_version.h. CMake defines the numbers; cmake/commit.cmake writes the commit when it
 * changes, so that nothing else is compiled again. */
#include "session/build_version.h"
#include "store/store.h"
#include <stdio.h>

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
