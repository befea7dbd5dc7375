#!/usr/bin/env python3
"""Tests whole training runs on a GPU: Fashion-MNIST compared with the CPU, in every precision, on ranks that share the GPU.

Uses the GPU module in the directory LOCKSTEP_TEST_REAL_MODULE, or else the host module (LOCKSTEP_TEST_HOST_MODULE), with small
batches and without the long runs; with LOCKSTEP_TEST_SOAK only the tests that take long. The files of the data set are in LOCKSTEP_FASHION_MNIST, or where Debian's dataset-fashion-mnist
installs them. Reads only metrics.jsonl of the runs, so that no Python package is needed.
"""

import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

REAL = os.environ.get("LOCKSTEP_TEST_REAL_MODULE")
MODULE = REAL or os.environ.get("LOCKSTEP_TEST_HOST_MODULE")
FILES = pathlib.Path(os.environ.get("LOCKSTEP_FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
if not MODULE or not pathlib.Path(MODULE).exists() or not FILES.exists():
    print("skipped: " + (f"{FILES} is not there" if not FILES.exists() else "there is neither a GPU's module nor the host's"))
    sys.exit(77)
LOCKSTEP = os.environ["LOCKSTEP_PROGRAM"]
MPIRUN = os.environ["LOCKSTEP_MPIRUN"].split()
CORES = str(len(os.sched_getaffinity(0)))
SOAK = bool(os.environ.get("LOCKSTEP_TEST_SOAK"))
BATCH = 128 if REAL else 12


def run(folder, *options, ranks=1, env={}):
    launch = [] if ranks == 1 else [*MPIRUN, "-n", str(ranks)]
    return subprocess.run([*launch, LOCKSTEP, *map(str, options)], check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=300, cwd=folder, env={**os.environ, **env, "LOCKSTEP_MODULE_PATH": MODULE}).stdout


def train(folder, name, *options, ranks=1, rate=(0.1, 0.5), data="data", env={}):
    """Returns the events of metrics.jsonl. `rate` is the learning rate and the number of epochs of warm-up."""
    run(folder, "train", "--model", "mini-resnet", "--width", 16, "--data", data, "--run-dir", name, "--global-batch-size", BATCH, "--lr", rate[0],
        "--warmup-epochs", rate[1], "--augment", "crop-flip", "--crop-padding", 2, "--log-every", 1, "--progress", "plain", "--loader-threads", 4,
        *options, ranks=ranks, env=env)
    with open(pathlib.Path(folder, name, "metrics.jsonl")) as lines:
        return [json.loads(line) for line in lines]


def losses(events):
    return [event["loss"] for event in events if event["event"] == "step"]


def close(one, other, tolerance):
    for step, (left, right) in enumerate(zip(one, other, strict=True)):
        assert math.isclose(left, right, rel_tol=tolerance), f"step {step + 1}: {left} and {right}"


def twenty_steps_match_those_on_a_cpu(folder):
    on_cpu = losses(train(folder, "cpu", "--device", "cpu", "--max-steps", 20, "--threads", CORES))
    on_gpu = losses(train(folder, "gpu", "--device", "cuda", "--max-steps", 20))
    print("losses", on_cpu[0], on_cpu[-1], "and", on_gpu[0], on_gpu[-1])
    assert len(on_cpu) == 20
    # The first loss comes from the same weights; rounding errors grow in later ones.
    close(on_cpu[:1], on_gpu[:1], 1e-5)
    close(on_cpu[:13], on_gpu[:13], 1e-3)
    close(on_cpu, on_gpu, 2e-2)


def twenty_steps_of_other_optimizers_match_those_on_a_cpu(folder):
    for optimizer, lr in (("adamw", 0.0003), ("lars", 0.2)):
        steps, rate = ["--optimizer", optimizer, "--max-steps", 20], (lr, 0)
        on_cpu = losses(train(folder, f"cpu-{optimizer}", "--device", "cpu", "--threads", CORES, *steps, rate=rate))
        on_gpu = losses(train(folder, f"gpu-{optimizer}", "--device", "cuda", *steps, rate=rate))
        print("losses", optimizer, on_cpu[0], on_cpu[-1], "and", on_gpu[0], on_gpu[-1])
        assert len(on_cpu) == 20
        close(on_cpu, on_gpu, 1e-2)


def ranks_on_one_gpu_equal_one_rank(folder):
    sync = ["--device", "cuda", "--comm", "mpi", "--batch-norm", "sync", "--max-steps", 20]
    one = losses(train(folder, "one", *sync))
    for ranks in (2, 3):
        several = losses(train(folder, f"ranks-{ranks}", *sync, ranks=ranks))
        # On an H200: 1.6e-4 at most in the first 13 steps, 6e-3 in all. Rounding errors grow alike between any two of these runs.
        close(one[:13], several[:13], 1e-3)
        close(one, several, 2e-2)


def nccl_alone_changes_nothing(folder):
    steps = ["--device", "cuda", "--max-steps", 20]
    assert losses(train(folder, "plain", *steps)) == losses(train(folder, "nccl", *steps, "--comm", "nccl"))


def write_idx(path, shape, values):
    path.write_bytes(struct.pack(f">I{len(shape)}I", 0x0800 + len(shape), *shape) + bytes(values))


def pack_few(folder):
    """96 training images and 24 test images, which differ by class."""
    files = pathlib.Path(folder, "few-files")
    files.mkdir()
    for part, count in (("train", 96), ("t10k", 24)):
        labels = [i * 7 % 10 for i in range(count)]
        pixels = [(label * 25 + i * 31 + at * 17) % 256 for i, label in enumerate(labels) for at in range(144)]
        write_idx(files / f"{part}-images-idx3-ubyte", (count, 12, 12), pixels)
        write_idx(files / f"{part}-labels-idx1-ubyte", (count,), labels)
    run(folder, "pack", "--from", "mnist", "--input", "few-files", "--output", "few")


def a_slow_gpu_gives_the_same_bits_as_a_fast_one(folder):
    """With evaluations, saves, a stop and accumulation between steps whose forward is queued before the previous step has ended."""
    quick = ((["--clip-grad-norm", 1, "--save-every", 5], 1), (["--shard", "full", "--save-every", 3], 2))
    for number, (options, ranks) in enumerate(((["--precision", "fp16"], 1), (["--accumulate", 2], 2)) if SOAK else quick):
        seen = []
        for name, late in ((f"quick-{number}", {}), (f"slow-{number}", {"HOST_MODULE_LATE": "1"})):
            for steps in (11, 24):  # eight per epoch, so that the first run ends within an epoch
                events = train(folder, name, "--device", "cuda", "--eval-every", 0.5, "--epochs", 3, "--max-steps", steps,
                               *options, ranks=ranks, data="few", env=late)
            seen.append([(event["event"], event["step"], event["loss"], event["top1"]) for event in events if event["event"] in ("step", "eval")])
            evaluated = run(folder, "eval", "--checkpoint", f"{name}/checkpoints/latest", "--data", "few", "--device", "cpu", "--precision", "fp32", "--json").splitlines()[-1]
            seen[-1].append(json.loads(evaluated)["loss"])
        fast, slow = seen
        assert [kind for kind, *_ in fast[:-1]].count("step") == 24 and [kind for kind, *_ in fast[:-1]].count("eval") >= 5, fast
        assert fast == slow, f"{options}: {fast} and {slow}"


def a_profiler_receives_steps_phases_and_buckets(folder):
    marks = pathlib.Path(folder, "marks")
    train(folder, "marked", "--device", "cuda", "--bucket-mb", 0.05, "--max-steps", 3, "--epochs", 1, "--eval-every", 0.25, data="few",
          ranks=2, env={"HOST_MODULE_MARKS": str(marks)})
    lines = marks.read_text().splitlines()
    steps = [at for at, line in enumerate(lines) if line.startswith("step ")]
    assert [lines[at] for at in steps] == ["step 1", "step 2", "step 3"], lines
    first = lines[steps[0]:steps[1]]
    phases = [line.strip() for line in first if line.startswith("  ") and "bucket" not in line]
    assert phases == ["forward", "backward", "data", "communication", "update"], first
    buckets = [line.strip() for line in first if "bucket" in line]
    assert buckets == [f"bucket {i + 1}" for i in range(len(buckets))] and len(buckets) > 2, first
    assert "evaluation" in lines[steps[1]:steps[2]], lines


def a_run_that_resumes_on_another_class_of_gpu_says_so(folder):
    def resumed_on(capability, steps):
        return run(folder, "train", "--model", "mini-resnet", "--width", 8, "--data", "few", "--run-dir", "classes", "--device", "cuda",
                   "--global-batch-size", BATCH, "--max-steps", steps, "--resume", "auto", env={"HOST_MODULE_CAPABILITY": capability})

    assert "backend" not in resumed_on("8", 1)
    assert "backend" not in resumed_on("8", 2)
    says = resumed_on("10", 3)
    assert "sums of sm_80, is" in says and "sums of sm_100 now (results may differ in their last bits)" in says, says


def every_precision_reaches_the_accuracy(folder):
    reached = {}
    for precision in ("fp32", "tf32", "bf16", "fp16"):
        events = train(folder, precision, "--device", "cuda", "--epochs", 6, "--precision", precision)
        reached[precision] = [event["top1"] for event in events if event["event"] == "eval"][-1]
        print(precision, f"{100 * reached[precision]:.2f} %", flush=True)
    # On a CPU, seeds differ by 0.3 points.
    assert min(reached.values()) > 0.912, reached
    assert max(reached.values()) - min(reached.values()) < 0.008, reached


def main():
    failed = 0
    quick = [twenty_steps_match_those_on_a_cpu, ranks_on_one_gpu_equal_one_rank]
    long = [twenty_steps_of_other_optimizers_match_those_on_a_cpu, nccl_alone_changes_nothing]
    of_host = [a_profiler_receives_steps_phases_and_buckets, a_run_that_resumes_on_another_class_of_gpu_says_so]
    if REAL:
        tests = quick + long + [every_precision_reaches_the_accuracy]
    else:
        tests = [a_slow_gpu_gives_the_same_bits_as_a_fast_one, *(long if SOAK else [*quick, *of_host])]
        print("left out: every_precision_reaches_the_accuracy (it needs a GPU)")
    with tempfile.TemporaryDirectory() as folder:
        run(folder, "pack", "--from", "mnist", "--input", FILES, "--output", "data")
        pack_few(folder)
        for test in tests:
            try:
                test(folder)
                print("ok     ", test.__name__, flush=True)
            except (AssertionError, subprocess.SubprocessError) as error:
                failed += 1
                print("FAILED ", test.__name__, error, (getattr(error, "stdout", "") or "")[-800:], flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
