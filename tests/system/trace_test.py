#!/usr/bin/env python3
"""Tests traces of steps (--profile-steps): the contents of the file, the steps that it covers, and when there is none."""

import os
import time

from harness import *  # noqa: F403

FAULTS = os.environ["LOCKSTEP_TEST_FAULTS"]
ROWS = ("steps", "phases", "network", "collectives under way", "waiting for ranks", "evaluation batches", "save", "loader 0", "evaluation loader 0")
PHASES = {"forward", "backward", "data", "reduction wait", "update"}
SMALLEST = 0.0011  # microseconds: rounding of times, which are printed in whole nanoseconds


class Rank:
    """A process of the file, with the events of its threads by row."""

    def __init__(self, events):
        self.name = next(e["args"]["name"] for e in events if e["name"] == "process_name")
        names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
        assert len(set(names.values())) == len(names), names
        self.rows = {}
        for event in sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"]):
            assert event["dur"] >= 0, event
            self.rows.setdefault(names[event["tid"]].split(" (")[0], []).append(event)
        self.threads = set(names.values())
        for thread in names:
            on_it = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and e["tid"] == thread)
            assert all(a[1] <= b[0] + SMALLEST for a, b in zip(on_it, on_it[1:])), f"{names[thread]} overlaps: {on_it[:9]}"

    def row(self, name, step=None):
        return [e for e in self.rows.get(name, []) if step is None or e["args"].get("step") == step]


def read(path):
    """Returns the file's ranks, and its other contents."""
    content = json.loads(pathlib.Path(path).read_text())
    by_rank = {}
    for event in content["traceEvents"]:
        assert event["ph"] in "XM", event
        by_rank.setdefault(event["pid"], []).append(event)
    ranks = [Rank(by_rank[rank]) for rank in range(len(by_rank))]
    for rank, one in enumerate(ranks):
        assert one.name.startswith(f"rank {rank} on "), one.name
    return ranks, content["otherData"]


def end(event):
    return event["ts"] + event["dur"]


def within(event, other, uncertain=SMALLEST):
    return event["ts"] >= other["ts"] - uncertain and end(event) <= end(other) + uncertain


def check_steps(rank, first, last, micro_steps):
    """Checks that the rank has exactly these steps, and that each phase is within its step."""
    steps = rank.row("steps")
    assert [e["args"]["step"] for e in steps] == list(range(first, last + 1)), steps
    for step in steps:
        phases = rank.row("phases", step["args"]["step"])
        assert {e["name"] for e in phases} == PHASES, phases
        assert all(within(e, step) for e in phases), (step, phases)
        for name in ("forward", "backward", "data"):
            assert [e["args"]["micro-step"] for e in phases if e["name"] == name] == list(range(micro_steps)), phases
    others = {e["name"] for e in rank.row("phases") if "step" not in e["args"]}
    assert others <= {"evaluation", "replica check", "copy for a save", "wait for a save"}, others


def gradient_bytes(run_dir):
    """The bytes of all gradients in the arena, with the tail, as rounded in the log."""
    log = (pathlib.Path(run_dir) / "log" / "rank-00000.log").read_text()
    return float(log.split("MiB parameters, ")[1].split(" MiB gradients")[0]) * 2**20


