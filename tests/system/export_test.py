#!/usr/bin/env python3
"""Tests `lockstep export`: which files it reads, what it refuses, and that it never leaves half a file.

What other programs read in the files is tested by tests/parity/export_parity.py.
"""

import struct

from harness import *  # noqa: F403

FORMATS = ("torchvision", "safetensors", "onnx")


def trained(folder):
    """A checkpoint of mini-resnet with width 8, for images of 12x12x3."""
    data = write_shards(folder / "data")
    run(train_args(data, folder / "run", "--max-steps", 2, "--mean", "0.4,0.5,0.6", "--std", "0.25"))
    return latest(folder / "run")


def weights_of(checkpoint, file):
    """A file with only /model, as h5py writes it from a module's state."""
    with h5py.File(checkpoint) as source, h5py.File(file, "w") as target:
        for name in source["model"]:
            target["model/" + name] = source["model"][name][...]
    return file


def without_image(checkpoint, file):
    """The checkpoint as version 0.9.0 wrote it."""
    shutil.copy(checkpoint, file)
    with h5py.File(file, "r+") as changed:
        for name in ("image_channels", "image_height", "image_width"):
            del changed.attrs[name]
    return file


def export(checkpoint, output, *options, file_format="safetensors", **how):
    return run(["export", checkpoint, "--format", file_format, "--output", output, *options], **how)


def read_safetensors(path):
    """Metadata, and each fp32 tensor's shape and bytes."""
    content = path.read_bytes()
    length, = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    metadata = header.pop("__metadata__")
    data = content[8 + length:]
    tensors = {name: (tuple(entry["shape"]), data[slice(*entry["data_offsets"])])
               for name, entry in header.items() if entry["dtype"] == "F32"}
    return metadata, tensors


def the_network_comes_from_the_checkpoint_or_from_options(folder):
    checkpoint = trained(folder)
    output = folder / "model.safetensors"

    def exported(source, *options):
        export(source, output, "--overwrite", *options)
        return read_safetensors(output)

    metadata, tensors = exported(checkpoint)
    with h5py.File(checkpoint) as file:
        assert tensors == {name: (file["model"][name].shape, file["model"][name][...].tobytes()) for name in file["model"]}
    assert metadata["model"] == "mini-resnet" and metadata["input"] == "[3, 12, 12]" and metadata["step"] == "2", metadata
    assert metadata["weights"] == "current" and metadata["mean"] == "[0.4, 0.5, 0.6]" and metadata["std"] == "[0.25, 0.25, 0.25]", metadata
    named = ["--model", "mini-resnet", "--width", 8, "--image-size", 12]
    bare, same = exported(weights_of(checkpoint, folder / "weights.h5"), *named)
    assert same == tensors and bare["classes"] == "10" and "step" not in bare and "mean" not in bare, bare
    given, same = exported(folder / "weights.h5", *named, "--mean", "0.1", "--std", "0.2")
    assert same == tensors and given["mean"] == "[0.1]" and given["std"] == "[0.2]", given
    assert "warning: " not in export(checkpoint, output, "--overwrite", "--std", "0.25")
    printed = export(checkpoint, output, "--overwrite", "--std", "0.2")
    assert "std [0.25, 0.25, 0.25], but --mean and --std give mean [0.4, 0.5, 0.6], std [0.2] (normalised inputs are multiplied by 1.25 and" in printed
    assert "ToTensor(), Normalize(mean=[0.4, 0.5, 0.6], std=[0.2])" in printed, printed
    # Another size of images than in training; a file that does not say the size.
    assert exported(checkpoint, "--image-size", 20)[0]["input"] == "[3, 20, 20]"
    assert exported(without_image(checkpoint, folder / "old.h5"), "--image-size", 12) == (metadata, tensors)
    for source, options, says in ((folder / "old.h5", [], "--image-size"), (folder / "weights.h5", [], "give --model"),
                                  (folder / "weights.h5", ["--model", "mini-resnet", "--width", 8], "--image-size"),
                                  (folder / "weights.h5", ["--width", 8], "--width 8 without --model")):
        printed = export(source, folder / "none", *options, expect=USAGE)
        assert says in printed and not (folder / "none").exists(), printed


