#!/usr/bin/env bash
# Token memories on the server, with a tiny Base LM: log-probabilities of the prompt do not change what follows, for prompts that are
# read in parts; `skip` gives those of a generation after the skipped ids, and those of drt-eval ppl --skip. The n choices of a prompt are those of n requests.
. "$DRT_SOURCE/tests/cli/serve/lib_serve.sh" || exit 1
needs drt-eval
command -v python3 >/dev/null || skip "python3 is not installed"
tiny_base "$TMP/base"
base=$TMP/base
corpus "$TMP/corpus.jsonl" 12 150
corpus "$TMP/fit.jsonl" 6 120 50
"$BIN/drt-index" build "$TMP/corpus.jsonl" --model "$base" --out "$TMP/store" --landmarks none >/dev/null 2>"$ERR" || die "no store"
"$EVAL" fit-memory --model "$base" --store "$TMP/store" --data "$TMP/fit.jsonl" --memory own,corpus,both --memory-k 4 --context 256 --skip 32 \
    --out "$base/memory.json" --device cpu >/dev/null 2>"$ERR" || die "drt-eval fit-memory: $(tail -n 1 "$ERR")"
printf '{"text": "%s"}\n' "$(words 45 3) $(words 8 5)" >"$TMP/held.jsonl"
for memory in corpus both; do
    "$EVAL" ppl --model "$base" --store "$TMP/store" --data "$TMP/held.jsonl" --memory $memory --skip 70 --context 512 --no-overlap --json \
        --device cpu --threads 2 >"$TMP/ppl.$memory" 2>"$ERR" || die "drt-eval ppl: $(tail -n 1 "$ERR")"
done
expect_error "run drt-index keys --store $TMP/store with this model" "$SERVE" --model "$base" --store "$TMP/store" --device cpu --memory-keys device --port 0
# With a small stack, which threads of libraries would inherit (a sanitizer's frames are larger).
stack=$(ulimit -Ss)
(ulimit -v 4000000 && "$SERVE" --help) >/dev/null 2>&1 && ulimit -Ss 64
serve_start --model "$base" --store "$TMP/store" --device cpu --prefill-chunks 1
ulimit -Ss "$stack"
ask 400 /v1/completions '{"prompt": "x", "skip": 1}'
out_has '"param":"skip"'
ask 400 /v1/completions '{"prompt": "x", "echo": true, "skip": 1}'
ask 400 /v1/completions '{"prompt": "x", "logprobs": 0, "skip": 1}'
python3 - "$URL" "$TMP" "$GENERATE" "$base" <<'P' || die "the answers differ"
import json, math, subprocess, sys, urllib.request
url, tmp, generate, base = sys.argv[1:5]

def post(path, **body):
    with urllib.request.urlopen(url + path, json.dumps(body).encode("utf-8"), timeout=120) as answer:
        return json.load(answer)

def complete(prompt, memory, **more):
    return post("/v1/completions", prompt=prompt, temperature=0, retrieval={"memory": memory}, **more)["choices"][0]

def near(a, b, tolerance):
    assert len(a) == len(b) and all(abs(x - y) <= tolerance for x, y in zip(a, b)), max(abs(x - y) for x, y in zip(a, b))