def every_rank_has_every_row_of_the_requested_steps(folder):
    data = write_shards(folder / "data")
    write_shards(folder / "data", samples=20, shards=1, split="val", seed=1)
    for ranks in (1, 2, 3):
        run_dir = folder / f"run-{ranks}"
        output = run(train_args(data, run_dir, "--profile-steps", "3:6", "--max-steps", 9, "--bucket-mb", 0.01, "--accumulate", 2,
                                "--eval-every", 0.25, "--save-every", 4), ranks)
        assert f"trace: steps 3 to 6 in {run_dir}/trace-3-6.json" in output, output
        traced, other = read(run_dir / "trace-3-6.json")
        assert len(traced) == ranks and (other["first_step"], other["last_step"]) == (3, 6), other
        assert [r["rank"] for r in other["ranks"]] == list(range(ranks)), other
        for rank, one in enumerate(other["ranks"]):
            # All ranks on this machine have the same clock.
            assert abs(one["clock_offset_us"]) <= one["clock_uncertainty_us"] < 1e5, other
            assert one["dropped_events"] == 0 and (rank > 0 or one["clock_uncertainty_us"] == 0), other
        total = None
        for rank in traced:
            assert rank.threads >= set(ROWS), (rank.name, rank.threads)
            check_steps(rank, 3, 6, micro_steps=2)
            for name in ("steps", "phases", "collectives under way", "loader 0", "evaluation batches"):
                assert rank.row(name), f"{rank.name} has no events in {name}"
            for step in range(3, 7):
                sums = rank.row("collectives under way", step)
                assert len(sums) > 3 and {e["name"] for e in sums} == {"all-reduce"}, sums
                total = total or sum(e["args"]["bytes"] for e in sums)
                assert sum(e["args"]["bytes"] for e in sums) == total, sums
                assert all(e["args"]["ranks"] == ranks for e in sums), sums
                backward = [e for e in rank.row("phases") if e["name"] == "backward" and e["args"]["step"] == step][-1]
                begun = [e for e in sums if backward["ts"] < e["ts"] < end(backward)]
                assert len(begun) == len(sums) - 1, (backward, sums)  # all but the last, which includes the tail
            assert all(e["name"] == "samples" and e["args"]["samples"] > 0 for e in rank.row("loader 0"))
        # The log rounds to a tenth of a MiB.
        assert abs(total - gradient_bytes(run_dir)) <= 0.06 * 2**20, (total, gradient_bytes(run_dir))
        saves = traced[0].row("save")
        assert saves and all(not rank.row("save") for rank in traced[1:]), saves
        # With one clock, each reduction ends on every rank after all ranks have begun it.
        for step in range(3, 7):
            sums = [rank.row("collectives under way", step) for rank in traced]
            uncertain = sum(one["clock_uncertainty_us"] for one in other["ranks"])
            for together in zip(*sums):
                assert max(e["ts"] for e in together) <= min(end(e) for e in together) + uncertain, together


def each_step_of_the_network_has_its_time(folder):
    """On a CPU, and on a device (the host module) by the device's clock; also if the device would otherwise replay a recording."""
    data = write_shards(folder / "data")
    module = os.environ.get("LOCKSTEP_TEST_HOST_MODULE")
    devices = {"cpu": ["--device", "cpu"]}
    if module and pathlib.Path(module).exists():
        devices |= {"graph": ["--device", "cuda", "--comm", "mpi"], "no-graph": ["--device", "cuda", "--comm", "mpi", "--no-cuda-graph"]}
    for name, more in devices.items():
        run_dir = folder / name
        uncertain = SMALLEST if name == "cpu" else 5  # two clocks
        shares = []
        run(train_args(data, run_dir, "--profile-steps", "4:5", "--max-steps", 7, *more), 2, {"LOCKSTEP_MODULE_PATH": module or "/nonexistent"})
        for rank in read(run_dir / "trace-4-5.json")[0]:
            counts = []
            for step in rank.row("steps"):
                found = rank.row("network", step["args"]["step"])
                names = [e["name"] for e in found]
                assert sum(each.startswith("weight gradient") for each in names) > 3 and "loss" in names, names
                assert all(within(e, step, uncertain) for e in found), (step, found)
                computing = [e for e in rank.row("phases", step["args"]["step"]) if e["name"] in ("forward", "backward")]
                outside = [e for e in found if not any(within(e, phase, uncertain) for phase in computing)]
                assert not outside, (name, computing, outside)
                shares.append(sum(e["dur"] for e in found) / sum(e["dur"] for e in computing))
                counts.append(sorted(names))
            assert counts[0] == counts[1] and len(counts) == 2, counts
        # The network's steps take most of the time of their phases; other work may run in between.
        assert max(shares) > 0.3 and all(share <= 1 for share in shares), (name, shares)


