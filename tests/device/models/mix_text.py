#!/usr/bin/env python3
"""Text for a store whose first half has a corpus in random order, and whose second half has as many chunks of another one.

  mix_text.py --first FILE.jsonl.xz... --second FILE.jsonl.xz... --stores FIRST_STORE SECOND_STORE [--seed N] > mix.jsonl

The stores are those that drt-index builds of the files in this order: their documents have the numbers of chunks. With such a
store, `drt-eval fit-memory --store-parts 1/16,1/8,1/4,1/2,1` measures 1/8, 1/4, 1/2 and all of the first corpus, and both corpora.
Needs the Python package (DRT_LIBRARY names libdrt).
"""
import argparse
import lzma
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "library", "python"))
import drt


def chunks(path):
    with drt.Store(path) as store:
        return [store.document(i).chunks for i in range(store.info.documents)]


def lines(names):
    found = []
    for name in names:
        with lzma.open(name) as file:
            found += file.read().split(b"\n")[:-1]
    return found


def exactly(sizes, order, wanted):
    """Numbers from `order` whose sizes have the sum `wanted`: one after the other, then the one or two that fill it up."""
    taken, rest, spare = [], [], 3000            # chunks that are left for the last ones
    for i in order:
        if not rest and sizes[i] <= wanted - spare:
            taken.append(i)
            wanted -= sizes[i]
        else:
            rest.append(i)
    by_size = {}
    for i in rest:
        by_size.setdefault(sizes[i], i)
    for size in sorted(by_size, reverse=True):
        if size == wanted:
            return taken + [by_size[size]]
        if wanted - size in by_size and wanted - size != size:
            return taken + [by_size[size], by_size[wanted - size]]
    sys.exit(f"mix_text.py: no two documents have {wanted} chunks together: take another --seed")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--first", nargs="+", required=True)
    options.add_argument("--second", nargs="+", required=True)
    options.add_argument("--stores", nargs=2, required=True)
    options.add_argument("--seed", type=int, default=20261125)
    o = options.parse_args()
    first, second = map(chunks, o.stores)
    chosen = random.Random(o.seed)
    orders = [list(range(len(first))), list(range(len(second)))]
    for order in orders:
        chosen.shuffle(order)
    for names, order in ((o.first, orders[0]), (o.second, exactly(second, orders[1], sum(first)))):
        text = lines(names)
        if len(text) <= max(order):
            sys.exit("mix_text.py: a store has other documents than its files")
        for i in order:
            sys.stdout.buffer.write(text[i] + b"\n")


main()
