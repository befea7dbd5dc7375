#!/usr/bin/env python3
"""Tests how gradients are reduced: in memory that the ranks of one host share, or by messages."""

from harness import *  # noqa: F403

SHARED = "gradients: summed in memory that all ranks share"
LONG = ["--max-steps", 6, "--save-every", 3]


def apart(memory, first):
    """A program in which the ranks from `first` on see `memory` as /dev/shm, as if on another host."""
    program = memory.with_suffix(".sh")
    program.write_text(f"""#!/bin/sh
if [ "$OMPI_COMM_WORLD_RANK$PMI_RANK" -ge {first} ]; then
  exec unshare -m sh -c 'mount --bind {memory} /dev/shm && exec "$0" "$@"' {LOCKSTEP} "$@"
fi
exec {LOCKSTEP} "$@"
""")
    program.chmod(0o755)
    return program


def run_apart(program, args, ranks=3, expect=OK):
    # Open MPI's shared memory must be elsewhere.
    done = subprocess.run([*MPIRUN, "--mca", "btl_vader_backing_directory", "/tmp", "-n", str(ranks), program, *map(str, args)],
                          env=environment(), capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == expect, f"{done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def ranks_of_one_host_share_memory_by_default(folder):
    data = write_shards(folder / "data", samples=240)
    for ranks, comm, note in ((1, "auto", False), (1, "shared", False), (2, "auto", True), (3, "shared", True), (3, "mpi", False)):
        output = run(train_args(data, folder / f"run-{ranks}-{comm}", *LONG, "--comm", comm), ranks)
        assert (SHARED in output) == note, output
        assert "summed by" not in output, output
    # The sum of two values does not depend on their order.
    run(train_args(data, folder / "mpi", *LONG, "--comm", "mpi"), ranks=2)
    assert_same_run(folder / "run-2-auto", folder / "mpi")


@more_in_soak
def sums_do_not_depend_on_buckets_or_sharding(folder):
    """On four ranks, with the same bits: with buckets of any size, any sharding, and in a resumed run."""
    data = write_shards(folder / "data", samples=240)
    run(train_args(data, folder / "none", *LONG), ranks=4)
    ways = {"small": ["--bucket-mb", "0.001"], "large": ["--bucket-mb", 100], "optimizer": ["--shard", "optimizer"], "grad": ["--shard", "grad"],
            "full": ["--shard", "full"], "wide": ["--shard", "hybrid", "--shard-group", 4]}
    for name, more in few([*ways.items()], 0, 4):
        run(train_args(data, folder / name, "--save-every", 3, "--max-steps", 4, *more), ranks=4)
        run(train_args(data, folder / name, *LONG, *more), ranks=4)
        assert_same_run(folder / name, folder / "none")
    # MPI adds in another order.
    run(train_args(data, folder / "mpi", *LONG, "--comm", "mpi"), ranks=4)
    assert tensors(latest(folder / "mpi")) != tensors(latest(folder / "none")), "MPI gives the same bits, so this test is void"


def require_namespaces():
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"]).returncode:
        raise Skipped("cannot give a rank shared memory of its own here")


def messages_sum_if_memory_cannot_be_shared(folder):
    require_namespaces()
    data = write_shards(folder / "data", samples=240)
    for first, size, reason in ((2, "100m", "not all ranks are on one host"), (0, "1m", "bytes of shared memory failed: No space left on device")):
        with small_disk(folder / f"memory-{first}", size) as memory:
            output = run_apart(apart(memory, first), train_args(data, folder / f"run-{first}", *LONG))
            assert "gradients: summed by ring (" in output and reason in output, output
            assert state(latest(folder / f"run-{first}"))["step"] == 6
            # A requested communicator is not replaced by another one.
            refused = train_args(data, folder / f"refused-{first}", *LONG, "--comm", "shared")
            output = run_apart(apart(memory, first), refused, expect=USAGE)
            assert "--comm shared needs memory that all ranks share (" in output and reason in output, output


def a_group_on_one_host_shares_memory(folder):
    require_namespaces()
    data = write_shards(folder / "data", samples=240)
    hybrid = ["--shard", "hybrid", "--shard-group", 2]
    output = run(train_args(data, folder / "one", *LONG, *hybrid), ranks=4)
    assert SHARED in output, output
    with small_disk(folder / "memory", "100m") as memory:
        output = run_apart(apart(memory, 2), train_args(data, folder / "two", *LONG, *hybrid), ranks=4)
    assert ("gradients: summed within a group in memory that its ranks share, between groups by ring "
            "(not all ranks are on one host)") in output, output
    # The sum of two values does not depend on their order. The statistics of norms are means over all four ranks, so they differ.
    one, two = ({name: value for name, value in tensors(latest(folder / run)).items() if "running_" not in name} for run in ("one", "two"))
    assert one == two


def choices_of_cpu_ranks_are_refused_on_a_gpu(folder):
    module = os.environ.get("LOCKSTEP_TEST_HOST_MODULE")
    if not module or not pathlib.Path(module).exists():
        raise Skipped("no module that stands for a GPU's was built")
    data = write_shards(folder / "data", samples=240)
    args = train_args(data, folder / "run", *LONG, "--device", "cuda", "--comm", "shared")
    assert "--comm shared does not go with --device cuda" in run(args, 2, {"LOCKSTEP_MODULE_PATH": module}, expect=USAGE)
    args = train_args(data, folder / "run", *LONG, "--device", "cuda", "--allreduce", "ring")
    assert "--allreduce does not go with NCCL" in run(args, 2, {"LOCKSTEP_MODULE_PATH": module}, expect=USAGE)
    args = train_args(data, folder / "run", *LONG, "--device", "cuda", "--comm-progress", "thread")
    assert "--comm-progress does not go with NCCL" in run(args, 2, {"LOCKSTEP_MODULE_PATH": module}, expect=USAGE)


def options_of_messages_are_refused_without_messages(folder):
    data = write_shards(folder / "data", samples=240)
    for options, reason in ((("--comm", "shared", "--allreduce", "ring"), "--allreduce does not go with --comm shared"),
                            (("--comm", "shared", "--comm-progress", "thread"), "--comm-progress does not go with --comm shared"),
                            (("--allreduce", "mpi", "--comm-progress", "thread"), "--comm-progress thread does not go with --allreduce mpi")):
        assert reason in run(train_args(data, folder / "run", *LONG, *options), 2, expect=USAGE), options


def nothing_is_left_in_shared_memory(folder):
    """Not even by ranks that are killed."""
    data = write_shards(folder / "data", samples=4000)
    process = start(train_args(data, folder / "run", "--epochs", 500), ranks=2)
    wait_for_step(folder / "run", 2, process)
    ranks = ranks_of(process).values()
    assert len(ranks) == 2

    def left():
        return [path.name for rank in ranks for path in pathlib.Path("/dev/shm").glob(f"lockstep-{rank}-*")]

    assert not left(), left()
    process.kill()
    finish(process)
    assert not left(), left()


if __name__ == "__main__":
    main([ranks_of_one_host_share_memory_by_default, sums_do_not_depend_on_buckets_or_sharding,
          messages_sum_if_memory_cannot_be_shared, a_group_on_one_host_shares_memory, choices_of_cpu_ranks_are_refused_on_a_gpu, options_of_messages_are_refused_without_messages, nothing_is_left_in_shared_memory])
