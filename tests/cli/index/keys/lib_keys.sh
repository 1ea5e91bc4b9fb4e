# lib_keys.sh -- for tests of the keys of a token memory: a Base LM, two corpora, and the comparison of a store's keys with fresh ones.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-index drt-generate
INDEX=$BIN/drt-index
tiny_base "$TMP/m"
corpus "$TMP/a.jsonl" ${documents:-45} 90
corpus "$TMP/b.jsonl" 5 120 100
sed -i 's/doc-/new-/' "$TMP/b.jsonl"
model=(--model "$TMP/m" --threads 1)
none=(--landmarks none "${model[@]}")
rows() { python3 "$SOURCE/tests/cli/index/keys/keys_rows.py" "$1" >"$2" || die "the keys of $1"; }
# fresh STORE: its keys equal those that are made anew.
fresh() {
    rows "$1" "$TMP/have"
    [ -s "$TMP/have" ] || die "$1 has no keys"
    rm -rf "$TMP/fresh"
    cp -r "$1" "$TMP/fresh"
    expect 0 "$INDEX" keys --store "$TMP/fresh" --remove
    expect 0 "$INDEX" keys --store "$TMP/fresh" "${model[@]}"
    rows "$TMP/fresh" "$TMP/want"
    cmp -s "$TMP/have" "$TMP/want" || die "$1: its keys are not those that drt-index keys makes"
    expect 0 "$INDEX" verify --store "$1" --deep
}
