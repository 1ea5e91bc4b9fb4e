/* ref_backward_float.c -- the same loops in float: the accuracy of a naive program. */
#define REAL float
#define PREFIX naive
#include "tests/ref/ref_backward_loops.inc"
