#!/usr/bin/env python3
"""imagenet_parity.py LOCKSTEP DATASET_DUMP EVALUATION_DUMP: JPEG files in class folders, packed, cropped and evaluated, beside torchvision.

The files are of 50 classes, of 300 to 600 columns and of several aspect ratios, with textures, so that resampling shows. What is compared is the
recipe of recipes/imagenet-resnet50.conf, torchvision's IMAGENET1K_V1, with its transforms: RandomResizedCrop(224) and RandomHorizontalFlip in training,
Resize(256) and CenterCrop(224) in evaluations. With LOCKSTEP_TEST_SOAK there are 40 files a class instead of 2.
"""

import io
import os
import pathlib
import subprocess
import sys
import tempfile

from pytorch_parity import h5py, np, torch, torchvision

from PIL import Image
from torchvision import transforms
from torchvision.transforms import functional

LOCKSTEP, DATASET_DUMP, EVALUATION_DUMP = sys.argv[1:]
SOAK = bool(os.environ.get("LOCKSTEP_TEST_SOAK"))
CLASSES, SIZE = 50, 224
FILES_OF_A_PART, EPOCHS = (20, 100) if SOAK else (1, 200)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
ASPECTS = (4 / 3, 4 / 3, 3 / 2, 3 / 4, 1, 16 / 9, 2 / 3, 5 / 2)
NORMALIZED = transforms.Compose([transforms.ToTensor(), transforms.Normalize(MEAN, STD)])
NORMALIZATION = ["--mean", ",".join(map(str, MEAN)), "--std", ",".join(map(str, STD))]
ONE_LEVEL = 1 / 255 / np.array(STD)[:, None, None] * 1.001


def picture(label, seed):
    """Waves, rectangles and noise, in the colours of the class."""
    random, of_class = np.random.default_rng([seed, label]), np.random.default_rng(label)
    width = int(random.integers(300, 601))
    height = round(width / ASPECTS[random.integers(len(ASPECTS))])
    y, x = np.mgrid[:height, :width].astype("f4")
    image = np.zeros((height, width, 3), "f4") + of_class.uniform(60, 200, 3).astype("f4")
    for shortest in (3, 6, 15, 40):
        direction, frequency = random.uniform(0, np.pi), 2 * np.pi / shortest / random.uniform(1, 2)
        wave = np.sin(x * np.float32(np.cos(direction) * frequency) + y * np.float32(np.sin(direction) * frequency) + np.float32(random.uniform(0, 6)))
        image += wave[..., None] * of_class.uniform(-30, 30, 3).astype("f4")
    for _ in range(6):
        top, left = random.integers(height), random.integers(width)
        image[top:top + random.integers(20, 150), left:left + random.integers(20, 150)] += random.uniform(-60, 60, 3).astype("f4")
    image += 8 * random.standard_normal(image.shape, "f4")
    return Image.fromarray(np.clip(image, 0, 255).astype("u1"))


def write_files(folder):
    for part, first in (("train", 0), ("val", 1000)):
        for label in range(CLASSES):
            (folder / part / f"{label:02}").mkdir(parents=True)
            for i in range(FILES_OF_A_PART):
                picture(label, first + i).save(folder / part / f"{label:02}" / f"{i}.jpg", quality=90)


