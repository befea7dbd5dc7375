#!/usr/bin/env python3
"""Tests the program's GPU path through a module with a host device (tests/compute/host_module.cpp)."""

import math

import harness
from harness import *  # noqa: F403

# With a real module (LOCKSTEP_TEST_REAL_MODULE), ranks share one GPU, which NCCL does not allow.
REAL = os.environ.get("LOCKSTEP_TEST_REAL_MODULE")
MODULE = REAL or os.environ.get("LOCKSTEP_TEST_HOST_MODULE")
if not MODULE or not pathlib.Path(MODULE).exists():
    print("skipped: the host module was not built")
    sys.exit(77)
GPU = {"LOCKSTEP_MODULE_PATH": MODULE}
NONE = {"LOCKSTEP_MODULE_PATH": "/nonexistent"}


def losses(run_dir):
    return [event["loss"] for event in events(run_dir, "step")]


@more_in_soak
def a_gpu_trains_like_a_cpu(folder):
    data = write_shards(folder / "data")

    def args(run_dir):
        result = train_args(data, run_dir, "--max-steps", 6)
        result[result.index("--lr") + 1] = 0.02  # larger steps let roundings turn a ReLU, after which runs drift apart
        return result

    for ranks in few((1, 2, 3), 0, 2):
        on_cpu, on_gpu = folder / f"cpu-{ranks}", folder / f"gpu-{ranks}"
        run([*args(on_cpu), "--device", "cpu"], ranks)
        for comm in ("auto", "nccl", "mpi") if not REAL or ranks == 1 else ("mpi",):
            output = run([*args(on_gpu / comm), "--device", "cuda", "--comm", comm], ranks, env=GPU)
            assert "oneDNN" not in output and ", fp32" in output, output
            for expected, actual in zip(losses(on_cpu), losses(on_gpu / comm), strict=True):
                assert math.isclose(expected, actual, rel_tol=2e-3 if REAL else 1e-5), (expected, actual)


def auto_uses_a_gpu_if_there_is_one(folder):
    data = write_shards(folder / "data")
    assert "oneDNN" not in run(train_args(data, folder / "with", "--max-steps", 1), env=GPU)
    assert "oneDNN" in run(train_args(data, folder / "without", "--max-steps", 1), env=NONE)
    allotted = {**NONE, "SLURM_JOB_GPUS": "0,1"}
    output = run(train_args(data, folder / "idle", "--max-steps", 1), ranks=2, env=allotted, expect=USAGE)
    assert "the scheduler gave rank 0" in output and "--device cpu" in output, output


def each_rank_opens_its_own_device_with_the_given_options(folder):
    if REAL:
        return
    data = write_shards(folder / "data")
    told = folder / "options"
    cores = len(os.sched_getaffinity(0))  # also of a rank whose OpenMP threads are pinned: NCCL's threads inherit them
    for ranks, more, rest in ((1, [], ", deterministic"), (2, [], ", deterministic, exchanges by NCCL"),
                              (2, ["--no-deterministic"], ", exchanges by NCCL"), (3, ["--comm", "mpi"], ", deterministic")):
        told.unlink(missing_ok=True)
        output = run([*train_args(data, folder / f"run-{ranks}-{len(more)}-{len(rest)}", "--max-steps", 1), "--device", "cuda", *more], ranks,
                     env={**GPU, "HOST_MODULE_OPTIONS": str(told)})
        assert "; threads of the host on core" in output, output
        assert sorted(told.read_text().splitlines()) == [f"local rank {rank} of {ranks}{rest}, {cores} cores" for rank in range(ranks)], told.read_text()


