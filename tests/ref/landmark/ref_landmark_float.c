/* ref_landmark_float.c -- the same loops in float: what a naive program gets. */
#define REAL float
#define PREFIX naive
#include "tests/ref/landmark/ref_landmark_loops.inc"
