#!/usr/bin/env python3
"""BENCHMARKS.md, its plots, and the tables of README.md, from the result files of the benchmarks.

  report.py [--check] [--root FOLDER]

Reads tests/bench/results/**/*.json (tests/bench/result.h describes them). Writes BENCHMARKS.md, docs/figures/bench-*.svg and
the lines of README.md between `<!-- table:NAME -->` and `<!-- /table -->`, for the names of README_TABLES below.

--check writes nothing. It reports each file that differs, and each figure with a unit in a table of README.md outside
such marks. --root: the repository; the default is the one that this script is in.

Optional keys of a result file: "note", a sentence under the table; "from", the source of figures that no benchmark
wrote; of a figure: "interval", [low, high] of 95 %, shown instead of the quartiles.
"""
import argparse
import glob
import json
import os
import re
import sys

import plots

CELL_MAX = 64
# Chapter, then file without .json and the title of its table. The order here is the order of the document.
CHAPTERS = [
    ("Quality", [
        ("quality", "Perplexity on held-out text, by what is retrieved"),
        ("quality-memory", "Change in perplexity by a token memory"),
        ("quality-copy", "Perplexity on text that the store holds"),
    ]),
    ("Building a store", [
        ("cpu-index", "Build and recall on the CPU"),
        ("cpu-encode", "Encoder on the CPU, against OpenBLAS"),
        ("cpu-store", "Store: seal, search, lookup"),
        ("cpu-build-large", "A large build on the CPU"),
        ("cpu-build-memory", "Memory of a large build"),
        ("gpu-build", "A large build on a GPU"),
        ("gpu-encode", "Encoder on a GPU"),
        ("cpu-lexical-build", "Making the lexical index"),
        ("cpu-quickstart", "Quickstart"),
        ("cpu-tokenizer", "Tokenizer"),
        ("cpu-peer-tokenizer", "Tokenizer against the Python package"),
        ("cpu-peer-tokenizer-train", "Tokenizer training against the Python package"),
    ]),
    ("Generating", [
        ("cpu-token", "Token on the CPU, by length of the context"),
        ("cpu-token-i8", "Token on the CPU, by type of the weights, base-28m"),
        ("cpu-retrieval", "Token on the CPU, with and without a store"),
        ("cpu-self-memory", "Memory of retrieval from the own past"),
        ("gpu-decode", "Token on a GPU"),
        ("gpu-token-kernel", "The kernel of a token alone"),
        ("gpu-memory-28m", "Token with a token memory, base-28m on a GPU"),
        ("gpu-memory-124m", "Token with a token memory, 124M parameters"),
        ("gpu-memory-124m-6", "The same with keys of layer 6"),
        ("gpu-corpus", "Token with a corpus in GPU memory"),
        ("gpu-batch", "Tokens of several texts together on a GPU"),
        ("gpu-prefill", "Prefill on a GPU"),
    ]),
    ("Search on the CPU", [
        ("cpu-lists", "Lists of an index, against FAISS and the memory's rate"),
    ]),
    ("Search on a GPU", [
        ("gpu-search", "One query over 20 million landmarks"),
        ("gpu-search-batch", "Several queries"),
        ("gpu-recall", "Recall on real text"),
        ("gpu-topk", "Exact search, the operation alone"),
        ("gpu-lexical", "Search by words (BM25)"),
    ]),
    ("Training", [
        ("gpu-train-base", "Training step, Base LM"),
        ("gpu-train-drt", "Training step, DRT"),
        ("gpu-train-many", "Several GPUs"),
    ]),
    ("Operations", [
        ("gpu-ceiling", "Limits of the GPU"),
        ("gpu-attention", "Attention on a GPU"),
        ("gpu-peer-gca", "Grouped cross-attention against PyTorch"),
        ("gpu-peers", "Search and encoder against PyTorch"),
        ("gpu-peers-token", "Token against PyTorch"),
        ("gpu-ops", "Operations of a training step on a GPU"),
        ("gpu-memory", "Token memories on a GPU"),
        ("cpu-kernels", "Operations on the CPU"),
    ]),
]
# Tables of README.md: a label, the result file and the name of the figure.
README_TABLES = {
    "quality": [
        ("own past", "quality-memory", "own past as token memory"),
        ("store", "quality-memory", "store as token memory"),
        ("own past and store", "quality-memory", "both as token memory"),
        ("random chunks of the store", "quality-memory", "random chunks as token memory"),
        ("a store of source code", "quality-memory", "store of other text as token memory"),
        ("no memory, attention to all 2,048 tokens", "quality-memory", "Base LM with full attention"),
    ],
    "speed": [
        ("token of a 124M Base LM (H100)", "gpu-peers-token", "a token, batch 1, base, ours"),
        ("token of a DRT with its own past (H100)", "gpu-peers-token", "a token, batch 1, drt, ours"),
        ("encoder, d 768", "gpu-peers", "encoder of 2 layers, d 768, ours"),
        ("GCA forward, d 768", "gpu-peer-gca", "d 768, forward, ours"),
        ("GCA backward, d 768", "gpu-peer-gca", "d 768, backward, ours"),
        ("tokenizing", "cpu-peer-tokenizer", "ours"),
    ],
}
UNIT = re.compile(r"(?<![\w.])\d[\d,.]*\s?(?:%|times\b|x\b|us\b|ms\b|s\b|seconds?\b|minutes?\b|[KMGT]i?B(?:/s)?\b|"
                  r"[GT]FLOP/s|(?:(?:[KM]|thousand|million) )?(?:tokens|chunks)(?:/s| a second)\b|bits/byte)")


