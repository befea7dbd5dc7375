#!/usr/bin/env python3
"""Tests that devices, FIFOs, sockets and directories in the place of files, and files in the place of directories, are refused
before they are opened, by every option and argument that names a path."""

import re
import stat
import struct
import zlib

from harness import *  # noqa: F403

FILE, DIRECTORY, OUTPUT, MADE = "a file that is read", "a directory that is read", "a file that is written", "a directory that is made"
# Every option that names a path.
PATHS = {
    "train": {"config": FILE, "data": DIRECTORY, "val-data": DIRECTORY, "stage-dir": MADE, "run-dir": MADE, "resume": FILE,
              "init-from": FILE},
    "eval": {"checkpoint": FILE, "data": DIRECTORY, "confusion": OUTPUT, "predictions": OUTPUT},
    "pack": {"val-labels": FILE, "class-ids": FILE, "class-names": FILE, "output": MADE, "input": DIRECTORY},
    "export": {"output": OUTPUT},
    "inspect": {"output": OUTPUT},
    "bench": {"data": DIRECTORY, "directory": MADE},
    "doctor": {"data": DIRECTORY, "run-dir": MADE},
    "report": {"output": OUTPUT, "confusion": FILE},
}
# Options whose text is no path.
TEXTS = {"model", "mean", "std", "freeze", "lr-scale", "shard-unit", "save-every", "profile-steps", "watchdog-interface", "time-limit",
         "override", "named", "since", "left-out", "job", "split", "engine", "gpu", "link", "local-link", "event", "print-config"}
STATUSES = (USAGE, BAD_INPUT, NO_INPUT, CANNOT_WRITE)


def text_options(command):
    """The options of a command that take any text, as its help shows them."""
    shown = run([command, "--help", "all"])
    for switch, name, text in re.findall(r"^  --(\[no-\])?([a-z0-9-]+)(?: [A-Z]+)? +(.*(?:\n {10,}.*)*)", shown, re.M):
        if not switch and not re.search(r"a number|a whole number|one of", " ".join(text.split())):
            yield name


def every_option_that_names_a_path_is_tested_here(folder):
    for command in re.findall(r"^  ([a-z-]+)  +\w", run(["--help"]), re.M):
        found = set(text_options(command)) - TEXTS
        assert found == set(PATHS.get(command, {})), f"{command}: {found ^ set(PATHS.get(command, {}))}"


class Specials:
    """Special files by what messages call them."""

    def __init__(self, folder):
        self.folder = folder
        os.mkfifo(folder / "fifo")
        os.mknod(folder / "socket", stat.S_IFSOCK)
        (folder / "directory").mkdir()
        (folder / "directory" / "kept").write_text("mine")
        (folder / "file").write_text("mine")
        (folder / "link").symlink_to("file")
        self.paths = {"a FIFO": folder / "fifo", "a socket": folder / "socket", "a device": pathlib.Path("/dev/zero")}
        if os.geteuid() == 0:
            device = folder / "device"
            os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
            self.paths["a device"] = device
        self.before = self.modes()

    def of(self, kind):
        """Those that are not of this kind of path."""
        wrong = dict(self.paths)
        if kind in (FILE, OUTPUT):
            wrong["a directory"] = self.folder / "directory"
        else:
            wrong["a file"] = self.folder / "file"
        if kind == OUTPUT:
            wrong["a link"] = self.folder / "link"
        return wrong.items()

    def modes(self):
        return {path.name: (path.lstat().st_mode, path.lstat().st_ino) for path in self.folder.iterdir()}

    def check(self):
        assert self.modes() == self.before, self.modes()
        assert (self.folder / "file").read_text() == "mine" and (self.folder / "directory" / "kept").read_text() == "mine"
        assert [path.name for path in (self.folder / "directory").iterdir()] == ["kept"]


def refuse(args, path, kind, ranks=1, statuses=STATUSES):
    status, output = finish(start(args, ranks), seconds=60)
    assert status in statuses, f"status {status}: {args}\n{output}"
    assert str(path) in output and kind in output, f"{args}: {kind}\n{output}"


def setting(folder):
    """A data set, a run, and special files."""
    data = write_shards(folder / "data", samples=32, shards=1)
    write_shards(data, samples=16, shards=1, split="val")
    run(train_args(data, folder / "run", "--epochs", 1))
    (folder / "special").mkdir()
    return data, folder / "run", Specials(folder / "special")


