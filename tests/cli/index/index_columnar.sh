#!/usr/bin/env bash
# Parquet and arrow through the programs: a store is the same as that of the jsonl with the same documents; a killed build
# continues at its row; tokenizer and eval read them; errors name file, row group and column.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
needs drt-tokenizer drt-eval
make_model "$TMP/model"
corpus=$SOURCE/tests/fuzz/corpus
build() { expect 0 "$INDEX" build "$@" --model "$TMP/model"; }
refused() { expect_error "$1" "$INDEX" build "${@:2}" --model "$TMP/model"; }

# The documents of make_columnar.py as jsonl: without path, offset and line an export is the same.
for i in 0 1 2 3 4 5 6 7 8 9 10 11; do
    text="document $i: "
    for ((k = 0; k < i % 4; k++)); do text+="the river and the stone "; done
    text+=$(printf "\\xce\\x$(printf %x $((0xb1 + i)))")
    [ $i = 5 ] && text=""
    printf '{"text": "%s", "id": "doc-%d"}\n' "$text" $i
done >"$TMP/a.jsonl"
contents() { # STORE: chunks with the hashes of their landmarks, and documents, without positions in files
    expect 0 "$INDEX" export --store "$1"
    sed -E 's/"(source|line|offset)": ?("[^"]*"|[0-9]+),? ?//g' "$OUT"
}
build "$TMP/a.jsonl" --out "$TMP/jsonl" --json
same "$(json_int "$OUT" documents)" 12 "documents of the jsonl"
contents "$TMP/jsonl" >"$TMP/jsonl.contents"
grep -q doc-11 "$TMP/jsonl.contents" || die "the export lacks keys: $(head -n 2 "$TMP/jsonl.contents")"
for file in parquet/row_groups.parquet parquet/dictionary_v2_zstd.parquet arrow/stream.arrow arrow/file_zstd.arrow; do
    name=$TMP/$(basename "$file" | tr . _)
    build "$corpus/fuzz_$file" --out "$name"
    contents "$name" | cmp - "$TMP/jsonl.contents" || die "the store of $file differs from that of the jsonl"
done

# --- positions
expect 0 "$INDEX" search "document 7" --store "$TMP/row_groups_parquet" --model "$TMP/model" --k 12
out_has "row_groups.parquet  [doc-7]  row 8  row group 1"
expect 0 "$INDEX" search "document 7" --store "$TMP/stream_arrow" --model "$TMP/model" --k 12 --json
out_has '"line":8,"offset":1'

# --- a folder with several formats; the files of a hub repository; the folder of save_to_disk
mkdir -p "$TMP/hub/data" "$TMP/saved"
cp "$corpus/fuzz_parquet/row_groups.parquet" "$TMP/hub/data/train-00000-of-00001.parquet"
echo "a readme that is no document" >"$TMP/hub/README.md"
cp "$corpus/fuzz_arrow/stream.arrow" "$TMP/saved/data-00000-of-00001.arrow"
cp "$corpus/fuzz_arrow/nested.arrow" "$TMP/saved/cache-d3c1b0a9.arrow"
echo '{}' >"$TMP/saved/state.json"
build "$TMP/hub" --format parquet --out "$TMP/hub.store" --json
same "$(json_int "$OUT" documents)" 12 "documents of the repository"
build "$TMP/saved" --out "$TMP/saved.store" --json
same "$(json_int "$OUT" documents)" 12 "documents of the saved data set"

# --- the other programs
for file in "$TMP/a.jsonl" "$corpus/fuzz_parquet/small_pages.parquet" "$corpus/fuzz_arrow/large.arrow"; do
    rm -f "$TMP/o.u16"
    expect 0 "$BIN/drt-tokenizer" encode "$file" --tokenizer "$TMP/model/tokenizer.json" --out "$TMP/o.u16" --eod-id 268
    [ -e "$TMP/first.u16" ] || cp "$TMP/o.u16" "$TMP/first.u16"
    cmp "$TMP/o.u16" "$TMP/first.u16" || die "the ids of $file differ"
done
expect 0 "$BIN/drt-tokenizer" train "$corpus/fuzz_parquet/row_groups.parquet" --vocab-size 280 --out "$TMP/tokenizer.json"
expect 0 "$BIN/drt-eval" ppl --model "$TMP/model" --data "$corpus/fuzz_parquet/nested.parquet" --text-field meta.body --skip 8

# --- one line for files that cannot be read; null texts
refused 'text_is_int.parquet: the column "text" holds no text but int64; the columns of text are "body"' \
    "$corpus/fuzz_parquet/text_is_int.parquet" --out "$TMP/none"
refused 'the column "boddy" is missing; the columns of text are "body": name one with --text-field' \
    "$corpus/fuzz_parquet/text_is_int.parquet" --text-field boddy --out "$TMP/none"
refused 'text_is_int.parquet: the column "text" holds no text' "$TMP/a.jsonl" "$corpus/fuzz_parquet/text_is_int.parquet" --out "$TMP/early"
[ ! -e "$TMP/early" ] || die "the last file's schema was read after documents were"
head -c 1000 "$corpus/fuzz_parquet/row_groups.parquet" >"$TMP/cut.parquet"
refused "cut.parquet: damaged parquet file: PAR1 is missing at its end" "$TMP/cut.parquet" --out "$TMP/none"
refused "is encrypted" "$corpus/fuzz_parquet/encrypted_footer.parquet" --out "$TMP/none"
refused 'row group 0, row 2: the column "text" is null: --skip-bad-lines leaves it out' "$corpus/fuzz_parquet/nulls.parquet" --out "$TMP/none"
build "$corpus/fuzz_parquet/nulls.parquet" --skip-bad-lines --out "$TMP/nulls" --json
same "$(json_int "$OUT" skipped_lines)" 4 "rows without text"
same "$(json_int "$OUT" documents)" 8 "documents beside them"

# --- a killed build continues at the row and makes the same store
shards=(--shard-chunks 20 --threads 1)
build "$corpus/fuzz_parquet/fallback.parquet" --out "$TMP/undisturbed" "${shards[@]}"
resumed=0
for delay in 0.02 0.04 0.06 0.08 0.12 0.16 0.2 0.25 0.3; do
    rm -rf "$TMP/killed"
    "$INDEX" build "$corpus/fuzz_parquet/fallback.parquet" --out "$TMP/killed" --model "$TMP/model" "${shards[@]}" >"$OUT" 2>"$ERR" &
    pid=$!
    sleep "$delay"
    { kill -9 $pid; wait $pid; } 2>/dev/null
    "$INDEX" stats --store "$TMP/killed" >/dev/null 2>&1 && continue # it had ended
    build "$corpus/fuzz_parquet/fallback.parquet" --out "$TMP/killed" "${shards[@]}" --json
    [ "$(json_int "$OUT" resumed_chunks)" -gt 0 ] && resumed=$((resumed + 1))
    same_store "$TMP/killed" "$TMP/undisturbed"
done
echo "ok; $resumed killed builds were resumed in the middle of the file"
