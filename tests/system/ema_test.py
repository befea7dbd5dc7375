#!/usr/bin/env python3
"""Tests the moving average of the weights (--ema-decay): its values, resuming, evaluations, and which weights eval, export and --init-from take."""

import random
import struct

from harness import *  # noqa: F403

MODULE = os.environ.get("LOCKSTEP_TEST_HOST_MODULE", "/nonexistent")
GPU = {"LOCKSTEP_MODULE_PATH": MODULE}


def group(path, name):
    """The fp32 tensors of a group of a checkpoint; empty if it has no such group."""
    with h5py.File(path) as file:
        return {key: file[name][key][...] for key in file[name]} if name in file else {}


def same(one, other):
    return one.keys() == other.keys() and all(one[key].tobytes() == other[key].tobytes() for key in one)


def checkpoint(run_dir, step):
    return run_dir / "checkpoints" / f"step-{step:08}.h5"


def with_validation(folder, samples=32):
    data = write_shards(folder / "data", samples=samples)
    write_shards(folder / "data", samples=20, shards=1, split="val", seed=1)
    return data


def twenty_updates_are_those_of_pytorch(folder):
    """Sets a module to the weights after each step, and averages it as torchvision's references/classification/train.py does.
    The same bits are expected: both round each product and the sum to fp32."""
    try:
        import torch
        from torch.optim.swa_utils import AveragedModel
    except ImportError as missing:
        raise Skipped(missing) from missing
    data = write_shards(folder / "data", samples=32)  # 8 steps per epoch
    directory, decay, every, warmup = folder / "run", 0.9, 2, 1
    module, average = torch.nn.Module(), None
    for i in range(0, 20, every):
        run(train_args(data, directory, "--epochs", 3, "--max-steps", i + 1, "--ema-decay", decay, "--ema-every", every,
                       "--warmup-epochs", warmup))
        for name, values in group(latest(directory), "model").items():
            name, values = name.replace(".", "_"), torch.from_numpy(values)
            if average is not None:
                getattr(module, name).data.copy_(values)
            elif "running" in name:
                module.register_buffer(name, values)
            else:
                module.register_parameter(name, torch.nn.Parameter(values))
        if average is None:
            average = AveragedModel(module, avg_fn=lambda mean, value, _: decay * mean + (1 - decay) * value, use_buffers=True)
        average.update_parameters(module)
        if i // 8 < warmup:
            average.n_averaged.fill_(0)
        expected, found = average.module.state_dict(), group(latest(directory), "ema")
        assert {name.replace(".", "_") for name in found} == expected.keys(), expected.keys()
        for name, values in found.items():
            assert values.tobytes() == expected[name.replace(".", "_")].numpy().tobytes(), f"{name} differs after step {i + 1}"
    run(train_args(data, directory, "--epochs", 3, "--max-steps", 20, "--ema-decay", decay, "--ema-every", every, "--warmup-epochs", warmup))
    assert same(group(latest(directory), "ema"), found) and not same(group(latest(directory), "model"), found)


def a_run_resumed_at_any_step_has_the_same_average(folder):
    data = with_validation(folder, samples=96)
    chosen = random.Random(1)
    for ranks, device in ((1, "cpu"), (3, "cpu"), (2, "cuda"), (4, "cuda")):
        if device == "cuda" and not pathlib.Path(MODULE).exists():
            continue
        args = ["--epochs", 2, "--eval-every", 0.25, "--ema-decay", 0.8, "--ema-every", 2, "--device", device,
                "--shard", "none" if ranks == 1 else "full"]
        whole, pieces, stop = folder / f"whole-{ranks}-{device}", folder / f"pieces-{ranks}-{device}", chosen.randint(1, 10)
        for run_dir, last in ((whole, 11), (pieces, stop), (pieces, 11)):
            run(train_args(data, run_dir, *args, "--max-steps", last), ranks, env=GPU)
        try:
            assert_same_run(whole, pieces)
        except AssertionError as different:
            raise AssertionError(f"stopped at step {stop}, {ranks} ranks, {device}: {different}") from different
        assert group(latest(whole), "ema")


