#!/usr/bin/env python3
"""box_reference_test.py BOX_DUMP: compares random crops, erased boxes, mixup's weights and CutMix's boxes with torchvision and timm's formulas.

Ours are 100,000 draws of each, torchvision's 20,000, or 100,000 with LOCKSTEP_TEST_SOAK, all with fixed seeds. The largest distance between two such
empirical distributions (Kolmogorov, Smirnov) is above 1.95 * sqrt(1 / n + 1 / m) with probability 0.001; less for values that are whole numbers.
"""

import os
import subprocess
import sys

try:
    import numpy as np
    import torch
    from torchvision.transforms import RandomErasing, RandomResizedCrop
except ImportError as missing:
    print(f"skipped: {missing} (install python3-torchvision)")
    sys.exit(77)

COUNT = 100_000
TORCHVISIONS_COUNT = COUNT if os.environ.get("LOCKSTEP_TEST_SOAK") else 20_000
SHAPES = [(32, 32), (224, 224), (60, 160)]
# In the last two, a crop rarely fits, and is the centre of the largest allowed ratio instead.
CROPPED_SHAPES = [(224, 224), (375, 500), (60, 480), (480, 60)]


def dump(kind, value, height, width):
    """Weight, top, left, height and width of each box, (5, COUNT)."""
    result = subprocess.run([sys.argv[1], kind, str(value), str(height), str(width), str(COUNT)], capture_output=True, text=True, check=True)
    return np.fromstring(result.stdout, sep=" ").reshape(COUNT, 5).T


def distance(ours, theirs):
    """The two-sample Kolmogorov-Smirnov statistic."""
    points = np.union1d(ours, theirs)

    def cumulative(values):
        return np.searchsorted(np.sort(values), points, side="right") / len(values)

    return np.abs(cumulative(ours) - cumulative(theirs)).max()


def compare(what, ours, theirs):
    for name, values in theirs.items():
        found = distance(ours[name], values)
        bound = 1.95 * (1 / len(values) + 1 / len(ours[name])) ** 0.5
        print(f"{what}, {name}: {found:.4f} (at most {bound:.4f})")
        assert found < bound, f"the distributions of {what}, {name}, differ by {found} (at most {bound})"


def boxes(top, left, height, width):
    """The distributions that are compared."""
    return {"top": top, "left": left, "height": height, "width": width, "bottom": top + height, "right": left + width, "area": height * width}


def boxes_and_ratio(top, left, height, width):
    return {**boxes(top, left, height, width), "ratio": height / width}


def check_share(what, found, probability):
    assert abs(found - COUNT * probability) < 4 * (COUNT * probability * (1 - probability)) ** 0.5, f"{what}: {found} of {COUNT}"


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


def timm_mixup(alpha):
    """timm's weights, in fp32 as ours."""
    return {"weight": np.random.default_rng(2).beta(alpha, alpha, COUNT).astype("f4")}


def mixups_weights_are_distributed_as_timms():
    for alpha in (0.1, 0.2, 1, 2):
        weight, *box = dump("mixup", alpha, 224, 224)
        assert not np.any(box)
        compare(f"mixup {alpha}", {"weight": weight.astype("f4")}, timm_mixup(alpha))


def each_pair_gets_mixup_or_cutmix_with_probability_one_half():
    weight, *box = dump("both", 1, 224, 224)
    # A box without pixels leaves the images as they are.
    mixed = (box[2] * box[3] == 0) & (weight < 1)
    check_share("pairs with mixup", mixed.sum(), 0.5)
    compare("mixup beside CutMix", {"weight": weight[mixed].astype("f4")}, timm_mixup(1))
    compare("CutMix beside mixup", boxes(*np.array(box)[:, ~mixed]), timm_cutmix(np.random.default_rng(3), 1, 224, 224))


def crops_are_distributed_as_torchvisions():
    torch.manual_seed(2)
    for height, width in CROPPED_SHAPES:
        _, *box = dump("crop", 0, height, width)
        image = torch.empty(1, height, width)
        theirs = np.array([RandomResizedCrop.get_params(image, (0.08, 1.0), (3 / 4, 4 / 3)) for _ in range(TORCHVISIONS_COUNT)], "f8").T
        compare(f"crops of {height}x{width}", boxes_and_ratio(*box), boxes_and_ratio(*theirs))


def torchvision_erasing(height, width):
    """(4, n) of the boxes that torchvision erases; it returns the whole image if no box fits."""
    image = torch.zeros(1, height, width)
    found = [RandomErasing.get_params(image, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=[0.0])[:4] for _ in range(TORCHVISIONS_COUNT)]
    return np.array([box for box in found if box != (0, 0, height, width)], "f8").T


def erased_boxes_are_distributed_as_torchvisions():
    torch.manual_seed(1)
    for height, width in SHAPES:
        _, *box = dump("erasing", 1, height, width)
        box = np.array(box)
        drawn = box[:, box[2] > 0]
        theirs = torchvision_erasing(height, width)
        # The shares of images in which a box fits.
        assert abs(drawn.shape[1] / COUNT - theirs.shape[1] / TORCHVISIONS_COUNT) < 4 * (0.25 / COUNT + 0.25 / TORCHVISIONS_COUNT) ** 0.5
        compare(f"random erasing of {height}x{width}", boxes_and_ratio(*drawn), boxes_and_ratio(*theirs))


def an_image_is_erased_with_the_given_probability():
    for probability in (0.1, 0.25, 0.9):
        check_share("erased images", (dump("erasing", probability, 224, 224)[3] > 0).sum(), probability)


if __name__ == "__main__":
    cutmix_boxes_are_distributed_as_timms()
    mixups_weights_are_distributed_as_timms()
    each_pair_gets_mixup_or_cutmix_with_probability_one_half()
    crops_are_distributed_as_torchvisions()
    erased_boxes_are_distributed_as_torchvisions()
    an_image_is_erased_with_the_given_probability()
