#!/usr/bin/env python3
"""Tests that packing gives each entry of its input one fate, by folders that are generated at random and by Pillow's reading of them."""

import collections
import io
import random
import stat
import tarfile

from harness import *  # noqa: F403

try:
    from PIL import Image
except ImportError as missing:
    print(f"skipped: {missing} (install python3-pil)")
    sys.exit(77)

TRAIN = ("train", "Train", "training", "TRAINING")
VAL = ("val", "valid", "Validation", "dev", "TEST", "testing")
SYSTEMS_OWN = ("__MACOSX", "@eaDir", "lost+found")
IMAGE_ENDINGS = {"jpg", "jpeg", "jpe", "jfif", "png", "webp", "bmp", "gif", "tif", "tiff", "ppm"}


def image(chance, form):
    pixels = bytes(chance.randrange(256) for _ in range(8 * 8 * 3))
    stream = io.BytesIO()
    Image.frombytes("RGB", (8, 8), pixels).save(stream, form)
    return stream.getvalue()


def good_file(chance):
    """Name's ending and content of a file that is packed."""
    form = chance.choice(("JPEG", "PNG"))
    endings = [".jpg", ".JPEG", ".png", ".PNG", ".jpeg", ".jfif", ".jpe", ".jpg_large", "", ".webp", ".v2.jpg"]
    return chance.choice(endings), image(chance, form)


def other_file(chance):
    kind = chance.randrange(9)
    if kind < 3:
        form = chance.choice(("WEBP", "GIF", "BMP", "TIFF", "PPM"))
        return chance.choice((f".{form.lower()}", ".jpg", ".png", ".dat", "")), image(chance, form)
    if kind == 3:
        return ".jpg", image(chance, "JPEG")[:-chance.randrange(40, 200)]
    if kind == 4:
        return chance.choice((".png", ".JPG", ".webp", ".gif", ".tif")), b""
    if kind == 5:
        return chance.choice((".jpeg", ".bmp", ".png")), b"<html>404 Not Found</html>"
    return chance.choice((".txt", ".xml", ".csv", "", ".npy")), b"something else"


