#!/usr/bin/env python3
"""load.py URL [options] -- many clients at once at a drt-serve, with some that misbehave.

Every answer must equal the one that the server gave when nothing else ran (greedy). One request in ten is cut off or
malformed. The server's memory is compared between the quarters of the requests.
"""
import argparse
import http.client
import json
import random
import socket
import struct
import sys
import threading
import time
import urllib.parse

WORDS = "the river and stone winding north other sand ring on table under seven lights of a harbour".split()
LEAVING_TOKENS = 150
failures = []


def fail(text):
    failures.append(text)


class Server:
    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        self.host, self.port = parts.hostname, parts.port

    def connect(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=120)

    def raw(self):
        return socket.create_connection((self.host, self.port), timeout=120)

    def metrics(self):
        connection = self.connect()
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}

    def idle(self):
        """Waits until all sessions have ended, and returns the metrics."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            seen = self.metrics()
            if seen["drt_queue_running"] + seen["drt_queue_waiting"] == 0 and seen["drt_connections"] <= 1:
                return seen
            time.sleep(0.1)
        fail(f"the server is not idle after the load: {seen}")
        return seen


def variants(sources, tokens):
    """Bodies of completions, each with another text or other ids."""
    bodies = []
    for i in range(16):
        words = random.Random(i)
        prompt = " ".join(words.choice(WORDS) for _ in range(words.choice([1, 8, 60, 150])))
        bodies.append({"prompt": prompt, "max_tokens": words.randint(1, tokens), "temperature": 0, "ignore_eos": True,
                       "retrieval": {"source": sources[i % len(sources)], "k": 2 if i % 3 == 0 else 0}})
    bodies[1]["prompt"] = [bodies[2]["prompt"], bodies[3]["prompt"]]
    return bodies


def post(connection, path, body):
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def texts_of(answer):
    return [choice["text"] for choice in answer["choices"]]


def stream(connection, body):
    """The joined texts of each choice, and the time of the first event."""
    start = time.monotonic()
    connection.request("POST", "/v1/completions", json.dumps(dict(body, stream=True)))
    response = connection.getresponse()
    if response.status != 200:
        return [response.status, response.read().decode()], 0
    texts, first, done = [""] * (len(body["prompt"]) if isinstance(body["prompt"], list) else 1), 0, False
    for line in response:
        first = first or time.monotonic() - start
        done = done or line == b"data: [DONE]\n"
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            if "error" in event:
                return [event], 0
            for choice in event["choices"]:
                texts[choice["index"]] += choice["text"]
    return (texts if done else ["a stream without its end"]), first


def head(body, extra=""):
    return f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n{extra}Content-Length: {len(body)}\r\n\r\n".encode()


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def misbehave(server, kind, bodies):
    """One client that is cut off, or sends what is not HTTP or not a request."""
    body = json.dumps(dict(bodies[kind % len(bodies)], stream=True, max_tokens=LEAVING_TOKENS)).encode()
    expected = None
    with server.raw() as c:
        kind %= 10
        if kind == 0:    # half a head
            c.sendall(head(body)[:40])
        elif kind == 1:  # half a body
            c.sendall(head(body) + body[:len(body) // 2])
        elif kind == 2:  # leaves after the first bytes of a stream
            c.sendall(head(body) + body)
            c.recv(200)
        elif kind == 3:  # the same, with a reset
            c.sendall(head(body) + body)
            c.recv(200)
            reset(c)
        elif kind == 4:  # half-closes the connection, and waits for the cancelled answer
            c.sendall(head(body) + body)
            c.shutdown(socket.SHUT_WR)
            while c.recv(65536):
                pass
        elif kind == 5:  # leaves at once
            c.sendall(head(body) + body)
            reset(c)
        elif kind == 6:
            c.sendall(head(body[:-1]) + body[:-1])
            expected = b"HTTP/1.1 400"
        elif kind == 7:
            c.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) + b"\r\n\r\n")
            expected = b""
        elif kind == 8:  # two lengths that differ
            c.sendall(head(body, "Content-Length: 7\r\n") + body)
            expected = b""
        else:            # a chunk whose length is no number
            c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n")
            expected = b""
        if expected is None:
            return
        try:
            answer = c.recv(65536)
        except ConnectionResetError:
            answer = b""
        if expected and not answer.startswith(expected):
            fail(f"misbehaviour {kind}: {answer[:80]!r}, wanted {expected!r}")
        if not expected and answer and not answer.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400")):
            fail(f"misbehaviour {kind}: {answer[:80]!r}, wanted 400 or the connection's end")


class Load:
    def __init__(self, server, bodies, wanted, lookups, options):
        self.server, self.bodies, self.wanted, self.lookups, self.options = server, bodies, wanted, lookups, options
        self.lock, self.next = threading.Lock(), 0
        self.seconds, self.first, self.tokens, self.bad, self.lookup_seconds = [], [], 0, 0, []

    def one(self, connection, number):
        dice = random.Random(number * 2654435761 + self.options.seed)
        start = time.monotonic()
        if number % 10 == 7:
            misbehave(self.server, number // 10, self.bodies)
            self.bad += 1
        elif dice.random() < 0.1:
            path, body, wanted = dice.choice(self.lookups)
            got = post(connection, path, body)
            got[1].pop("seconds", None)
            if got != wanted:
                fail(f"request {number}: {path} {body}: {got} instead of {wanted}")
            self.lookup_seconds.append(time.monotonic() - start)
        else:
            i = dice.randrange(len(self.bodies))
            if dice.random() < 0.5:
                texts, first = stream(connection, self.bodies[i])
                self.first.append(first)
            else:
                status, answer = post(connection, "/v1/completions", self.bodies[i])
                texts = texts_of(answer) if status == 200 else [status, answer]
            if texts != self.wanted[i]:
                fail(f"request {number}: {self.bodies[i]}: {texts} instead of {self.wanted[i]}")
            self.seconds.append(time.monotonic() - start)

    def client(self, end):
        connection = self.server.connect()
        while len(failures) < 5:
            with self.lock:
                number = self.next
                if number >= end:
                    break
                self.next += 1
            try:
                self.one(connection, number)
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                if number % 10 != 7:
                    fail(f"request {number}: {error!r}")
                connection.close()
        connection.close()

    def run(self, end):
        threads = [threading.Thread(target=self.client, args=(end,)) for _ in range(self.options.clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(p * len(values)))] if values else 0


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("url")
    arguments.add_argument("--requests", type=int, default=400)
    arguments.add_argument("--clients", type=int, default=32)
    arguments.add_argument("--tokens", type=int, default=24)
    arguments.add_argument("--sources", default="none,self,corpus,both")
    arguments.add_argument("--max-growth", type=float, default=0, help="MiB resident in all; 0: not checked")
    arguments.add_argument("--max-allocated", type=float, default=0.75, help="with it: MiB that are allocated more in each quarter")
    arguments.add_argument("--min-batch", type=float, default=0, help="sessions that shared a pass, on average; 0: not checked")
    arguments.add_argument("--seed", type=int, default=1)
    o = arguments.parse_args()
    server = Server(o.url)
    bodies = variants(o.sources.split(","), o.tokens)
    connection = server.connect()
    wanted, alone, alone_tokens = [], [], 0
    for body in bodies:
        start = time.monotonic()
        status, answer = post(connection, "/v1/completions", body)
        alone.append(time.monotonic() - start)
        alone_tokens += answer["usage"]["completion_tokens"] if status == 200 else 0
        wanted.append(texts_of(answer) if status == 200 else sys.exit(f"load.py: {body}: {status} {answer}"))
        post(connection, "/v1/completions", dict(body, max_tokens=LEAVING_TOKENS))  # the longest texts
    lookups = [("/tokenize", {"prompt": "the river"}), ("/detokenize", {"tokens": [1, 2, 3]})]
    if "corpus" in o.sources:
        lookups.append(("/search", {"text": "the river and the harbour", "k": 5}))
    lookups = [(path, body, post(connection, path, body)) for path, body in lookups]
    for entry in lookups:
        entry[2][1].pop("seconds", None)
    connection.close()
    load = Load(server, bodies, wanted, lookups, o)
    seen, seconds = [], 0
    for quarter in range(1, 5):
        start = time.monotonic()
        load.run(o.requests * quarter // 4)
        seconds += time.monotonic() - start if quarter > 1 else 0
        seen.append(server.idle())
    before, after = seen[0], seen[-1]
    growth = (after["process_resident_memory_bytes"] - before["process_resident_memory_bytes"]) / 2**20
    # The model's scratch memory grows once, when many uncached chunks are encoded together; a leak grows without end.
    heap = min(b["drt_heap_bytes"] - a["drt_heap_bytes"] for a, b in zip(seen, seen[1:])) / 2**20
    tokens = after["drt_generated_tokens_total"] - before["drt_generated_tokens_total"]
    batches = after["drt_batch_sessions_count"] - before["drt_batch_sessions_count"]
    shared = after["drt_batch_sessions_sum"] - before["drt_batch_sessions_sum"]
    waits = after["drt_queue_seconds_count"] - before["drt_queue_seconds_count"]
    waited = (after["drt_queue_seconds_sum"] - before["drt_queue_seconds_sum"]) / max(waits, 1)
    print(f"{load.next} requests by {o.clients} clients, {load.bad} of them cut off or malformed; {len(load.seconds)} completions")
    print(f"completion: p50 {percentile(load.seconds, 0.5):.3f} s, p99 {percentile(load.seconds, 0.99):.3f} s; "
          f"alone p50 {percentile(alone, 0.5):.3f} s; first event: p50 {percentile(load.first, 0.5):.3f} s, "
          f"p99 {percentile(load.first, 0.99):.3f} s; lookup: p50 {percentile(load.lookup_seconds, 0.5):.3f} s, "
          f"p99 {percentile(load.lookup_seconds, 0.99):.3f} s")
    print(f"{tokens / seconds:.0f} tokens/s generated (one client alone: {alone_tokens / sum(alone):.0f}), {0.75 * load.next / seconds:.1f} requests/s; "
          f"resident {after['process_resident_memory_bytes'] / 2**20:.1f} MiB, {growth:+.1f} MiB since the first quarter, "
          f"allocated {after['drt_heap_bytes'] / 2**20:.2f} MiB, {heap:+.2f} MiB in a quarter")
    print("resident after each quarter: " + ", ".join(f"{s['process_resident_memory_bytes'] / 2**20:.1f}" for s in seen) + " MiB; allocated: "
          + ", ".join(f"{s['drt_heap_bytes'] / 2**20:.2f}" for s in seen) + " MiB")
    print(f"{batches:.0f} batches of {shared / max(batches, 1):.1f} sessions gave {100 * shared / max(tokens, 1):.0f} % of the tokens; "
          f"mean wait {waited:.3f} s")
    if o.min_batch and shared < o.min_batch * batches + (batches == 0):
        fail(f"{batches:.0f} batches of {shared / max(batches, 1):.1f} sessions, wanted {o.min_batch}")
    if load.next < o.requests or len(load.seconds) < o.requests // 2:
        fail(f"only {load.next} requests were sent")
    if o.max_growth and (growth > o.max_growth or heap > o.max_allocated):
        fail(f"the server's memory grew: {growth:.1f} MiB resident, {heap:.2f} MiB allocated in each quarter")
    if o.requests >= 200 and after["drt_cancelled_total"] < 1:
        fail("no completion was cancelled, although clients left")
    for text in failures[:5]:
        print("load.py: " + text[:2000], file=sys.stderr)
    return 1 if failures else 0


sys.exit(main())
