#!/usr/bin/env python3
"""Samples of three of RULER's tasks for training, in RULER's layout, an object a line on standard output.

ruler_samples.py TASKS COUNT CHARACTERS SEED WORDS.jsonl

TASKS are some of niah_single_1,niah_multikey_2,vt. Each task has COUNT samples for each of CHARACTERS (3000,6000): a
prompt has at most so many characters, which are about a third as many tokens. Keys are pairs of words that occur in
the first 20 million characters of WORDS.jsonl (or .jsonl.xz), so they differ from RULER's own."""
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
WORDS_OF = 20_000_000  # characters


def words_of(path):
    count, characters = collections.Counter(), 0
    with (lzma.open if path.endswith(".xz") else open)(path, "rt", encoding="utf-8") as file:
        for line in file:
            text = json.loads(line)["text"]
            count.update(re.findall(r"\b[a-z]{4,12}\b", text))
            characters += len(text)
            if characters > WORDS_OF:
                break
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
    if len(sys.argv) != 6 or not set(sys.argv[1].split(",")) <= set(tasks):
        sys.exit(__doc__)
    words, rng = words_of(sys.argv[5]), random.Random(int(sys.argv[4]))
    for task in sys.argv[1].split(","):
        for characters in sys.argv[3].split(","):
            for _ in range(int(sys.argv[2])):
                json.dump(tasks[task](rng, words, int(characters)), sys.stdout)
                print()


if __name__ == "__main__":
    main()
