#!/usr/bin/env python3
"""compare_sharding.py LOCKSTEP OUTPUT.json [ROUNDS] [RANKS...] [--python PYTHON]: cost and memory of each --shard mode, compared with PyTorch's.

adamw on generated images, on 1, 2, 3 and 4 ranks (RANKS) that share this machine's cores; hybrid on 4 ranks, in pairs. PyTorch uses gloo: DDP
for `none`, DDP with ZeroRedundancyOptimizer for `optimizer`, and FSDP (fully_shard of each block or layer), if this PyTorch has it, for the
other modes; for `grad` without resharding after forward. PYTHON is a Python with PyTorch, used instead of the system's. Each round runs every
program once, and ratios are computed within a round.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile

from harness import CORES, DEFINITION, WARMUP, bench_step, comparison, ratio, shown, spread_of, write

CASES = [
    # model, image size, width, samples a rank, steps
    ("resnet50", 64, 64, 8, 3),
    ("mlp", 32, 2048, 8, 5),
]
MODES = ("none", "optimizer", "grad", "full", "hybrid")
PEERS = {"none": "ddp", "optimizer": "zero", "grad": "fsdp-grad", "full": "fsdp", "hybrid": "fsdp-hybrid"}
GROUP = 2

PEER = r"""
import json, os, resource, sys, time
import torch, torchvision
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
model, size, width, batch, steps, warmup, threads, peer, group, store = json.loads(sys.argv[1])
rank, world = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=world)
torch.set_num_threads(threads)
if model == "mlp":
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * size * size, width), torch.nn.ReLU(),
                              torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 1000))
else:
    net = getattr(torchvision.models, model)(num_classes=1000)
    if not peer.startswith("fsdp"):  # FSDP accepts only contiguous parameters
        net = net.to(memory_format=torch.channels_last)
if peer.startswith("fsdp"):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    shape = (world // group, group) if peer == "fsdp-hybrid" else (world,)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicas", "shards")[-len(shape):])
    for module in net.modules():
        if isinstance(module, (torch.nn.Linear, torchvision.models.resnet.Bottleneck)) and module is not net:
            fully_shard(module, mesh=mesh, reshard_after_forward=peer != "fsdp-grad")
    fully_shard(net, mesh=mesh, reshard_after_forward=peer != "fsdp-grad")
else:
    net = DistributedDataParallel(net, gradient_as_bucket_view=True)
images, labels = torch.randn(batch, 3, size, size), torch.randint(1000, (batch,))
images = images.contiguous(memory_format=torch.channels_last)
if peer == "zero":
    optimizer = ZeroRedundancyOptimizer(net.parameters(), optimizer_class=torch.optim.AdamW, lr=0.001)
else:
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.001)
loss = torch.nn.CrossEntropyLoss()
for step in range(warmup + steps):
    if step == warmup:
        begin = time.perf_counter()
    optimizer.zero_grad(set_to_none=False)
    loss(net(images), labels).backward()
    optimizer.step()
found = torch.tensor([time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0], dtype=torch.float64)
dist.all_reduce(found, op=dist.ReduceOp.MAX)
if rank == 0:
    print(json.dumps({"images_per_second": world * batch * steps / found[0].item(), "peak_rss_bytes": found[1].item(), "version": torch.__version__}), flush=True)
dist.barrier()
os._exit(0)  # gloo sometimes aborts if processes destroy its groups at different times
"""


def launch(ranks, threads, words):
    """The last output line that is a JSON object."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    output = subprocess.run(["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *words], check=True,
                            capture_output=True, text=True, env=environment).stdout
    return json.loads([line for line in output.splitlines() if line.startswith("{")][-1])


def lockstep(program, case, mode, ranks, threads):
    model, size, width, batch, steps = case
    return launch(ranks, threads, bench_step(program, model=model, image_size=size, channels=3, classes=1000, width=width, batch_size=batch, steps=steps,
                                             warmup=WARMUP, optimizer="adamw", threads=threads, shard=mode,
                                             **({"shard_group": GROUP} if mode == "hybrid" else {})))


def pytorch(python, case, peer, ranks, threads):
    with tempfile.TemporaryDirectory() as folder:
        return launch(ranks, threads, [python, "-c", PEER, json.dumps([*case, WARMUP, threads, peer, GROUP, folder + "/store"])])


def modes_of(ranks):
    return [mode for mode in MODES if mode != "hybrid" or (ranks > GROUP and ranks % GROUP == 0)]


def peers_in(python):
    """The PyTorch forms that this PyTorch supports."""
    has_fsdp = subprocess.run([python, "-c", "from torch.distributed.fsdp import fully_shard"], capture_output=True).returncode == 0
    return {mode: peer for mode, peer in PEERS.items() if has_fsdp or not peer.startswith("fsdp")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("output")
    parser.add_argument("rounds", nargs="?", type=int, default=3)
    parser.add_argument("ranks", nargs="*", type=int)
    parser.add_argument("--python", default="/usr/bin/python3")
    arguments = parser.parse_args()
    program, python = arguments.lockstep, arguments.python
    peers_of = peers_in(python)
    result = comparison("sharding beside PyTorch", arguments, definition=DEFINITION, warmup=WARMUP, rows=[])
    print(f"{'model':<10} {'ranks':>5} {'--shard':<10} {'images/s':>9} {'exposed ms':>10} {'state MiB':>10} {'peak MiB':>9} {'peer':>9}   of peer (min-max)"
          "   memory of peer")
    for case in CASES:
        for ranks in arguments.ranks or [1, 2, 3, 4]:
            threads = max(1, CORES // ranks)
            runs = [{mode: (lockstep(program, case, mode, ranks, threads), pytorch(python, case, peers_of[mode], ranks, threads) if mode in peers_of else None)
                     for mode in modes_of(ranks)} for _ in range(arguments.rounds)]
            for mode in modes_of(ranks):
                ours, peers = zip(*(run[mode] for run in runs))
                row = {"model": case[0], "image_size": case[1], "width": case[2], "ranks": ranks, "threads": threads, "batch": case[3],
                       "shard": mode, "images_per_second": spread_of(ours, "images_per_second"),
                       "exposed_communication_seconds": spread_of(ours, "exposed_communication_seconds"),
                       "state_bytes": ours[0]["state_bytes"], "activation_bytes": ours[0]["activation_bytes"],
                       "peak_rss_bytes": ours[0]["peak_rss_bytes"]}
                beside = ""
                if peers[0]:
                    to_peer = ratio(ours, peers)
                    rate = statistics.median(peer["images_per_second"] for peer in peers)
                    memory = ours[0]["peak_rss_bytes"] / peers[0]["peak_rss_bytes"]
                    row |= {"peer": peers_of[mode], "peer_images_per_second": rate, "ratio_to_peer": to_peer, "peak_memory_ratio_to_peer": memory}
                    beside = f"{rate:>9.1f}   {shown(to_peer)}         {memory:.2f}"
                    result["pytorch"] = peers[0]["version"]
                result["machine"], result["engine"] = ours[0]["machine"], ours[0]["engine"]
                result["rows"].append(row)
                print(f"{case[0]:<10} {ranks:>5} {mode:<10} {row['images_per_second']['median']:>9.1f} "
                      f"{1e3 * row['exposed_communication_seconds']['median']:>10.1f} {row['state_bytes'] / 2**20:>10.1f} "
                      f"{row['peak_rss_bytes'] / 2**20:>9.0f} {beside}", flush=True)
    write(result, arguments.output)


if __name__ == "__main__":
    main()
