#!/usr/bin/env python3
"""Tests weights that other programs wrote: files of PyTorch and safetensors with the names of torchvision, timm and Hugging Face."""

import collections
import struct
import subprocess
import zipfile

from harness import *  # noqa: F403

try:
    import torch
    import torchvision
    from torchvision.models.vision_transformer import VisionTransformer, interpolate_embeddings
except ImportError:
    torch = None
try:
    import safetensors.torch
except ImportError:
    safetensors = None
try:
    import timm
    import transformers
except ImportError:
    timm = None

VIT = ["--model", "mini-vit", "--width", 32, "--image-size", 16]


def require(*modules):
    if torch is None or any(module is None for module in modules):
        raise Skipped("PyTorch, safetensors, timm or transformers is not here (scripts/install-dependencies tests)")


def network(image_size=16, classes=10):
    """mini-vit of width 32 as torchvision's module, with random values everywhere."""
    torch.manual_seed(1)
    module = VisionTransformer(image_size=image_size, patch_size=4, num_layers=6, num_heads=4, hidden_dim=32, mlp_dim=64, num_classes=classes)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, 0, 0.2)
    return module.eval()


def resnet():
    torch.manual_seed(1)
    module = torchvision.models.resnet18(num_classes=10)
    for name, buffer in module.named_buffers():
        if name.endswith("running_var"):
            torch.nn.init.uniform_(buffer, 0.5, 2)
    return module.eval()


def read_by_lockstep(path, folder, *model):
    """The tensors as `export` writes them, by torchvision's names, without counters of batches."""
    output = folder / "exported.pt"
    run(["export", path, "--format", "torchvision", "--output", output, "--overwrite", *(model or VIT)])
    return {name: value for name, value in torch.load(output).items() if not name.endswith("num_batches_tracked")}


def assert_reads(path, folder, expected, *model):
    found = read_by_lockstep(path, folder, *model)
    expected = {name: value.float() for name, value in expected.items() if not name.endswith("num_batches_tracked")}
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), (path, name)


