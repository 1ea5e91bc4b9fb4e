# Hits that the store has and an index does not find: a graph reaches only a part of nearly equal chunks.
# drt-index search then scans; drt-generate and drt-eval print it once, and scan with --exact-fallback.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-generate drt-index drt-eval
INDEX=$BIN/drt-index
tiny_model "$TMP/m"
for i in $(seq 400); do printf '{"id": "%s", "text": "%s"}\n' "$i" "$(printf '%b' "\\x$(printf %x $((97 + i % 26)))\\x$(printf %x $((97 + i / 26)))")"; done >"$TMP/c.jsonl"
expect 0 "$INDEX" build "$TMP/c.jsonl" --out "$TMP/s" --model "$TMP/m" --index HNSW2,SQ8
query=$(words 80 7)
search() { expect 0 "$INDEX" search "$query" --store "$TMP/s" --model "$TMP/m" --k 200 --json "$@"; }
search
same "$(wc -l <"$OUT")" 200 "hits"
err_has "corpus search by exact scan: the index found"
out_has '"searched_by":"exact scan"'
cp "$OUT" "$TMP/hits"
search --exact
cmp -s "$OUT" "$TMP/hits" || die "a scan after the index finds something else than a scan"
grep -q "the index found" "$ERR" && die "an exact search asked the index"

# recall: an index without lists has one row, whatever --nprobe says; a store without an index, too.
for store in s exact; do
    [ $store = s ] || expect 0 "$INDEX" build "$TMP/c.jsonl" --out "$TMP/exact" --model "$TMP/m"
    expect 0 "$INDEX" recall --store "$TMP/$store" --queries 5 --nprobe 1,4,16 --json
    same "$(wc -l <"$OUT")" 1 "rows of a store without lists"
    err_has "so --nprobe changes nothing: one row"
    expect 0 "$INDEX" recall --store "$TMP/$store" --queries 5 --json
    grep -q "changes nothing" "$ERR" && die "one value of --nprobe is explained"
done

# Overwritten lists are not read at opening (verify --deep finds them): their wrong ids are not hits.
expect 0 "$INDEX" build "$TMP/c.jsonl" --out "$TMP/lost" --model "$TMP/m" --index IVF4,SQ8
segment=$TMP/lost/index/00002.faiss
bytes=$((400 * (32 + 8)))
head -c $bytes /dev/zero | tr '\0' '\377' | dd of="$segment" bs=1 seek=$(($(stat -c %s "$segment") - bytes)) conv=notrunc 2>/dev/null

words 400 8 >"$TMP/prompt"
gen() { expect 0 "$GENERATE" --model "$TMP/m" --store "$TMP/lost" --corpus-retrieval --prompt-file "$TMP/prompt" --max-tokens 70 --greedy "$@"; }
eval_corpus() { expect 0 "$EVAL" ppl --model "$TMP/m" --store "$TMP/lost" --modes corpus --data "$TMP/prompt" --format txt --context 400 --skip 64 "$@"; }
lacking="the store's index found too few chunks, though the store has more: the model read fewer"
scanned="the store's index found too few chunks, and the whole store was scanned"
for run in gen eval_corpus; do
    $run
    err_has "$lacking"
    same "$(grep -c "$lacking" "$ERR")" 1 "times that it is named"
    $run --exact-fallback
    err_has "$scanned"
    cp "$OUT" "$TMP/fallback"
    $run --exact
    grep -q "too few chunks" "$ERR" && die "$run: an exact search lacks chunks"
    [ $run = gen ] && { cmp -s "$OUT" "$TMP/fallback" || die "what the fallback finds is not what a scan finds"; }
done
expect_usage "leave out --nprobe and --exact-fallback" "$GENERATE" --model "$TMP/m" --store "$TMP/s" --corpus-retrieval --exact --exact-fallback
expect_usage "need --store DIR" "$GENERATE" --model "$TMP/m" --exact-fallback --prompt x
expect_usage "need a store" "$EVAL" ppl --model "$TMP/m" --data "$TMP/prompt" --exact-fallback
exit 0
