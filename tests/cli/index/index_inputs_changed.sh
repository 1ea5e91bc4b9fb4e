#!/usr/bin/env bash
# Bad lines that are skipped, and inputs that change between a stop of a build and its resumption: the part that was read must be the same,
# byte for byte; the rest may change.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
make_model "$TMP/model"
make_corpus "$TMP/good.jsonl" 60
build() { expect 0 "$INDEX" build "$@" --model "$TMP/model" --shard-chunks 10; }
refused() { expect_error "$1" "$INDEX" build "${@:2}" --model "$TMP/model" --shard-chunks 10; }
resumed() { [ "$(json_int "$OUT" resumed_chunks)" -gt 0 ] || die "nothing was resumed"; }

# --- bad lines: the first one stops a build, which continues when it is corrected; or they are skipped, counted and named
sed '41s/.*/{"text": NaN}/; 51s/.*/{"text": null}/; 55s/.*/[1]/' "$TMP/good.jsonl" >"$TMP/bad.jsonl"
cp "$TMP/bad.jsonl" "$TMP/c.jsonl"
refused "c.jsonl:41: not valid JSON at column 10" "$TMP/c.jsonl" --out "$TMP/mended"
sed '41s/.*/{"text": "of another length"}/; 51s/.*/{"text": ""}/; 55d' "$TMP/good.jsonl" >"$TMP/c.jsonl"
build "$TMP/c.jsonl" --out "$TMP/mended" --json
resumed
build "$TMP/c.jsonl" --out "$TMP/whole"
same_store "$TMP/mended" "$TMP/whole"
cp "$TMP/bad.jsonl" "$TMP/c.jsonl"
refused "c.jsonl:41" "$TMP/c.jsonl" --out "$TMP/skipped"
build "$TMP/c.jsonl" --out "$TMP/skipped" --skip-bad-lines --json
resumed
same "$(json_int "$OUT" skipped_lines)" 3 "bad lines"
err_has "3 lines or rows without a document were skipped"
err_has "c.jsonl:51: the field \"text\" is not a string"
build "$TMP/bad.jsonl" --out "$TMP/skipped2" --skip-bad-lines
out_has "3 bad lines"
needs drt-tokenizer drt-eval
expect_error "bad.jsonl:41" "$BIN/drt-tokenizer" encode "$TMP/bad.jsonl" --tokenizer "$TMP/model/tokenizer.json" --out "$TMP/o.u16" --eod-id 268
expect 0 "$BIN/drt-tokenizer" encode "$TMP/bad.jsonl" --tokenizer "$TMP/model/tokenizer.json" --out "$TMP/o.u16" --eod-id 268 --skip-bad-lines
out_has "3 bad lines skipped"
expect 0 "$BIN/drt-tokenizer" train "$TMP/bad.jsonl" --vocab-size 300 --out "$TMP/t.json" --skip-bad-lines
err_has "bad.jsonl:55: not a JSON object"
expect 0 "$BIN/drt-eval" ppl --model "$TMP/model" --data "$TMP/bad.jsonl" --skip 8 --skip-bad-lines
out_has "3 bad lines"

# --- edited at equal size, in the part that was read: refused by name, until it is restored
stop_at() { # a line that stops the build, then the good line again
    sed "$1s/.*/{\"text\": 0}/" "$TMP/good.jsonl"
}
edited() { # file, out, how it is resumed...
    refused "$1: the part of it that was read has changed since" "${@:3}" --out "$2"
    err_has "--restart"
}
for kind in plain gz; do
    pack() { if [ $kind = gz ]; then gzip -c; else cat; fi; }
    file=$TMP/e.jsonl
    [ $kind = plain ] || file=$TMP/e.jsonl.gz
    stop_at 50 | pack >"$file"
    refused ":50" "$file" --out "$TMP/edited.$kind"
    sed '3s/{"text": "./{"text": "#/' "$TMP/good.jsonl" | pack >"$file"
    edited "$file" "$TMP/edited.$kind" "$file"
    pack <"$TMP/good.jsonl" >"$file"
    build "$file" --out "$TMP/edited.$kind" --json
    resumed
done
# the same from standard input, which is given again; messages do not name a file
stop_at 50 >"$TMP/in"
expect_in 1 "$TMP/in" "$INDEX" build - --out "$TMP/piped" --model "$TMP/model" --shard-chunks 10
expect_in 0 "$TMP/good.jsonl" "$INDEX" build - --out "$TMP/piped" --model "$TMP/model" --shard-chunks 10 --json
resumed

