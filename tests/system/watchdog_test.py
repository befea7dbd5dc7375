#!/usr/bin/env python3
"""Tests ranks that hang, die, drift or are slow: each is named with its host and phase, and no other rank is."""

import re
import signal
import socket
import threading

from harness import *  # noqa: F403

FAULTS = os.environ["LOCKSTEP_TEST_FAULTS"]
HOST = socket.gethostname()
LIMIT = 3
OPENED_AT_START = 2  # how often a shard is opened then
SLOW = "LOCKSTEP_TEST_WRITE_BYTES_PER_SECOND"


# MPI must reduce, because the faults are planted in its calls.
BY_MPI = ["--comm", "mpi"]
BY_IALLREDUCE = [*BY_MPI, "--allreduce", "mpi"]  # what `flip` and `spoil` corrupt


def faulty(text):
    return {"LD_PRELOAD": FAULTS, "LOCKSTEP_TEST_FAULT": text}


def watched(data, run_dir, *more, limit=LIMIT):
    return train_args(data, run_dir, "--watchdog-seconds", limit, *more)


def log(run_dir, rank):
    return (pathlib.Path(run_dir) / "log" / f"rank-{rank:05}.log").read_text()


def logs(run_dir):
    return "".join(path.read_text() for path in sorted((pathlib.Path(run_dir) / "log").glob("*")))


def name(rank):
    return f"rank {rank} ({HOST})"


def a_stopped_rank_is_named_within_the_limit(folder):
    data = write_shards(folder / "data", samples=4000)
    for rank in (2, 0):
        directory = folder / f"run{rank}"
        process = start(watched(data, directory, "--epochs", 500), ranks=3)
        wait_for_step(directory, 3, process)
        time.sleep(1)  # its watchdog has reported steps
        begin = time.monotonic()
        os.kill(ranks_of(process)[rank], signal.SIGSTOP)
        status, output = finish(process)
        took = time.monotonic() - begin
        assert status == INTERNAL, f"{status}\n{output}"
        line = next(line for line in output.splitlines() if "no rank has made progress" in line)
        assert re.search(re.escape(name(rank)) + r" was last heard of \d+\.\d s ago, in .* of step \d+", line), line
        # A rank that stops after a step's last all-reduce leaves the others in the all-gather of the step's checks.
        assert re.search(r"in the (all-reduce of bucket|all-gather of) \d+", line.split("out of reach")[1]), line
        assert output.count("no rank has made progress") == 1, output
        assert "no rank has made progress" in log(directory, 1), log(directory, 1)
        assert took < 5 * LIMIT + 10, f"it took {took:.1f} s"


def a_paused_rank_and_a_paused_job_raise_no_alarm(folder):
    data = write_shards(folder / "data", samples=4000)
    directory = folder / "run"
    process = start(watched(data, directory, "--epochs", 500, limit=6), ranks=3)
    wait_for_step(directory, 3, process)
    ranks = ranks_of(process)
    for paused, seconds in (([2], 2), ([0], 2), ([2, 1, 0], 8)):
        for rank in paused:
            os.kill(ranks[rank], signal.SIGSTOP)
            time.sleep(2 if len(paused) > 1 and rank == 2 else 0)  # so that the others wait for it when they are stopped
        time.sleep(seconds)
        for rank in reversed(paused):
            os.kill(ranks[rank], signal.SIGCONT)
        time.sleep(1)
        assert "watchdog:" not in logs(directory), logs(directory)[-2000:]
    process.send_signal(signal.SIGUSR1)
    status, output = finish(process)
    assert status == STOPPED, f"{status}\n{output}"
    assert "watchdog:" not in logs(directory) and "progress for" not in output, output


def a_rank_that_sleeps_in_the_loader_is_named(folder):
    data = write_shards(folder / "data", samples=4000)
    output = run(watched(data, folder / "run", "--epochs", 500, "--loader-threads", 1), 3,
                 faulty("1:sleep:200:600"), expect=INTERNAL)
    assert f"{name(1)} has been late for" in output and "in data of step" in output, output
    assert "; 2 ranks wait in the all-reduce of bucket 1, in communication of step" in output, output


def await_stall(run_dir, process):
    """Waits until no step has ended for a second."""
    wait_for_step(run_dir, 2, process)
    deadline = time.monotonic() + SECONDS
    last, since = None, time.monotonic()
    while time.monotonic() < since + 1:
        assert time.monotonic() < deadline and process.poll() is None
        now = (run_dir / "metrics.jsonl").stat().st_size
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(0.02)


