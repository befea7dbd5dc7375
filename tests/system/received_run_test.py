#!/usr/bin/env python3
"""Tests that a run directory which somebody else made changes and reveals nothing outside itself, by any command; and that outputs in
a directory which others may write go nowhere else."""

import array
import hashlib
import re
import socket

from harness import *  # noqa: F403

SECRET = "hunter2-of-the-victim"
# What a link out leads to, by the ending of the entry that it replaces. Each has the form of the entry, so that a reader that
# follows the link understands it.
CONTENTS = {
    ".jsonl": f'{{"event": "start", "step": 0, "version": "{SECRET}", "{SECRET}": 1}}\n{{"event": "{SECRET}", "step": 1}}\n',
    ".csv": f"true class,{SECRET},b\n{SECRET},1,0\nb,0,1\n",
    ".json": f'{{"{SECRET}": 1}}\n',
    "lock": json.dumps({"job": SECRET, "host": SECRET, "process": 1}) + "\n",
    "": f"[default]\nmodel={SECRET}\naws_secret_access_key={SECRET}\n",
}
STATUSES = (OK, 1, USAGE, BAD_INPUT, NO_INPUT, CANNOT_WRITE)


def commands(run_dir, folder, data):
    """How each command is given a run directory; those that take none have no entry."""
    checkpoint = run_dir / "checkpoints" / "latest"
    return {
        "train": [train_args(data, run_dir, "--epochs", 3, "--keep", 1, "--profile-steps", "20:21")],
        "eval": [["eval", "--checkpoint", checkpoint, "--data", data, "--predictions", folder / "out" / "predictions.h5"]],
        "inspect": [["inspect", run_dir], ["inspect", "--verify", run_dir], ["inspect", checkpoint]],
        "export": [["export", checkpoint, "--format", "safetensors", "--output", folder / "out" / "weights"]],
        "watch": [["watch", "--once", run_dir], ["watch", "--json", run_dir]],
        "report": [["report", run_dir, "--output", folder / "out" / "page.html"]],
        "compare": [["compare", run_dir, run_dir]],
        "export-metrics": [["export-metrics", run_dir]],
        "doctor": [["doctor", "--model", "mini-resnet", "--width", 8, "--run-dir", run_dir]],
        "restart": [["restart", run_dir, "--status", 137, "--job", 7, "--since", "2020-01-01 00:00:00", "--record", "--in-job"]],
        "pack": [], "sweep": [], "bench": [], "scale": [],
    }


def every_command_is_tested_here(folder):
    listed = set(re.findall(r"^  ([a-z-]+)  +\w", run(["--help"]), re.M))
    assert listed == set(commands(folder, folder, folder)), listed


class Victim:
    """Files of the reader of a run directory, beside it."""

    def __init__(self, folder):
        self.path = folder / "victim"
        (self.path / "directory").mkdir(parents=True)
        for name, text in CONTENTS.items():
            (self.path / f"secret{name}").write_text(text)
            (self.path / "directory" / f"secret{name}").write_text(text)
        self.before = self.state()

    def of(self, entry):
        name = "lock" if entry.name == "lock" else entry.suffix
        return self.path / f"secret{name if name in CONTENTS else ''}"

    def state(self):
        return {str(path.relative_to(self.path)): (path.lstat().st_mode, path.is_file() and hashlib.sha256(path.read_bytes()).digest())
                for path in sorted(self.path.rglob("*"))}

    def check(self, what):
        assert self.state() == self.before, f"{what} changed the victim's files: {self.state().keys() ^ self.before.keys()}"


