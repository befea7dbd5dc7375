#!/usr/bin/env python3
"""Tests how jobs end on a real Slurm of several kinds: the job's output names the cause, and what follows is what the cause asks for."""

import time

from slurm_harness import *  # noqa: F403
from stop_test import path_with, warn

ONE = "--nodes=1 --ntasks-per-node=1 --time=60"


def said(job):
    """What the job's script printed, without Slurm's lines and the ranks'."""
    return "\n".join(line for line in job.log().splitlines() if re.search(r"\] job \d+(_\d+)?( \(.*?\))?: ", line))


def prepared(folder, name, *more, machine="", program="", **options):
    """A script for a run of its own on one rank, with more options of training and lines of the machine's file. `program` is the text of
    a program that runs in place of lockstep, except for questions about its options."""
    script = script_for(folder, folder / f"run-{name}", ONE, **options)
    text = script.read_text()
    script.write_text(re.sub(r"(?m)^(training=\(.*)\)$", lambda found: " ".join([found[1], *map(str, more)]) + ")", text))
    with open(script.parent / "virtual.env", "a") as file:
        if program:
            other = script.parent / "other"
            other.write_text(f'#!/bin/bash\ncase "$*" in *--print-config* | *--version* | restart*) exec {LOCKSTEP} "$@" ;; esac\n{program}\n')
            other.chmod(0o755)
            file.write(f"lockstep=({other})\n")
        file.write(machine + "\n")
    return script


def started(folder, name, *options, env=None, **kinds):
    """A job of 200 steps."""
    return submit(prepared(folder, name, "--max-steps", 200, **kinds), *options, run_dir=folder / f"run-{name}", env=env)


def warned(job):
    """Warns the job in its run."""
    job.hold(60, 1)
    warn(job)
    until(lambda: "SIGUSR1: asking" in said(job), job.report)
    job.release()
    return job


def other_job(*words):
    return Job(command("sbatch", "--parsable", "--output=/dev/null", "--mem=100", *words).strip(), "/dev/null")


def bystander():
    """A job that no script may touch."""
    job = other_job("--partition=high", "--wrap", "sleep 1000")
    job.until_state("RUNNING")
    return job


def check_untouched(*jobs):
    for job in jobs:
        assert (job.state(), job.facts()["Restarts"]) == ("RUNNING", "0"), job.report()


def no_other_job(*numbers):
    """Checks that no job waits or runs but these."""
    left = [line.split() for line in command("squeue", "-h", "-o", "%i %T").splitlines()]
    assert not [job for job, state in left if job not in numbers and state != "COMPLETING"], left


def preempted(job):
    """Preempts the job by one of the partition `high`, which soon ends."""
    high = other_job("--partition=high", "--nodes=4", "--exclusive", "--wrap", "sleep 1")
    until(lambda: job.facts().get("PreemptTime", "") != "None" or job.state() != "RUNNING", job.report)
    return high


def goes_on_after_preemption(folder, partition, name, options=()):
    """Slurm 24 may start a job once more after its end, with nothing to do, and calls one PREEMPTED that was requeued in its grace time
    and has succeeded since."""
    job = disturbed(folder, name, None, [f"--partition={partition}", *options], "srun")
    high = preempted(job)
    job.release()
    high.end()
    job.end(["COMPLETED", "PREEMPTED"], status=0, restarts=(1, 2))
    assert "finished at step" in job.log(), job.log()
    assert "preempt" in said(job) and "cancel" not in said(job), job.log()
    return job


@on("strict")
def a_job_preempted_by_cancel_goes_on(folder):
    """Slurm kills it, and does not start it again by itself."""
    job = goes_on_after_preemption(folder, "main", "killed")
    check_same(folder, [job.run_dir])


@soak
@on("strict")
def a_job_preempted_with_grace_saves_first(folder):
    job = goes_on_after_preemption(folder, "patient", "grace")
    status, checkpoint = job.restarts()[0].split()[1:3]
    assert status == "75" and f"stopped on request at step {int(checkpoint[5:-3])}" in job.log(), job.report()
    check_same(folder, [job.run_dir])


