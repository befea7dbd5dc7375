"""Common code of the tests on virtual nodes."""

import contextlib
import pathlib
import re
import select
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "system"))

from harness import *  # noqa: E402,F401,F403
from harness import INTERNAL, SECONDS, Skipped, events, finish, os, time  # noqa: E402


def require(reason):
    """Skips the test if there is a reason why its part of the laboratory cannot be created here."""
    if reason:
        raise Skipped(reason)


def log_of(run_dir):
    """The logs of all ranks."""
    return "".join(path.read_text() for path in sorted((run_dir / "log").glob("*")))


def last_step(run_dir):
    return events(run_dir, "step")[-1]["step"]


@contextlib.contextmanager
def ended(process):
    """Kills the process group in the end, also if the test fails."""
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


ABORTED = r"[Ee]rrorcode:? 70"  # what mpirun prints when a rank calls MPI_Abort(70)


def lines_until(process, pattern, seconds, read=""):
    """Reads whole lines of the output until they match the pattern; returns them behind those `read` before, which may match."""
    output, deadline = read.encode(), time.monotonic() + seconds
    while not (output.endswith(b"\n") and re.search(pattern.encode(), output)):
        assert time.monotonic() < deadline, f"no '{pattern}' within {seconds} s:\n{output.decode(errors='replace')}"
        if select.select([process.stdout], [], [], 0.1)[0]:
            more = os.read(process.stdout.fileno(), 65536)
            assert more, f"the output ended without '{pattern}':\n{output.decode(errors='replace')}"
            output += more
    return output.decode()


def hang_is_named(process, storage, pattern, limit, seconds):
    """Lets the file system hang. Within `seconds`, the watchdog's line matches the pattern; its group: how late the rank is."""
    storage.hang()
    begin = time.monotonic()
    try:
        output = lines_until(process, "lockstep: error", 10 * limit)
        took = time.monotonic() - begin
    finally:
        storage.fail()  # the rank cannot end before
    line = output[output.index("lockstep: error"):].splitlines()[0]
    print(f"   after {took:.1f} s: {line}", flush=True)
    late = re.search(pattern, line)
    assert late and limit <= float(late[1]) < limit + 10, line  # 10 s: a busy machine
    assert took < seconds, f"after {took:.1f} s"
    status, rest = finish(process)
    assert status == INTERNAL, f"{status}\n{output}{rest}"


def wait_until(condition, process, seconds=SECONDS):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, f"it ended:\n{process.communicate()[0]}"
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)
