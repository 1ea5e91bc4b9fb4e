# drt-eval fit-order: its losses are those of ppl, as found and in the trained order, also with more candidates than are loaded at once;
# threads change no bit; fit-memory --memory-order, ppl and generate take the order; samples of different orders are not mixed; every refusal.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-eval drt-index drt-generate
INDEX=$BIN/drt-index
tiny_base "$TMP/base"
tiny_base "$TMP/other" 5
corpus "$TMP/train.jsonl" 12 200
corpus "$TMP/a.jsonl" 12 120 100
corpus "$TMP/b.jsonl" 3 90 300
expect 0 "$INDEX" build "$TMP/train.jsonl" --model "$TMP/base" --out "$TMP/s"
a=(--model "$TMP/base" --data "$TMP/a.jsonl" --context 189 --skip 32)
texts=("${a[@]}" --data "$TMP/b.jsonl")
store=(--store "$TMP/s" --memory-k 8)
expect 0 "$EVAL" fit-memory "${texts[@]}" "${store[@]}" --memory corpus --memory-every 64 --out "$TMP/fitted.json"
# The same with a gate that has one weight, which does not depend on the order.
awk '/"w2"/ { zero = 1 } zero && /[0-9]/ && !/"w2"/ { sub(/[-0-9.e+]+/, "0") } /\]/ { zero = 0 } { print }' "$TMP/fitted.json" >"$TMP/fixed.json"
cmp -s "$TMP/fitted.json" "$TMP/fixed.json" && die "the gate is as it was fitted"

# nats MODE: of all texts, mean over files, in the JSON of the last ppl.
nats() {
    grep -o '"file":"[^"]*",[^{]*"modes":{"none":{[^}]*},"'"$1"'":{"perplexity":[0-9.e+]*' "$OUT" | sed 's/.*://' |
        awk '{ s += log($1); n++ } END { printf "%.7f", s / n }'
}
# loss PART NAME: of fit-order with the most chunks.
loss() { sed -n 's/.*"losses":\[{"chunks":[0-9]*,[^]]*"'"$1"'":{"found":\([0-9.e+]*\),"ordered":\([0-9.e+]*\),.*/\1 \2/p' "$OUT" | awk -v f="$2" '{ print f == "found" ? $1 : $2 }'; }
near() { awk -v a="$1" -v b="$2" -v c="$4" 'BEGIN { exit !(a > 0 && a < b + c && b < a + c) }' || die "$3: $1 against $2"; }

# 3 documents a file, so that none is held out, and as many searches as there are.
whole=("${texts[@]}" --max-documents 3 --exclude none)
kinds=(lexical landmark hybrid)
if sanitized; then kinds=(hybrid); fi # unit tests have the searches of each kind
for kind in "${kinds[@]}"; do
    sed 's/"searcher": "lexical"/"searcher": "'$kind'"/' "$TMP/fixed.json" >"$TMP/$kind.json"
    expect 0 "$EVAL" fit-order "${whole[@]}" --steps 400 --store "$TMP/s" --memory-config "$TMP/$kind.json" --candidates 40 --out "$TMP/order.$kind.json" --json
    out_has '"held_out":0,' && out_has '"held_out":null' && out_has '"candidates":40,"k":8,'
    found=$(loss trained found) ordered=$(loss trained ordered)
    awk -v a="$found" -v b="$ordered" 'BEGIN { exit !(b < a - 0.001) }' || die "$kind: training gains nothing: $found to $ordered"
    expect 0 "$EVAL" ppl "${whole[@]}" --store "$TMP/s" --memory corpus --memory-config "$TMP/$kind.json" --json
    near "$(nats memory-corpus)" "$found" "$kind: ppl and the loss as found" 0.0002
    out_has '"order":0,'
    expect 0 "$EVAL" ppl "${whole[@]}" --store "$TMP/s" --memory corpus --memory-config "$TMP/order.$kind.json" --json
    near "$(nats memory-corpus)" "$ordered" "$kind: ppl and the loss in the trained order" 0.0002
    out_has '"order":40,'
done

