# Landmark Attention from end to end: training beside a Base LM of the same text and steps, stopped and resumed with equal bits,
# perplexity and generation over contexts longer than a sequence of the training, and every refusal.
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
keys=', "landmark_block": 32, "landmark_topk": 2'
config "$TMP/base.cfg" '' ''
config "$TMP/landmark.cfg" "$keys" ''
expect 0 "$TRAIN" --config "$TMP/base.cfg" --out "$TMP/base" --device cpu
expect 0 "$TRAIN" --config "$TMP/landmark.cfg" --out "$TMP/whole" --device cpu

# ---- both learn
loss() { grep -o '"valid_loss":[0-9.]*' "$1/log.jsonl" | tail -n 1 | cut -d: -f2; }
first() { grep -o '"loss":[0-9.]*' "$1/log.jsonl" | head -n 1 | cut -d: -f2; }
awk -v a="$(loss "$TMP/whole")" -v b="$(loss "$TMP/base")" -v f="$(first "$TMP/whole")" 'BEGIN { exit !(a > 0 && a < 0.8 * f && a < 1.1 * b) }' ||
    die "validation: $(loss "$TMP/whole"), the Base LM's $(loss "$TMP/base"), at the first step $(first "$TMP/whole")"

# ---- a run that was stopped gives the same bytes
expect 0 "$TRAIN" --config "$TMP/landmark.cfg" --out "$TMP/parts" --device cpu
cmp -s "$TMP/whole/checkpoints/step-30/model.safetensors" "$TMP/parts/checkpoints/step-30/model.safetensors" || die "two runs differ"
rm -r "$TMP/parts/checkpoints/step-30" "$TMP/parts/checkpoints/step-20"
expect 0 "$TRAIN" --config "$TMP/landmark.cfg" --out "$TMP/parts" --device cpu --resume
cmp -s "$TMP/whole/checkpoints/step-30/model.safetensors" "$TMP/parts/checkpoints/step-30/model.safetensors" || die "a resumed run differs"

# ---- the folder, and contexts longer than a sequence
model=$TMP/whole/checkpoints/step-30
expect 0 "$MODEL" info "$model"
out_has "Landmark Attention"
expect 0 "$EVAL" ppl --model "$model" --data "$TMP/valid.jsonl" --context 500 --skip 100 --device cpu --json
expect 0 "$GENERATE" --model "$model" --prompt "$(words 60)" --max-tokens 50 --temperature 0 --device cpu
cp "$OUT" "$TMP/generated"
expect 0 "$GENERATE" --model "$model" --prompt "$(words 60)" --max-tokens 50 --temperature 0 --device cpu --threads 1
cmp -s "$OUT" "$TMP/generated" || die "one thread generates other text"

# ---- a Base LM's weights serve: landmark attention has no tensor of its own
config "$TMP/taken.cfg" "$keys" ", \"start_from\": \"$TMP/base/checkpoints/step-30\""
expect 0 "$TRAIN" --config "$TMP/taken.cfg" --out "$TMP/taken" --device cpu
awk -v a="$(first "$TMP/taken")" -v b="$(first "$TMP/whole")" 'BEGIN { exit !(a < 0.9 * b) }' ||
    die "started from a Base LM: loss $(first "$TMP/taken"), from nothing $(first "$TMP/whole")"

# ---- refusals, a line each
refuse() { # MODEL-KEYS TRAINING-KEYS TEXT
    config "$TMP/bad.cfg" "$1" "$2"
    expect 1 "$TRAIN" --config "$TMP/bad.cfg" --out "$TMP/bad" --device cpu
    err_has "$3"
    [ "$(wc -l <"$ERR")" = 1 ] || die "$3: more than one line"
    [ ! -e "$TMP/bad/log.jsonl" ] || die "$3: a run was begun"
}
refuse ', "landmark_block": 32' '' "landmark_topk is missing"
refuse ', "landmark_topk": 2' '' "landmark_topk is 2, but landmark_block is missing"
refuse ', "landmark_block": 65, "landmark_topk": 2' '' "landmark_block"
refuse ', "landmark_block": 30, "landmark_topk": 2' '' "length is 160: must be a multiple of the model's landmark_block, as 180 is"
refuse "$keys, \"recurrent_layer\": 1, \"recurrent_states\": 8, \"recurrent_block\": 32" '' "recurrent_layer is 1, with landmark_block"
refuse "$keys, \"memory_layer\": 1" '' "memory_layer is 1, with landmark_block"
sed 's/"slide_window"/"landmark_block": 32, "slide_window"/' "$TINY/config.json" >"$TMP/drt.json"
expect 1 "$MODEL" init --config "$TMP/drt.json" --tokenizer "$TINY/tokenizer.json" --out "$TMP/drt"
err_has "must be a Base LM"
sed 's/"chunk_id"/"chunk_id_of_another"/' "$TMP/landmark.cfg" >"$TMP/bad.cfg"
expect 1 "$TRAIN" --config "$TMP/bad.cfg" --out "$TMP/bad" --device cpu
err_has "chunk_id is missing"

# Chunks that are read alone have no landmarks: neither a store of this model nor a memory of a store. The own past has them.
tiny_model "$TMP/tiny"
expect 0 "$INDEX" build "$TMP/valid.jsonl" --model "$TMP/tiny" --out "$TMP/store" --device cpu
expect_error "landmark_block is 32" "$INDEX" build "$TMP/valid.jsonl" --model "$model" --out "$TMP/own" --device cpu
expect_error "was built with tokens a chunk 63" "$GENERATE" --model "$model" --memory corpus --store "$TMP/store" --prompt x --max-tokens 2 --device cpu
expect 0 "$GENERATE" --model "$model" --memory own --prompt "$(words 60)" --max-tokens 20 --device cpu
