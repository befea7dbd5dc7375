#!/usr/bin/env python3
"""Tests that jobs of PBS, LSF and Flux are not taken for other jobs, and follow what the scheduler and the user said of them.

With stand-ins for the commands of the schedulers and for the launchers of ranks.
"""

import pty

from stand_ins import *  # noqa: F403

OTHERS = {"slurm": {"SLURM_JOB_ID": "1", "SLURM_ARRAY_TASK_ID": "5", "SLURM_NTASKS": "64", "SLURM_JOB_END_TIME": "9"},
          "pbs": {"PBS_JOBID": "2[6].server", "PBS_ARRAY_INDEX": "6", "PBS_O_WORKDIR": "/nonexistent"},
          "lsf": {"LSB_JOBID": "3", "LSB_JOBINDEX": "7", "LSB_MCPU_HOSTS": "other 4"},
          "flux": {"FLUX_ENCLOSING_ID": "f4", "FLUX_URI": "local:///other"}}
PREFIXES = {"slurm": "SLURM_", "pbs": "PBS_", "lsf": "LSB_", "flux": "FLUX_"}


def family(scheduler):
    return "lsf" if scheduler is JSM else scheduler.name


def variables_of_another_schedulers_job_are_unset(folder):
    """Which of the schedulers is the job's: the one whose process is nearest above the script."""
    for scheduler in ALL:
        strangers = {name: value for other, variables in OTHERS.items() if other != family(scheduler) for name, value in variables.items()}
        job = Job(folder, scheduler, **strangers)
        job.environment |= {"scheduler": "none", "foreign": "x", "in_shell": "x", "launched": "1"}
        status, output = job.run(above=("slurmstepd", *(one.daemon for one in ALL if one is not scheduler), scheduler.daemon, "bash (tmux: x)"))
        assert status == STOPPED and job.launched()[0] == scheduler.launch and len(job.submitted()) == 1, (scheduler.name, output)
        assert job.configuration()["run-dir"] == f"{job.folder}/runs/resnet50", output
        left = [name for name in job.variables_of_ranks() for other in OTHERS if other != family(scheduler) and name.startswith(PREFIXES[other])
                and name != "SLURM_EXPORT_ENV"]  # set for mpirun that starts its daemons by srun
        assert not left and "unset variables of another job, of: " in output, (scheduler.name, left, output)


def an_inherited_element_of_pbs_is_unset(folder):
    job = Job(folder, PBS, PBS_ARRAY_INDEX="3", PBS_ARRAY_ID="6[].server")
    status, output = job.run()
    assert status == STOPPED and job.configuration()["run-dir"] == f"{job.folder}/runs/resnet50", output
    assert "unset variables of another job: " in output and "PBS_ARRAY_INDEX=3" in output, output
    assert not any(name.startswith("PBS_ARRAY") for name in job.variables_of_ranks()) and "depend=afterany:7.server" in job.submitted()[0], output


def what_a_job_submits_inherits_no_identity(folder):
    for scheduler in ALL:
        job = Job(folder, scheduler, LOCKSTEP_FIRST_JOB="5")
        job.run()
        assert "LOCKSTEP_FIRST_JOB" not in job.variables_of_ranks() and [line[0] for line in job.restarts()] == ["5"], job.restarts()


def variables_of_the_machines_file_reach_the_ranks(folder):
    for scheduler in ALL:
        job = Job(folder, scheduler, LOCKSTEP_RANKS="64")
        (job.folder / "machine.env").open("a").write("export OF_THE_SITE='two words'\n")
        job.run()
        launcher = next(call for call in job.calls() if call.startswith(f"{scheduler.launcher} ") and " train " in call)
        assert job.variables_of_ranks()["OF_THE_SITE"] == "two words", job.calls()
        assert ("-x OF_THE_SITE " in launcher) == (scheduler.launcher == "mpirun"), launcher
        assert job.variables_of_ranks()["LOCKSTEP_RANKS"] == "8", job.variables_of_ranks()


def a_job_that_must_not_run_again_is_not_submitted_again(folder):
    for scheduler in ALL:
        check_not_submitted(Job(folder, scheduler, LOCKSTEP_MAX_RESTARTS="0").start(), STOPPED, r"\(max_restarts=0\); not submitted again")
    job = Job(folder, PBS)
    (job.folder / "attributes").write_text("Rerunable=False")
    check_not_submitted(job.start(), STOPPED, "not submitted again: it was submitted with -r n")