@soak
@on("user-signal")
def a_user_signal_announces_a_preemption(folder):
    """Also in a job whose limit is so short that a warning would come at its start."""
    job = goes_on_after_preemption(folder, "patient", "signal")
    assert "SIGUSR1: asking" in said(job), job.log()
    short = goes_on_after_preemption(folder, "patient", "short", ["--time=4", "--signal=B:USR1@1"])
    for one in (job, short):
        status, checkpoint = one.restarts()[0].split()[1:3]
        assert status == "75" and f"stopped on request at step {int(checkpoint[5:-3])}" in one.log(), one.report()
    check_same(folder, [job.run_dir, short.run_dir])


@soak
@on("strict")
def a_job_that_slurm_requeues_is_not_called_cancelled(folder):
    preempted_job = goes_on_after_preemption(folder, "requeue", "requeued")
    other = bystander()
    held = disturbed(folder, "held", lambda job: command("scontrol", "requeuehold", job.number))
    until(lambda: held.state() == "REQUEUE_HOLD" or held.facts().get("Reason") == "job_requeued_in_held_state" and
          held.state() == "PENDING", held.report)
    assert f"scontrol release {held.number}" in said(held) and "cancel" not in said(held), held.log()
    command("scontrol", "release", held.number)
    held.end(status=0, restarts=1)
    check_untouched(other)
    check_same(folder, [preempted_job.run_dir, held.run_dir])


@soak
@on("suspending")
def a_suspended_job_continues(folder):
    job = disturbed(folder, "suspended", None, ["--partition=suspend"])
    high = preempted(job)
    job.until_state("SUSPENDED")
    high.end()
    job.until_state("RUNNING")
    job.release()
    job.end(status=0, restarts=0)
    check_same(folder, [job.run_dir])


@soak
@on("strict")
def a_cancelled_job_stays_cancelled(folder):
    for name, how in (("alone", []), ("full", ["--full"])):
        job = disturbed(folder, name, lambda job: command("scancel", *how, job.number))  # noqa: B023
        job.end("CANCELLED", restarts=0)
        assert "cancel" in said(job) and "preempt" not in said(job), job.log()
    no_other_job()


@soak
@on("strict")
def the_time_limit_is_named(folder):
    CLUSTER.configure("KillWait", 20)
    job = disturbed(folder, "limit", None)
    command("scontrol", "update", f"JobId={job.number}", "EndTime=now+1")
    job.until_restarted(1)
    command("scontrol", "update", f"JobId={job.number}", "TimeLimit=60", expect=None)
    assert "time limit" in said(job).lower(), job.log()
    check_goes_on(folder, [job])
    CLUSTER.configure("KillWait", KILL_WAIT)


@soak
@on("strict")
def a_rank_over_the_memory_limit_is_named_and_restarted_twice(folder):
    """Slurm kills the step. Nothing in its record tells why, only its words in the job's output."""
    script = prepared(folder, "memory", program=f"""\
{LOCKSTEP} "$@" --max-steps $((10 * ${{SLURM_RESTART_COUNT:-0}} + 10))
hog=$(head -c 500000000 /dev/zero | tr '\\0' x)
sleep 60
echo ${{#hog}}""")
    job = submit(script, "--mem=300", run_dir=folder / "run-memory", env={"TEST_STALLED_RESTARTS": "9"})
    log = job.end("FAILED", restarts=2)
    assert "memory" in said(job) and "crash_restarts=2" in log, log


@soak
def a_dead_node_is_no_cancellation(folder):
    job = disturbed(folder, "node", None)
    node = "node" + job.facts()["NodeList"][-2]
    CLUSTER.kill_node(node)
    command("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=dead")
    job.release()
    job.until_restarted(1)
    CLUSTER.start_node(node)
    assert "cancel" not in said(job), job.log()
    job.end(status=0, restarts=1)
    check_same(folder, [job.run_dir])


def jobs_that_must_not_restart(folder, ways):
    """Warns a job of each way; none is run again, and its last line says why."""
    jobs = []
    for name, (options, kinds, why) in ways.items():
        jobs.append((warned(started(folder, name, *options, **kinds)), why))
    for job, why in jobs:
        log = job.end("FAILED", status=75, restarts=0)
        assert re.search(why, said(job).splitlines()[-1]), log
    no_other_job()


