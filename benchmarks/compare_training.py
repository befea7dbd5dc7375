#!/usr/bin/env python3
"""compare_training.py LOCKSTEP OUTPUT.json: compares whole training runs on Fashion-MNIST with PyTorch's, from the start of the command to its end.

mini-resnet, batch 128, SGD with momentum 0.9 and weight decay 1e-4 (not of norms and biases). The learning rate rises to 0.1 in half an epoch,
then follows a cosine. Images are padded by two pixels, cropped and flipped at random, and shuffled in each epoch; all 10,000 test images are
classified after each epoch. Lockstep reads shards through its loader, logs each step and writes its checkpoint. Default PyTorch uses torchvision's
transforms in a DataLoader with one worker; tuned PyTorch (as in compare_pytorch.py) has all images in memory and augments a whole batch at a time.
Each round has one seed and one start: every program runs once, from the weights that Lockstep initializes with that seed. The orders of samples
differ. Ratios within a round: of images/s, which is the samples of all training steps divided by their seconds, and of the seconds of whole
commands, with start, evaluation and checkpoint.
"""

import itertools
import json
import pathlib
import sys
import tempfile

import h5py
import numpy as np

from harness import arguments, bench_step, comparison, in_turn, measured, note_of_others, others_in, parity_folder, peers, ratio, shown, spread_of, write

DATA = "/usr/share/datasets/fashion-mnist"
BATCH = 128

