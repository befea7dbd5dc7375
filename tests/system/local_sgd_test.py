#!/usr/bin/env python3
"""Tests local SGD (--sync-every): its averages, resuming, what waits for an average, and what it is refused with."""

from harness import *  # noqa: F403

MODULE = os.environ.get("LOCKSTEP_TEST_HOST_MODULE", "/nonexistent")
GPU = {"LOCKSTEP_MODULE_PATH": MODULE}
SAMPLES = 96  # of 4 ranks x 4 samples: 6 steps an epoch
PLAIN_SGD = ["--momentum", 0, "--weight-decay", 0, "--lr-schedule", "constant"]


def checkpoint(run_dir, step):
    return run_dir / "checkpoints" / f"step-{step:08}.h5"


def saved_steps(run_dir):
    return [int(path.stem.split("-")[1]) for path in sorted((run_dir / "checkpoints").glob("step-*.h5"))]


def values(path, group="model"):
    with h5py.File(path) as file:
        found = {}
        file[group].visititems(lambda name, item: found.__setitem__(name, item[...]) if isinstance(item, h5py.Dataset) else None)
        return found


def difference(left, right):
    """The largest relative difference of a tensor."""
    return max(np.linalg.norm(left[name] - right[name]) / max(np.linalg.norm(right[name]), 1e-6) for name in right)


def an_average_in_each_step_is_synchronous_sgd(folder):
    """Without momentum, the average of the ranks' updates is the update with the average gradient."""
    data = write_shards(folder / "data", samples=SAMPLES)
    for ranks in (2, 3, 4):
        plain, averaged = folder / f"plain-{ranks}", folder / f"averaged-{ranks}"
        args = ["--max-steps", 3, *PLAIN_SGD]
        run(train_args(data, plain, *args), ranks)
        run(train_args(data, averaged, *args, "--sync-every", 1), ranks)
        assert difference(values(latest(averaged)), values(latest(plain))) < 1e-4
        run(train_args(data, folder / f"rare-{ranks}", *args, "--sync-every", 3), ranks)
        assert difference(values(latest(folder / f"rare-{ranks}")), values(latest(plain))) > 1e-3, "replicas did not differ"


def one_rank_trains_as_without_local_sgd(folder):
    data = write_shards(folder / "data", samples=SAMPLES)
    run(train_args(data, folder / "plain", "--max-steps", 8))
    run(train_args(data, folder / "local", "--max-steps", 8, "--sync-every", 4))
    assert_same_run(folder / "plain", folder / "local")


@more_in_soak
def a_run_resumed_after_any_average_has_the_same_bits(folder):
    data = write_shards(folder / "data", samples=SAMPLES)
    write_shards(folder / "data", samples=24, shards=1, split="val", seed=1)
    for ranks, more in few(((1, []), (2, ["--optimizer", "adamw", "--ema-decay", 0.9]), (3, ["--clip-grad-norm", 0.5, "--accumulate", 2]), (4, ["--nesterov"])), 1):
        whole, pieces = folder / f"whole-{ranks}", folder / f"pieces-{ranks}"
        # Of 96 samples: 24, 12, 4 or 6 steps an epoch. Evaluations fall on local steps too.
        args = ["--epochs", 2, "--sync-every", 5, "--sync-start", 0.3, "--eval-every", 0.25, "--save-every", 0, "--keep", 100, *more]
        run(train_args(data, whole, *args), ranks)
        for stop in (3, 8):
            run(train_args(data, pieces, *args, "--max-steps", stop), ranks)
        run(train_args(data, pieces, *args), ranks)
        assert_same_run(whole, pieces)
        assert len(events(whole, "eval")) >= 2, ranks


def stops_saves_and_evaluations_wait_for_an_average(folder):
    data = write_shards(folder / "data", samples=SAMPLES)
    write_shards(folder / "data", samples=24, shards=1, split="val", seed=1)
    directory = folder / "run"
    # 12 steps an epoch of 2 ranks x 4 samples; local from step 7 on; averages after 8, 12, 16, 20, 24.
    args = train_args(data, directory, "--epochs", 2, "--sync-start", 0.5, "--sync-every", 4, "--save-every", 3, "--keep", 100,
                      "--eval-every", 5 / 12, "--check-replicas-every", 1)
    output = run([*args, "--max-steps", 17], ranks=2)
    assert "local SGD after 0.5 epochs: parameters and optimizer state are averaged every 4 steps" in output, output
    assert state(latest(directory))["step"] == 20, output
    run(args, ranks=2)
    # A save may wait for the one before; those of steps 20 and 24 end the two runs.
    saved = set(saved_steps(directory))
    assert {20, 24} <= saved <= {3, 5, 6, 8, 12, 16, 20, 24}, saved
    assert [event["step"] for event in events(directory, "eval")] == [5, 12, 16, 20, 24], events(directory, "eval")


