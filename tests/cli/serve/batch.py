#!/usr/bin/env python3
"""batch.py URL BATCH ANSWERS -- compares requests in one batch of a drt-serve with the same requests alone.

The first call writes the answers of an idle server to the file ANSWERS; later ones, with another --batch, compare theirs with it.
"""
import http.client
import json
import os
import sys
import threading
import time
import urllib.parse

url, batch, kept = urllib.parse.urlsplit(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
SOURCES = ["none", "self", "corpus", "both"]
WORDS = "the river and stone winding north other sand ring on table under seven lights of a harbour".split()


def body(i):
    """Prompts of 3 to 160 words; greedy ones and sampled ones; two have two prompts; two read token memories."""
    retrieval = {"source": SOURCES[i % 4], "k": 2, **({"memory": "own" if i == 4 else "both"} if i in (4, 8) else {})}
    text = " ".join(WORDS[(i * 7 + k * k) % len(WORDS)] for k in range(3 + 17 * i))
    return {"prompt": [text, text[:40]] if i % 5 == 4 else text, "max_tokens": 140 if i % 2 else 20 + i, "temperature": 0.8 * (i % 3 == 2),
            "seed": i, "ignore_eos": True, "logprobs": 2, "retrieval": retrieval}


def connect():
    return http.client.HTTPConnection(url.hostname, url.port, timeout=60)


def choices(request):
    connection = connect()
    connection.request("POST", "/v1/completions", json.dumps(request))
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer["choices"]


def metrics():
    connection = connect()
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}


def leave(request, events):
    """A stream whose client leaves after some events."""
    connection = connect()
    connection.request("POST", "/v1/completions", json.dumps(dict(request, stream=True, max_tokens=4000)))
    response = connection.getresponse()
    for _ in range(2 * events):
        response.readline()
    response.close()
    connection.close()


requests = [body(i) for i in range(9)]
alone = [choices(request) for request in requests]
if os.path.exists(kept):
    with open(kept, encoding="utf-8") as file:
        assert json.load(file) == alone, "an answer depends on --batch"
else:
    with open(kept, "w", encoding="utf-8") as file:
        json.dump(alone, file)
before = metrics()
assert before["drt_batch_sessions_count"] == 0, "a session alone is no batch"
got = {}


def client(i, wait):
    time.sleep(wait)
    got[i] = choices(requests[i])


threads = [threading.Thread(target=client, args=(i, 0.02 * (i % 4))) for i in range(9)]
threads += [threading.Thread(target=leave, args=(requests[i], 2 + i)) for i in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for i in range(9):
    assert got[i] == alone[i], f"request {i} has another answer in a batch: {got[i]} instead of {alone[i]}"
until = time.monotonic() + 30
while metrics()["drt_queue_running"] > 0 and time.monotonic() < until:
    time.sleep(0.05)
after = metrics()
count, total = after["drt_batch_sessions_count"], after["drt_batch_sessions_sum"]
print(f"--batch {batch}: {count:.0f} batches, {total:.0f} tokens; {after['drt_cancelled_total']:.0f} cancelled")
assert after["drt_queue_running"] == 0 and after["drt_cancelled_total"] == 3, "a client that left kept its session"
assert after["drt_queue_seconds_count"] == 21, "waits are not counted"
if batch == 1:
    assert count == 0, "--batch 1 makes batches"
else:
    assert count > 5 and total > 1.5 * count, "no batches"  # few where the client is slow
    largest = min(batch, 6)  # of six sessions
    bound = next(b for b in (1, 2, 4, 8) if b >= largest)
    assert after[f'drt_batch_sessions_bucket{{le="{bound}"}}'] == count and total <= largest * count, "a batch is too large"
