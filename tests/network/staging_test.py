#!/usr/bin/env python3
"""Tests --stage-dir with shards on a slow file system, and on one that hangs."""

import re

import slow_storage
from network_harness import *  # noqa: F403
from slow_storage import SlowStorage

SHORT, LIMIT = 6, 30  # --watchdog-seconds
RANKS = 2
RATE = 400_000  # bytes per second of the slow file system


def training(data, run_dir, limit, *more):
    return train_args(data, run_dir, "--watchdog-seconds", limit, *more)


def shards_on_a_slow_file_system_are_staged_at_a_rate_that_is_reported(folder):
    """From then on, training is independent of it: the file system is gone. The parameters are those of a run without staging."""
    behind = write_shards(folder / "behind", samples=1600, shards=2)
    size = sum(path.stat().st_size for path in behind.iterdir())
    run_dir = folder / "run"
    with SlowStorage(folder / "slow", behind, RATE) as slow:
        arguments = training(slow.path, run_dir, LIMIT, "--epochs", 10**6, "--stage-dir", folder / "stage")
        with ended(start(arguments, RANKS)) as process:
            wait_until(lambda: run_dir.exists() and " read from " in log_of(run_dir), process)
            step = last_step(run_dir)
            # One epoch later, no read of the originals is in progress.
            wait_for_step(run_dir, step + 1600 // (4 * RANKS), process)
            slow.fail()
            step = last_step(run_dir)
            wait_for_step(run_dir, step + 1600 // (4 * RANKS), process)
            assert process.poll() is None, f"training needs the file system:\n{process.communicate()[0]}"
            process.send_signal(signal.SIGUSR1)
            status, output = finish(process)
    assert status == STOPPED and "watchdog:" not in log_of(run_dir), f"{status}\n{output}"
    line = next(line for line in output.splitlines() if "--stage-dir: 2 of 2 shards" in line)
    print(f"   {size / 1e6:.1f} MB: {line}", flush=True)
    seconds, rate = map(float, re.search(r"in ([0-9.]+) s, ([0-9.]+) MB/s", line).groups())
    assert abs(rate - size / 1e6 / seconds) < 0.1, line
    # Training reads from the file system, too. bindfs limits its reads in pieces, of which some come at once.
    assert 0.3 * size / RATE < seconds and rate < 3 * RATE / 1e6, line
    last = state(latest(run_dir))["step"]
    run(training(behind, folder / "plain", LIMIT, "--epochs", 10**6, "--max-steps", last), RANKS)
    assert tensors(latest(run_dir)) == tensors(latest(folder / "plain"))


def a_file_system_of_shards_that_hangs_is_named(folder):
    """The ranks that wait for it, and their phase. (Without staging: a copy on the node does not hang.)"""
    behind = write_shards(folder / "behind", samples=40000, shards=2)
    with SlowStorage(folder / "slow", behind) as slow:
        with ended(start(training(slow.path, folder / "run", SHORT, "--epochs", 10**6), RANKS)) as process:
            wait_for_step(folder / "run", 20, process)
            hang_is_named(process, slow, r"rank [01] \(.*\) has been late for ([0-9.]+) s in data of step", SHORT, 3 * SHORT + 10)


if __name__ == "__main__":
    slow_storage.enter_or_skip()
    main([shards_on_a_slow_file_system_are_staged_at_a_rate_that_is_reported, a_file_system_of_shards_that_hangs_is_named])
