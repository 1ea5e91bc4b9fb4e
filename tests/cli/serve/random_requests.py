#!/usr/bin/env python3
"""random_requests.py URL [--requests N] [--seed S] -- random requests to every endpoint, valid and damaged ones.

Each request is sent to the idle server, and again while other clients send theirs, whole or as a stream. Both answers
must be equal: text, log-probabilities, neighbours and usage of completions, also with temperature and a seed (on a CPU),
and the errors. An answer must have OpenAI's form and agree with itself: the texts of tokens make the text, offsets are
those of the text, a stop string does not occur, counts are those of the tokens.
"""
import argparse
import concurrent.futures
import http.client
import json
import random
import sys
import time
import urllib.parse

WORDS = "the river and stone winding north other sand ring on table under seven lights of a harbour".split()
ODD = ["", " ", "\n", "\u00e9", "\u4e2d\u6587", "\U0001f600", "e\u0301", "\u200b", "\0", "\x7f", "\ufeff", "<|endoftext|>", "<|", "\\", "\"", "</script>", "\ufffd"]
STOPS = ["e", " the", "\n", "er a", "harbour", "\u00e9", "zzzz", "a\"", "  ", "<|endoftext|>"]
LOST = "the answer was cut off"


def text(dice, longest=120):
    words = [dice.choice(WORDS) if dice.random() < 0.85 else dice.choice(ODD) for _ in range(dice.choice([0, 1, 3, 10, 40, longest]))]
    return " ".join(words)


def ids(dice, vocab):
    return [dice.randrange(vocab) for _ in range(dice.choice([0, 1, 2, 62, 63, 64, 130]))]


def prompt(dice, vocab):
    kind = dice.randrange(6)
    if kind < 3:
        return text(dice)
    if kind == 3:
        return [text(dice, 20) for _ in range(dice.randint(1, 4))]
    return ids(dice, vocab) or [1] if kind == 4 else [ids(dice, vocab) for _ in range(dice.randint(1, 3))]


def retrieval(dice, world):
    members = {"k": dice.choice([0, 1, 3, 64])}
    if world["base"] or dice.random() < 0.2:
        if world["memory"]:
            members["memory"] = dice.choice(["none", "own", "own"] + ["corpus", "both"] * world["store"])
        return members
    members["source"] = dice.choice(["none", "self"] + ["corpus", "both"] * world["store"])
    if members["source"] in ("corpus", "both"):
        members["searcher"] = dice.choice(["landmark", "lexical", "hybrid"] if world["lexical"] else ["landmark"])
        members["continuation"] = dice.choice([0, 1, 2, 64])
    elif members["source"] == "self" and dice.random() < 0.5:
        members.update(continuation=dice.choice([1, 3]), overlap=dice.choice([1, 31]))
    if members.get("continuation") and dice.random() < 0.5:
        members["overlap"] = dice.choice([0, 1, 31, world["chunk"] - 1] if members["source"] != "self" else [1, 31, world["chunk"] - 1])
    if members.get("searcher", "landmark") != "landmark" and dice.random() < 0.5:
        members["query_tokens"] = dice.choice([0, 1, 16, 128])
    return members


def completion(dice, world):
    """A valid body whose answer does not depend on anything else: greedy, or with a seed."""
    body = {"prompt": prompt(dice, world["vocab"]), "max_tokens": dice.choice([1, 2, 7, 16, 70])}
    body["temperature"] = dice.choice([0, 0, 0.3, 1, 100])
    if body["temperature"]:
        body["seed"] = dice.choice([0, 1, -1, 2**53, -2**53, dice.randrange(2**32)])
    some = {"top_p": [1, 0.9, 1e-6], "top_k": [0, 1, 40, 1 << 22], "min_p": [0, 0.05, 1], "repetition_penalty": [1, 1.3, 0.01, 100],
            "stop": [None, [], dice.choice(STOPS), [dice.choice(STOPS) for _ in range(dice.randint(1, 16))]], "ignore_eos": [True, False],
            "echo": [True, False], "logprobs": [0, 1, 5, 64, None, True, False], "model": [world["model"]], "user": ["someone"],
            "n": [1, 1, 2, 3], "presence_penalty": [0, 0.0], "frequency_penalty": [None], "logit_bias": [{}, None], "suffix": [None, ""]}
    for name, values in some.items():
        if dice.random() < 0.3:
            body[name] = dice.choice(values)
    if dice.random() < 0.2:
        body["best_of"] = dice.choice([body.get("n", 1), None])
    if body.get("echo") and dice.random() < 0.4:
        body["max_tokens"] = 0
    if dice.random() < 0.7:
        body["retrieval"] = retrieval(dice, world)
    return body


