# The overlap of evaluated documents with the store: a document of the store, a part of one, and one with other words.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-eval drt-index
tiny_model "$TMP/m"
corpus "$TMP/c.jsonl" 6 120
tiny_store "$TMP/s" "$TMP/m" "$TMP/c.jsonl"
part=$(sed -n 2p "$TMP/c.jsonl" | cut -c 40-239)
other=$(printf 'zebra quick jump vex box kid mop fig wax %d ' $(seq 40))
{ sed -n 1p "$TMP/c.jsonl"; printf '{"text": "%s%s"}\n' "$part" "$other"; printf '{"text": "%s"}\n' "$other"; } >"$TMP/e.jsonl"
eval_overlap() {
    expect 0 "$EVAL" ppl --data "$TMP/e.jsonl" --model "$TMP/m" --store "$TMP/s" --context 1024 --skip 8 "$@"
}
# numbers NAME: the member of each document, one a line.
numbers() { grep -o '"overlap":.*' "$OUT" | grep -o '"documents":\[.*' | grep -o "\"$1\":[0-9.e-]*" | cut -d : -f 2; }

eval_overlap --modes none,corpus --exclude none --json
mapfile -t longest < <(numbers longest_run)
mapfile -t shared < <(numbers shared_13_grams)
mapfile -t tokens < <(numbers tokens)
same "${#longest[@]}" 3 "documents"
same "${longest[0]}" "${tokens[0]}" "longest run of a document that the store has"
same "${shared[0]}" 1 "share of its 13-grams"
[ "${longest[1]}" -ge 100 ] && [ "${longest[1]}" -le 210 ] || die "longest run ${longest[1]} tokens of 200 bytes that were copied"
[ "${longest[2]}" -lt 13 ] && [ "${shared[2]}" = 0 ] || die "a text of other words shares ${longest[2]} tokens"
awk -v s="${shared[1]}" -v n="${tokens[1]}" -v run="${longest[1]}" 'BEGIN { d = s * (n - 12) - (run - 12); exit !(d > -0.01 && d < 3) }' ||
    die "share of 13-grams ${shared[1]} of ${tokens[1]} tokens"

# The excluded copy of a document does not count; the rest of the store does.
eval_overlap --modes none,corpus --exclude doc --json
mapfile -t longest < <(numbers longest_run)
[ "${longest[0]}" -lt "${tokens[0]}" ] || die "the excluded document still counts"

eval_overlap --modes none,random
out_has "documents share 13 tokens in a row with the store"
out_has "longest shared run"
eval_overlap --modes none,random --no-overlap --json
out_has '"overlap":null'
expect 0 "$EVAL" ppl --data "$TMP/e.jsonl" --model "$TMP/m" --context 1024 --skip 8 --json
out_has '"overlap":null'
# Only the text that was read counts.
eval_overlap --modes none,random --document-tokens 100 --exclude none --json
same "$(numbers tokens | head -n 1)" 108 "tokens of the part that was read"
echo ok
