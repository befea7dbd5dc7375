#!/usr/bin/env python3
"""Tests runs that shard optimizer state, gradients and parameters: they match replicated runs, and resume from each other."""

import re

from harness import *  # noqa: F403

MODES = ("none", "optimizer", "grad", "full")


def values(path):
    """Every floating-point dataset of a checkpoint, by name."""
    return {name: np.frombuffer(data, "f4") for name, data in tensors(path).items() if not name.endswith("crc32c")}


def assert_close(one, other, tolerance):
    left, right = values(latest(one)), values(latest(other))
    assert left.keys() == right.keys() and left, sorted(left.keys() ^ right.keys())
    for name in left:
        difference = np.linalg.norm(left[name] - right[name]) / max(np.linalg.norm(right[name]), 1e-12)
        assert difference < tolerance, f"{name}: {difference}"


@more_in_soak
def each_mode_resumes_with_the_same_bits(folder):
    data = write_shards(folder / "data")
    write_shards(folder / "data", samples=12, shards=1, split="val", seed=1)
    for mode in MODES[1:]:
        for ranks, more in few(((2, ["--optimizer", "adam", "--eps", 0.001]), (3, ["--accumulate", 2])), 1 if mode == "grad" else 0):
            def args(name):
                return train_args(data, folder / f"{name}-{mode}-{ranks}", "--shard", mode, "--epochs", 2, "--eval-every", 0.5,
                                  "--save-every", 3, *more)

            output = run(args("whole"), ranks)
            assert "finished" in output and "validation:" in output, output
            for step in (3, 5):
                run([*args("parts"), "--max-steps", step], ranks)
            run(args("parts"), ranks)
            assert_same_run(folder / f"whole-{mode}-{ranks}", folder / f"parts-{mode}-{ranks}")


@soak
def every_mode_resumes_from_every_other_on_any_number_of_ranks(folder):
    """Resumes through all ordered pairs of modes, on 3, 2 and 4 ranks in turn."""
    data = write_shards(folder / "data", samples=528)

    def args(name, *more):
        return ["train", "--data", data, "--run-dir", folder / name, "--model", "mlp", "--width", 32, "--global-batch-size", 24,
                "--epochs", 1, "--optimizer", "adamw", "--lr", 0.0005, "--threads", 1, "--log-every", 1, "--progress", "plain",
                *more]

    walk = "none optimizer none grad none full optimizer grad optimizer full grad full none".split()
    walk += "hybrid optimizer hybrid grad hybrid full hybrid none".split()
    pairs = set(zip(walk, walk[1:]))
    assert len(pairs) == 20, pairs
    for step, mode in enumerate(walk, 1):
        ranks = (4, 3, 2)[step % 3]
        more = ["--shard-group", 1 if ranks == 3 else 2] if mode == "hybrid" else []
        output = run(args("walk", "--shard", mode, *more, "--max-steps", step), ranks)
        assert step == 1 or "resuming from" in output, output
    run(args("straight", "--max-steps", len(walk)), ranks=2)
    assert_close(folder / "walk", folder / "straight", 1e-3)
    losses = [[event["loss"] for event in events(folder / name, "step")] for name in ("walk", "straight")]
    assert np.allclose(*losses, rtol=1e-4), losses


@soak
def communication_is_in_16_bits_if_requested(folder):
    require_bf16()
    data = write_shards(folder / "data")
    write_shards(folder / "data", samples=12, shards=1, split="val", seed=1)
    bf16 = ["--precision", "bf16"]
    run(train_args(data, folder / "none", "--max-steps", 6, *bf16), ranks=2)
    for mode in MODES[1:]:
        def args(name, *more):
            return train_args(data, folder / f"{name}-{mode}", "--shard", mode, "--eval-every", 0.5, *bf16, *more)

        # Weights in bf16 change nothing. Gradients in bf16 do, but resume with the same bits.
        output = run(args("weights", "--max-steps", 6), ranks=2)
        assert "communication dtype: weights bf16, gradients fp32" in output, output
        assert tensors(latest(folder / f"weights-{mode}")) == tensors(latest(folder / "none")), mode
        for name, step in (("whole", 6), ("parts", 3), ("parts", 6)):
            output = run(args(name, "--reduce-dtype", "bf16", "--max-steps", step), ranks=2)
            assert "communication dtype: weights bf16, gradients bf16" in output, output
        assert_same_run(folder / f"whole-{mode}", folder / f"parts-{mode}")
        assert tensors(latest(folder / f"whole-{mode}")) != tensors(latest(folder / "none")), f"{mode} did not round"
        losses = [[event["loss"] for event in events(folder / name, "step")] for name in ("none", f"whole-{mode}")]
        assert np.allclose(*losses, rtol=0.05), losses
        run(args("compressed", "--grad-compression", "bf16", "--param-dtype", "fp32", "--max-steps", 6), ranks=2)
        assert_same_run(folder / f"whole-{mode}", folder / f"compressed-{mode}")
    for name, more in (("compressed", ["--grad-compression", "fp16"]), ("reduced", ["--reduce-dtype", "fp16"])):
        assert "reduced as fp16" in run(train_args(data, folder / name, "--max-steps", 3, *more), ranks=2)
    assert_same_run(folder / "compressed", folder / "reduced")


