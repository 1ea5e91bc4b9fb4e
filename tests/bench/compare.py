#!/usr/bin/env python3
"""Compares two builds of the benchmarks: each program of both runs in turns; prints the ratio of their times.

  compare.py cpu|gpu OLD NEW [--pairs N] [--case NAME]... [--json FILE]

OLD, NEW: for cpu two build folders (programs in bench/), for gpu two folders that tests/device/portable.sh made. The
first run of each warms up; then in each of N (10) pairs both run once, and the order changes from pair to pair. For each
figure the medians are printed, and the geometric mean over the pairs of new time / old time with its interval of 95 %
(Student's t of the logarithms): below 1 the new build is faster. Figures are read from the text of the programs, so
that builds without --json can be compared; figures that only one of them prints are left out. A case is skipped if one
folder lacks its program.
"""
import argparse
import math
import os
import re
import statistics
import subprocess
import sys

from result import Result

MODEL = "data/models/drt-28m"
# Student's t, two-sided 95 %, by degrees of freedom from 1.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
           2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)
# Name: program, arguments, pattern of a line with the groups name and value, unit, whether more is better.
CASES = {
    "cpu": {
        "token": ("bench_generate", [MODEL, "126", "504"],
                  r"^(?P<name>none|self),\d+,[\d.]+,(?P<value>[\d.]+),", "ms", False),
        "encode": ("bench_encode", ["0", "1"],
                   r"^encode,(?P<name>[^,]+,d=\d+),.*?,(?P<value>[\d.]+) chunks/s", "chunks/s", True),
        "search": ("bench_store", ["10000", "384", "1", "IVF64_HNSW32,SQ8"],
                   r"^(?P<name>(?:exact scan|index),\d+ queries),(?P<value>[\d.]+) ms a query", "ms", False),
    },
    "gpu": {
        "decode": ("bench_device", ["--device", "cuda", "decode"],
                   r"^decode,(?P<name>(?!warm-up)[^,]+),(?P<value>[\d.]+) us mean", "us", False),
        "gca": ("bench_attention", ["780", "gca 4 x 16K"],
                r"^(?P<name>gca .*?) +(?P<value>[\d.]+) ms", "ms", False),
        "train": ("bench_train", ["--device", "cuda", "--type", "bf16", "--model", "drt"],
                  r"^(?P<name>drt),[^,]+,bf16,own,\d+,\d+,(?P<value>[\d.]+),", "ms", False),
        "encode": ("bench_device", ["--device", "cuda", "encode"],
                   r"^encode,(?P<name>d \d+),.*?,(?P<value>[\d.]+) M tokens/s", "M tokens/s", True),
        "search": ("bench_device_corpus", ["--device", "cuda", "--chunks", "4000000", "--queries", "1", "search"],
                   r"^search,(?P<name>gpu-(?:ivf(?=.*,256 lists)|flat)),1 queries,(?P<value>[\d.]+) ms", "ms", False),
    },
}


class Failed(Exception):
    """A program that failed."""


def figures(kind, folder, case):
    program, arguments, pattern, _, _ = CASES[kind][case]
    path = os.path.join(folder, "bench" if kind == "cpu" else "", program)
    libraries = f"{folder}:/usr/local/cuda/lib64:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
    more = {"env": dict(os.environ, LD_LIBRARY_PATH=libraries)} if kind == "gpu" else {}
    run = subprocess.run([path, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    if run.returncode:
        last = (run.stderr or run.stdout).strip().splitlines()[-1:] or ["no message"]
        raise Failed(f"{path} ended with {run.returncode}: {last[0]}")
    found = {match["name"]: float(match["value"]) for match in re.finditer(pattern, run.stdout, re.M)}
    if not found:
        raise Failed(f"{path}: no line of its output matches {pattern}")
    return found


def interval(ratios):
    """Geometric mean, low and high."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    if len(logs) == 1:
        return math.exp(mean), 0.0, math.inf
    degrees = len(logs) - 1
    student = STUDENT[degrees - 1] if degrees <= len(STUDENT) else 2.04
    half = student * statistics.stdev(logs) / math.sqrt(len(logs))
    return tuple(math.exp(mean + sign * half) for sign in (0, -1, 1))


def compare(kind, case, folders, pairs, result):
    unit, more = CASES[kind][case][3:]
    rounds = []
    for at in range(-1, pairs):
        order = (0, 1) if at % 2 else (1, 0)
        values = {which: figures(kind, folders[which], case) for which in order}
        if at >= 0:  # the first warms up
            rounds.append((values[0], values[1]))
    common = [name for name in rounds[0][0] if all(name in values for both in rounds for values in both)]
    if not common:
        raise Failed(f"{case}: the builds have no figure in common")
    for name in common:
        old, new = ([both[which][name] for both in rounds] for which in (0, 1))
        ratios = [a / b if more else b / a for a, b in zip(old, new)]
        mean, low, high = interval(ratios)
        print(f"{case}, {name}: old {statistics.median(old):.4g}, new {statistics.median(new):.4g} {unit}; "
              f"new / old time {mean:.4f} (95 %: {low:.4f} .. {high:.4f})", flush=True)
        result.figure(f"{case}, {name}, old", unit, old)
        result.figure(f"{case}, {name}, new", unit, new, peer="old", ratio=1 / mean)
        result.figure(f"{case}, {name}, new / old time", "times", ratios)
        if pairs > 1:
            result.object["figures"][-1]["interval"] = [round(low, 6), round(high, 6)]


def main():
    result = Result("compare", gpu=os.environ.get("DRT_GPU") if "gpu" in sys.argv[1:2] else None)
    options = argparse.ArgumentParser(usage=__doc__)
    options.add_argument("kind", choices=list(CASES))
    options.add_argument("old")
    options.add_argument("new")
    options.add_argument("--pairs", type=int, default=10)
    options.add_argument("--case", action="append")
    o = options.parse_args()
    cases = o.case or list(CASES[o.kind])
    unknown = [case for case in cases if case not in CASES[o.kind]]
    if unknown or o.pairs < 1:
        wrong = f"no case {unknown[0]}" if unknown else "no pairs"
        sys.exit(f"compare.py: {wrong}: cases are {', '.join(CASES[o.kind])}")
    folders = [os.path.abspath(folder) for folder in (o.old, o.new)]
    failed = False
    for case in cases:
        program = CASES[o.kind][case][0]
        paths = [os.path.join(folder, "bench" if o.kind == "cpu" else "", program) for folder in folders]
        missing = [path for path in paths if not os.access(path, os.X_OK)]
        if missing:
            print(f"skipped {case}: no {missing[0]}")
            failed = failed or o.case is not None
            continue
        try:
            compare(o.kind, case, folders, o.pairs, result)
        except Failed as why:
            print(f"FAILED {case}: {why}")
            failed = True
    if not result.object["figures"]:
        sys.exit("compare.py: nothing was compared")
    result.write()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