def write_png(path):
    """A black image of 8 x 8."""
    path.parent.mkdir(parents=True, exist_ok=True)
    chunks = (b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(bytes(8 * 25))), (b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
                                                     for kind, data in chunks))


def images_to_pack(folder):
    """Options of a packing that reads every kind of file."""
    for name in ("train/cat/0.png", "train/dog/1.png", "val/2.png"):
        write_png(folder / "images" / name)
    (folder / "labels.txt").write_text("1\n")
    (folder / "ids.txt").write_text("1 cat\n")
    (folder / "names.txt").write_text("cat a cat\ndog a dog\n")
    return ["pack", "--from", "folder", "--input", folder / "images", "--output", folder / "packed", "--image-size", 8,
            "--val-labels", folder / "labels.txt", "--class-ids", folder / "ids.txt", "--class-names", folder / "names.txt"]


def with_each_option(folder, data, made):
    """Returns a function that gives the arguments of a command with an option set to a path."""
    checkpoint = latest(made)
    small = ["--model", "mini-resnet", "--width", 8, "--steps", 1, "--warmup", 0]
    base = {
        "train": ["train", *MODEL, "--epochs", 1, "--data", data, "--run-dir", folder / "new"],
        "eval": ["eval", "--checkpoint", checkpoint, "--data", data],
        "export": ["export", checkpoint, "--format", "onnx", "--output", folder / "exported"],
        "inspect": ["inspect", "--manifest", data, "--output", folder / "sums"],
        "report": ["report", made, "--output", folder / "page.html"],
        "pack": images_to_pack(folder),
    }

    def with_option(command, option, path):
        if command == "bench":
            return ["bench", "loader" if option == "data" else "checkpoint", *small, f"--{option}", path]
        if command == "doctor":
            return ["doctor", *small[:4], f"--{option}", path]
        args = [str(arg) for arg in base[command]]
        if f"--{option}" in args:
            at = args.index(f"--{option}")
            del args[at:at + 2]
        more = ["--overwrite"] if PATHS[command][option] == OUTPUT and command != "report" else []
        return [*args, f"--{option}", path, *more]

    return with_option


def special_files_are_refused_by_every_option(folder):
    data, made, specials = setting(folder)
    with_option = with_each_option(folder, data, made)
    for command, options in PATHS.items():
        for option, kind in options.items():
            for name, path in specials.of(kind):
                # doctor's finding is its result.
                statuses = (*STATUSES, 1) if command == "doctor" else STATUSES
                refuse(with_option(command, option, path), path, name, statuses=statuses)
    run(images_to_pack(folder))
    for option, kind in PATHS["eval"].items():
        refuse(with_option("eval", option, specials.paths["a FIFO"]), specials.paths["a FIFO"], "a FIFO", ranks=2)
    specials.check()


def files_that_are_absent_or_of_others_are_named_with_the_reason(folder):
    """As another user, since root may read every file."""
    data, made, specials = setting(folder)
    with_option = with_each_option(folder, data, made)
    (folder / "dangling").symlink_to(folder / "absent")
    (folder / "locked").mkdir(mode=0o700)
    (folder / "private").write_text("mine")
    (folder / "private").chmod(0o600)
    folder.chmod(0o777)
    other = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    for command, options in PATHS.items():
        if command in ("doctor", "bench"):
            continue  # report what they find
        for option, kind in options.items():
            if kind not in (FILE, OUTPUT):
                continue
            cases = [folder / "dangling", folder / "private" / "file"]
            if other:
                cases += [folder / "locked" / "file", *[folder / "private"] * (kind == FILE)]
            for path in cases:
                status, output = finish(start(with_option(command, option, path), **other), seconds=60)
                assert status in STATUSES and str(path) in output, f"status {status}: {command} --{option} {path}\n{output}"
    assert (folder / "private").read_text() == "mine" and not (folder / "absent").exists() and not list((folder / "locked").iterdir())
    specials.check()


def special_files_are_refused_as_arguments(folder):
    _, _, specials = setting(folder)
    for command in ("inspect", "export"):
        for name, path in specials.of(FILE):
            if (command, name) == ("inspect", "a directory"):
                continue  # of a run or shards
            more = ["--format", "onnx", "--output", folder / "exported"] if command == "export" else []
            refuse([command, path, *more], path, name)
    for command in (["watch"], ["watch", "--wait", "--once"], ["report", "-o", folder / "page.html"], ["compare"], ["export-metrics"]):
        for name, path in specials.of(DIRECTORY):
            refuse([command[0], path, *command[1:]], path, name)
    specials.check()


