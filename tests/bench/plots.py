"""Plots of BENCHMARKS.md as SVG text, from the result files; report.py writes them."""
import math
import re
from xml.sax.saxutils import escape

COLOURS = ("#0969da", "#bf8700", "#cf222e", "#1a7f37")
WIDTH, FONT = 760, 'font-family="Helvetica, Arial, \'Liberation Sans\', sans-serif"'
DASHES = ("", "7 4", "2 3", "9 3 2 3")


def short(value):
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def text(x, y, content, anchor="start", size=13, colour="#1f2328", more=""):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"{more}>'
            f"{escape(content)}</text>")


def picture(height, title, parts):
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" {FONT}>', f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        text(20, 26, title, size=16, more=' font-weight="bold"'), *parts, "</svg>"]) + "\n"


def legend(names, y):
    parts, x = [], 20
    for at, name in enumerate(names):
        parts.append(f'<rect x="{x}" y="{y - 10}" width="14" height="10" fill="{COLOURS[at]}"/>')
        parts.append(text(x + 20, y, name))
        x += 44 + 7.2 * len(name)
    return parts


def bars(title, unit, groups, names):
    """groups: (label, {name: value}); one bar for each name that has a value, from zero."""
    left, right, top, bar, gap = 150, 90, 62, 17, 16
    largest = max(value for _, values in groups for value in values.values())
    scale, parts, y = (WIDTH - left - right) / largest, legend(names, 48), top
    for label, values in groups:
        begin = y
        for at, name in enumerate(names):
            if name not in values:
                continue
            width = values[name] * scale
            parts.append(f'<rect x="{left}" y="{y}" width="{width:.1f}" height="{bar - 3}" fill="{COLOURS[at]}"/>')
            parts.append(text(left + width + 6, y + 12, f"{short(values[name])} {unit}", size=12))
            y += bar
        parts.append(text(left - 10, (begin + y) / 2 + 3, label, anchor="end"))
        y += gap
    parts.append(f'<line x1="{left}" y1="{top - 6}" x2="{left}" y2="{y - gap + 4}" stroke="#57606a"/>')
    return picture(y, title, parts)


def ticks(low, high):
    """Round numbers from about low to about high."""
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step *= next(f for f in (1, 2, 2.5, 5, 10) if (high - low) / (step * f) <= 5)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [at * step for at in range(first, last + 1)]


def lines(title, x_title, y_title, series, low=None):
    """series: {name: [(x, y)]}; x on a scale of doublings, y from `low` (default: the least value)."""
    left, right, top, bottom = 76, 30, 66, 330
    every = [point for points in series.values() for point in points]
    xs = sorted({x for x, _ in every})
    marks = ticks(min(y for _, y in every) if low is None else low, max(y for _, y in every))
    first, last = math.log2(xs[0]), math.log2(xs[-1])

    def at_x(x):
        return left + 14 + (math.log2(x) - first) / max(last - first, 1e-9) * (WIDTH - left - right - 28)

    def at_y(y):
        return bottom - (y - marks[0]) / (marks[-1] - marks[0]) * (bottom - top)

    parts = legend(list(series), 48)
    for mark in marks:
        parts.append(f'<line x1="{left}" y1="{at_y(mark):.1f}" x2="{WIDTH - right}" y2="{at_y(mark):.1f}" '
                     'stroke="#d0d7de"/>')
        parts.append(text(left - 8, at_y(mark) + 4, short(mark), anchor="end", size=12))
    shown = -100.0
    for x in xs:
        if at_x(x) - shown < 38:
            continue
        shown = at_x(x)
        parts.append(f'<line x1="{shown:.1f}" y1="{bottom}" x2="{shown:.1f}" y2="{bottom + 5}" stroke="#57606a"/>')
        parts.append(text(shown, bottom + 20, f"{x:,}", anchor="middle", size=12))
    parts.append(f'<line x1="{left}" y1="{bottom}" x2="{WIDTH - right}" y2="{bottom}" stroke="#57606a"/>')
    parts.append(text((left + WIDTH - right) / 2, bottom + 44, x_title, anchor="middle"))
    parts.append(text(20, (top + bottom) / 2, y_title, anchor="middle",
                      more=f' transform="rotate(-90 20 {(top + bottom) / 2:.1f})"'))
    for number, points in enumerate(series.values()):
        path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in sorted(points))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[number]}" stroke-width="2.2" '
                     f'stroke-dasharray="{DASHES[number]}"/>')
        parts += [f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="3.6" fill="{COLOURS[number]}"/>'
                  for x, y in points]
    return picture(bottom + 62, title, parts)


def busy(results, stem):
    """For a title: a note if other programs used the processors during the measurement."""
    machine = results[stem]["machine"]
    return " (other work was running)" if machine.get("load", 0) > machine["cores"] else ""


def matches(results, stem, pattern, unit):
    for figure in results.get(stem, {"figures": []})["figures"]:
        match = re.fullmatch(pattern, figure["name"])
        if match and figure["unit"] == unit:
            yield match.groups(), figure["median"]


def draw_gca(results):
    groups, names = {}, ("ours", "PyTorch compiled", "PyTorch compiled, no gather", "PyTorch sdpa")
    for (case, name), value in matches(results, "gpu-peer-gca", r"(d \d+, \w+), (.*)", "ms"):
        if name in names:
            groups.setdefault(case, {})[name] = value
    if groups:
        return bars("Grouped cross-attention, milliseconds", "ms", list(groups.items()), names)


def draw_token(results):
    series, names = {}, {"none": "no retrieval", "self": "self retrieval"}
    pattern = r"token, mean with chunk ends, (\w+), after (\d+) tokens"
    for (mode, context), value in matches(results, "cpu-token", pattern, "ms"):
        series.setdefault(names.get(mode, mode), []).append((int(context), value))
    if series and all(len(points) > 1 for points in series.values()):
        return lines("Time of a token on the CPU" + busy(results, "cpu-token"), "tokens before it", "ms a token", series, low=0)


def draw_recall(results):
    series = {}
    for stem, name in (("cpu-index", "CPU, real text, 256 lists"), ("gpu-recall", "GPU, real text, 256 lists"),
                       ("gpu-search", "GPU, 20M landmarks, 32,768 lists")):
        for (count,), value in matches(results, stem, r".*, (\d+) lists visited", "recall@8"):
            if int(count) > 0:
                series.setdefault(name, []).append((int(count), value))
    if series and any(len(points) > 1 for points in series.values()):
        return lines("Recall of the best 8 by lists visited", "lists visited (nprobe)", "recall@8", series)


def draw(results):
    """File name: SVG. Plots without data are left out."""
    found = {"bench-recall.svg": draw_recall(results), "bench-token.svg": draw_token(results), "bench-gca.svg": draw_gca(results)}
    return {name: svg for name, svg in found.items() if svg}