class Wrong(Exception):
    """An error line for the user of the script."""


def load(folder):
    results = {}
    for path in sorted(glob.glob(os.path.join(folder, "**", "*.json"), recursive=True)):
        try:
            with open(path, encoding="utf8") as file:
                result = json.load(file)
            for figure in result["figures"]:
                figure["name"], figure["unit"], float(figure["median"]), float(figure["q1"]), float(figure["q3"])
                if figure.get("ratio") is not None and "peer" not in figure:
                    raise KeyError("peer")
            result["machine"]["cpu"], result["machine"]["cores"]
            result["name"], result["commit"], result["date"], result["command"]
        except (OSError, ValueError) as error:
            raise Wrong(f"{path}: {error}") from error
        except (KeyError, TypeError) as error:
            raise Wrong(f"{path}: no {error} in it: write it with a benchmark's --json") from error
        result["file"] = "tests/bench/results/" + os.path.relpath(path, folder)
        results[os.path.basename(path)[:-len(".json")]] = result
    if not results:
        raise Wrong(f"{folder}: no result files: run tests/bench/run_cpu.sh {folder} CORPUS")
    return results


def number(value):
    """Four digits, or all digits of a whole number below a million."""
    if value is None:
        return ""
    if abs(value) >= 1e6:
        return f"{value / 1e6:.4g} M"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


DECIMALS = {"perplexity": 2, "bits/byte": 3}  # units whose figures are compared: 13.80 and 14.47


def quantity(figure):
    decimals = DECIMALS.get(figure["unit"])
    value = number(figure["median"]) if decimals is None else f"{figure['median']:.{decimals}f}"
    return f"{value} {figure['unit']}"


def spread(figure):
    if "interval" in figure:
        return "95 %: {} .. {}".format(*map(number, figure["interval"]))
    return f"{number(figure['q1'])} .. {number(figure['q3'])}" if figure["n"] > 1 else ""


def ratio(figure):
    value = figure.get("ratio")
    if value is None:
        return ""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def table(rows, where):
    """rows: the first is the heading. Empty columns are left out."""
    kept = [at for at in range(len(rows[0])) if any(row[at] for row in rows[1:])]
    assert len(kept) <= 5
    lines = []
    for count, row in enumerate(rows):
        cells = [row[at] for at in kept]
        for cell in cells:
            if len(cell) > CELL_MAX:
                raise Wrong(f"{where}: a cell of {len(cell)} characters, limit {CELL_MAX}: {cell}")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        if count == 0:
            lines.append("|" + "|".join("---" if at == 0 or rows[0][at] == "against" else "--:" for at in kept) + "|")
    return lines


def section(stem, title, result):
    rows = [("figure", "median", "quartiles", "against", "ratio")]
    for figure in result["figures"]:
        rows.append((figure["name"], quantity(figure), spread(figure),
                     figure.get("peer", ""), ratio(figure)))
    machine = result["machine"]
    where = ", ".join(filter(None, [machine.get("gpu"), f"{machine['cores']} cores of {machine['cpu']}"]))
    if machine.get("load", 0) > machine["cores"]:
        where += f", other work running (load {machine['load']:.1f})"
    lines = [f"### {title}", ""] + table(rows, result["file"]) + [""]
    if "note" in result:
        lines += [result["note"], ""]
    origin = f"from {result['from']}" if "from" in result else f"commit {result['commit']}"
    return lines + [f"`{result['command']}`", "", f"{result['date']}, {origin}; {where}.", ""]


