#!/usr/bin/env bash
# Keys of a token memory where something is in the way: a full disk, a limit of file sizes and a read-only folder are one line that names the
# file, the chunks stay published, and the same command continues; additions at the same time, also beside drt-index keys, leave all keys.
documents=40
. "$DRT_SOURCE/tests/cli/index/keys/lib_keys.sh" || exit 1
complete() { # STORE: it has all keys, those that are made anew
    expect 0 "$INDEX" keys --store "$1" "${model[@]}" --verify
    fresh "$1"
    [ -z "$(find "$1/keys" -name '*.tmp')" ] || die "$1: a temporary file is left"
}
expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$TMP/plain" "${none[@]}"
expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$TMP/keyed" "${none[@]}" --keys
bytes=$(stat -c %s "$TMP/keyed/keys/00000.keys")

# ---- full
rm -rf "$TMP/s"
(
    ulimit -f $((bytes / 2048)) # half of the file
    cp -r "$TMP/plain" "$TMP/s"
    for command in "keys" "build $TMP/a.jsonl --landmarks none --keys"; do
        where=--store
        case $command in build*) where=--out ;; esac
        "$INDEX" $command $where "$TMP/s" "${model[@]}" >"$TMP/limit.out" 2>"$TMP/limit.err" && exit 1
        tail -n 1 "$TMP/limit.err" | grep -q "drt-index: $TMP/s/keys/00000.keys.*: .*ulimit -f" || exit 2
    done
) || die "a limit of file sizes: $? ($(tail -n 1 "$TMP/limit.err"))"
[ -z "$(ls "$TMP/s/keys")" ] || die "half a file of keys is left"
expect 0 "$INDEX" verify --store "$TMP/s" --deep
expect 0 "$INDEX" keys --store "$TMP/s" "${model[@]}"
complete "$TMP/s"
mount_tried=no
if [ "$(id -u)" = 0 ] && mkdir "$TMP/mount" && mount -t tmpfs -o size=64m none "$TMP/mount" 2>/dev/null; then
    mount_tried=yes
    trap 'umount "$TMP/mount" 2>/dev/null; rm -rf "$TMP"' EXIT
    s=$TMP/mount/s
    # No block is left for keys, old ones stay; the added chunks are published.
    cp -r "$TMP/keyed" "$s"
    used=$(du -sk "$TMP/mount" | cut -f 1)
    mount -o remount,size=$((used + bytes * 4 / 5120))k "$TMP/mount" # the addition fits, a second file of keys does not
    expect_error "$s/keys/00000.keys" "$INDEX" add "$TMP/b.jsonl" --store "$s" "${none[@]:2}"
    tail -n 1 "$ERR" | grep -qi "space" || die "the full disk is not named"
    cmp -s "$s/keys/00000.keys" "$TMP/keyed/keys/00000.keys" || die "a full disk changed the keys"
    [ -z "$(find "$s/keys" -name '*.tmp')" ] || die "a temporary file is left on a full disk"
    expect 0 "$INDEX" verify --store "$s" --deep
    expect 0 "$INDEX" stats --store "$s" --json
    [ "$(json_int "$OUT" keys_chunks)" -lt "$(json_int "$OUT" chunks)" ] || die "the added chunks have keys"
    expect 0 "$BIN/drt-generate" --model "$TMP/m" --store "$s" --memory corpus --prompt x --max-tokens 2
    mount -o remount,size=64m "$TMP/mount"
    expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$s" "${model[@]}" # nothing is new; the keys are made
    out_has "1 of 1 files made"
    complete "$s"
    # read-only
    expect 0 "$INDEX" keys --store "$s" --remove
    mount -o remount,ro "$TMP/mount"
    for command in "keys --store $s" "keys --store $s --part 1/1"; do
        expect_error "$s/keys" "$INDEX" $command "${model[@]}"
        tail -n 1 "$ERR" | grep -qi "read-only" || die "the read-only file system is not named"
    done
    expect_error "$s" "$INDEX" add "$TMP/b.jsonl" --store "$s" "${model[@]}" --keys
    expect 0 "$BIN/drt-generate" --model "$TMP/m" --store "$s" --memory corpus --prompt x --max-tokens 2
    umount "$TMP/mount"
fi

# ---- at the same time
add_some() { # STORE FIRST: one addition, as soon as no other writer is at work
    local code=1
    while [ $code != 0 ]; do
        code=0
        "$INDEX" add "$TMP/part-$2.jsonl" --store "$1" "${model[@]}" >"$TMP/add-$2.out" 2>"$TMP/add-$2.err" || code=$?
        [ $code = 0 ] || tail -n 1 "$TMP/add-$2.err" | grep -q "another writer is at work" || return 1
    done
}
for ((i = 0; i < 6; i++)); do
    corpus "$TMP/part-$i.jsonl" 3 120 $((200 + 10 * i))
    sed -i "s/doc-/more-/" "$TMP/part-$i.jsonl"
done
for round in 1 2 3; do
    rm -rf "$TMP/s"
    cp -r "$TMP/keyed" "$TMP/s"
    pids=()
    for ((i = 0; i < 6; i++)); do add_some "$TMP/s" $i & pids+=($!); done
    "$INDEX" keys --store "$TMP/s" "${model[@]}" >"$TMP/keys.out" 2>"$TMP/keys.err" & pids+=($!)
    for pid in "${pids[@]}"; do wait $pid || die "round $round: $(tail -qn 1 "$TMP"/add-*.err "$TMP/keys.err")"; done
    expect 0 "$INDEX" stats --store "$TMP/s" --json
    same "$(json_int "$OUT" keys_chunks)" "$(json_int "$OUT" chunks)" "chunks with keys after additions at the same time"
done
complete "$TMP/s"
echo "ok; a mount with little space, and a read-only one: $mount_tried"