@soak
def shard_groups_match_shard_none(folder):
    data = write_shards(folder / "data", samples=240)
    # Few steps: sums in another order round differently, and in such small batches a flipped ReLU is more than a rounding error.
    common = ["--save-every", 2, "--max-steps", 4]
    run(train_args(data, folder / "none", *common), ranks=4)
    for name, more in (("pairs", ["--shard-group", 2]), ("node", [])):
        output = run(train_args(data, folder / name, "--shard", "hybrid", "--debug-collectives", *more, *common), ranks=4)
        assert f"sharded over {2 if more else 4} ranks" in output, output
        losses = [[event["loss"] for event in events(folder / one, "step")] for one in ("none", name)]
        assert np.allclose(*losses, rtol=1e-3), losses
        assert_close(folder / name, folder / "none", 1e-3)
        # Resumes in another mode.
        run(train_args(data, folder / name, "--shard", "full", "--max-steps", 5), ranks=4)
        run(train_args(data, folder / name, "--shard", "hybrid", *more, "--max-steps", 6), ranks=4)
    run(train_args(data, folder / "none", "--max-steps", 6), ranks=4)
    for name in ("pairs", "node"):
        assert_close(folder / name, folder / "none", 1e-3)
        losses = [[event["loss"] for event in events(folder / one, "step")] for one in ("none", name)]
        assert len(losses[0]) == 6 and np.allclose(*losses, rtol=1e-3), losses
    for more, ranks, text in ((["--shard", "hybrid", "--shard-group", 3], 4, "does not divide 4 ranks"),
                              (["--shard", "full", "--shard-group", 2], 2, "belongs to --shard hybrid")):
        assert text in run(train_args(data, folder / "refused", *more, *common), ranks=ranks, expect=USAGE)


def ranks_without_samples_take_part_in_evaluations(folder):
    data = write_shards(folder / "data", samples=24)
    write_shards(folder / "data", samples=9, shards=1, split="val", seed=1)
    for ranks in (2, 4):
        results = []
        for mode, more in (("none", []), ("full", []), ("hybrid", ["--shard-group", 2])):
            run_dir = folder / f"{mode}-{ranks}"
            run(train_args(data, run_dir, "--shard", mode, *more, "--epochs", 1), ranks=ranks)
            results += [event["loss"] for event in events(run_dir, "eval")]
        assert len(results) == 3 and np.allclose(results, results[0], rtol=1e-3), results


def bare_weights_start_a_run_in_any_mode(folder):
    data = write_shards(folder / "data")
    run(train_args(data, folder / "first", "--max-steps", 2), ranks=2)
    for mode in MODES:
        run(train_args(data, folder / mode, "--shard", mode, "--init-from", latest(folder / "first"), "--max-steps", 1), ranks=2)
        assert_close(folder / mode, folder / "none", 1e-5)


def replicas_are_checked_if_there_are_any(folder):
    data = write_shards(folder / "data")
    for mode in MODES[1:]:
        run(train_args(data, folder / mode, "--shard", mode, "--max-steps", 4, "--check-replicas-every", 1), ranks=3)


