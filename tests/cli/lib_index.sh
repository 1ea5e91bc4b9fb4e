# lib_index.sh -- what the drt-index scripts share: a tiny random model, small corpora, stores compared.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib.sh" || exit 1
INDEX=$BIN/drt-index
needs drt-index drt-model
LANDMARKS=${DRT_TEST_LANDMARKS:-f16} # the type that stores of these scripts have: tests/CMakeLists.txt
# program_of_type PROGRAM: prints the program, or one of its name whose build makes landmarks of another type than fp16.
program_of_type() {
    local made=$TMP/.$LANDMARKS/${1##*/}
    [ "$LANDMARKS" != f16 ] || { echo "$1"; return; }
    mkdir -p "${made%/*}"
    printf '#!/bin/sh\n[ "$1" = build ] && exec "%s" "$@" --landmarks %s\nexec "%s" "$@"\n' "$1" "$LANDMARKS" "$1" >"$made"
    chmod +x "$made"
    echo "$made"
}
INDEX=$(program_of_type "$INDEX")

# make_model FOLDER [SEED]
make_model() {
    "$BIN/drt-model" init --config "$SOURCE/tests/cli/tiny/config.json" --tokenizer "$SOURCE/tests/cli/tiny/tokenizer.json" \
        --out "$1" --seed "${2:-3}" >/dev/null 2>"$ERR" || die "drt-model init"
}
# make_corpus FILE DOCUMENTS [SEED]: jsonl of random words; every 20th document is empty, every 25th a copy of the first.
make_corpus() {
    awk -v n="$2" -v seed="${3:-1}" 'BEGIN {
        srand(seed)
        split("the river and stone winding north other sand ring on table under seven lights of a harbour", word, " ")
        for (i = 0; i < n; i++) {
            text = ""
            words = i % 20 == 19 ? 0 : 5 + int(rand() * 150)
            for (j = 0; j < words; j++) text = text word[1 + int(rand() * 17)] " "
            if (i == 0) first = text
            if (words) text = i % 25 == 24 ? first : text "number " i "."
            if (i == 0) first = text
            printf "{\"text\": \"%s\", \"meta\": {\"id\": \"doc-%d\"}}\n", text, i
        }
    }' >"$1"
}
# export_store STORE FILE: the contents that two equal stores have in common.
export_store() {
    "$INDEX" export --store "$1" >"$2" 2>"$ERR" || die "export of $1"
    "$INDEX" search "the river and the harbour" --store "$1" --model "$TMP/model" --k 5 --json >>"$2" 2>"$ERR" || die "search in $1"
}
# same_store A B: chunks, positions, ids, landmarks and search results.
same_store() {
    export_store "$1" "$TMP/.export-a"
    export_store "$2" "$TMP/.export-b"
    cmp -s "$TMP/.export-a" "$TMP/.export-b" || { diff "$TMP/.export-a" "$TMP/.export-b" | head -n 4 >&2; die "the stores $1 and $2 differ"; }
}
