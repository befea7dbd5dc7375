"""What the tests on a virtual cluster share: a user's copy of a job script, its jobs, and the disturbing of their ranks."""

import contextlib
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
from harness import (LOCKSTEP, assert_same_run, events, latest, state, train_args, write_shards)  # noqa: E402,F401
from virtual_cluster import NODES, VirtualCluster, until, why_not  # noqa: E402,F401

CLUSTER = VirtualCluster(tempfile.mkdtemp(prefix="slurm-"), dies_with_us=True)
FINAL = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "DEADLINE")
SECONDS = 120  # no wait of these tests takes a tenth of it, but for those that Slurm makes on purpose

# The tests' machine: what generic.env is, less binding, for four nodes share this machine's cores.
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
    """A Slurm command's output."""
    done = subprocess.run([str(word) for word in words], env=environment(env), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=seconds, stdin=subprocess.DEVNULL)
    assert expect is None or done.returncode == expect, f"{words}: status {done.returncode}\n{done.stdout}"
    return done.stdout


def edited(folder, name, resources, arguments):
    """A user's copy of slurm/NAME: its three lines edited, and nothing else."""
    machine = folder / "virtual.env"
    machine.write_text(MACHINE % LOCKSTEP)
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


class Job:
    """One job of the cluster, by its number; an array's element is NUMBER_ELEMENT."""

    def __init__(self, number, output, run_dir=None):
        self.number, self.output, self.run_dir = str(number), pathlib.Path(output), run_dir

    def facts(self):
        text = command("scontrol", "-o", "show", "job", self.number, expect=None)
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def state(self):
        return self.facts().get("JobState", "?")

    def log(self):
        return self.output.read_text(errors="replace") if self.output.exists() else "(no output)"

    def report(self):
        return f"job {self.number}: {self.facts()}\n{self.log()[-6000:]}"

    def until_state(self, *states, seconds=SECONDS):
        until(lambda: self.state() in states, lambda: f"{states}; {self.report()}", seconds, poll=0.05)

    def until_restarted(self, count, seconds=SECONDS):
        """Until it has begun its restart `count`."""
        def restarted():
            self.hurry()
            facts = self.facts()
            return int(facts.get("Restarts", 0)) >= count and facts["JobState"] in ("RUNNING", *FINAL)

        until(restarted, lambda: f"restart {count}; {self.report()}", seconds, poll=0.05)

    def hurry(self):
        """Slurm makes a requeued job wait two minutes; two seconds are enough for it to have left its nodes."""
        facts = self.facts()
        if facts.get("JobState") == "PENDING" and facts.get("Reason") == "BeginTime":
            start = time.mktime(time.strptime(facts["StartTime"], "%Y-%m-%dT%H:%M:%S")) if facts.get("StartTime", "Unknown") != "Unknown" else 0
            if start - time.time() > 10:
                command("scontrol", "update", f"JobId={self.number}", "StartTime=now+2", expect=None)

    def end(self, expect="COMPLETED", status=None, restarts=None, seconds=SECONDS):
        """Waits for its end over any number of restarts, and checks how it ended."""
        def over():
            self.hurry()
            return self.state() in FINAL

        until(over, self.report, seconds, poll=0.1)
        facts = self.facts()
        assert facts["JobState"] == expect, f"{facts['JobState']}, expected {expect}; {self.report()}"
        if status is not None:
            assert facts["ExitCode"] == f"{status}:0", f"{facts['ExitCode']}, expected {status}; {self.report()}"
        if restarts is not None:
            assert facts["Restarts"] == str(restarts), f"{facts['Restarts']} restarts, expected {restarts}; {self.report()}"
        return self.log()

    def processes(self, rank=None):
        """{rank: process id on this machine} of the ranks that live, whoever launched them."""
        number = self.facts()["JobId"].encode()
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if not entry.name.isdigit() or (entry / "comm").read_text().strip() != "lockstep":
                    continue
                variables = dict(v.split(b"=", 1) for v in (entry / "environ").read_bytes().split(b"\0") if b"=" in v)
                if variables.get(b"SLURM_JOB_ID") == number and b"PMIX_RANK" in variables:
                    found[int(variables[b"PMIX_RANK"])] = int(entry.name)
        return found if rank is None else {r: pid for r, pid in found.items() if r == rank}

    def step(self):
        """The newest step in its record."""
        steps = [0]
        with contextlib.suppress(OSError, ValueError):
            steps += [event.get("step", 0) for event in events(self.run_dir, "step", "resume")]
        return max(steps)

    def hold(self, step, ranks):
        """Stops all its ranks in their tracks once `step` is done, so that what follows finds them at work."""
        def there():
            assert self.state() not in FINAL, f"over before step {step}; {self.report()}"
            return self.step() >= step and len(self.processes()) == ranks

        until(there, lambda: f"step {step} of {ranks} ranks; {self.report()}", poll=0.005)
        self.signal(signal.SIGSTOP)

    def release(self):
        self.signal(signal.SIGCONT)

    def signal(self, number, rank=None):
        for pid in self.processes(rank).values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def submit(script, *options, run_dir=None, env=None, arguments=()):
    output = script.parent / "%j.out"
    number = command("sbatch", "--parsable", f"--output={output}", "--chdir", script.parent, *options, script, *arguments,
                     env=env).strip()
    return Job(number, script.parent / f"{number}.out", run_dir)


def main(tests):
    """Runs the tests on a cluster of this process's own."""
    reason = why_not()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    try:
        CLUSTER.start()
        harness.main(tests)
    finally:
        CLUSTER.stop()
        shutil.rmtree(CLUSTER.folder, ignore_errors=True)
