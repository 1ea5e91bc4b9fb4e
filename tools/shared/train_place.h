/* train_place.h -- which of several processes that train one model this one is, and which GPU is its own. */
#pragma once
#include "base/status.h"
#include <stdbool.h>

/* Number `rank` of `world`, and where they meet (kernels/device/collective.h). world 1: alone. */
struct train_place {
    int rank, world;
    int local;                           /* number on this host */
    bool launched;                       /* by mpirun or torchrun */
    char rendezvous[128];
};
enum { TRAIN_PROCESSES_MAX = 64 };

/* What a launcher said in the environment (OMPI_COMM_WORLD_*, PMI_*, or RANK and WORLD_SIZE); all on one host. */
enum status train_place_found(struct train_place *out);
/* The processes of one parent meet where its number says: another launch has another. */
void train_place_meet(struct train_place *place, long parent);

/* Leaves this process one GPU to see: entry `local` of CUDA_VISIBLE_DEVICES, GPU `local` where that is not set. An empty list
 * hides all GPUs, and one of a single GPU that a launcher gave is this process's own: both stay. Before the first use of CUDA. */
enum status train_place_show_gpu(const struct train_place *place);
