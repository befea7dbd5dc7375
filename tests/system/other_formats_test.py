#!/usr/bin/env python3
"""Tests what the program says of files in other formats, written by the libraries that define them, in place of a checkpoint or a shard."""

import gzip
import shutil
import subprocess
import tarfile
import zipfile

from harness import *  # noqa: F403

try:
    import torch
except ImportError:
    torch = None


def trained(folder):
    data = write_shards(folder / "data")
    run(train_args(data, folder / "run", "--max-steps", 2))
    return data, latest(folder / "run")


def commands(path, folder, data):
    """Each command that opens a checkpoint."""
    return [train_args(data, folder / "other", "--init-from", path, "--max-steps", 1),
            train_args(data, folder / "other", "--resume", path, "--max-steps", 1),
            ["eval", "--checkpoint", path, "--model", "mini-resnet", "--width", 8, "--data", data, "--split", "train"],
            ["export", path, "--format", "onnx", "--output", folder / "out", "--model", "mini-resnet", "--width", 8, "--image-size", 12],
            ["inspect", path], ["inspect", path, "--verify"]]


def check_refused(path, folder, data, kind):
    for command in commands(path, folder, data):
        output = run(command, expect=BAD_INPUT)
        assert f"error: {path} is {kind}" in output and output.count("error:") == 1, output
    output = run(commands(path, folder, data)[0], ranks=3, expect=BAD_INPUT)
    assert output.count(f"error: {path} is {kind}") == 1 and output.count("error:") == 1, output
    shards = folder / "shards"
    shutil.rmtree(shards, ignore_errors=True)
    shards.mkdir()
    if "by its name" not in kind:
        shutil.copy(path, shards / "train-00000-of-00001.h5")
        output = run(["inspect", shards], expect=BAD_INPUT)
        assert f"{shards / 'train-00000-of-00001.h5'} is " in output and "not a whole HDF5 file" not in output, output
    assert not (folder / "out").exists()
    return output


def an_export_to_onnx_is_recognised(folder):
    data, checkpoint = trained(folder)
    path = folder / "my weights.onnx"
    run(["export", checkpoint, "--format", "onnx", "--output", path])
    assert "Weights of other programs" in check_refused(path, folder, data, "an ONNX model")


def files_of_torch_are_recognised(folder):
    if torch is None:
        raise Skipped("no PyTorch")
    data, _ = trained(folder)
    model = torch.nn.Linear(2, 3)
    shards = folder / "shards"
    shards.mkdir()
    for options in ({}, {"_use_new_zipfile_serialization": False}):
        torch.save(model.state_dict(), shards / "train-00000-of-00001.h5", **options)
        output = run(["inspect", shards], expect=BAD_INPUT)
        assert "is a file of PyTorch's torch.save" in output and "--init-from and eval --checkpoint read it" in output, output
    torch.jit.script(model).save(folder / "script.pt")
    torch.onnx.export(model, torch.zeros(1, 2), folder / "model.onnx")
    for name, kind in (("script.pt", "a TorchScript archive"), ("model.onnx", "an ONNX model")):
        check_refused(folder / name, folder, data, kind)


def files_of_other_libraries_are_recognised(folder):
    data, checkpoint = trained(folder)
    np.savez(folder / "weights.npz", w=np.zeros(3))
    np.savez_compressed(folder / "small.npz", w=np.zeros(3))
    np.save(folder / "weights.npy", np.zeros(3))
    (folder / "weights.h5.gz").write_bytes(gzip.compress(checkpoint.read_bytes()))
    with zipfile.ZipFile(folder / "weights.zip", "w") as archive:
        archive.write(checkpoint, "weights.h5")
    with tarfile.open(folder / "weights.tar", "w") as archive:
        archive.add(checkpoint, "weights.h5")
    with zipfile.ZipFile(folder / "model.keras", "w") as archive:
        for name in ("metadata.json", "config.json", "model.weights.h5"):
            archive.writestr(name, "{}")
    (folder / "page.h5").write_text("<!DOCTYPE html>\n<html><body>Sign in</body></html>")
    (folder / "pointer.h5").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n")
    (folder / "missing.h5").write_text("404: Not Found")
    (folder / "empty.h5").write_bytes(b"")
    (folder / "ckpt.index").write_bytes(b"\0\1\2\3")
    (folder / "saved").mkdir()
    (folder / "saved" / "saved_model.pb").write_bytes(b"\x08\x01")
    for name, kind in (("weights.npz", "a NumPy archive"), ("small.npz", "a NumPy archive"), ("weights.npy", "a NumPy array"),
                       ("weights.h5.gz", "a gzip file"), ("weights.zip", "a zip archive"), ("weights.tar", "a tar archive"),
                       ("model.keras", "a Keras model"), ("page.h5", "a web page"), ("pointer.h5", "a pointer of Git LFS"),
                       ("missing.h5", "text ("), ("empty.h5", "empty"), ("ckpt.index", "part of a TensorFlow checkpoint, by its name")):
        check_refused(folder / name, folder, data, kind)
    for command in commands(folder / "saved", folder, data)[:4]:
        assert "is a SavedModel of TensorFlow" in run(command, expect=BAD_INPUT)


