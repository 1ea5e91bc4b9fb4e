#!/usr/bin/env bash
# Every endpoint of drt-serve over curl: its answers, which equal those of the programs, and its refusals.
. "$DRT_SOURCE/tests/cli/serve/lib_serve.sh" || exit 1
expect 0 "$SERVE" --help
help_is_smooth
expect 0 "$SERVE" --version
out_has "drt-serve "
expect_usage "--retrieval corpus needs --store" "$SERVE" --retrieval corpus
expect_usage "--memory both needs --store" "$SERVE" --memory both
expect_usage "leave out --retrieval self" "$SERVE" --memory own --retrieval self
expect_usage "--memory-keys device copies keys of a store: give --store DIR" "$SERVE" --memory-keys device
expect_usage "open to other machines" "$SERVE" --address 0.0.0.0
for address in foo "" localhost 127.0.0.x; do
    expect_usage "--address '$address' is not an IP address: give a numeric one" "$SERVE" --address "$address"
done
expect_usage "the name is empty" "$SERVE" --model-name ""
expect_error "no such" "$SERVE" --model "$TMP/nowhere"
tiny_model "$TMP/model"
expect_error "a chunk of $TMP/model has 63 tokens: give at most 62" "$SERVE" --model "$TMP/model" --port 0 --continuation 1 --overlap 63
corpus "$TMP/corpus.jsonl" 12 150
tiny_store "$TMP/store" "$TMP/model" "$TMP/corpus.jsonl"
corpus "$TMP/fit.jsonl" 4 65 100
expect 0 "$EVAL" fit-memory --model "$TMP/model" --data "$TMP/fit.jsonl" --context 252 --skip 64 --store "$TMP/store" --memory own,corpus,both --memory-k 4 \
    --memory-every 16 --out "$TMP/model/memory.json"
serve_start --model "$TMP/model" --store "$TMP/store" --memory-searcher hybrid --max-body 64k --max-tokens 512 --max-prompt-tokens 2000 --model-name tiny
expect_error "another program listens there" "$SERVE" --model "$TMP/model" --port "$PORT"

# ---- model, health and special tokens
ask 200 /health
same "$(cat "$OUT")" '{"status":"ok"}'
header_has "X-Content-Type-Options: nosniff"
header_has "Content-Security-Policy: default-src 'none'"
ask 200 /v1/models
out_has '"id":"tiny","object":"model"'
out_has '"documents":12'
sed 's/^{"object":"list","data":\[\(.*\)\]}$/\1/' "$OUT" >"$TMP/models"
ask 200 /v1/models/tiny
same "$(cat "$OUT")" "$(cat "$TMP/models")" "the model"
ask 200 /tokenizer_info
out_has '"eos_token":"<|endoftext|>"'
ask 200 /tokenize '{"prompt": "the river", "add_special_tokens": false}'
ids=$(sed -n 's/.*"tokens":\(\[[0-9,]*\]\).*/\1/p' "$OUT")
ask 200 /detokenize "{\"tokens\": $ids}"
same "$(cat "$OUT")" '{"prompt":"the river"}'
ask 200 /detokenize '{"tokens": []}'
ask 200 /
out_has '<script src="/page.js" defer>'
header_has "Content-Type: text/html; charset=utf-8"
ask 200 /page.js
ask 200 /page.css

# ---- completions: greedy text is that of drt-generate, whole, streamed, with retrieval, of ids and of several prompts
words 120 7 | tr -d '\n' >"$TMP/prompt"
prompt=$(cat "$TMP/prompt")
generate() { "$GENERATE" --model "$TMP/model" --greedy --max-tokens 40 --ignore-eos --prompt-file "$TMP/prompt" --threads 2 "$@" 2>/dev/null; }
plain=$(generate | od -An -c)
body() { printf '{"model": "tiny", "prompt": "%s", "max_tokens": 40, "temperature": 0, "ignore_eos": true%s}' "$prompt" "${1:-}"; }
# The text of $OUT, as bytes: python, if it is installed, resolves JSON escapes.
answer_is() { # WANTED (od -c of drt-generate's output, which ends the line)
    command -v python3 >/dev/null || return 0
    same "$(python3 -c '
import json, sys
data = open(sys.argv[1], encoding="utf-8").read()
events = [json.loads(line[6:]) for line in data.splitlines() if line.startswith("data: {")] or [json.loads(data)]
text = "".join(c["text"] for e in events for c in e["choices"] if c["index"] == int(sys.argv[2]))
sys.stdout.buffer.write((text + ("" if text.endswith("\n") else "\n")).encode())' "$OUT" "${2:-0}" | od -An -c)" "$1" "text of the answer"
}
ask 200 /v1/completions "$(body)"
answer_is "$plain"
out_has '"finish_reason":"length"'
out_has '"completion_tokens":40'
first=$(text_of)
ask 200 /v1/completions "$(body ', "stream": true, "stream_options": {"include_usage": true}')"
header_has "Content-Type: text/event-stream"
answer_is "$plain"
same "$(text_of)" "$first" "streamed text"
same "$(tail -n 2 "$OUT" | head -n 1)" "data: [DONE]"
out_has '"choices":[],"usage":{"prompt_tokens":'
for source in self corpus both; do
    flags=()
    [ $source = corpus ] || flags+=(--self-retrieval)
    [ $source = self ] || flags+=(--store "$TMP/store" --corpus-retrieval)
    with=$(generate "${flags[@]}" | od -An -c)
    ask 200 /v1/completions "$(body ", \"retrieval\": {\"source\": \"$source\", \"k\": 2}, \"stream\": true")"
    answer_is "$with"
    out_has '"neighbours":[{"group":0,"source":"'
    [ $source = self ] || out_has '"key":"doc-'
