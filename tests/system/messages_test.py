#!/usr/bin/env python3
"""Tests of what messages say of options and of names from files, over all commands."""

import csv
import io
import re

from harness import *  # noqa: F403

try:
    from PIL import Image
except ImportError as missing:
    print(f"skipped: {missing} (install python3-pil)")
    sys.exit(77)

# The options of train are in tests/config/options_test.cpp.
COMMANDS = ("eval", "pack", "inspect", "export", "watch", "report", "compare", "sweep", "restart", "export-metrics", "bench", "scale", "doctor")


def what_each_option_takes_is_said_when_a_value_is_refused(folder):
    refused = 0
    for name in COMMANDS:
        for option in re.findall(r"^  --([a-z0-9-]+) ", run([name, "--help"]), re.MULTILINE):
            status, output = finish(start([name, f"--{option}=[0.485,0.456]"]))
            takes = re.search(r"\(it takes (.*?)\)", output)
            if takes:
                assert status == USAGE and f"--{option} is '[0.485,0.456]'" in output and len(takes[1]) > 5, f"{name} --{option}\n{output}"
                refused += 1
    assert refused > 60, refused


# Bytes, since one is not UTF-8. Each would do harm in a terminal, or break a line.
HOSTILE = [b"red\x1b[31m", b"two\nlines", b"bell\x07", b"return\rx", "right\u202eleft".encode(), b"byte\xff", b"tab\tx"]


def shown(args, ranks=1, expect=OK):
    """The output of a command, which must hold no control characters and no broken lines."""
    done = subprocess.run([os.fsencode(a) for a in command([], ranks)] + [os.fsencode(str(a) if isinstance(a, int) else a) for a in args],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment(), timeout=SECONDS)
    assert done.returncode == expect, f"status {done.returncode}, expected {expect}: {args}\n{done.stdout}"
    check_harmless(done.stdout, args)
    return done.stdout.decode()


def escaped(name):
    """As names are printed: \\xHH for each byte of what is not UTF-8, controls, or changes the direction of text."""
    text = name.decode(errors="backslashreplace")
    return re.sub("[\0-\x1f\x7f-\x9f\u202e]", lambda c: "".join(f"\\x{byte:02x}" for byte in c[0].encode()), text)


def check_harmless(output, where):
    text = output.decode()  # valid UTF-8
    harmful = [c for c in text if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 or c in "\u202e\ufeff"]
    assert not harmful, f"{where}: {harmful}\n{output}"
    assert not re.search("^lines", text, re.MULTILINE), f"{where}: a broken line\n{text}"


def hostile_images(folder):
    """Images of classes with such names, in files with such names."""
    for part in (b"train", b"val"):
        for i, name in enumerate(HOSTILE):
            path = os.path.join(os.fsencode(folder), part, name)
            os.makedirs(path)
            for j in range(3):
                with open(os.path.join(path, b"%d" % j + name + b".png"), "wb") as file:
                    file.write(png(np.full((12, 12, 3), 30 * i + j, "u1")))
    return folder


def png(pixels):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def names_from_files_reach_no_terminal_as_controls(folder):
    source = hostile_images(folder / "in")
    data, runs = folder / "out", [folder / b"run\x1b[31m\xe2\x80\xae".decode(), folder / "run\x07"]
    shown(["pack", "--from", "folder", "--input", source, "--output", data, "--image-size", 12])
    for run_dir in runs:
        shown(["train", "--data", data, "--run-dir", run_dir, "--model", "mini-resnet", "--width", 8, "--batch-size", 4, "--epochs", 1, "--threads", 1], ranks=2)
        check_harmless(next((run_dir / "log").glob("rank-00000.log")).read_bytes(), "rank-00000.log")
    checkpoint = latest(runs[0])
    table = shown(["eval", "--data", data, "--checkpoint", checkpoint, "--per-class", "--confusion", folder / "confusion.csv"])
    assert "red\\x1b[31m" in table and "two\\x0alines" in table and "byte\\xff" in table, table
    with open(folder / "confusion.csv", newline="", errors="surrogateescape") as file:
        assert [row[0] for row in csv.reader(file)][1:] == [escaped(name) for name in sorted(HOSTILE)]
    check_harmless((folder / "confusion.csv").read_bytes(), "confusion.csv")
    for path in (data, next(data.glob("train-*.h5")), checkpoint, runs[0]):
        shown(["inspect", path])
        json.loads(shown(["inspect", path, "--json"]))
    shown(["compare", *runs])
    json.loads(shown(["compare", *runs, "--json"]))
    json.loads(shown(["eval", "--data", data, "--checkpoint", checkpoint, "--per-class", "--json"]))
    shown(["export", checkpoint, "--format", "safetensors", "--output", folder / "m\x1b.safetensors"])
    shown(["export-metrics", runs[0], "--csv"])
    shown(["watch", runs[0], "--once"])
    shown(["report", runs[0], "--confusion", folder / "confusion.csv", "-o", folder / "page\x07.html"])
    (runs[0] / "metrics.jsonl").write_text('{"event": "start\\u001b[31m", "model": "m\\u001b[31m\\nlines", "hosts": "\\u202e"}\nnot JSON\n')
    for args in (["inspect", runs[0]], ["compare", runs[0]], ["watch", runs[0], "--once"], ["report", runs[0], "-o", folder / "again.html"]):
        shown(args)