# Three threads change no bit, and every fifth document is held out.
for threads in 1 3; do
    expect 0 "$EVAL" fit-order "${texts[@]}" --steps 100 --store "$TMP/s" --memory-config "$TMP/fitted.json" --candidates 24 --positions 40 --out "$TMP/threads.$threads.json" --json --threads $threads
    cp "$OUT" "$TMP/threads.$threads"
    if sanitized; then break; fi
done
sanitized || { cmp -s "$TMP/threads.1" "$TMP/threads.3" && cmp -s "$TMP/threads.1.json" "$TMP/threads.3.json"; } || die "another order with three threads"
grep -q '"searches":40,' "$TMP/threads.1" && grep -q '"held_out":{"found"' "$TMP/threads.1" || die "not 40 searches, or none held out"
expect 0 "$EVAL" fit-order "${texts[@]}" --steps 100 --store "$TMP/s" --memory-config "$TMP/threads.1.json" --memory-every 16 --candidates 24 --positions 40 --out "$TMP/again.json"
out_has "24 candidates, K 8, span 0,1" && out_has "held: found"
[ "$(grep -A 30 '"order"' "$TMP/again.json")" = "$(grep -A 30 '"order"' "$TMP/threads.1.json")" ] || die "the order of the configuration or its searches change the training"
grep -q '"every": 16' "$TMP/again.json" || die "--memory-every is not written"
# A note says that the documents held out gain nothing. After one step the chunks that are read are still those that were found.
for steps in 1 100; do
    if sanitized && [ $steps = 100 ]; then break; fi
    expect 0 "$EVAL" fit-order "${texts[@]}" --steps $steps --store "$TMP/s" --memory-config "$TMP/fitted.json" --candidates 24 --positions 40 --out "$TMP/note.json" --json
    gains=$(awk -v a="$(loss held_out found)" -v b="$(loss held_out ordered)" 'BEGIN { print (a > 0 && b < a ? "yes" : "no") }')
    noted=$(grep -q "note: the order does not lower the loss" "$ERR" && echo no || echo yes)
    [ "$gains" = "$noted" ] || die "steps $steps: gains: $gains, by the note: $noted"
done
# Without a configuration the mixture has one weight, and only the order is written.
cp "$TMP/again.json" "$TMP/into.json"
expect 0 "$EVAL" fit-order "${texts[@]}" "${store[@]}" --steps 100 --candidates 24 --positions 20 --out "$TMP/bare.json"
expect_error 'bare.json: has nothing fitted for "corpus"' "$EVAL" ppl "${texts[@]}" --store "$TMP/s" --memory corpus --memory-config "$TMP/bare.json"

