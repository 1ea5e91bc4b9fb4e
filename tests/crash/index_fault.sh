#!/usr/bin/env bash
# Kills a small build and an add at every fault point (of allocations: at some). After each kill the store verifies, readers see the old
# generation or the new one, and the same command run again makes the store of an uninterrupted run. Then the same with a call that fails
# instead of a kill: one line, exit code 1.
#
#   index_fault.sh [STRIDE]     of the passes of one name every STRIDEth is tried (default 15; 1: all)
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
needs drt-index-fault
FAULT=$(program_of_type "$BIN/drt-index-fault")
make_model "$TMP/model"
make_corpus "$TMP/a.jsonl" 40 1
make_corpus "$TMP/b.jsonl" 20 2
# Additions may merge shards up to 200 chunks, so the shards of the build are also merged.
# With two threads a build makes the lexical index beside the encoding.
options=(--model "$TMP/model" --shard-chunks 40 --threads 2)
add_options=(--model "$TMP/model" --shard-chunks 200 --threads 1)
expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$TMP/whole-a" "${options[@]}"
cp -r "$TMP/whole-a" "$TMP/whole-b"
expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/whole-b" "${add_options[@]}"
export_store "$TMP/whole-a" "$TMP/a.export"
export_store "$TMP/whole-b" "$TMP/b.export"

equals() { export_store "$1" "$TMP/.now"; cmp -s "$TMP/.now" "$2"; }
sound() { # STORE WHAT: verify --deep finds nothing, or there is no store yet
    [ -e "$1/catalog/data.mdb" ] || return 0
    "$INDEX" verify --store "$1" --deep >"$OUT" 2>"$ERR" && return
    tail -n 1 "$ERR" | grep -qE "no contents yet|no store here" || die "verify after $2"
}

begin() { # build or add
    rm -rf "$TMP/s"
    case $1 in
    build) command=("$FAULT" build "$TMP/a.jsonl" --out "$TMP/s" "${options[@]}") ;;
    add)
        cp -r "$TMP/whole-a" "$TMP/s"
        command=("$FAULT" add "$TMP/b.jsonl" --store "$TMP/s" "${add_options[@]}") ;;
    esac
}
# One fault point of one command. $1 kill or fail, $2 number of the pass, $3 its name, $4 build or add. Sets `passed` if the command ends as
# without a fault.
try() {
    local what="$4 at fault point $2 of $3 ($1)" want=$TMP/a.export
    begin "$4"
    faulty $1 $2:$3 "${command[@]}"
    sound "$TMP/s" "$what"
    if [ "$4" = add ]; then
        want=$TMP/b.export
        if equals "$TMP/s" "$want"; then return; fi
        cmp -s "$TMP/.now" "$TMP/a.export" || die "$what: neither the old generation nor the new one"
    elif "$INDEX" stats --store "$TMP/s" >/dev/null 2>&1 && equals "$TMP/s" "$want"; then
        return
    fi
    expect 0 "$INDEX" "${command[@]:1}"
    equals "$TMP/s" "$want" || die "$what: the resumed store differs"
}

names=$(cd "$SOURCE" && grep -rhoE 'fault_point\("[^"]+"' base store data indexer | sed 's/.*"\(.*\)"/\1/' | sort -u)
[ "$(wc -w <<<"$names")" -gt 10 ] || die "few fault points: $names"
stride=${1:-15}
tried=0 unreached=""
for job in build add; do
    begin $job
    count_passes "${command[@]}"
    for name in $names; do
        step=$stride
        [ "$name" = memory:allocate ] && step=$((stride * 40 + 1))
        for mode in kill fail; do
            for ((i = 1; i <= ${passes[$name]:-0}; i += step)); do
                try $mode $i "$name" $job
                tried=$((tried + 1 - passed))
            done
        done
        [ -n "${passes[$name]:-}" ] || unreached="$unreached $job/$name"
    done
done
[ $tried -ge 80 ] || [ $stride -gt 15 ] || die "only $tried fault points fired"
echo "ok: $tried points tried; not reached by these commands:$(tr ' ' '\n' <<<"$unreached" | sort -u | tr '\n' ' ')"
