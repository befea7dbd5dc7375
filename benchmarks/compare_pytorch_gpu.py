#!/usr/bin/env python3
"""compare_pytorch_gpu.py LOCKSTEP OUTPUT.json [--cases resnet50:256:bf16,...] [--programs lockstep,graphs,...] [--rounds 2] [--steps N]
[--budget SECONDS]: compares the training step on one GPU with PyTorch's; reports the speed ratio and its spread. Both sides count the total time
of the same number of steps, after the same warm-up.

PyTorch's input stays on the GPU. Lockstep transfers one batch repeatedly through its queue, or (input "loader") gets each batch from its loader.
PyTorch is channels_last with autocast, in three forms: "eager" with cudnn.benchmark, "compiled" by torch.compile, and "graphs", CUDA graphs by
torch.compile's mode reduce-overhead. Each round runs every program of every case once, in a separate process, every other round in reverse order;
ratios are computed within a round. The file is written after each program, and its object is the last line of the output. It lists the programs
that failed or that the budget left no time for; exit status 1 if no case could be compared. A case is MODEL:BATCH:PRECISION. Memory is the peak
of allocated tensors during training (with CUDA graphs: of the memory pools).
"""

import json
import statistics
import subprocess
import sys
import time

from harness import DEFINITION, arguments, bench_step, comparison, shown, spread, write

CASES = ("resnet50:256:bf16,resnet50:256:fp16,mini-resnet:512:bf16,resnet18:256:bf16,resnet50:64:bf16,resnet50:512:bf16,"
         "mini-resnet:64:bf16,resnet50:256:tf32")
VARIANTS = ("eager", "compiled", "graphs")
# Most important comparison first, because the time may not suffice for all.
PROGRAMS = ("lockstep", "compiled", "graphs", "eager", "loader")
SHAPES = {"resnet50": (224, 1000), "resnet18": (224, 1000), "mini-resnet": (32, 10)}
# Steps for some seconds of each model, in which clocks settle.
STEPS = {"resnet50": 200, "resnet18": 300, "mini-resnet": 600}
WARMUP = 10  # steps, or as many as are measured if these are fewer
LONGEST_RUN = 200  # seconds
# Predicted upper bound: images/s of ResNet-50 on an H200 in 16 bits if only memory traffic (4.3 TB/s) counts, with norm, addition and ReLU
# fused.
PREDICTED_CEILING = {"resnet50": 10469}


def build(model, classes):
    """PyTorch versions of Lockstep's models, without torchvision."""
    import torch
    from torch import nn

    def norm_conv(inputs, outputs, kernel, stride=1):
        return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)]

    class Block(nn.Module):
        def __init__(self, inputs, width, stride, expansion):
            super().__init__()
            outputs = width * expansion
            layers = ([*norm_conv(inputs, width, 3, stride), nn.ReLU(inplace=True), *norm_conv(width, width, 3)] if expansion == 1 else
                      [*norm_conv(inputs, width, 1), nn.ReLU(inplace=True), *norm_conv(width, width, 3, stride), nn.ReLU(inplace=True),
                       *norm_conv(width, outputs, 1)])
            self.body = nn.Sequential(*layers)
            plain = stride == 1 and inputs == outputs
            self.skip = nn.Identity() if plain else nn.Sequential(*norm_conv(inputs, outputs, 1, stride))
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x):
            return self.relu(self.body(x) + self.skip(x))

    depths, expansion = {"resnet50": ((3, 4, 6, 3), 4), "resnet18": ((2, 2, 2, 2), 1), "mini-resnet": ((2, 2, 2), 1)}[model]
    stem = ([*norm_conv(3, 64, 3), nn.ReLU(inplace=True)] if model == "mini-resnet" else
            [*norm_conv(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)])
    blocks, inputs = [], 64
    for stage, depth in enumerate(depths):
        for index in range(depth):
            width = 64 << stage
            blocks.append(Block(inputs, width, 2 if stage > 0 and index == 0 else 1, expansion))
            inputs = width * expansion
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def peer(model, batch, precision, variant, steps):
    """Measures one PyTorch form in this process and prints the result as JSON."""
    import torch
    size, classes = SHAPES[model]
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    net = build(model, classes).cuda().to(memory_format=torch.channels_last)
    modes = {"compiled": "default", "graphs": "reduce-overhead"}
    forward = torch.compile(net, mode=modes[variant]) if variant in modes else net
    images = torch.randn(batch, 3, size, size, device="cuda").contiguous(memory_format=torch.channels_last)
    labels = torch.randint(classes, (batch,), device="cuda")
    sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=True)
    loss = torch.nn.CrossEntropyLoss()
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16")
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)

    def step():
        sgd.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=kind, enabled=kind is not None):
            value = loss(forward(images), labels)
        scaler.scale(value).backward()
        scaler.step(sgd)
        scaler.update()

    for _ in range(min(WARMUP, steps)):
        step()
    # Exclude the memory of algorithm trials from the peak.
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    # Memory pools of CUDA graphs count as free during a replay.
    peak = torch.cuda.memory_reserved() if variant == "graphs" else torch.cuda.max_memory_allocated()
    print(json.dumps({"images_per_second": batch * steps / seconds, "measured_seconds": seconds, "steps": steps, "peak_bytes": peak,
                      "version": torch.__version__, "device": torch.cuda.get_device_name(),
                      "cudnn": torch.backends.cudnn.version()}))


