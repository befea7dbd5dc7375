#!/usr/bin/env python3
"""Tests --recompute: the same bits in less memory, and a refusal by engines that cannot recompute."""

from harness import *  # noqa: F403

# A network of residual blocks; algorithms chosen by their times would differ from run to run.
NETWORK = ["--model", "mini-resnet", "--width", 16]
DIRECT = ["--conv-algorithm", "direct"]


def on_gpu(folder, name, *more):
    network = [] if "--model" in more else NETWORK
    return ["train", "--data", folder / "data", "--run-dir", folder / name, *network, "--batch-size", 4, "--threads", 1, "--epochs", 9,
            "--progress", "plain", *more]


def args(folder, name, *more):
    return [*on_gpu(folder, name, *more), *DIRECT]


def activations(output):
    return float(output.split("memory a rank: ")[1].split(" MiB activations")[0])


@more_in_soak
def runs_have_the_same_bits(folder):
    write_shards(folder / "data", samples=96, shape=(16, 16, 3))
    bf16 = ["--precision", "bf16"] if computes_bf16() else []
    for i, (ranks, more) in enumerate(few(((1, []), (1, bf16), (2, ["--batch-norm", "sync"]), (2, ["--shard", "full"]),
                                           (2, ["--shard", "grad", *bf16, "--accumulate", 2])), 1, -1)):
        kept = run(args(folder, f"kept-{i}", "--max-steps", 4, "--recompute", "none", *more), ranks)
        again = run(args(folder, f"again-{i}", "--max-steps", 4, "--recompute", "norms", *more), ranks)
        assert activations(again) < 0.85 * activations(kept), (more, activations(again), activations(kept))
        assert_same_run(folder / f"kept-{i}", folder / f"again-{i}")
        # Also with half of a run in each mode.
        run(args(folder, f"both-{i}", "--max-steps", 2, "--recompute", "none", *more), ranks)
        output = run(args(folder, f"both-{i}", "--max-steps", 4, *more), ranks)
        assert "--recompute was none, is auto now" in output, output
        assert activations(output) == activations(again), "auto is not the same as norms on CPUs"
        assert_same_run(folder / f"kept-{i}", folder / f"both-{i}")


@more_in_soak
def runs_that_recompute_blocks_have_the_same_bits(folder):
    write_shards(folder / "data", samples=96, shape=(16, 16, 3))
    bf16 = ["--precision", "bf16"] if computes_bf16() else []
    vit = ["--model", "mini-vit", "--width", 32, "--optimizer", "adamw", "--lr", 0.001]
    modes = [(ranks, ["--shard", mode]) for mode in ("none", "optimizer", "grad", "full") for ranks in (1, 2, 3, 4)]
    cases = [*((ranks, [*vit, *more]) for ranks, more in modes), (2, ["--shard", "full"]), (2, ["--batch-norm", "sync", "--accumulate", 2]),
             (2, [*vit, *bf16, "--shard", "full", "--accumulate", 2]), (1, bf16)]
    for i, (ranks, more) in enumerate(few(cases, 0, 13, 14, 16, 17, 18, 19)):
        runs = {}
        for what in ("none", "block"):
            runs[what] = run(args(folder, f"{what}-{i}", "--max-steps", 4, "--recompute", what, *more), ranks)
        share = activations(runs["block"]) / activations(runs["none"])
        assert share < 0.8, (more, share)
        assert_same_run(folder / f"none-{i}", folder / f"block-{i}")


def a_gpu_engine_recomputes_blocks_with_the_same_bits(folder):
    write_shards(folder / "data", samples=96, shape=(16, 16, 3))
    place = {"LOCKSTEP_MODULE_PATH": host_module()}
    for i, more in enumerate(([], ["--model", "mini-vit", "--width", 32, "--optimizer", "adamw", "--lr", 0.001])):
        kept, again = [run(on_gpu(folder, f"{what}-{i}", "--max-steps", 2, "--device", "cuda", "--recompute", what, *more), env=place)
                       for what in ("none", "block")]
        assert activations(again) < 0.9 * activations(kept), (activations(again), activations(kept))
        assert_same_run(folder / f"none-{i}", folder / f"block-{i}")


def host_module():
    module = os.environ.get("LOCKSTEP_TEST_HOST_MODULE")
    if not module or not pathlib.Path(module).exists():
        raise Skipped("the host module was not built")
    return module


def inspect_predicts_the_memory_of_a_run(folder):
    write_shards(folder / "data", samples=96, shape=(16, 16, 3))
    for asked in ("none", "norms", "auto", "block"):
        output = run(args(folder, asked, "--max-steps", 1, "--recompute", asked))
        report = json.loads(run(["inspect", *NETWORK, *DIRECT, "--image-size", 16, "--classes", 10, "--batch-size", 4, "--threads", 1,
                                 "--ranks", 1, "--recompute", asked, "--json"]))
        assert abs(report["memory"][0]["activation_bytes"] / 2**20 - activations(output)) < 0.1, (asked, report["memory"][0], output)


def recompute_norms_is_refused_on_a_gpu(folder):
    write_shards(folder / "data", samples=96, shape=(16, 16, 3))
    output = run(on_gpu(folder, "run", "--device", "cuda", "--recompute", "norms"), expect=USAGE)
    assert "--recompute norms does not go with --device cuda" in output, output
    place = {"LOCKSTEP_MODULE_PATH": host_module()}
    output = run(on_gpu(folder, "run", "--max-steps", 1, "--device", "auto", "--recompute", "norms"), 2, env=place, expect=USAGE)
    assert "--recompute norms does not go with --device cuda" in output, output
    for asked in ("auto", "none"):
        run(on_gpu(folder, asked, "--max-steps", 1, "--device", "cuda", "--recompute", asked), env=place)


if __name__ == "__main__":
    main([runs_have_the_same_bits, runs_that_recompute_blocks_have_the_same_bits, a_gpu_engine_recomputes_blocks_with_the_same_bits,
          inspect_predicts_the_memory_of_a_run, recompute_norms_is_refused_on_a_gpu])
