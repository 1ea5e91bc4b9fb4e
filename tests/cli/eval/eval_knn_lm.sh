# drt-eval fit-memory --knn-lm: a row of its own beside corpus and oracle, the same bits with any number of threads, kept
# samples, a text that is in the store, every refusal.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-eval drt-index
tiny_base "$TMP/base"
corpus "$TMP/train.jsonl" 6 80
corpus "$TMP/a.jsonl" 4 65 100
expect 0 "$BIN/drt-index" build "$TMP/train.jsonl" "$TMP/a.jsonl" --model "$TMP/base" --out "$TMP/s"
texts=(--data "$TMP/a.jsonl" --context 200 --skip 64)
fit() { expect 0 "$EVAL" fit-memory --model "$TMP/base" "${texts[@]}" --store "$TMP/s" --memory-k 4 --memory corpus --json "$@"; }
figure() { sed 's/.*"modes":{//; s/.*"'"$1"'":{"perplexity":\([0-9.e+]*\).*/\1/' "$OUT"; }
threads=1
sanitized && threads=3
fit --knn-lm --oracle next-chunk --knn-entries 64 --threads $threads --keep "$TMP/kept" --out "$TMP/knn.json"
cp "$OUT" "$TMP/one"
none=$(figure none) knn=$(figure memory-knn-lm)
awk -v k="$knn" -v n="$none" 'BEGIN { exit !(k < 0.3 * n) }' || die "kNN-LM gives $knn to a model that knows nothing ($none)"
grep -q '"mode":"memory-knn-lm","against":"memory-corpus"' "$OUT" && grep -q '"mode":"memory-oracle","against":"memory-corpus"' "$OUT" || die "no pairs"
if ! sanitized; then
    fit --knn-lm --oracle next-chunk --knn-entries 64 --threads 3 --out "$TMP/knn3.json"
    cmp -s "$OUT" "$TMP/one" && cmp -s "$TMP/knn.json" "$TMP/knn3.json" || die "other figures with three threads"
fi
# Rows that are only reported do not change the file that programs read.
fit --out "$TMP/plain.json"
cmp -s "$TMP/plain.json" "$TMP/knn.json" || die "kNN-LM changes the configuration"
expect 0 "$EVAL" fit-memory --model "$TMP/base" --samples "$TMP/kept" --memory corpus --knn-lm --oracle next-chunk --out "$TMP/again.json" --json
[ "$(figure memory-knn-lm)" = "$knn" ] || die "kept samples give $(figure memory-knn-lm), not $knn"
# A text that is in the store finds itself only if the options allow it, and then no entry is nearer.
fit --knn-lm --knn-entries 64 --exclude none --out "$TMP/leaky.json"
awk -v a="$(figure memory-knn-lm)" -v b="$knn" 'BEGIN { exit !(a < 0.97 * b) }' || die "finding itself gives $(figure memory-knn-lm), not finding $knn"
# kNN-LM alone, without a lexical index.
expect 0 "$BIN/drt-index" lexical --store "$TMP/s" --remove
expect 0 "$EVAL" fit-memory --model "$TMP/base" "${texts[@]}" --store "$TMP/s" --memory own --knn-lm --out "$TMP/own.json" --json
[ "$(figure none)" = "$none" ] || die "the model gives $(figure none), not $none"
expect_usage "--knn-lm need --store DIR" "$EVAL" fit-memory --model "$TMP/base" "${texts[@]}" --memory own --knn-lm --out "$TMP/x"
expect_usage "must be" "$EVAL" fit-memory --model "$TMP/base" "${texts[@]}" --store "$TMP/s" --knn-lm --knn-entries 0 --out "$TMP/x"
expect_usage "needs a gate of its own" "$EVAL" fit-memory --model "$TMP/base" --samples "$TMP/kept" --memory corpus --knn-lm --apply "$TMP/knn.json"
