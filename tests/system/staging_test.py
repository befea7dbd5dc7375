#!/usr/bin/env python3
"""Tests --stage-dir: ranks read copies on the node, shards that do not fit stay, and no copies are left behind."""

import os
import re
import signal
import subprocess

from harness import *  # noqa: F403

RANKS = 3


def log_of(run_dir, rank=0):
    try:
        return (pathlib.Path(run_dir) / "log" / f"rank-{rank:05}.log").read_text()
    except FileNotFoundError:
        return ""


def wait_for(happened, what, process, seconds=SECONDS):
    deadline = time.monotonic() + seconds
    while not happened():
        assert process.poll() is None, f"ended before {what}:\n{process.communicate()[0]}"
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.01)


def wait_until_staged(run_dir, process):
    wait_for(lambda: " read from " in log_of(run_dir), "the copies were complete", process)


def small_data(folder, samples=360):
    data = write_shards(folder / "data", samples=samples, shards=4)
    write_shards(folder / "data", samples=30, shards=2, split="val")
    return data


def destroy(data):
    """Makes the data unreadable, also for processes that have the files open."""
    for shard in data.glob("*.h5"):
        os.truncate(shard, 0)
    shutil.rmtree(data)


@more_in_soak
def training_continues_without_the_shared_directory(folder):
    data = small_data(folder)
    for ranks, epochs in few(((1, 60), (RANKS, 100)), 1):
        name = folder / f"run{ranks}"
        copy = shutil.copytree(data, folder / f"data{ranks}")
        args = ["--epochs", epochs]
        process = start([*train_args(copy, name, *args), "--stage-dir", folder / "stage"], ranks)
        wait_until_staged(name, process)
        step = events(name, "step")[-1]["step"]
        wait_for_step(name, step + 360 // (4 * ranks), process)  # one epoch later, no read of the originals is in progress
        destroy(copy)
        assert process.poll() is None, "it ended before the directory was destroyed"
        status, output = finish(process)
        assert status == OK, output
        assert "6 of 6 shards" in output, output
        assert list((folder / "stage").iterdir()) == [], "the copy is still there"
        run([*train_args(data, folder / f"plain{ranks}", *args)], ranks)
        assert_same_run(name, folder / f"plain{ranks}")


def mounted(size, directory, args, fill="true"):
    """The command with a file system of that size at `directory`, for the command only; None if that is impossible."""
    user = [] if os.geteuid() == 0 else ["-r"]
    script = f'mount -t tmpfs -o size={size} none "$0" && {{ {fill}; exec "$@"; }}'
    if subprocess.run(["unshare", *user, "-m", "sh", "-c", script, directory, "true"], capture_output=True).returncode:
        return None
    return ["unshare", *user, "-m", "sh", "-c", script, str(directory), *args]


def too_little_space_stages_a_part(folder):
    data = small_data(folder)
    (folder / "stage").mkdir()
    run(train_args(data, folder / "plain", "--epochs", 3), RANKS)
    full = 'dd if=/dev/zero of="$0/fill" bs=4k 2>/dev/null'
    for name, fill, least, most in (("part", "true", 1, 5), ("nothing", full, 0, 0)):
        args = [*train_args(data, folder / name, "--epochs", 3), "--stage-dir", folder / "stage"]
        launch = mounted("128k", folder / "stage", command(args, RANKS), fill)
        if launch is None:
            print("skipped: too_little_space_stages_a_part: no file system can be mounted here")
            return
        done = subprocess.run(launch, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=SECONDS)
        assert done.returncode == OK, done.stdout
        assert "stay where they are" in done.stdout and "of 6 shards will lie in" in done.stdout, done.stdout
        chosen = int(done.stdout.split(" of 6 shards will lie in")[0].split()[-1])
        assert least <= chosen <= most, done.stdout
        assert_same_run(folder / name, folder / "plain")


def copies_in_memory_are_told_and_refused_if_they_do_not_fit(folder):
    data = small_data(folder)
    (folder / "stage").mkdir()
    upper = 'mkdir "$0/up" "$0/work" "$0/low" "$0/top" && mount -t overlay -o upperdir="$0/up",workdir="$0/work",lowerdir="$0/low" none "$0/top"'
    for kind, fill, stage in (("tmpfs", "true", folder / "stage"), ("overlay on tmpfs", upper, folder / "stage" / "top")):
        args = [*train_args(data, folder / "run", "--max-steps", 2), "--stage-dir", stage]
        for name, env in (("fits", {}), ("too large", {"SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "1"})):
            launch = mounted("64m", folder / "stage", command(args, RANKS), fill)
            if launch is None:
                print(f"skipped: copies in {kind}: it cannot be mounted here")
                continue
            done = subprocess.run(launch, env=environment(env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  timeout=SECONDS)
            line = rf"--stage-dir: {stage} on \S+ is memory \({kind}\): copies of 6 shards take \S+ \w+ of the \S+ \w+ free \(.+\)"
            assert len(re.findall(line, done.stdout)) == 1, done.stdout
            assert done.returncode == (OK if name == "fits" else USAGE), done.stdout
            if name == "too large":
                assert "0.0 MB free (SLURM_MEM_PER_NODE), and a tenth of it is left to the run; name a disk" in done.stdout, done.stdout
            shutil.rmtree(folder / "run", ignore_errors=True)


def the_copy_is_removed_after_a_signal(folder):
    data = small_data(folder)
    for ranks, stop in ((1, signal.SIGTERM), (RANKS, signal.SIGUSR1)):
        name = folder / f"run{ranks}"
        process = start([*train_args(data, name, "--epochs", 10000), "--stage-dir", folder / "stage"], ranks)
        wait_until_staged(name, process)
        held = [path for path in (folder / "stage").rglob("*.h5")]
        assert len(held) == 6, held
        process.send_signal(stop)
        status, output = finish(process)
        assert status == STOPPED, output
        assert list((folder / "stage").iterdir()) == [], "the copy is still there"


def copies_of_a_killed_job_are_removed_and_those_of_a_running_job_kept(folder):
    data = small_data(folder)
    stage = folder / "stage"

    def begin(name):
        process = start([*train_args(data, folder / name, "--epochs", 10000), "--stage-dir", stage])
        wait_until_staged(folder / name, process)
        return process

    killed = begin("killed")
    killed.kill()
    killed.wait()
    [left] = stage.iterdir()
    first = begin("first")
    [its] = stage.iterdir()
    assert its != left, "what the killed job left is still there"
    second = begin("second")
    assert len(list(stage.iterdir())) == 2 and its.is_dir(), list(stage.iterdir())
    for process in (first, second):
        process.send_signal(signal.SIGUSR1)
        status, output = finish(process)
        assert status == STOPPED, output
    assert list(stage.iterdir()) == []


def removed_copies_are_no_longer_read(folder):
    data = small_data(folder)
    process = start([*train_args(data, folder / "run", "--epochs", 12), "--stage-dir", folder / "stage"], RANKS)
    wait_until_staged(folder / "run", process)
    for shard in (folder / "stage").rglob("*.h5"):
        shard.unlink()
    status, output = finish(process)
    assert status == OK, output
    run(train_args(data, folder / "plain", "--epochs", 12), RANKS)
    assert_same_run(folder / "run", folder / "plain")


def unusable_directories_stop_all_ranks(folder):
    data = small_data(folder)
    (folder / "file").write_text("in the way")
    for place in (folder / "file", "/proc/nowhere"):
        for ranks in (1, RANKS):
            output = run([*train_args(data, folder / "run"), "--stage-dir", place], ranks, expect=CANNOT_WRITE)
            assert "--stage-dir" in output and str(place) in output, output
            assert output.count("lockstep: error") == 1, output
    run(["train", "--synthetic", "--run-dir", folder / "run", "--stage-dir", folder / "stage", *MODEL], expect=USAGE)


if __name__ == "__main__":
    main([training_continues_without_the_shared_directory, too_little_space_stages_a_part,
          copies_in_memory_are_told_and_refused_if_they_do_not_fit, the_copy_is_removed_after_a_signal,
          copies_of_a_killed_job_are_removed_and_those_of_a_running_job_kept,
          removed_copies_are_no_longer_read, unusable_directories_stop_all_ranks])
