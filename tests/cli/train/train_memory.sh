# drt-train with a token memory: on repetitive text the loss with the memory falls below the loss without; a stopped and a killed run
# continue bit for bit; two processes equal one with twice the micro-batches; a Base LM becomes the trunk of a DRT with GCA, a memory, and a
# corpus that is retrieved from and never predicted; programs read the folder; every refusal.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
. "$DRT_SOURCE/tests/cli/lib_train.sh" || exit 1
needs drt-train drt-tokenizer drt-generate

# Every document repeats its own phrase of 24 rare letters; two documents share each phrase.
phrases() { # FILE FIRST DOCUMENTS
    awk -v first="$2" -v n="$3" 'BEGIN { for (d = first; d < first + n; d++) {
        srand(int(d / 2) + 7); phrase = ""; for (i = 0; i < 24; i++) phrase = phrase sprintf("%c", 97 + int(rand() * 26))
        text = ""; for (i = 0; i < 12; i++) text = text phrase " " substr("abcdefghijkl", i + 1, 1 + d % 3) " "
        printf "{\"id\": \"%d\", \"text\": \"%s\"}\n", d, text } }' >"$1"
}
phrases "$TMP/train.jsonl" 0 40
phrases "$TMP/pool.jsonl" 41 9
phrases "$TMP/valid.jsonl" 60 6
for part in train pool valid; do
    expect 0 "$BIN/drt-tokenizer" encode "$TMP/$part.jsonl" --tokenizer "$TINY/tokenizer.json" --out "$TMP/$part.u16" --eod-id 268
done
base=$(tr -d '\n' <"$TINY/config.json" | sed 's/"decoder_layers": \[[^]]*\]/"decoder_layers": [2]/; s/"encoder_layers": 1/"encoder_layers": 0/')
with=$(sed 's/"vocab_size"/"memory_layer": 2, "memory_size": 16, "vocab_size"/' <<<"$base")
cat >"$TMP/config.json" <<END
{"model": $with, "tokenizer": "$TINY/tokenizer.json", "data": ["$TMP/train.u16"], "valid": ["$TMP/valid.u16"], "pool": "none",
 "sequences": 4, "length": 252, "steps": 50, "warmup": 4, "lr": 0.01, "min_lr": 0.001, "save_every": 20, "eval_every": 25,
 "memory": {"weight": 0.5, "start": 3, "past": 200, "drop_past": 0.3, "group": 2, "pack": true, "passages": 1, "read": 4}}
END
number() { sed -n 's/.*"step":'"$2"',.*"'"$3"'":\([-0-9.e]*\)[,}].*/\1/p' "$TMP/$1/log.jsonl" | head -n 1; }

expect 0 train --out "$TMP/whole"
same "$(grep -c '"memory_loss"' "$TMP/whole/log.jsonl")" 48 "steps with a memory: from the third one on"
below "$(number whole 50 memory_loss)" "$(awk -v a="$(number whole 50 loss)" 'BEGIN { print 0.9 * a }')" "memory_loss, loss"
below "$(number whole 50 valid_memory_loss)" "$(awk -v a="$(number whole 50 valid_loss)" 'BEGIN { print 0.9 * a }')" "valid_memory_loss, valid_loss"
below "$(number whole 50 valid_memory_gain_95)" "$(awk -v a="$(number whole 50 valid_loss)" -v b="$(number whole 50 valid_memory_loss)" 'BEGIN { print a - b }')" "valid_memory_gain_95"
below 0.3 "$(number whole 50 memory_share)" "0.3, memory_share"
[ ! -e "$TMP/whole/neighbours.safetensors.lex" ] || die "the index is left"
expect 0 "$MODEL" info "$TMP/whole/checkpoints/step-50"
out_has "keys of layer 2, 16 numbers by a projection"
out_has "memory.key_proj.weight"
expect 0 "$MODEL" info "$TMP/whole/checkpoints/step-50" --json
same "$(json_int "$OUT" memory_layer) $(json_int "$OUT" memory_size)" "2 16" "keys of info --json"
expect 0 "$GENERATE" --model "$TMP/whole/checkpoints/step-50" --prompt "the river" --max-tokens 8 --greedy --device cpu

# ---- the same run, stopped and killed
disturbed 50 17 18 21

