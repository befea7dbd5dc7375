#!/usr/bin/env python3
"""Tests what the program itself asks Slurm, without the job scripts: a job's end, and its number of tasks."""

import shlex

from slurm_harness import *  # noqa: F403

TRAIN = shlex.join([LOCKSTEP, "train", "--synthetic", "--model", "mini-resnet", "--width", "8", "--image-size", "32", "--classes", "10",
                    "--batch-size", "8", "--threads", "1", "--progress", "plain"])


def script(folder, text):
    path = folder / "job.sh"
    path.write_text(f"#!/bin/bash\n{text}\n")
    return path


def a_job_of_several_tasks_is_told_that_one_rank_runs(folder):
    one = shlex.join([LOCKSTEP, "bench", "allreduce", "--steps", "1", "--warmup", "0"])
    log = submit(script(folder, f"{one}; echo; srun -n1 --mpi=pmix {one}"), "--ntasks=2").end()
    alone, by_srun = log.split("\n\n", 1)
    assert alone.count("MPI sees 1 rank where Slurm's count is 2 (SLURM_NTASKS") == 1, log
    # Who asks srun for fewer tasks means it.
    assert "warning" not in by_srun, log


def each_element_of_an_array_knows_its_own_end(folder):
    """Whatever the user's settings of squeue are, and the variables of the job that submitted it."""
    ends = {"SLURM_JOB_END_TIME": "1", "SQUEUE_STATES": "PENDING", "SQUEUE_FORMAT": "%i", "SLURM_TIME_FORMAT": "relative"}
    job = script(folder, f"srun --mpi=pmix {TRAIN} --max-steps 2 --run-dir {folder}/run$SLURM_ARRAY_TASK_ID")
    first = submit(job, "--array=1-2", "--time=30", "--ntasks=1", f"--output={folder}/%a.out", env=ends)
    for element in (1, 2):
        number = Job(f"{first.number}_{element}", folder / f"{element}.out")
        log = number.end()
        assert re.search(r"time: (29|30):\d\d left, until \S+ \S+ \(Slurm job \d+\)", log) and "warning" not in log, log


@soak
def a_limit_that_is_raised_while_the_job_runs_is_followed(folder):
    job = submit(script(folder, f"srun --mpi=pmix {TRAIN} --epochs 100000 --run-dir {folder}/run"), "--time=1", "--ntasks=2")
    until(lambda: "time: " in job.log(), job.report)
    command("scontrol", "update", f"JobId={job.number}", "TimeLimit=60")
    until(lambda: "its limit was raised" in job.log(), job.report)
    command("scancel", "--signal=USR1", f"{job.number}.0")
    job.end("FAILED", status=75)
    assert "stopped on request" in job.log(), job.log()


if __name__ == "__main__":
    main([a_job_of_several_tasks_is_told_that_one_rank_runs, each_element_of_an_array_knows_its_own_end,
          a_limit_that_is_raised_while_the_job_runs_is_followed])
