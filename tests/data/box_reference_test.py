#!/usr/bin/env python3
"""box_reference_test.py BOX_DUMP: compares the boxes of CutMix and random erasing with those of timm's formula and torchvision.

Both draw 20,000 boxes with fixed seeds. The largest distance between two such empirical distributions (Kolmogorov, Smirnov) is
above 1.95 * sqrt(2 / 20000) = 0.0195 with probability 0.001; less for values that are whole numbers.
"""

import subprocess
import sys

try:
    import numpy as np
    import torch
    from torchvision.transforms import RandomErasing
except ImportError as missing:
    print(f"skipped: {missing} (install python3-torchvision)")
    sys.exit(77)

COUNT = 20_000
BOUND = 1.95 * (2 / COUNT) ** 0.5
SHAPES = [(32, 32), (224, 224), (60, 160)]


def dump(kind, value, height, width):
    """Weight, top, left, height and width of each box, (5, COUNT)."""
    result = subprocess.run([sys.argv[1], kind, str(value), str(height), str(width), str(COUNT)], capture_output=True, text=True, check=True)
    return np.array([line.split() for line in result.stdout.splitlines()], "f8").T


def distance(ours, theirs):
    """The two-sample Kolmogorov-Smirnov statistic."""
    points = np.union1d(ours, theirs)

    def cumulative(values):
        return np.searchsorted(np.sort(values), points, side="right") / len(values)

    return np.abs(cumulative(ours) - cumulative(theirs)).max()


def compare(what, ours, theirs):
    for name, values in theirs.items():
        found = distance(ours[name], values)
        print(f"{what}, {name}: {found:.4f}")
        bound = 1.95 * (1 / len(values) + 1 / len(ours[name])) ** 0.5
        assert found < bound, f"the distributions of {what}, {name}, differ by {found} (at most {bound})"


def boxes(top, left, height, width):
    """The distributions that are compared."""
    return {"top": top, "left": left, "height": height, "width": width, "area": height * width}


def timm_cutmix(random, alpha, height, width):
    """timm's cutmix_bbox_and_lam() with its rand_bbox(), for all pairs at once."""
    ratio = np.sqrt(1 - random.beta(alpha, alpha, COUNT))
    cut_h, cut_w = (height * ratio).astype(int), (width * ratio).astype(int)
    cy, cx = random.integers(0, height, COUNT), random.integers(0, width, COUNT)
    top, bottom = np.clip(cy - cut_h // 2, 0, height), np.clip(cy + cut_h // 2, 0, height)
    left, right = np.clip(cx - cut_w // 2, 0, width), np.clip(cx + cut_w // 2, 0, width)
    return boxes(top, left, bottom - top, right - left)


def cutmix_boxes_are_distributed_as_timms():
    for height, width in SHAPES:
        for alpha in (0.2, 1.0):
            weight, *box = dump("cutmix", alpha, height, width)
            theirs = timm_cutmix(np.random.default_rng(1), alpha, height, width)
            compare(f"CutMix {alpha} of {height}x{width}", boxes(*box), theirs)
            assert np.allclose(weight, 1 - box[2] * box[3] / (height * width), atol=1e-6), "weights are not the share outside the box"


def torchvision_erasing(height, width):
    """(4, n) of the boxes that torchvision erases in COUNT images; it returns the whole image if no box fits."""
    image = torch.zeros(1, height, width)
    found = [RandomErasing.get_params(image, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=[0.0])[:4] for _ in range(COUNT)]
    return np.array([box for box in found if box != (0, 0, height, width)], "f8").T


def erased_boxes_are_distributed_as_torchvisions():
    torch.manual_seed(1)
    for height, width in SHAPES:
        _, *box = dump("erasing", 1, height, width)
        box = np.array(box)
        drawn = box[:, box[2] > 0]
        theirs = torchvision_erasing(height, width)
        # The shares of images without a box that fits.
        assert abs(drawn.shape[1] - theirs.shape[1]) < 4 * (2 * COUNT * 0.25) ** 0.5
        what = f"random erasing of {height}x{width}"
        compare(what, {**boxes(*drawn), "ratio": drawn[2] / drawn[3]}, {**boxes(*theirs), "ratio": theirs[2] / theirs[3]})


def an_image_is_erased_with_the_given_probability():
    for probability in (0.1, 0.25, 0.9):
        erased = (dump("erasing", probability, 224, 224)[3] > 0).sum()
        assert abs(erased - COUNT * probability) < 4 * (COUNT * probability * (1 - probability)) ** 0.5, erased


if __name__ == "__main__":
    cutmix_boxes_are_distributed_as_timms()
    erased_boxes_are_distributed_as_torchvisions()
    an_image_is_erased_with_the_given_probability()
