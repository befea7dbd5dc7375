#!/usr/bin/env python3
"""compare_local_sgd.py LOCKSTEP OUTPUT.json: the accuracy on Fashion-MNIST of local SGD beside synchronous SGD, by steps between averages.

All runs follow recipes/fashion-mnist.conf at a smaller width on ranks of this machine; a round runs each case with one seed, after
--start synchronous epochs. Times say nothing about clusters: the ranks share cores and memory.
"""

import json
import os
import pathlib
import statistics
import sys
import tempfile

from compare_recipes import logged_evaluations
from compare_training import DATA
from harness import CORES, arguments, bench_step, comparison, measured, write

TOP = pathlib.Path(__file__).resolve().parent.parent


def train(options, data, run, every, momentum, seed):
    local = ["--sync-every", every, "--sync-start", options.start, "--sync-momentum", momentum] if every else []
    launch = ["mpirun", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none", "--mca", "mpi_yield_when_idle", 1, "-n", options.ranks]
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    done = measured([*launch, options.lockstep, "train", "--config", TOP / "recipes/fashion-mnist.conf", "--width", options.width,
                     "--epochs", options.epochs, "--threads", 1, "--device", "cpu", "--data", data, "--run-dir", run, "--seed", seed,
                     "--save-every", 0, "--progress", "plain", *local], environment)
    found = logged_evaluations((pathlib.Path(run) / "log/rank-00000.log").read_text())
    return {"seed": seed, "top1": [evaluation["top1"] for evaluation in found], "command_seconds": done["command_seconds"]}


def mean_and_deviation(name, values):
    return {f"{name}_mean": statistics.mean(values), f"{name}_deviation": statistics.stdev(values) if len(values) > 1 else 0}


def rows_of(runs):
    """A row for each case; `difference`: to the synchronous run of the same seed."""
    rows = []
    for case, done in runs.items():
        row = {"case": case, **mean_and_deviation("top1", [run["top1"][-1] for run in done])}
        if case != "1" and "1" in runs:
            row |= mean_and_deviation("difference", [run["top1"][-1] - base["top1"][-1] for run, base in zip(done, runs["1"])])
        rows.append({**row, "runs": done})
    return rows


def main():
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--cases", nargs="+", default=["1", "4", "8", "16", "8:local"], metavar="STEPS[:MOMENTUM]",
                        help="steps between averages, 1: synchronous SGD; and --sync-momentum")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--start", type=float, default=0.5, help="epochs of synchronous SGD")
    options = parser.parse_args()
    machine = measured(bench_step(options.lockstep, model="mlp", image_size=28, batch_size=1, steps=1))["machine"]
    runs = {case: [] for case in options.cases}
    with tempfile.TemporaryDirectory() as folder:
        measured([options.lockstep, "pack", "--from", "mnist", "--input", DATA, "--output", f"{folder}/data", "--shards", 4])
        for seed in range(options.rounds):
            for case in options.cases:
                steps, _, momentum = case.partition(":")
                run = train(options, f"{folder}/data", f"{folder}/run-{case}-{seed}", 0 if steps == "1" else int(steps), momentum or "average", seed)
                runs[case].append(run)
                print(json.dumps({"case": case, **run}), file=sys.stderr, flush=True)
    rows = rows_of(runs)
    for row in rows:
        text = f"{row['case']:>8}: top-1 {row['top1_mean']:.4f} +- {row['top1_deviation']:.4f}"
        if "difference_mean" in row:
            text += f", by seed {row['difference_mean']:+.4f} +- {row['difference_deviation']:.4f}"
        print(text)
    write(comparison("accuracy of local SGD", options, machine=machine, data="Fashion-MNIST", cores=CORES, ranks=options.ranks, width=options.width, epochs=options.epochs,
                     start=options.start, rows=rows), options.output)


if __name__ == "__main__":
    main()
