#!/usr/bin/env python3
"""Vectors of chunks for benchmarks, made from their tokens: text_vectors.py TOKENS.u16 ROWS.npy [DIM (384)]

A chunk's vector is the sum of its tokens' random vectors, weighted by idf, plus half of its document's mean: near where
texts share words. They have weaker clusters than an encoder's landmarks, so a search loses more of them at equal
nprobe. No encoder runs: a million chunks take half a minute. TOKENS.u16 has id 0 between documents, as drt-tokenizer
encode writes it; rows follow the order of drt-index build --vectors: chunks of 63 ids, documents that are empty or
equal to an earlier one left out.
"""
import sys

import numpy as np

CHUNK, VOCABULARY, BLOCK = 63, 16384, 4096


def chunks_of(ids):
    """First id and end of each chunk, and the number of its document."""
    ends = np.flatnonzero(ids == 0)
    if len(ends) == 0 or ends[-1] != len(ids) - 1:
        ends = np.append(ends, len(ids))
    begin, seen, first, last, owner = 0, set(), [], [], []
    for end in ends:
        body = ids[begin:end].tobytes()
        if body and body not in seen:
            seen.add(body)
            for at in range(begin, end, CHUNK):
                first.append(at)
                last.append(min(at + CHUNK, end))
                owner.append(len(seen))
        begin = end + 1
    return np.array(first), np.array(last), np.array(owner)


def main():
    ids = np.fromfile(sys.argv[1], dtype=np.uint16)
    dim = int(sys.argv[3]) if len(sys.argv) > 3 else 384
    first, last, owner = chunks_of(ids)
    rng = np.random.default_rng(1)
    table = rng.standard_normal((VOCABULARY, dim), dtype=np.float32)
    share = np.bincount(ids, minlength=VOCABULARY) / len(ids)
    table *= np.log(1 + 1e-3 / (share + 1e-6)).astype(np.float32)[:, None]
    rows = np.lib.format.open_memmap(sys.argv[2], mode="w+", dtype=np.float16, shape=(len(first), dim))
    for at in range(0, len(first), BLOCK):
        f, l, o = first[at:at + BLOCK], last[at:at + BLOCK], owner[at:at + BLOCK]
        sums = np.empty((len(f), dim), dtype=np.float32)
        for i in range(len(f)):
            sums[i] = table[ids[f[i]:l[i]]].sum(axis=0) / np.sqrt(l[i] - f[i])
        starts = np.flatnonzero(np.diff(o, prepend=-1))
        counts = np.diff(np.append(starts, len(o)))
        mean = np.repeat(np.add.reduceat(sums, starts, axis=0) / counts[:, None], counts, axis=0)
        mixed = sums + 0.5 * mean
        rows[at:at + BLOCK] = mixed / np.linalg.norm(mixed, axis=1, keepdims=True) * np.sqrt(dim)


main()
