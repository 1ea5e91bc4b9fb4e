#!/usr/bin/env bash
# drt-index delete by number, key and source: deleted documents are in no result of any program, other ids do not change, and the text can be added again; exact and
# with an index; verify, repair, join and later adds agree.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
make_model "$TMP/model"
make_corpus "$TMP/a.jsonl" 120 1
make_corpus "$TMP/b.jsonl" 60 2
model=(--model "$TMP/model" --threads 1)
search() { "$INDEX" search "the river and the harbour" --store "$1" --model "$TMP/model" --k "$2" "${@:3}" --json 2>"$ERR" || die "search in $1"; }
documents_of() { grep -oE '"document":[0-9]+' | cut -d: -f2; }

for index in exact IVF4,SQ8; do
    rm -rf "$TMP/store"
    expect 0 "$INDEX" build "$TMP/a.jsonl" "$TMP/b.jsonl" --out "$TMP/store" --index $index --shard-chunks 40 "${model[@]}"
    "$INDEX" export --store "$TMP/store" >"$TMP/before" 2>"$ERR" || die "export"
    chunks=$(wc -l <"$TMP/before")
    search "$TMP/store" 12 >"$TMP/found"
    mapfile -t gone < <(documents_of <"$TMP/found" | sort -nu | head -n 3)
    [ ${#gone[@]} = 3 ] || die "the search finds less than three documents"

    # A dry run names them and changes nothing.
    expect 0 "$INDEX" delete --store "$TMP/store" --document "${gone[0]}" --document "${gone[1]}" --document "${gone[2]}" --document "${gone[0]}" --dry-run --json
    [ "$(wc -l <"$OUT")" = 3 ] || die "a dry run names each document once"
    err_has "would delete 3 documents"
    search "$TMP/store" 12 | cmp -s - "$TMP/found" || die "a dry run changed the store"

    expect 0 "$INDEX" delete --store "$TMP/store" --document "${gone[0]}" --document "${gone[1]}" --document "${gone[2]}"
    out_has "generation 2: deleted 3 documents"
    pattern=$(printf '"document":%s,|' "${gone[@]}")
    for k in 1 12 5000; do
        search "$TMP/store" $k --nprobe 4 >"$TMP/after"
        ! grep -qE "${pattern%|}" "$TMP/after" || die "$index: a deleted document was found with k $k"
    done
    for how in lexical hybrid; do
        search "$TMP/store" 40 --searcher $how >"$TMP/words"
        [ -s "$TMP/words" ] || die "$index: searcher $how finds nothing"
        ! grep -qE "${pattern%|}" "$TMP/words" || die "$index: searcher $how found a deleted document"
    done
    "$INDEX" export --store "$TMP/store" >"$TMP/left" 2>"$ERR" || die "export"
    grep -vE "${pattern%|}" "$TMP/before" | cmp -s - "$TMP/left" || die "$index: other chunks than those of the documents left"
    # exactly the remaining documents are found
    [ "$(wc -l <"$TMP/after")" = "$(wc -l <"$TMP/left")" ] || die "$index: k 5000 found $(wc -l <"$TMP/after") of $(wc -l <"$TMP/left")"
    chunk=$(grep -m1 -E "\"document\":${gone[1]}," "$TMP/before" | grep -oE '"chunk":[0-9]+' | cut -d: -f2)
    expect_error "was deleted" "$INDEX" get --store "$TMP/store" --model "$TMP/model" --chunk "$chunk"
    expect_error "was deleted" "$INDEX" get --store "$TMP/store" --model "$TMP/model" --document "${gone[1]}"
    expect 0 "$INDEX" verify --store "$TMP/store" --deep
    expect 0 "$INDEX" stats --store "$TMP/store" --json
    out_has '"deleted_documents":3'

    # Compacted: the same documents, landmarks and hits under new ids without gaps; more documents can be added.
    contents() { "$INDEX" export --store "$1" 2>"$ERR" | sed -E 's/"(chunk|document)":[0-9]+,//g'; search "$1" 9 | sed -E 's/"(chunk|document)":[0-9]+,//g'; }
    rm -rf "$TMP/new"
    expect 0 "$INDEX" compact --store "$TMP/store" --out "$TMP/new" --shard-chunks 50 --threads 1
    contents "$TMP/store" >"$TMP/c1"
    contents "$TMP/new" >"$TMP/c2"
    cmp -s "$TMP/c1" "$TMP/c2" || die "$index: compact changes documents, landmarks or hits"
    expect 0 "$INDEX" verify --store "$TMP/new" --deep
    expect 0 "$INDEX" stats --store "$TMP/new" --json
    out_has '"deleted_documents":0'
    expect 0 "$INDEX" compact --store "$TMP/store" --out "$TMP/new" --shard-chunks 50 --threads 1
    contents "$TMP/new" | cmp -s - "$TMP/c1" || die "$index: a second compact changes the store"
    expect 0 "$INDEX" compact --store "$TMP/store" --out "$TMP/new" --shard-chunks 50 --threads 1
    out_has "made before"
    expect 0 "$INDEX" add "$TMP/a.jsonl" --store "$TMP/new" "${model[@]}"
    expect 0 "$INDEX" verify --store "$TMP/new" --deep
    expect_error "store/.: is read, and the output would replace it" "$INDEX" compact --store "$TMP/store" --out "$TMP/store/."
    expect_error "holds another store" "$INDEX" compact --store "$TMP/store" --out "$TMP/new"

    # A second call has nothing to do and keeps the generation. Numbers that do not exist are errors that name them.
    expect 0 "$INDEX" delete --store "$TMP/store" --document "${gone[2]}"
    err_has "was deleted before"
    out_has "generation 2: deleted 0 documents"
    expect 0 "$INDEX" delete --store "$TMP/store" --source 'no-such-*'
    err_has "no document that is left has a matching source"
    out_has "deleted 0 documents"
    expect_error "there is no document 100000" "$INDEX" delete --store "$TMP/store" --document 100000

    # The text is added again under new ids; another deletion in between; merged shards; a rebuilt index.
    expect 0 "$INDEX" add "$TMP/a.jsonl" "$TMP/b.jsonl" --store "$TMP/store" "${model[@]}"
    search "$TMP/store" 12 | grep -oE '"score":[-0-9.]+' >"$TMP/scores"
    grep -oE '"score":[-0-9.]+' "$TMP/found" | cmp -s - "$TMP/scores" || die "$index: the text that came again is not found"
    expect 0 "$INDEX" repair --store "$TMP/store" --threads 1
    expect 0 "$INDEX" verify --store "$TMP/store" --deep
    ! search "$TMP/store" 5000 | grep -qE "${pattern%|}" || die "$index: repair made a deleted document visible"

    # By key, and only in one of two sources.
    key=$("$INDEX" export --store "$TMP/store" 2>"$ERR" | grep -m1 "b.jsonl" | grep -oE '"key":"[^"]+"' | cut -d'"' -f4)
    [ -n "$key" ] || die "the documents of b.jsonl have no key"
    expect 0 "$INDEX" delete --store "$TMP/store" --key "$key" --source "*/a.jsonl" --key "${key}0" --dry-run
    ! grep -q "b.jsonl" "$OUT" || die "--source does not limit --key"
    expect 0 "$INDEX" delete --store "$TMP/store" --key "$key" --source "*/b.jsonl"
    out_has "deleted 1 documents"
    ! "$INDEX" export --store "$TMP/store" 2>"$ERR" | grep "b.jsonl" | grep -qF "\"key\":\"$key\"" || die "the document of a deleted key is left"
    expect 0 "$INDEX" delete --store "$TMP/store" --key no-such-key
    err_has "no document that is left has a matching key"

    # By source, until no document of it is left.
    expect 0 "$INDEX" delete --store "$TMP/store" --source "*/b.jsonl"
    ! search "$TMP/store" 5000 | grep -q "b.jsonl" || die "$index: a document of a deleted source was found"
    "$INDEX" export --store "$TMP/store" 2>"$ERR" | grep -q "a.jsonl" || die "the other source is gone, too"
    expect 0 "$INDEX" verify --store "$TMP/store" --deep
done

# A resumed build finds the text of a deleted document; a store whose documents are all deleted still works.
expect 0 "$INDEX" delete --store "$TMP/store" --source "*"
expect 0 "$INDEX" verify --store "$TMP/store" --deep
expect_error "$TMP/store: all of its chunks were dropped or deleted" "$INDEX" recall --store "$TMP/store"
expect_error "no document left" "$INDEX" compact --store "$TMP/store" --out "$TMP/none"
expect 0 "$INDEX" search "the river" --store "$TMP/store" --model "$TMP/model"
[ ! -s "$OUT" ] || ! grep -q "score" "$OUT" || die "something is found in an empty store"
expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/store" "${model[@]}"
search "$TMP/store" 3 | grep -q "b.jsonl" || die "nothing is found of what was added"

# The record of the commit cannot be written after the commit: the error says that the documents are deleted, and the next command writes it.
mkdir "$TMP/store/catalog/commit.tmp"
last=$("$INDEX" export --store "$TMP/store" 2>/dev/null | documents_of | tail -n 1)
expect_error "the change itself is made" "$INDEX" delete --store "$TMP/store" --document "$last"
expect_error "was deleted" "$INDEX" get --store "$TMP/store" --model "$TMP/model" --document "$last"
rmdir "$TMP/store/catalog/commit.tmp"
expect 0 "$INDEX" delete --store "$TMP/store" --document $((last - 1))
expect 0 "$INDEX" verify --store "$TMP/store" --deep

expect_usage "--store STORE is missing" "$INDEX" delete --document 1
expect_usage "give --document ID, or --key KEY or --source" "$INDEX" delete --store "$TMP/store"
expect_usage "give --document ID, or --key KEY or --source" "$INDEX" delete --store "$TMP/store" --document 1 --source x
expect_usage "give --document ID, or --key KEY or --source" "$INDEX" delete --store "$TMP/store" --document 1 --key x
expect_usage "takes the number" "$INDEX" delete --store "$TMP/store" --document 1x
