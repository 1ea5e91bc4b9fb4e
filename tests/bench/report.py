#!/usr/bin/env python3
"""The tables of result files in documents, their plots, and the tables of README.md, from the result files of the benchmarks.

  report.py [--check] [--root FOLDER]

Reads tests/bench/results/**/*.json (tests/bench/result.h describes them). Writes docs/figures/bench-*.svg, the lines of the
DOCUMENTS below between `<!-- result:NAME -->` and `<!-- /result -->`, and those of README.md between `<!-- table:NAME -->` and
`<!-- /table -->`, for the names of README_TABLES. All other lines of a document are written by hand.

--check writes nothing. It reports each file that differs, and each figure with a unit in a table of README.md outside
such marks. --root: the repository; the default is the one that this script is in.

Optional keys of a result file: "note", sentences above the table; "from", the source of figures that no benchmark
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
# Documents with blocks of tables: the lines between `<!-- result:NAME -->` and `<!-- /result -->` come from NAME.json.
DOCUMENTS = ["BENCHMARKS.md", "docs/research/retrieval.md", "docs/research/token-memory.md"]
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
        ("GCA forward, d 768 (H100)", "gpu-peer-gca", "d 768, forward, ours"),
        ("GCA backward, d 768 (H100)", "gpu-peer-gca", "d 768, backward, ours"),
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


def section(result):
    """The block of a result file: its note, its table, then a line with command, date, commit and machine."""
    intervals = any("interval" in figure for figure in result["figures"])
    rows = [("figure", "value" if intervals else "median", "95 % interval" if intervals else "quartiles", "against", "ratio")]
    for figure in result["figures"]:
        rows.append((figure["name"], quantity(figure), spread(figure).removeprefix("95 %: "),
                     figure.get("peer", ""), ratio(figure)))
    machine = result["machine"]
    where = ", ".join(filter(None, [machine.get("gpu"), f"{machine['cores']} cores of {machine['cpu']}"]))
    if machine.get("load", 0) > machine["cores"]:
        where += f", other work running (load {machine['load']:.1f})"
    origin = f"from {result['from']}" if "from" in result else f"commit {result['commit']}"
    note = [result["note"], ""] if "note" in result else []
    return "\n".join(note + table(rows, result["file"]) +
                     ["", f"`{result['command']}`: {result['date']}, {origin}; {where}."]) + "\n"


BLOCK = re.compile(r"(<!-- result:([\w-]+) -->\n)(.*?)(<!-- /result -->)", re.S)


def documents(root, results):
    """Path: text of each document, with the blocks of the result files. Each result file is in one block of all documents."""
    texts, seen = {}, {}
    for path in DOCUMENTS:
        with open(os.path.join(root, path), encoding="utf8") as file:
            text = file.read()

        def replace(match):
            name = match[2]
            if name not in results:
                raise Wrong(f"{path}: no result file {name}.json in tests/bench/results")
            if name in seen:
                raise Wrong(f"{path}: {name} is also in {seen[name]}: each result file has one table")
            seen[name] = path
            return match[1] + section(results[name]) + match[4]
        marks = re.findall(r"<!-- (result:|/result)", text)
        if marks != ["result:", "/result"] * (len(marks) // 2) or len(BLOCK.findall(text)) != len(marks) // 2:
            raise Wrong(f"{path}: a block <!-- result:NAME --> does not end with <!-- /result -->")
        texts[path] = BLOCK.sub(replace, text)
    missing = sorted(set(results) - set(seen))
    if missing:
        raise Wrong(f"{results[missing[0]]['file']}: no document has <!-- result:{missing[0]} -->: put it into BENCHMARKS.md")
    return texts


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
    texts = {f"docs/figures/{name}": svg for name, svg in plots.draw(results).items()}
    texts.update(documents(root, results))
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
    except (Wrong, OSError) as wrong:
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