# fit-memory fits a gate for an order, and writes both; samples name it.
fit=("$EVAL" fit-memory "${texts[@]}" "${store[@]}" --memory corpus --memory-every 16)
expect 0 "${fit[@]}" --memory-order "$TMP/bare.json" --keep "$TMP/kept.order" --out "$TMP/both.json" --json
out_has '"order":24,'
order() { sed -n '/"order"/,/]/p' "$1"; }
[ -n "$(order "$TMP/both.json")" ] && [ "$(order "$TMP/both.json")" = "$(order "$TMP/bare.json")" ] || die "memory.json lacks the order"
expect 0 "$EVAL" fit-memory --model "$TMP/base" --samples "$TMP/kept.order" --memory corpus --out "$TMP/again.json"
cmp -s "$TMP/again.json" "$TMP/both.json" || die "kept samples give another configuration"
expect 0 "${fit[@]}" --keep "$TMP/kept.found" --out "$TMP/found.json"
[ -z "$(order "$TMP/found.json")" ] || die "an order that was not requested"
expect_error "was collected with another model" "$EVAL" fit-memory --model "$TMP/base" --samples "$TMP/kept.order" --samples "$TMP/kept.found" --memory corpus --out "$TMP/none.json"
sed 's/"candidates": 24/"candidates": 23/' "$TMP/bare.json" >"$TMP/fewer.json"
expect 0 "${fit[@]}" --memory-order "$TMP/fewer.json" --keep "$TMP/kept.fewer" --out "$TMP/none.json"
expect_error "kept.fewer: was collected with another model" "$EVAL" fit-memory --model "$TMP/base" --samples "$TMP/kept.order" --other "$TMP/kept.fewer" --memory corpus --out "$TMP/none.json"
expect 0 "$EVAL" fit-memory --model "$TMP/base" --samples "$TMP/kept.order" --memory corpus --apply "$TMP/both.json"
expect_error "found.json: the texts were not read with its order of candidates" "$EVAL" fit-memory --model "$TMP/base" --samples "$TMP/kept.order" --memory corpus --apply "$TMP/found.json"
expect_error "both.json: the texts were not read with its order of candidates" "${fit[@]:0:2}" "${texts[@]}" "${store[@]}" --memory corpus --apply "$TMP/both.json"
expect 0 "$EVAL" ppl "${texts[@]}" --store "$TMP/s" --memory corpus --memory-config "$TMP/both.json"
out_has "K 8 of 24 candidates in a trained order, every 16"
# Of a memory that gives every word, the chunks of the least scores make another text.
generate() { "$GENERATE" --model "$TMP/base" --store "$TMP/s" --memory corpus --memory-config "$1" --prompt "the river and stone" -n 40 --seed 3 2>"$ERR" || die "generate: $(cat "$ERR")"; }
awk '/"b2"/ { sure = 1 } sure && /[0-9]/ && !/"b2"/ { sub(/[-0-9.e+]+/, "30") } /\]/ { sure = 0 } { print }' "$TMP/both.json" >"$TMP/sure.json"
awk '/"order"/ { order = 1 } order && /^ *[-0-9.e+]+,?$/ { sub(/[-0-9.e+]+/, ++n == 21 ? "-1" : "0") } order && /\]/ { order = 0 } { print }' "$TMP/sure.json" >"$TMP/least.json"
[ "$(generate "$TMP/sure.json")" = "$(generate "$TMP/sure.json")" ] && [ "$(generate "$TMP/sure.json")" != "$(generate "$TMP/least.json")" ] || die "drt-generate does not read the order"

# Refusals; an interrupt leaves nothing.
bad=("$EVAL" fit-order "${texts[@]}" "${store[@]}")
expect 0 "$EVAL" fit-order --help
help_is_smooth
expect_usage "--store DIR is missing" "$EVAL" fit-order --data x --out y
expect_usage "--data FILE is missing" "$EVAL" fit-order --store x --out y
expect_usage "--out FILE is missing" "$EVAL" fit-order --store x --data y
expect_usage "take doc or none" "$EVAL" fit-order --store x --data y --out z --exclude window=3
expect_usage "--candidates" "$EVAL" fit-order --store x --data y --out z --candidates 5000
expect_error "--candidates 8: must be above the 8 chunks that are read" "${bad[@]}" --candidates 8 --out "$TMP/none.json"
expect_error "a.jsonl: is read, and the output would replace it" "${bad[@]}" --out "$TMP/a.jsonl"
expect_error "no document has more than 1000 tokens" "${bad[@]}" --skip 1000 --context 1001 --candidates 9 --out "$TMP/none.json"
expect 0 "$EVAL" fit-memory "${a[@]}" --memory own --out "$TMP/own.json"
expect_error 'own.json: has nothing fitted for "corpus"' "${bad[@]}" --memory-config "$TMP/own.json" --out "$TMP/none.json"
expect_error "found.json: has no order of candidates: fit one with drt-eval fit-order" "${fit[@]}" --memory-order "$TMP/found.json" --out "$TMP/none.json"
expect_error "the scores of a lexical search, not landmark" "${fit[@]}" --memory-order "$TMP/bare.json" --memory-searcher landmark --out "$TMP/none.json"
expect_error "bare.json: " "$EVAL" fit-memory --model "$TMP/other" --data "$TMP/a.jsonl" "${store[@]}" --memory corpus --memory-order "$TMP/bare.json" --out "$TMP/none.json"
rm -f "$TMP/stopped.json"
expect 1 timeout --preserve-status -s INT 2 "$EVAL" fit-order "${texts[@]}" "${store[@]}" --candidates 120 --out "$TMP/stopped.json" --threads 1
err_has "nothing was fitted"
[ ! -e "$TMP/stopped.json" ] || die "an interrupted run wrote a configuration"