def hdf5_files_without_a_network_say_what_they_hold(folder):
    data, checkpoint = trained(folder)
    with h5py.File(folder / "keras.h5", "w") as file:  # as Keras 2 writes weights
        file.attrs["layer_names"] = [b"conv1"]
        file.attrs["backend"] = b"tensorflow"
        file["conv1/conv1/kernel:0"] = np.zeros((3, 3, 1, 2), "f4")
    with h5py.File(folder / "whole.h5", "w") as file:
        file.attrs["model_config"] = "{}"
        file["model_weights/conv1/kernel:0"] = np.zeros((3, 3, 1, 2), "f4")
    with h5py.File(folder / "keras3.weights.h5", "w") as file:
        file["layers/conv2d/vars/0"] = np.zeros((3, 3, 1, 2), "f4")
    for name in ("keras.h5", "whole.h5", "keras3.weights.h5"):
        check_refused(folder / name, folder, data, "an HDF5 file of Keras")
    with h5py.File(folder / "root.h5", "w") as file, h5py.File(checkpoint) as source:
        for name in source["model"]:
            source.copy(source["model"][name], file, name)
    output = run(commands(folder / "root.h5", folder, data)[0], 2, expect=BAD_INPUT)
    assert "has no group /model" in output and "fc.bias" in output, output
    truncated = folder / "truncated.h5"
    truncated.write_bytes(checkpoint.read_bytes()[:5000])
    output = run(commands(truncated, folder, data)[0], 2, expect=BAD_INPUT)
    assert "is not a whole HDF5 file" in output and "5000 bytes" in output, output


def random_bytes_give_an_error(folder):
    data, _ = trained(folder)
    random = np.random.default_rng(1)
    path = folder / "random.h5"
    for start in (b"", b"PK\x03\x04", b"\x80\x02", b"\x89HDF\r\n\x1a\n", b"\x08\x07", b"\x93NUMPY"):
        for size in (1, 9, 300, 70000):
            path.write_bytes(start + random.integers(0, 256, size, "u1").tobytes())
            output = run(["eval", "--checkpoint", path, "--data", data], expect=BAD_INPUT)
            assert output.count("error:") == 1, output


def names_that_a_wrapper_extended_are_recognised(folder):
    data, checkpoint = trained(folder)
    for prefix in ("module.", "_orig_mod.", "model.module."):
        wrapped = folder / "wrapped.h5"
        with h5py.File(checkpoint) as source, h5py.File(wrapped, "w") as file:
            for name in source["model"]:
                source.copy(source["model"][name], file, f"model/{prefix}{name}")
            file.attrs.update({name: source.attrs[name] for name in ("mean", "std", "classes")})
        evaluation = ["eval", "--checkpoint", wrapped, "--data", data, "--split", "train", "--model", "mini-resnet", "--width", 8]
        output = run(evaluation, expect=BAD_INPUT)
        assert f"without {prefix}:" in output and "another model" not in output, output
        code = output.split('python3 -c "')[1].split('" FILE')[0]
        subprocess.run([sys.executable, "-c", code, wrapped], check=True)
        whole = run(["eval", "--checkpoint", checkpoint, *evaluation[3:7]])
        assert run(evaluation).splitlines()[-1] == whole.splitlines()[-1], whole


if __name__ == "__main__":
    main([an_export_to_onnx_is_recognised, files_of_torch_are_recognised,
          files_of_other_libraries_are_recognised, hdf5_files_without_a_network_say_what_they_hold, random_bytes_give_an_error, names_that_a_wrapper_extended_are_recognised])
