# A Base LM and a store of its own, from the first command to the figures: build, lexical index, search, verify, repair,
# fit-memory, ppl, generate.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-eval drt-index drt-generate
INDEX=$BIN/drt-index
tiny_base "$TMP/base"
tiny_base "$TMP/other" 5
corpus "$TMP/train.jsonl" 8 80
text="seven stone lights on a winding harbour under the north ring"
printf '{"text": "%s"}\n' "$text" >>"$TMP/train.jsonl"
corpus "$TMP/a.jsonl" 4 60 100
expect 0 "$INDEX" build "$TMP/train.jsonl" --model "$TMP/base" --out "$TMP/s"
expect 0 "$INDEX" build "$TMP/train.jsonl" --model "$TMP/base" --out "$TMP/threaded" --threads 3
cmp -s "$TMP/s/landmarks/00000.f16" "$TMP/threaded/landmarks/00000.f16" || die "other landmarks with three threads"
expect 0 "$INDEX" build "$TMP/train.jsonl" --model "$TMP/base" --out "$TMP/s"
expect 0 "$INDEX" verify --store "$TMP/s"

# A text of the store finds its own chunk first: the query is the landmark of its last ids.
expect 0 "$INDEX" search "$text" --store "$TMP/s" --model "$TMP/base" --k 2
out_has "1. score 0.1768" # 1 / sqrt(hidden 32)
out_has "document 8, chunk 1 of 1"
expect_error "encoder" "$INDEX" search "$text" --store "$TMP/s" --model "$TMP/other"

# Damaged landmarks are computed again, bit for bit.
cp "$TMP/s/landmarks/00000.f16" "$TMP/whole"
printf 'damage' | dd of="$TMP/s/landmarks/00000.f16" bs=1 seek=200 conv=notrunc 2>/dev/null
expect 1 "$INDEX" verify --store "$TMP/s" --deep
expect 0 "$INDEX" repair --store "$TMP/s" --model "$TMP/base"
cmp -s "$TMP/s/landmarks/00000.f16" "$TMP/whole" || die "repair makes other landmarks"

memory=(--store "$TMP/s" --memory own,corpus,both,random --memory-k 4 --memory-every 16)
texts=(--data "$TMP/a.jsonl" --context 189 --skip 32)
expect 0 "$EVAL" fit-memory --model "$TMP/base" "${texts[@]}" "${memory[@]}" --keep "$TMP/kept" --out "$TMP/base/memory.json"
table() { sed -n '/mean over files, bootstrap/,/^$/p; /^change (%/,/^$/p' "$1"; }
table "$OUT" >"$TMP/first"
[ -s "$TMP/first" ] || die "no tables"

# Kept samples give the same fit and the same tables; the same text twice counts as one; a configuration can be applied to samples.
modes=(--memory own,corpus,both,random)
expect 0 "$EVAL" fit-memory --model "$TMP/base" --samples "$TMP/kept" "${modes[@]}" --out "$TMP/again.json"
table "$OUT" | cmp -s - "$TMP/first" || die "samples give other tables"
cmp -s "$TMP/again.json" "$TMP/base/memory.json" || die "samples give another configuration"
expect 0 "$EVAL" fit-memory --model "$TMP/base" --samples "$TMP/kept" --samples "$TMP/kept" "${modes[@]}" --apply "$TMP/again.json" --json
[ "$(grep -o '"file":' "$OUT" | wc -l)" = 1 ] || die "two texts of one name"
runs=$(grep -o '"tokens":[0-9]*' "$OUT" | cut -d: -f2 | awk 'NR == 1 { all = $1 } NR > 1 { sum += $1 } END { print all, sum }')
[ "${runs% *}" = "${runs#* }" ] || die "tokens of the file and of all runs: $runs"
expect_error "was collected with another model" "$EVAL" fit-memory --model "$TMP/other" --samples "$TMP/kept" "${modes[@]}" --out "$TMP/none.json"
expect_error "was fitted for a model with other weights" "$EVAL" ppl --model "$TMP/other" "${texts[@]}" --memory own --memory-config "$TMP/again.json"
expect_usage "leave out --data" "$EVAL" fit-memory --samples "$TMP/kept" --data x --out y
expect_usage "leave out --out" "$EVAL" fit-memory --samples "$TMP/kept" --apply x --out y
expect 0 "$EVAL" ppl --model "$TMP/base" --base "$TMP/base" --base "$TMP/other" --oracle next-chunk "${texts[@]}" "${memory[@]}" --json
for part in '"bases":{"base":"[^"]*/base","base-2":"[^"]*/other"}' '"mode":"memory-both","against":"base","gain_percent":-' \
    '"mode":"memory-oracle","against":"memory-corpus"' '"mode":"memory-both","against":"base-2"' '"run":"9-16"' '"helped":'; do
    grep -q "$part" "$OUT" || die "no $part in the report"
done
expect 0 "$EVAL" ppl --model "$TMP/base" --base "$TMP/base" --base "$TMP/other" "${texts[@]}" "${memory[@]}"
out_has "base-2"
out_has "33+"
out_has "helped"
expect 0 "$BIN/drt-generate" --model "$TMP/base" --store "$TMP/s" --memory both --prompt "the river" --max-tokens 8
four=(--base "$TMP/base" --base "$TMP/base" --base "$TMP/base" --base "$TMP/base")
expect_usage "at most four" "$EVAL" ppl --model "$TMP/base" "${texts[@]}" "${four[@]}" --base "$TMP/base"
