/* build_version.h -- which version this is: of the sources, and of what it is built with. */
#pragma once
#include <stddef.h>
#include <stdio.h>

struct build_version {
    int major, minor, patch;
    const char *commit;                  /* "" outside of a git checkout; "-changed" at its end: with local changes */
    const char *faiss, *cuda;            /* cuda: the toolkit's version; "": built without CUDA */
};
struct build_version build_version(void);
/* "drt-index 0.1.0 (commit 0123456789ab, FAISS 1.11.0, without CUDA)". */
void build_version_text(char *out, size_t bytes, const char *program);
/* What --version prints: the program's name, version and commit ("drt-index 0.1.0 (commit 0123456789ab)"; `program` may
 * have its command with it: "drt-index build"), then a line each: store format, compiler, OpenBLAS, FAISS (its scan is
 * measured: a few milliseconds), CUDA with the architectures that code was compiled for. */
void build_version_print(FILE *out, const char *program);