def a_signal_stops_at_an_average_and_the_run_resumes_to_the_bit(folder):
    data = write_shards(folder / "data", samples=640)
    lasting = ["--epochs", 2000, "--sync-every", 7]
    for ranks in (2, 3):
        whole, pieces = folder / f"whole-{ranks}", folder / f"pieces-{ranks}"
        process = start(train_args(data, pieces, *lasting), ranks)
        wait_for_step(pieces, 3, process)
        process.send_signal(signal.SIGUSR1)
        status, output = finish(process)
        assert status == STOPPED, f"{status}\n{output}"
        stopped, steps_per_epoch = state(latest(pieces))["step"], 640 // (4 * ranks)
        assert stopped >= 3 and (stopped % 7 == 0 or stopped % steps_per_epoch == 0), stopped
        for run_dir in (pieces, whole):
            run([*train_args(data, run_dir, *lasting), "--max-steps", stopped + 9], ranks)
        assert_same_run(whole, pieces)


def a_distant_time_limit_does_not_stop_rare_averages(folder):
    """The run may stop at each epoch's end, 16 steps away, and not only after a million."""
    data = write_shards(folder / "data", samples=128)
    for start, epochs in ((0, 5), (0.5, 2)):
        directory = folder / f"run-{start}"
        args = ["--epochs", epochs, "--time-limit", "60s", "--sync-every", 1000000, "--sync-start", start, "--eval-every", 0]
        output = run(train_args(data, directory, *args), ranks=2)
        assert state(latest(directory))["step"] == 16 * epochs, output


def saving_and_evaluating_leave_the_trajectory_unchanged(folder):
    data = write_shards(folder / "data", samples=SAMPLES)
    write_shards(folder / "data", samples=24, shards=1, split="val", seed=1)
    args = ["--epochs", 2, "--sync-every", 5]
    often = ["--save-every", 2, "--keep", 100, "--eval-every", 0.2, "--check-replicas-every", 3]
    run(train_args(data, folder / "rarely", *args, "--eval-every", 0), ranks=2)
    run(train_args(data, folder / "often", *args, *often), ranks=2)
    # 12 steps an epoch. What is due after a local step waits for the next average; a save may also wait for the one before.
    averages = [5, 10, 12, 15, 20, 24]
    saved = saved_steps(folder / "often")
    assert saved[0] == 5 and saved[-1] == 24 and set(saved) <= set(averages), saved
    assert [event["step"] for event in events(folder / "often", "eval")] == averages, events(folder / "often", "eval")
    (folder / "resumed" / "checkpoints").mkdir(parents=True)
    shutil.copy(checkpoint(folder / "often", saved[0]), checkpoint(folder / "resumed", saved[0]))
    output = run(train_args(data, folder / "resumed", *args, *often), ranks=2)
    assert "(step 5, " in output, output
    left = tensors(latest(folder / "rarely"))
    for name in ("often", "resumed"):
        right = tensors(latest(folder / name))
        assert left == right, (name, [key for key in left if left[key] != right[key]][:5])


def frozen_parameters_keep_their_bits_and_momentum_may_stay_local(folder):
    data = write_shards(folder / "data", samples=SAMPLES)
    run(train_args(data, folder / "start", "--max-steps", 1))
    runs = {}
    for kind, more in (("average", []), ("local", ["--sync-momentum", "local"])):
        directory = folder / kind
        run(train_args(data, directory, "--init-from", latest(folder / "start"), "--max-steps", 6, "--sync-every", 3, "--keep", 100,
                       "--freeze", "conv1.*,layer2.0.*", *more), ranks=3)
        runs[kind] = directory
    before = values(latest(folder / "start"))
    for directory in runs.values():
        after = values(latest(directory))
        for name in before:
            frozen = name.startswith(("conv1.", "layer2.0.")) and "running" not in name
            assert (before[name].tobytes() == after[name].tobytes()) == frozen, name
    # Up to the first average, all is the same but the momentum.
    first = [folder / f"first-{kind}" for kind in runs]
    for directory, kind in zip(first, runs):
        run(train_args(data, directory, "--init-from", latest(folder / "start"), "--max-steps", 3, "--sync-every", 3, "--sync-momentum", kind), ranks=3)
    left, right = (values(latest(directory)) for directory in first)
    assert all(left[name].tobytes() == right[name].tobytes() for name in left)
    average, own = (values(latest(directory), "optimizer") for directory in first)
    assert difference(average, own) > 1e-2, "the momentum of rank 0 is that of all"


