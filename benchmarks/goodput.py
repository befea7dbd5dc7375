#!/usr/bin/env python3
"""goodput.py LOCKSTEP OUTPUT.json [--rounds ROUNDS] [--seeds SEEDS] [--days DAYS] [options]: the share of the time that trains, with failures.

Simulates jobs of 64 to 4,096 GPUs, eight a node, whose failures are exponentially distributed. A failure loses the work since the last
checkpoint that was completely written, and the time of a restart, in which the next failure may come. The mean time between failures is that
of `--node-mttf` divided by the nodes; its default is what Meta published for jobs of 1,024 GPUs, 7.9 h (Kokolis et al., "Revisiting
Reliability in Large-Scale Machine Learning Research Clusters", 2024).

Measured here: how long a save of ResNet-50 delays training and how long it is written (`lockstep bench checkpoint`), and the time from the
command of a resumed run to its first step. What depends on a cluster is stated by options.
"""

import json
import math
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import tempfile
import time

from harness import arguments, comparison, measured, spread, spread_of, write

IMAGENET = 1_281_167
FIRST, SHORTEST, ASSUMED, BETWEEN_EPOCHS = 600, 60, 1, 10  # as SaveSchedule: seconds
NETWORK = ["--synthetic", "--model", "resnet50", "--image-size", "32", "--classes", "1000", "--batch-size", "4", "--progress", "plain"]


def checkpoint_costs(program, folder):
    return measured([program, "bench", "checkpoint", "--model", "resnet50", "--directory", folder, "--json"])


def start_seconds(program, run_dir):
    """From the command of a run that resumes to its first step, by the trace, whose clock is this script's."""
    step = 2 if (run_dir / "checkpoints").exists() else 1
    train = [program, "train", *NETWORK, "--run-dir", run_dir, "--max-steps"]
    if step == 1:
        subprocess.run([*map(str, train), "1"], check=True, capture_output=True)
    begin = time.monotonic()
    subprocess.run([*map(str, train), "2", "--profile-steps", "2:2"], check=True, capture_output=True)
    trace = json.loads((run_dir / "trace-2-2.json").read_text())
    return 1e-6 * min(e["ts"] for e in trace["traceEvents"] if e["name"] == "step") - begin


def young(cost, mttf):
    return math.sqrt(2 * cost * mttf)


def default_interval(cost, mttf):
    return max(SHORTEST, young(cost, mttf))


def policies(cost, written, mttf, epoch):
    """First and later seconds of training between saves, by name."""
    first = min(FIRST, default_interval(ASSUMED, mttf))
    default = default_interval(cost, mttf)
    ends = epoch * math.ceil(max(BETWEEN_EPOCHS, 100 * cost) / epoch)
    found = {"default": (first, default), "default, epochs of ImageNet": (min(first, epoch), min(default, ends)),
             "every epoch of ImageNet": (epoch, epoch), "1 min": (60, 60), "1 h": (3600, 3600)}
    return {name: (first, max(later, written)) for name, (first, later) in found.items()}  # a save waits for the one before


def saved_work(uptime, intervals, cost, written):
    """Seconds of training in the last checkpoint that was complete when a job failed that had run for `uptime`."""
    first, later = intervals
    left = uptime - first - cost - written
    if left < 0:
        return 0.0
    return first + later * math.floor(left / (later + cost))


def goodput(seed, days, mttf, restart, intervals, cost, written):
    """The share of the time that was spent on training that counts."""
    chance, end, now, done = random.Random(seed), 86400 * days, 0.0, 0.0
    while now < end:
        uptime = chance.expovariate(1 / mttf)  # a restart, then training
        now += uptime
        done += saved_work(uptime - restart, intervals, cost, written)
    return done / now


def closed_form(mttf, restart, interval, cost, written):
    """Daly's expected time of an interval with failures (2006, equation 13), where a failure also loses what is not written yet."""
    return interval / (mttf * math.exp((restart + written) / mttf) * math.expm1((interval + cost) / mttf))


