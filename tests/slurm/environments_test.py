#!/usr/bin/env python3
"""Submits a job in each of 200 random environments (16 outside the soak): it trains as asked, or says why not."""

import shlex

import environments
from slurm_harness import *  # noqa: F403

REPORTED = 5  # failures of which the needless traits are dropped
TOGETHER = 24  # jobs in the queue at once
STEPS = 3


class Submission:
    """A job in an environment, with its own folder."""

    def __init__(self, environment, folder):
        self.environment, self.folder = environment, folder
        name = environment.name.replace("/", "-")
        self.scripts = folder / (name.lstrip("-") or "scripts") if environment.beside else folder
        folder.mkdir()
        if environment.beside:
            shutil.copytree(SCRIPTS, self.scripts)
        self.run_dir = folder / "runs" / name
        self.job = self.other = None

    def write(self, data):
        program = stopping_once(self.folder / "once") if self.environment.stops else LOCKSTEP
        training = shlex.join(map(str, train_args(data, self.run_dir, "--max-steps", STEPS, "--seed", self.environment.seed)[1:]))
        script = edited(self.scripts, "train.sbatch", f"--job-name=trains {self.environment.resources} --time=60", f"training=({training})")
        machine = self.scripts / "virtual.env"
        script.write_text(script.read_text().replace(f"load_machine {machine}", f"load_machine {shlex.quote(str(machine))}"))
        machine.write_text(machine.read_text().replace(f"lockstep=({LOCKSTEP})", f"lockstep=({program})")
                           .replace("${TEST_LAUNCHER:-srun}", self.environment.launcher))
        return script

    def value(self, number, text):
        if text.startswith("FILE:"):
            path = self.folder / f"file-{number}"
            path.write_text(text.removeprefix("FILE:") + "\n")
            return str(path)
        if environments.OTHER in text:
            self.other = self.other or self.sleeper()
            return text.replace(environments.OTHER, self.other.number)
        return text.replace("PATH", environment()["PATH"]) if ":PATH" in text else text

    def sleeper(self):
        """Another job of the user, whose number is in the environment."""
        script = self.folder / "sleeper"
        script.write_text("#!/bin/sh\nexec sleep 3600\n")
        return submit(script, "--array=5", "--requeue", "--time=70", f"--output={self.folder}/other")

    def words(self, data):
        """The command that submits the job, to be run in a shell."""
        script, traits = self.write(data), self.environment.traits
        unset = [name for trait in traits for name, value in trait.variables if value is None]
        early, late = ([f"{name}={self.value(number, value)}" for number, trait in enumerate(traits) if trait.late == is_late
                        for name, value in trait.variables if value is not None] for is_late in (False, True))
        early.insert(0, f"LOCKSTEP_SLURM={'' if self.environment.beside else SCRIPTS}")
        options = [f"--output={self.folder}/out", "--chdir", self.folder, *(["--export", ",".join(["ALL", *late])] if late else []),
                   *([f"--array={self.environment.seed}"] if self.environment.element else [])]
        sbatch = shutil.which("sbatch", path=environment()["PATH"])
        line = ["/usr/bin/env", *(f"--unset={name}" for name in unset), *early, sbatch, "--parsable", *options, script]
        return "; ".join([*(trait.before for trait in traits if trait.before), shlex.join(map(str, line))])

    def submit(self, data):
        self.line = self.words(data)
        done = subprocess.run(["bash", "-c", self.line], env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=SECONDS)
        number = done.stdout.strip().split("\n")[-1]
        assert done.returncode == 0 and number.isdigit(), f"not submitted: {done}\n{self.line}"
        number += f"_{self.environment.seed}" if self.environment.element else ""
        self.job = Job(number, self.folder / "out", self.run_dir)
        self.deadline = time.monotonic() + SECONDS

    def is_over(self):
        self.job.hurry()
        return self.job.state() in FINAL or time.monotonic() > self.deadline

    def failure(self, whole):
        """What is wrong with the job that has ended; empty: nothing."""
        log, facts, seed = self.job.log(), self.job.facts(), self.environment.seed
        if self.other:
            before = self.other.facts()
            command("scancel", self.other.number)
            if before["JobState"] != "RUNNING" or before["Restarts"] != "0":
                return f"another job was changed: {self.other.report()}"
        refusals = self.environment.refusals()
        if facts["JobState"] not in FINAL:
            report = self.job.report()
            command("scancel", self.job.number, expect=None)
            return f"does not end: {report}"
        if facts["JobState"] != "COMPLETED":
            if any(re.search(refusal, log) for refusal in refusals):
                return ""
            return f"{facts['JobState']} {facts['ExitCode']}, {facts['Restarts']} restarts"
        run_dir = pathlib.Path(f"{self.run_dir}-seed-{seed}") if self.environment.element else self.run_dir
        if not latest(run_dir).exists():
            return f"no checkpoint in {run_dir}, but {[str(path) for path in self.folder.glob('runs/*')]}"
        found = state(latest(run_dir))
        asked = {"step": STEPS, "seed": seed, "world_size": 2}
        if any(found[name] != value for name, value in asked.items()):
            return f"not {asked}, but { {name: int(found[name]) for name in asked} }"
        if facts["Restarts"] != str(int(self.environment.stops)):
            return f"{facts['Restarts']} restarts"
        try:
            assert_same_run(whole[seed], run_dir)
        except AssertionError as error:
            return str(error)
        return ""

    def report(self, why):
        log = "\n".join(f"    {line}" for line in self.job.log().splitlines()[-25:])
        return f"{self.environment.told()}: {why}\n  {self.line}\n{log}"