def evaluations_report_both_and_leave_training_unchanged(folder):
    data = with_validation(folder, samples=64)
    for ranks, shard, device, precision in ((1, "none", "cpu", "bf16" if computes_bf16() else "fp32"), (2, "full", "cpu", "fp32"), (2, "none", "cuda", "bf16")):
        if device == "cuda" and not pathlib.Path(MODULE).exists():
            continue
        args = ["--epochs", 2, "--eval-every", 0.5, "--keep", 100, "--shard", shard, "--device", device, "--precision", precision]
        plain, averaged = folder / f"plain-{ranks}-{device}", folder / f"averaged-{ranks}-{device}"
        run(train_args(data, plain, *args), ranks, env=GPU)
        printed = run(train_args(data, averaged, *args, "--ema-decay", 0.7), ranks, env=GPU)
        assert "validation of the average: loss" in printed, printed
        for name in ("model", "optimizer/momentum_buffer"):
            assert same(group(latest(plain), name), group(latest(averaged), name)), f"{name} depends on the average"
        both, evaluated = events(averaged, "eval"), 0
        for alone, event in zip(events(plain, "eval"), both, strict=True):
            assert "ema_loss" not in alone and event["ema_loss"] != event["loss"], event
            assert all(alone[name] == event[name] for name in ("step", "loss", "top1", "top5")), (alone, event)
            path = checkpoint(averaged, event["step"])
            if not path.exists():  # in the middle of an epoch, and not a new best one
                continue
            evaluated += 1
            for options, prefix in (([], "ema_"), (["--no-ema"], "")):
                found = json.loads(run(["eval", "--checkpoint", path, "--data", data, "--threads", 1, "--batch-size", 4, "--json",
                                        "--device", device, *options], ranks, env=GPU))
                assert found["weights"] == ("ema" if prefix else "current"), found
                assert abs(found["loss"] - event[prefix + "loss"]) < 1e-6, (found, event)
                assert found["top1"] == event[prefix + "top1"] and found["top5"] == event[prefix + "top5"], (found, event)
        assert evaluated >= 2, both
        best = max(both, key=lambda event: event["ema_top1"])
        assert state(latest(averaged))["best_step"] == best["step"], both
        assert os.readlink(averaged / "checkpoints" / "best") == checkpoint(averaged, best["step"]).name, both
        found = run(["eval", "--checkpoint", averaged / "checkpoints" / "best", "--data", data, "--device", device], ranks, env=GPU)
        assert f'top-1 {100 * state(latest(averaged))["best_top1"]:.2f} %' in found, (found, both)
        assert "weights: their average, by which this checkpoint was the best so far; --no-ema takes" in found, found


def the_average_is_exported_and_inspected_and_its_absence_is_an_error(folder):
    data = with_validation(folder)
    network = ["inspect", "--model", "mini-resnet", "--image-size", 32, "--classes", 10, "--optimizer", "sgd", "--ranks", 2, "--json"]
    plain, averaged = ({row["shard"]: row for row in json.loads(run([*network, *more]))["memory"]} for more in ([], ["--ema-decay", 0.9]))
    for shard in ("none", "full"):
        assert averaged[shard]["optimizer_bytes"] == 2 * plain[shard]["optimizer_bytes"], (shard, averaged, plain)
    with_average, without = folder / "with", folder / "without"
    run(train_args(data, with_average, "--max-steps", 3, "--ema-decay", 0.6))
    run(train_args(data, without, "--max-steps", 3))
    output = folder / "model.safetensors"
    for options, name in (([], "ema"), (["--ema"], "ema"), (["--no-ema"], "model")):
        printed = run(["export", latest(with_average), "--format", "safetensors", "--output", output, "--overwrite", *options])
        assert ("weights: their average; --no-ema" if name == "ema" else "weights: those of the last step; --ema") in printed, printed
        content = output.read_bytes()
        length, = struct.unpack("<Q", content[:8])
        header, values = json.loads(content[8:8 + length]), content[8 + length:]
        assert header["__metadata__"]["weights"] == name.replace("model", "current"), header["__metadata__"]
        for tensor, expected in group(latest(with_average), name).items():
            assert values[slice(*header[tensor]["data_offsets"])] == expected.tobytes(), f"{tensor} is not that of /{name}"
    for command_line in (["eval", "--checkpoint", latest(without), "--data", data, "--ema"],
                         ["export", latest(without), "--format", "safetensors", "--output", folder / "none", "--ema"]):
        for ranks in (1, 2):
            printed = run(command_line, ranks, expect=BAD_INPUT)
            assert "the checkpoint has no /ema" in printed and "drop --ema" in printed, printed
    assert not (folder / "none").exists()
    for run_dir, has in ((with_average, True), (without, False)):
        assert json.loads(run(["inspect", latest(run_dir), "--json"]))["ema"] is has
        assert ("average of the weights" in run(["inspect", latest(run_dir)])) is has
        printed = run(["eval", "--checkpoint", latest(run_dir), "--data", data, "--predictions", folder / "p.h5", "--overwrite"])
        assert ("weights: " in printed) is has, printed
        with h5py.File(folder / "p.h5") as file:
            assert file.attrs["weights"] == (b"ema" if has else b"current"), dict(file.attrs)
    # A damaged average: it is found, and a run does not resume from it.
    with h5py.File(latest(with_average), "r+") as file:
        file["ema/fc.weight"][0, 0] += 1
    assert "ema/fc.weight is damaged" in run(["inspect", latest(with_average)], expect=BAD_INPUT)
    assert "ema/fc.weight is damaged" in run(train_args(data, with_average, "--ema-decay", 0.6), ranks=2, expect=BAD_INPUT)
    assert "belongs to --ema-decay" in run(train_args(data, folder / "new", "--ema-every", 2), expect=USAGE)


