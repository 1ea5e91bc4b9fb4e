#!/usr/bin/env bash
# The store changes while it is served: documents are added and deleted, the index and the lexical index are made again, the store is compacted,
# repaired and removed. Answers stay those of the generation at the start, also of a server that had opened no searcher of words before.
. "$DRT_SOURCE/tests/cli/serve/lib_serve.sh" || exit 1
tiny_model "$TMP/model"
corpus "$TMP/corpus.jsonl" 60 200
tiny_store "$TMP/store" "$TMP/model" "$TMP/corpus.jsonl"
corpus "$TMP/fit.jsonl" 4 65 100
expect 0 "$EVAL" fit-memory --model "$TMP/model" --data "$TMP/fit.jsonl" --context 252 --skip 64 --store "$TMP/store" --memory own,corpus,both --memory-k 4 \
    --memory-every 16 --out "$TMP/model/memory.json"

bodies=('/search {"text": "the river and the harbour", "k": 20}'
    '/search {"text": "the river and the harbour", "k": 20, "searcher": "lexical"}'
    '/search {"text": "the river and the harbour", "k": 20, "searcher": "hybrid"}'
    '/documents/59' '/documents/60' '/documents/3?first=1&chunks=2')
prompt=$(words 150 3 | tr -d '\n')
for retrieval in '"source": "corpus"' '"source": "both", "searcher": "lexical", "continuation": 2, "overlap": 31' '"source": "corpus", "searcher": "hybrid"' \
    '"memory": "corpus"' '"memory": "both"'; do
    bodies+=("/v1/completions {\"prompt\": \"$prompt\", \"max_tokens\": 70, \"temperature\": 0, \"ignore_eos\": true, \"retrieval\": {\"k\": 3, $retrieval}}")
done
# answers URL: all bodies' answers, without what differs from one to the next
answers() {
    local line path
    for line in "${bodies[@]}"; do
        path=${line%% *}
        if [ "$path" = "$line" ]; then curl -sS -m 60 "$1$path"; else curl -sS -m 60 --data-binary "${line#* }" "$1$path"; fi |
            sed 's/"id":"cmpl-[0-9a-f]*"//; s/"created":[0-9]*//; s/"timings":.*//; s/"seconds":[0-9.e-]*//'
        echo
    done
}
serve_start --model "$TMP/model" --store "$TMP/store"
answers "$URL" >"$TMP/wanted"
same "$(grep -c '"error"' "$TMP/wanted")" 1 "only /documents/60 is missing"
FIRST=$SERVE_PID FIRST_URL=$URL
serve_start --model "$TMP/model" --store "$TMP/store" # asked only after the changes
SECOND=$SERVE_PID SECOND_URL=$URL SERVE_PID=
trap 'kill -KILL $FIRST $SECOND 2>/dev/null; serve_end' EXIT

corpus "$TMP/more.jsonl" 300 150 900
(while [ ! -e "$TMP/done" ]; do
    answers "$FIRST_URL" >"$TMP/got"
    cmp -s "$TMP/wanted" "$TMP/got" || { cp "$TMP/got" "$TMP/differs" && break; }
done) &
LOOP=$!
changed() { # COMMAND...: succeeds, and the answers stay
    expect 0 "$@"
    answers "$FIRST_URL" >"$TMP/after"
    cmp -s "$TMP/wanted" "$TMP/after" || { diff "$TMP/wanted" "$TMP/after" | cut -c 1-300 >&2; die "other answers after: $*"; }
}
INDEX=$BIN/drt-index
changed "$INDEX" add "$TMP/more.jsonl" --store "$TMP/store" --model "$TMP/model"
changed "$INDEX" delete --store "$TMP/store" --document 1 --document 3
changed "$INDEX" index --store "$TMP/store" --index IVF8,SQ8
changed "$INDEX" lexical --store "$TMP/store" --remove
changed "$INDEX" add "$TMP/fit.jsonl" --store "$TMP/store" --model "$TMP/model"
changed "$INDEX" repair --store "$TMP/store"
changed "$INDEX" compact --store "$TMP/store" --out "$TMP/small"
: >"$TMP/done"
wait "$LOOP"
[ ! -e "$TMP/differs" ] || { diff "$TMP/wanted" "$TMP/differs" | cut -c 1-300 >&2; die "an answer differed during a change"; }
answers "$SECOND_URL" >"$TMP/after"
diff "$TMP/wanted" "$TMP/after" | cut -c 1-300 >&2
cmp -s "$TMP/wanted" "$TMP/after" || die "a server that was idle during the changes has other answers"

# A server that starts now has the newest generation.
SERVE_PID=
serve_start --model "$TMP/model" --store "$TMP/store"
ask 404 /documents/1
ask 200 /documents/60
serve_stop
kill -TERM "$FIRST" "$SECOND"
wait "$FIRST" && wait "$SECOND" || die "a server did not stop"
exit 0
