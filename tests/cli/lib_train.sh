# lib_train.sh -- what drt-train scripts share: a run of $TMP/config.json, the same run stopped and killed, and runs of variants of a Base
# LM. Source lib_model.sh first.
TRAIN=$BIN/drt-train
train() { "$TRAIN" --device cpu --threads 2 --config "$TMP/config.json" "$@"; }
# facts RUN: the run's log without times.
facts() { sed 's/"tokens_per_second".*//' "$TMP/$1/log.jsonl"; }
below() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && a < b) }' || die "$3: $1 is not below $2"; }

# same_run RUN STEP WHAT: log and last checkpoint are those of the run "whole", bit for bit.
same_run() {
    [ "$(facts "$1")" = "$(facts whole)" ] || die "$3: the log differs: $(diff <(facts "$1") <(facts whole) | head -n 4)"
    cmp -s "$TMP/$1/checkpoints/step-$2/model.safetensors" "$TMP/whole/checkpoints/step-$2/model.safetensors" || die "$3: weights differ"
}
# disturbed STEP FIRST SECOND LINES: the run to STEP, stopped after steps FIRST and SECOND; and killed after LINES lines of its log.
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

# ---- for variants of a Base LM (train_landmark.sh, train_recurrent.sh)

# variant_texts: $TMP/text.jsonl and $TMP/valid.jsonl, also as token files.
variant_texts() {
    local part
    corpus "$TMP/text.jsonl" 12 400
    corpus "$TMP/valid.jsonl" 3 200 90
    for part in text valid; do
        "$BIN/drt-tokenizer" encode "$TMP/$part.jsonl" --tokenizer "$TINY/tokenizer.json" --out "$TMP/$part.u16" >/dev/null 2>"$ERR" || die "encode"
    done
}
# variant_config FILE MODEL-KEYS TRAINING-KEYS: the config of a Base LM with two layers and these keys.
variant_config() {
    tr -d '\n' <"$TINY/config.json" |
        sed 's/"decoder_layers": \[[^]]*\]/"decoder_layers": [2]/; s/"encoder_layers": 1/"encoder_layers": 0/; s/"slide_window": [0-9]*/"slide_window": 40/' |
        sed "s/} *\$/$2}/" >"$TMP/model.json"
    printf '{"model": %s, "tokenizer": "%s", "data": ["%s"], "valid": ["%s"], "sequences": 2, "length": 160, "steps": 30, "warmup": 3, "lr": 0.005,
        "min_lr": 0.001, "pool": "none", "save_every": 10, "eval_every": 30, "eval_windows": 4%s}\n' \
        "$(cat "$TMP/model.json")" "$TINY/tokenizer.json" "$TMP/text.u16" "$TMP/valid.u16" "$3" >"$1"
}
# Losses of a run in FOLDER: of its last validation, and of its first step.
valid_loss() { grep -o '"valid_loss":[0-9.]*' "$1/log.jsonl" | tail -n 1 | cut -d: -f2; }
first_loss() { grep -o '"loss":[0-9.]*' "$1/log.jsonl" | head -n 1 | cut -d: -f2; }

# variant_run MODEL-KEYS NAME: the variant is trained, and a Base LM on the same text for as many steps; a repeated and a resumed run give the
# same bytes; programs read the folder, name the variant NAME, and take contexts that are longer than a sequence of the training. Makes
# the runs $TMP/base and $TMP/whole.
variant_run() {
    local last=checkpoints/step-30/model.safetensors model=$TMP/whole/checkpoints/step-30
    variant_config "$TMP/base.cfg" '' ''
    variant_config "$TMP/variant.cfg" "$1" ''
    expect 0 "$TRAIN" --config "$TMP/base.cfg" --out "$TMP/base" --device cpu
    expect 0 "$TRAIN" --config "$TMP/variant.cfg" --out "$TMP/whole" --device cpu
    awk -v a="$(valid_loss "$TMP/whole")" -v b="$(valid_loss "$TMP/base")" -v f="$(first_loss "$TMP/whole")" \
        'BEGIN { exit !(a > 0 && a < 0.8 * f && a < 1.1 * b) }' ||
        die "validation: $(valid_loss "$TMP/whole"), the Base LM's $(valid_loss "$TMP/base"), at the first step $(first_loss "$TMP/whole")"

    expect 0 "$TRAIN" --config "$TMP/variant.cfg" --out "$TMP/parts" --device cpu
    cmp -s "$TMP/whole/$last" "$TMP/parts/$last" || die "two runs differ"
    rm -r "$TMP/parts/checkpoints/step-30" "$TMP/parts/checkpoints/step-20"
    expect 0 "$TRAIN" --config "$TMP/variant.cfg" --out "$TMP/parts" --device cpu --resume
    cmp -s "$TMP/whole/$last" "$TMP/parts/$last" || die "a resumed run differs"

    expect 0 "$MODEL" info "$model"
    out_has "$2"
    expect 0 "$EVAL" ppl --model "$model" --data "$TMP/valid.jsonl" --context 500 --skip 100 --device cpu --json
    expect 0 "$GENERATE" --model "$model" --prompt "$(words 60)" --max-tokens 50 --temperature 0 --device cpu
    cp "$OUT" "$TMP/generated"
    expect 0 "$GENERATE" --model "$model" --prompt "$(words 60)" --max-tokens 50 --temperature 0 --device cpu --threads 1
    cmp -s "$OUT" "$TMP/generated" || die "one thread generates other text"
}
# variant_refused MODEL-KEYS TRAINING-KEYS TEXT: drt-train refuses the config with one line that has TEXT, and starts no run.
variant_refused() {
    variant_config "$TMP/bad.cfg" "$1" "$2"
    expect 1 "$TRAIN" --config "$TMP/bad.cfg" --out "$TMP/bad" --device cpu
    err_has "$3"
    [ "$(wc -l <"$ERR")" = 1 ] || die "$3: more than one line"
    [ ! -e "$TMP/bad/log.jsonl" ] || die "$3: a run was started"
}
# variant_needs_base KEY: a DRT's config with this key of a variant is refused.
variant_needs_base() {
    sed "s/\"slide_window\"/$1, \"slide_window\"/" "$TINY/config.json" >"$TMP/drt.json"
    expect 1 "$MODEL" init --config "$TMP/drt.json" --tokenizer "$TINY/tokenizer.json" --out "$TMP/drt"
    err_has "must be a Base LM"
}
# variant_stores_refused MODEL BUILT READ: the model makes no store (message BUILT) and has no memory of a store (message READ), which
# becomes $TMP/store.
variant_stores_refused() {
    tiny_model "$TMP/tiny"
    expect 0 "$BIN/drt-index" build "$TMP/valid.jsonl" --model "$TMP/tiny" --out "$TMP/store" --device cpu
    expect_error "$2" "$BIN/drt-index" build "$TMP/valid.jsonl" --model "$1" --out "$TMP/own" --device cpu
    expect_error "$3" "$BIN/drt-generate" --model "$1" --memory corpus --store "$TMP/store" --prompt x --max-tokens 2 --device cpu
}