def units_replace_buckets(folder):
    data = write_shards(folder / "data")
    for mode in ("optimizer", "grad", "full", "hybrid"):
        ranks = 4 if mode == "hybrid" else 2
        run_dir = folder / mode
        more = ["--shard-group", 2] if mode == "hybrid" else []
        run(train_args(data, run_dir, "--profile-steps", "2:3", "--max-steps", 5, "--shard", mode, "--shard-unit", "block", *more), ranks)
        for rank in read(run_dir / "trace-2-3.json")[0]:
            check_steps(rank, 2, 3, micro_steps=1)
            assert not any(thread.startswith("evaluation loader") for thread in rank.threads), rank.threads
            for step in (2, 3):
                by_kind = {}
                for event in rank.row("collectives under way", step):
                    by_kind.setdefault(event["name"], []).append(event["args"])
                gathered = sum(one["bytes"] for one in by_kind["all-gather"])
                scattered = sum(one["bytes"] for one in by_kind["reduce-scatter"])
                units = len(by_kind["reduce-scatter"])
                assert units > 3 and all(one["ranks"] == 2 for one in by_kind["reduce-scatter"]), by_kind
                # Forward gathers all units. Backward gathers all again, except for the one that it starts with.
                again = mode in ("full", "hybrid")
                assert len(by_kind["all-gather"]) == (2 * units - 1 if again else units), by_kind
                assert scattered < gathered < 2 * scattered if again else gathered == scattered, by_kind
                # The tail, and with shard groups the sum of each unit over the replicas.
                assert len(by_kind["all-reduce"]) == (1 + units if mode == "hybrid" else 1), by_kind


def copying_for_a_save_is_a_phase_of_every_rank(folder):
    data = write_shards(folder / "data")
    for mode in ("none", "full"):
        run(train_args(data, folder / mode, "--profile-steps", "2:7", "--max-steps", 9, "--save-every", 3, "--shard", mode), ranks=2)
        ranks = read(folder / mode / "trace-2-7.json")[0]
        for rank in ranks:
            check_steps(rank, 2, 7, micro_steps=1)
            names = {e["name"] for e in rank.row("phases")}
            # Of replicas, only rank 0 copies.
            assert ("copy for a save" in names) == (mode == "full" or rank is ranks[0]), (mode, names)


def steps_are_counted_over_the_whole_run(folder):
    data = write_shards(folder / "data")
    args = train_args(data, folder / "run", "--profile-steps", "4:8")
    output = run([*args, "--max-steps", 3], ranks=2)
    assert "no trace: this run, which ends at step 3, made none of --profile-steps 4:8" in output, output
    # The run ends within the requested range: the trace has the available steps, and the save at the end.
    output = run([*args, "--max-steps", 6], ranks=2)
    assert "trace: steps 4 to 6" in output, output
    traced, _ = read(folder / "run" / "trace-4-6.json")
    for rank in traced:
        check_steps(rank, 4, 6, micro_steps=1)
    assert [e["args"]["step"] for e in traced[0].row("save")] == [6], traced[0].row("save")
    run([*args, "--max-steps", 10], ranks=2)
    for rank in read(folder / "run" / "trace-7-8.json")[0]:
        check_steps(rank, 7, 8, micro_steps=1)
    output = run([*args, "--max-steps", 11], ranks=2)
    assert "ends at step 11, made none" in output, output
    assert sorted(path.name for path in (folder / "run").glob("trace*")) == ["trace-4-6.json", "trace-7-8.json"]


def rows_of_an_evaluation_exist_before_it_starts(folder):
    data = write_shards(folder / "data")
    write_shards(folder / "data", samples=20, shards=1, split="val", seed=1)
    run(train_args(data, folder / "run", "--profile-steps", "2:3", "--epochs", 1, "--loader-threads", 2), ranks=2)
    assert events(folder / "run", "eval")
    for rank in read(folder / "run" / "trace-2-3.json")[0]:
        for name in ("evaluation loader 0", "evaluation loader 1"):
            assert name in rank.threads and not rank.row(name), (name, rank.threads)