class Folder:
    """Makes an input at random; knows which of its folders are classes."""

    def __init__(self, root, chance):
        self.root, self.chance, self.names = root, chance, 0
        self.dangling = False
        self.clean = chance.random() < 0.4  # nothing that stops a packing
        root.mkdir(parents=True)
        classes = [f"{word}{i}" for i, word in enumerate(chance.sample(["cat", "hot dog", "Übung", "a,b", "n01", "x.y"], chance.randint(2, 4)))]
        self.parts = {}
        if chance.random() < 0.6:
            train, *val = chance.choice(TRAIN), *chance.sample(VAL, chance.choice((0, 1, 1, 2)))
            order = [name.lower() for name in ("val", "valid", "validation", "dev", "test", "testing")]
            val.sort(key=lambda name: order.index(name.lower()))
            self.parts["train"] = root / train
            if val:
                self.parts["val"] = root / val[0]
            self.unused = [root / name for name in val[1:]]
            for folder in [root / train, *(root / name for name in val)]:
                self.fill_part(folder, classes)
            self.clutter(root)
            if chance.random() < 0.3 and not self.clean:
                self.fill(root / "extra", 3, good=2)
        else:
            self.parts["train"], self.unused = root, []
            self.fill_part(root, classes)

    def name(self, ending=""):
        self.names += 1
        return f"{self.chance.choice(('img', 'a b', 'é', '2021.7', '-x'))}{self.names}{ending}"

    def fill_part(self, folder, classes):
        folder.mkdir(exist_ok=True)
        for name in classes:
            self.fill(folder / name, self.chance.randint(1, 6))
        self.clutter(folder)
        if self.chance.random() < 0.2 and not self.clean:
            (folder / "nothing").mkdir()
            (folder / "nothing" / "readme").write_text("no image")

    def clutter(self, folder):
        """Entries that are in no class."""
        for _ in range(self.chance.randrange(3)):
            what = self.chance.randrange(6)
            if what == 0:
                (folder / f"._{self.name('.jpg')}").write_bytes(b"x")
            elif what == 1:
                (folder / self.name(".csv")).write_text("labels")
            elif what == 2 and not self.clean:
                (folder / self.name(self.chance.choice((".zip", ".tar", ".tar.gz")))).write_bytes(b"PK")
            elif what == 3:
                hidden = folder / self.chance.choice(SYSTEMS_OWN + (".git", "old~"))
                hidden.mkdir(exist_ok=True)
                (hidden / "x.jpg").write_bytes(image(self.chance, "JPEG"))
            elif what == 4:
                os.mkfifo(folder / self.name(".pipe"))

    def fill(self, folder, files, depth=0, good=None):
        chance = self.chance
        folder.mkdir()
        good = files if good is None else good
        for _ in range(good + 1):
            ending, content = good_file(chance)
            path = folder / self.name(ending)
            if chance.random() < 0.2:
                target = self.root.parent / "targets" / path.name
                target.parent.mkdir(exist_ok=True)
                target.write_bytes(content)
                path.symlink_to(target)
            else:
                path.write_bytes(content)
        for _ in range(chance.randrange(good + 1)):  # fewer than the good ones, below each folder
            what = chance.randrange(10)
            if what < 6:
                ending, content = (".txt", b"something else") if self.clean else other_file(chance)
                (folder / self.name(ending)).write_bytes(content)
            elif what == 6:
                os.mkfifo(folder / self.name(chance.choice(("",) if self.clean else (".jpg", ""))))
            elif what == 7:
                os.mknod(folder / self.name(".sock" if self.clean else chance.choice((".png", ".sock"))), stat.S_IFSOCK)
            elif what == 8:
                (folder / chance.choice((f".{self.name('.jpg')}", f"{self.name()}~", self.name(".swp"), ".DS_Store"))).write_bytes(b"x")
            elif chance.random() < 0.1:
                (folder / self.name(".jpg")).symlink_to("/not/mounted/x.jpg")
                self.dangling = True
        if depth < 3 and chance.random() < 0.5:
            self.fill(folder / self.name(), chance.randrange(3), depth + 1)
        if depth == 0 and chance.random() < 0.2:
            outside = self.root.parent / "targets" / self.name()
            outside.parent.mkdir(exist_ok=True)
            self.fill(outside, 1, depth=3)
            (folder / self.name()).symlink_to(outside)


def is_hidden(name):
    return name.startswith(".") or name.endswith(("~", ".swp")) or name in (*SYSTEMS_OWN, "$RECYCLE.BIN", "System Volume Information")


def entries_below(folder):
    """Every entry but folders, through links; a hidden folder is one entry."""
    for entry in os.scandir(folder):
        path = pathlib.Path(entry.path)
        if path.is_dir() and not is_hidden(entry.name):
            yield from entries_below(path)
        else:
            yield path


def fate_in_class(path):
    """What should become of an entry in a class folder, by Pillow."""
    if is_hidden(path.name):
        return "left out"
    named = path.suffix[1:].lower() in IMAGE_ENDINGS
    if not path.is_file():
        return "listed" if named else "left out"
    try:
        with Image.open(path) as opened:
            form = opened.format
            if form in ("JPEG", "PNG"):
                opened.load()
                return "packed"
            return "skipped"  # an image in another format is listed as a sample that is not read
    except Exception:  # noqa: BLE001 - whatever Pillow says, it is no whole image
        content = path.read_bytes()
        return "skipped" if named or content.startswith(b"\xff\xd8\xff") else "left out"


def expected_fates(made):
    """The number of entries by fate, and the packed ones by part and class."""
    fates, samples = collections.Counter(), collections.Counter()
    empty = 0
    for part, folder in made.parts.items():
        for entry in sorted(folder.iterdir()):
            if is_hidden(entry.name) or not entry.is_dir():
                fates["entries"] += entry.parent != made.root or "train" not in made.parts or made.parts["train"] == made.root
                continue
            if entry in made.parts.values() or entry in made.unused or (entry.name == "extra" and len(made.parts) and made.parts["train"] != made.root):
                continue
            found = collections.Counter(fate_in_class(path) for path in entries_below(entry))
            fates["entries"] += sum(found.values())
            fates["skipped"] += found["skipped"]
            if found["packed"] + found["skipped"] == 0:
                empty += 1  # the folder is listed itself
                continue
            samples[part, entry.name] = found["packed"]
    if made.parts["train"] != made.root:
        for path in entries_below(made.root):
            inside = [folder for folder in made.parts.values() if folder in path.parents]
            fates["entries"] += not inside
    fates["entries"] += empty
    return fates, samples


