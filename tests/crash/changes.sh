#!/usr/bin/env bash
# Many additions and deletions under four reading processes and kill -9: no document is lost, no deleted one comes back, readers see
# complete sources. At the end the store equals a new one of the same content: documents, tokens, landmarks, exact hits. The script prints
# the times of search and opening for both.
#
#   changes.sh [ADDS [DELETES [KILLS [SEED]]]]     40, 40 and 10 by default; 1000 1000 100 for the long run
# A kill does not lose the page cache, so a folder in memory gives the same result without real syncs.
[ -w /dev/shm ] && export DRT_TEST_TMP=/dev/shm
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
command -v python3 >/dev/null || skip "python3 is missing"
adds=${1:-40} deletes=${2:-40} kills=${3:-10} seed=${4:-11} readers=4
[ $((2 * adds)) -gt "$deletes" ] || die "each addition has two sources, and one of all must stay"
RANDOM=$seed
make_model "$TMP/model"
make_corpus "$TMP/a.jsonl" 200 1
s=$TMP/store log=$TMP/log model=(--model "$TMP/model" --threads 1)
expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$s" --index IVF8,SQ8 --shard-chunks 200 "${model[@]}"
: >"$log"

# batch N: two files of two documents each, with texts that occur nowhere else.
make_batch() {
    local half i
    for half in a b; do
        for i in 1 2; do
            printf '{"id": "%s-%s-%s", "text": "%s"}\n' "$1" $half $i \
                "$(awk -v seed="$1$i$(printf %d "'$half")" 'BEGIN { srand(seed); n = split("the river and stone winding north other sand ring on table under seven lights of a harbour", w, " ")
                    for (j = 0; j < 40 + int(rand() * 60); j++) printf "%s ", w[1 + int(rand() * n)] }')batch $1 $half $i."
        done >"$TMP/batch-$1-$half.jsonl"
    done
}
now_us() { echo $(($(date +%s%N) / 1000)); }

killed=0 took=30000 done_steps=0
# One change. It is sometimes killed at a random time and run again, once or more.
change() {
    local code pid us start
    while :; do
        start=$(now_us) code=0
        if [ $killed -lt "$kills" ] && [ $((RANDOM % (adds + deletes))) -lt $((2 * kills)) ]; then
            us=$(((RANDOM * 32768 + RANDOM) % took))
            "$INDEX" "$@" >"$OUT" 2>"$ERR" &
            pid=$!
            sleep "$((us / 1000000)).$(printf %06d $((us % 1000000)))"
            { kill -9 $pid; wait $pid || code=$?; } 2>/dev/null
            [ $code != 137 ] || { killed=$((killed + 1)); continue; }
        else
            "$INDEX" "$@" >"$OUT" 2>"$ERR" || code=$?
            took=$(((took * 7 + $(now_us) - start) / 8))
        fi
        [ $code = 0 ] || die "exit code $code: drt-index $*"
        done_steps=$((done_steps + 1))
        return
    done
}

pids=()
for ((i = 1; i <= readers; i++)); do
    python3 "$SOURCE/tests/crash/changes_reader.py" "$INDEX" "$s" "$TMP/model" "$log" "$TMP/stop" >"$TMP/reader.$i" 2>&1 &
    pids+=($!)
done
stop_readers() { touch "$TMP/stop"; wait "${pids[@]}" 2>/dev/null; }
trap 'stop_readers; rm -rf "$TMP"' EXIT

