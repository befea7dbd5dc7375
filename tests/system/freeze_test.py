#!/usr/bin/env python3
"""Tests --freeze and --lr-scale in whole runs."""

import fnmatch
import math

from harness import *  # noqa: F403

HOST_MODULE = os.environ.get("LOCKSTEP_TEST_HOST_MODULE", "")
PATTERNS = ["conv1.*", "bn1.*", "layer1.*", "layer3.1.conv2.weight", "layer2.0.bn2.bias", "fc.bias"]
FROZEN = ["--freeze", ",".join(PATTERNS), "--weight-decay", 0.01]
DEVICE = {"LOCKSTEP_MODULE_PATH": HOST_MODULE}


def arrays(checkpoint, group):
    with h5py.File(checkpoint) as file:
        return {name: file[group][name][...] for name in file[group]}


def is_frozen(parameter):
    learns = not parameter.endswith(("running_mean", "running_var"))
    return learns and any(fnmatch.fnmatchcase(parameter, pattern) for pattern in PATTERNS)


def losses(run_dir):
    return [event["loss"] for event in events(run_dir, "step")]


def start(folder):
    data = write_shards(folder / "data")
    run(train_args(data, folder / "start", "--max-steps", 6))
    return data, latest(folder / "start")


def only_parameters_that_are_not_frozen_change(folder):
    data, begin = start(folder)
    before = arrays(begin, "model")
    for name, ranks, more in (("one", 1, ["--clip-grad-norm", 0.5]), ("two", 2, ["--accumulate", 2]), ("lars", 1, ["--optimizer", "lars"]),
                              ("optimizer", 2, ["--shard", "optimizer"]), ("grad", 2, ["--shard", "grad", "--clip-grad-norm", 0.5]),
                              ("full", 2, ["--shard", "full", "--accumulate", 2]), ("device", 1, ["--device", "cuda"]),
                              ("device-adamw", 1, ["--device", "cuda", "--optimizer", "adamw"]),
                              ("device-full", 2, ["--device", "cuda", "--shard", "full"])):
        if "--device" in more and not os.path.isdir(HOST_MODULE):
            continue
        output = run(train_args(data, folder / name, "--init-from", begin, "--max-steps", 3, *FROZEN, *more), ranks, DEVICE if "--device" in more else None)
        after = arrays(latest(folder / name), "model")
        frozen_values = sum(value.size for parameter, value in before.items() if is_frozen(parameter))
        assert f"parameters ({frozen_values} frozen)" in output, output
        for parameter, value in before.items():
            if parameter.endswith(("running_mean", "running_var")):
                assert (after[parameter] != value).any(), (name, parameter)
                continue
            assert (after[parameter].tobytes() == value.tobytes()) == is_frozen(parameter), (name, parameter)


def a_norm_for_clipping_leaves_out_frozen_parameters(folder):
    data, begin = start(folder)
    norms = {}
    for name, options in (("all", []), ("frozen", ["--freeze", "layer*,conv1.*,bn1.*"]), ("device", ["--freeze", "layer*,conv1.*,bn1.*", "--device", "cuda"])):
        if name == "device" and not os.path.isdir(HOST_MODULE):
            continue
        run(train_args(data, folder / name, "--init-from", begin, "--max-steps", 1, "--clip-grad-norm", 1e9, *options),
            env=DEVICE if name == "device" else None)
        norms[name] = events(folder / name, "step")[0]["gradient_norm"]
    assert 0 < norms["frozen"] < norms["all"], norms
    assert "device" not in norms or math.isclose(norms["device"], norms["frozen"], rel_tol=1e-4), norms


