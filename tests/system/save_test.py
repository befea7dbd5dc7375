#!/usr/bin/env python3
"""Tests saving: kills at any moment, a full disk, a slow disk."""

import math
import os
import random
import signal
import statistics
import subprocess
import time

from harness import *  # noqa: F403

KILLS = int(os.environ.get("LOCKSTEP_TEST_KILLS", "9"))
SEED = int(os.environ.get("LOCKSTEP_TEST_SEED", "20261121"))
SLOW = "LOCKSTEP_TEST_WRITE_BYTES_PER_SECOND"
SANITIZED = REPORTS is not None


def a_killed_job_loses_at_most_the_steps_since_the_last_save(folder):
    """Every second kill comes during a save, which is throttled to take about ten steps."""
    print(f"seed {SEED}, {KILLS} kills")
    chance = random.Random(SEED)
    data = write_shards(folder / "data", samples=800)
    whole, pieces = folder / "whole", folder / "pieces"
    args = ["--epochs", 1, "--save-every", 7]
    run(train_args(data, whole, *args), ranks=2)
    during_save = 0
    step = 0
    for kill in range(KILLS):
        process = start(train_args(data, pieces, *args), ranks=2, env={SLOW: "2000000"})
        target = step + chance.randint(1, 9)
        wait_for_step(pieces, target, process)
        saving = kill % 2 == 0
        if saving:
            deadline = time.monotonic() + 20
            temporary = []
            while not temporary and process.poll() is None and time.monotonic() < deadline:
                temporary = [p for p in (pieces / "checkpoints").glob(".*") if not p.is_symlink()]
                time.sleep(0.001)
            during_save += bool(temporary)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        deadline = time.monotonic() + 10
        while subprocess.run(["pgrep", "-f", str(pieces)], capture_output=True).stdout and time.monotonic() < deadline:
            subprocess.run(["pkill", "-KILL", "-f", str(pieces)])
            time.sleep(0.01)
        saved = sorted((pieces / "checkpoints").glob("step-*.h5"))
        now = int(saved[-1].stem.split("-")[1]) if saved else 0
        assert now >= step, "a saved step was lost"
        step = now
    assert during_save * 3 >= KILLS, f"only {during_save} of {KILLS} kills came during a save"
    run(train_args(data, pieces, *args), ranks=2)
    assert_same_run(whole, pieces)
    assert not [p for p in (pieces / "checkpoints").glob(".*") if not p.is_symlink()], "temporary files were left"


def a_full_disk_leaves_the_last_good_checkpoint(folder):
    with small_disk(folder / "small", "3m") as mount:
        data = write_shards(folder / "data", samples=400)
        run(train_args(data, mount / "run", "--max-steps", 3, "--keep", 2))
        good = latest(mount / "run").read_bytes()
        filler = mount / "filler"
        file = os.open(filler, os.O_WRONLY | os.O_CREAT)
        try:
            while os.write(file, b"x" * 4096):
                pass
        except OSError:
            pass
        os.truncate(filler, filler.stat().st_size - 100_000)  # space for logs, but not for a checkpoint
        os.close(file)
        for ranks in (1, 2):
            output = run(train_args(data, mount / "run", "--max-steps", 60, "--save-every", 10),
                         ranks, expect=CANNOT_WRITE)
            assert "no checkpoint of step" in output or "lockstep: error" in output, output
            assert latest(mount / "run").read_bytes() == good
        filler.unlink()
        run(train_args(data, mount / "run", "--max-steps", 8))


