#!/usr/bin/env python3
"""Tests stopping and resuming: with the same bits, at any step, on any number of ranks."""

import shutil
import signal

from harness import *  # noqa: F403


@more_in_soak
def a_run_resumed_at_any_step_equals_an_uninterrupted_run(folder):
    data = write_shards(folder / "data")
    write_shards(folder / "data", samples=20, shards=1, split="val", seed=1)
    for ranks in (1, 2):
        whole = folder / f"whole-{ranks}"
        run(train_args(data, whole, "--epochs", 2), ranks)
        total = state(latest(whole))["step"]
        for stop in few((1, 5, total // 2, total - 1), *((0, 3) if ranks == 1 else (1,))):
            pieces = folder / f"pieces-{ranks}-{stop}"
            run(train_args(data, pieces, "--epochs", 2, "--max-steps", stop), ranks)
            assert state(latest(pieces))["step"] == stop
            run(train_args(data, pieces, "--epochs", 2), ranks)
            assert_same_run(whole, pieces)


@more_in_soak
def every_optimizers_state_is_resumed(folder):
    data = write_shards(folder / "data")
    for optimizer in few(("adamw", "lars", "lamb", "lion"), 0, 2, 3):
        args, whole, pieces = ["--optimizer", optimizer], folder / f"whole-{optimizer}", folder / f"pieces-{optimizer}"
        run([*train_args(data, whole, "--max-steps", 6), *args], 2)
        run([*train_args(data, pieces, "--max-steps", 3), *args], 2)
        run([*train_args(data, pieces, "--max-steps", 6), *args], 2)
        assert_same_run(whole, pieces)


def same_seed_gives_the_same_bits_and_another_seed_does_not(folder):
    data = write_shards(folder / "data")
    for ranks in (1, 3):
        for name, seed in (("a", 1), ("b", 1), ("c", 2)):
            run(train_args(data, folder / f"{name}{ranks}", "--max-steps", 6, "--seed", seed), ranks)
        assert_same_run(folder / f"a{ranks}", folder / f"b{ranks}")
        assert tensors(latest(folder / f"a{ranks}")) != tensors(latest(folder / f"c{ranks}"))


@more_in_soak
def a_signal_saves_and_the_same_command_resumes(folder):
    """A launcher may forward the signal late: the run would last for minutes, and is compared up to its last step."""
    data = write_shards(folder / "data", samples=640)
    lasting = ["--epochs", 2000]
    for sent, ranks in few(((signal.SIGTERM, 1), (signal.SIGUSR1, 2), (signal.SIGUSR1, 1), (signal.SIGINT, 1)), 0, 1):
        whole, pieces = folder / f"whole-{sent}-{ranks}", folder / f"pieces-{sent}-{ranks}"
        process = start(train_args(data, pieces, *lasting), ranks)
        wait_for_step(pieces, 3, process)
        process.send_signal(sent)
        status, output = finish(process)
        assert status == STOPPED, f"{status}\n{output}"
        stopped = state(latest(pieces))["step"]
        assert stopped >= 3, stopped
        run([*train_args(data, pieces, *lasting), "--max-steps", stopped + 5], ranks)
        run([*train_args(data, whole, *lasting), "--max-steps", stopped + 5], ranks)
        assert_same_run(whole, pieces)


def a_signal_before_the_first_step_stops_after_it(folder):
    """A warning must not kill a run that is starting (here it waits for its configuration)."""
    data = write_shards(folder / "data", samples=640)
    config = folder / "config.ini"
    config.write_text("seed=1\n")
    held = folder / "config.ini.held"
    env = {"LD_PRELOAD": os.environ["LOCKSTEP_TEST_FAULTS"], "LOCKSTEP_TEST_FAULT": "0:hold:1:0", "LOCKSTEP_TEST_HELD_FILE": str(config)}
    for sent in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        run_dir = folder / f"run-{sent}"
        process = start(train_args(data, run_dir, "--epochs", 1, "--config", config), env=env)
        while not held.exists() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(sent)
        held.unlink()
        status, output = finish(process)
        assert status == STOPPED, f"{status}\n{output}"
        assert state(latest(run_dir))["step"] == 1, output


def world_size_may_change_in_the_middle_of_an_epoch(folder):
    data = write_shards(folder / "data", samples=200)
    directory = folder / "run"
    args = train_args(data, directory, "--epochs", 2)
    run([*args, "--max-steps", 5], ranks=4)
    assert state(latest(directory))["global_batch"] == 16
    run([*args, "--max-steps", 9], ranks=3)
    run(args, ranks=2)
    end = state(latest(directory))
    assert end["global_batch"] == 16 and end["step"] == 24 and end["epoch"] == 2, end
    steps = [e["samples"] for e in events(directory, "step")]
    assert steps == [16 * (i + 1) for i in range(24)], steps


AUDITED = 200


def audited(folder):
    """A data set in which sample i sets only pixel i, and arguments with which a step changes a column of the first layer's
    weights if and only if its sample was in the step's batch. So the checkpoints show which samples were used."""
    pixels = np.zeros((AUDITED, 15 * 15), "u1")
    pixels[np.arange(AUDITED), np.arange(AUDITED)] = 255
    data = write_shards(folder / "data", samples=AUDITED, shards=1, shape=(15, 15, 1), images=pixels.reshape(-1, 15, 15, 1))
    return lambda run_dir, *more: [
        "train", "--data", data, "--run-dir", run_dir, "--model", "mlp", "--width", 64, "--mean", 0, "--std", 1,
        "--optimizer", "sgd", "--momentum", 0, "--weight-decay", 0, "--lr-schedule", "constant", "--lr", 0.1, "--threads", 1,
        "--progress", "plain", "--epochs", 2, *more]


def samples_trained_on(run_dir, pieces):
    """Runs the pieces (arguments, ranks, last step) in sequence; returns the set of samples of each piece but the first."""
    found, before = [], None
    for args, ranks, last in pieces:
        run([*args, "--max-steps", last], ranks)
        assert state(latest(run_dir))["step"] == last
        with h5py.File(latest(run_dir)) as file:
            after = file["model/fc1.weight"][...]
        if before is not None:
            found.append(set(np.flatnonzero((after != before).any(axis=0)).tolist()))
        before = after
    return found


def an_audit_shows_each_sample_once_over_changing_world_sizes(folder):
    args = audited(folder)
    # 16 samples per step, 12 steps per epoch.
    changing = args(folder / "run", "--batch-size", 4)
    pieces = [(changing, 4, 1), (changing, 4, 5), (changing, 3, 9), (changing, 2, 12), (changing, 2, 19), (changing, 3, 24)]
    found = samples_trained_on(folder / "run", pieces)
    alone = args(folder / "whole", "--batch-size", 16)
    assert found == samples_trained_on(folder / "whole", [(alone, 1, last) for _, _, last in pieces]), "the samples differ from those of one rank"

    assert [len(s) for s in found] == [16 * steps for steps in (4, 4, 3, 7, 5)], [len(s) for s in found]
    assert len(set.union(*found[:3])) == 16 * 11, "a sample came twice in the first epoch"
    assert len(set.union(*found[3:])) == 16 * 12, "a sample came twice in the second epoch"
    assert set.union(*found) <= set(range(AUDITED)), "a pixel that no sample sets"


def an_audit_shows_each_sample_once_when_the_batch_changes(folder):
    args = audited(folder)
    small = args(folder / "run", "--batch-size", 4)  # 8 samples per step on 2 ranks: 40 of 200 samples
    large = args(folder / "run", "--batch-size", 4, "--accumulate", 3, "--allow-batch-change")  # then 6 steps of 24 samples, then 8
    pieces = [(small, 2, 1), (small, 2, 5), (large, 2, 8), (large, 2, 11), (large, 2, 19)]
    found = samples_trained_on(folder / "run", pieces)

    assert [len(s) for s in found] == [8 * 4, 24 * 3, 24 * 3, 24 * 8], [len(s) for s in found]
    assert len(set.union(*found[:3])) == 8 * 4 + 24 * 6, "a sample came twice in the first epoch"


def another_batch_needs_to_be_allowed(folder):
    data = write_shards(folder / "data")
    directory = folder / "run"
    run(train_args(data, directory, "--max-steps", 2))
    output = run([*train_args(data, directory), "--max-steps", 4, "--accumulate", 2], expect=USAGE)
    assert "global batch" in output and "--allow-batch-change" in output, output
    run([*train_args(data, directory), "--max-steps", 4, "--accumulate", 2, "--allow-batch-change"])


def an_epoch_with_less_than_a_larger_batch_left_is_over(folder):
    data = write_shards(folder / "data", samples=24)
    args = [*train_args(data, folder / "run"), "--epochs", 3, "--allow-batch-change"]
    run([*args, "--max-steps", 5])
    output = run([*args, "--accumulate", 2])  # 4 samples are left of the first epoch, then 3 steps in each
    assert "4 samples of epoch 1 are skipped (fewer than a batch of 8)" in output, output
    assert (state(latest(folder / "run"))["step"], state(latest(folder / "run"))["epoch"]) == (11, 3)
    assert [event["epoch"] for event in events(folder / "run", "step")] == [0] * 5 + [1] * 3 + [2] * 3
    assert "nothing to do" in run([*args, "--accumulate", 2])


def a_run_resumes_where_the_batch_of_a_new_run_would_not_fit(folder):
    """4 ranks of 256 samples exceed the data set, but the checkpoint's global batch is 256."""
    data = write_shards(folder / "data", samples=1000)

    def args(directory, option, batch):
        given = train_args(data, folder / directory, "--epochs", 1)
        at = given.index("--batch-size")
        return [*given[:at], option, batch, *given[at + 2:]]

    run([*args("run", "--batch-size", 256), "--max-steps", 1])
    run([*args("run", "--batch-size", 256), "--max-steps", 3], ranks=4)
    end = state(latest(folder / "run"))
    assert end["step"] == 3 and end["global_batch"] == 256 and end["world_size"] == 4, end
    for option, batch in (("--batch-size", 256), ("--global-batch-size", 3)):
        output = run(args("new", option, batch), ranks=4, expect=USAGE)
        assert "global batch" in output and "4 ranks" in output, output


def other_model_seed_or_optimizer_is_refused_with_both_values(folder):
    data = write_shards(folder / "data")
    directory = folder / "run"
    run(train_args(data, directory, "--max-steps", 2))
    for ranks in (1, 3):
        output = run(train_args(data, directory, "--seed", 7), ranks, expect=USAGE)
        assert "7" in output and "--seed" in output, output
        run(train_args(data, directory, "--optimizer", "adam"), ranks, expect=USAGE)
        other = [("mlp" if a == "mini-resnet" else a) for a in train_args(data, directory)]
        output = run(other, ranks, expect=USAGE)
        assert "mlp" in output and "mini-resnet" in output, output
    output = run(train_args(data, directory, "--resume", "none"), expect=USAGE)
    assert "--resume none" in output, output


def another_order_of_samples_waits_for_the_next_epoch(folder):
    data = write_shards(folder / "data", samples=24)
    directory = folder / "run"
    plain = train_args(data, directory, "--shuffle-block", 1)
    repeated = train_args(data, directory, "--shuffle-block", 2, "--repeated-augmentation", 2)
    run([*plain, "--max-steps", 4])
    for ranks in (1, 3):
        output = run([*repeated, "--max-steps", 7], ranks, expect=USAGE)
        assert "--shuffle-block" in output and "2" in output and "1" in output, output
        output = run([*plain, "--repeated-augmentation", 2, "--max-steps", 7], ranks, expect=USAGE)
        assert "--repeated-augmentation" in output, output
    run([*plain, "--max-steps", 6])  # the end of the epoch
    output = run([*repeated, "--max-steps", 7])
    assert "--repeated-augmentation was 1, is 2 now" in output and state(latest(directory))["step"] == 7, output


def an_older_file_is_not_resumed_beside_newer_ones(folder):
    data = write_shards(folder / "data")
    run(train_args(data, folder / "run", "--max-steps", 6, "--save-every", 2))
    older = folder / "run" / "checkpoints" / "step-00000002.h5"
    output = run(train_args(data, folder / "run", "--resume", older), ranks=2, expect=USAGE)
    assert "step-00000006.h5" in output and "--run-dir" in output, output
    run(train_args(data, folder / "other", "--resume", older, "--max-steps", 6))
    assert tensors(latest(folder / "run")) == tensors(latest(folder / "other")), "the branch differs from the original run"


def a_finished_run_has_nothing_to_do(folder):
    data = write_shards(folder / "data")
    run(train_args(data, folder / "run", "--epochs", 1))
    output = run(train_args(data, folder / "run", "--epochs", 1), ranks=2)
    assert "nothing to do" in output, output


def broken_newest_checkpoints_are_skipped(folder):
    data = write_shards(folder / "data")
    directory = folder / "run"
    run(train_args(data, directory, "--max-steps", 6, "--save-every", 2))
    files = sorted((directory / "checkpoints").glob("step-*.h5"))
    content = bytearray(files[-1].read_bytes())
    content[len(content) // 2] ^= 1
    files[-1].write_bytes(content)
    output = run(train_args(data, directory, "--max-steps", 8))
    assert files[-1].name in output and f"resuming from" in output, output
    for file in (directory / "checkpoints").glob("step-*.h5"):
        file.write_bytes(file.read_bytes()[:1000])
    output = run(train_args(data, directory, "--max-steps", 9), ranks=3, expect=BAD_INPUT)
    assert "step-" in output, output


def inspect_counts_the_parameters_of_a_checkpoint(folder):
    data = write_shards(folder / "data")
    run(train_args(data, folder / "run", "--max-steps", 1))
    expected = sum(len(values) // 4 for name, values in tensors(latest(folder / "run")).items()
                   if name.startswith("model/") and not name.endswith(("running_mean", "running_var")))
    assert json.loads(run(["inspect", latest(folder / "run"), "--json"]))["parameters"] == expected


@more_in_soak
def a_stop_during_the_last_evaluation_is_not_the_end(folder):
    data = write_shards(folder / "data")
    write_shards(folder / "data", samples=12000, shards=1, split="val", seed=1)
    # With an average, the signal comes during its evaluation, which is the second.
    for ranks, more in few(((1, []), (2, ["--ema-decay", 0.9, "--shard", "full"])), 1):
        whole, pieces = folder / f"whole-{ranks}-{len(more)}", folder / f"pieces-{ranks}-{len(more)}"
        args = train_args(data, pieces, "--epochs", 1, *more)
        run(train_args(data, whole, "--epochs", 1, *more), ranks)
        seconds = events(whole, "eval")[0]["seconds"]
        for part in (0.75, 0.4, 0.1):
            process = start(args, ranks)
            wait_for_step(pieces, state(latest(whole))["step"], process)
            if "ema_eval" in seconds:
                time.sleep(part * (seconds["eval"] + seconds["ema_eval"]))
            process.send_signal(signal.SIGUSR1)
            status, output = finish(process)
            if status == STOPPED:
                break
            shutil.rmtree(pieces)  # the machine is less busy now, and the run had ended before the signal
        assert status == STOPPED and "finished at step" not in output, f"{status}\n{output}"
        assert not events(pieces, "eval"), output
        assert "finished at step" in run(args, ranks)
        assert_same_run(whole, pieces)
        assert (pieces / "checkpoints/best").resolve() == latest(pieces).resolve()
        assert "nothing to do" in run(args, ranks)


if __name__ == "__main__":
    main([a_run_resumed_at_any_step_equals_an_uninterrupted_run, every_optimizers_state_is_resumed,
          same_seed_gives_the_same_bits_and_another_seed_does_not,
          a_signal_saves_and_the_same_command_resumes, a_signal_before_the_first_step_stops_after_it, world_size_may_change_in_the_middle_of_an_epoch,
          an_audit_shows_each_sample_once_over_changing_world_sizes, an_audit_shows_each_sample_once_when_the_batch_changes,
          another_batch_needs_to_be_allowed, an_epoch_with_less_than_a_larger_batch_left_is_over, a_run_resumes_where_the_batch_of_a_new_run_would_not_fit,
          other_model_seed_or_optimizer_is_refused_with_both_values,
          another_order_of_samples_waits_for_the_next_epoch,
          an_older_file_is_not_resumed_beside_newer_ones, a_stop_during_the_last_evaluation_is_not_the_end,
          inspect_counts_the_parameters_of_a_checkpoint, a_finished_run_has_nothing_to_do, broken_newest_checkpoints_are_skipped])
