"""Reads shards that h5py wrote: minimal, chunked and compressed, with other integer types, in PyTorch's order, and 20 GiB sparse."""

import pathlib
import shlex
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy as np
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

PROGRAM = sys.argv[1]
LABELS = np.arange(20) % 7
IMAGES = np.random.default_rng(1).integers(0, 256, (20, 8, 9, 3), dtype="u1")


def dump(write):
    """Returns the reader's output for a split of one shard: properties, a checksum of all samples in order, peak memory, notes."""
    with tempfile.TemporaryDirectory() as directory:
        with h5py.File(pathlib.Path(directory) / "train-00000-of-00001.h5", "w") as file:
            write(file)
        result = subprocess.run([PROGRAM, directory], capture_output=True, text=True, check=True)
    return result.stdout.splitlines()


def minimal(file):
    file["images"] = IMAGES
    file["labels"] = LABELS


def compressed(file):
    file.create_dataset("images", data=IMAGES, chunks=(3, 8, 9, 3), compression="gzip", shuffle=True)
    file.create_dataset("labels", data=LABELS, chunks=(4,))


def chunked_big_endian(file):
    file.create_dataset("images", data=IMAGES, chunks=True)
    file["labels"] = LABELS.astype(">i2")


def attributes(file):
    minimal(file)
    file.attrs["classes"] = 7
    file.attrs["mean"] = [0.1, 0.2, 0.3]
    file.attrs["std"] = np.array([0.5, 0.5, 0.5], "f4")
    file.attrs["class_names"] = [f"name {i}" for i in range(7)]
    file.attrs["format"] = "lockstep-shard"
    file.attrs["version"] = 1


def sparse(file):
    space = h5py.h5s.create_simple((20 * 2**20, 32, 32, 1))
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    h5py.h5d.create(file.id, b"images", h5py.h5t.STD_U8LE, space, plist)
    file.create_dataset("labels", shape=(20 * 2**20,), dtype="u1", data=np.zeros(20 * 2**20, "u1"))


plain = dump(minimal)
assert plain[0] == "samples 20 classes 7 image 8x9x3 notes 3", plain
for write in (compressed, chunked_big_endian):
    other = dump(write)
    assert other[1] == plain[1], (write.__name__, plain, other)
    assert other[0].endswith("notes 4") and "slower" in " ".join(other), other
full = dump(attributes)
assert full[0] == "samples 20 classes 7 image 8x9x3 notes 0" and full[1] == plain[1], full
large = dump(sparse)
assert large[0].startswith("samples 20971520 classes 1 image 32x32x1"), large
peak_mib = int(large[2].split()[1]) / 1024
assert peak_mib < 200, f"{peak_mib} MiB"


# A shard in PyTorch's order is refused with a command that converts it to the same data set.
with tempfile.TemporaryDirectory() as directory:
    shard = pathlib.Path(directory) / "train-00000-of-00001.h5"
    with h5py.File(shard, "w") as file:
        file["images"] = IMAGES.transpose(0, 3, 1, 2)
        file["labels"] = LABELS
    refused = subprocess.run([PROGRAM, directory], capture_output=True, text=True)
    assert refused.returncode == 65 and "20x3x8x9" in refused.stderr, refused
    line = shlex.split(refused.stderr[refused.stderr.index("python3 -c"):])
    subprocess.run([sys.executable, *line[1:]], check=True)
    fixed = subprocess.run([PROGRAM, directory], capture_output=True, text=True, check=True).stdout.splitlines()
    assert fixed[:2] == plain[:2], (fixed, plain)
