/* ref_backward_double.c -- the oracle of gradients in double. */
#define REAL double
#define PREFIX ref
#include "tests/ref/ref_backward_loops.inc"
