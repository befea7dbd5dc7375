#!/usr/bin/env python3
"""compare_local_sgd_time.py LOCKSTEP OUTPUT.json: the time of a step of local SGD between virtual nodes, by steps between averages.

Each case trains on generated images with one rank a node; its result is the mean over 16 steps, which hold a whole number of averages. The nodes
share this machine's cores, so computing takes a larger share of a step than on nodes of their own. Needs root and iproute2.
"""

import json
import pathlib
import statistics
import sys
import tempfile

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent), str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "network")]
from harness import CORES, arguments, bench_step, comparison, measured, spread, write  # noqa: E402
from virtual_nodes import VirtualNodes, why_not  # noqa: E402

WARMUP = MEASURED = 16  # steps


def step_seconds(options, every, momentum):
    local = ["--sync-every", every, "--sync-momentum", momentum] if every else []
    with tempfile.TemporaryDirectory() as folder, VirtualNodes(f"{folder}/nodes", options.nodes, options.rate) as nodes:
        command = [options.lockstep, "train", "--synthetic", "--synthetic-samples", "4096", "--model", options.model, "--image-size", options.image_size,
                   "--batch-size", options.batch_size, "--max-steps", WARMUP + MEASURED, "--threads", 1, "--device", "cpu", "--no-deterministic",
                   "--run-dir", f"{folder}/run", "--save-every", 0, "--log-every", 1, "--progress", "plain", *local]
        status, output, sent = nodes.run(command, seconds=280)
        if status != 0:
            sys.exit(f"{command}: status {status}\n{output}")
        events = map(json.loads, pathlib.Path(folder, "run/metrics.jsonl").read_text().splitlines())
        steps = [event for event in events if event["event"] == "step" and event["step"] > WARMUP]
    assert len(steps) == MEASURED, len(steps)
    batch = options.nodes * int(options.batch_size)
    return {"step_seconds": statistics.mean(batch / step["images_per_second"] for step in steps),
            "sent_bytes_per_step": statistics.mean(sent) / (WARMUP + MEASURED)}


def main():
    parser = arguments(__doc__, rounds=1)
    parser.add_argument("--cases", nargs="+", default=["1", "4", "8", "16", "8:local"], metavar="STEPS[:MOMENTUM]",
                        help="steps between averages, 1: synchronous SGD; and --sync-momentum")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--image-size", default="64")
    parser.add_argument("--batch-size", default="4")
    options = parser.parse_args()
    if why_not():
        sys.exit(f"compare_local_sgd_time: {why_not()}")
    machine = measured(bench_step(options.lockstep, model="mlp", image_size=28, batch_size=1, steps=1))["machine"]
    runs = {case: [] for case in options.cases}
    for _ in range(options.rounds):
        for case in options.cases:
            steps, _, momentum = case.partition(":")
            runs[case].append(step_seconds(options, 0 if steps == "1" else int(steps), momentum or "average"))
            print(case, runs[case][-1], flush=True)
    rows = [{"case": case, "step_seconds": spread([run["step_seconds"] for run in done]), "runs": done} for case, done in runs.items()]
    write(comparison("time of a step of local SGD", options, machine=machine, rate=options.rate, nodes=options.nodes, cores=CORES, model=options.model,
                     image_size=int(options.image_size), batch_size=int(options.batch_size), rows=rows), options.output)


if __name__ == "__main__":
    main()
