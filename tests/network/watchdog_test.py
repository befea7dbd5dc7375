#!/usr/bin/env python3
"""Tests the watchdog on bad networks: it names a node that is cut off; a stall, a slow link and a lossy one are harmless."""

import collections

import virtual_nodes
from network_harness import *  # noqa: F403
from listening import documented, listens_on
from virtual_nodes import Link, VirtualNodes

# --watchdog-seconds: short where a node must be named, else long enough for a busy machine.
SHORT, LIMIT = 6, 12
LONG = bool(os.environ.get("LOCKSTEP_TEST_LONG"))


def training(data, run_dir, steps, limit=LIMIT):
    return [LOCKSTEP, *train_args(data, run_dir, "--max-steps", steps, "--epochs", 10**6, "--save-every", 10**6,
                                  "--watchdog-seconds", limit)]


SETTINGS = {"OMP_NUM_THREADS": "1"}


def train(lab, data, run_dir, steps, ranks_per_node=1):
    """Returns the seconds from the first step to the last."""
    status, output, _ = lab.run(training(data, run_dir, steps), ranks_per_node, environment(SETTINGS), seconds=300)
    assert status == OK and "watchdog:" not in log_of(run_dir), f"{status}\n{output}\n{log_of(run_dir)}"
    return sum(4 * ranks_per_node * lab.count / event["images_per_second"] for event in events(run_dir, "step")[1:])


def is_named_within_the_limit(lab, data, run_dir, node):
    """Cuts the node off; the others name it and end."""
    with ended(lab.start(training(data, run_dir, 10**6, SHORT), 1, environment(SETTINGS))) as process:
        wait_for_step(run_dir, 3, process)
        lab.cut(node)
        begin = time.monotonic()
        # The ranks that are cut off print their view, too; here it reaches the terminal.
        output = lines_until(process, rf"\(node{node}\) was last heard of", 10 * SHORT)
        took = time.monotonic() - begin
        print(f"   node{node} named after {took:.1f} s", flush=True)
        assert 0.75 * SHORT < took < SHORT + 10, f"after {took:.1f} s"  # 10 s: a busy machine
        lines_until(process, ABORTED, 10, output)


def a_node_that_is_cut_off_is_named_and_a_stall_is_harmless(folder):
    require(virtual_nodes.why_not())
    data = write_shards(folder / "data", samples=2400)
    with VirtualNodes(folder / "nodes", 3) as lab:
        train(lab, data, folder / "undisturbed", 200)
        with ended(lab.start(training(data, folder / "stalled", 200), 1, environment(SETTINGS))) as process:
            wait_for_step(folder / "stalled", 3, process)
            lab.cut(1)
            time.sleep(2)
            before = last_step(folder / "stalled")
            time.sleep(1)
            assert last_step(folder / "stalled") == before < 190, "training went on without the node, so this test is void"
            lab.restore(1)
            status, output = finish(process)
        assert status == OK and "watchdog:" not in log_of(folder / "stalled"), f"{output}\n{log_of(folder / 'stalled')}"
        assert_same_run(folder / "undisturbed", folder / "stalled")
        is_named_within_the_limit(lab, data, folder / "cut", 2)


def slow_and_lossy_links_are_harmless(folder):
    """A fiftieth of the rate of the others and a high delay; up to a twentieth of all frames lost."""
    require(virtual_nodes.why_no_links())
    data = write_shards(folder / "data", samples=2400)
    Case = collections.namedtuple("Case", "name steps ranks_per_node links")
    cases = [Case("both", 10, 1, {1: Link("4mbit", delay=0.04), 2: Link(loss=0.03)})]
    if LONG:
        cases += [Case("slow", 24, 2, {2: Link("4mbit", delay=0.1)}), Case("slow-root", 24, 1, {0: Link("4mbit", delay=0.1)}),
                  Case("lossy", 200, 2, {1: Link(loss=0.01)}), Case("lossier", 200, 1, {0: Link(loss=0.05)})]
    for case in cases:
        run_dir, undisturbed = folder / case.name, folder / f"{case.name}-undisturbed"
        with VirtualNodes(folder / f"nodes-{case.name}-undisturbed", 3, "200mbit") as lab:
            usual = train(lab, data, undisturbed, case.steps, case.ranks_per_node)
        with VirtualNodes(folder / f"nodes-{case.name}", 3, "200mbit", case.links) as lab:
            seconds = train(lab, data, run_dir, case.steps, case.ranks_per_node)
            again = {node: lab.retransmitted(node) for node in case.links}
        print(f"   {case.name}: {seconds:.1f} s instead of {usual:.1f}; segments retransmitted by node: {again}", flush=True)
        for node, link in case.links.items():
            assert again[node] > 0 or not link.loss, "nothing was lost, so this test is void"
            assert seconds > LIMIT or not link.rate, "the link did not slow training down, so this test is void"
        assert_same_run(run_dir, undisturbed)


def the_ports_of_a_run_on_two_nodes_are_those_documented(folder):
    require(virtual_nodes.why_not())
    if "(Open MPI) 4." not in subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout:
        raise Skipped("the ports are those of Open MPI's version 4")
    data = write_shards(folder / "data", samples=2400)
    any_network, own_node, *_ = documented("rank, several nodes", "watchdog")
    messages = documented("rank, several nodes", "messages")
    with VirtualNodes(folder / "nodes", 2) as lab:
        for options in ([], ["--watchdog-interface", "10.77.0.0/16"]):
            run_dir = folder / f"run{len(options)}"
            with ended(lab.start([*training(data, run_dir, 10**6), *options], 2, environment(SETTINGS))) as process:
                wait_for_step(run_dir, 3, process)
                for node in (0, 1):
                    watchdogs = [virtual_nodes.address(node)] * 2 if options else [own_node, any_network]
                    found = sorted(listens_on(pid) for pid in lab.processes(node))
                    assert found == sorted(sorted([*messages, one]) for one in watchdogs), found
            for node in (0, 1):
                lab.wait_until_idle(node)


if __name__ == "__main__":
    main([the_ports_of_a_run_on_two_nodes_are_those_documented,
          a_node_that_is_cut_off_is_named_and_a_stall_is_harmless, slow_and_lossy_links_are_harmless])
