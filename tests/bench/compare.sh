#!/usr/bin/env bash
# compare.sh -- token time, encode and search of two builds on this CPU, in turns: the ratio and its interval of 95 %.
#
#   tests/bench/compare.sh OLD_BUILD NEW_BUILD [--pairs N] [--case token|encode|search] [--json FILE]
#
# Each is a build folder with bench_generate, bench_encode and bench_store in bench/. See tests/bench/compare.py.
set -eu
[ $# -ge 2 ] || { sed -n '4s/^# *//p' "$0" >&2; exit 2; }
old=$(realpath "$1") new=$(realpath "$2") from=$PWD
shift 2
arguments=() # relative to the caller's folder
while [ $# -gt 0 ]; do
    if [ "$1" = --json ] && [ $# -gt 1 ]; then arguments+=(--json "$(cd "$from" && realpath -m "$2")"); shift
    else arguments+=("$1"); fi
    shift
done
cd "$(dirname "$0")/../.."
export PYTHONDONTWRITEBYTECODE=1
exec python3 tests/bench/compare.py cpu "$old" "$new" ${arguments[@]+"${arguments[@]}"}