def packed_samples(directory):
    """Samples by part and name of the class."""
    found = collections.Counter()
    for shard in directory.glob("*.h5"):
        with h5py.File(shard) as file:
            names = [name.decode() for name in file.attrs["class_names"]]
            for label in file["labels"]:
                found[shard.name.split("-")[0], names[label]] += 1
    return found


def pack(source, output, *more, ranks=1, expect=OK):
    """The JSON of a packing, or the text of one that is refused."""
    args = ["pack", "--from", "folder", "--input", source, "--output", output, "--image-size", 8, "--json", *more]
    # mpirun may print warnings amid a long line.
    done = subprocess.run(command(args, ranks), capture_output=True, text=True, env=environment(), timeout=SECONDS)
    assert done.returncode == expect, f"status {done.returncode}, expected {expect}: {args}\n{done.stdout}{done.stderr}"
    return json.loads(done.stdout) if expect == OK else done.stdout + done.stderr


@more_in_soak
def every_entry_of_a_random_folder_has_one_fate(folder):
    first = random.SystemRandom().randrange(2**32)
    for seed in range(first, first + (1000 if SOAK else 20)):
        work = folder / str(seed)
        made = Folder(work / "in", random.Random(seed))
        try:
            if made.dangling:
                text = pack(made.root, work / "none", "--on-bad", "skip", expect=NO_INPUT)
                assert "a link to /not/mounted/x.jpg" in text, text
                continue
            fates, samples = expected_fates(made)
            result = pack(made.root, work / "out", "--on-bad", "skip", ranks=1 + seed % 3 if seed % 5 == 0 else 1)
            left_out = sum(reason["entries"] for reason in result["left_out"].values())
            assert result["entries"] == fates["entries"], (result, fates)
            assert result["entries"] == result["samples"] + result["skipped"] + left_out, result
            assert result["skipped"] == fates["skipped"], (result, fates)
            assert packed_samples(work / "out") == +samples, (packed_samples(work / "out"), samples)
            record = json.loads((work / "out" / "packing.json").read_text())
            assert record["left_out"] == result["left_out"] and record["entries"] == result["entries"], record
            listed = (work / "out" / "skipped.txt").read_text().splitlines() if (work / "out" / "skipped.txt").exists() else []
            status, text = finish(start(["pack", "--from", "folder", "--input", made.root, "--output", work / "strict", "--image-size", 8]))
            assert status == (BAD_INPUT if listed else OK), (status, listed, text)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}\n" + "\n".join(sorted(str(p) for p in made.root.rglob("*")))) from None
        finally:
            shutil.rmtree(work)
    print(f"        seeds from {first}")


