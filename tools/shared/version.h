/* version.h -- what --version prints: enough to say in a bug report which program this is. */
#pragma once
#include <stdio.h>

/* "drt-index 0.1.0 (commit 0123456789ab)"; `program` may have its command with it ("drt-index build"). Then the
 * details, one a line. */
void version_print(FILE *out, const char *program);
/* The details alone: store format, compiler, OpenBLAS, FAISS (its scan is measured: a few milliseconds), CUDA. */
void version_print_details(FILE *out);
