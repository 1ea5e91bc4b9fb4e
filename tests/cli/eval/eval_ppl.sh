# drt-eval ppl: the same positions in every mode, known values, figures for each file, seeds, JSON, every refusal.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-eval drt-index drt-tokenizer
tiny_model "$TMP/m"
corpus "$TMP/train.jsonl" 10 80
corpus "$TMP/valid.jsonl" 4 200 100
corpus "$TMP/other.jsonl" 2 150 200
printf '{"text": "too short"}\n' >>"$TMP/valid.jsonl"
tiny_store "$TMP/s" "$TMP/m" "$TMP/train.jsonl"
ppl() { expect 0 "$EVAL" ppl --model "$TMP/m" --data "$TMP/valid.jsonl" --context 504 --skip 64 "$@"; }
# figure MODE: its perplexity in the JSON of the last run (the figures over all files come last).
figure() { sed 's/.*"modes":{//; s/.*"'"$1"'":{"perplexity":\([0-9.e+]*\).*/\1/' "$OUT"; }

ppl
out_has "mode"
out_has "1 documents too short"
bytes=$(sed -n 's/.*(\([0-9]*\) bytes of text).*/\1/p' "$OUT")
# The perplexity of a random model is near its vocabulary of 271, with any retrieval.
ppl --json
same "$(json_int "$OUT" bytes)" "$bytes" "bytes of text"
# Both figures have the same sum of losses: tokens * ln(perplexity) = bytes * ln 2 * bits a byte.
awk -v t="$(json_int "$OUT" tokens)" -v b="$bytes" -v p="$(figure none)" \
    -v bits="$(sed 's/.*"bits_per_byte":\([0-9.]*\),.*/\1/' "$OUT")" 'BEGIN { d = t * log(p) / (b * log(2) * bits) - 1; exit !(d < 1e-6 && d > -1e-6) }' ||
    die "perplexity and bits a byte are not of one sum"
case $(figure none) in 2[67][0-9].*) ;; *) die "the perplexity of a random model is $(figure none), not about 271" ;; esac
out_has '"documents":4,"documents_too_short":1'
none=$(figure none)

# Each mode has the same figure alone and with others: the same positions, no state between modes.
ppl --store "$TMP/s" --modes none,self,corpus,both,random --json --seed 5
cp "$OUT" "$TMP/all"
same "$(figure none)" "$none" "none among other modes"
out_has '"searched_by":"exact scan"'
for mode in self corpus both random; do
    cp "$TMP/all" "$OUT"
    want=$(figure $mode)
    case $mode in self) store= ;; *) store="--store $TMP/s" ;; esac
    ppl $store --modes $mode --json --seed 5
    same "$(figure $mode)" "$want" "$mode alone"
done

# Other searchers are named in the report and have other figures; modes that read no store do not change.
for kind in lexical hybrid; do
    ppl --store "$TMP/s" --modes none,corpus --searcher $kind --json
    out_has "\"searched_by\":\"$kind"
    same "$(figure none)" "$none" "none beside --searcher $kind"
done
expect_usage "need a store and a mode that uses it" "$EVAL" ppl --data x --searcher hybrid
# Random chunks depend on the seed, the nearest do not; a small store is searched exactly with and without --exact.
ppl --store "$TMP/s" --modes corpus,random --json --seed 6
cp "$OUT" "$TMP/six" && cp "$TMP/all" "$OUT"
corpus=$(figure corpus) random=$(figure random) both=$(figure both) self=$(figure self)
cp "$TMP/six" "$OUT"
same "$(figure corpus)" "$corpus" "corpus with another seed"
[ "$(figure random)" != "$random" ] || die "another seed gave the same random chunks"
[ "$corpus" != "$none" ] && [ "$self" != "$none" ] && [ "$both" != "$self" ] || die "retrieval changed nothing: $none $self $corpus $both"
# The options select the modes: both options give all four.
ppl --store "$TMP/s" --corpus-retrieval --self-retrieval --random-retrieval
for row in "none " "self " "corpus " "both " "random "; do grep -q "^$row" "$OUT" || die "no row for $row"; done
out_has "corpus  against random"
out_has "paired by document"

