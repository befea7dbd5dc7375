"""Common code of the tests on a virtual cluster: a user's copy of a job script, its jobs, and disturbances of their ranks."""

import contextlib
import functools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = HERE.parent.parent / "slurm"
sys.path.insert(0, str(HERE.parent / "system"))

import harness  # noqa: E402
from harness import (LOCKSTEP, assert_same_run, events, latest, soak, state, train_args, write_shards)  # noqa: E402,F401
from virtual_cluster import KILL_WAIT, NODES, VirtualCluster, until, why_not  # noqa: E402,F401

CLUSTER = VirtualCluster(tempfile.mkdtemp(prefix="slurm-"), dies_with_us=True)
FINAL = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "DEADLINE")
SECONDS = 240  # over ten times the longest wait of these tests, except for delays that Slurm makes on purpose

# The tests' machine file: like generic.env, but without binding, because four nodes share this machine's cores.
MACHINE = """\
launcher=${TEST_LAUNCHER:-srun}
lockstep=(%s)
srun_options=(--mpi=pmix)
mpirun_options=(--bind-to none)
max_restarts=${TEST_MAX_RESTARTS:-50}
stalled_restarts=${TEST_STALLED_RESTARTS:-1}
export OMP_WAIT_POLICY=passive
"""


def environment(extra=None):
    cluster = CLUSTER.environment()
    return {**harness.environment(), **cluster, "LOCKSTEP_SLURM": str(SCRIPTS), **(extra or {})}


def command(*words, env=None, expect=0, seconds=SECONDS):
    """Returns the output of a Slurm command."""
    done = subprocess.run([str(word) for word in words], env=environment(env), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=seconds, stdin=subprocess.DEVNULL)
    assert expect is None or done.returncode == expect, f"{words}: status {done.returncode}\n{done.stdout}"
    return done.stdout


def edited(folder, name, resources, arguments):
    """A user's copy of slurm/NAME, in which only the three marked lines are edited."""
    machine = folder / "virtual.env"
    machine.write_text(MACHINE % LOCKSTEP + "".join(f"export {name}={value}\n" for name, value in harness.PRELOAD.items()))
    lines = (SCRIPTS / name).read_text().splitlines()
    marks = {f"# {number}": [i for i, line in enumerate(lines) if re.search(rf"# {number}(:|$)", line)] for number in (1, 2, 3)}
    assert all(len(found) == 1 for found in marks.values()), f"{name} does not mark three lines to edit: {marks}"
    one, two, three = (found[0] for found in marks.values())
    assert lines[one - 1].startswith("#SBATCH") and lines[two].startswith("load_machine")
    lines[one - 1] = f"#SBATCH {resources}"
    lines[two] = f"load_machine {machine}"
    lines[three] = arguments
    script = folder / name
    script.write_text("\n".join(lines) + "\n")
    return script


def stopping_once(path, before=""):
    """Writes a program that is lockstep, but its ranks stop in the first start of a job; a shell's start-up files do not concern it."""
    path.write_text(f'#!/bin/sh\n{before}\ncase "$1 $*" in\n"train "*--print-config*) [ ! -e "{path}.started" ] || : >"{path}.again"; : >"{path}.started" ;;\n'
                    f'"train "*) [ -e "{path}.again" ] || exit 75 ;;\nesac\nexec {LOCKSTEP} "$@"\n')
    path.chmod(0o755)
    return path


