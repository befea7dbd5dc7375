#!/usr/bin/env python3
"""Tests collectives between nodes: the communicators' own tests over a network, and the bytes that each node sends."""

import collections

import virtual_nodes
from network_harness import *  # noqa: F403
from virtual_nodes import VirtualNodes

FOLDER = os.environ.get("LOCKSTEP_TEST_COMMUNICATORS", "")
LONG = bool(os.environ.get("LOCKSTEP_TEST_LONG"))
STEPS = 100  # so that the start and the end of a run add only a few hundredths to the bytes

# Programs whose ranks may be on several hosts. `least_bytes`: what each node sends at least; `long_tests`: tests that only the
# long form runs; `only_long`: the short form runs none.
Program = collections.namedtuple("Program", "name least_bytes long_tests only_long", defaults=((), False))
PROGRAMS = [Program("message_communicator_test", 1_000_000, ["all_kinds_pass_the_suite"]),
            Program("agreement_test", 500_000),
            Program("communicator_test", 2_000_000, only_long=True),
            Program("checked_communicator_test", 3_000_000, only_long=True),
            Program("mpi_all_reduce_test", 50_000, only_long=True)]


def communicators_pass_their_tests_between_nodes(folder):
    """8 ranks, two a node: in two levels; the long form also one a node, in one level."""
    require(virtual_nodes.why_not() or (None if FOLDER else "LOCKSTEP_TEST_COMMUNICATORS names no folder"))
    for nodes, ranks in ((4, 2), (8, 1)) if LONG else ((4, 2),):
        with VirtualNodes(folder / f"nodes-{nodes}", nodes) as lab:
            for program in [each for each in PROGRAMS if LONG or not each.only_long]:
                leave_out = [f"--run_test=!{test}" for test in program.long_tests if not LONG]
                status, output, sent = lab.run([f"{FOLDER}/{program.name}", *leave_out], ranks, environment(), seconds=600)
                assert status == OK and output.count("No errors detected") == nodes * ranks, f"{status}\n{output}"
                print(f"   {program.name}: {nodes} nodes sent {min(sent)} to {max(sent)} bytes", flush=True)
                assert min(sent) > program.least_bytes, f"nodes sent {sent} bytes, so this test is void"


def no_node_sends_more_than_the_mean(folder):
    """The bytes of training are those of an optimal all-reduce. A node that sends more delays all others."""
    require(virtual_nodes.why_not())
    data = write_shards(folder / "data", samples=960)
    shapes = ((5, 1, "ring"), (4, 2, "shared memory, ring between 4 nodes"), (9, 1, "halving"))
    for nodes, ranks, algorithm in shapes if LONG else shapes[:2]:
        run_dir = folder / f"run-{nodes}"
        with VirtualNodes(folder / f"nodes-{nodes}", nodes) as lab:
            status, output, sent = lab.run(
                [LOCKSTEP, "train", "--data", data, "--run-dir", run_dir, "--model", "mlp", "--width", 512, "--batch-size", 1,
                 "--threads", 1, "--progress", "plain", "--max-steps", STEPS], ranks, env=environment())
        assert status == OK, f"{status}\n{output}"
        with h5py.File(latest(run_dir)) as file:
            gradients = sum(tensor[...].nbytes for name, tensor in file["model"].items() if "running_" not in name)
        optimum = STEPS * gradients * 2 * (nodes - 1) / nodes
        mean = sum(sent) / nodes
        shares = f"{nodes} nodes sent {[f'{bytes / 1e6:.1f}' for bytes in sent]} MB, each at best {optimum / 1e6:.1f}"
        print(f"   {shares}; max / mean {max(sent) / mean:.3f}", flush=True)
        assert mean > 0.9 * optimum, f"{shares}: gradients were not sent over these links, so this test is void"
        assert max(sent) <= 1.1 * mean and max(sent) <= 1.1 * optimum, shares
        assert f"all-reduce: {algorithm}\n" in output, output


if __name__ == "__main__":
    main([communicators_pass_their_tests_between_nodes, no_node_sends_more_than_the_mean])
