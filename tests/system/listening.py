"""Which TCP ports processes listen on, and which the page for cluster staff names."""

import contextlib
import os
import pathlib
import re
import socket
import struct
import sys

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "cluster-staff.md"
LISTENS, ESTABLISHED = "0A", "01"


def number(text):
    """The address of /proc/net/tcp, which is in the processor's byte order by words."""
    words = struct.pack(f">{len(text) // 8}I", *(int.from_bytes(bytes.fromhex(text[i:i + 8]), sys.byteorder) for i in range(0, len(text), 8)))
    return socket.inet_ntop(socket.AF_INET6 if len(words) == 16 else socket.AF_INET, words)


def sockets(pid, state):
    """(address, port, peer's port) of the process's TCP sockets in this state."""
    inodes, lines, found = set(), [], set()
    with contextlib.suppress(OSError):  # the process has ended
        for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                inodes.add(os.readlink(link))
        for name in ("tcp", "tcp6"):
            lines += pathlib.Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    for word in map(str.split, lines):
        if word[3] == state and f"socket:[{word[9]}]" in inodes:
            address, port = word[1].split(":")
            found.add((number(address), int(port, 16), int(word[2].split(":")[1], 16)))
    return found


def listens_on(pid):
    return sorted(address for address, _, _ in sockets(pid, LISTENS))


def documented(process, purpose):
    """The addresses of a row of the page's table of ports."""
    row = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| {process} | {purpose}"))
    return re.findall(r"`([\d.:]+)`", row.split("|")[3])
