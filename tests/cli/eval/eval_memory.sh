# drt-eval with token memories: fit-memory and ppl agree, threads change no bit, a Base LM for comparison, every refusal.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-eval drt-index
tiny_model "$TMP/m"
tiny_base "$TMP/base"
corpus "$TMP/train.jsonl" 10 80
corpus "$TMP/a.jsonl" 4 65 100
corpus "$TMP/b.jsonl" 3 65 200
tiny_store "$TMP/s" "$TMP/m" "$TMP/train.jsonl"
memory=(--store "$TMP/s" --memory-k 4)
texts=(--data "$TMP/a.jsonl" --data "$TMP/b.jsonl" --context 252 --skip 64)
# gain MODE: its mean over files in the JSON of the last run.
gain() { sed -n 's/.*"mode":"'"$1"'","against":"[a-z]*","gain_percent":\([-0-9.e+]*\).*/\1/p' "$OUT"; }
# figure MODE: its perplexity over all files.
figure() { sed 's/.*"modes":{//; s/.*"'"$1"'":{"perplexity":\([0-9.e+]*\).*/\1/' "$OUT"; }

# Without training: a random model gains from the repetitions of the text. The Base LM reads the store of another model.
expect 0 "$EVAL" fit-memory --model "$TMP/base" "${texts[@]}" "${memory[@]}" --memory own,corpus,both,random --memory-every 16 --out "$TMP/memory.json" --json --threads 1
cp "$OUT" "$TMP/one"
cp "$TMP/memory.json" "$TMP/memory1.json"
for mode in memory-own memory-corpus memory-both; do
    awk -v g="$(gain $mode)" 'BEGIN { exit !(g < -30) }' || die "$mode gives $(gain $mode) % to a model that knows nothing"
done
none=$(figure none)
if ! sanitized; then # eval_memory_search.sh computes with three threads there
    expect 0 "$EVAL" fit-memory --model "$TMP/base" "${texts[@]}" "${memory[@]}" --memory own,corpus,both,random --memory-every 16 --out "$TMP/memory.json" --json --threads 3
    cmp -s "$OUT" "$TMP/one" || die "other figures with three threads"
    cmp -s "$TMP/memory.json" "$TMP/memory1.json" || die "another gate with three threads"
fi

# ppl with that configuration gives the fit's figures of the odd documents.
expect 0 "$EVAL" ppl --model "$TMP/base" "${texts[@]}" "${memory[@]}" --memory own,corpus,both,random --memory-config "$TMP/memory.json" --documents odd --json
both=$(figure memory-both)
awk -v b="$both" -v n="$(figure none)" 'BEGIN { exit !(b < 0.7 * n) }' || die "a fitted memory gives $both"
# Passages are rounded on a processor with AVX512_BF16, unless --dtype is f32. The own past is not.
for dtype in auto f32; do
    expect 0 "$EVAL" ppl --model "$TMP/base" "${texts[@]}" "${memory[@]}" --memory own,corpus --memory-config "$TMP/memory.json" --dtype $dtype --json
    declare "corpus_$dtype=$(figure memory-corpus)" "own_$dtype=$(figure memory-own)"
done
awk -v a="$corpus_auto" -v b="$corpus_f32" 'BEGIN { exit !(a < b * 1.01 && b < a * 1.01) }' || die "rounded passages: $corpus_auto against $corpus_f32"
[ "$own_auto" = "$own_f32" ] || die "the own past is rounded: $own_auto against $own_f32"
if grep -q avx512_bf16 /proc/cpuinfo; then
    [ "$corpus_auto" != "$corpus_f32" ] || die "no passage is rounded, or --dtype f32 rounds: $corpus_auto"
else
    [ "$corpus_auto" = "$corpus_f32" ] || die "--dtype f32 changes the corpus: $corpus_auto against $corpus_f32"
fi
# Weights of 8 bits change the model's perplexity, and little.
expect 0 "$EVAL" ppl --model "$TMP/base" "${texts[@]}" --documents odd --device cpu --dtype i8 --json
none_i8=$(figure none)
expect 0 "$EVAL" ppl --model "$TMP/base" "${texts[@]}" --documents odd --device cpu --json
awk -v a="$none_i8" -v b="$(figure none)" 'BEGIN { exit !(a != b && a < b * 1.01 && b < a * 1.01) }' || die "--dtype i8: $none_i8 against $(figure none)"
expect 0 "$EVAL" ppl --model "$TMP/base" "${texts[@]}" --memory own --memory-config "$TMP/memory.json" --documents all --json
near() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b * 1.000001 && b < a * 1.000001) }' || die "$3: $1 against $2"; }
near "$(figure none)" "$none" "none of ppl and of fit-memory"
# One weight for all tokens: p = (1 - g) p_lm + g p_mem is at least (1 - g) p_lm, so the perplexity grows at most by the factor 1 / (1 - g).
expect 0 "$EVAL" ppl --model "$TMP/base" "${texts[@]}" --memory own --memory-weight 0.001 --json
awk -v m="$(figure memory-own)" -v n="$none" 'BEGIN { exit !(m < n / 0.999 && m > n * 0.5 && m != n) }' || die "weight 0.001: $(figure memory-own) against $none"

# With a Base LM, gains are against it.
expect 0 "$EVAL" ppl --model "$TMP/m" --base "$TMP/base" "${texts[@]}" --memory own --json
near "$(figure base)" "$none" "the Base LM beside another model"
out_has '"mode":"memory-own","against":"base"'
expect 0 "$EVAL" ppl --model "$TMP/m" --base "$TMP/base" "${texts[@]}" --memory own
out_has "memory-own against base"
out_has "to base"

