# drt-model sketch: a copy of a Base LM with the idf of each id, which equals counts of the store's ids; what the copy keeps; programs load it;
# every refusal, which leaves no files.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-generate drt-index drt-train
command -v python3 >/dev/null || skip "no python3"
INDEX=$BIN/drt-index
tiny_base "$TMP/m"
corpus "$TMP/train.jsonl" 12 80
printf '{"text": "seven lights"}\n' >>"$TMP/train.jsonl"
tiny_store "$TMP/s" "$TMP/m" "$TMP/train.jsonl" --landmarks none
sketch() { expect 0 "$MODEL" sketch --model "$TMP/m" --store "$TMP/s" "$@"; }
# members MODEL: the tensors of a model, a line each with a hash of its bytes.
members() {
    python3 - "$1/model.safetensors" <<'P'
import hashlib, json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
for name, t in sorted(json.loads(data[8:8 + size]).items()):
    if name == "__metadata__": continue
    begin, end = t["data_offsets"]
    print(name, t["dtype"], t["shape"], hashlib.sha256(data[8 + size + begin:8 + size + end]).hexdigest())
P
}
# counts MODEL STORE TOLERANCE: its idf is that of the store's ids, and is not that of another store.
counts() {
    expect 0 "$INDEX" export --store "$2" --landmarks none
    python3 - "$1/model.safetensors" "$OUT" "$3" <<'P' || die "$1: another idf than that of $2"
import json, math, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
t = json.loads(data[8:8 + size])["landmark_sketch.idf"]
begin, end = t["data_offsets"]
raw = data[8 + size + begin:8 + size + end]
if t["dtype"] == "BF16":
    raw = b"".join(b"\0\0" + raw[i:i + 2] for i in range(0, len(raw), 2))
idf = struct.unpack("<%df" % (len(raw) // 4), raw)
chunks = [set(json.loads(line)["ids"]) for line in open(sys.argv[2])]
n = len(chunks)
assert len(idf) == 271 and t["shape"] == [271] and n > 1, (t, n)
frequency = [sum(i in c for c in chunks) for i in range(271)]
assert 0 in frequency and max(frequency) > n / 2, frequency
for i, df in enumerate(frequency):
    want = math.log(1 + (n - df + 0.5) / (df + 0.5))
    assert abs(idf[i] - want) <= float(sys.argv[3]) * want, (i, df, idf[i], want)
P
}

# ---- the copy
sketch --out "$TMP/k"
out_has "$TMP/k: landmarks with a sketch of 384 numbers, idf of 271 ids counted in "
counts "$TMP/k" "$TMP/s" 1e-6
members "$TMP/m" >"$TMP/members-m"
members "$TMP/k" | grep -v '^landmark_sketch.idf F32 ' >"$TMP/members-k"
same "$(cat "$TMP/members-k")" "$(cat "$TMP/members-m")" "the other tensors"
python3 -c 'import json, sys
a, b = (json.load(open(f + "/config.json")) for f in sys.argv[1:])
assert b.pop("landmark_sketch") == 384 and a == b, (a, b)' "$TMP/m" "$TMP/k" || die "the other keys of config.json"
cmp -s "$TMP/m/tokenizer.json" "$TMP/k/tokenizer.json" || die "another tokenizer"
cp "$TMP/k/model.safetensors" "$TMP/first"
expect_error "exists already" "$MODEL" sketch --model "$TMP/m" --store "$TMP/s" --out "$TMP/k"
sketch --size 16 --out "$TMP/k" --force
cmp -s "$TMP/first" "$TMP/k/model.safetensors" || die "the size changes the weights"

# ---- programs load it
expect 0 "$MODEL" info "$TMP/k"
out_has "sketch       16 of the 48 numbers of a landmark"
grep -Eq '^  sketch +271  ' "$OUT" || die "no group of the tensor"
out_has "landmark_sketch.idf                                      F32  [271]"
expect 0 "$MODEL" info "$TMP/k" --json
same "$(json_int "$OUT" landmark_sketch)" 16 landmark_sketch
same "$(json_int "$OUT" sketch)" 271 sketch
expect 0 "$MODEL" info "$TMP/m" --json
same "$(json_int "$OUT" landmark_sketch)" 0 "landmark_sketch of a model without one"
for dtype in f32 i8; do
    for model in m k; do
        expect 0 "$GENERATE" --model "$TMP/$model" --prompt "the river" --greedy --max-tokens 12 --dtype $dtype
        cp "$OUT" "$TMP/text-$model"
    done
    cmp -s "$TMP/text-m" "$TMP/text-k" || die "another text, $dtype"
done
expect 0 "$GENERATE" --model "$TMP/k" --store "$TMP/s" --memory corpus --prompt "the river" --max-tokens 4
expect 0 "$MODEL" convert "$TMP/k" --dtype bf16 --out "$TMP/k16"
expect 0 "$MODEL" info "$TMP/k16"
out_has "landmark_sketch.idf                                      BF16 [271]"
sketch --weights bf16 --out "$TMP/w16"
counts "$TMP/w16" "$TMP/s" 0.004
cmp -s <(members "$TMP/k16") <(members "$TMP/w16") || die "--weights bf16 is not the conversion"

# A projection and a sketch may follow each other.
expect 0 "$MODEL" project --model "$TMP/k" --store "$TMP/s" --size 16 --out "$TMP/kp"
expect 0 "$MODEL" info "$TMP/kp"
out_has "16 numbers by a projection"
out_has "sketch       16 of"
counts "$TMP/kp" "$TMP/s" 1e-6

# Deleted documents do not count.
expect 0 "$INDEX" delete --store "$TMP/s" --document 2
sketch --out "$TMP/less"
counts "$TMP/less" "$TMP/s" 1e-6
cmp -s "$TMP/first" "$TMP/less/model.safetensors" && die "a deleted document counts"

# ---- refusals
refused() { # TEXT OPTIONS...: also of more options
    local text=$1
    shift
    expect_error "$text" "$MODEL" sketch --out "$TMP/x" "$@"
    [ ! -e "$TMP/x" ] && [ ! -e "$TMP/x.tmp" ] || die "a refused copy leaves files: $text"
}
refused "$TMP/k: has a sketch already (landmark_sketch 16): take the model without one" --model "$TMP/k" --store "$TMP/s"
tiny_model "$TMP/drt"
refused "$TMP/drt: is no plain Base LM" --model "$TMP/drt" --store "$TMP/s"
sed 's/"encoder_layers": 0/&, "recurrent_layer": 1, "recurrent_states": 8, "recurrent_block": 32/' "$TMP/base.json" >"$TMP/recurrent.json"
expect 0 "$MODEL" init --config "$TMP/recurrent.json" --tokenizer "$TINY/tokenizer.json" --out "$TMP/recurrent"
refused "$TMP/recurrent: is no plain Base LM" --model "$TMP/recurrent" --store "$TMP/s"
cp -r "$TMP/m" "$TMP/chunk64"
sed -i 's/"enc_chunk_size": 63/"enc_chunk_size": 64/' "$TMP/chunk64/config.json"
refused "tokens a chunk 63" --model "$TMP/chunk64" --store "$TMP/s"
cp -r "$TMP/m" "$TMP/other"
python3 - "$TMP/other/tokenizer.json" <<'P'
import json, sys
t = json.load(open(sys.argv[1]))
vocab = t["model"]["vocab"]
a, b = "!", "#"
vocab[a], vocab[b] = vocab[b], vocab[a]
json.dump(t, open(sys.argv[1], "w"))
P
refused "tokenizer" --model "$TMP/other" --store "$TMP/s"
printf '{"text": "abc"}\n' >"$TMP/short.jsonl"
tiny_store "$TMP/empty" "$TMP/m" "$TMP/short.jsonl" --landmarks none
expect 0 "$INDEX" delete --store "$TMP/empty" --document 0
refused "$TMP/empty: has no chunks to count ids in: take a store with text" --model "$TMP/m" --store "$TMP/empty"
refused "$TMP/nowhere" --model "$TMP/m" --store "$TMP/nowhere"
refused "$TMP/nowhere" --model "$TMP/nowhere" --store "$TMP/s"
expect_usage "drt-model sketch: --model is missing" "$MODEL" sketch --store "$TMP/s" --out "$TMP/x"
expect_usage "drt-model sketch: --store is missing" "$MODEL" sketch --model "$TMP/m" --out "$TMP/x"
expect_usage "drt-model sketch: --out is missing" "$MODEL" sketch --model "$TMP/m" --store "$TMP/s"
for size in 7 65537; do expect_usage "must be between 8 and 65536" "$MODEL" sketch --model "$TMP/m" --store "$TMP/s" --out "$TMP/x" --size $size; done
expect 0 "$MODEL" sketch --help
help_is_smooth
mkdir "$TMP/t.tmp"
exec 8<"$TMP/t.tmp"
flock 8
expect_error "another process is making this model" "$MODEL" sketch --model "$TMP/m" --store "$TMP/s" --out "$TMP/t"
[ -d "$TMP/t.tmp" ] || die "another process's folder was removed"
exec 8<&-

# A model of another folder's config: the tensor and the key need each other.
cp -r "$TMP/k" "$TMP/bad"
sed -i 's/"landmark_sketch": *16/"landmark_sketch": 7/' "$TMP/bad/config.json"
expect_error "bad/config.json: landmark_sketch is 7: must be 0 or from 8 to 65536" "$MODEL" info "$TMP/bad"
sed -i 's/"landmark_sketch": *7/"landmark_sketch": 0/' "$TMP/bad/config.json"
expect_error "tensor landmark_sketch.idf is not part of a model with this config" "$MODEL" info "$TMP/bad"
cp "$TMP/m/model.safetensors" "$TMP/bad/model.safetensors"
sed -i 's/"landmark_sketch": *0/"landmark_sketch": 8/' "$TMP/bad/config.json"
expect_error "tensor landmark_sketch.idf is missing" "$GENERATE" --model "$TMP/bad" --prompt x

# Training a model with a sketch is refused; so is one that begins from it.
printf '{"start_from": "%s", "data": ["%s"]}\n' "$TMP/k" "$TMP/none.u16" >"$TMP/run.json"
expect_error "landmark_sketch: is fitted after training, by drt-model sketch" "$BIN/drt-train" --device cpu --config "$TMP/run.json" --out "$TMP/run"
