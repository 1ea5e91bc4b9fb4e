#!/usr/bin/env bash
# Dies at every pass of every fault point of files, of the catalog and of its own in drt-index index train, fill, merge and all
# steps at once; then the same with a call that fails. Readers see the store before the command or after it, and the
# same command run again ends with the files that were never disturbed.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
needs drt-index-fault
FAULT=$BIN/drt-index-fault
make_model "$TMP/model"
make_corpus "$TMP/a.jsonl" 450 1
make_corpus "$TMP/b.jsonl" 20 2
model=(--model "$TMP/model" --threads 1)
for part in 1 2; do expect 0 "$INDEX" build "$TMP/a.jsonl" --part $part/2 --out "$TMP/parts" "${model[@]}"; done
expect 0 "$INDEX" join "$TMP"/parts/* --out "$TMP/store" --index IVF4,SQ8 --threads 1
W=$TMP/w S=$TMP/s
common=(--store "$S" --work "$W" --threads 1)
command_of() { # NAME: sets `command`, and makes what it begins with
    rm -rf "$S" "$W"
    cp -r "$TMP/store" "$S"
    case $1 in
    train) command=(index train "${common[@]}" --index IVF16_HNSW8,SQ8) ;;
    fill)
        cp -r "$TMP/trained" "$W"
        command=(index fill "${common[@]}" --part 2/2) ;;
    merge)
        cp -r "$TMP/filled" "$W"
        command=(index merge "${common[@]}") ;;
    added) # with chunks that no part has
        rm -rf "$S"
        cp -r "$TMP/more" "$S"
        cp -r "$TMP/filled" "$W"
        command=(index merge "${common[@]}") ;;
    all) command=(index "${common[@]}" --index IVF16_HNSW8,SQ8) ;;
    esac
}
files() { (cd "$1" 2>/dev/null && find . -type f ! -name '*.lock' ! -name '*.tmp' -exec md5sum {} + | sort -k 2); }
result() { # files of the index and of the work folder; repair removes the old index, which no record names any more
    "$INDEX" repair --store "$S" --threads 1 >/dev/null 2>"$ERR" || die "repair"
    files "$S/index"
    files "$W"
}
command_of train
expect 0 "$INDEX" "${command[@]}"
cp -r "$W" "$TMP/trained"
expect 0 "$INDEX" index fill "${common[@]}" --part 1/2
cp -r "$W" "$TMP/trained-1" # fill begins with the other part done
expect 0 "$INDEX" index fill "${common[@]}" --part 2/2
cp -r "$W" "$TMP/filled"
rm -rf "$TMP/trained"; mv "$TMP/trained-1" "$TMP/trained"
cp -r "$TMP/store" "$TMP/more"
expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/more" "${model[@]}"
[ "$(find "$TMP/filled" -name '*.lists' | wc -l)" = 2 ] || die "not two parts"

describe() { # the index of a store that opens, or nothing
    "$INDEX" stats --store "$1" --json 2>/dev/null | grep -oE '"(generation|index|segments|chunks)":[^,]*' | tr '\n' ' '
}
jobs=(train fill merge added all)
for job in "${jobs[@]}"; do
    command_of $job
    describe "$S" >"$TMP/$job.before"
    expect 0 "$INDEX" "${command[@]}"
    describe "$S" >"$TMP/$job.after"
    result >"$TMP/$job.files"
done
for job in merge added all; do cmp -s "$TMP/$job.before" "$TMP/$job.after" && die "$job changed nothing"; done

begin() { # JOB
    command_of "$1"
    command=("$FAULT" "${command[@]}")
}
try() { # MODE PASS POINT JOB. Sets `passed` to 1 when the command has no such pass.
    local what="$4 at pass $2 of $3 ($1)"
    begin "$4"
    faulty $1 $2:$3 "${command[@]}"
    [ $passed = 0 ] || return 0
    tried=$((tried + 1))
    describe "$S" >"$TMP/.now"
    cmp -s "$TMP/.now" "$TMP/$4.before" || cmp -s "$TMP/.now" "$TMP/$4.after" || die "$what: neither the store before nor after it"
    expect 0 "$INDEX" verify --store "$S" --deep
    expect 0 "$INDEX" "${command[@]:1}"
    describe "$S" >"$TMP/.now"
    cmp -s "$TMP/.now" "$TMP/$4.after" || die "$what: the same command did not end"
    result >"$TMP/.now"
    cmp -s "$TMP/.now" "$TMP/$4.files" || die "$what: other files: $(diff "$TMP/.now" "$TMP/$4.files" | head -n 4)"
    expect 0 "$INDEX" verify --store "$S" --deep
}

names=$(cd "$SOURCE" && grep -rhoE 'fault_point\("[^"]+"' base store | sed 's/.*"\(.*\)"/\1/' | sort -u | grep -vE 'memory|store:(join|freeze|delete|drop|update|part:|lexical|compact|seal|shard|create|repair|reencode|merge:)')
tried=0
for job in "${jobs[@]}"; do each_fault_point 8 "$job" "$names"; done
for name in template-written plan-written lists-written run-written template-taken segment-copied segment-written published; do
    grep -qx "store:parts:$name" <<<"$names" || die "no fault point $name"
    command_of all
    code=0
    { DRT_FAULT=kill:1:store:parts:$name "$FAULT" "${command[@]}" >"$OUT" 2>"$ERR" || code=$?; } 2>/dev/null
    [ $code = 137 ] || die "$name did not fire: exit code $code"
done
echo "ok; $tried faults"
