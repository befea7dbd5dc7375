#!/usr/bin/env python3
"""The Python on docs/file-formats.md, as it stands, between the program's commands."""

import pathlib
import re

from harness import *  # noqa: F403

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "file-formats.md"


def the_code_on_the_page_runs(folder):
    try:
        import torch  # noqa: F401
        import torchvision  # noqa: F401
    except ImportError as missing:
        print(f"skipped: the_code_on_the_page_runs: {missing}")
        return
    shard, weights = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    (folder / "data").mkdir()
    os.chdir(folder)
    exec(shard, {})
    run(["train", "--data", "data", "--model", "resnet18", "--batch-size", 32, "--epochs", 1, "--run-dir", "run",
         "--conv-algorithm", "direct"])
    os.symlink(latest(folder / "run"), "resnet18.h5")
    names = {}
    exec(weights, names)
    # What came back is what went out, and the program takes it.
    with h5py.File("resnet18.h5") as ours, h5py.File("weights.h5") as theirs:
        for name in ours["model"]:
            assert ours["model"][name][...].tobytes() == theirs["model"][name][...].tobytes(), name
        assert len(ours["model"]) + 20 == len(theirs["model"])  # PyTorch's num_batches_tracked
    one, other = (json.loads(run(["eval", "--data", "data", "--split", "train", "--json", "--checkpoint", file,
                                  *options]).splitlines()[-1])
                  for file, options in (("resnet18.h5", []), ("weights.h5", ["--model", "resnet18"])))
    # A file without mean and std takes the data set's, and weights alone are taken by direct convolutions: here the same.
    assert one["loss"] == other["loss"] and one["top1"] == other["top1"], (one, other)


if __name__ == "__main__":
    main([the_code_on_the_page_runs])
