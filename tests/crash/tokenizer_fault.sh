#!/usr/bin/env bash
# drt-tokenizer train is killed, or a call in it fails, at every fault point in turn: the tokenizer.json is the complete old one or the
# complete new one; a failure prints one line and gives exit code 1.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib.sh" || exit 1
needs drt-tokenizer-fault
TRAIN=("$BIN/drt-tokenizer-fault" train "$SOURCE/tests/unit/data/tokenizer_train/docs.jsonl" --vocab-size 500 --threads 1 --out "$TMP/t.json")
new=$SOURCE/tests/unit/data/tokenizer_train/expected-gpt2.json
echo '{"old": true}' >"$TMP/old.json"

DRT_FAULT=count expect 0 "${TRAIN[@]}"
points=$(sed -n 's/^fault points passed: //p' "$ERR")
[ "${points:-0}" -gt 20 ] || die "no fault points: $points"
outcomes=""
for mode in kill fail; do
    for ((n = 1; n <= points; n++)); do
        cp "$TMP/old.json" "$TMP/t.json"
        faulty $mode $n "${TRAIN[@]}"
        [ $passed = 0 ] || die "fault point $n ($mode) is not reached"
        [ $mode = kill ] || [ "$(grep -c '^drt-tokenizer: ' "$ERR")" = 1 ] || die "fault point $n: not one line"
        if cmp -s "$TMP/t.json" "$TMP/old.json"; then
            outcomes+="o"
        elif cmp -s "$TMP/t.json" "$new"; then
            outcomes+="n"
        else
            die "fault point $n ($mode): the file is neither the old one nor the new one"
        fi
        [ $mode = kill ] || [ ! -e "$TMP/t.json.tmp" ] || die "fault point $n: a temporary file is left"
    done
done
case $outcomes in *o*) ;; *) die "no fault came before the file was there" ;; esac
# In the end it still works, whatever files the kills left.
expect 0 "${TRAIN[@]}"
cmp -s "$TMP/t.json" "$new" || die "not the tokenizer of an undisturbed run"
