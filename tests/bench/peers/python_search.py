#!/usr/bin/env python3
"""The Python package against drt-index: a batch of queries with their documents and texts, and opening views of landmarks.

    PYTHONPATH=library/python DRT_LIBRARY=build/libdrt.so.1 tests/bench/peers/python_search.py --store STORE [--bin build/bin]

Queries are landmarks of random chunks with noise, as vectors (.npy) and as texts. Program and package run in turn, each
--rounds times; a ratio is the program's time over the package's, of the best rounds: wall-clock time, and processor time,
which a busy machine changes less. The program's time is that of its search and output, without opening; the package's is
that of Store.search, which returns hits with documents and texts.
"""

import argparse
import os
import re
import resource
import subprocess
import tempfile
import time

import numpy as np

import drt


def program(arguments):
    """Seconds of wall-clock time without opening, and of processor time with opening."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    ran = subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    opening = float(re.search(r"opening ([0-9.]+) s", ran.stderr)[1])
    return wall - opening, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def package(call):
    """The same of a call."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    call()
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def best(rounds):
    return [min(column) for column in zip(*rounds)]


def compare(name, arguments, call, rounds):
    call()                                       # searchers are made at the first use
    theirs, ours = [], []
    for _ in range(rounds):
        theirs.append(program(arguments))
        ours.append(package(call))
    (wall, cpu), (our_wall, our_cpu) = best(theirs), best(ours)
    print(f"{name}: drt-index {wall:.3f} s (processors {cpu:.3f} s), Store.search {our_wall:.3f} s (processors {our_cpu:.3f} s), "
          f"ratio {wall / our_wall:.2f} (processors {cpu / our_cpu:.2f})")


def resident():
    """Private bytes of this process: pages that are mapped from files do not count."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon"))


def views(path, rounds):
    seconds, grown = [], []
    for _ in range(rounds):
        store, before, start = drt.Store(path), resident(), time.perf_counter()
        shards = list(store.landmark_shards())
        seconds.append(time.perf_counter() - start)
        grown.append(resident() - before)
        store.close()
    rows = sum(len(array) for _, array in shards)
    mapped = sum(array.nbytes for _, array in shards)
    print(f"views: {rows} landmarks of {len(shards)} files, {mapped / 1e6:.0f} MB mapped, in {min(seconds) * 1e3:.2f} ms "
          f"(worst {max(seconds) * 1e3:.2f} ms); memory of the process grew by {max(grown) / 1e6:.2f} MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", required=True)
    parser.add_argument("--model", default=None)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--queries", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--views-only", action="store_true")
    options = parser.parse_args()
    views(options.store, options.rounds)
    if options.views_only:
        return
    model = drt.Model.load(options.model, device="cpu")
    store = drt.Store(options.store, model=model)
    print(f"{store!r}, searched by {store.searched_by()}")
    batch = store.sample_batch(options.queries, seed=1, landmarks=True)
    noise = np.random.default_rng(0).standard_normal(batch["landmarks"].shape)
    vectors = (batch["landmarks"] + 0.3 * noise).astype(np.float32)
    texts = [" ".join(store.text(int(c)).split()) or "nothing" for c in batch["chunks"]]
    command = [os.path.join(options.bin, "drt-index"), "search", "--store", options.store, "--k", "10", "--device", "cpu"]
    if options.model:
        command += ["--model", options.model]
    with tempfile.TemporaryDirectory() as folder:
        np.save(folder + "/queries.npy", vectors)
        with open(folder + "/queries.txt", "w", encoding="utf8") as file:
            file.write("\n".join(texts) + "\n")
        compare(f"{options.queries} vectors", [*command, "--queries", folder + "/queries.npy"],
                lambda: store.search(vectors, k=10), options.rounds)
        compare(f"{options.queries} texts", [*command, "--queries", folder + "/queries.txt"],
                lambda: store.search(texts, k=10), options.rounds)


if __name__ == "__main__":
    main()
