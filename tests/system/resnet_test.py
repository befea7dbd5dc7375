#!/usr/bin/env python3
"""Tests options of resnets in whole runs: ResNet-D's stem and shortcuts."""

import math

from harness import *  # noqa: F403

HOST_MODULE = os.environ.get("LOCKSTEP_TEST_HOST_MODULE", "")
RESNET_D = ["--stem", "deep", "--shortcut", "avgpool"]


def losses(run_dir):
    return [event["loss"] for event in events(run_dir, "step")]


def assert_close(left, right):
    """Rounding errors grow from step to step; the first loss has hardly any."""
    assert math.isclose(left[0], right[0], rel_tol=1e-5), (left, right)
    assert len(left) == len(right) and all(math.isclose(a, b, rel_tol=2e-2) for a, b in zip(left, right)), (left, right)


def a_checkpoint_knows_its_stem_and_shortcuts(folder):
    data = write_shards(folder / "data")
    write_shards(folder / "data", samples=20, shards=1, split="val", seed=1)
    run(train_args(data, folder / "run", "--epochs", 1, *RESNET_D))
    evaluated = [event["loss"] for event in events(folder / "run", "eval")][-1]
    checkpoint = latest(folder / "run")
    loss = json.loads(run(["eval", "--checkpoint", checkpoint, "--data", data, "--json"]).splitlines()[-1])["loss"]
    assert math.isclose(loss, evaluated, rel_tol=1e-6), (loss, evaluated)
    with h5py.File(checkpoint) as source, h5py.File(folder / "weights.h5", "w") as target:
        assert {"conv1.0.weight", "conv1.6.weight", "layer2.0.downsample.1.weight"} <= set(source["model"]), list(source["model"])
        for name in source["model"]:
            target["model/" + name] = source["model"][name][...]
    named = ["eval", "--checkpoint", folder / "weights.h5", "--data", data, "--model", "mini-resnet", "--width", 8, "--json"]
    assert math.isclose(json.loads(run([*named, *RESNET_D]).splitlines()[-1])["loss"], loss, rel_tol=1e-6)
    run(named, expect=BAD_INPUT)
    run(["export", folder / "weights.h5", "--format", "onnx", "--output", folder / "model.onnx", "--model", "mini-resnet", "--width", 8,
         "--image-size", 12, "--mean", 0.5, "--std", 0.25, *RESNET_D])
    output = run(train_args(data, folder / "run", "--epochs", 2), expect=USAGE)
    assert "identity" in output, output


def a_device_trains_the_same_networks(folder):
    if not os.path.isdir(HOST_MODULE):
        raise Skipped("there is no host module")
    data = write_shards(folder / "data")
    args = ["--max-steps", 4, *RESNET_D]
    run(train_args(data, folder / "cpu", *args))
    run(train_args(data, folder / "device", *args, "--device", "cuda"), env={"LOCKSTEP_MODULE_PATH": HOST_MODULE})
    assert_close(losses(folder / "cpu"), losses(folder / "device"))


def options_of_other_networks_are_refused(folder):
    output = run(["train", "--synthetic", "--model", "mlp", "--run-dir", folder / "run", *RESNET_D], expect=USAGE)
    assert "does not go with --model mlp" in output, output


if __name__ == "__main__":
    main([a_checkpoint_knows_its_stem_and_shortcuts, a_device_trains_the_same_networks, options_of_other_networks_are_refused])
