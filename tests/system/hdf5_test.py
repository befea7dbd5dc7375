#!/usr/bin/env python3
"""Tests that HDF5 files of strangers, by whatever command they are opened, are refused or read, and reach nothing outside of them."""

import resource
import struct

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


if __name__ == "__main__":
    main([shards_that_lead_elsewhere_are_refused_by_every_command, a_checkpoint_that_leads_elsewhere_is_refused_and_exports_nothing,
          a_text_whose_length_was_changed_is_refused,
          a_compressed_tensor_takes_the_memory_of_its_pieces, a_shard_with_changed_bytes_is_read_or_refused])
