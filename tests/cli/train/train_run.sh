# drt-tokenizer encode, then drt-train: the loss falls; stopped, killed and resumed runs equal the uninterrupted one, bit for bit;
# drt-generate loads a checkpoint; every refusal; a full disk.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-train drt-tokenizer drt-generate
TRAIN=$BIN/drt-train
TOKENIZER=$BIN/drt-tokenizer

# ---- token files
corpus "$TMP/train.jsonl" 12 150
corpus "$TMP/valid.jsonl" 3 120 50
for part in train valid; do
    expect 0 "$TOKENIZER" encode "$TMP/$part.jsonl" --tokenizer "$TINY/tokenizer.json" --out "$TMP/$part.u16" --eod-id 268 --threads 2
done
out_has "3 documents"
expect 0 "$TOKENIZER" encode "$TMP/train.jsonl" --tokenizer "$TINY/tokenizer.json" --out "$TMP/train.u32" --eod-id 268 --threads 1
expect 0 "$TOKENIZER" count "$TMP/train.u32" --tokenizer "$TINY/tokenizer.json" --eod-id 268 --json
same "$(json_int "$OUT" documents)" 12 documents
tokens=$(json_int "$OUT" tokens)
same "$(wc -c <"$TMP/train.u16")" $((2 * (tokens + 12))) "bytes of the u16 file"
expect 0 "$TOKENIZER" decode "$TMP/train.u16" --tokenizer "$TINY/tokenizer.json" --eod-id 268 --documents 1
same "$(cat "$OUT")" "$(sed -n '1s/.*"text": "\(.*\)"}/\1/p' "$TMP/train.jsonl")" "decoded text"
# An end-of-document id that the texts have, too, would cut them: a note counts it.
err_lacks "ends a document"
printf '{"text": "a!b!"}\n{"text": "c"}\n' >"$TMP/ends.jsonl"
expect 0 "$TOKENIZER" encode "$TMP/ends.jsonl" --tokenizer "$TINY/tokenizer.json" --out "$TMP/ends.u16" --eod-id 33
err_has "2 tokens of the texts have the id that ends a document, 33"
expect_error "ends in .u16 or .u32" "$TOKENIZER" encode "$TMP/train.jsonl" --tokenizer "$TINY/tokenizer.json" --out "$TMP/x.bin" --eod-id 268
expect_error "token ids already" "$TOKENIZER" encode "$TMP/train.u16" --tokenizer "$TINY/tokenizer.json" --out "$TMP/x.u16" --eod-id 268
[ ! -e "$TMP/x.u16" ] && [ ! -e "$TMP/x.u16.tmp" ] || die "a failed encode left a file"
expect_usage "--out is missing" "$TOKENIZER" encode "$TMP/train.jsonl" --tokenizer "$TINY/tokenizer.json"

# ---- a run
model=$(sed 's/"chunk_id"/"mask_id": 267, "chunk_id"/' "$TINY/config.json")
cat >"$TMP/config.json" <<END
{"model": $model, "tokenizer": "$TINY/tokenizer.json", "data": ["$TMP/train.u16"], "valid": ["$TMP/valid.u16"],
 "sequences": 2, "length": 189, "accumulate": 2, "steps": 24, "warmup": 2, "lr": 0.01, "min_lr": 0.001,
 "pool": "batch", "mlm": {"rate": 0.15}, "contrastive": {"weight": 0.05, "ramp": 4},
 "save_every": 5, "keep": 2, "eval_every": 12, "eval_windows": 4, "sample_every": 12, "sample_tokens": 8}