def a_new_run_starts_from_the_average(folder):
    """With a learning rate that changes no bit. --init-head new leaves the average's other layers."""
    data = with_validation(folder)
    run(train_args(data, folder / "first", "--max-steps", 3, "--ema-decay", 0.6))
    shutil.copy(latest(folder / "first"), folder / "without.h5")
    with h5py.File(folder / "without.h5", "r+") as file:
        del file["ema"]
    for name, source, options in (("average", latest(folder / "first"), []), ("head", latest(folder / "first"), ["--init-head", "new"]),
                                  ("weights", folder / "without.h5", [])):
        args = train_args(data, folder / name, "--init-from", source, "--max-steps", 1, *options)
        args[args.index("--lr") + 1] = "1e-30"
        printed = run(args, ranks=2)
        assert ("starts from the average of the weights in" in printed) is (name != "weights"), printed
        expected, found = group(latest(folder / "first"), "model" if name == "weights" else "ema"), group(latest(folder / name), "model")
        for tensor, values in expected.items():
            same_values = values.tobytes() == found[tensor].tobytes()
            assert "running" in tensor or same_values is not (name == "head" and tensor.startswith("fc.")), (name, tensor)


def a_resumed_run_may_begin_change_or_end_the_average(folder):
    data = with_validation(folder)
    directory = folder / "run"
    args = ["--keep", 100, "--epochs", 3]
    # A resumed run keeps its global batch of 4.
    for ranks, last, decay, says in ((1, 3, 0, None), (2, 4, 0.5, "the average starts from the weights of step 3"),
                                     (1, 5, 0.75, "--ema-decay was 0.5, is 0.75 now"),
                                     (2, 6, 0, "is not continued (--ema-decay is 0)")):
        printed = run(train_args(data, directory, *args, "--max-steps", last, "--ema-decay", decay), ranks)
        assert says is None or says in printed, printed
        assert ("the best checkpoint is chosen anew" in printed) == (last in (4, 6)), printed
        best = state(latest(directory))
        assert last != 4 or best["best_top1"] == -1 or best["best_step"] > 3, best
    average = group(checkpoint(directory, 3), "model")
    for step, decay in ((4, 0.5), (5, 0.75)):
        weights = group(checkpoint(directory, step), "model")
        average = {name: np.float32(decay) * average[name] + np.float32(1 - decay) * weights[name] for name in weights}
        assert same(group(checkpoint(directory, step), "ema"), average), step
    assert not group(checkpoint(directory, 3), "ema") and not group(checkpoint(directory, 6), "ema")


if __name__ == "__main__":
    main([twenty_updates_are_those_of_pytorch, a_run_resumed_at_any_step_has_the_same_average,
          evaluations_report_both_and_leave_training_unchanged, the_average_is_exported_and_inspected_and_its_absence_is_an_error,
          a_new_run_starts_from_the_average, a_resumed_run_may_begin_change_or_end_the_average])
