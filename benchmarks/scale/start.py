#!/usr/bin/env python3
"""start.py LOCKSTEP COUNTER OUTPUT.json [--ranks 8 16 32 64 128]: seconds, messages and bytes of each phase of a job's start.

COUNTER is liblockstep_count_messages.so. The smallest network on a small data set of 64 shards, every rank a process of its own on this host, with
--comm mpi, as between nodes. Messages are those of Open MPI's monitoring component. Fits messages to a + b log2(P), bytes to a + b P, and extrapolates
both to 4,096 ranks. Seconds are of processes that share the cores of this machine, so they are an upper bound.
"""

import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tests" / "system"))
TARGET = 4096
KEYS = ("sent_messages", "sent_bytes", "received_messages", "received_bytes")


def start(program, counter, folder, data, ranks):
    out = folder / f"counts-{ranks}.json"
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_WAIT_POLICY": "passive",
                   "LOCKSTEP_MODULE_PATH": "/nonexistent", "COUNT_MESSAGES_OUT": str(out), "COUNT_MESSAGES_BELOW": str(folder)}
    run_dir = folder / f"run-{ranks}"
    words = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "--mca", "btl", "self,vader",
             "--mca", "pml_monitoring_enable", "1", "-x", f"LD_PRELOAD={counter}", "-n", str(ranks), program, "train", "--data", str(data),
             "--run-dir", str(run_dir), "--model", "mlp", "--width", "8", "--batch-size", "1", "--max-steps", "1", "--threads", "1",
             "--comm", "mpi", "--progress", "plain"]
    begin = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise SystemExit(f"{ranks} ranks ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    seconds = time.monotonic() - begin
    first = json.loads((run_dir / "metrics.jsonl").read_text().splitlines()[0])
    return {"ranks": ranks, "command_seconds": seconds, "seconds": first["seconds"], "phases": json.loads(out.read_text())}


def fitted(points, law):
    """Least squares of value = a + b law(ranks), and that at TARGET, or the largest value measured if MPI's choice of algorithms makes values fall."""
    xs, ys = [law(ranks) for ranks, _ in points], [value for _, value in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys)) / sum((x - mean_x) ** 2 for x in xs)
    return {"constant": mean_y - slope * mean_x, "slope": slope, "extrapolated": max(*ys, mean_y + slope * (law(TARGET) - mean_x))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("counter")
    parser.add_argument("output")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 16, 32, 64, 128])
    options = parser.parse_args()
    os.environ.update(LOCKSTEP_PROGRAM=options.lockstep, LOCKSTEP_MPIRUN="mpirun")
    from harness import write_shards
    result = {"benchmark": "start", "date": datetime.date.today().isoformat(), "machine": {"host_cores": os.cpu_count(), "system": platform.platform()},
              "load_before": os.getloadavg()[0], "extrapolated_to_ranks": TARGET, "runs": [], "phases": []}
    with tempfile.TemporaryDirectory(prefix="lockstep-start-") as folder:
        folder = pathlib.Path(folder)
        data = write_shards(folder / "data", samples=1024, shards=64, shape=(8, 8, 3))
        for ranks in options.ranks:
            result["runs"].append(start(os.path.abspath(options.lockstep), os.path.abspath(options.counter), folder, data, ranks))
            print(f"{ranks} ranks: {result['runs'][-1]['command_seconds']:.1f} s", flush=True)
    result["load_after"] = os.getloadavg()[0]
    for i, first in enumerate(result["runs"][0]["phases"][:-1]):
        row = {"phase": first["phase"], "law_of_messages": "a + b log2(ranks)", "law_of_bytes": "a + b ranks"}
        for whose in ("rank_0", "most"):
            row[whose] = {key: fitted([(run["ranks"], run["phases"][i][whose][key]) for run in result["runs"]], math.log2 if "messages" in key else float)
                          for key in KEYS}
        result["phases"].append(row)
        at = {key: row["rank_0"][key]["extrapolated"] for key in KEYS}
        last = result["runs"][-1]["phases"][i]["rank_0"]
        print(f"{first['phase']:<12}{last['seconds']:>8.3f} s{last['sent_messages']:>7.0f}{last['received_messages']:>7.0f} messages"
              f"{last['sent_bytes'] / 1e3:>10.1f}{last['received_bytes'] / 1e3:>10.1f} kB; at {TARGET} (extrapolated)"
              f"{at['sent_messages']:>7.0f}{at['received_messages']:>7.0f}{at['sent_bytes'] / 1e3:>10.1f}{at['received_bytes'] / 1e3:>10.1f} kB")
    pathlib.Path(options.output).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
