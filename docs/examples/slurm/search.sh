#!/usr/bin/env bash
# Searches a store by one worker on each node of an allocation; STORE lies on a file system that all nodes share. A store
# on a network file system must be a snapshot (drt-index freeze).
#
#   salloc -N 4 search.sh STORE [options of drt-index search, as --queries FILE --json]
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
store=$(realpath "$1")
shift
mapfile -t nodes < <(scontrol show hostnames "${SLURM_JOB_NODELIST:?run by salloc or sbatch}")
workers=()
for ((i = 0; i < ${#nodes[@]}; i++)); do
    workers+=(--worker "exec srun --overlap --unbuffered -N1 -n1 -w ${nodes[i]} drt-index worker --store '$store' --slice $((i + 1))/${#nodes[@]}")
done
exec drt-index search --store "$store" "${workers[@]}" "$@"