def picture(path, form="PNG", seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(image(random.Random(seed), form))


def parts_have_the_usual_names(folder):
    for i, (train, val) in enumerate((("train", "valid"), ("Training", "Validation"), ("TRAIN", "dev"), ("train", "Test"), ("training", "testing"))):
        for part in (train, val):
            for name in ("cat", "dog"):
                picture(folder / str(i) / part / name / "0.png")
        result = pack(folder / str(i), folder / f"out{i}")
        assert (result["train_samples"], result["val_samples"]) == (2, 2), result
        assert result["notes"] == [f"{val} becomes split val"], result
    # Of several, one becomes val, and the output says which.
    for part in ("train", "test", "val"):
        picture(folder / "three" / part / "cat" / f"{part}.png", seed=len(part))
    result = pack(folder / "three", folder / "out-three")
    assert result["val_samples"] == 1 and result["notes"] == ["val becomes split val; test is left out"], result
    assert result["left_out"]["in an evaluation part that is not packed"]["entries"] == 1, result
    output = run(["inspect", folder / "out-three"])
    assert "cat" in output, output
    picture(folder / "three" / "Val" / "cat" / "x.png")
    output = pack(folder / "three", folder / "none", expect=BAD_INPUT)
    assert "Val and val" in output or "val and Val" in output, output
    assert not (folder / "none").exists()


def a_reserved_name_with_images_of_its_own_is_a_class_or_an_error(folder):
    for name in ("bus", "train", "test"):
        picture(folder / "classes" / name / "0.png")
    result = pack(folder / "classes", folder / "out")
    assert result["classes"] == 3 and result["train_samples"] == 3 and len(result["notes"]) == 2, result
    for i, paths in enumerate((["train/0.png"], ["train/0.png", "test/0.png"], ["val/cat/0.png"], ["bus/0.png", "val/cat/0.png"],
                               ["bus/0.png", "test/"], ["cat/train/0.png", "cat/val/0.png"], ["train/cat/0.png", "train/1.png"],
                               ["train/cat/0.png", "0.png"], ["train/cat/0.png", "extra/dog/0.png"], ["train/cat/0.png", "test/0.png"])):
        for path in paths:
            if path.endswith("/"):
                (folder / f"bad{i}" / path).mkdir(parents=True)
            else:
                picture(folder / f"bad{i}" / path)
        status, output = finish(start(["pack", "--from", "folder", "--input", folder / f"bad{i}", "--output", folder / f"none{i}"]))
        assert status in (BAD_INPUT, NO_INPUT) and "remove" not in output and "delete" not in output, (paths, output)
        assert not (folder / f"none{i}").exists(), paths
    # The way out of an evaluation part without labels.
    assert "as --input" in output, output
    assert pack(folder / "bad9" / "train", folder / "alone")["train_samples"] == 1


def links_are_followed_or_stop(folder):
    picture(folder / "store" / "0.png")
    (folder / "in").mkdir()
    (folder / "in" / "cat").symlink_to(folder / "store")
    picture(folder / "in" / "dog" / "1.png")
    assert pack(folder / "in", folder / "out")["train_samples"] == 2
    for i, (link, target) in enumerate((("cow", "/not/mounted"), ("dog/2.png", "/not/mounted/2.png"), ("dog/more", "/not/mounted/more"))):
        (folder / "in" / link).symlink_to(target)
        for mode in ("stop", "skip"):
            output = pack(folder / "in", folder / f"none{i}", "--on-bad", mode, ranks=i or 1, expect=NO_INPUT)
            assert f"a link to {target}" in output, output
        (folder / "in" / link).unlink()
    (folder / "in" / "dog" / "loop").symlink_to(folder / "in" / "dog")
    assert "is a link to a folder that holds it" in pack(folder / "in", folder / "none", expect=BAD_INPUT)
    (folder / "in" / "dog" / "loop").unlink()
    (folder / "in" / "dog" / "loop").symlink_to("loop")
    assert "Too many levels" in pack(folder / "in", folder / "none", expect=NO_INPUT)


def other_formats_are_named(folder):
    picture(folder / "in" / "cat" / "0.png")
    picture(folder / "in" / "cat" / "1.png", seed=1)
    for form, ending in (("WEBP", "jpg"), ("GIF", "gif"), ("BMP", "png"), ("TIFF", "tif"), ("PPM", "ppm")):
        path = folder / "in" / "cat" / f"x.{ending}"
        picture(path, form)
        output = pack(folder / "in", folder / "none", expect=BAD_INPUT)
        assert str(path) in output and ({"PPM": "Netpbm", "WEBP": "WebP"}.get(form, form) + " image") in output, output
        shutil.rmtree(folder / "none", ignore_errors=True)
        result = pack(folder / "in", folder / f"out-{form}", "--on-bad", "skip")
        assert result["train_samples"] == 2 and result["skipped"] == 1, result
        assert str(path) in (folder / f"out-{form}" / "skipped.txt").read_text()
        path.unlink()


def the_output_is_outside_of_the_input(folder):
    picture(folder / "in" / "cat" / "0.png")
    (folder / "link").symlink_to(folder / "in")
    for output in (folder / "in", folder / "in" / "shards", folder / "in" / "cat" / "deep" / "out", folder / "link" / "out", folder / "out" / ".." / "in"):
        text = pack(folder / "in", output, ranks=2 if output == folder / "in" else 1, expect=USAGE)
        assert f"--output {output} is" in text, text
    assert [path.name for path in (folder / "in").rglob("*")] == ["cat", "0.png"]
    assert pack(folder / "in", folder / "in-shards")["train_samples"] == 1


def a_finished_packing_is_done(folder):
    for i in range(9):
        picture(folder / "in" / "cat" / f"{i}.png", seed=i)
    (folder / "in" / "cat" / "bad.png").write_bytes(b"")
    first = pack(folder / "in", folder / "out", "--on-bad", "skip", "--shards", 3)
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in (folder / "out").glob("[!.]*")}
    for ranks in (1, 3):
        again = pack(folder / "in", folder / "out", "--on-bad", "skip", "--shards", 3, ranks=ranks)
        assert {**again, "seconds": 0} == {**first, "seconds": 0, "earlier_shards": 3}, again
    assert before == {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in (folder / "out").glob("[!.]*")}
    # With other settings, or when a bad file must stop, it is not done.
    pack(folder / "in", folder / "out", "--on-bad", "skip", "--shards", 2, expect=USAGE)
    pack(folder / "in", folder / "out", "--shards", 3, expect=USAGE)
    picture(folder / "in" / "cat" / "new.png")
    pack(folder / "in", folder / "out", "--on-bad", "skip", "--shards", 3, expect=USAGE)


