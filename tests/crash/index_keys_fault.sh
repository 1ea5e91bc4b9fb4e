#!/usr/bin/env bash
# Dies at fault points of files and of allocations in drt-index keys; then the same with a call that fails. The store verifies, text that
# takes stored keys if there are any is generated, and the same command run again ends with the bytes of an undisturbed run.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_model.sh" || exit 1
needs drt-index drt-index-fault drt-generate
INDEX=$BIN/drt-index FAULT=$BIN/drt-index-fault
tiny_base "$TMP/m"
corpus "$TMP/train.jsonl" 30 80
tiny_store "$TMP/whole" "$TMP/m" "$TMP/train.jsonl" --landmarks none
expect 0 "$MODEL" project --model "$TMP/m" --store "$TMP/whole" --size 16 --out "$TMP/p"
options=(--store "$TMP/s" --model "$TMP/p" --threads 1)
begin() {
    rm -rf "$TMP/s"
    cp -r "$TMP/whole" "$TMP/s"
    [ "$1" = make ] || { # an older file is replaced
        expect 0 "$INDEX" keys "${options[@]}"
        truncate -s 2000 "$TMP/s/keys/00000.keys"
    }
    command=("$FAULT" keys "${options[@]}")
}
begin make
expect 0 "$INDEX" keys "${options[@]}"
cp "$TMP/s/keys/00000.keys" "$TMP/want"
tried=0
try() { # MODE PASS POINT JOB
    local what="$4 at pass $2 of $3 ($1)"
    begin "$4"
    faulty $1 $2:$3 "${command[@]}"
    [ $passed = 0 ] || return 0
    tried=$((tried + 1))
    expect 0 "$INDEX" verify --store "$TMP/s" --deep
    [ "$4" = replace ] || expect 0 "$GENERATE" --model "$TMP/p" --store "$TMP/s" --memory corpus --prompt x --max-tokens 2
    expect 0 "$INDEX" keys "${options[@]}"
    cmp -s "$TMP/s/keys/00000.keys" "$TMP/want" || die "$what: the same command made other bytes"
    [ "$(ls "$TMP/s/keys")" = 00000.keys ] || die "$what: other files are left: $(ls "$TMP/s/keys")"
}
names=$(cd "$SOURCE" && grep -rhoE 'fault_point\("(file|memory)[^"]*"' base | sed 's/.*"\(.*\)"/\1/' | sort -u)
for job in make replace; do each_fault_point 8 $job "$names"; done
echo "ok; $tried faults"