# ---- processes: groups are within a micro-batch
few="--steps 6 --set memory.start=1 --set save_every=6 --set valid=[]"
# shellcheck disable=SC2086 # options
expect 0 train --out "$TMP/one" $few --set accumulate=2 --set sequences=2
# shellcheck disable=SC2086
expect 0 train --out "$TMP/two" $few --processes 2 --set sequences=2
paste <(for i in 1 2 3 4 5 6; do echo "$(number one $i memory_loss) $(number one $i gradient_norm)"; done) \
    <(for i in 1 2 3 4 5 6; do echo "$(number two $i memory_loss) $(number two $i gradient_norm)"; done) | awk '
    function far(a, b) { d = a - b; return !(a > 0) || (d < 0 ? -d : d) > 2e-4 * a }
    far($1, $3) || far($2, $4) { print "step " NR ": " $0; bad = 1 } END { exit bad }' || die "two processes and two micro-batches differ"

# ---- a Base LM without a memory as the trunk of a DRT that has one
tr '\n' ' ' <"$TMP/config.json" | sed 's/"memory_layer": 2, "memory_size": 16, //; s/, *"memory": {[^}]*}//' >"$TMP/base.json"
expect 0 "$TRAIN" --device cpu --config "$TMP/base.json" --out "$TMP/base" --set steps=20 --set eval_every=20
# ---- a trunk that is not updated: its gradients are not computed, and the memory learns the same as with them
frozen="--set start_from=$TMP/base/checkpoints/step-20 --set memory.gradient=projection --set memory.start=1 --set memory.weight=1 --set clip=0 --steps 6 --set save_every=6"
# shellcheck disable=SC2086 # options
expect 0 train --out "$TMP/frozen" $frozen --set trunk_lr=0
# shellcheck disable=SC2086
expect 0 train --out "$TMP/nearly" $frozen --set trunk_lr=1e-30
cmp -s "$TMP/frozen/checkpoints/step-6/model.safetensors" "$TMP/nearly/checkpoints/step-6/model.safetensors" || die "trunk_lr 0 and 1e-30 differ"
cmp -s "$TMP/frozen/checkpoints/step-6/model.safetensors" "$TMP/base/checkpoints/step-20/model.safetensors" && die "nothing was learned with trunk_lr 0"
below "$(number frozen 1 gradient_norm)" "$(awk -v a="$(number nearly 1 gradient_norm)" 'BEGIN { print 1.0000001 * a }')" "norm without the trunk"

drt=$(tr -d '\n' <"$TINY/config.json" | sed 's/"vocab_size"/"memory_layer": 1, "memory_size": 8, "vocab_size"/')
cat >"$TMP/drt.json" <<END
{"model": $drt, "start_from": "$TMP/base/checkpoints/step-20", "data": ["$TMP/train.u16"], "pool_data": ["$TMP/pool.u16"],
 "valid": ["$TMP/valid.u16"], "sequences": 2, "length": 189, "steps": 8, "warmup": 1, "lr": 0.002, "min_lr": 0.001,
 "pool": "corpus", "candidates": 4, "refresh": 4, "eval_every": 8, "save_every": 8, "trunk_lr": 0.1,
 "memory": {"weight": 0.5, "past": 126, "passages": 1, "read": 2, "span": 1}}
END
expect 0 "$TRAIN" --device cpu --config "$TMP/drt.json" --out "$TMP/drt"
err_has "others begin anew"
same "$(sed -n 's/.*: \([0-9]*\) tensors taken.*/\1/p' "$ERR")" 20 "tensors of the Base LM"
below "$(number drt 1 loss)" "$(awk -v a="$(number base 1 loss)" 'BEGIN { print 0.8 * a }')" "the loss begins where the Base LM was"
grep -q '"corpus_weight"' "$TMP/drt/log.jsonl" || die "GCA retrieved nothing"
expect 0 "$GENERATE" --model "$TMP/drt/checkpoints/step-8" --prompt "the river" --max-tokens 70 --greedy --device cpu

# ---- "projection": the trunk equals that of a Base LM bit for bit, also if every gradient is clipped
cat >"$TMP/compare.py" <<'P'
import json, sys
def tensors(path):
    data = open(path, "rb").read()
    n = 8 + int.from_bytes(data[:8], "little")
    head = json.loads(data[8:n])
    return {k: data[n + v["data_offsets"][0]:n + v["data_offsets"][1]] for k, v in head.items() if k != "__metadata__"}
