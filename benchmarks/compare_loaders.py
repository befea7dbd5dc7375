#!/usr/bin/env python3
"""compare_loaders.py LOCKSTEP OUTPUT.json: compares the loading of JPEG images with NVIDIA DALI on CPUs and with torchvision.

All read the same 2,048 generated images of 500 x 375 pixels and about 56 kB from the page cache, decode them, take a random crop (torchvision's
RandomResizedCrop), resize it to 224 x 224, mirror it at random and normalise it to fp32 planes. --threads gives each program's number of threads:
DALI's num_threads, worker processes of PyTorch's DataLoader (with one, it loads in its own process). --auto-augment gives policies of automatic
augmentation, which are compared with torchvision's only. Packages: torch, torchvision, Pillow, numpy, and
nvidia-dali-cuda120 or newer, in the Python given by --python; DALI is left out if it is not installed.
"""

import itertools
import pathlib
import subprocess
import tempfile

from harness import arguments, comparison, in_turn, measured, note_of_others, others_in, ratio, shown, spread_of, write

IMAGES = 2048

MAKE = r"""
import pathlib, sys
import numpy, PIL.Image
random = numpy.random.default_rng(1)
for i in range(int(sys.argv[2])):
    # Smooth shapes, with noise that gives the size of a photograph's file.
    coarse = PIL.Image.fromarray(random.integers(0, 256, (12, 16, 3), dtype=numpy.uint8)).resize((500, 375), PIL.Image.BICUBIC)
    fine = PIL.Image.fromarray(random.integers(0, 256, (94, 125, 3), dtype=numpy.uint8)).resize((500, 375), PIL.Image.BICUBIC)
    noise = random.normal(0, 4, (375, 500, 1))
    pixels = 0.75 * numpy.asarray(coarse, float) + 0.25 * numpy.asarray(fine, float) + noise
    folder = pathlib.Path(sys.argv[1], f"class{i % 4}")
    folder.mkdir(parents=True, exist_ok=True)
    PIL.Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8)).save(folder / f"{i:05}.jpg", quality=int(sys.argv[3]))
"""

TIME = r"""
def images_per_second(epoch):
    import json, time
    epoch()
    count, begin = 0, time.perf_counter()
    for _ in range(2):
        count += epoch()
    print(json.dumps({"images_per_second": count / (time.perf_counter() - begin)}))
"""

TORCHVISION = TIME + r"""
import sys
import torch, torchvision
from torchvision import transforms
threads = int(sys.argv[2])
policy = {"none": [], "trivialaugment": [transforms.TrivialAugmentWide()], "randaugment": [transforms.RandAugment()]}[sys.argv[4]]
torch.set_num_threads(1)
data = torchvision.datasets.ImageFolder(sys.argv[1], transforms.Compose([
    transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), *policy, transforms.ToTensor(),
    transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]))
loader = torch.utils.data.DataLoader(data, batch_size=64, shuffle=True, num_workers=0 if threads == 1 else threads, persistent_workers=threads > 1)
images_per_second(lambda: sum(len(labels) for _, labels in loader))
"""

DALI = TIME + r"""
import sys
from nvidia.dali import fn, pipeline_def, types

@pipeline_def(batch_size=64, num_threads=int(sys.argv[2]), device_id=None, prefetch_queue_depth=2)
def pipeline():
    files, labels = fn.readers.file(file_root=sys.argv[1], random_shuffle=True, name="reader")
    images = fn.decoders.image_random_crop(files, device="cpu", output_type=types.RGB, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3])
    images = fn.resize(images, resize_x=224, resize_y=224, interp_type=types.INTERP_LINEAR, antialias=True)
    return fn.crop_mirror_normalize(images, dtype=types.FLOAT, output_layout="CHW", mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375],
                                    mirror=fn.random.coin_flip()), labels
built = pipeline()
built.build()

def epoch():
    for _ in range(int(sys.argv[3]) // 64):
        built.run()
    return int(sys.argv[3]) // 64 * 64
images_per_second(epoch)
"""


def lockstep(program, shards, threads, policy):
    run = measured([program, "bench", "loader", "--data", shards, "--batch-size", 64, "--loader-threads", threads, "--auto-augment", policy, "--json"])
    loader = next(row for row in run["rows"] if row["reader"] == "loader" and row["files_in"] == "cache")
    return {**run, "images_per_second": loader["images_per_second"]}


def main():
    parser = arguments(__doc__, 5)
    parser.add_argument("--python", default="/usr/bin/python3", help="a Python with the packages of the peers")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--auto-augment", nargs="+", default=["none"], choices=["none", "trivialaugment", "randaugment"])
    options = parser.parse_args()
    has_dali = subprocess.run([options.python, "-c", "import nvidia.dali"], capture_output=True).returncode == 0
    result = comparison("loading of JPEG images", options, images=IMAGES, rows=[])
    with tempfile.TemporaryDirectory() as folder:
        images, shards = pathlib.Path(folder, "images"), pathlib.Path(folder, "shards")
        measured([options.python, "-c", MAKE, images, IMAGES, 90])
        measured([options.lockstep, "pack", "--from", "folder", "--keep-encoded", "--input", images, "--output", shards])
        result["bytes_per_image"] = sum(path.stat().st_size for path in images.rglob("*.jpg")) / IMAGES
        for threads, policy in itertools.product(options.threads, options.auto_augment):
            scripts = {"torchvision": TORCHVISION, **({"DALI": DALI} if has_dali and policy == "none" else {})}
            runs = in_turn(options.rounds, {
                "Lockstep": lambda threads=threads, policy=policy: lockstep(options.lockstep, shards, threads, policy),
                **{name: lambda script=script, threads=threads, policy=policy: measured([options.python, "-c", script, images, threads, IMAGES, policy])
                   for name, script in scripts.items()}})
            result["machine"] = runs["Lockstep"][0]["machine"]
            others = others_in(runs.values())
            row = {"threads": threads, "auto_augment": policy, "others_share_of_machine": others,
                   "images_per_second": {name: spread_of(of, "images_per_second") for name, of in runs.items()},
                   "ratios": {name: ratio(runs["Lockstep"], runs[name]) for name in scripts}}
            result["rows"].append(row)
            print(f"{threads} threads, {policy}: " + ", ".join(f"{name} {rate['median']:.0f} images/s" for name, rate in row["images_per_second"].items())
                  + "".join(f"; {shown(value)} of {name}" for name, value in row["ratios"].items()) + note_of_others(others), flush=True)
    write(result, options.output)


if __name__ == "__main__":
    main()