def flux_tells_why_it_ended_a_job(folder):
    for told, submitted, words in (("0|timeout|resource allocation expired", True, "status 75 .time limit"),
                                   ("0|cancel|stop it", False, "not submitted again: .*cancel: stop it"),
                                   ("3|note|only a note", False, "told to end before its time limit .SIGTERM")):
        job = stopped_while_running(folder, FLUX, "TERM", attributes=told)
        status, output = job.end()
        assert status == STOPPED and bool(job.submitted()) == submitted and re.search(words, output), (told, output)


def dependents_of_a_replaced_job_are_named(folder):
    job = Job(folder, PBS)
    (job.folder / "attributes").write_text("depend=beforeany:11.server@server,beforeok:9.server@server:10.server@server")
    status, output = job.run()
    assert status == STOPPED and len(job.submitted()) == 1, output
    for dependent in ("9.server", "10.server"):
        assert re.search(rf"job {dependent} waits for this one to succeed, .* qsub -W depend=afterok:8.server$", output, re.M), output
    assert "11.server" not in output, output


def a_script_that_no_scheduler_started_is_refused(folder):
    for scheduler in ALL:
        for launcher in ("orted", "hydra_pmi_proxy", "flux-shell"):
            job = Job(folder, scheduler).start(above=(scheduler.daemon, launcher))
            check_not_submitted(job, USAGE, "a launcher of ranks has started this script")
        # A rank may submit jobs, which inherit its variables.
        check_submitted(Job(folder, scheduler, OMPI_COMM_WORLD_RANK="1", PMIX_RANK="1", PMI_RANK="1").start(above=(scheduler.daemon,)))
    terminal = pty.openpty()[1]
    for scheduler, variables in ((PBS, {"PBS_ENVIRONMENT": "PBS_INTERACTIVE"}), (LSF, {"LSB_INTERACTIVE": "Y"})):
        check_not_submitted(Job(folder, scheduler, **variables).start(stdin=terminal), USAGE, "start interactive.sh in this shell")
    check_submitted(Job(folder, LSF, LSB_INTERACTIVE="Y").start(stdin=subprocess.DEVNULL))
    job = Job(folder, LSF)
    (job.folder / "attributes").write_text("EXIT")
    check_not_submitted(job.start(), USAGE, "LSB_JOBID. has ended")
    status, output = Job(folder, PBS, PBS_O_WORKDIR="/nonexistent").run()
    assert status == 66 and "cannot enter PBS_O_WORKDIR='/nonexistent'" in output, output
    # Without a job, the remedy is that of the scheduler whose commands are here.
    for scheduler, words in ((PBS, "start this in a job of PBS"), (LSF, "start this in a job of LSF"), (FLUX, "start this in a job of Flux")):
        job = Job(folder, scheduler)
        for name in scheduler.environment:
            del job.environment[name]
        job.environment["PATH"] = f"{job.folder}/programs:{tools_without_slurm(job.folder)}"
        (job.folder / "programs" / "flux").unlink(missing_ok=True)
        if scheduler is FLUX:
            (job.folder / "programs" / "flux").write_text("#!/bin/bash\nexit 1\n")
            (job.folder / "programs" / "flux").chmod(0o755)
        status, output = job.run()
        assert status == 66 and words in output, (scheduler.name, status, output)


def tools_without_slurm(folder):
    """A folder with the programs of /usr/bin but Slurm's."""
    tools = folder / "tools"
    tools.mkdir()
    for program in pathlib.Path("/usr/bin").iterdir():
        if program.name not in ("sbatch", "qsub", "bsub", "flux"):
            (tools / program.name).symlink_to(program)
    return tools


if __name__ == "__main__":
    harness.main([variables_of_another_schedulers_job_are_unset, an_inherited_element_of_pbs_is_unset, what_a_job_submits_inherits_no_identity,
                  variables_of_the_machines_file_reach_the_ranks, a_job_that_must_not_run_again_is_not_submitted_again,
                  flux_tells_why_it_ended_a_job, dependents_of_a_replaced_job_are_named, a_script_that_no_scheduler_started_is_refused])
