#!/usr/bin/env bash
# Fine-tuning on samples: drt-tokenizer samples, drt-train with the key samples, drt-eval tasks. A tiny model with its
# own past, 100 steps: it learns what all summaries have in common, which ROUGE shows.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-eval drt-train drt-tokenizer
tiny_model "$TMP/model"
TOKENIZER=$BIN/drt-tokenizer
cd "$TMP" || exit 1

# samples FILE N SEED [MEMBERS]: documents of 100 words (three chunks), all with one summary.
SUMMARY="seven lights"
samples() {
    local i
    for i in $(seq "$2"); do
        printf '{"%s": "%s", "%s": "%s"}\n' "${4:-document}" "$(words 100 "$((i + $3))")" "${5:-summary}" "$SUMMARY"
    done >"$1"
}
samples train.jsonl 24 100
samples valid.jsonl 4 900 article highlights
expect 0 "$TOKENIZER" samples train.jsonl --tokenizer "$TINY/tokenizer.json" --out train.u16
out_has "train.u16: 24 samples"
longest=$(sed 's/.*longest sample has \([0-9]*\) tokens.*/\1/' "$OUT")
length=$(((longest + 62) / 63 * 63))
[ "$length" -ge 189 ] || die "documents of three chunks"
expect 0 "$TOKENIZER" samples valid.jsonl --tokenizer "$TINY/tokenizer.json" --out valid.u32 --max-tokens "$length"
# Each document of the file is a sample, in the words of drt-eval tasks.
expect 0 "$TOKENIZER" decode train.u16 --tokenizer "$TINY/tokenizer.json"
[ "$(grep -c "|Summary: $SUMMARY" "$OUT")" -ge 1 ] || die "the words between document and summary"
expect 0 "$TOKENIZER" count train.u16 --tokenizer "$TINY/tokenizer.json"
out_has "24 documents"

# Documents that are too long lose their end, never the question or the answer.
expect 0 "$TOKENIZER" samples train.jsonl --tokenizer "$TINY/tokenizer.json" --out cut.u16 --max-tokens 126
out_has "the longest sample has 126 tokens, 24 were cut"
expect 0 "$TOKENIZER" decode cut.u16 --tokenizer "$TINY/tokenizer.json"
[ "$(grep -o "|Summary: $SUMMARY" "$OUT" | wc -l)" = 24 ] || die "a cut sample lost its question or its answer"

config() { # CONFIG STEPS RUN KEYS...
    cat >"$1" <<END
{"start_from": "model", "data": ["train.u16"], "valid": ["valid.u32"], "samples": true, "length": $length,
 "sequences": 4, "steps": $2, "warmup": 2, "lr": 0.01, "min_lr": 0.001, "pool": "own", "save_every": $2, "eval_every": $2, "eval_windows": 0}
END
}
config config.json 100
expect 0 "$BIN/drt-train" --device cpu --threads 2 --config config.json --out run
expect 0 "$EVAL" tasks valid.jsonl --metric rouge --self-retrieval --model model --max-tokens 16 --answers before.jsonl
expect 0 "$EVAL" tasks valid.jsonl --metric rouge --self-retrieval --model run/checkpoints/step-100 --max-tokens 16 --answers after.jsonl
mean() { sed 's/.*"rougeL": *\([0-9.e-]*\).*/\1/' "$1" | awk '{ s += $1 } END { print s / NR }'; }
awk -v a="$(mean before.jsonl)" -v b="$(mean after.jsonl)" 'BEGIN { exit !(b > 0.9 && a < 0.3) }' ||
    die "ROUGE-L before $(mean before.jsonl), after $(mean after.jsonl)"
# Random documents cannot be predicted: the loss is that of the answers alone.
last=$(grep '"loss"' run/log.jsonl | tail -n 1 | sed 's/.*"loss": *\([0-9.e-]*\).*/\1/')
awk -v l="$last" 'BEGIN { exit !(l < 0.5) }' || die "loss $last after 100 steps: more than answers is predicted"

# Stopped and resumed: the same model.
expect 0 "$BIN/drt-train" --device cpu --threads 2 --config config.json --out again --until 37
expect 0 "$BIN/drt-train" --device cpu --threads 2 --out again --resume
cmp -s run/checkpoints/step-100/model.safetensors again/checkpoints/step-100/model.safetensors || die "another model"

# Refused before the first step.
refused() { expect_error "$1" "$BIN/drt-train" --device cpu --config config.json --out refused "${@:2}"; }
refused "must be none, own or corpus" --set pool=batch
refused "needs sampling epochs" --set sampling=random
refused "more than length, 126" --set length=126
rm train.u16.answers
refused "train.u16.answers: is missing"
printf '{"input": "", "outputs": ["x"]}\n' >empty.jsonl
expect_error "line 1 has an empty prompt" "$TOKENIZER" samples empty.jsonl --tokenizer "$TINY/tokenizer.json" --out e.u16
printf '{"input": "the river and the stone", "outputs": ["x"]}\n' >long.jsonl
expect_error "raise --max-tokens" "$TOKENIZER" samples long.jsonl --tokenizer "$TINY/tokenizer.json" --out e.u16 --max-tokens 3
[ ! -e e.u16 ] || die "a file of refused samples"
expect_usage "--out is missing" "$TOKENIZER" samples long.jsonl --tokenizer "$TINY/tokenizer.json"
