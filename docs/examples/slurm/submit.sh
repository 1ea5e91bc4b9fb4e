#!/usr/bin/env bash
# Submits a corpus to Slurm: an array of parts, then the join of all of them. Prints the numbers of the two jobs.
#
#   submit.sh CORPUS STORE PARTS [options of drt-index build]
#
# Options of sbatch for the parts: SBATCH_PART="--cpus-per-task=8 --mem=16G", for the join: SBATCH_JOIN. The same command
# again after a failure passes over what is done.
set -euo pipefail
[ $# -ge 3 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
corpus=$(realpath "$1") store=$(realpath -m "$2") parts=$3
shift 3
here=$(dirname "$(realpath "$0")")
read -ra part <<<"${SBATCH_PART:-}"
read -ra join <<<"${SBATCH_JOIN:-}"
build=$(sbatch --parsable "${part[@]}" --export="ALL,CORPUS=$corpus,STORE=$store" --array="1-$parts" "$here/build_part.sh" "$@")
join=$(sbatch --parsable "${join[@]}" --job-name=drt-join --dependency="afterok:$build" --export="ALL,STORE=$store,PARTS=$parts" \
    --wrap 'drt-index join "$STORE.parts"/part-*-of-"$PARTS" --out "$STORE"')
echo "$build $join"
