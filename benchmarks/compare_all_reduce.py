#!/usr/bin/env python3
"""compare_all_reduce.py LOCKSTEP OUTPUT.json: compares how ranks of rate-limited virtual nodes sum: by messages or by Open MPI's algorithms.

For each way, runs `bench allreduce`, and `bench step` with ResNet-50's gradients of 102 MB. Bytes are counted on each node's link, as the
difference between a long and a short run. All nodes share this machine's cores, so the times reflect the network more than the computation.
Needs root and iproute2.
"""

import itertools
import json
import pathlib
import statistics
import sys
import tempfile
import time

from harness import CORES, arguments, busy_seconds, comparison, write

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "network"))
from virtual_nodes import VirtualNodes, link_bytes_per_second, why_not  # noqa: E402

VARIABLE = "OMPI_MCA_coll_libnbc_iallreduce_algorithm"
# --allreduce, and the value of Open MPI's variable.
ALGORITHMS = {"halving": ("halving", "0"), "ring": ("ring", "0"), "Open MPI's own choice": ("mpi", "0"), "Open MPI's ring": ("mpi", "1"),
              "Open MPI's Rabenseifner": ("mpi", "3")}
STEPS = 4
STEP = ["bench", "step", "--model", "resnet50", "--threads", 1, "--device", "cpu", "--input", "batch", "--no-deterministic", "--warmup", 1, "--json"]
ALL_REDUCE = ["bench", "allreduce", "--warmup", 1, "--steps", 2, "--json"]


def share_of_others(seconds=2):
    """Share of the machine's CPU time that other processes use while no benchmark runs."""
    before = busy_seconds()
    time.sleep(seconds)
    return (busy_seconds() - before) / (seconds * CORES)


def measured(nodes, ranks_per_node, command, algorithm, progress):
    """Returns the last output line as JSON, the bytes that each node sent, and the share of the machine that others used just before."""
    others = share_of_others()
    choice, variable = algorithm
    command = [*command, "--allreduce", choice, "--comm-progress", progress]
    status, output, sent = nodes.run(command, ranks_per_node, {VARIABLE: variable}, seconds=600)
    if status != 0:
        sys.exit(f"{command}: status {status}\n{output}")
    result = json.loads(next(line for line in reversed(output.splitlines()) if line.startswith("{")))
    return result, sent, others


def reductions(program, nodes, ranks_per_node, progress):
    """By way: its row of the largest message, with the same fields for all ways. A run measures a schedule of messages and an algorithm of MPI."""
    found = {}
    for messages, library in (("halving", "Open MPI's own choice"), ("ring", "Open MPI's ring"), ("halving", "Open MPI's Rabenseifner")):
        result, _, others = measured(nodes, ranks_per_node, [program, *ALL_REDUCE], (messages, ALGORITHMS[library][1]), progress)
        largest = result["rows"][-1]
        for name, first, prefix in ((messages, "messages_", "messages_"), (library, "started_", "")):
            found[name] = {"schedule": result["algorithm"] if prefix else "", "bytes": largest["bytes"], "others": others,
                           "all_reduce": largest[f"{first}seconds_median"], "reduce_scatter": largest[f"{prefix}reduce_scatter_seconds_median"],
                           "all_gather": largest[f"{prefix}all_gather_seconds_median"],
                           "left": {row["bytes"]: round(row["messages_left_seconds_median"], 4) for row in result["rows"]} if prefix else {}}
    return found


