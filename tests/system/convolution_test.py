#!/usr/bin/env python3
"""Tests --conv-algorithm: how algorithms are chosen, and that a run keeps its choice."""

import math
import re
import statistics

from harness import *  # noqa: F403

# Its convolutions of stride 1, in three shapes, are large enough to be timed.
BATCH = 24
WIDE = ["--width", "32", "--batch-size", str(BATCH), "--lr", "0.05", "--threads", "1", "--log-every",
        "1", "--progress", "plain", "--check-replicas-every", "1"]
STEPS = ("forward", "data gradient", "weight gradient")


def args(folder, run_dir, *more):
    return ["train", "--data", folder / "data", "--run-dir", folder / run_dir, *WIDE,
            *([] if "--model" in more else ["--model", "mini-resnet"]), *more]


def inspect(folder, *more):
    text = run(["inspect", "--model", "mini-resnet", "--width", 32, "--image-size", 16, "--classes", 10, "--engine",
                "cpu", "--batch-size", 24, "--threads", 1, "--json", *more], env=cache(folder))
    return json.loads(text)["engine"]


def cache(folder):
    return {"XDG_CACHE_HOME": str(folder / "cache")}


def chosen(folder, run_dir):
    text = state(latest(folder / run_dir))["convolutions"]
    return text.decode() if isinstance(text, bytes) else text


HAS_AMX = "amx_bf16" in pathlib.Path("/proc/cpuinfo").read_text()
# Emulates a processor with narrower vectors.
OLDER = {"ONEDNN_MAX_CPU_ISA": "AVX2", "LOCKSTEP_TEST_VECTORS": "avx2"}


def forge(folder, direct, winograd):
    """Replaces the times in the cache."""
    path = folder / "cache" / "lockstep" / "convolutions.tsv"
    lines = path.read_text().splitlines()
    forged = ["\t".join([*line.split("\t")[:2], str(direct), str(winograd)]) for line in lines[1:]]
    path.write_text("\n".join([lines[0], *forged]) + "\n")
    return len(forged)


def prepare(folder):
    """Writes shards, and a cache with the times that runs on one and two ranks need."""
    write_shards(folder / "data", samples=240, shape=(16, 16, 3))
    write_shards(folder / "data", samples=20, shards=1, shape=(16, 16, 3), split="val", seed=1)
    inspect(folder)
    assert forge(folder, 2, 1) == 9, "not three steps of three shapes"


@more_in_soak
def a_resumed_run_keeps_its_choice(folder):
    """Even if a measurement at its start would give another choice."""
    prepare(folder)
    for ranks in few((1, 2), 1):
        forge(folder, 2, 1)
        whole, pieces, direct = f"whole-{ranks}", f"pieces-{ranks}", f"direct-{ranks}"
        output = run(args(folder, whole, "--max-steps", 6), ranks, env=cache(folder))
        assert "Winograd's algorithm in 30 of 30 steps" in output, output
        run(args(folder, pieces, "--max-steps", 3), ranks, env=cache(folder))
        text = chosen(folder, pieces)
        assert "32x16x16 to 32, padding 1: winograd winograd winograd\n" in text, text
        forge(folder, 1, 2)
        run(args(folder, direct, "--max-steps", 6), ranks, env=cache(folder))
        run(args(folder, pieces, "--max-steps", 6), ranks, env=cache(folder))
        assert_same_run(folder / whole, folder / pieces)
        # The two algorithms differ in their last bits, and the times in the cache were used.
        assert tensors(latest(folder / whole)) != tensors(latest(folder / direct))
        asked = f"asked-{ranks}"
        run(args(folder, asked, "--max-steps", 6, "--conv-algorithm", "direct"), ranks, env=cache(folder))
        left, right = tensors(latest(folder / asked)), tensors(latest(folder / direct))
        assert left == right


def another_conv_algorithm_replaces_the_choice(folder):
    prepare(folder)
    run(args(folder, "run", "--max-steps", 2), env=cache(folder))
    output = run(args(folder, "run", "--max-steps", 4, "--conv-algorithm", "direct"), env=cache(folder))
    assert "--conv-algorithm was auto, is direct now" in output and "Winograd" not in output, output
    assert "direct" in chosen(folder, "run") and "winograd" not in chosen(folder, "run")


