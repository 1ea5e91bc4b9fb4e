#!/usr/bin/env bash
# One part of a corpus as a task of a Slurm array; submit.sh submits it. CORPUS and STORE lie on a file system that all
# nodes share.
#
#   sbatch --export=ALL,CORPUS=corpus,STORE=store --array=1-64 build_part.sh [options of drt-index build]
#
# A task that fails is requeued, up to RETRIES times (3), and continues where it was; so are tasks of a node that fails.
# A finished one ends at once.
#SBATCH --job-name=drt-build
#SBATCH --requeue
#SBATCH --open-mode=append
set -uo pipefail
: "${CORPUS:?}" "${STORE:?}" "${SLURM_ARRAY_TASK_ID:?run by sbatch --array}"
drt-index build "$CORPUS" --part "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" --out "$STORE.parts" \
    --threads "${SLURM_CPUS_PER_TASK:-0}" "$@" && exit 0
code=$?
[ "${SLURM_RESTART_COUNT:-0}" -lt "${RETRIES:-3}" ] || exit $code
echo "part $SLURM_ARRAY_TASK_ID failed with $code on $(hostname): requeued after ${SLURM_RESTART_COUNT:-0} restarts"
scontrol requeue "$SLURM_JOB_ID"
sleep 600 # the requeue ends this run; a task that ended by itself would count as failed
exit $code
