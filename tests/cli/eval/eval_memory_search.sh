# Token memories whose chunks are searched by words, by landmarks or by both: fit-memory, ppl and generate use the kind of memory.json,
# threads change no bit; every refusal.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-eval drt-index drt-generate
INDEX=$BIN/drt-index
tiny_base "$TMP/base"
tiny_base "$TMP/other" 5
corpus "$TMP/train.jsonl" 8 80
corpus "$TMP/a.jsonl" 4 60 100
expect 0 "$INDEX" build "$TMP/train.jsonl" --model "$TMP/base" --out "$TMP/s"
setting=(--store "$TMP/s" --memory-k 4 --memory-every 16)
memory=("${setting[@]}" --memory corpus,random)
texts=(--data "$TMP/a.jsonl" --context 189 --skip 32)
modes=(--memory own,corpus,both,random)
expect 0 "$EVAL" fit-memory --model "$TMP/base" "${texts[@]}" "${setting[@]}" "${modes[@]}" --keep "$TMP/kept" --out "$TMP/base/memory.json"
grep -q '"searcher": "lexical"' "$TMP/base/memory.json" || die "lexical is not the default"
# On a CPU programs prefer memory-cpu.json of the folder to memory.json, which they read if the former is missing or if it is named.
expect 0 "$EVAL" ppl --model "$TMP/base" "${texts[@]}" --memory own --device cpu --json
cp "$OUT" "$TMP/alone"
echo '{' >"$TMP/base/memory-cpu.json"
expect_error "memory-cpu.json" "$EVAL" ppl --model "$TMP/base" "${texts[@]}" --memory own --device cpu
expect 0 "$EVAL" ppl --model "$TMP/base" "${texts[@]}" --memory own --device cpu --memory-config "$TMP/base/memory.json"
cp "$TMP/base/memory.json" "$TMP/base/memory-cpu.json"
expect 0 "$EVAL" ppl --model "$TMP/base" "${texts[@]}" --memory own --device cpu --json
out_has "\"keys\":null,\"config\":\"$TMP/base/memory-cpu.json\""
figures() { grep -o '"perplexity":[0-9.]*' "$1"; }
[ "$(figures "$OUT")" = "$(figures "$TMP/alone")" ] || die "a copy of memory.json as memory-cpu.json gives other figures"
rm "$TMP/base/memory-cpu.json"

# Chunks by landmarks and by both: the configuration names the search for whose scores its gate was fitted.
for kind in lexical landmark hybrid; do
    for threads in 1 3; do
        [ $kind$threads != lexical3 ] || continue # eval_memory.sh tests this
        ! sanitized || [ $kind$threads = lexical1 ] || [ $threads = 3 ] || continue
        expect 0 "$EVAL" fit-memory --model "$TMP/base" "${texts[@]}" "${memory[@]}" --memory-searcher $kind --oracle next-chunk --out "$TMP/$kind.json" --json --threads $threads
        cp "$OUT" "$TMP/$kind.$threads"
        cp "$TMP/$kind.json" "$TMP/$kind.json.$threads"
    done
    sanitized || [ $kind = lexical ] || { cmp -s "$TMP/$kind.1" "$TMP/$kind.3" && cmp -s "$TMP/$kind.json.1" "$TMP/$kind.json.3"; } || die "$kind: other figures with three threads"
    grep -q "\"searcher\": \"$kind\"" "$TMP/$kind.json" || die "$kind: memory.json does not name it"
    grep -q "\"memory_searcher\":{\"kind\":\"${kind/landmark/exact}\"" "$OUT" || die "$kind: the report does not name it"
    expect 0 "$EVAL" ppl --model "$TMP/base" "${texts[@]}" "${memory[@]}" --memory-config "$TMP/$kind.json"
    out_has "gate of $TMP/$kind.json"
    case $kind in landmark) out_has "chunks by exact scan" ;; *) out_has "chunks by $kind" ;; esac
    generated="$("$BIN/drt-generate" --model "$TMP/base" --store "$TMP/s" --memory corpus --memory-config "$TMP/$kind.json" --prompt "the river" --max-tokens 8 --greedy 2>"$ERR")" || die "$kind: generate: $(cat "$ERR")"
    [ -n "$generated" ] || die "$kind: nothing generated"
done
figure() { sed 's/.*"memory-corpus":{"perplexity":\([0-9.e+]*\).*/\1/' "$TMP/$1".[13] | head -n 1; }
[ "$(for kind in lexical landmark hybrid; do figure $kind; done | sort -u | wc -l)" = 3 ] || die "kinds find the same: $(figure lexical) $(figure landmark) $(figure hybrid)"
expect 0 "$EVAL" fit-memory --model "$TMP/base" "${texts[@]}" "${memory[@]}" --memory-searcher landmark --keep "$TMP/kept.landmark" --out "$TMP/again.json"
expect 0 "$EVAL" fit-memory --model "$TMP/base" --samples "$TMP/kept.landmark" --memory corpus,random --out "$TMP/again.json"
cmp -s "$TMP/again.json" "$TMP/landmark.json" || die "kept samples give another configuration"
grep -q '"searcher": "landmark"' "$TMP/again.json" || die "kept samples do not name the search"
expect_error "was collected with another model" "$EVAL" fit-memory --model "$TMP/base" --samples "$TMP/kept.landmark" --samples "$TMP/kept" --memory corpus --out "$TMP/none.json"
expect_error "the scores of a landmark search, not lexical" "$EVAL" fit-memory --model "$TMP/base" --samples "$TMP/kept" "${modes[@]}" --apply "$TMP/landmark.json"
expect_error "the scores of a landmark search, not hybrid" "$EVAL" ppl --model "$TMP/base" "${texts[@]}" "${memory[@]}" --memory-config "$TMP/landmark.json" --memory-searcher hybrid
expect_error "the scores of a lexical search, not landmark" "$BIN/drt-generate" --model "$TMP/base" --store "$TMP/s" --memory both --memory-searcher landmark --prompt x
expect 0 "$EVAL" ppl --model "$TMP/base" "${texts[@]}" "${memory[@]}" --memory-config "$TMP/hybrid.json" --memory-searcher lexical
expect_error "needs those of its own model" "$EVAL" fit-memory --model "$TMP/other" "${texts[@]}" "${memory[@]}" --memory-searcher hybrid --out "$TMP/none.json"

expect 0 "$INDEX" lexical --store "$TMP/s" --remove
expect_error "has no lexical index" "$EVAL" ppl --model "$TMP/base" "${texts[@]}" "${memory[@]}" --memory-config "$TMP/hybrid.json"
expect 0 "$EVAL" ppl --model "$TMP/base" "${texts[@]}" "${memory[@]}" --memory-config "$TMP/landmark.json"
expect_usage "must be one of" "$EVAL" ppl --model "$TMP/base" "${texts[@]}" "${memory[@]}" --memory-searcher words
expect_usage "they would not be used" "$EVAL" ppl --data x --memory-searcher lexical