# A document that is also in the store does not find itself unless --exclude allows it: with the whole document excluded, a store with it
# gives the same result as one without it.
expect 0 "$BIN/drt-index" build "$TMP/train.jsonl" "$TMP/other.jsonl" --out "$TMP/leaky" --model "$TMP/m"
leak() { expect 0 "$EVAL" ppl --model "$TMP/m" --data "$TMP/other.jsonl" --context 504 --skip 64 --modes corpus --json "$@"; }
leak --store "$TMP/s"
out_has '"documents_in_store":0'
clean=$(figure corpus)
leak --store "$TMP/leaky" --exclude none
out_has '"documents_in_store":2'
[ "$(figure corpus)" != "$clean" ] || die "nothing leaks, so nothing is tested"
leak --store "$TMP/leaky" --exclude window=0
windowed=$(figure corpus)
[ "$windowed" != "$clean" ] || die "window=0 leaves out more than a chunk"
leak --store "$TMP/leaky" --exclude window=100000
whole=$(figure corpus)
leak --store "$TMP/leaky"
same "$(figure corpus)" "$whole" "all of the document against a window that covers it"
# A document is also found if the store has the document's text and the evaluation its ids, and the other way round.
expect 0 "$BIN/drt-tokenizer" encode "$TMP/other.jsonl" --tokenizer "$TINY/tokenizer.json" --out "$TMP/other.u16" --eod-id 268
expect 0 "$BIN/drt-index" build "$TMP/train.jsonl" "$TMP/other.u16" --out "$TMP/ids" --model "$TMP/m"
leak --store "$TMP/ids"
out_has '"documents_in_store":2'
same "$(figure corpus)" "$whole" "perplexity of texts whose ids are in the store"
expect 0 "$EVAL" ppl --model "$TMP/m" --data "$TMP/other.u16" --context 504 --skip 64 --modes corpus --json --store "$TMP/leaky"
out_has '"documents_in_store":2'
same "$(figure corpus)" "$whole" "perplexity of ids whose texts are in the store"
expect 0 "$EVAL" ppl --model "$TMP/m" --data "$TMP/other.jsonl" --context 504 --skip 64 --store "$TMP/leaky" --modes corpus
out_has "in store   2 of the documents do not find themselves (--exclude doc)"
expect_usage "--exclude is doc, window=N or none" "$EVAL" ppl --data x --exclude some

# Stopped by a signal, between documents and within the last one: the report covers the scored documents and is marked, and
# the exit code is 1.
corpus "$TMP/long.jsonl" 300 400 100
corpus "$TMP/longest.jsonl" 1 120000 100
for asked in "long.jsonl" "longest.jsonl --max-documents 1"; do
    for seconds in 0.5 1 2 4 8; do
        "$EVAL" ppl --model "$TMP/m" --data "$TMP/"$asked --context 504 --skip 64 --modes none,self --json >"$OUT" 2>"$ERR" </dev/null &
        eval_pid=$!
        sleep $seconds
        kill -TERM $eval_pid
        code=0
        wait $eval_pid || code=$?
        [ -s "$OUT" ] && break # else it had not scored a document yet
    done
    same "$code" 1 "exit code after SIGTERM"
    err_has "stopped by a signal: the report covers the documents scored so far"
    out_has '"partial":true'
    # A window that was not complete is left out: as many tokens in one go have the same perplexity.
    stopped=$(figure none)
    tokens=$(grep -oE '"tokens":[0-9]+' "$OUT" | head -n 1 | cut -d: -f2)
    expect 0 "$EVAL" ppl --model "$TMP/m" --data "$TMP/"$asked --context 504 --skip 64 --modes none --max-tokens "$tokens" --json
    same "$(figure none)" "$stopped" "perplexity of the $tokens tokens before the signal"
done

