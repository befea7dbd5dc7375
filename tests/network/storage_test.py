#!/usr/bin/env python3
"""Tests checkpoints on file systems that are slow, gone or hang."""

import slow_storage
from network_harness import *  # noqa: F403
from slow_storage import SlowStorage

LONG = bool(os.environ.get("LOCKSTEP_TEST_LONG"))
# --watchdog-seconds: short where a rank must be named, else long enough for a busy machine.
SHORT, LIMIT = 5, 10
RANKS = 2
EVERY = 200  # steps between lines of metrics.jsonl, which the training thread writes


def training(data, run_dir, *more, limit=LIMIT):
    arguments = train_args(data, run_dir, "--epochs", 10**6, "--watchdog-seconds", limit, *more)
    arguments[arguments.index("--log-every") + 1] = EVERY
    return arguments


def data_and_checkpoint_size(folder):
    data = write_shards(folder / "data", samples=40000)
    run(training(data, folder / "sample", "--max-steps", 1), RANKS)
    return data, latest(folder / "sample").stat().st_size


def saves(run_dir):
    with contextlib.suppress(OSError, json.JSONDecodeError):
        return events(run_dir, "checkpoint")
    return []


def unfinished(run_dir):
    """Whether a save is under way, and has written something."""
    with contextlib.suppress(FileNotFoundError):
        return any(path.stat().st_size > 0 for path in (run_dir / "checkpoints").glob(".lockstep-tmp-*") if not path.is_symlink())
    return False


def training_goes_on_while_a_save_is_slow(folder):
    """The save takes longer than the watchdog's limit. Steps go on, and the parameters are those of a run on a fast disk."""
    data, size = data_and_checkpoint_size(folder)
    seconds = 2 * LIMIT if LONG else 1.2 * LIMIT
    with SlowStorage(folder / "slow", folder / "behind", rate=int(size / seconds)) as slow:
        with ended(start(training(data, slow.path / "run", "--save-every", EVERY), RANKS)) as process:
            wait_until(lambda: saves(folder / "behind" / "run"), process)
            process.send_signal(signal.SIGUSR1)  # training waits for its save, for longer than the limit
            status, output = finish(process)
    run_dir = folder / "behind" / "run"
    assert status == STOPPED and "watchdog:" not in log_of(run_dir), f"{status}\n{output}\n{log_of(run_dir)}"
    first = saves(run_dir)[0]
    took = first["seconds"]["save"]
    assert first["step"] == EVERY and took > LIMIT, f"the save was not slow, so this test is void: {first}"
    assert f"checkpoint {slow.path}/run/checkpoints/step-{EVERY:08}.h5 in {took:.2f} s" in log_of(run_dir), log_of(run_dir)
    lines = events(run_dir, "step", "checkpoint")
    meanwhile = lines[lines.index(first) - 1]["step"] - EVERY  # its line comes after those of steps beside it
    usual = 4 * RANKS / events(run_dir, "step")[0]["images_per_second"]
    print(f"   a save of {took:.1f} s; {meanwhile} steps meanwhile, without a save of {1e3 * usual:.1f} ms each", flush=True)
    assert meanwhile >= 2 * EVERY, "training waited for the save"
    last = state(latest(run_dir))["step"]
    run(training(data, folder / "fast", "--save-every", 10**6, "--max-steps", last), RANKS)
    assert tensors(latest(run_dir)) == tensors(latest(folder / "fast"))


def a_save_that_fails_midway_leaves_the_last_checkpoint(folder):
    """The file system is gone in the middle of the second save."""
    data, size = data_and_checkpoint_size(folder)
    run_dir = folder / "behind" / "run"
    with SlowStorage(folder / "slow", folder / "behind", rate=size // 2) as slow:
        with ended(start(training(data, slow.path / "run", "--save-every", EVERY), RANKS)) as process:
            wait_until(lambda: saves(run_dir) and unfinished(run_dir), process)
            good = latest(run_dir).read_bytes()
            slow.fail()
            # If a write was under way, it fails for another reason, and the next attempt, 10 s later, for this one.
            lines = lines_until(process, "Transport endpoint is not connected", 30)
            assert "no checkpoint of step " in lines and f"{slow.path}/run/checkpoints/" in lines, lines
            time.sleep(2)
            assert process.poll() is None, "training ended with its file system"
            process.send_signal(signal.SIGUSR1)
            status, output = finish(process)
    assert status == CANNOT_WRITE and output.count("lockstep: error") == 1, f"{status}\n{output}"
    assert latest(run_dir).read_bytes() == good
    output = run(training(data, run_dir, "--max-steps", EVERY + 10), RANKS)
    assert "resuming from" in output and f"step-{EVERY:08}" in output, output
    assert not unfinished(run_dir), "the unfinished file is still there"


def a_file_system_that_hangs_is_named(folder):
    """The rank, the phase and the step, when training waits for its last save."""
    data, size = data_and_checkpoint_size(folder)
    with SlowStorage(folder / "slow", folder / "behind", rate=size // 2) as slow:
        with ended(start(training(data, slow.path / "run", "--save-every", 10**6, limit=SHORT), RANKS)) as process:
            wait_for_step(folder / "behind" / "run", EVERY, process)
            process.send_signal(signal.SIGUSR1)
            wait_until(lambda: unfinished(folder / "behind" / "run"), process)
            hang_is_named(process, slow, r"rank 0 \(.*\) has been late for ([0-9.]+) s in save of step", SHORT, SHORT + 10)


if __name__ == "__main__":
    slow_storage.enter_or_skip()
    main([training_goes_on_while_a_save_is_slow, a_save_that_fails_midway_leaves_the_last_checkpoint,
          a_file_system_that_hangs_is_named])