def folders_that_look_like_parts_or_wrap_the_classes_are_no_classes(folder):
    for i, paths in enumerate((["seg_train/seg_train/a/0.png", "seg_train/seg_train/b/0.png", "seg_test/seg_test/a/0.png"],
                               ["training_set/cats/0.png", "training_set/dogs/0.png", "test_set/cats/0.png"],
                               ["train_set/0.png", "val_set/1.png"], ["cat/training_set/0.png", "cat/test_set/1.png"],
                               ["PetImages/Cat/0.png", "PetImages/Dog/1.png"], ["train/train/Cat/0.png", "train/train/Dog/0.png"])):
        for path in paths:
            picture(folder / f"in{i}" / path)
        output = pack(folder / f"in{i}", folder / "none", expect=BAD_INPUT)
        assert "--input" in output or "parts are above the classes" in output, (paths, output)
    assert not (folder / "none").exists()
    assert pack(folder / "in4" / "PetImages", folder / "out")["classes"] == 2
    # Names of classes may have such words.
    for name in ("train station", "test tube", "cat"):
        picture(folder / "words" / name / "0.png")
    assert pack(folder / "words", folder / "out-words")["classes"] == 3
    picture(folder / "words" / "cat" / "1.png")
    (folder / "words" / "cat" / "more.zip").write_bytes(b"PK")
    assert "more.zip is an archive" in pack(folder / "words", folder / "none", expect=BAD_INPUT)
    assert pack(folder / "words", folder / "out-zip", "--on-bad", "skip")["unused"] == 1


def nothing_is_removed_that_is_not_a_packings(folder):
    picture(folder / "in" / "cat" / "0.png")
    for name in ("skipped.txt", "packing.json", "unfinished/thesis.tex", "unfinished/settings.txt"):
        kept = folder / name.replace("/", "-") / name
        kept.parent.mkdir(parents=True)
        kept.write_text("mine")
        output = kept.parents[len(pathlib.Path(name).parts) - 1]
        if name.endswith("settings.txt"):
            (kept.parent / "notes").write_text("mine")
        assert "another --output" in pack(folder / "in", output, expect=USAGE), name
        assert kept.read_text() == "mine", name


def a_bad_file_that_is_replaced_is_packed(folder):
    for i in range(12):
        picture(folder / "in" / "cat" / f"{i:02}.png", seed=i)
    bad = folder / "in" / "cat" / "05.png"
    whole = bad.read_bytes()
    args = ["--on-bad", "skip", "--shards", 3]
    bad.write_bytes(bytes(len(whole)))
    assert pack(folder / "in", folder / "out", *args)["skipped"] == 1
    assert pack(folder / "in", folder / "out", *args)["earlier_shards"] == 3
    bad.write_bytes(whole)
    for ranks in (1, 2):
        output = pack(folder / "in", folder / "out", *args, ranks=ranks, expect=USAGE)
        assert "can be read now" in output and "--overwrite" in output, output
    assert pack(folder / "in", folder / "out", *args, "--overwrite")["train_samples"] == 12


