"""File systems that are slow, gone or hang: bindfs, which shows a folder under another name, and can be limited and stopped."""

import contextlib
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from virtual_nodes import die_with_parent, why_not_open

CLONE_NEWNS = 0x00020000


def why_not():
    """Returns why there can be no such file system here; None if there can."""
    if shutil.which("bindfs") is None:
        return "no bindfs here (package bindfs)"
    if os.geteuid() != 0:
        return "mounting a slow file system needs root"
    if reason := why_not_open("/dev/fuse"):
        return reason
    probe = subprocess.run(["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True, text=True)
    return None if probe.returncode == 0 else f"no file system can be mounted here ({probe.stderr.strip()})"


def enter_or_skip():
    """Moves this process into a mount namespace, whose mounts end with it. If it can have none, it ends as skipped."""
    reason = why_not()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    libc = ctypes.CDLL(None, use_errno=True)
    ms_rec_private = 0x4000 | 0x40000
    done = libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, ms_rec_private, None)
    assert done == 0, os.strerror(ctypes.get_errno())


class SlowStorage:
    """A context manager: `path` shows `folder`, with reads and writes limited to `rate` bytes per second (None: unlimited)."""

    def __init__(self, path, folder, rate=None):
        self.path, self.folder, self.rate = pathlib.Path(path), pathlib.Path(folder), rate

    def __enter__(self):
        self.path.mkdir(exist_ok=True)
        self.folder.mkdir(exist_ok=True)
        limits = [f"--read-rate={self.rate}", f"--write-rate={self.rate}"] if self.rate else []
        # Like a busy file server, it delays reads and writes of data, but not other requests beside them.
        self.process = subprocess.Popen(["bindfs", "-f", "--multithreaded", *limits, self.folder, self.path],
                                        stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
        deadline = time.monotonic() + 30
        while not os.path.ismount(self.path):
            assert self.process.poll() is None and time.monotonic() < deadline, "bindfs does not mount its file system"
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        self.fail()
        subprocess.run(["umount", "--lazy", self.path])

    def hang(self):
        """From now on, no request is answered."""
        self.process.send_signal(signal.SIGSTOP)

    def fail(self):
        """From now on, each request fails ("Transport endpoint is not connected")."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
