/* ref_token_memory_float.c -- the same loops in float: what the storage type can give. */
#define REAL float
#define PREFIX naive
#include "tests/ref/ref_token_memory_loops.h"
