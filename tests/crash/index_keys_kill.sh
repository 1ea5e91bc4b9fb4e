#!/usr/bin/env bash
# kill -9 at random times in the commands that make or take keys of a token memory: build --keys, build --part --keys, keys, add to a store
# with keys, join of parts with keys (links and copies) and compact. After each kill the store, if there is one, verifies. Then the same
# command runs to its end, and the store has the contents and, by bytes, the keys of an undisturbed run.
#
#   index_keys_kill.sh [KILLS [SEED]]        20 kills, seed 7 by default
[ -w /dev/shm ] && export DRT_TEST_TMP=/dev/shm
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_model.sh" || exit 1
needs drt-index
INDEX=$BIN/drt-index
kills=${1:-20}
seed=${2:-7}
RANDOM=$seed
tiny_base "$TMP/m"
corpus "$TMP/train.jsonl" 120 80
corpus "$TMP/more.jsonl" 20 80 300
sed -i 's/doc-/new-/' "$TMP/more.jsonl"
model=(--model "$TMP/m" --threads 1)
options=("${model[@]}" --shard-chunks 60)
for part in 1 2 3; do expect 0 "$INDEX" build "$TMP/train.jsonl" --part $part/3 --out "$TMP/parts" "${options[@]}" --keys; done
tiny_store "$TMP/whole" "$TMP/m" "$TMP/train.jsonl"
cp -r "$TMP/whole" "$TMP/keyed"
expect 0 "$INDEX" keys --store "$TMP/keyed" "${model[@]}"
cp -r "$TMP/keyed" "$TMP/less"
expect 0 "$INDEX" delete --store "$TMP/less" --document 4 --document 20
s=$TMP/s
begin() { # JOB: sets `command` and `store`
    rm -rf "$s" "$s.parts"
    store=$s
    case $1 in
    keys) cp -r "$TMP/whole" "$s"; command=(keys --store "$s" "${model[@]}") ;;
    add) cp -r "$TMP/keyed" "$s"; command=(add "$TMP/more.jsonl" --store "$s" "${model[@]}") ;;
    build) command=(build "$TMP/train.jsonl" --out "$s" "${options[@]}" --keys) ;;
    part) store=$s.parts/part-2-of-3 command=(build "$TMP/train.jsonl" --part 2/3 --out "$s.parts" "${options[@]}" --keys) ;;
    join) command=(join "$TMP"/parts/* --out "$s" --threads 1) ;;
    copy) command=(join "$TMP"/parts/* --out "$s" --threads 1 --copy) ;;
    compact) command=(compact --store "$TMP/less" --out "$s" --threads 1) ;;
    esac
}
export_of() { "$INDEX" export --store "$1" >"$2" 2>"$ERR" || die "export of $1"; }
now_us() { echo $(($(date +%s%N) / 1000)); }
jobs=(keys add build part join copy compact)
declare -A took
for job in "${jobs[@]}"; do
    begin $job
    start=$(now_us)
    expect 0 "$INDEX" "${command[@]}"
    took[$job]=$(($(now_us) - start))
    cp -r "$store/keys" "$TMP/want-$job"
    [ -n "$(ls "$TMP/want-$job")" ] || die "$job makes no keys"
    export_of "$store" "$TMP/want-$job.export"
done
killed=0 ended=0
declare -A count
for ((round = 0; killed < kills; round++)); do
    [ $ended -lt $((10 * kills + 20)) ] || die "the commands end before they can be killed"
    job=${jobs[round % ${#jobs[@]}]} again=1
    begin $job
    while [ $again = 1 ]; do
        code=0 us=$(((RANDOM * 32768 + RANDOM) % took[$job]))
        "$INDEX" "${command[@]}" >"$OUT" 2>"$ERR" </dev/null &
        pid=$!
        sleep "$((us / 1000000)).$(printf %06d $((us % 1000000)))"
        { kill -9 $pid; wait $pid || code=$?; } 2>/dev/null
        # The duration follows the speed of the machine.
        if [ $code = 0 ]; then took[$job]=$((took[$job] * 3 / 4 + 1000)) ended=$((ended + 1)); break; fi
        [ $code = 137 ] || die "$job: exit code $code (seed $seed, kill $killed)"
        took[$job]=$((took[$job] * 21 / 20)) killed=$((killed + 1)) count[$job]=$((${count[$job]:-0} + 1))
        if "$INDEX" stats --store "$store" >"$OUT" 2>"$ERR"; then
            expect 0 "$INDEX" verify --store "$store" --deep
        else
            tail -n 1 "$ERR" | grep -qE "no contents yet|no store here|nothing is published" || die "a reader after kill $killed in $job (seed $seed)"
        fi
        again=$((RANDOM % 4 == 0))
    done
    [ $code = 0 ] || expect 0 "$INDEX" "${command[@]}"
    what="$job (seed $seed, kill $killed)"
    expect 0 "$INDEX" verify --store "$store" --deep
    export_of "$store" "$TMP/have.export"
    cmp -s "$TMP/have.export" "$TMP/want-$job.export" || die "the store differs after $what"
    same "$(ls "$store/keys")" "$(ls "$TMP/want-$job")" "files of keys after $what"
    for file in "$TMP/want-$job"/*; do
        cmp -s "$store/keys/${file##*/}" "$file" || die "other keys after $what"
    done
done
echo "ok: $killed kills ($(for job in "${jobs[@]}"; do printf '%s %s, ' "$job" "${count[$job]:-0}"; done)$ended runs ended by themselves)"
