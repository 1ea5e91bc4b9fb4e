#!/usr/bin/env python3
"""What landmarks of 8 bits lose and save beside fp16: the same corpus in two stores, searched by the same queries.

    PYTHONPATH=library/python DRT_LIBRARY=build/libdrt.so.1 tests/bench/peers/landmark_types.py F16 I8 QUERIES.jsonl

A query is the vector that the model searches with after the first 512 to 4096 bytes of a document of QUERIES.jsonl, which the
stores should not hold. recall@k: the share of the k best chunks of an exact search of F16 that a search finds. Times are those of
a query, by clock and of processors (which a busy machine changes less), with 1 and 64 queries in a call. The stores are searched
in turn; medians over --rounds rounds, with the least and the greatest.
"""

import argparse
import json
import random
import statistics
import time

import numpy as np

import drt


def queries(path, model, n):
    draw = random.Random(1)
    vectors = []
    with open(path, encoding="utf8") as file:
        texts = [json.loads(line)["text"] for line in file]
    while len(vectors) < n:
        text = draw.choice(texts)
        cut = draw.randrange(512, 4096)
        if len(text) > cut:
            vectors.append(model.query(text[:cut]))
    return np.stack(vectors)


def recall(found, wanted):
    return float(np.mean([len(set(f) & set(w)) / len(w) for f, w in zip(found.tolist(), wanted.tolist())]))


def seconds(store, vectors, batch, **how):
    wall, processors = time.perf_counter(), time.process_time()
    for i in range(0, len(vectors), batch):
        store.search_vectors(vectors[i:i + batch], 8, **how)
    return (time.perf_counter() - wall) / len(vectors), (time.process_time() - processors) / len(vectors)


def times(name, stores, vectors, rounds, **how):
    for batch in (1, 64):
        took = [[seconds(store, vectors, batch, **how) for store in stores] for _ in range(rounds + 1)][1:]
        for clock, unit in enumerate(("clock", "processors")):
            columns = [[row[s][clock] * 1e3 for row in took] for s in range(2)]
            a, b = map(statistics.median, columns)
            print(f"{name}, {batch} in a call, {unit}: " + ", ".join(
                f"{store.info.landmarks} {statistics.median(c):.2f} ms ({min(c):.2f} .. {max(c):.2f})"
                for store, c in zip(stores, columns)) + f", ratio {a / b:.2f}")


def row_errors(stores):
    """Length of what rounding changes in a row, over the row's length: median and greatest."""
    exact, rounded = (s.landmarks().astype(np.float32) for s in stores)
    errors = np.linalg.norm(exact - rounded, axis=1) / np.linalg.norm(exact, axis=1)
    print(f"rows: changed by {np.median(errors):.4f} of their length (greatest {errors.max():.4f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stores", nargs=2, metavar="STORE")
    parser.add_argument("queries")
    parser.add_argument("--model", default=None)
    parser.add_argument("--n", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    model = drt.Model.load(options.model, device="cpu")
    stores = [drt.Store(path, model=model) for path in options.stores]
    for store in stores:
        i = store.info
        print(f"{i.path}: {i.chunks} chunks, landmarks {i.landmarks}, {i.landmark_bytes / i.chunks:.1f} bytes a chunk, "
              f"index {i.index}, {store.searched_by()}")
    row_errors(stores)
    vectors = queries(options.queries, model, options.n)
    for k in (8, 64):
        exact = [store.search_vectors(vectors, k, exact=True) for store in stores]
        wanted = exact[0][1]
        print(f"recall@{k}: exact {stores[1].info.landmarks} {recall(exact[1][1], wanted):.4f}")
        print(f"  best chunk the same: {np.mean(exact[1][1][:, 0] == wanted[:, 0]):.4f}; scores change by "
              f"{np.median(np.abs(exact[1][0] - exact[0][0])):.2g} (median), best minus {k}th is "
              f"{np.median(exact[0][0][:, 0] - exact[0][0][:, -1]):.2g}")
        for store, (_, own) in zip(stores, exact):
            if store.info.index != "exact":
                found = store.search_vectors(vectors, k)[1]
                print(f"  index of {store.info.landmarks}: {recall(found, wanted):.4f}, of its own exact search {recall(found, own):.4f}")
    times("exact scan", stores, vectors[:64], options.rounds, exact=True, threads=options.threads)
    if stores[0].info.index != "exact":
        times("index", stores, vectors[:64], options.rounds, threads=options.threads)


if __name__ == "__main__":
    main()
