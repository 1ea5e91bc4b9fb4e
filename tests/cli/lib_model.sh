# lib_model.sh -- what the drt-model, drt-generate and drt-eval scripts share: the tiny model and texts.
. "$DRT_SOURCE/tests/cli/lib.sh"
MODEL=$BIN/drt-model
GENERATE=$BIN/drt-generate
EVAL=$BIN/drt-eval
TINY=$SOURCE/tests/cli/tiny
needs drt-model

# tiny_model FOLDER [SEED]
tiny_model() {
    "$MODEL" init --config "$TINY/config.json" --tokenizer "$TINY/tokenizer.json" --out "$1" --seed "${2:-3}" >/dev/null 2>"$ERR" ||
        die "drt-model init"
}
# tiny_base FOLDER [SEED]: a Base LM of the same size.
tiny_base() {
    sed 's/"decoder_layers": \[/&2], "was": [/; s/"encoder_layers": 1/"encoder_layers": 0/' "$TINY/config.json" | tr -d '\n' |
        sed 's/, *"was": *\[[^]]*\]//' >"$TMP/base.json"
    "$MODEL" init --config "$TMP/base.json" --tokenizer "$TINY/tokenizer.json" --out "$1" --seed "${2:-4}" >/dev/null 2>"$ERR" || die "no Base LM"
}
# words N [SEED]: a line of N words.
words() {
    awk -v n="$1" -v seed="${2:-1}" 'BEGIN {
        srand(seed)
        split("the river and stone winding north other sand ring on table under seven lights of a harbour", word, " ")
        for (i = 0; i < n; i++) printf "%s ", word[1 + int(rand() * 17)]
        print "end."
    }'
}
# corpus FILE DOCUMENTS WORDS [SEED]: jsonl.
corpus() {
    local i
    for i in $(seq "$2"); do printf '{"id": "doc-%d", "text": "%s"}\n' "$i" "$(words "$3" "$((i + ${4:-0}))")"; done >"$1"
}
# tiny_store STORE MODEL CORPUS [OPTIONS...]
tiny_store() {
    needs drt-index
    "$BIN/drt-index" build "$3" --model "$2" --out "$1" "${@:4}" >"$OUT" 2>"$ERR" || die "drt-index build"
}
