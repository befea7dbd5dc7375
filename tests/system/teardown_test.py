#!/usr/bin/env python3
"""Tests the end of the program: no access to freed memory, no library left open, on success and on errors."""

import shutil

import harness
from harness import *  # noqa: F403

VALGRIND = shutil.which("valgrind")
SUPPRESSIONS = pathlib.Path("/usr/share/openmpi/openmpi-valgrind.supp")


def checked(args, expect=OK):
    """Runs one rank under valgrind, which does not support AVX-512; findings give status 99."""
    suppress = [f"--suppressions={SUPPRESSIONS}"] if SUPPRESSIONS.exists() else []
    process = subprocess.run([VALGRIND, "-q", "--error-exitcode=99", *suppress, LOCKSTEP, *map(str, args)],
                             env={**environment(), "DNNL_MAX_CPU_ISA": "AVX2"}, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, timeout=400)
    assert process.returncode == expect, f"status {process.returncode}\n{process.stdout[-4000:]}"
    harness.check_output(process.stdout)


@soak
def under_valgrind(folder):
    if VALGRIND is None:
        print("skipped: under_valgrind: valgrind is not installed")
        return
    data = write_shards(folder / "data", samples=8, shards=1, shape=(8, 8, 3))
    write_shards(folder / "data", samples=4, shards=1, shape=(8, 8, 3), split="val")
    args = ["train", "--data", data, "--run-dir", folder / "run", "--model", "mini-resnet", "--width", 4,
            "--batch-size", 4, "--threads", 1]
    checked([*args, "--max-steps", 1])
    checked([*args, "--epochs", 1])
    checked(["eval", "--data", data, "--checkpoint", latest(folder / "run"), "--threads", 1])
    checked([*args, "--seed", 5], expect=USAGE)
    checked(["inspect", folder / "run", data])


if __name__ == "__main__":
    main([under_valgrind])
