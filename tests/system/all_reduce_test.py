#!/usr/bin/env python3
"""Tests the algorithm of MPI's all-reduce: the bytes that each node sends, reproducible bits, and the message if a resumed run has another."""

import virtual_nodes
from harness import *  # noqa: F403
from virtual_nodes import VirtualNodes

VARIABLE = "OMPI_MCA_coll_libnbc_iallreduce_algorithm"
RING, BINOMIAL, RABENSEIFNER = "1", "2", "3"
STEPS = 100  # so that the start and the end of a run add only a few hundredths to the bytes


def require_open_mpi():
    if "HYDRA" in subprocess.run([*MPIRUN[:1], "--version"], capture_output=True, text=True).stdout:
        raise Skipped("the algorithm is chosen for Open MPI alone")


def no_node_sends_more_than_the_mean(folder, counts=((6, "ring"), (8, "rabenseifner"))):
    """The bytes of training are those of an optimal all-reduce. A node that sends more delays all others."""
    reason = virtual_nodes.why_not()
    if reason:
        raise Skipped(reason)
    data = write_shards(folder / "data", samples=960)
    for nodes, algorithm in counts:
        run_dir = folder / f"run-{nodes}"
        with VirtualNodes(folder / f"nodes-{nodes}", nodes) as lab:
            status, output, sent = lab.run(
                [LOCKSTEP, "train", "--data", data, "--run-dir", run_dir, "--model", "mlp", "--width", 512, "--batch-size", 1,
                 "--threads", 1, "--progress", "plain", "--max-steps", STEPS], env=environment())
        assert status == OK, f"{status}\n{output}"
        with h5py.File(latest(run_dir)) as file:
            gradients = sum(tensor[...].nbytes for name, tensor in file["model"].items() if "running_" not in name)
        optimum = STEPS * gradients * 2 * (nodes - 1) / nodes
        mean = sum(sent) / nodes
        shares = f"{nodes} nodes sent {[f'{bytes / 1e6:.1f}' for bytes in sent]} MB, each at best {optimum / 1e6:.1f}"
        print(f"   {shares}; max / mean {max(sent) / mean:.3f}", flush=True)
        assert mean > 0.9 * optimum, f"{shares}: gradients were not sent over these links, so this test is void"
        assert max(sent) <= 1.1 * mean and max(sent) <= 1.1 * optimum, shares
        assert "all-reduce: Open MPI" in output and f", {algorithm}\n" in output, output


def each_algorithm_gives_the_same_bits_each_time(folder):
    """Also on all ranks. Another algorithm adds in another order."""
    require_open_mpi()
    data = write_shards(folder / "data", samples=240)
    args = ["--max-steps", 3, "--comm", "mpi", "--check-replicas-every", 1]
    # Rabenseifner's algorithm adds in the order of a binomial tree.
    for ranks, chosen, other in ((3, RING, BINOMIAL), (4, RABENSEIFNER, RING)):
        for name, env in (("a", {}), ("b", {}), ("chosen", {VARIABLE: chosen}), ("other", {VARIABLE: other}), ("again", {VARIABLE: other})):
            run(train_args(data, folder / f"{name}-{ranks}", *args), ranks, env)
        for one, same in (("a", "b"), ("a", "chosen"), ("other", "again")):
            assert_same_run(folder / f"{one}-{ranks}", folder / f"{same}-{ranks}")
        ours, others = (tensors(latest(folder / f"{name}-{ranks}")) for name in ("a", "other"))
        assert ours != others, f"{ranks} ranks: the algorithms give the same bits, so this test is void"


def a_resumed_run_reports_another_algorithm(folder):
    require_open_mpi()
    data = write_shards(folder / "data", samples=240)
    changed = "the all-reduce was "

    def resume(steps, env=None, ranks=3, comm="mpi"):
        return run(train_args(data, folder / "run", "--max-steps", steps, "--comm", comm), ranks, env)

    version = resume(1).partition("all-reduce: ")[2].partition(", ring\n")[0]
    assert version.startswith("Open MPI "), version
    stored = state(latest(folder / "run"))["all_reduce"].decode()
    assert stored == f"{version}, ring", stored
    output = resume(2)
    assert changed not in output, output
    output = resume(3, {VARIABLE: BINOMIAL})
    assert f"{changed}{version}, ring, is {version}, binomial now" in output, output
    output = resume(4, {VARIABLE: BINOMIAL})
    assert changed not in output, output
    output = resume(5, comm="auto")
    assert f"{changed}{version}, binomial, is shared memory now" in output, output
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
    main([no_node_sends_more_than_the_mean, each_algorithm_gives_the_same_bits_each_time,
          a_resumed_run_reports_another_algorithm])
