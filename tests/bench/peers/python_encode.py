#!/usr/bin/env python3
"""Encodes chunks from Python, ids and landmarks in torch's memory on a GPU, and by bench_device, in turns on one GPU.

  python_encode.py BENCH_DEVICE DRT_MODEL TOKENIZER [--pairs N] [--json FILE]

BENCH_DEVICE and DRT_MODEL: programs. TOKENIZER: a tokenizer.json; its ids play no part. The model has random weights and the
shape of bench_device's first encoder (2 layers, d 768). DRT_LIBRARY names libdrt. bench_device reads ids from the CPU's memory
and leaves landmarks on the GPU ("without the download"), as this script does; here the ids are a tensor on the GPU.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, ".."), os.path.join(here, "..", "..", "..", "library", "python")]
import torch
from result import Result

import drt

CHUNKS, CHUNK = 65536, 63
CONFIG = {"vocab_size": 50265, "hidden_size": 768, "intermediate_size": 2048, "num_attention_heads": 12, "decoder_layers": [1, 1],
          "encoder_layers": 2, "enc_chunk_size": CHUNK, "chunk_topk": 8, "slide_window": 512, "chunk_id": 50264, "pad_id": 50262,
          "rms_norm_eps": 1e-5, "encoder_input": "tokens", "retrieval_proj": True}


def program(path):
    found = subprocess.run([path, "--device", "cuda", "--chunks", str(CHUNKS), "encode"], check=True, capture_output=True, text=True)
    return float(re.search(r"^encode,d 768,.*?([\d.]+) M without the download", found.stdout, re.M).group(1))


def python(model, ids, out):
    best = float("inf")
    for _ in range(8):
        torch.cuda.synchronize()
        start = time.perf_counter()
        model.encode(ids, out=out)
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return CHUNKS * (CHUNK + 1) * 1e-6 / best


def main():
    result = Result("python_encode", gpu=torch.cuda.get_device_name())
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("bench_device")
    options.add_argument("drt_model")
    options.add_argument("tokenizer")
    options.add_argument("--pairs", type=int, default=5)
    o = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "config.json")
        with open(config, "w") as file:
            json.dump(CONFIG, file)
        subprocess.run([o.drt_model, "init", "--config", config, "--tokenizer", o.tokenizer, "--dtype", "bf16",
                        "--out", os.path.join(folder, "model")], check=True, stdout=subprocess.DEVNULL)
        model = drt.Model.load(os.path.join(folder, "model"), device="cuda")
        ids = torch.randint(0, 50000, (CHUNKS, CHUNK), dtype=torch.int32, device="cuda")
        out = torch.empty((CHUNKS, 768), dtype=torch.float32, device="cuda")
        c, by_python = [], []
        for _ in range(o.pairs):
            c.append(program(o.bench_device))
            by_python.append(python(model, ids, out))
    ratio = statistics.median(p / b for p, b in zip(by_python, c))
    print(f"bench_device {statistics.median(c):.2f}, Python {statistics.median(by_python):.2f} M tokens/s; ratio {ratio:.3f}")
    result.figure("bench_device, d 768, landmarks stay on the GPU", "M tokens/s", c)
    result.figure("Python, d 768, torch tensors on the GPU", "M tokens/s", by_python, peer="bench_device", ratio=ratio)
    result.write()


main()
