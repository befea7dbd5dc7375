#!/usr/bin/env python3
"""Tests synchronised batch norm: the same run on any number of ranks, resumed with the same bits, and no rank is left waiting."""

from harness import *  # noqa: F403


def losses(run_dir):
    return [event["loss"] for event in events(run_dir, "step")]


def with_global_batch(args, size):
    at = args.index("--batch-size")
    return [*args[:at], "--global-batch-size", size, *args[at + 2:]]


def any_number_of_ranks_trains_the_same(folder):
    data = write_shards(folder / "data", samples=120)
    common = ["--max-steps", 8]
    runs = {}
    for ranks in (1, 2, 3, 4):
        args = train_args(data, folder / f"sync-{ranks}", *common, "--batch-norm", "sync")
        run(with_global_batch(args, 12), ranks)
        runs[ranks] = losses(folder / f"sync-{ranks}")
    for ranks in (2, 3, 4):
        # Rounding errors grow from step to step; the first loss has hardly any.
        assert abs(runs[1][0] - runs[ranks][0]) < 1e-5 * runs[1][0], runs
        worst = max(abs(a - b) / a for a, b in zip(runs[1], runs[ranks]))
        assert worst < 2e-2, (ranks, worst, runs)
    run(with_global_batch(train_args(data, folder / "local", *common), 12), 4)
    assert abs(runs[1][0] - losses(folder / "local")[0]) > 1e-3 * runs[1][0], "local statistics give the same loss"


def it_resumes_with_the_same_bits(folder):
    data = write_shards(folder / "data")
    for ranks in (1, 3):
        more = ["--batch-norm", "sync", "--accumulate", 2]
        run([*train_args(data, folder / f"whole-{ranks}", "--epochs", 2), *more], ranks)
        run([*train_args(data, folder / f"pieces-{ranks}", "--epochs", 2, "--max-steps", 3), *more], ranks)
        run([*train_args(data, folder / f"pieces-{ranks}", "--epochs", 2), *more], ranks)
        assert_same_run(folder / f"whole-{ranks}", folder / f"pieces-{ranks}")


def a_rank_with_bad_data_leaves_no_rank_waiting(folder):
    broken = write_broken_shards(folder / "data")
    # The seed selects the micro-step with the bad sample. All ranks see the error before the first micro-step of a step, but not before
    # others.
    for accumulate, seed in ((1, 0), (4, 1), (4, 2), (4, 3), (4, 4)):
        args = train_args(broken, folder / f"run-{seed}", "--epochs", 4, "--batch-norm", "sync", "--seed", seed)
        output = run([*args, "--accumulate", accumulate], ranks=3, expect=BAD_INPUT)
        assert "train-00001-of-00002.h5" in output and "sample 7" in output, output
    module = os.environ.get("LOCKSTEP_TEST_HOST_MODULE")
    if not module or not pathlib.Path(module).exists():
        print("skipped: GPUs in a_rank_with_bad_data_leaves_no_rank_waiting: the host module was not built")
        return
    gpus = {"LOCKSTEP_MODULE_PATH": module, "HOST_MODULE_GPU": "slow:1:2"}
    on_gpus = ["--epochs", 4, "--batch-norm", "sync", "--device", "cuda", "--comm", "nccl"]
    # All ranks queue the next forward before they know of the bad sample. With seed 1, its micro-step is the last one of the first epoch,
    # and the next step has images of another size, so that no rank queues it.
    sizes = ["--seed", 1, "--accumulate", 2, "--image-size", 8, "--image-size-schedule", "12@1", "--eval-every", 0]
    for name, more in (("gpus", []), ("sizes", sizes)):
        output = run([*train_args(broken, folder / f"run-{name}", *on_gpus), *more], ranks=3, expect=BAD_INPUT, env=gpus)
        assert "train-00001-of-00002.h5" in output and "sample 7" in output, output
    assert len(events(folder / "run-sizes", "step")) == 4, "the bad sample is not in the last step of a size"


if __name__ == "__main__":
    main([any_number_of_ranks_trains_the_same, it_resumes_with_the_same_bits, a_rank_with_bad_data_leaves_no_rank_waiting])
