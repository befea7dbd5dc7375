#!/usr/bin/env python3
"""Tests precisions: bf16 resumes with the same bits and learns as well as fp32; unsupported precisions are refused."""

import re

from harness import *  # noqa: F403

FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")


def bf16_resumes_with_the_same_bits(folder):
    require_bf16()
    data = write_shards(folder / "data")
    for ranks in (1, 2):
        args = [*train_args(data, folder / f"whole-{ranks}", "--epochs", 2), "--precision", "bf16"]
        output = run(args, ranks)
        assert ", bf16" in output, output
        pieces = folder / f"pieces-{ranks}"
        args = [*train_args(data, pieces, "--epochs", 2), "--precision", "bf16"]
        run([*args, "--max-steps", 5], ranks)
        run(args, ranks)
        assert_same_run(folder / f"whole-{ranks}", pieces)
    run(train_args(data, folder / "fp32", "--epochs", 2))
    assert tensors(latest(folder / "fp32")) != tensors(latest(folder / "whole-1")), "bf16 computed in fp32"
    with h5py.File(latest(folder / "whole-1")) as file:
        types = set()
        file.visititems(lambda _, item: types.add(item.dtype) if isinstance(item, h5py.Dataset) else None)
    assert "float16" not in map(str, types) and np.dtype("f4") in types, types


def a_run_may_resume_in_another_precision(folder):
    require_bf16()
    data = write_shards(folder / "data")
    run([*train_args(data, folder / "run", "--max-steps", 4), "--precision", "bf16"])
    output = run([*train_args(data, folder / "run", "--max-steps", 6), "--precision", "fp32"], ranks=2)
    assert re.search("precision.*bf16.*fp32", output), output


def evaluation_uses_the_precision_of_the_run_or_the_requested_one(folder):
    require_bf16()
    data = write_shards(folder / "data")
    write_shards(folder / "data", samples=40, shards=1, split="val", seed=1)
    run([*train_args(data, folder / "run", "--max-steps", 6), "--precision", "bf16"])
    command = ["eval", "--checkpoint", latest(folder / "run"), "--data", data, "--json"]
    loss = {name: json.loads(run([*command, *more]).splitlines()[-1])["loss"]
            for name, more in (("run", []), ("bf16", ["--precision", "bf16"]), ("fp32", ["--precision", "fp32"]))}
    assert loss["run"] == loss["bf16"] != loss["fp32"], loss
    assert abs(loss["run"] - loss["fp32"]) < 0.02 * loss["fp32"], loss


@more_in_soak
def gradients_are_reduced_in_16_bits(folder):
    data = write_shards(folder / "data")
    for ranks in few((1, 2, 3), 1):
        run(train_args(data, folder / f"none-{ranks}", "--max-steps", 6), ranks)
        for kind in ("bf16", "fp16"):
            directory = folder / f"{kind}-{ranks}"
            args = [*train_args(data, directory), "--grad-compression", kind]
            run([*args, "--max-steps", 3], ranks)
            output = run([*args, "--max-steps", 6], ranks)
            assert ("not reduced" if ranks == 1 else f"reduced as {kind}") in output, output
            whole = folder / f"whole-{kind}-{ranks}"
            run([*train_args(data, whole, "--max-steps", 6), "--grad-compression", kind], ranks)
            assert_same_run(whole, directory)
            same = tensors(latest(directory)) == tensors(latest(folder / f"none-{ranks}"))
            assert same == (ranks == 1), f"{kind} on {ranks} ranks {'changes nothing' if same else 'rounds'}"
            wide, narrow = (events(run_dir, "step")[-1]["loss"] for run_dir in (folder / f"none-{ranks}", directory))
            assert abs(wide - narrow) < 0.05 * wide, (wide, narrow)


def unsupported_precisions_are_refused(folder):
    data = write_shards(folder / "data")
    for ranks in (1, 3):
        for precision in ("fp16", "tf32"):
            output = run([*train_args(data, folder / "run"), "--precision", precision], ranks, expect=USAGE)
            assert f"--precision {precision} does not go with the CPU engine" in output, output
            assert output.count("error:") == 1, output
    output = run([*train_args(data, folder / "run"), "--precision", "bf16"], env={"DNNL_MAX_CPU_ISA": "AVX2"}, expect=USAGE)
    assert "needs AVX-512" in output and "avx2" in output, output
    output = run(["bench", "step", "--width", 8, "--precision", "fp16"], expect=USAGE)
    assert "--precision fp16" in output, output


def a_processor_without_the_instructions_is_reported(folder):
    require_bf16()
    data = write_shards(folder / "data")
    output = run([*train_args(data, folder / "run", "--max-steps", 2), "--precision", "bf16"],
                 env={"DNNL_MAX_CPU_ISA": "AVX512_CORE"})
    assert "bf16 by conversion" in output, output


@soak
def bf16_learns_as_well_as_fp32(folder):
    require_bf16()
    if not FASHION.exists():
        print("skipped: bf16_learns_as_well_as_fp32: dataset-fashion-mnist is not installed")
        return
    run(["pack", "--from", "mnist", "--input", FASHION, "--output", folder / "data", "--shards", 2])
    accuracy = {}
    for precision in ("fp32", "bf16"):
        directory = folder / precision
        run(["train", "--data", folder / "data", "--run-dir", directory, "--model", "mini-resnet", "--width", 8,
             "--batch-size", 64, "--epochs", 1, "--lr", 0.1, "--warmup-epochs", 0.2, "--threads", 1,
             "--precision", precision, "--progress", "plain"], ranks=2)
        accuracy[precision] = events(directory, "eval")[-1]["top1"]
    assert min(accuracy.values()) > 0.8 and abs(accuracy["fp32"] - accuracy["bf16"]) < 0.02, accuracy
    print(f"top-1 after an epoch: {accuracy}")


if __name__ == "__main__":
    main([bf16_resumes_with_the_same_bits, a_run_may_resume_in_another_precision, evaluation_uses_the_precision_of_the_run_or_the_requested_one,
          gradients_are_reduced_in_16_bits, unsupported_precisions_are_refused,
          a_processor_without_the_instructions_is_reported, bf16_learns_as_well_as_fp32])