def a_signal_ends_a_run_whose_data_never_come(folder):
    data = write_shards(folder / "data", samples=4000)
    lasting = ["--epochs", 500, "--loader-threads", 1]
    for ranks, sent in ((1, signal.SIGTERM), (2, signal.SIGUSR1)):
        pieces, whole = folder / f"pieces{ranks}", folder / f"whole{ranks}"
        process = start(train_args(data, pieces, *lasting), ranks, faulty(f"{ranks - 1}:sleep:200:100000"))
        await_stall(pieces, process)
        process.send_signal(sent)
        status, output = finish(process)
        assert status == STOPPED, f"{status}\n{output}"
        assert output.count("lockstep: error") == 1 and "stopped on request while this rank waits for data" in output, output
        assert re.search(r"train-0000\d-of-00002.h5: sample \d+ has been read for \d+ s", output), output
        assert f"rank {ranks - 1} on {HOST}" in output or ranks == 1, output
        stopped = events(pieces, "step")[-1]["step"]
        assert state(latest(pieces))["step"] == stopped, output
        assert events(pieces)[-1]["reason"] == "stopped on request", events(pieces)[-1]
        for run_dir in (pieces, whole):
            run([*train_args(data, run_dir, *lasting), "--max-steps", stopped + 3], ranks)
        assert_same_run(pieces, whole)


def a_signal_ends_an_evaluation_whose_data_never_come(folder):
    data = write_shards(folder / "data", samples=64)
    val = write_shards(folder / "val", samples=64, shards=1, split="val") / "val-00000-of-00001.h5"
    for ranks in (1, 2):
        run_dir = folder / f"run{ranks}"
        # The evaluation opens the file again after the start has validated it.
        env = {**faulty(f"0:hold:{OPENED_AT_START + 1}:0"), "LOCKSTEP_TEST_HELD_FILE": str(val)}
        process = start(train_args(data, run_dir, "--val-data", folder / "val", "--epochs", 500, "--loader-threads", 1), ranks, env)
        await_stall(run_dir, process)
        assert pathlib.Path(f"{val}.held").exists()
        process.send_signal(signal.SIGUSR1)
        status, output = finish(process)
        pathlib.Path(f"{val}.held").unlink()
        assert status == STOPPED and "stopped on request at step" in output, f"{status}\n{output}"
        step = events(run_dir, "step")[-1]["step"]
        assert state(latest(run_dir))["step"] == step and not events(run_dir, "eval"), output


def a_late_rank_is_named_with_its_gpu(folder):
    """With each communicator for device memory, on the host module."""
    module = os.environ.get("LOCKSTEP_TEST_HOST_MODULE")
    if not module or not pathlib.Path(module).exists():
        print("skipped: a_late_rank_is_named_with_its_gpu: the host module was not built")
        return
    data = write_shards(folder / "data", samples=4000)
    for comm in ("mpi", "nccl"):
        output = run(watched(data, folder / comm, "--epochs", 500, "--device", "cuda", "--comm", comm), 2,
                     {"LOCKSTEP_MODULE_PATH": module, **faulty("1:sleep:200:600")}, expect=INTERNAL)
        assert re.search(rf"rank 1 \({HOST}, GPU-[^)]+\) has been late for", output) and "in data of step" in output, output
        assert re.search(rf"rank 0 \({HOST}, GPU-[^)]+\) waits in the .*, in communication of step", output), output


def on_gpus(*more, comm="nccl"):
    return ["--device", "cuda", "--comm", comm, *more]


def with_gpu_fault(fault):
    """Of the host module, with streams and NCCL's communicators."""
    module = os.environ.get("LOCKSTEP_TEST_HOST_MODULE")
    if not module or not pathlib.Path(module).exists():
        raise Skipped("the host module was not built")
    return {"LOCKSTEP_MODULE_PATH": module, "HOST_MODULE_GPU": fault}


