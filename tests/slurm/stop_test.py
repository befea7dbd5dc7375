#!/usr/bin/env python3
"""Tests jobs that are asked to stop, or stopped, on a real Slurm: they resume by themselves and end with the same bits as an
undisturbed run. Jobs that must not resume do not."""

import concurrent.futures
import functools

from slurm_harness import *  # noqa: F403


def warn(job):
    """Warns the job like --signal=B:USR1."""
    command("scancel", "--batch", "-s", "USR1", job.number)


def path_with(folder, **programs):
    """The option of sbatch that puts programs with these names and texts first in a job's PATH."""
    (folder / "programs").mkdir(parents=True)
    for name, text in programs.items():
        (folder / "programs" / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / "programs" / name).chmod(0o755)
    return f"--export=ALL,PATH={folder}/programs:{environment()['PATH']}"


def check_saved_when_asked(job):
    """The checkpoint is not the last periodic one: the ranks saved when they were asked to stop, and exited."""
    status, checkpoint = job.restarts()[0].split()[1:3]
    step = re.fullmatch(r"step-(\d+)\.h5", checkpoint)
    assert status == "75" and step and int(step[1]) > MIDDLE, job.report()
    assert re.search(rf"stopped (on request|before the time limit) at step {int(step[1])}\b", job.log()), job.report()


def a_warning_to_the_script(folder):
    jobs = [disturbed(folder, launcher, warn, launcher=launcher) for launcher in ("srun", "mpirun")]
    check_goes_on(folder, jobs)
    for job in jobs:
        assert "asking the ranks to save" in job.log() and "status 75 at checkpoint step-" in job.log(), job.log()
        check_saved_when_asked(job)


def a_warning_before_the_ranks_start(folder):
    """Warns a script while the machine's file loads modules, and all processes of a script while it resolves the run."""
    def job_that(name, machine):
        run_dir = folder / f"run-{name}"
        (folder / name).mkdir()
        script = edited(folder / name, "train.sbatch", f"--job-name={name} {LAYOUT}",
                        training(data_of(folder), run_dir, "--max-steps", 2))
        (folder / name / "waits").write_text(f'while [[ "$*" == *--print-config* && ! -e {folder}/go ]]; do sleep 0.1; done\n'
                                             f'exec {LOCKSTEP} "$@"\n')
        with open(folder / name / "virtual.env", "a") as file:
            file.write(f"touch {folder}/{name}/begun\n{machine}\n")
        job = submit(script, run_dir=run_dir)
        until((folder / name / "begun").exists, job.report)
        return job

    loading = job_that("loading", f"until [ -e {folder}/go ]; do sleep 0.1; done")
    resolving = job_that("resolving", f"lockstep=(bash {folder}/resolving/waits)")
    warn(loading)
    command("scancel", "--full", "-s", "TERM", resolving.number)
    for job in (loading, resolving):
        until(lambda: ": asking the ranks" in job.log(), job.report)  # noqa: B023
    (folder / "go").touch()
    for job in (loading, resolving):
        job.end(status=0, restarts=1)
        assert [line.split()[1:3] for line in job.restarts()] == [["75", "none"]], job.report()
        assert state(latest(job.run_dir))["step"] == 2, job.report()


def an_mpirun_that_returns_0_for_a_stopped_run(folder):
    """MPICH's mpirun returns 0 after a signal that it forwarded; Open MPI 5's also after a node died, which is no request to stop. A
    run that finishes may get such a signal, too."""
    def job_with(name, disturb=warn, on_signal=":", **options):
        path = path_with(folder / name, mpirun=f"""\
{shutil.which("mpirun")} "$@" &
ranks=$!
trap '{on_signal}' USR1
while wait $ranks; status=$?; [ $status -gt 128 ] && kill -0 $ranks; do :; done
exit 0""")
        return disturbed(folder, name, disturb, [path], launcher="mpirun", **options)

    stopped, finished = job_with("stopped", on_signal="kill -USR1 $ranks"), job_with("finished")
    died = job_with("died", lambda job: job.signal(signal.SIGKILL, rank=1), resources="--nodes=3 --ntasks-per-node=1 --time=60",
                    env={"LOCKSTEP_SPARE_NODES": "1"})
    stopped.end(status=0, restarts=1)
    check_saved_when_asked(stopped)
    assert "finished at step" in finished.end(status=0, restarts=0), finished.log()
    died.end(status=0, restarts=0)
    assert [(line.split()[1], line.split()[4]) for line in died.restarts()] == [("70", "in-job")], died.report()