@more_in_soak
def a_signal_saves_the_shards_and_the_same_command_resumes(folder):
    data = write_shards(folder / "data", samples=4000)
    for mode in few(MODES[1:], -1):
        args = train_args(data, folder / mode, "--shard", mode, "--epochs", 200)  # far more than there is time for
        process = start(args, ranks=2)
        wait_for_step(folder / mode, 5, process)
        process.send_signal(signal.SIGUSR1)
        status, output = finish(process)
        assert status == STOPPED, f"{status}\n{output}"
        stopped = state(latest(folder / mode))["step"]
        output = run([*args, "--max-steps", stopped + 2], ranks=2)
        assert f"(step {stopped}," in output, output


@more_in_soak
def a_run_that_ends_during_a_save_completes_it(folder):
    """It diverges, or is asked to stop, while the first save is being written."""
    data = write_shards(folder / "data", samples=400)
    slow = {"LOCKSTEP_TEST_WRITE_BYTES_PER_SECOND": "200000"}
    for mode, more, ranks in few((("optimizer", [], 2), ("full", [], 2), ("hybrid", ["--shard-group", 2], 4)), 1):
        directory = folder / f"diverges-{mode}"
        args = [("1e30" if a == "0.05" else a) for a in train_args(data, directory, "--shard", mode, *more, "--save-every", 1)]
        output = run(args, ranks, expect=DIVERGED, env=slow)
        assert "step-00000001.h5" in output, output
        assert state(latest(directory))["step"] == 1
        directory = folder / f"stops-{mode}"
        process = start(train_args(data, directory, "--shard", mode, *more, "--save-every", 2, "--epochs", 200), ranks, env=slow)
        wait_for_step(directory, 3, process)
        process.send_signal(signal.SIGUSR1)
        status, output = finish(process)
        assert status == STOPPED, f"{status}\n{output}"
        saved = [event["step"] for event in events(directory, "checkpoint")]
        assert len(saved) >= 2 and saved[-1] == events(directory, "step")[-1]["step"], saved


@more_in_soak
def a_rank_with_bad_data_leaves_no_rank_waiting(folder):
    broken = write_broken_shards(folder / "data")
    # The seed selects the micro-step with the bad sample. All ranks see the error before the first micro-step of a step, but not before
    # others.
    for mode in MODES[1:]:
        for accumulate, seed in few(((1, 0), (4, 1), (4, 2)), 0 if mode == "grad" else 1):
            args = train_args(broken, folder / f"run-{mode}-{seed}", "--epochs", 4, "--shard", mode, "--seed", seed)
            output = run([*args, "--accumulate", accumulate], ranks=3, expect=BAD_INPUT)
            assert "train-00001-of-00002.h5" in output and "sample 7" in output, output


MEASURED = f"""#!{sys.executable}
import os, resource, subprocess, sys
limit = int(os.environ.get("ADDRESS_SPACE", resource.RLIM_INFINITY))
status = subprocess.call([{LOCKSTEP!r}, *sys.argv[1:]], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
with open(os.environ["PEAKS"] + "/" + os.environ["OMPI_COMM_WORLD_RANK"], "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024))
sys.exit(status)
"""