def every_way_of_saving_is_read(folder):
    require(safetensors)
    state = network().state_dict()
    wrapped = {"module." + name: value for name, value in state.items()}
    compiled = {"_orig_mod.module." + name: value for name, value in state.items()}
    cases = {"plain": state, "state_dict": {"epoch": 3, "state_dict": wrapped, "best": np.float64(0.5)}, "model": {"model": state, "optimizer": {"lr": 0.1}},
             "compiled": {"model_state_dict": compiled}, "lightning": {"state_dict": {"model." + name: value for name, value in state.items()}},
             "parameters": collections.OrderedDict((name, torch.nn.Parameter(value)) for name, value in state.items())}
    for name, content in cases.items():
        for form, options in (("zip", {}), ("legacy", {"_use_new_zipfile_serialization": False}), ("protocol 4", {"pickle_protocol": 4})):
            path = folder / f"{name} {form}.pth"
            torch.save(content, path, **options)
            assert_reads(path, folder, state)
    for kind in (torch.float16, torch.bfloat16, torch.float64):
        other = {name: value.to(kind) for name, value in state.items()}
        torch.save(other, folder / "kind.pt")
        safetensors.torch.save_file(other, folder / "kind.safetensors")
        for name in ("kind.pt", "kind.safetensors"):
            assert_reads(folder / name, folder, other)
    # Two files, with an index.
    names = sorted(state)
    for number, part in enumerate((names[:20], names[20:]), 1):
        safetensors.torch.save_file({name: state[name] for name in part}, folder / f"model-{number}-of-2.safetensors")
    index = {"metadata": {}, "weight_map": {name: f"model-{1 if name in names[:20] else 2}-of-2.safetensors" for name in names}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert_reads(folder / "model.safetensors.index.json", folder, state)


def other_strides_and_shared_storages_are_read(folder):
    require()
    module = resnet()
    expected = {name: value.clone() for name, value in module.state_dict().items()}
    torch.save(module.to(memory_format=torch.channels_last).state_dict(), folder / "channels_last.pth")
    model = ["--model", "resnet18", "--image-size", 64]
    assert_reads(folder / "channels_last.pth", folder, expected, *model)
    flat = torch.cat([value.flatten() for value in expected.values() if value.is_floating_point()])
    shared, offset = {}, 0
    for name, value in expected.items():
        if value.is_floating_point():
            shared[name] = flat[offset:offset + value.numel()].view(value.shape)
            offset += value.numel()
    torch.save(shared, folder / "shared.pth")
    assert_reads(folder / "shared.pth", folder, expected, *model)
    content = bytearray((folder / "shared.pth").read_bytes())
    content[content.find(expected["fc.bias"].numpy().tobytes())] ^= 1
    (folder / "shared.pth").write_bytes(content)
    output = run(["export", folder / "shared.pth", "--format", "onnx", "--output", folder / "x", *model], expect=BAD_INPUT)
    assert "is damaged (its CRC is" in output, output


def an_average_is_taken_by_default(folder):
    require()
    state, average = network().state_dict(), {name: value + 1 for name, value in network().state_dict().items()}
    for key in ("model_ema", "state_dict_ema"):
        torch.save({"model": state, key: {"n_averaged": torch.tensor(5), **{"module." + name: value for name, value in average.items()}}},
                   folder / "both.pth")
        assert_reads(folder / "both.pth", folder, average)
        run(["export", folder / "both.pth", "--format", "torchvision", "--output", folder / "current.pt", "--overwrite", "--no-ema", *VIT])
        assert_reads(folder / "current.pt", folder, state)


def inspect_lists_a_file_of_weights(folder):
    require(safetensors)
    state = {**network().state_dict(), "encoder.ids": torch.arange(5)}
    torch.save(state, folder / "vit.pth")
    safetensors.torch.save_file(state, folder / "vit.safetensors", metadata={"mean": "[0.5]", "class_names": '["a", "b"]'})
    for name in ("vit.pth", "vit.safetensors"):
        report = json.loads(run(["inspect", folder / name, "--verify", "--json"]))
        assert {tensor["name"]: tensor["shape"] for tensor in report["tensors"]} == {key: list(value.shape) for key, value in state.items()}
        assert report["classes"] == 10, report
    assert report["mean"] == [0.5] and report["class_names"] == ["a", "b"], report


def lockstep_reads_what_it_exports(folder):
    require(safetensors)
    data = write_shards(folder / "data", samples=20)
    run(train_args(data, folder / "run", "--max-steps", 2))
    evaluation = ["--data", data, "--split", "train", "--model", "mini-resnet", "--width", 8, "--conv-algorithm", "direct"]
    expected = run(["eval", "--checkpoint", latest(folder / "run"), *evaluation]).splitlines()[-1]
    for file_format in ("torchvision", "safetensors"):
        path = folder / f"weights.{file_format}"
        run(["export", latest(folder / "run"), "--format", file_format, "--output", path])
        assert run(["eval", "--checkpoint", path, *evaluation]).splitlines()[-1] == expected
        output = run(train_args(data, folder / "other", "--resume", path, "--max-steps", 1), 2, expect=BAD_INPUT)
        assert "holds only weights, of another program" in output, output


def logits_of(path, data, folder, *model):
    run(["eval", "--checkpoint", path, "--data", data, "--split", "train", "--predictions", folder / "p.h5", "--overwrite", *model])
    with h5py.File(folder / "p.h5") as file:
        return torch.tensor(file["logits"][...])


def pixels_of(data):
    """Normalized by the mean and std of the shards."""
    images = []
    for path in sorted(data.glob("*.h5")):
        with h5py.File(path) as file:
            images.append((file["images"][...] / np.float32(255) - np.float32(0.5)) / np.float32(0.25))
    return torch.tensor(np.concatenate(images).transpose(0, 3, 1, 2), dtype=torch.float32)


def write_data(folder, size):
    data = write_shards(folder / f"data{size}", samples=8, shards=1, shape=(size, size, 3))
    with h5py.File(data / "train-00000-of-00001.h5", "r+") as file:
        file.attrs["mean"], file.attrs["std"] = [0.5] * 3, [0.25] * 3
    return data


def networks_of_timm_and_hugging_face_give_their_logits(folder):
    require(timm, safetensors)
    data = write_data(folder, 16)
    torch.manual_seed(2)
    options = {"hidden_size": 32, "num_hidden_layers": 6, "num_attention_heads": 4, "intermediate_size": 64, "image_size": 16, "patch_size": 4,
               "num_labels": 10, "layer_norm_eps": 1e-6}
    hugging_face = transformers.ViTForImageClassification(transformers.ViTConfig(**options))
    of_timm = timm.models.vision_transformer.VisionTransformer(img_size=16, patch_size=4, embed_dim=32, depth=6, num_heads=4, mlp_ratio=2, num_classes=10)
    for module, call in ((of_timm, lambda module, x: module(x)), (hugging_face, lambda module, x: module(x).logits)):
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, 0, 0.2)
        module.eval()
        with torch.no_grad():
            expected = call(module, pixels_of(data))
        torch.save(module.state_dict(), folder / "vit.pth")
        safetensors.torch.save_file(module.state_dict(), folder / "vit.safetensors")
        for path in (folder / "vit.pth", folder / "vit.safetensors"):
            assert torch.allclose(logits_of(path, data, folder, *VIT), expected, rtol=1e-4, atol=1e-4)
    torch.save(transformers.ViTModel(transformers.ViTConfig(**options)).state_dict(), folder / "backbone.pth")
    output = run(["train", "--data", data, "--init-from", folder / "backbone.pth", *VIT[:4], "--batch-size", 4, "--max-steps", 1, "--run-dir", folder / "run"])
    assert "heads.head.weight (10x32) starts from initial values: the file has none" in output, output
    data = write_data(folder, 64)
    config = transformers.ResNetConfig(embedding_size=64, hidden_sizes=[256, 512, 1024, 2048], depths=[3, 4, 6, 3], layer_type="bottleneck", num_labels=10)
    module = transformers.ResNetForImageClassification(config).eval()
    with torch.no_grad():
        expected = module(pixels_of(data)).logits
    torch.save(module.state_dict(), folder / "resnet.pth")
    found = logits_of(folder / "resnet.pth", data, folder, "--model", "resnet50", "--image-size", 64)
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-3), (found, expected)
    of_timm = timm.create_model("resnet18d", num_classes=10).eval()
    with torch.no_grad():
        expected = of_timm(pixels_of(data))
    torch.save({"state_dict": of_timm.state_dict(), "arch": "resnet18d"}, folder / "timm.pth.tar")
    found = logits_of(folder / "timm.pth.tar", data, folder, "--model", "resnet18", "--stem", "deep", "--shortcut", "avgpool", "--image-size", 64)
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-3), (found, expected)


