# drt-model convert: safetensors and torch checkpoints (tests/cli/torch/*.bin) into a folder, and every refusal.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
TORCH=$SOURCE/tests/cli/torch

tiny_model "$TMP/a"
expect 0 "$MODEL" convert "$TMP/a/model.safetensors" --config "$TINY/config.json" --tokenizer "$TINY/tokenizer.json" --out "$TMP/b"
cmp -s "$TMP/a/model.safetensors" "$TMP/b/model.safetensors" || die "safetensors to safetensors changed the weights"
expect_usage "--out is missing" "$MODEL" convert "$TMP/a"
expect_usage "an argument is missing" "$MODEL" convert --out "$TMP/x"
expect_error "give its config.json with --config" "$MODEL" convert "$TMP/a/model.safetensors" --out "$TMP/x"
expect_error "nowhere.bin" "$MODEL" convert "$TMP/nowhere.bin" --out "$TMP/x"
mkdir "$TMP/empty"
expect_error "holds no model.safetensors" "$MODEL" convert "$TMP/empty" --out "$TMP/x"
echo '{}' >"$TMP/empty/model.safetensors.index.json"
expect_error "index.json: the weights are in several files" "$MODEL" convert "$TMP/empty" --out "$TMP/x"
cp -r "$TMP/a" "$TMP/several"
mv "$TMP/several/model.safetensors" "$TMP/several/model-00001-of-00002.safetensors"
echo '{}' >"$TMP/several/model.safetensors.index.json"
expect_error "index.json: the weights are in several files" "$MODEL" info "$TMP/several"

# A folder's gates of token memories fit its weights: copied with these, and named in a note if the weights are rounded.
cp -r "$TMP/a" "$TMP/fitted"
for name in memory.json memory-cpu.json; do echo "{\"of\": \"$name\"}" >"$TMP/fitted/$name"; done
expect 0 "$MODEL" convert "$TMP/fitted" --out "$TMP/gates"
diff -r "$TMP/fitted" "$TMP/gates" >"$OUT" || die "a copy of a model folder differs"
expect 0 "$MODEL" convert "$TMP/fitted" --dtype bf16 --out "$TMP/gates" --force
err_has "fitted/memory.json was fitted to the weights before their rounding, and is not copied"
same "$(ls "$TMP/gates" | tr '\n' ' ')" "config.json model.safetensors tokenizer.json " "files of a rounded model"

# The same tiny model as torch.save writes it in data-parallel training: the prefix "module.", slopes, the tied head.
expect 0 "$MODEL" convert "$TORCH/tiny_module.bin" --config "$TORCH/config.json" --out "$TMP/t"
expect 0 "$MODEL" info "$TMP/t" --json
cp "$OUT" "$TMP/t.json"
expect 0 "$MODEL" convert "$TORCH/tiny_plain.safetensors" --config "$TORCH/config.json" --out "$TMP/p"
cmp -s "$TMP/t/model.safetensors" "$TMP/p/model.safetensors" || die "torch and safetensors of one model differ"
# The same weights, saved by torch 1.13 itself.
expect 0 "$MODEL" convert "$TORCH/torch_1.13_module.bin" --config "$TORCH/config.json" --out "$TMP/g"
cmp -s "$TMP/g/model.safetensors" "$TMP/p/model.safetensors" || die "a file of torch's own gives another model"
# Inside a training checkpoint with an optimiser's state.
expect 0 "$MODEL" convert "$TORCH/tiny_nested.bin" --config "$TORCH/config.json" --out "$TMP/n"
err_has "outside of the model were left out"
cmp -s "$TMP/t/model.safetensors" "$TMP/n/model.safetensors" || die "the nested checkpoint gives another model"
# Released sizes are recognised without a config, and the assumed values are printed.
cat >"$TMP/released.json" <<END
{"vocab_size": 50265, "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 1, "decoder_layers": [2, 1, 1],
 "encoder_layers": 1, "enc_chunk_size": 63, "chunk_topk": 8, "slide_window": 512, "chunk_id": 50264, "mask_id": 50263,
 "pad_id": 50257, "eos_id": 50256, "rms_norm_eps": 1e-5, "encoder_input": "hidden"}