def algorithms_are_timed_by_one_rank_and_kept(folder):
    if REAL:
        return  # these convolutions are too small to be timed on a GPU
    data = write_shards(folder / "data")
    told = folder / "algorithms"
    env = {**GPU, "XDG_CACHE_HOME": str(folder / "cache"), "HOST_MODULE_ALGORITHMS": str(told)}
    kept = folder / "cache" / "lockstep" / "gpu-convolutions.tsv"

    def train(name, steps, *options):
        told.unlink(missing_ok=True)
        output = run([*train_args(data, folder / name, "--max-steps", steps), "--comm", "mpi", *options], 2, env=env)
        return output, told.read_text().split("\n")[:-1] if told.exists() else []

    def chosen():
        text = state(latest(folder / "run"))["convolutions"]
        return (text.decode() if isinstance(text, bytes) else text).splitlines()

    said = train("direct", 2, "--device", "cuda", "--conv-algorithm", "direct")[1]
    assert said == ["took 0"] * 2, said
    assert not kept.exists()
    output, said = train("run", 2, "--device", "cuda")
    lines = kept.read_text().splitlines()[1:]
    count = len(lines)
    assert count > 0 and all(len(line.split("\t")) == 3 for line in lines), lines
    assert said == [f"timed {count}", *[f"took {count}"] * 2], said
    assert f"convolutions: algorithms of {count} were timed in" in output, output
    assert chosen() == lines, chosen()
    output, said = train("another", 2, "--device", "cuda")
    assert said == ["timed 0", *[f"took {count}"] * 2] and "were timed" not in output, (said, output)
    in_bf16 = train("in_bf16", 2, "--device", "cuda", "--precision", "bf16")[1]  # wider padding makes some shapes equal
    assert in_bf16[0] != "timed 0" and in_bf16[1:] == [in_bf16[0].replace("timed", "took")] * 2, in_bf16
    # A run keeps its choice, also after it was resumed on the CPU.
    kept.unlink()
    assert train("run", 4, "--device", "cuda")[1] == ["timed 0", *[f"took {count}"] * 2]
    train("run", 6, "--device", "cpu")
    assert set(lines) < set(chosen()), chosen()
    assert train("run", 8, "--device", "cuda")[1] == ["timed 0", *[f"took {count}"] * 2]


@more_in_soak
def it_resumes_with_the_same_bits_in_every_precision(folder):
    data = write_shards(folder / "data")
    for precision in few(("fp32", "tf32", "bf16", "fp16"), 2, 3):
        for ranks in few((1, 2), 0 if precision == "fp16" else 1):
            args = ["--device", "cuda", "--precision", precision, "--comm", "mpi"]
            whole, pieces = folder / f"whole-{precision}-{ranks}", folder / f"pieces-{precision}-{ranks}"
            run([*train_args(data, whole, "--epochs", 2), *args], ranks, env=GPU)
            run([*train_args(data, pieces, "--epochs", 2), *args, "--max-steps", 5], ranks, env=GPU)
            run([*train_args(data, pieces, "--epochs", 2), *args], ranks, env=GPU)
            assert_same_run(whole, pieces)
            scale = state(latest(whole))["loss_scale"]
            assert (scale > 0) == (precision == "fp16"), scale


def recorded_steps_give_the_same_bits(folder):
    data = write_shards(folder / "data")
    for precision, more in (("bf16", ["--accumulate", 3]), ("fp16", []), ("fp32", ["--batch-norm", "sync", "--accumulate", 2])):
        outputs, runs = [], []
        for choice in ("cuda-graph", "no-cuda-graph"):
            runs.append(folder / f"{choice}-{precision}")
            outputs.append(run([*train_args(data, runs[-1], "--max-steps", 6), *more, f"--{choice}", "--device", "cuda", "--precision", precision,
                                "--comm", "mpi"], ranks=2, env=GPU))
        assert ", CUDA graphs" in outputs[0] and "no CUDA graphs" in outputs[1], outputs
        assert_same_run(*runs)


@more_in_soak
def state_may_be_sharded(folder):
    data = write_shards(folder / "data")
    write_shards(folder / "data", samples=9, shards=1, split="val", seed=1)
    for optimizer, precision, ranks in few((("sgd", "fp32", 1), ("adamw", "bf16", 2), ("sgd", "fp16", 3)), 1):
        more = ["--device", "cuda", "--comm", "mpi", "--optimizer", optimizer, "--precision", precision, "--epochs", 1,
                "--eval-every", 0.5, "--accumulate", 2]
        runs = {mode: folder / f"{mode}-{precision}-{ranks}" for mode in ("none", "optimizer", "grad", "full")}
        for mode, run_dir in runs.items():
            output = run([*train_args(data, run_dir), *more, "--shard", mode], ranks, env=GPU)
            assert ("sharded over" in output) == (mode != "none"), output
            for expected, actual in zip(losses(runs["none"]), losses(run_dir), strict=True):
                assert math.isclose(expected, actual, rel_tol=2e-2), (mode, optimizer, precision, ranks, expected, actual)
            if mode == "none" or precision != "bf16":
                continue
            # Gathering weights in 16 bits changes nothing (except that other modes add micro-steps in another order); --reduce-dtype does.
            assert mode != "optimizer" or tensors(latest(runs["none"])) == tensors(latest(run_dir)), mode
            rounded = folder / f"{mode}-rounded"
            output = run([*train_args(data, rounded), *more, "--shard", mode, "--reduce-dtype", "bf16"], ranks, env=GPU)
            assert "communication dtype: weights bf16, gradients bf16" in output, output
            assert tensors(latest(runs["none"])) != tensors(latest(rounded)), mode
            # The first loss comes from the same weights; later ones differ, because the signs of gradients decide Adam's steps.
            assert losses(rounded)[0] == losses(runs["none"])[0] and len(losses(rounded)) == len(losses(runs["none"])), mode
    one = [*train_args(data, folder / "alone", "--max-steps", 2), "--device", "cuda", "--shard", "full"]
    assert "sharded over 1 rank" in run(one, env=GPU)


