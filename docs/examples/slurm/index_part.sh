#!/usr/bin/env bash
# One part of a store's index as a task of a Slurm array; submit_index.sh submits it. STORE and WORK lie on a file system that all
# nodes share; on a network file system STORE is a snapshot (drt-index freeze), or nothing writes to it meanwhile.
#
#   sbatch --export=ALL,STORE=store,WORK=store.index --array=1-64 index_part.sh [options of drt-index index]
#
# A task that fails is requeued, up to RETRIES times (3), and continues with the file where it was; so are tasks of a node that
# fails. A finished one ends at once.
#SBATCH --job-name=drt-index
#SBATCH --requeue
#SBATCH --open-mode=append
set -uo pipefail
: "${STORE:?}" "${WORK:?}" "${SLURM_ARRAY_TASK_ID:?run by sbatch --array}"
drt-index index fill --store "$STORE" --work "$WORK" --part "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" \
    --threads "${SLURM_CPUS_PER_TASK:-0}" "$@" && exit 0
code=$?
[ "${SLURM_RESTART_COUNT:-0}" -lt "${RETRIES:-3}" ] || exit $code
echo "part $SLURM_ARRAY_TASK_ID failed with $code on $(hostname): requeued after ${SLURM_RESTART_COUNT:-0} restarts"
scontrol requeue "$SLURM_JOB_ID"
sleep 600 # the requeue ends this run; a task that ended by itself would count as failed
exit $code
