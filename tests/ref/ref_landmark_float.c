/* ref_landmark_float.c -- the same loops in float: what a naive program gets. */
#define REAL float
#define PREFIX naive
#include "tests/ref/ref_landmark_loops.inc"