def row(program, nodes, ranks_per_node, name, progress, step_options, reduced):
    algorithm = ALGORITHMS[name]
    step_command = [program, *STEP, *step_options, "--steps"]
    _, sent_to_start, _ = measured(nodes, ranks_per_node, [*step_command, 1], algorithm, progress)
    step, sent_in_all, others = measured(nodes, ranks_per_node, [*step_command, STEPS], algorithm, progress)
    sent = [(whole - start) / (STEPS - 1) for whole, start in zip(sent_in_all, sent_to_start)]
    # At least (N - 1) / N of the values leave each node in a reduce-scatter or an all-gather.
    optimum = (nodes.count - 1) / nodes.count * reduced["bytes"] / link_bytes_per_second(nodes.rate)
    return step["machine"], {
        "nodes": nodes.count, "ranks_per_node": ranks_per_node, "algorithm": name, "progress": progress, "schedule": reduced["schedule"],
        "others_share_of_machine_before": max(others, reduced["others"]), "all_reduce_bytes": reduced["bytes"],
        "all_reduce_started_seconds_median": reduced["all_reduce"], "all_reduce_to_optimum": round(reduced["all_reduce"] / optimum / 2, 3),
        "reduce_scatter_seconds_median": reduced["reduce_scatter"], "reduce_scatter_to_optimum": round(reduced["reduce_scatter"] / optimum, 3),
        "all_gather_seconds_median": reduced["all_gather"], "all_gather_to_optimum": round(reduced["all_gather"] / optimum, 3),
        "all_reduce_seconds_left_after_computation_of_200_ms_by_bytes": reduced["left"],
        "step_seconds_median": step["step_seconds_median"], "step_seconds_p10": step["step_seconds_p10"], "step_seconds_p90": step["step_seconds_p90"],
        "step_exposed_communication_seconds": step["exposed_communication_seconds"],
        "share_of_all_reduce_hidden": round(1 - step["exposed_communication_seconds"] / reduced["all_reduce"], 3),
        "megabytes_sent_in_a_step_by_node": [round(bytes / 1e6, 1) for bytes in sent], "sent_max_to_mean": round(max(sent) / statistics.mean(sent), 3)}


def main():
    parser = arguments(__doc__, rounds=1)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--image-size", default="32", help="of the step's images: the larger, the longer is backward")
    parser.add_argument("--batch-size", default="1")
    parser.add_argument("--ways", nargs="+", choices=list(ALGORITHMS), default=list(ALGORITHMS))
    parser.add_argument("--nodes", nargs="+", default=["8x1", "4x2", "6x1"], metavar="NODESxRANKS")
    parser.add_argument("--progress", nargs="+", choices=["calls", "thread"], default=["calls", "thread"], help="of messages, while ranks compute")
    options = parser.parse_args()
    if why_not():
        sys.exit(f"compare_all_reduce: {why_not()}")
    step_options = ["--image-size", options.image_size, "--batch-size", options.batch_size]
    result = comparison("all-reduce between nodes", options, rate=options.rate, step=" ".join(step_options), rows=[])
    for shape, progress in itertools.product(options.nodes, options.progress):
        count, ranks_per_node = map(int, shape.split("x"))
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as folder, VirtualNodes(pathlib.Path(folder) / "nodes", count, options.rate) as nodes:
                reduced = reductions(options.lockstep, nodes, ranks_per_node, progress)
            for name in options.ways:
                with tempfile.TemporaryDirectory() as folder, VirtualNodes(pathlib.Path(folder) / "nodes", count, options.rate) as nodes:
                    result["machine"], measurement = row(options.lockstep, nodes, ranks_per_node, name, progress, step_options, reduced[name])
                result["rows"].append(measurement)
                print(f"{shape}, {name}, {progress}: 102 MB in {measurement['all_reduce_started_seconds_median']:.2f} s "
                      f"({measurement['all_reduce_to_optimum']:.2f}; scatter {measurement['reduce_scatter_to_optimum']:.2f}, "
                      f"gather {measurement['all_gather_to_optimum']:.2f}), step {measurement['step_seconds_median']:.2f} s, "
                      f"exposed {measurement['step_exposed_communication_seconds']:.2f}, hidden {measurement['share_of_all_reduce_hidden']:.2f}, "
                      f"sent max / mean {measurement['sent_max_to_mean']:.2f}; others took {measurement['others_share_of_machine_before']:.0%}", flush=True)
                write(result, options.output)


if __name__ == "__main__":
    main()
