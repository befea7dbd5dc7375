#!/usr/bin/env python3
"""startup.py LOCKSTEP OUTPUT.json [--rounds ROUNDS]: seconds from the command to the end of its first step, compared with PyTorch's.

mini-resnet on generated images of 32x32, a global batch of 32. `alone` is the program without a launcher, `2 ranks` is under mpirun, and
`2 ranks, one host` also tells Open MPI that no network is needed. PyTorch imports only torch, builds the same network and takes the same step.
The start and end of the first step come from the program's trace (--profile-steps 1:1); the slowest rank counts.
"""

import json
import os
import pathlib
import resource
import shutil
import subprocess
import tempfile
import time

from harness import arguments, bench_step, comparison, in_turn, measured, ratio, shown, spread_of, write

IMAGES = ["--image-size", "32", "--channels", "3", "--classes", "10", "--global-batch-size", "32"]
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2"]
ONE_HOST = ["--mca", "pml", "ob1", "--mca", "btl", "self,vader"]

PEER = r"""
import time
import torch
imported = time.monotonic()

class Block(torch.nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(outputs)
        self.conv2 = torch.nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = torch.nn.Sequential(torch.nn.Conv2d(inputs, outputs, 1, stride, bias=False), torch.nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))

class MiniResNet(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(width)
        widths = (width, width, width, 2 * width, 2 * width, 4 * width, 4 * width)
        self.blocks = torch.nn.Sequential(*(Block(a, b, 1 if a == b else 2) for a, b in zip(widths, widths[1:])))
        self.fc = torch.nn.Linear(4 * width, 10)

    def forward(self, x):
        return self.fc(self.blocks(torch.relu(self.bn1(self.conv1(x)))).mean((2, 3)))

net = MiniResNet(64)
sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
images, labels = torch.randn(32, 3, 32, 32), torch.randint(10, (32,))
begin = time.monotonic()
torch.nn.functional.cross_entropy(net(images), labels).backward()
sgd.step()
print(imported, begin, time.monotonic(), torch.__version__, flush=True)
"""


def timed(words, environment):
    """Start, end and CPU seconds of a command, and its output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=environment)
    end = time.monotonic()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return begin, end, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def lockstep(program, launch):
    """Reads the trace, whose timestamps use the same monotonic clock as this script."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OMPI_", "PMI", "PRTE_"))}
    if launch:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_WAIT_POLICY": "passive"}
    folder = tempfile.mkdtemp(prefix="lockstep-startup-")
    try:
        begin, end, processor, _ = timed(
            [*launch, program, "train", "--synthetic", "--model", "mini-resnet", *IMAGES, "--max-steps", "1", "--profile-steps",
             "1:1", "--progress", "plain", "--run-dir", folder + "/run"], environment)
        trace = json.loads(pathlib.Path(folder, "run", "trace-1-1.json").read_text())
    finally:
        shutil.rmtree(folder)
    steps = [event for event in trace["traceEvents"] if event["name"] == "step"]
    first_begin = 1e-6 * min(step["ts"] for step in steps)
    first_end = 1e-6 * max(step["ts"] + step["dur"] for step in steps)
    return {"seconds": first_end - begin, "to_the_step": first_begin - begin, "step": first_end - first_begin,
            "whole_command": end - begin, "processor": processor}


def pytorch():
    begin, end, processor, output = timed(["/usr/bin/python3", "-c", PEER], dict(os.environ))
    imported, step, stepped, version = output.split()
    return {"seconds": float(stepped) - begin, "to_the_step": float(step) - begin, "step": float(stepped) - float(step),
            "import": float(imported) - begin, "whole_command": end - begin, "processor": processor, "version": version}


def main():
    options = arguments(__doc__, rounds=5).parse_args()
    program = os.path.abspath(options.lockstep)
    result = comparison("start to the end of the first step", options, machine=measured(bench_step(program, model="mlp", image_size=8, steps=1))["machine"],
                        load_before=os.getloadavg()[0], nice=os.nice(0), rows=[])
    programs = {"alone": lambda: lockstep(program, []), "2 ranks": lambda: lockstep(program, MPIRUN),
                "2 ranks, one host": lambda: lockstep(program, [*MPIRUN, *ONE_HOST])}
    has_torch = subprocess.run(["/usr/bin/python3", "-c", "import torch"], capture_output=True).returncode == 0
    if has_torch:
        programs["pytorch"] = pytorch
    found = in_turn(options.rounds, programs)
    if has_torch:
        result["pytorch"] = found["pytorch"][0].pop("version")
    result["load_after"] = os.getloadavg()[0]
    print(f"{'':<18} {'s to the end of step 1 (min-max)':>33} {'before it':>10} {'step':>6} {'processor s':>12}   of pytorch (min-max)")
    for name, runs in found.items():
        row = {"case": name, **{key: spread_of(runs, key) for key in runs[0]}}
        beside = ""
        if has_torch and name != "pytorch":
            row["ratio_to_pytorch"] = ratio(runs, found["pytorch"], "seconds")
            beside = shown(row["ratio_to_pytorch"])
        result["rows"].append(row)
        print(f"{name:<18} {shown(row['seconds']):>33} {row['to_the_step']['median']:>10.2f} "
              f"{row['step']['median']:>6.2f} {row['processor']['median']:>12.2f}   {beside}")
    write(result, options.output)


if __name__ == "__main__":
    main()