done
with=$(generate --store "$TMP/store" --corpus-retrieval --searcher lexical --continuation 1 | od -An -c)
ask 200 /v1/completions "$(body ', "retrieval": {"source": "corpus", "searcher": "lexical", "continuation": 1, "k": 2}')"
answer_is "$with"
with=$(generate --store "$TMP/store" --corpus-retrieval --searcher lexical --query-tokens 5 | od -An -c)
ask 200 /v1/completions "$(body ', "retrieval": {"source": "corpus", "searcher": "lexical", "query_tokens": 5}')"
answer_is "$with"
with=$(generate --self-retrieval --continuation 1 --overlap 31 | od -An -c)
ask 200 /v1/completions "$(body ', "retrieval": {"source": "self", "continuation": 1, "overlap": 31}')"
answer_is "$with"
with=$(generate --store "$TMP/store" --corpus-retrieval --self-retrieval --continuation 1 --overlap 31 | od -An -c)
ask 200 /v1/completions "$(body ', "retrieval": {"source": "both", "continuation": 1, "overlap": 31, "k": 64}')"
answer_is "$with"
# A passage that begins within a chunk: its position and its text are those of the document.
if command -v python3 >/dev/null; then
    python3 - "$OUT" "$URL" <<'P' || die "passages that overlap what they continue"
import json, sys, urllib.request
records = json.load(open(sys.argv[1], encoding="utf-8"))["choices"][0]["retrieval"]["records"]
read = [n for r in records for n in r["neighbours"]]
passages = [n for n in read if n["source"] == "corpus" and n["token_offset"] % 63 == 32]
assert passages and any(n["token_offset"] % 63 == 0 for n in read), read
def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    return json.load(urllib.request.urlopen(urllib.request.Request(sys.argv[2] + path, data)))
for n in passages:
    text = ask(f"/documents/{n['document']}")["text"]
    ids = ask("/tokenize", {"prompt": text, "literal": True})["tokens"]
    part = ids[n["token_offset"]:n["token_offset"] + 63]
    assert n["text"] == ask("/detokenize", {"tokens": part})["prompt"], (n, part)
P
fi
for memory in own corpus both; do
    flags=(--memory $memory)
    [ $memory = own ] || flags+=(--store "$TMP/store" --memory-searcher hybrid)
    with=$(generate "${flags[@]}" | od -An -c)
    ask 200 /v1/completions "$(body ", \"retrieval\": {\"source\": \"none\", \"memory\": \"$memory\", \"k\": 3}")"
    answer_is "$with"
    out_lacks '"memory_share":0,'
done
ask 200 /tokenize "{\"prompt\": \"$prompt\"}"
ids=$(sed -n 's/.*"tokens":\(\[[0-9,]*\]\).*/\1/p' "$OUT")
ask 200 /v1/completions "{\"prompt\": [$ids, [1, 2, 3], $ids], \"max_tokens\": 40, \"temperature\": 0, \"ignore_eos\": true}"
answer_is "$plain" 0
answer_is "$plain" 2
ask 200 /v1/completions '{"prompt": ["a", ""], "max_tokens": 3, "seed": 5}'
seeded=$(text_of)
ask 200 /v1/completions '{"prompt": ["a", ""], "max_tokens": 3, "seed": 5}'
same "$(text_of)" "$seeded" "the text of one seed"
# n choices of a prompt have the seeds `seed`, `seed` + 1, ...; a prompt counts once. --max-prompts bounds all choices.
drawn() { printf '{"prompt": %s, "max_tokens": 9, "temperature": 1.5, "ignore_eos": true, "seed": %s%s}' "$1" "$2" "${3:-}"; }
one_by_one=
for text in '"the river"' '"a"'; do
    for seed in 7 8 9; do
        ask 200 /v1/completions "$(drawn "$text" $seed)"
        one_by_one+=$(text_of)
    done
done
for stream in false true; do
    ask 200 /v1/completions "$(drawn '["the river", "a"]' 7 ", \"n\": 3, \"stream\": $stream, \"stream_options\": {\"include_usage\": true}")"
    same "$(text_of)" "$one_by_one" "the texts of n choices"
    out_has '"index":5,'
    out_has '"completion_tokens":54'
    prompts=$(sed -n 's/.*"usage":{"prompt_tokens":\([0-9]*\),.*/\1/p' "$OUT")
    ask 200 /v1/completions "$(drawn '["the river", "a"]' 7)"
    out_has "\"usage\":{\"prompt_tokens\":$prompts,"