END
expect 0 "$MODEL" init --config "$TMP/released.json" --out "$TMP/released" --dtype bf16
expect 0 "$MODEL" info "$TMP/released" --json
sed 's/"model":"[^"]*"//' "$OUT" >"$TMP/released.facts"
expect 0 "$MODEL" convert "$TMP/released/model.safetensors" --out "$TMP/r"
err_has "these values are assumed"
err_has "enc_chunk_size 63, chunk_topk 8, chunk_id 50264"
expect 0 "$MODEL" info "$TMP/r" --json
sed 's/"model":"[^"]*"//' "$OUT" | cmp -s - "$TMP/released.facts" || die "the inferred config is not the one it was made with"

# Tensors of two types (here: the last one, of 32 numbers, is F32 and the others are BF16): --dtype keep writes F32.
expect 0 "$MODEL" convert "$TMP/a" --dtype bf16 --out "$TMP/mixed"
n=$(head -c 8 "$TMP/mixed/model.safetensors" | od -An -tu8 | tr -d ' ')
tail -c +9 "$TMP/mixed/model.safetensors" | head -c "$n" >"$TMP/header"
end=$(($(wc -c <"$TMP/mixed/model.safetensors") - 8 - n))
sed "s/\"BF16\"\(,\"shape\":\[32\],\"data_offsets\":\[$((end - 64)),\)$end\]/\"F32\"\1$((end + 64))]/" "$TMP/header" >"$TMP/header.mixed"
{
    size=$(wc -c <"$TMP/header.mixed")
    for i in 0 8 16 24 32 40 48 56; do printf "\\x$(printf %02x $((size >> i & 255)))"; done
    cat "$TMP/header.mixed"
    tail -c "$end" "$TMP/mixed/model.safetensors" | head -c $((end - 64))
    tail -c 128 "$TMP/a/model.safetensors"
} >"$TMP/mixed.safetensors"
cp "$TMP/mixed.safetensors" "$TMP/mixed/model.safetensors"
expect 0 "$MODEL" convert "$TMP/mixed" --out "$TMP/kept"
expect 0 "$MODEL" convert "$TMP/mixed" --out "$TMP/wide" --dtype f32
cmp -s "$TMP/kept/model.safetensors" "$TMP/wide/model.safetensors" || die "tensors of several types were not kept as F32"
printf '\0\0\300\177' | dd of="$TMP/mixed/model.safetensors" bs=1 seek=$((8 + size + end)) conv=notrunc 2>/dev/null
expect_error "mixed/model.safetensors: " "$MODEL" convert "$TMP/mixed" --out "$TMP/x"
err_has "not a finite number"

expect_error "refuses to run pickle global 'os.system'" "$MODEL" convert "$TORCH/hostile.bin" --config "$TORCH/config.json" --out "$TMP/x"
expect_error "before torch 1.6" "$MODEL" convert "$TORCH/legacy.bin" --config "$TORCH/config.json" --out "$TMP/x"
expect_error "lm_head.weight differs from the embedding" "$MODEL" convert "$TORCH/untied.bin" --config "$TORCH/config.json" --out "$TMP/x"
expect_error "tensor" "$MODEL" convert "$TORCH/missing.bin" --config "$TORCH/config.json" --out "$TMP/x"
head -c 20000 "$TORCH/tiny_module.bin" >"$TMP/cut.bin"
expect_error "cut short" "$MODEL" convert "$TMP/cut.bin" --config "$TORCH/config.json" --out "$TMP/x"
[ ! -e /tmp/drt-owned ] || die "code of a pickle was run"
[ ! -e "$TMP/x" ] && [ ! -e "$TMP/x.tmp" ] || die "a refused checkpoint left files"
