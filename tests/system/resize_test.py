#!/usr/bin/env python3
"""Tests progressive resizing (--image-size-schedule): the sizes that are trained on, resuming, evaluations, and what is refused."""

import resource

from harness import *  # noqa: F403

MODULE = os.environ.get("LOCKSTEP_TEST_HOST_MODULE", "/nonexistent")
GPU = {"LOCKSTEP_MODULE_PATH": MODULE}
DEVICES = ["cpu", "cuda"] if pathlib.Path(MODULE).exists() else ["cpu"]
SCHEDULE = ["--image-size", 8, "--image-size-schedule", "12@1,10@2", "--epochs", 4]


def image_of(path):
    with h5py.File(path) as file:
        return file.attrs["image_height"], file.attrs["image_width"]


def with_lr(args, lr):
    args = list(args)
    args[args.index("--lr") + 1] = lr
    return args


def checkpoint(run_dir, step):
    return run_dir / "checkpoints" / f"step-{step:08}.h5"


def losses(run_dir, epochs):
    return {event["step"]: event["loss"] for event in events(run_dir, "step") if event["epoch"] in epochs}


def each_epoch_has_images_of_its_size(folder):
    """With a learning rate of 0, the losses of an epoch depend only on its images, which depend on the size, the epoch and the sample."""
    data = write_shards(folder / "data", samples=24)
    for device in DEVICES:
        args = ["--epochs", 4, "--device", device, "--keep", 100]
        resized = folder / f"resized-{device}"
        output = run(with_lr(train_args(data, resized, *args, *SCHEDULE[:4]), 0), env=GPU)
        assert output.count("images: 8x8, 12x12 after 1 epoch, 10x10 after 2 epochs; now ") == 3 and output.count("finished") == 1, output
        for size, epochs in ((8, [0]), (12, [1]), (10, [2, 3])):
            alone = folder / f"{size}-{device}"
            run(with_lr(train_args(data, alone, *args, "--image-size", size), 0), env=GPU)
            expected = losses(alone, epochs)
            assert len(expected) == 6 * len(epochs) and losses(resized, epochs) == expected, (device, size)
            assert image_of(checkpoint(resized, 6 * (epochs[-1] + 1))) == (size, size), (device, size)


@more_in_soak
def stopped_and_killed_runs_resume_to_the_same_bits(folder):
    data = write_shards(folder / "data", samples=96)
    write_shards(data, samples=20, shards=1, split="val", seed=1)
    common = [*SCHEDULE, "--eval-every", 0.5, "--ema-decay", 0.8, "--ema-every", 2, "--save-every", 5]
    # Stops in each size, and where it changes: 24 steps an epoch for one rank, 12 for two.
    cases = [(1, [], 0.05, few([13, 24, 30, 70], 1, 2)), (2, ["--shard", "optimizer", "--stochastic-depth", 0.3], 0.05, [24, 30])]
    if "cuda" in DEVICES:  # with a learning rate that makes gradients overflow, so that the loss scale changes
        cases.append((2, ["--device", "cuda", "--comm", "mpi", "--precision", "fp16"], 4, [20, 24]))
    for ranks, more, lr, stops in few(cases, 0, -1):
        whole, pieces = folder / f"whole-{ranks}-{lr}", folder / f"pieces-{ranks}-{lr}"
        args = [with_lr(train_args(data, run_dir, *common, *more), lr) for run_dir in (whole, pieces)]
        run(args[0], ranks, env=GPU)
        for stop in stops:
            run([*args[1], "--max-steps", stop], ranks, env=GPU)
        if ranks == 1:
            killed = start(args[1], env=GPU)
            wait_for_step(pieces, 75, killed)
            killed.kill()
            assert finish(killed)[0] == -signal.SIGKILL, "it ended before it was killed"
        output = run(args[1], ranks, env=GPU)
        assert "resuming from" in output and output.count("finished") == 1, output
        assert_same_run(whole, pieces)
        assert lr < 1 or state(latest(whole))["skipped_steps"] > 0
        assert len(events(whole, "epoch")) == 4 and len(events(whole, "eval")) == 8


def a_stop_signal_ends_the_run_at_any_size(folder):
    data = write_shards(folder / "data", samples=96)
    whole, pieces = folder / "whole", folder / "pieces"
    run(train_args(data, whole, *SCHEDULE), ranks=2)
    for step in (5, 18):
        stopped = start(train_args(data, pieces, *SCHEDULE), ranks=2)
        wait_for_step(pieces, step, stopped)
        for pid in ranks_of(stopped).values():
            os.kill(pid, signal.SIGTERM)
        status, output = finish(stopped)
        assert status == STOPPED or "finished at step 48" in output, output
    run(train_args(data, pieces, *SCHEDULE), ranks=2)
    assert_same_run(whole, pieces)


