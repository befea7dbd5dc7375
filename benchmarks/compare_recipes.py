#!/usr/bin/env python3
"""compare_recipes.py LOCKSTEP OUTPUT.json: compares with PyTorch the accuracy that a recipe reaches on Fashion-MNIST, by epoch, and its time to an accuracy.

A recipe is a file of options of `lockstep train`; PyTorch's side (PEER of compare_training.py) follows the same options, or refuses them. With
auto-augment its images go through one worker process and Pillow, as torchvision's do. Each round has one seed, and both
sides start from the weights that Lockstep initializes with it; orders, augmentation and mixup are each side's own. PyTorch mixes a batch with one weight
from its distribution, as torchvision's references/classification do, and Lockstep each pair with its own.
The difference of the last epoch's mean top-1 is divided by the pooled standard deviation of the seeds. Time: from the command to the end of the first
evaluation that reaches --target. --alone runs one program at a time on all cores; without it, one program runs on each core, which is for accuracy only.
"""

import concurrent.futures
import datetime
import json
import math
import os
import pathlib
import re
import statistics
import sys
import tempfile

from compare_training import BATCH, DATA, PEER, write_start
from harness import Peer, arguments, bench_step, comparison, measured, note_of_others, others_in, parity_folder, ratio, shown, spread_of, write

TOP = pathlib.Path(__file__).resolve().parent.parent
LOGGED = re.compile(r"^(\S+ \S+) I evaluation( of the average)? at step .* top-1 ([\d.]+),", re.MULTILINE)

KEYS = {"top1": "weights", "ema_top1": "average of the weights"}


# What PEER reads, and what it fixes.
READ = {"width", "epochs", "weight-decay", "lr", "nesterov", "label-smoothing", "warmup-epochs", "ema-decay", "ema-every", "augment", "crop-padding",
        "auto-augment", "mixup"}
FIXED = {"model": "mini-resnet", "global-batch-size": str(BATCH), "optimizer": "sgd", "momentum": "0.9", "lr-schedule": "cosine",
         "augment": "crop-flip", "auto-augment": "trivialaugment", "auto-augment-interpolation": "nearest"}


def read_recipe(path):
    lines = pathlib.Path(path).read_text().splitlines()
    recipe = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    for name, value in recipe.items():
        if name not in READ and name not in FIXED:
            raise SystemExit(f"{path}: PyTorch's side does not read {name}={value}; drop it, or teach it to PEER of compare_training.py")
        if FIXED.get(name, value) != value:
            raise SystemExit(f"{path}: PyTorch's side has {name}={FIXED[name]}, not {value}; use that, or teach it to PEER of compare_training.py")
    return recipe


def logged_evaluations(log):
    """The evaluations that a run's log tells, those of weights and average at one step together."""
    evaluations = []
    for time, average, top1 in LOGGED.findall(log):
        if not average:
            evaluations.append({})
        evaluations[-1].update({"ema_top1" if average else "top1": float(top1), "at": datetime.datetime.fromisoformat(time).timestamp()})
    return evaluations


def lockstep(options, data, run, seed):
    done = measured([options.lockstep, "train", "--config", options.recipe, "--epochs", options.epochs, "--data", data, "--run-dir", run, "--seed", seed,
                     "--device", "cpu"])
    return {**done, "evaluations": logged_evaluations((pathlib.Path(run) / "log/rank-00000.log").read_text())}