def restarts_can_be_forbidden_per_job(folder):
    jobs_that_must_not_restart(folder, {
        "option": (["--no-requeue"], {}, "--no-requeue"),
        "variable": ([], {"env": {"LOCKSTEP_MAX_RESTARTS": "0"}}, "max_restarts=0|LOCKSTEP_MAX_RESTARTS=0")})


@soak
@on("strict")
def restarts_can_be_forbidden_by_a_site(folder):
    """Or by a script without --requeue where JobRequeue=0."""
    job = started(folder, "default")
    warned(job).end(status=0, restarts=1)  # the script's own --requeue
    script = prepared(folder, "plain", "--max-steps", 200)
    script.write_text(script.read_text().replace(" --requeue", ""))
    jobs_that_must_not_restart(folder, {"site": ([], {"machine": "max_restarts=0"}, "max_restarts=0")})
    plain = submit(script, run_dir=folder / "run-plain")
    log = warned(plain).end("FAILED", status=75, restarts=0)
    assert "JobRequeue=0" in said(plain).splitlines()[-1], log


def errors_of_configuration_are_not_restarted(folder):
    jobs = [started(folder, "pmi", machine="srun_options=(--mpi=pmx)"),
            started(folder, "option", machine="srun_options+=(--no-such-option)"),
            started(folder, "mpirun", env={"TEST_LAUNCHER": "mpirun"}, machine="mpirun_options+=(--no-such-option)")]
    for job in jobs:
        log = job.end("FAILED", restarts=0)
        assert not job.restarts() and "not submitted again" in said(job).splitlines()[-1], log
    no_other_job()


@soak
@on("strict")
def left_over_memory_variables_do_not_matter(folder):
    """srun refuses these together."""
    stale = {"SLURM_MEM_PER_CPU": "100", "SLURM_MEM_PER_NODE": "500", "SLURM_MEM_PER_GPU": "100"}
    jobs = [started(folder, f"memory-{len(options)}", *options, env=stale) for options in ([], ["--mem=600"], ["--mem-per-cpu=300", "-n1"])]
    for job in jobs:
        job.end(status=0, restarts=0)


@soak
def ranks_that_never_logged_are_restarted_once(folder):
    job = started(folder, "mute", program="exit 1", env={"TEST_STALLED_RESTARTS": "9"})
    log = job.end("FAILED", status=1, restarts=1)
    assert "log" in said(job).splitlines()[-1], log


def a_job_submitted_inside_another_is_its_own(folder):
    """sbatch passes SLURM_ARRAY_* on. A warned job requeues itself only, and trains the seed that was asked for."""
    script = prepared(folder, "inside", "--max-steps", 200, "--seed", 7)
    inner = f"sbatch --parsable --chdir={script.parent} --output={script.parent}/%j.out {script} >{folder}/part"
    array = other_job("--array=3-4", "--wrap",
                      f"[ $SLURM_ARRAY_TASK_ID = 3 ] || {{ {inner}; mv {folder}/part {folder}/number; }}; sleep 1000")
    until((folder / "number").exists, array.report)
    number = (folder / "number").read_text().strip()
    elements = [Job(f"{array.number}_{i}", "/dev/null") for i in (3, 4)]
    job = Job(number, script.parent / f"{number}.out", folder / "run-inside")
    log = warned(job).end(status=0, restarts=1)
    check_untouched(*elements)
    assert re.search(r"unset .*SLURM_ARRAY_TASK_ID=4\b", said(job)), log
    assert state(latest(job.run_dir))["seed"] == 7, log


def dependent(job):
    return other_job(f"--dependency=afterok:{job.number}", "--wrap", "true")


def a_dependent_job_starts_after_restarts(folder):
    job = started(folder, "first")
    waits = dependent(job)
    warned(job).end(status=0, restarts=1)
    waits.end(status=0)


@soak
@on("strict")
def a_dependent_job_starts_after_preemption_by_cancel(folder):
    job = disturbed(folder, "killed", None)
    waits = dependent(job)
    high = preempted(job)
    job.release()
    high.end()
    job.end(status=0, restarts=1)
    waits.end(status=0)


