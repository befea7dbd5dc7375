#!/usr/bin/env python3
"""torchvision_logits.py LOCKSTEP MODEL [SIZE]: evaluates a torchvision model's weights, and compares the logits with torchvision's.

Images have SIZE x SIZE pixels, 64 by default; below, --stem 7x7 gives torchvision's network.

The logits' relative error against the module in float64 may be at most four times that of the module in fp32 (plus a few ulps).
"""

import pathlib
import subprocess
import sys
import tempfile

from pytorch_parity import MINIMUM_ERROR, h5py, np, relative_error, torch, torchvision

CLASSES, IMAGES = 10, 4


def is_vit(make):
    return make.__name__.startswith("vit")


def trained_a_little(make, size):
    """A module with random weights, whose running statistics are those of random images."""
    torch.manual_seed(1)
    module = make(num_classes=CLASSES, **{"image_size": size} if is_vit(make) else {})
    if is_vit(make):
        torch.nn.init.normal_(module.heads.head.weight, 0, 0.1)
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.momentum = 1
            torch.nn.init.normal_(part.weight, 0.5, 0.2)
            torch.nn.init.normal_(part.bias, 0, 0.2)
    module.train()(torch.randn(8, 3, size, size))
    return module.eval()


def main():
    lockstep, model, size = [*sys.argv[1:], "64"][:3]
    size = int(size)
    stem = ["--stem", "7x7"] if size < 64 else []
    with tempfile.TemporaryDirectory() as name, torch.no_grad():
        folder = pathlib.Path(name)
        module = trained_a_little(getattr(torchvision.models, model), size)
        # The code of docs/file-formats.md: a PyTorch module as a checkpoint.
        with h5py.File(folder / "weights.h5", "w") as file:
            for key, value in module.state_dict().items():
                if not key.endswith("num_batches_tracked"):
                    file["model/" + key] = value.numpy()
        pixels = np.random.default_rng(1).integers(0, 256, (IMAGES, size, size, 3), "u1")
        with h5py.File(folder / "val-00000-of-00001.h5", "w") as file:
            file["images"], file["labels"] = pixels, np.zeros(IMAGES, "i8")
            file.attrs["classes"], file.attrs["mean"], file.attrs["std"] = CLASSES, [0.5] * 3, [0.25] * 3
        subprocess.run([lockstep, "eval", "--checkpoint", folder / "weights.h5", "--model", model, *stem, "--data", folder, "--batch-size", str(IMAGES),
                        "--conv-algorithm", "direct", "--predictions", folder / "predictions.h5"], check=True, timeout=300)
        with h5py.File(folder / "predictions.h5") as file:
            logits = file["logits"][...].astype("f8")
        images = (torch.from_numpy(pixels).permute(0, 3, 1, 2).double() / 255 - 0.5) / 0.25
        peer = module(images.float()).double().numpy()
        exact = module.double()(images).numpy()
    error, bound = relative_error(logits, exact), 4 * relative_error(peer, exact) + MINIMUM_ERROR
    print(f"{model} on {size}x{size}: error {error:.2e}, bound {bound:.2e}")
    assert error <= bound, "further from float64 PyTorch than four times fp32 PyTorch"


if __name__ == "__main__":
    main()
