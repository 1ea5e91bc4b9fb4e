/* ref_landmark_float.c -- the same loops in float: the accuracy of a naive program. */
#define REAL float
#define PREFIX naive
#include "tests/ref/landmark/ref_landmark_loops.inc"
