#!/usr/bin/env bash
# Random sequences of drt-index commands on one store (add, update, delete, lexical, keys, another index, repair of damage, compact,
# freeze), compared with a list of documents after each. Some commands are killed at a random time, or a call of them fails.
# tests/property/store_sequence does the same with the functions of the store.
#
#   index_sequence.sh [STEPS [SEED [SEQUENCES]]]        25 steps, seed 1, one sequence by default
[ -w /dev/shm ] && export DRT_TEST_TMP=/dev/shm
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_model.sh" || exit 1
needs drt-index
command -v python3 >/dev/null || skip "python3 is missing"
steps=${1:-25} seed=${2:-1} sequences=${3:-1}
faults=-
[ -x "$BIN/drt-index-fault" ] && faults=$BIN/drt-index-fault
tiny_base "$TMP/m"
for ((i = seed; i < seed + sequences; i++)); do
    mkdir "$TMP/$i"
    python3 "$SOURCE/tests/crash/index_sequence.py" "$BIN/drt-index" "$faults" "$TMP/m" "$TMP/$i" $i "$steps" || die "sequence $i"
    rm -rf "${TMP:?}/$i"
done
