#!/usr/bin/env bash
# Kills join (by links and by copies), delete and freeze at every pass of every fault point of files and of the catalog; then the same with
# a call that fails. Readers see the store before the command or after it, the same command run again makes the store of an uninterrupted
# run, and the parts do not change.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
needs drt-index-fault
FAULT=$(program_of_type "$BIN/drt-index-fault")
make_model "$TMP/model"
make_corpus "$TMP/a.jsonl" 12 1
make_corpus "$TMP/b.jsonl" 6 2
for part in 1 2; do
    expect 0 "$INDEX" build "$TMP/a.jsonl" "$TMP/b.jsonl" --part $part/2 --out "$TMP/parts" --model "$TMP/model" --shard-chunks 40 --threads 1
    export_store "$TMP/parts/part-$part-of-2" "$TMP/part$part.export"
done

command_of() { # NAME STORE: sets `command`
    case $1 in
    join) command=(join "$TMP"/parts/* --out "$2" --threads 1) ;;
    copy) command=(join "$TMP"/parts/* --out "$2" --threads 1 --copy) ;;
    freeze) command=(freeze --store "$TMP/delete" --out "$2") ;;
    delete) command=(delete --store "$2" --source "*/b.jsonl") ;;
    esac
}
for job in join copy delete freeze; do
    [ $job != delete ] || cp -r "$TMP/join" "$TMP/delete"
    command_of $job "$TMP/$job"
    expect 0 "$INDEX" "${command[@]}"
    export_store "$TMP/$job" "$TMP/$job.export"
done
cmp -s "$TMP/join.export" "$TMP/copy.export" || die "copies make another store than links"
cmp -s "$TMP/join.export" "$TMP/delete.export" && die "delete changed nothing"
cmp -s "$TMP/freeze.export" "$TMP/delete.export" || die "a snapshot differs from its store"

equals() { export_store "$1" "$TMP/.now"; cmp -s "$TMP/.now" "$2"; }

begin() { # JOB
    rm -rf "$TMP/s" "$TMP/s.partial"
    [ "$1" != delete ] || cp -r "$TMP/join" "$TMP/s"
    command_of "$1" "$TMP/s"
    command=("$FAULT" "${command[@]}")
}
# One pass of one fault point. Sets `passed` to 1 if the command has no such pass.
try() { # MODE PASS POINT JOB
    local what="$4 at pass $2 of $3 ($1)"
    begin "$4"
    faulty $1 $2:$3 "${command[@]}"
    [ $passed = 0 ] || return 0
    tried=$((tried + 1))
    if "$INDEX" stats --store "$TMP/s" >/dev/null 2>"$ERR"; then
        equals "$TMP/s" "$TMP/$4.export" || { [ "$4" = delete ] && equals "$TMP/s" "$TMP/join.export"; } ||
            die "$what: neither the store before nor after it"
    else
        [ "$4" != delete ] || die "$what: the store does not open"
        tail -n 1 "$ERR" | grep -qE "no contents yet|no store here|nothing is published" || die "$what: a reader sees something else"
    fi
    expect 0 "$INDEX" "${command[@]:1}"
    equals "$TMP/s" "$TMP/$4.export" || die "$what: the store of the second call differs"
    [ ! -e "$TMP/s.partial" ] || die "$what: s.partial is left"
    expect 0 "$INDEX" verify --store "$TMP/s" --deep
}

names=$(cd "$SOURCE" && grep -rhoE 'fault_point\("[^"]+"' base store | sed 's/.*"\(.*\)"/\1/' | sort -u | grep -v memory)
tried=0
for job in join copy delete freeze; do each_fault_point 6 $job "$names"; done
for name in store:join:begun store:join:tokens-taken store:join:files-taken store:join:before-commit store:join:committed \
    store:join:hashes-before-commit store:join:hashes-committed; do
    grep -qx "$name" <<<"$names" || die "no fault point $name"
    code=0
    { DRT_FAULT=kill:1:$name "$FAULT" join "$TMP"/parts/* --out "$TMP/s-$name" --threads 1 >"$OUT" 2>"$ERR" || code=$?; } 2>/dev/null
    [ $code = 137 ] || die "$name did not fire: exit code $code"
done
for name in store:freeze:begun store:freeze:shards-taken store:freeze:catalog-copied store:freeze:before-rename; do
    code=0
    { DRT_FAULT=kill:1:$name "$FAULT" freeze --store "$TMP/join" --out "$TMP/s-$name" >"$OUT" 2>"$ERR" || code=$?; } 2>/dev/null
    [ $code = 137 ] || die "$name did not fire: exit code $code"
    [ ! -e "$TMP/s-$name" ] || die "$name: a snapshot is there before its end"
done
for part in 1 2; do
    equals "$TMP/parts/part-$part-of-2" "$TMP/part$part.export" || die "part $part was changed"
    expect 0 "$INDEX" verify --store "$TMP/parts/part-$part-of-2" --deep
done
echo "ok; $tried faults"
