#!/usr/bin/env python3
"""gpu_comparison_test.py LOCKSTEP: tests that the comparison with PyTorch on a GPU uses the same networks, and records errors."""

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


def the_networks_match_lockstep():
    for model, (size, classes) in comparison.SHAPES.items():
        printed = subprocess.run([LOCKSTEP, "inspect", "--model", model, "--image-size", str(size), "--channels", "3", "--classes", str(classes),
                                  "--json"], check=True, capture_output=True, text=True).stdout
        theirs = comparison.build(model, classes)
        assert json.loads(printed)["parameters"] == sum(p.numel() for p in theirs.parameters()), model
        images = torch.zeros(2, 3, size, size)
        assert theirs(images).shape == (2, classes), model


def errors_are_recorded():
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "result.json")
        # With these settings no machine has a usable GPU.
        run = subprocess.run([sys.executable, BENCHMARKS / "compare_pytorch_gpu.py", LOCKSTEP, output, "--cases", "mini-resnet:4:bf16",
                              "--rounds", "1"], capture_output=True, text=True,
                             env=dict(os.environ, CUDA_VISIBLE_DEVICES="", LOCKSTEP_MODULE_PATH=folder))
        assert run.returncode == 1, run.stderr
        with open(output) as file:
            row = json.load(file)["rows"][0]
        assert row["ratio_to_best"] is None
        for name in ("lockstep", "loader", *comparison.VARIANTS):
            assert any(error.startswith(f"{name}: ") for error in row["errors"]), (name, row["errors"])


def programs_without_time_are_listed():
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "result.json")
        run = subprocess.run([sys.executable, BENCHMARKS / "compare_pytorch_gpu.py", LOCKSTEP, output, "--cases", "mini-resnet:4:bf16",
                              "--rounds", "2", "--budget", "0"], capture_output=True, text=True)
        assert run.returncode == 1, run.stderr
        with open(output) as file:
            result = json.load(file)
        assert result["rows"] == []
        assert len(result["left_out"]) == 2 * len(comparison.PROGRAMS), result["left_out"]


def a_row_compares_programs_of_one_round():
    lockstep = [{"images_per_second": 200.0, "peak_device_bytes": 50}, {"images_per_second": 330.0, "peak_device_bytes": 60}]
    runs = [{"lockstep": lockstep[0], "eager": {"images_per_second": 90.0, "peak_bytes": 100},
             "graphs": {"images_per_second": 100.0, "peak_bytes": 200}},
            {"lockstep": lockstep[1], "eager": {"error": "no memory"}, "graphs": {"images_per_second": 110.0, "peak_bytes": 200}}]
    row = comparison.compare("resnet50:256:bf16", runs)
    assert row["best_of_pytorch"] == "graphs"
    assert row["ratio_to_best"] == {"median": 2.5, "min": 2.0, "max": 3.0}
    assert row["peak_memory_ratio_to_best"]["max"] == 0.3
    assert row["images_per_second"]["compiled"] is None and row["errors"] == ["eager: no memory"]


the_networks_match_lockstep()
errors_are_recorded()
programs_without_time_are_listed()
a_row_compares_programs_of_one_round()
