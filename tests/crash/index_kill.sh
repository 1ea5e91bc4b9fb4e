#!/usr/bin/env bash
# kill -9 at random times during build, add, update, repair --model (of damaged landmarks), drop, add of what was dropped, delete,
# join of parts, build of a part, and compact.
# After each kill readers see the store before the command or after it. Then the same command runs to its end, and the store equals one of
# an uninterrupted run: verify --deep, export, hits.
#
#   index_kill.sh [KILLS [SEED [WORKERS]]]        20 kills, seed 7, 2 workers by default; 1000 for the long run
# A kill does not lose the page cache, so a folder in memory gives the same result without real syncs.
[ -w /dev/shm ] && export DRT_TEST_TMP=/dev/shm
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
kills=${1:-20}
seed=${2:-7}
workers=${3:-2}
RANDOM=$seed
make_model "$TMP/model"
make_corpus "$TMP/a.jsonl" 120 1
make_corpus "$TMP/b.jsonl" 80 2
make_corpus "$TMP/c.jsonl" 80 3
model=(--model "$TMP/model" --threads 1)
shards=(--shard-chunks 30 --index IVF8,SQ8)
merged=(--shard-chunks 120 --index IVF8,SQ8) # an addition merges small shards up to this size

command_of() { # NAME STORE: sets `command`
    case $1 in
    build) command=("$INDEX" build "$TMP/a.jsonl" --out "$2" "${model[@]}" "${shards[@]}") ;;
    add) command=("$INDEX" add "$TMP/b.jsonl" --store "$2" "${model[@]}" "${merged[@]}") ;;
    update) command=("$INDEX" update "$TMP/c.jsonl" --source "$TMP/b.jsonl" --store "$2" "${model[@]}" "${shards[@]}") ;;
    repair) command=("$INDEX" repair --store "$2" "${model[@]}") ;;
    drop) command=("$INDEX" drop --store "$2" --shard 2 --shard 5 --threads 1) ;;
    delete) command=("$INDEX" delete --store "$2" --source "*/a.jsonl") ;;
    compact) command=("$INDEX" compact --store "$TMP/drop-after" --out "$2" --threads 1 --shard-chunks 30) ;;
    join) command=("$INDEX" join "$TMP"/parts/* --out "$2" --threads 1 --index IVF8,SQ8) ;;
    part)
        rm -rf "$2.parts"
        ln -s "$2.parts/part-2-of-3" "$2"
        command=("$INDEX" build "$TMP/a.jsonl" "$TMP/b.jsonl" --part 2/3 --out "$2.parts" --shard-chunks 30 "${model[@]}") ;;
    again) command=("$INDEX" add "$TMP/a.jsonl" --store "$2" "${model[@]}" "${merged[@]}") ;;
    esac
}
jobs=(build add update repair drop again delete join part compact)
makes() { [ "$1" = build ] || [ "$1" = join ] || [ "$1" = part ] || [ "$1" = compact ]; } # the command makes the store
for part in 1 2 3; do
    expect 0 "$INDEX" build "$TMP/a.jsonl" "$TMP/b.jsonl" --part $part/3 --out "$TMP/parts" --shard-chunks 30 "${model[@]}"
done

# Without kills: the store before and after each command, and the command's duration, in which the kill comes.
now_us() { echo $(($(date +%s%N) / 1000)); }
before="" start=0
declare -A took
for job in "${jobs[@]}"; do
    makes "$job" || cp -r "$before" "$TMP/$job-after"
    makes "$job" || ln -s "$before" "$TMP/$job-before"
    command_of "$job" "$TMP/$job-after"
    start=$(now_us)
    "${command[@]}" >"$OUT" 2>"$ERR" || die "$job, undisturbed"
    took[$job]=$(($(now_us) - start))
    export_store "$TMP/$job-after" "$TMP/$job.export"
    before=$TMP/$job-after
done
[ "$(find "$TMP/build-after/tokens" -name '*.tok' | wc -l)" -gt 15 ] || die "few shards"
[ "$(find "$TMP/add-after/tokens" -name '*-*.tok' | wc -l)" -gt 1 ] || die "nothing was merged"
cmp -s "$TMP/drop.export" "$TMP/add.export" && die "drop changed nothing"

# Damages two landmark files: changes a byte, or removes the file.
damage() { # STORE
    local files=("$1"/landmarks/*."$LANDMARKS") i file
    for i in 1 2; do
        file=${files[$((RANDOM % ${#files[@]}))]}
        if [ $((RANDOM % 3)) = 0 ]; then rm -f "$file"; continue; fi
        [ -e "$file" ] && printf '\x7b\x3c' | dd of="$file" bs=1 seek=$((64 + RANDOM % 1000)) conv=notrunc 2>/dev/null
    done
}

die_in() { cp -r "$s" "$TMP.failed"; die "$* (seed $seed, kill $killed of worker $worker; the store is kept in $TMP.failed)"; }

# One command is killed once or twice, then runs to its end.
try() { # JOB
    local job=$1 code us pid again=1
    rm -rf "$s"
    makes "$job" || cp -r "$TMP/$job-before/." "$s"
    [ "$job" = repair ] && damage "$s"
    command_of "$job" "$s"
    while [ $again = 1 ]; do
        code=0 us=$(((RANDOM * 32768 + RANDOM) % took[$job]))
        "${command[@]}" >"$OUT" 2>"$ERR" &
        pid=$!
        sleep "$((us / 1000000)).$(printf %06d $((us % 1000000)))"
        { kill -9 $pid; wait $pid || code=$?; } 2>/dev/null
        # The duration follows the speed of the machine.
        if [ $code = 0 ]; then took[$job]=$((took[$job] * 3 / 4 + 1000)) ended=$((ended + 1)); break; fi
        [ $code = 137 ] || die_in "$job: exit code $code"
        took[$job]=$((took[$job] * 21 / 20)) killed=$((killed + 1))
        count[$job]=$((${count[$job]:-0} + 1))
        between "$job"
        again=$((RANDOM % 4 == 0))
        # A build that was killed after its commit has nothing to do, and would print that.
        if makes "$job" && "$INDEX" stats --store "$s" >/dev/null 2>&1; then code=0 again=0; fi
    done
    if [ $code != 0 ]; then
        "${command[@]}" >"$OUT" 2>"$ERR" || die_in "$job after a kill"
    fi
    "$INDEX" verify --store "$s" --deep >"$OUT" 2>"$ERR" || die_in "verify --deep after $job"
    export_store "$s" "$s.export"
    cmp -s "$s.export" "$TMP/$job.export" || die_in "$job after a kill: the store differs"
}

# The output of a reader after a kill. While landmarks are damaged, it is an error or wrong hits.
between() { # JOB
    [ "$1" = repair ] && return
    if ! "$INDEX" stats --store "$s" >/dev/null 2>"$ERR"; then
        makes "$1" && tail -n 1 "$ERR" | grep -qE "no contents yet|no store here|nothing is published" && return
        die_in "a reader after a kill during $1"
    fi
    export_store "$s" "$s.export"
    cmp -s "$s.export" "$TMP/$1.export" && return
    ! makes "$1" && cmp -s "$s.export" "$(readlink "$TMP/$1-before" | sed 's/-after$/.export/')" && return
    die_in "after a kill during $1: neither the store before nor after it"
}

work() { # WORKER KILLS
    local wanted=$2
    worker=$1 killed=0 ended=0 s=$TMP/store$1
    OUT=$TMP/.stdout$1 ERR=$TMP/.stderr$1
    RANDOM=$((seed * 7919 + worker * 104729))
    declare -A count
    for ((round = 0; killed < wanted; round++)); do
        [ $ended -lt $((10 * wanted + 20)) ] || die "the commands end before they can be killed"
        try "${jobs[round % ${#jobs[@]}]}"
    done
    echo "worker $worker: $killed kills ($(for job in "${jobs[@]}"; do printf '%s %s, ' "$job" "${count[$job]:-0}"; done)$ended runs ended by themselves)"
}

pids=()
for ((i = 1; i <= workers; i++)); do
    (trap - EXIT; work $i $(((kills + workers - 1) / workers))) &
    pids+=($!)
done
bad=0
for pid in "${pids[@]}"; do wait "$pid" || bad=1; done
[ $bad = 0 ] || exit 1
echo "ok; undisturbed commands took$(for job in "${jobs[@]}"; do printf ' %s %d ms' "$job" $((took[$job] / 1000)); done)"
