#!/usr/bin/env python3
"""activation_parity.py ORACLE_DUMP: compares what the conformance tests expect of GELUs, layer norms and transformers with PyTorch and torchvision, in float64."""

import json
import subprocess
import sys

from pytorch_parity import torch
from torchvision.models.vision_transformer import VisionTransformer

# Both round in float64 only.
TOLERANCE = 1e-12


class Pixels(torch.nn.LayerNorm):
    """torchvision's LayerNorm2d."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Network(torch.nn.Module):
    """The graph of oracle_dump.cpp."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 6, 1)
        self.pixels = Pixels(6, eps=1e-3)
        self.features = torch.nn.LayerNorm(6 * 4 * 5)
        self.fc1 = torch.nn.Linear(6 * 4 * 5, 7)
        self.fc2 = torch.nn.Linear(7, 4)
        self.gelu = torch.nn.GELU()

    def forward(self, x):
        x = self.gelu(self.pixels(self.conv(x)))
        return self.fc2(self.gelu(self.fc1(self.features(x.flatten(1)))))


def check(name, expected, exact):
    difference = (torch.tensor(expected, dtype=torch.float64).reshape(exact.shape) - exact).abs().max().item()
    scale = max(1, exact.abs().max().item())
    print(f"{name}: {difference:.1e} of {scale:.1e}")
    assert difference <= TOLERANCE * scale, name


def compare(oracle_dump, network, module, height, width):
    dump = json.loads(subprocess.run([oracle_dump, network], check=True, capture_output=True, text=True).stdout)
    module = module.double()
    parameters = dict(module.named_parameters())
    assert parameters.keys() == dump["parameters"].keys(), parameters.keys() ^ dump["parameters"].keys()
    with torch.no_grad():
        for name, values in dump["parameters"].items():
            parameters[name].copy_(torch.tensor(values, dtype=torch.float64).reshape(parameters[name].shape))
    labels = torch.tensor(dump["labels"])
    logits = module(torch.tensor(dump["images"], dtype=torch.float64).reshape(len(labels), 3, height, width))
    loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
    (dump["loss_scale"] * loss).backward()
    check("logits", dump["logits"], logits.detach())
    check("loss", [dump["loss"]], loss.detach())
    for name, values in dump["gradients"].items():
        check(f"gradient of {name}", values, parameters[name].grad)


def main():
    compare(sys.argv[1], "activations", Network(), 4, 5)
    compare(
        sys.argv[1],
        "transformer",
        VisionTransformer(image_size=8, patch_size=4, num_layers=6, num_heads=4, hidden_dim=16, mlp_dim=32, num_classes=4),
        8,
        8,
    )


if __name__ == "__main__":
    main()
