"""Compares the images of evaluations with torchvision's Resize and CenterCrop of Pillow's images.

usage: evaluation_pixels_test.py EVALUATION_DUMP
"""

import io
import pathlib
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy as np
    from PIL import Image
    from torchvision import transforms
    from torchvision.transforms import InterpolationMode
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

PROGRAM = sys.argv[1]
# Height and width: landscape, portrait, odd, very long, square, of exactly the resized side, and smaller, which enlarges.
SHAPES = ((375, 500), (500, 333), (301, 477), (40, 1900), (1203, 257), (512, 512), (256, 341), (232, 232), (97, 60), (31, 32), (1, 7), (3, 1))
# Size and what the short side becomes: 0 is the default ratio, 0.875; then torchvision's V2, timm's 0.95, and others.
SIZES = ((224, 0, 256), (224, 232, 232), (224, 235, 235), (160, 182, 182), (96, 96, 96), (65, 128, 128))


def picture(height, width, seed):
    """Noise, and blocks of black and white that bicubic filters overshoot."""
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 2, (height // 9 + 1, width // 9 + 1, 3), "u1").repeat(9, 0).repeat(9, 1)[:height, :width] * 255
    noise = random.integers(0, 256, (height, width, 3), "u1")
    return Image.fromarray(np.where(np.arange(width)[None, :, None] % 90 < 45, blocks, noise).astype("u1"))


def jpeg(image, seed):
    data = io.BytesIO()
    image.save(data, "JPEG", quality=95, subsampling=seed % 3)
    return data.getvalue()


def main():
    files = [jpeg(picture(height, width, seed), seed) for seed, (height, width) in enumerate(SHAPES)]
    decoded = [Image.open(io.BytesIO(data)).convert("RGB") for data in files]
    with tempfile.TemporaryDirectory() as directory:
        with h5py.File(pathlib.Path(directory) / "val-00000-of-00001.h5", "w") as file:
            file["encoded"] = np.frombuffer(b"".join(files), "u1")
            file["offsets"] = np.cumsum([0] + [len(data) for data in files]).astype("u8")
            file["labels"] = np.zeros(len(files), "i8")
        for size, given, resized in SIZES:
            for mode in (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC):
                transform = transforms.Compose([transforms.Resize(resized, mode), transforms.CenterCrop(size)])
                output = subprocess.run([PROGRAM, directory, str(size), str(given), mode.value], check=True, capture_output=True).stdout
                for shape, image, ours in zip(SHAPES, decoded, np.frombuffer(output, "u1").reshape(len(files), size, size, 3)):
                    difference = np.abs(np.asarray(transform(image)).astype(int) - ours)
                    # Pillow also rounds between the two passes, so a value may round to the next one.
                    where = (shape, size, resized, mode.value, difference.mean(), difference.max())
                    assert difference.max() <= 1 and difference.mean() < 0.25, where


if __name__ == "__main__":
    main()
