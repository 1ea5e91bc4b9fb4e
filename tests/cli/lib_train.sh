# lib_train.sh -- what drt-train scripts share: a run of $TMP/config.json, and the same run disturbed. Source lib_model.sh first.
TRAIN=$BIN/drt-train
train() { "$TRAIN" --device cpu --threads 2 --config "$TMP/config.json" "$@"; }
# facts RUN: its log without times.
facts() { sed 's/"tokens_per_second".*//' "$TMP/$1/log.jsonl"; }
below() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && a < b) }' || die "$3: $1 is not below $2"; }

# same_run RUN STEP WHAT: log and last checkpoint are those of the run "whole", bit for bit.
same_run() {
    [ "$(facts "$1")" = "$(facts whole)" ] || die "$3: the log differs: $(diff <(facts "$1") <(facts whole) | head -n 4)"
    cmp -s "$TMP/$1/checkpoints/step-$2/model.safetensors" "$TMP/whole/checkpoints/step-$2/model.safetensors" || die "$3: weights differ"
}
# disturbed STEP FIRST SECOND LINES: the run stopped after steps FIRST and SECOND, and killed after LINES lines of its log.
disturbed() {
    local pid
    expect 0 train --out "$TMP/parts" --until "$2"
    expect 0 "$TRAIN" --device cpu --threads 2 --out "$TMP/parts" --resume --until "$3"
    expect 0 "$TRAIN" --device cpu --threads 2 --out "$TMP/parts" --resume
    same_run parts "$1" "stopped after $2 and $3"
    "$TRAIN" --device cpu --threads 2 --config "$TMP/config.json" --out "$TMP/kill" >"$OUT" 2>"$ERR" &
    pid=$!
    for _ in $(seq 400); do [ "$(wc -l 2>/dev/null <"$TMP/kill/log.jsonl")" -gt "$4" ] 2>/dev/null && break; sleep 0.02; done
    kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
    expect 0 "$TRAIN" --device cpu --threads 2 --out "$TMP/kill" --resume
    same_run kill "$1" "after kill -9"
}
