#!/usr/bin/env python3
"""Makes expected-*.json, the tokenizers that BpeTrainer of the Python package `tokenizers` trains on docs.jsonl and
odd.jsonl, which tests/unit/data/test_tokenizer_train.c compares byte for byte. Run by hand (pip install tokenizers); with
--texts it also makes docs.jsonl, from this repository's documents, and odd.jsonl.
"""
import json
import os
import random
import sys

from tokenizers import Regex, Tokenizer, __version__, decoders, models, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

# name, text, pattern, vocabulary, min_frequency, special tokens: the same rows as in the test
CASES = [
    ("gpt2", "docs", None, 500, 0, ["<|endoftext|>"]),
    ("llama3", "docs", LLAMA3, 420, 0, ["<|begin|>", "<|end|>", "\"\\\n\u00e9"]),
    ("qwen2", "odd", QWEN2, 700, 2, []),
    ("odd", "odd", None, 700, 0, ["abab", "a", "<|endoftext|>"]),
]


def write(name, texts):
    with open(os.path.join(HERE, name + ".jsonl"), "w", encoding="utf8") as f:
        for text in texts:
            f.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")


def make_texts():
    """Paragraphs of the README; and texts of few letters, in which spellings and pairs repeat."""
    with open(os.path.join(HERE, "../../../README.md"), encoding="utf8") as f:
        text = f.read()
    write("docs", text[:6000].split("\n\n"))
    r = random.Random(4)
    alphabets = ["ab", "abc", "aé 1\n", "漢字かな a", "\U0001f600 x'll", "\u0085\u3000 a\t\r\n", "aab'sS 12345"]
    write("odd", ["", "a" * 300] + ["".join(r.choice(alphabets[i % 7]) for _ in range(r.randint(1, 60))) for i in range(70)])


def train(texts, pattern, size, least, special):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    if pattern:
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, min_frequency=least, special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return t


def main():
    if "--texts" in sys.argv[1:]:
        make_texts()
    for name, source, pattern, size, least, special in CASES:
        with open(os.path.join(HERE, source + ".jsonl"), encoding="utf8") as f:
            texts = [json.loads(line)["text"] for line in f]
        t = train(texts, pattern, size, least, special)
        t.save(os.path.join(HERE, "expected-%s.json" % name))
        print(name, t.get_vocab_size(), "tokens, tokenizers", __version__)


main()
