#!/usr/bin/env python3
"""lm_eval_task.py write URL FOLDER TEXT...   a local task of lm-evaluation-harness: each text in two parts, cut between two ids
lm_eval_task.py compare FOLDER SAMPLES EVAL MODE   the harness's log-probabilities against those that drt-eval printed

A text's first part is what the server's tokenizer reads as the text's first ids, so that both sides score the same ids.
"""
import glob
import json
import math
import sys
import urllib.request

TASK = """task: held_out
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: loglikelihood
doc_to_text: "{{{{context}}}}"
doc_to_target: "{{{{continuation}}}}"
target_delimiter: ""
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
"""
TOLERANCE = 1e-3


def ask(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def cut(url, text):
    """Ids before the cut, and both parts. The harness moves spaces at the end of the first part to the second."""
    ids = ask(url, "/tokenize", {"prompt": text})["tokens"]
    for n in range(64, len(ids) - 1):
        context = ask(url, "/detokenize", {"tokens": ids[:n]})["prompt"]
        if context == context.rstrip() and text.startswith(context) and ask(url, "/tokenize", {"prompt": context})["tokens"] == ids[:n]:
            return n, context, text[len(context):]
    raise SystemExit("lm_eval_task.py: a text cannot be cut between two ids")


def write(url, folder, paths):
    with open(folder + "/held_out.jsonl", "w", encoding="utf-8") as out:
        for i, path in enumerate(paths):
            with open(path, encoding="utf-8") as file:
                text = file.read()[:3000]
            skip, context, continuation = cut(url, text)
            out.write(json.dumps({"context": context, "continuation": continuation, "skip": skip}) + "\n")
            with open(f"{folder}/text-{i}.jsonl", "w", encoding="utf-8") as one:
                one.write(json.dumps({"text": text}) + "\n")
            print(i, skip)
    with open(folder + "/held_out.yaml", "w", encoding="utf-8") as out:
        out.write(TASK.format(data=folder + "/held_out.jsonl"))


def compare(folder, samples, measured, mode):
    path = glob.glob(samples + "/**/samples_held_out_*.jsonl", recursive=True)
    if len(path) != 1:
        raise SystemExit(f"lm_eval_task.py: {len(path)} files of samples in {samples}")
    with open(path[0], encoding="utf-8") as file:
        harness = {s["doc_id"]: float(s["filtered_resps"][0][0]) for s in map(json.loads, file)}
    bad = False
    for i, line in enumerate(open(measured, encoding="utf-8")):
        seen = json.loads(line)
        tokens = seen["files"][0]["tokens"]
        ours = -math.log(seen["modes"][mode]["perplexity"])
        theirs = harness.pop(i) / tokens
        bad = bad or not abs(ours - theirs) < TOLERANCE
        print(f"{mode}, text {i}: {tokens} tokens, log-probability a token: lm_eval {theirs:.6f}, drt-eval {ours:.6f}, difference {theirs - ours:+.1e}")
    if bad or harness:
        raise SystemExit(f"lm_eval_task.py: mode {mode}: the log-probabilities differ by more than {TOLERANCE}, or texts are missing")


if sys.argv[1] == "write":
    write(sys.argv[2], sys.argv[3], sys.argv[4:])
else:
    compare(*sys.argv[2:])
