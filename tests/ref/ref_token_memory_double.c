/* ref_token_memory_double.c -- the oracle of token memories in double. */
#define REAL double
#define PREFIX ref
#include "tests/ref/ref_token_memory_loops.h"