@soak
def a_signal_to_the_ranks(folder):
    jobs = [disturbed(folder, sent, lambda job: command("scancel", "-s", sent, job.number)) for sent in ("USR1", "TERM", "INT")]
    # Slurm signals the processes that srun started, but mpirun itself starts the ranks on the script's node.
    alone = disturbed(folder, "alone", lambda job: command("scancel", "-s", "USR1", job.number), launcher="mpirun",
                      resources="--nodes=1 --ntasks-per-node=2 --time=60")
    check_goes_on(folder, jobs)
    for job in jobs:
        check_saved_when_asked(job)
    alone.end(status=0, restarts=0)


@soak
def an_operator_requeues(folder):
    jobs = [disturbed(folder, launcher, lambda job: command("scontrol", "requeue", job.number), launcher=launcher)
            for launcher in ("srun", "mpirun")]
    check_goes_on(folder, jobs)


@soak
def a_higher_partition_preempts(folder):
    """Without a grace time, Slurm kills and requeues the job; with one, it sends SIGTERM to the ranks and gives them 20 s."""
    jobs = [disturbed(folder, f"{partition}-{launcher}", None, [f"--partition={partition}"], launcher)
            for partition in ("main", "patient") for launcher in ("srun", "mpirun")]
    number = command("sbatch", "--parsable", "--output=/dev/null", "--partition=high", "--nodes=4", "--exclusive", "--wrap",
                     "sleep 1").strip()
    for job in jobs:
        job.release()
    Job(number, "/dev/null").end()
    # Slurm 24 keeps its own request to requeue a job that the script has requeued: it starts once more, with nothing to do.
    check_goes_on(folder, jobs, expect_restarts=(1, 2))
    for job in jobs[:2]:
        job.end(restarts=1)
    for job in jobs[2:]:
        assert job.facts()["Restarts"] == "1" or "nothing to do" in job.log(), job.log()
        status = (job.run_dir / "restarts").read_text().split()[1]
        assert status == "75" or status == "205" and "mpirun" in job.run_dir.name, job.log()


def time_limits(folder):
    """Slurm checks time limits every 30 s, and warns up to 30 s early: the first job is warned, the second is not."""
    CLUSTER.configure("KillWait", 20)
    # Slurm could warn a job of one minute before it is held.
    warned = disturbed(folder, "warned", None, ["--signal=B:USR1@30"])
    command("scontrol", "update", f"JobId={warned.number}", "TimeLimit=1")
    unwarned = disturbed(folder, "unwarned", None)
    command("scontrol", "update", f"JobId={unwarned.number}", "EndTime=now+1")
    until(lambda: "SIGUSR1: asking" in warned.log(), warned.report)
    assert warned.state() == "RUNNING", warned.report()
    warned.release()
    command("scontrol", "update", f"JobId={warned.number}", "TimeLimit=60", expect=None)
    unwarned.until_restarted(1)
    # A slow machine would need more than another minute.
    command("scontrol", "update", f"JobId={unwarned.number}", "TimeLimit=60", expect=None)
    assert "DUE TO TIME LIMIT" in unwarned.log(), unwarned.log()
    check_goes_on(folder, [warned, unwarned])
    for job in (warned, unwarned):
        check_saved_when_asked(job)
    # Not earlier: a daemon that re-reads its configuration may fail to launch a step.
    CLUSTER.configure("KillWait", KILL_WAIT)


@soak
def one_of_an_array_is_warned(folder):
    run_dir = folder / "run-array"
    place = folder / "job"
    place.mkdir()
    script = edited(place, "train.sbatch", "--job-name=array --nodes=2 --ntasks-per-node=1 --time=60", run_line(folder, run_dir))
    array = submit(script, "--array=1-2", f"--output={place}/%A_%a.out").number
    elements = [Job(f"{array}_{i}", place / f"{array}_{i}.out", folder / f"run-array-seed-{i}") for i in (1, 2)]
    # The last element's number is also that of the array, by which a requeue would include the first element.
    elements[1].hold(MIDDLE, 2)
    command("scancel", "--batch", "-s", "USR1", elements[1].number)
    elements[1].release()
    elements[1].end(status=0, restarts=1)
    elements[0].end(status=0, restarts=0)


