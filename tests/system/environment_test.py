#!/usr/bin/env python3
"""Tests the program in environments of other jobs, shells and users: it works as in a clean one, or says what is wrong."""

import random
import re
import shlex
import struct

from harness import *  # noqa: F403

UNSET = None
# Values of variables that users, sites and shells set, and that libraries read.
ODD = {
    "LC_ALL": ["xx_XX.UTF-8", "de_DE.UTF-8", "C", "", "\udcff", "../../etc"],
    "LC_NUMERIC": ["de_DE.UTF-8", "xx"],
    "LANG": ["xx_XX", "tr_TR.UTF-8", UNSET],
    "HOME": [UNSET, "", "/proc/none", "relative"],
    "PATH": [UNSET, "", "/proc/none", "."],
    "TMPDIR": ["/proc/none", "", "relative"],
    "TMP": ["/proc/none"],
    "POSIXLY_CORRECT": ["1", ""],
    "TZ": [":/nonexistent", "Pacific/Apia", "ABC-99:99:99,", "", "\udcff"],
    "TERM": [UNSET, "", "unknown"],
    "COLUMNS": ["-3", "0", "wide"],
    "USER": [UNSET],
    "XDG_CACHE_HOME": ["relative", "", "/proc/none"],
    "CDPATH": ["/tmp"],
    "BASH_FUNC_cd%%": ["() { exit 3; }"],
    "IFS": ["0"],
    "OMP_NUM_THREADS": ["0", "many", "1,2"],
    "MALLOC_ARENA_MAX": ["x"],
    "PMI_RANK": ["3"],
    "SLURM_JOB_ID": ["7", "x", ""],
    "SLURM_STEP_ID": ["0", "4294967290"],
    "SLURM_PROCID": ["5"],
    "SLURM_NTASKS": ["8", "x"],
    "SLURM_JOB_NUM_NODES": ["4"],
    "SLURM_JOB_END_TIME": ["1", "x", "1e400"],
    "SLURM_CLUSTERS": ["other"],
    "SQUEUE_FORMAT": ["%i"],
    "OMPI_COMM_WORLD_SIZE": ["4"],
    "OMPI_COMM_WORLD_RANK": ["2"],
    "PBS_NODEFILE": ["/proc/none", "/tmp", "/dev/null"],
}


def run_in(env, args):
    """Runs the program with exactly these variables; its status and output, which names a failure."""
    done = subprocess.run(command(args), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          timeout=SECONDS)
    unfit = args[0] == "doctor" and done.returncode == 1
    assert done.returncode == OK or unfit or done.returncode >= USAGE and "lockstep: error: " in done.stdout, (done.returncode, done.stdout)
    return done.returncode, done.stdout


def write_idx(directory):
    """Four images of MNIST's format."""
    directory.mkdir()
    for name in ("train", "t10k"):
        (directory / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 0x803, 4, 8, 8) + bytes(range(256)))
        (directory / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, 4) + bytes([0, 1, 2, 3]))
    return directory


def odd_environment(seed):
    choose = random.Random(seed)
    env = environment()
    for name in choose.sample(sorted(ODD), 6):
        value = choose.choice(ODD[name])
        env.pop(name, None)
        if value is not UNSET:
            env[name] = value
    return env


def changed(env):
    clean = environment()
    return {name: env.get(name) for name in {*env, *clean} if env.get(name) != clean.get(name)}


def odd_environments_change_nothing_or_are_refused(folder):
    data = write_shards(folder / "data")
    write_shards(folder / "data", samples=24, shards=1, split="val")
    print_config = ["train", "--print-config", "--lr", "0.125"]
    trained = run_in(environment(), train_args(data, folder / "run", "--max-steps", 3))
    assert trained[0] == OK, trained
    evaluation = ["eval", "--checkpoint", latest(folder / "run"), "--data", data, "--json"]
    pack = ["pack", "--from", "mnist", "--input", write_idx(folder / "mnist"), "--output", folder / "packed", "--overwrite"]
    config = run_in(environment(), print_config)[1]
    result = re.search(r'"top1": *([^,\s]+)', run_in(environment(), evaluation)[1])[1]
    for seed in range(200 if SOAK else 6):
        env = odd_environment(seed)
        try:
            status, output = run_in(env, print_config)
            assert status == OK and config in output, output  # libgomp warns of its variables
            run_dir = folder / f"run{seed}"
            status, output = run_in(env, train_args(data, run_dir, "--max-steps", 3))
            if status == OK:
                assert_same_run(run_dir, folder / "run")
            status, output = run_in(env, evaluation)
            assert status != OK or re.search(r'"top1": *([^,\s]+)', output)[1] == result, output
            run_in(env, pack)
            status, output = run_in(env, ["doctor"])
            assert "fit to train" in output, output
            shutil.rmtree(run_dir, ignore_errors=True)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {changed(env)}: {error}") from error


