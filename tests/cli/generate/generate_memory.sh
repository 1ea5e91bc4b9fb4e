# drt-generate with token memories: it repeats the text's repetitions, it finds the store's text, threads, every refusal.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-generate drt-index drt-eval
tiny_model "$TMP/m"
# Each letter has one successor, so that one token is enough to predict the next.
round=abcdefghijklmnopqrstuvwxyz0123456789
text=$round$round$round
corpus "$TMP/train.jsonl" 6 80
printf '{"text": "%s"}\n' "$text" >>"$TMP/train.jsonl"
tiny_store "$TMP/s" "$TMP/m" "$TMP/train.jsonl"
run() { expect 0 "$GENERATE" --model "$TMP/m" --greedy --max-tokens 24 "$@"; }

# A random model with a memory of weight 0.99 copies text that it has read, from its own past and from the store.
half=${round:0:10}
want=${round:10:12}
run --prompt "$text$half" --memory own --memory-weight 0.99 --memory-tau 1 --stats
case $(cat "$OUT") in "$want"*) ;; *) die "the text's own past continues with \"$want\", the text with \"$(cat "$OUT")\"" ;; esac
grep -Eq "^memory +(9[0-9]|100)" "$ERR" || die "no share of the memory: $(tail -n 1 "$ERR")"
run --prompt "$half" --memory corpus --store "$TMP/s" --memory-k 4 --memory-weight 0.99 --memory-tau 1 --stats
grep -Eq "^  queries [1-9][0-9]*, .* encoded anew [1-9]" "$ERR" || die "the memory's chunks are not counted: $(grep queries "$ERR")"
err_has "read and mix token memory"
case $(cat "$OUT") in "$want"*) ;; *) die "the store continues with \"$want\", the text with \"$(cat "$OUT")\"" ;; esac
both() { run --prompt "$half" --memory both --store "$TMP/s" --memory-k 2 --memory-every 8 "$@"; }
both --threads 1
cp "$OUT" "$TMP/one"
both --threads 3
cmp -s "$OUT" "$TMP/one" || die "another text with three threads"
# A small stack (a sanitizer's frames are larger).
if (ulimit -v 4000000 && "$GENERATE" --help) >/dev/null 2>&1; then
    (
        ulimit -s 64
        both --threads 2
        expect 0 "$BIN/drt-eval" fit-memory --model "$TMP/m" --store "$TMP/s" --data "$TMP/train.jsonl" --memory both --memory-k 2 --context 128 \
            --skip 8 --out "$TMP/m/memory.json" --device cpu --threads 2
        run --prompt "$half" --memory both --store "$TMP/s" --trace "$TMP/trace.html"
    ) || exit 1
    rm -f "$TMP/m/memory.json"
fi
# Without a memory nothing changes.
run --prompt "$half"
cp "$OUT" "$TMP/plain"
run --prompt "$half" --memory none
cmp -s "$OUT" "$TMP/plain" || die "--memory none changes the text"

usage() { local wanted=$1; shift; expect_usage "$wanted" "$GENERATE" --model "$TMP/m" --prompt x "$@"; }
usage "is read without GCA" --memory own --self-retrieval
usage "need --store DIR" --memory corpus
usage "leave --lexical DIR out" --memory corpus --store "$TMP/s" --lexical "$TMP/lex"
usage "need --memory own, corpus or both" --memory-k 3
usage "--store needs" --memory own --store "$TMP/s"
usage "must be one of" --memory all
expect_error "the model has 2 layers" "$GENERATE" --model "$TMP/m" --prompt x --memory own --memory-layer 9
expect_error "No such file" "$GENERATE" --model "$TMP/m" --prompt x --memory own --memory-config "$TMP/nowhere.json"
expect 0 "$GENERATE" --help
help_is_smooth
