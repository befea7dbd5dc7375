"""Compares every resnet's parameter and statistic names and shapes with torchvision's.

usage: torchvision_names.py MODEL_DUMP
"""

import subprocess
import sys

try:
    import torchvision
except ImportError as error:
    print(f"skipped: torchvision cannot be imported ({error})")
    sys.exit(77)

MODELS = (
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "resnext50_32x4d",
    "resnext101_32x8d",
    "resnext101_64x4d",
    "wide_resnet50_2",
    "wide_resnet101_2",
)


def ours(dump, name):
    lines = subprocess.run([dump, name], check=True, capture_output=True, text=True).stdout
    fields = [line.split() for line in lines.splitlines()]
    return {field[0]: tuple(int(extent) for extent in field[1:]) for field in fields}


def theirs(name):
    # PyTorch also counts batches in each norm; all other state is compared.
    state = getattr(torchvision.models, name)().state_dict()
    return {
        key: tuple(value.shape)
        for key, value in state.items()
        if not key.endswith(".num_batches_tracked")
    }


def main():
    failures = 0
    for name in MODELS:
        mine, reference = ours(sys.argv[1], name), theirs(name)
        wrong = [
            f"{key}: {mine.get(key)} here, {reference.get(key)} in torchvision"
            for key in sorted(mine.keys() | reference.keys())
            if mine.get(key) != reference.get(key)
        ]
        print(f"{name}: {len(reference)} tensors, {len(wrong)} differ")
        print("\n".join(wrong[:10]))
        failures += len(wrong)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