def a_best_model_found_on_a_full_disk_is_saved_as_it_was(folder):
    data = write_shards(folder / "data", samples=64)
    write_shards(data, samples=64, shards=1, split="val", seed=1)
    for ranks in (1, 2):
        with small_disk(folder / f"small-{ranks}", "3m") as mount:
            filler = mount / "filler"
            with open(filler, "wb") as file:
                file.write(b"x" * (3 * 2**20 - 200_000))  # space for logs, but not for a checkpoint
            made = mount / "run"
            process = start(train_args(data, made, "--epochs", 2000, "--save-every", 1000), ranks)
            wait_for_step(made, 16, process)
            deadline = time.monotonic() + SECONDS
            while "no checkpoint of step" not in (made / "log" / "rank-00000.log").read_text():
                assert time.monotonic() < deadline and process.poll() is None
                time.sleep(0.01)
            evaluations = len(events(made, "eval"))
            while len(events(made, "eval")) < evaluations + 2:
                assert time.monotonic() < deadline and process.poll() is None
                time.sleep(0.01)
            filler.unlink()
            process.send_signal(signal.SIGUSR1)
            status, output = finish(process)
            assert status == STOPPED, f"{status}\n{output}"
            best = max(events(made, "eval"), key=lambda event: event["top1"])
            saved = made / "checkpoints" / "best"
            assert state(saved)["step"] == state(latest(made))["best_step"] == best["step"], (best, state(saved))
            evaluated = json.loads(run(["eval", "--checkpoint", saved, "--data", data, "--json"]).splitlines()[-1])
            assert evaluated["top1"] == best["top1"], (evaluated, best)


def a_job_whose_directory_was_taken_over_writes_nothing_more(folder):
    """The job was suspended for so long that the other job considered it dead."""
    data = write_shards(folder / "data", samples=640)
    for ranks in (1, 3):
        run_dir = folder / f"run-{ranks}"
        process = start(train_args(data, run_dir, "--epochs", 2000, "--save-every", 20), ranks)
        wait_for_step(run_dir, 3, process)
        other = json.dumps({"job": "Slurm job 99", "host": "node77", "boot": "b", "process": 4711,
                            "started": "2026-01-01 00:00:00", "token": "another"})
        (run_dir / "lock").write_text(other)
        time.sleep(0.1)  # waits for a rename that was already due
        published = sorted(path.name for path in (run_dir / "checkpoints").glob("[a-z]*"))
        status, output = finish(process)
        assert status == CANNOT_WRITE, f"{status}\n{output}"
        assert "is now held by Slurm job 99 on node77" in output, output
        assert output.count("lockstep: error") == 1, output
        assert sorted(path.name for path in (run_dir / "checkpoints").glob("[a-z]*")) == published
        assert (run_dir / "lock").read_text() == other


@soak
def no_step_waits_for_a_save(folder):
    # Many parameters and little arithmetic, so that a save is much longer than a step.
    data = write_shards(folder / "data", samples=4000, shape=(12, 12, 3))
    for ranks, mode, width, speed in ((1, "none", 32, 4000000), (2, "full", 32, 4000000), (2, "full", 64, 8000000)):
        more = ["--model", "mini-resnet", "--batch-size", 32, "--threads", 1, "--lr", "0.05", "--shard", mode, "--width", width]
        for attempt in range(MOST_DISTURBED):
            run_dir = folder / f"{mode}-{width}-{attempt}"
            problem = late_steps_during_saves(run_dir, data, ranks, more, speed)
            if problem is None or not is_disturbed(folder / f"{mode}-{width}-{attempt}-without", data, ranks, more):
                break
        assert problem is None, problem
    # More than rank 0 can buffer, so that parts are gathered at several step boundaries.
    assert sum(len(data) for data in tensors(latest(run_dir)).values()) > 2 * 4 * 2**21


MOST_DISTURBED = 5  # attempts of which other load on the machine may delay steps without any save


def step_times(run_dir, ranks):
    """From the end of one step to the end of the next, which includes everything in between."""
    return [32 * ranks / e["images_per_second"] for e in events(run_dir, "step")]


def is_disturbed(run_dir, data, ranks, more):
    """Whether steps of a run without saves take longer than usual, by a sixth of its time."""
    run(["train", "--data", data, "--run-dir", run_dir, *more, "--max-steps", 120, "--save-every", 10**6, "--log-every", 1], ranks)
    steps = step_times(run_dir, ranks)[5:]
    usual = statistics.median(steps)
    return sum(max(0, step - usual) for step in steps) > sum(steps) / 6


