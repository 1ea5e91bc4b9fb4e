# drt-model info and init: facts, the same seed gives the same model, no incomplete folder, every refusal.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1

expect 0 "$MODEL" --help
out_has "info"
expect_usage "there is no command \"inof\"" "$MODEL" inof
expect 2 "$MODEL"
for command in info init convert; do
    expect 0 "$MODEL" $command --help
    help_is_smooth
    out_has "Usage: drt-model $command"
done
expect_usage "did you mean --config?" "$MODEL" init --confg x
expect_usage "--config is missing" "$MODEL" init --out "$TMP/x"
expect_usage "--out is missing" "$MODEL" init --config "$TINY/config.json"
expect_usage "one argument too many" "$MODEL" info a b

# The same seed: the same bytes. Another seed: others.
tiny_model "$TMP/a" 5
tiny_model "$TMP/b" 5
tiny_model "$TMP/c" 6
cmp -s "$TMP/a/model.safetensors" "$TMP/b/model.safetensors" || die "two models of one seed differ"
cmp -s "$TMP/a/model.safetensors" "$TMP/c/model.safetensors" && die "two seeds give one model"
[ ! -e "$TMP/a.tmp" ] || die "the temporary folder is left"

expect 0 "$MODEL" info "$TMP/a"
out_has "variant      encoder-decoder DRT"
out_has "hidden 32, 2 heads of 16"
out_has "model.upper_layers.0.0.gca.q_proj.weight"
# Counts by hand: embedding 271*32; a layer 4*32*32 + 3*32*64 + 2*32 = 10304; encoder with norm and enc_prenorm 10304+64;
# gca: pre_norm 32, q and o 2*1024, K and V 2*1024, lmk_norms 32; final norm 32.
expect 0 "$MODEL" info "$TMP/a" --json
same "$(json_int "$OUT" embedding)" 8672 embedding
same "$(json_int "$OUT" lower)" 10304 lower
same "$(json_int "$OUT" upper)" 10304 upper
same "$(json_int "$OUT" encoder)" 10368 encoder
same "$(json_int "$OUT" gca)" 4160 gca
same "$(json_int "$OUT" norm)" 32 norm
same "$(json_int "$OUT" total)" 43840 total
out_has '"variant":"encoder-decoder"'

# Keys that nothing reads are allowed and named.
out_has '"unread":""'
sed 's/"eos_id": 268/"eos": 268, "torch_dtype": "float32"/' "$TINY/config.json" >"$TMP/others.json"
expect 0 "$MODEL" init --config "$TMP/others.json" --out "$TMP/others"
err_has "keys that nothing reads: eos, torch_dtype"
expect 0 "$MODEL" info "$TMP/others"
out_has "not read     eos, torch_dtype"
expect 0 "$MODEL" info "$TMP/others" --json
out_has '"unread":"eos, torch_dtype"'

# bf16 halves the size; the fingerprint depends on the values.
expect 0 "$MODEL" convert "$TMP/a" --dtype bf16 --out "$TMP/a16"
expect 0 "$MODEL" info "$TMP/a16"
out_has "BF16"
[ "$(wc -c <"$TMP/a16/model.safetensors")" -lt 110000 ] || die "bf16 is not half as large"

# Existing folders are refused, or replaced with --force if they are model folders.
expect_error "exists already" "$MODEL" init --config "$TINY/config.json" --out "$TMP/a"
expect 0 "$MODEL" init --config "$TINY/config.json" --out "$TMP/a" --force --seed 6
cmp -s "$TMP/a/model.safetensors" "$TMP/c/model.safetensors" || die "--force did not replace the model"
err_has "no --tokenizer given"
[ ! -e "$TMP/a/tokenizer.json" ] || die "a file of the replaced folder is left"
expect 0 "$MODEL" info "$TMP/a"
out_has "tokenizer    none"
mkdir "$TMP/home" && echo precious >"$TMP/home/diary.txt"
expect_error "holds 'diary.txt', which is not a file of a model" "$MODEL" init --config "$TINY/config.json" --out "$TMP/home" --force
[ "$(cat "$TMP/home/diary.txt")" = precious ] || die "--force touched another folder"

# Another process makes the same model: refused, and its files stay. The folder of a killed process is reused.
mkdir "$TMP/m.tmp" && echo half >"$TMP/m.tmp/model.safetensors.tmp"
exec 8<"$TMP/m.tmp"
flock 8
expect_error "another process is making this model" "$MODEL" init --config "$TINY/config.json" --out "$TMP/m"
[ -e "$TMP/m.tmp/model.safetensors.tmp" ] || die "another process's file was removed"
exec 8<&-
expect 0 "$MODEL" init --config "$TINY/config.json" --out "$TMP/m"
[ ! -e "$TMP/m.tmp" ] && [ ! -e "$TMP/m/model.safetensors.tmp" ] || die "a killed process's files are left"

# A failed command leaves no files.
expect_error "no such folder" "$MODEL" info "$TMP/nowhere"
expect_error "nowhere.json" "$MODEL" init --config "$TMP/nowhere.json" --out "$TMP/n"
sed 's/"vocab_size": 271/"vocab_size": 200/; s/: 2[67]\([0-9]\)/: 19\1/' "$TINY/config.json" >"$TMP/small.json"
expect_error "another model's tokenizer" "$MODEL" init --config "$TMP/small.json" --tokenizer "$TINY/tokenizer.json" --out "$TMP/n"
echo '{"vocab_size": 10' >"$TMP/broken.json"
expect_error "broken.json" "$MODEL" init --config "$TMP/broken.json" --out "$TMP/n"
expect_usage "must be one of f32|bf16|f16" "$MODEL" init --config "$TINY/config.json" --dtype f64 --out "$TMP/n"
[ ! -e "$TMP/n" ] && [ ! -e "$TMP/n.tmp" ] || die "a refused model left files"
head -c 3000 "$TMP/b/model.safetensors" >"$TMP/cut" && cp "$TMP/cut" "$TMP/b/model.safetensors"
expect_error "model.safetensors" "$MODEL" info "$TMP/b"
