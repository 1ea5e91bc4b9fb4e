#!/usr/bin/env bash
# Many small additions make few shards; reads, hits and exports are the same as those of shards that were not merged.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
make_model "$TMP/model"
make_corpus "$TMP/all.jsonl" 9
split -l 1 -d "$TMP/all.jsonl" "$TMP/part-" --additional-suffix .jsonl

# fill STORE OPTIONS...: a build, then one addition for each document.
fill() {
    local store=$1 part
    shift
    expect 0 "$INDEX" build "$TMP/part-00.jsonl" --out "$store" --model "$TMP/model" --threads 1 "$@"
    for part in "$TMP"/part-0[1-9].jsonl; do
        expect 0 "$INDEX" add "$part" --store "$store" --model "$TMP/model" --threads 1 "$@"
    done
}
shards() {
    expect 0 "$INDEX" stats --store "$1" --json
    json_int "$OUT" shards
}
fill "$TMP/apart" --shard-chunks 1 # the largest number of chunks in a merged file
fill "$TMP/together"
same "$(shards "$TMP/apart")" 9 "shards that were not merged"
[ "$(shards "$TMP/together")" -le 4 ] || die "$(shards "$TMP/together") shards after 8 additions"
same "$(find "$TMP/together/tokens" "$TMP/together/landmarks" -type f | wc -l)" $((2 * $(shards "$TMP/together"))) "files"
same_store "$TMP/apart" "$TMP/together"
expect 0 "$INDEX" verify --store "$TMP/together" --deep
err_lacks "left over"

# A damaged shard is not merged: the addition is published anyway, with a note.
file=$(find "$TMP/together/tokens" -type f | sort | tail -n 1)
printf '\377\377' | dd of="$file" bs=1 seek=66 conv=notrunc 2>/dev/null
make_corpus "$TMP/more.jsonl" 2 9
expect 0 "$INDEX" add "$TMP/more.jsonl" --store "$TMP/together" --model "$TMP/model" --threads 1
err_has "small shards were not merged"
err_has "$(basename "$file"): its bytes changed"
expect 1 "$INDEX" verify --store "$TMP/together" --deep
out_has "$(basename "$file")"
echo ok