# What spreadsheets run in a field of CSV, and browsers in a page. Text that begins like a number stays text.
ACTIVE = ["=cmd|' calc'!A0", "+1+cmd", "-2+3", "@SUM(A1)", "'=1", "<script>alert(1)", '=HYPERLINK("x")', "two\n=1+1", "\t=1", "-5",
          "\uff1d1+1", "\uff0b1", "\uff0d1", "\uff20x"]
FORMULAS = "=+@\uff1d\uff0b\uff0d\uff20-"


def fields_of(text):
    """The fields of CSV, of which none may be a formula."""
    fields = [field for row in csv.reader(io.StringIO(text)) for field in row]
    for field in fields:
        try:
            float(field)
        except ValueError:
            assert not field.startswith(tuple(FORMULAS + "\t\r\n")), field
    return fields


def names_are_run_by_no_spreadsheet_and_no_browser(folder):
    data = write_shards(folder / "=data", classes=len(ACTIVE))
    for path in data.glob("*.h5"):
        with h5py.File(path, "a") as file:
            file.attrs["class_names"] = np.array(ACTIVE, h5py.string_dtype())
    run_dirs = [folder / "=run", folder / "@run"]
    for i, run_dir in enumerate(run_dirs):
        run(train_args(data, run_dir, "--epochs", 1, "--seed", i))
    shown(["eval", "--data", data, "--split", "train", "--checkpoint", latest(run_dirs[0]), "--per-class", "--confusion", folder / "c.csv"])
    names = fields_of((folder / "c.csv").read_text())[1:len(ACTIVE) + 1]
    # An apostrophe is for the spreadsheet; a number needs none. Line breaks and tabs are written as \\xHH.
    safe = [escaped(name.encode()) for name in ACTIVE]
    assert names == ["'" + name if re.match(f"'*[{FORMULAS}]", name) and name != "-5" else name for name in safe], names
    shown(["report", run_dirs[0], "--confusion", folder / "c.csv", "-o", folder / "page.html"])
    page = (folder / "page.html").read_text()
    assert "<script>alert" not in page
    [shown_run] = json.loads(re.search('<script type="application/json"[^>]*>(.*?)</script>', page, re.S)[1])["runs"]
    assert shown_run["confusion"]["classes"] == safe, shown_run["confusion"]["classes"]
    (run_dirs[1] / "config.ini").write_text("".join(f"note{i}={name}\n" for i, name in enumerate(ACTIVE) if "\n" not in name))
    with contextlib.chdir(folder):  # a path that begins with the name
        fields = fields_of(shown(["compare", "=run", "@run", "--csv"]))
    assert "'=run" in fields and "'@run" in fields and "'" + ACTIVE[0] in fields and "-5" in fields, fields
    event = {"event": "start", "step": -1, "loss": -0.5, **{name: name for name in ACTIVE}}
    (run_dirs[1] / "metrics.jsonl").write_text(json.dumps(event) + "\n")
    fields = fields_of(shown(["export-metrics", run_dirs[1]]))
    assert "-0.5" in fields and fields.count("'" + ACTIVE[0]) == 2, fields