def a_run_starts_from_a_file_with_another_head(folder):
    require()
    data = write_shards(folder / "data", samples=20, shape=(16, 16, 3))
    torch.save(network(classes=37).state_dict(), folder / "other.pth")
    start = ["train", "--data", data, "--init-from", folder / "other.pth", "--model", "mini-vit", "--width", 32, "--batch-size", 4, "--max-steps", 1]
    for ranks in (1, 3):
        output = run([*start, "--run-dir", folder / f"auto{ranks}"], ranks)
        assert "heads.head.weight (10x32) starts from initial values: it is 37x32 in the file" in output, output
    output = run([*start, "--run-dir", folder / "keep", "--init-head", "keep"], 2, expect=BAD_INPUT)
    assert "heads.head.weight of 37x32, not 10x32" in output and "--init-head new" in output, output


def what_does_not_fit_is_listed_and_refused_unless_allowed(folder):
    require()
    data = write_shards(folder / "data", samples=20, shape=(16, 16, 3))
    state = network().state_dict()
    state["extra.bias"] = torch.zeros(3)
    del state["encoder.ln.weight"]
    state["encoder.ln.bias"] = torch.zeros(31)
    torch.save(state, folder / "other.pth")
    start = ["train", "--data", data, "--init-from", folder / "other.pth", "--model", "mini-vit", "--width", 32, "--batch-size", 4, "--max-steps", 1]
    output = run([*start, "--run-dir", folder / "run"], 2, expect=BAD_INPUT)
    for part in ("has no encoder.ln.weight (32)", "encoder.ln.bias of 31, not 32", "has extra.bias (3), which the network lacks", "--init-partial"):
        assert part in output, (part, output)
    assert not (folder / "run").exists() or not list((folder / "run").rglob("step-*")), output
    nothing = {"other.weight": torch.ones(3)}
    torch.save(nothing, folder / "nothing.pth")
    output = run([*start[:4], folder / "nothing.pth", *start[5:], "--run-dir", folder / "run", "--init-partial"], expect=BAD_INPUT)
    assert "it has no conv_proj.weight (32x3x4x4)" in output, output
    output = run([*start, "--run-dir", folder / "run", "--init-partial"], 2)
    for part in ("not in the file, so initialized: encoder.ln.weight (32)", "of another shape, so initialized: encoder.ln.bias of 31, not 32",
                 "in the file, but not in the network: extra.bias (3)"):
        assert part in output, (part, output)


