#!/usr/bin/env bash
# A Base LM on the server: completions are those of drt-generate, alone and in a batch, with and without a token memory; documents of its store.
. "$DRT_SOURCE/tests/cli/serve/lib_serve.sh" || exit 1
tiny_base "$TMP/base"
corpus "$TMP/corpus.jsonl" 12 150
"$BIN/drt-index" build "$TMP/corpus.jsonl" --model "$TMP/base" --out "$TMP/store" --landmarks none >/dev/null 2>"$ERR" || die "no store"
prompt="the river and stone winding north other sand"
same_text() { # OPTIONS of drt-generate...
    "$GENERATE" -p "$prompt" --model "$TMP/base" --greedy --ignore-eos -n 40 --device cpu "$@" >"$TMP/wanted" 2>"$ERR" || die "drt-generate: $(tail -n 1 "$ERR")"
    for i in 1 2 3; do
        curl -sS -m 60 -o "$TMP/answer.$i" "$URL/v1/completions" -d "{\"prompt\": \"$prompt\", \"max_tokens\": 40, \"temperature\": 0, \"ignore_eos\": true}" &
    done
    wait $(jobs -p | grep -v "^$SERVE_PID\$")
    for i in 1 2 3; do
        python3 - "$TMP/answer.$i" "$TMP/wanted" "$prompt" <<'P' || die "answer $i is another text: $(cat "$TMP/answer.$i")"
import json, sys
answer = json.load(open(sys.argv[1], encoding="utf-8"))
wanted = open(sys.argv[2], encoding="utf-8").read().rstrip("\n")
text = answer["choices"][0]["text"]
assert answer["usage"]["completion_tokens"] == 40 and wanted in (text, sys.argv[3] + text), (wanted, text)
P
    done
}
expect_error "is a Base LM, which has no retrieval" "$BIN/drt-serve" --model "$TMP/base" --retrieval self --port 0
serve_start --model "$TMP/base" --store "$TMP/store"
same_text
ask 200 "/documents/3"
python3 -c 'import json, sys; d = json.load(open(sys.argv[1], encoding="utf-8")); assert len(d["text"]) > 100, d' "$OUT" || die "no text of document 3"
ask 200 /v1/models
out_has '"chunk":63'
serve_stop
exit 0
