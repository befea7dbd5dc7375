#!/usr/bin/env python3
"""Tests packing of image folders like ImageNet's: damaged and unusual files, labels and names in files, archives."""

import io
import random
import tarfile

from harness import *  # noqa: F403

try:
    from PIL import Image
except ImportError as missing:
    print(f"skipped: {missing} (install python3-pil)")
    sys.exit(77)

CLASSES = ("n01440764", "n01443537", "n01484850")


def picture(seed, height, width, mode="RGB"):
    """A smooth image with a little noise."""
    random = np.random.default_rng(seed)
    coarse = Image.fromarray(random.integers(0, 256, (4, 5, 3), dtype="u1")).resize((width, height), Image.BICUBIC)
    noise = random.integers(-8, 9, (height, width, 3))
    return Image.fromarray(np.clip(np.asarray(coarse) + noise, 0, 255).astype("u1")).convert(mode)


def encoded(image, kind="JPEG", **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def rotated():
    """A JPEG file whose EXIF orientation says that it is to be rotated."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(picture(104, 20, 40), exif=exif.tobytes())


# Files that ImageNet has, and that must be packed.
UNUSUAL = {
    "cmyk.JPEG": encoded(picture(101, 50, 60, "CMYK")),
    "disguised.JPEG": encoded(picture(102, 30, 70), "PNG"),
    "gray.JPEG": encoded(picture(103, 48, 33, "L")),
    "rotated.JPEG": rotated(),
    "tiny.JPEG": encoded(picture(105, 1, 1)),
    "huge.JPEG": encoded(picture(106, 1500, 2000)),
}
BAD = {
    "truncated.JPEG": encoded(picture(107, 60, 60))[:-300],
    "empty.JPEG": b"",
    "text.JPEG": b"<html>404 Not Found</html>",
}


def write_imagenet(folder, bad=True, flat_val=False):
    """Training images of three classes, two of which have unusual files, and one bad files; nine validation images."""
    for label, name in enumerate(CLASSES):
        (folder / "train" / name).mkdir(parents=True)
        for i in range(8):
            image = picture(label * 100 + i, 40 + 5 * i, 64 - 3 * i)
            (folder / "train" / name / f"{name}_{i}.JPEG").write_bytes(encoded(image))
    for i, (name, content) in enumerate(UNUSUAL.items()):
        (folder / "train" / CLASSES[i % 2] / name).write_bytes(content)
    for name, content in BAD.items() if bad else ():
        (folder / "train" / CLASSES[2] / name).write_bytes(content)
    for i in range(9):
        path = folder / "val" / ("." if flat_val else CLASSES[i * i % 3]) / f"ILSVRC2012_val_{i + 1:08}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(picture(200 + i, 50, 45)))
    return folder


def pack_args(source, output, *more):
    return ["pack", "--from", "folder", "--input", source, "--output", output, "--shards", 3, *more]


def pack(source, output, *more, ranks=1):
    lines = run([*pack_args(source, output, *more), "--json"], ranks).splitlines()
    return json.loads(next(line for line in lines if line.startswith("{")))


def content(directory, record=True):
    """Without `record`, of packings from different sources: the record names the entries that are no samples."""
    return {path.name: path.read_bytes() for path in directory.iterdir()
            if not path.name.startswith(".") and (record or path.name != "packing.json")}


def packed_files(directory, split="train"):
    """The JPEG files of a split with their labels."""
    found = []
    for shard in sorted(directory.glob(f"{split}-*.h5")):
        with h5py.File(shard) as file:
            data, ends = file["encoded"][...].tobytes(), file["offsets"][...]
            found += [(int(label), data[a:b]) for a, b, label in zip(ends, ends[1:], file["labels"])]
    return found


def bad_files_are_skipped_on_any_number_of_ranks(folder):
    source = write_imagenet(folder / "in")
    for kind, options in (("pixels", ["--image-size", 16]), ("jpeg", ["--keep-encoded"])):
        args = [*options, "--on-bad", "skip"]
        one = pack(source, folder / f"{kind}-1", *args)
        three = pack(source, folder / f"{kind}-3", *args, ranks=3)

        assert content(folder / f"{kind}-1") == content(folder / f"{kind}-3")
        assert one["skipped"] == three["skipped"] == 3 and one["train_samples"] == 30 and one["val_samples"] == 9, one
        assert one["re_encoded"] == three["re_encoded"] == (2 if kind == "jpeg" else 0), one
        rows = [line.split("\t") for line in (folder / f"{kind}-1" / "skipped.txt").read_text().splitlines()]
        assert [path for path, _ in rows] == [str(source / "train" / CLASSES[2] / name) for name in sorted(BAD)], rows
        assert "(0 bytes)" in rows[0][1] and "neither" in rows[1][1] and "not a whole JPEG" in rows[2][1], rows
    output = run(pack_args(source, folder / "shown", "--keep-encoded", "--on-bad", "skip"), ranks=3)
    assert output.count("warning: 3 images could not be read") == 1 and "2 PNG or CMYK files were" in output, output
    run(["inspect", "--verify", folder / "jpeg-1", folder / "pixels-3"])


def wide_pixels_keep_more_than_the_middle_square(folder):
    sizes = {"four_to_three": (48, 64), "portrait": (60, 40), "wide": (30, 80)}  # height, width
    for name, (height, width) in sizes.items():
        (folder / "in" / name).mkdir(parents=True)
        (folder / "in" / name / "image.png").write_bytes(encoded(picture(height, height, width), "PNG"))
    for ranks in (1, 3):
        pack(folder / "in", folder / f"out-{ranks}", "--image-size", 18, "--image-width", 24, ranks=ranks)
    assert content(folder / "out-1") == content(folder / "out-3")
    packed = {}
    for shard in (folder / "out-1").glob("train-*.h5"):
        with h5py.File(shard) as file:
            packed.update(zip((int(label) for label in file["labels"]), file["images"][...]))
    for label, (name, (height, width)) in enumerate(sizes.items()):
        scale = max(18 / height, 24 / width)
        covering = Image.open(folder / "in" / name / "image.png").resize((int(width * scale), int(height * scale)), Image.BILINEAR)
        left, top = (covering.width - 24) // 2, (covering.height - 18) // 2
        expected = np.asarray(covering.crop((left, top, left + 24, top + 18))).astype(int)
        assert packed[label].shape == (18, 24, 3) and np.abs(packed[label] - expected).max() <= 1, name
    output = run(["train", "--data", folder / "out-3", "--run-dir", folder / "run", "--model", "mini-resnet", "--width", 8, "--batch-size", 3,
                  "--epochs", 1, "--threads", 1, "--augment", "resized-crop", "--image-size", 16])
    assert "input 3x16x16" in output and "finished" in output, output
    output = run([*pack_args(folder / "in", folder / "refused"), "--keep-encoded", "--image-width", 24], expect=USAGE)
    assert "--image-width 24 with --keep-encoded" in output, output


def an_image_file_of_gigabytes_is_not_read(folder):
    """A sparse file, with less memory than it has bytes."""
    classes = folder / "in" / "train" / "n01"
    classes.mkdir(parents=True)
    for name in ("a.png", "b.png", "c.png", "d.png"):
        (classes / name).write_bytes(encoded(picture(1, 20, 20), "PNG"))
    os.truncate(classes / "b.png", 8 << 30)
    limited = ["bash", "-c", 'ulimit -v 4000000; exec "$@"', "bash", *command(pack_args(folder / "in", folder / "out", "--image-size", 16))]
    done = subprocess.run(limited, capture_output=True, text=True, env=environment(), timeout=SECONDS)
    assert done.returncode == BAD_INPUT and "a file of 8589934592 bytes" in done.stderr and "b.png" in done.stderr, done.stderr


def a_bad_file_stops_packing_by_default(folder):
    source = write_imagenet(folder / "in")
    for ranks in (1, 3):
        output = run(pack_args(source, folder / "out", "--image-size", 16), ranks, expect=BAD_INPUT)
        assert str(source / "train" / CLASSES[2]) in output and "--on-bad skip" in output, output
    assert not list((folder / "out").glob("*.h5"))


def unusual_files_become_rgb_jpeg(folder):
    source = write_imagenet(folder / "in", bad=False)
    pack(source, folder / "out", "--keep-encoded")
    packed = packed_files(folder / "out")
    originals = {path.read_bytes(): path for path in (source / "train").glob("*/*")}
    changed = [(label, data) for label, data in packed if data not in originals]
    assert len(packed) == len(originals) == 30 and len(changed) == 2, len(changed)
    for label, data in packed:
        if data in originals:
            assert originals[data].parent.name == CLASSES[label]
        else:
            # CMYK in class 0, PNG in class 1; the pixels are those of the file, but for the new compression.
            image = Image.open(io.BytesIO(data))
            expected = picture(102, 30, 70) if label else Image.open(io.BytesIO(UNUSUAL["cmyk.JPEG"])).convert("RGB")
            assert image.format == "JPEG" and image.mode == "RGB" and image.size == expected.size, image
            difference = np.abs(np.asarray(image).astype(int) - np.asarray(expected)).mean()
            assert difference < 6, difference


def large_images_are_resized_and_encoded_again(folder):
    source = write_imagenet(folder / "in")
    args = ["--keep-encoded", "--on-bad", "skip", "--short-side", 44]
    one = pack(source, folder / "one", *args)
    pack(source, folder / "three", *args, ranks=3)
    better = pack(source, folder / "better", *args, "--quality", 100)

    assert content(folder / "one") == content(folder / "three")
    assert better["bytes"] > one["bytes"], (one, better)
    originals = {}
    for path in sorted((source / "train").glob("*/*")):
        if path.name not in BAD:
            size = Image.open(path).size
            # torchvision's Resize(44), for images that are larger.
            small = tuple(44 * side // min(size) for side in size)
            originals[path.read_bytes()] = (small if min(size) > 44 else size, CLASSES.index(path.parent.name))
    packed = packed_files(folder / "one")
    sizes = sorted((Image.open(io.BytesIO(data)).size, label) for label, data in packed)
    assert sizes == sorted(originals.values()), sizes
    kept = sum(data in originals for _, data in packed)
    resized_val = 9  # 45 x 50
    assert one["resized"] == 30 - kept - 1 + resized_val and one["re_encoded"] == 1, (one, kept)  # the PNG file is small
    huge = next(data for _, data in packed if Image.open(io.BytesIO(data)).size == (58, 44))
    expected = Image.open(io.BytesIO(UNUSUAL["huge.JPEG"])).resize((58, 44), Image.BILINEAR)
    difference = np.abs(np.asarray(Image.open(io.BytesIO(huge))).astype(int) - np.asarray(expected)).mean()
    assert difference < 4, difference

    splits = json.loads(run(["inspect", folder / "one", "--json"]))["splits"]
    assert [split["short_side"] for split in splits] == [44, 44], splits
    output = run(["train", "--data", folder / "one", "--run-dir", folder / "run", "--model", "mini-resnet", "--width", 8, "--batch-size", 3,
                  "--max-steps", 1, "--threads", 1, "--augment", "resized-crop", "--image-size", 40])
    assert "makes training images of 40x40 from JPEG files with a short side of at most 44" in output, output
    assert "resizes the short side to 46 for images of 40x40" in output and "packed with --short-side 44" in output, output


def options_that_do_not_fit_are_refused(folder):
    source = write_imagenet(folder / "in")
    for options, says in ((["--short-side", 44], "--keep-encoded"), (["--quality", 80, "--image-size", 16], "--keep-encoded"),
                          (["--image-size", 16, "--keep-encoded"], "--short-side"), (["--quality", 101], "from 1 to 100")):
        assert says in run(pack_args(source, folder / "out", *options), expect=USAGE), options
    output = run(["pack", "--from", "mnist", "--input", source, "--output", folder / "out", "--on-bad", "skip"], expect=USAGE)
    assert "--from folder" in output, output


def write_labels(folder):
    """The labels of the validation images in every format, by name of the format, as options of pack."""
    labels = [i * i % 3 for i in range(9)]
    names = [f"ILSVRC2012_val_{i + 1:08}" for i in range(9)]
    rows = ["ImageId,PredictionString", *(f"{name},{CLASSES[label]} 85 1 499 272 {CLASSES[label]} 1 2 3 4 "
                                          for name, label in zip(names, labels))]
    texts = {
        "LOC_val_solution.csv": "\n".join([rows[0], *reversed(rows[1:])]) + "\n",
        "classes.txt": "".join(f"{name}.JPEG {CLASSES[label]}\r\n" for name, label in zip(names, labels)),
        "indices.txt": "".join(f"val/{name}.JPEG\t{label}\n" for name, label in zip(names, labels)),
        "ground_truth.txt": "".join(f"{(7, 3, 9)[label]}\n" for label in labels),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "ids.txt").write_text("".join(f"{number} {name}\n" for number, name in zip((7, 3, 9), CLASSES)))
    options = {name: ["--val-labels", folder / name] for name in texts}
    options["ground_truth.txt"] += ["--class-ids", folder / "ids.txt"]
    return options


def validation_images_without_folders_get_their_labels_from_a_file(folder):
    sorted_by_class = write_imagenet(folder / "sorted", bad=False)
    flat = write_imagenet(folder / "flat", bad=False, flat_val=True)
    labels = write_labels(folder)
    args = ["--keep-encoded"]
    pack(sorted_by_class, folder / "expected", *args)
    expected = sorted(packed_files(folder / "expected", "val"))
    packed = []
    for ranks, (name, options) in zip((1, 3, 1, 2), labels.items()):
        pack(flat, folder / f"out-{name}", *args, *options, ranks=ranks)
        packed.append(content(folder / f"out-{name}"))
        assert sorted(packed_files(folder / f"out-{name}", "val")) == expected, name
    assert all(other == packed[0] for other in packed)

    assert "--val-labels" in run(pack_args(flat, folder / "none", *args), 2, expect=BAD_INPUT)
    numbers = run(pack_args(flat, folder / "none", *args, "--val-labels", folder / "ground_truth.txt"), 2, expect=USAGE)
    assert "--class-ids" in numbers and "meta.mat" in numbers, numbers
    assert "--val-labels" in run(pack_args(flat, folder / "none", *args, "--class-ids", folder / "ids.txt"), expect=USAGE)
    refused = run(pack_args(sorted_by_class, folder / "none", *args, *labels["classes.txt"]), expect=BAD_INPUT)
    assert "drop --val-labels" in refused, refused
    (flat / "val" / "another.JPEG").write_bytes(UNUSUAL["gray.JPEG"])
    refused = run(pack_args(flat, folder / "none", *args, *labels["classes.txt"]), 3, expect=BAD_INPUT)
    assert "no label for 1 of 10 images, such as another.JPEG" in refused, refused
    assert not (folder / "none").exists()


def class_names_come_from_a_file(folder):
    source = write_imagenet(folder / "in", bad=False)
    mapping = folder / "LOC_synset_mapping.txt"
    names = ["tench, Tinca tinca", "goldfish, Carassius auratus", "great white shark, white shark"]
    rows = [f"{synset} {name}\n" for synset, name in zip(CLASSES, names)]
    mapping.write_text("".join([*reversed(rows), "n09999999 of a class that is not there\n"]))
    args = ["--image-size", 8, "--class-names", mapping]
    pack(source, folder / "out", *args, ranks=3)
    with h5py.File(folder / "out" / "val-00000-of-00001.h5") as file:
        assert [name.decode() for name in file.attrs["class_names"]] == names, list(file.attrs["class_names"])
    mapping.write_text("".join(rows[:2]))
    refused = run(pack_args(source, folder / "none", *args), 3, expect=BAD_INPUT)
    assert "does not name class n01484850" in refused, refused


def write_tar(path, members, form=tarfile.GNU_FORMAT):
    """Writes an archive of (name, bytes)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=form) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path.read_bytes()