def spelled(dice, value):
    """JSON in one of its many spellings."""
    blank = lambda: dice.choice(["", "", "", " ", "\n\t", "\r"])
    if isinstance(value, dict):
        items = list(value.items())
        dice.shuffle(items)
        return "{" + ",".join(blank() + spelled(dice, k) + blank() + ":" + spelled(dice, v) for k, v in items) + blank() + "}"
    if isinstance(value, list):
        return "[" + ",".join(blank() + spelled(dice, v) + blank() for v in value) + "]"
    if isinstance(value, str):
        escape = dice.random() < 0.3
        data = json.dumps(value, ensure_ascii=escape or any("\ud800" <= c < "\ue000" for c in value))
        return "".join("\\u%04x" % ord(c) if c.isalnum() and ord(c) < 0x10000 and dice.random() < 0.2 else c for c in data) if escape and "\\" not in data else data
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1000 and dice.random() < 0.1:
        return dice.choice([f"{value}.0", f"{value}e0", f"{value or 1}0e-1" if value else "-0"])
    return json.dumps(value)


def damaged(dice, data):
    """A body with a fault that JSON, UTF-8 or the members' rules do not allow; by chance it may stay valid."""
    at = dice.randrange(len(data) + 1)
    pieces = [b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\\ud800", b"\\udc00\\ud800", b"\\u12", b"{", b"[" * 300, b"}" * 2, b",", b"\"",
              b"1e999", b"-1e-999", b"9" * 400, b"NaN", b"-", b"01", b"0x10", b"/**/", b"\"a\":" + b"[" * 5000, b"\xef\xbb\xbf", b"\r\n", b"nul", b"tru",
              b"\"max_tokens\":1,", b"\"prompt\":\"b\",", b"\"\":0,", b"\"pr\\u006fmpt\":[],"]
    kind = dice.randrange(5)
    if kind == 0:
        return data[:at] + dice.choice(pieces) + data[at:]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + data[at + dice.randint(1, 9):]
    if kind == 3:
        return data[:at] + bytes([dice.randrange(256)]) + data[at + 1:]
    return data[:1] + dice.choice(pieces[-4:]) + data[1:]


def wrong(dice, body):
    """A valid body of which one member has a value of another type or out of its range, or another name."""
    body = dict(body)
    values = [-1, 0, 1, 1e300, 2**63, -2**63, 2**64, 0.5, "", "x", "\ud800", [], [[]], {}, {"a": 1}, True, False, None, [None], ["a", 1], [-1], [2**31], [1.5]]
    inner = body.get("retrieval") if dice.random() < 0.4 else None
    target = dict(inner) if inner else body
    if inner:
        body["retrieval"] = target
    name = dice.choice(sorted(target) + ["stream_options", "retrieval", "logit_bias", "n", "unknown", "Prompt", "prompt "] * (dice.random() < 0.3))
    target[name] = dice.choice(values)
    return body


class Request:
    def __init__(self, number, world):
        dice = random.Random(number)
        self.number, self.path, self.method, self.stable, self.body, self.spelling = number, "/v1/completions", "POST", True, None, number
        kind = dice.random()
        if kind < 0.55:
            self.body = completion(dice, world)
        elif kind < 0.75:
            self.stable = False
            self.body = wrong(dice, completion(dice, world))
        elif kind < 0.8:
            self.path, self.body = "/tokenize", {"prompt": text(dice), **({"literal": dice.random() < 0.5} if dice.random() < 0.5 else {})}
        elif kind < 0.85:
            self.path, self.body = "/detokenize", {"tokens": ids(dice, world["vocab"])}
        elif kind < 0.92:
            self.path, self.body = "/search", {"text": text(dice), "k": dice.choice([1, 3, 50, 1000])}
            if dice.random() < 0.3:
                self.body["ids"] = ids(dice, world["vocab"])
                if dice.random() < 0.8:
                    del self.body["text"]
            if dice.random() < 0.5:
                self.body["searcher"] = dice.choice(["landmark", "lexical", "hybrid"])
        else:
            self.method = dice.choice(["GET", "GET", "GET", "HEAD", "OPTIONS", "PUT"])
            self.path = dice.choice(["/v1/models", f"/v1/models/{dice.choice([world['model'], 'x', '%00', '%2e'])}", "/tokenizer_info", "/", "/page.js", "/page.css", "/nothing", "/search", "/v1/completions", "/documents/",
                                     f"/documents/{dice.choice([0, 1, 3, 10**6, 2**63 - 1, 2**63, '-1', '1x', '%31', '%00'])}"
                                     + dice.choice(["", "?first=0&chunks=1", "?first=1", "?chunks=0", f"?first={2**63 - 1}", "?first=-1", "?first=&x=%", "?first"])])
        data = spelled(dice, self.body).encode("utf-8", "surrogatepass") if self.body is not None else None
        self.damaged = data is not None and dice.random() < 0.2
        self.data = damaged(dice, data) if self.damaged else data
        self.stable = self.stable and not self.damaged
        self.streams = self.path == "/v1/completions" and not self.damaged and isinstance(self.body, dict) and "stream" not in self.body

    def streamed(self):
        return spelled(random.Random(self.number + 1), dict(self.body, stream=True, stream_options={"include_usage": True})).encode("utf-8", "surrogatepass")


def check(condition, request, what, answer):
    if not condition:
        raise AssertionError(f"request {request.number}: {what}\n  {request.method} {request.path} {request.data!r}\n  answer: {answer!r}"[:3000])


def send(connection, method, path, data):
    connection.request(method, path, data, {"Content-Type": "application/json"} if data is not None else {})
    response = connection.getresponse()
    return response.status, response.read()


def joined(request, data):
    """The events of a stream as one answer."""
    lines = data.decode().split("\n\n")
    check(lines[-1] == "" and all(line.startswith("data: ") for line in lines[:-1]), request, "not a stream of events", data[-300:])
    events = [line[6:] for line in lines[:-1]]
    if events[-1] != "[DONE]":
        return json.loads(events[-1], object_pairs_hook=once)
    parsed = [json.loads(event, object_pairs_hook=once) for event in events[:-1]]
    answer = dict(parsed[-1], choices=[])
    check(answer["usage"] and parsed[-1]["choices"] == [] and all(e["usage"] is None for e in parsed[:-1]), request, "usage of a stream", parsed[-2:])
    for event in parsed[:-1]:
        check(len(event["choices"]) == 1 and {k: event[k] for k in ("id", "object", "created", "model")} == {k: answer[k] for k in ("id", "object", "created", "model")},
              request, "an event", event)
        choice = event["choices"][0]
        if choice["index"] == len(answer["choices"]):
            check(not answer["choices"] or answer["choices"][-1]["finish_reason"], request, "a choice begins before the last one ends", event)
            answer["choices"].append(choice)
            continue
        whole = answer["choices"][-1]
        check(choice["index"] == whole["index"] and whole["finish_reason"] is None, request, "an event after the end of its choice", event)
        whole["text"] += choice["text"]
        whole["finish_reason"] = choice["finish_reason"]
        check((whole["logprobs"] is None) == (choice["logprobs"] is None), request, "log-probabilities in some events only", event)
        for name in choice["logprobs"] or {}:
            whole["logprobs"][name] += choice["logprobs"][name]
        for record in choice.get("retrieval", {}).get("records", []):
            whole["retrieval"]["records"].append(record)
    return answer


def completed(request, answer, vocab):
    """Checks a completion's answer, and returns what must be the same whenever it is computed."""
    body = request.body
    check(answer["object"] == "text_completion" and answer["id"].startswith("cmpl-"), request, "the form of an answer", answer)
    usage = answer["usage"]
    check(usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"], request, "usage", answer)
    generated, prompts = 0, body["prompt"] if isinstance(body["prompt"], list) and not isinstance(body["prompt"][0], int) else [body["prompt"]]
    check(len(answer["choices"]) == len(prompts) * body.get("n", 1), request, "the number of choices", answer)
    for index, choice in enumerate(answer["choices"]):
        check(choice["index"] == index and choice["finish_reason"] in ("stop", "length"), request, "a choice", choice)
        wanted = body.get("logprobs")
        check((choice["logprobs"] is not None) == (wanted is not None and wanted is not False), request, "log-probabilities", choice)
        stops = [] if not body.get("stop") else [body["stop"]] if isinstance(body["stop"], str) else body["stop"]
        if not body.get("echo"):
            check(not any(stop in choice["text"] for stop in stops), request, "a stop string in the text", choice)
        if choice["logprobs"]:
            lists = choice["logprobs"]
            n = len(lists["tokens"])
            generated += n
            check(all(len(lists[name]) == n for name in lists) and len(lists) == 4, request, "arrays of one length", choice)
            top = min(int(wanted), vocab)
            check(all(t is None or max(top, 1) <= len(t) <= top + 1 for t in lists["top_logprobs"]), request, "alternatives", choice)
            check(all((t is None) == (p is None) and (t is None or t.get(name) == p) for t, p, name in zip(lists["top_logprobs"], lists["token_logprobs"], lists["tokens"])),
                  request, "a token's alternatives lack the token", choice)
            check(all(p is None or p <= 0 for p in lists["token_logprobs"]), request, "a probability above 1", choice)
            check(lists["text_offset"] == sorted(lists["text_offset"]), request, "offsets", choice)
        if "retrieval" in choice:
            positions = [record["position"] for record in choice["retrieval"]["records"]]
            check(positions == sorted(set(positions)), request, "positions of records", choice)
            choice["retrieval"].pop("memory_share", None)
    if answer["choices"] and answer["choices"][0]["logprobs"]:
        check(generated == usage["completion_tokens"] + (usage["prompt_tokens"] * body.get("n", 1) if body.get("echo") else 0), request, "tokens are counted wrongly", answer)
    return {"choices": answer["choices"], "usage": usage}


def outcome(request, status, data, vocab):
    """What must not depend on when a request is answered."""
    check(status in (200, 204, 400, 404, 405, 413), request, f"status {status}", data)
    if request.method == "HEAD" or status == 204:
        check(data == b"", request, "a body", data)
        return status, None
    if status != 200:
        error = json.loads(data, object_pairs_hook=once)["error"]
        check(sorted(error) == ["code", "message", "param", "type"] and error["message"], request, "the form of an error", data)
        return status, error
    if request.path in ("/", "/page.js", "/page.css"):
        return status, data.decode()
    if request.path == "/v1/completions":
        if not data.startswith(b"data: "):
            answer = json.loads(data, object_pairs_hook=once)
        else:
            answer = joined(request, data)
            if "error" in answer:
                return status, answer["error"]
        if not request.stable:
            return status, None
        return status, completed(request, answer, vocab)
    answer = json.loads(data, object_pairs_hook=once)
    answer.pop("seconds", None)
    return status, answer


def once(pairs):
    """An object of JSON whose names differ."""
    assert len({name for name, _ in pairs}) == len(pairs), [name for name, _ in pairs]
    return dict(pairs)


class Client:
    def __init__(self, url):
        self.url, self.connection = url, None

    def ask(self, method, path, data=None):
        for attempt in (1, 2):
            try:
                if self.connection is None:
                    self.connection = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=300)
                return send(self.connection, method, path, data)
            except (http.client.HTTPException, OSError):
                self.connection = None
                if attempt == 2:
                    raise

    def leave(self, data):
        """Sends a request and closes the connection at once, or within the answer."""
        connection = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=300)
        connection.request("POST", "/v1/completions", data)
        if len(data) % 2:
            connection.getresponse().read(100)
        connection.close()


