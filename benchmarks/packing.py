#!/usr/bin/env python3
"""packing.py LOCKSTEP OUTPUT.json: measures the packing of JPEG files on 1, 2 and 4 ranks, and predicts it for ImageNet.

All pack the same generated images of 500 x 375 pixels, about as large as ImageNet's (1,281,167 training and 50,000 validation images, 110 kB each), from
the page cache: as pixels, as the files are, and resized and encoded again. The prediction is of nodes with --cores-per-node cores, one rank on each,
that pack as fast as each of as many ranks here as there are cores, if the file system reads and writes as many bytes/s as that takes; and of a file
system that reads and writes 1 GB/s in all.
--python needs Pillow and numpy.
"""

import pathlib
import shutil
import tempfile

from compare_loaders import MAKE
from harness import CORES, arguments, bench_step, comparison, in_turn, measured, note_of_others, others_in, spread_of, write

GENERATED, COPIES = 1024, 4
IMAGENET = 1_281_167 + 50_000
RANKS = (1, 2, 4)
NODES = (1, 16)
FORMS = {"pixels": ["--image-size", 224], "files as they are": ["--keep-encoded"],
         "files of short side 256": ["--keep-encoded", "--short-side", 256]}


def pack(program, images, output, ranks, options):
    shutil.rmtree(output, ignore_errors=True)
    launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", ranks] if ranks > 1 else []
    run = measured([*launch, program, "pack", "--from", "folder", "--input", images, "--output", output, "--shards", 16, *options, "--json"])
    return {**run, "images_per_second": run["samples"] / run["seconds"]}


def predicted(rate_per_rank, read, written, cores):
    """For each number of nodes, the minutes of ImageNet and MB/s of the whole job; `read` and `written` are bytes an image."""
    minutes_of_bytes = IMAGENET * (read + written) / 1e9 / 60
    rows = []
    for nodes in NODES:
        rate = rate_per_rank * cores * nodes
        rows.append({"nodes": nodes, "minutes": IMAGENET / rate / 60, "images_per_second": rate,
                     "minutes_at_1_gigabyte_per_second": max(IMAGENET / rate / 60, minutes_of_bytes),
                     "read_megabytes_per_second": rate * read / 1e6, "written_megabytes_per_second": rate * written / 1e6})
    return rows


def counted(number, what):
    return f"{number} {what}{'s' if number > 1 else ''}"


def main():
    parser = arguments(__doc__, 3)
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--cores-per-node", type=int, default=32)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        images, output = pathlib.Path(folder, "images"), pathlib.Path(folder, "shards")
        measured([options.python, "-c", MAKE, images, GENERATED, 96])
        for path in list(images.rglob("*.jpg")):
            for copy in range(1, COPIES):
                shutil.copy(path, path.with_stem(f"{path.stem}-{copy}"))
        sizes = [path.stat().st_size for path in images.rglob("*.jpg")]
        read = sum(sizes) / len(sizes)
        result = comparison("packing of JPEG files", options, images=len(sizes), bytes_per_image=read, cores=CORES, cores_per_node=options.cores_per_node,
                            machine=measured(bench_step(options.lockstep, model="mlp", image_size=8, steps=1))["machine"], rows=[])
        for form, arguments_of_form in FORMS.items():
            runs = in_turn(options.rounds, {ranks: lambda ranks=ranks: pack(options.lockstep, images, output, ranks, arguments_of_form) for ranks in RANKS})
            others = others_in(runs.values())
            rates = {ranks: spread_of(of, "images_per_second") for ranks, of in runs.items()}
            written = runs[1][0]["bytes"] / len(sizes)
            prediction = predicted(rates[CORES]["median"] / CORES, read, written, options.cores_per_node)
            result["rows"].append({"form": form, "options": arguments_of_form, "images_per_second": rates, "bytes_per_packed_image": written,
                                   "others_share_of_machine": others, "predicted_imagenet": prediction})
            print(f"{form}: " + ", ".join(f"{counted(ranks, 'rank')} {rate['median']:.0f} images/s" for ranks, rate in rates.items())
                  + "; ImageNet, predicted: " + ", ".join(
                      f"{counted(row['nodes'], 'node')} {row['minutes']:.1f} min reading {row['read_megabytes_per_second']:.0f} and writing "
                      f"{row['written_megabytes_per_second']:.0f} MB/s, or {row['minutes_at_1_gigabyte_per_second']:.1f} min" for row in prediction) + note_of_others(others), flush=True)
    write(result, options.output)


if __name__ == "__main__":
    main()
