#!/usr/bin/env python3
"""Samples of three of RULER's tasks for training, in RULER's layout, an object a line on standard output.

ruler_samples.py TASK COUNT CHARACTERS SEED WORDS.jsonl

TASK is niah_single_1, niah_multikey_2 or vt. A prompt has at most CHARACTERS characters, which are about a third as
many tokens. Keys are pairs of words that occur in the texts of WORDS.jsonl (or .jsonl.xz), so they differ from RULER's own."""
import collections
import json
import lzma
import random
import re
import string
import sys

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
NUMBER_TASK = ("A special magic number is hidden within the following text. Make sure to memorize it. I will quiz you "
               "about the number afterwards.")
CHAIN_TASK = "Memorize and track the chain(s) of variable assignment hidden in the following text."
HOPS = 5  # variables of a chain


def words_of(path):
    count = collections.Counter()
    with (lzma.open if path.endswith(".xz") else open)(path, "rt", encoding="utf-8") as file:
        for line in file:
            count.update(re.findall(r"\b[a-z]{4,12}\b", json.loads(line)["text"]))
    words = sorted(word for word, n in count.items() if n >= 3)
    if len(words) < 1000:
        sys.exit(f"{path}: {len(words)} words of 4 to 12 letters occur three times; keys need 1000: give a longer text")
    return words


def needle(rng, words):
    key = f"{rng.choice(words)}-{rng.choice(words)}"
    value = str(rng.randrange(1000000, 10000000))
    return key, value, f"One of the special magic numbers for {key} is: {value}."


def number_sample(rng, words, lines, at):
    """A question about the statement that line `at` becomes."""
    key, value, lines[at] = needle(rng, words)
    question = f"What is the special magic number for {key} mentioned in the provided text?"
    return {"input": "\n".join([NUMBER_TASK, *lines, question]), "outputs": [value],
            "answer_prefix": f" The special magic number for {key} mentioned in the provided text is"}


def single(rng, words, characters):
    lines = [NOISE] * max(2, (characters - 400) // (len(NOISE) + 1))
    return number_sample(rng, words, lines, rng.randrange(len(lines)))


def multikey(rng, words, characters):
    lines, length = [], 400
    while length < characters:
        lines.append(needle(rng, words)[2])
        length += len(lines[-1]) + 1
    return number_sample(rng, words, lines, rng.randrange(len(lines)))


def chain(rng, letters, noise_lines):
    """The text with a chain, its question and the start of the answer, its variables."""
    names = set()
    while len(names) < HOPS:
        names.add("".join(rng.choices(string.ascii_uppercase, k=letters)))
    names = rng.sample(sorted(names), HOPS)
    value = str(rng.randrange(10000, 100000))
    stated = [f"VAR {name} = {f'VAR {names[i - 1]} ' if i else value}" for i, name in enumerate(names)]
    lines = [NOISE] * noise_lines
    for at, line in zip(sorted((rng.randrange(len(lines) + 1) for _ in stated), reverse=True), reversed(stated)):
        lines.insert(at, line)
    question = f"Question: Find all variables that are assigned the value {value} in the text above."
    start = (f" Answer: According to the chain(s) of variable assignment in the text above, {HOPS} variables are "
             f"assigned the value {value}, they are: ")
    return "\n".join([CHAIN_TASK, "", *lines, question]), start, names


def tracking(rng, _, characters):
    shown, start, names = chain(rng, 3, 15)
    text, prefix, answer = chain(rng, 5, max(5, (characters - len(shown) - 900) // (len(NOISE) + 1)))
    return {"input": f"{shown}{start} {' '.join(names)}\n\n{text}", "outputs": answer, "answer_prefix": prefix}


def main():
    tasks = {"niah_single_1": single, "niah_multikey_2": multikey, "vt": tracking}
    if len(sys.argv) != 6 or sys.argv[1] not in tasks:
        sys.exit(__doc__)
    count, characters, seed = map(int, sys.argv[2:5])
    words, rng = words_of(sys.argv[5]), random.Random(seed)
    for _ in range(count):
        json.dump(tasks[sys.argv[1]](rng, words, characters), sys.stdout)
        print()


if __name__ == "__main__":
    main()
