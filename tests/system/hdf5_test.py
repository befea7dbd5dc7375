#!/usr/bin/env python3
"""Tests that HDF5 files of strangers, by whatever command they are opened, are refused or read, and reach nothing outside of them."""

import resource
import struct
import zlib

from harness import *  # noqa: F403

SECRET = b"-----BEGIN PRIVATE KEY-----\n" + bytes(range(200))
MUTATIONS = 1023


def share(folder, name="shard", **create):
    """A shard as h5py writes it, with texts of variable length."""
    directory = folder / name
    directory.mkdir()
    path = directory / "train-00000-of-00001.h5"
    random = np.random.default_rng(1)
    with h5py.File(path, "w", **create) as file:
        file["images"] = random.integers(0, 255, (40, 8, 8, 3)).astype("u1")
        file["labels"] = np.arange(40) % 4
        file.attrs["format"] = "lockstep-shard"
        file.attrs["class_names"] = ["cat", "dog", "a horse of another colour", "ship"]
    return path


def checkpoint(folder):
    data = write_shards(folder / "data", samples=8, shards=1, shape=(8, 8, 3), classes=4)
    run(train_args(data, folder / "run", "--epochs", "1"))
    return latest(folder / "run")


def replace(path, group, name, change):
    """Replaces an object by what `change` puts under its name."""
    with h5py.File(path, "r+") as file:
        parent = file[group]
        values = parent[name][()]
        attributes = dict(parent[name].attrs)
        del parent[name]
        change(parent, name, values)
        if name in parent and isinstance(parent.get(name, getlink=True), h5py.HardLink):
            parent[name].attrs.update(attributes)


def to_other_file(folder):
    other = folder / "other.h5"

    def change(parent, name, values):
        with h5py.File(other, "w") as file:
            file["x"] = values
        parent[name] = h5py.ExternalLink(str(other), "/x")
    return change, "link to another file"


def to_soft_link(_folder):
    def change(parent, name, values):
        parent["elsewhere"] = values
        parent[name] = h5py.SoftLink(f"{parent.name}/elsewhere")
    return change, "soft link"


def to_virtual(folder):
    source = folder / "source.h5"

    def change(parent, name, values):
        with h5py.File(source, "w") as file:
            file["x"] = values
        layout = h5py.VirtualLayout(shape=values.shape, dtype=values.dtype)
        layout[...] = h5py.VirtualSource(str(source), "x", shape=values.shape)
        parent.create_virtual_dataset(name, layout)
    return change, "virtual layout"