def the_input_is_that_of_evaluations(folder):
    try:
        from PIL import Image
    except ImportError as missing:
        raise Skipped(missing) from missing
    import io
    image = io.BytesIO()
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (40, 50, 3), "u1")).save(image, "JPEG")
    content = {"encoded": np.frombuffer(image.getvalue() * 8, "u1"), "offsets": np.arange(9).astype("u8") * len(image.getvalue()),
               "labels": np.arange(8)}
    data = write_shards(folder / "data", samples=8, shards=1, images=None, **content)
    run(train_args(data, folder / "run", "--max-steps", 1, "--image-size", 16, "--eval-size", 24, "--eval-crop-ratio", 0.6))
    result = json.loads(export(latest(folder / "run"), folder / "out", "--json"))
    assert (result["input"], result["resize"], result["interpolation"]) == ([3, 24, 24], 40, "bilinear"), result
    metadata, _ = read_safetensors(folder / "out")
    assert (metadata["input"], metadata["resize"], metadata["interpolation"]) == ("[3, 24, 24]", "40", "bilinear"), metadata
    printed = export(latest(folder / "run"), folder / "onnx", file_format="onnx")
    assert "input: 3x24x24, ToTensor()" in printed and "Resize(40), bilinear, CenterCrop(24)" in printed, printed
    assert "input: 3x24x24, pixels from 0 to 255" in export(latest(folder / "run"), folder / "pixels", "--include-normalization", file_format="onnx")


def each_rank_count_writes_one_file_and_prints_one_line(folder):
    checkpoint = trained(folder)
    for file_format in FORMATS:
        written = set()
        for ranks in (1, 2, 3, 4):
            output = folder / f"{file_format}-{ranks}"
            printed = export(checkpoint, output, "--json", file_format=file_format, ranks=ranks)
            result = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
            warnings = ["no module of torchvision.models loads" in printed, "torchvision has no mini-resnet" in printed]
            assert warnings == [file_format == "torchvision"] * 2 and result.get("module") is None, printed
            assert result["bytes"] == output.stat().st_size and result["model"] == "mini-resnet" and result["classes"] == 10, result
            written.add(output.read_bytes())
        assert len(written) == 1, f"{file_format} differs between runs"


def existing_files_are_kept(folder):
    checkpoint = trained(folder)
    before = checkpoint.read_bytes()
    output = folder / "model"
    output.write_text("mine")
    (folder / "dangling").symlink_to("nowhere")
    for ranks in (1, 2):
        assert "--overwrite" in export(checkpoint, output, expect=USAGE, ranks=ranks)
        assert "it is a link" in export(checkpoint, folder / "dangling", "--overwrite", expect=CANNOT_WRITE, ranks=ranks)
    assert output.read_text() == "mine"
    (folder / "link").symlink_to(checkpoint.resolve())
    for itself in (checkpoint, checkpoint.resolve(), folder / "link"):
        assert "is the checkpoint itself" in export(checkpoint, itself, "--overwrite", expect=USAGE)
    assert checkpoint.read_bytes() == before
    export(checkpoint, output, "--overwrite")
    assert read_safetensors(output)[0]["model"] == "mini-resnet"


