#!/usr/bin/env bash
# The lexical index under faults and kill -9: it is made in a store without one, made again after an addition and a drop, and removed. After
# each interruption verify --deep finds no problem, and a search by words gives the hits of the old generation or of the new one. Then the
# same command runs to its end, with the files of an uninterrupted run.
#
#   index_lexical.sh [KILLS [SEED]]        12 kills, seed 5 by default; 500 for the long run
[ -w /dev/shm ] && export DRT_TEST_TMP=/dev/shm
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
needs drt-index-fault
kills=${1:-12}
RANDOM=${2:-5}
make_model "$TMP/model"
make_corpus "$TMP/a.jsonl" 60 1
make_corpus "$TMP/b.jsonl" 40 2
small=(--model "$TMP/model" --shard-chunks 40 --threads 1)

command_of() { # PROGRAM JOB STORE: sets `command`
    case $2 in
    make) command=("$1" lexical --store "$3") ;;
    add) command=("$1" add "$TMP/b.jsonl" --store "$3" "${small[@]}") ;;
    drop) command=("$1" drop --store "$3" --shard 1 --threads 1) ;;
    remove) command=("$1" lexical --store "$3" --remove) ;;
    esac
}
jobs=(make add drop remove)

# The output of a reader of the lexical index: hits of a search by words, or the message that there is no index.
hits() { # STORE FILE
    if ! "$INDEX" search "stone river harbour under seven lights" --store "$1" --model "$TMP/model" --k 12 --json \
        --searcher lexical >"$2" 2>"$ERR"; then
        grep -q "the store has no lexical index" "$ERR" || die "a search by words in $1"
        echo none >"$2"
    fi
}
files() { # STORE: bytes of the lexical index that its catalog names
    "$INDEX" stats --store "$1" --json >"$OUT" 2>"$ERR" || die "stats of $1"
    grep -o '"lexical[a-z_]*":[a-z0-9]*' "$OUT"
}

# Without kills: the store before and after each job, and its duration.
"$INDEX" build "$TMP/a.jsonl" --out "$TMP/make-before" --lexical off "${small[@]}" >"$OUT" 2>"$ERR" || die "build"
declare -A took
before=$TMP/make-before
for job in "${jobs[@]}"; do
    [ -e "$TMP/$job-before" ] || ln -s "$before" "$TMP/$job-before"
    cp -r "$before" "$TMP/$job-after"
    command_of "$INDEX" "$job" "$TMP/$job-after"
    start=$(date +%s%N)
    "${command[@]}" >"$OUT" 2>"$ERR" || die "$job, undisturbed"
    took[$job]=$((($(date +%s%N) - start) / 1000))
    hits "$TMP/$job-before" "$TMP/$job.before"
    hits "$TMP/$job-after" "$TMP/$job.after"
    files "$TMP/$job-after" >"$TMP/$job.files"
    cmp -s "$TMP/$job.before" "$TMP/$job.after" && die "$job changes no hit"
    before=$TMP/$job-after
done

# Checks after an interrupted run: $1 job, $2 the interruption. Then runs the job again.
check() {
    local s=$TMP/s
    "$INDEX" verify --store "$s" --deep >"$OUT" 2>"$ERR" || die "verify after $2 of $1"
    hits "$s" "$TMP/now"
    if cmp -s "$TMP/now" "$TMP/$1.before"; then
        command_of "$INDEX" "$1" "$s"
        "${command[@]}" >"$OUT" 2>"$ERR" || die "$1 again after $2"
        hits "$s" "$TMP/now"
    fi
    cmp -s "$TMP/now" "$TMP/$1.after" || die "$1 after $2: hits of neither generation"
    "$INDEX" verify --store "$s" --deep >"$OUT" 2>"$ERR" || die "verify at the end of $1 after $2"
    [ "$(files "$s")" = "$(cat "$TMP/$1.files")" ] || die "$1 after $2: another index"
}
fresh() { rm -rf "$TMP/s"; cp -r "$TMP/$1-before/." "$TMP/s"; }

# ---- each fault point of these jobs: the process is killed there, or the call fails.
points="store:lexical:segment-written store:lexical:before-commit store:lexical:committed catalog:commit:before-record
file:write file:before-sync file:before-rename file:before-directory-sync memory:allocate"
tried=0
for job in make drop remove; do
    for point in $points; do
        step=4
        [ $point = memory:allocate ] && step=97
        for mode in kill fail; do
            for ((i = 1; ; i += step)); do
                fresh $job
                command_of "$BIN/drt-index-fault" $job "$TMP/s"
                faulty $mode $i:$point "${command[@]}"
                [ $passed = 0 ] || break
                check $job "$mode at $i of $point"
                tried=$((tried + 1))
            done
        done
    done
done
[ $tried -gt 30 ] || die "only $tried fault points were tried"

# ---- kill -9 at random times
killed=0 ended=0
for ((round = 0; killed < kills; round++)); do
    job=${jobs[round % ${#jobs[@]}]}
    [ $ended -lt $((10 * kills + 20)) ] || die "the commands end before they can be killed"
    fresh $job
    command_of "$INDEX" $job "$TMP/s"
    us=$(((RANDOM * 32768 + RANDOM) % took[$job])) code=0
    "${command[@]}" >"$OUT" 2>"$ERR" &
    pid=$!
    sleep "$((us / 1000000)).$(printf %06d $((us % 1000000)))"
    { kill -9 $pid; wait $pid || code=$?; } 2>/dev/null
    case $code in
    137) killed=$((killed + 1)) took[$job]=$((took[$job] * 21 / 20)) ;;
    0) ended=$((ended + 1)) took[$job]=$((took[$job] * 3 / 4 + 1000)) ;;
    *) die "$job: exit code $code" ;;
    esac
    check $job "kill -9 after $us us"
done
echo "ok: $tried fault points, $killed kills ($ended runs ended before)"