def special_files_in_a_run_directory_are_refused_or_noted(folder):
    data, made, _ = setting(folder)
    metrics = made / "metrics.jsonl"
    kept = metrics.read_bytes()
    again = train_args(data, made, "--epochs", 2)
    for name in ("metrics.jsonl", "lock", "config.ini", "log/rank-00000.log"):
        path = made / name
        before = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        refuse(again, path, "a FIFO", statuses=(CANNOT_WRITE,))
        if name == "metrics.jsonl":
            for command in (["watch", made], ["report", made, "-o", folder / "page.html"], ["compare", made], ["export-metrics", made],
                            ["inspect", made]):
                refuse(command, path, "a FIFO")
        if name in ("lock", "config.ini"):
            shown = json.loads(run(["watch", made, "--json"]))
            assert any(f"{path} is a FIFO" in note for note in shown["notes"]), shown["notes"]
        assert path.is_fifo()
        path.unlink()
        path.write_bytes(before)
    for name in ("restarts", "confusion.csv", "checkpoints/step-00000099.h5", "events.out.tfevents.9.x.1.0"):
        os.mkfifo(made / name)
    assert json.loads(run(["watch", made, "--json"]))["step"] == 8
    run(["report", made, "-o", folder / "page.html"])
    run(["compare", made])
    assert "step-00000099.h5 is a FIFO" in run(["inspect", "--verify", made], expect=BAD_INPUT)
    run(again)
    for name in ("restarts", "confusion.csv", "checkpoints/step-00000099.h5", "events.out.tfevents.9.x.1.0"):
        assert (made / name).is_fifo()
    assert metrics.read_bytes().startswith(kept.splitlines()[0])


def a_trace_and_caches_replace_no_special_file(folder):
    data, made, _ = setting(folder)
    os.mkfifo(made / "trace-10-11.json")
    output = run(train_args(data, made, "--epochs", 2, "--profile-steps", "10:11"))
    assert f"{made / 'trace-10-11.json'} (it is a FIFO" in output and (made / "trace-10-11.json").is_fifo(), output

    cache = {"XDG_CACHE_HOME": str(folder / "cache")}
    inspect = ["inspect", "--model", "mini-resnet", "--engine", "cpu", "--threads", 1]
    run(inspect, env=cache)
    files = [path for path in (folder / "cache").rglob("*") if path.is_file()]
    for path in files:
        path.unlink()
        os.mkfifo(path)
    run(inspect, env=cache)
    assert files and all(path.is_fifo() for path in files), files


def hidden_names_are_no_shards(folder):
    """macOS writes ._NAME beside NAME on file systems without its attributes."""
    data, made, _ = setting(folder)
    for name in ("._train-00000-of-00001.h5", "._val-00000-of-00001.h5", ".train-00001-of-00002.h5"):
        (data / name).write_bytes(b"\0\5\26\7\0\2\0\0Mac OS X        ")
    (made / "checkpoints" / "._step-00000004.h5").write_bytes(b"\0\5\26\7\0\2\0\0Mac OS X        ")
    for args in (["inspect", data], ["inspect", "--verify", data], ["inspect", "--verify", made],
                 ["eval", "--checkpoint", latest(made), "--data", data], ["doctor", "--data", data],
                 train_args(data, made, "--epochs", 2)):
        run(args)


def a_shard_that_is_no_file_is_refused_at_the_start(folder):
    data, made, _ = setting(folder)
    for split in ("train", "val"):
        shard = data / f"{split}-00000-of-00001.h5"
        shard.rename(folder / "away")
        os.mkfifo(shard)
        for ranks in (1, 2):
            refuse(train_args(data, folder / "new", "--epochs", 1), shard, "a FIFO", ranks)
        refuse(["inspect", data], shard, "a FIFO")
        shard.unlink()
        (folder / "away").rename(shard)
    for listing in (folder / "special" / "fifo", folder / "special" / "file"):
        refuse(train_args(data, folder / "new", "--val-data", listing), listing, "a directory is expected")


if __name__ == "__main__":
    main([every_option_that_names_a_path_is_tested_here, special_files_are_refused_by_every_option,
          files_that_are_absent_or_of_others_are_named_with_the_reason, special_files_are_refused_as_arguments,
          special_files_in_a_run_directory_are_refused_or_noted, a_trace_and_caches_replace_no_special_file, hidden_names_are_no_shards, a_shard_that_is_no_file_is_refused_at_the_start])
