#!/usr/bin/env bash
# Submits the index of a store to Slurm: its training, an array that fills N parts, and the merge. Prints the numbers of the three jobs.
#
#   submit_index.sh STORE FACTORY PARTS [options of drt-index index fill]
#
# FACTORY as IVF65536_HNSW32,SQ8, or auto. Options of sbatch: SBATCH_TRAIN, SBATCH_PART="--cpus-per-task=8 --mem=16G",
# SBATCH_MERGE. READ=SNAPSHOT: the parts read this snapshot of STORE (drt-index freeze), as they must on a network file
# system where something writes to STORE. AFTER=JOB: begin when that job is done, as the join of submit.sh. The same
# command again after a failure passes over what is done. WORK (STORE.index) can be removed afterwards.
set -euo pipefail
[ $# -ge 3 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
store=$(realpath -m "$1") factory=$2 parts=$3
shift 3
here=$(dirname "$(realpath "$0")")
read=${READ:+$(realpath -m "$READ")}
work=$(realpath -m "${WORK:-$store.index}")
read -ra train_options <<<"${SBATCH_TRAIN:-}"
read -ra part_options <<<"${SBATCH_PART:-}"
read -ra merge_options <<<"${SBATCH_MERGE:-}"
environment="ALL,STORE=${read:-$store},WORK=$work"
train=$(sbatch --parsable "${train_options[@]}" ${AFTER:+--dependency="afterok:$AFTER"} --job-name=drt-index-train \
    --export="$environment" \
    --wrap "drt-index index train --store \"\$STORE\" --work \"\$WORK\" --index $(printf %q "$factory")") # --export ends at a comma
fill=$(sbatch --parsable "${part_options[@]}" --dependency="afterok:$train" --export="$environment" --array="1-$parts" \
    "$here/index_part.sh" "$@")
merge=$(sbatch --parsable "${merge_options[@]}" --dependency="afterok:$fill" --job-name=drt-index-merge \
    --export="ALL,STORE=$store,WORK=$work" --wrap 'drt-index index merge --store "$STORE" --work "$WORK"')
echo "$train $fill $merge"