def comparing_clocks_is_not_part_of_a_step(folder):
    data = write_shards(folder / "data")
    late = {"LD_PRELOAD": FAULTS, "LOCKSTEP_TEST_FAULT": "1:send:1:2"}
    begin = time.monotonic()
    run(train_args(data, folder / "run", "--profile-steps", "3:4", "--max-steps", 6), ranks=2, env=late)
    assert time.monotonic() - begin > 2, "no clock was late"
    steps = [8 / event["images_per_second"] for event in events(folder / "run", "step")]
    assert len(steps) == 6 and max(steps) < 1, steps


def a_traced_run_gives_the_same_bits(folder):
    data = write_shards(folder / "data")
    for name, more in (("plain", []), ("traced", ["--profile-steps", "2:4", "--loader-threads", 2])):
        run(train_args(data, folder / name, "--max-steps", 6, *more), ranks=2)
    assert_same_run(folder / "plain", folder / "traced")
    assert {"loader 0", "loader 1"} <= read(folder / "traced" / "trace-2-4.json")[0][1].threads
    assert not list((folder / "plain").glob("trace*"))


def dropped_events_are_counted(folder):
    data = write_shards(folder / "data", samples=96)
    # Each of 96 micro-steps gathers eight units twice and reduces them, which exceeds the thousand events that are stored per step.
    output = run(["train", "--data", data, "--run-dir", folder / "run", "--model", "mini-resnet", "--width", 8, "--threads", 1,
                  "--global-batch-size", 96, "--accumulate", 96, "--shard", "full", "--max-steps", 6, "--profile-steps", "1:5",
                  "--progress", "plain"])
    ranks, other = read(folder / "run" / "trace-1-5.json")
    dropped = other["ranks"][0]["dropped_events"]
    assert dropped > 0 and f"{dropped} events are missing from the trace" in output, (dropped, output)
    assert len(ranks[0].row("collectives under way")) == 5 * 1024, len(ranks[0].row("collectives under way"))
    check_steps(ranks[0], 1, 5, micro_steps=96)


def a_trace_that_cannot_be_written_does_not_end_the_run(folder):
    data = write_shards(folder / "data")
    (folder / "run" / "trace-2-3.json").mkdir(parents=True)
    output = run(train_args(data, folder / "run", "--profile-steps", "2:3", "--max-steps", 5), ranks=2)
    assert "warning: no trace: cannot" in output and "finished at step 5" in output, output


def a_trace_that_fills_the_disk_does_not_end_the_run(folder):
    with small_disk(folder / "run", "1m") as run_dir:
        data = write_shards(folder / "data")
        # Two ranks, so that rank 0 must receive the other rank's events although it cannot write them.
        output = run(["train", "--data", data, "--run-dir", run_dir, "--model", "mlp", "--width", 8, "--batch-size", 4, "--threads", 1,
                      "--accumulate", 12, "--epochs", 70, "--max-steps", 66, "--profile-steps", "1:64", "--progress", "plain"], ranks=2)
        assert f"warning: no trace: cannot write {run_dir}/trace-1-64.json" in output, output
        assert "finished at step 66" in output, output
        assert state(latest(run_dir))["step"] == 66
        assert not [path.name for path in run_dir.iterdir() if "trace" in path.name], list(run_dir.iterdir())


def invalid_ranges_of_steps_are_refused(folder):
    data = write_shards(folder / "data")
    for text in ("0:3", "4:3", "3", "few", "1:2:3"):
        output = run(train_args(data, folder / "run", "--profile-steps", text), expect=USAGE)
        assert f"--profile-steps is '{text}' (it takes a first and a last step" in output, output


if __name__ == "__main__":
    main([every_rank_has_every_row_of_the_requested_steps, each_step_of_the_network_has_its_time, units_replace_buckets,
          copying_for_a_save_is_a_phase_of_every_rank, steps_are_counted_over_the_whole_run, rows_of_an_evaluation_exist_before_it_starts,
          comparing_clocks_is_not_part_of_a_step, a_traced_run_gives_the_same_bits, dropped_events_are_counted,
          a_trace_that_cannot_be_written_does_not_end_the_run, a_trace_that_fills_the_disk_does_not_end_the_run,
          invalid_ranges_of_steps_are_refused])
