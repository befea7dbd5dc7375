#!/usr/bin/env python3
"""summarize.py [--check]: the README's table of ratios to PyTorch, and its picture, generated from benchmarks/results.

Writes both. With --check it writes nothing, and exits with status 1 if either differs from the result files.
"""

import json
import pathlib
import sys

from harness import best

TOP = pathlib.Path(__file__).resolve().parent.parent
RESULTS = TOP / "benchmarks" / "results"
README = TOP / "README.md"
PICTURE = TOP / "docs" / "pictures" / "ratio-to-pytorch.svg"
BEGIN, END = "<!-- benchmarks/summarize.py writes this table -->\n", "<!-- end of the table -->\n"
STEPS = [f"2026-11-26-step-vs-pytorch-1.13-2.6-and-2.15-{precision}.json" for precision in ("fp32", "bf16")]


def read(name):
    return json.loads((RESULTS / name).read_text())


def rows():
    """(what, precision, the fastest PyTorch, the newest in its default form, file), one per measurement."""
    for name in STEPS:
        result = read(name)
        for row in result["rows"]:
            peers = row["peers"]
            what = f"{row['model']}, {row['image_size']} x {row['image_size']}, batch {row['batch']}"
            yield what, result["precision"], best(peers), [peer for peer in peers if peer["form"] == "default"][-1], name


def spread(ratio):
    return f"{ratio['median']:.2f} ({ratio['min']:.2f}–{ratio['max']:.2f})"


def table():
    lines = ["| training step | | to the fastest PyTorch | its version and form | memory | to the default form of 2.15 | rounds, date |\n|---|---|---|---|---|---|---|\n"]
    for what, precision, fastest, default, name in rows():
        result = read(name)
        source = f"[{result['rounds']}, {result['date']}](benchmarks/results/{name})"
        which = f"{'.'.join(fastest['pytorch'].split('.')[:2])} {fastest['form']}"
        lines.append(f"| {what} | {precision} | {spread(fastest['ratio'])} | {which} | {fastest['peak_memory_ratio']:.2f} | {spread(default['ratio'])} | {source} |\n")
    return "".join(lines)


def picture():
    """Bars of the ratios to the fastest PyTorch, with lines from the minimum to the maximum."""
    left, bar, gap, scale, widest = 360, 16, 10, 130, 2.5
    entries = list(rows())
    height = 50 + len(entries) * (bar + gap)
    width = int(left + widest * scale + 60)

    def text(x, y, words, anchor="start"):
        return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-family="sans-serif" font-size="12" fill="#444">{words}</text>\n'

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">\n',
             f'<rect width="{width}" height="{height}" fill="white"/>\n']
    for i, (what, precision, fastest, *_) in enumerate(entries):
        y = 10 + i * (bar + gap)
        colour = "#3b6fb6" if precision == "fp32" else "#d9822b"
        low, high, median = (left + scale * fastest["ratio"][key] for key in ("min", "max", "median"))
        parts += [text(left - 8, y + bar - 4, f"{what}, {precision}", "end"),
                  f'<rect x="{left}" y="{y}" width="{median - left:.1f}" height="{bar}" fill="{colour}"/>\n',
                  f'<path d="M{low:.1f} {y + bar / 2:.0f}H{high:.1f}" stroke="#222" stroke-width="2"/>\n',
                  text(high + 6, y + bar - 4, f"{fastest['ratio']['median']:.2f}")]
    bottom = height - 36
    parts += [f'<path d="M{left + scale} 4V{bottom}" stroke="#222" stroke-dasharray="4 3"/>\n', text(left + scale, bottom + 14, "1: as fast", "middle"),
              text(left, bottom + 30, "speed of Lockstep divided by that of the fastest PyTorch; same machine, in turn; lines: least to greatest of the rounds"), "</svg>\n"]
    return "".join(parts)


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    readme = README.read_text()
    before, rest = readme.split(BEGIN)
    wanted = {README: before + BEGIN + table() + END + rest.split(END)[1], PICTURE: picture()}
    for path, content in wanted.items():
        if check and (not path.exists() or path.read_text() != content):
            sys.exit(f"{path.relative_to(TOP)} is not what benchmarks/results gives; run benchmarks/summarize.py")
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)


if __name__ == "__main__":
    main()
