#!/usr/bin/env python3
"""two_ranks.py mpi|nccl|hybrid|killed|library FOLDER [OPTIONS of `lockstep train`]: two ranks on one GPU. Each has a host name of its own, without
which NCCL refuses them.

mpi: 20 steps over MPI, which the next two are compared with. nccl: the same over NCCL; hybrid: also with --shard hybrid. In fp32 each exchange
adds two numbers, whose sum does not depend on their order, so that losses and weights must have the same bits. killed: rank 1 is killed;
rank 0 must name it and end. library: the tests of the communicator over NCCL's library."""

import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

BUNDLE = pathlib.Path(__file__).resolve().parent
PROGRAM = os.environ["LOCKSTEP_PROGRAM"]
MPIRUN = [*os.environ["LOCKSTEP_MPIRUN"].split(), "-n", "2"]
OWN_HOST = [sys.executable, str(BUNDLE / "own_host.py")]
STEPS = 20


def train(folder, *options):
    return [PROGRAM, "train", "--synthetic", "--device", "cuda", "--run-dir", str(folder), "--log-every", "1", "--progress", "plain", *options]


def steps(folder):
    """The losses so far, as text, so that equal text is equal bits."""
    try:
        lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    events = [json.loads(line, parse_float=str) for line in lines if line.endswith("\n")]
    return [event["loss"] for event in events if event["event"] == "step"]


def weights(folder):
    exported = folder.with_suffix(".safetensors")
    subprocess.run([PROGRAM, "export", str(folder / "checkpoints/latest"), "--format", "safetensors", "--output", str(exported), "--overwrite"],
                   check=True, stdout=subprocess.DEVNULL)
    return hashlib.sha256(exported.read_bytes()).hexdigest()


def twenty_steps(name, folder, options):
    own_host, more = {"mpi": ([], ["--comm", "mpi"]), "nccl": (OWN_HOST, ["--comm", "nccl"]),
                      "hybrid": (OWN_HOST, ["--comm", "nccl", "--shard", "hybrid"])}[name]
    subprocess.run([*MPIRUN, *own_host, *train(folder / name, "--max-steps", str(STEPS), *more, *options)], check=True)
    mine, reference = ((steps(folder / each), weights(folder / each)) for each in (name, "mpi"))
    print(json.dumps({"steps": len(mine[0]), "weights": mine[1], "equal_bits": mine == reference}))
    if len(mine[0]) != STEPS:
        sys.exit(f"{name}: {len(mine[0])} steps instead of {STEPS}")
    if mine != reference:
        first = next((i for i, pair in enumerate(zip(*(each[0] for each in (mine, reference)))) if len(set(pair)) > 1), None)
        losses = "all losses are equal" if first is None else f"first other loss: step {first + 1}, {mine[0][first]} and {reference[0][first]}"
        sys.exit(f"{name}: other bits than over MPI: {losses}; SHA-256 of the weights {mine[1]} and {reference[1]}")


def killed(folder, options):
    run, pids, output = folder / "killed", folder / "pids", folder.parent / "killed.txt"
    pids.mkdir()
    with open(output, "w") as file:
        # Without recovery, mpirun would end rank 0 before it can name rank 1.
        job = subprocess.Popen([*MPIRUN, "--enable-recovery", *OWN_HOST, *train(run, "--comm", "nccl", "--epochs", "100000", *options)],
                               stdout=file, stderr=subprocess.STDOUT, env={**os.environ, "OWN_HOST_PIDS": str(pids)})
    while len(steps(run)) < 3 and job.poll() is None:
        time.sleep(0.05)
    if job.poll() is None:
        os.kill(int((pids / "rank-1").read_text()), signal.SIGKILL)
    begin = time.monotonic()
    job.wait()
    named = [line for line in output.read_text().splitlines() if "rank 1 (rank-1" in line and "is gone" in line]
    print(json.dumps({"named": named[:1], "seconds_to_end": round(time.monotonic() - begin, 1)}))
    if not named:
        sys.exit("killed: rank 0 did not name rank 1, which was killed (killed.txt)")


def library():
    if not (BUNDLE / "bin/nccl_library_test").exists():
        print("skipped: nccl_library_test is not in this bundle")
        sys.exit(77)
    os.execv(MPIRUN[0], [*MPIRUN, *OWN_HOST, str(BUNDLE / "run/nccl_library_test")])


def main():
    name, folder, options = sys.argv[1], pathlib.Path(sys.argv[2]).resolve() / "runs", sys.argv[3:]
    folder.mkdir(exist_ok=True)
    # Ranks in separate user namespaces cannot read each other's memory.
    os.environ.update(OMPI_MCA_btl_vader_single_copy_mechanism="none", NCCL_IB_DISABLE="1")
    if name == "library":
        library()
    elif name == "killed":
        killed(folder, options)
    else:
        twenty_steps(name, folder, options)


if __name__ == "__main__":
    main()
