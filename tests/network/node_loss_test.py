#!/usr/bin/env python3
"""Tests nodes that lose power, and stalls of the network, between virtual nodes."""

import virtual_nodes
from network_harness import *  # noqa: F403
from virtual_nodes import VirtualNodes

# The watchdog's default limits: 20 s without acknowledgements and 10 s without a connection, and a few seconds more.
LOSS_SECONDS = (25, 40)


def a_node_without_power_is_named_and_a_stall_is_harmless(folder):
    require(virtual_nodes.why_not())
    data, run_dir = write_shards(folder / "data", samples=4000), folder / "run"
    training = [LOCKSTEP, *train_args(data, run_dir, "--epochs", 500)]
    with (VirtualNodes(folder / "nodes", 3) as lab,
          ended(lab.start(training, 2, environment({"OMP_NUM_THREADS": "1"}))) as process):
        wait_for_step(run_dir, 3, process)
        lab.cut(1)
        time.sleep(5)
        lab.restore(1)
        before = last_step(run_dir)
        wait_for_step(run_dir, before + 20, process, seconds=30)
        assert process.poll() is None and "watchdog:" not in log_of(run_dir), log_of(run_dir)

        lab.cut(1)
        begin = time.monotonic()
        output = lines_until(process, "lockstep: error", 60)
        took = time.monotonic() - begin
        print(f"   named after {took:.1f} s", flush=True)
        assert "(node1) is gone (its node does not answer;" in output, output
        assert LOSS_SECONDS[0] < took < LOSS_SECONDS[1], f"after {took:.1f} s"
        while lab.processes(0) or lab.processes(2):
            assert time.monotonic() - begin < 60, "ranks on the other nodes still run"
            time.sleep(0.2)
        output = lines_until(process, ABORTED, 10, output)
        assert output.count("lockstep: error") == 1, output
        print(f"   the other nodes' ranks ended after {time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main([a_node_without_power_is_named_and_a_stall_is_harmless])