END
train() { "$TRAIN" --device cpu --threads 2 "$@"; }
start() { # in the background; not by the function train, whose subshell would get the signals
    "$TRAIN" --device cpu --threads 2 "$@" >"$OUT" 2>"$ERR" &
    pid=$!
}
expect 0 train --config "$TMP/config.json" --out "$TMP/whole"
out_has "checkpoints/step-24"
err_lacks "another tokenizer"
loss() { sed -n 's/.*"step":'"$2"',.*"loss":\([0-9.]*\),"mlm.*/\1/p;s/.*"step":'"$2"',.*"loss":\([0-9.]*\),"contrastive.*/\1/p' "$1" | head -n 1; }
awk -v a="$(loss "$TMP/whole/log.jsonl" 1)" -v b="$(loss "$TMP/whole/log.jsonl" 24)" 'BEGIN { exit !(a > 5.5 && b > 0 && b < 0.75 * a) }' ||
    die "the loss did not fall: $(loss "$TMP/whole/log.jsonl" 1), $(loss "$TMP/whole/log.jsonl" 24)"
same "$(wc -l <"$TMP/whole/log.jsonl")" 24 "lines of the log"
same "$(grep -c '"mlm_loss"' "$TMP/whole/log.jsonl")" 12 "steps with masks: half"
same "$(grep -c '"valid_bits_per_byte"' "$TMP/whole/log.jsonl")" 2 "measurements"
same "$(grep -c valid_bits_per_byte_by_file "$TMP/whole/log.jsonl")" 0 "measurements by file, of one file"
same "$(ls "$TMP/whole/checkpoints" | tr '\n' ' ')" "step-20 step-24 " checkpoints
[ -s "$TMP/whole/samples/step-12.txt" ] || die "no sample"
expect 0 "$GENERATE" --model "$TMP/whole/checkpoints/step-24" --prompt "the river" --max-tokens 8 --greedy --device cpu
expect 0 "$MODEL" info "$TMP/whole/checkpoints/step-24"

# ---- the same run, stopped and killed
# A log without times.
facts() { sed 's/"tokens_per_second".*//' "$1/log.jsonl"; }
same_run() {
    [ "$(facts "$1")" = "$(facts "$TMP/whole")" ] || die "$2: the log differs: $(diff <(facts "$1") <(facts "$TMP/whole") | head -n 4)"
    local file
    for file in model.safetensors state.safetensors config.json; do
        cmp -s "$1/checkpoints/step-24/$file" "$TMP/whole/checkpoints/step-24/$file" || die "$2: $file differs"
    done
}
expect 0 train --config "$TMP/config.json" --out "$TMP/again"
same_run "$TMP/again" "a second run"

expect 0 train --config "$TMP/config.json" --out "$TMP/parts" --until 7
out_has "not finished"
expect 0 train --out "$TMP/parts" --resume --max-minutes 0.0000001
same "$(wc -l <"$TMP/parts/log.jsonl")" 8 "one step in no time"
expect 0 train --out "$TMP/parts" --resume --until 8
expect 0 train --out "$TMP/parts" --resume
same_run "$TMP/parts" "stopped after 7 and 8"

# SIGTERM, SIGINT, or a closed terminal, which sends SIGHUP twice: the current step is finished and kept.
stopped_by() { # folder, signals
    start --config "$TMP/config.json" --out "$TMP/$1"
    for _ in $(seq 200); do [ -s "$TMP/$1/log.jsonl" ] && break; sleep 0.02; done
    for signal in $2; do kill -$signal $pid 2>/dev/null; done
    code=0
    wait $pid || code=$?
    if [ $code != 0 ]; then
        same $code 1 "exit code of a run stopped by $2"
        err_has "stopped after step"
        expect 0 train --out "$TMP/$1" --resume
    fi
    same_run "$TMP/$1" "after $2"
}
stopped_by term TERM
stopped_by hup "HUP HUP"

# kill -9 several times, a little later each time: unsaved steps are repeated.
delay=0.05
start --config "$TMP/config.json" --out "$TMP/kill"
for round in $(seq 12); do
    sleep $delay
    kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
    delay=$(awk -v d=$delay 'BEGIN { print d + 0.04 }')
    if [ -e "$TMP/kill/config.json" ]; then start --out "$TMP/kill" --resume; else start --config "$TMP/config.json" --out "$TMP/kill"; fi
