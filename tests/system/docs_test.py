#!/usr/bin/env python3
"""Runs the code of docs/file-formats.md unchanged, between commands of the program, and the command of docs/packing.md."""

import pathlib
import re

from harness import *  # noqa: F403

PACKING = pathlib.Path(__file__).parents[2] / "docs" / "packing.md"
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "file-formats.md"


def python_on_the_page():
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)


def the_code_on_the_page_runs(folder):
    try:
        import torch
        import torchvision  # noqa: F401
    except ImportError as missing:
        print(f"skipped: the_code_on_the_page_runs: {missing}")
        return
    shard, weights, figures, renaming, *conversions, exported = python_on_the_page()
    (folder / "data").mkdir()
    os.chdir(folder)
    exec(shard, {})
    run(["train", "--data", "data", "--model", "resnet18", "--batch-size", 32, "--epochs", 1, "--run-dir", "run",
         "--conv-algorithm", "direct"])
    os.symlink(latest(folder / "run"), "resnet18.h5")
    names = {}
    exec(weights, names)
    # The conversion preserves the values, and the program accepts its output.
    with h5py.File("resnet18.h5") as ours, h5py.File("weights.h5") as theirs:
        for name in ours["model"]:
            assert ours["model"][name][...].tobytes() == theirs["model"][name][...].tobytes(), name
        assert len(ours["model"]) + 20 == len(theirs["model"])  # PyTorch's num_batches_tracked

    def evaluate(file, *options):
        return json.loads(run(["eval", "--data", "data", "--split", "train", "--json", "--checkpoint", file, *options]).splitlines()[-1])

    one, other = evaluate("resnet18.h5"), evaluate("weights.h5", "--model", "resnet18")
    # A file without mean and std uses those of the data set, and bare weights use direct convolutions: here they are those of the run.
    assert one["loss"] == other["loss"] and one["top1"] == other["top1"], (one, other)
    (given,) = re.findall(r"`(--mean [0-9.,]+ --std [0-9.,]+)`", PAGE.read_text())
    given = evaluate("weights.h5", "--model", "resnet18", *given.split())
    exec(figures, {})
    written = evaluate("weights.h5", "--model", "resnet18")
    assert given["loss"] == written["loss"] != one["loss"], (given, written, one)
    run(["export", "resnet18.h5", "--format", "torchvision", "--output", "resnet18.pt"])
    loaded = {}
    exec(exported, loaded)
    for name, value in loaded["model"].state_dict().items():
        assert name.endswith("num_batches_tracked") or torch.equal(value, names["model"].state_dict()[name]), name
    convert_weights(conversions, loaded["model"])
    renamed = evaluate("resnet18.h5")
    exec(renaming, {})
    with h5py.File("data/train-00000-of-00001.h5") as file:
        assert list(file.attrs["class_names"])[9] == "class 9", list(file.attrs["class_names"])
    assert evaluate("resnet18.h5")["loss"] == renamed["loss"]


def convert_weights(conversions, model):
    """Runs the lines that convert the files that export writes, and TorchScript's."""
    import torch
    torch.jit.script(model).save("script.pt")
    names = {}
    for file_format, code in zip(("script", "onnx"), conversions, strict=True):
        if file_format == "onnx":
            run(["export", "resnet18.h5", "--format", file_format, "--output", f"weights.{file_format}"])
        try:
            exec(code, names)
        except ImportError as missing:
            print(f"skipped: lines of {file_format}: {missing}")
    for path in pathlib.Path().glob("from-*.h5"):
        with h5py.File("resnet18.h5") as ours, h5py.File(path) as theirs:
            assert set(ours["model"]) <= set(theirs["model"]), path
            for name in ours["model"]:
                assert ours["model"][name][...].tobytes() == theirs["model"][name][...].tobytes(), (path, name)
    assert pathlib.Path("from-script.h5").exists()