def pytorch(options, recipe, seed, start):
    steps = options.epochs * (60000 // BATCH)
    peer = Peer(options.python, "tuned" if options.alone else "default")
    return peer.run(PEER, parity_folder(), json.dumps([DATA, int(recipe["width"]), steps, steps, peer.threads, "fp32", BATCH, seed, start, recipe]))


def run_all(rounds, programs, alone):
    """Each program's results by name, with the seeds 0 to rounds - 1. Either one program runs at a time, or one on each core."""
    cores = sorted(os.sched_getaffinity(0))

    def train(name, program, seed):
        run = program(seed)
        print(json.dumps({"program": name, "seed": seed, **run}), file=sys.stderr, flush=True)
        return run

    # A thread's affinity is that of its processes.
    pool = concurrent.futures.ThreadPoolExecutor(1) if alone else concurrent.futures.ThreadPoolExecutor(
        len(cores), initializer=lambda: os.sched_setaffinity(0, {cores.pop()}))
    with pool:
        runs = [{name: pool.submit(train, name, program, seed) for name, program in programs.items()} for seed in range(rounds)]
        return {name: [row[name].result() for row in runs] for name in programs}


def curves(runs, key):
    """Per seed, the values of all epochs."""
    return [[evaluation[key] for evaluation in run["evaluations"]] for run in runs if key in run["evaluations"][0]]


def mean_and_deviation(values):
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0


def with_times(runs, target):
    """Adds to each run the seconds from its command to the first evaluation of the weights or the average that reaches the target."""
    for run in runs:
        for evaluation in run["evaluations"]:
            evaluation["seconds"] = evaluation.pop("at") - run["began"]
        run["seconds_to_target"] = next((evaluation["seconds"] for evaluation in run["evaluations"]
                                         if target and max(evaluation["top1"], evaluation.get("ema_top1", 0)) >= target), None)


def report(sides, target, alone):
    """Prints and returns means, deviations, differences and, of programs that ran alone, times."""
    with_times([run for runs in sides.values() for run in runs], target)
    rows = {name: {} for name in sides}
    differences = {}
    for key in KEYS:
        for name, runs in sides.items():
            if values := curves(runs, key):
                mean, deviation = mean_and_deviation([curve[-1] for curve in values])
                rows[name][key] = {"mean": mean, "deviation": deviation, "curves": values}
        ours, theirs = (row.get(key) for row in rows.values())
        if not (ours and theirs):
            continue
        difference, pooled = ours["mean"] - theirs["mean"], math.hypot(ours["deviation"], theirs["deviation"]) / math.sqrt(2)
        differences[key] = {"difference": difference, "deviations": difference / pooled if pooled else None}
        print(f"{KEYS[key]}: " + ", ".join(f"{name} {row[key]['mean']:.4f} +- {row[key]['deviation']:.4f}" for name, row in rows.items())
              + f", difference {difference:+.4f}" + (f" or {difference / pooled:+.2f} deviations" if pooled else ""))
    result = {"sides": rows, "differences": differences}
    if alone:
        result["others_share_of_machine"] = others_in(sides.values())
        for name, runs in sides.items():
            rows[name].update(seconds=curves(runs, "seconds"), command_seconds=spread_of(runs, "command_seconds"),
                              seconds_to_target=[run["seconds_to_target"] for run in runs])
        ours, theirs = sides.values()
        if all(run["seconds_to_target"] for run in ours + theirs):
            result["time_ratio"] = ratio(theirs, ours, "seconds_to_target")
            print(f"seconds to {target:.1%}: " + ", ".join(f"{name} {spread_of(runs, 'seconds_to_target')['median']:.1f}" for name, runs in sides.items())
                  + f"; Lockstep is {shown(result['time_ratio'])} times faster{note_of_others(result['others_share_of_machine'])}")
    return result


def draw(path, sides):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    keys = {key: title for key, title in KEYS.items() if all(curves(runs, key) for runs in sides.values())}
    plt.rcParams["svg.fonttype"] = "none"
    figure, panels = plt.subplots(1, len(keys), figsize=(4 * len(keys), 3.2), sharey=True, squeeze=False)
    for axes, (key, title) in zip(panels[0], keys.items()):
        for (name, runs), colour in zip(sides.items(), ("#3b6fb6", "#d9822b")):
            mean, deviation = zip(*(mean_and_deviation([100 * value for value in epoch]) for epoch in zip(*curves(runs, key))))
            epochs = range(1, len(mean) + 1)
            axes.fill_between(epochs, [m - d for m, d in zip(mean, deviation)], [m + d for m, d in zip(mean, deviation)], color=colour, alpha=0.2, lw=0)
            axes.plot(epochs, mean, "o-", ms=4, color=colour, label=f"{name}: {mean[-1]:.2f} ± {deviation[-1]:.2f} %")
        axes.set(title=title, xlabel="epoch", xticks=list(epochs))
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right")
    panels[0][0].set_ylabel("top-1 of 10,000 test images, %")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--recipe", default=str(TOP / "benchmarks/modern-recipe.conf"))
    parser.add_argument("--epochs", type=int, help="instead of the recipe's")
    parser.add_argument("--target", type=float, default=0, help="top-1 between 0 and 1 to which the time is measured")
    parser.add_argument("--alone", action="store_true", help="one program at a time, on all cores")
    parser.add_argument("--python", default="/usr/bin/python3", help="with torch and torchvision")
    parser.add_argument("--picture", help="file for the curves")
    options = parser.parse_args()
    recipe = read_recipe(options.recipe)
    options.epochs = options.epochs or int(recipe["epochs"])
    options.width, options.precision = recipe["width"], "fp32"
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/data"
        measured([options.lockstep, "pack", "--from", "mnist", "--input", DATA, "--output", data, "--shards", 4])
        starts = [write_start(options, data, folder, seed) for seed in range(options.rounds)]
        sides = run_all(options.rounds, {"Lockstep": lambda seed: lockstep(options, data, f"{folder}/run-{seed}", seed),
                                         "PyTorch": lambda seed: pytorch(options, recipe, seed, starts[seed])}, options.alone)
    engine = measured(bench_step(options.lockstep, model="mini-resnet", image_size=28, channels=1, classes=10, width=recipe["width"], batch_size=BATCH, steps=1))
    result = comparison("accuracy of a recipe beside PyTorch", options, machine=engine["machine"], engine=engine["engine"], data="Fashion-MNIST",
                        recipe=recipe, epochs=options.epochs, pytorch=sides["PyTorch"][0]["version"], **report(sides, options.target, options.alone))
    if options.picture:
        draw(options.picture, sides)
    write(result, options.output)


if __name__ == "__main__":
    main()
