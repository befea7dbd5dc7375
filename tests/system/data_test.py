#!/usr/bin/env python3
"""Tests data: minimal shards from h5py, the exact count of evaluation, a data set larger than memory, synthetic data, formats."""

import json
import resource

from harness import *  # noqa: F403


def a_minimal_shard_from_h5py_trains(folder):
    (folder / "data").mkdir()
    with h5py.File(folder / "data" / "train-00000-of-00001.h5", "w") as file:
        file["images"] = np.random.randint(0, 256, (64, 16, 16, 1), dtype="u1")
        file["labels"] = np.random.randint(0, 4, 64)
    for ranks in (1, 2):
        output = run(train_args(folder / "data", folder / f"run{ranks}", "--epochs", 1), ranks)
        assert "no evaluation" in output and "0.5" in output, output


def evaluation_counts_every_sample_once(folder):
    data = write_shards(folder / "data")
    write_shards(folder / "data", samples=37, shards=2, split="val", seed=3)
    run(train_args(data, folder / "run", "--max-steps", 4))
    results = [json.loads(run(["eval", "--checkpoint", latest(folder / "run"), "--data", data, "--json",
                               "--batch-size", batch], ranks).splitlines()[-1])
               for ranks, batch in ((1, 64), (1, 5), (2, 4), (3, 7), (4, 1))]
    for result in results:
        assert result["samples"] == 37, result
        assert result["top1"] == results[0]["top1"] and result["top5"] == results[0]["top5"], results
        assert abs(result["loss"] - results[0]["loss"]) < 1e-5, results


def twenty_gigabytes_train_in_one_gigabyte(folder):
    """A sparse shard of 20 GiB. The process may allocate at most 1 GiB, and its peak memory is measured."""
    (folder / "data").mkdir()
    samples = 20 * 2**30 // (64 * 64 * 3)
    with h5py.File(folder / "data" / "train-00000-of-00001.h5", "w") as file:
        space = h5py.h5s.create_simple((samples, 64, 64, 3))
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        h5py.h5d.create(file.id, b"images", h5py.h5t.STD_U8LE, space, plist)
        file["labels"] = np.zeros(samples, "i8")
        file.attrs["classes"] = 4
    limit = None if REPORTS else lambda: resource.setrlimit(resource.RLIMIT_DATA, (2**30, 2**30))  # sanitizers need much more
    process = start(train_args(folder / "data", folder / "run", "--max-steps", 20), preexec_fn=limit)
    _, output = finish(process)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    assert process.returncode == OK, output
    assert peak < 1, f"{peak:.2f} GiB"


def synthetic_data_needs_no_files(folder):
    for ranks in (1, 3):
        run(["train", "--synthetic", "--synthetic-samples", 48, "--image-size", 16, "--classes", 5, "--epochs", 1,
             "--run-dir", folder / f"run{ranks}", *MODEL], ranks)


def printed_configuration_trains_the_same(folder):
    data = write_shards(folder / "data")
    args = train_args(data, folder / "one", "--max-steps", 3)
    (folder / "config.ini").write_text(run([*args, "--print-config"]))
    run(args)
    run(["train", "--config", folder / "config.ini", "--run-dir", folder / "two"])
    assert_same_run(folder / "one", folder / "two")


def initial_weights_come_from_a_checkpoint(folder):
    data = write_shards(folder / "data")
    run(train_args(data, folder / "one", "--max-steps", 3))
    with h5py.File(latest(folder / "one")) as source, h5py.File(folder / "weights.h5", "w") as file:
        for name in source["model"]:
            file["model/" + name] = source["model"][name][...]
    run(train_args(data, folder / "two", "--init-from", folder / "weights.h5", "--max-steps", 1))
    run(["eval", "--checkpoint", folder / "weights.h5", "--model", "mini-resnet", "--width", 8, "--data", data,
         "--split", "train"], ranks=2)


def stating(data, mean, std):
    """Sets these attributes in each shard of the data set."""
    for shard in data.glob("*.h5"):
        with h5py.File(shard, "r+") as file:
            file.attrs["mean"], file.attrs["std"] = mean, std
    return data


def weights_of(checkpoint, file):
    """Writes only the checkpoint's weights, as h5py writes them from a module's state."""
    with h5py.File(checkpoint) as source, h5py.File(file, "w") as target:
        for name in source["model"]:
            target["model/" + name] = source["model"][name][...]
    return file


OWN, OTHER = ["--mean", "0.4,0.5,0.6", "--std", "0.25"], ["--mean", "0.1,0.2,0.3", "--std", "0.5"]