done
wait $pid || die "the last resume failed"
same_run "$TMP/kill" "after kill -9"
[ -z "$(find "$TMP/kill" -name '*.tmp')" ] || die "temporary files are left"

# As a kill between the last checkpoint and the plot leaves it: the plot is drawn when the run is resumed.
rm "$TMP/kill/plot.html" && : >"$TMP/kill/plot.html.tmp"
expect 0 train --out "$TMP/kill" --resume
[ -s "$TMP/kill/plot.html" ] && [ ! -e "$TMP/kill/plot.html.tmp" ] || die "a finished run has no plot"

# Two processes at once: the second one is refused, and the first one continues.
start --config "$TMP/config.json" --out "$TMP/two" --set steps=100000 --set save_every=1
for _ in $(seq 200); do [ -s "$TMP/two/log.jsonl" ] && break; sleep 0.02; done
"$TRAIN" --out "$TMP/two" --resume --device cpu >/dev/null 2>"$TMP/second.err" && die "two runs in one folder"
grep -q "another drt-train writes this run" "$TMP/second.err" || die "the second run is refused with: $(cat "$TMP/second.err")"
kill -TERM $pid
wait $pid
err_has "stopped after step"

# Steps of another size: the count of tokens continues, the plot can be drawn, and a note explains the order of the data.
expect 0 train --config "$TMP/config.json" --out "$TMP/sized" --until 6
expect 0 train --out "$TMP/sized" --resume --until 7 --set sequences=1
expect 0 train --out "$TMP/sized" --resume --until 8
same "$(tail -n 1 "$TMP/sized/log.jsonl" | sed 's/.*"tokens":\([0-9]*\),.*/\1/')" $((6 * 756 + 2 * 378)) "tokens of steps of two sizes"
err_has "the size of a step has changed"
err_lacks "no plot"
expect 0 train --out "$TMP/sized" --resume --steps 7
out_lacks "not finished"

# Other values than before: a note names their keys, also those of the model, once.
expect 0 train --config "$TMP/config.json" --out "$TMP/other" --until 2
expect 0 train --out "$TMP/other" --resume --until 3
err_lacks "other values"
sed -i 's/"chunk_topk": 4/"chunk_topk": 3/' "$TMP/other/config.json"
expect 0 train --config "$TMP/other/config.json" --out "$TMP/other" --resume --until 4 --set lr=0.02 --set mlm.rate=0.2
err_has "other: continues with other values than it had up to step 3: "
for key in lr mlm.rate model.chunk_topk; do grep -q "other values.*[ ,]$key" "$ERR" || die "the note lacks $key"; done
expect 0 train --out "$TMP/other" --resume --until 5
err_lacks "other values"

# A loss that is not a number: the run ends, and the last checkpoint is of a step before it.
expect_error "the last checkpoint is of step 3: resume with a lower lr" "$TRAIN" --config "$TMP/config.json" --out "$TMP/nan" --device cpu --threads 2 \
    --set lr=10 --set min_lr=10 --set warmup=0 --set clip=0 --set beta2=0 --set save_every=3 --set keep=1 --set eval_every=1 --steps 60
err_lacks "-nan"
first=$(grep -m 1 '"skipped":true' "$TMP/nan/log.jsonl" | sed 's/.*"step":\([0-9]*\),.*/\1/')
[ "$first" -gt 3 ] && [ "$first" -le 6 ] || die "the first skipped step is $first: the test needs another lr"
same "$(ls "$TMP/nan/checkpoints")" step-3 "checkpoints of a run whose loss is not a number"

# Ids that are below vocab_size and come from another tokenizer: a note.
LC_ALL=C tr '\141-\172' '\341-\372' <"$TMP/train.u16" >"$TMP/foreign.u16"
expect 0 train --config "$TMP/config.json" --out "$TMP/foreign" --data "$TMP/foreign.u16" --until 1
err_has "foreign.u16: of its first"
err_has "another tokenizer"

