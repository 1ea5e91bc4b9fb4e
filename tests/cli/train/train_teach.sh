# drt-train with a taught retriever: it learns to rank the chunks that gain most; a stopped and a killed run continue bit for bit; two
# processes equal one with twice the micro-batches; with projections alone no other tensor changes; programs read the folder; every refusal.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
. "$DRT_SOURCE/tests/cli/lib_train.sh" || exit 1
needs drt-train drt-tokenizer drt-generate

# Each document has eight sentences of its topic in an order of its own: BM25 finds chunks of the topic, and only some of them continue like
# the text.
awk 'BEGIN { srand(3)
    for (t = 0; t < 10; t++) for (i = 0; i < 8; i++) { s[t, i] = ""
        for (w = 0; w < 9; w++) { for (c = 0; c < 4; c++) s[t, i] = s[t, i] sprintf("%c", 97 + int(rand() * 26)); s[t, i] = s[t, i] " " } }
    for (d = 0; d < 60; d++) { text = ""
        for (j = 0; j < 24; j++) text = text s[d % 10, int(rand() * 8)]
        printf "{\"text\": \"%s\"}\n", text } }' >"$TMP/train.jsonl"
expect 0 "$BIN/drt-tokenizer" encode "$TMP/train.jsonl" --tokenizer "$TINY/tokenizer.json" --out "$TMP/train.u16" --eod-id 268
model=$(tr -d '\n' <"$TINY/config.json" | sed 's/, *"retrieval_proj": false//; s/"vocab_size"/"retrieval_proj": true, "memory_layer": 1, "memory_size": 16, "vocab_size"/')
cat >"$TMP/config.json" <<END
{"model": $model, "tokenizer": "$TINY/tokenizer.json", "data": ["$TMP/train.u16"],
 "sequences": 4, "length": 252, "steps": 40, "warmup": 4, "lr": 0.01, "min_lr": 0.001, "save_every": 15,
 "memory": {"weight": 0.5, "past": 0, "passages": 3, "read": 3, "span": 1}, "teach": {"weight": 0.5, "start": 5, "coming": 3}}
END
mean() { # RUN KEY FROM TO
    sed -n 's/.*"step":\([0-9]*\),.*"'"$2"'":\([-0-9.e]*\)[,}].*/\1 \2/p' "$TMP/$1/log.jsonl" |
        awk -v from="$3" -v to="$4" '$1 >= from && $1 <= to { sum += $2; n++ } END { if (n) print sum / n }'
}

expect 0 train --out "$TMP/whole"
same "$(grep -c '"teach_loss"' "$TMP/whole/log.jsonl")" 36 "steps with a teacher: from the fifth one on"
below "$(mean whole teach_gain 31 40)" "$(mean whole teach_best_gain 31 40)" "a query cannot gain more than the best candidate gives"
expect 0 "$GENERATE" --model "$TMP/whole/checkpoints/step-40" --prompt "the river" --max-tokens 8 --greedy --device cpu

# ---- the same run, stopped and killed
disturbed 40 4 17 16

# ---- processes
few="--steps 6 --set teach.start=1 --set save_every=6"
# shellcheck disable=SC2086 # options
expect 0 train --out "$TMP/one" $few --set accumulate=2 --set sequences=2
# shellcheck disable=SC2086
expect 0 train --out "$TMP/two" $few --processes 2 --set sequences=2
paste <(for i in 1 2 3 4 5 6; do echo "$(mean one teach_loss $i $i) $(mean one gradient_norm $i $i)"; done) \
    <(for i in 1 2 3 4 5 6; do echo "$(mean two teach_loss $i $i) $(mean two gradient_norm $i $i)"; done) | awk '
    function far(a, b) { d = a - b; return !(a > 0) || (d < 0 ? -d : d) > 5e-4 * a }
    far($1, $3) || far($2, $4) { print "step " NR ": " $0; bad = 1 } END { exit bad }' || die "two processes and two micro-batches differ"

# ---- only projections learn: without neighbours the trunk equals that of a run without a teacher, bit for bit, clipped or not
exact() { sed -n 's/.*"step":'"$3"',.*"'"$2"'":\([-0-9.e]*\)[,}].*/\1/p' "$TMP/$1/log.jsonl"; }
for clip in 0 1; do
    few="--steps 5 --set teach.start=1 --set pool=none --set memory.gradient=projection --set clip=$clip"
    # shellcheck disable=SC2086
    expect 0 train --out "$TMP/taught-$clip" $few --set teach.weight=4
    # shellcheck disable=SC2086
    expect 0 train --out "$TMP/untaught-$clip" $few --set teach.weight=0
    for i in 1 2 3 4 5; do
        for key in loss gradient_norm; do
            same "$(exact taught-$clip $key $i)" "$(exact untaught-$clip $key $i)" "clip $clip: $key of step $i"
        done
        # The teacher's candidates change the order of the memory's sums.
        same "$(mean taught-$clip memory_loss $i $i)" "$(mean untaught-$clip memory_loss $i $i)" "clip $clip: memory_loss of step $i"
    done
    below 0 "$(exact taught-$clip retriever_gradient_norm 5)" "norm of the taught projections"
done

# ---- refusals
refused() { local what=$1; shift; expect_error "$what" "$TRAIN" --device cpu --out "$TMP/none" --config "$TMP/config.json" "$@"; }
refused "nothing is read that could teach" --set memory.passages=0 --set memory.past=63
refused "nothing is read that could teach" --set memory.weight=0
refused "the model has none: set retrieval_proj" --set "model=$(sed 's/"retrieval_proj": true, //' <<<"$model")"
refused 'only a model with encoder_input "tokens"' --set "model=$(sed 's/"encoder_input": "tokens"/"encoder_input": "hidden"/' <<<"$model")"
refused "which has no retriever" --set "model=$(sed 's/"decoder_layers": \[[^]]*\]/"decoder_layers": [2]/; s/"encoder_layers": 1/"encoder_layers": 0/' <<<"$model")" --set pool=none
refused "must be projections, encoder or all" --set teach.gradient=some
rm -rf "$TMP/none"
refused "was made of" --set teach.coming=2 --set "memory.neighbours=$TMP/whole/neighbours.safetensors"
