#!/usr/bin/env python3
"""compare_scale.py LOCKSTEP OUTPUT.json --simulate SIMULATE_STEP: a step as measured between virtual nodes, as `lockstep scale` predicts it and as SimGrid simulates it.

What the prediction and the simulation need is measured first: how fast ranks compute that share this machine's cores but exchange nothing, what
bytes between two nodes cost, and the rate of a link. Then each case is measured, predicted and simulated from these. Needs root and iproute2.
"""

import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent), str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "network")]
from harness import CORES, arguments, bench_step, comparison, write  # noqa: E402
from virtual_nodes import SETTINGS, VirtualNodes, link_bytes_per_second, why_not  # noqa: E402

CASES = ["2x1", "4x1", "8x1", "4x2"]
MODES = ["none", "grad", "full", "hybrid"]


def last_json(output):
    return json.loads(next(line for line in reversed(output.splitlines()) if line.startswith("{")))


class Bench:
    def __init__(self, options):
        self.lockstep, self.rate = options.lockstep, options.rate
        self.model = ["--model", options.model, "--image-size", options.image_size, "--batch-size", options.batch_size]
        self.step = [*bench_step(options.lockstep, threads=1, device="cpu", input="batch"), *self.model, "--no-deterministic"]

    def images_per_second(self, ranks):
        """Of one of `ranks` processes that compute at once and exchange nothing."""
        command = [*self.step, "--warmup", "1", "--steps", "6"]
        with concurrent.futures.ThreadPoolExecutor(ranks) as pool:
            runs = list(pool.map(lambda _: subprocess.run(command, capture_output=True, text=True, check=True).stdout, range(ranks)))
        return statistics.median(last_json(run)["images_per_second"] for run in runs)

    def all_reduce(self, nodes, ranks_per_node, rate):
        """The rows of `bench allreduce`."""
        command = [self.lockstep, "bench", "allreduce", "--warmup", "1", "--steps", "2", "--json"]
        return between(nodes, ranks_per_node, rate, command)["rows"]

    def local_rate(self, nodes, ranks_per_node):
        """Bytes per second of a reduce-scatter in shared memory, while as many nodes do the same at once."""
        command = ["mpirun", "-n", ranks_per_node, self.lockstep, "bench", "allreduce", "--warmup", "1", "--steps", "2", "--json"]
        environment = {**os.environ, **SETTINGS}
        with concurrent.futures.ThreadPoolExecutor(nodes) as pool:
            runs = list(pool.map(lambda _: subprocess.run([*map(str, command)], capture_output=True, text=True, check=True, env=environment).stdout,
                                 range(nodes)))
        rows = [last_json(run)["rows"][-1] for run in runs]
        share = (ranks_per_node - 1) / ranks_per_node
        return statistics.median(2 * share * row["bytes"] / row["shared_seconds_median"] for row in rows)

    def measured(self, nodes, ranks_per_node, mode, group):
        command = [*self.step, "--warmup", "2", "--steps", "6", "--shard", mode, *(["--shard-group", str(group)] if mode == "hybrid" else [])]
        return between(nodes, ranks_per_node, self.rate, command)


def between(count, ranks_per_node, rate, command):
    with tempfile.TemporaryDirectory() as folder, VirtualNodes(pathlib.Path(folder) / "nodes", count, rate) as nodes:
        status, output, _ = nodes.run(command, ranks_per_node, seconds=600)
    if status != 0:
        sys.exit(f"{command}: status {status}\n{output}")
    return last_json(output)


def calibrate(bench):
    """Between two nodes without a limit of rate, each of two ranks has a core, so that the time is that of the cores."""
    rows = bench.all_reduce(2, 1, None)
    return {"link_bytes_per_second": link_bytes_per_second(bench.rate),
            "host_ns_per_byte": 1e9 * rows[-1]["messages_seconds_median"] / rows[-1]["bytes"],
            "round_us": 1e6 * rows[0]["messages_seconds_median"] / 2}


