#!/usr/bin/env python3
"""rouge.py TEST_ROUGE [N] -- ROUGE of drt-eval tasks against the Python package rouge-score (pip install rouge-score).

Writes N random pairs of texts, of 0 to 80 words with punctuation, capitals, numbers and other letters than a-z, and
checks that precision, recall and F of ROUGE-1, -2 and -L of `TEST_ROUGE pairs` (tests/unit/tools/test_rouge.c) equal
those of the package to ten digits."""
import random
import subprocess
import sys

from rouge_score import rouge_scorer

WORDS = ("the river and Stone winding NORTH other sand ring on table 7 lights 3.14 it's GPT-2 naïve café İb \u212aelvin 北 "
         "“of” a e.g.").split()


def text(choice):
    n = choice.randint(0, 80)
    return "".join(choice.choice(WORDS) + choice.choice([" ", " ", " ", ", ", "-", "."]) for _ in range(n))


def main():
    program, n = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 500
    choice = random.Random(7)
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"])
    pairs = [(text(choice), text(choice)) for _ in range(n)]
    lines = "".join(f"{target}\t{answer}\n" for target, answer in pairs)
    out = subprocess.run([program, "pairs"], input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout.decode()
    ours = [[float(x) for x in line.split()] for line in out.splitlines()]
    worst = total = 0.0
    assert len(ours) == n, (len(ours), n)
    for (target, answer), figures in zip(pairs, ours):
        scores = scorer.score(target, answer)
        theirs = [x for kind in ("rouge1", "rouge2", "rougeL") for x in scores[kind]]
        assert len(figures) == len(theirs)
        worst = max([worst] + [abs(a - b) for a, b in zip(figures, theirs)])
        total += scores["rouge1"].fmeasure
    print(f"{n} pairs, mean F of ROUGE-1 {total / n:.4f}: the largest difference is {worst:.2g}")
    sys.exit(worst > 1e-10 or total == 0)


main()
