#!/usr/bin/env python3
"""A fault of any rank gives one message and one status, and no rank hangs."""

import socket
import sys
import time

from cli_harness import check, failures, finish

PROBE = sys.argv[1]

for ranks in (None, 1, 3):
    check(PROBE, ["fine"], 0, ranks)
    check(PROBE, ["alike"], 64, ranks, says=["lockstep: error: all ranks say this"])
    check(PROBE, ["stopped"], 75, ranks)
    check(PROBE, ["other"], 70, ranks, says=["not one of ours"])
for ranks in (2, 3):
    check(PROBE, ["agreed"], 65, ranks, says=[f"lockstep: error: rank 1 on {socket.gethostname()}: only rank 1 saw this"])
    check(PROBE, ["late"], 66, ranks, says=["after the others were done"])
    begin = time.monotonic()
    check(PROBE, ["alone"], 73, ranks, says=["lockstep: error: rank 1 on ", "rank one failed alone"])
    if time.monotonic() - begin > 30:
        failures.append("alone took too long")
finish()
