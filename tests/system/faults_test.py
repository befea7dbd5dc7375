#!/usr/bin/env python3
"""Tests bad input: the documented status and a message that names the fault, on 1 and on 3 ranks, without a hang."""

import os
import signal
import subprocess

from harness import *  # noqa: F403


def both(args, expect, *words, env=None):
    """Checks that 1 and 3 ranks fail with the status, and that the message contains each word and is printed once."""
    for ranks in (1, 3):
        output = run(args, ranks, env, expect=expect)
        for word in words:
            assert word in output, f"'{word}' is not in the message of {ranks} ranks:\n{output}"
        assert output.count("lockstep: error") == 1, f"not one message:\n{output}"


def wrong_shards(folder):
    def case(name, expect, *words, split="train", **changes):
        data = write_shards(folder / name, **changes)
        both(train_args(data, folder / f"run-{name}", "--max-steps", 2), expect, *words)
        assert not list((folder / f"run-{name}").glob("checkpoints/*.h5")), "a checkpoint was written"

    truncated = write_shards(folder / "truncated", samples=300)
    victim = truncated / "train-00001-of-00002.h5"
    victim.write_bytes(victim.read_bytes()[:40000])
    both(train_args(truncated, folder / "r1"), BAD_INPUT, "train-00001-of-00002.h5")

    case("dtype", BAD_INPUT, "images", "uint8", images=np.zeros((48, 12, 12, 3), "f4"))
    case("no-labels", BAD_INPUT, "labels", labels=None)
    case("short-labels", BAD_INPUT, "labels", labels=np.zeros(47, "i8"))
    case("label-range", BAD_INPUT, "label", "10", labels=np.full(48, 10, "i8"))
    case("negative-label", BAD_INPUT, "label", "-1", labels=np.full(48, -1, "i8"))
    case("float-labels", BAD_INPUT, "labels", labels=np.zeros(48, "f4"))
    case("no-samples", BAD_INPUT, "samples", samples=0, images=np.zeros((0, 12, 12, 3), "u1"), labels=np.zeros(0, "i8"))

    shapes = write_shards(folder / "shapes", shards=2)
    write_shards(folder / "other", shards=2, shape=(14, 12, 3))
    os.replace(folder / "other" / "train-00001-of-00002.h5", shapes / "train-00001-of-00002.h5")
    both(train_args(shapes, folder / "r2"), BAD_INPUT, "train-00001-of-00002.h5", "14x12")

    missing = write_shards(folder / "missing", shards=3)
    (missing / "train-00001-of-00003.h5").unlink()
    both(train_args(missing, folder / "r3"), NO_INPUT, "train-00001-of-00003.h5")

    not_hdf5 = write_shards(folder / "text", shards=1)
    (not_hdf5 / "train-00000-of-00001.h5").write_text("not a shard\n" * 500)
    both(train_args(not_hdf5, folder / "r4"), BAD_INPUT, "train-00000-of-00001.h5")


def hostile_attributes(folder):
    for name, value in (("mean", np.zeros(7, "f4")), ("mean", np.full(3, np.nan, "f4")), ("std", np.zeros(3, "f4")),
                        ("classes", -5), ("classes", 2**62), ("classes", "ten"), ("mean", "half"),
                        ("mean", np.array([123.675, 116.28, 103.53], "f4")), ("std", np.full(3, 58.4, "f4")), ("mean", np.full(3, -0.5, "f4"))):
        data = write_shards(folder / f"{name}-{abs(hash(str(value)))}", shards=1)
        with h5py.File(next(data.glob("*.h5")), "a") as file:
            file.attrs[name] = value
        both(train_args(data, folder / "run"), BAD_INPUT, name)


