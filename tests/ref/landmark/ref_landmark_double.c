/* ref_landmark_double.c -- the oracle in double. */
#define REAL double
#define PREFIX ref
#include "tests/ref/landmark/ref_landmark_loops.inc"