# ---- the corpus as a pool: its landmarks are of older weights, and a resumed run has the same ones
corpus_run() { train "$@" --set pool=corpus --set pool_start=4 --set refresh=5 --set save_every=50 --set candidates=5 --set eval_pool=corpus --set corpus_alone=0.5 --set copies.rate=0.5 \
    --set gumbel_until=0.6 --set trunk_lr=0.5 --set contrastive.reach=3 --valid "$TMP/valid.u16" --valid "$TMP/train.u16"; }
expect 0 corpus_run --config "$TMP/config.json" --out "$TMP/corpus"
out_has "valid"
expect 0 corpus_run --config "$TMP/config.json" --out "$TMP/corpus-parts" --until 2
for until in 10 13 24; do expect 0 train --out "$TMP/corpus-parts" --resume --until $until; done
[ "$(facts "$TMP/corpus")" = "$(facts "$TMP/corpus-parts")" ] || die "pool corpus: a resumed run differs"
same "$(grep -c '"corpus_weight"' "$TMP/corpus/log.jsonl")" 21 "steps that could choose from the corpus"
same "$(grep -c 'by_file":{".*valid.u16":[0-9.]*,".*train.u16":[0-9.]*}' "$TMP/corpus/log.jsonl")" 2 "measurements by file"

# ---- damage: the error names the file and a remedy; the earlier checkpoint still exists
truncate -s -8 "$TMP/term/checkpoints/step-24/state.safetensors"
expect_error "checkpoint of step 24 (remove its folder" "$TRAIN" --out "$TMP/term" --resume --device cpu
rm -r "$TMP/term/checkpoints/step-24"
expect 0 train --out "$TMP/term" --resume
same_run "$TMP/term" "after damage"

# ---- refusals
expect 0 "$TRAIN" --help
out_has "contrastive.cut_query"
expect_usage "--out is missing" "$TRAIN" --config "$TMP/config.json"
expect_usage "--config is missing" "$TRAIN" --out "$TMP/x"
expect_error "holds a run already" "$TRAIN" --config "$TMP/config.json" --out "$TMP/whole" --device cpu
sed 's/"version"/ "version"/' "$TINY/tokenizer.json" >"$TMP/other.json"
cmp -s "$TMP/other.json" "$TINY/tokenizer.json" && die "the other tokenizer is the same"
expect_error "other.json: is not the run's own" "$TRAIN" --out "$TMP/parts" --resume --set tokenizer="$TMP/other.json" --device cpu
expect_error "holds no run to resume" "$TRAIN" --out "$TMP/nothing" --resume --device cpu
expect_error 'there is no key "larning_rate"' "$TRAIN" --config "$TMP/config.json" --out "$TMP/x" --set larning_rate=1 --device cpu
expect_error 'mlm is an object: set one of its keys, as mlm.KEY=VALUE' "$TRAIN" --config "$TMP/config.json" --out "$TMP/x" --set mlm=0.1 --device cpu
sed 's/"warmup"/"warm_up"/' "$TMP/config.json" >"$TMP/typo.json"
expect_error 'there is no key "warm_up"' "$TRAIN" --config "$TMP/typo.json" --out "$TMP/x" --device cpu
sed 's/"eos_id"/"eos"/' "$TMP/config.json" >"$TMP/typo.json"
expect_error 'no such key: eos (did you mean "eos_id"?' "$TRAIN" --config "$TMP/typo.json" --out "$TMP/x" --device cpu
# With start_from a model may have keys of other programs; one that is nearly a key of this program is named.
sed 's/"encoder_layers"/"archetecture": "x", "slide_windw": 9, "encoder_layers"/' "$TMP/config.json" >"$TMP/typo.json"
expect 0 train --config "$TMP/typo.json" --out "$TMP/near" --set start_from="$TMP/whole/checkpoints/step-24" --until 1
err_has "model: nothing reads the key slide_windw: did you mean slide_window?"
err_lacks archetecture
expect_error "as 252 is" "$TRAIN" --config "$TMP/config.json" --out "$TMP/x" --set length=200 --device cpu
head -c 1001 "$TMP/train.u16" >"$TMP/odd.u16"
expect_error "not a multiple of 2" "$TRAIN" --config "$TMP/config.json" --out "$TMP/x" --data "$TMP/odd.u16" --device cpu
printf '\377\177%.0s' $(seq 600) >"$TMP/alien.u16"
expect_error "another tokenizer's" "$TRAIN" --config "$TMP/config.json" --out "$TMP/x" --data "$TMP/alien.u16" --device cpu
expect_error "fewer than one sequence" "$TRAIN" --config "$TMP/config.json" --out "$TMP/x" --set length=63000 --device cpu
if (ulimit -v 4000000 && "$TRAIN" --help) >/dev/null 2>&1; then
    (ulimit -v 4000000; expect_error "65536 sequences of 189 tokens in a micro-batch (lower sequences" "$TRAIN" --config "$TMP/config.json" --out "$TMP/x" --set sequences=65536 --device cpu --threads 1) || exit 1
