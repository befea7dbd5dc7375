"""A stage under way: its commands one after another, each contained, within the stage's limit."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import contain
import gpu

GRACE = 3  # seconds between the request to end and its enforcement
PATIENCE = 10  # seconds that a timed command waits for a free GPU
SKIPPED = 77


def age():
    """Seconds since this process began; 0 where the kernel's two clocks do not agree."""
    ticks = int(pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return seconds if 0 <= seconds < 60 else 0


class Clock:
    """Seconds since this process began; in a rehearsal `speed` of them pass in a second. All limits are of this clock."""

    def __init__(self, speed=1.0):
        self.speed = speed
        self.begin = time.monotonic() - age()

    def now(self):
        return (time.monotonic() - self.begin) * self.speed

    def real(self, seconds):
        return seconds / self.speed


def last_object(text):
    """The JSON object on the last line that holds one."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except ValueError:
                continue
    return None


def last_line(text):
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def skip_reason(text):
    """The line in which a test says why it skips; mpirun adds lines of its own."""
    return next((line.strip() for line in text.splitlines() if line.startswith("skipped")), last_line(text))


def compared(records):
    """The ratio of the new bundle's images/s to the baseline's, turn by turn. Disturbed turns do not count."""
    rates = {record["name"]: record["result"]["images_per_second"] for record in records
             if record["state"] == "passed" and not record.get("disturbed") and "images_per_second" in (record.get("result") or {})}
    ratios = [rate / rates[name.replace("new", "baseline")] for name, rate in rates.items()
              if name.startswith("new ") and name.replace("new", "baseline") in rates]
    return {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)} if ratios else None


class Attempt:
    def __init__(self, stage, limit, clock, folder, environments):
        """`environments` are those of the bundle and of the baseline."""
        self.stage, self.limit, self.clock, self.folder, self.environments = stage, limit, clock, pathlib.Path(folder), environments
        self.begin, self.began = clock.now(), time.time()
        self.seconds, self.ended = None, None
        self.records = []
        self.waiting = list(stage.parts)
        self.process = None
        self.ending = None  # why the running command was told to end
        self.stopped = None  # why no other command starts
        self.is_cut = False  # the budget left less than the stage's most, and that was too little
        self.busy_since = self.looked = None

    def poll(self):
        """Goes on without waiting; True when the stage has ended."""
        if self.process:
            status = self.process.poll()
            if status is None:
                self.enforce_limits()
                return False
            self.finish(status)
        while self.waiting and not self.stopped:
            if self.clock.now() - self.begin >= self.limit:
                self.stopped = f"the stage was not done within {self.limit:.0f} s"
                self.is_cut = self.limit < self.stage.most
            elif not self.stage.timed or self.gpu_is_free():
                if self.waiting:
                    self.launch(self.waiting.pop(0))
                    return False
            else:
                return False
        self.records += [{"name": part.name, "state": "not run", "reason": self.stopped} for part in self.waiting]
        self.waiting = []
        self.seconds, self.ended = self.clock.now() - self.begin, time.time()
        return True

    def gpu_is_free(self):
        """Looks once a second. After PATIENCE the next command is left out."""
        now = self.clock.now()
        if self.looked is not None and now - self.looked < 1:
            return False
        busy, self.looked = gpu.others(), now
        if not busy:
            self.busy_since = self.looked = None
            return True
        self.busy_since = now if self.busy_since is None else self.busy_since
        if now - self.busy_since >= PATIENCE:
            self.records.append({"name": self.waiting.pop(0).name, "state": "skipped", "reason": f"not timed: {busy}"})
            self.busy_since = self.looked = None
        return False

    def launch(self, part):
        left = self.limit - (self.clock.now() - self.begin)
        self.deadline = self.clock.now() + min(part.most or left, left)
        told = {"limit": f"{self.clock.real(min(part.most or left, left) * 0.9):.1f}", "folder": str(self.folder)}

        def filled(text):
            return text.replace("{limit}", told["limit"]).replace("{folder}", told["folder"])

        command = [filled(word) for word in part.command]
        environment = {**self.environments[part.baseline], "CUDA_VISIBLE_DEVICES": gpu.GPU}
        environment.update((name, filled(value)) for name, value in part.environment)
        self.log = self.folder / f"{part.name.replace(' ', '-')}.log"
        self.records.append({"name": part.name, "command": command, "state": "running", "began": time.time()})
        self.part_begin = self.clock.now()
        try:
            self.folder.mkdir(exist_ok=True)
            with open(self.log, "wb") as log:
                self.process = subprocess.Popen(
                    [sys.executable, "-I", "-S", contain.__file__, str(self.clock.real(GRACE)), str(os.getpid()), *command],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=self.folder, start_new_session=True)
        except OSError as error:
            self.records[-1].update(state="failed", reason=f"it did not start: {error}")

    def enforce_limits(self):
        if self.clock.now() >= self.deadline and not self.ending:
            self.end(f"not done within {self.deadline - self.part_begin:.0f} s")

    def end(self, reason):
        self.ending = reason
        self.process.terminate()

    def stop(self, reason):
        """Ends the stage: later poll() returns True."""
        self.stopped = reason
        if self.process and not self.ending:
            self.end(reason)

    def finish(self, status):
        record, text = self.records[-1], self.log.read_text(errors="replace") if self.log.exists() else ""
        state = "passed" if status == 0 else "skipped" if status == SKIPPED else "failed"
        reason = {"passed": None, "skipped": skip_reason(text), "failed": f"status {status}: {last_line(text)}"}[state]
        if self.ending:
            self.is_cut |= not self.stopped and self.limit < self.stage.most and self.clock.now() - self.begin >= self.limit
            state, reason = "stopped" if self.stopped else "cut off" if self.is_cut else "failed", self.ending
        record.update(state=state, status=status, seconds=round(self.clock.now() - self.part_begin, 2), result=last_object(text))
        if reason:
            record["reason"] = reason
        disturbed = gpu.others() if self.stage.timed and state == "passed" else None
        if disturbed and disturbed.startswith("processes"):
            record["disturbed"] = disturbed
        self.process = self.ending = None

    def state(self):
        states = {record["state"] for record in self.records}
        if self.seconds is None:
            return "running"
        for state in ("stopped", "failed", "cut off"):
            if state in states:
                return state
        if "not run" in states:
            return "cut off" if self.is_cut else "failed"
        return "skipped" if states <= {"skipped"} else "passed"

    def report(self):
        """The stage's entry in the summary."""
        first = next((record for state in ("failed", "cut off", "stopped", "not run", "skipped") for record in self.records
                      if record["state"] == state), None)
        entry = {"name": self.stage.name, "state": self.state(), "timed": self.stage.timed, "limit": round(self.limit, 1),
                 "seconds": round(self.clock.now() - self.begin if self.seconds is None else self.seconds, 1),
                 "began": self.began, "ended": self.ended or time.time(), "parts": self.records}
        if first and self.seconds is not None:
            entry["reason"] = f"{first['name']}: {first.get('reason')}"
        ratio = compared(self.records)
        return {**entry, "ratio_to_baseline": ratio} if ratio else entry
