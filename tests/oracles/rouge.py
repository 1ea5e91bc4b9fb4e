#!/usr/bin/env python3
"""rouge.py DRT_EVAL MODEL [N] -- ROUGE of drt-eval tasks against the Python package rouge-score.

Lets drt-eval answer N prompts, scores its answers with the package, and wants F of ROUGE-1, -2 and -L to be the same to
six digits. The answers of an untrained model are random words, which is what is wanted here. Needs: pip install
rouge-score."""
import json
import random
import subprocess
import sys
import tempfile

from rouge_score import rouge_scorer


def main():
    program, model, n = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 20
    words = "the river and stone winding north other sand ring on table under seven lights of a harbour".split()
    choice = random.Random(7)
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"])
    worst = total = 0.0
    with tempfile.TemporaryDirectory() as folder:
        samples, answers = f"{folder}/samples.jsonl", f"{folder}/answers.jsonl"
        with open(samples, "w") as f:
            for _ in range(n):
                text = [" ".join(choice.choice(words) for _ in range(choice.randint(1, 80))) for _ in range(2)]
                f.write(json.dumps({"document": text[0], "summary": text[1]}) + "\n")
        subprocess.run([program, "tasks", samples, "--metric", "rouge", "--model", model, "--max-tokens", "60",
                        "--answers", answers], check=True, stdout=subprocess.DEVNULL)
        for line in open(answers):
            a = json.loads(line)
            for kind, score in scorer.score(a["outputs"][0], a["answer"]).items():
                worst = max(worst, abs(score.fmeasure - a[kind]))
                total += score.fmeasure
    print(f"{n} answers, mean F {total / (3 * n):.4f}: the largest difference is {worst:.2g}")
    sys.exit(worst > 1e-6 or total == 0)


main()
