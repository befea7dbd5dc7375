#!/usr/bin/env python3
"""auto_augment_reference_test.py AUTO_AUGMENT_DUMP: compares automatic augmentation with torchvision's RandAugment and TrivialAugmentWide.

Operations: to the pixel, on PIL images, with every magnitude. Draws: which operations and magnitudes there are, and how often. torchvision computes
magnitudes in fp32, with or without fused multiplications; Lockstep in fp64. They differ by at most 2 units in the last place of fp32.
"""

import math
import os
import subprocess
import sys

try:
    import numpy as np
    import PIL.Image
    from torchvision.transforms import InterpolationMode, RandAugment, TrivialAugmentWide
    from torchvision.transforms.autoaugment import _apply_op
except ImportError as missing:
    print(f"skipped: {missing} (install python3-torchvision)")
    sys.exit(77)

TRIVIAL = TrivialAugmentWide()._augmentation_space(31)
NAMES = list(TRIVIAL)
MODES = [InterpolationMode.NEAREST, InterpolationMode.BILINEAR]
SHAPES = [(40, 56), (33, 31), (1, 1), (2, 9), (3, 3)]


def rand_space(height, width, bins=31):
    return RandAugment(num_magnitude_bins=bins)._augmentation_space(bins, (height, width))


def magnitudes_of(name, space):
    values, is_signed = space[name]
    values = [float(value) for value in values.reshape(-1)]
    return values + [-value for value in values] if is_signed else values


def images_of(random, height, width, channels):
    """Noise, few values, one value, and smooth shapes of low contrast; the last has as many as fit of every value."""
    shape = (height, width, channels)
    y, x = np.mgrid[0:height, 0:width][..., None]
    yield random.integers(0, 256, shape)
    yield random.integers(0, 3, shape) * 100 + 7
    yield np.full(shape, 93)
    yield (100 + 40 * np.sin(x / 9 + np.arange(channels)) + 30 * np.cos(y / 7)).astype(int)
    yield np.arange(height * width * channels).reshape(shape) % 256


def cases():
    """(operation, magnitude, interpolation, image) of each comparison."""
    random = np.random.default_rng(1)
    for height, width in SHAPES:
        for channels in (1, 3):
            images = [image.astype(np.uint8) for image in images_of(random, height, width, channels)]
            for name in NAMES:
                magnitudes = magnitudes_of(name, TRIVIAL) + magnitudes_of(name, rand_space(height, width))
                if height < 10:
                    magnitudes = magnitudes[::7]
                for i, magnitude in enumerate(magnitudes):
                    for mode in range(2):
                        yield name, magnitude, mode, images[(i + mode) % len(images)]
    for name in NAMES:  # a few at full size
        for mode in range(2):
            magnitude = random.choice(magnitudes_of(name, TRIVIAL))
            yield name, magnitude, mode, random.integers(0, 256, (224, 224, 3), dtype=np.uint8)


def expected(name, magnitude, mode, image):
    pil = PIL.Image.fromarray(image if image.shape[2] == 3 else image[..., 0])
    return np.asarray(_apply_op(pil, name, magnitude, interpolation=MODES[mode], fill=None)).reshape(image.shape)


def operations_equal_torchvisions_to_the_pixel():
    every = list(cases())
    request = b"".join(b"%d %r %d %d %d %d\n" % (NAMES.index(name), float(magnitude), mode, *image.shape) + image.tobytes()
                       for name, magnitude, mode, image in every)
    differing = {}
    for vectors in ("", "baseline", "avx2"):
        environment = {**os.environ, **({"LOCKSTEP_TEST_VECTORS": vectors} if vectors else {})}
        results = subprocess.run([sys.argv[1], "apply"], input=request, stdout=subprocess.PIPE, check=True, env=environment).stdout
        if vectors:
            assert results == first, f"other pixels with {vectors}"
            continue
        first, at = results, 0
        for name, magnitude, mode, image in every:
            ours = np.frombuffer(results, np.uint8, image.size, at).reshape(image.shape)
            at += image.size
            theirs = expected(name, magnitude, mode, image)
            if (ours != theirs).any():
                differing.setdefault(name, []).append((magnitude, mode, image.shape, int((ours != theirs).sum()), int(np.abs(ours.astype(int) - theirs).max())))
        assert at == len(results)
    print(f"{len(every)} comparisons")
    assert not differing, differing


