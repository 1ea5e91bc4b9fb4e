#!/usr/bin/env bash
# drt-index update: changed documents replace those with their source and id, in one generation; the others do not change; the result has
# the contents of a store of the new corpus. Exact and with an index; texts that move between documents, become empty or double; --source,
# --dry-run, --json; folders of text files; a corpus without ids.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
command -v python3 >/dev/null || skip "python3 is missing"
make_model "$TMP/model"
model=(--model "$TMP/model" --threads 1 --shard-chunks 40)

# make_documents FILE KIND: 60 documents with ids; `new`: the changed ones.
make_documents() {
    python3 - "$1" "$2" <<'PY'
import json, random, sys
random.seed(5)
words = "the river and stone winding north other sand ring on table under seven lights of a harbour".split()
docs = {f"doc-{i}": " ".join(random.choice(words) for _ in range(random.randint(5, 200))) + f" number {i}." for i in range(60)}
if sys.argv[2] == "new":
    for i in (3, 17, 42): docs[f"doc-{i}"] += " It was changed."
    docs["doc-5"], docs["doc-6"] = docs["doc-6"], docs["doc-5"]      # two exchange their texts
    docs["doc-7"] = docs["doc-8"]                                   # a copy of an unchanged one
    docs["doc-9"] = ""                                              # now empty
    docs["doc-10"], docs["doc-11"] = docs["doc-11"], "Something else at last."
    for i in range(60, 68): docs[f"doc-{i}"] = f"A new document of number {i}. " + " ".join(random.choice(words) for _ in range(90))
    del docs["doc-20"]                                              # the corpus lacks it; the store keeps it
with open(sys.argv[1], "w") as f:
    for key, text in docs.items(): f.write(json.dumps({"id": key, "text": text}) + "\n")
PY
}
make_documents "$TMP/corpus.jsonl" old
cp "$TMP/corpus.jsonl" "$TMP/old.jsonl"
make_documents "$TMP/new.jsonl" new
# The contents of a store without ids: key, position in the document, tokens, landmark.
contents() { "$INDEX" export --store "$1" 2>"$ERR" | sed -E 's/"(chunk|document|line|offset)":[0-9]+,//g' | sort; }
hits() { "$INDEX" search "the river and the harbour" --store "$1" --model "$TMP/model" --k 9 --exact --json 2>"$ERR" | sed -E 's/"(chunk|document|line|offset)":[0-9]+,?//g'; }

for index in exact IVF4,SQ8; do
    rm -rf "$TMP/store" "$TMP/want"
    cp "$TMP/old.jsonl" "$TMP/corpus.jsonl"
    expect 0 "$INDEX" build "$TMP/corpus.jsonl" --out "$TMP/store" --index $index "${model[@]}"
    contents "$TMP/store" >"$TMP/old.contents"

    # The same corpus: nothing to do, no new generation.
    expect 0 "$INDEX" update "$TMP/corpus.jsonl" --store "$TMP/store" "${model[@]}" --json
    same 60 "$(json_int "$OUT" unchanged)" "unchanged"
    same 1 "$(json_int "$OUT" generation)" "generation"
    same 0 "$(json_int "$OUT" chunks)" "chunks encoded"

    cp "$TMP/new.jsonl" "$TMP/corpus.jsonl"
    expect 0 "$INDEX" update "$TMP/corpus.jsonl" --store "$TMP/store" "${model[@]}" --dry-run --json
    # 3 + 2 + doc-10, doc-11 changed; doc-7 is a duplicate; doc-9 is empty; all nine old documents are removed.
    counts="7 8 1 1 50 9"
    got() { echo "$(json_int "$OUT" changed) $(json_int "$OUT" added) $(json_int "$OUT" duplicates) $(json_int "$OUT" empty) $(json_int "$OUT" unchanged) $(json_int "$OUT" replaced_documents)"; }
    same "$counts" "$(got)" "a dry run's counts"
    contents "$TMP/store" | cmp -s - "$TMP/old.contents" || die "$index: a dry run changed the store"
    expect 0 "$INDEX" update "$TMP/corpus.jsonl" --store "$TMP/store" "${model[@]}" --json
    same "$counts" "$(got)" "counts"
    same 2 "$(json_int "$OUT" generation)" "one generation"
    expect 0 "$INDEX" verify --store "$TMP/store" --deep
    expect 0 "$INDEX" stats --store "$TMP/store" --json
    same 9 "$(json_int "$OUT" deleted_documents)" "deleted documents"

    # The store equals one of the new corpus, with the old documents that the new corpus lacks.
    { cat "$TMP/new.jsonl"; grep '"doc-20"' "$TMP/old.jsonl"; } >"$TMP/corpus.jsonl"
    expect 0 "$INDEX" build "$TMP/corpus.jsonl" --out "$TMP/want" --index $index "${model[@]}"
    # doc-7 and doc-8 have one text: in a new store the first has it, in this one doc-8 still does.
    contents "$TMP/want" | sed 's/"doc-7"/"doc-8"/' | sort >"$TMP/want.contents"
    contents "$TMP/store" >"$TMP/got.contents"
    cmp -s "$TMP/got.contents" "$TMP/want.contents" || { diff "$TMP/got.contents" "$TMP/want.contents" | cut -c1-200 | head; die "$index: not what a new store holds"; }
    hits "$TMP/store" >"$TMP/got.hits"
    hits "$TMP/want" | sed 's/"doc-7"/"doc-8"/' | cmp -s - "$TMP/got.hits" || die "$index: other hits than in a new store"

    # A second update has nothing to do. An update to the old texts adds them again under new ids.
    expect 0 "$INDEX" update "$TMP/corpus.jsonl" --store "$TMP/store" "${model[@]}" --json
    same "0 0 0" "$(json_int "$OUT" changed) $(json_int "$OUT" added) $(json_int "$OUT" replaced_documents)" "a second update"
    cp "$TMP/old.jsonl" "$TMP/corpus.jsonl"
    expect 0 "$INDEX" update "$TMP/corpus.jsonl" --store "$TMP/store" "${model[@]}"
    expect 0 "$INDEX" verify --store "$TMP/store" --deep
    contents "$TMP/store" | grep -vE '"doc-6[0-7]"' | cmp -s - "$TMP/old.contents" || die "$index: the old texts did not come back"
    expect 0 "$INDEX" repair --store "$TMP/store" --threads 1
    expect 0 "$INDEX" verify --store "$TMP/store" --deep
