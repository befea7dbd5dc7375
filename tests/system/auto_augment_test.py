#!/usr/bin/env python3
"""Tests automatic and repeated augmentation in whole runs."""

import math

from harness import *  # noqa: F403

HOST_MODULE = os.environ.get("LOCKSTEP_TEST_HOST_MODULE", "")
TRIVIAL = ["--auto-augment", "trivialaugment", "--repeated-augmentation", 3]
RAND = ["--auto-augment", "randaugment", "--randaugment-ops", 3, "--auto-augment-interpolation", "bilinear", "--random-erasing", 0.3,
        "--mixup", 0.2, "--cutmix", 1, "--repeated-augmentation", 2]


def a_run_resumed_in_the_middle_of_an_epoch_equals_an_uninterrupted_run(folder):
    data = write_shards(folder / "data")
    for ranks, options in ((1, TRIVIAL), (2, RAND)):
        whole, pieces = folder / f"whole{ranks}", folder / f"pieces{ranks}"
        run([*train_args(data, whole, "--epochs", 2), *options], ranks)
        run([*train_args(data, pieces, "--epochs", 2, "--max-steps", 5), *options, "--loader-threads", 3], ranks)
        run([*train_args(data, pieces, "--epochs", 2), *options], ranks)
        assert_same_run(whole, pieces)


def mlp_args(data, run_dir, *more, lr=0.05):
    """Without batch norm, a step does not depend on the division of the batch."""
    return ["train", "--data", data, "--run-dir", run_dir, "--model", "mlp", "--width", 16, "--global-batch-size", 24, "--lr", lr,
            "--augment", "crop-flip", "--threads", 1, "--log-every", 1, "--progress", "plain", "--epochs", 2, *more]


def losses(run_dir):
    return [event["loss"] for event in events(run_dir, "step")]


def assert_close(left, right):
    assert len(left) == len(right) and all(math.isclose(a, b, rel_tol=1e-5) for a, b in zip(left, right)), (left, right)


def the_same_copies_are_augmented_on_any_number_of_ranks(folder):
    data = write_shards(folder / "data", samples=100)
    for name, options in (("trivial", TRIVIAL), ("rand", RAND)):
        output = run(mlp_args(data, folder / f"{name}1", *options))
        if name == "trivial":
            assert "100 training samples; 3 copies each of 32 of them an epoch" in output, output
        assert len(losses(folder / f"{name}1")) == 8
        for ranks in (2, 3):
            run(mlp_args(data, folder / f"{name}{ranks}", *options), ranks)
            assert_close(losses(folder / f"{name}1"), losses(folder / f"{name}{ranks}"))
        run(mlp_args(data, folder / f"{name}accumulated", *options, "--accumulate", 3), 2)
        assert_close(losses(folder / f"{name}1"), losses(folder / f"{name}accumulated"))


def a_device_trains_on_the_same_pixels(folder):
    if not os.path.isdir(HOST_MODULE):
        raise Skipped("there is no host module")
    data = write_shards(folder / "data", samples=100)
    for name, options in (("trivial", TRIVIAL), ("rand", RAND)):
        run(mlp_args(data, folder / f"{name}-cpu", *options))
        run(mlp_args(data, folder / f"{name}-device", *options, "--device", "cuda"), env={"LOCKSTEP_MODULE_PATH": HOST_MODULE})
        assert_close(losses(folder / f"{name}-cpu"), losses(folder / f"{name}-device"))


def evaluation_is_of_every_sample_once_and_unchanged(folder):
    data = write_shards(folder / "data", samples=48)
    write_shards(folder / "data", samples=20, shards=1, split="val", seed=1)
    run(mlp_args(data, folder / "augmented", *TRIVIAL, lr=0))
    run(mlp_args(data, folder / "plain", lr=0))
    results = [[(e["loss"], e["top1"]) for e in events(folder / name, "eval")] for name in ("augmented", "plain")]
    assert results[0] == results[1] and len(results[0]) == 2, results
    assert losses(folder / "augmented") != losses(folder / "plain")


def values_out_of_range_are_refused(folder):
    args = ["train", "--synthetic", "--run-dir", folder / "run"]
    for options, parts in (
            (["--auto-augment", "autoaugment"], ["--auto-augment is 'autoaugment'", "trivialaugment"]),
            (["--randaugment-ops", 3], ["--randaugment-ops 3 belongs to --auto-augment randaugment"]),
            (["--auto-augment", "randaugment", "--randaugment-magnitude", 31], ["--randaugment-magnitude 31 is not below --randaugment-bins 31"]),
            (["--repeated-augmentation", 0], ["--repeated-augmentation"])):
        output = run([*args, *options], expect=USAGE)
        assert all(part in output for part in parts), output


if __name__ == "__main__":
    main([a_run_resumed_in_the_middle_of_an_epoch_equals_an_uninterrupted_run, the_same_copies_are_augmented_on_any_number_of_ranks,
          a_device_trains_on_the_same_pixels, evaluation_is_of_every_sample_once_and_unchanged, values_out_of_range_are_refused])
