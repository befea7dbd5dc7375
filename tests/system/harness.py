"""Common code of the system tests: running the program on ranks, small data sets, reading runs."""

import contextlib
import json
import os
import pathlib
import shutil  # noqa: F401 - for the tests
import signal
import subprocess
import sys
import time

try:
    import h5py
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing} (install python3-h5py)")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import runner  # noqa: E402
from runner import Skipped  # noqa: E402

LOCKSTEP = os.environ["LOCKSTEP_PROGRAM"]
MPIRUN = os.environ["LOCKSTEP_MPIRUN"].split()
SECONDS = 120  # over ten times the longest command of these tests; a hang is a failure

OK, USAGE, BAD_INPUT, NO_INPUT, DIVERGED, INTERNAL, CANNOT_WRITE, STOPPED = 0, 64, 65, 66, 69, 70, 73, 75
# What the last message of `lockstep train` says of its status.
ADVICE = {**{status: "the same command would fail again" for status in (USAGE, BAD_INPUT, NO_INPUT, DIVERGED, CANNOT_WRITE)},
          **{status: "submit the same command again; it resumes" for status in (INTERNAL, STOPPED)}}


@contextlib.contextmanager
def small_disk(path, size):
    """Mounts a file system of `size` at `path`."""
    path.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path]).returncode:
        raise Skipped("cannot mount a small tmpfs here")
    try:
        yield path
    finally:
        subprocess.run(["umount", path])


def command(args, ranks=1):
    launch = [] if ranks == 1 else [*MPIRUN, "-n", str(ranks)]
    return [*launch, LOCKSTEP, *map(str, args)]


# Makes ranks that wait for each other sleep (sleeping_yield.cpp).
PRELOAD = {"LD_PRELOAD": os.environ["LOCKSTEP_TEST_PRELOAD"]} if os.environ.get("LOCKSTEP_TEST_PRELOAD") else {}

# Where a program built with sanitizers writes its reports; main() checks them after each test.
REPORTS = os.environ.get("LOCKSTEP_SANITIZER_REPORTS")


def environment(extra=None):
    sanitizers = {}
    if REPORTS:
        # MPI's libraries leak by themselves, so leaks alone must not decide the status.
        log = f"log_path={REPORTS}/report"
        sanitizers = {"ASAN_OPTIONS": f"{log}:exitcode=99", "UBSAN_OPTIONS": f"{log}:print_stacktrace=1",
                      "LSAN_OPTIONS": f"{log}:exitcode=0"}
    # On a machine with a GPU, tests that are not about GPUs must not find one.
    # Measured times must not enter the user's cache.
    return {**os.environ, "OMP_WAIT_POLICY": "passive", "LOCKSTEP_MODULE_PATH": "/nonexistent",
            "XDG_CACHE_HOME": "/proc/none", **PRELOAD, **sanitizers, **(extra or {})}


def findings(report):
    """The errors of our code in a sanitizer's report: all errors, and leaks of memory that our code allocated."""
    # Without a symbolizer, each report says so, even if it reports nothing else.
    report = "\n".join(line for line in report.splitlines() if "external symbolizer" not in line)
    if not report.strip():
        return []
    if "LeakSanitizer" not in report or "ERROR: AddressSanitizer" in report or "runtime error" in report:
        return [report]
    leaks = [block for block in report.split("\n\n") if " leak of " in block]
    return [leak for leak in leaks if " in lockstep::" in leak]


def check_reports():
    for path in sorted(pathlib.Path(REPORTS).glob("report*")) if REPORTS else ():
        found = findings(path.read_text(errors="replace"))
        path.unlink()
        assert not found, found[0][:4000]


def start(args, ranks=1, env=None, **options):
    """Starts the program in the background, in a separate process group.

    Not in a session of its own: Linux schedules each session as a group (autogroup), and Linux 6.18 lets a group whose tasks call
    sched_yield, as waiting ranks do, keep other groups from running for a minute and more.
    """
    return subprocess.Popen(command(args, ranks), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env=environment(env), process_group=0, **options)


def finish(process, seconds=SECONDS):
    """Returns its status and output; a process that still runs after `seconds` is a hang."""
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise AssertionError(f"hang: {process.args}\n{output}")
    check_output(output)
    return process.returncode, output


def check_output(output):
    assert "closing library" not in output and "HDF5-DIAG" not in output, f"HDF5 was not closed completely:\n{output}"


def run(args, ranks=1, env=None, expect=OK, seconds=SECONDS):
    status, output = finish(start(args, ranks, env), seconds)
    assert status == expect, f"status {status}, expected {expect}: {' '.join(map(str, args))}\n{output}"
    if args[0] == "train" and expect in ADVICE:
        assert f"(status {expect}: {ADVICE[expect]})" in output, output
    return output