def lockstep(program, model, batch, precision, input_kind, steps, timeout):
    size, classes = SHAPES[model]
    output = subprocess.run(
        bench_step(program, device="cuda", model=model, image_size=size, classes=classes, batch_size=batch, precision=precision, steps=steps,
                   warmup=min(WARMUP, steps), input=input_kind, loader_threads=8), capture_output=True, text=True, timeout=timeout)
    if output.returncode != 0:
        raise RuntimeError(output.stderr[-600:])
    return json.loads(output.stdout.splitlines()[-1])


def pytorch(model, batch, precision, variant, steps, timeout):
    output = subprocess.run([sys.executable, __file__, "--peer", model, str(batch), precision, variant, str(steps)], capture_output=True, text=True,
                            timeout=timeout)
    if output.returncode != 0:
        raise RuntimeError(output.stderr[-600:])
    return json.loads(output.stdout.splitlines()[-1])


def attempt(what, run):
    """Returns the result, or a record of the error, after printing it."""
    try:
        return run()
    except (RuntimeError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        print(f"{what}: {error}", file=sys.stderr, flush=True)
        return {"error": str(error)}


def run_one(program, case, name, steps, timeout):
    model, batch, precision = case.split(":")
    steps = steps or STEPS[model]
    if name in VARIANTS:
        return pytorch(model, int(batch), precision, name, steps, timeout)
    return lockstep(program, model, int(batch), precision, "loader" if name == "loader" else "batch", steps, timeout)


def compare(case, runs):
    """The result row of a case. `runs` maps program names to results, one dict per round; programs that had no time are absent."""
    model, batch, precision = case.split(":")

    def is_there(run, name):
        return name in run and "error" not in run[name]

    def rates(name):
        return [run[name]["images_per_second"] for run in runs if is_there(run, name)]

    best = max((v for v in VARIANTS if rates(v)), key=lambda v: statistics.median(rates(v)), default=None)
    whole = [run for run in runs if best and is_there(run, "lockstep") and is_there(run, best)]
    row = {"model": model, "batch": int(batch), "precision": precision,
           "images_per_second": {name: spread(rates(name)) for name in ("lockstep", "loader", *VARIANTS)}, "best_of_pytorch": best,
           "ratio_to_best": spread([run["lockstep"]["images_per_second"] / run[best]["images_per_second"] for run in whole]),
           "peak_memory_ratio_to_best": spread([run["lockstep"]["peak_device_bytes"] / run[best]["peak_bytes"] for run in whole]),
           "errors": sorted({f"{name}: {run[name]['error']}" for run in runs for name in run if "error" in run[name]})}
    if model in PREDICTED_CEILING and precision in ("bf16", "fp16") and rates("lockstep"):
        row["fraction_of_predicted_ceiling"] = statistics.median(rates("lockstep")) / PREDICTED_CEILING[model]
    return row


def describe(row):
    def number(name):
        value = row["images_per_second"][name]
        return f"{value['median']:>9.0f}" if value else f"{'-':>9}"

    ratio = row["ratio_to_best"]
    return (f"{row['model']:<12} {row['batch']:>5} {row['precision']:<5}" + "".join(map(number, ("lockstep", "loader", *VARIANTS))) +
            (f"   {shown(ratio)}   {row['peak_memory_ratio_to_best']['median']:.2f}" if ratio else "   -"))


def main():
    if sys.argv[1:2] == ["--peer"]:
        peer(sys.argv[2], int(sys.argv[3]), *sys.argv[4:6], int(sys.argv[6]))
        return 0
    parser = arguments(__doc__, rounds=2)
    parser.add_argument("--cases", default=CASES)
    parser.add_argument("--programs", default=",".join(PROGRAMS), help=f"of {', '.join(PROGRAMS)}")
    parser.add_argument("--steps", type=int, default=0, help="measured steps; 0: those of the model")
    parser.add_argument("--budget", type=float, default=540, help="seconds; no program starts after them, and each program is limited to the rest")
    asked = parser.parse_args()
    cases, programs = asked.cases.split(","), asked.programs.split(",")
    unknown = set(programs) - set(PROGRAMS)
    if unknown:
        parser.error(f"--programs: {', '.join(sorted(unknown))} is none of {', '.join(PROGRAMS)}")
    result = comparison("step on a GPU beside PyTorch", asked, definition=DEFINITION, warmup=WARMUP, rows=[], left_out=[])
    end = time.monotonic() + asked.budget
    runs = {case: [{} for _ in range(asked.rounds)] for case in cases}

    def keep():
        result["rows"] = [compare(case, runs[case]) for case in cases if any(runs[case])]
        write(result, asked.output)

    for turn, case, name in ((turn, case, name) for turn in range(asked.rounds) for case in cases for name in programs[::1 - turn % 2 * 2]):
        left = end - time.monotonic()
        if left <= 0:
            result["left_out"].append(f"{case} {name} (round {turn + 1})")
            continue
        run = attempt(f"{case} {name}", lambda: run_one(asked.lockstep, case, name, asked.steps, min(LONGEST_RUN, left)))
        runs[case][turn][name] = run
        if "engine" in run:
            result["lockstep"] = run["engine"]
        if "version" in run:
            result["pytorch"] = run["version"]
        if "images_per_second" in run:
            print(f"{case} {name}: {run['images_per_second']:.0f} images/s", file=sys.stderr, flush=True)
        keep()  # so that an abort loses no measurement
    keep()
    print(f"{'model':<12} {'batch':>5} {'':<5}" + "".join(f"{name:>9}" for name in ("lockstep", "loader", *VARIANTS)) +
          "   of the best (min-max)   memory")
    for row in result["rows"]:
        print(describe(row))
    if result["left_out"]:
        print("skipped for lack of time: " + ", ".join(result["left_out"]))
    print(json.dumps(result))
    return 0 if any(row["ratio_to_best"] for row in result["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
