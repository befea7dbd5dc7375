#!/usr/bin/env python3
"""local_sgd_parity.py LOCKSTEP SAMPLE_ORDER_DUMP MPIRUN...: compares --sync-every with PyTorch's PostLocalSGDOptimizer, on ranks of gloo.

Both take the same samples in the same order from the same weights. Every tensor's relative error against a float64 PyTorch run
may be at most four times that of fp32 PyTorch (plus a few ulps), as in pytorch_parity.py.
"""

import os
import pathlib
import socket
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy as np
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer
    from pytorch_parity import MINIMUM_ERROR, MiniResNet, relative_error
except ImportError as missing:
    print(f"skipped: {missing} (install python3-torch, python3-torchvision and python3-h5py)")
    sys.exit(77)
if not dist.is_available() or not dist.is_gloo_available():
    print("skipped: this PyTorch has no gloo")
    sys.exit(77)

BATCH, STEPS_PER_EPOCH = 4, 20  # of a rank
EVERY, START, STEPS = 4, 4, 16  # averages after steps 8, 12 and 16
SGD = {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.001}
MEAN, STD = 0.5, 0.25


def train(rank, ranks, port, folder, dtype, momentum):
    """One rank of PyTorch; rank 0 writes the average of the replicas' tensors."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    module = MiniResNet(3, 10, 8)
    module.load_state_dict(torch.load(f"{folder}/start.pt"))
    module = module.to(dtype).train()
    images, labels, order = (np.load(f"{folder}/{name}.npy") for name in ("images", "labels", "order"))
    model = torch.nn.parallel.DistributedDataParallel(module, broadcast_buffers=False)
    model.register_comm_hook(PostLocalSGDState(None, dist.group.WORLD, START, post_local_gradient_allreduce=False), post_localSGD_hook)
    local = torch.optim.SGD(model.parameters(), **SGD)
    # PyTorch's period begins with an average: without the last part of `warmup_steps`, the first would be after step 5.
    optimizer = PostLocalSGDOptimizer(local, PeriodicModelAverager(EVERY, warmup_steps=START + EVERY - 1))
    for step in range(STEPS):
        first = (step * ranks + rank) * BATCH
        chosen = order[first:first + BATCH]
        pixels = torch.from_numpy(images[chosen]).permute(0, 3, 1, 2).to(dtype)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model((pixels / 255 - MEAN) / STD), torch.from_numpy(labels[chosen])).backward()
        optimizer.step()
        if momentum == "average" and step >= START and (step + 1) % EVERY == 0:
            for state in local.state.values():
                dist.all_reduce(state["momentum_buffer"].div_(ranks))
    result = {f"model/{name}": value.detach() for name, value in [*module.named_parameters(), *module.named_buffers()] if "num_batches" not in name}
    for name, value in result.items():
        if "running" in name:
            dist.all_reduce(value.div_(ranks))
    result |= {f"optimizer/momentum_buffer/{name}": local.state[value]["momentum_buffer"] for name, value in module.named_parameters()}
    if rank == 0:
        np.savez(f"{folder}/result.npz", **{name: value.double().numpy() for name, value in result.items()})
    dist.destroy_process_group()


def pytorch(ranks, folder, dtype, momentum):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(train, (ranks, port, str(folder), dtype, momentum), ranks)
    with np.load(folder / "result.npz") as found:
        return dict(found)


def lockstep(program, mpirun, ranks, folder, momentum):
    run_dir = folder / f"run-{momentum}"
    options = {"data": folder / "data", "run-dir": run_dir, "init-from": folder / "start.h5", "model": "mini-resnet", "width": 8, "batch-size": BATCH,
               "epochs": 1, "max-steps": STEPS, "sync-every": EVERY, "sync-start": START / STEPS_PER_EPOCH, "sync-momentum": momentum, "lr": SGD["lr"],
               "momentum": SGD["momentum"], "weight-decay": SGD["weight_decay"], "lr-schedule": "constant", "augment": "none", "mean": MEAN, "std": STD,
               "threads": 1, "device": "cpu", "progress": "plain", "conv-algorithm": "direct"}
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    subprocess.run([*mpirun, "-n", str(ranks), program, "train", *words, "--decay-norm-and-bias"], check=True, capture_output=True)
    found = {}
    with h5py.File(run_dir / "checkpoints/latest") as file:
        file.visititems(lambda name, item: found.__setitem__(name, item[...]) if isinstance(item, h5py.Dataset) else None)
    return found


def write_input(folder, ranks, dump):
    samples = STEPS_PER_EPOCH * ranks * BATCH
    random = np.random.default_rng(1)  # with this seed, rounding flips no ReLU
    labels = random.integers(0, 10, samples)
    images = (random.integers(0, 100, (samples, 12, 12, 3)) + labels[:, None, None, None] * 12).astype("u1")
    (folder / "data").mkdir()
    with h5py.File(folder / "data/train-00000-of-00001.h5", "w") as file:
        file["images"], file["labels"] = images, labels.astype("i8")
        file.attrs["classes"] = 10
    printed = subprocess.run([dump, str(samples)], check=True, capture_output=True, text=True).stdout
    np.save(folder / "images.npy", images)
    np.save(folder / "labels.npy", labels)
    np.save(folder / "order.npy", np.array(printed.split(), "i8"))
    torch.manual_seed(1)
    state = MiniResNet(3, 10, 8).state_dict()
    torch.save(state, folder / "start.pt")
    with h5py.File(folder / "start.h5", "w") as file:
        for name, value in state.items():
            if "num_batches" not in name:
                file[f"model/{name}"] = value.numpy()


def main():
    program, dump, *mpirun = sys.argv[1:]
    for ranks, momentum in ((2, "local"), (3, "average")):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            write_input(folder, ranks, dump)
            ours = lockstep(program, mpirun, ranks, folder, momentum)
            exact, single = (pytorch(ranks, folder, dtype, momentum) for dtype in (torch.float64, torch.float32))
        worst, largest = 0, 0
        for name, value in exact.items():
            value = value.ravel()
            allowed = 4 * max(relative_error(single[name].ravel(), value), MINIMUM_ERROR)
            error = relative_error(ours[name].astype("f8").ravel(), value)
            worst, largest = max(worst, error / allowed), max(largest, allowed)
            assert error <= allowed, f"{ranks} ranks, {momentum} momentum, {name}: error {error:.3g}, allowed {allowed:.3g}"
        print(f"ok      {ranks} ranks, {momentum} momentum: largest error {worst:.2f} of the allowed one, at most {largest:.1e}")


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    main()