def run_measured(folder, name, network, mode, expect=OK, ranks=4, batch=4, **variables):
    """Runs ranks with adam, hybrid in pairs; returns their output and the peaks of their memory."""
    measured, peaks = folder / "measured", folder / f"peaks-{name}"
    measured.write_text(MEASURED)
    measured.chmod(0o755)
    peaks.mkdir()
    done = subprocess.run(
        [*MPIRUN, "-n", str(ranks), measured, "train", "--synthetic", *map(str, network), *IMAGES[:-1], str(batch), "--channels", "3", "--synthetic-samples", str(16 * batch),
         "--max-steps", "2", "--epochs", "1", "--threads", "1", "--loader-threads", "0", "--comm", "shared", "--shard", mode,
         *(["--shard-group", "2"] if mode == "hybrid" else []), "--run-dir", folder / f"run-{name}"],
        env=environment({"PEAKS": str(peaks), **variables}), capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout + done.stderr, [int(peak.read_text()) for peak in peaks.iterdir()] if expect == OK else None


IMAGES = ["--image-size", "32", "--classes", "10", "--optimizer", "adam", "--batch-size", "4"]


def predicted(network, ranks=4):
    rows = json.loads(run(["inspect", *network, *IMAGES, "--ranks", ranks, "--shard-group", 2, "--json"]))
    return {row["shard"]: row for row in rows["memory"]}


@soak
def the_peak_memory_of_a_rank_is_as_predicted(folder):
    """Compares rank 0's peak, including a save, with the prediction. A smaller model shows the memory of a process without the model. Gradients
    are reduced in shared memory of a fixed size: MPI would allocate buffers whose size depends on the number of reductions in flight.
    Convolutions are direct: choices by time, and so their scratch memory, differ from run to run."""
    def network(name):
        return ["--model", name, "--conv-algorithm", "direct"]

    def peak(name, ranks, mode):
        return max(run_measured(folder, f"{name}-{mode}-{ranks}", network(name), mode, ranks=ranks)[1])

    process = peak("resnet18", 4, "none") - predicted(network("resnet18"))["none"]["total_bytes"]
    found = {}
    for ranks, modes in ((2, ("full",)), (4, (*MODES, "hybrid"))):
        rows = predicted(network("resnet50"), ranks)
        for mode in modes:
            found[mode, ranks], promised = peak("resnet50", ranks, mode) - process, rows[mode]["total_bytes"]
            print(f"{mode} on {ranks}: {found[mode, ranks] >> 20} MiB, {promised >> 20} predicted, in addition to {process >> 20} of the process")
            assert abs(found[mode, ranks] - promised) < 0.05 * promised, f"{mode} on {ranks} ranks"
    on_four = [found[mode, 4] for mode in ("none", "hybrid", "optimizer", "grad", "full")]
    assert on_four == sorted(on_four, reverse=True), found
    assert found["full", 4] < found["full", 2], found


def state_of(row):
    return row["total_bytes"] - row["activation_bytes"]


def a_model_that_fits_sharded_is_refused_without_sharding(folder):
    """Under a limit of address space, below what `none` needs in addition to a process without a model. All of a process's threads share one malloc
    arena: each other would reserve 64 MiB of address space, and how many there are depends on timing."""
    wide, idle, peaks = ["--model", "mlp", "--width", 4096], folder / "idle", folder / "peaks"
    arenas = {"MALLOC_ARENA_MAX": "1"}
    idle.write_text(f"""#!{sys.executable}
import os, subprocess, sys, time
child = subprocess.Popen([{LOCKSTEP!r}, *sys.argv[1:]], stdout=subprocess.DEVNULL)
peak = 0
while child.poll() is None:
    try:
        lines = open(f"/proc/{{child.pid}}/status").read().splitlines()
        peak = max([peak, *(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmPeak"))])
    except OSError:
        pass
    time.sleep(0.005)
with open(os.environ["PEAKS"] + "/" + os.environ["OMPI_COMM_WORLD_RANK"], "w") as file:
    file.write(str(peak))
""")
    idle.chmod(0o755)
    peaks.mkdir()
    small = ["train", "--synthetic", "--model", "mlp", "--batch-size", "4", "--width", "16", "--image-size", "8", "--classes", "10", "--channels", "3",
             "--synthetic-samples", "64", "--max-steps", "1", "--threads", "1", "--loader-threads", "0", "--run-dir", folder / "small"]
    subprocess.run([*MPIRUN, "-n", "4", idle, *small], env=environment({"PEAKS": str(peaks), **arenas}), check=True, timeout=SECONDS)
    base = max(int(peak.read_text()) for peak in peaks.iterdir())
    rows = predicted(wide)
    state = state_of(rows["none"])
    limit = str(base + 9 * state // 10)
    output, _ = run_measured(folder, "refused", wide, "none", expect=USAGE, ADDRESS_SPACE=limit, **arenas)
    assert "MiB with --shard none" in output and "ulimit -v" in output, output
    told = float(output.split("a rank needs ")[1].split()[0]) * 2**20
    assert abs(told - state) < 0.01 * state, (told, rows["none"])
    # The first mode that fits beside what libraries will map.
    may = float(re.search(r"may use ([0-9.]+) MiB", output)[1])
    mode, needs = re.search(r"use --shard (optimizer|grad), which needs ([0-9.]+) MiB and its activations", output).groups()
    assert float(needs) <= may < told / 2**20 and (mode == "optimizer" or state_of(rows["optimizer"]) / 2**20 > may), output
    output, _ = run_measured(folder, "fits-full", wide, "full", ADDRESS_SPACE=limit, **arenas)
    assert "finished" in output, output
    assert latest(folder / "run-fits-full").exists()


def activations_that_do_not_fit_are_refused_before_the_first_step(folder):
    """Each of four ranks needs more than a fourth of the node's free memory for activations; none of it is touched."""
    network = ["--model", "mini-resnet", "--conv-algorithm", "direct"]
    some = predicted(network)["none"]["activation_bytes"] // 4  # of 4 samples
    free = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in open("/proc/meminfo")}["MemAvailable"]
    samples = free // 2 // some
    output, _ = run_measured(folder, "refused", network, "none", expect=USAGE, batch=samples)
    assert f"activations of {samples} samples" in output and "lower --batch-size" in output and "with --shard none" in output, output
    logs = [log.read_text() for log in (folder / "run-refused" / "log").iterdir()]
    assert len(logs) == 4 and not any("memory a rank" in log for log in logs), logs
    assert not events(folder / "run-refused")


def modes_work_with_synchronised_norms_and_full_gradients(folder):
    data = write_shards(folder / "data", samples=240)
    for name, common, modes in (("sync", ["--batch-norm", "sync"], ("optimizer", "grad", "full")),
                                ("micro", ["--accumulate", 2], ("grad", "full"))):
        for ranks in (2, 4):
            args = ["--max-steps", 3, *common]
            run(train_args(data, folder / f"{name}-none-{ranks}", *args), ranks=ranks)
            for mode in (*modes, *(("hybrid",) if ranks == 4 else ())):
                run_dir = folder / f"{name}-{mode}-{ranks}"
                more = ["--shard-group", 2] if mode == "hybrid" else []
                whole = ["--accumulate-full-gradients"] if name == "micro" else []
                run(train_args(data, run_dir, "--shard", mode, *more, *whole, *args), ranks=ranks)
                if mode != "hybrid":
                    assert_same_run(folder / f"{name}-none-{ranks}", run_dir)
                    continue
                losses = [[event["loss"] for event in events(one, "step")] for one in (folder / f"{name}-none-{ranks}", run_dir)]
                assert len(losses[0]) == 3 and np.allclose(*losses, rtol=1e-3), (name, losses)
                assert_close(run_dir, folder / f"{name}-none-{ranks}", 1e-3)


def invalid_sharding_options_are_refused(folder):
    data = write_shards(folder / "data")
    for more, text in ((["--shard", "grad", "--grad-compression", "bf16", "--reduce-dtype", "fp16"],
                        "--reduce-dtype fp16 and --grad-compression bf16"),
                       (["--shard", "full", "--param-dtype", "bf16"], "--param-dtype bf16 does not go with --precision fp32"),
                       (["--precision", "bf16", "--param-dtype", "bf16"], "--param-dtype bf16 belongs to --shard"),
                       (["--accumulate-full-gradients"], "--accumulate-full-gradients true belongs to --shard grad, full or hybrid"),
                       (["--accumulate-full-gradients", "--shard", "grad"], "needs --accumulate above 1"),
                       (["--shard", "hybrd"], "one of none, optimizer, grad, full, hybrid"),
                       (["--shard-unit", "size:0"], "size:1000000")):
        output = run(train_args(data, folder / "run", "--max-steps", 1, *more), ranks=2, expect=USAGE)
        assert text in output, output


if __name__ == "__main__":
    main([each_mode_resumes_with_the_same_bits, every_mode_resumes_from_every_other_on_any_number_of_ranks,
          communication_is_in_16_bits_if_requested, shard_groups_match_shard_none, ranks_without_samples_take_part_in_evaluations,
          bare_weights_start_a_run_in_any_mode, replicas_are_checked_if_there_are_any,
          a_signal_saves_the_shards_and_the_same_command_resumes, a_run_that_ends_during_a_save_completes_it,
          a_rank_with_bad_data_leaves_no_rank_waiting,
          the_peak_memory_of_a_rank_is_as_predicted,
          a_model_that_fits_sharded_is_refused_without_sharding,
          activations_that_do_not_fit_are_refused_before_the_first_step, modes_work_with_synchronised_norms_and_full_gradients,
          invalid_sharding_options_are_refused])