def what_cannot_be_exported_is_refused(folder):
    checkpoint = trained(folder)
    (folder / "text.h5").write_text("no HDF5")
    shard = next((folder / "data").glob("*.h5"))
    output = folder / "out"
    damaged = folder / "damaged.h5"
    content = bytearray(checkpoint.read_bytes())
    with h5py.File(checkpoint) as file:
        content[file["model/fc.weight"].id.get_offset() + 5] ^= 1
    damaged.write_bytes(content)
    for source, status, says in ((folder / "absent.h5", NO_INPUT, "absent.h5"), (folder / "text.h5", BAD_INPUT, "text.h5"),
                                 (folder, BAD_INPUT, "is a directory"), (shard, BAD_INPUT, "not a checkpoint|/model"),
                                 (damaged, BAD_INPUT, "fc.weight is damaged")):
        for ranks in (1, 3):
            printed = export(source, output, expect=status, ranks=ranks)
            assert printed.count("lockstep: error: ") == 1 and any(each in printed for each in says.split("|")), printed
    assert "it is another model's" in export(checkpoint, output, "--model", "resnet18", expect=BAD_INPUT)
    for options, says in ((["--format", "pickle"], "torchvision, safetensors, onnx"), ([], "--format is missing"),
                          (["--format", "onnx"], "--output is missing"),
                          (["--format", "onnx", "--output", output, "more"], "one checkpoint (2 are given)"),
                          (["--format", "torchvision", "--output", output, "--fold-batch-norm"], "--fold-batch-norm with --format torchvision"),
                          (["--format", "safetensors", "--output", output, "--include-normalization"], "--include-normalization with"),
                          (["--format", "onnx", "--output", output, "--include-normalization", "--mean", "0.1,0.2"], "one a channel")):
        printed = run(["export", checkpoint, *options], expect=USAGE)
        assert says in printed, printed
    weights = weights_of(checkpoint, folder / "weights.h5")
    network = ["--model", "mini-resnet", "--width", 8, "--image-size", 12, "--include-normalization"]
    assert "--mean and --std" in export(weights, output, *network, file_format="onnx", expect=USAGE)
    assert not output.exists()


def a_failed_write_leaves_nothing(folder):
    checkpoint = trained(folder)
    assert "No such file" in export(checkpoint, folder / "no/out", expect=CANNOT_WRITE)
    with small_disk(folder / "disk", "64k") as disk:
        for file_format in FORMATS:
            assert "No space left" in export(checkpoint, disk / "out", file_format=file_format, expect=CANNOT_WRITE, ranks=2)
            assert not list(disk.iterdir()), list(disk.iterdir())


def a_limit_of_file_sizes_is_a_failed_write(folder):
    checkpoint = trained(folder)
    (folder / "made").mkdir()
    for args in (["export", checkpoint, "--format", "onnx", "--output", folder / "made" / "out"],
                 ["report", folder / "run", "-o", folder / "made" / "page.html"]):
        done = subprocess.run(["bash", "-c", 'ulimit -f 8; exec "$@"', "bash", *command(args)], capture_output=True, text=True, env=environment())
        assert done.returncode == CANNOT_WRITE and "File too large" in done.stderr, (done.returncode, done.stderr)
    assert not list((folder / "made").iterdir()), list((folder / "made").iterdir())


def impossible_weights_are_refused(folder):
    weights = weights_of(trained(folder), folder / "weights.h5")
    network = ["--model", "mini-resnet", "--width", 8, "--image-size", 12]
    for change, says in ((lambda file: file["model/bn1.running_var"].__setitem__(1, -0.5), "a variance is not negative"),
                         (lambda file: file.attrs.__setitem__("mean", [123.0, 116, 103]), "divide by 255"),
                         (lambda file: file.attrs.__setitem__("class_names", ["a"] * 99), "99 class_names")):
        broken = folder / "broken.h5"
        broken.write_bytes(weights.read_bytes())
        with h5py.File(broken, "r+") as file:
            change(file)
        assert says in export(broken, folder / "none", *network, file_format="onnx", expect=BAD_INPUT), says
    assert not (folder / "none").exists()


if __name__ == "__main__":
    main([the_network_comes_from_the_checkpoint_or_from_options, the_input_is_that_of_evaluations, each_rank_count_writes_one_file_and_prints_one_line, existing_files_are_kept,
          what_cannot_be_exported_is_refused, a_failed_write_leaves_nothing, a_limit_of_file_sizes_is_a_failed_write, impossible_weights_are_refused])