def step_daemons(number):
    """Process ids of the slurmstepd daemons of a job that still run."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"slurmstepd: [{number}." in (entry / "cmdline").read_text(errors="replace") and CLUSTER.holds(entry.name):
                found.append(int(entry.name))
    return found


class Job:
    """A job of the cluster, by its number; the number of an array's element is NUMBER_ELEMENT."""

    def __init__(self, number, output, run_dir=None):
        self.number, self.output, self.run_dir = str(number), pathlib.Path(output), run_dir
        self.asked, self.answer = 0, {}

    def facts(self):
        """Slurm's record of the job, at most a tenth of a second old."""
        if time.monotonic() > self.asked + 0.1:
            text = command("scontrol", "-o", "show", "job", self.number, expect=None)
            self.answer = dict(word.split("=", 1) for word in text.split() if "=" in word)
            self.asked = time.monotonic()
        return self.answer

    def state(self):
        return self.facts().get("JobState", "?")

    def log(self):
        return self.output.read_text(errors="replace") if self.output.exists() else "(no output)"

    def restarts(self):
        """The restarts that the job scripts recorded."""
        try:
            return (self.run_dir / "restarts").read_text().splitlines()
        except (OSError, TypeError):
            return []

    def report(self):
        facts = self.facts()
        told = [line for line in self.log().splitlines() if " images/s" not in line]
        return "\n".join([f"job {self.number}: {facts}", f"daemons {step_daemons(facts.get('JobId'))}", *self.restarts(),
                          *CLUSTER.log_of(self.number), *told[-100:]])

    def until_state(self, *states, seconds=SECONDS):
        until(lambda: self.state() in states, lambda: f"{states}; {self.report()}", seconds, poll=0.05)

    def until_restarted(self, count, seconds=SECONDS):
        """Waits until restart `count` has begun."""
        def restarted():
            self.hurry()
            facts = self.facts()
            return int(facts.get("Restarts", 0)) >= count and facts["JobState"] in ("RUNNING", *FINAL)

        until(restarted, lambda: f"restart {count}; {self.report()}", seconds, poll=0.05)

    def hurry(self):
        """Slurm delays a requeued job by two minutes until its nodes are clean; this starts the job as soon as they are."""
        facts = self.facts()
        if facts.get("JobState") != "PENDING" or facts.get("Reason") != "BeginTime" or facts["StartTime"] == "Unknown":
            return
        start = time.mktime(time.strptime(facts["StartTime"], "%Y-%m-%dT%H:%M:%S"))
        left = step_daemons(facts["JobId"]) if start > time.time() + 10 else []
        if left and start < time.time() + 100:
            # Slurm 22.05's daemons sometimes hang after a rank died while PMIx started; UnkillableStepTimeout is for that.
            print(f"   job {self.number}: Slurm's own daemons {left} hang; killed", flush=True)
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        elif not left and start > time.time() + 10:
            command("scontrol", "update", f"JobId={self.number}", "StartTime=now+2", expect=None)

    def end(self, expect="COMPLETED", status=None, restarts=None, seconds=SECONDS):
        """Waits for the job's end over any number of restarts, and checks its final state."""
        def over():
            self.hurry()
            return self.state() in FINAL

        until(over, self.report, seconds, poll=0.1)
        facts = self.facts()
        allowed = [expect] if isinstance(expect, str) else expect
        assert facts["JobState"] in allowed, f"{facts['JobState']}, expected {expect}; {self.report()}"
        if status is not None:
            allowed = [f"{one}:0" for one in ([status] if isinstance(status, int) else status)]
            assert facts["ExitCode"] in allowed, f"{facts['ExitCode']}, expected {status}; {self.report()}"
        if restarts is not None:
            allowed = [str(one) for one in ([restarts] if isinstance(restarts, int) else restarts)]
            assert facts["Restarts"] in allowed, f"{facts['Restarts']} restarts, expected {restarts}; {self.report()}"
        return self.log()

    def processes(self, rank=None):
        """{rank: process id on this machine} of the running ranks, with any launcher."""
        number = self.facts()["JobId"].encode()
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if not entry.name.isdigit() or (entry / "comm").read_text().strip() != "lockstep":
                    continue
                variables = dict(v.split(b"=", 1) for v in (entry / "environ").read_bytes().split(b"\0") if b"=" in v)
                if variables.get(b"SLURM_JOB_ID") == number and b"PMIX_RANK" in variables and CLUSTER.holds(entry.name):
                    found[int(variables[b"PMIX_RANK"])] = int(entry.name)
        return found if rank is None else {r: pid for r, pid in found.items() if r == rank}

    def step(self):
        """The newest step in the run's metrics; 0 before the first."""
        try:
            with open(self.run_dir / "metrics.jsonl", "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
                steps = re.findall(rb'"event":"step","step":(\d+)', file.read())
        except OSError:
            return 0
        return int(steps[-1]) if steps else 0

    def until_step(self, step, ranks):
        """Waits for the ranks, then for the end of `step`; returns the ranks' process ids."""
        found = {}
        next_look = next_scan = time.monotonic()

        def there():
            nonlocal next_look, next_scan, found
            if len(found) == ranks:
                if self.step() >= step:
                    return True
            elif time.monotonic() > next_scan:
                found = self.processes()
                next_scan = time.monotonic() + 0.05
            if time.monotonic() > next_look:
                self.hurry()
                assert self.state() not in FINAL, f"over before step {step}; {self.report()}"
                next_look = time.monotonic() + 0.5
            return False

        until(there, lambda: f"step {step} of {ranks} ranks; {self.report()}", poll=0.005)
        return found

    def hold(self, step, ranks):
        """Stops all ranks with SIGSTOP after `step`, so that they are at work when they are disturbed."""
        for pid in self.until_step(step, ranks).values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def release(self):
        self.signal(signal.SIGCONT)

    def signal(self, number, rank=None):
        for pid in self.processes(rank).values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def submit(script, *options, run_dir=None, env=None, arguments=()):
    output = script.parent / "%j.out"
    number = command("sbatch", "--parsable", f"--output={output}", "--chdir", script.parent, *options, script, *map(str, arguments),
                     env=env).strip()
    return Job(number, script.parent / f"{number}.out", run_dir)


RANKS = 2
LAYOUT = "--nodes=2 --ntasks-per-node=1 --time=60"
EPOCHS = 3  # of 400 steps; a run lasts seconds
MIDDLE = 220  # a step in between
SAVE_EVERY = 50


def training(data, run_dir, *more):
    """Line 3 of train.sbatch."""
    return "training=(" + " ".join(map(str, train_args(data, run_dir, *more)[1:])) + ")"


def run_line(folder, run_dir, *more, save_every=SAVE_EVERY, epochs=EPOCHS):
    return training(data_of(folder), run_dir, "--epochs", epochs, "--save-every", save_every, *more)


def data_of(folder):
    """The data set of the disturbed runs; written once."""
    if not (folder / "data").exists():
        write_shards(folder / "data", samples=3200)
        write_shards(folder / "data", samples=40, shards=1, split="val", seed=1)
    return folder / "data"


def script_for(folder, run_dir, resources=LAYOUT, **options):
    """train.sbatch for this run, in a separate folder."""
    place = folder / run_dir.name.replace("run", "job")
    place.mkdir()
    return edited(place, "train.sbatch", f"--job-name={run_dir.name} {resources}", run_line(folder, run_dir, **options))


def disturbed(folder, name, disturb, options=(), launcher="srun", env=None, step=MIDDLE, resources=LAYOUT, arguments=(),
              ranks=RANKS):
    """Stops all ranks of a run in its middle, calls `disturb(job)` and releases them; without `disturb` they stay stopped."""
    run_dir = folder / f"run-{name}"
    job = submit(script_for(folder, run_dir, resources), *options, run_dir=run_dir, env={"TEST_LAUNCHER": launcher, **(env or {})},
                 arguments=arguments)
    job.hold(step, ranks)
    if disturb is not None:
        disturb(job)
        job.release()
    return job


def check_goes_on(folder, jobs, expect_restarts=1, resources=LAYOUT, **options):
    """Checks that each job ends by itself with the parameters, optimizer and metrics of an undisturbed run."""
    until(lambda: all([job.hurry() or job.state() in FINAL for job in jobs]),
          lambda: "\n".join(job.report() for job in jobs), poll=0.1)
    for job in jobs:
        job.end(status=0, restarts=expect_restarts)
    check_same(folder, [job.run_dir for job in jobs], resources, **options)


def check_same(folder, run_dirs, resources=LAYOUT, **options):
    whole = folder / "run-whole"
    submit(script_for(folder, whole, resources, **options), run_dir=whole).end(status=0, restarts=0)
    for run_dir in run_dirs:
        assert_same_run(whole, run_dir)


def on(kind):
    """Marks a test that needs a cluster of this kind."""
    def mark(test):
        test.cluster = kind
        return test
    return mark


def main(tests):
    """Runs the tests on a separate cluster; with LOCKSTEP_TEST_PART=I/N, the I-th of N parts of them, such as 1/3."""
    part, parts = map(int, os.environ.get("LOCKSTEP_TEST_PART", "1/1").split("/"))
    assert 1 <= part <= parts, f"part {part} of {parts}"
    tests = harness.of_this_kind(tests)[part - 1::parts]

    def alone(test):
        @functools.wraps(test)
        def run(folder):
            CLUSTER.become(getattr(test, "cluster", "plain"))
            try:
                test(folder)
            finally:
                command("scancel", "--full", "--quiet", "-u", os.getuid(), expect=None)
                until(lambda: not command("squeue", "-h", expect=None).strip(), lambda: command("squeue"), poll=0.1)
        return run

    reason = why_not()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    try:
        CLUSTER.start()
        harness.main([alone(test) for test in tests])
    finally:
        CLUSTER.stop()
        shutil.rmtree(CLUSTER.folder, ignore_errors=True)
