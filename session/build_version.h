/* build_version.h -- the version of the sources, and of the libraries and compiler that they are built with. */
#pragma once
#include <stddef.h>
#include <stdio.h>

struct build_version {
    int major, minor, patch;
    const char *commit; /* "" outside of a git checkout; ends with "-changed" if there are local changes */
    const char *faiss, *cuda;            /* cuda: the toolkit's version; "": built without CUDA */
};
struct build_version build_version(void);
/* Writes "drt-index 0.1.0 (commit 0123456789ab, FAISS 1.11.0, without CUDA)". */
void build_version_text(char *out, size_t bytes, const char *program);
/* Prints what --version prints. First the program's name, version and commit: "drt-index 0.1.0 (commit 0123456789ab)";
 * `program` may include a command: "drt-index build". Then one line each: store format, compiler, OpenBLAS, FAISS (its
 * scan is measured, which takes some milliseconds), CUDA with the architectures that code was compiled for. */
void build_version_print(FILE *out, const char *program);