def of_shape(bench, costs, nodes, ranks_per_node):
    """The costs with the rates of these nodes: of links, as an all-reduce alone has it, and within a node."""
    largest = bench.all_reduce(nodes, ranks_per_node, bench.rate)[-1]
    return {**costs, "all_reduce_bytes_per_second": 2 * (nodes - 1) / nodes * largest["bytes"] / largest["messages_seconds_median"],
            "local_bytes_per_second": bench.local_rate(nodes, ranks_per_node) if ranks_per_node > 1 else 1e12}


def predicted(bench, options, nodes, ranks_per_node, group, costs, contention, images_per_second):
    command = [bench.lockstep, "scale", *bench.model, "--nodes", nodes, "--gpus-per-node", ranks_per_node, "--shard-group", group,
               "--link", f"{8e-6 * costs['all_reduce_bytes_per_second']:.3f}mbit", "--local-link", f"{8e-6 * costs['local_bytes_per_second']:.1f}mbit",
               "--round-us", costs["round_us"], "--host-ns-per-byte", contention * costs["host_ns_per_byte"],
               "--images-per-second", images_per_second, "--json", "--plans"]
    return json.loads(subprocess.run([*map(str, command)], capture_output=True, text=True, check=True).stdout)


def simulated(simulate, plans, mode, costs):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(plans, file)
        file.flush()
        command = [simulate, file.name, "--shard", mode, "--link", costs["link_bytes_per_second"] / 1e6, "--local-link",
                   costs["local_bytes_per_second"] / 1e6, "--latency", costs["round_us"] / 1e6, "--host-ns-per-byte", costs["host_ns_per_byte"],
                   "--cores", CORES]
        return json.loads(subprocess.run([*map(str, command)], capture_output=True, text=True, check=True).stdout)["step_seconds"]


def main():
    parser = arguments(__doc__, rounds=1)
    parser.add_argument("--simulate", required=True, help="the program simulate_step")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--image-size", default="64")
    parser.add_argument("--batch-size", default="4")
    parser.add_argument("--nodes", nargs="+", default=CASES, metavar="NODESxRANKS")
    parser.add_argument("--shard", nargs="+", default=MODES)
    options = parser.parse_args()
    if why_not():
        sys.exit(f"compare_scale: {why_not()}")
    bench = Bench(options)
    common = calibrate(bench)
    result = comparison("a step: predicted, simulated, measured", options, rate=options.rate, model=options.model, costs=[], rows=[])
    for shape in options.nodes:
        nodes, ranks_per_node = map(int, shape.split("x"))
        ranks = nodes * ranks_per_node
        contention = max(1, ranks / CORES)
        images_per_second = bench.images_per_second(ranks)
        costs = of_shape(bench, common, nodes, ranks_per_node)
        print(costs, flush=True)
        result["costs"].append({"nodes": nodes, "ranks_per_node": ranks_per_node, "images_per_second_of_a_rank": images_per_second, **costs})
        for mode in options.shard:
            group = ranks_per_node if ranks_per_node > 1 else ranks // 2
            if mode == "hybrid" and group in (1, ranks):
                continue
            plans = predicted(bench, options, nodes, ranks_per_node, group, costs, contention, images_per_second)
            alone = predicted(bench, options, nodes, ranks_per_node, group, costs, contention, images_per_second * contention)
            expected = next(row["step_seconds"] for row in plans["rows"] if row["shard"] == mode)
            replayed = simulated(options.simulate, alone, mode, costs)
            for _ in range(options.rounds):
                step = bench.measured(nodes, ranks_per_node, mode, group)
                result["machine"] = step.pop("machine")
                seconds = step["step_seconds_median"]
                result["rows"].append({"nodes": nodes, "ranks_per_node": ranks_per_node, "shard": mode, "shard_group": group,
                                       "measured_seconds": seconds,
                                       "measured_p10": step["step_seconds_p10"], "measured_p90": step["step_seconds_p90"],
                                       "predicted_seconds": expected, "simulated_seconds": replayed,
                                       "predicted_to_measured": expected / seconds, "simulated_to_measured": replayed / seconds})
                print(f"{shape} --shard {mode}: measured {seconds:.3f} s, predicted {expected:.3f} ({expected / seconds:.2f}), "
                      f"simulated {replayed:.3f} ({replayed / seconds:.2f})", flush=True)
                write(result, options.output)


if __name__ == "__main__":
    main()