text = json.loads(open(tmp + "/held.jsonl", encoding="utf-8").read())["text"]
held = post("/tokenize", prompt=text)["tokens"]
chunk = json.loads(urllib.request.urlopen(url + "/v1/models", timeout=60).read())["data"][0]["drt"]["chunk"]
assert len(held) > 150 and 0 < len(held) % chunk < 16, (len(held), chunk)   # no search is due at the end of the last part
again_scored = 0
for memory in ("corpus", "both"):
    plain = complete(text, memory, max_tokens=24, logprobs=0)
    echo = complete(text, memory, max_tokens=24, logprobs=0, echo=True)
    assert echo["text"] == text + plain["text"], (plain["text"], echo["text"])
    near(plain["logprobs"]["token_logprobs"], echo["logprobs"]["token_logprobs"][len(held):], 1e-3)
    wanted = subprocess.run([generate, "--model", base, "--store", tmp + "/store", "--device", "cpu", "--greedy", "-n", "24", "--memory", memory,
                             "-p", text], capture_output=True, check=True, text=True).stdout.rstrip("\n")
    assert wanted in (plain["text"], text + plain["text"]), (wanted, plain["text"])
    # the generated ids again, after a prompt that is skipped
    all_ids = post("/tokenize", prompt=text + plain["text"])["tokens"]
    if all_ids[:len(held)] == held and len(all_ids) == len(held) + 24:
        again = complete(all_ids, memory, max_tokens=0, logprobs=0, echo=True, skip=len(held))["logprobs"]["token_logprobs"]
        assert all(x is None for x in again[:len(held)])
        near(plain["logprobs"]["token_logprobs"], again[len(held):], 1e-3)
        again_scored += 1
    scored = complete(held, memory, max_tokens=0, logprobs=0, echo=True, skip=70)["logprobs"]["token_logprobs"]
    first = complete(held, memory, max_tokens=0, logprobs=0, echo=True)["logprobs"]["token_logprobs"]
    assert all(x is None for x in scored[:70]) and first[0] is None and None not in first[1:] + scored[70:]
    far = max(abs(x - y) for x, y in zip(scored[70:], first[70:]))
    nll = json.load(open(tmp + "/ppl." + memory, encoding="utf-8"))["scored"][0]["nll"]["memory-" + memory]
    assert abs(sum(scored[70:]) + nll) < 0.01 and far > 0.1, (sum(scored[70:]), nll, far)

# Choices of one prompt: those of requests with their seeds. The prompt is read once, unless the answer has its log-probabilities.
def read():
    with urllib.request.urlopen(url + "/metrics", timeout=60) as answer:
        return next(int(line.split()[1]) for line in answer.read().decode("utf-8").splitlines() if line.startswith("drt_prompt_tokens_total "))

for retrieval in ({"source": "none"}, {"memory": "own"}, {"memory": "both"}):
    for more in ({}, {"echo": True}, {"stop": "e"}, {"logprobs": 1}, {"echo": True, "logprobs": 0}, {"stream": True}):
        body = dict(prompt=[text, text[:77]], temperature=1, max_tokens=20, repetition_penalty=1.2, retrieval=retrieval, **more)
        ids = sum(len(post("/tokenize", prompt=p)["tokens"]) for p in body["prompt"])
        before = read()
        if more.get("stream"):
            with urllib.request.urlopen(url + "/v1/completions", json.dumps(dict(body, n=3, seed=70)).encode("utf-8"), timeout=120) as answer:
                events = [json.loads(line[6:]) for line in answer.read().decode("utf-8").splitlines() if line.startswith("data: {")]
            got = [{"text": "".join(c["text"] for e in events for c in e["choices"] if c["index"] == i), "logprobs": None} for i in range(6)]
        else:
            got = post("/v1/completions", n=3, seed=70, **body)["choices"]
        times = 3 if more.get("echo") and "logprobs" in more else 1
        assert read() - before == ids * times, (retrieval, more, read() - before, ids)
        body.pop("stream", None)
        for i in range(6):
            want = post("/v1/completions", seed=70 + i % 3, **dict(body, prompt=body["prompt"][i // 3]))["choices"][0]
            assert (got[i]["text"], got[i]["logprobs"]) == (want["text"], want["logprobs"]), (retrieval, more, i, got[i], want)
assert again_scored, "no generated text has the ids that it was made of"
P
# A server's own memory is that of requests that state neither a source nor a memory.
answer() { ask 200 /v1/completions '{"prompt": "'"$(words 45 3)"'", "max_tokens": 8, "temperature": 0, "logprobs": 0'"$1"'}'; grep -oE '"token_logprobs":\[[^]]*\]' "$OUT"; }
wanted=$(answer ', "retrieval": {"memory": "both"}')
none=$(answer '')
[ -n "$none" ] && [ "$wanted" != "$none" ] || die "the memory changes no log-probability"
serve_stop
serve_start --model "$base" --store "$TMP/store" --device cpu --memory both
same "$(answer '')" "$wanted" "--memory both"
same "$(answer ', "retrieval": {"source": "none"}')" "$none" "source none beside --memory both"
ask 200 /v1/models
out_has '"memory":"both"'
serve_stop
rm "$base/memory.json"
expect_error "memory.json" "$SERVE" --model "$base" --store "$TMP/store" --device cpu --memory both --port 0
exit 0
