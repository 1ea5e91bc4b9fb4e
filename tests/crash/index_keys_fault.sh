#!/usr/bin/env bash
# Dies at fault points of files, allocations and the join in the commands that make or take keys: keys (first, and over a damaged file),
# build --keys, add to a store with keys, join of parts with keys (links and copies), compact; then the same with a call that fails. The
# store verifies, text that takes stored keys if there are any is generated, and the same command run again ends with the keys, by bytes, of
# an undisturbed run.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_model.sh" || exit 1
needs drt-index drt-index-fault drt-generate
INDEX=$BIN/drt-index FAULT=$BIN/drt-index-fault
tiny_base "$TMP/m"
corpus "$TMP/train.jsonl" 30 80
corpus "$TMP/more.jsonl" 3 80 70
sed -i 's/doc-/new-/' "$TMP/more.jsonl"
none=(--landmarks none --threads 1 --max-ram 256M)
tiny_store "$TMP/whole" "$TMP/m" "$TMP/train.jsonl" "${none[@]}"
expect 0 "$MODEL" project --model "$TMP/m" --store "$TMP/whole" --size 16 --out "$TMP/p"
model=(--model "$TMP/p" --threads 1)
for part in 1 2 3; do
    expect 0 "$INDEX" build "$TMP/train.jsonl" --part $part/3 --out "$TMP/parts" "${model[@]}" "${none[@]}" --keys
done
cp -r "$TMP/whole" "$TMP/keyed"
expect 0 "$INDEX" keys --store "$TMP/keyed" "${model[@]}"
cp -r "$TMP/keyed" "$TMP/less"
expect 0 "$INDEX" delete --store "$TMP/less" --document 4 --document 20
begin() {
    rm -rf "$TMP/s"
    case $1 in
    make | damaged) cp -r "$TMP/whole" "$TMP/s" ;;
    add) cp -r "$TMP/keyed" "$TMP/s" ;;
    esac
    [ "$1" != damaged ] || { # an older file is replaced
        mkdir "$TMP/s/keys"
        head -c 2000 "$TMP/keyed/keys/00000.keys" >"$TMP/s/keys/00000.keys"
    }
    case $1 in
    make | damaged) command=(keys --store "$TMP/s" "${model[@]}") ;;
    build) command=(build "$TMP/train.jsonl" --out "$TMP/s" "${model[@]}" "${none[@]}" --keys) ;;
    add) command=(add "$TMP/more.jsonl" --store "$TMP/s" "${model[@]}") ;;
    join) command=(join "$TMP"/parts/* --out "$TMP/s" --threads 1) ;;
    copy) command=(join "$TMP"/parts/* --out "$TMP/s" --threads 1 --copy) ;;
    compact) command=(compact --store "$TMP/less" --out "$TMP/s" --threads 1) ;;
    esac
    command=("$FAULT" "${command[@]}")
}
tried=0 in_keys=0
try() { # MODE PASS POINT JOB
    local what="$4 at pass $2 of $3 ($1)" file there=0
    begin "$4"
    faulty $1 $2:$3 "${command[@]}"
    [ $passed = 0 ] || return 0
    tried=$((tried + 1))
    if "$INDEX" stats --store "$TMP/s" >"$OUT" 2>"$ERR"; then
        there=1
    else
        tail -n 1 "$ERR" | grep -qE "no contents yet|no store here|nothing is published" || die "a reader after $what"
    fi
    if [ $there = 1 ]; then
        [ "$4" = damaged ] && cmp -s "$TMP/s/keys/00000.keys" <(head -c 2000 "$TMP/keyed/keys/00000.keys") ||
            expect 0 "$INDEX" verify --store "$TMP/s" --deep
        [ "$4" = damaged ] || expect 0 "$GENERATE" --model "$TMP/p" --store "$TMP/s" --memory corpus --prompt x --max-tokens 2
        [ -n "$(ls "$TMP/s/keys" 2>/dev/null | grep tmp)" ] && in_keys=$((in_keys + 1))
    fi
    expect 0 "$INDEX" "${command[@]:1}"
    same "$(ls "$TMP/s/keys")" "$(ls "$TMP/want-$4")" "files of keys after $what"
    for file in "$TMP/want-$4"/*; do
        cmp -s "$TMP/s/keys/${file##*/}" "$file" || die "$what: the same command made other bytes"
    done
    expect 0 "$INDEX" verify --store "$TMP/s" --deep
}
count_in() { # JOB
    begin $1
    count_passes "${command[@]}"
}
# The last passes of a point are those of the keys, which build, add and compact make at their end.
try_last() { # JOB NAMES
    local name mode n last
    for name in $2; do
        last=${passes[$name]:-0}
        for mode in kill fail; do
            for ((n = last; n > last - 2 && n > 0; n--)); do try $mode $n "$name" "$1"; done
        done
    done
}
names=$(cd "$SOURCE" && grep -rhoE 'fault_point\("(file|memory|store:join)[^"]*"' base store | sed 's/.*"\(.*\)"/\1/' | sort -u)
for job in make damaged build add join copy compact; do
    begin $job
    expect 0 "$INDEX" "${command[@]:1}"
    rm -rf "$TMP/want-$job"
    cp -r "$TMP/s/keys" "$TMP/want-$job"
    [ -n "$(ls "$TMP/want-$job")" ] || die "$job makes no keys"
    case $job in
    make | damaged | join) each_fault_point 8 $job "$names" ;;
    *) count_in $job ;;
    esac
    try_last $job "$names"
done
cmp -s "$TMP/want-make/00000.keys" "$TMP/want-build/00000.keys" || die "build --keys makes other keys"
[ $in_keys -gt 3 ] || die "only $in_keys faults left a file of keys unfinished"
echo "ok; $tried faults, $in_keys of them while a file of keys was written"
