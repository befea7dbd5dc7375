#!/usr/bin/env python3
"""plot_run.py RUN_DIR OUTPUT.png: the loss and accuracy curves of a run, from its metrics.jsonl."""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


def read_events(run_dir):
    """The run's events, one dict per line of metrics.jsonl."""
    lines = (pathlib.Path(run_dir) / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    events = read_events(sys.argv[1])
    steps = [e for e in events if e["event"] == "step"]
    epochs = [e for e in events if e["event"] == "epoch"]
    evals = [e for e in events if e["event"] == "eval"]

    figure, (loss, accuracy) = plt.subplots(1, 2, figsize=(11, 4))
    loss.plot([e["step"] for e in steps], [e["loss"] for e in steps], color="0.75", lw=0.8,
              label="training, single steps")
    loss.plot([e["step"] for e in epochs], [e["loss"] for e in epochs], "o-", label="training, epoch mean")
    loss.plot([e["step"] for e in evals], [e["loss"] for e in evals], "s-", label="validation")
    loss.set(xlabel="step", ylabel="cross entropy", ylim=(0, None), title="Loss")
    accuracy.plot([e["step"] for e in epochs], [100 * e["top1"] for e in epochs], "o-", label="training")
    accuracy.plot([e["step"] for e in evals], [100 * e["top1"] for e in evals], "s-", label="validation")
    for e in evals[-1:]:
        accuracy.annotate(f"{100 * e['top1']:.2f} %", (e["step"], 100 * e["top1"]),
                          textcoords="offset points", xytext=(-4, -18), ha="right")
    accuracy.set(xlabel="step", ylabel="top-1, %", title="Accuracy")
    for axes in (loss, accuracy):
        axes.grid(alpha=0.3)
        axes.legend()
    figure.suptitle(pathlib.Path(sys.argv[1]).name)
    figure.tight_layout()
    figure.savefig(sys.argv[2], dpi=120)


if __name__ == "__main__":
    main()