def write_imagenet_archives(source, folder):
    """The archives in which ImageNet is distributed, of a folder with the same images in val/."""
    classes = []
    for name in reversed(CLASSES):
        files = [(path.name, path.read_bytes()) for path in (source / "train" / name).iterdir()]
        classes.append((f"{name}.tar", write_tar(folder / "part.tar", files)))
    (folder / "part.tar").unlink()
    write_tar(folder / "ILSVRC2012_img_train.tar", classes)
    write_tar(folder / "ILSVRC2012_img_val.tar", [(path.name, path.read_bytes()) for path in (source / "val").iterdir()])
    return folder


def the_archives_of_imagenet_give_the_same_shards_as_its_folders(folder):
    source = write_imagenet(folder / "in", flat_val=True)
    archives = write_imagenet_archives(source, folder / "tars")
    labels = write_labels(folder)["LOC_val_solution.csv"]
    args = ["--keep-encoded", "--on-bad", "skip", "--shards", 3]
    pack(source, folder / "expected", *args[:-2], *labels)
    expected = content(folder / "expected", record=False)
    for ranks in (1, 3):
        output = folder / f"out-{ranks}"
        run(["pack", "--from", "tar", "--input", archives, "--output", output, *args, *labels], ranks)
        packed = content(output, record=False)
        # The paths are those in the archives.
        skipped = packed.pop("skipped.txt").decode()
        assert f"{archives}/ILSVRC2012_img_train.tar/{CLASSES[2]}.tar/truncated.JPEG\t" in skipped, skipped
        assert packed == {name: data for name, data in expected.items() if name != "skipped.txt"}

    tar_args = ["pack", "--from", "tar", "--input", archives, "--output", folder / "none", "--keep-encoded"]
    assert "--val-labels is missing" in run(tar_args, 3, expect=USAGE)
    val = archives / "ILSVRC2012_img_val.tar"
    val.rename(archives / "imagenet_val.tar")
    assert "looks like the validation images" in run(tar_args, expect=BAD_INPUT)
    val.symlink_to("/not/mounted.tar")
    assert "a link to /not/mounted.tar" in run([*tar_args, *labels], 2, expect=NO_INPUT)
    val.unlink()
    (archives / "imagenet_val.tar").rename(val)
    train = archives / "ILSVRC2012_img_train.tar"
    whole = train.read_bytes()
    train.write_bytes(whole[:-30000])
    assert "longer than the rest of the archive" in run([*tar_args, *labels], 3, expect=BAD_INPUT)
    train.unlink()
    subprocess.run(["gzip"], input=whole, stdout=open(train, "wb"), check=True)
    assert "compressed by gzip" in run([*tar_args, *labels], 3, expect=BAD_INPUT)
    assert not (folder / "none").exists()