def draws(policy, height, width, count, magnitude=9, bins=31):
    result = subprocess.run([sys.argv[1], policy, *map(str, (height, width, count, magnitude, bins))], capture_output=True, text=True, check=True)
    return [(NAMES[int(line.split()[0])], float(line.split()[1])) for line in result.stdout.splitlines()]


def assert_uniform(what, counts, cells):
    """Whether there are `cells` values, about equally often: a chi-square test at five standard deviations above its mean. Uniform draws exceed
    that with a probability of 4.5e-3 for 2 cells, 2.4e-4 for 14 and 2.6e-5 for 62, but the draws are the same in each run."""
    assert len(counts) <= cells, (what, counts)
    mean = sum(counts.values()) / cells
    chi_square = sum((count - mean) ** 2 / mean for count in counts.values()) + (cells - len(counts)) * mean
    if cells > 2:
        print(f"{what}: chi-square {chi_square:.0f} of {cells} cells")
    assert chi_square <= cells - 1 + 5 * math.sqrt(2 * (cells - 1)), (what, counts)


def bin_of(name, magnitude, values):
    """The number of the equal magnitude, and the sign."""
    difference = np.abs(np.array(values) - abs(magnitude))
    nearest = int(difference.argmin())
    assert difference[nearest] <= 2 * np.spacing(np.float32(values[nearest])), (name, magnitude, values)
    # Whole pixels are truncated. Some versions of PyTorch have 15.999999 where the magnitude is 16: ours must be 16.
    assert not name.startswith("Translate") or int(values[nearest] + 1e-4) == int(abs(magnitude)), (name, magnitude)
    return nearest, math.copysign(1, magnitude)


def count(values):
    return {value: values.count(value) for value in set(values)}


def trivial_augment_draws_all_operations_and_magnitudes_equally_often():
    found = draws("trivialaugment", 224, 224, 60_000)
    assert_uniform("TrivialAugment", count([name for name, _ in found]), 14)
    for name in NAMES:
        values, is_signed = TRIVIAL[name]
        values = [float(value) for value in values.reshape(-1)]
        cells = [bin_of(name, magnitude, values) for of, magnitude in found if of == name]
        if name == "Posterize":  # several bins have one value
            for value in set(values):
                share = sum(magnitude == value for of, magnitude in found if of == name) / len(cells)
                assert abs(share - values.count(value) / 31) < 0.02, (value, share)
        else:
            assert_uniform(name, count(cells), (2 if is_signed else 1) * len(values))


def rand_augment_draws_all_operations_with_one_magnitude():
    for height, width, magnitude, bins in ((224, 224, 9, 31), (176, 200, 0, 31), (32, 48, 30, 31), (331, 331, 3, 11), (60, 75, 1, 2)):
        found = draws("randaugment", height, width, 20_000, magnitude, bins)
        assert_uniform("RandAugment", count([name for name, _ in found]), 14)
        for name, (values, is_signed) in rand_space(height, width, bins).items():
            value = float(values[magnitude]) if values.ndim else 0.0
            signs = count([bin_of(name, drawn, [value]) for of, drawn in found if of == name])
            assert_uniform(f"{name} {value:.3g}", signs, 2 if is_signed else 1)


if __name__ == "__main__":
    operations_equal_torchvisions_to_the_pixel()
    trivial_augment_draws_all_operations_and_magnitudes_equally_often()
    rand_augment_draws_all_operations_with_one_magnitude()
