#!/usr/bin/env python3
"""Tests `lockstep watch` in a terminal (tmux), over runs that go on, stop, are killed and resume, and over hostile ones."""

import re
import shlex

import harness
from harness import *  # noqa: F403

PHASES = ("data", "forward", "backward", "communication", "optimizer")


class Terminal:
    """A terminal of tmux, on a server of its own, that runs a shell or one command."""

    def __init__(self, folder, command="sh", columns=80, rows=24):
        if shutil.which("tmux") is None:
            raise Skipped("no tmux here (package tmux)")
        self.socket = folder / "tmux"
        self.raw = folder / "raw"
        shell = environment({"LC_ALL": "C.UTF-8", "PS1": "$ ", "NO_COLOR": ""})
        subprocess.run(["tmux", "-S", self.socket, "-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows), command],
                       env=shell, check=True, timeout=SECONDS)

    def __enter__(self):
        self.raw.touch()
        self.tmux("pipe-pane", f"cat >>{shlex.quote(str(self.raw))}")
        return self

    def __exit__(self, *_):
        self.tmux("kill-server")

    def tmux(self, *words):
        return subprocess.run(["tmux", "-S", self.socket, *words], check=True, stdout=subprocess.PIPE, text=True, timeout=SECONDS).stdout

    def type(self, keys):
        self.tmux("send-keys", "-l", keys)

    def enter(self, line):
        """Types the line at the shell's prompt."""
        self.show(r"^[#$] ?\n*\Z")
        self.type(line)
        self.tmux("send-keys", "Enter")

    def child(self):
        """Process id of the command that the shell runs."""
        shell = self.tmux("display-message", "-p", "#{pane_pid}").strip()
        deadline = time.monotonic() + SECONDS
        while not (found := subprocess.run(["pgrep", "-P", shell], stdout=subprocess.PIPE, text=True, timeout=SECONDS).stdout.split()):
            assert time.monotonic() < deadline, self.screen()
            time.sleep(0.05)
        [process] = found
        return int(process)

    def last_screen(self):
        """All that the last program wrote to the alternate screen, after its end."""
        deadline = time.monotonic() + SECONDS
        while b"\x1b[?1049l" not in (raw := self.raw.read_bytes().split(b"\x1b[?1049h")[-1]):
            assert time.monotonic() < deadline, raw
            time.sleep(0.05)
        return raw[:raw.index(b"\x1b[?1049l")]

    def resize(self, columns, rows):
        self.tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def screen(self):
        return self.tmux("capture-pane", "-p")

    def show(self, pattern, seconds=SECONDS):
        """Waits until the screen matches, and returns it."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, screen := self.screen(), re.M):
            assert time.monotonic() < deadline, f"{pattern} never came:\n{screen}"
            time.sleep(0.05)
        return screen


def watch(run_dir, *more):
    return " ".join([shlex.quote(LOCKSTEP), "watch", shlex.quote(str(run_dir)), *more])


def state_of(run_dir):
    return json.loads(run(["watch", run_dir, "--once", "--json"]))


def listing(folder):
    """All that a change of a file would change."""
    files = [folder, *sorted(folder.rglob("*"))]
    return [(str(path), status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            for path in files for status in [path.lstat()]]


def fake_run(folder, lines, config="model=mlp\nepochs=4\nmax-steps=0\n"):
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "config.ini").write_text(config)
    return folder


def step_event(step, **more):
    return {"event": "step", "step": step, "samples": 8 * step, "loss": 2 / step, "top1": 0.5, "lr": 0.1, "images_per_second": 100 + step,
            "seconds": dict.fromkeys(PHASES, 0.25), "time": time.time(), **more}


def a_run_is_followed_through_a_kill_a_resume_a_stop_and_its_end(folder):
    data = write_shards(folder / "data", samples=400)
    write_shards(data, samples=24, shards=1, split="val")
    directory = folder / "run"
    train = train_args(data, directory, "--epochs", 200, "--save-every", "20", "--eval-every", "1", "--straggler-factor", "0")
    with Terminal(folder) as terminal:
        terminal.enter("stty -g")
        terminal.show(r"^[0-9a-f]+:[0-9a-f:]+$")
        terminal.enter(watch(directory))
        assert "no run directory" in terminal.show("lockstep: error"), terminal.screen()
        terminal.enter(watch(directory, "--wait --interval 0.1"))
        terminal.show("^waiting for .*run")

        process = start(train, ranks=2)
        screen = terminal.show(r"\Arun +running\n(.*\n)*saved +step \d+, \d+:\d\d ago, written in")
        assert "mini-resnet, 2 ranks on 1 node" in screen, screen
        assert re.search(r"^epoch \d+/200 \[.*\] +\d+\.\d %$", screen, re.M) and re.search(r"^step [\d,]+ of 10,000, \d+:\d+", screen, re.M), screen
        for line in (r"loss +\d\.\d{4}  [ ▁-█]+", r" +[\d.]+ to [\d.]+ +[▁-█]{15,}", r"images/s +[\d,]+  [ ▁-█]+", r"lr +0\.0\d+", r"step +[\d.]+ [um]?s  [░▒▓█▚]+", r"memory +\d.* planned",
                     r"░ data \d+  ▒ forward \d+  "):
            assert re.search(f"^{line}", screen, re.M), f"{line} is missing:\n{screen}"
        terminal.show(r"^top-1 +\d+\.\d\d %")

        terminal.resize(40, 12)
        screen = terminal.show(r"^epoch .{33}$")
        lines = screen.splitlines()
        assert len(lines) == 12 and max(map(len, lines)) < 40 and re.search("(running|silent for .*)$", lines[0]), screen
        terminal.resize(120, 40)
        screen = terminal.show(r"^q: quit")
        assert len(screen.splitlines()) == 40 and max(map(len, screen.splitlines())) == 119, screen
        assert re.search(r"^job +process \d+ on ", screen, re.M), screen

        os.kill(ranks_of(process)[1], signal.SIGKILL)
        assert finish(process)[0] == 137
        assert "longest earlier pause: " in terminal.show(r"^run +silent for \d+:\d\d$"), terminal.screen()
        killed_at = events(directory)[-1]["step"]

        process = start(train, ranks=2)
        screen = terminal.show(r"^run +running$")
        wait_for_step(directory, killed_at + 20, process)
        process.send_signal(signal.SIGUSR1)
        assert finish(process)[0] == STOPPED
        screen = terminal.show(r"^run +stopped on request$")
        [stop] = events(directory, "stop")
        assert f"step {stop['step']:,} of 10,000\n" in screen, screen

        run([*train, "--max-steps", stop["step"] + 5], ranks=2)
        screen = terminal.show(r"^run +finished$")
        assert f"step {stop['step'] + 5:,} of {stop['step'] + 5:,}\n" in screen and "100.0 %" in screen, screen

        shown = listing(directory)
        terminal.show(r"^saved +step .* 0:(0[2-9]|[1-5]\d) ago")  # it was drawn again
        values_are_those_of_the_metrics(directory)
        assert listing(directory) == shown, "the run directory has changed"

        terminal.type("q")
        screen = terminal.show("no run directory")  # the shell's screen is back
        assert "finished" not in screen, screen
        terminal.enter("echo status $?; stty -g")
        screen = terminal.show("^status 0$")
        settings = re.findall(r"^[0-9a-f]+:[0-9a-f:]+$", terminal.show(r"^[0-9a-f]+:[0-9a-f:]+\n(.*\n)*status 0\n[0-9a-f]+:"), re.M)
        assert len(settings) == 2 and settings[0] == settings[1], settings


def values_are_those_of_the_metrics(directory):
    shown = state_of(directory)
    steps, evaluations = events(directory, "step"), events(directory, "eval")
    last = steps[-1]
    assert (shown["state"], shown["reason"], shown["model"], shown["ranks"], shown["nodes"]) == ("finished", "finished", "mini-resnet", 2, 1), shown
    assert shown["hosts"] == events(directory, "resume")[-1]["hosts"] and shown["jobs"] == len(events(directory, "start", "resume")), shown
    for name in ("step", "loss", "top1", "lr", "images_per_second"):
        assert shown[name] == last[name], (name, shown)
    assert shown["steps"] == last["step"] and abs(shown["epoch"] - last["samples"] / 400) < 1e-12 and shown["seconds_left"] is None, shown
    assert shown["last_losses"] == [e["loss"] for e in steps[-500:]]
    assert shown["validation"]["top1s"] == [e["top1"] for e in evaluations] and shown["validation"]["loss"] == evaluations[-1]["loss"], shown
    assert shown["validation"]["best_top1"] == max(e["top1"] for e in evaluations)
    first = events(directory, "resume")[-1]["step"]
    timed = [e["seconds"] for e in steps if e["step"] > first][-20:]
    assert shown["step_seconds"]["steps"] == len(timed)
    for phase in PHASES:
        mean = sum(seconds[phase] for seconds in timed) / len(timed)
        assert abs(shown["step_seconds"][phase] - mean) <= 1e-9 * mean, (phase, shown)
    assert shown["memory"]["planned_bytes"] == sum(events(directory, "resume")[-1]["memory"].values()), shown
    assert shown["memory"]["peak_rss_bytes"] == max(e.get("peak_rss_bytes", 0) for e in events(directory)), shown
    saved = events(directory, "checkpoint")[-1]
    assert shown["checkpoint"]["step"] == saved["step"] and shown["checkpoint"]["save_seconds"] == saved["seconds"]["save"], shown
    assert shown["restarts"] == {"count": 0, "last": None} and shown["slowest"] is None and shown["notes"] == [] and shown["job"] is None, shown


def signals_restore_the_terminal(folder):
    made = fake_run(folder / "run", [step_event(1)])
    with Terminal(folder) as terminal:
        terminal.enter("echo marker")
        terminal.enter(watch(made))
        terminal.show("^q: quit")
        terminal.tmux("send-keys", "C-z")
        assert "marker" in terminal.show(r"Stopped"), terminal.screen()
        terminal.enter("fg")
        terminal.show("^q: quit")
        terminal.tmux("send-keys", "C-c")
        terminal.show(r"^marker")
        terminal.enter("echo status $?")
        terminal.show("^status 0$")
        assert re.search(rb"\x1b\[\d+m", terminal.last_screen()), "no colors"
        terminal.enter("NO_COLOR=1 " + watch(made))
        terminal.show("^q: quit")
        os.kill(terminal.child(), signal.SIGTERM)
        terminal.show("^status 0$")
        terminal.enter("echo ended $?")
        terminal.show("^ended 143$")
        raw = terminal.last_screen()
        assert b"q: quit" in raw and not re.search(rb"\x1b\[\d+m", raw), raw


def signals_end_a_read_that_hangs(folder):
    made = fake_run(folder / "run", [step_event(1)])
    lock = made / "lock"
    lock.write_text("")
    held = made / "lock.held"

    def hanging(opened, *more):
        return (f"LD_PRELOAD={shlex.quote(os.environ['LOCKSTEP_TEST_FAULTS'])} LOCKSTEP_TEST_FAULT=0:hold:{opened}:0 "
                f"LOCKSTEP_TEST_HELD_FILE={shlex.quote(str(lock))} " + watch(made, *more))

    def await_hold():
        deadline = time.monotonic() + SECONDS
        while not held.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    with Terminal(folder) as terminal:
        terminal.enter("stty -g")
        settings = re.search(r"^[0-9a-f]+:[0-9a-f:]+$", terminal.show(r"^[0-9a-f]+:[0-9a-f:]+$"), re.M)[0]
        terminal.enter(hanging(1))
        await_hold()
        terminal.tmux("send-keys", "C-c")
        terminal.enter("echo ended $?")
        terminal.show("^ended 130$")
        assert b"\x1b[?1049" not in terminal.raw.read_bytes(), "the first read is not on the normal screen"

        for end, status in ((signal.SIGTERM, 143), (signal.SIGINT, 0)):
            held.unlink()
            terminal.enter("clear; " + hanging(10, "--interval 0.1"))
            terminal.show("^q: quit")
            await_hold()
            os.kill(terminal.child(), end)
            terminal.enter("echo ended $?; stty -g")
            terminal.show(f"^ended {status}\n{settings}$")


def hostile_runs_are_shown(folder):
    """Half a line, NaN losses, an empty run, and text that would control the terminal."""
    torn = fake_run(folder / "torn", [step_event(s, **({"loss": None} if s > 2 else {})) for s in range(1, 5)])
    with open(torn / "metrics.jsonl", "a") as file:
        file.write('{"event":"step","step":6,"lo')
    shown = state_of(torn)
    assert shown["step"] == 4 and shown["last_losses"] == [2, 1, None, None] and shown["first_not_finite"] == 3 and shown["notes"] == [], shown
    text = run(["watch", torn], env={"LC_ALL": "C"})
    assert re.search("^loss +not finite +#_xx$", text, re.M) and "\x1b" not in text, text

    empty = fake_run(folder / "empty", [], config="")
    assert "no events yet" in run(["watch", empty, "--once"]) and state_of(empty)["state"] == "empty"
    assert "no run directory" in run(["watch", folder], expect=NO_INPUT)
    run(["watch"], expect=USAGE)
    run(["watch", empty, "--interval", 0], expect=USAGE)

    evil = "\x1b]0;evil\x07\x1b[31m\u009b5m\u202e"
    hostile = fake_run(folder / "runs" / f"run{evil}",
                       [{"event": "start", "step": 0, "model": evil, "hosts": evil, "version": evil, "ranks": 1},
                        {"event": "straggler", "step": 1, "epoch": 0, "rank": 0, "host": evil, "factor": 2},
                        step_event(1, seconds={**dict.fromkeys(PHASES, 0.25), "data": 1e17, "forward": -1e17}),
                        {"event": "stop", "step": 1, "reason": evil}])
    (hostile / "restarts").write_text(f"5 {evil}\n")
    (hostile / "confusion.csv").write_text(f"true class,{evil}\n{evil},3\n")
    (hostile / "lock").write_text(json.dumps({"job": evil, "host": evil}))
    (hostile / "checkpoints").mkdir()
    (hostile / "checkpoints" / f"{evil}.h5").write_text("")
    (hostile / "checkpoints" / "latest").symlink_to(f"{evil}.h5")
    absent = folder / f"absent{evil}"
    for text in (run(["watch", hostile], env={"LC_ALL": "C.UTF-8"}), run(["watch", hostile, "--json"]), run(["watch", absent], expect=NO_INPUT)):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text), repr(text)
    shown = state_of(hostile)
    assert shown["model"] == evil and shown["slowest"] == {"rank": 0, "host": evil, "factor": 2, "epoch": 0, "reports": 1}, shown
    assert shown["restarts"] == {"count": 1, "last": evil} and shown["state"] == "stopped" and shown["reason"] == evil, shown
    with Terminal(folder, f"cd {shlex.quote(str(folder))}; {shlex.quote(LOCKSTEP)} watch runs/*; sleep 60") as terminal:
        terminal.show("^q: quit")
        terminal.type("q")
        deadline = time.monotonic() + SECONDS
        while b"\x1b[?1049l" not in terminal.raw.read_bytes():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        raw = terminal.raw.read_bytes()
    left = re.sub(rb"\x1b\[(\d*m|\d+;\d+H|[KJ]|2J|\?(1049|25)[hl])", b"", raw)
    assert b"\x1b" not in left and b"\x07" not in left and b"\xc2\x9b" not in left, left


def a_million_steps_open_in_seconds_and_are_not_read_again(folder):
    """Measured on two cores (limits: 20 s, since the machine may be busy, and 300 MB)."""
    made = fake_run(folder / "run", [])
    line = ('{{"event":"step","step":{0},"epoch":{1},"samples":{2},"loss":{3},"top1":0.5078125,"top5":0.8203125,"lr":0.0975,'
            '"images_per_second":1359.77692908,"seconds":{{"data":0.0037989,"forward":0.0561946,"backward":0.1103582,'
            '"communication":0.0153243,"optimizer":0.004}},"gradient_norm":1.75664822,"time":1764000002.125}}\n')
    with open(made / "metrics.jsonl", "w") as file:
        for first in range(0, 1_000_000, 10_000):
            file.write("".join(line.format(s, s // 5000, 256 * s, 2.5 + s % 7 / 8) for s in range(first + 1, first + 10_001)))
    process = harness.start(["watch", made, "--json"])
    shown = json.loads(process.stdout.read())
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    print(f"        {usage.ru_utime + usage.ru_stime:.2f} s, {usage.ru_maxrss / 1e3:.0f} MB")
    assert process.returncode == OK and shown["step"] == 1_000_000, shown
    if not harness.REPORTS:
        assert usage.ru_utime + usage.ru_stime < 20 and usage.ru_maxrss < 300e3, usage

    with Terminal(folder, f"exec {watch(made, '--interval 0.1')}") as terminal:
        terminal.show("^step 1,000,000")
        counters = pathlib.Path(f"/proc/{terminal.tmux('display-message', '-p', '#{pane_pid}').strip()}/io")
        before = int(re.search(r"rchar: (\d+)", counters.read_text())[1])
        for step in range(1_000_001, 1_000_006):
            with open(made / "metrics.jsonl", "a") as file:
                file.write(line.format(step, 200, 256 * step, 2.5))
            terminal.show(f"^step {step:,}")
        read = int(re.search(r"rchar: (\d+)", counters.read_text())[1]) - before
        assert read < 1e6, f"{read} bytes were read to follow five lines"


if __name__ == "__main__":
    main([a_run_is_followed_through_a_kill_a_resume_a_stop_and_its_end, signals_restore_the_terminal, signals_end_a_read_that_hangs, hostile_runs_are_shown,
          a_million_steps_open_in_seconds_and_are_not_read_again])