def write_shards(directory, samples=96, shards=2, shape=(12, 12, 3), classes=10, split="train", seed=0, **changes):
    """Writes a small data set with h5py: images whose mean brightness depends on the class. `changes` replace datasets by name."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    for i in range(shards):
        count = samples // shards + (1 if i < samples % shards else 0)
        labels = random.integers(0, classes, count)
        images = random.integers(0, 100, (count, *shape)) + (labels * 12)[:, None, None, None]
        with h5py.File(directory / f"{split}-{i:05}-of-{shards:05}.h5", "w") as file:
            content = {"images": images.astype("u1"), "labels": labels.astype("i8"), **changes}
            for name, value in content.items():
                if value is not None:
                    file[name] = value
            file.attrs["classes"] = classes
    return directory


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def write_broken_shards(directory):
    """A data set of 120 samples, in which sample 7 of the second shard has a wrong checksum."""
    broken = write_shards(directory, samples=120)
    with h5py.File(broken / "train-00001-of-00002.h5", "r+") as file:
        checksums = np.array([crc32c(image.tobytes() + int(label).to_bytes(8, "little"))
                              for image, label in zip(file["images"], file["labels"])], "u4")
        checksums[7] ^= 1
        file["crc32c"] = checksums
    return broken


MODEL = ["--model", "mini-resnet", "--width", "8", "--batch-size", "4", "--lr", "0.05", "--threads", "1",
         "--log-every", "1", "--augment", "crop-flip", "--crop-padding", "2", "--progress", "plain"]


def train_args(data, run_dir, *more):
    return ["train", "--data", data, "--run-dir", run_dir, *MODEL, *more]


def latest(run_dir):
    return pathlib.Path(run_dir) / "checkpoints" / "latest"


def tensors(path):
    """Every dataset of a checkpoint, by name, as bytes."""
    found = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.__setitem__(name, item[...].tobytes())
                        if isinstance(item, h5py.Dataset) else None)
    return found


def state(path):
    with h5py.File(path) as file:
        return dict(file["state"].attrs)


def events(run_dir, *kinds):
    lines = (pathlib.Path(run_dir) / "metrics.jsonl").read_text().splitlines()
    parsed = [json.loads(line) for line in lines]
    return [event for event in parsed if not kinds or event["event"] in kinds]


MEASURED = ("seconds", "images_per_second", "path", "time", "peak_rss_bytes")


def without_measurements(event):
    return {key: value for key, value in event.items() if key not in MEASURED}


def assert_same_run(one, other):
    """Compares the bits of model and optimizer, and metrics except what was measured."""
    left, right = tensors(latest(one)), tensors(latest(other))
    assert left.keys() == right.keys()
    different = [name for name in left if left[name] != right[name]]
    assert not different, f"different in {one} and {other}: {different[:5]}"
    kinds = ("step", "epoch", "eval")
    left = [without_measurements(e) for e in events(one, *kinds)]
    right = [without_measurements(e) for e in events(other, *kinds)]
    assert left == right, f"metrics differ: {[p for p in zip(left, right) if p[0] != p[1]][:2]} {len(left)} {len(right)}"


def wait_for_step(run_dir, step, process, seconds=SECONDS):
    """Waits until metrics.jsonl contains `step`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            return
        try:
            if any(e.get("step", 0) >= step for e in events(run_dir, "step")):
                return
        except (FileNotFoundError, json.JSONDecodeError):
            pass
        time.sleep(0.005)
    raise AssertionError(f"step {step} never came")


def ranks_of(process):
    """Process ids by rank."""
    found = {}
    for pid in subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split():
        environ = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        rank = [e for e in environ if e.startswith(b"OMPI_COMM_WORLD_RANK=") or e.startswith(b"PMI_RANK=")]
        if rank:
            found[int(rank[0].split(b"=")[1])] = int(pid)
    return found


def computes_bf16():
    """Whether the CPU engine computes in bf16 on this processor."""
    return "avx512bw" in pathlib.Path("/proc/cpuinfo").read_text()


def require_bf16():
    if not computes_bf16():
        raise Skipped("no bf16 on this processor (oneDNN needs AVX-512)")


SOAK = bool(os.environ.get("LOCKSTEP_TEST_SOAK"))


def soak(test):
    """Marks a test that takes long: only scripts/soak runs it (with LOCKSTEP_TEST_SOAK)."""
    test.soak, test.only_soak = True, True
    return test


def more_in_soak(test):
    """Marks a test that scripts/soak runs with more cases (of few())."""
    test.soak = True
    return test


def few(cases, *indexes):
    """In a soak all cases, else those with these indexes."""
    return cases if SOAK else [cases[i] for i in indexes]


def of_this_kind(tests):
    """Those that scripts/soak runs, or those that scripts/test runs."""
    return [test for test in tests if hasattr(test, "soak" if SOAK else "only_soak") == SOAK]


def main(tests):
    """Runs the given functions, or those named on the command line, each with a separate folder; exits with status 1 if any failed."""
    runner.main(tests, of_this_kind(tests), check_reports)