# a folder: an edited file, a new one before the others, a missing one, two exchanged; one after the stop may change
mkdir "$TMP/folder"
for i in 1 2 3 4 5 6; do sed -n "$((i * 8)),$((i * 8 + 7))p" "$TMP/good.jsonl" >"$TMP/folder/f$i.jsonl"; done
for i in 1 2; do sed 's/[^a-z ]//g' "$TMP/folder/f$i.jsonl" >"$TMP/folder/e$i.txt"; done
echo '{"text": 0}' >"$TMP/folder/f5.jsonl"
refused "f5.jsonl:1" "$TMP/folder" --out "$TMP/f"
cp -r "$TMP/folder" "$TMP/kept"
back() { rm -rf "$TMP/folder"; cp -r "$TMP/kept" "$TMP/folder"; }
sed -i 's/river/RIVER/' "$TMP/folder/e2.txt"
edited "$TMP/folder/e2.txt" "$TMP/f" "$TMP/folder"
back
echo "new" >"$TMP/folder/a.txt"
edited "$TMP/folder/a.txt" "$TMP/f" "$TMP/folder"
back
rm "$TMP/folder/e2.txt"
edited "$TMP/folder/f1.jsonl" "$TMP/f" "$TMP/folder"
back
mv "$TMP/folder/f1.jsonl" "$TMP/x"; mv "$TMP/folder/f2.jsonl" "$TMP/folder/f1.jsonl"; mv "$TMP/x" "$TMP/folder/f2.jsonl"
edited "$TMP/folder/f1.jsonl" "$TMP/f" "$TMP/folder"
back
rm "$TMP/folder/f6.jsonl"
echo '{"text": "mended"}' >"$TMP/folder/f5.jsonl"
echo '{"text": "one more"}' >"$TMP/folder/f7.jsonl"
build "$TMP/folder" --out "$TMP/f" --json
resumed
build "$TMP/folder" --out "$TMP/f2"
same_store "$TMP/f" "$TMP/f2"

# token files: an id too large stops the build
expect 0 "$BIN/drt-tokenizer" encode "$TMP/good.jsonl" --tokenizer "$TMP/model/tokenizer.json" --out "$TMP/ids.u16" --eod-id 268
size=$(stat -c %s "$TMP/ids.u16")
put_byte() { printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null; }
cp "$TMP/ids.u16" "$TMP/t.u16"
put_byte "$TMP/t.u16" $((size - 40)) '\377\377'
refused "is id 65535" "$TMP/t.u16" --out "$TMP/t"
cp "$TMP/ids.u16" "$TMP/t.u16"
put_byte "$TMP/t.u16" 20 '\101\000'
edited "$TMP/t.u16" "$TMP/t" "$TMP/t.u16"
cp "$TMP/ids.u16" "$TMP/t.u16"
build "$TMP/t.u16" --out "$TMP/t" --json
resumed

# --- reserved ids of the model's input are not allowed in text
for id in '\015\001 269 pad_id' '\016\001 270 landmark'; do
    cp "$TMP/ids.u16" "$TMP/r.u16"
    put_byte "$TMP/r.u16" 20 "${id%% *}"
    refused "its token 10 is id $(echo "$id" | cut -d' ' -f2), the model's ${id##* }" "$TMP/r.u16" --out "$TMP/none"
    expect_error "the model's ${id##* }" "$BIN/drt-eval" ppl --model "$TMP/model" --data "$TMP/r.u16" --skip 8
done

# --- a build of the store's own corpus does nothing; for another one it names the difference
build "$TMP/good.jsonl" --out "$TMP/there"
build "$TMP/good.jsonl" --out "$TMP/there"
out_has "already built: generation 1"
cp "$TMP/good.jsonl" "$TMP/more.jsonl"
refused "more.jsonl: the part of it that was read has changed" "$TMP/more.jsonl" --out "$TMP/there"
refused "its index is exact, not IVF4,Flat" "$TMP/good.jsonl" --out "$TMP/there" --index IVF4,Flat
echo '{"text": "one more"}' >>"$TMP/good.jsonl"
refused "good.jsonl: the document at byte" "$TMP/good.jsonl" --out "$TMP/there"
expect 0 "$INDEX" verify --store "$TMP/there" --json
same "$(json_int "$OUT" problems)" 0 "problems"
[ "$(json_int "$OUT" chunks)" -gt 0 ] || die "verify --json does not print what was checked"
echo ok