def the_lines_that_load_weights_take_the_average_and_refuse_other_networks(folder):
    """The module computes the logits that eval writes; the lines and export name what does not fit."""
    try:
        import torch
        import torchvision  # noqa: F401
    except ImportError as missing:
        raise Skipped(missing) from missing
    _, weights, *_, exported = python_on_the_page()
    os.chdir(folder)
    data = write_shards(folder / "data", samples=16, shards=1, shape=(64, 64, 3))

    def trained(name, model, *options):
        run(["train", *options, "--model", model, "--run-dir", name, "--batch-size", 4, "--threads", 1, "--max-steps", 2])
        pathlib.Path("resnet18.h5").unlink(missing_ok=True)
        os.symlink(latest(name), "resnet18.h5")
        return run(["export", "resnet18.h5", "--format", "torchvision", "--output", "resnet18.pt", "--overwrite"])

    printed = trained("fits", "resnet18", "--data", data, "--mean", "0.4,0.5,0.6", "--std", "0.25", "--ema-decay", 0.5)
    assert "loads into: torchvision.models.resnet18(num_classes=10)\n" in printed and "warning" not in printed, printed
    assert "input: 3x64x64, ToTensor(), Normalize(mean=[0.4, 0.5, 0.6], std=[0.25, 0.25, 0.25])" in printed, printed
    logits = {}
    for option in ("--ema", "--no-ema"):
        run(["eval", "--checkpoint", "resnet18.h5", "--data", data, "--split", "train", option, "--predictions", "p.h5", "--overwrite"])
        with h5py.File("p.h5") as file:
            logits[option] = file["logits"][...]
    with h5py.File(data / "train-00000-of-00001.h5") as file:
        images = torch.tensor(file["images"][...]).permute(0, 3, 1, 2) / 255
    inputs = (images - torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1)) / 0.25
    for lines in (weights, exported):
        names = {}
        exec(lines, names)
        with torch.no_grad():
            found = names["model"].eval()(inputs).numpy()
        errors = {option: np.abs(found - expected).max() / np.abs(expected).max() for option, expected in logits.items()}
        assert errors["--ema"] < 1e-3 < 1e-2 < errors["--no-ema"], errors

    synthetic = ["--synthetic", "--synthetic-samples", 8, "--classes", 10, "--image-size"]
    for name, model, options, says in (("deep", "resnet18", [64, "--stem", "deep"], "resnet18 has no conv1.0.weight"),
                                       ("small", "resnet18", [32, "--width", 8], "conv1.weight is 8x3x3x3, that of resnet18 64x3x7x7"),
                                       ("narrow", "resnet18", [64, "--width", 8], "conv1.weight is 8x3x7x7, that of resnet18 64x3x7x7"),
                                       ("mini", "mini-resnet", [32, "--width", 8], "torchvision has no mini-resnet")):
        printed = trained(name, model, *synthetic, *options)
        assert f"warning: no module of torchvision.models loads resnet18.pt ({says})" in printed and "loads into" not in printed, printed
        for lines, file_name in ((weights, "resnet18.h5"), (exported, "resnet18.pt")):
            try:
                exec(lines, {})
            except (AssertionError, RuntimeError) as error:
                assert "conv1" in str(error), error
            else:
                raise AssertionError(f"{file_name} of {name} loads into torchvision's resnet18")


def the_command_for_imagenet_packs_it_as_it_is_distributed(folder):
    # The smallest PNG file, with the name of a JPEG file, like one of ImageNet's.
    image = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
                          "0000000a49444154789c636000000002000148afa4710000000049454e44ae426082")
    parts = folder / "ILSVRC" / "Data" / "CLS-LOC"
    (parts / "val").mkdir(parents=True)
    rows = ["ImageId,PredictionString"]
    for i, label in enumerate(("n01440764", "n01443537", "n01440764"), 1):
        (parts / "train" / label).mkdir(parents=True, exist_ok=True)
        (parts / "train" / label / f"{i}.JPEG").write_bytes(image)
        (parts / "val" / f"ILSVRC2012_val_{i:08}.JPEG").write_bytes(image)
        rows.append(f"ILSVRC2012_val_{i:08},{label} 85 1 499 272 {label} 1 2 3 4 ")
    (folder / "ILSVRC" / "LOC_val_solution.csv").write_text("\n".join(rows) + "\n")
    (folder / "ILSVRC" / "LOC_synset_mapping.txt").write_text("n01440764 tench, Tinca tinca\nn01443537 goldfish, Carassius auratus\n")
    lines = re.findall(r"```sh\n(.*?)```", PACKING.read_text(), re.S)[0]
    assert "mpirun -n 16 lockstep " in lines, lines

    subprocess.run(["sh", "-euc", lines.replace("mpirun -n 16 lockstep", LOCKSTEP)], cwd=folder, check=True, env=environment(),
                   stdout=subprocess.DEVNULL)

    with h5py.File(folder / "shards" / "val-00000-of-00001.h5") as file:
        assert sorted(file["labels"][...]) == [0, 0, 1]
        assert file.attrs["class_names"][0] == b"tench, Tinca tinca", list(file.attrs["class_names"])


if __name__ == "__main__":
    main([the_code_on_the_page_runs, the_lines_that_load_weights_take_the_average_and_refuse_other_networks,
          the_command_for_imagenet_packs_it_as_it_is_distributed])