def describe(url):
    client = Client(url)
    model = json.loads(client.ask("GET", "/v1/models")[1])["data"][0]
    store = model["drt"]["store"]
    base = model["drt"]["variant"] == "base"
    memory = client.ask("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 1, "retrieval": {"memory": "own"}}).encode())[0] == 200
    return {"model": model["id"], "vocab": model["drt"]["vocab_size"], "chunk": model["drt"]["chunk"] or 63, "base": base, "store": bool(store),
            "lexical": bool(store and store["lexical"]), "memory": memory}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("url")
    arguments.add_argument("--requests", type=int, default=200)
    arguments.add_argument("--clients", type=int, default=12)
    arguments.add_argument("--seed", type=int, default=1)
    o = arguments.parse_args()
    url = urllib.parse.urlsplit(o.url)
    world = describe(url)
    requests = [Request(o.seed * 1000000 + i, world) for i in range(o.requests)]
    alone, client, started = [], Client(url), time.monotonic()
    for request in requests:
        alone.append(outcome(request, *client.ask(request.method, request.path, request.data), world["vocab"]))
    middle = time.monotonic()

    def again(number):
        i, client = number % len(requests), Client(url)
        request, dice = requests[i], random.Random(number)
        if dice.random() < 0.1 and request.streams:
            client.leave(request.streamed())
        stream = request.streams and dice.random() < 0.5
        status, data = client.ask(request.method, request.path, request.streamed() if stream else request.data)
        got = outcome(request, status, data, world["vocab"])
        if alone[i][0] == 200 or not stream:
            check(got == alone[i], request, "another answer than alone" + (" (stream)" if stream else ""), (got, "alone", alone[i]))

    order = list(range(2 * len(requests)))
    random.Random(o.seed).shuffle(order)
    with concurrent.futures.ThreadPoolExecutor(o.clients) as pool:
        for done in pool.map(again, order):
            assert done is None
    status = {code: sum(a[0] == code for a in alone) for code in sorted({a[0] for a in alone})}
    good = sum(r.stable and r.path == "/v1/completions" and a[0] == 200 for r, a in zip(requests, alone))
    print(f"{len(requests)} requests, {good} completions compared; statuses {status}; alone {middle - started:.1f} s, "
          f"twice by {o.clients} clients {time.monotonic() - middle:.1f} s")
    assert good > len(requests) // 5, "too few valid completions"


try:
    main()
except AssertionError as error:
    sys.exit(f"random_requests.py: {error}")