def row(options, gpus, restart, cost, written):
    nodes = gpus / 8
    mttf = 3600 * options.node_mttf / nodes
    epoch = IMAGENET / (options.images_per_second * gpus)
    found = {}
    for name, intervals in policies(cost, written, mttf, epoch).items():
        shares = [goodput(seed, options.days, mttf, restart, intervals, cost, written) for seed in range(options.seeds)]
        cut = statistics.quantiles(shares, n=20)
        found[name] = {"interval_seconds": intervals[1], **spread(shares), "mean": statistics.fmean(shares), "p5": cut[0], "p95": cut[-1],
                       "closed_form": closed_form(mttf, restart, intervals[1], cost, written)}
    return {"gpus": gpus, "mttf_hours": mttf / 3600, "restart_seconds": restart, "save_delay_seconds": cost, "write_seconds": written,
            "epoch_seconds": epoch, "goodput": found}


def show(row):
    print(f"{row['gpus']} GPUs, a failure every {row['mttf_hours']:.1f} h, restart {row['restart_seconds']:.0f} s, a save delays by "
          f"{row['save_delay_seconds']:.3f} s and is written in {row['write_seconds']:.1f} s")
    for name, one in row["goodput"].items():
        print(f"  {name:<28} every {one['interval_seconds']:>6.1f} s   {one['mean']:>7.2%} ({one['p5']:.2%} to {one['p95']:.2%})   "
              f"closed form {one['closed_form']:.2%}")


def main():
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--days", type=float, default=30, help="length of a simulated job")
    parser.add_argument("--gpus", type=int, nargs="+", default=[64, 256, 1024, 4096])
    parser.add_argument("--node-mttf", type=float, default=7.9 * 128, help="hours")
    parser.add_argument("--images-per-second", type=float, default=9000, help="of a GPU: length of ImageNet's epochs")
    parser.add_argument("--detect", type=float, default=42, help="seconds until the job of a lost node has ended")
    parser.add_argument("--requeue", type=float, default=120, help="seconds until the scheduler starts it again")
    parser.add_argument("--begin", type=float, default=120, help="seconds on a cluster from the launch to the first step")
    parser.add_argument("--restarts", type=float, nargs="*", default=[600, 840], help="other seconds of a restart, as of a job that hung")
    parser.add_argument("--delays", type=float, nargs="*", default=[1, 10], help="other seconds by which a save delays training")
    parser.add_argument("--write-seconds", type=float, default=30, help="with those, and with the stated restarts")
    options = parser.parse_args()
    program, folder = os.path.abspath(options.lockstep), pathlib.Path(tempfile.mkdtemp(prefix="lockstep-goodput-"))
    try:
        bench = [checkpoint_costs(program, folder) for _ in range(options.rounds)]
        starts = [start_seconds(program, folder / f"start-{i}") for i in range(options.rounds)]
    finally:
        shutil.rmtree(folder)
    found = {"delay_seconds": spread_of(bench, "stall_seconds_median"), "write_seconds": spread_of(bench, "write_seconds_median"),
             "bytes": bench[0]["bytes"], "start_seconds": spread(starts),
             "used_by_others": max(run["others"] for run in bench)}
    result = comparison("goodput with failures", options, machine=bench[0]["machine"], measured=found,
                        stated={key: value for key, value in vars(options).items() if key not in ("lockstep", "output", "rounds")}, rows=[])
    for name, one in found.items():
        print(name, one if not isinstance(one, dict) else f"{one['median']:.4g} ({one['min']:.4g} to {one['max']:.4g})")
    delay, written, start = (found[key]["median"] for key in ("delay_seconds", "write_seconds", "start_seconds"))
    cluster = options.detect + options.requeue + options.begin
    cases = [(gpus, options.detect + options.requeue + start, delay, written) for gpus in options.gpus]
    cases += [(gpus, restart, cost, options.write_seconds) for gpus in options.gpus
              for restart, cost in [(cluster, delay), *((other, delay) for other in options.restarts), *((cluster, cost) for cost in options.delays)]]
    for case in cases:
        result["rows"].append(row(options, *case))
        show(result["rows"][-1])
    write(result, options.output)


if __name__ == "__main__":
    main()
