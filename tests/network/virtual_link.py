#!/usr/bin/env python3
"""virtual_link.py PID NAME PID NAME BYTES_PER_SECOND DELAY LOSS: a link with a rate, a delay and losses, in user space.

Creates the two ends in the network namespaces of two processes, prints "ready", and forwards frames until it is killed. Each
direction loses frames at random (LOSS: 0 to 1), serializes the others (0: at any rate) behind a buffer of 512 KiB, and delays
them by DELAY seconds. The kernel's netem does the same, but few containers and virtual machines have it.
"""

import collections
import ctypes
import fcntl
import os
import random
import select
import struct
import sys
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
CLONE_NEWNET = 0x40000000
BUFFER_BYTES = 512 * 1024
FRAME_BYTES = 2048


def open_end(pid, name):
    """Creates an interface in the namespace of the process; what its node sends is read from the descriptor."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/proc/{pid}/ns/net") as space:
        if libc.setns(space.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return end


class Direction:
    def __init__(self, source, target, link):
        self.source, self.target = source, target
        self.rate, self.delay, self.loss = link
        self.chance = random.Random(f"{source} {target}")
        self.free = 0.0  # when the last frame will have been serialized
        self.frames = collections.deque()  # with their times of arrival

    def receive(self):
        try:
            frame = os.read(self.source, FRAME_BYTES)
        except OSError:  # no frame after all, or the interface is down
            return
        now = time.monotonic()
        begin = max(now, self.free)
        if self.chance.random() < self.loss or (begin - now) * self.rate > BUFFER_BYTES:
            return
        self.free = begin + (len(frame) / self.rate if self.rate else 0)
        self.frames.append((self.free + self.delay, frame))

    def deliver(self):
        """Returns when the next frame arrives; None if there is none."""
        now = time.monotonic()
        while self.frames and self.frames[0][0] <= now:
            try:
                os.write(self.target, self.frames.popleft()[1])
            except OSError:
                pass  # the interface is down
        return self.frames[0][0] if self.frames else None


def main():
    first, second = (open_end(*sys.argv[at:at + 2]) for at in (1, 3))
    link = [float(word) for word in sys.argv[5:8]]
    both = {end.source: end for end in (Direction(first, second, link), Direction(second, first, link))}
    print("ready", flush=True)
    while True:
        due = [when for when in (end.deliver() for end in both.values()) if when is not None]
        readable, _, _ = select.select(list(both), [], [], max(0, min(due) - time.monotonic()) if due else None)
        for source in readable:
            both[source].receive()


if __name__ == "__main__":
    main()
