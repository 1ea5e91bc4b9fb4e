/* train_rank.h -- the number of this process among the processes that train one model together, and its GPU. */
#pragma once
#include "base/status.h"
#include <stdbool.h>

/* Process `rank` of `world`, and the path of their rendezvous (kernels/device/collective.h). world 1: the only
 * process. */
struct train_rank {
    int rank, world;
    int local;                           /* number of the process on this host */
    bool launched;                       /* whether mpirun or torchrun started it */
    char rendezvous[128];
};
enum { TRAIN_PROCESSES_MAX = 64 };

/* Reads the environment variables of a launcher (OMPI_COMM_WORLD_*, PMI_*, or RANK and WORLD_SIZE). All processes must
 * be on one host. */
enum status train_rank_detect(struct train_rank *out);
/* Makes the path of the rendezvous from the process id of the common parent, so that each launch has its own. */
void train_rank_set_rendezvous(struct train_rank *rank, long parent);

/* Makes one GPU visible to this process: entry `local` of CUDA_VISIBLE_DEVICES, or GPU `local` if that is not set. An
 * empty list, which hides all GPUs, is not changed, and neither is a list of one GPU that a launcher set for this
 * process. Call it before the first use of CUDA. */
enum status train_rank_show_gpu(const struct train_rank *rank);