@soak
def a_job_that_cannot_be_requeued_says_so(folder):
    path = path_with(folder / "programs", scontrol=f"""\
[ "$1" != requeue ] || {{ echo disabled >&2; exit 1; }}
exec {shutil.which("scontrol")} "$@\"""")
    job = submit(prepared(folder, "first", "--max-steps", 200), path, run_dir=folder / "run-first")
    log = warned(job).end("FAILED", status=75, restarts=0)
    assert "cannot submit the job again (scontrol requeue does not work here); submit the same command again" in log, log
    submit(job.output.parent / "train.sbatch", run_dir=job.run_dir).end(status=0, restarts=0)


def a_warning_at_the_start_of_a_short_job_does_not_stop_it(folder):
    """With --time=5 or less, the warning 300 s before the end comes at once. A second one counts."""
    options = ["--time=3", "--signal=B:USR1@1"]  # Slurm's own warning would come at any time in half a minute
    job = started(folder, "short", *options)
    job.hold(60, 1)
    warn(job)
    until(lambda: "SIGUSR1: ignored" in said(job), job.report)
    job.release()
    again = started(folder, "again", *options)
    again.hold(60, 1)
    warn(again)
    until(lambda: "SIGUSR1: ignored" in said(again), again.report)
    warn(again)
    until(lambda: "SIGUSR1: asking" in said(again), again.report)
    again.release()
    job.end(status=0, restarts=0)
    assert "ignored" in said(job), job.log()
    again.end(status=0, restarts=1)


@soak
def any_short_limit_trains(folder):
    """With Slurm's own warnings, which come at most 30 s after the start."""
    jobs = [started(folder, f"minutes-{minutes}", f"--time={minutes}", program=f'sleep 40; exec {LOCKSTEP} "$@"') for minutes in (2, 3, 5)]
    for job in jobs:
        job.end(status=0, restarts=0)


@soak
def a_raised_limit_is_used(folder):
    """The run goes on after its first end."""
    script = prepared(folder, "raised", epochs=100000, save_every=1000000)
    job = submit(script, "--time=2", run_dir=folder / "run-raised")
    job.until_step(60, 1)
    end = time.mktime(time.strptime(job.facts()["EndTime"], "%Y-%m-%dT%H:%M:%S"))
    command("scontrol", "update", f"JobId={job.number}", "TimeLimit=60")
    until(lambda: time.time() > end + 5 or job.state() != "RUNNING", job.report, poll=1)
    check_untouched(job)
    assert "its limit was raised" in job.log(), job.log()


def signals_to_the_script(folder, names):
    other = bystander()
    jobs = [(name, disturbed(folder, name, None, resources=ONE, ranks=1)) for name in names]
    for name, job in jobs:
        command("scancel", "--batch", "-s", name, job.number)
        until(lambda: f"SIG{name}: asking" in said(job) or job.state() in FINAL, job.report)  # noqa: B023
        job.release()
    for _, job in jobs:
        job.end(status=0, restarts=1)
        assert job.restarts()[0].split()[1] == "75", job.report()
    check_untouched(other)
    check_same(folder, [job.run_dir for _, job in jobs], ONE)


def a_hangup_saves_and_requeues(folder):
    signals_to_the_script(folder, ["HUP"])


@soak
def each_signal_to_the_script_saves_and_requeues(folder):
    signals_to_the_script(folder, ["USR1", "USR2", "INT", "HUP", "TERM"])


if __name__ == "__main__":
    main([a_job_submitted_inside_another_is_its_own, a_dependent_job_starts_after_restarts, a_hangup_saves_and_requeues,
          restarts_can_be_forbidden_per_job, errors_of_configuration_are_not_restarted,
          a_warning_at_the_start_of_a_short_job_does_not_stop_it, a_job_preempted_by_cancel_goes_on, any_short_limit_trains,
          a_raised_limit_is_used, each_signal_to_the_script_saves_and_requeues, a_job_that_cannot_be_requeued_says_so,
          ranks_that_never_logged_are_restarted_once, a_dead_node_is_no_cancellation, a_job_preempted_with_grace_saves_first,
          a_job_that_slurm_requeues_is_not_called_cancelled, a_cancelled_job_stays_cancelled, the_time_limit_is_named,
          a_rank_over_the_memory_limit_is_named_and_restarted_twice, restarts_can_be_forbidden_by_a_site,
          left_over_memory_variables_do_not_matter, a_dependent_job_starts_after_preemption_by_cancel,
          a_user_signal_announces_a_preemption, a_suspended_job_continues])
