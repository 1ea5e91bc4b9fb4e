#!/usr/bin/env python3
"""hostile.py URL MUTATIONS -- clients that are slow, many, silent or wrong, at a drt-serve with short limits (serve_hostile.sh)."""
import concurrent.futures
import json
import random
import socket
import sys
import time
import urllib.parse

URL = urllib.parse.urlsplit(sys.argv[1])
HOST = f"127.0.0.1:{URL.port}"
LONG = {"prompt": "the river", "max_tokens": 1000000, "temperature": 0, "ignore_eos": True}


def check(condition, what):
    if not condition:
        print("hostile.py: " + what, file=sys.stderr)
        sys.exit(1)


def connect(buffer=0):
    c = socket.socket()
    if buffer:
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    c.settimeout(30)
    c.connect((URL.hostname, URL.port))
    return c


def request(path, body=None, extra="", version="1.1"):
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    method = "GET" if body is None else "POST"
    length = "" if body is None else f"Content-Length: {len(data)}\r\n"
    return f"{method} {path} HTTP/{version}\r\nHost: {HOST}\r\n{length}{extra}\r\n".encode() + data


def read_all(c):
    data = b""
    try:
        while True:
            part = c.recv(65536)
            if not part:
                return data
            data += part
    except ConnectionResetError:
        return data


def ask(path, body=None, extra="Connection: close\r\n"):
    """Status and body of one request."""
    with connect() as c:
        c.sendall(request(path, body, extra))
        head, _, rest = read_all(c).partition(b"\r\n\r\n")
    check(head.startswith(b"HTTP/1.1 "), f"{path}: the answer is {head[:60]!r}")
    return int(head[9:12]), head, rest


def metric(name):
    status, _, body = ask("/metrics")
    check(status == 200, "no metrics")
    return next(float(line.split()[1]) for line in body.decode().splitlines() if line.startswith(name + " "))


def wait_for(condition, what, seconds=20):
    until = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < until, "never true: " + what)
        time.sleep(0.05)


def connections():
    """Several requests on one connection, in a row and pipelined; HTTP/1.0; HEAD; a body after 100 Continue."""
    with connect() as c:
        for _ in range(3):
            c.sendall(request("/health"))
            check(c.recv(4096).startswith(b"HTTP/1.1 200"), "a connection is not kept")
        c.sendall(request("/tokenize", {"prompt": "the"}) + request("/health") + request("/nothing", extra="Connection: close\r\n"))
        answers = read_all(c)
        at = [answers.find(b"HTTP/1.1 200"), answers.rfind(b"HTTP/1.1 200"), answers.find(b"HTTP/1.1 404")]
        check(-1 < at[0] < at[1] < at[2], f"pipelined requests: {answers!r}")
    with connect() as c:
        c.sendall(request("/health", version="1.0"))
        check(read_all(c).startswith(b"HTTP/1."), "HTTP/1.0")
    with connect() as c:
        c.sendall(request("/v1/models", extra="Connection: close\r\n").replace(b"GET", b"HEAD"))
        answer = read_all(c)
        check(answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"\r\n\r\n"), f"HEAD: {answer!r}")
    with connect() as c:
        body = json.dumps({"prompt": "the"}).encode()
        c.sendall(request("/tokenize", body, "Expect: 100-continue\r\nConnection: close\r\n")[:-len(body)])
        check(c.recv(4096).startswith(b"HTTP/1.1 100"), "no 100 Continue")
        c.sendall(body)
        check(b"HTTP/1.1 200" in read_all(c), "no answer after 100 Continue")
    # libmicrohttpd 1.0.1 reads the line feed after a chunk extension as data, and refuses the body.
    for name, extension, allowed in (("a chunked body", b"", (b"200",)), ("a chunk extension", b";x=y", (b"200", b"400"))):
        with connect() as c:
            c.sendall(b"POST /tokenize HTTP/1.1\r\nHost: " + HOST.encode() + b"\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
                      b"8\r\n{\"prompt\r\n9" + extension + b"\r\n\": \"the\"}\r\n0\r\n\r\n")
            check(read_all(c)[9:12] in allowed, name)
    # Two lengths of a body, or two hosts: a proxy may divide the bytes in another way. Nothing after them is read as a request.
    body, after = b'{"prompt": "the"}', request("/health")
    length, chunked = b"Content-Length: 17\r\n", b"Transfer-Encoding: chunked\r\n"
    for headers, data in ((length + length, body), (b"Content-Length: 3\r\n" + length, body), (length + chunked, b"11\r\n" + body + b"\r\n0\r\n\r\n"),
                          (chunked + chunked, b""), (length + b"Host: evil\r\n", body)):
        with connect() as c:
            c.sendall(b"POST /tokenize HTTP/1.1\r\nHost: " + HOST.encode() + b"\r\n" + headers + b"\r\n" + data + after)
            answer = read_all(c)
            check(answer[9:12] == b"400" and answer.count(b"HTTP/1.1 ") == 1, f"{headers!r}: {answer[:200]!r}")


