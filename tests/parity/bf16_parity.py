#!/usr/bin/env python3
"""bf16_parity.py LOCKSTEP SAMPLE_ORDER_DUMP [HOST_MODULE]: compares trainings in bf16 with those of torch.autocast(bfloat16).

Both take the same samples in the same order from the same weights. Rounding to 8 bits soon makes single losses differ, so the mean
loss of the last steps is compared, for several initial weights (seeds): for each of them the difference may be at most the range
of PyTorch's losses over the seeds, and the mean of the differences their standard deviation (six times that of such a mean). The
learning rate is so small that the loss still falls at the end: with a rate a quarter larger, the means differ by twice the bound.
With HOST_MODULE, more seeds, PyTorch in fp32, and the GPU engine on the host in a GPU's place too.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["OMP_NUM_THREADS"] = "1"
try:
    import h5py
    import numpy as np
    import torch
    from pytorch_parity import MiniResNet
except ImportError as missing:
    print(f"skipped: {missing} (install python3-torch, python3-torchvision and python3-h5py)")
    sys.exit(77)

STEPS, LAST, BATCH, SIZE, WIDTH, CLASSES = 60, 10, 32, 8, 8, 10
SGD = {"lr": 0.003, "momentum": 0.9, "weight_decay": 0.001}
MEAN, STD = 0.5, 0.25


def write_data(folder, dump):
    """Noisy images of ten patterns, a tenth with a random label; returns each step's batch."""
    random = np.random.default_rng(1)
    samples = STEPS * BATCH
    patterns = random.normal(size=(CLASSES, SIZE, SIZE, 3))
    labels = random.integers(0, CLASSES, samples)
    images = np.clip(128 + 20 * patterns[labels] + 50 * random.normal(size=(samples, SIZE, SIZE, 3)), 0, 255).astype("u1")
    labels = np.where(random.random(samples) < 0.1, random.integers(0, CLASSES, samples), labels)
    (folder / "data").mkdir()
    with h5py.File(folder / "data/train-00000-of-00001.h5", "w") as file:
        file["images"], file["labels"] = images, labels.astype("i8")
        file.attrs["classes"] = CLASSES
    printed = subprocess.run([dump, str(samples)], check=True, capture_output=True, text=True).stdout
    order = np.array(printed.split(), "i8").reshape(STEPS, BATCH)
    values = torch.from_numpy((images / 255 - MEAN) / STD).float().permute(0, 3, 1, 2).contiguous()
    return [(values[batch], torch.from_numpy(labels[batch])) for batch in order]


def initial_module(seed):
    torch.manual_seed(seed)
    return MiniResNet(3, CLASSES, WIDTH)


def pytorch(seed, batches, is_bf16):
    """The mean loss of the last steps."""
    module = initial_module(seed).train()
    optimizer = torch.optim.SGD(module.parameters(), **SGD)
    losses = []
    for images, labels in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_bf16):
            loss = torch.nn.functional.cross_entropy(module(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.mean(losses[-LAST:])


def lockstep(program, seed, folder, device):
    run = folder / f"{device}-{seed}"
    with h5py.File(folder / "start.h5", "w") as file:
        for name, value in initial_module(seed).state_dict().items():
            if "num_batches" not in name:
                file[f"model/{name}"] = value.numpy()
    options = {"data": folder / "data", "run-dir": run, "init-from": folder / "start.h5", "model": "mini-resnet", "width": WIDTH, "batch-size": BATCH,
               "epochs": 1, "lr": SGD["lr"], "momentum": SGD["momentum"], "weight-decay": SGD["weight_decay"], "lr-schedule": "constant", "augment": "none",
               "mean": MEAN, "std": STD, "precision": "bf16", "device": device, "threads": 1, "progress": "plain", "log-every": 1}
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    made = subprocess.run([program, "train", *words, "--decay-norm-and-bias", "--conv-algorithm", "direct"], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    events = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    losses = [event["loss"] for event in events if event["event"] == "step"]
    assert len(losses) == STEPS, losses
    return np.mean(losses[-LAST:])


def main():
    program, dump, *module = sys.argv[1:]
    if "avx512bw" not in pathlib.Path("/proc/cpuinfo").read_text():
        print("skipped: no bf16 on this processor (oneDNN needs AVX-512)")
        sys.exit(77)
    os.environ["LOCKSTEP_MODULE_PATH"] = ":".join(module)
    torch.set_num_threads(1)
    seeds = range(12 if module else 6)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        batches = write_data(folder, dump)
        if module:
            exact = np.array([pytorch(seed, batches, False) for seed in seeds])
            print(f"PyTorch, fp32: {exact.mean():.4f}, standard deviation over seeds {exact.std(ddof=1):.4f}")
        peer = np.array([pytorch(seed, batches, True) for seed in seeds])
        print(f"PyTorch, autocast: {peer.mean():.4f}, standard deviation over seeds {peer.std(ddof=1):.4f}, range {np.ptp(peer):.4f}")
        for device in ("cpu", "cuda") if module else ("cpu",):
            ours = np.array([lockstep(program, seed, folder, device) for seed in seeds])
            difference = ours - peer
            print(f"Lockstep, {device}: {ours.mean():.4f}; differences from autocast {difference.round(4)}, mean {difference.mean():.4f}")
            assert abs(difference).max() <= np.ptp(peer), "a seed's loss is further from autocast's than those of other seeds"
            assert abs(difference.mean()) <= peer.std(ddof=1), "the mean loss is further from autocast's than the seeds' deviation"


if __name__ == "__main__":
    main()