PEER = r"""
import gzip, json, math, os, resource, sys, tempfile, time
import numpy as np, torch, torchvision
from torchvision import transforms
sys.path.insert(0, sys.argv[1])
data, width, steps, scheduled, threads, precision, batch, seed, weights, recipe = json.loads(sys.argv[2])
sys.argv = [sys.argv[0]]
from pytorch_parity import MiniResNet

def read(part):
    images = np.frombuffer(gzip.open(f"{data}/{part}-images-idx3-ubyte.gz").read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    labels = np.frombuffer(gzip.open(f"{data}/{part}-labels-idx1-ubyte.gz").read(), np.uint8, offset=8).astype(np.int64)
    return torch.from_numpy(images.copy()), torch.from_numpy(labels)

torch.manual_seed(seed)
images, labels = read("train")
mean, std = images.float().mean() / 255, images.float().std() / 255
net = MiniResNet(1, 10, width)
start = np.load(weights)
with torch.no_grad():
    for name, value in net.named_parameters():
        value.copy_(torch.from_numpy(start[name]))
format = torch.channels_last if threads else torch.contiguous_format
if threads:
    torch.set_num_threads(threads)
    net = net.to(memory_format=format)
option = lambda name: float(recipe.get(name, 0))
groups = [{"params": [value for value in net.parameters() if (value.dim() > 1) == decays], "weight_decay": option("weight-decay") * decays}
          for decays in (True, False)]
rule = {"lr": option("lr"), "momentum": 0.9, "nesterov": recipe.get("nesterov") == "true"}
try:
    sgd = torch.optim.SGD(groups, **rule, fused=True)
except (TypeError, RuntimeError):
    sgd = torch.optim.SGD(groups, **rule)
loss = torch.nn.CrossEntropyLoss(label_smoothing=option("label-smoothing"))
an_epoch = len(images) // batch
warmup = an_epoch * option("warmup-epochs")
decay = option("ema-decay")
average = torch.optim.swa_utils.AveragedModel(
    net, avg_fn=lambda mean, value, updates: decay * mean + (1 - decay) * value, use_buffers=True) if decay else None
rate = torch.optim.lr_scheduler.LambdaLR(
    sgd, lambda step: (step + 1) / warmup if step < warmup else (1 + math.cos(math.pi * min((step - warmup) / (scheduled - warmup), 1))) / 2)

def normalised(pixels):
    return ((pixels.float() / 255 - mean) / std).contiguous(memory_format=format)

augments = "augment" in recipe
padding = int(option("crop-padding"))

def cropped_and_flipped(pixels):
    if not augments:
        return pixels
    rows = torch.arange(28)[None, :, None] + torch.randint(2 * padding + 1, (len(pixels), 1, 1))
    columns = torch.arange(28)[None, None, :] + torch.randint(2 * padding + 1, (len(pixels), 1, 1))
    columns = torch.where(torch.rand(len(pixels), 1, 1) < 0.5, columns.flip(2), columns)
    padded = torch.nn.functional.pad(pixels, 4 * (padding,))
    return padded[torch.arange(len(pixels))[:, None, None], 0, rows, columns][:, None]

class Transformed(torch.utils.data.Dataset):
    changes = [transforms.RandomCrop(28, padding=padding), transforms.RandomHorizontalFlip()] if augments else []
    if "auto-augment" in recipe:
        changes = [transforms.ToPILImage(), *changes, transforms.TrivialAugmentWide(), transforms.PILToTensor()]
    change = transforms.Compose(changes)
    def __len__(self):
        return len(images)
    def __getitem__(self, index):
        return self.change(images[index]), labels[index]

def free_worker(worker):
    # A bound main thread would share its core with the worker.
    if threads:
        os.sched_setaffinity(0, range(os.cpu_count()))

def batches():
    while True:
        if threads and "auto-augment" not in recipe:
            order = torch.randperm(len(images))
            for begin in range(0, an_epoch * batch, batch):
                chosen = order[begin:begin + batch]
                yield cropped_and_flipped(images[chosen]), labels[chosen]
        else:
            yield from torch.utils.data.DataLoader(Transformed(), batch, shuffle=True, drop_last=True, num_workers=1, worker_init_fn=free_worker)

def mixed(pixels, target):
    alpha = option("mixup")
    if not alpha:
        return pixels, target
    share = float(torch._sample_dirichlet(torch.tensor([alpha, alpha]))[0])
    return [share * values + (1 - share) * values.roll(1, 0) for values in (pixels, torch.nn.functional.one_hot(target, 10).float())]

cast = lambda: torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16")
tested, answers = read("t10k")

def top1(model):
    model.eval()
    right = 0
    with torch.no_grad(), cast():
        for begin in range(0, len(tested), 500):
            right += int((model(normalised(tested[begin:begin + 500])).argmax(1) == answers[begin:begin + 500]).sum())
    model.train()
    return right / len(tested)

evaluations, trained, begin = [], 0, time.perf_counter()
for step, (pixels, target) in zip(range(steps), batches()):
    pixels, target = mixed(normalised(pixels), target)
    sgd.zero_grad(set_to_none=True)
    with cast():
        value = loss(net(pixels), target)
    value.backward()
    sgd.step()
    rate.step()
    if average and step % int(recipe["ema-every"]) == 0:
        average.update_parameters(net)
    if average and step < warmup:
        average.n_averaged.zero_()
    if (step + 1) % an_epoch == 0 or step + 1 == steps:
        trained += time.perf_counter() - begin
        evaluations.append({"top1": top1(net), **({"ema_top1": top1(average)} if average else {}), "at": time.time()})
        begin = time.perf_counter()
with tempfile.TemporaryFile() as file:
    torch.save({"model": net.state_dict(), "optimizer": sgd.state_dict()}, file)
print(json.dumps({"images_per_second": batch * steps / trained, "top1": evaluations[-1]["top1"], "evaluations": evaluations,
                  "threads": torch.get_num_threads(),
                  "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "version": torch.__version__}))
"""

# Options of `lockstep train` that PEER follows.
RECIPE = {"augment": "crop-flip", "crop-padding": 2, "lr": 0.1, "warmup-epochs": 0.5, "weight-decay": 1e-4}


def train_command(options, data, run, seed, **more):
    named = {"data": data, "run-dir": run, "model": "mini-resnet", "width": options.width, "batch-size": BATCH, "precision": options.precision, "seed": seed,
             "device": "cpu", **more}
    return [options.lockstep, "train", *(word for name, value in named.items() for word in (f"--{name}", value))]


def write_start(options, data, folder, seed):
    """The initial weights of a Lockstep run with that seed, as a file of NumPy's; a step with the learning rate 0 keeps them."""
    run = pathlib.Path(folder, f"start-{seed}")
    measured(train_command(options, data, run, seed, **{"lr": 0, "max-steps": 1, "conv-algorithm": "direct"}))
    with h5py.File(run / "checkpoints/latest") as file:
        np.savez(run / "weights.npz", **{name: file["model"][name][...] for name in file["model"]})
    return str(run / "weights.npz")


