#!/usr/bin/env python3
"""Tests options of resnets in whole runs: ResNet-D's stem and shortcuts, and stochastic depth."""

import math

from harness import *  # noqa: F403

HOST_MODULE = os.environ.get("LOCKSTEP_TEST_HOST_MODULE", "")
RESNET_D = ["--stem", "deep", "--shortcut", "avgpool"]
DROPPING = ["--stochastic-depth", 0.5]


def losses(run_dir):
    return [event["loss"] for event in events(run_dir, "step")]


def assert_close(left, right):
    """Rounding errors grow from step to step; the first loss has hardly any."""
    assert math.isclose(left[0], right[0], rel_tol=1e-5), (left, right)
    assert len(left) == len(right) and all(math.isclose(a, b, rel_tol=2e-2) for a, b in zip(left, right)), (left, right)


def with_global_batch(args, size):
    at = args.index("--batch-size")
    return [*args[:at], "--global-batch-size", size, *args[at + 2:]]


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
    for name, options in (("d", RESNET_D), ("dropping", DROPPING)):
        args = ["--max-steps", 4, *options]
        run(train_args(data, folder / f"{name}-cpu", *args))
        run(train_args(data, folder / f"{name}-device", *args, "--device", "cuda"), env={"LOCKSTEP_MODULE_PATH": HOST_MODULE})
        assert_close(losses(folder / f"{name}-cpu"), losses(folder / f"{name}-device"))


def a_dropping_run_resumed_in_the_middle_of_an_epoch_equals_an_uninterrupted_run(folder):
    data = write_shards(folder / "data")
    for ranks, more in ((1, []), (2, ["--accumulate", 2]), (2, ["--shard", "full"])):
        whole, pieces = folder / f"whole{ranks}{len(more)}{more[:1]}", folder / f"pieces{ranks}{more[:1]}"
        run(train_args(data, whole, "--epochs", 2, *DROPPING, *more), ranks)
        run(train_args(data, pieces, "--epochs", 2, "--max-steps", 5, *DROPPING, *more, "--loader-threads", 3), ranks)
        run(train_args(data, pieces, "--epochs", 2, *DROPPING, *more), ranks)
        assert_same_run(whole, pieces)


def the_same_samples_drop_the_same_blocks_on_any_number_of_ranks(folder):
    data = write_shards(folder / "data", samples=120)
    common = ["--max-steps", 4, "--batch-norm", "sync"]
    for ranks in (1, 2, 3):
        run(with_global_batch(train_args(data, folder / str(ranks), *common, *DROPPING), 12), ranks)
        assert_close(losses(folder / "1"), losses(folder / str(ranks)))
    run(with_global_batch(train_args(data, folder / "all", *common), 12))
    assert abs(losses(folder / "all")[0] - losses(folder / "1")[0]) > 1e-3, "no block is dropped"


def evaluation_keeps_all_blocks(folder):
    data = write_shards(folder / "data", samples=48)
    write_shards(folder / "data", samples=20, shards=1, split="val", seed=1)
    run(train_args(data, folder / "run", "--epochs", 1, *DROPPING))
    trained = [event["loss"] for event in events(folder / "run", "eval")][-1]
    with h5py.File(latest(folder / "run")) as source, h5py.File(folder / "weights.h5", "w") as target:
        for name in source["model"]:
            target["model/" + name] = source["model"][name][...]
    # The network of these weights alone has no stochastic depth.
    plain = json.loads(run(["eval", "--checkpoint", folder / "weights.h5", "--data", data, "--model", "mini-resnet", "--width", 8,
                            "--json"]).splitlines()[-1])
    assert math.isclose(plain["loss"], trained, rel_tol=1e-6), (plain, trained)


def sizes_around_64_pixels_need_a_named_stem(folder):
    """Below 64 pixels --stem standard is another network."""
    data = write_shards(folder / "data", samples=8, shape=(64, 64, 3))
    write_shards(data, samples=8, shards=1, shape=(64, 64, 3), split="val", seed=1)

    def train(run_dir, *options, **expected):
        args = train_args(data, folder / run_dir, "--image-size", 48, *options)
        args[args.index("mini-resnet")] = "resnet18"
        return run(args, **expected)

    def evaluate(run_dir, *options, **expected):
        return run(["eval", "--checkpoint", latest(folder / run_dir), "--data", data, "--json", *options], **expected)

    resizing = ["--epochs", 2, "--image-size-schedule", "64@1"]
    for more in (resizing, ["--eval-size", 64]):
        for stem in ("standard", "deep"):
            output = train("refused", *more, "--stem", stem, expect=USAGE)
            assert f"{more[-2]} 64" in output and "its stem depends on the size" in output and "--stem 3x3 or --stem 7x7" in output, output
    for stem in ("3x3", "7x7"):
        output = train(stem, *resizing, "--stem", stem)
        assert "input 3x48x48, 10 classes\n" in output, output
        trained = [event["loss"] for event in events(folder / stem, "eval")][-1]
        loss = json.loads(evaluate(stem).splitlines()[-1])["loss"]
        assert math.isclose(loss, trained, rel_tol=1e-6), (stem, loss, trained)
    for stem, note in (("standard", "3x3 stem without pooling, as for images below 64 pixels; --stem 7x7 gives torchvision's network"),
                       ("deep", "deep stem without stride and pooling, as for images below 64 pixels")):
        output = train(stem, "--epochs", 1, "--stem", stem)
        assert f"input 3x48x48, 10 classes; {note}\n" in output, output
        export = ["export", latest(folder / stem), "--format", "safetensors", "--output", folder / "x.safetensors", "--image-size", 64]
        for output in (evaluate(stem, "--image-size", 64, expect=USAGE), run(export, expect=USAGE)):
            assert "resnet18 on images of 64x64 is not the network of" in output and "trained on images of 48x48" in output, output
            assert ("or --model and --stem 3x3" in output) == (stem == "standard"), output
        for more in ([], ["--json"]):
            assert note in run(["inspect", "--model", "resnet18", "--image-size", 48, "--stem", stem, *more])
    named = ["--image-size", 64, "--model", "resnet18", "--width", 8, "--stem"]
    evaluate("standard", *named, "3x3")
    output = evaluate("standard", *named, "7x7", expect=BAD_INPUT)
    assert "give the --model, --width and --stem it was written with" in output, output


def options_of_other_networks_are_refused(folder):
    for options in (RESNET_D[:2], RESNET_D[2:]):
        output = run(["eval", "--checkpoint", folder / "x", "--data", folder, *options], expect=USAGE)
        assert f"{options[0]} {options[1]} without --model" in output, output
    for options in (RESNET_D, DROPPING, ["--stem", "7x7"], ["--stem", "3x3"]):
        output = run(["train", "--synthetic", "--model", "mlp", "--run-dir", folder / "run", *options], expect=USAGE)
        assert "does not go with --model mlp" in output, output
    output = run(["train", "--synthetic", "--stochastic-depth", 1, "--run-dir", folder / "run"], expect=USAGE)
    assert "--stochastic-depth" in output, output


if __name__ == "__main__":
    main([a_checkpoint_knows_its_stem_and_shortcuts, a_device_trains_the_same_networks,
          a_dropping_run_resumed_in_the_middle_of_an_epoch_equals_an_uninterrupted_run,
          the_same_samples_drop_the_same_blocks_on_any_number_of_ranks, evaluation_keeps_all_blocks, sizes_around_64_pixels_need_a_named_stem,
          options_of_other_networks_are_refused])