def replicas_are_equal_after_an_average_on_both_engines(folder):
    """The check of replicas runs after each average, and no local step fails it."""
    data = write_shards(folder / "data", samples=SAMPLES)
    for ranks, device in ((2, "cpu"), (3, "cpu"), (4, "cpu"), (2, "cuda"), (3, "cuda")):
        if device == "cuda" and not pathlib.Path(MODULE).exists():
            continue
        directory = folder / f"{ranks}-{device}"
        args = train_args(data, directory, "--epochs", 1, "--sync-every", 4, "--check-replicas-every", 1, "--device", device,
                          "--ema-decay", 0.5, *(["--comm", "mpi"] if device == "cuda" else []))
        run(args, ranks, env=GPU if device == "cuda" else None)
        assert events(directory, "step"), directory


def a_sample_that_fails_between_averages_is_not_saved(folder):
    broken = write_broken_shards(folder / "data")
    for ranks in (1, 2, 3):
        directory = folder / f"run-{ranks}"
        output = run(train_args(broken, directory, "--epochs", 1, "--sync-every", 1000, "--save-every", 1), ranks, expect=BAD_INPUT)
        assert "is not saved (the replicas of local SGD differ); newest checkpoint: none" in output, output
        assert not saved_steps(directory), output


def a_sample_that_fails_within_an_averaging_step_is_not_saved(folder):
    """A sample of its second micro-step fails, so the step changes nothing and its replicas are not averaged."""
    broken = write_broken_shards(folder / "data")

    def failed_after(name, ranks, batch, *options):
        """The number of complete steps."""
        args = train_args(broken, folder / name, "--epochs", 1, "--save-every", 1, *options)
        args[args.index("--batch-size") + 1] = batch
        output = run(args, ranks, expect=BAD_INPUT)
        assert not saved_steps(folder / name), output
        return int(output.split(" is not saved (the replicas of local SGD differ)")[0].split()[-1])

    position = failed_after("single", 1, 1, "--sync-every", 1000)
    for ranks in (1, 2, 3):
        batch = next(batch for batch in range(1, 10) if position // (2 * batch * ranks) > 0 and position // (batch * ranks) % 2 == 1)
        steps = position // (2 * batch * ranks)
        assert failed_after(f"run-{ranks}", ranks, batch, "--sync-every", steps + 1, "--accumulate", 2) == steps


def what_does_not_fit_is_refused(folder):
    data = write_shards(folder / "data")
    for more, says in ((["--shard", "grad"], ("--shard grad", "replica")), (["--shard", "hybrid"], ("--shard hybrid",)),
                       (["--batch-norm", "sync"], ("--batch-norm sync",)), (["--precision", "fp16"], ("--precision fp16", "bf16")),
                       (["--epochs", 2, "--sync-start", 2], ("--sync-start 2",)), (["--grad-compression", "bf16"], ("--grad-compression", "--sync-start"))):
        output = run(train_args(data, folder / "run", "--sync-every", 4, *more), expect=USAGE)
        assert all(part in output for part in ("--sync-every 4", *says)), output
    assert "--shard full" in run(train_args(data, folder / "run", "--sync-every", 4, "--shard", "full"), ranks=2, expect=USAGE)
    for more in (["--sync-start", 1], ["--sync-momentum", "local"]):
        output = run(train_args(data, folder / "run", *more), expect=USAGE)
        assert f"{more[0]} {more[1]} belongs to --sync-every" in output, output
    assert not (folder / "run").exists()


if __name__ == "__main__":
    main([an_average_in_each_step_is_synchronous_sgd, one_rank_trains_as_without_local_sgd, a_run_resumed_after_any_average_has_the_same_bits,
          stops_saves_and_evaluations_wait_for_an_average, a_signal_stops_at_an_average_and_the_run_resumes_to_the_bit,
          a_distant_time_limit_does_not_stop_rare_averages, saving_and_evaluating_leave_the_trajectory_unchanged,
          frozen_parameters_keep_their_bits_and_momentum_may_stay_local, replicas_are_equal_after_an_average_on_both_engines,
          a_sample_that_fails_between_averages_is_not_saved, a_sample_that_fails_within_an_averaging_step_is_not_saved, what_does_not_fit_is_refused])
