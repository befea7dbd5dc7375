#!/usr/bin/env python3
"""Runs the code of docs/reports.md for other tools unchanged, with TensorBoard, Weights & Biases and MLflow where they are installed."""

import contextlib
import importlib
import os
import pathlib
import re
import struct

from harness import Skipped, events, main, run, train_args, write_shards

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "reports.md"
METRICS, WANDB, MLFLOW = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)


def needed(name):
    """Imports a package that need not be there."""
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        raise Skipped(missing) from missing


@contextlib.contextmanager
def trained(folder):
    """The current directory has a run, and what the page calls first.csv. A loss is not finite."""
    data = write_shards(folder / "data", samples=32)
    write_shards(data, samples=8, shards=1, split="val")
    words = ["mlp" if word == "mini-resnet" else word for word in train_args(data, folder / "runs/first", "--epochs", "2")]
    run(words)
    lines = (folder / "runs/first/metrics.jsonl").read_text()
    (folder / "runs/first/metrics.jsonl").write_text(re.sub(r'("step":3,.*?"loss":)[^,]*', r"\1null", lines, count=1))
    (folder / "first.csv").write_text(run(["export-metrics", folder / "runs/first", "--csv"]))
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def recorded(folder):
    """(step, name, value) of what the run recorded."""
    found = []
    for event in events(folder / "runs/first", "step", "epoch", "eval"):
        kind, step = event.pop("event"), event.pop("step")
        for name, value in event.items():
            for path, one in ([(f"{name}.{part}", value[part]) for part in value] if isinstance(value, dict) else [(name, value)]):
                if one is not None:
                    found.append((step, f"{kind}/{path}", float(one)))
    assert len(found) > 100 and {"step/loss", "step/seconds.data", "epoch/loss", "eval/top1"} <= {name for _, name, _ in found}
    return found


def same(found, expected):
    different = sorted(set(found) ^ set(expected))
    assert not different and len(found) == len(expected), (len(found), len(expected), different[:4])


def the_code_reads_every_value(folder):
    with trained(folder):
        names = {}
        exec(METRICS, names)
        read = [(step, name, value) for step, values in names["metrics"]("first.csv") for name, value in values.items()]
    same(read, recorded(folder))
    assert not any(step == 3 and name == "step/loss" for step, name, _ in read) and any(step == 4 and name == "step/loss" for step, name, _ in read)


def tensorboard_reads_the_event_files(folder):
    accumulator = needed("tensorboard.backend.event_processing.event_accumulator")
    with trained(folder):
        assert "`tensorboard --logdir runs`" in PAGE.read_text()
        board = accumulator.EventAccumulator("runs/first")
        board.Reload()
        tags = {"train/loss": "step/loss", "train/lr": "step/lr", "epoch/loss": "epoch/loss", "val/top1": "eval/top1"}
        for tag, ours in tags.items():
            shown = [(each.step, struct.pack("f", each.value)) for each in board.Scalars(tag) if (tag, each.step) != ("train/loss", 3)]
            same(shown, [(step, struct.pack("f", value)) for step, name, value in recorded(folder) if name == ours])


def weights_and_biases_keeps_every_value(folder):
    needed("wandb")
    messages = needed("wandb.proto.wandb_internal_pb2")
    os.environ.update(WANDB_SILENT="true", WANDB_MODE="offline")
    with trained(folder):
        exec(METRICS + WANDB, {})
    [file] = folder.glob("wandb/offline-run-*/*.wandb")
    found = []
    for record in wandb_records(file.read_bytes()):
        message = messages.Record.FromString(record)
        if message.WhichOneof("record_type") == "history":
            values = {item.key or "/".join(item.nested_key): float(item.value_json) for item in message.history.item}
            step = int(values["_step"])
            found += [(step, name, value) for name, value in values.items() if not name.startswith("_")]
    same(found, recorded(folder))


def wandb_records(content):
    """The records of a .wandb file: a header of 7 bytes, then blocks of 32 KiB in the format of LevelDB's log."""
    at, whole = 7, b""
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = struct.unpack_from("<HB", content, at + 4)
        whole += content[at + 7:at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole record, or the last part of one
            yield whole
            whole = b""


def mlflow_keeps_every_value(folder):
    mlflow = needed("mlflow")
    with trained(folder):
        exec(METRICS + MLFLOW, {})
        client = mlflow.MlflowClient()
        [done] = client.search_runs(["0"])
        found = [(each.step, name, each.value) for name in done.data.metrics for each in client.get_metric_history(done.info.run_id, name)]
        assert done.info.run_name == "first" and [each.path for each in client.list_artifacts(done.info.run_id)] == ["config.ini"]
    same(found, recorded(folder))


if __name__ == "__main__":
    main([the_code_reads_every_value, tensorboard_reads_the_event_files, weights_and_biases_keeps_every_value, mlflow_keeps_every_value])
