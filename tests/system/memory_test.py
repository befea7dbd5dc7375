#!/usr/bin/env python3
"""Tests of limits on memory (ulimit -v, ulimit -d): the program starts, or says what it needs; it never crashes."""

import resource

from harness import *  # noqa: F403

MIB = 1 << 20
# In steps of which some are between any two needs of a small run. Below the least, the dynamic loader finds no memory.
LIMITS = range(100, 640, 10)
TRAINING = ["train", "--synthetic", "--model", "mini-resnet", "--width", 8, "--image-size", 32, "--classes", 10, "--synthetic-samples", 64,
            "--batch-size", 16, "--epochs", 1]


def limited(args, kind, mib, ranks=1):
    """Status and output of ranks of which each has the limit."""
    flag = {resource.RLIMIT_AS: "-v", resource.RLIMIT_DATA: "-d"}[kind]
    line = [*(MPIRUN if ranks > 1 else []), *(["-n", str(ranks)] if ranks > 1 else []), "bash", "-c", f'ulimit {flag} {mib * 1024}; exec "$@"', "-",
            LOCKSTEP, *map(str, args)]
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(), timeout=SECONDS, errors="replace")
    return done.returncode, done.stdout


def check(args, kind, mib, ranks=1):
    """Whether it succeeds; otherwise it must say once what limits it."""
    status, output = limited(args, kind, mib, ranks)
    check_output(output)
    assert "Signal:" not in output and "terminate called" not in output and "libgomp" not in output, f"{mib} MiB:\n{output}"
    if status == OK:
        return True
    errors = [line for line in output.splitlines() if line.startswith("lockstep: error: ")]
    assert status == USAGE and len(errors) == 1 and "ulimit" in errors[0] and "MiB" in errors[0], f"{mib} MiB: status {status}\n{output}"
    return False


@more_in_soak
def training_under_any_limit_succeeds_or_says_what_it_needs(folder):
    if REPORTS:
        raise Skipped("sanitizers map terabytes")
    for kind, ranks in ((resource.RLIMIT_AS, 1), (resource.RLIMIT_AS, 2), (resource.RLIMIT_DATA, 1)):
        found = {mib: check([*TRAINING, "--run-dir", folder / f"{kind}-{ranks}-{mib}"], kind, mib, ranks)
                 for mib in few(list(LIMITS), 0, 10, 16, 19, 30, 50)}
        assert not found[min(found)] and found[max(found)], found


@more_in_soak
def other_commands_under_any_limit_succeed_or_say_what_they_need(folder):
    if REPORTS:
        raise Skipped("sanitizers map terabytes")
    data = write_shards(folder / "data", split="val")
    write_shards(data, split="train")
    run(train_args(data, folder / "run", "--epochs", 1))
    commands = {"eval": ["eval", "--checkpoint", latest(folder / "run"), "--data", data], "bench": ["bench", "step", *TRAINING[2:10], "--batch-size", 16, "--steps", 2],
                "inspect": ["inspect", data, "--verify"], "export": ["export", latest(folder / "run"), "--format", "torchvision", "--overwrite", "--output", folder / "m.pt"]}
    for args in commands.values():
        found = {mib: check(args, resource.RLIMIT_AS, mib) for mib in few(list(LIMITS), 0, 15, 20, 50)}
        assert found[max(found)], (args, found)


def a_limit_of_threads_is_named(folder):
    """Nobody's processes are none but ours."""
    nobody = ["setpriv", "--reuid=65534", "--clear-groups"]
    if os.geteuid() != 0 or not shutil.which("setpriv") or subprocess.run([*nobody, LOCKSTEP, "--version"], capture_output=True).returncode:
        raise Skipped("needs root, setpriv, and a program that others may run")
    folder.chmod(0o777)
    statuses = []
    for processes in range(1, 13):
        args = [*TRAINING, "--threads", 4, "--run-dir", folder / f"run-{processes}"]
        line = [*nobody, "bash", "-c", f'ulimit -u {processes}; exec "$@"', "-", LOCKSTEP, *map(str, args)]
        done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(), timeout=SECONDS)
        statuses.append(done.returncode)
        errors = [line for line in done.stdout.splitlines() if line.startswith("lockstep: error: ")]
        assert done.returncode == OK or (done.returncode == USAGE and len(errors) == 1 and "ulimit -u" in errors[0]), f"{processes}\n{done.stdout}"
    assert statuses[0] == USAGE and statuses[-1] == OK, statuses


if __name__ == "__main__":
    main([training_under_any_limit_succeeds_or_says_what_it_needs, other_commands_under_any_limit_succeed_or_say_what_they_need,
          a_limit_of_threads_is_named])