began=$(now_us) added=0 deleted=0 there=()
while [ $added -lt "$adds" ] || [ $deleted -lt "$deletes" ]; do
    # Additions and deletions are mixed in the proportion of what is left to do; a deletion needs a document.
    if [ $added -lt "$adds" ] && { [ ${#there[@]} -lt 3 ] || [ $deleted -ge "$deletes" ] || [ $((RANDOM % 2)) = 0 ]; }; then
        added=$((added + 1))
        make_batch $added
        printf 'adding batch-%s-a.jsonl\nadding batch-%s-b.jsonl\n' $added $added >>"$log"
        change add "$TMP/batch-$added-a.jsonl" "$TMP/batch-$added-b.jsonl" --store "$s" --shard-chunks 200 "${model[@]}"
        printf 'added batch-%s-a.jsonl\nadded batch-%s-b.jsonl\n' $added $added >>"$log"
        there+=("batch-$added-a.jsonl" "batch-$added-b.jsonl")
    else
        deleted=$((deleted + 1)) i=$((RANDOM % ${#there[@]}))
        source=${there[i]}
        there=("${there[@]:0:i}" "${there[@]:i+1}")
        echo "deleting $source" >>"$log"
        change delete --store "$s" --source "$TMP/$source"
        echo "deleted $source" >>"$log"
    fi
    for pid in "${pids[@]}"; do kill -0 "$pid" 2>/dev/null || { cat "$TMP"/reader.*; die "a reader ended after $done_steps changes"; }; done
done
seconds=$((($(now_us) - began) / 1000000))
touch "$TMP/stop"
for ((i = 1; i <= readers; i++)); do
    wait "${pids[i - 1]}" || { cat "$TMP/reader.$i"; die "reader $i failed"; }
    echo "reader $i: $(cat "$TMP/reader.$i")"
done
[ $killed -ge $((kills / 2)) ] || die "only $killed commands were killed"

# The readers notice errors: a wrong log makes one fail.
wrong_log() { # TEXT LINE...
    rm -f "$TMP/stop"
    { cat "$log"; printf '%s\n' "${@:2}"; } >"$TMP/wrong"
    expect 1 timeout 20 python3 "$SOURCE/tests/crash/changes_reader.py" "$INDEX" "$s" "$TMP/model" "$TMP/wrong" "$TMP/stop"
    err_has "$1"
}
wrong_log "resurrected" "deleting ${there[0]}" "deleted ${there[0]}"
wrong_log "lost" "adding batch-0-a.jsonl" "added batch-0-a.jsonl"

# Compared with a store that was built from the remaining documents, in the same order.
expect 0 "$INDEX" verify --store "$s" --deep
mapfile -t left < <(printf "$TMP/%s\n" "${there[@]}")
expect 0 "$INDEX" build "$TMP/a.jsonl" "${left[@]}" --out "$TMP/fresh" --index IVF8,SQ8 --shard-chunks 200 "${model[@]}"
contents() { "$INDEX" export --store "$1" 2>"$ERR" | sed -E 's/"(chunk|document)":[0-9]+,//g'; }
contents "$s" >"$TMP/c1"
contents "$TMP/fresh" >"$TMP/c2"
cmp -s "$TMP/c1" "$TMP/c2" || { diff "$TMP/c1" "$TMP/c2" | cut -c1-150 | head -n 4; die "not the content of a fresh store"; }
for n in 1 2 3 4 5 6; do tail -n $((37 * n)) "$TMP/a.jsonl" | head -n 1 | sed 's/.*"text": "\([^"]*\)".*/\1/'; done >"$TMP/queries.txt"
for store in "$s" "$TMP/fresh"; do
    "$INDEX" search --queries "$TMP/queries.txt" --store "$store" "${model[@]}" --exact --k 20 --json 2>"$ERR" |
        sed -E 's/"(chunk|document)":[0-9]+,//g' >"$TMP/hits.$(basename "$store")"
done
cmp -s "$TMP/hits.store" "$TMP/hits.fresh" && [ -s "$TMP/hits.fresh" ] || die "other exact hits than in a fresh store"

expect 0 "$INDEX" compact --store "$s" --out "$TMP/compacted" --threads 1
contents "$TMP/compacted" | cmp -s - "$TMP/c2" || die "compact changes the content"
# Medians of five rounds over the three stores in turn, since other work on the machine disturbs single measurements.
names=(p50_ms p99_ms recall exact_p50_ms exact_p99_ms open_ms)
for round in 1 2 3 4 5; do
    for store in "$s" "$TMP/fresh" "$TMP/compacted"; do
        expect 0 "$INDEX" recall --store "$store" --queries 1000 --k 8 --nprobe 4 --threads 1 --json
        for name in "${names[@]:0:5}"; do
            echo "$(basename "$store") $name $(grep -oE "\"$name\":[0-9.e-]+" "$OUT" | cut -d: -f2)"
        done
        start=$(now_us)
        for _ in 1 2 3 4 5; do "$INDEX" stats --store "$store" >/dev/null 2>&1; done
        echo "$(basename "$store") open_ms $(awk -v us=$(($(now_us) - start)) 'BEGIN { printf "%.1f", us / 5000 }')"
    done
done >"$TMP/figures"
median() { awk -v s="$1" -v n="$2" '$1 == s && $2 == n { print $3 }' "$TMP/figures" | sort -g | sed -n 3p; }
echo "$added additions and $deleted deletions in $seconds s, $killed kills; $(wc -l <"$TMP/c1") chunks are left"
for store in "$s" "$TMP/fresh" "$TMP/compacted"; do
    printf '%-9s %3d files' "$(basename "$store")" "$(find "$store/tokens" "$store/index" "$store/lexical" -type f | wc -l)"
    for name in "${names[@]}"; do printf ', %s %s' "$name" "$(median "$(basename "$store")" "$name")"; done
    echo
done