def lockstep(options, data, run, seed):
    """Trains and evaluates; reads the speed of the steps from the run's log."""
    done = measured(train_command(options, data, run, seed, **RECIPE, **{"epochs": options.epochs, "max-steps": options.steps, "log-every": 1}))
    if options.steps:
        # Training that --max-steps ends is paused, so it does not evaluate.
        evaluated = measured([options.lockstep, "eval", "--checkpoint", f"{run}/checkpoints/latest", "--data", data, "--device", "cpu", "--json"])
        done["command_seconds"] += evaluated["command_seconds"]
    events = [json.loads(line) for line in (pathlib.Path(run) / "metrics.jsonl").read_text().splitlines()]
    top1 = [event["top1"] for event in events if event["event"] == "eval"]
    if options.steps:
        top1 = [evaluated["top1"]]
    seconds = [1 / event["images_per_second"] for event in events if event["event"] == "step"]
    if not top1:
        sys.exit(f"{run} was not evaluated (metrics.jsonl holds no `eval`)")
    return {**done, "top1": top1[-1], "images_per_second": len(seconds) / sum(seconds)}


def described(runs):
    return {key: spread_of(runs, key) for key in ("command_seconds", "top1", "images_per_second")}


def main():
    parser = arguments(__doc__, rounds=2)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0, help="stop after this many steps, without changing the schedule (0: after --epochs)")
    parser.add_argument("--python", action="append", help="as in compare_pytorch.py")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/data"
        measured([options.lockstep, "pack", "--from", "mnist", "--input", DATA, "--output", data, "--shards", 4])
        scheduled = options.epochs * (60000 // BATCH)
        steps = options.steps or scheduled
        beside_it = peers(options.python or ["/usr/bin/python3"])

        starts = [write_start(options, data, folder, seed) for seed in range(options.rounds)]
        seeds = {name: itertools.count() for name in ("lockstep", *beside_it)}

        def train_peer(peer):
            seed = next(seeds[peer])
            return peer.run(PEER, parity_folder(),
                            json.dumps([DATA, options.width, steps, scheduled, peer.threads, options.precision, BATCH, seed, starts[seed], RECIPE]))

        runs = in_turn(options.rounds, {"lockstep": lambda: lockstep(options, data, tempfile.mkdtemp(dir=folder) + "/run", next(seeds["lockstep"])),
                                        **{peer: lambda peer=peer: train_peer(peer) for peer in beside_it}})
        ours = runs["lockstep"]
        loading = measured([options.lockstep, "bench", "loader", "--data", data, "--batch-size", BATCH, "--loader-threads", 1, "--json"])
        engine = measured(bench_step(options.lockstep, model="mini-resnet", image_size=28, channels=1, classes=10, width=options.width,
                                     batch_size=BATCH, precision=options.precision, steps=1))
    others = others_in(runs.values())
    result = comparison("training beside PyTorch", options, machine=engine["machine"], engine=engine["engine"], data="Fashion-MNIST",
                        model="mini-resnet", width=options.width, batch=BATCH, precision=options.precision, steps=steps,
                        others_share_of_machine=others, lockstep=described(ours), peers=[])
    in_cache = next(row for row in loading["rows"] if row["reader"] == "loader" and row["files_in"] == "cache")
    result["loader_images_per_second"] = in_cache["images_per_second"]
    result["loader_to_training"] = in_cache["images_per_second"] / result["lockstep"]["images_per_second"]["median"]
    print(f"mini-resnet of width {options.width}, {options.precision}, {steps} steps of {BATCH}: Lockstep {result['lockstep']['command_seconds']['median']:.1f} s, "
          f"top-1 {result['lockstep']['top1']['median']:.4f}; its loader can supply {result['loader_to_training']:.0f} times "
          f"the images that a step needs{note_of_others(others)}")
    for peer in beside_it:
        theirs = runs[peer]
        row = {"pytorch": theirs[0]["version"], "form": peer.form, "threads": theirs[0]["threads"], **described(theirs),
               "ratio": ratio(ours, theirs), "command_ratio": ratio(theirs, ours, "command_seconds")}
        result["peers"].append(row)
        print(f"  of PyTorch {row['pytorch']} {row['form']:<7} ({row['command_seconds']['median']:.1f} s, top-1 {row['top1']['median']:.4f}): "
              f"{shown(row['ratio'])}, whole command {shown(row['command_ratio'])}")
    write(result, options.output)


if __name__ == "__main__":
    main()
