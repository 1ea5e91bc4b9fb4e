# Landmark Attention from end to end: training and that of a Base LM on the same text, stopped and resumed with equal bits,
# perplexity and generation over contexts longer than a sequence of the training, and every refusal.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
. "$DRT_SOURCE/tests/cli/lib_train.sh" || exit 1
needs drt-train drt-tokenizer drt-eval drt-generate drt-index
keys=', "landmark_block": 32, "landmark_topk": 2'
variant_texts
variant_run "$keys" "Landmark Attention"
model=$TMP/whole/checkpoints/step-30

# ---- it starts from a Base LM's weights: Landmark Attention has no tensor of its own
variant_config "$TMP/taken.cfg" "$keys" ", \"start_from\": \"$TMP/base/checkpoints/step-30\""
expect 0 "$TRAIN" --config "$TMP/taken.cfg" --out "$TMP/taken" --device cpu
awk -v a="$(first_loss "$TMP/taken")" -v b="$(first_loss "$TMP/whole")" 'BEGIN { exit !(a < 0.9 * b) }' ||
    die "started from a Base LM: loss $(first_loss "$TMP/taken"), from random weights $(first_loss "$TMP/whole")"

# ---- refusals, a line each
variant_refused ', "landmark_block": 32' '' "landmark_topk is missing"
variant_refused ', "landmark_topk": 2' '' "landmark_topk is 2, but landmark_block is missing"
variant_refused ', "landmark_block": 65, "landmark_topk": 2' '' "landmark_block"
variant_refused ', "landmark_block": 30, "landmark_topk": 2' '' "length is 160: must be a multiple of the model's landmark_block, as 180 is"
variant_refused "$keys, \"recurrent_layer\": 1, \"recurrent_states\": 8, \"recurrent_block\": 32" '' "recurrent_layer is 1, with landmark_block"
variant_refused "$keys, \"memory_layer\": 1" '' "memory_layer is 1, with landmark_block"
variant_needs_base '"landmark_block": 32'
sed 's/"chunk_id"/"chunk_id_of_another"/' "$TMP/variant.cfg" >"$TMP/bad.cfg"
expect 1 "$TRAIN" --config "$TMP/bad.cfg" --out "$TMP/bad" --device cpu
err_has "chunk_id is missing"

# A chunk that is read alone has no earlier landmarks, so the model has neither a store of its own nor a memory of a store. A memory of
# the text's own past works.
variant_stores_refused "$model" "landmark_block is 32" "was built with tokens a chunk 63"
expect 0 "$GENERATE" --model "$model" --memory own --prompt "$(words 60)" --max-tokens 20 --device cpu