def samples_of(source, part, label_of, kind):
    """Members of a WebDataset with the images of a folder."""
    members = []
    for path in sorted((source / part).glob("*/*")):
        label = CLASSES.index(path.parent.name)
        image = path.read_bytes()
        members.append((f"./data/{path.stem}.{'png' if image.startswith(bytes.fromhex('89504e47')) else 'jpg'}", image))
        members.append((f"./data/{path.stem}.{kind}", label_of(label)))
        members.append((f"./data/{path.stem}.txt", b"a caption"))
    return members


def a_webdataset_is_packed_from_its_archives(folder):
    source = write_imagenet(folder / "in", bad=False)
    pack(source, folder / "expected", "--keep-encoded")
    train = samples_of(source, "train", lambda label: f"{label}\n".encode(), "cls")
    val = samples_of(source, "val", lambda label: json.dumps({"width": 5, "label": label}).encode(), "json")
    half = len(train) // 2 // 3 * 3
    flat, parts = folder / "flat", folder / "parts"
    write_tar(flat / "imagenet-train-000000.tar", train[:half], tarfile.USTAR_FORMAT)
    write_tar(flat / "imagenet-train-000001.tar", train[half:], tarfile.PAX_FORMAT)
    write_tar(flat / "imagenet-validation-000000.tar", val)
    write_tar(parts / "train" / "0.tar", train)
    write_tar(parts / "val" / "0.tar", val)
    (folder / "names.txt").write_text("".join(f"{name} {name}\n" for name in CLASSES))
    packed = []
    for ranks, layout in ((1, flat), (3, flat), (2, parts)):
        output = folder / f"out-{layout.name}-{ranks}"
        run(["pack", "--from", "webdataset", "--input", layout, "--output", output, "--keep-encoded", "--shards", 3,
             "--class-names", folder / "names.txt"], ranks)
        packed.append(content(output, record=False))
        for split in ("train", "val"):
            assert sorted(packed_files(output, split)) == sorted(packed_files(folder / "expected", split))
        with h5py.File(output / "train-00000-of-00003.h5") as file:
            assert [name.decode() for name in file.attrs["class_names"]] == list(CLASSES)
    assert packed[0] == packed[1] == packed[2]

    refused = ["pack", "--from", "webdataset", "--input", flat, "--output", folder / "none", "--keep-encoded"]
    write_tar(flat / "imagenet-more-000000.tar", val)
    assert "1 others, such as imagenet-more-000000.tar" in run(refused, 2, expect=BAD_INPUT)
    (flat / "imagenet-more-000000.tar").unlink()
    write_tar(flat / "imagenet-validation-000000.tar", [val[0], (val[1][0], b'{"label": 3}')])
    assert "has label 3 (there are 3 classes" in run(refused, 3, expect=BAD_INPUT)
    write_tar(flat / "imagenet-train-000001.tar", train[half:-2])
    assert "is an image without a label" in run(refused, 3, expect=BAD_INPUT)
    assert "--val-labels" in run([*refused, "--val-labels", folder / "names.txt"], expect=USAGE)


