#!/usr/bin/env python3
"""Tests that lockstep doctor names the nodes whose links are slow or lossy, with figures."""

import virtual_nodes
from network_harness import *  # noqa: F403
from virtual_nodes import Link, VirtualNodes


def diagnose(lab):
    """The finding about nodes."""
    status, output, _ = lab.run([LOCKSTEP, "doctor", "--json", "--timeout", 16], env=environment())
    results = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert status == OK and len(results) == 1, f"{status}\n{output}"
    [finding] = [check for check in results[0]["checks"] if check["check"] == "nodes"]
    print(f"   {finding['text']}", flush=True)
    return finding


def slow_and_lossy_links_are_named(folder):
    require(virtual_nodes.why_no_links())
    with VirtualNodes(folder / "nodes", 4, links={1: Link("40mbit", delay=0.006), 3: Link(loss=0.03)}) as lab:
        finding = diagnose(lab)
    text, values = finding["text"], finding["values"]
    assert finding["verdict"] == "warn" and "--exclude=node1,node3" in text, finding
    assert "the link of node1 is slow: " in text and "the link of node3 loses packets: " in text, finding
    assert 1e6 < values["slow_node1"] < 5e6, finding  # 5 MB/s in each direction, and 6 ms
    assert 0.01 < values["lossy_node3"] < 0.06, finding  # 3 % of the frames; acknowledgements are segments, too


def links_of_any_rate_are_not_named_if_all_are_alike(folder):
    require(virtual_nodes.why_not())
    for rate in (None, "200mbit"):
        with VirtualNodes(folder / f"nodes-{rate}", 3, rate) as lab:
            finding = diagnose(lab)
        assert "the link of" not in finding["text"] and "--exclude" not in finding["text"], finding


if __name__ == "__main__":
    main([slow_and_lossy_links_are_named, links_of_any_rate_are_not_named_if_all_are_alike])
