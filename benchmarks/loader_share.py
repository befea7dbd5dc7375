#!/usr/bin/env python3
"""loader_share.py LOCKSTEP OUTPUT.json: measures how much of a training step of resnet50 waits for the loader.

Trains on JPEG images of 500 x 375 pixels, with a random resized crop of 224 x 224, flips, TrivialAugment, mixup and random erasing, and reads the phases of
each step from metrics.jsonl. --python needs Pillow and numpy.
"""

import json
import pathlib
import shutil
import tempfile

from compare_loaders import MAKE
from harness import arguments, bench_step, comparison, measured, note_of_others, spread, write

IMAGES, BATCH, STEPS, WARMUP = 512, 16, 24, 4


def train(program, data, run_dir, precision, threads):
    shutil.rmtree(run_dir, ignore_errors=True)
    run = measured([program, "train", "--data", data, "--run-dir", run_dir, "--model", "resnet50", "--image-size", 224, "--batch-size", BATCH,
                    "--max-steps", STEPS, "--augment", "resized-crop", "--auto-augment", "trivialaugment", "--mixup", 0.2, "--random-erasing", 0.1,
                    "--lr", 0.01, "--log-every", 1, "--precision", precision, "--loader-threads", threads, "--device", "cpu"])
    events = [json.loads(line) for line in (pathlib.Path(run_dir) / "metrics.jsonl").read_text().splitlines()]
    steps = [event for event in events if event["event"] == "step" and event["step"] > WARMUP]
    return {**run, "share": sum(step["seconds"]["data"] for step in steps) / sum(sum(step["seconds"].values()) for step in steps),
            "images_per_second": BATCH * len(steps) / sum(sum(step["seconds"].values()) for step in steps)}


def main():
    parser = arguments(__doc__, 3, precisions=True)
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--loader-threads", type=int, nargs="+", default=[0, 1])
    options = parser.parse_args()
    result = comparison("share of a step that waits for the loader", options, model="resnet50", batch_size=BATCH, steps=STEPS - WARMUP,
                        machine=measured(bench_step(options.lockstep, model="mlp", image_size=8, steps=1))["machine"], rows=[])
    with tempfile.TemporaryDirectory() as folder:
        images, shards = pathlib.Path(folder, "images"), pathlib.Path(folder, "shards")
        measured([options.python, "-c", MAKE, images, IMAGES, 90])
        measured([options.lockstep, "pack", "--from", "folder", "--keep-encoded", "--input", images, "--output", shards])
        for precision in options.precision:
            for threads in options.loader_threads:
                runs = [train(options.lockstep, shards, pathlib.Path(folder, "run"), precision, threads) for _ in range(options.rounds)]
                row = {"precision": precision, "loader_threads": threads, "share": spread([run["share"] for run in runs]),
                       "images_per_second": spread([run["images_per_second"] for run in runs]), "others_share_of_machine": max(run["others"] for run in runs)}
                result["rows"].append(row)
                print(f"resnet50 {precision}, {threads} loader threads: {row['images_per_second']['median']:.1f} images/s, of which "
                      f"{row['share']['median']:.2%} ({row['share']['min']:.2%}-{row['share']['max']:.2%}) waits for the loader"
                      f"{note_of_others(row['others_share_of_machine'])}", flush=True)
    write(result, options.output)


if __name__ == "__main__":
    main()