def positions_are_interpolated_for_another_image_size(folder):
    require()
    state = network().state_dict()
    torch.save(state, folder / "vit.pth")
    for size in (24, 8):
        expected = interpolate_embeddings(size, 4, collections.OrderedDict(state), interpolation_mode="bicubic")
        found = read_by_lockstep(folder / "vit.pth", folder, *VIT[:4], "--image-size", size)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            close = torch.allclose(found[name], value, rtol=1e-5, atol=1e-6) if "pos_embedding" in name else torch.equal(found[name], value)
            assert close, name
    data = write_shards(folder / "data", samples=20, shape=(24, 24, 3))
    output = run(["train", "--data", data, "--init-from", folder / "vit.pth", "--model", "mini-vit", "--width", 32, "--batch-size", 4, "--max-steps", 1,
                  "--run-dir", folder / "run"])
    assert "embeddings of positions are interpolated from 4x4 to 6x6" in output, output
    checkpoint = latest(folder / "run")
    run(["eval", "--checkpoint", checkpoint, "--data", data, "--split", "train"])
    small = write_shards(folder / "small", samples=8, shape=(16, 16, 3))
    output = run(["eval", "--checkpoint", checkpoint, "--data", small, "--split", "train", "--image-size", 16])
    assert "interpolated from 6x6 to 4x4" in output, output
    torch.save({name: value[:, :9] if "pos_embedding" in name else value for name, value in state.items()}, folder / "no square.pth")
    output = run(["export", folder / "no square.pth", "--format", "onnx", "--output", folder / "x", *VIT], expect=BAD_INPUT)
    assert "encoder.pos_embedding of 1x9x32, not 1x17x32" in output, output


def layers_learn_as_timm_scales_them(folder):
    """One step of SGD with each layer's rate, beside one with the same rate for all."""
    require(timm)
    from timm.optim import param_groups_layer_decay
    module = timm.models.vision_transformer.VisionTransformer(img_size=16, patch_size=4, embed_dim=32, depth=6, num_heads=4, mlp_ratio=2, num_classes=10)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, 0, 0.2)
    torch.save(module.state_dict(), folder / "vit.pth")
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    scales = {names[id(parameter)]: group["lr_scale"] for group in param_groups_layer_decay(module, layer_decay=0.5) for parameter in group["params"]}
    data = write_shards(folder / "data", samples=20, shape=(16, 16, 3))

    def change(name, *options):
        run(["train", "--data", data, "--init-from", folder / "vit.pth", *VIT[:4], "--batch-size", 8, "--max-steps", 1, "--run-dir", folder / name,
             "--optimizer", "sgd", "--lr", 0.1, "--momentum", 0, "--weight-decay", 0, "--warmup-epochs", 0, *options])
        with h5py.File(latest(folder / name)) as file:
            values = {key: np.asarray(file["model"][key], "f8") for key in file["model"]}
        return {key: np.abs(value - before[key]).sum() for key, value in values.items()}

    before = {key: np.asarray(value, "f8") for key, value in read_by_lockstep(folder / "vit.pth", folder).items()}
    whole, decayed = change("whole"), change("decayed", "--layer-decay", 0.5, "--lr-scale", "heads.head.bias=2")
    ours = {"cls_token": "class_token", "pos_embed": "encoder.pos_embedding", "patch_embed.proj.weight": "conv_proj.weight",
            "norm.weight": "encoder.ln.weight", "head.weight": "heads.head.weight",
            **{f"blocks.{i}.mlp.fc1.weight": f"encoder.layers.encoder_layer_{i}.mlp.0.weight" for i in range(6)}}
    for theirs, name in ours.items():
        assert abs(decayed[name] / whole[name] - scales[theirs]) < 0.02 * scales[theirs], (name, decayed[name] / whole[name], scales[theirs])
    assert abs(decayed["heads.head.bias"] / whole["heads.head.bias"] - 2) < 0.04
    output = run(["train", "--synthetic", "--model", "mlp", "--layer-decay", 0.5, "--run-dir", folder / "mlp"], expect=USAGE)
    assert "--layer-decay 0.5 does not go with mlp (it has no blocks)" in output, output


