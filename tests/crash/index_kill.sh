#!/usr/bin/env bash
# kill -9 at random times during build, then during add: each time the store verifies, readers see the old generation
# or the new one and nothing between, and in the end it equals the store that was never disturbed.
#
#   index_kill.sh [KILLS [SEED]]        10 kills by default; 50 for the long run
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
kills=${1:-10}
RANDOM=${2:-7}
make_model "$TMP/model"
make_corpus "$TMP/a.jsonl" 1500 1
make_corpus "$TMP/b.jsonl" 1500 2
options=(--model "$TMP/model" --shard-chunks 250 --index IVF8,SQ8 --threads 1)

now_ms() { echo $(($(date +%s%N) / 1000000)); }
start=$(now_ms)
"$INDEX" build "$TMP/a.jsonl" --out "$TMP/whole" "${options[@]}" >/dev/null 2>"$ERR" || die "the undisturbed build"
build_ms=$(($(now_ms) - start))
cp -r "$TMP/whole" "$TMP/whole-a"
start=$(now_ms)
"$INDEX" add "$TMP/b.jsonl" --store "$TMP/whole" "${options[@]}" >/dev/null 2>"$ERR" || die "the undisturbed add"
add_ms=$(($(now_ms) - start))
export_store "$TMP/whole-a" "$TMP/whole-a.export"

# One run of the command, killed after a random time. 0: it ended by itself.
killed=0 ended=0
run_and_kill() { # milliseconds, command...
    local ms=$1 pid code=0
    shift
    "$@" >/dev/null 2>"$ERR" &
    pid=$!
    sleep "$(awk -v ms="$ms" 'BEGIN { printf "%.3f", ms / 1000 }')"
    kill -9 "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null || code=$?
    if [ $code = 137 ]; then killed=$((killed + 1)); return 1; fi
    [ $code = 0 ] || die "exit code $code: $*"
    ended=$((ended + 1))
}

# Nothing is published by a build that did not end; what is on disk is sound all the same.
check_unfinished() {
    if "$INDEX" stats --store "$1" --json >"$OUT" 2>"$ERR"; then
        same_store "$1" "$2"
    else
        [ $? = 1 ] || die "stats after a kill"
    fi
    [ ! -e "$1/catalog/data.mdb" ] && return
    "$INDEX" verify --store "$1" --deep >"$OUT" 2>"$ERR" || tail -n 1 "$ERR" | grep -qE "no contents yet|no store here" || die "verify after kill $killed"
}

store=0
while [ $killed -lt $((kills / 2)) ]; do
    store=$((store + 1))
    [ $store -lt 200 ] || die "the builds end before they can be killed"
    until run_and_kill $((RANDOM % (build_ms + 1))) "$INDEX" build "$TMP/a.jsonl" --out "$TMP/s$store" "${options[@]}"; do
        check_unfinished "$TMP/s$store" "$TMP/whole-a"
        # Killed after the commit: the command was complete, and reports so when it is run again.
        "$INDEX" stats --store "$TMP/s$store" >/dev/null 2>&1 && break
        [ $killed -lt $((kills / 2)) ] || { "$INDEX" build "$TMP/a.jsonl" --out "$TMP/s$store" "${options[@]}" >/dev/null 2>"$ERR" || die "the last build"; break; }
    done
    same_store "$TMP/s$store" "$TMP/whole-a"
    rm -rf "$TMP/s$store"
done
builds=$killed

while [ $killed -lt "$kills" ]; do
    store=$((store + 1))
    [ $store -lt 400 ] || die "the adds end before they can be killed"
    cp -r "$TMP/whole-a" "$TMP/s$store"
    until run_and_kill $((RANDOM % (add_ms + 1))) "$INDEX" add "$TMP/b.jsonl" --store "$TMP/s$store" "${options[@]}"; do
        "$INDEX" verify --store "$TMP/s$store" --deep >"$OUT" 2>"$ERR" || die "verify after kill $killed"
        "$INDEX" stats --store "$TMP/s$store" --json >"$OUT" 2>"$ERR" || die "stats after kill $killed"
        if [ "$(json_int "$OUT" generation)" = 1 ]; then
            export_store "$TMP/s$store" "$TMP/.now"
            cmp -s "$TMP/.now" "$TMP/whole-a.export" || die "generation 1 changed after kill $killed"
        else
            same_store "$TMP/s$store" "$TMP/whole"
            break
        fi
        [ $killed -lt $kills ] || { "$INDEX" add "$TMP/b.jsonl" --store "$TMP/s$store" "${options[@]}" >/dev/null 2>"$ERR" || die "the last add"; break; }
    done
    same_store "$TMP/s$store" "$TMP/whole"
    rm -rf "$TMP/s$store"
done
echo "ok: $builds kills during build ($build_ms ms undisturbed), $((killed - builds)) during add ($add_ms ms), $ended runs ended by themselves"