def to_external_storage(folder):
    secret = folder / "id_rsa"

    def change(parent, name, values):
        secret.write_bytes((SECRET * (values.nbytes // len(SECRET) + 1))[:values.nbytes])
        parent.create_dataset(name, shape=values.shape, dtype=values.dtype, external=[(str(secret), 0, values.nbytes)])
    return change, "values in other files"


def to_external_fifo(folder):
    pipe = folder / "pipe"

    def change(parent, name, values):
        os.mkfifo(pipe)
        parent.create_dataset(name, shape=values.shape, dtype=values.dtype, external=[(str(pipe), 0, values.nbytes)])
    return change, "values in other files"


def to_named_type(_folder):
    def change(parent, name, values):
        parent.file["type"] = np.dtype(values.dtype)
        parent.create_dataset(name, data=values, dtype=parent.file["type"])
    return change, "shared"


def to_other_filter(_folder):
    def change(parent, name, values):
        parent.create_dataset(name, data=values, chunks=values.shape, compression="lzf")
    return change, "filter 32000"


INDIRECTIONS = [to_other_file, to_soft_link, to_virtual, to_external_storage, to_external_fifo, to_named_type, to_other_filter]


def shards_that_lead_elsewhere_are_refused_by_every_command(folder):
    for make in INDIRECTIONS:
        for name in ("images", "labels"):
            place = folder / f"{make.__name__}-{name}"
            place.mkdir()
            path = share(place)
            change, words = make(place)
            replace(path, "/", name, change)
            for args in (["inspect", path], ["inspect", "--verify", path], ["inspect", path.parent],
                         train_args(path.parent, place / "run", "--epochs", "1")):
                output = run(args, expect=BAD_INPUT)
                assert words in output and f":/{name}" in output, output
                assert "PRIVATE KEY" not in output


def a_checkpoint_that_leads_elsewhere_is_refused_and_exports_nothing(folder):
    source = checkpoint(folder)
    for make in INDIRECTIONS:
        place = folder / make.__name__
        place.mkdir()
        path = place / source.name
        shutil.copy(source, path)
        change, words = make(place)
        replace(path, "/model", "fc.weight", change)
        exported = place / "model.safetensors"
        for args in (["inspect", path], ["eval", "--checkpoint", path, "--data", folder / "data", "--split", "train"],
                     ["export", path, "--format", "safetensors", "--output", exported],
                     train_args(folder / "data", place / "run", "--epochs", "1", "--init-from", path),
                     train_args(folder / "data", place / "run", "--epochs", "2", "--resume", path)):
            output = run(args, expect=BAD_INPUT)
            assert words in output and ":/model/fc.weight" in output, output
        assert not exported.exists()


def a_text_whose_length_was_changed_is_refused(folder):
    """The heap's length of a text is larger than the attribute says, or the other way round."""
    path = share(folder)
    data = bytearray(path.read_bytes())
    at = data.index(b"a horse of another colour")
    for field, values in ((at - 8, (0, 24, 26, 2**16, 2**31, 2**63)),):
        for value in values:
            changed = bytearray(data)
            changed[field:field + 8] = struct.pack("<Q", value)
            path.write_bytes(changed)
            run(["inspect", path], expect=OK if value == 26 else BAD_INPUT)


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))


def statuses_of_mutations(path, count, seed):
    """How often `inspect --verify` of a file with changed bytes ends with which status."""
    chance = np.random.default_rng(seed)
    original = path.read_bytes()
    statuses = {}
    changed_path = path.with_name("train-00000-of-00001.h5")
    for _ in range(count):
        data = bytearray(original)
        for _ in range(chance.integers(1, 9)):
            # Most bytes are pixels.
            at = int(chance.integers(0, min(len(data), 4096))) if chance.random() < 0.8 else int(chance.integers(0, len(data)))
            data[at] = (0, 1, 0xff, 0x7f, 0x80, int(chance.integers(0, 256)))[chance.integers(0, 6)]
        changed_path.write_bytes(data if chance.random() < 0.95 else data[:chance.integers(0, len(data))])
        try:
            status = subprocess.run([LOCKSTEP, "inspect", "--verify", changed_path], stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL, env=environment(), preexec_fn=limit_memory, timeout=30).returncode
        except subprocess.TimeoutExpired:
            status = "hang"
        statuses[status] = statuses.get(status, 0) + 1
    changed_path.write_bytes(original)
    return statuses


@more_in_soak
def a_shard_with_changed_bytes_is_read_or_refused(folder):
    count = MUTATIONS if SOAK else 60
    for seed, create in enumerate(({}, {"libver": ("v108", "v108")}, {"libver": "latest"})):
        statuses = statuses_of_mutations(share(folder, name=str(seed), **create), count, seed)
        print(f"  {count} mutations of a shard: {statuses}")
        assert set(statuses) <= {OK, BAD_INPUT}, statuses


def a_compressed_tensor_takes_the_memory_of_its_pieces(folder):
    """A file of a few megabytes whose values, which no model needs, would take half a gigabyte."""
    path = checkpoint(folder).resolve()
    with h5py.File(path, "r+") as file:
        file["model"].create_dataset("large.weight", shape=(1 << 15, 1 << 12), dtype="f4", chunks=(64, 1 << 12), compression=1)
        file["model/large.weight"][...] = 0
    assert path.stat().st_size < 8 << 20

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (500 << 20, 500 << 20))
    for args, status, words in ((["inspect", "--verify", path], BAD_INPUT, "large.weight"),
                                (["eval", "--checkpoint", path, "--data", folder / "data", "--split", "train", "--threads", "1"],
                                 BAD_INPUT, "large.weight")):
        result = subprocess.run([LOCKSTEP, *map(str, args)], capture_output=True, text=True, env=environment(), preexec_fn=limit,
                                timeout=SECONDS)
        assert result.returncode == status and words in result.stderr, result
        assert "memory" not in result.stderr, result.stderr