class Trial:
    """Runs submissions, some at a time."""

    def __init__(self, folder):
        self.folder, self.count = folder, 0
        self.data = write_shards(folder / "data", samples=64)
        self.whole = {}
        for seed in (1, 2):
            plain = self.submission(environments.Environment((), f"whole-{seed}", seed=seed))
            until(plain.is_over, plain.job.report, poll=0.1)
            why = plain.failure({seed: plain.run_dir})
            assert not why, plain.report(why)
            self.whole[seed] = plain.run_dir

    def submission(self, one):
        self.count += 1
        submission = Submission(one, self.folder / f"{self.count:03}")
        submission.submit(self.data)
        return submission

    def failures(self, some):
        """[(submission, what is wrong)] of the environments `some`."""
        waiting, running, failed = list(some), [], []

        def advance():
            while waiting and len(running) < TOGETHER:
                running.append(self.submission(waiting.pop(0)))
            for one in [one for one in running if one.is_over()]:
                running.remove(one)
                why = one.failure(self.whole)
                if why:
                    print(f"   failed: {one.environment.told()}: {why[:150]}", flush=True)
                    failed.append((one, why))
            return not running and not waiting

        until(advance, "the jobs", seconds=SECONDS * (2 + len(some) // TOGETHER), poll=0.2)
        return failed

    def shrunk(self, environment):
        """A smallest set of its traits that fails."""
        if self.failures([environment.without(*environment.traits)]):
            return environment.without(*environment.traits)
        for trait in environment.traits:
            less = environment.without(trait)
            if self.failures([less]):
                environment = less
        return environment


@harness.more_in_soak
def a_job_trains_in_any_environment_or_says_why_not(folder):
    trial = Trial(folder)
    some = environments.environments(200 if harness.SOAK else 16)
    failed = trial.failures(some)
    told = []
    for submission, why in failed[:REPORTED]:
        again = trial.failures([trial.shrunk(submission.environment)])
        told.append(again[0][0].report(again[0][1]) if again else submission.report(f"{why}; not with fewer traits"))
    told += [submission.report(why) for submission, why in failed[REPORTED:]]
    assert not failed, f"{len(failed)} of {len(some)} environments:\n" + "\n\n".join(told)


if __name__ == "__main__":
    main([a_job_trains_in_any_environment_or_says_why_not])
