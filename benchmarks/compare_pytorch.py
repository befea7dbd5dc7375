#!/usr/bin/env python3
"""compare_pytorch.py LOCKSTEP OUTPUT.json [ROUNDS] [fp32|bf16]: the training step beside PyTorch's, in turn, as a ratio with
its spread.

One rank, all cores, sgd with momentum, one generated batch; PyTorch's bf16 is its autocast. PyTorch twice: as it comes, and
tuned (channels_last, threads set and bound; where tcmalloc is installed, preloaded). In fp32 Lockstep twice: as it comes, and with direct
convolutions, which are PyTorch's. Each round runs every program once; the ratio is taken within a round, so that a machine that slows down for
a while slows both. What other processes took of the machine meanwhile is noted, and a row where it is more than a twentieth is marked.
"""

import datetime
import glob
import json
import os
import resource
import statistics
import subprocess
import sys
import time

CASES = [
    # model, image size, channels, classes, width, batch, steps
    ("mini-resnet", 32, 3, 10, 64, 64, 8),
    ("resnet18", 224, 3, 1000, 64, 32, 4),
    ("resnet50", 224, 3, 1000, 64, 32, 3),
]

PEER = r"""
import json, resource, statistics, sys, time
import torch, torchvision
sys.path.insert(0, sys.argv[1])
model, size, channels, classes, width, batch, steps, threads, precision = json.loads(sys.argv[2])
if model == "mini-resnet":
    sys.argv = [sys.argv[0]]
    from pytorch_parity import MiniResNet
    net = MiniResNet(channels, classes, width)
else:
    net = getattr(torchvision.models, model)(num_classes=classes)
images, labels = torch.randn(batch, channels, size, size), torch.randint(classes, (batch,))
if threads:  # tuned; counted outside, as a bound process sees its own core alone
    torch.set_num_threads(threads)
    net, images = net.to(memory_format=torch.channels_last), images.contiguous(memory_format=torch.channels_last)
sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
loss = torch.nn.CrossEntropyLoss()
seconds = []
for step in range(steps + 2):
    begin = time.perf_counter()
    sgd.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        value = loss(net(images), labels)
    value.backward()
    sgd.step()
    seconds.append(time.perf_counter() - begin)
print(json.dumps({"images_per_second": batch / statistics.median(seconds[2:]),
                  "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                  "threads": torch.get_num_threads(), "version": torch.__version__}))
"""


def busy_seconds():
    """Of all cores, by whomever, and what the host took from them."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def measured(command, env=None):
    """The last line, as JSON, and the share of the machine's time that others took."""
    begin, busy, before = time.monotonic(), busy_seconds(), resource.getrusage(resource.RUSAGE_CHILDREN)
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    others = (busy_seconds() - busy - own) / (time.monotonic() - begin) / os.cpu_count()
    return {**json.loads(output.splitlines()[-1]), "others": max(0.0, others)}


def lockstep(program, case, precision, *more):
    model, size, channels, classes, width, batch, steps = case
    return measured(
        [program, "bench", "step", "--model", model, "--image-size", str(size), "--channels", str(channels), "--classes",
         str(classes), "--width", str(width), "--batch-size", str(batch), "--precision", precision, "--steps", str(steps),
         "--warmup", "2", "--input", "batch", "--json", *more])


def pytorch(case, precision, tuned):
    parity = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "parity")
    env = dict(os.environ)
    if tuned:
        env.update(OMP_PROC_BIND="true", ATEN_CPU_CAPABILITY="avx512",
                   OMP_NUM_THREADS=str(len(os.sched_getaffinity(0))))
        allocator = glob.glob("/usr/lib/*/libtcmalloc*.so.4")
        if allocator:
            env["LD_PRELOAD"] = allocator[0]
    threads = len(os.sched_getaffinity(0)) if tuned else 0
    return measured(["/usr/bin/python3", "-c", PEER, parity, json.dumps([*case, threads, precision])], env)


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    program, path = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    precision = sys.argv[4] if len(sys.argv) > 4 else "fp32"
    result = {"benchmark": "step beside PyTorch", "date": datetime.date.today().isoformat(), "precision": precision,
              "rounds": rounds, "rows": []}
    print(f"{'model':<12} {'batch':>5} {'lockstep':>9} {'pytorch':>9} {'tuned':>9}   of pytorch (min-max)   of tuned (min-max)   memory of tuned")
    for case in CASES:
        programs = [lambda: lockstep(program, case, precision), lambda: pytorch(case, precision, False),
                    lambda: pytorch(case, precision, True)]
        if precision == "fp32":
            programs.append(lambda: lockstep(program, case, precision, "--conv-algorithm", "direct"))
        runs = [[run() for run in programs] for _ in range(rounds)]
        rate = [[run["images_per_second"] for run in column] for column in zip(*runs)]
        others = max(run["others"] for row in runs for run in row)
        default = spread([ours / peer for ours, peer in zip(rate[0], rate[1])])
        tuned = spread([ours / peer for ours, peer in zip(rate[0], rate[2])])
        memory = runs[0][0]["peak_rss_bytes"] / runs[0][2]["peak_rss_bytes"]
        result["machine"] = runs[0][0]["machine"]
        result["engine"] = runs[0][0]["engine"]
        result["pytorch"] = runs[0][1]["version"]
        result["pytorch_threads"] = {"default": runs[0][1]["threads"], "tuned": runs[0][2]["threads"]}
        result["rows"].append({"model": case[0], "image_size": case[1], "batch": case[5],
                               "lockstep_images_per_second": spread(rate[0]), "pytorch_images_per_second": spread(rate[1]),
                               "tuned_images_per_second": spread(rate[2]), "ratio_to_pytorch": default,
                               "ratio_to_tuned": tuned, "peak_memory_ratio_to_tuned": memory,
                               "peak_mib": {name: round(run["peak_rss_bytes"] / 2**20) for name, run in
                                            zip(("lockstep", "pytorch", "tuned"), runs[0])},
                               "others_share_of_machine": others})
        if len(rate) > 3:
            direct = spread([ours / peer for ours, peer in zip(rate[3], rate[2])])
            result["rows"][-1].update(direct_images_per_second=spread(rate[3]), direct_ratio_to_tuned=direct)
        print(f"{case[0]:<12} {case[5]:>5} {statistics.median(rate[0]):>9.1f} {statistics.median(rate[1]):>9.1f} "
              f"{statistics.median(rate[2]):>9.1f}   {default['median']:.2f} ({default['min']:.2f}-{default['max']:.2f})"
              f"         {tuned['median']:.2f} ({tuned['min']:.2f}-{tuned['max']:.2f})       {memory:.2f}"
              + (f"   direct {direct['median']:.2f} ({direct['min']:.2f}-{direct['max']:.2f})" if len(rate) > 3 else "")
              + (f"   ({others:.0%} of the machine taken by others)" if others > 0.05 else ""), flush=True)
    with open(path, "w") as file:
        json.dump(result, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