fi
# The ends of documents and duplicates decide which chunks may be found: a note if they look wrong.
expect 0 train --config "$TMP/config.json" --out "$TMP/ends" --until 1
err_lacks "do not end with id"
err_lacks "given twice"
expect 0 train --config "$TMP/config.json" --out "$TMP/other-ends" --until 1 --set end_id=32 --data "$TMP/train.u16" --data "$TMP/train.u16"
err_has "2 of 2 token files do not end with id 32"
err_has "train.u16: given twice: with pool batch"
ln "$TMP/train.u16" "$TMP/pool.u16"
expect 0 train --config "$TMP/config.json" --out "$TMP/pool-data" --until 1 --set pool=corpus --set "pool_data=[\"$TMP/pool.u16\"]"
err_has "pool.u16: given twice: with pool corpus"
cp -r "$TMP/parts" "$TMP/old" && rm "$TMP/old/log.jsonl" "$TMP/old/config.json"
expect_error "holds checkpoints of another run, up to step 24" "$TRAIN" --config "$TMP/config.json" --out "$TMP/old" --device cpu
for pool in batch corpus; do
    expect_error "the training data is one document (end_id is 269): pool $pool" "$TRAIN" --config "$TMP/config.json" --out "$TMP/x" --set pool=$pool --set end_id=269 --device cpu
done
expect_error "the training data differs from that of the run" "$TRAIN" --out "$TMP/parts" --resume --data "$TMP/valid.u16" --device cpu
[ ! -e "$TMP/x" ] || die "a refused run left its folder"

# ---- ulimit -f and a full disk: one line with the cause, earlier checkpoints are complete, and the run continues later
(ulimit -f 100; expect_error "raise ulimit -f" "$TRAIN" --config "$TMP/config.json" --out "$TMP/limited" --device cpu --threads 2) || exit 1
[ -z "$(ls "$TMP/limited/checkpoints")" ] || die "half a checkpoint is left"
expect 0 train --out "$TMP/limited" --resume
same_run "$TMP/limited" "after ulimit -f"
if [ "$(id -u)" = 0 ] && mkdir "$TMP/mount" && mount -t tmpfs -o size=1500k none "$TMP/mount" 2>/dev/null; then
    trap 'umount "$TMP/mount" 2>/dev/null; rm -rf "$TMP"' EXIT
    expect_error "o space left" "$TRAIN" --config "$TMP/config.json" --out "$TMP/mount/run" --device cpu --threads 2 --set keep=9
    [ -z "$(find "$TMP/mount/run/checkpoints" -name '*.tmp')" ] || die "half a checkpoint is left"
    for folder in "$TMP"/mount/run/checkpoints/step-*; do expect 0 "$MODEL" info "$folder"; done
    mount -o remount,size=8m "$TMP/mount"
    expect 0 train --out "$TMP/mount/run" --resume --set keep=2
    same_run "$TMP/mount/run" "after a full disk"
else
    echo "no tmpfs here: the full disk was not tested"
fi
