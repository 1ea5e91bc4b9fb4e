/* ref_token_memory_float.c -- the same loops in float: the accuracy of the storage type. */
#define REAL float
#define PREFIX naive
#include "tests/ref/ref_token_memory_loops.h"
