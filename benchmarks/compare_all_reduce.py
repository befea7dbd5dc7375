#!/usr/bin/env python3
"""compare_all_reduce.py LOCKSTEP OUTPUT.json: compares Open MPI's nonblocking all-reduce algorithms between rate-limited virtual nodes.

For each algorithm, runs `bench allreduce`, and `bench step` with ResNet-50's gradients of 102 MB. Bytes are counted on each node's link, as the
difference between a long and a short run. All nodes share this machine's cores, so the times reflect the network more than the computation.
Needs root and iproute2.
"""

import json
import pathlib
import statistics
import sys
import tempfile
import time

from harness import CORES, arguments, busy_seconds, comparison, write

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "system"))
from virtual_nodes import VirtualNodes, why_not  # noqa: E402

VARIABLE = "OMPI_MCA_coll_libnbc_iallreduce_algorithm"
ALGORITHMS = {"Open MPI's own choice": "0", "ring": "1", "Rabenseifner": "3"}
STEPS = 4
STEP = ["bench", "step", "--model", "resnet50", "--image-size", 32, "--batch-size", 1, "--threads", 1, "--comm", "mpi", "--device", "cpu", "--input",
        "batch", "--no-deterministic", "--warmup", 1, "--json", "--steps"]
ALL_REDUCE = ["bench", "allreduce", "--warmup", 1, "--steps", 3, "--json"]


def share_of_others(seconds=2):
    """Share of the machine's CPU time that other processes use while no benchmark runs."""
    before = busy_seconds()
    time.sleep(seconds)
    return (busy_seconds() - before) / (seconds * CORES)


def measured(nodes, ranks_per_node, command, algorithm):
    """Returns the last output line as JSON, the bytes that each node sent, and the share of the machine that others used just before."""
    others = share_of_others()
    status, output, sent = nodes.run(command, ranks_per_node, {VARIABLE: algorithm}, seconds=600)
    if status != 0:
        sys.exit(f"{command}: status {status}\n{output}")
    result = json.loads(next(line for line in reversed(output.splitlines()) if line.startswith("{")))
    return result, sent, others


def row(program, nodes, ranks_per_node, name):
    algorithm = ALGORITHMS[name]
    _, sent_to_start, _ = measured(nodes, ranks_per_node, [program, *STEP, 1], algorithm)
    step, sent_in_all, others = measured(nodes, ranks_per_node, [program, *STEP, STEPS], algorithm)
    sent = [(whole - start) / (STEPS - 1) for whole, start in zip(sent_in_all, sent_to_start)]
    reduced, _, others_too = measured(nodes, ranks_per_node, [program, *ALL_REDUCE], algorithm)
    largest = reduced["rows"][-1]
    return step["machine"], {
        "nodes": nodes.count, "ranks_per_node": ranks_per_node, "algorithm": name, "others_share_of_machine_before": max(others, others_too),
        "all_reduce_bytes": largest["bytes"], "all_reduce_started_seconds_median": largest["started_seconds_median"],
        "step_seconds_median": step["step_seconds_median"], "step_seconds_p10": step["step_seconds_p10"], "step_seconds_p90": step["step_seconds_p90"],
        "step_exposed_communication_seconds": step["exposed_communication_seconds"],
        "megabytes_sent_in_a_step_by_node": [round(bytes / 1e6, 1) for bytes in sent], "sent_max_to_mean": round(max(sent) / statistics.mean(sent), 3)}


def main():
    parser = arguments(__doc__, rounds=1)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--nodes", nargs="+", default=["8x1", "4x2", "6x1"], metavar="NODESxRANKS")
    options = parser.parse_args()
    if why_not():
        sys.exit(f"compare_all_reduce: {why_not()}")
    result = comparison("all-reduce between nodes", options, rate=options.rate, rows=[])
    for shape in options.nodes:
        count, ranks_per_node = map(int, shape.split("x"))
        for _ in range(options.rounds):
            for name in ALGORITHMS:
                with tempfile.TemporaryDirectory() as folder, VirtualNodes(pathlib.Path(folder) / "nodes", count, options.rate) as nodes:
                    result["machine"], measurement = row(options.lockstep, nodes, ranks_per_node, name)
                result["rows"].append(measurement)
                print(f"{shape}, {name}: 102 MB in {measurement['all_reduce_started_seconds_median']:.2f} s, step {measurement['step_seconds_median']:.2f} s, "
                      f"sent max / mean {measurement['sent_max_to_mean']:.2f}; others took {measurement['others_share_of_machine_before']:.0%}", flush=True)
                write(result, options.output)


if __name__ == "__main__":
    main()
