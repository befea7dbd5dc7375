"""Compares the images of evaluations with torchvision's Resize and CenterCrop.

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
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

PROGRAM = sys.argv[1]
# Size, ratio, and what torchvision's recipes resize to before they crop.
CASES = ((224, 0.875, 256), (224, 0.965, 232), (160, 0.88, 182), (96, 1.0, 96))


def picture(height, width, seed):
    """Smooth waves, so that neither JPEG nor a shift by part of a pixel changes much, and a corner that shows where the crop is."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    waves = [128 + 100 * np.sin(y * random.uniform(0.02, 0.06) + x * random.uniform(0.02, 0.06) + random.uniform(0, 6)) for _ in range(3)]
    return Image.fromarray(np.stack(waves, -1).astype("u1"))


def jpeg(image):
    data = io.BytesIO()
    image.save(data, "JPEG", quality=98, subsampling=0)
    return data.getvalue()


def errors(theirs, ours):
    difference = np.abs(theirs.astype(int) - ours.astype(int))
    return difference.mean(), difference.max()


def check(size, ratio, resized, shapes, allowed):
    """Images of these shapes differ from torchvision's by at most `allowed`: mean and largest."""
    files = [jpeg(picture(height, width, seed)) for seed, (height, width) in enumerate(shapes)]
    with tempfile.TemporaryDirectory() as directory:
        with h5py.File(pathlib.Path(directory) / "val-00000-of-00001.h5", "w") as file:
            file["encoded"] = np.frombuffer(b"".join(files), "u1")
            file["offsets"] = np.cumsum([0] + [len(data) for data in files]).astype("u8")
            file["labels"] = np.zeros(len(files), "i8")
        output = subprocess.run([PROGRAM, directory, str(size), str(ratio)], check=True, capture_output=True).stdout
    ours = np.frombuffer(output, "u1").reshape(len(files), size, size, 3)
    decoded = [Image.open(io.BytesIO(data)).convert("RGB") for data in files]

    def theirs(short_side):
        transform = transforms.Compose([transforms.Resize(short_side), transforms.CenterCrop(size)])
        return np.stack([np.asarray(transform(image)) for image in decoded])

    mean, largest = errors(theirs(resized), ours)
    other, _ = errors(theirs(resized + 8), ours)
    print(f"{size} of {resized}: mean difference {mean:.3f}, largest {largest}; of {resized + 8}: mean {other:.3f}")
    assert mean <= allowed[0] and largest <= allowed[1], (size, ratio, mean, largest)
    assert other > 3 * mean, (size, ratio, mean, other)


def main():
    for size, ratio, resized in CASES:
        # Here the crop is of whole pixels of the original image too.
        check(size, ratio, resized, ((resized, resized + 50), (2 * resized + 60, 2 * resized)), (0.2, 3))
        # Here its edges, rounded to such pixels, are up to half of one away.
        check(size, ratio, resized, ((300, 400), (512, 333), (700, 251)), (2.5, 15))


if __name__ == "__main__":
    main()