def check_that_a_hung_gpu_is_named(folder, ranks, comm, *more):
    """In one rank's device the backward of step 4 never ends; its host queues the rest of the step, as those of the others do."""
    env = with_gpu_fault(f"hang:{ranks - 1}:4")
    data = write_shards(folder / "data", samples=4000)
    output = run(watched(data, folder / comm, "--epochs", 500, *on_gpus(*more, comm=comm), limit=1), ranks, env, expect=INTERNAL)
    line = next(line for line in output.splitlines() if "no rank has made progress" in line)
    others = "GPU of 1 other rank waits" if ranks == 2 else f"GPUs of {ranks - 1} other ranks wait"
    assert re.search(rf": the GPU of rank {ranks - 1} \({HOST}, GPU-[^)]+\) has not reached collective \d+, in which the {others} ", line), line
    # Hosts that sum norms themselves are still queueing backward.
    phase = "backward" if more and comm == "mpi" else "communication"
    assert f"in {phase} of step 4" in line and "all such ranks" not in line, line


def a_hung_gpu_is_named(folder):
    check_that_a_hung_gpu_is_named(folder / "local", 2, "nccl")
    check_that_a_hung_gpu_is_named(folder / "sync", 2, "nccl", "--batch-norm", "sync")


@soak
def a_hung_gpu_is_named_among_four_and_by_each_communicator(folder):
    for ranks, comm in ((4, "nccl"), (2, "mpi"), (4, "mpi")):
        check_that_a_hung_gpu_is_named(folder / f"{ranks}-{comm}", ranks, comm)
        check_that_a_hung_gpu_is_named(folder / f"{ranks}-{comm}-sync", ranks, comm, "--batch-norm", "sync")


def a_slow_gpu_is_named_though_its_host_is_not_slow(folder):
    env = with_gpu_fault("slow:1:10")
    data = write_shards(folder / "data", samples=24 * 2 * 4)
    directory = folder / "run"
    output = run(train_args(data, directory, "--epochs", 1, "--straggler-factor", 2, *on_gpus()), 2, env)
    named = re.search(rf"epoch 1: rank 1 \({HOST}\) is slow: its GPU takes \d+\.\d times the median rank's for forward and backward", output)
    assert named and f"rank 0 ({HOST}) is slow" not in output, output
    (found,) = events(directory, "straggler")
    assert found["rank"] == 1 and found["by"] == "gpu" and found["factor"] > 2, found
    fast = sorted(event["seconds"]["gpu"] for event in events(directory, "step"))[12]  # rank 0's
    assert 0 < 2 * fast < found["seconds"]["gpu"]["p50"], fast


def a_rank_that_skips_a_collective_is_named(folder):
    data = write_shards(folder / "data", samples=240)
    output = run(watched(data, folder / "run", "--epochs", 500), 3, faulty("1:skip:1:0"), expect=INTERNAL)
    assert f"{name(1)} has waited by itself for" in output, output
    assert "--debug-collectives" in output and "; 2 ranks wait in the barrier, in start-up" in output, output


def a_killed_rank_is_named(folder):
    data = write_shards(folder / "data", samples=4000)
    for rank in (1, 0):
        directory = folder / f"run{rank}"
        process = start(watched(data, directory, "--epochs", 500, limit=60), ranks=3)
        wait_for_step(directory, 3, process)
        os.kill(ranks_of(process)[rank], signal.SIGKILL)
        status, output = finish(process, seconds=30)
        assert status == 137, f"{status}\n{output}"
        assert f"{name(rank)} is gone" in output, output
        assert f"{name(rank)} is gone" in log(directory, 2), log(directory, 2)