done

# The same corpus at another path: --source names the store's source. Without it, the texts are duplicates.
expect 0 "$INDEX" update "$TMP/new.jsonl" --store "$TMP/store" "${model[@]}" --dry-run --json
same 0 "$(json_int "$OUT" replaced_documents)" "documents of another source replaced"
expect 0 "$INDEX" update "$TMP/new.jsonl" --store "$TMP/store" --source "$TMP/corpus.jsonl" "${model[@]}" --json
same 9 "$(json_int "$OUT" replaced_documents)" "documents of --source replaced"
contents "$TMP/store" | grep -q '"source":"[^"]*new.jsonl"' && die "--source was not recorded"
expect 0 "$INDEX" verify --store "$TMP/store" --deep

# A folder of text files: each file is a document.
mkdir "$TMP/folder"
for i in 1 2 3 4; do echo "The text of file $i by the river." >"$TMP/folder/$i.txt"; done
expect 0 "$INDEX" build "$TMP/folder" --out "$TMP/files" "${model[@]}"
echo "Another text in the harbour." >"$TMP/folder/2.txt"
echo "The fifth." >"$TMP/folder/5.txt"
expect 0 "$INDEX" update "$TMP/folder" --store "$TMP/files" "${model[@]}" --json
same "1 1 3 1" "$(json_int "$OUT" changed) $(json_int "$OUT" added) $(json_int "$OUT" unchanged) $(json_int "$OUT" replaced_documents)" "a folder"
expect 0 "$INDEX" update "$TMP/folder" --store "$TMP/files" "${model[@]}"
out_has "0 documents changed, 0 are new, 5 are as they were"

# A view that was open before keeps the old documents: readers see one generation or the other, never a mixture.
before=$(contents "$TMP/files" | cksum)
for round in 1 2 3 4 5; do
    for i in 1 2 3 4 5; do echo "Round $round of file $i by the river." >"$TMP/folder/$i.txt"; done
    "$INDEX" update "$TMP/folder" --store "$TMP/files" "${model[@]}" >/dev/null 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null; do "$INDEX" export --store "$TMP/files" 2>/dev/null | grep -c . >>"$TMP/counts"; done
    wait $pid || die "an update under readers failed"
done
same 5 "$(sort -u "$TMP/counts" | tr '\n' ' ' | tr -d ' ')" "chunks that readers saw"
[ "$before" != "$(contents "$TMP/files" | cksum)" ] || die "the updates changed nothing"

# Refusals.
printf '{"text": "one"}\n{"text": "two"}\n' >"$TMP/no-ids.jsonl"
expect_error "line 2: has no id, nor has line 1" "$INDEX" update "$TMP/no-ids.jsonl" --store "$TMP/files" "${model[@]}"
printf '{"id": "a", "text": "one"}\n{"id": "a", "text": "two"}\n' >"$TMP/double.jsonl"
expect_error 'line 2: has the id "a" of line 1' "$INDEX" update "$TMP/double.jsonl" --store "$TMP/files" "${model[@]}"
expect_error "standard input can be read once" "$INDEX" update - --store "$TMP/files" "${model[@]}"
expect_error "no store here" "$INDEX" update "$TMP/folder" --store "$TMP/none" "${model[@]}"
make_model "$TMP/other" 9
expect_error "was built with" "$INDEX" update "$TMP/folder" --store "$TMP/files" --model "$TMP/other" --threads 1
expect_usage "--store STORE is missing" "$INDEX" update "$TMP/folder"
echo "ok"
