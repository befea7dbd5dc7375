#!/usr/bin/env python3
"""pytorch_parity.py STEP_DUMP MODEL OPTIMIZER [LOSS]: compares one model, optimizer and loss with PyTorch, step by step.

Both start from one HDF5 checkpoint that was written from PyTorch's module. Every tensor's relative error against a float64
PyTorch run may be at most four times that of fp32 PyTorch (plus a few ulps).
"""

import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy as np
    import torch
    import torchvision
    from torchvision.models.resnet import BasicBlock, conv1x1
    from torchvision.models.vision_transformer import VisionTransformer
except ImportError as missing:
    print(f"skipped: {missing} (install python3-torch, python3-torchvision and python3-h5py)")
    sys.exit(77)

MINIMUM_ERROR = 2e-6  # relative; about 16 ulps of fp32, for tensors that fp32 PyTorch happens to hit exactly


# The error of fp32 PyTorch is the largest of these runs, because single ReLUs flip by chance.
VARIANTS = (0, 1, 2, 3)
VARIANTS_OF_LARGE = (0, 2)
MARGIN = 1e-5  # of a layer's standard deviation; fp32 rounding moves values by about 1e-6


class MiniResNet(torch.nn.Module):
    """`mini-resnet`, built from torchvision's block."""

    def __init__(self, channels, classes, width):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(width)
        self.relu = torch.nn.ReLU()
        self.layer1 = self.stage(width, width, 1)
        self.layer2 = self.stage(width, 2 * width, 2)
        self.layer3 = self.stage(2 * width, 4 * width, 2)
        self.fc = torch.nn.Linear(4 * width, classes)

    @staticmethod
    def stage(inputs, outputs, stride):
        downsample = None
        if stride != 1 or inputs != outputs:
            downsample = torch.nn.Sequential(conv1x1(inputs, outputs, stride), torch.nn.BatchNorm2d(outputs))
        return torch.nn.Sequential(BasicBlock(inputs, outputs, stride, downsample), BasicBlock(outputs, outputs))

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