def a_run_keeps_a_choice_for_each_precision_and_device(folder):
    """The choices in fp32, in bf16 and, with the host module, on GPUs."""
    require_bf16()
    prepare(folder)
    run(args(folder, "run", "--max-steps", 1), env=cache(folder))
    fp32 = chosen(folder, "run")
    assert "winograd" in fp32 and "bf16" not in fp32, fp32
    inspect(folder, "--precision", "bf16")
    forge(folder, 2, 1)
    output = run(args(folder, "run", "--max-steps", 2, "--precision", "bf16"), env=cache(folder))
    text = chosen(folder, "run")
    assert HAS_AMX or "Winograd's algorithm (in fp32) in 30 of 30 steps" in output, output
    bf16 = fp32.replace("winograd", "direct") if HAS_AMX else fp32
    assert text == fp32 + "".join(f"bf16: {line}\n" for line in bf16.splitlines()), text
    module = os.environ.get("LOCKSTEP_TEST_HOST_MODULE")
    if module and pathlib.Path(module).exists():
        run(args(folder, "run", "--max-steps", 3, "--device", "cuda"),
            env={**cache(folder), "LOCKSTEP_MODULE_PATH": module})
        with_gpu = chosen(folder, "run")
        assert with_gpu.startswith(text) and "\t" in with_gpu[len(text):], with_gpu
        run(args(folder, "run", "--max-steps", 4, "--precision", "bf16"), env=cache(folder))
        assert sorted(chosen(folder, "run").splitlines()) == sorted(with_gpu.splitlines())
    forge(folder, 1, 2)
    output = run(args(folder, "run", "--max-steps", 5), env=cache(folder))
    assert "Winograd's algorithm in 30 of 30 steps" in output, output


