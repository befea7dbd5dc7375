#!/usr/bin/env python3
"""own_host.py COMMAND...: runs the command with a host name of its own, rank-N, so that NCCL and Lockstep let several ranks share a GPU.
Exit status 77 if the kernel does not allow it."""

import ctypes
import os
import pathlib
import socket
import sys

NEW_HOST_NAME, NEW_USER = 0x04000000, 0x10000000  # unshare(2)


def main():
    rank = os.environ.get("OMPI_COMM_WORLD_RANK", "0")
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    try:
        if libc.unshare(NEW_HOST_NAME) != 0:
            # Without privileges, in a user namespace with the same user.
            if libc.unshare(NEW_HOST_NAME | NEW_USER) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
                pathlib.Path("/proc/self", name).write_text(text)
        socket.sethostname(f"rank-{rank}")
    except OSError as error:
        print(f"a rank cannot get a host name of its own ({error.strerror})", file=sys.stderr)
        return 77
    if "OWN_HOST_PIDS" in os.environ:
        pathlib.Path(os.environ["OWN_HOST_PIDS"], f"rank-{rank}").write_text(str(os.getpid()))
    os.environ["NCCL_HOSTID"] = f"rank-{rank}"
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