def slow():
    """Endless heads, bodies and silence: --receive-seconds 2."""
    whole = request("/tokenize", {"prompt": "the river and the harbour"})
    for name, given in (("a silent client", b""), ("a slow head", whole[:20]), ("a slow body", whole[:-25])):
        start = time.monotonic()
        with connect() as c:
            c.sendall(given)
            rest = whole[len(given):] if given else b""
            try:
                for i in range(60):
                    time.sleep(0.1)
                    c.sendall(rest[i // 4:i // 4 + 1] if i % 4 == 0 else b"")
                    c.setblocking(False)
                    try:
                        if not c.recv(1000):
                            break
                    except BlockingIOError:
                        pass
                    c.setblocking(True)
            except (ConnectionResetError, BrokenPipeError):
                pass
        took = time.monotonic() - start
        check(1.5 < took < 5, f"{name}: the connection ended after {took:.1f} s")


def crowd():
    """More connections than --connections 16, and more requests than --sessions 1 and --queue 2."""
    held = [connect() for _ in range(16)]
    time.sleep(0.2)
    with connect() as c:
        c.sendall(request("/health", extra="Connection: close\r\n"))
        c.settimeout(0.5)
        try:
            check(not c.recv(100), "a connection beyond the limit was served")
        except TimeoutError:
            pass
        for h in held:
            h.close()
        c.settimeout(30)
        check(read_all(c).startswith(b"HTTP/1.1 200"), "a connection that waited is not served")
    wait_for(lambda: metric("drt_connections") <= 2, "the connections are free again")
    clients = []

    def in_server():
        return metric("drt_queue_running") + metric("drt_queue_waiting")

    def full():  # a request ends after 3 seconds, and another one starts
        if in_server() == 3:
            return True
        clients.append(connect())
        clients[-1].sendall(request("/v1/completions", dict(LONG, stream=True)))
        time.sleep(0.2)
        return in_server() == 3

    for _ in range(5):
        wait_for(full, "3 requests are in the server")
        status, head, body = ask("/v1/completions", LONG)
        if status == 503:
            break
    check(status == 503 and b"Retry-After: " in head and b"overloaded_error" in body, f"a full queue: {status} {head!r} {body!r}")
    check(ask("/health")[0] == 200 and metric("drt_refused_total") >= 1, "a full queue is not counted")
    for c in clients:
        c.close()
    wait_for(lambda: metric("drt_queue_running") + metric("drt_queue_waiting") == 0, "clients that left are not served")


def late():
    """--request-seconds 3: a stream ends with an error event, an answer that has not begun is 504."""
    with connect() as c, concurrent.futures.ThreadPoolExecutor(1) as reader:
        c.sendall(request("/v1/completions", dict(LONG, stream=True), "Connection: close\r\n"))
        stream = reader.submit(read_all, c)  # the session of a stream that is not read would pause
        time.sleep(0.3)
        status, _, body = ask("/v1/completions", LONG)  # waits for the session of the stream
        check(status == 504 and json.loads(body)["error"]["type"] == "timeout_error", f"a late answer: {status} {body!r}")
        last = stream.result().rpartition(b"data: ")[2]
        check(last.startswith(b'{"error":{"message":"the request took longer') and b'"timeout_error"' in last, f"a late stream: {last!r}")


def unread():
    """A stream whose client does not read: its session pauses, so that memory stays small, and other clients are served."""
    with connect(4096) as c:
        c.sendall(request("/v1/completions", dict(LONG, stream=True, logprobs=64)))
        seen = [-1.0]

        def stalls():
            time.sleep(0.4)
            seen.append(metric("drt_generated_tokens_total"))
            return seen[-1] == seen[-2] and seen[-1] > 0

        wait_for(stalls, f"the session pauses: {seen[-3:]}", 60)
        check(ask("/health")[0] == 200 and ask("/tokenize", {"prompt": "a"})[0] == 200, "others wait for a client that does not read")
    wait_for(lambda: metric("drt_queue_running") == 0, "the unread stream ends", 60)


def mutations():
    """Valid requests with a few bytes changed, dropped, doubled or cut: an answer or the end of the connection."""
    n = int(sys.argv[2])
    seeds = [request("/v1/completions", {"prompt": "the river", "max_tokens": 2, "temperature": 0, "stream": True}),
             request("/search", {"text": "the river", "k": 2}), request("/documents/1?first=0&chunks=1"), request("/page.js"),
             request("/tokenize", {"prompt": "a\u00e9\U0001f600"}, "Origin: http://" + HOST + "\r\nAuthorization: Bearer x\r\nCookie: a=b; c\r\n")]
    pieces = [b"\r\n", b"\n", b"\0", b" ", b":", b"%00", b"%2e%2e/", b"Content-Length: 99999999999999999999\r\n", b"Transfer-Encoding: chunked\r\n",
              b"Host: evil\r\n", b"HTTP/9.9", b"\xff" * 300, b"a" * 40000, b"-1", b"{[{[", b"Expect: 100-continue\r\n", b"Connection: upgrade\r\n"]

    def one(i):
        dice = random.Random(i)
        data = bytearray(dice.choice(seeds))
        for _ in range(dice.randint(1, 4)):
            at, kind = dice.randrange(len(data)), dice.randrange(5)
            if kind == 0:
                data[at] ^= 1 << dice.randrange(8)
            elif kind == 1:
                del data[at:at + dice.randint(1, 8)]
            elif kind == 2:
                data[at:at] = dice.choice(pieces)
            elif kind == 3:
                data[at:at] = data[at:at + 30]
            else:
                data = data[:at + 1]
            data = data or bytearray(b"x")
        with connect() as c:
            try:
                c.sendall(bytes(data))
                c.shutdown(socket.SHUT_WR)
                answer = read_all(c)
            except OSError:
                answer = b""
        return not answer or answer.startswith(b"HTTP/1."), bool(answer), f"mutation {i}: {bytes(data)!r}: {answer[:200]!r}"

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(one, range(n)))
    for good, _, what in results:
        check(good, what)
    answered = sum(result[1] for result in results)
    check(answered > n // 4, f"only {answered} of {n} mutations were answered")
    check(ask("/health")[0] == 200, "the server does not answer after the mutations")
    wait_for(lambda: metric("drt_queue_running") + metric("drt_queue_waiting") == 0 and metric("drt_connections") <= 2, "all connections end")


for act in (connections, slow, crowd, late, unread, mutations):
    began = time.monotonic()
    act()
    print(f"{act.__name__}: {time.monotonic() - began:.1f} s")