def bf16_trains_alike_with_each_algorithm(folder):
    require_bf16()
    prepare(folder)
    loss = {}
    for algorithm in ("direct", "winograd"):
        run(args(folder, algorithm, "--epochs", 2, "--precision", "bf16", "--conv-algorithm", algorithm), env=cache(folder))
        loss[algorithm] = [event["loss"] for event in events(folder / algorithm, "step")]
    first = [values[0] for values in loss.values()]
    second_epoch = [statistics.mean(values[len(values) // 2:]) for values in loss.values()]
    assert first[0] != first[1] and math.isclose(*first, rel_tol=2e-3) and math.isclose(*second_epoch, rel_tol=0.03), loss


def another_processor_keeps_the_choice(folder):
    """A run continues, and is evaluated, with its algorithms on a processor with narrower vectors."""
    prepare(folder)
    run(args(folder, "run", "--epochs", 1), env=cache(folder))
    assert "winograd" in chosen(folder, "run")
    older = {**cache(folder), **OLDER}
    evaluation = ["eval", "--checkpoint", latest(folder / "run"), "--data", folder / "data", "--threads", 1, "--json"]
    found = [json.loads(run(evaluation, ranks, env=env))["loss"] for env in (cache(folder), older) for ranks in (1, 2)]
    assert all(math.isclose(found[0], other, rel_tol=1e-5) for other in found), found
    before = state(latest(folder / "run"))["backend"].decode()
    output = run(args(folder, "run", "--epochs", 2), env=older)
    assert "Winograd's algorithm in 30 of 30 steps" in output, output
    now = state(latest(folder / "run"))["backend"].decode()
    assert re.fullmatch(r"oneDNN \d+\.\d+\.\d+, avx2\w*", now), now
    assert before == now or f"the backend was {before}, is {now} now (results may differ in their last bits)" in output, output
    output = run(args(folder, "run", "--epochs", 3), env=older)
    assert "the backend was" not in output, output


@more_in_soak
def replicas_and_sharded_runs_compute_the_same(folder):
    """Replicas are compared at each step; on up to two ranks, sharding gives the same bits."""
    prepare(folder)
    forced = ["--max-steps", 2, "--conv-algorithm", "winograd"]
    for ranks in few((1, 2, 3, 4), 1):
        for name, more in (("none", []), ("again", []), ("full", ["--shard", "full"])):
            output = run(args(folder, f"{name}-{ranks}", *forced, *more), ranks, env=cache(folder))
            assert "Winograd's algorithm in 30 of 30 steps" in output, output
        assert_same_run(folder / f"none-{ranks}", folder / f"again-{ranks}")
        if ranks <= 2:  # more ranks add in another order
            assert_same_run(folder / f"none-{ranks}", folder / f"full-{ranks}")


def evaluation_uses_the_algorithms_of_the_run(folder):
    prepare(folder)
    run(args(folder, "run", "--epochs", 1, "--conv-algorithm", "winograd"), env=cache(folder))
    recorded = events(folder / "run", "eval")[-1]

    def loss(batch, *more):
        evaluation = ["eval", "--checkpoint", latest(folder / "run"), "--data", folder / "data", "--batch-size", batch, "--threads", 1, "--json"]
        return json.loads(run([*evaluation, *more], env=cache(folder)))["loss"]

    assert loss(BATCH) == recorded["loss"]
    # Batches of other sizes are added in another order, in double; another algorithm differs by about 1e-7.
    assert abs(loss(16) - recorded["loss"]) < 1e-13
    assert 1e-13 < abs(loss(BATCH, "--conv-algorithm", "direct") - recorded["loss"]) < 1e-3


def times_are_listed_and_cached(folder):
    listed = inspect(folder)
    steps = {each["name"]: each["steps"] for each in listed["convolutions"]}
    assert set(steps["layer1.0.conv1"]) == set(STEPS)
    assert "direct_seconds" not in steps["layer2.0.downsample.0"]["forward"]
    for step in STEPS:
        entry = steps["layer1.0.conv1"][step]
        faster = entry["winograd_seconds"] < 0.95 * entry["direct_seconds"]
        assert entry["algorithm"] == ("winograd" if faster else "direct"), entry
    assert inspect(folder) == listed, "the second call did not use the cached times"
    text = run(["inspect", "--model", "mini-resnet", "--width", 32, "--image-size", 16, "--engine", "cpu",
                "--conv-algorithm", "direct"], env=cache(folder))
    assert "winograd" not in text and "layer3.1.conv2" in text, text


def unsupported_combinations_are_refused(folder):
    prepare(folder)
    for more, words in ((["--conv-algorithm", "winograd", "--precision", "fp16"], "does not go with --precision fp16"),
                        (["--conv-algorithm", "winograd", "--device", "cuda"], "does not go with --device cuda"),
                        (["--conv-algorithm", "winograd", "--model", "mlp"], "does not apply to mlp"),
                        (["--conv-algorithm", "fft"], "--conv-algorithm")):
        output = run(args(folder, "run", "--max-steps", 1, *more), env=cache(folder), expect=USAGE)
        assert words in output, output
    output = run(args(folder, "two", "--max-steps", 1, "--conv-algorithm", "winograd", "--model", "mlp"), 2,
                 env=cache(folder), expect=USAGE)
    assert output.count("does not apply to mlp") == 1, output
    for more, words in ((["--engine", "cuda"], "use cpu or gpu"), (["--engine", "gpu", "--gpu", "v100"], "use one of a100, h100"),
                        (["--gpu", "h100"], "give --engine gpu")):
        output = run(["inspect", "--model", "mlp", *more], expect=USAGE)
        assert words in output, output
    # Before any trial.
    output = run(["inspect", "--model", "mini-resnet", "--engine", "cpu", "--precision", "bf16"],
                 env={**cache(folder), "DNNL_MAX_CPU_ISA": "AVX2"}, expect=USAGE)
    assert "--precision bf16 cannot run on this processor" in output, output
    limited = {**cache(folder), "OMP_THREAD_LIMIT": "1"}
    output = run(["bench", "step", "--model", "mlp", "--threads", 2, "--steps", 1], env=limited, expect=USAGE)
    assert "--threads 2 is more than OpenMP may start (OMP_THREAD_LIMIT is 1)" in output, output


def a_step_on_a_gpu_is_predicted_without_one(folder):
    options = ["inspect", "--model", "resnet18", "--engine", "gpu", "--gpu", "h200", "--precision", "bf16", "--batch-size", 64]
    text = run(options)
    assert "predicted, not measured: a step of 64 images in bf16 on one NVIDIA H200" in text, text
    engine = json.loads(run([*options, "--json"]))["engine"]
    launches = engine["launches"]
    assert engine["predicted"] and abs(sum(launch["seconds"] for launch in launches) - engine["seconds"]) < 1e-9, engine
    assert all(launch["seconds"] >= launch["seconds_at_peak_rates"] + 4e-6 for launch in launches)
    # Each convolution has three passes; the first one and the linear layer have no data gradient and a bias.
    steps = [launch["step"] for launch in launches if launch["kernel"] == "convolution"]
    assert len(steps) == 3 * 21 - 1 and "weight gradient of layer4.1.conv2" in steps and "data gradient of conv1" not in steps, steps
    assert f"{engine['images_per_second']:.0f} images/s" in text, text


def an_unwritable_cache_is_ignored(folder):
    write_shards(folder / "data", samples=240, shape=(16, 16, 3))
    run(args(folder, "run", "--max-steps", 1), env={"XDG_CACHE_HOME": "/proc/none"})


if __name__ == "__main__":
    main([a_resumed_run_keeps_its_choice, another_conv_algorithm_replaces_the_choice,
          a_run_keeps_a_choice_for_each_precision_and_device, bf16_trains_alike_with_each_algorithm, another_processor_keeps_the_choice,
          replicas_and_sharded_runs_compute_the_same, evaluation_uses_the_algorithms_of_the_run,
          times_are_listed_and_cached, unsupported_combinations_are_refused,
          an_unwritable_cache_is_ignored, a_step_on_a_gpu_is_predicted_without_one])
