#!/usr/bin/env python3
"""Tests the algorithm of the all-reduce between hosts: the bytes that each node sends, reproducible bits, and the message if a resumed run has another."""

import virtual_nodes
from harness import *  # noqa: F403
from virtual_nodes import VirtualNodes

VARIABLE = "OMPI_MCA_coll_libnbc_iallreduce_algorithm"
RING, BINOMIAL, RABENSEIFNER = "1", "2", "3"
STEPS = 100  # so that the start and the end of a run add only a few hundredths to the bytes


def require_open_mpi():
    if "HYDRA" in subprocess.run([*MPIRUN[:1], "--version"], capture_output=True, text=True).stdout:
        raise Skipped("the algorithm is chosen for Open MPI alone")


def no_node_sends_more_than_the_mean(folder, shapes=((5, 1, "halving"), (8, 1, "halving"), (4, 2, "shared memory, halving between 4 nodes"))):
    """The bytes of training are those of an optimal all-reduce. A node that sends more delays all others."""
    reason = virtual_nodes.why_not()
    if reason:
        raise Skipped(reason)
    data = write_shards(folder / "data", samples=960)
    for nodes, ranks, algorithm in shapes:
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


def communicators_pass_their_tests_between_nodes(folder):
    """Their messages cross a network, at 8 ranks in one level and in two."""
    reason = virtual_nodes.why_not()
    program = os.environ.get("LOCKSTEP_TEST_COMMUNICATORS")
    if reason or not program:
        raise Skipped(reason or "LOCKSTEP_TEST_COMMUNICATORS names no program")
    for nodes, ranks in ((8, 1), (4, 2)):
        with VirtualNodes(folder / f"nodes-{nodes}", nodes) as lab:
            status, output, sent = lab.run([program, "--run_test=sums*,sharded*,a_slow*,groups*"], ranks)
        assert status == OK, f"{status}\n{output}"
        assert output.count("No errors detected") == nodes * ranks, output
        assert min(sent) > 1e6, f"nodes sent {sent} bytes, so this test is void"


def each_algorithm_gives_the_same_bits_each_time(folder):
    """Also on all ranks. Another algorithm adds in another order."""
    data = write_shards(folder / "data", samples=240)
    args = ["--max-steps", 3, "--comm", "mpi", "--check-replicas-every", 1]
    for ranks in (3, 4):
        ways = {"auto": (), "halving": ("halving",), "ring": ("ring",), "ring-again": ("ring",)}
        for name, choice in ways.items():
            run(train_args(data, folder / f"{name}-{ranks}", *args, *(["--allreduce", *choice] if choice else [])), ranks)
        for one, same in (("auto", "halving"), ("ring", "ring-again")):
            assert_same_run(folder / f"{one}-{ranks}", folder / f"{same}-{ranks}")
        ours, others = (tensors(latest(folder / f"{name}-{ranks}")) for name in ("auto", "ring"))
        assert ours != others, f"{ranks} ranks: the algorithms give the same bits, so this test is void"


def the_librarys_algorithm_is_chosen_and_can_be_set(folder):
    require_open_mpi()
    data = write_shards(folder / "data", samples=240)
    args = ["--max-steps", 3, "--comm", "mpi", "--allreduce", "mpi", "--check-replicas-every", 1]
    # Rabenseifner's algorithm adds in the order of a binomial tree.
    for ranks, chosen, other in ((3, RING, BINOMIAL), (4, RABENSEIFNER, RING)):
        for name, env in (("a", {}), ("chosen", {VARIABLE: chosen}), ("other", {VARIABLE: other})):
            run(train_args(data, folder / f"{name}-{ranks}", *args), ranks, env)
        assert_same_run(folder / f"a-{ranks}", folder / f"chosen-{ranks}")
        ours, others = (tensors(latest(folder / f"{name}-{ranks}")) for name in ("a", "other"))
        assert ours != others, f"{ranks} ranks: the algorithms give the same bits, so this test is void"


def a_resumed_run_reports_another_algorithm(folder):
    require_open_mpi()
    data = write_shards(folder / "data", samples=240)
    changed = "the all-reduce was "

    def resume(steps, env=None, ranks=3, comm="mpi", all_reduce="mpi"):
        return run(train_args(data, folder / "run", "--max-steps", steps, "--comm", comm, "--allreduce", all_reduce), ranks, env)

    version = resume(1).partition("all-reduce: ")[2].partition(", ring\n")[0]
    assert version.startswith("Open MPI "), version
    stored = state(latest(folder / "run"))["all_reduce"].decode()
    assert stored == f"{version}, ring", stored
    output = resume(2)
    assert changed not in output, output
    output = resume(3, {VARIABLE: BINOMIAL})
    assert f"{changed}{version}, ring, is {version}, binomial now" in output, output
    output = resume(4, all_reduce="auto")
    assert f"{changed}{version}, binomial, is halving now" in output, output
    output = resume(5, comm="auto")
    assert f"{changed}halving, is shared memory now" in output, output
    # Open MPI's own choice has no name.
    output = resume(6, {VARIABLE: "0"})
    assert f"{changed}shared memory, is {version} now" in output, output
    # One rank reduces nothing.
    output = resume(7, ranks=1)
    assert changed not in output, output
    # A checkpoint of a program that did not store the algorithm.
    without_all_reduce(latest(folder / "run"))
    output = resume(8)
    assert "resuming from" in output and changed not in output, output


def without_all_reduce(path):
    """Rewrites the file as an older program wrote it."""
    with h5py.File(path, "r+") as file:
        attributes = file["state"].attrs
        del attributes["all_reduce"], attributes["backend"]
        file.attrs.modify("version", np.int64(2))
        lines = [f"{name}=".encode() + canonical(value) + b"\n" for name, value in attributes.items() if name != "crc32c"]
        attributes.modify("crc32c", np.uint32(crc32c(b"".join(sorted(lines)))))


def canonical(value):
    return value if isinstance(value, bytes) else f"{value:.17g}".encode() if isinstance(value, np.floating) else str(value).encode()


if __name__ == "__main__":
    main([no_node_sends_more_than_the_mean, communicators_pass_their_tests_between_nodes, each_algorithm_gives_the_same_bits_each_time,
          the_librarys_algorithm_is_chosen_and_can_be_set, a_resumed_run_reports_another_algorithm])
