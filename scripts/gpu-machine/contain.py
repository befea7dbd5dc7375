#!/usr/bin/env python3
"""contain.py GRACE PARENT COMMAND...: runs the command, and ends with its status when none of its processes is left: neither those that changed
their session nor those whose parents ended. SIGTERM, and the end of the process PARENT, end them: by SIGTERM, and GRACE seconds later by
SIGKILL. Also ends what the command itself leaves behind."""

import ctypes
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time

SET_DEATH_SIGNAL, SET_SUBREAPER = 1, 36  # prctl(2)
NOT_ENDED = 125
STUCK = 5  # seconds after which a process that was killed is given up


def adopt_orphans(death_signal=0):
    """Makes this process the parent of its descendants' orphans; the kernel sends it `death_signal` when its own parent ends. Returns what the
    kernel refuses, in words."""
    libc = ctypes.CDLL(None, use_errno=True)
    refused = [f"prctl {option}: {os.strerror(ctypes.get_errno())}" for option, value in ((SET_SUBREAPER, 1), (SET_DEATH_SIGNAL, death_signal))
               if libc.prctl(option, value, 0, 0, 0) != 0]
    return f"processes may outlive their command, or the run ({', '.join(refused)})" if refused else ""


def descendants(root, without=()):
    """Processes below `root`, except zombies and what is below a process in `without`."""
    children, zombies = {}, set()
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, state, parent = int(path.parent.name), *path.read_text(errors="replace").rpartition(")")[2].split()[:2]
        except (OSError, ValueError):
            continue  # it has ended meanwhile
        children.setdefault(int(parent), []).append(pid)
        if state in "ZX":
            zombies.add(pid)
    found, open_nodes = [], [root]
    while open_nodes:
        for child in children.get(open_nodes.pop(), []):
            if child not in without:
                open_nodes.append(child)
                found.append(child)
    return [pid for pid in found if pid not in zombies]


def end(find, grace):
    """Ends the processes that find() returns, until it returns none: those that first appear later too. False if some do not end."""
    begin, asked = time.monotonic(), set()
    while alive := find():
        late = time.monotonic() - begin - grace
        if late > max(STUCK, grace):
            print(f"contain: {alive} do not end (in the driver?)", file=sys.stderr, flush=True)
            return False
        for pid in alive:
            if late > 0 or pid not in asked:
                try:
                    os.kill(pid, signal.SIGKILL if late > 0 else signal.SIGTERM)
                except ProcessLookupError:
                    pass
        asked.update(alive)
        time.sleep(0.02)
        reap()
    return True


def reap(statuses=None):
    """Collects the children that have ended."""
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
            if statuses is not None:
                statuses[ended[0]] = os.waitstatus_to_exitcode(ended[1])
    except ChildProcessError:
        pass


def main():
    grace, parent, command = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    told = []
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, lambda number, _: told.append(number))
    if refused := adopt_orphans(signal.SIGTERM):
        print(f"contain: {refused}", file=sys.stderr, flush=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a command's folder is archived
    if os.getppid() != parent:
        return NOT_ENDED
    try:
        # A Popen that is collected as garbage waits for its process, and would take its status away.
        child = subprocess.Popen(command, start_new_session=True)
    except OSError as error:
        print(f"contain: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    statuses = {}
    while child.pid not in statuses and not told:
        time.sleep(0.01)
        reap(statuses)
    left = descendants(os.getpid())
    if left and not told:
        print(f"contain: {len(left)} processes outlived the command; they are ended", file=sys.stderr, flush=True)
    if not end(lambda: descendants(os.getpid()), grace):
        return NOT_ENDED
    reap(statuses)
    status = 128 + told[0] if told else statuses[child.pid]
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