def errors_escape_names(folder):
    source = hostile_images(folder / "in")
    bad = os.path.join(os.fsencode(source), b"train", HOSTILE[1], b"bad\x1b[31m\nlines.png")
    with open(bad, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\nnonsense")
    pack = ["pack", "--from", "folder", "--input", source, "--output", folder / "out", "--image-size", 12]
    for ranks in (1, 2):
        output = shown(pack, ranks, expect=BAD_INPUT)
        assert "two\\x0alines/bad\\x1b[31m\\x0alines.png" in output, output
    shown([*pack, "--on-bad", "skip"])
    check_harmless((folder / "out" / "skipped.txt").read_bytes().replace(b"\t", b" "), "skipped.txt")
    for name in HOSTILE:
        missing = os.path.join(os.fsencode(folder), name)
        for args in (["inspect", missing], ["compare", missing], ["export-metrics", missing, "--csv"], ["report", missing, "-o", folder / "x.html"],
                     ["export", missing, "--format", "onnx", "--output", folder / "x"], ["train", "--config", missing]):
            shown(args, expect=NO_INPUT)
        # A configuration file cannot hold an option's value with a line break.
        for args in (["eval", "--data", missing, "--checkpoint", missing], ["pack", "--from", "folder", "--input", missing, "--output", folder / "o"]):
            shown(args, expect=USAGE if set(name) & set(b"\r\n") else NO_INPUT)
        shown([name], expect=USAGE)
        shown(["train", b"--" + name], expect=USAGE)
        shown(["train", b"--model=" + name, "--synthetic"], expect=USAGE)


def texts_of_checkpoints_reach_no_terminal_as_controls(folder):
    data = write_shards(folder / "data", classes=3)
    run(train_args(data, folder / "run", "--epochs", 1))
    checkpoint = latest(folder / "run").resolve()
    with h5py.File(checkpoint, "a") as file:
        file.attrs["class_names"] = [b"red\x1b[31m", b"two\nlines", "\u202e".encode()]
        file["model"].create_dataset("x\x1b[31m\nlines", data=np.zeros(3, "f4"))
    for args in (["inspect", checkpoint], ["inspect", checkpoint, "--verify"], ["export", checkpoint, "--format", "safetensors", "--output", folder / "m"], ["eval", "--checkpoint", checkpoint, "--data", data, "--split", "train"],
                 train_args(data, folder / "run", "--epochs", 2, "--resume", checkpoint)):
        status, output = finish(start(args))
        check_harmless(output.encode(), args)


# What Windows' editors add: a byte order mark, and carriage returns.
def windows(text):
    return b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()


def texts_of_windows_editors_are_read_by_every_command(folder):
    """Each command gives with such a file what it gives with the plain one, and names UTF-16."""
    images = folder / "in"
    for part, name in (("train", "n01"), ("train", "n02"), ("val", "."), ("val", ".")):
        (images / part / name).mkdir(parents=True, exist_ok=True)
    for i, path in enumerate(["train/n01/a.png", "train/n02/b.png", "val/c.png", "val/d.png"]):
        (images / path).write_bytes(png(np.full((8, 8, 3), 20 * i, "u1")))
    pack = ["pack", "--from", "folder", "--input", images, "--image-size", 8]
    texts = {"labels": "c.png n02\nd.png n01\n", "names": "n01 tench, Tinca\nn02 goldfish\n", "ids": "7 n02\n9 n01\n", "numbers": "7\n9\n",
             "confusion": "true class,cat,dog\ncat,3,1\ndog,0,4\n", "config": "# my run\nmodel=mini-resnet\nwidth=8\nlr=0.05\n"}
    data = write_shards(folder / "data", classes=2)
    run(train_args(data, folder / "run", "--epochs", 1))
    # Each: the text that is written in three ways, and the command that reads it from a path.
    readers = [("labels", lambda path, out: [*pack, "--output", out, "--val-labels", path]),
               ("names", lambda path, out: [*pack, "--output", out, "--val-labels", folder / "plain-labels", "--class-names", path]),
               ("ids", lambda path, out: [*pack, "--output", out, "--val-labels", folder / "plain-numbers", "--class-ids", path]),
               ("numbers", lambda path, out: [*pack, "--output", out, "--val-labels", path, "--class-ids", folder / "plain-ids"]),
               ("confusion", lambda path, out: ["report", folder / "run", "--confusion", path, "-o", out]),
               ("config", lambda path, out: ["train", "--config", path, "--print-config"])]
    for name, text in texts.items():
        (folder / f"plain-{name}").write_text(text)
        (folder / f"windows-{name}").write_bytes(windows(text))
        (folder / f"utf16-{name}").write_bytes(text.encode("utf-16"))
    for name, command_of in readers:
        results = []
        for kind in ("plain", "windows"):
            out = folder / f"out-{name}-{kind}"
            output = run(command_of(folder / f"{kind}-{name}", out)).replace(str(out), "OUT")
            written = {path.name: path.read_bytes() for path in out.iterdir()} if out.is_dir() else out.read_bytes() if out.exists() else output
            results.append(written)
        assert results[0] == results[1], name
        status, refused = finish(start(command_of(folder / f"utf16-{name}", folder / "refused")))
        assert status == BAD_INPUT and "UTF-16" in refused and f"utf16-{name}" in refused and refused.count("lockstep: error") == 1, refused


def invisible_characters_of_a_configuration_are_shown(folder):
    for text, shown_as in (("\u200bmodel=mlp\n", "\\xe2\\x80\\x8bmodel"), ("mo\u00addel=mlp\n", "\\xc2\\xad"), ("\u202e\n", "\\xe2\\x80\\xae"),
                           ("model=mlp\n\ufeffwidth=8\n", "\\xef\\xbb\\xbfwidth"), ("lr=\u206060.1\n", "\\xe2\\x81\\xa0")):
        (folder / "run.conf").write_text(text)
        output = shown(["train", "--config", folder / "run.conf", "--print-config"], expect=USAGE)
        assert shown_as in output and "run.conf" in output, output


if __name__ == "__main__":
    main([names_from_files_reach_no_terminal_as_controls, names_are_run_by_no_spreadsheet_and_no_browser, errors_escape_names, texts_of_checkpoints_reach_no_terminal_as_controls,
          texts_of_windows_editors_are_read_by_every_command, invisible_characters_of_a_configuration_are_shown,
          what_each_option_takes_is_said_when_a_value_is_refused])
