#!/usr/bin/env bash
# kill -9 at random times during drt-index index fill and merge, and all steps at once, while other parts are filled: the store is
# the one before or the one after, and the same commands end with the index that was never disturbed.
#
#   index_recut_kill.sh [KILLS [SEED]]        20 kills, seed 7 by default
[ -w /dev/shm ] && export DRT_TEST_TMP=/dev/shm
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
kills=${1:-20}
RANDOM=${2:-7}
make_model "$TMP/model"
make_corpus "$TMP/a.jsonl" 1000 1
expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$TMP/store" --index exact --model "$TMP/model"
F=IVF64_HNSW16,SQ8 S=$TMP/s W=$TMP/w
cp -r "$TMP/store" "$S"
expect 0 "$INDEX" index train --store "$S" --work "$W" --index $F --threads 1
cp -r "$W" "$TMP/trained"
now_us() { echo $(($(date +%s%N) / 1000)); }
index_sum() { md5sum <"$S/index/00002.faiss"; }
# Little memory, so that a part is several files.
fill=(index fill --store "$S" --work "$W" --threads 1 --max-ram 34M)
merge=(index merge --store "$S" --work "$W" --threads 1)
begin=$(now_us)
for part in 1 2 3; do expect 0 "$INDEX" "${fill[@]}" --part $part/3; done
fill_us=$((($(now_us) - begin) / 3))
begin=$(now_us)
expect 0 "$INDEX" "${merge[@]}"
merge_us=$(($(now_us) - begin))
want=$(index_sum)
queries=(search --queries "$TMP/q" --store "$S" --model "$TMP/model" --json --nprobe 3)
for i in $(seq 50); do echo "the river and harbour $i"; done >"$TMP/q"
hits() { "$INDEX" "${queries[@]}" 2>"$ERR" | grep -v '^$' | md5sum; }
hits_after=$(hits)

fired=0
stop_in() { # MICROSECONDS COMMAND...: kill -9 after so long; counts those that it met
    local us=$1 pid code=0
    shift
    "$@" >"$OUT" 2>"$ERR" </dev/null &
    pid=$!
    sleep "$(printf '0.%06d' $((us % 1000000)))"
    kill -9 $pid 2>/dev/null
    { wait $pid || code=$?; } 2>/dev/null
    [ $code != 137 ] || fired=$((fired + 1))
}
for ((k = 0; k < kills; k++)); do
    rm -rf "$S" "$W"
    cp -r "$TMP/store" "$S"
    cp -r "$TMP/trained" "$W"
    part=$((1 + RANDOM % 3))
    stop_in $(((RANDOM * 32768 + RANDOM) % (fill_us * 8 / 10))) "$INDEX" "${fill[@]}" --part $part/3
    for p in 3 1 2; do expect 0 "$INDEX" "${fill[@]}" --part $p/3; done
    for ((again = 0; again < 2; again++)); do
        stop_in $(((RANDOM * 32768 + RANDOM) % (merge_us * 8 / 10))) "$INDEX" "${merge[@]}"
        expect 0 "$INDEX" verify --store "$S" --deep
        "$INDEX" stats --store "$S" --json >"$TMP/.now" 2>"$ERR" || die "kill $k: the store does not open"
        grep -qE '"index":"(exact|'$F')"' "$TMP/.now" || die "kill $k: another index"
    done
    expect 0 "$INDEX" "${merge[@]}"
    [ "$(index_sum)" = "$want" ] || die "kill $k: another index file"
    [ "$(hits)" = "$hits_after" ] || die "kill $k: other hits"
done
# How many meet a running program depends on the load of the machine.
[ $fired -ge 1 ] || die "none of $((3 * kills)) kills met a running program"
echo "ok; $fired kills"