@soak
def shard_groups_and_lars_match_shard_none(folder):
    """Only the order of sums differs; LARS uses norms of whole tensors."""
    data = write_shards(folder / "data", samples=240)
    common = ["--device", "cuda", "--save-every", 3]
    modes = {"full": ["full"], "pairs": ["hybrid", "--shard-group", 2], "singles": ["hybrid", "--shard-group", 1], "node": ["hybrid"]}
    for optimizer, comm in (("lars", "mpi"), ("sgd", "mpi" if REAL else "nccl")):
        more = [*common, "--optimizer", optimizer, "--comm", comm]
        run([*train_args(data, folder / f"none-{optimizer}", "--max-steps", 6), *more], 4, env=GPU)
        for mode, shard in modes.items():
            run_dir = folder / f"{mode}-{optimizer}"
            output = run([*train_args(data, run_dir, "--max-steps", 6), *more, "--shard", *shard], 4, env=GPU)
            groups = {"pairs": 2, "singles": 1}.get(mode, 4)
            assert f"sharded over {groups} rank{'' if groups == 1 else 's'}" in output, output
            for expected, actual in zip(losses(folder / f"none-{optimizer}"), losses(run_dir), strict=True):
                assert math.isclose(expected, actual, rel_tol=1e-3), (mode, optimizer, expected, actual)
    # Resumes with the same bits, then in another mode on other ranks.
    more = [*common, "--optimizer", "lars", "--comm", "mpi"]
    for step in (4, 6):
        run([*train_args(data, folder / "parts-lars", "--max-steps", step), *more, "--shard", "hybrid", "--shard-group", 2], 4, env=GPU)
    assert_same_run(folder / "pairs-lars", folder / "parts-lars")
    run([*train_args(data, folder / "parts-lars", "--max-steps", 8), *more, "--shard", "grad"], 2, env=GPU)
    for group, ranks, text in ((3, 4, "does not divide 4 ranks"), (2, 1, "does not divide 1 ranks")):
        output = run([*train_args(data, folder / "refused"), *common, "--shard", "hybrid", "--shard-group", group], ranks, env=GPU, expect=USAGE)
        assert text in output, output


def checkpoints_can_be_used_on_the_other_device(folder):
    data = write_shards(folder / "data")
    write_shards(folder / "data", samples=40, shards=1, split="val", seed=1)
    run([*train_args(data, folder / "run", "--max-steps", 4), "--device", "cuda", "--comm", "mpi"], ranks=2, env=GPU)
    found = {}
    for device in ("cpu", "cuda"):
        line = run(["eval", "--checkpoint", latest(folder / "run"), "--data", data, "--device", device, "--json"],
                   env=GPU).splitlines()[-1]
        found[device] = json.loads(line)["loss"]
    assert math.isclose(found["cpu"], found["cuda"], rel_tol=1e-4), found
    shared = {**GPU, "HOST_MODULE_SHARED": "1"}  # evaluation reduces nothing on the GPU, so ranks may share it
    run(["eval", "--checkpoint", latest(folder / "run"), "--data", data, "--device", "cuda"], ranks=2, env=shared)
    for step, device in ((6, "cpu"), (8, "cuda")):
        run([*train_args(data, folder / "run", "--max-steps", step), "--device", device], env=GPU)
        assert state(latest(folder / "run"))["step"] == step


def a_vanishing_loss_scale_ends_the_run(folder):
    data = write_shards(folder / "data")
    args = ["--device", "cuda", "--precision", "fp16", "--epochs", 40]
    run([*train_args(data, folder / "run", *args), "--max-steps", 2], env=GPU)
    before = state(latest(folder / "run"))
    # With this learning rate weights overflow at once, so no loss scale helps.
    args = [*train_args(data, folder / "run", *args), "--max-steps", 80]
    args[args.index("--lr") + 1] = "1e30"
    output = run(args, env=GPU, expect=DIVERGED)
    assert "loss scale" in output and "checkpoints/step-00000002.h5); lower" in output, output
    assert state(latest(folder / "run"))["step"] == before["step"]


