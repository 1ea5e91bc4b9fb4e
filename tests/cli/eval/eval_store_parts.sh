# drt-eval --store-parts: rows for parts of the store in one run, paired with one another, as a table, JSON and a picture.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-eval drt-index
tiny_base "$TMP/base"
corpus "$TMP/train.jsonl" 10 80
corpus "$TMP/a.jsonl" 4 65 100
corpus "$TMP/b.jsonl" 3 65 200
expect 0 "$BIN/drt-index" build "$TMP/train.jsonl" --model "$TMP/base" --out "$TMP/s"
texts=(--data "$TMP/a.jsonl" --data "$TMP/b.jsonl" --context 252 --skip 64 --max-tokens 300 --document-tokens 100)
parts=(--memory corpus,both --store-parts 1/8,1/2,1)
fit() { expect 0 "$EVAL" fit-memory --model "$TMP/base" "${texts[@]}" --store "$TMP/s" --memory-k 4 "${parts[@]}" "$@"; }
fit --out "$TMP/memory.json" --keep "$TMP/kept" --plot "$TMP/plot.svg" --json --threads 1
cp "$OUT" "$TMP/one"
if ! sanitized; then
    fit --out "$TMP/memory3.json" --plot "$TMP/plot3.svg" --json --threads 3
    cmp -s "$OUT" "$TMP/one" && cmp -s "$TMP/memory.json" "$TMP/memory3.json" && cmp -s "$TMP/plot.svg" "$TMP/plot3.svg" || die "other figures with three threads"
fi
python3 - "$TMP/one" "$TMP/plot.svg" <<'END' || die "rows or picture"
import json, sys, xml.etree.ElementTree as tree
report = json.load(open(sys.argv[1]))
rows = report["store_parts"]
modes = [f"memory-{m}{p}" for m in ("corpus", "both") for p in ("-1/8", "-1/2", "")]
assert [r["mode"] for r in rows] == modes, rows
chunks = rows[2]["chunks"]
assert chunks > 16 and [r["part"] for r in rows[:3]] == [1 / 8, 1 / 2, 1], rows
assert [r["chunks"] for r in rows[:3]] == [chunks // 8, chunks // 2, chunks], rows
for first in (0, 3):
    small, half, whole = rows[first:first + 3]
    assert small["step_percent"] is None and half["step_percent"] is not None
    for r in (half, whole):
        low, high = r["step_percent_interval"]
        assert low <= r["step_percent"] <= high, r
    product = (1 + small["change_percent"] / 100) * (1 + half["step_percent"] / 100) * (1 + whole["step_percent"] / 100)
    assert abs(product - 1 - whole["change_percent"] / 100) < 1e-6, (product, rows)
svg = tree.parse(sys.argv[2]).getroot()
names = [e.tag.split("}")[1] for e in svg.iter()]
assert names.count("circle") == 6 and names.count("polyline") == 2, names
assert any("1/8" == (e.text or "") for e in svg.iter()) and any("memory-both" == (e.text or "") for e in svg.iter())
END
# Kept samples give the same rows; the written configuration is that of the whole store.
expect 0 "$EVAL" fit-memory --model "$TMP/base" --samples "$TMP/kept" "${parts[@]}" --out "$TMP/again.json"
out_has "memory-corpus by part of the store"
cmp -s "$TMP/again.json" "$TMP/memory.json" || die "samples give another configuration"
expect 0 "$EVAL" fit-memory --model "$TMP/base" "${texts[@]}" --store "$TMP/s" --memory-k 4 --memory corpus,both --out "$TMP/whole.json"
cmp -s "$TMP/whole.json" "$TMP/memory.json" || die "parts change the configuration"
expect 0 "$EVAL" ppl --model "$TMP/base" "${texts[@]}" --store "$TMP/s" "${parts[@]}" --memory-config "$TMP/memory.json" --plot "$TMP/ppl.svg"
out_has "memory-both by part of the store"
out_has "1/8"
# A text in the last part of the store is found only in the whole store.
expect 0 "$BIN/drt-index" build "$TMP/train.jsonl" "$TMP/a.jsonl" --model "$TMP/base" --out "$TMP/leaky"
expect 0 "$EVAL" ppl --model "$TMP/base" --data "$TMP/a.jsonl" --context 252 --skip 64 --store "$TMP/leaky" --exclude none --memory corpus --memory-k 2 \
    --memory-every 8 --memory-tau 4 --memory-weight 0.5 --store-parts 1/2 --json
figure() { sed 's/.*"modes":{//; s/.*"'"$1"'":{"perplexity":\([0-9.e+]*\).*/\1/' "$OUT"; }
awk -v half="$(figure memory-corpus-1\\/2)" -v all="$(figure memory-corpus)" 'BEGIN { exit !(all < 0.9 * half) }' || die "finding itself gives $(figure memory-corpus), half the store $(figure memory-corpus-1\\/2)"
# With a single chunk every search finds the same one.
expect 0 "$EVAL" ppl --model "$TMP/base" "${texts[@]}" --store "$TMP/s" --memory corpus --memory-searcher landmark --memory-weight 0.3 --store-parts 1/64 --json
sed 's/.*"modes":{//; s/.*"memory-corpus-1\/64":{"perplexity":\([0-9.e+]*\).*/\1/' "$OUT" >"$TMP/landmark"
expect 0 "$EVAL" ppl --model "$TMP/base" "${texts[@]}" --store "$TMP/s" --memory corpus --memory-weight 0.3 --store-parts 1/64 --json
sed 's/.*"modes":{//; s/.*"memory-corpus-1\/64":{"perplexity":\([0-9.e+]*\).*/\1/' "$OUT" | cmp -s - "$TMP/landmark" || die "one chunk is not the same chunk: $(cat "$TMP/landmark")"
usage() { local wanted=$1; shift; expect_usage "$wanted" "$EVAL" ppl --model "$TMP/base" "${texts[@]}" --store "$TMP/s" "$@"; }
usage "must be a list of 1/64" --memory corpus --store-parts 1/3
usage "must be a list of 1/64" --memory corpus --store-parts 1/2,
usage "with corpus or both in --memory" --memory random --store-parts 1/2
usage "draws the rows of --store-parts" --memory corpus --plot "$TMP/x.svg"
usage "ends in .svg" --memory corpus --store-parts 1/2 --plot "$TMP/x.png"
expect_error "nothing for memory-corpus-1/4" "$EVAL" fit-memory --model "$TMP/base" --samples "$TMP/kept" --memory corpus --store-parts 1/4 --out "$TMP/x.json"