@soak
def a_requeue_that_ends_the_script_is_not_a_failure(folder):
    """Slurm ends the job at once, including the command that requests the requeue, before that command prints anything. Earlier,
    the controller fails to answer two queries."""
    path = path_with(folder, scontrol=f"""\
if [ "$2" = show ] && {{ mkdir {folder}/one || mkdir {folder}/two; }}; then
  echo "slurm_load_jobs error: Socket timed out on send/recv operation"
  exit 1
fi
{shutil.which("scontrol")} "$@" && sleep 1""")
    job = disturbed(folder, "ended", warn, [path])
    log = job.end(status=0, restarts=1)
    assert (folder / "two").exists(), "the replaced scontrol was not called"
    assert "submitted again as job" not in log and "requeued" in log, log
    check_same(folder, [job.run_dir])


def a_job_that_its_user_cancels_stays_cancelled(folder):
    cancel = lambda job, *how: command("scancel", *how, job.number)  # noqa: E731
    for name, launcher, how in (("srun", "srun", ()), ("mpirun", "mpirun", ()), ("full", "srun", ("--full",))):
        job = disturbed(folder, name, functools.partial(lambda how, job: cancel(job, *how), how), launcher=launcher)
        until(lambda: job.facts()["EndTime"] != "Unknown" and not job.processes(), job.report)
        job.end("CANCELLED", restarts=0)
        # Unless Slurm ended the script before it could check.
        assert "status" not in job.log() or "not submitted again: it was cancelled" in job.log(), job.log()
        assert not (job.run_dir / "restarts").exists(), job.log()
    time.sleep(1)
    left = [line for line in command("squeue", "-h", "-o", "%i %T").splitlines() if "COMPLETING" not in line]
    assert not left, f"submitted again: {left}"


@soak
def of_two_jobs_in_one_run_directory_one_stops(folder):
    run_dir = folder / "run-shared"
    script = script_for(folder, run_dir, "--nodes=2 --ntasks-per-node=1 --time=60")
    first = submit(script, "--job-name=first", run_dir=run_dir)
    first.hold(MIDDLE, 2)
    second = submit(script, "--job-name=second", run_dir=run_dir)
    until(lambda: "held by" in second.log() or second.state() in FINAL, second.report)
    first.release()
    log = second.end("FAILED", status=73, restarts=0)
    assert f"held by Slurm job {first.number} on node1" in log and "not submitted again" in log, log
    first.end(status=0, restarts=0)
    # Jobs of one name wait for each other with --dependency=singleton.
    script = script_for(folder, folder / "run-single", "--nodes=1 --ntasks-per-node=1 --time=60")
    jobs = [submit(script, "--dependency=singleton") for _ in range(2)]
    until(lambda: jobs[1].facts().get("Reason") == "Dependency", jobs[1].report)
    jobs[0].end(status=0)
    assert "nothing to do" in jobs[1].end(status=0)


def jobs_of_a_sweep_run_concurrently(folder):
    """Jobs of one name, each with a separate run directory."""
    jobs = [submit(script_for(folder, run_dir, "--nodes=1 --ntasks-per-node=1 --time=60"), "--job-name=sweep", run_dir=run_dir)
            for run_dir in (folder / "run-one", folder / "run-other")]
    for job in jobs:
        job.hold(20, 1)
    assert [job.state() for job in jobs] == ["RUNNING", "RUNNING"], [job.report() for job in jobs]
    for job in jobs:
        job.release()
    for job in jobs:
        job.end(status=0, restarts=0)


def runs_that_cannot_resume_are_not_submitted_again(folder):
    write_shards(folder / "data", samples=64)
    for name, line, status in (("usage", "training=(--model mlp --lrr 1)", 64),
                               ("input", run_line(folder, folder / "run-input").replace("/data ", "/nowhere "), 66),
                               ("diverged", run_line(folder, folder / "run-diverged", "--optimizer", "adam")
                                .replace("--lr 0.05", "--lr 1e30"), 69)):
        place = folder / name
        place.mkdir()
        job = submit(edited(place, "train.sbatch", f"--job-name={name} --nodes=2 --ntasks-per-node=1 --time=60", line))
        log = job.end("FAILED", status=status, restarts=0)
        assert "not submitted again" in log or "cannot be trained with" in log, log


