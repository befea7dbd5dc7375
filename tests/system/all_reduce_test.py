#!/usr/bin/env python3
"""Tests the algorithm of the all-reduce between hosts: reproducible bits, and the message if a resumed run has another."""

from harness import *  # noqa: F403

VARIABLE = "OMPI_MCA_coll_libnbc_iallreduce_algorithm"
RING, BINOMIAL, RABENSEIFNER = "1", "2", "3"


def require_open_mpi():
    if "HYDRA" in subprocess.run([*MPIRUN[:1], "--version"], capture_output=True, text=True).stdout:
        raise Skipped("the algorithm is chosen for Open MPI alone")


@more_in_soak
def each_algorithm_gives_the_same_bits_each_time(folder):
    """Also on all ranks. Another algorithm adds in another order."""
    data = write_shards(folder / "data", samples=240)
    args = ["--max-steps", 3, "--comm", "mpi", "--check-replicas-every", 1]
    for ranks in few((3, 4), 0):
        ways = {"auto": (), "ring": ("ring",), "halving": ("halving",), "halving-again": ("halving",)}
        for name, choice in ways.items():
            run(train_args(data, folder / f"{name}-{ranks}", *args, *(["--allreduce", *choice] if choice else [])), ranks)
        for one, same in (("auto", "ring"), ("halving", "halving-again")):
            assert_same_run(folder / f"{one}-{ranks}", folder / f"{same}-{ranks}")
        ours, others = (tensors(latest(folder / f"{name}-{ranks}")) for name in ("halving", "ring"))
        assert ours != others, f"{ranks} ranks: the algorithms give the same bits, so this test is void"


@more_in_soak
def the_librarys_algorithm_is_chosen_and_can_be_set(folder):
    require_open_mpi()
    data = write_shards(folder / "data", samples=240)
    args = ["--max-steps", 3, "--comm", "mpi", "--allreduce", "mpi", "--check-replicas-every", 1]
    # Rabenseifner's algorithm adds in the order of a binomial tree.
    for ranks, chosen, other in few(((3, RING, BINOMIAL), (4, RABENSEIFNER, RING)), 1):
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
    assert f"{changed}{version}, binomial, is ring now" in output, output
    output = resume(5, comm="auto")
    assert f"{changed}ring, is shared memory now" in output, output
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
    main([each_algorithm_gives_the_same_bits_each_time, the_librarys_algorithm_is_chosen_and_can_be_set,
          a_resumed_run_reports_another_algorithm])