def edit_state(checkpoint, **changes):
    """Changes attributes of the state, and its checksum as in docs/file-formats.md."""
    with harness.h5py.File(checkpoint, "a") as file:
        attributes = file["state"].attrs
        for name, value in changes.items():
            attributes.modify(name, value)
        lines = []
        for name in sorted(set(attributes) - {"crc32c"}):
            value = attributes[name]
            text = value.decode() if isinstance(value, bytes) else f"{value:.17g}" if isinstance(value, float) else str(value)
            lines.append(f"{name}={text}\n")
        assert "crc32c" in attributes, list(attributes)
        attributes.modify("crc32c", crc32c("".join(lines).encode()))


def a_loss_scale_resumes_with_its_count_of_good_steps(folder):
    data = write_shards(folder / "data")
    args = [*train_args(data, folder / "run"), "--device", "cuda", "--precision", "fp16", "--epochs", 40]
    run([*args, "--max-steps", 2], env=GPU)
    edit_state(latest(folder / "run"), loss_scale=1024.0, loss_scale_good_steps=1998, skipped_steps=3)
    run([*args, "--max-steps", 3], env=GPU)
    found = state(latest(folder / "run"))
    assert (found["loss_scale"], found["loss_scale_good_steps"], found["skipped_steps"]) == (1024, 1999, 3), found
    run([*args, "--max-steps", 5], env=GPU)
    found = state(latest(folder / "run"))
    assert (found["loss_scale"], found["loss_scale_good_steps"], found["skipped_steps"]) == (2048, 1, 3), found


def norms_and_16_bit_gradients_are_reduced_over_ranks(folder):
    data = write_shards(folder / "data")
    for name, more in (("sync", ["--batch-norm", "sync"]), ("bf16", ["--grad-compression", "bf16"])):
        for device in ("cpu", "cuda"):
            output = run([*train_args(data, folder / f"{name}-{device}", "--max-steps", 5), *more, "--device", device,
                          *(["--comm", "mpi"] if device == "cuda" else [])], ranks=2, env=GPU)
            assert (", CUDA graphs" in output) == (device == "cuda"), output
        for expected, actual in zip(losses(folder / f"{name}-cpu"), losses(folder / f"{name}-cuda"), strict=True):
            assert math.isclose(expected, actual, rel_tol=1e-2), (name, expected, actual)
    def sync(name, steps, *more, env=GPU):
        run([*train_args(data, folder / name, "--max-steps", steps), "--batch-norm", "sync", "--device", "cuda", *more], ranks=2, env=env)

    sync("pieces", 3, "--comm", "mpi")
    sync("pieces", 5, "--comm", "mpi")
    assert_same_run(folder / "sync-cuda", folder / "pieces")
    # Sharded parameters are gathered between sums of norms.
    sync("sharded", 5, "--comm", "mpi", "--shard", "full")
    assert tensors(latest(folder / "sync-cuda")) == tensors(latest(folder / "sharded"))
    if not REAL:
        # With streams, and NCCL's communicators over a stand-in. The order of sums does not matter for two ranks.
        for name, more in (("nccl", []), ("nccl-sharded", ["--shard", "grad"])):
            sync(name, 5, "--comm", "nccl", *more, env={**GPU, "HOST_MODULE_GPU": "slow:1:2"})
            assert tensors(latest(folder / "sync-cuda")) == tensors(latest(folder / name)), name


def gpus_without_peer_access_are_named(folder):
    if REAL:
        return  # depends on the machine's GPUs
    data = write_shards(folder / "data")
    apart = {**GPU, "HOST_MODULE_APART": "1"}
    output = run([*train_args(data, folder / "run", "--max-steps", 1), "--device", "cuda"], env=apart)
    assert "2 of 3 pairs of this host's GPUs reach each other's memory; 0 and 2 do not" in output, output
    output = run(["doctor"], env=apart)
    assert "warn  gpus" in output and "GPUs 0 and 2 on" in output, output


def the_cores_near_a_gpu_feed_it(folder):
    mask = os.sched_getaffinity(0)
    if REAL or not {0, 1} <= mask:
        return  # the node in the file has cores 0 and 1
    data = write_shards(folder / "data")
    topology = pathlib.Path(__file__).parent.parent / "runtime/two_sockets.xml"
    for bus, allowed, verdict, words in (
            ("0000:11:00.0", {0, 1}, "ok", "threads: on 1 of 2 cores, those near GPU 0000:11:00.0"),
            ("0000:81:00.0", {0}, "warn", "on core 0, not near GPU 0000:81:00.0"),
            ("0001:01:00.0", {0, 1}, "warn", "on all 2 cores (hwloc does not know which are near GPU 0001:01:00.0")):
        env = {**GPU, "HWLOC_XMLFILE": str(topology), "HOST_MODULE_BUS": bus}
        os.sched_setaffinity(0, allowed)
        try:
            trained = run([*train_args(data, folder / bus, "--max-steps", 1), "--device", "cuda"], env=env)
            examined = run(["doctor"], env=env)
        finally:
            os.sched_setaffinity(0, mask)
        assert words in trained, trained
        assert next(line for line in examined.splitlines() if " locality " in line).startswith(verdict), examined
        assert verdict == "ok" or words in examined, examined