def a_schedule_may_begin_or_change_when_a_run_resumes(folder):
    data = write_shards(folder / "data", samples=48)  # 12 steps an epoch
    plain, same, whole, later = (folder / name for name in ("plain", "same", "whole", "later"))
    args = ["--image-size", 8, "--epochs", 3]
    run(train_args(data, plain, *args))
    run(train_args(data, same, *args, "--image-size-schedule", "8@1,8@2"))
    assert_same_run(plain, same)

    schedule = ["--image-size-schedule", "12@1"]
    run(train_args(data, whole, *args, *schedule))
    run(train_args(data, later, *args, "--max-steps", 12))
    output = run(train_args(data, later, *args, *schedule))
    assert "--image-size-schedule was , is 12@1 now" in output and "images: 8x8, 12x12 after 1 epoch; now 12x12" in output, output
    assert_same_run(whole, later)
    assert tensors(latest(whole)) != tensors(latest(plain))


def evaluations_have_the_last_size_or_their_own(folder):
    data = write_shards(folder / "data", samples=24)
    write_shards(data, samples=20, shards=1, split="val", seed=1)
    for ranks, more, size in ((1, [], 10), (2, ["--eval-size", 9], 9)):
        run_dir = folder / f"run-{ranks}"
        run(train_args(data, run_dir, *SCHEDULE, "--keep", 100, *more), ranks)
        for event in events(run_dir, "eval")[::3]:
            evaluate = ["eval", "--checkpoint", checkpoint(run_dir, event["step"]), "--data", data, "--batch-size", 4, "--threads", 1, "--json"]
            found, = {json.loads(run([*evaluate, *size_option], ranks))["loss"] for size_option in ([], ["--image-size", size])}
            assert abs(event["loss"] - found) < 1e-6, (event, found)


def sizes_that_do_not_fit_are_refused_at_the_start(folder):
    data = write_shards(folder / "data")
    run_dir = folder / "run"

    def refused(*options, ranks=1, model="mini-resnet", source=data):
        args = train_args(source, run_dir, "--image-size", 8, *options)
        args[args.index("mini-resnet")] = model
        output = run(args, ranks, expect=USAGE)
        assert not (run_dir / "metrics.jsonl").exists() or not events(run_dir, "step"), output
        return output

    for ranks in (1, 3):
        output = refused("--image-size-schedule", "12@1,13@2", ranks=ranks)
        assert "--image-size-schedule 13 is larger than the images" in output and "12x12" in output and "at most 12" in output, output
        output = refused("--image-size-schedule", "8@1,12@2", ranks=ranks, model="mlp")
        assert "--image-size-schedule 12@2 does not go with mlp trained on images of 8x8 (fc1.weight is" in output, output
    assert "it takes SIZE@EPOCHS" in refused("--image-size-schedule", "12")
    assert "not ascending" in refused("--image-size-schedule", "12@2,10@2")
    assert "after 3 of 3 epochs" in refused("--image-size-schedule", "12@3", "--epochs", 3)


def a_size_that_needs_too_much_memory_is_refused_at_the_start(folder):
    if REPORTS:
        raise Skipped("sanitizers need another limit")
    limit = 2 << 30
    args = ["train", "--synthetic", "--synthetic-samples", 8, "--classes", 10, "--image-size", 32, "--epochs", 2, *MODEL, "--loader-threads", 0,
            "--conv-algorithm", "direct"]

    def limited(name, *options):
        return finish(start([*args, "--run-dir", folder / name, *options],
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))))

    status, output = limited("fits", "--image-size-schedule", "48@1")
    assert status == OK, output
    status, output = limited("large", "--image-size-schedule", "2048@1")
    assert status == USAGE and "MiB" in output and "lower --batch-size" in output, output
    assert not events(folder / "large", "step") if (folder / "large" / "metrics.jsonl").exists() else True


if __name__ == "__main__":
    main([each_epoch_has_images_of_its_size, stopped_and_killed_runs_resume_to_the_same_bits, a_stop_signal_ends_the_run_at_any_size,
          a_schedule_may_begin_or_change_when_a_run_resumes, evaluations_have_the_last_size_or_their_own,
          sizes_that_do_not_fit_are_refused_at_the_start, a_size_that_needs_too_much_memory_is_refused_at_the_start])
