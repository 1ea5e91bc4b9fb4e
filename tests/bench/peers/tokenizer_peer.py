#!/usr/bin/env python3
"""Tokenizing speed beside the Python package `tokenizers` (pip install tokenizers), on the same text, one thread
each, in turns, in processor time; and whether both give the same ids.

    tokenizer_peer.py BENCH_TOKENIZER TOKENIZER.json TEXT [--json FILE]
"""
import os
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import tokenizers  # noqa: E402  (reads the environment)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from result import Result  # noqa: E402

DOCUMENT_BYTES = 8 << 10


def documents(data):
    begin = 0
    while begin < len(data):
        end = data.find(b"\n", begin + DOCUMENT_BYTES)
        end = len(data) if end < 0 or len(data) - begin <= DOCUMENT_BYTES else end + 1
        yield data[begin:end].decode("utf8", "replace")
        begin = end


def main():
    result = Result("tokenizer_peer")
    bench, path, text = sys.argv[1:4]
    data = open(text, "rb").read()
    docs = list(documents(data))
    t = tokenizers.Tokenizer.from_file(path)
    t.encode_special_tokens = True
    speeds = {"ours": [], "tokenizers, one by one": [], "tokenizers, batch": []}
    for _ in range(3):
        lines = subprocess.run([bench, path, text, "2"], check=True, capture_output=True, text=True).stdout.split("\n")
        rows = [line.split(",") for line in lines[2:] if line]
        speeds["ours"].append(max(float(r[1]) for r in rows))
        hits = rows[-1][4]
        start = time.process_time()
        encoded = [t.encode(d, add_special_tokens=False).ids for d in docs]
        speeds["tokenizers, one by one"].append(len(data) / (time.process_time() - start) * 1e-6)
        start = time.process_time()
        t.encode_batch_fast(docs, add_special_tokens=False)
        speeds["tokenizers, batch"].append(len(data) / (time.process_time() - start) * 1e-6)
    h = 0
    for ids in encoded:
        for i in ids:
            h = ((h ^ i) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    same = "%016x" % h == rows[-1][5]
    print("tokenizers", tokenizers.__version__, "-", os.path.basename(path), "- %.1f MB" % (len(data) * 1e-6))
    ours = max(speeds["ours"])
    for name, rates in speeds.items():
        print("%-22s %7.1f MB/s   ours / this %5.1f" % (name, max(rates), ours / max(rates)))
        if name != "ours":
            result.figure("ours", "MB/s", speeds["ours"], peer=name, ratio=ours / max(rates))
            result.figure(name + " " + tokenizers.__version__, "MB/s", rates)
    result.write()
    print("cache hit rate", hits, "- ids", "equal" if same else "DIFFER")
    return 0 if same else 1


sys.exit(main())
