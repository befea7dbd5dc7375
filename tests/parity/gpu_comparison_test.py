#!/usr/bin/env python3
"""gpu_comparison_test.py LOCKSTEP: the comparison with PyTorch on a GPU compares the same networks, and keeps what went wrong."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

try:
    import torch  # noqa: F401
except ImportError:
    print("skipped: PyTorch is not installed")
    sys.exit(77)
import compare_pytorch_gpu as comparison  # noqa: E402

LOCKSTEP = sys.argv[1]


def the_networks_are_lockstep_s():
    for model, (size, classes) in comparison.SHAPES.items():
        printed = subprocess.run([LOCKSTEP, "inspect", "--model", model, "--image-size", str(size), "--channels", "3", "--classes", str(classes),
                                  "--json"], check=True, capture_output=True, text=True).stdout
        theirs = comparison.build(model, classes)
        assert json.loads(printed)["parameters"] == sum(p.numel() for p in theirs.parameters()), model
        images = torch.zeros(2, 3, size, size)
        assert theirs(images).shape == (2, classes), model


def what_goes_wrong_is_kept():
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "result.json")
        # No GPU can be had under these names, on any machine.
        run = subprocess.run([sys.executable, BENCHMARKS / "compare_pytorch_gpu.py", LOCKSTEP, output, "--cases", "mini-resnet:4:bf16",
                              "--rounds", "1"], capture_output=True, text=True,
                             env=dict(os.environ, CUDA_VISIBLE_DEVICES="", LOCKSTEP_MODULE_PATH=folder))
        assert run.returncode == 1, run.stderr
        with open(output) as file:
            row = json.load(file)["rows"][0]
        assert row["ratio_to_best"] is None
        for name in ("lockstep", "loader", *comparison.VARIANTS):
            assert any(error.startswith(f"{name}: ") for error in row["errors"]), (name, row["errors"])


the_networks_are_lockstep_s()
what_goes_wrong_is_kept()
