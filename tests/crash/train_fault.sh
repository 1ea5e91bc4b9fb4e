#!/usr/bin/env bash
# A short training run is killed at every fault point of its files (of allocations: at some), or the call fails there. The same command,
# resumed, makes the checkpoint and the log of an uninterrupted run.
#
#   train_fault.sh [STRIDE]     of allocations every STRIDEth is tried (default 40)
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_model.sh" || exit 1
needs drt-train drt-train-fault drt-tokenizer
FAULT=$BIN/drt-train-fault
corpus "$TMP/train.jsonl" 6 120
expect 0 "$BIN/drt-tokenizer" encode "$TMP/train.jsonl" --tokenizer "$TINY/tokenizer.json" --out "$TMP/train.u16" --eod-id 268
cat >"$TMP/config.json" <<END
{"model": $(cat "$TINY/config.json"), "tokenizer": "$TINY/tokenizer.json", "data": ["$TMP/train.u16"], "valid": ["$TMP/train.u16"],
 "sequences": 1, "length": 126, "steps": 4, "warmup": 1, "save_every": 2, "keep": 1, "eval_every": 2, "eval_windows": 2,
 "sample_every": 2, "sample_tokens": 2, "checkpoint_type": "bf16"}
END
options=(--device cpu --threads 1)
facts() { sed 's/"tokens_per_second".*//' "$1/log.jsonl"; }
expect 0 "$BIN/drt-train" --config "$TMP/config.json" --out "$TMP/whole" "${options[@]}"

# $1 kill or fail, $2 number of the pass, $3 its name. Sets `passed` if there is no such pass.
try() {
    local file
    rm -rf "$TMP/s"
    faulty $1 $2:$3 "$FAULT" --config "$TMP/config.json" --out "$TMP/s" "${options[@]}"
    [ $1:$passed != fail:0 ] || grep -q "^drt-train: .*injected fault" "$ERR" || die "a failure at $2 of $3 says nothing"
    if [ -e "$TMP/s/config.json" ]; then
        expect 0 "$BIN/drt-train" --out "$TMP/s" --resume "${options[@]}"
    else
        expect 0 "$BIN/drt-train" --config "$TMP/config.json" --out "$TMP/s" "${options[@]}"
    fi
    [ "$(facts "$TMP/s")" = "$(facts "$TMP/whole")" ] || die "fault point $2 of $3 ($1): the log differs"
    same "$(ls "$TMP/s/checkpoints")" step-4 "checkpoints after fault point $2 of $3 ($1)"
    for file in model.safetensors state.safetensors config.json tokenizer.json; do
        cmp -s "$TMP/s/checkpoints/step-4/$file" "$TMP/whole/checkpoints/step-4/$file" || die "fault point $2 of $3 ($1): $file differs"
    done
}

stride=${1:-40}
tried=0
for mode in kill fail; do
    for name in file:write file:before-sync file:before-rename file:before-directory-sync checkpoint:before-rename memory:allocate; do
        step=1
        [ $name = memory:allocate ] && step=$stride
        for ((n = 1, passed = 0; n < 4000; n += step)); do
            try $mode $n $name
            # Failures that do not stop a run (of its plot) also give 0: then the next pass is tried.
            [ $passed = 1 ] && { [ $mode = kill ] || ! grep -q "no plot" "$ERR"; } && break
            tried=$((tried + 1))
        done
    done
done
[ $tried -gt 40 ] || die "only $tried fault points were reached"
echo "$tried fault points"
