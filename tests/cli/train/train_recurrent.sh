# A Block-Recurrent Transformer from end to end: training and that of a Base LM on the same text, stopped and resumed with equal
# bits, perplexity and generation over contexts of several blocks and windows, and every refusal.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
. "$DRT_SOURCE/tests/cli/lib_train.sh" || exit 1
needs drt-train drt-tokenizer drt-eval drt-generate drt-index
keys=', "recurrent_layer": 1, "recurrent_states": 8, "recurrent_block": 32'
variant_texts
variant_run "$keys" "Block-Recurrent Transformer"
model=$TMP/whole/checkpoints/step-30

# ---- it starts from a Base LM's weights: the state adds nothing at first
variant_config "$TMP/taken.cfg" "$keys" ", \"start_from\": \"$TMP/base/checkpoints/step-30\", \"lr\": 0, \"min_lr\": 0, \"steps\": 3, \"eval_every\": 3, \"save_every\": 3"
sed -i 's/"steps": 30, //; s/"lr": 0.005,//; s/"min_lr": 0.001,//; s/"save_every": 10, "eval_every": 30, //' "$TMP/taken.cfg"
expect 0 "$TRAIN" --config "$TMP/taken.cfg" --out "$TMP/taken" --device cpu
same "$(valid_loss "$TMP/taken")" "$(valid_loss "$TMP/base")" "validation of a Base LM with a state that adds nothing"

# ---- refusals, a line each
variant_refused ', "recurrent_layer": 3, "recurrent_states": 8, "recurrent_block": 32' '' "recurrent_layer is 3: the model has 2 layers"
variant_refused ', "recurrent_layer": 1, "recurrent_states": 8' '' "recurrent_block is missing"
variant_refused ', "recurrent_layer": 1, "recurrent_block": 8' '' "recurrent_states is missing"
variant_refused ', "recurrent_states": 8' '' "recurrent_layer is missing"
variant_refused ', "recurrent_layer": 1, "recurrent_states": 8, "recurrent_block": 41' '' "recurrent_block is 41: must be at most slide_window, 40"
variant_refused ', "recurrent_layer": 1, "recurrent_states": 8, "recurrent_block": 30' '' "length is 160: must be a multiple of the model's recurrent_block, 30"
variant_refused "$keys, \"memory_layer\": 1" '' "memory_layer is 1, with recurrent_layer"
variant_needs_base '"recurrent_layer": 1'

# A chunk that is read alone has no state before it, so the model has neither a store of its own nor a memory of a store.
variant_stores_refused "$model" "recurrent_layer is 1" "recurrent_layer is 1"
