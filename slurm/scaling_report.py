#!/usr/bin/env python3
"""scaling_report.py DIRECTORY: summarises the measurements of slurm/scaling.sbatch as DIRECTORY/scaling.txt (also printed) and
DIRECTORY/scaling.png. The file `points` lists the measurements to make, one per line: mode, nodes, repetition. Failed ones are shown
as missing and set exit status 1. Without matplotlib it draws no picture and prints a note."""

import json
import pathlib
import statistics
import sys

COLUMNS = ("mode", "nodes", "ranks", "batch", "images/s", "min-max", "efficiency", "exposed comm.", "runs")


def read_points(directory):
    """{(mode, nodes): [a result of `lockstep bench step --json`, or None if it is missing; one per repetition]}"""
    found = {}
    for line in (directory / "points").read_text().splitlines():
        mode, nodes, repetition = line.split()
        file = directory / f"{mode}-{int(nodes):04}-{repetition}.json"
        try:
            result = json.loads(file.read_text())
            result["images_per_second"], result["step_seconds_median"], result["exposed_communication_seconds"]
        except (OSError, ValueError, KeyError):
            result = None
        found.setdefault((mode, int(nodes)), []).append(result)
    return found


def summarize(points):
    """One dict per point, in order; its figures are None if every repetition is missing. Efficiency is the rate per
    node divided by the rate per node of the smallest number of nodes measured in the same mode."""
    rows, base = [], {}
    for (mode, nodes), results in sorted(points.items(), key=lambda item: (item[0][0] != "weak", item[0][1])):
        good = [result for result in results if result]
        row = {"mode": mode, "nodes": nodes, "runs": len(good), "wanted": len(results), "rate": None}
        if good:
            rates = [result["images_per_second"] for result in good]
            rate = statistics.median(rates)
            base.setdefault(mode, rate / nodes)
            row.update(
                ranks=good[0]["ranks"], batch=good[0]["global_batch"], rate=rate, low=min(rates), high=max(rates),
                efficiency=rate / nodes / base[mode],
                exposed=statistics.median(r["exposed_communication_seconds"] / r["step_seconds_median"] for r in good))
        rows.append(row)
    return rows


def format_table(rows):
    def cells(row):
        runs = f"{row['runs']} of {row['wanted']}"
        if row["rate"] is None:
            return row["mode"], str(row["nodes"]), *["missing"] * 6, runs
        return (row["mode"], str(row["nodes"]), str(row["ranks"]), str(row["batch"]), f"{row['rate']:.1f}",
                f"{row['low']:.1f}-{row['high']:.1f}", f"{100 * row['efficiency']:.1f} %", f"{100 * row['exposed']:.1f} %",
                runs)

    table = [COLUMNS, *map(cells, rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(COLUMNS))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths)).rstrip() for line in table) + "\n"


def draw(rows, title, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13, 4))
    for mode, marker in (("weak", "o-"), ("strong", "s-")):
        measured = [row for row in rows if row["mode"] == mode and row["rate"] is not None]
        if not measured:
            continue
        nodes = [row["nodes"] for row in measured]
        rate = [row["rate"] for row in measured]
        spread = [[row["rate"] - row["low"] for row in measured], [row["high"] - row["rate"] for row in measured]]
        axes[0].errorbar(nodes, rate, yerr=spread, fmt=marker, capsize=3, label=mode)
        axes[0].plot(nodes, [rate[0] / nodes[0] * n for n in nodes], ":", color="0.6")
        axes[1].plot(nodes, [100 * row["efficiency"] for row in measured], marker, label=mode)
        axes[2].plot(nodes, [100 * row["exposed"] for row in measured], marker, label=mode)
    axes[0].set(ylabel="images/s (median, min to max; dotted: ideal)", yscale="log")
    axes[1].set(ylabel="efficiency, %", ylim=(0, None))
    axes[2].set(ylabel="exposed communication, % of the step", ylim=(0, None))
    ticks = sorted({row["nodes"] for row in rows})
    for one in axes:
        one.set(xlabel="nodes", xscale="log")
        one.set_xticks(ticks, [str(n) for n in ticks])
        one.minorticks_off()
        one.grid(alpha=0.3)
        if one.get_legend_handles_labels()[0]:
            one.legend()
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def title_of(points):
    first = next((result for results in points.values() for result in results if result), None)
    return "nothing measured" if first is None else f"{first['model']}, {first['precision']}, {first['engine']}"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    directory = pathlib.Path(sys.argv[1])
    points = read_points(directory)
    rows = summarize(points)
    table = f"{title_of(points)}\n\n{format_table(rows)}"
    (directory / "scaling.txt").write_text(table)
    print(table, end="")
    try:
        draw(rows, title_of(points), directory / "scaling.png")
    except ImportError as missing:
        print(f"no picture: {missing} (install python3-matplotlib, then {' '.join(sys.argv)})")
    sys.exit(0 if all(row["runs"] == row["wanted"] for row in rows) else 1)


if __name__ == "__main__":
    main()
