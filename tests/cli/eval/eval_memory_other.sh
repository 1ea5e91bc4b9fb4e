# drt-eval fit-memory --other: chunks of a store of other text are a part of the fit and rows of the report, from texts and from samples;
# every refusal.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-eval drt-index
INDEX=$BIN/drt-index
tiny_base "$TMP/base"
corpus "$TMP/train.jsonl" 8 80
corpus "$TMP/a.jsonl" 4 60 100
expect 0 "$INDEX" build "$TMP/train.jsonl" --model "$TMP/base" --out "$TMP/s"
setting=(--store "$TMP/s" --memory-k 4 --memory-every 16)
texts=(--data "$TMP/a.jsonl" --context 189 --skip 32)
modes=(--memory own,corpus,both,random)
expect 0 "$EVAL" fit-memory --model "$TMP/base" "${texts[@]}" "${setting[@]}" "${modes[@]}" --keep "$TMP/kept" --out "$TMP/base/memory.json"
expect 0 "$EVAL" fit-memory --model "$TMP/base" "${texts[@]}" "${setting[@]}" --memory corpus --memory-searcher landmark --keep "$TMP/kept.landmark" --out "$TMP/none.json"
corpus "$TMP/foreign.jsonl" 8 80 900
expect 0 "$INDEX" build "$TMP/foreign.jsonl" --model "$TMP/base" --out "$TMP/foreign"
expect 0 "$EVAL" fit-memory --model "$TMP/base" "${texts[@]}" "${setting[@]}" --store "$TMP/foreign" --memory corpus --keep "$TMP/kept.other" --out "$TMP/none.json"
expect 0 "$EVAL" fit-memory --model "$TMP/base" --samples "$TMP/kept" --other "$TMP/kept.other" "${modes[@]}" --out "$TMP/closed.json"
out_has "memory-other " && out_has "memory-other-both against memory-own"
cmp -s "$TMP/closed.json" "$TMP/base/memory.json" && die "chunks of another store change no gate"
cp "$OUT" "$TMP/from-samples"
expect 0 "$EVAL" fit-memory --model "$TMP/base" "${texts[@]}" "${setting[@]}" "${modes[@]}" --other "$TMP/kept.other" --out "$TMP/none.json"
cmp -s "$TMP/closed.json" "$TMP/none.json" || die "texts and samples of them give other gates beside a store of other text"
expect 0 "$EVAL" fit-memory --model "$TMP/base" --samples "$TMP/kept" --other "$TMP/kept.other" --memory corpus --apply "$TMP/closed.json" --json
out_has '"memory-other":{"perplexity"'
! grep -q '"memory-other-both":{"perplexity"' "$OUT" || die "a mode that was not requested is reported"
expect_usage "are read with the gates of corpus and both" "$EVAL" fit-memory --samples "$TMP/kept" --other "$TMP/kept.other" --memory own --out x
expect_error "kept.landmark: was collected with another model or another setting" "$EVAL" fit-memory --model "$TMP/base" --samples "$TMP/kept" --other "$TMP/kept.landmark" "${modes[@]}" --out "$TMP/none.json"
expect 0 "$EVAL" fit-memory --model "$TMP/base" --data "$TMP/a.jsonl" --context 252 --skip 32 "${setting[@]}" --store "$TMP/foreign" --memory corpus --keep "$TMP/kept.wider" --out "$TMP/none.json"
expect_error "kept.wider: is of other texts, other positions" "$EVAL" fit-memory --model "$TMP/base" --samples "$TMP/kept" --other "$TMP/kept.wider" "${modes[@]}" --out "$TMP/none.json"
