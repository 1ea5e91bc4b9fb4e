#!/usr/bin/env bash
# Kills an update at the first passes of every fault point; then the same with a call that fails. Readers see all old documents or all new
# ones, verify --deep finds no problem, and the same command run again makes the store of an uninterrupted run. An unfinished update can be
# dropped, and an add does not continue it.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
needs drt-index-fault
FAULT=$(program_of_type "$BIN/drt-index-fault")
make_model "$TMP/model"
make_corpus "$TMP/a.jsonl" 24 1
make_corpus "$TMP/b.jsonl" 30 2
# In the new corpus every fourth document is unchanged, doc-1 and doc-2 exchange their texts, and six are new.
awk -v old="$TMP/a.jsonl" 'BEGIN { while ((getline line < old) > 0) was[++n] = line }
    FNR == 2 || FNR == 3 { line = was[5 - FNR]; sub(/doc-[0-9]+/, "doc-" (FNR - 1), line); print line; next }
    FNR <= n && FNR % 4 == 0 { print was[FNR]; next } { print }' "$TMP/b.jsonl" >"$TMP/c.jsonl"
options=(--model "$TMP/model" --shard-chunks 20 --threads 1)
expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$TMP/before" --index IVF2,SQ8 "${options[@]}"
update=(update "$TMP/c.jsonl" --source "$TMP/a.jsonl" "${options[@]}")
cp -r "$TMP/before" "$TMP/after"
expect 0 "$INDEX" "${update[@]}" --store "$TMP/after" --json
[ "$(json_int "$OUT" replaced_documents)" -ge 10 ] && [ "$(json_int "$OUT" unchanged)" -ge 3 ] || die "the update changes little"
export_store "$TMP/before" "$TMP/before.export"
export_store "$TMP/after" "$TMP/after.export"
expect 0 "$INDEX" verify --store "$TMP/after" --deep

equals() { export_store "$1" "$TMP/.now"; cmp -s "$TMP/.now" "$2"; }

begin() {
    rm -rf "$TMP/s"
    cp -r "$TMP/before" "$TMP/s"
    command=("$FAULT" "${update[@]}" --store "$TMP/s")
}
# One pass of one fault point. Sets `passed` to 1 if the command has no such pass.
try() { # MODE PASS POINT
    local what="update at pass $2 of $3 ($1)"
    begin
    faulty $1 $2:$3 "${command[@]}"
    [ $passed = 0 ] || return 0
    tried=$((tried + 1))
    expect 0 "$INDEX" verify --store "$TMP/s" --deep
    if equals "$TMP/s" "$TMP/after.export"; then return 0; fi
    equals "$TMP/s" "$TMP/before.export" || die "$what: neither the old documents nor the new ones"
    if [ $((tried % 4)) = 0 ]; then
        # Dropped instead of continued: the hashes of the old documents are unchanged, so none of them is added again.
        expect 0 "$INDEX" add "$TMP/a.jsonl" --store "$TMP/s" "${options[@]}" --restart --json
        same 0 "$(json_int "$OUT" chunks)" "$what: chunks that an add finds new"
        expect 0 "$INDEX" verify --store "$TMP/s" --deep
        equals "$TMP/s" "$TMP/before.export" || die "$what: dropping it changed the store"
    fi
    expect 0 "$INDEX" "${update[@]}" --store "$TMP/s"
    equals "$TMP/s" "$TMP/after.export" || die "$what: the store of the second call differs"
    expect 0 "$INDEX" verify --store "$TMP/s" --deep
}

names=$(cd "$SOURCE" && grep -rhoE 'fault_point\("[^"]+"' base store data indexer | sed 's/.*"\(.*\)"/\1/' | sort -u | grep -v memory)
tried=0
each_fault_point 40 update "$names"

# Killed after two shards: the commands that may continue it, and those that may not.
rm -rf "$TMP/s"
cp -r "$TMP/before" "$TMP/s"
code=0
{ DRT_FAULT=kill:2:store:seal:committed "$FAULT" "${update[@]}" --store "$TMP/s" >"$OUT" 2>"$ERR" || code=$?; } 2>/dev/null
same 137 $code "killed after two shards"
expect_error "one of add and update was" "$INDEX" add "$TMP/c.jsonl" --store "$TMP/s" "${options[@]}"
expect_error "one of add and update was" "$INDEX" update "$TMP/c.jsonl" --store "$TMP/s" "${options[@]}"
cp -r "$TMP/s" "$TMP/t"
expect 0 "$INDEX" repair --store "$TMP/t" --threads 1
expect 0 "$INDEX" verify --store "$TMP/t" --deep
expect 0 "$INDEX" delete --store "$TMP/t" --document 4
expect 0 "$INDEX" verify --store "$TMP/t" --deep
# The store changed, so there is another plan: nothing can continue the old one.
expect_error "one of add and update was" "$INDEX" add "$TMP/c.jsonl" --store "$TMP/t" "${options[@]}"
expect_error "one of add and update was" "$INDEX" update "$TMP/c.jsonl" --store "$TMP/t" "${options[@]}"
cp -r "$TMP/t" "$TMP/u"
expect 0 "$INDEX" "${update[@]}" --store "$TMP/t" --json
err_has "the store changed after this update was begun"
same 0 "$(json_int "$OUT" resumed_chunks)" "chunks of the plan before"
expect 0 "$INDEX" verify --store "$TMP/t" --deep
expect 0 "$INDEX" "${update[@]}" --store "$TMP/u" --restart
export_store "$TMP/u" "$TMP/u.export"
equals "$TMP/t" "$TMP/u.export" || die "an update of a changed store begins with something of the old plan"
expect 0 "$INDEX" lexical --remove --store "$TMP/s"
rm -rf "$TMP/u"
cp -r "$TMP/s" "$TMP/u"
expect 0 "$INDEX" "${update[@]}" --store "$TMP/u" # another generation with the same documents
equals "$TMP/u" "$TMP/after.export" || die "an update of a store without its lexical index"
rm -rf "$TMP/s"
cp -r "$TMP/before" "$TMP/s"
{ DRT_FAULT=kill:2:store:seal:committed "$FAULT" "${update[@]}" --store "$TMP/s" >"$OUT" 2>"$ERR" || code=$?; } 2>/dev/null
expect 0 "$INDEX" "${update[@]}" --store "$TMP/s" --json
[ "$(json_int "$OUT" resumed_chunks)" -ge 40 ] || die "the update began anew"
equals "$TMP/s" "$TMP/after.export" || die "the continued store differs"
echo "ok; $tried faults"