def chunked_shard(folder, name):
    path = folder / name / "train-00000-of-00001.h5"
    path.parent.mkdir()
    with h5py.File(path, "w") as file:
        file["images"] = np.zeros((32, 4, 4, 1), "u1")
        file.create_dataset("labels", data=np.arange(32) % 4, chunks=(1,))
        places = [file["labels"].id.get_chunk_info(i).byte_offset for i in range(32)]
    return path, bytearray(path.read_bytes()), places


def parts_that_are_shared_or_go_round_are_refused(folder):
    """Without a limit, each of these small files would be read for hours."""
    path, data, places = chunked_shard(folder, "tree")  # nodes of a B-tree that are below many others
    key = struct.pack("<IIQQ", 8, 0, 0, 0)

    def add(level, entries, child):
        data.extend(b"TREE" + bytes([1, level]) + struct.pack("<H", entries) + b"\xff" * 16 + (key + struct.pack("<Q", child)) * entries
                    + key)
        return len(data) - 24 - entries * (len(key) + 8) - len(key)
    root = data.index(b"TREE\x01")
    node = add(0, 1, places[0])
    for level in range(1, 100):
        node = add(level, 1, node)
    for level in (100, 101):
        node = add(level, 4100, node)
    at = data.index(struct.pack("<BBBQ", 3, 2, 2, root)) + 3  # the layout: version, chunked, two axes
    data[at:at + 8] = struct.pack("<Q", node)
    data[40:48] = struct.pack("<Q", len(data))
    path.write_bytes(data)
    assert "would take more bytes" in run(["inspect", path.parent], expect=BAD_INPUT)

    path = folder / "train-00000-of-00001.h5"  # chunks that are all stored in one place
    with h5py.File(path, "w") as file:
        file["labels"] = np.zeros(64, "i8")
        images = file.create_dataset("images", (64, 8, 8, 1), "u1", chunks=(1, 512, 512, 1), maxshape=(64, None, None, 1),
                                     compression="gzip")
        images.id.write_direct_chunk((0, 0, 0, 0), zlib.compress(bytes(512 * 512)))
        for i in range(1, 64):
            images.id.write_direct_chunk((i, 0, 0, 0), b"%08d" % i)
        chunks = [images.id.get_chunk_info(i) for i in range(64)]
    data = bytearray(path.read_bytes())
    for i, chunk in enumerate(chunks):
        key = struct.pack("<II5Q", chunk.size, 0, i, 0, 0, 0, 0)
        at = data.index(key + struct.pack("<Q", chunk.byte_offset))
        data[at:at + 4] = struct.pack("<I", chunks[0].size)
        data[at + len(key):at + len(key) + 8] = struct.pack("<Q", chunks[0].byte_offset)
    path.write_bytes(data)
    assert "chunks would take more bytes" in run(["inspect", "--verify", path], expect=BAD_INPUT)

    weights = folder / "weights.h5"  # rows without end that hold no values
    with h5py.File(weights, "w") as file:
        file["model/a"] = np.zeros(3, "f4")
        file.create_dataset("model/b", (1 << 61, 0), "f4")
    run(["inspect", "--verify", weights])

    header = folder / "header.h5"  # an object header of 3 GB
    with h5py.File(header, "w") as file:
        file["model/a"] = np.zeros(3, "f4")
    data = bytearray(header.read_bytes())
    data[64:72] = struct.pack("<Q", len(data))
    data[40:48] = struct.pack("<Q", len(data) + 16 + (3 << 30))
    header.write_bytes(data + struct.pack("<BBHII4x", 1, 0, 1, 1, 3 << 30))
    os.truncate(header, len(data) + 16 + (3 << 30))
    result = subprocess.run([LOCKSTEP, "inspect", header], capture_output=True, text=True, env=environment(), preexec_fn=limit_memory,
                            timeout=SECONDS)
    assert result.returncode == BAD_INPUT and "header of more than 16777216 bytes" in result.stderr, result


if __name__ == "__main__":
    main([shards_that_lead_elsewhere_are_refused_by_every_command, a_checkpoint_that_leads_elsewhere_is_refused_and_exports_nothing,
          a_text_whose_length_was_changed_is_refused,
          a_compressed_tensor_takes_the_memory_of_its_pieces, parts_that_are_shared_or_go_round_are_refused,
          a_shard_with_changed_bytes_is_read_or_refused])