# Two files: a row each, and limits count for each.
expect 0 "$EVAL" ppl --model "$TMP/m" --data "$TMP/valid.jsonl" --data "$TMP/other.jsonl" --max-documents 1 --skip 64
out_has "perplexity by file"
out_has "in 2 documents"
expect 0 "$EVAL" ppl --model "$TMP/m" --data "$TMP/valid.jsonl" --max-tokens 300 --skip 64
out_has "scored     300 tokens"

expect 0 "$EVAL" --help
out_has "ppl"
expect 0 "$EVAL" ppl --help
help_is_smooth
out_has "(default: 4032)"
expect 2 "$EVAL"
expect_usage "there is no command \"pll\"" "$EVAL" pll
expect_usage "--data FILE is missing" "$EVAL" ppl
expect_usage "needs --store" "$EVAL" ppl --data x --corpus-retrieval
expect_usage "would not be used" "$EVAL" ppl --data x --store y
expect_usage "must be a list like" "$EVAL" ppl --data x --modes none,sefl
expect_usage "leave out --self-" "$EVAL" ppl --data x --modes none --self-retrieval
expect_usage "--skip must be smaller" "$EVAL" ppl --data x --context 100 --skip 100
expect_error "nowhere" "$EVAL" ppl --model "$TMP/m" --data "$TMP/nowhere.jsonl"
expect_error "nothing could be scored" "$EVAL" ppl --model "$TMP/m" --data "$TMP/valid.jsonl" --skip 4000
printf '{"text": "good"}\n{"body": "bad"}\n' >"$TMP/field.jsonl"
expect_error "field.jsonl:2" "$EVAL" ppl --model "$TMP/m" --data "$TMP/field.jsonl"
tiny_model "$TMP/m2" 9
expect_error "$TMP/m2" "$EVAL" ppl --model "$TMP/m2" --data "$TMP/valid.jsonl" --store "$TMP/s" --corpus-retrieval

# Two very different documents: Student's interval around their bits per byte would begin below 0, which is impossible.
awk 'BEGIN { for (i = 0; i < 40; i++) { a = a "#%&~"; b = b " the ing the and the" } printf "{\"text\": \"%s\"}\n{\"text\": \"%s\"}\n", a, b }' >"$TMP/two.jsonl"
expect 0 "$EVAL" ppl --model "$TMP/m" --data "$TMP/two.jsonl" --skip 8 --json
out_has '"bits_per_byte_interval":[0,'

# A model whose numbers overflow: an error that names the position, not the perplexity nan.
cp -r "$TMP/m" "$TMP/huge"
size=$(stat -c %s "$TMP/huge/model.safetensors")
head -c 4096 /dev/zero | tr '\0' '\177' | dd of="$TMP/huge/model.safetensors" bs=1 seek=$((size - 4096)) conv=notrunc status=none
expect_error "valid.jsonl: document 0, token 64: the loss (none) is not a number" "$EVAL" ppl --model "$TMP/huge" --data "$TMP/valid.jsonl" --context 504 --skip 64

# --log-json: every line on standard error is an object; standard output is the same.
log_is() { # EVENTS
    python3 -c 'import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert all(o["program"] == "drt-eval" and "time" in o and "level" in o for o in lines), lines
got = " ".join(sorted({o["event"] for o in lines}))
sys.exit(got != sys.argv[2] and "events: " + got)' "$ERR" "$1" || die "the log is wrong"
}
if command -v python3 >/dev/null; then
    ppl --json
    sed 's/"seconds":[0-9.e-]*//g; s/"tokens_per_second":[0-9.e-]*//g' "$OUT" >"$TMP/plain"
    ppl --json --log-json && log_is progress
    sed 's/"seconds":[0-9.e-]*//g; s/"tokens_per_second":[0-9.e-]*//g' "$OUT" | cmp -s - "$TMP/plain" || die "the option changes standard output"
    expect 1 "$EVAL" ppl --model "$TMP/huge" --data "$TMP/valid.jsonl" --log-json && log_is "error progress"
    expect 2 "$EVAL" tasks --nonsense --log-json && log_is usage
fi
