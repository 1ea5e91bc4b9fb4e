# tests/device/run_models.sh, which trains and scores the default models on a GPU machine, from end to end on the CPU, with smaller versions
# of the shipped configs. The shipped models have equal sizes within 5 %, below 30 million.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-train drt-tokenizer drt-index drt-eval
sanitized && skip "a test of a script: with sanitizers train_memory, train_teach, eval_memory and others run what it runs"
RUN=$DRT_SOURCE/tests/device/run_models.sh
folder=$TMP/models; mkdir "$folder" "$TMP/configs"
for program in drt-train drt-tokenizer drt-index drt-eval; do ln -s "$BIN/$program" "$folder/$program"; done

# ---- sizes: a model of the shipped shape, and its config
for name in base full memory joint drt; do
    config=$DRT_SOURCE/tests/device/models/$name.json
    tr -d '\n' <"$config" | sed 's/"vocab_size": 16384/"vocab_size": 271/; s/"hidden_size": 384/"hidden_size": 32/; s/"intermediate_size": 1024/"intermediate_size": 64/
        s/"num_attention_heads": 6/"num_attention_heads": 2/; s/"chunk_id": 16383/"chunk_id": 270/; s/_id": 16382/_id": 269/g; s/"eos_id": 0/"eos_id": 268/
        s/"memory_size": [0-9]*/"memory_size": 16/; s/\[12\]/[3]/; s/\[10, 1\]/[2, 1]/; s/"memory_layer": 1[12]/"memory_layer": 3/; s/"sequences": [0-9]*/"sequences": 4/; s/"length": 4032/"length": 126/; s/"steps": [0-9]*/"steps": 16/; s/step-4200/step-16/
        s/"warmup": [0-9]*/"warmup": 2/; s/"start": [0-9]*/"start": 4/g; s/"eval_every": [0-9]*/"eval_every": 8/' >"$TMP/configs/$name.json"
    [ $name = memory ] || same "$(tr ',{}' '\n' <"$config" | sed -n 's/ *"\(sequences\|length\|steps\|lr\|min_lr\|warmup\)": *//p' | tr '\n' ' ')" "24 4032 4200 0.0015 0.00005 200 " "$name: sequences, length, steps, rates"
done
parameters() { # NAME LAYERS OTHERS: embedding, layers of 4 d^2 + 3 d ffn, the rest, d 384
    awk -v layers="$2" -v others="$3" 'BEGIN { d = 384; print 16384 * d + layers * (4 * d * d + 3 * d * 1024) + others * d * d }'
}
grep -q '^ "trunk_lr": 0,$' "$DRT_SOURCE/tests/device/models/memory.json" || die "memory: its trunk is not the Base LM's"
base=$(parameters base 12 0) drt=$(parameters drt 12 6)
awk -v a="$base" -v b="$drt" 'BEGIN { exit !(b < 30e6 && b / a < 1.05) }' || die "sizes: $base and $drt"

# ---- every action
awk 'BEGIN { srand(5); for (t = 0; t < 6; t++) { p[t] = ""; for (i = 0; i < 60; i++) p[t] = p[t] sprintf("%c", 97 + int(rand() * 26)) (i % 5 ? "" : " ") }
    for (d = 0; d < 24; d++) { text = ""; for (i = 0; i < 14; i++) text = text p[(d + (i % 3 ? 0 : i)) % 6] " "; printf "{\"text\": \"%s\"}\n", text } }' >"$TMP/all.jsonl"
for domain in books dialogue math techdocs wiki; do
    sed -n 1,12p "$TMP/all.jsonl" >"$folder/train-$domain.jsonl"
    sed -n 13,16p "$TMP/all.jsonl" >"$folder/valid-$domain.jsonl"
done
run() { env -u OUT bash "$RUN" "$1" "$folder" --device cpu --configs "$TMP/configs" --tokenizer "$TINY/tokenizer.json" "${@:2}"; }
expect 0 run prepare --models memory,drt
[ -s "$folder/neighbours-2.safetensors" ] && [ -s "$folder/neighbours-taught.safetensors" ] || die "no neighbours"
before=$(stat -c %Y%i "$folder/neighbours-2.safetensors")
expect 0 run train --models base
expect 0 run estimate --models base,full,memory,joint,drt
for name in base full memory joint drt; do out_has "$name: about"; done
expect 3 run estimate --limit 1 --models memory
out_has "more than the limit of 1 s"
expect 0 run train --models full,memory,joint,drt
for name in base full memory joint drt; do
    pieces=$folder/pieces/$name
    [ -s "$folder/runs/$name/checkpoints/step-16/model.safetensors" ] || die "$name: not trained to the end"
    (cd "$pieces" && sh join.sh >/dev/null) || die "$name: its pieces do not join"
    cmp -s "$pieces/model.safetensors" "$folder/runs/$name/checkpoints/step-16/model.safetensors" || die "$name: the joined weights differ"
    expect 0 "$MODEL" info "$pieces"
done
last_loss() { grep -o '"valid_loss":[0-9.]*' "$folder/runs/$1/log.jsonl" | tail -n 1 | cut -d: -f2; }
awk -v a="$(last_loss memory)" -v b="$(last_loss base)" 'BEGIN { exit !(a > 0 && (a - b) ^ 2 < (b / 1000) ^ 2) }' ||
    die "without its memory the model's loss is $(last_loss memory), the Base LM's $(last_loss base)" # a checkpoint is rounded to bf16
grep -q '"teach_accuracy"' "$folder/runs/drt/log.jsonl" || die "the retriever was not taught"
same "$(stat -c %Y%i "$folder/neighbours-2.safetensors")" "$before" "the prepared neighbours were used"
sed -n 17,20p "$TMP/all.jsonl" >"$folder/other-text.jsonl"
expect 0 run evaluate --models base,memory --eval-tokens 256 --k 8
out_has "a store of other text"
out_has "own"
out_has "corpus"
[ -s "$folder/memory-memory.json" ] || die "no memory.json"
expect 2 bash "$RUN" bake "$folder"
expect 2 run train --models none