def shards_done(output):
    """Shards that are packed, and once more if they are published."""
    with contextlib.suppress(FileNotFoundError):
        return len(list((output / "unfinished").glob("*.json"))) + len(list(output.glob("*.h5")))
    return 0


def killed_packing_goes_on_to_the_same_bytes(folder):
    source = write_imagenet(folder / "in")
    for i in range(60):
        name = CLASSES[i % 3]
        (source / "train" / name / f"large_{i}.JPEG").write_bytes(encoded(picture(300 + i, 500, 700)))
    args = ["--keep-encoded", "--on-bad", "skip", "--short-side", 256, "--shards", 20]
    run(["pack", "--from", "folder", "--input", source, "--output", folder / "expected", *args])
    expected = content(folder / "expected")

    seed = random.SystemRandom().randrange(2**32)
    print(f"        seed {seed}")
    chance = random.Random(seed)
    earlier = []
    for attempt in range(4):
        output = folder / f"out{attempt}"
        kills = 0
        while True:
            ranks = chance.choice((1, 3))
            process = start(["pack", "--from", "folder", "--input", source, "--output", output, *args, "--json"], ranks)
            if kills < 6:
                until = shards_done(output) + chance.randrange(1, 20)
                while process.poll() is None and shards_done(output) < until:
                    time.sleep(0.001)
                time.sleep(chance.random() * 0.02)
                # mpiexec last, which may hang if ranks are killed as they finish.
                killed = [process.pid]
                with contextlib.suppress(FileNotFoundError):  # a rank has ended
                    killed = [*ranks_of(process).values(), process.pid]
                for pid in killed:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            status, text = finish(process)
            if status == OK:
                line = next(line for line in text.splitlines() if line.startswith("{"))
                earlier.append(json.loads(line)["earlier_shards"])
                break
            kills += 1
            assert kills < 10 and status not in (USAGE, BAD_INPUT, NO_INPUT, CANNOT_WRITE), f"{status}\n{text}"
        assert content(output) == expected, f"after {kills} kills"
    print(f"        shards of earlier runs: {earlier}")
    assert all(earlier), earlier