base, memory = (tensors(f"{run}/checkpoints/step-5/model.safetensors") for run in sys.argv[1:3])
assert set(memory) - set(base) == {"memory.key_proj.weight", "memory.log_tau", "memory.gate.weight"}, set(memory) ^ set(base)
differ = [name for name in base if base[name] != memory[name]]
assert not differ, differ
P
for clip in 0 1; do
    short="--steps 5 --set save_every=5 --set clip=$clip"
    # shellcheck disable=SC2086 # options
    expect 0 "$TRAIN" --device cpu --config "$TMP/base.json" --out "$TMP/lm-$clip" $short
    for n in none projection states; do
        what="--set memory.gradient=$n --set memory.pack=false"
        [ $n = none ] && what="--set memory.weight=0"
        # shellcheck disable=SC2086
        expect 0 "$TRAIN" --device cpu --config "$TMP/config.json" --out "$TMP/$n-$clip" $short $what
    done
    for n in none projection; do
        for i in 1 2 3 4 5; do
            same "$(number $n-$clip $i loss)" "$(number lm-$clip $i loss)" "$n, clip $clip: loss of step $i"
            same "$(number $n-$clip $i gradient_norm)" "$(number lm-$clip $i gradient_norm)" "$n, clip $clip: norm of step $i"
        done
        python3 "$TMP/compare.py" "$TMP/lm-$clip" "$TMP/$n-$clip" || die "$n, clip $clip: the trunk is another one"
    done
    python3 "$TMP/compare.py" "$TMP/lm-$clip" "$TMP/states-$clip" 2>/dev/null && die "\"states\" left the trunk as it was"
    cmp -s "$TMP/none-$clip/checkpoints/step-5/model.safetensors" "$TMP/projection-$clip/checkpoints/step-5/model.safetensors" && die "the memory learned nothing"
done
# The clip acted on both parts, so that one norm for both would have changed the trunk.
below 1 "$(number projection-1 4 gradient_norm)" "1, norm of the trunk's gradient"
below 0 "$(number projection-1 4 memory_gradient_norm)" "0, norm of the memory's gradient"
cmp -s "$TMP/lm-0/checkpoints/step-5/model.safetensors" "$TMP/lm-1/checkpoints/step-5/model.safetensors" && die "nothing was clipped"

# ---- refusals
refused() { local what=$1; shift; expect_error "$what" "$TRAIN" --device cpu --out "$TMP/none" "$@"; }
refused "has no memory_layer" --config "$TMP/base.json" --set memory.weight=0.5
refused "nothing retrieves from it" --config "$TMP/base.json" --set "pool_data=[\"$TMP/pool.u16\"]"
refused "must be all, states or projection" --config "$TMP/config.json" --set memory.gradient=some
refused "must be a multiple of it" --config "$TMP/config.json" --set memory.group=3
refused "at least memory.passages" --config "$TMP/config.json" --set memory.passages=5
refused "nothing to read" --config "$TMP/config.json" --set memory.past=0 --set memory.group=1 --set memory.pack=false --set memory.passages=0
refused "must be a multiple of enc_chunk_size" --config "$TMP/config.json" --set length=250
refused "memory.pack needs" --config "$TMP/config.json" --set sampling=random
refused "memory_layer is 9: the model has 2 layers" --config "$TMP/config.json" --set "model=$(sed 's/"memory_layer": 2/"memory_layer": 9/' <<<"$with")"
refused "memory_layer is missing" --config "$TMP/config.json" --set "model=$(sed 's/"memory_layer": 2, //' <<<"$with")"
refused "must be 0 or from 2 to hidden_size" --config "$TMP/config.json" --set "model=$(sed 's/"memory_size": 16/"memory_size": 64/' <<<"$with")"
refused "has no counterpart" --config "$TMP/drt.json" --set "model=$(sed 's/"decoder_layers": \[[^]]*\]/"decoder_layers": [1]/; s/"encoder_layers": 1/"encoder_layers": 0/' <<<"$drt")" --set pool=none
refused "is missing" --config "$TMP/drt.json" --set "model=$(sed 's/"decoder_layers": \[[^]]*\]/"decoder_layers": [2,1]/' <<<"$drt")"
rm -rf "$TMP/none"
refused "was made of" --config "$TMP/config.json" --set "memory.neighbours=$TMP/drt/neighbours.safetensors"
rm -rf "$TMP/none"
head -c 100 "$TMP/whole/neighbours.safetensors" >"$TMP/cut.safetensors"
refused "cut.safetensors" --config "$TMP/config.json" --set "memory.neighbours=$TMP/cut.safetensors"