class MiniResNetD(MiniResNet):
    """With --stem deep and --shortcut avgpool, with timm's names."""

    def __init__(self, channels, classes, width):
        super().__init__(channels, classes, width)

        def convolution(inputs, outputs):
            return torch.nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)

        self.conv1 = torch.nn.Sequential(
            convolution(channels, width // 2), torch.nn.BatchNorm2d(width // 2), torch.nn.ReLU(),
            convolution(width // 2, width // 2), torch.nn.BatchNorm2d(width // 2), torch.nn.ReLU(),
            convolution(width // 2, width))
        for stage in (self.layer2, self.layer3):
            convolved, norm = stage[0].downsample
            stage[0].downsample = torch.nn.Sequential(
                torch.nn.AvgPool2d(2, 2, ceil_mode=True, count_include_pad=False),
                conv1x1(convolved.in_channels, convolved.out_channels), norm)


class StochasticBlock(torch.nn.Module):
    """A basic block whose residual branch some samples drop; `kept` has a factor for each sample."""

    def __init__(self, block, kept):
        super().__init__()
        self.block, self.kept = block, kept

    def forward(self, x):
        block = self.block
        branch = block.bn2(block.conv2(block.relu(block.bn1(block.conv1(x)))))
        shortcut = x if block.downsample is None else block.downsample(x)
        return block.relu(branch * self.kept.to(x.dtype)[:, None, None, None] + shortcut)


class MiniResNetDropping(MiniResNet):
    """With stochastic depth, whose probability grows from 0 to that of the last block."""

    PROBABILITY = 0.4
    DROPPED = (0b000110, 0b110000, 0b101010, 0b000000)  # by sample, a bit for each block

    def __init__(self, channels, classes, width):
        super().__init__(channels, classes, width)
        number = 0
        for stage in (self.layer1, self.layer2, self.layer3):
            for i, block in enumerate(stage):
                probability = self.PROBABILITY * number / 5
                kept = torch.tensor([0 if bits >> number & 1 else 1 / (1 - probability) for bits in self.DROPPED])
                stage[i] = StochasticBlock(block, kept)
                number += 1

    def named_parameters(self, *args, **kwargs):
        for name, value in super().named_parameters(*args, **kwargs):
            yield name.replace(".block.", "."), value

    def named_buffers(self, *args, **kwargs):
        for name, value in super().named_buffers(*args, **kwargs):
            yield name.replace(".block.", "."), value


class MiniResNetTrained(MiniResNet):
    """With running statistics unlike those of a batch."""

    def __init__(self, channels, classes, width):
        super().__init__(channels, classes, width)
        for part in self.modules():
            if isinstance(part, torch.nn.BatchNorm2d):
                torch.nn.init.normal_(part.running_mean, 0, 0.3)
                torch.nn.init.uniform_(part.running_var, 0.5, 2)


def mini_vit(classes, size, width):
    """`mini-vit`, with a head that is not zero, so that the other layers have gradients."""
    module = VisionTransformer(image_size=size, patch_size=4, num_layers=6, num_heads=4, hidden_dim=width, mlp_dim=2 * width,
                               num_classes=classes)
    torch.nn.init.normal_(module.heads.head.weight, 0, 0.1)
    return module


class SimpleCnn(torch.nn.Module):
    def __init__(self, channels, classes, size):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(channels, 32, 3, padding=1)
        self.conv2 = torch.nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = torch.nn.Linear(64 * (size // 4) ** 2, 512)
        self.fc2 = torch.nn.Linear(512, classes)

    def forward(self, x):
        pool = torch.nn.functional.max_pool2d
        x = pool(torch.relu(self.conv1(x)), 2)
        x = pool(torch.relu(self.conv2(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


class Lamb(torch.optim.Optimizer):
    """LAMB as timm and NVIDIA's FusedLAMB compute it, with their defaults: eps 1e-6, the norm of all gradients at most 1.

    As timm groups parameters, those of one dimension neither decay nor adapt, nor do embeddings, which have three.
    """

    def __init__(self, parameters, lr, weight_decay):
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})
        self.step_count = 0

    @torch.no_grad()
    def step(self):
        self.step_count += 1
        everything = [p for group in self.param_groups for p in group["params"]]
        clip = max(1.0, torch.sqrt(sum((p.grad**2).sum() for p in everything)).item())
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state.setdefault(p, {})
                first = state.get("first", torch.zeros_like(p)) * 0.9 + 0.1 * p.grad / clip
                second = state.get("second", torch.zeros_like(p)) * 0.999 + 0.001 * (p.grad / clip) ** 2
                state.update(first=first, second=second)
                update = first / (1 - 0.9**self.step_count) / (torch.sqrt(second / (1 - 0.999**self.step_count)) + 1e-6)
                ratio = 1.0
                if p.dim() in (2, 4):
                    update = update + group["weight_decay"] * p
                    if p.norm() > 0 and update.norm() > 0:
                        ratio = p.norm() / update.norm()
                p.sub_(group["lr"] * ratio * update)


CASES = {
    # name: (module, lockstep model options, channels, size, classes, batch, steps)
    "mini-resnet": (lambda: MiniResNet(3, 10, 16), ["--model", "mini-resnet", "--width", "16"], 3, 16, 10, 4, 3),
    # Of 14: the last stage halves an odd extent, 7.
    "mini-resnet-d": (lambda: MiniResNetD(3, 10, 16), ["--model", "mini-resnet", "--width", "16", "--stem", "deep",
                                                       "--shortcut", "avgpool"], 3, 14, 10, 4, 3),
    "mini-resnet-dropping": (lambda: MiniResNetDropping(3, 10, 16),
                             ["--model", "mini-resnet", "--width", "16", "--stochastic-depth", "0.4"], 3, 16, 10, 4, 3),
    "mini-resnet-trained": (lambda: MiniResNetTrained(3, 10, 16), ["--model", "mini-resnet", "--width", "16"], 3, 16, 10, 4, 3),
    "simple-cnn": (lambda: SimpleCnn(1, 10, 28), ["--model", "simple-cnn"], 1, 28, 10, 8, 3),
    "mini-vit": (lambda: mini_vit(10, 16, 32), ["--model", "mini-vit", "--width", "32"], 3, 16, 10, 4, 3),
    "resnet18": (lambda: torchvision.models.resnet18(num_classes=100), ["--model", "resnet18"], 3, 224, 100, 2, 3),
    "resnext50_32x4d": (lambda: torchvision.models.resnext50_32x4d(num_classes=10),
                        ["--model", "resnext50_32x4d"], 3, 96, 10, 8, 1),
    "resnet50": (lambda: torchvision.models.resnet50(num_classes=100), ["--model", "resnet50"], 3, 224, 100, 2, 3),
}
# Adam divides by sqrt(v) + eps. With the usual eps of 1e-8, a gradient that is zero except for rounding moves a weight as far
# as any other. With 1e-4 the update is continuous within rounding, so that the test compares the formula.
OPTIMIZERS = {
    "sgd": (["--optimizer", "sgd", "--lr", "0.01", "--momentum", "0.9", "--weight-decay", "0.001"],
            lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=0.001)),
    "nesterov": (["--optimizer", "sgd", "--lr", "0.01", "--momentum", "0.9", "--weight-decay", "0.001", "--nesterov"],
                 lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=0.001, nesterov=True)),
    "adam": (["--optimizer", "adam", "--lr", "0.001", "--eps", "1e-4", "--weight-decay", "0.001"],
             lambda p: torch.optim.Adam(p, lr=0.001, eps=1e-4, weight_decay=0.001)),
    "adamw": (["--optimizer", "adamw", "--lr", "0.001", "--eps", "1e-4", "--weight-decay", "0.01"],
              lambda p: torch.optim.AdamW(p, lr=0.001, eps=1e-4, weight_decay=0.01)),
    # With its own eps and clipping, as a recipe uses it: where sqrt(v) is near 1e-6, the trust ratio depends on eps.
    "lamb": (["--optimizer", "lamb", "--lr", "0.005", "--weight-decay", "0.02"], lambda p: Lamb(p, lr=0.005, weight_decay=0.02)),
}


def groups(module, optimizer, lr):
    """--freeze and --lr-scale of the cases below as PyTorch's parameter groups."""
    rates = {}
    for name, parameter in module.named_parameters():
        if name.startswith(("conv1.", "layer1.0.")) or name.endswith("bn2.bias"):
            parameter.requires_grad_(False)
        else:
            factor = 3 if name.startswith("layer3.") else 0.5 if name == "fc.bias" else 1
            rates.setdefault(factor, []).append(parameter)
    return optimizer([{"params": parameters, "lr": factor * lr} for factor, parameters in rates.items()])


GROUPS = ["--freeze", "conv1.*,layer1.0.*,*bn2.bias", "--lr-scale", "*=7,*=1,layer3.*=3,fc.bias=0.5"]
def with_frozen_norms(module):
    """--frozen-norms running: most norms are in the mode of evaluation, between trained convolutions and after a frozen stem."""
    for name, part in module.named_modules():
        if isinstance(part, torch.nn.BatchNorm2d) and not name.startswith("layer3.1."):
            part.requires_grad_(False).eval()
    module.conv1.requires_grad_(False)
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return torch.optim.SGD(trained, lr=0.01, momentum=0.9, weight_decay=0.001)


FROZEN_NORMS = ["--freeze", "conv1.*,bn1.*,layer[12].*.bn?.*,layer3.0.bn?.*,*.downsample.1.*", "--frozen-norms", "running"]
GROUP_OPTIMIZERS = {
    # name: (lockstep options, update of a module)
    "sgd-groups": (OPTIMIZERS["sgd"][0] + GROUPS,
                   lambda m: groups(m, lambda p: torch.optim.SGD(p, lr=0, momentum=0.9, weight_decay=0.001), 0.01)),
    "sgd-frozen-norms": (OPTIMIZERS["sgd"][0] + FROZEN_NORMS, with_frozen_norms),
    "adamw-groups": (OPTIMIZERS["adamw"][0] + GROUPS,
                     lambda m: groups(m, lambda p: torch.optim.AdamW(p, eps=1e-4, weight_decay=0.01), 0.001)),
}
THRESHOLD = 0.2


def shares_of(labels, partners, weights, classes):
    """The share of each class in the targets of mixed samples, (N, K)."""
    one_hot = torch.nn.functional.one_hot(labels, classes).double()
    weights = weights.double()[:, None]
    return weights * one_hot + (1 - weights) * one_hot[partners]


def criterion_of(loss_name, smoothing):
    """The loss of logits and targets, which are classes (N,) or shares of classes (N, K). Binary cross entropy as in timm."""
    if "bce" not in loss_name and "mse" not in loss_name:
        return torch.nn.CrossEntropyLoss(label_smoothing=smoothing)

    def of_shares(logits, target):
        if target.dim() == 1:
            target = torch.nn.functional.one_hot(target, logits.shape[1]).to(logits.dtype)
        target = (1 - smoothing) * target + smoothing / logits.shape[1]
        if "threshold" in loss_name:
            target = target.gt(THRESHOLD).to(logits.dtype)
        if "mse" in loss_name:
            return torch.nn.functional.mse_loss(logits, target)
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, target)

    return of_shares


def run_torch(module, optimizer, images, labels, steps, criterion):
    """Results of a PyTorch run: logits, loss, gradients of the first step; parameters and statistics at the end.

    Labels are as for criterion_of().
    """
    dtype = images.dtype
    if labels.dim() == 2:
        labels = labels.to(dtype)
    module = module.to(dtype).train()
    update = optimizer(module)
    result = {}
    for step in range(steps):
        update.zero_grad()
        logits = module(images)
        loss = criterion(logits, labels)
        loss.backward()
        if step == 0:
            result["logits"] = logits.detach().double().numpy().ravel()
            result["loss"] = np.array([loss.item()])
            for name, p in module.named_parameters():
                gradient = p.grad if p.requires_grad else torch.zeros_like(p)
                result["gradients/" + name] = gradient.double().numpy().ravel().copy()
        update.step()
    for name, p in module.named_parameters():
        result["model/" + name] = p.detach().double().numpy().ravel()
    for name, b in module.named_buffers():
        if not name.endswith("num_batches_tracked"):
            result["statistics/" + name] = b.double().numpy().ravel()
    return result


def pick_start(make, optimizer, shape, classes, steps, criterion, is_mixed):
    """Finds a start where the float64 run is continuous within rounding, for networks small enough to have one.

    ReLU's derivative jumps at 0: if a value is as close to 0 as a rounding error, two correct fp32 programs may differ by a
    whole gradient entry. A small network soon has a seed without such a value. A large one has none, and there the error of
    fp32 PyTorch includes the effect.
    """
    batch, channels, size = shape
    for seed in range(1, 200 if size <= 16 else 2):
        torch.manual_seed(seed)
        module = make()
        state = {name: value.clone() for name, value in module.state_dict().items()}
        images = torch.randn(batch, channels, size, size).double()
        labels = torch.randint(classes, (batch,))
        partners = torch.arange(batch) ^ 1 if is_mixed else torch.arange(batch)
        weights = torch.rand((batch + 1) // 2).repeat_interleave(2)[:batch] if is_mixed else torch.ones(batch)
        target = shares_of(labels, partners, weights, classes) if is_mixed else labels
        nearest = [np.inf]

        def look(_, inputs):
            sizes = inputs[0].abs()
            # Where a branch is dropped, the input is an earlier ReLU's output: its zeros are exact in every program.
            nearest.append(sizes[sizes > 0].min().item() / inputs[0].std().item())

        for part in module.modules():
            if isinstance(part, torch.nn.ReLU):
                part.register_forward_pre_hook(look)
        exact = run_torch(module, optimizer, images, target, steps, criterion)
        if min(nearest) > MARGIN:
            break
    return state, images, (labels, partners, weights), target, exact


def vary(images, variant):
    """The images as other correct fp32 programs might process them: in another memory format, or one ulp away."""
    if variant == 0:
        return images
    if variant == 1:
        return images.contiguous(memory_format=torch.channels_last)
    torch.manual_seed(variant)
    return images * (1 + (torch.randint(0, 3, images.shape) - 1) * 2.0**-23)


def relative_error(value, exact):
    return np.linalg.norm(value - exact) / max(np.linalg.norm(exact), 1e-12)


def main():
    step_dump, case, optimizer_name, *loss_name = sys.argv[1:]
    loss_name = loss_name[0] if loss_name else "cross-entropy"
    is_mixed = "mixed" in loss_name
    loss_options = [word for name in ("bce", "mse") if name in loss_name for word in ("--loss", name)]
    if "threshold" in loss_name:
        loss_options += ["--bce-target-threshold", str(THRESHOLD)]
    torch.set_num_threads(len(os.sched_getaffinity(0)))  # some builds start with one thread
    make, options, channels, size, classes, batch, steps = CASES[case]
    if optimizer_name in GROUP_OPTIMIZERS:
        optimizer_options, optimizer = GROUP_OPTIMIZERS[optimizer_name]
    else:
        optimizer_options, of_parameters = OPTIMIZERS[optimizer_name]

        def optimizer(module):
            return of_parameters(module.parameters())
    smoothing = 0.1 if optimizer_name == "adam" else 0.0
    criterion = criterion_of(loss_name, smoothing)
    state, images, (labels, partners, weights), target, exact = pick_start(
        make, optimizer, (batch, channels, size), classes, steps, criterion, is_mixed)

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        # The code of docs/file-formats.md: a PyTorch module as a checkpoint.
        with h5py.File(folder / "start.h5", "w") as file:
            for name, value in state.items():
                if not name.endswith("num_batches_tracked"):
                    file["model/" + name.replace(".block.", ".")] = value.numpy()
        with h5py.File(folder / "input.h5", "w") as file:
            file["images"] = images.float().numpy()
            file["labels"] = labels.int().numpy()
            if is_mixed:
                file["partners"] = partners.int().numpy()
                file["weights"] = weights.numpy()
            if case == "mini-resnet-dropping":
                file["dropped"] = np.array(MiniResNetDropping.DROPPED, "u8")
        subprocess.run([step_dump, folder / "start.h5", folder / "input.h5", folder / "output.h5", str(steps),
                        *options, "--synthetic", "--classes", str(classes), "--label-smoothing", str(smoothing),
                        *([] if optimizer_name == "lamb" else ["--decay-norm-and-bias"]), *optimizer_options, *loss_options], check=True)
        with h5py.File(folder / "output.h5") as file:
            ours = {"logits": file["logits"][...].astype("f8").ravel(), "loss": np.array([file.attrs["loss"]])}
            for group in ("gradients", "model", "statistics"):
                for name in file[group]:
                    ours[f"{group}/{name}"] = file[group][name][...].astype("f8").ravel()

    peers = []
    for variant in VARIANTS if size <= 32 else VARIANTS_OF_LARGE:
        single = make()
        single.load_state_dict(state)
        peers.append(run_torch(single, optimizer, vary(images.float(), variant), target, steps, criterion))

    missing = set(exact) - set(ours)
    assert not missing, f"not written: {sorted(missing)}"
    worst = []
    for name, value in exact.items():
        error = relative_error(ours[name], value)
        peer = max(relative_error(fp32[name], value) for fp32 in peers)
        worst.append((error / (4 * peer + MINIMUM_ERROR), error, peer, name))
    worst.sort(reverse=True)
    for ratio, error, peer, name in worst[:3]:
        print(f"{case} {optimizer_name} {name}: error {error:.2e}, fp32 PyTorch {peer:.2e}, {ratio:.2f} of the bound")
    assert worst[0][0] <= 1, f"{worst[0][3]} is further from float64 PyTorch than four times fp32 PyTorch"


if __name__ == "__main__":
    main()
