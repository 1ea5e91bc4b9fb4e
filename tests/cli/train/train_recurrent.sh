# A Block-Recurrent Transformer from end to end: training beside a Base LM of the same text and steps, stopped and resumed with equal bits,
# perplexity and generation over contexts longer than its window, and every refusal.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-train drt-tokenizer drt-eval drt-generate drt-index
TRAIN=$BIN/drt-train INDEX=$BIN/drt-index
corpus "$TMP/text.jsonl" 12 400
corpus "$TMP/valid.jsonl" 3 200 90
for part in text valid; do "$BIN/drt-tokenizer" encode "$TMP/$part.jsonl" --tokenizer "$TINY/tokenizer.json" --out "$TMP/$part.u16" >/dev/null 2>"$ERR" || die "encode"; done

# config FILE MODEL-KEYS TRAINING-KEYS
config() {
    tr -d '\n' <"$TINY/config.json" |
        sed 's/"decoder_layers": \[[^]]*\]/"decoder_layers": [2]/; s/"encoder_layers": 1/"encoder_layers": 0/; s/"slide_window": [0-9]*/"slide_window": 40/' | sed "s/} *\$/$2}/" >"$TMP/model.json"
    printf '{"model": %s, "tokenizer": "%s", "data": ["%s"], "valid": ["%s"], "sequences": 2, "length": 160, "steps": 30, "warmup": 3, "lr": 0.005,
        "min_lr": 0.001, "pool": "none", "save_every": 10, "eval_every": 30, "eval_windows": 4%s}\n' \
        "$(cat "$TMP/model.json")" "$TINY/tokenizer.json" "$TMP/text.u16" "$TMP/valid.u16" "$3" >"$1"
}
keys=', "recurrent_layer": 1, "recurrent_states": 8, "recurrent_block": 32'
config "$TMP/base.cfg" '' ''
config "$TMP/recurrent.cfg" "$keys" ''
expect 0 "$TRAIN" --config "$TMP/base.cfg" --out "$TMP/base" --device cpu
expect 0 "$TRAIN" --config "$TMP/recurrent.cfg" --out "$TMP/whole" --device cpu

# ---- both learn
loss() { grep -o '"valid_loss":[0-9.]*' "$1/log.jsonl" | tail -n 1 | cut -d: -f2; }
first() { grep -o '"loss":[0-9.]*' "$1/log.jsonl" | head -n 1 | cut -d: -f2; }
awk -v a="$(loss "$TMP/whole")" -v b="$(loss "$TMP/base")" -v f="$(first "$TMP/whole")" 'BEGIN { exit !(a > 0 && a < 0.8 * f && a < 1.1 * b) }' ||
    die "validation: $(loss "$TMP/whole"), the Base LM's $(loss "$TMP/base"), at the first step $(first "$TMP/whole")"

# ---- a run that was stopped gives the same bytes
expect 0 "$TRAIN" --config "$TMP/recurrent.cfg" --out "$TMP/parts" --device cpu
cmp -s "$TMP/whole/checkpoints/step-30/model.safetensors" "$TMP/parts/checkpoints/step-30/model.safetensors" || die "two runs differ"
rm -r "$TMP/parts/checkpoints/step-30" "$TMP/parts/checkpoints/step-20"
expect 0 "$TRAIN" --config "$TMP/recurrent.cfg" --out "$TMP/parts" --device cpu --resume
cmp -s "$TMP/whole/checkpoints/step-30/model.safetensors" "$TMP/parts/checkpoints/step-30/model.safetensors" || die "a resumed run differs"

# ---- the folder, and contexts of several blocks and windows
model=$TMP/whole/checkpoints/step-30
expect 0 "$MODEL" info "$model"
out_has "Block-Recurrent Transformer"
expect 0 "$EVAL" ppl --model "$model" --data "$TMP/valid.jsonl" --context 500 --skip 100 --device cpu --json
expect 0 "$GENERATE" --model "$model" --prompt "$(words 60)" --max-tokens 50 --temperature 0 --device cpu
cp "$OUT" "$TMP/generated"
expect 0 "$GENERATE" --model "$model" --prompt "$(words 60)" --max-tokens 50 --temperature 0 --device cpu --threads 1
cmp -s "$OUT" "$TMP/generated" || die "one thread generates other text"

# ---- a Base LM takes a state, which adds nothing at first
config "$TMP/taken.cfg" "$keys" ", \"start_from\": \"$TMP/base/checkpoints/step-30\", \"lr\": 0, \"min_lr\": 0, \"steps\": 3, \"eval_every\": 3, \"save_every\": 3"
sed -i 's/"steps": 30, //; s/"lr": 0.005,//; s/"min_lr": 0.001,//; s/"save_every": 10, "eval_every": 30, //' "$TMP/taken.cfg"
expect 0 "$TRAIN" --config "$TMP/taken.cfg" --out "$TMP/taken" --device cpu
same "$(loss "$TMP/taken")" "$(loss "$TMP/base")" "validation of a Base LM with a state that adds nothing"

# ---- refusals, a line each
refuse() { # MODEL-KEYS TRAINING-KEYS TEXT
    config "$TMP/bad.cfg" "$1" "$2"
    expect 1 "$TRAIN" --config "$TMP/bad.cfg" --out "$TMP/bad" --device cpu
    err_has "$3"
    [ ! -e "$TMP/bad/log.jsonl" ] || die "$3: a run was begun"
}
refuse ', "recurrent_layer": 3, "recurrent_states": 8, "recurrent_block": 32' '' "recurrent_layer is 3: the model has 2 layers"
refuse ', "recurrent_layer": 1, "recurrent_states": 8' '' "recurrent_block is missing"
refuse ', "recurrent_layer": 1, "recurrent_block": 8' '' "recurrent_states is missing"
refuse ', "recurrent_states": 8' '' "recurrent_layer is missing"
refuse ', "recurrent_layer": 1, "recurrent_states": 8, "recurrent_block": 41' '' "recurrent_block is 41: must be at most slide_window, 40"
refuse ', "recurrent_layer": 1, "recurrent_states": 8, "recurrent_block": 30' '' "length is 160: must be a multiple of the model's recurrent_block, 30"
refuse "$keys, \"memory_layer\": 1" '' "memory_layer is 1, with recurrent_layer"
sed 's/"slide_window"/"recurrent_layer": 1, "slide_window"/' "$TINY/config.json" >"$TMP/drt.json"
expect 1 "$MODEL" init --config "$TMP/drt.json" --tokenizer "$TINY/tokenizer.json" --out "$TMP/drt"
err_has "must be a Base LM"

# Chunks that are read alone have no state before them: neither a store of this model nor a memory of a store.
tiny_model "$TMP/tiny"
expect 0 "$INDEX" build "$TMP/valid.jsonl" --model "$TMP/tiny" --out "$TMP/store" --device cpu
expect_error "recurrent_layer is 1" "$INDEX" build "$TMP/valid.jsonl" --model "$model" --out "$TMP/own" --device cpu
expect_error "recurrent_layer is 1" "$GENERATE" --model "$model" --memory corpus --store "$TMP/store" --prompt x --max-tokens 2 --device cpu