def two_packings_into_one_directory_exclude_each_other(folder):
    source = write_imagenet(folder / "in", bad=False)
    for i in range(60):
        (source / "train" / CLASSES[0] / f"large_{i}.JPEG").write_bytes(encoded(picture(300 + i, 900, 900)))
    args = pack_args(source, folder / "out", "--keep-encoded", "--short-side", 256)
    for ranks in (1, 2):
        first = start(args, 1)
        lock, deadline = folder / "out" / ".packing.lock", time.monotonic() + SECONDS
        while not (lock.exists() and f'"process":{first.pid},' in lock.read_text()) and time.monotonic() < deadline:
            time.sleep(0.001)
        os.kill(first.pid, signal.SIGSTOP)
        refused = run([*args[:-2], "--quality", 91, "--overwrite"], ranks, expect=CANNOT_WRITE)
        assert f"directory {folder / 'out'} is held by process {first.pid} on" in refused and "another --output" in refused, refused
        os.kill(first.pid, signal.SIGKILL)
        finish(first)
    # A killed packing holds nothing.
    run(args)


def exif_orientation_is_ignored(folder):
    """As torchvision's ImageFolder ignores it."""
    for name, data in (("with", UNUSUAL["rotated.JPEG"]), ("without", encoded(picture(104, 20, 40)))):
        (folder / name / "cat").mkdir(parents=True)
        (folder / name / "cat" / "0.JPEG").write_bytes(data)
        for kind, options in (("pixels", ["--image-size", 16]), ("jpeg", ["--keep-encoded", "--short-side", 16])):
            run(["pack", "--from", "folder", "--input", folder / name, "--output", folder / f"{name}-{kind}", *options])
    for kind in ("pixels", "jpeg"):
        assert content(folder / f"with-{kind}", record=False) == content(folder / f"without-{kind}", record=False)
    ((_, data),) = packed_files(folder / "with-jpeg")
    assert Image.open(io.BytesIO(data)).size == (32, 16)


if __name__ == "__main__":
    main([bad_files_are_skipped_on_any_number_of_ranks, an_image_file_of_gigabytes_is_not_read, wide_pixels_keep_more_than_the_middle_square, a_bad_file_stops_packing_by_default, unusual_files_become_rgb_jpeg,
          large_images_are_resized_and_encoded_again, options_that_do_not_fit_are_refused,
          validation_images_without_folders_get_their_labels_from_a_file, class_names_come_from_a_file,
          the_archives_of_imagenet_give_the_same_shards_as_its_folders, a_webdataset_is_packed_from_its_archives,
          killed_packing_goes_on_to_the_same_bytes, two_packings_into_one_directory_exclude_each_other, exif_orientation_is_ignored])
