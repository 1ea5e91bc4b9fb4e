#!/usr/bin/env bash
# One part of a corpus as a task of a Slurm array. CORPUS and STORE lie on a file system that all nodes share.
#
#   sbatch --export=ALL,CORPUS=corpus,STORE=store --array=1-64 build_slurm.sh
#   sbatch --dependency=afterok:JOB --wrap 'drt-index join store.parts/part-*-of-64 --out store'
#
# A task that failed or was killed is requeued (scontrol requeue JOB_TASK) and continues; a finished one ends at once.
#SBATCH --job-name=drt-build
#SBATCH --requeue
#SBATCH --cpus-per-task=8
set -euo pipefail
: "${CORPUS:?}" "${STORE:?}" "${SLURM_ARRAY_TASK_ID:?run by sbatch --array}"
exec drt-index build "$CORPUS" --part "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" --out "$STORE.parts" \
    --threads "${SLURM_CPUS_PER_TASK:-0}"
