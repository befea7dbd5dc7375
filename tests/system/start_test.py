#!/usr/bin/env python3
"""Tests that the start of a job grows with the number of ranks as it may: messages of a rank with its logarithm, bytes by less than a configuration
for each rank, and files by one log for each rank. Counted by benchmarks/scale/count_messages.cpp."""

from harness import *  # noqa: F403

COUNTER = os.environ.get("LOCKSTEP_TEST_COUNT_MESSAGES")
RANKS = (4, 8, 16, 32)
SHARDS = 64
BYTES_A_RANK = 600  # of one phase; the configuration alone has three times as many
CASES = {"messages": ("--comm", "mpi"), "sharded, in shared memory": ("--shard", "full")}
# MPI_Scatter sends the shards of a unit from rank 0 one by one; the network has four units.
SCATTERS = {("sharded, in shared memory", "parameters"): 4}


def counts(folder, data, ranks, options):
    out = folder / "counts.json"
    run_dir = folder / f"run-{ranks}-{'-'.join(options)}"
    words = ["train", "--data", data, "--run-dir", run_dir, "--model", "mlp", "--width", 8, "--batch-size", 1, "--max-steps", 1, "--threads", 1,
             "--progress", "plain", *options]
    launch = [*MPIRUN, "--mca", "pml_monitoring_enable", "1", "-x", f"LD_PRELOAD={COUNTER}", "-n", str(ranks)]
    done = subprocess.run([*launch, LOCKSTEP, *map(str, words)], capture_output=True, text=True, timeout=SECONDS,
                          env=environment({"COUNT_MESSAGES_OUT": str(out), "COUNT_MESSAGES_BELOW": str(folder)}))
    assert done.returncode == OK, done.stdout + done.stderr
    phases = {phase["phase"]: phase for phase in json.loads(out.read_text())}
    times = events(run_dir, "start")[0]["seconds"]
    assert list(times) == ["MPI", *list(phases)[:-1]] and all(seconds >= 0 for seconds in times.values()), times
    return phases


def a_start_grows_slowly(folder):
    """Between 4 and 8 ranks and between 16 and 32 as many messages are added if their number grows with the logarithm."""
    if COUNTER is None or "HYDRA" in subprocess.run([*MPIRUN[:1], "--version"], capture_output=True, text=True).stdout:
        raise Skipped("only Open MPI's messages are counted")
    # The names of classes are longer than a configuration.
    data = write_shards(folder / "data", samples=4 * SHARDS, shards=SHARDS, shape=(8, 8, 3), classes=200)
    for path in data.iterdir():
        with h5py.File(path, "r+") as file:
            file.attrs["class_names"] = [f"the name of a class of images, {i}" for i in range(200)]
    for case, options in CASES.items():
        found = {ranks: counts(folder, data, ranks, options) for ranks in RANKS}
        if not any(phase["sum"]["sent_messages"] for phase in found[4].values()):
            raise Skipped("this MPI has no monitoring component")
        for phase in found[4]:
            if phase == "training":  # the step, its save and the end
                continue
            for whose in ("rank_0", "most"):
                def value(ranks, *names):
                    return sum(found[ranks][phase][whose][name] for name in names)

                where = f"{case}, {phase}, {whose}: "
                messages = {ranks: value(ranks, "sent_messages", "received_messages") for ranks in RANKS}
                scattered = SCATTERS.get((case, phase), 0) * 16
                assert messages[32] - messages[16] <= messages[8] - messages[4] + 8 + scattered, where + f"messages {messages}"
                received = {ranks: value(ranks, "received_bytes") for ranks in RANKS}
                assert received[32] - received[4] <= BYTES_A_RANK * 28, where + f"bytes received {received}"
        files = {ranks: {phase: each["sum"]["files"] for phase, each in found[ranks].items()} for ranks in RANKS}
        for ranks in RANKS:
            assert files[ranks]["data"] == files[4]["data"] <= 3 * SHARDS + 8, f"{case}: {files}"
            assert files[ranks]["logs"] <= ranks + 10, f"{case}: {files}"
            assert all(files[ranks][phase] <= 8 for phase in ("checkpoint", "engine", "parameters", "loader")), f"{case}: {files}"


if __name__ == "__main__":
    main([a_start_grows_slowly])