def unsupported_combinations_are_refused(folder):
    data = write_shards(folder / "data")
    cases = [(["--device", "cuda"], NONE, "lockstep-cuda.so is not in /nonexistent"),
             (["--device", "cpu", "--comm", "nccl"], GPU, "--comm nccl does not go with --device cpu"),
             (["--device", "cpu", "--precision", "fp16"], GPU, "--precision fp16 does not go with the CPU engine")]
    for ranks in (1, 3):
        for arguments, env, words in cases:
            output = run([*train_args(data, folder / "run", "--max-steps", 1), *arguments], ranks, env=env, expect=USAGE)
            assert words in output, output
    shared = {**GPU, "HOST_MODULE_SHARED": "1"}
    args = [*train_args(data, folder / "run", "--max-steps", 1), "--device", "cuda"]
    output = run(args, ranks=3, env=shared, expect=USAGE)
    assert "ranks 0 and 1 share GPU-" in output and "--comm mpi" in output, output
    run([*args, "--comm", "mpi"], ranks=3, env=shared)


def what_nccl_may_use_is_said_kept_and_compared(folder):
    """Also a change on resume, a version whose windows hang, and ranks that differ."""
    if REAL:
        return  # it takes two GPUs
    data = write_shards(folder / "data")
    told = folder / "nvls"
    env = {**GPU, "HOST_MODULE_GPU": "", "HOST_MODULE_NVLS": str(told)}
    usual = "NCCL 2.28.9, NVLS and windows off (deterministic)"

    def args(steps, name="run"):
        return [*train_args(data, folder / name, "--max-steps", steps), "--device", "cuda"]

    output = run(args(1), 2, env)
    assert f"all-reduce: {usual}\n" in output, output
    assert state(latest(folder / "run"))["all_reduce"].decode() == usual
    output = run(args(2), 2, {**env, "NCCL_NVLS_ENABLE": "0"})
    assert "resuming" in output and "the all-reduce was" not in output, output
    chosen = "NCCL 2.28.9, windows off (deterministic), NCCL_NVLS_ENABLE=1 (sums may differ between runs)"
    output = run(args(3), 2, {**env, "NCCL_NVLS_ENABLE": "1"})
    assert f"the all-reduce was {usual}, is {chosen} now" in output, output
    output = run([*args(1, "fast"), "--no-deterministic"], 2, {**env, "HOST_MODULE_NCCL": "22907"})
    assert "all-reduce: NCCL 2.29.7, windows off (gathers may hang in this version)\n" in output, output
    assert told.read_text().split() == ["0"] * 4 + ["1"] * 2 + ["unset"] * 2, told.read_text()
    differ = f'[ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = 0 ] || export NCCL_ALGO=Ring; exec {LOCKSTEP} "$@"'
    done = subprocess.run([*MPIRUN, "-n", "2", "sh", "-c", differ, "lockstep", *map(str, args(1, "differ"))], env=environment(env),
                          capture_output=True, text=True, timeout=SECONDS)
    output = done.stdout + done.stderr
    assert done.returncode == USAGE and " has NCCL_ALGO=Ring, but rank 0 (" in output and ") has nothing more (" in output, output


if __name__ == "__main__":
    main([a_gpu_trains_like_a_cpu, auto_uses_a_gpu_if_there_is_one, each_rank_opens_its_own_device_with_the_given_options,
          algorithms_are_timed_by_one_rank_and_kept, it_resumes_with_the_same_bits_in_every_precision,
          recorded_steps_give_the_same_bits, state_may_be_sharded, shard_groups_and_lars_match_shard_none,
          checkpoints_can_be_used_on_the_other_device, norms_and_16_bit_gradients_are_reduced_over_ranks,
          a_vanishing_loss_scale_ends_the_run,
          a_loss_scale_resumes_with_its_count_of_good_steps,
          gpus_without_peer_access_are_named, what_nccl_may_use_is_said_kept_and_compared, the_cores_near_a_gpu_feed_it, unsupported_combinations_are_refused])