def document(results, pictures):
    lines = ["# Benchmarks", "",
             "Written by `tests/bench/report.py` from `tests/bench/results/`: change those, not this file. A figure is the",
             "median of its runs, with their quartiles or, where stated, a 95 % interval. The ratio compares it with the peer or",
             "limit in the column before: how many times as fast this program is, or its share of the limit. The line under a",
             "table has the date, the commit and the machine. \"From BENCHMARKS.md\": measured before the benchmarks wrote result",
             "files. Tables of different dates can differ for the same work. `tests/bench/run_cpu.sh` and",
             "`tests/device/bench/run_bench.sh` measure again.", ""]
    known = set()
    for chapter, tables in CHAPTERS:
        present = [(stem, title) for stem, title in tables if stem in results]
        known.update(stem for stem, _ in tables)
        if not present:
            continue
        lines += [f"## {chapter}", ""]
        for name, alternative in pictures.get(chapter, []):
            lines += [f"![{alternative}](docs/figures/{name})", ""]
        for stem, title in present:
            lines += section(stem, title, results[stem])
    unknown = sorted(set(results) - known)
    if unknown:
        raise Wrong(f"tests/bench/results/{unknown[0]}.json: no table of it in CHAPTERS of tests/bench/report.py")
    return "\n".join(lines).rstrip("\n") + "\n"


def readme_table(name, results):
    rows = [("what", "figure", "95 % interval", "against", "ratio")]
    for label, stem, wanted in README_TABLES[name]:
        found = [f for f in results.get(stem, {"figures": []})["figures"] if f["name"] == wanted]
        if not found:
            raise Wrong(f"README.md, table {name}: no figure \"{wanted}\" in tests/bench/results/{stem}.json")
        figure = found[0]
        interval = spread(figure).removeprefix("95 %: ") if "interval" in figure else ""
        rows.append((label, quantity(figure), interval, figure.get("peer", ""), ratio(figure)))
    return "\n".join(table(rows, f"README.md, table {name}"))


MARKED = re.compile(r"(<!-- table:([\w-]+) -->\n)(.*?)(<!-- /table -->)", re.S)


def readme(text, results):
    def replace(match):
        if match[2] not in README_TABLES:
            raise Wrong(f"README.md: no table {match[2]}: there are {', '.join(README_TABLES)}")
        return match[1] + readme_table(match[2], results) + "\n" + match[4]
    return MARKED.sub(replace, text)


def strays(text):
    """Figures with a unit in tables of README.md that are in no result file."""
    found = []
    blank = MARKED.sub(lambda match: "\n" * match[0].count("\n"), text)
    for count, line in enumerate(blank.split("\n"), 1):
        for figure in UNIT.findall(re.sub(r"`[^`]*`", "", line)) if line.startswith("|") else []:
            found.append(f"README.md:{count}: \"{figure}\" is in a table that report.py does not write: put the table "
                         "between <!-- table:NAME --> and <!-- /table -->, with NAME in README_TABLES of "
                         "tests/bench/report.py")
    return found


def outputs(root):
    """Path from the root: the text that it must contain."""
    results = load(os.path.join(root, "tests/bench/results"))
    drawn = plots.draw(results)
    pictures = {}
    for name, (chapter, alternative, _) in drawn.items():
        pictures.setdefault(chapter, []).append((name, alternative))
    texts = {f"docs/figures/{name}": svg for name, (_, _, svg) in drawn.items()}
    texts["BENCHMARKS.md"] = document(results, pictures)
    with open(os.path.join(root, "README.md"), encoding="utf8") as file:
        texts["README.md"] = readme(file.read(), results)
    return texts


def differing(root, texts):
    for path, text in texts.items():
        try:
            with open(os.path.join(root, path), encoding="utf8") as file:
                if file.read() == text:
                    continue
        except FileNotFoundError:
            pass
        yield path


def main():
    options = argparse.ArgumentParser(usage=__doc__.replace("%", "%%"))
    options.add_argument("--check", action="store_true")
    options.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
    o = options.parse_args()
    try:
        texts = outputs(o.root)
    except Wrong as wrong:
        sys.exit(f"report.py: {wrong}")
    problems = [f"{path}: differs from the result files: run tests/bench/report.py"
                for path in differing(o.root, texts)]
    existing = {os.path.relpath(path, o.root) for path in glob.glob(os.path.join(o.root, "docs/figures/bench-*.svg"))}
    problems += [f"{path}: no benchmark draws it: remove it" for path in sorted(existing - set(texts))]
    problems += strays(texts["README.md"])
    if o.check:
        print("\n".join(problems) or f"{len(texts)} files agree with the result files")
        sys.exit(1 if problems else 0)
    for path in list(differing(o.root, texts)):
        with open(os.path.join(o.root, path), "w", encoding="utf8") as file:
            file.write(texts[path])
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
