#!/usr/bin/env python3
"""Tests vision transformers in whole runs: resume, every mode of sharding, evaluation, a GPU engine, and what they refuse."""

import math

from harness import *  # noqa: F403

HOST_MODULE = os.environ.get("LOCKSTEP_TEST_HOST_MODULE", "")
OPTIONS = ["--optimizer", "adamw", "--weight-decay", 0.05, "--clip-grad-norm", 1, "--ema-decay", 0.9]


def vit_args(data, run_dir, *options):
    args = train_args(data, run_dir, *OPTIONS, *options)
    args[args.index("mini-resnet")] = "mini-vit"
    args[args.index("--lr") + 1] = 0.002
    return args


def losses(run_dir):
    return [event["loss"] for event in events(run_dir, "step")]


def assert_close(left, right, tolerance):
    assert len(left) == len(right) == 4 and all(math.isclose(a, b, rel_tol=tolerance) for a, b in zip(left, right)), (left, right)


@more_in_soak
def a_resumed_run_equals_an_uninterrupted_run(folder):
    data = write_shards(folder / "data", samples=60)
    modes = [(ranks, ["--shard", mode]) for mode in ("none", "optimizer", "grad", "full") for ranks in (1, 2, 3, 4)]
    bf16 = ["--precision", "bf16"] if computes_bf16() else []
    for ranks, more in few([*modes, (2, ["--accumulate", 2]), (2, ["--shard", "full", *bf16])], 1, 6, 10, 15, 16, 17):
        name = f"{ranks}-{'-'.join(map(str, more))}"
        whole, pieces = folder / f"whole{name}", folder / f"pieces{name}"
        run(vit_args(data, whole, "--max-steps", 6, *more), ranks)
        run(vit_args(data, pieces, "--max-steps", 3, *more), ranks)
        run(vit_args(data, pieces, "--max-steps", 6, *more), ranks)
        assert_same_run(whole, pieces)


def the_modes_of_sharding_train_alike(folder):
    data = write_shards(folder / "data", samples=60)
    run(vit_args(data, folder / "none", "--max-steps", 4), 4)
    for mode, more in (("optimizer", []), ("grad", []), ("full", []), ("hybrid", ["--shard-group", 2])):
        run(vit_args(data, folder / mode, "--max-steps", 4, "--shard", mode, *more), 4)
        assert_close(losses(folder / "none"), losses(folder / mode), 1e-4)


def a_checkpoint_is_evaluated_and_exported(folder):
    data = write_shards(folder / "data")
    write_shards(folder / "data", samples=20, shards=1, split="val", seed=1)
    run(vit_args(data, folder / "run", "--epochs", 1))
    evaluated = events(folder / "run", "eval")[-1]["ema_loss"]
    checkpoint = latest(folder / "run")
    loss = json.loads(run(["eval", "--checkpoint", checkpoint, "--data", data, "--json"]).splitlines()[-1])["loss"]
    assert math.isclose(loss, evaluated, rel_tol=1e-6), (loss, evaluated)
    run(["export", checkpoint, "--format", "onnx", "--output", folder / "model.onnx"])
    output = run(["eval", "--checkpoint", checkpoint, "--data", data, "--image-size", 8])
    assert "embeddings of positions are interpolated from 3x3 to 2x2" in output, output


def a_device_trains_the_same_network(folder):
    if not os.path.isdir(HOST_MODULE):
        raise Skipped("there is no host module")
    data = write_shards(folder / "data")
    run(vit_args(data, folder / "cpu", "--max-steps", 4))
    run(vit_args(data, folder / "device", "--max-steps", 4, "--device", "cuda"), env={"LOCKSTEP_MODULE_PATH": HOST_MODULE})
    assert_close(losses(folder / "cpu"), losses(folder / "device"), 1e-3)


def options_that_do_not_fit_are_refused(folder):
    def refused(*options):
        return run(["train", "--synthetic", "--run-dir", folder / "run", "--model", *options], expect=USAGE)

    output = refused("vit_b_16", "--image-size", 220)
    assert "images of 220x220 do not go with --model vit_b_16 (it divides them into patches of 16x16)" in output, output
    output = refused("vit_b_16", "--width", 100)
    assert "--width 100 does not go with --model vit_b_16 (its 12 heads divide the width)" in output, output
    output = refused("mini-vit", "--image-size", 32, "--stochastic-depth", 0.1)
    assert "--stochastic-depth does not go with --model mini-vit" in output, output


if __name__ == "__main__":
    main([a_resumed_run_equals_an_uninterrupted_run, the_modes_of_sharding_train_alike, a_checkpoint_is_evaluated_and_exported,
          a_device_trains_the_same_network, options_that_do_not_fit_are_refused])
