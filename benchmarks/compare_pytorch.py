#!/usr/bin/env python3
"""compare_pytorch.py LOCKSTEP OUTPUT.json [ROUNDS] [fp32|bf16]: the training step beside PyTorch's, in turn, as a ratio with
its spread.

One rank, all cores, sgd with momentum, generated images; PyTorch's bf16 is its autocast. PyTorch twice: as it comes, and
tuned (channels_last, threads set and bound; where tcmalloc is installed, preloaded). Each round runs every program once; the ratio is taken within
a round, so that a machine that slows down for a while slows both.
"""

import datetime
import glob
import json
import os
import statistics
import subprocess
import sys

CASES = [
    # model, image size, channels, classes, width, batch, steps
    ("mini-resnet", 32, 3, 10, 64, 64, 8),
    ("resnet18", 224, 3, 1000, 64, 16, 4),
    ("resnet50", 224, 3, 1000, 64, 16, 3),
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


def lockstep(program, case, precision):
    model, size, channels, classes, width, batch, steps = case
    output = subprocess.run(
        [program, "bench", "step", "--model", model, "--image-size", str(size), "--channels", str(channels), "--classes",
         str(classes), "--width", str(width), "--batch-size", str(batch), "--precision", precision, "--steps", str(steps), "--warmup", "2", "--json"],
        check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


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
    output = subprocess.run(["/usr/bin/python3", "-c", PEER, parity, json.dumps([*case, threads, precision])], check=True,
                            capture_output=True, text=True, env=env).stdout
    return json.loads(output.splitlines()[-1])


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
        runs = [(lockstep(program, case, precision), pytorch(case, precision, False), pytorch(case, precision, True)) for _ in range(rounds)]
        rate = [[run["images_per_second"] for run in column] for column in zip(*runs)]
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
                               "ratio_to_tuned": tuned, "peak_memory_ratio_to_tuned": memory})
        print(f"{case[0]:<12} {case[5]:>5} {statistics.median(rate[0]):>9.1f} {statistics.median(rate[1]):>9.1f} "
              f"{statistics.median(rate[2]):>9.1f}   {default['median']:.2f} ({default['min']:.2f}-{default['max']:.2f})"
              f"         {tuned['median']:.2f} ({tuned['min']:.2f}-{tuned['max']:.2f})       {memory:.2f}", flush=True)
    with open(path, "w") as file:
        json.dump(result, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
