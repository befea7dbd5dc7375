#!/usr/bin/env python3
"""export_parity.py LOCKSTEP CASE: reads the files of `lockstep export` as their users do, and compares what they compute.

A short training gives running statistics that are not those of a new network. PyTorch's module takes its values from the
torchvision file, ONNX Runtime computes each ONNX file. The logits' relative error against the module in float64 may be at most four
times that of the module in fp32 (plus a few ulps), and loss and hits must be those of `lockstep eval`.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import warnings
import zipfile

from pytorch_parity import MINIMUM_ERROR, MiniResNet, MiniResNetD, SimpleCnn, h5py, mini_vit, np, relative_error, torch, torchvision

try:
    import onnx
    import onnxruntime
    import safetensors
    import safetensors.torch
except ImportError as missing:
    print(f"skipped: {missing} (scripts/install-dependencies tests installs it, if a package index is in reach)")
    sys.exit(77)

LOCKSTEP = sys.argv[1]
CLASSES = 10
BATCH = 8
MEAN, STD = [0.4, 0.5, 0.3], [0.25, 0.3, 0.2]


class Mlp(torch.nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.fc1 = torch.nn.Linear(inputs, hidden)
        self.fc2 = torch.nn.Linear(hidden, hidden)
        self.fc3 = torch.nn.Linear(hidden, CLASSES)

    def forward(self, x):
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x.flatten(1))))))


CASES = {
    # name: (module, height, width, channels, options of train)
    "mini-resnet": (lambda: MiniResNet(3, CLASSES, 16), 16, 24, 3, ["--width", "16"]),
    "mini-resnet-d": (lambda: MiniResNetD(3, CLASSES, 16), 14, 18, 3,
                      ["--width", "16", "--stem", "deep", "--shortcut", "avgpool"]),
    "simple-cnn": (lambda: SimpleCnn(1, CLASSES, 28), 28, 28, 1, []),
    "mini-vit": (lambda: mini_vit(CLASSES, 16, 32), 16, 16, 3, ["--width", "32"]),
    "mlp": (lambda: Mlp(3 * 10 * 14, 48), 10, 14, 3, ["--width", "48"]),
    "resnet18": (lambda: torchvision.models.resnet18(num_classes=CLASSES), 64, 64, 3, []),
    "resnext50_32x4d": (lambda: torchvision.models.resnext50_32x4d(num_classes=CLASSES), 64, 64, 3, []),
}


def lockstep(*words):
    done = subprocess.run([LOCKSTEP, *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def write_data(folder, height, width, channels):
    """Images whose brightness depends on the class, a third of them for evaluation; returns those, (N, C, H, W), with labels."""
    random = np.random.default_rng(1)
    for split, count in (("train", 4 * BATCH), ("val", 2 * BATCH)):
        labels = random.integers(0, CLASSES, count)
        images = random.integers(0, 100, (count, height, width, channels)) + (labels * 15)[:, None, None, None]
        with h5py.File(folder / f"{split}-00000-of-00001.h5", "w") as file:
            file["images"], file["labels"] = images.astype("u1"), labels
            file.attrs["classes"], file.attrs["mean"], file.attrs["std"] = CLASSES, MEAN[:channels], STD[:channels]
            file.attrs["class_names"] = [f"class {i}" for i in range(CLASSES)]
    return images.astype("f4").transpose(0, 3, 1, 2), labels


def normalized(pixels, dtype):
    """As torchvision's ToTensor and Normalize."""
    shape = (1, pixels.shape[1], 1, 1)
    mean, std = (np.array(values[:pixels.shape[1]], "f4").astype(dtype).reshape(shape) for values in (MEAN, STD))
    return (pixels.astype(dtype) / dtype(255) - mean) / std


def export(folder, name, file_format, *options):
    path = folder / name
    result = json.loads(lockstep("export", folder / "run/checkpoints/latest", "--format", file_format, "--output", path, "--json", *options))
    assert result["bytes"] == path.stat().st_size and result["path"] == str(path) and result["format"] == file_format, result
    return path


def stored_tensors(folder):
    with h5py.File(folder / "run/checkpoints/latest") as file:
        return {name: file["model"][name][...] for name in file["model"]}, int(file["state"].attrs["step"])


def check_state_dict(found, folder, module):
    """The checkpoint's tensors bit for bit, under the module's names, and the module's counters."""
    stored, step = stored_tensors(folder)
    expected = module.state_dict()
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    for name, tensor in found.items():
        assert tensor.dtype == expected[name].dtype and tensor.shape == expected[name].shape, name
        if name.endswith("num_batches_tracked"):
            assert tensor.item() == step > 0, (name, tensor, step)
        else:
            assert tensor.is_contiguous() and tensor.numpy().tobytes() == stored.pop(name).tobytes(), name
    assert not stored, stored.keys()