def late_steps_during_saves(run_dir, data, ranks, more, speed):
    """What is wrong with the times of steps beside saves; None: nothing."""
    # A sanitized program tests the use of memory, not the time.
    steps, interval = (24, 10) if SANITIZED else (240, 60)
    run(["train", "--data", data, "--run-dir", run_dir, *more, "--max-steps", steps, "--save-every", interval, "--log-every", 1],
        ranks, env={SLOW: str(speed)})
    saves = events(run_dir, "checkpoint")
    assert len(saves) >= 2, saves
    if SANITIZED:
        return None
    steps = step_times(run_dir, ranks)
    median = statistics.median(steps[5:])
    excess = []
    usually = []
    for save in saves:
        seconds = save["seconds"]["save"]
        assert seconds > 8 * median, f"the save was not slow: {save}, {median}"
        beside = steps[save["step"] - 1:save["step"] + math.ceil(seconds / median)]
        usual = statistics.median(beside)
        usually.append(usual)
        if len(beside) > 8:
            excess.append(sum(max(0, step - usual) for step in beside) / seconds)
    # Steps that wait for the writer do so in every save.
    assert len(excess) >= 2, saves
    # The writer takes a part of a core, but holds up no step.
    if min(usually) >= 2 * median:
        return f"the median step during each save took {usually} s, over the run {median} s"
    if min(excess) >= 1 / 3:
        return f"steps during saves took longer than usual, by these fractions of the save: {excess}"
    return None


@more_in_soak
def the_best_model_is_saved_though_another_save_is_in_progress(folder):
    """Without waiting for the writer, only a later step would be saved, with other weights."""
    data = write_shards(folder / "data", samples=400)
    write_shards(folder / "data", samples=100, shards=1, split="val", seed=1)
    for every in few((1, "auto"), 1):
        directory = folder / f"run-{every}"
        args = train_args(data, directory, "--epochs", 3, "--save-every", every, "--eval-every", 0.1, "--keep", 1)
        run(args, 2, {SLOW: "1000000"})
        evaluations = events(directory, "eval")
        best = max(evaluations, key=lambda event: event["top1"])["step"]
        assert len(evaluations) > 20 and 0 < best < evaluations[-1]["step"], evaluations
        file = (directory / "checkpoints/best").resolve()
        assert file.name == f"step-{best:08}.h5" and state(file)["step"] == state(file)["best_step"] == best, (file, evaluations)


@more_in_soak
def of_short_epochs_not_every_end_is_checked_and_saved(folder):
    """Forty epochs of nine steps, without and with a shard of the state on each rank. What is saved does not change the results."""
    for ranks, mode in few(((1, "none"), (3, "none"), (2, "full"), (4, "full")), 0, 2):
        data = write_shards(folder / f"data-{ranks}", samples=9 * 4 * ranks)

        def train(name, *more):
            directory = folder / f"{mode}-{ranks}-{name}"
            output = run(train_args(data, directory, "--epochs", 40, "--shard", mode, "--keep", 100, *more), ranks)
            saved = [event["step"] for event in events(directory, "checkpoint")]
            assert saved[0] == 9 and saved[-1] == 360, saved
            return directory, output, saved

        begin = time.monotonic()
        clock, output, saved = train("clock")
        most = 3 + (time.monotonic() - begin) / 10
        assert 2 <= len(saved) <= most, saved
        assert "a failure is expected every 1011.0 h" in output, output
        for rank in range(ranks):
            compared = (clock / "log" / f"rank-{rank:05}.log").read_text().count("a step's p50/max")
            # Also when a save is due while an earlier one is still written, which a busy machine makes slow.
            assert 2 <= compared <= most + 3, (rank, compared, most)
        every, output, _ = train("every", "--save-every", 0)
        assert "saves every" not in output, output
        assert_same_run(clock, every)


if __name__ == "__main__":
    main([a_killed_job_loses_at_most_the_steps_since_the_last_save, a_full_disk_leaves_the_last_good_checkpoint,
          a_best_model_found_on_a_full_disk_is_saved_as_it_was,
          a_job_whose_directory_was_taken_over_writes_nothing_more,
          of_short_epochs_not_every_end_is_checked_and_saved,
          the_best_model_is_saved_though_another_save_is_in_progress, no_step_waits_for_a_save])
