#!/usr/bin/env python3
"""export_ops.py EXPORT_DUMP: compares ONNX Runtime with PyTorch over a network that has every op, with windows that no model has."""

import pathlib
import subprocess
import sys
import tempfile

from pytorch_parity import MINIMUM_ERROR, np, relative_error, torch

try:
    import onnx
    import onnxruntime
except ImportError as missing:
    print(f"skipped: {missing} (scripts/install-dependencies tests installs it, if a package index is in reach)")
    sys.exit(77)


class EveryOp(torch.nn.Module):
    """The graph of export_dump.cpp."""

    def __init__(self):
        super().__init__()
        self.grouped = torch.nn.Conv2d(4, 8, 3, stride=2, padding=2, groups=2)
        self.bn1 = torch.nn.BatchNorm2d(8, eps=0.25)
        self.read_twice = torch.nn.Conv2d(8, 8, 1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(8)
        self.bn3 = torch.nn.BatchNorm2d(8)
        self.pixels = torch.nn.LayerNorm(8, eps=0.25)
        self.of_pixels = torch.nn.Linear(8, 8)
        self.class_token = torch.nn.Parameter(torch.zeros(1, 1, 8))
        self.positions = torch.nn.Parameter(torch.zeros(1, 1 + 6 * 5, 8))
        self.in_proj_weight = torch.nn.Parameter(torch.zeros(24, 8))
        self.in_proj_bias = torch.nn.Parameter(torch.zeros(24))
        self.features = torch.nn.LayerNorm(8)
        self.fc = torch.nn.Linear(8, 5)

    def forward(self, x):
        x = torch.relu(self.bn1(self.grouped(x)))
        x = self.read_twice(torch.nn.functional.avg_pool2d(x, 3, 2, 1))
        x = self.pixels(torch.nn.functional.gelu(self.bn2(x) + x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        x = torch.nn.functional.max_pool2d(x, 3, 1, 1)
        x = self.of_pixels(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        first = self.attention(x.flatten(2).transpose(1, 2))[:, 0]
        x = torch.nn.functional.avg_pool2d(x, 2, 2, ceil_mode=True, count_include_pad=False)
        return self.fc(self.features(self.bn3(x.mean((2, 3), keepdim=True)).flatten(1) + first))

    def attention(self, pixels):
        tokens = torch.cat([self.class_token.expand(len(pixels), -1, -1), pixels], 1) + self.positions
        packed = torch.nn.functional.linear(tokens, self.in_proj_weight, self.in_proj_bias)
        q, k, v = packed.unflatten(2, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(2, 3) / 2).softmax(3)
        return (weights @ v).transpose(1, 2).flatten(2)


def main():
    torch.manual_seed(1)
    images = torch.randn(3, 4, 21, 17)
    module = EveryOp().eval()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        state, *models = (str(pathlib.Path(folder, name)) for name in ("state.pt", "model.onnx", "folded.onnx"))
        subprocess.run([sys.argv[1], state, *models], check=True)
        module.load_state_dict(torch.load(state, weights_only=True))
        fp32 = module(images).double().numpy()
        exact = module.double()(images.double()).numpy()
        peer = relative_error(fp32, exact)
        for path, norms in zip(models, (3, 2)):
            model = onnx.load(path)
            onnx.checker.check_model(model, full_check=True)
            ops = [node.op_type for node in model.graph.node]
            assert ops.count("BatchNormalization") == norms and len(set(ops)) == 20, ops
            logits, = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(["logits"], {"images": images.numpy()})
            error = relative_error(logits.astype("f8"), exact)
            print(f"{norms} batch norms: error {error:.2e}, fp32 PyTorch {peer:.2e}")
            assert error <= 4 * peer + MINIMUM_ERROR, "further from float64 PyTorch than four times fp32 PyTorch"


if __name__ == "__main__":
    main()