# With GCA, the model alone has the figure of ppl with that retrieval, and the mixture another one.
expect 0 "$EVAL" ppl --model "$TMP/m" "${texts[@]}" --store "$TMP/s" --modes none,self,both --json
for mode in none self both; do declare "ppl_$mode=$(figure $mode)"; done
sed 's/.*"scored":\[{"in_file":0,"number":0,//' "$OUT" | grep -q '^"scored_tokens":[0-9]*,"scored_bytes":[0-9]*,"nll":{"none":[0-9.]*,"self":[0-9.]*,"both":[0-9.]*}}' || die "scored documents"
gca=(none self both)
sanitized && gca=(both) # self and none are parts of it
for mode in "${gca[@]}"; do
    expect 0 "$EVAL" fit-memory --model "$TMP/m" "${texts[@]}" "${memory[@]}" --memory both --gca $mode --out "$TMP/gca.json" --json
    name=ppl_$mode
    near "$(figure none)" "${!name}" "the model with --gca $mode"
    declare "memory_$mode=$(figure memory-both)"
done
sanitized || { [ "$memory_none" != "$memory_self" ] && [ "$memory_self" != "$memory_both" ]; } || die "--gca changes nothing: $memory_none $memory_self $memory_both"
expect_usage "it needs --memory LIST" "$EVAL" ppl --data x --gca self
expect_usage "need --store DIR" "$EVAL" ppl --data x --gca both --memory own

# A text that is also in the store does not find itself, unless the options allow it.
"$BIN/drt-index" build "$TMP/train.jsonl" "$TMP/a.jsonl" --out "$TMP/leaky" --model "$TMP/m" >"$OUT" 2>"$ERR" || die "build"
leak() { expect 0 "$EVAL" ppl --model "$TMP/base" --data "$TMP/a.jsonl" --context 252 --skip 64 --store "$TMP/leaky" --memory corpus --memory-k 2 --memory-every 8 --memory-tau 4 --memory-weight 0.5 --json "$@"; }
leak
clean=$(figure memory-corpus)
leak --exclude none
awk -v a="$(figure memory-corpus)" -v b="$clean" 'BEGIN { exit !(a < 0.9 * b) }' || die "finding itself gives $(figure memory-corpus), not finding $clean"

expect 0 "$EVAL" fit-memory --help
help_is_smooth
expect 0 "$BIN/drt-index" lexical --help
help_is_smooth
expect_usage "must be none, or a list" "$EVAL" ppl --data x --memory owm
expect_usage "need --store DIR" "$EVAL" ppl --data x --memory corpus
expect_usage "leave --lexical DIR out" "$EVAL" ppl --data x --memory both --store "$TMP/s" --lexical "$TMP/lex"
expect_usage "they would not be used" "$EVAL" ppl --data x --memory-k 3
expect_usage "take doc or none" "$EVAL" ppl --data x --memory corpus --store y --exclude window=3
expect_usage "--out FILE is missing" "$EVAL" fit-memory --data x --memory own
expect_usage "nothing to fit" "$EVAL" fit-memory --data x --memory none --out y
expect_usage "name both" "$EVAL" fit-memory --data x --memory random --store y --out z
expect_error "the model has 2 layers" "$EVAL" ppl --model "$TMP/base" "${texts[@]}" --memory own --memory-layer 3
expect_error "must be two numbers" "$EVAL" ppl --model "$TMP/base" "${texts[@]}" --memory own --memory-span 1
expect_error "memory.json: its gate was fitted with --memory-layer 2, not 1" "$EVAL" ppl --model "$TMP/base" "${texts[@]}" --memory own --memory-config "$TMP/memory.json" --memory-layer 1
expect_error "memory.json: its gate was fitted with --memory-span 0,1, not 1,0: leave" "$EVAL" ppl --model "$TMP/base" "${texts[@]}" "${memory[@]}" --memory corpus --memory-config "$TMP/memory.json" --memory-span 1,0
expect_error "has both" "$EVAL" ppl --model "$TMP/base" "${texts[@]}" --memory own --memory-config "$TMP/memory.json" --memory-tau 3
cp -r "$TMP/s" "$TMP/without"
expect 0 "$BIN/drt-index" lexical --store "$TMP/without" --remove
expect_error "has no lexical index: make it with drt-index lexical" "$EVAL" ppl --model "$TMP/base" "${texts[@]}" --memory corpus --store "$TMP/without"
expect 0 "$EVAL" fit-memory --model "$TMP/base" "${texts[@]}" --memory own --out "$TMP/own.json"
expect_error 'nothing fitted for "corpus"' "$EVAL" ppl --model "$TMP/base" "${texts[@]}" "${memory[@]}" --memory corpus --memory-config "$TMP/own.json"
for output in --out --keep; do
    cp "$TMP/a.jsonl" "$TMP/replaced.jsonl"
    expect_error "replaced.jsonl: is read, and the output would replace it" "$EVAL" fit-memory --model "$TMP/base" --data "$TMP/b.jsonl" --data "$TMP/replaced.jsonl" --context 252 --skip 64 --memory own --out "$TMP/own2.json" $output "$TMP/replaced.jsonl"
    cmp "$TMP/a.jsonl" "$TMP/replaced.jsonl" || die "a text was replaced by $output"
done
expect_error "no token to fit" "$EVAL" fit-memory --model "$TMP/base" "${texts[@]}" --max-documents 1 --memory own --out "$TMP/none.json"
expect_error "is a Base LM, which has no retrieval" "$EVAL" ppl --model "$TMP/base" "${texts[@]}" --self-retrieval --memory own
