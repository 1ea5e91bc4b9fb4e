/* drt_train_processes.h -- several processes that train one model: started here, or by mpirun or torchrun. */
#pragma once
#include "base/status.h"

/* Which of how many this process is, and where they meet (kernels/collective.h). world 1: alone. */
struct train_place { int rank, world; char rendezvous[128]; };

/* What a launcher said in the environment (OMPI_COMM_WORLD_*, PMI_*, or RANK and WORLD_SIZE); all on one host. */
enum status train_place_found(struct train_place *out);

/* Starts `processes` children, each seeing one GPU (of CUDA_VISIBLE_DEVICES where that is set); in a child it returns with
 * its place. In the parent it waits for all of them, passes SIGINT, SIGTERM and SIGHUP on, ends the others when one fails, and
 * returns with *code >= 0: what the program shall exit with. */
enum status train_processes_start(struct train_place *out, int *code, int processes);
