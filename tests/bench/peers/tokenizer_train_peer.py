#!/usr/bin/env python3
"""Training speed beside the Python package `tokenizers` (pip install tokenizers): the same documents, as many threads
each, one after the other; and whether both write the same file. Ours reads and unpacks the corpus itself, which counts;
the package gets its texts from a list in memory, whose making does not count.

    tokenizer_train_peer.py DRT_TOKENIZER CORPUS.jsonl[.xz] [VOCAB_SIZE [THREADS]] [--json FILE]
"""
import json
import lzma
import os
import resource
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from result import Result  # noqa: E402


def ours(program, corpus, vocab, threads, path):
    start = time.perf_counter()
    done = subprocess.run([program, "train", corpus, "--vocab-size", vocab, "--threads", threads, "--out", path],
                          check=True, capture_output=True, text=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(done.stdout.split(": ", 1)[1].strip())
    return time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss


def peer(corpus, vocab, path):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # reads the environment
    opener = lzma.open if corpus.endswith(".xz") else open
    with opener(corpus, "rt", encoding="utf8") as f:
        texts = [json.loads(line)["text"] for line in f]
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=int(vocab), special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    start, used = time.perf_counter(), time.process_time()
    t.train_from_iterator(texts, trainer)
    took, used = time.perf_counter() - start, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    t.save(path)
    return took, used, peak


def main():
    result = Result("tokenizer_train_peer")
    program, corpus, vocab, threads = (sys.argv[1:] + ["16384", "2"][len(sys.argv) - 3:])[:4]
    os.environ.update(TOKENIZERS_PARALLELISM="true" if int(threads) > 1 else "false", RAYON_NUM_THREADS=threads)
    with tempfile.TemporaryDirectory() as folder:
        files = [os.path.join(folder, name) for name in ("ours.json", "peer.json")]
        a = ours(program, corpus, vocab, threads, files[0])
        b = peer(corpus, vocab, files[1])
        same = open(files[0], "rb").read() == open(files[1], "rb").read()
    for name, f in (("ours", a), ("tokenizers", b)):
        print("%-10s %7.1f s  %7.1f s of processor time  %6.0f MB at the peak" % (name, f[0], f[1], f[2] / 1024))
        against = {"peer": "tokenizers", "ratio": b[1] / a[1]} if name == "ours" else {}
        result.figure("processor time, " + name, "s", f[1], **against)
        result.figure("peak memory, " + name, "MB", f[2] / 1024)
    result.write()
    print("%s threads each; files are %s" % (threads, "equal" if same else "DIFFERENT"))
    return 0 if same else 1


sys.exit(main())
