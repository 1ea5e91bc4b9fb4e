#!/usr/bin/env python3
"""This repository's GPU programs and PyTorch scripts for the same work, one after the other in one run; prints ratios.

  peers.py PEERS PROGRAMS [encode|decode|search|gca]... [--seconds N] [--json FILE]

PEERS: a folder with encode_torch.py, decode_torch.py and search_torch.py, which take --budget SECONDS and append rows
of JSON to the file named by PEER_JSONL (bench encode: d, mtok_s; decode: model, us_per_token; search: dtype, n, q, ms).
PROGRAMS: a folder with bench_device, bench_ops and libgca.so (tests/device/portable.sh, tests/device/bench/gca_library.sh).
Ours runs before and after the peer; both are printed, the slower counts. All cases if none is named; N (60) seconds for
each peer. gca writes its figures to FILE.gca.json (FILE without its .json).
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from result import Result  # noqa: E402

LANDMARKS = 20_000_000


def output(command, **more):
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, **more)
    if run.returncode:
        sys.exit(f"peers.py: {command[0]} left with {run.returncode}")
    return run.stdout


def peer_rows(script, seconds, *options):
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as rows:
        output([sys.executable, script, "--budget", str(seconds), *options], env=dict(os.environ, PEER_JSONL=rows.name))
        return [row for row in map(json.loads, rows) if "error" not in row]


def best(rows, key, value, choose=min):
    """The best value for each key among rows."""
    found = {}
    for row in rows:
        if key(row) is not None and value in row:
            found[key(row)] = choose(found.get(key(row), row[value]), row[value])
    return found


def encode_ours(programs):
    text = output([f"{programs}/bench_device", "--device", "cuda", "encode"])
    return {int(d): float(rate) for d, rate in re.findall(r"^encode,d (\d+),.*?([\d.]+) M tokens/s", text, re.M)}


def encode_peer(peers, seconds):
    rows = peer_rows(f"{peers}/encode_torch.py", seconds)
    return best(rows, lambda r: r.get("d") if r["bench"] == "encode" else None, "mtok_s", max)


def decode_ours(programs):
    text = output([f"{programs}/bench_device", "--device", "cuda", "--tokens", "504", "decode"])
    means = dict(re.findall(r"^decode,([^,]+),([\d.]+) us mean", text, re.M))
    return {"base": float(means["base"]), "drt": float(means["drt own past"])}


def decode_peer(peers, seconds):
    rows = peer_rows(f"{peers}/decode_torch.py", seconds)
    return best(rows, lambda r: r.get("model") if r["bench"] == "decode" else None, "us_per_token")


def search_ours(programs):
    text = output([f"{programs}/bench_ops", "--search", "--landmarks", str(LANDMARKS // 1_000_000)])
    found = re.findall(r"^topk \d+M x 1024 fp16, best 8, (\d+) bf16 queries +([\d.]+) us", text, re.M)
    return {int(queries): float(us) / 1000 for queries, us in found}


def search_peer(peers, seconds):
    rows = peer_rows(f"{peers}/search_torch.py", seconds, "--n", str(LANDMARKS))
    near = [r for r in rows if r["bench"] == "search" and r["n"] > 0.99 * LANDMARKS]
    return best(near, lambda r: r["q"], "ms")


CASES = {  # text for a key, unit, own value, peer's value, whether more is better
    "encode": ("encoder of 2 layers, d {}", "M tokens/s", encode_ours, encode_peer, True),
    "decode": ("a token, batch 1, {}", "us", decode_ours, decode_peer, False),
    "search": ("top-8 over 20M x 1024, {} queries", "ms", search_ours, search_peer, False),
}


def main():
    result = Result("peers", gpu=os.environ.get("DRT_GPU", "unknown"))
    options = argparse.ArgumentParser(usage=__doc__)
    options.add_argument("peers")
    options.add_argument("programs")
    options.add_argument("cases", nargs="*")
    options.add_argument("--seconds", type=float, default=60)
    o = options.parse_args()
    for name in o.cases or [*CASES, "gca"]:
        if name == "gca":
            peer = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gca_peer.py")
            json_file = ["--json", result.path.removesuffix(".json") + ".gca.json"] if result.path else []
            print(output([sys.executable, peer, f"{o.programs}/libgca.so", *json_file]), end="", flush=True)
            continue
        what, unit, ours, peer, more = CASES[name]
        before, theirs, after = ours(o.programs), peer(o.peers, o.seconds), ours(o.programs)
        if not set(before) & set(theirs):
            sys.exit(f"peers.py: {name}: nothing to compare: ours has {sorted(before, key=str)}, "
                     f"PyTorch {sorted(theirs, key=str)}")
        for key in sorted(set(before) & set(theirs), key=str):
            worse = (min if more else max)(before[key], after[key])
            ratio = worse / theirs[key] if more else theirs[key] / worse
            print(f"{what.format(key)}: ours {before[key]:.4g} and {after[key]:.4g}, PyTorch {theirs[key]:.4g} {unit}: "
                  f"{ratio:.2f} times as fast", flush=True)
            result.figure(what.format(key) + ", ours", unit, [before[key], after[key]], peer="PyTorch", ratio=ratio)
            result.figure(what.format(key) + ", PyTorch", unit, theirs[key])
    result.write()


if __name__ == "__main__":
    main()