def run(*arguments):
    done = subprocess.run([LOCKSTEP, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments[0]} ended with {done.returncode}:\n{done.stderr}"


def pack(files, output, *options):
    run("pack", "--from", "folder", "--input", files, "--output", output, *options)
    return output


def packed(files, shards, part):
    """The samples of a part in the order of the shards, as bytes and labels. They are the files, and the labels are their folders."""
    found = []
    for shard in sorted(shards.glob(f"{part}-*.h5")):
        with h5py.File(shard) as file:
            ends, encoded = file["offsets"][...].astype(int), file["encoded"][...].tobytes()
            found += [(encoded[begin:end], int(label)) for begin, end, label in zip(ends, ends[1:], file["labels"])]
    written = [(path.read_bytes(), int(path.parent.name)) for path in files.glob(f"{part}/*/*.jpg")]
    assert sorted(found) == sorted(written) and len(found) == CLASSES * FILES_OF_A_PART, f"{shards} does not hold the files of {part}"
    return found


def opened(data):
    return Image.open(io.BytesIO(data)).convert("RGB")


def crops_of_training(shards, epochs):
    """(epochs, N, 7): height and width of the image; top, left, height and width of the crop; whether it is mirrored."""
    output = subprocess.run([DATASET_DUMP, shards, "crops", str(SIZE), str(epochs)], check=True, capture_output=True, text=True).stdout
    return np.array(output.split(), int).reshape(epochs, -1, 7)


def torchvisions_crops(sizes):
    """(N, 2): height and width of a random crop of each image of (height, width)."""
    draw = transforms.RandomResizedCrop.get_params
    return np.array([draw(torch.empty(1, height, width), (0.08, 1.0), (3 / 4, 4 / 3))[2:] for height, width in sizes])


def zooms(crops):
    """The factors by which crops (N, 2) are enlarged to the network's input: the roots of the areas' ratios."""
    return SIZE / np.sqrt(crops[:, 0] * crops[:, 1])


def check_same_zooms(what, ours, theirs):
    """Kolmogorov's and Smirnov's distance is above this bound with probability 0.001; the seeds are fixed."""
    for name, values in ((what, ours), ("  torchvision's", theirs)):
        print(f"{name}: {(values > 1).mean():.1%} of the crops are enlarged; mean zoom {values.mean():.3f}, of {len(values)} crops")
    points = np.union1d(ours, theirs)
    distance = np.abs(np.searchsorted(np.sort(ours), points, "right") / len(ours) - np.searchsorted(np.sort(theirs), points, "right") / len(theirs)).max()
    assert distance < 1.95 * (1 / len(ours) + 1 / len(theirs)) ** 0.5, (what, distance)


def check_crops(whole, square, samples):
    """Whole files are cropped as by torchvision; squares of 224 pixels leave nothing but enlarged crops."""
    torch.manual_seed(1)
    sizes = np.array([opened(data).size[::-1] for data, _ in samples])
    crops = crops_of_training(whole, EPOCHS)
    assert (crops[..., :2] == sizes).all(), "crops are drawn in images of other sizes"
    theirs = zooms(torchvisions_crops(np.tile(sizes, (EPOCHS, 1))))
    check_same_zooms("whole files", zooms(crops[..., 4:6].reshape(-1, 2)), theirs)
    mirrored = crops[..., 6].mean()
    assert abs(mirrored - 0.5) < 2 / crops[..., 6].size ** 0.5, f"{mirrored:.1%} of the crops are mirrored"
    of_squares = crops_of_training(square, EPOCHS)
    assert (of_squares[..., :2] == SIZE).all()
    of_squares = zooms(of_squares[..., 4:6].reshape(-1, 2))
    check_same_zooms("packed as 224 x 224", of_squares, zooms(torchvisions_crops(np.full((len(of_squares), 2), SIZE))))
    return crops[0]


def values_of_training(shards):
    """The network's inputs (3, SIZE, SIZE) of the first epoch, one after the other."""
    dump = subprocess.Popen([DATASET_DUMP, shards, "values", str(SIZE)], stdout=subprocess.PIPE)
    bytes_of_one = 3 * SIZE * SIZE * 4
    while values := dump.stdout.read(bytes_of_one):
        yield np.frombuffer(values, "f4").reshape(3, SIZE, SIZE)
    assert dump.wait() == 0


def check_values(shards, samples, crops):
    """The network gets the pixels of torchvision's crop of the same region, up to one level; their means and variances are those of its own crops."""
    random = transforms.Compose([transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip(), NORMALIZED])
    torch.manual_seed(2)
    largest, differ, statistics = 0, [], []
    for values, (data, _), (_, _, *region, flip) in zip(values_of_training(shards), samples, crops):
        image = opened(data)
        same = functional.resized_crop(image, *region, [SIZE, SIZE])
        same = NORMALIZED(functional.hflip(same) if flip else same).numpy()
        levels = np.abs(values - same) / ONE_LEVEL
        largest = max(largest, levels.max())
        differ.append((levels > 0.5).mean())
        own = random(image).numpy()
        statistics.append([[array.mean((1, 2)), array.var((1, 2))] for array in (values, own)])
    statistics = np.array(statistics)  # (N, ours or theirs, mean or variance, channel)
    assert len(statistics) == len(samples)
    for name, ours, theirs in zip(("means", "variances"), *statistics.mean(0)):
        print(f"{name} of the channels of {len(samples)} crops: {ours.round(3)}, torchvision's {theirs.round(3)}")
    print(f"training's pixels: at most {largest:.2f} levels from torchvision's crops of the same regions; {np.mean(differ):.2%} differ")
    assert largest <= 1, largest
    difference = statistics[:, 0] - statistics[:, 1]
    assert (np.abs(difference.mean(0)) < 4 * difference.std(0) / len(samples) ** 0.5).all(), "means or variances of the channels differ"


def random_weights(folder, _, inputs):
    """resnet50 with running statistics of the inputs, and the arguments that evaluate it. Blocks begin near the identity, as trained ones do to rounding:
    with others, differences of one level grow to the size of the logits."""
    torch.manual_seed(3)
    module = torchvision.models.resnet50(num_classes=CLASSES)
    for name, part in module.named_modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.momentum = 1
            torch.nn.init.constant_(part.weight, 0.2 if name.endswith("bn3") else 1)
    module.train()(torch.stack(inputs[:10]))
    with h5py.File(folder / "weights.h5", "w") as file:
        for key, value in module.state_dict().items():
            if not key.endswith("num_batches_tracked"):
                file["model/" + key] = value.numpy()
    return module, ["--checkpoint", folder / "weights.h5", "--model", "resnet50", "--image-size", str(SIZE), *NORMALIZATION]


def trained_weights(folder, shards, _):
    """resnet50 after some steps of the recipe, from `lockstep export`, and the arguments that evaluate it."""
    recipe = pathlib.Path(__file__).resolve().parents[2] / "recipes" / "imagenet-resnet50.conf"
    run("train", "--config", recipe, "--data", shards, "--run-dir", folder / "run", "--global-batch-size", "20", "--lr", "0.02", "--max-steps", "50",
        *NORMALIZATION)
    checkpoint = folder / "run" / "checkpoints" / "latest"
    run("export", checkpoint, "--format", "torchvision", "--output", folder / "weights.pth")
    module = torchvision.models.resnet50(num_classes=CLASSES)
    module.load_state_dict(torch.load(folder / "weights.pth"))
    return module, ["--checkpoint", checkpoint]


def logits_of(module, images):
    """(N, CLASSES) of tensors (3, SIZE, SIZE)."""
    return torch.cat([module(torch.stack(images[i:i + 25])) for i in range(0, len(images), 25)]).double().numpy()


def check_logits(folder, shards, samples, weights):
    """Evaluations see torchvision's pixels, up to one level, and compute its logits of them."""
    transform = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(SIZE)])
    theirs = np.stack([np.asarray(transform(opened(data))) for data, _ in samples])
    output = subprocess.run([EVALUATION_DUMP, shards, str(SIZE), "256", "bilinear"], check=True, capture_output=True).stdout
    ours = np.frombuffer(bytearray(output), "u1").reshape(theirs.shape)
    pixels = np.abs(theirs.astype("i2") - ours)
    print(f"evaluation's pixels: at most {pixels.max()} levels from torchvision's; {(pixels > 0).mean():.2%} differ")
    theirs, ours = ([NORMALIZED(image) for image in images] for images in (theirs, ours))
    module, arguments = weights(folder, shards, theirs)
    module.eval()
    run("eval", *arguments, "--data", shards, "--batch-size", "25", "--predictions", folder / "predictions.h5")
    with h5py.File(folder / "predictions.h5") as file:
        found, labels = file["logits"][...].astype("f8"), file["labels"][...]
    assert list(labels) == [label for _, label in samples]
    wanted, of_our_pixels = logits_of(module, theirs), logits_of(module, ours)
    # A class's logits vary by this much between images.
    spread = wanted.std(0).mean()
    parts = {"in all": (found, wanted), "by pixels": (of_our_pixels, wanted), "by arithmetic": (found, of_our_pixels)}
    errors = {name: np.abs(one - other).max() / spread for name, (one, other) in parts.items()}
    print(f"{weights.__name__}: largest difference of a logit, divided by their standard deviation: "
          + ", ".join(f"{name} {error:.2e}" for name, error in errors.items())
          + f"; {(found.argmax(1) == wanted.argmax(1)).mean():.1%} of the predictions are equal")
    assert pixels.max() <= 1, f"pixels differ by up to {pixels.max()} levels"
    assert errors["by arithmetic"] < 1e-3 and errors["in all"] < 0.2, errors


def main():
    with tempfile.TemporaryDirectory() as name, torch.no_grad():
        folder = pathlib.Path(name)
        write_files(folder / "files")
        whole = pack(folder / "files", folder / "whole", "--keep-encoded")
        square = pack(folder / "files", folder / "square", "--image-size", str(SIZE))
        samples = packed(folder / "files", whole, "train")
        crops = check_crops(whole, square, samples)
        check_values(whole, samples, crops)
        check_logits(folder, whole, packed(folder / "files", whole, "val"), trained_weights if SOAK else random_weights)


if __name__ == "__main__":
    main()