def a_flipped_byte_names_file_and_sample(folder):
    # The program's shards have checksums; minimal shards from h5py have none.
    source = folder / "idx"
    source.mkdir()
    random = np.random.default_rng(0)
    for part, count in (("train", 64), ("t10k", 16)):
        images = random.integers(0, 255, (count, 12, 12)).astype("u1")
        labels = random.integers(0, 10, count).astype("u1")
        header = b"\0\0\x08\x03" + b"".join(int(d).to_bytes(4, "big") for d in images.shape)
        (source / f"{part}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        (source / f"{part}-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01" + count.to_bytes(4, "big") + labels.tobytes())
    data = folder / "data"
    run(["pack", "--from", "mnist", "--input", source, "--output", data, "--shards", 2])
    run(["inspect", data, "--verify"])
    victim = data / "train-00001-of-00002.h5"
    with h5py.File(victim) as file:
        offset = file["images"].id.get_offset() + 12 * 12 * 5 + 3
    content = bytearray(victim.read_bytes())
    content[offset] ^= 4
    victim.write_bytes(content)
    both(train_args(data, folder / "run", "--epochs", 1), BAD_INPUT, victim.name, "sample 5")
    output = run(["inspect", data, "--verify"], expect=BAD_INPUT)
    assert victim.name in output, output


def missing_files(folder):
    data = write_shards(folder / "data")
    both(train_args(folder / "nowhere", folder / "run"), NO_INPUT, "nowhere")
    (folder / "empty").mkdir()
    both(train_args(folder / "empty", folder / "run"), NO_INPUT, "empty")
    both(train_args(data, folder / "run", "--resume", folder / "no.h5"), NO_INPUT, "no.h5")
    both(train_args(data, folder / "run", "--init-from", folder / "no.h5"), NO_INPUT, "no.h5")
    both(["eval", "--data", data, "--checkpoint", folder / "no.h5"], NO_INPUT, "no.h5")
    both(["train", "--config", folder / "no.ini"], NO_INPUT, "no.ini")


def usage_and_impossible_combinations(folder):
    data = write_shards(folder / "data")
    both(train_args(data, folder / "run", "--lrr", 1), USAGE, "--lrr", "--lr")
    both(train_args(data, folder / "run", "--precision", "fp8"), USAGE, "--precision")
    both(train_args(data, folder / "run", "--momentum", "much"), USAGE, "--momentum", "much")
    both(train_args(data, folder / "run", "--global-batch-size", 64), USAGE, "--batch-size", "--global-batch-size")
    both(["train", "--data", data, "--run-dir", folder / "run", "--model", "mini-resnt"], USAGE, "mini-resnt", "mini-resnet")
    both(["train", "--data", data, "--run-dir", folder / "run", "--model", "mini-resnet", "--batch-size", 1000], USAGE,
         "96 samples", "--batch-size")
    both(["train", "--run-dir", folder / "run"], USAGE, "--data")
    both(["trian"], USAGE, "trian")
    output = run(["train", "--data", data, "--run-dir", folder / "run", "--global-batch-size", 2], 3, expect=USAGE)
    assert "2" in output and "3 ranks" in output, output


def wrong_checkpoints(folder):
    data = write_shards(folder / "data")
    run(train_args(data, folder / "run", "--max-steps", 2))
    good = latest(folder / "run").read_bytes()
    bad = folder / "bad.h5"

    def damaged(change):
        bad.write_bytes(good)
        with h5py.File(bad, "a") as file:
            change(file)

    damaged(lambda file: file["model/fc.weight"].__setitem__((0, 0), np.nan))
    both(["eval", "--data", data, "--split", "train", "--checkpoint", bad], BAD_INPUT, "fc.weight")
    damaged(lambda file: file["model/fc.weight"].__setitem__((0, 0), 3.5))
    both(train_args(data, folder / "run2", "--resume", bad), BAD_INPUT, "fc.weight")
    damaged(lambda file: file.__delitem__("model/conv1.weight"))
    both(["eval", "--data", data, "--split", "train", "--checkpoint", bad], BAD_INPUT, "conv1.weight")
    bad.write_bytes(good[: len(good) // 3])
    both(train_args(data, folder / "run2", "--resume", bad), BAD_INPUT, "bad.h5")
    both(["eval", "--data", data, "--split", "train", "--checkpoint", bad], BAD_INPUT, "bad.h5")

    # Another model's weights, and another number of classes.
    bad.write_bytes(good)
    both(["train", "--data", data, "--run-dir", folder / "run3", "--model", "mlp", "--init-from", bad], BAD_INPUT, "fc1")
    more = write_shards(folder / "more", classes=12)
    args = train_args(more, folder / "run4", "--init-from", bad, "--max-steps", 1)
    both([*args, "--init-head", "keep"], BAD_INPUT, "fc.weight", "10x32", "12x32", "--init-head new")
    assert "fc.weight (12x32) starts from initial values" in run(args)


def unwritable_directories(folder):
    data = write_shards(folder / "data")
    (folder / "file").write_text("in the way")
    both(train_args(data, folder / "file"), CANNOT_WRITE, "file")
    both(train_args(data, "/proc/nowhere"), CANNOT_WRITE, "/proc/nowhere")


def a_second_job_in_the_run_directory_names_the_first(folder):
    data = write_shards(folder / "data", samples=4000)
    first = start(train_args(data, folder / "run", "--epochs", 50))
    wait_for_step(folder / "run", 1, first)
    both(train_args(data, folder / "run", "--epochs", 50), CANNOT_WRITE, str(first.pid))
    first.send_signal(signal.SIGUSR1)
    status, output = finish(first)
    assert status == STOPPED, output


def an_infinite_loss_stops_all_ranks(folder):
    data = write_shards(folder / "data", samples=400)
    for ranks in (1, 3):
        directory = folder / f"run{ranks}"
        args = [("1e30" if a == "0.05" else a) for a in train_args(data, directory, "--epochs", 3)]
        status, output = finish(start(args, ranks))
        assert status == DIVERGED, f"{status}\n{output}"
        assert "step" in output and "rank" in output and "--lr" in output, output
        assert output.count("lockstep: error") == 1, output


def a_shard_truncated_between_two_epochs_ends_the_run_with_a_checkpoint(folder):
    for ranks in (1, 3):
        data = write_shards(folder / f"data{ranks}", samples=120)
        directory = folder / f"run{ranks}"
        process = start(train_args(data, directory, "--epochs", 5000), ranks)
        wait_for_step(directory, 3, process)
        victim = data / "train-00001-of-00002.h5"
        os.truncate(victim, victim.stat().st_size // 2)
        status, output = finish(process)
        assert status == BAD_INPUT, f"{status}\n{output}"
        assert victim.name in output and output.count("lockstep: error") == 1, output
        assert state(latest(directory))["step"] == events(directory, "step")[-1]["step"]


def a_run_directory_that_is_removed_ends_the_run(folder):
    data = write_shards(folder / "data", samples=120)
    for ranks in (1, 3):
        directory = folder / f"run{ranks}"
        process = start(train_args(data, directory, "--epochs", 50), ranks)
        wait_for_step(directory, 3, process)
        directory.rename(folder / f"gone{ranks}")
        status, output = finish(process)
        assert status == CANNOT_WRITE, f"{status}\n{output}"
        assert "no checkpoint of step" in output and str(directory) in output, output


def a_rank_that_dies_ends_the_job(folder):
    data = write_shards(folder / "data", samples=4000)
    process = start(train_args(data, folder / "run", "--epochs", 50), ranks=3)
    wait_for_step(folder / "run", 2, process)
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    os.kill(int(children[-1]), signal.SIGKILL)
    status, _ = finish(process, seconds=30)
    assert status == 137, status


if __name__ == "__main__":
    main([wrong_shards, hostile_attributes, a_flipped_byte_names_file_and_sample,
          missing_files, usage_and_impossible_combinations, wrong_checkpoints,
          unwritable_directories, a_second_job_in_the_run_directory_names_the_first,
          an_infinite_loss_stops_all_ranks, a_shard_truncated_between_two_epochs_ends_the_run_with_a_checkpoint,
          a_run_directory_that_is_removed_ends_the_run, a_rank_that_dies_ends_the_job])
