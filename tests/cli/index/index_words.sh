#!/usr/bin/env bash
# drt-index build --landmarks none: a store whose chunks are found by words alone. It finds what the lexical search of a store with
# landmarks finds, every command keeps it so, any model of its tokenizer may use it, and what needs landmarks refuses it.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
needs drt-generate drt-eval
INDEX=$BIN/drt-index
make_model "$TMP/model"
make_model "$TMP/other" 9
make_corpus "$TMP/a.jsonl" 60 1
make_corpus "$TMP/b.jsonl" 20 2
model=(--model "$TMP/model" --shard-chunks 40)
stat_of() { expect 0 "$INDEX" stats --store "$1" --json; json_int "$OUT" "$2"; }
# found STORE MODEL: chunks of some texts by words, in order.
found() {
    expect 0 "$INDEX" search --queries "$TMP/texts.txt" --store "$1" --model "$2" --searcher lexical --k 6 --json
    grep -oE '"(query|chunk)":[0-9]+' "$OUT"
}
printf '%s\n' "the river and the harbour" "winding north of stone number 7" "seven lights under the table" >"$TMP/texts.txt"

expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$TMP/with" "${model[@]}"
expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$TMP/words" --landmarks none "${model[@]}" --log-json
err_has '"stage":"tokenize"'
err_lacks '"stage":"encode"'
out_lacks "encoding"
same "$(stat_of "$TMP/words" chunks) $(stat_of "$TMP/words" dim) $(stat_of "$TMP/words" format)" "$(stat_of "$TMP/with" chunks) 0 5"
for file in "$TMP"/with/tokens/*; do cmp "$file" "$TMP/words/tokens/${file##*/}" || die "other tokens in ${file##*/}"; done
found "$TMP/with" "$TMP/model" >"$TMP/expected"
[ "$(wc -l <"$TMP/expected")" -gt 15 ] || die "few hits to compare"
found "$TMP/words" "$TMP/model" | diff - "$TMP/expected" >&2 || die "other hits than a store with landmarks"
found "$TMP/words" "$TMP/other" | diff - "$TMP/expected" >&2 || die "other hits with another model of the tokenizer"
# Without --searcher: by words, with the scores of BM25.
expect 0 "$INDEX" search "winding north of stone number 7" --store "$TMP/words" --model "$TMP/model" --k 3 --json
out_has '"searched_by":"lexical'
scores=$(grep -oE '"score":[0-9.]+' "$OUT" | cut -d : -f 2)
same "$(sort -rg <<<"$scores")" "$scores" "scores in order"

# ---- what changes a store
expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$TMP/words" "${model[@]}" --landmarks none
out_has "already built"
expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/words" "${model[@]}"
expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/with" "${model[@]}"
expect 0 "$INDEX" delete --store "$TMP/words" --document 3
expect 0 "$INDEX" delete --store "$TMP/with" --document 3
found "$TMP/with" "$TMP/model" >"$TMP/expected"
found "$TMP/words" "$TMP/model" | diff - "$TMP/expected" >&2 || die "other hits after add and delete"
expect 0 "$INDEX" compact --store "$TMP/words" --out "$TMP/compact"
expect 0 "$INDEX" compact --store "$TMP/with" --out "$TMP/with-compact"
found "$TMP/with-compact" "$TMP/model" >"$TMP/expected"
found "$TMP/compact" "$TMP/model" | diff - "$TMP/expected" >&2 || die "other hits after compact"
expect 0 "$INDEX" freeze --store "$TMP/compact" --out "$TMP/frozen"
found "$TMP/frozen" "$TMP/model" | diff - "$TMP/expected" >&2 || die "other hits in a snapshot"
for i in 2 1; do expect 0 "$INDEX" build "$TMP/a.jsonl" --part $i/2 --out "$TMP/parts" --landmarks none "${model[@]}"; done
expect 0 "$INDEX" join "$TMP"/parts/part-* --out "$TMP/joined"
for i in 1 2; do expect 0 "$INDEX" build "$TMP/a.jsonl" --part $i/2 --out "$TMP/with-parts" "${model[@]}"; done
expect 0 "$INDEX" join "$TMP"/with-parts/part-* --out "$TMP/with-joined" --lexical on
found "$TMP/with-joined" "$TMP/model" >"$TMP/expected"
found "$TMP/joined" "$TMP/model" | diff - "$TMP/expected" >&2 || die "other hits after join"
expect_error "landmarks" "$INDEX" join "$TMP/parts/part-1-of-2" "$TMP/with-parts/part-2-of-2" --out "$TMP/mixed"

# ---- damage: a landmark file holds no numbers, and is made again without a model
expect 0 "$INDEX" verify --store "$TMP/words" --deep
rm "$(find "$TMP/words/landmarks" -type f | sort | head -n 1)"
expect 1 "$INDEX" verify --store "$TMP/words" --deep
expect 0 "$INDEX" repair --store "$TMP/words"
expect 0 "$INDEX" verify --store "$TMP/words" --deep

# ---- a token memory, of this model and of another
for m in model other; do
    expect 0 "$BIN/drt-eval" ppl --model "$TMP/$m" --store "$TMP/words" --data "$TMP/b.jsonl" --memory corpus --context 128 --skip 16 --device cpu
    out_has "corpus"
done

# ---- refused, in one line that says what helps
expect_error "no landmarks" "$INDEX" search "river" --store "$TMP/words" --model "$TMP/model" --searcher landmark
expect_error "no landmarks" "$INDEX" search "river" --store "$TMP/words" --model "$TMP/model" --searcher hybrid
expect_error "no landmarks" "$INDEX" recall --store "$TMP/words"
expect_error "no landmarks" "$INDEX" worker --store "$TMP/words" --slice 1/1 --listen 127.0.0.1:0
expect_error "no landmarks" "$BIN/drt-generate" --model "$TMP/model" --store "$TMP/words" --corpus-retrieval -p river -n 3
expect_error "leave --landmarks values out" "$INDEX" export --store "$TMP/words" --landmarks values
expect 0 "$INDEX" export --store "$TMP/words" --landmarks none
cp "$OUT" "$TMP/without"
expect 0 "$INDEX" export --store "$TMP/words"
cmp -s "$OUT" "$TMP/without" && [ -s "$TMP/without" ] || die "export of a store without landmarks"
expect_error "landmarks" "$INDEX" compact --store "$TMP/words" --out "$TMP/x" --landmarks f16
expect_error "no landmarks" "$INDEX" repair --store "$TMP/words" --index IVF16,SQ8
expect_error "no landmarks" "$INDEX" build "$TMP/a.jsonl" --out "$TMP/x" --landmarks none --index IVF16,SQ8 "${model[@]}"
expect_usage "--lexical off" "$INDEX" build "$TMP/a.jsonl" --out "$TMP/x" --landmarks none --lexical off "${model[@]}"
expect_usage "--vectors" "$INDEX" build "$TMP/a.jsonl" --out "$TMP/x" --landmarks none --vectors v.npy "${model[@]}"
exit 0
