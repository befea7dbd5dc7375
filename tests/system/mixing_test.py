#!/usr/bin/env python3
"""Tests mixup, CutMix, random erasing and binary cross entropy in whole runs."""

import math

from harness import *  # noqa: F403

HOST_MODULE = os.environ.get("LOCKSTEP_TEST_HOST_MODULE", "")
ALL = ["--mixup", 0.2, "--cutmix", 1, "--random-erasing", 0.3, "--label-smoothing", 0.1, "--loss", "bce", "--bce-target-threshold", 0.2]


def a_run_resumed_in_the_middle_of_an_epoch_equals_an_uninterrupted_run(folder):
    data = write_shards(folder / "data")
    write_shards(folder / "data", samples=20, shards=1, split="val", seed=1)
    bf16 = ["--precision", "bf16"] if computes_bf16() else []
    for ranks, more in ((1, []), (2, []), (2, ["--accumulate", 2]), (2, ["--shard", "full", *bf16, "--recompute", "none"])):
        name = f"{ranks}{''.join(more[:1])}"
        whole, pieces = folder / f"whole{name}", folder / f"pieces{name}"
        run([*train_args(data, whole, "--epochs", 2), *ALL, *more], ranks)
        run([*train_args(data, pieces, "--epochs", 2, "--max-steps", 5), *ALL, *more, "--loader-threads", 3], ranks)
        run([*train_args(data, pieces, "--epochs", 2), *ALL, *more], ranks)
        assert_same_run(whole, pieces)


def mlp_args(data, run_dir, *more, batch=24, lr=0.05, augmented=True):
    """Without batch norm, a step does not depend on the division of the batch."""
    return ["train", "--data", data, "--run-dir", run_dir, "--model", "mlp", "--width", 16, "--global-batch-size", batch, "--lr", lr,
            "--threads", 1, "--log-every", 1, "--progress", "plain", "--epochs", 2, *(ALL if augmented else []), *more]


def losses(run_dir):
    return [event["loss"] for event in events(run_dir, "step")]


def assert_close(left, right):
    assert len(left) == len(right) and all(math.isclose(a, b, rel_tol=1e-5) for a, b in zip(left, right)), (left, right)


def the_same_pairs_are_mixed_on_any_number_of_ranks(folder):
    data = write_shards(folder / "data", samples=100)
    run(mlp_args(data, folder / "1"))
    assert len(losses(folder / "1")) == 8
    for ranks in (2, 3, 4):
        run(mlp_args(data, folder / str(ranks)), ranks)
        assert_close(losses(folder / "1"), losses(folder / str(ranks)))
    run(mlp_args(data, folder / "accumulated", "--accumulate", 3), 2)
    assert_close(losses(folder / "1"), losses(folder / "accumulated"))


def a_device_trains_on_the_same_images_and_targets(folder):
    if not os.path.isdir(HOST_MODULE):
        raise Skipped("there is no host module")
    data = write_shards(folder / "data", samples=100)
    run(mlp_args(data, folder / "cpu"))
    run(mlp_args(data, folder / "device", "--device", "cuda"), env={"LOCKSTEP_MODULE_PATH": HOST_MODULE})
    assert_close(losses(folder / "cpu"), losses(folder / "device"))


def generated_images_are_mixed_too(folder):
    args = ["train", "--synthetic", "--synthetic-samples", 32, "--image-size", 16, "--classes", 5, "--model", "mlp", "--batch-size", 8,
            "--epochs", 1, "--progress", "plain", "--log-every", 1]
    run([*args, "--run-dir", folder / "alone"])
    run([*args, "--run-dir", folder / "mixed", "--mixup", 1])
    assert losses(folder / "alone") != losses(folder / "mixed")


def evaluation_is_the_plain_cross_entropy_of_whole_images(folder):
    data = write_shards(folder / "data", samples=48)
    write_shards(folder / "data", samples=20, shards=1, split="val", seed=1)
    run(mlp_args(data, folder / "mixed", lr=0))
    run(mlp_args(data, folder / "plain", lr=0, augmented=False))
    results = [[(e["loss"], e["top1"]) for e in events(folder / name, "eval")] for name in ("mixed", "plain")]
    assert results[0] == results[1] and len(results[0]) == 2, results
    assert losses(folder / "mixed") != losses(folder / "plain")
    loss = json.loads(run(["eval", "--checkpoint", latest(folder / "mixed"), "--data", data, "--json"]).splitlines()[-1])["loss"]
    assert math.isclose(loss, results[0][-1][0], rel_tol=1e-6), (loss, results)


def slices_that_separate_pairs_are_mixed_as_on_one_rank(folder):
    data = write_shards(folder / "data", samples=100)
    for batch in (9, 16, 18):
        run(mlp_args(data, folder / f"{batch}-1", batch=batch))
        for ranks, more in ((2, []), (3, []), (4, []), (2, ["--accumulate", 2])):
            name = folder / f"{batch}-{ranks}{''.join(more[:1])}"
            run(mlp_args(data, name, *more, batch=batch), ranks)
            assert_close(losses(folder / f"{batch}-1"), losses(name))
    # Resumed in the middle of an epoch, also with another global batch there.
    whole, pieces = folder / "whole", folder / "pieces"
    run(mlp_args(data, whole, batch=9), 2)
    run(mlp_args(data, pieces, "--max-steps", 5, batch=9), 2)
    run(mlp_args(data, pieces, batch=9), 2)
    assert_same_run(whole, pieces)
    run(mlp_args(data, folder / "other", "--max-steps", 1, batch=9))
    run(mlp_args(data, folder / "other", "--allow-batch-change", batch=10), 3)


def a_device_refuses_a_batch_that_separates_pairs(folder):
    if not os.path.isdir(HOST_MODULE):
        raise Skipped("there is no host module")
    data = write_shards(folder / "data", samples=100)
    device = {"LOCKSTEP_MODULE_PATH": HOST_MODULE}
    for ranks, batch, begin in ((1, 9, 9), (2, 18, 9), (3, 16, 11)):
        output = run(mlp_args(data, folder / "run", "--device", "cuda", "--comm", "mpi", batch=batch), ranks, env=device, expect=USAGE)
        assert "on GPUs" in output and f"begins at position {begin}" in output and f"a multiple of {2 * ranks}" in output, output


if __name__ == "__main__":
    main([a_run_resumed_in_the_middle_of_an_epoch_equals_an_uninterrupted_run, the_same_pairs_are_mixed_on_any_number_of_ranks,
          a_device_trains_on_the_same_images_and_targets, generated_images_are_mixed_too,
          evaluation_is_the_plain_cross_entropy_of_whole_images, slices_that_separate_pairs_are_mixed_as_on_one_rank, a_device_refuses_a_batch_that_separates_pairs])
