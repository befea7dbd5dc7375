"""Compares every network's parameter and statistic names and shapes with torchvision's, and the initial values of a vision transformer.

usage: torchvision_names.py MODEL_DUMP
"""

import subprocess
import sys

try:
    import torch
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
    "vit_b_16",
    "vit_b_32",
    "vit_l_16",
    "vit_l_32",
    "vit_h_14",
)
# One of each kind of layer.
INITIALIZED = (
    "class_token",
    "conv_proj.weight",
    "conv_proj.bias",
    "encoder.pos_embedding",
    "encoder.layers.encoder_layer_0.ln_1.weight",
    "encoder.layers.encoder_layer_0.self_attention.in_proj_weight",
    "encoder.layers.encoder_layer_0.self_attention.in_proj_bias",
    "encoder.layers.encoder_layer_0.self_attention.out_proj.weight",
    "encoder.layers.encoder_layer_0.self_attention.out_proj.bias",
    "encoder.layers.encoder_layer_0.mlp.0.weight",
    "encoder.layers.encoder_layer_0.mlp.0.bias",
    "encoder.layers.encoder_layer_0.mlp.3.weight",
    "encoder.layers.encoder_layer_0.mlp.3.bias",
    "heads.head.weight",
    "heads.head.bias",
)


def ours(dump, name):
    lines = subprocess.run([dump, name], check=True, capture_output=True, text=True).stdout
    fields = [line.split() for line in lines.splitlines()]
    return {field[0]: tuple(int(extent) for extent in field[1:]) for field in fields}


def without_values():
    """Leaves the layers that are made from now on uninitialized, which is faster."""
    for name in dir(torch.nn.init):
        if name.endswith("_") and not name.startswith("_"):
            setattr(torch.nn.init, name, lambda tensor, *_, **__: tensor)


def theirs(name):
    # PyTorch also counts batches in each norm; all other state is compared.
    state = getattr(torchvision.models, name)().state_dict()
    return {
        key: tuple(value.shape)
        for key, value in state.items()
        if not key.endswith(".num_batches_tracked")
    }


def initial_values(dump):
    """The number of parameters whose values have another distribution than torchvision's, by mean, standard deviation and largest magnitude."""
    torch.manual_seed(1)
    state = torchvision.models.vit_b_32().state_dict()
    lines = subprocess.run([dump, "vit_b_32", *INITIALIZED], check=True, capture_output=True, text=True).stdout
    failures = 0
    for name, line in zip(INITIALIZED, lines.splitlines()):
        mean, deviation, largest = (float(field) for field in line.split())
        values = state[name].double()
        exact = values.std(unbiased=False).item()
        error = 6 * 2**0.5 * exact / values.numel() ** 0.5  # six standard errors of a difference of two means
        near = abs(deviation - exact) <= error and abs(mean - values.mean().item()) <= error
        # The largest of uniform values is 1.73 deviations, of as many normal ones at least 3.
        near = near and (largest < 1.8 * deviation) == (values.abs().max().item() < 1.8 * exact)
        print(f"{name}: mean {mean:.3g}, deviation {deviation:.3g}, {exact:.3g} in torchvision{'' if near else ' differs'}")
        failures += not near
    return failures


def main():
    failures = initial_values(sys.argv[1])
    without_values()
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
