# The bundled Base LM: its memory.json fits its weights, and its own past changes the text. A store of the bundled DRT model, whose
# tokenizer it shares, can be its memory with a search by words, but not by landmarks.
. "$DRT_SOURCE/tests/cli/lib.sh" || exit 1
needs drt-generate drt-index drt-model
base=$DRT_SOURCE/data/models/base-28m drt=$DRT_SOURCE/data/models/drt-28m
cmp -s "$base/tokenizer.json" "$drt/tokenizer.json" || die "the bundled models have different tokenizers"
prompt="The river begins in the hills. It flows to the sea. The river begins"
expect 0 "$BIN/drt-generate" --model "$base" --prompt "$prompt" -n 12 --greedy
cp "$OUT" "$TMP/alone"
expect 0 "$BIN/drt-generate" --model "$base" --prompt "$prompt" -n 12 --greedy --memory own --stats
cmp -s "$TMP/alone" "$OUT" && die "the memory of the text's own past changes nothing"
err_has "of the generated tokens' probability"
mkdir "$TMP/corpus"
for i in 1 2 3 4 5 6; do
    for j in 1 2 3 4 5 6 7 8 9; do echo "Lake number $i-$j lies $((i * 37 + j)) metres above the sea, and boats cross it in summer."; done >"$TMP/corpus/$i.txt"
done
expect 0 "$BIN/drt-index" build "$TMP/corpus" --model "$drt" --out "$TMP/store"
expect 0 "$BIN/drt-generate" --model "$base" --store "$TMP/store" --prompt "Lake number 3-4 lies 115 metres above the" -n 10 --greedy --memory corpus --memory-k 8
grep -q "sea, and boats cross it in summer" "$OUT" || die "the store's sentence is not continued: $(cat "$OUT")"
expect_error "needs those of its own model" "$BIN/drt-generate" --model "$base" --store "$TMP/store" --prompt x --memory corpus --memory-searcher hybrid