def a_death_that_makes_all_ranks_fail_prints_one_line(folder):
    """The launcher does not see the death: the ranks end the job."""
    data = write_shards(folder / "data", samples=4000)
    launch = [*MPIRUN, "-n", "4", "sh", "-c", '"$0" "$@" || sleep 60']
    args = watched(data, folder / "run", "--epochs", 500, *BY_IALLREDUCE, limit=60)
    process = subprocess.Popen([*launch, LOCKSTEP, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env=environment(faulty("2:lose:20:0")), process_group=0)
    status, output = finish(process, seconds=50)
    assert status == INTERNAL, f"{status}\n{output}"
    errors = [line for line in output.splitlines() if line.startswith("lockstep: error")]
    assert len(errors) == 1 and f"{name(2)} is gone (its process ended;" in errors[0], output
    for survivor in (0, 1, 3):
        assert "this rank failed: MPI_" in log(folder / "run", survivor), log(folder / "run", survivor)


def a_killed_rank_of_one_group_is_named_in_all(folder):
    module = os.environ.get("LOCKSTEP_TEST_HOST_MODULE")
    devices = [["--device", "cpu"]]
    if module and pathlib.Path(module).exists():
        devices += [["--device", "cuda", "--comm", comm] for comm in ("nccl", "mpi")]
    data = write_shards(folder / "data", samples=4000)
    for i, device in enumerate(devices):
        directory = folder / f"run{i}"
        process = start(watched(data, directory, "--epochs", 500, "--shard", "hybrid", "--shard-group", 2, *device, limit=60), 4,
                        {"LOCKSTEP_MODULE_PATH": module or "/nonexistent"})
        wait_for_step(directory, 3, process)
        os.kill(ranks_of(process)[3], signal.SIGKILL)
        status, output = finish(process, seconds=30)
        assert status == 137, f"{status}\n{output}"
        for rank in (0, 1, 2):
            assert f"rank 3 ({HOST}" in log(directory, rank) and " is gone" in log(directory, rank), log(directory, rank)


def the_requested_interface_is_used_or_refused(folder):
    data = write_shards(folder / "data")
    output = run(watched(data, folder / "none", "--max-steps", 2, "--watchdog-interface", "nosuch0"), 2, expect=USAGE)
    assert output.count("--watchdog-interface nosuch0 is not on this host (it has ") == 1 and "lo 127.0.0.1)" in output, output
    run(watched(data, folder / "lo", "--max-steps", 2, "--watchdog-interface", "nosuch0,lo"), 2)
    assert "watchdog:" not in logs(folder / "lo"), logs(folder / "lo")


def a_rank_that_dies_in_a_save_is_named(folder):
    data = write_shards(folder / "data", samples=4000)
    directory = folder / "run"
    process = start(watched(data, directory, "--epochs", 500, "--save-every", 20), ranks=2, env={SLOW: "20000"})
    wait_for_step(directory, 20, process)
    first = ranks_of(process)[0]

    def written():
        return {path.name: path.stat().st_ino for path in (directory / "checkpoints").glob(".*") if not path.is_symlink()}

    deadline = time.monotonic() + 150  # saving has a low priority, and may have to wait on a busy machine
    while True:  # until a save has lasted for so long that the other ranks know of it
        assert time.monotonic() < deadline, "no save lasted"
        before = written()
        time.sleep(2 * LIMIT / 8 + 0.5)
        if before and before == written():
            break
    os.kill(first, signal.SIGKILL)
    status, output = finish(process, seconds=60)
    assert status == 137, f"{status}\n{output}"
    assert re.search(re.escape(name(0)) + r" is gone .*saving step \d+", output), output


def long_saves_and_slow_starts_raise_no_alarm(folder):
    # All ranks wait for the last save, which takes more than three times the limit; no other phase takes that long.
    data = write_shards(folder / "data", samples=4000)
    run(watched(data, folder / "saved", "--max-steps", 5, limit=2), 2, {SLOW: "40000"})
    saves = [e["seconds"]["save"] for e in events(folder / "saved", "checkpoint")]
    assert max(saves) > 6, saves
    assert "watchdog:" not in logs(folder / "saved")
    # Delays the first read of a shard's samples, in start-up.
    output = run(watched(data, folder / "slow", "--max-steps", 5, limit=3), 2, faulty("1:sleep:1:5"))
    assert "progress for" not in output, output


def a_flipped_bit_is_found_within_the_interval_and_its_rank_named(folder):
    data = write_shards(folder / "data", samples=4000)
    args = train_args(data, folder / "run", "--max-steps", 60, "--check-replicas-every", 10, *BY_IALLREDUCE)
    # With the node's name as Slurm sets it.
    output = run(args, 3, {"SLURMD_NODENAME": "n7", **faulty("2:flip:23:0")}, expect=INTERNAL)
    assert "drifted apart at step 30: rank 2 (n7) holds other parameters than the other 2" in output, output
    assert "since step 20" in output and "--exclude=n7" in output, output
    assert not list((folder / "run" / "checkpoints").glob("*.h5")), "drifted replicas were saved"
    run([*args, "--debug-collectives"], 3)


@more_in_soak
def a_flipped_bit_of_a_replica_among_groups_is_found_and_its_rank_named(folder):
    """Of three replicas, the one that differs is named; of two, both are. Ranks with another shard are not named."""
    data = write_shards(folder / "data", samples=4000)
    module = os.environ.get("LOCKSTEP_TEST_HOST_MODULE")
    devices = {"cpu": BY_IALLREDUCE}
    if module and pathlib.Path(module).exists():
        devices["cuda"] = ["--comm", "nccl"]
    for device, more in devices.items():
        for ranks, group, words in few(((3, 1, "rank 2 (n7) holds other parameters than the other 2 that keep the same shard, in "),
                                        (4, 2, "rank 1 (n7), rank 3 (n7) hold different parameters, and no value is that of most, in ")),
                                       1 if device == "cpu" else 0):
            directory = folder / f"{device}-{group}"
            args = train_args(data, directory, "--max-steps", 60, "--check-replicas-every", 10, "--shard", "hybrid", "--shard-group", group,
                              "--device", device, *more)
            # Corrupts the first sum over the replicas in step 23; a step has one for each unit, and one for losses, hits and statistics.
            output = run(args, ranks, {"SLURMD_NODENAME": "n7", "LOCKSTEP_MODULE_PATH": module or "/nonexistent",
                                       **faulty(f"{ranks - 1}:spoil:{22 * 9 + 1}:0")}, expect=INTERNAL)
            assert f"drifted apart at step 30: {words}" in output, output
            assert "since step 20" in output, output
            assert not list((directory / "checkpoints").glob("*.h5")), "drifted replicas were saved"
            run(args, ranks, {"LOCKSTEP_MODULE_PATH": module or "/nonexistent"})


def a_flipped_bit_is_found_before_any_save(folder):
    """No periodic check is due, but each save checks the replicas. The error names the step of the check, and the state is not saved."""
    data = write_shards(folder / "data", samples=4000)
    run_dir = folder / "run"

    def arguments(directory, *more):
        return train_args(data, directory, "--check-replicas-every", 10**6, *BY_IALLREDUCE, *more)

    def drifts(step, args, when, env=None):
        output = run(args, 3, {**(env or {}), **faulty(f"2:flip:{when}:0")}, expect=INTERNAL)
        assert f"drifted apart at step {step}: " in output, output

    def newest(directory):
        return max((int(path.stem[5:]) for path in (directory / "checkpoints").glob("step-*.h5")), default=0)

    # A periodic save, and the save at the end.
    drifts(10, arguments(folder / "request", "--max-steps", 60, "--save-every", 10), 5)
    drifts(12, arguments(folder / "end", "--max-steps", 12), 5)
    assert newest(folder / "request") == newest(folder / "end") == 0

    # The save after data became unreadable.
    directory = folder / "unread"
    bad = write_shards(folder / "bad", samples=40000)
    process = start(train_args(bad, directory, "--check-replicas-every", 10**6, *BY_IALLREDUCE), 3, faulty("2:flip:2:0"))
    wait_for_step(directory, 3, process)
    victim = bad / "train-00001-of-00002.h5"
    os.truncate(victim, victim.stat().st_size // 2)
    status, output = finish(process)
    assert status == INTERNAL and "drifted apart at step" in output and newest(directory) == 0, f"{status}\n{output}"

    # The save of a new best model in the middle of an epoch.
    write_shards(folder / "data", samples=600, shards=1, split="val", seed=1)
    drifts(7, arguments(folder / "best", "--max-steps", 60, "--eval-every", 7 / 333), 5)
    assert newest(folder / "best") == 0

    # The save of the previous run's best model, found at the start of this run and delayed to the first step.
    run(arguments(run_dir, "--max-steps", 14, "--eval-every", 0), 3)
    drifts(15, arguments(run_dir, "--max-steps", 60, "--eval-every", 7 / 333), 1)
    assert newest(run_dir) == 14, newest(run_dir)

    # The save of a stop during a long evaluation.
    write_shards(folder / "data", samples=60000, shards=1, split="val", seed=1)
    directory = folder / "stop"
    process = start(arguments(directory, "--max-steps", 60, "--eval-every", 7 / 333), 3, faulty("2:flip:5:0"))
    wait_for_step(directory, 7, process)
    process.send_signal(signal.SIGUSR1)
    status, output = finish(process)
    assert status == INTERNAL and "drifted apart at step 7: " in output, f"{status}\n{output}"
    assert newest(directory) == 0 and not events(directory, "eval")


def a_save_in_progress_is_finished_when_replicas_drift(folder):
    """Its state was checked, and its writer still gets all parts, also if ranks shard the state."""
    data = write_shards(folder / "data", samples=4000)
    slow = {SLOW: "200000"}
    for group in (1, 2):
        directory = folder / f"group-{group}"
        args = train_args(data, directory, "--max-steps", 60, "--save-every", 20, "--check-replicas-every", 5, "--shard", "hybrid",
                          "--shard-group", group, *BY_IALLREDUCE)
        # Corrupts the first sum over the replicas in step 23.
        output = run(args, 4, {**slow, **faulty(f"3:spoil:{22 * 9 + 1}:0")}, expect=INTERNAL)
        assert "drifted apart at step 25: " in output, output
        assert state(latest(directory))["step"] == 20, output
        assert [event["step"] for event in events(directory, "checkpoint")] == [20], output


SPEED = ["--model", "mini-resnet", "--width", 16, "--batch-size", 16, "--lr", "0.05", "--threads", 1, "--bucket-mb", "0.01",
         "--log-every", 1000, "--progress", "plain", "--check-replicas-every", 0]


def machine_seconds():
    """Busy seconds of all cores, by any process, including time that the hypervisor stole."""
    fields = pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _, _, irq, soft, steal = map(int, fields[:8])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def run_and_measure_others(*args):
    """Returns the output, and whether other processes on this machine took time from the run."""
    begin, others = time.monotonic(), machine_seconds() - own_seconds()
    output = run(*args)
    others = machine_seconds() - own_seconds() - others
    return output, others > 0.2 * (time.monotonic() - begin)


def cores_differ():
    """Whether two identical programs that run at the same time on two cores differ in speed in one of three attempts. They do if the
    other hardware thread of a core works for another machine, which no counter of this machine shows."""
    args = ["bench", "step", *SPEED[:4], "--image-size", 16, "--batch-size", 16, "--threads", 1, "--input", "batch", "--steps", 60,
            "--json"]
    for _ in range(3):
        pair = [subprocess.Popen([LOCKSTEP, *map(str, args)], stdout=subprocess.PIPE, env=environment(),
                                 preexec_fn=lambda core=core: os.sched_setaffinity(0, {core}))
                for core in sorted(os.sched_getaffinity(0))[:2]]
        rates = [json.loads(process.communicate()[0])["images_per_second"] for process in pair]
        if max(rates) > 1.2 * min(rates):
            return True
    return False


MOST_DISTURBED = 40  # runs, until the machine is quiet enough to identify the slow rank


@soak
def a_rank_slowed_twofold_is_named_with_its_host(folder):
    data = write_shards(folder / "data", samples=16 * 2 * 60, shape=(16, 16, 3))
    for attempt in range(MOST_DISTURBED):
        directory = folder / f"run{attempt}"
        args = ["train", "--data", data, "--run-dir", directory, *SPEED, "--epochs", 2]
        output, disturbed = run_and_measure_others(args, 2, faulty("1:slow:1:2"))
        named = re.search(r"epoch [12]: " + re.escape(name(1)) + r" is slow: \d\.\d times the median", output)
        if (not named or name(0) in output) and (disturbed or cores_differ()):
            continue
        assert named and name(0) not in output, output
        assert f"slow hosts of this run: --exclude={HOST}" in output, output
        found = events(directory, "straggler")
        assert found and all(e["rank"] == 1 and e["host"] == HOST and e["factor"] > 1.5 for e in found), found
        return
    raise AssertionError(f"this machine is never quiet:\n{output}")


@soak
def clean_runs_name_no_rank(folder):
    """Twenty runs. A run that names a rank does not count if other processes on the machine took time from it."""
    data = write_shards(folder / "data", samples=16 * 2 * 30, shape=(16, 16, 3))
    clean = repeated = 0
    while clean < 20:
        directory = folder / f"run{clean + repeated}"
        output, disturbed = run_and_measure_others(["train", "--data", data, "--run-dir", directory, *SPEED, "--epochs", 1], 2)
        assert "watchdog:" not in logs(directory)
        named = [line for line in output.splitlines() if "slow" in line]
        if named and (disturbed or cores_differ()):
            repeated += 1
            assert repeated < MOST_DISTURBED, "this machine is never quiet"
            continue
        assert not named, named
        clean += 1


def a_time_limit_stops_the_run_in_time_without_losing_a_step(folder):
    data = write_shards(folder / "data", samples=4000)
    for kind, more in (("option", ["--time-limit", "8s"]), ("slurm", [])):
        pieces = folder / kind
        begin = time.monotonic()
        env = {"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": str(int(time.time()) + 8)} if kind == "slurm" else {}
        process = start(train_args(data, pieces, "--epochs", 500, *more), 2, env)
        status, output = finish(process)
        assert status == STOPPED, f"{status}\n{output}"
        assert time.monotonic() - begin < 8, "the end came later than the limit"
        assert "time: 0:0" in output and "stopped before the time limit" in output, output
        stopped = state(latest(pieces))["step"]
        assert stopped == events(pieces, "step")[-1]["step"] > 0, "a step was lost"


def a_second_interrupt_stops_at_once(folder):
    data = write_shards(folder / "data", samples=4000)
    process = start(train_args(data, folder / "run", "--epochs", 500), env={SLOW: "2000"})
    wait_for_step(folder / "run", 3, process)
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    assert process.poll() is None, "the save was not slow"
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    status, output = finish(process, seconds=20)
    assert status == -signal.SIGINT, f"{status}\n{output}"
    assert time.monotonic() - begin < 10


def a_rank_waits_for_a_debugger(folder):
    data = write_shards(folder / "data")
    output = run(train_args(data, folder / "run", "--wait-for-debugger", 2), 2, expect=USAGE)
    assert "--wait-for-debugger 2" in output and "2" in output, output
    process = start(train_args(data, folder / "run", "--max-steps", 2, "--wait-for-debugger", 1), 2)
    limit = threading.Timer(SECONDS, os.killpg, (process.pid, signal.SIGKILL))
    limit.start()
    output = ""
    try:
        for line in process.stdout:
            output += line
            if "waits for a debugger" in line:
                debugged = ranks_of(process)[1]
                time.sleep(1)
                assert process.poll() is None and not (folder / "run" / "metrics.jsonl").exists(), "it did not wait"
                debugger = subprocess.Popen([sys.executable, "-c", TRACER, str(debugged)])
        assert process.wait() == OK, output
    finally:
        limit.cancel()
    assert "waits for a debugger" in output, output
    debugger.wait()
    check_output(output)
    assert f"rank 1 on {HOST} waits for a debugger: gdb -p {debugged}" in output, output
    assert "watchdog disabled" in output, output


# The process that traces another is its debugger.
TRACER = """
import ctypes, os, sys
ATTACH, CONTINUE, process = 16, 7, int(sys.argv[1])
trace = ctypes.CDLL(None, use_errno=True).ptrace
assert trace(ATTACH, process, None, None) == 0, os.strerror(ctypes.get_errno())
while os.WIFSTOPPED(os.waitpid(process, 0)[1]):
    assert trace(CONTINUE, process, None, None) == 0, os.strerror(ctypes.get_errno())
"""


if __name__ == "__main__":
    main([a_stopped_rank_is_named_within_the_limit, a_paused_rank_and_a_paused_job_raise_no_alarm,
          a_rank_that_sleeps_in_the_loader_is_named, a_signal_ends_a_run_whose_data_never_come,
          a_signal_ends_an_evaluation_whose_data_never_come, a_late_rank_is_named_with_its_gpu, a_hung_gpu_is_named,
          a_hung_gpu_is_named_among_four_and_by_each_communicator, a_slow_gpu_is_named_though_its_host_is_not_slow,
          a_rank_that_skips_a_collective_is_named, a_killed_rank_is_named, a_death_that_makes_all_ranks_fail_prints_one_line,
          a_killed_rank_of_one_group_is_named_in_all, the_requested_interface_is_used_or_refused,
          a_rank_that_dies_in_a_save_is_named, long_saves_and_slow_starts_raise_no_alarm,
          a_flipped_bit_is_found_within_the_interval_and_its_rank_named,
          a_flipped_bit_of_a_replica_among_groups_is_found_and_its_rank_named, a_flipped_bit_is_found_before_any_save,
          a_save_in_progress_is_finished_when_replicas_drift,
          a_rank_slowed_twofold_is_named_with_its_host,
          clean_runs_name_no_rank, a_time_limit_stops_the_run_in_time_without_losing_a_step,
          a_second_interrupt_stops_at_once, a_rank_waits_for_a_debugger])
