# start_from a DRT model with more lower layers than the config: the first of them are taken, with all other tensors; fewer are an
# error.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-train drt-tokenizer
corpus "$TMP/text.jsonl" 8 300
"$BIN/drt-tokenizer" encode "$TMP/text.jsonl" --tokenizer "$TINY/tokenizer.json" --out "$TMP/text.u16" >/dev/null 2>"$ERR" || die "encode"

layers() { tr -d '\n' <"$TINY/config.json" | sed "s/\"decoder_layers\": *\[[^]]*\]/\"decoder_layers\": [$1]/"; }
layers "3, 1" >"$TMP/deep.json"
"$MODEL" init --config "$TMP/deep.json" --tokenizer "$TINY/tokenizer.json" --out "$TMP/deep" --seed 9 >/dev/null 2>"$ERR" || die "init"
config() {
    printf '{"model": %s, "start_from": "%s", "data": ["%s"], "sequences": 2, "length": 252, "steps": 1, "warmup": 0, "lr": 0, "min_lr": 0,
        "save_every": 1, "eval_every": 1}\n' "$(layers "$1")" "$TMP/deep" "$TMP/text.u16" >"$TMP/$2.cfg"
}
config "2, 1" fewer
expect 0 "$BIN/drt-train" --device cpu --config "$TMP/fewer.cfg" --out "$TMP/fewer"
err_has "9 of its tensors are left out, which the model does not have"
if command -v python3 >/dev/null; then
    python3 - "$TMP/deep/model.safetensors" "$TMP/fewer/checkpoints/step-1/model.safetensors" <<'P' || die "other weights than the folder's"
import json, struct, sys
def tensors(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    return {k: data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]]
            for k, t in json.loads(data[8:8 + n]).items() if k != "__metadata__"}
deep, fewer = map(tensors, sys.argv[1:])
assert {k for k in deep if k not in fewer} == {k for k in deep if k.startswith("model.lower_layers.2.")}
assert all(fewer[k] == deep[k] for k in fewer)
P
fi
config "4, 1" more
expect 1 "$BIN/drt-train" --device cpu --config "$TMP/more.cfg" --out "$TMP/more"
err_has "model.lower_layers.3."
[ ! -e "$TMP/more/log.jsonl" ] || die "a run was begun"

# renew: embeddings that point where pad_id's does begin anew. No model of random weights has one, and none may be off without a folder.
sed 's/"lr": 0,/"renew": 0.9, &/' "$TMP/fewer.cfg" >"$TMP/renew.cfg"
expect 0 "$BIN/drt-train" --device cpu --config "$TMP/renew.cfg" --out "$TMP/renew"
err_has "0 embeddings begin anew (renew)"
sed 's/"start_from": *"[^"]*"/"renew": 0.9, "tokenizer": "t.json"/' "$TMP/fewer.cfg" >"$TMP/none.cfg"
expect 1 "$BIN/drt-train" --device cpu --config "$TMP/none.cfg" --out "$TMP/none"
err_has "renew is 0.9: it needs start_from"
