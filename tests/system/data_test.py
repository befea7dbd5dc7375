#!/usr/bin/env python3
"""Data: five lines of h5py, evaluation's exact count, a data set larger than memory, synthetic data, formats."""

import json
import resource

from harness import *  # noqa: F403


def a_shard_of_five_lines_of_h5py_trains(folder):
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


def twenty_gigabytes_train_under_one(folder):
    """A sparse shard of 20 GiB; what the process may allocate is bounded by 1 GiB, and what it holds is measured."""
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
    limit = None if REPORTS else lambda: resource.setrlimit(resource.RLIMIT_DATA, (2**30, 2**30))  # sanitizers map much more
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


def logs_say_who_ran_where(folder):
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
    main([a_shard_of_five_lines_of_h5py_trains, evaluation_counts_every_sample_once, twenty_gigabytes_train_under_one,
          synthetic_data_needs_no_files, printed_configuration_trains_the_same, initial_weights_come_from_a_checkpoint,
          logs_say_who_ran_where])