def restarts_are_limited_and_need_progress(folder):
    # A rank that dies at once each time, so that there is never a checkpoint. One that has not even begun its log is restarted once.
    for name, logs, restarts, reason in (("stalled", "log", 2, "still at checkpoint none after 2 restarts (stalled_restarts=1)"),
                                         ("silent", "none", 1, "again no rank has written to its log")):
        place, run_dir = folder / name, folder / f"run-{name}"
        place.mkdir()
        script = edited(place, "train.sbatch", f"--job-name={name} --nodes=2 --ntasks-per-node=1 --time=60", run_line(folder, run_dir))
        machine = place / "virtual.env"
        machine.write_text(machine.read_text() + "lockstep=(" + str(place / "dies") + ")\n")
        (place / "dies").write_text(f'#!/bin/bash\n[[ "$*" != *--print-config* && $1 != --version && $1 != restart ]] || exec {LOCKSTEP} "$@"\n'
                                    f"mkdir -p {run_dir}/{logs}\necho begun >>{run_dir}/{logs}/rank-00000.log\nkill -KILL $$\n")
        (place / "dies").chmod(0o755)
        # srun returns the status of the killed rank, or of those that it then ended, whichever it receives first.
        log = submit(script).end("FAILED", status=(137, 143), restarts=restarts)
        assert reason in log, log

    job = disturbed(folder, "capped", warn, env={"TEST_MAX_RESTARTS": "1"}, step=60)
    job.until_restarted(1)
    job.hold(150, RANKS)
    warn(job)
    job.release()
    log = job.end("FAILED", status=75, restarts=1)
    assert "after 1 restarts (max_restarts=1)" in log, log


def a_crash_is_retried_twice(folder):
    """However far the run gets in between. srun returns 1 for a rank that ran out of memory; Slurm's daemons or the job's details show the cause."""
    def job_that(name, dies, *options):
        script = script_for(folder, folder / f"run-{name}", "--nodes=1 --ntasks-per-node=1 --time=60")
        machine = script.parent / "virtual.env"
        machine.write_text(machine.read_text() + f"lockstep=({script.parent}/dies)\n")
        (script.parent / "dies").write_text(
            f'#!/bin/bash\n[[ "$*" != *--print-config* && $1 != --version && $1 != restart ]] || exec {LOCKSTEP} "$@"\n'
            f'{LOCKSTEP} "$@" --max-steps $((10 * SLURM_RESTART_COUNT + 10))\n{dies}\n')
        (script.parent / "dies").chmod(0o755)
        return submit(script, *options, run_dir=folder / f"run-{name}", env={"TEST_MAX_RESTARTS": "5"})

    little_memory = path_with(folder / "details", scontrol=f"""\
if [ "$1" = -d ]; then
  {shutil.which("scontrol")} "$@" | sed 's/ DerivedExitCode=[0-9]*:[0-9]* / DerivedExitCode=0:125 /'
else
  exec {shutil.which("scontrol")} "$@"
fi""")
    killed = "echo 'slurmstepd-node1: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM Killed.' >&2; exit 1"
    for job, status in ((job_that("segv", "ulimit -c 0; kill -SEGV $$"), 139), (job_that("memory", killed), 1)):
        log = job.end("FAILED", status=status, restarts=2)
        assert "again, after 2 restarts for that reason (crash_restarts=2)" in log, log
        assert [line.split()[2] for line in job.restarts()] == ["step-00000010.h5", "step-00000020.h5"], job.report()
    # Status 1 without that means that MPI could not start. Slurm's record keeps what it said of an earlier start.
    job_that("start", "exit 1", little_memory).end("FAILED", status=1, restarts=5)


if __name__ == "__main__":
    main([a_warning_to_the_script, a_warning_before_the_ranks_start, an_mpirun_that_returns_0_for_a_stopped_run,
          a_signal_to_the_ranks, an_operator_requeues, a_higher_partition_preempts, time_limits,
          one_of_an_array_is_warned, a_requeue_that_ends_the_script_is_not_a_failure,
          a_job_that_its_user_cancels_stays_cancelled, of_two_jobs_in_one_run_directory_one_stops,
          jobs_of_a_sweep_run_concurrently, runs_that_cannot_resume_are_not_submitted_again, restarts_are_limited_and_need_progress,
          a_crash_is_retried_twice])
