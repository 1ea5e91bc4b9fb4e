# drt-generate with a store: traces (JSON lines and page), --show-retrieved, and stores that do not fit.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-generate drt-index
tiny_model "$TMP/m"
corpus "$TMP/c.jsonl" 12 60
# A document that would be markup without escaping.
printf '{"id": "</script><b>", "text": "</script><img src=x onerror=alert(1)> & <!-- %s"}\n' "$(words 60 99)" >>"$TMP/c.jsonl"
tiny_store "$TMP/s" "$TMP/m" "$TMP/c.jsonl"
words 40 7 >"$TMP/prompt"
gen() { expect 0 "$GENERATE" --model "$TMP/m" --prompt-file "$TMP/prompt" --max-tokens 80 --seed 1 "$@"; }

gen && cp "$OUT" "$TMP/plain"
gen --store "$TMP/s" --corpus-retrieval --trace "$TMP/t.jsonl" --show-retrieved 3 && cp "$OUT" "$TMP/corpus"
err_has "c.jsonl doc-"
err_has "weight 0."
err_has "and 1 more"
gen --store "$TMP/s" --corpus-retrieval --nprobe 3 --stats && err_has "corpus searched by exact scan"
gen --store "$TMP/s" --corpus-retrieval --exact && cmp -s "$OUT" "$TMP/corpus" || die "exact search of a small store differs"
for kind in lexical hybrid; do
    gen --store "$TMP/s" --corpus-retrieval --searcher $kind --stats --trace "$TMP/$kind.jsonl"
    err_has "corpus searched by $kind"
    grep -q '"source":"corpus","chunk"' "$TMP/$kind.jsonl" || die "--searcher $kind found nothing"
done
cmp -s "$TMP/lexical.jsonl" "$TMP/t.jsonl" && die "words find what landmarks of a random model find"
words 1500 8 >"$TMP/long"               # more own chunks than corpus chunks, so both sources are found
expect 0 "$GENERATE" --model "$TMP/m" --prompt-file "$TMP/long" --max-tokens 5 --store "$TMP/s" --corpus-retrieval --self-retrieval --trace "$TMP/both.jsonl"
expect 0 "$GENERATE" --model "$TMP/m" --prompt-file "$TMP/long" --max-tokens 5 --self-retrieval --trace "$TMP/self.jsonl"

# One line for each chunk, numbered from 0; no retrieval for the first, the best 4 for the others; weights sum to 1.
lines=$(wc -l <"$TMP/t.jsonl")
[ "$lines" -ge 4 ] || die "only $lines lines in the trace"
awk '{ if (index($0, "{\"chunk\":" NR - 1 ",") != 1) exit 1 }' "$TMP/t.jsonl" || die "lines of the trace are not numbered"
head -n 1 "$TMP/t.jsonl" | grep -q '"groups":\[\]' || die "the first chunk has a retrieval"
sed 1d "$TMP/t.jsonl" | awk '{
    n = gsub(/"rank":/, "&")
    if (n != 4) { print "line " NR + 1 ": " n " chunks"; exit 1 }
    sum = 0
    rest = $0
    while (match(rest, /"weight":[0-9.e+-]+/)) { sum += substr(rest, RSTART + 9, RLENGTH - 9); rest = substr(rest, RSTART + RLENGTH) }
    if (sum < 0.999 || sum > 1.001) { print "line " NR + 1 ": weights sum to " sum; exit 1 }
}' || die "a chunk of the trace is wrong"
grep -q '"source":"self"' "$TMP/both.jsonl" || die "both: nothing from the text's own past"
grep -q '"source":"corpus"' "$TMP/both.jsonl" || die "both: nothing from the corpus"
grep -q '"source":"self"' "$TMP/self.jsonl" || die "self: nothing from the text's own past"
grep -q '"source":"corpus"' "$TMP/self.jsonl" && die "self: something from a corpus"
# A chunk of the text's own past is before the querying chunk, which is the one before the reader.
awk '{ n = split($0, part, "\"source\":\"self\",\"chunk\":"); for (i = 2; i <= n; i++) if (part[i] + 0 >= NR - 2) exit 1 }' "$TMP/self.jsonl" || die "a chunk was retrieved before it was there"
grep -q '"source":"self"' "$TMP/t.jsonl" && die "corpus only: something from the text's own past"
grep -q '"source":"corpus","chunk":[0-9]*,"document":"[^"]*c.jsonl","key":"doc-' "$TMP/t.jsonl" || die "the document is not named"

# The page is one file that loads no other, and no text of a document is markup.
gen --store "$TMP/s" --corpus-retrieval --trace "$TMP/t.html"
grep -q '<!DOCTYPE html>' "$TMP/t.html" || die "no page"
same "$(grep -o '</script' "$TMP/t.html" | wc -l)" 2 "ends of scripts in the page"
grep -q '<img' "$TMP/t.html" && die "a document's markup came through"
grep -Eq '(https?:)?//[a-z]+\.[a-z]|@import|<link' "$TMP/t.html" && die "the page asks for something outside"
echo "the river" >"$TMP/prompt.html"
expect_error "prompt.html: is read, and the output would replace it" "$GENERATE" --model "$TMP/m" --prompt-file "$TMP/prompt.html" --trace "$TMP/prompt.html"
same "$(cat "$TMP/prompt.html")" "the river" "a prompt that --trace names"
expect_error "must end in .jsonl" "$GENERATE" --model "$TMP/m" --prompt x --trace "$TMP/t.txt"
expect_error "nowhere" "$GENERATE" --model "$TMP/m" --prompt x --trace "$TMP/nowhere/t.html"

# A store of another model, another folder, no store, no lexical index.
tiny_store "$TMP/without" "$TMP/m" "$TMP/c.jsonl" --lexical off
expect_error "has no lexical index" "$GENERATE" --model "$TMP/m" --store "$TMP/without" --corpus-retrieval --searcher hybrid --prompt x
expect_usage "scans no landmarks" "$GENERATE" --store "$TMP/s" --corpus-retrieval --searcher lexical --exact
tiny_model "$TMP/other" 77
expect_error "$TMP/other" "$GENERATE" --model "$TMP/other" --store "$TMP/s" --corpus-retrieval --prompt x
expect_error "$TMP/none" "$GENERATE" --model "$TMP/m" --store "$TMP/none" --corpus-retrieval --prompt x
sed 's/"tokens"/"hidden"/' "$TINY/config.json" >"$TMP/hidden.json"
"$MODEL" init --config "$TMP/hidden.json" --tokenizer "$TINY/tokenizer.json" --out "$TMP/hidden" >/dev/null 2>&1 || die "init"
expect_error "own past only" "$GENERATE" --model "$TMP/hidden" --store "$TMP/s" --corpus-retrieval --prompt x
expect 0 "$GENERATE" --model "$TMP/hidden" --self-retrieval --prompt-file "$TMP/prompt" --max-tokens 5
cat >"$TMP/base.json" <<END
{"vocab_size": 271, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "decoder_layers": [2],
 "encoder_layers": 0, "slide_window": 128, "pad_id": 269, "eos_id": 268, "rms_norm_eps": 1e-5}
END
"$MODEL" init --config "$TMP/base.json" --tokenizer "$TINY/tokenizer.json" --out "$TMP/base" >/dev/null 2>"$ERR" || die "init of a Base LM"
expect 0 "$GENERATE" --model "$TMP/base" --prompt "the river" --max-tokens 5
expect_error "Base LM, which has no retrieval" "$GENERATE" --model "$TMP/base" --self-retrieval --prompt x