def tiny_imagenet_is_packed_as_it_is_distributed(folder):
    """Images in a folder images/ of each class, and validation images in val/images with a list that has boxes."""
    for name in ("n01", "n02"):
        for i in range(3):
            picture(folder / "in" / "train" / name / "images" / f"{name}_{i}.JPEG", "JPEG", seed=i)
        (folder / "in" / "train" / name / f"{name}_boxes.txt").write_text(f"{name}_0.JPEG\t0\t0\t62\t63\n")
    for i in range(4):
        picture(folder / "in" / "val" / "images" / f"val_{i}.JPEG", "JPEG", seed=10 + i)
        picture(folder / "in" / "test" / "images" / f"test_{i}.JPEG", "JPEG", seed=20 + i)
    labels = folder / "in" / "val" / "val_annotations.txt"
    labels.write_text("".join(f"val_{i}.JPEG\tn0{1 + i % 2}\t0\t32\t44\t62\n" for i in range(4)))
    (folder / "in" / "wnids.txt").write_text("n01\nn02\n")
    result = pack(folder / "in", folder / "out", "--val-labels", labels, ranks=2)
    assert packed_samples(folder / "out") == {("train", "n01"): 3, ("train", "n02"): 3, ("val", "n01"): 2, ("val", "n02"): 2}, result
    assert result["entries"] == 6 + 4 + 4 + 2 + 2 and result["notes"] == ["val becomes split val; test is left out"], result
    picture(folder / "in" / "val" / "more" / "val_0.JPEG", "JPEG")
    assert "two images are called val_0.JPEG" in pack(folder / "in", folder / "none", "--val-labels", labels, expect=BAD_INPUT)


def tar_of(path, members):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            if data is None:
                info.type, info.linkname = tarfile.LNKTYPE, members[0][0]
            else:
                info.size = len(data)
            archive.addfile(info, io.BytesIO(data or b""))


def archives_that_are_not_whole_are_refused(folder):
    chance = random.Random(1)
    members = [member for i in range(8) for member in ((f"{i}.png", image(chance, "PNG")), (f"{i}.cls", b"%d" % (i % 2)))]
    whole = folder / "in" / "train-0.tar"
    tar_of(whole, members)
    data = whole.read_bytes()
    args = ["pack", "--from", "webdataset", "--input", folder / "in", "--output", folder / "none", "--image-size", 8]
    with tarfile.open(whole) as archive:
        cut = archive.getmembers()[6].offset
        end = archive.offset if archive.offset else len(data)
    assert end <= len(data)
    for content, says in ((data[:cut], "without the two blocks"), (b"", "is empty"), (data[:cut + 512 + 3], "is damaged"), (data + data, "goes on after its end")):
        (folder / "in" / "train-1.tar").write_bytes(content)
        for mode in ("stop", "skip"):
            output = run([*args, "--on-bad", mode], 2 if not content else 1, expect=BAD_INPUT)
            assert "train-1.tar" in output and says in output, output
    tar_of(folder / "in" / "train-1.tar", [*members, ("same.png", None)])
    assert "same.png is an image without a label" in run(args, expect=BAD_INPUT)


if __name__ == "__main__":
    main([every_entry_of_a_random_folder_has_one_fate, parts_have_the_usual_names, a_reserved_name_with_images_of_its_own_is_a_class_or_an_error,
          links_are_followed_or_stop, other_formats_are_named, the_output_is_outside_of_the_input, a_finished_packing_is_done,
          folders_that_look_like_parts_or_wrap_the_classes_are_no_classes, nothing_is_removed_that_is_not_a_packings,
          a_bad_file_that_is_replaced_is_packed, tiny_imagenet_is_packed_as_it_is_distributed, archives_that_are_not_whole_are_refused])