def the_recipes_of_fine_tuning_start_from_torchvisions_networks(folder):
    require()
    torch.manual_seed(3)
    vit = VisionTransformer(image_size=32, patch_size=16, num_layers=12, num_heads=12, hidden_dim=12, mlp_dim=48)
    torch.save(vit.state_dict(), folder / "vit.pth")
    torch.save(torchvision.models.resnet50().state_dict(), folder / "resnet.pth")
    data = write_shards(folder / "data", samples=20, shape=(64, 64, 3))
    recipes = pathlib.Path(__file__).resolve().parents[2] / "recipes"
    for name, weights, options in (("fine-tune-vit-b-16", "vit.pth", ["--width", 12]), ("fine-tune-resnet50", "resnet.pth", [])):
        output = run(["train", "--config", recipes / f"{name}.conf", "--data", data, "--init-from", folder / weights, "--image-size", 64, *options,
                      "--eval-resize", 0, "--global-batch-size", 4, "--max-steps", 1, "--run-dir", folder / name], 2)
        assert "starts from initial values: it is 1000x" in output, output
        assert ("interpolated from 2x2 to 4x4" in output) == ("vit" in name), output


class Attack:
    def __reduce__(self):
        return os.system, (f"touch {os.environ['ATTACKED']}",)


def refuse(path, folder, *parts, limit=()):
    """`limit`: a command that runs the program."""
    args = ["export", path, "--format", "onnx", "--output", folder / "x", *VIT]
    done = subprocess.run([*limit, *command(args)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(), timeout=SECONDS)
    assert done.returncode == BAD_INPUT, (done.returncode, done.stdout)
    assert done.stdout.count("error:") == 1 and all(part in done.stdout for part in parts), (parts, done.stdout)


def rewritten(source, path, change, **options):
    """A copy of a zip archive; `change` gets each entry's name and content and returns the content, or None to leave it out."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w", **options) as new:
        for name in old.namelist():
            content = change(name, old.read(name))
            if content is not None:
                new.writestr(name, content)


def what_a_file_would_execute_is_refused_by_name(folder):
    require()
    os.environ["ATTACKED"] = str(folder / "attacked")
    state = network().state_dict()
    for form in (True, False):
        torch.save({**state, "x": Attack()}, folder / "attack.pth", _use_new_zipfile_serialization=form)
        refuse(folder / "attack.pth", folder, "posix.system", "execute code")
        torch.save(torch.nn.Linear(2, 3), folder / "module.pth", _use_new_zipfile_serialization=form)
        refuse(folder / "module.pth", folder, "torch.nn.modules.linear.Linear", "save the state dict")
    assert not (folder / "attacked").exists()
    torch.save([1, 2], folder / "list.pth")
    refuse(folder / "list.pth", folder, "holds no dict")
    torch.save({"epoch": 3, "args": {"lr": 1}}, folder / "nothing.pth")
    refuse(folder / "nothing.pth", folder, "holds no state dict (its 2 keys begin with epoch, args")


def hostile_and_damaged_files_are_refused(folder):
    require(safetensors)
    state = network().state_dict()
    good = folder / "good.pth"
    torch.save(state, good)
    bad = folder / "bad.pth"
    rewritten(good, bad, lambda name, content: content, compression=zipfile.ZIP_DEFLATED)
    refuse(bad, folder, "compressed entry")
    rewritten(good, bad, lambda name, content: None if name.endswith("/data/3") else content)
    refuse(bad, folder, "0 bytes in the file")
    rewritten(good, bad, lambda name, content: content[:8] if name.endswith("/data/3") else content)
    refuse(bad, folder, "8 bytes in the file")
    rewritten(good, bad, lambda name, content: b"big" if name.endswith("/byteorder") else content)
    with zipfile.ZipFile(bad, "a") as archive:
        if "good/byteorder" not in archive.namelist():
            archive.writestr(archive.namelist()[0].split("/")[0] + "/byteorder", "big")
    refuse(bad, folder, "big-endian")
    content = bytearray(good.read_bytes())
    place = content.find(state["encoder.ln.weight"].numpy().tobytes())
    content[place] ^= 1
    bad.write_bytes(content)
    refuse(bad, folder, "encoder.ln.weight is damaged (its CRC is")
    for size in (10, 100, len(content) // 2, len(content) - 30):
        bad.write_bytes(good.read_bytes()[:size])
        refuse(bad, folder, "damaged")
    torch.save({**state, "encoder.ln.weight": torch.full((32,), float("nan"))}, bad)
    refuse(bad, folder, "encoder.ln.weight holds a value that is not finite")
    torch.save({**state, "encoder.ln.weight": torch.zeros(1).expand(32)}, bad)
    refuse(bad, folder, "encoder.ln.weight is 32 from element 0 on, but its storage has 1 values")
    torch.save({**state, "encoder.ln.weight": torch.ones(32, dtype=torch.int64)}, bad)
    refuse(bad, folder, "encoder.ln.weight is of int64")
    torch.save({**state, "module.encoder.ln.weight": torch.ones(32)}, bad)
    refuse(bad, folder, "has encoder.ln.weight and module.encoder.ln.weight")

    def header(tensors, size=400):
        text = json.dumps(tensors).encode()
        bad.write_bytes(struct.pack("<Q", len(text)) + text + bytes(size))

    for extents, offsets, part in (([2**40, 2**40], [0, 400], "is damaged"), ([100], [0, 404], "at bytes 0 to 404 of 400"), ([100], [400, 0], "is damaged"),
                                   ([-1], [0, 4], "no list of numbers"), ([1e9], [0, 4], "no list of numbers"), ([0] * 10**5, [0, 0], "axes")):
        header({"a": {"dtype": "F32", "shape": extents, "data_offsets": offsets}})
        refuse(bad, folder, part)
    header({name: {"dtype": "F32", "shape": [50], "data_offsets": [begin, begin + 200]} for name, begin in (("a", 0), ("b", 196))})
    refuse(bad, folder, "b lies where another tensor is")
    header({"a": {"dtype": "F8_E4M3", "shape": [400], "data_offsets": [0, 400]}})
    refuse(bad, folder, "F8_E4M3")
    bad.write_bytes(struct.pack("<Q", 2**60) + b"{}")
    refuse(bad, folder, "header is not whole")
    index = folder / "index.json"
    for weight_map, part in ((None, "no weight_map"), ({"a": "../x.safetensors"}, "no name in its directory"), ({"a": "/etc/passwd"}, "no name in its directory")):
        index.write_text(json.dumps({"weight_map": weight_map}))
        refuse(index, folder, part)


def pickles_are_bounded(folder):
    """Pickles that ask for much: each is refused within the memory that a small program takes."""
    require()
    state = collections.OrderedDict([("a", torch.ones(2))])
    good, bad = folder / "good.pth", folder / "bad.pth"
    torch.save(state, good)
    dimensions = b"\x80\x02(" + b"K\x01" * 10**5 + b"t."
    cycle = b"\x80\x02}q\x00X\x05\x00\x00\x00modelh\x00s."
    key = b"X" + struct.pack("<I", 2**20) + b"k" * 2**20 + b"q\x01"
    storage = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nh\x01X\x03\x00\x00\x00cpuK\x01tQ"
    keys = b"\x80\x02" + key + b"0}(" + b"h\x01N" * 10**5 + b"u."
    storages = b"\x80\x02" + key + b"0(" + storage * 10**4 + b"l."
    memos = b"\x80\x02N" + b"\x94" * (2**23) + b"."
    many = b"\x80\x02(" + b"]" * (2**23) + b"l."
    deep = b"\x80\x02" + b"(" * 10**6 + b"N" + b"l" * 10**6 + b"."
    for content, part in ((dimensions, "holds no dict"), (cycle, "holds no state dict"), (many, "more than 2^22 values"), (deep, "holds no dict"),
                          (keys, "holds no state dict (its 100000 keys"), (storages, "a storage with a long key"),
                          (memos, "memoizes more than 2^22 values"), (b"\x80\x02}", "ends too early"), (b"\x80\x02s.", "empty stack"), (b"\x80\x02h\x05.", "refers to what is not there"),
                          (b"\x80\x02cos\nsystem\n.", "os.system"), (b"\x80\x09N.", "protocol 9"), (b"\x80\x02P0\n.", "opcode 0x50"), (b"", "ends too early")):
        rewritten(good, bad, lambda name, old: content if name.endswith("/data.pkl") else old)
        refuse(bad, folder, part, limit=("prlimit", f"--as={3 << 30}"))


if __name__ == "__main__":
    main([every_way_of_saving_is_read, other_strides_and_shared_storages_are_read, an_average_is_taken_by_default, inspect_lists_a_file_of_weights, lockstep_reads_what_it_exports,
          networks_of_timm_and_hugging_face_give_their_logits, a_run_starts_from_a_file_with_another_head,
          what_does_not_fit_is_listed_and_refused_unless_allowed, positions_are_interpolated_for_another_image_size,
          layers_learn_as_timm_scales_them, the_recipes_of_fine_tuning_start_from_torchvisions_networks, what_a_file_would_execute_is_refused_by_name, hostile_and_damaged_files_are_refused, pickles_are_bounded])
