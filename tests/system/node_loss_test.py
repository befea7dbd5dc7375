#!/usr/bin/env python3
"""Tests nodes that lose power, and stalls of the network, between virtual nodes."""

import select

import virtual_nodes
from harness import *  # noqa: F403
from virtual_nodes import VirtualNodes

# The watchdog's default limits: 20 s without acknowledgements and 10 s without a connection, and a few seconds more.
LOSS_SECONDS = (25, 40)


def start_training(lab, folder, ranks_per_node):
    data = write_shards(folder / "data", samples=4000)
    process = lab.start([LOCKSTEP, *train_args(data, folder / "run", "--epochs", 500)], ranks_per_node,
                        environment({"OMP_NUM_THREADS": "1"}))
    wait_for_step(folder / "run", 3, process)
    return process


def logs(folder):
    return "".join(path.read_text() for path in sorted((folder / "run" / "log").glob("*")))


def last_step(folder):
    return events(folder / "run", "step")[-1]["step"]


def lines_until(process, text, seconds):
    """Reads the output until a line contains the text."""
    lines, deadline = "", time.monotonic() + seconds
    while text not in lines:
        assert time.monotonic() < deadline, f"no '{text}' within {seconds} s:\n{lines}"
        if select.select([process.stdout], [], [], 0.1)[0]:
            lines += os.read(process.stdout.fileno(), 65536).decode()
    return lines


def a_node_without_power_is_named_and_a_stall_is_harmless(folder):
    reason = virtual_nodes.why_not()
    if reason:
        raise Skipped(reason)
    with VirtualNodes(folder / "nodes", 3) as lab:
        process = start_training(lab, folder, ranks_per_node=2)
        lab.cut(1)
        time.sleep(5)
        lab.restore(1)
        before = last_step(folder)
        wait_for_step(folder / "run", before + 20, process, seconds=30)
        assert process.poll() is None and "watchdog" not in logs(folder), logs(folder)

        lab.cut(1)
        begin = time.monotonic()
        try:
            output = lines_until(process, "lockstep: error", 60)
            took = time.monotonic() - begin
            print(f"   named after {took:.1f} s", flush=True)
            assert "(node1) is gone (its node does not answer;" in output, output
            assert LOSS_SECONDS[0] < took < LOSS_SECONDS[1], f"after {took:.1f} s"
            while lab.processes(0) or lab.processes(2):
                assert time.monotonic() - begin < 60, "ranks on the other nodes still run"
                time.sleep(0.2)
            output += lines_until(process, "errorcode 70", 10)
            assert output.count("lockstep: error") == 1, output
            print(f"   the other nodes' ranks ended after {time.monotonic() - begin:.1f} s", flush=True)
        finally:
            lab.kill(1)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    main([a_node_without_power_is_named_and_a_stall_is_harmless])