done

# ---- stop strings: the text ends before them, for any borders of tokens
if command -v python3 >/dev/null; then
    sampled() { printf '{"prompt": "the river", "max_tokens": 60, "temperature": 1.5, "seed": 3, "ignore_eos": true%s}' "${1:-}"; }
    ask 200 /v1/completions "$(sampled)"
    cut=$(python3 -c '
import json, sys
text = json.load(open(sys.argv[1]))["choices"][0]["text"]
at = next(i for i in range(8, len(text)) if text[i:i + 3].isprintable() and chr(0xfffd) not in text[i:i + 3] and text.find(text[i:i + 3]) == i)
print(json.dumps([text[at:at + 3], text[:at]]))' "$OUT")
    for stream in false true; do
        ask 200 /v1/completions "$(sampled ", \"stream\": $stream, \"stop\": [\"never there\", $(python3 -c 'import json, sys; print(json.dumps(json.loads(sys.argv[1])[0]))' "$cut")]")"
        out_has '"finish_reason":"stop"'
        python3 -c '
import json, sys
data = open(sys.argv[1], encoding="utf-8").read()
events = [json.loads(line[6:]) for line in data.splitlines() if line.startswith("data: {")] or [json.loads(data)]
text = "".join(c["text"] for e in events for c in e["choices"])
assert text == json.loads(sys.argv[2])[1], (text, sys.argv[2])' "$OUT" "$cut" 2>"$ERR" || die "a stop string"
    done
fi

# ---- log-probabilities of a prompt: one for each id, the first null; the tokens that follow are in the same lists
ask 200 /v1/completions '{"prompt": "the river", "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": true, "seed": 1234}'
n=$(sed -n 's/.*"prompt_tokens":\([0-9]*\).*/\1/p' "$OUT")
same "$(grep -o '"token_logprobs":\[[^]]*\]' "$OUT" | tr ',' '\n' | wc -l)" "$((n + 1))" "log-probabilities"
out_has '"token_logprobs":[null,-'
out_has '"top_logprobs":[null,{'
out_has '"text":"the river'
ask 200 /v1/completions '{"prompt": "the river", "max_tokens": 0, "logprobs": 0, "echo": true}'
out_has '"completion_tokens":0'

# ---- search and documents: the same as drt-index
ask 200 /search '{"text": "the river and the harbour", "k": 3}'
out_has '"key":"doc-'
chunks=$(grep -o '"chunk":[0-9]*' "$OUT" | head -n 3)
expect 0 "$BIN/drt-index" search "the river and the harbour" --store "$TMP/store" --model "$TMP/model" --k 3 --json
same "$(grep -o '"chunk": *[0-9]*' "$OUT" | tr -d ' ' | head -n 3)" "$chunks" "hits of drt-index and drt-serve"
for kind in lexical hybrid; do
    ask 200 /search "{\"text\": \"the river and the harbour\", \"k\": 3, \"searcher\": \"$kind\"}"
    chunks=$(grep -o '"chunk":[0-9]*' "$OUT" | head -n 3)
    expect 0 "$BIN/drt-index" search "the river and the harbour" --store "$TMP/store" --model "$TMP/model" --k 3 --json --searcher $kind
    same "$(grep -o '"chunk": *[0-9]*' "$OUT" | tr -d ' ' | head -n 3)" "$chunks" "hits of drt-index and drt-serve, $kind"
done
ask 200 /documents/3
out_has '"key":"doc-4"'
out_has "$(sed -n '4s/.*"text": "\(.*\)".*/\1/p' "$TMP/corpus.jsonl")"
ask 200 "/documents/3?first=1&chunks=1"
out_has '"text_first":1,"text_chunks":1'
ask 404 /documents/12
out_has "documents are 0 to 11"
ask 400 /documents/-1
ask 400 "/documents/1?first=x"

# ---- metrics
ask 200 /metrics
header_has "Content-Type: text/plain; version=0.0.4"
out_has 'drt_requests_total{endpoint="/v1/completions",code="200"}'
out_has 'drt_request_seconds_bucket{le="+Inf"}'
if command -v promtool >/dev/null; then promtool check metrics <"$OUT" >"$ERR" 2>&1 || die "promtool"; fi
[ "$(metric drt_generated_tokens_total)" -ge 300 ] || die "tokens are not counted"

# ---- the log names the requests, and no prompt
serve_stop
grep -q '"level":"info","program":"drt-serve","event":"request","peer":"127.0.0.1","method":"POST","path":"/v1/completions","status":200' "$TMP/log" || die "the log lacks a request"
! grep -qF "winding" "$TMP/log" || die "the log has a prompt's text"
exit 0