def written(folder):
    """The files that a command may have written, without those behind links."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield path


def check(args, folder, victim, what):
    """Runs a command: it ends, says at most one line of error, reveals no secret and changes nothing of the victim."""
    status, output = finish(start(args), seconds=60)
    assert status in STATUSES, f"status {status}: {args} with {what}\n{output}"
    errors = [line for line in output.splitlines() if line.startswith("lockstep: error")]
    assert len(errors) <= 1 and (status in (OK, 1) or errors), f"{args} with {what}\n{output}"
    assert SECRET not in output, f"{args} with {what} reveals it\n{output}"
    for path in [*written(folder / "run"), *written(folder / "out")]:
        assert SECRET.encode() not in path.read_bytes(), f"{args} with {what} reveals it in {path}"
    victim.check(f"{args} with {what}")


def made_run(folder):
    """A run directory with every file that a run or a job script makes."""
    data = write_shards(folder / "data", samples=32, shards=1)
    write_shards(data, samples=16, shards=1, split="val")
    made = folder / "made"
    run(train_args(data, made, "--epochs", 1, "--profile-steps", "3:4"))
    run(train_args(data, made, "--epochs", 2))
    run(["eval", "--checkpoint", latest(made), "--data", data, "--confusion", made / "confusion.csv"])
    (made / "restarts").write_text("4711 70 step-00000008.h5 2026-01-01T00:00:00\n")
    (folder / "out").mkdir()
    return data, made


def replace(entry, target):
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink()
    entry.symlink_to(target)


def each_entry(made):
    return sorted(path.relative_to(made) for path in made.rglob("*"))


def fresh(folder, made):
    shutil.rmtree(folder / "run", ignore_errors=True)
    shutil.rmtree(folder / "out", ignore_errors=True)
    shutil.copytree(made, folder / "run", symlinks=True)
    (folder / "out").mkdir()
    return folder / "run"


@more_in_soak
def no_link_leads_out_of_a_run_directory(folder):
    data, made = made_run(folder)
    victim = Victim(folder)
    for entry in each_entry(made):
        is_directory = (made / entry).is_dir()
        targets = [victim.path / "directory" if is_directory else victim.of(entry), victim.path / "absent",
                   victim.of(entry) if is_directory else victim.path / "directory", pathlib.Path("/dev/zero"), pathlib.Path("/dev/full")]
        for target in few(targets, 0, 1):
            received = fresh(folder, made)
            replace(received / entry, target)
            # Training last, since it changes the directory. It alone could create what a link leads to.
            for name, ways in sorted(commands(received, folder, data).items(), key=lambda item: item[0] == "train"):
                for args in ways if SOAK or name == "train" or target.exists() else []:
                    check(args, folder, victim, f"{entry} -> {target}")


def no_message_quotes_a_private_file(folder):
    """To which a link leads that is followed because the user names it, a text names, or is a hard link."""
    data, made = made_run(folder)
    victim = Victim(folder)
    secret, weights = victim.path / "secret.txt", victim.path / "weights.h5"
    secret.write_text(f"{SECRET}\n{SECRET}={SECRET}\n")
    shutil.copy(latest(made), weights)
    victim.before = victim.state()

    def refused(args, expect, *words):
        status, output = finish(start(args), seconds=60)
        assert status == expect and all(word in output for word in words), f"status {status}: {args}\n{output}"
        assert SECRET not in output, output
        victim.check(args)

    def each_reader(received):
        best = received / "checkpoints" / "best"
        return [["eval", "--checkpoint", best, "--data", data], ["inspect", best], train_args(data, folder / "new", "--epochs", 1, "--init-from", best),
                ["export", best, "--format", "safetensors", "--output", folder / "out" / "weights"]]

    for plant in (lambda best: best.symlink_to(secret), lambda best: best.hardlink_to(secret)):
        received = fresh(folder, made)
        (received / "checkpoints" / "best").unlink()
        plant(received / "checkpoints" / "best")
        for args in each_reader(received):
            refused(args, BAD_INPUT, "best is text (")
    for target in (secret, weights):
        received = fresh(folder, made)
        (received / "checkpoints" / "best").unlink()
        (received / "checkpoints" / "best").write_text("step-00000009.h5\n")
        (received / "checkpoints" / "step-00000009.h5").symlink_to(target)
        for args in each_reader(received):
            refused(args, BAD_INPUT, "step-00000009.h5 is a link")
    for text, line in ((f"model=mlp\n{SECRET}\n", "line 2 "), (f"[{SECRET}]\nx={SECRET}\n", "line 2 "), (f"lr={SECRET}\n", "line 1 "),
                       (f"seed=1\n\n{SECRET}={SECRET}\n", "line 3 "), (f"data={SECRET}\ndata=x\n", "contradict")):
        secret.write_text(text)
        victim.before = victim.state()
        received = fresh(folder, made)
        (received / "config.ini").unlink()
        (received / "config.ini").hardlink_to(secret)
        refused(["inspect", received], BAD_INPUT, "config.ini", line)
    for text, where in ((f"true class,a,b\n{SECRET},1,2\n", "row 2 "), (f"true class,a\na,{SECRET}\n", "row 2, column 2 ")):
        secret.write_text(text)
        victim.before = victim.state()
        received = fresh(folder, made)
        (received / "confusion.csv").unlink()
        (received / "confusion.csv").hardlink_to(secret)
        refused(["compare", received], OK, where)


def a_link_in_place_of_the_checkpoints_of_another_run_deletes_none(folder):
    """--keep 1 would remove all but one."""
    data, made = made_run(folder)
    others = fresh(folder, made).rename(folder / "others")
    before = each_entry(others)
    shutil.rmtree(made / "checkpoints")
    (made / "checkpoints").symlink_to(others / "checkpoints")

    output = run(train_args(data, made, "--epochs", 3, "--keep", 1), expect=CANNOT_WRITE)

    assert f"{made / 'checkpoints'} (it is a link" in output, output
    assert each_entry(others) == before


def files_written_in_place_have_no_second_name(folder):
    data, made = made_run(folder)
    for name in ("lock", "metrics.jsonl", "log/rank-00000.log"):
        received = fresh(folder, made)
        victim = folder / "linked"
        victim.write_text("kept")
        (received / name).unlink()
        os.link(victim, received / name)
        output = run(train_args(data, received, "--epochs", 3), expect=CANNOT_WRITE)
        assert "2 hard links" in output and name in output, output
        assert victim.read_text() == "kept"
        victim.unlink()


def a_link_to_a_whole_run_directory_is_followed(folder):
    """As users have runs on another file system."""
    data, made = made_run(folder)
    (folder / "link").symlink_to(made)
    run(train_args(data, folder / "link", "--epochs", 3))
    for name, ways in commands(folder / "link", folder, data).items():
        for args in ways:
            if name not in ("train", "doctor"):
                run(args)


def a_line_or_a_text_without_end_is_refused(folder):
    """Holes take no space on disk, but a reader without a bound would fill the memory with them."""
    data, made = made_run(folder)
    for name in ("metrics.jsonl", "config.ini", "restarts", "confusion.csv"):
        received = fresh(folder, made)
        os.truncate(received / name, 1 << 40)
        for command, ways in commands(received, folder, data).items():
            for args in ways if command not in ("train", "doctor", "eval", "export") else []:
                status, output = finish(start(args), seconds=60)
                assert status in (OK, BAD_INPUT), f"status {status}: {args}\n{output}"


OTHER = 65534


def as_other_user(code, *args):
    """Starts Python code as another user."""
    if os.geteuid() != 0:
        raise Skipped("only root can run a process as another user")
    become = f"import os; os.setgroups([]); os.setgid({OTHER}); os.setuid({OTHER})\n"
    process = subprocess.Popen([sys.executable, "-c", become + code, *map(str, args)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


@contextlib.contextmanager
def running(process):
    try:
        yield
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def open_to_others(folder):
    folder.chmod(0o755)


LOCK = """
import fcntl, sys, time
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_EX)
print("ready", flush=True)
time.sleep(600)
"""


def who_may_only_read_the_lock_does_not_stop_training(folder):
    open_to_others(folder)
    data, made = made_run(folder)
    (made / "lock").chmod(0o644)
    with running(as_other_user(LOCK, made / "lock")):
        run(train_args(data, made, "--epochs", 3))


# Puts links in the place of whatever a writer creates in a directory: both of the names that it sees, and of names that follow from
# those of the output and the process.
ATTACK = """
import os, pathlib, sys
directory, victim, host, names = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
os.chdir(directory)
print("ready", flush=True)