@soak
def each_odd_value_alone_is_no_obstacle(folder):
    data = write_shards(folder / "data")
    for name, values in ODD.items():
        for value in values:
            env = {**environment(), name: value}
            if value is UNSET:
                del env[name]
            status, output = run_in(env, train_args(data, folder / "run", "--max-steps", 1, "--resume", "none"))
            assert status == OK, (name, value, output)
            shutil.rmtree(folder / "run")


def with_squeue(folder, body):
    """Variables of Slurm job 7, whose squeue is that shell script."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "squeue").write_text(f"#!/bin/sh\n{body}\n")
    (programs / "squeue").chmod(0o755)
    # Open MPI's mpirun puts the directory of its own absolute path before all others.
    if shutil.which(pathlib.Path(MPIRUN[0]).name) == MPIRUN[0]:
        MPIRUN[0] = pathlib.Path(MPIRUN[0]).name
    return {"SLURM_JOB_ID": "7", "PATH": f"{programs}:{os.environ['PATH']}"}


def the_end_of_another_job_stops_no_run(folder):
    data = write_shards(folder / "data")
    args = train_args(data, folder / "run", "--max-steps", 2)
    for end in ("1", str(int(time.time()) - 5)):
        env = {**with_squeue(folder, "echo down; exit 1"), "SLURM_JOB_END_TIME": end}
        output = run(args, 2, env)
        shutil.rmtree(folder / "run")
        assert f"SLURM_JOB_END_TIME={end} is not used (in the past" in output and "squeue says 'down'" in output, output
    # Slurm's answer comes first, whatever the user's settings of squeue are.
    env = with_squeue(folder, "env | grep -q ^SQUEUE_ || echo 7 2:00:00")
    output = run(args, 2, {**env, "SLURM_JOB_END_TIME": "1", "SQUEUE_STATES": "PENDING"})
    assert re.search(r"time: \S+ left, until \S+ \S+ \(Slurm job 7\); saves and stops with 75 about 0:\d\d before that", output), output
    assert "warning" not in output, output


def a_raised_limit_prevents_the_stop(folder):
    data = write_shards(folder / "data", samples=4000)
    left = folder / "left"
    left.write_text("0:25")
    process = start(train_args(data, folder / "run", "--epochs", 100000, "--eval-every", 0), 2,
                    with_squeue(folder, f'echo "7 $(cat {left})"'))
    wait_for_step(folder / "run", 1, process)
    left.write_text("1-00:00:00")
    log = folder / "run" / "log" / "rank-00000.log"
    deadline = time.monotonic() + SECONDS
    while "its limit was raised" not in log.read_text():
        assert process.poll() is None and time.monotonic() < deadline, finish(process)
        time.sleep(0.05)
    process.send_signal(signal.SIGUSR1)
    status, output = finish(process)
    assert status == STOPPED and "stopped on request" in output, output
    assert re.search(r"time: Slurm job 7 ends at \S+ \S+ \(\S+ left\), not at \S+ \S+ \(its limit was raised\)", output), output


def a_limit_without_time_is_refused_and_a_short_one_warned_of(folder):
    data = write_shards(folder / "data")
    args = train_args(data, folder / "run", "--max-steps", 2)
    output = run([*args, "--time-limit", "1s"], 2, expect=STOPPED)
    assert "so the run stops after its first step; give a longer --time-limit" in output, output
    output = run(args, 2, with_squeue(folder, "echo 7 0:03"), expect=STOPPED)
    assert "until Slurm job 7 ends the run" in output and "submit with a longer --time" in output, output
    output = run([*args, "--time-limit", "20min", "--save-every", "3h"], 2)
    assert "--save-every 3:00:00 is longer than the" in output, output


def fewer_ranks_than_tasks_are_warned_of(folder):
    data = write_shards(folder / "data")
    write_shards(folder / "data", samples=24, shards=1, split="val")
    for args in (train_args(data, folder / "run", "--max-steps", 2),
                 ["eval", "--checkpoint", latest(folder / "run"), "--data", data],
                 ["pack", "--from", "mnist", "--input", write_idx(folder / "mnist"), "--output", folder / "packed"],
                 ["bench", "allreduce", "--steps", 1, "--warmup", 0]):
        output = run(args, env={"SLURM_NTASKS": "8"})
        assert output.count("MPI sees 1 rank where Slurm's count is 8 (SLURM_NTASKS") == 1, output
    nodes = folder / "nodes"
    nodes.write_text("here\n" * 3)
    args = train_args(data, folder / "run", "--max-steps", 2)
    for env, by in (({"SLURM_NTASKS": "3"}, "SLURM_NTASKS"), ({"PBS_NODEFILE": str(nodes)}, "PBS_NODEFILE")):
        output = run(args, 2, env)
        assert output.count(f"mpirun started 2 ranks where the allocation is of 3 tasks ({by}); leave out mpirun's -n") == 1, output
    assert "lockstep: warning" not in run(args, 2, {"SLURM_NTASKS": "2"})
    # export and --print-config are one process's work.
    assert "lockstep: warning" not in run(["train", "--print-config"], env={"SLURM_NTASKS": "8"})


def variables_of_a_launcher_in_a_shell_are_told(folder):
    if os.readlink("/proc/self/ns/pid") != "pid:[4026531836]":
        raise Skipped("in a container, a process does not see all of its parents")
    args = train_args(write_shards(folder / "data"), folder / "run", "--max-steps", 1)
    for env, by in (({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "2"}, "process 2 of 4 by mpirun"),
                    ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3"}, "process 3 of 4 by srun")):
        for command_line in (args, ["doctor"]):
            output = run(command_line, env=env)
            assert by in output and "left over in this shell" in output, output


def a_launcher_that_has_ended_is_refused(folder):
    shown = subprocess.run([*MPIRUN, "-n", "1", "env", "-0"], env=environment(), stdout=subprocess.PIPE, timeout=SECONDS)
    left = dict(line.split("=", 1) for line in shown.stdout.decode(errors="surrogateescape").split("\0") if "=" in line)
    if not any(name.startswith("PMIX_SERVER_URI") and ";tcp4://" in value for name, value in left.items()):
        raise Skipped("this mpirun has no PMIx server with a port")
    output = run(train_args(write_shards(folder / "data"), folder / "run", "--max-steps", 1), env=left, expect=USAGE)
    assert "lockstep: error: the launcher named in the environment has ended (PMIX_SERVER_URI" in output, output


@soak
def a_start_that_waits_for_absent_processes_says_so(folder):
    args = train_args(write_shards(folder / "data"), folder / "run", "--max-steps", 1)
    script = f'[ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = 0 ] || sleep 75; exec {shlex.join(map(str, command(args)))}'
    done = subprocess.run([*MPIRUN, "-n", "2", "sh", "-c", script], env=environment(), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
    assert done.returncode == OK, done.stdout
    assert re.search(r"warning: MPI has not started within 60 s on \S+ \(it waits .*; this is process 0 of 2 by mpirun\)", done.stdout), done.stdout


if __name__ == "__main__":
    main([odd_environments_change_nothing_or_are_refused, each_odd_value_alone_is_no_obstacle, the_end_of_another_job_stops_no_run,
          a_raised_limit_prevents_the_stop, a_limit_without_time_is_refused_and_a_short_one_warned_of,
          fewer_ranks_than_tasks_are_warned_of, variables_of_a_launcher_in_a_shell_are_told, a_launcher_that_has_ended_is_refused,
          a_start_that_waits_for_absent_processes_says_so])