def evaluation_normalises_as_the_weights_were_trained(folder):
    data = stating(write_shards(folder / "data"), [0.1, 0.2, 0.3], [0.5, 0.5, 0.5])
    args = train_args(data, folder / "run", "--max-steps", 96, "--epochs", 8, *OWN)
    args[args.index("--lr") + 1] = 0.01
    run(args)
    checkpoint = latest(folder / "run")
    weights = weights_of(checkpoint, folder / "weights.h5")

    def evaluate(file, *options, ranks=1):
        output = run(["eval", "--checkpoint", file, "--data", data, "--split", "train", "--json", *options], ranks)
        return json.loads(output.splitlines()[-1])["loss"], output

    alone = ["--model", "mini-resnet", "--width", 8]
    own, differs = evaluate(checkpoint)
    other, says_nothing = evaluate(weights, *alone)
    assert own != other, (own, other)
    for values in ("[0.4, 0.5, 0.6], std [0.25, 0.25, 0.25]", "[0.1, 0.2, 0.3], std [0.5, 0.5, 0.5]"):
        assert f"mean {values}" in differs, differs
    assert differs.count("warning") == 1 and evaluate(checkpoint, ranks=2)[1].count("warning") == 1, differs
    assert "weights.h5 does not say" in says_nothing and "mean [0.1, 0.2, 0.3]" in says_nothing, says_nothing
    for file, options, loss, warnings in ((checkpoint, OWN, own, 0), (checkpoint, OTHER, other, 1), (weights, [*OWN, *alone], own, 0),
                                          (weights, [*OTHER, *alone], other, 0)):
        found, output = evaluate(file, *options)
        assert found == loss and output.count("warning") == warnings, (file, options, found, loss, output)
        # (pixel - 0.1) / 0.5 is (pixel - 0.4) / 0.25 * 0.5 + 0.6
        assert not warnings or "give mean [0.1, 0.2, 0.3], std [0.5] (normalised inputs are multiplied by 0.5 and shifted by 0.6," in output, output
    right, wrong = (json.loads(evaluate(checkpoint, *options)[1].splitlines()[-1])["top1"] for options in (OWN, OTHER))
    assert right > wrong + 0.1, (right, wrong)
    # Attributes that a user adds to a file of weights count like those of a checkpoint.
    with h5py.File(weights, "r+") as file:
        file.attrs["mean"], file.attrs["std"] = [0.4, 0.5, 0.6], [0.25, 0.25, 0.25]
    assert evaluate(weights, *alone)[0] == own


def a_run_normalises_as_its_initial_weights_were_trained(folder):
    data = stating(write_shards(folder / "data"), [0.1, 0.2, 0.3], [0.5, 0.5, 0.5])
    run(train_args(data, folder / "first", "--max-steps", 2, *OWN))
    tuned = ["--init-from", latest(folder / "first")]
    whole = run(train_args(data, folder / "whole", "--max-steps", 4, *tuned), ranks=2)
    assert "was trained with mean [0.4, 0.5, 0.6]" in whole and "has mean [0.1, 0.2, 0.3]" in whole, whole
    with h5py.File(latest(folder / "whole")) as file:
        assert np.allclose(file.attrs["mean"], [0.4, 0.5, 0.6]) and np.allclose(file.attrs["std"], 0.25)
    # A resumed run keeps its normalisation, even if the initial file is gone.
    run(train_args(data, folder / "parts", "--max-steps", 2, *tuned), ranks=2)
    shutil.rmtree(folder / "first")
    parts = run(train_args(data, folder / "parts", "--max-steps", 4, *tuned), ranks=2)
    assert "warning" not in parts and "--mean was" not in parts, parts
    assert_same_run(folder / "whole", folder / "parts")
    output = run(train_args(data, folder / "given", "--max-steps", 1, "--init-from", latest(folder / "whole"), *OTHER))
    assert "was trained with mean [0.4, 0.5, 0.6]" in output and "multiplied by 0.5 and shifted by 0.6," in output, output
    with h5py.File(latest(folder / "given")) as file:
        assert np.allclose(file.attrs["mean"], [0.1, 0.2, 0.3]), list(file.attrs["mean"])


def images_with_three_axes_train_as_gray_images(folder):
    for name, shape in (("three", (64, 12, 12)), ("four", (64, 12, 12, 1))):
        (folder / name).mkdir()
        with h5py.File(folder / name / "train-00000-of-00001.h5", "w") as file:
            file["images"] = np.random.default_rng(1).integers(0, 256, shape, dtype="u1")
            file["labels"] = np.arange(64) % 4
        run(train_args(folder / name, folder / f"run-{name}", "--max-steps", 2))
    assert tensors(latest(folder / "run-three")) == tensors(latest(folder / "run-four"))
    # PyTorch's order would train as 12 channels.
    refused = run(train_args(write_shards(folder / "nchw", shape=(3, 12, 12)), folder / "none"), ranks=2, expect=BAD_INPUT)
    assert refused.count("it looks like (N, C, H, W)") == 1 and "h5py" in refused, refused


def logs_show_ranks_and_devices(folder):
    data = write_shards(folder / "data")
    write_shards(folder / "data", samples=16, shards=1, split="val")
    run(train_args(data, folder / "run", "--epochs", 2), ranks=3)
    for rank in range(3):
        log = (folder / "run" / "log" / f"rank-{rank:05}.log").read_text()
        assert f"rank {rank}" in log and "cpu" in log and log.count("own mean loss") == 2, log
    found = [e["event"] for e in events(folder / "run")]
    for kind in ("start", "step", "epoch", "eval", "checkpoint", "stop"):
        assert kind in found, found
    for event in events(folder / "run", "step"):
        assert {"loss", "top1", "top5", "lr", "images_per_second", "seconds", "samples", "epoch"} <= event.keys(), event
        assert set(event["seconds"]) == {"data", "forward", "backward", "communication", "optimizer"}, event


if __name__ == "__main__":
    main([a_minimal_shard_from_h5py_trains, evaluation_counts_every_sample_once, twenty_gigabytes_train_in_one_gigabyte,
          synthetic_data_needs_no_files, printed_configuration_trains_the_same, initial_weights_come_from_a_checkpoint,
          evaluation_normalises_as_the_weights_were_trained, a_run_normalises_as_its_initial_weights_were_trained,
          images_with_three_axes_train_as_gray_images, logs_show_ranks_and_devices])