def writers():
    for pid in os.listdir("/proc"):
        try:
            if pid.isdigit() and int(pid) > os.getpid() and pathlib.Path("/proc", pid, "comm").read_text() == "lockstep\\n":
                yield pid
        except OSError:
            pass

def plant(name):
    try:
        os.symlink(victim, name)
    except OSError:
        pass

while True:
    guesses = [f".{name}.tmp-{pid}-{host}" for name in names for pid in writers()]
    for turn in range(1000):
        for name in guesses:
            plant(name)
        if turn % 10 == 0:
            for name in os.listdir():
                if name.startswith(".") and not os.path.islink(name):
                    try:
                        os.unlink(name)
                    except OSError:
                        pass
                    plant(name)
"""


@more_in_soak
def a_race_for_the_names_of_outputs_is_lost(folder):
    open_to_others(folder)
    data, made = made_run(folder)
    shared = folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    victim = folder / "precious"
    victim.write_text("kept")
    outputs = {"page.html": ["report", made, "--output"], "weights": ["export", latest(made), "--format", "safetensors", "--overwrite", "--output"],
               "predictions.h5": ["eval", "--checkpoint", latest(made), "--data", data, "--overwrite", "--predictions"],
               "confusion.csv": ["eval", "--checkpoint", latest(made), "--data", data, "--overwrite", "--confusion"]}
    with running(as_other_user(ATTACK, shared, victim, socket.gethostname(), *outputs)):
        for _ in range(20 if SOAK else 3):
            for name, args in outputs.items():
                status, output = finish(start([*args, shared / name]))
                assert victim.read_bytes() == b"kept", f"{args} wrote through a link"
                assert status in (OK, CANNOT_WRITE), f"{args}: status {status}\n{output}"
                if (shared / name).is_symlink():
                    (shared / name).unlink()


def temporary_files_of_other_programs_are_kept(folder):
    data, made = made_run(folder)
    kept = [made / ".config.tmp-Y", made / ".metrics.jsonl.tmp-4711-elsewhere", made / "checkpoints" / ".step-00000008.h5.tmp-1-host"]
    ours = made / "checkpoints" / (".lockstep-tmp-" + "0" * 32)
    for path in [*kept, ours]:
        path.write_text("somebody's")
    run(train_args(data, made, "--epochs", 3))
    assert all(path.read_text() == "somebody's" for path in kept) and not ours.exists()



def digests(directory):
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.rglob("*") if path.is_file()}


def unfinished_packing(folder):
    """The arguments of a packing but for its output, an output in which it ended before it was published, and its shards."""
    (folder / "in").mkdir()
    for part, samples in (("train", 90), ("t10k", 30)):
        images = array.array("I", [0x803, samples, 4, 5])
        labels = array.array("I", [0x801, samples])
        images.byteswap(), labels.byteswap()
        (folder / "in" / f"{part}-images-idx3-ubyte").write_bytes(images.tobytes() + bytes(i * 7 % 256 for i in range(samples * 20)))
        (folder / "in" / f"{part}-labels-idx1-ubyte").write_bytes(labels.tobytes() + bytes(i % 10 for i in range(samples)))
    args = ["pack", "--from", "mnist", "--input", folder / "in", "--shards", 3, "--output"]
    run([*args, folder / "expected"])
    made = folder / "made"
    stop = made / "val-00000-of-00001.h5"
    stop.mkdir(parents=True)
    (stop / "file").write_text("")
    run([*args, made, "--overwrite"], expect=CANNOT_WRITE)
    shutil.rmtree(stop)
    assert len(list((made / "unfinished").glob("*.h5"))) == 4
    return args, made, {name: digest for name, digest in digests(folder / "expected").items() if name.endswith(".h5")}


def received(folder, made):
    shutil.rmtree(folder / "received", ignore_errors=True)
    return pathlib.Path(shutil.copytree(made, folder / "received"))


def check_shards(output, expected):
    shards = [path for path in output.iterdir() if path.suffix == ".h5"]
    assert not any(path.is_symlink() or path.stat().st_nlink > 1 for path in shards), shards
    assert {name: digest for name, digest in digests(output).items() if name.endswith(".h5")} == expected


def a_packing_that_is_a_link_to_anothers_is_refused(folder):
    args, made, _ = unfinished_packing(folder)
    others = folder / "others"
    shutil.copytree(made, others)
    (others / "unfinished" / (".lockstep-tmp-" + "0" * 32)).write_text("of a running packing")
    before = digests(others)
    shutil.rmtree(made / "unfinished")
    (made / "unfinished").symlink_to(others / "unfinished")
    for more in ([], ["--overwrite"]):
        output = run([*args, made, *more], expect=BAD_INPUT)
        assert f"{made / 'unfinished'} is a link" in output, output
        assert digests(others) == before


def a_packing_follows_no_link_and_changes_no_file_of_two_names(folder):
    args, made, expected = unfinished_packing(folder)
    others = folder / "others"
    shutil.copytree(made, others)
    (others / "unfinished" / "publishing").write_text("")
    before = digests(others)
    for name in sorted(path.name for path in (others / "unfinished").iterdir()):
        for link in (os.symlink, os.link):
            output = received(folder, made)
            (output / "unfinished" / name).unlink(missing_ok=True)
            link(others / "unfinished" / name, output / "unfinished" / name)
            status, text = finish(start([*args, output]))
            assert digests(others) == before, f"{link.__name__} {name} changed another's files\n{text}"
            if name == "settings.txt":
                assert status == USAGE and "settings.txt is not a packing's" in text, text
            else:
                assert status == OK, f"{link.__name__} {name}: status {status}\n{text}"
                check_shards(output, expected)
            shutil.rmtree(output)


def a_packing_repeats_no_text_of_others(folder):
    args, made, _ = unfinished_packing(folder)
    secret = folder / "secret"
    secret.write_text(f"{SECRET}\npassword: {SECRET}\n")

    def planted(plant):
        settings = received(folder, made) / "unfinished" / "settings.txt"
        settings.unlink()
        plant(secret, settings)
        text = run([*args, settings.parents[1]], expect=USAGE)
        assert SECRET not in text, text
        return text

    for plant in (lambda target, link: os.symlink(target, link), os.link):
        assert "is not a packing's" in planted(plant)
    assert "packed differently" in planted(shutil.copy)


def a_record_that_no_packing_wrote_is_not_used(folder):
    args, made, expected = unfinished_packing(folder)
    for change in ({"counts": [1] * 10**6}, {"counts": []}, {"skipped": [{"train": True, "index": 2**62, "reason": "x"}]},
                   {"skipped": [{"train": False, "index": -1, "reason": "x"}]}):
        output = received(folder, made)
        for record in (output / "unfinished").glob("train*.json"):
            record.write_text(json.dumps({**json.loads(record.read_text()), **change}))
        run([*args, output])
        check_shards(output, expected)
    finished = folder / "expected" / "packing.json"
    finished.write_text(json.dumps({**json.loads(finished.read_text()), "skipped": 1, "skipped_at": [["train", 2**62]]}))
    assert "give --overwrite" in run([*args, folder / "expected"], expect=USAGE)

if __name__ == "__main__":
    main([every_command_is_tested_here, no_link_leads_out_of_a_run_directory, no_message_quotes_a_private_file, a_link_in_place_of_the_checkpoints_of_another_run_deletes_none,
          files_written_in_place_have_no_second_name, a_link_to_a_whole_run_directory_is_followed, a_line_or_a_text_without_end_is_refused,
          who_may_only_read_the_lock_does_not_stop_training, a_race_for_the_names_of_outputs_is_lost,
          temporary_files_of_other_programs_are_kept, a_packing_that_is_a_link_to_anothers_is_refused,
          a_packing_follows_no_link_and_changes_no_file_of_two_names, a_packing_repeats_no_text_of_others,
          a_record_that_no_packing_wrote_is_not_used])