def sharded_runs_train_the_same(folder):
    data, begin = start(folder)
    options = ["--init-from", begin, *FROZEN, "--lr-scale", "fc.*=3,layer2.*=0.5"]
    for mode in ("none", "optimizer", "grad", "full"):
        run(train_args(data, folder / mode, "--max-steps", 4, *options, "--shard", mode), 2)
        left, right = losses(folder / "none"), losses(folder / mode)
        assert len(left) == len(right) == 4 and all(math.isclose(a, b, rel_tol=1e-3) for a, b in zip(left, right)), (mode, left, right)
    for steps in (2, 4):
        run(train_args(data, folder / "pieces", "--max-steps", steps, *options, "--shard", "full"), 2)
    assert_same_run(folder / "full", folder / "pieces")


def norms_with_fixed_statistics_keep_them(folder):
    """Their statistics keep their bits, those of trained norms change, and all ways to compute a step agree."""
    data, begin = start(folder)
    before = arrays(begin, "model")
    frozen = ["--freeze", "conv1.*,bn1.*,layer1.*,layer2.*.bn?.*", "--frozen-norms", "running", "--init-from", begin]
    accumulated = ["--accumulate", 2]
    for name, ranks, more in (("one", 1, ["--ema-decay", 0.7]), ("two", 2, accumulated), ("full", 2, ["--shard", "full", *accumulated]),
                              ("sync", 2, ["--batch-norm", "sync", *accumulated]), ("recompute", 1, ["--recompute", "norms"]),
                              ("sizes", 1, ["--image-size", 8, "--image-size-schedule", "12@1"]),
                              ("device", 1, ["--device", "cuda", "--ema-decay", 0.7]),
                              ("device-sync", 2, ["--device", "cuda", "--batch-norm", "sync", *accumulated])):
        if "--device" in more and not os.path.isdir(HOST_MODULE):
            continue
        steps = 26 if name == "sizes" else 3  # an epoch has 24
        run(train_args(data, folder / name, *frozen, *more, "--max-steps", steps), ranks, DEVICE if "--device" in more else None)
        for group in ("model", "ema") if "--ema-decay" in more else ("model",):
            after = arrays(latest(folder / name), group)
            for statistic in (key for key in before if key.endswith(("running_mean", "running_var"))):
                is_fixed = statistic.startswith(("bn1", "layer1")) or statistic.startswith("layer2") and "downsample" not in statistic
                assert (after[statistic].tobytes() == before[statistic].tobytes()) == is_fixed, (name, group, statistic)
        peer = losses(folder / {"full": "two", "device-sync": "sync"}.get(name, "one"))
        if name in ("recompute", "device", "full", "device-sync"):
            assert all(math.isclose(a, b, rel_tol=1e-3) for a, b in zip(peer, losses(folder / name), strict=True)), (name, peer, losses(folder / name))
    run(train_args(data, folder / "batch", "--max-steps", 3, *[option for option in frozen if option not in ("--frozen-norms", "running")]))
    assert abs(losses(folder / "batch")[0] - losses(folder / "one")[0]) > 1e-3, "batch statistics give the same loss"
    output = run(train_args(data, folder / "refused", "--freeze", "layer1.*.bn1.weight", "--frozen-norms", "running"), expect=USAGE)
    assert "no batch norm of mini-resnet is frozen" in output, output


def patterns_that_match_nothing_or_everything_are_refused(folder):
    data = write_shards(folder / "data")
    for options, text in ((["--freeze", "layer9.*"], "layer9.*, which matches no parameter of mini-resnet"), (["--freeze", "*"], "nothing is left to train"),
                          (["--lr-scale", "fc"], "PATTERN=FACTOR"), (["--lr-scale", "fc.*=0"], "the factor above 0"),
                          (["--lr-scale", "head.*=2"], "matches no parameter")):
        output = run(train_args(data, folder / "run", *options), expect=USAGE)
        assert text in output, (options, output)


if __name__ == "__main__":
    main([only_parameters_that_are_not_frozen_change, a_norm_for_clipping_leaves_out_frozen_parameters, sharded_runs_train_the_same,
          norms_with_fixed_statistics_keep_them, patterns_that_match_nothing_or_everything_are_refused])
