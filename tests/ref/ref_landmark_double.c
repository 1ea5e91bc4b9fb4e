/* ref_landmark_double.c -- the oracle in double. */
#define REAL double
#define PREFIX ref
#include "tests/ref/ref_landmark_loops.inc"
