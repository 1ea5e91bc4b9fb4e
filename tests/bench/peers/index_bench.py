#!/usr/bin/env python3
"""drt-index on a corpus: chunks a second and memory of a build, then recall and time of its index by visited lists.

  index_bench.py DRT_INDEX STORE CORPUS... [--json FILE]

STORE must not exist; it is left there for other benchmarks. One hundred queries are measured, each a stored chunk.
"""
import os
import json
import resource
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from result import Result  # noqa: E402

NPROBE = (1, 2, 4, 8, 16, 32, 64)


def output(*command):
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode:
        sys.exit(f"index_bench.py: {' '.join(command[:2])} ended with {run.returncode}: {run.stderr.strip()}")
    return run.stdout


def main():
    result = Result("index_bench")
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    program, store, *corpus = sys.argv[1:]
    start = time.perf_counter()
    output(program, "build", *corpus, "--out", store, "--index", "IVF256_HNSW32,SQ8", "--device", "cpu")
    took = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    rows = list(map(json.loads, output(program, "recall", "--store", store, "--json", "--queries", "100", "--device",
                                       "cpu", "--nprobe", ",".join(map(str, NPROBE))).splitlines()))
    chunks = json.loads(output(program, "stats", "--store", store, "--json"))["chunks"]
    result.figure("build, text to store, index included", "chunks/s", chunks / took)
    result.figure("chunks of the store", "chunks", chunks)
    result.figure("peak memory of the build", "MB", peak)
    for row in rows:
        result.figure(f"{row['index']}, {row['nprobe']} lists visited", "recall@8", row["recall"])
        result.figure(f"a query, {row['nprobe']} lists visited", "ms", row["ms"], peer="exact scan",
                      ratio=row["exact_ms"] / row["ms"])
    for figure in result.object["figures"]:
        print(f"{figure['name']}: {figure['median']} {figure['unit']}")
    result.write()


if __name__ == "__main__":
    main()