def module_of_the_torchvision_file(folder, make):
    path = export(folder, "model.pt", "torchvision")
    module = make()
    check_state_dict(torch.load(path, weights_only=True), folder, module)
    module.load_state_dict(torch.load(path))
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    return module.eval()


def check_safetensors(folder, case, module, channels):
    path = export(folder, "model.safetensors", "safetensors")
    check_state_dict(safetensors.torch.load_file(path), folder, module)
    with safetensors.safe_open(path, "pt") as file:
        metadata = file.metadata()
    assert metadata["format"] == "pt" and metadata["model"] == case and metadata["classes"] == str(CLASSES), metadata
    assert json.loads(metadata["mean"]) == MEAN[:channels] and json.loads(metadata["std"]) == STD[:channels], metadata
    assert json.loads(metadata["class_names"])[3] == "class 3" and int(metadata["step"]) > 0, metadata


def check_onnx(path, case, image, folds):
    model = onnx.load(str(path))
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version == 8 and [(o.domain, o.version) for o in model.opset_import] == [("", 17)], model.opset_import
    assert model.producer_name == "lockstep" and f"lockstep {model.producer_version}\n" == lockstep("--version")
    assert {entry.key: entry.value for entry in model.metadata_props}["model"] == case
    for value, name, axes in ((model.graph.input[0], "images", image), (model.graph.output[0], "logits", [CLASSES])):
        dims = value.type.tensor_type.shape.dim
        assert value.name == name and dims[0].dim_param == "batch" and [dim.dim_value for dim in dims[1:]] == [*axes], value
    ops = [node.op_type for node in model.graph.node]
    norms = 0 if folds or case in ("mini-vit", "simple-cnn", "mlp") else ops.count("Conv")
    assert ops.count("BatchNormalization") == norms, ops


def run_onnx(path, inputs):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    logits, = session.run(["logits"], {"images": inputs})
    first, = session.run(None, {"images": inputs[:1]})
    assert np.allclose(first, logits[:1], rtol=1e-4, atol=1e-4), "a batch of one differs"
    return logits.astype("f8")


def check_evaluation(logits, labels, evaluated):
    loss = torch.nn.functional.cross_entropy(torch.from_numpy(logits), torch.from_numpy(labels)).item()
    assert evaluated["samples"] == len(labels) and evaluated["top1"] == (logits.argmax(1) == labels).mean(), evaluated
    assert abs(loss - evaluated["loss"]) <= 1e-5 * max(1, evaluated["loss"]), (loss, evaluated)


def main():
    case = sys.argv[2]
    make, height, width, channels, options = CASES[case]
    with tempfile.TemporaryDirectory() as name, torch.no_grad():
        folder = pathlib.Path(name)
        pixels, labels = write_data(folder, height, width, channels)
        model = case.removesuffix("-d")
        lockstep("train", "--data", folder, "--model", model, *options, "--batch-size", BATCH, "--max-steps", 4, "--lr", 0.002,
                 "--conv-algorithm", "direct", "--run-dir", folder / "run", "--progress", "plain")
        evaluated = json.loads(lockstep("eval", "--checkpoint", folder / "run/checkpoints/latest", "--data", folder, "--json"))

        module = module_of_the_torchvision_file(folder, make)
        check_safetensors(folder, model, module, channels)
        fp32 = module(torch.from_numpy(normalized(pixels, np.float32))).numpy().astype("f8")
        exact = module.double()(torch.from_numpy(normalized(pixels, np.float64))).numpy()
        check_evaluation(exact, labels, evaluated)
        peer = relative_error(fp32, exact)

        for folds in (False, True):
            for includes in (False, True):
                path = export(folder, f"{folds}-{includes}.onnx", "onnx", *["--fold-batch-norm"] * folds, *["--include-normalization"] * includes)
                check_onnx(path, model, (channels, height, width), folds)
                logits = run_onnx(path, pixels if includes else normalized(pixels, np.float32))
                error = relative_error(logits, exact)
                print(f"{case}, folded {folds}, normalization inside {includes}: error {error:.2e}, fp32 PyTorch {peer:.2e}")
                assert error <= 4 * peer + MINIMUM_ERROR, "further from float64 PyTorch than four times fp32 PyTorch"
                check_evaluation(logits, labels, evaluated)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message=".*weights_only.*")
    main()
