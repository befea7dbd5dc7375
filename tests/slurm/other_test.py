#!/usr/bin/env python3
"""Tests the job scripts for PBS, LSF and Flux with stand-ins for the commands of the schedulers and for the launchers of ranks."""

from stand_ins import *  # noqa: F403


def ranks_are_launched_as_requested(folder):
    for scheduler in ALL:
        job = Job(folder, scheduler)
        job.run("--clip-grad-norm", "1")
        launcher, program = job.launched()
        assert launcher == scheduler.launch, (launcher, scheduler.launch)
        assert program[:2] == ["train", "--config"] and pathlib.Path(program[2]).exists() and "--clip-grad-norm 1" in " ".join(program), program
        assert job.configuration()["clip-grad-norm"] == "1", job.configuration()
    mpich = Job(folder, dataclasses.replace(PBS, programs={**PBS.programs, "mpirun": RANKS.replace("mpirun (Open MPI)", "HYDRA")}))
    mpich.run()
    assert mpich.launched()[0] == "mpirun -n 8 -ppn 4 -bind-to core:8", mpich.launched()


def ranks_may_be_unevenly_spread(folder):
    job = Job(folder, PBS)
    (job.folder / "nodes").write_text("node1\nnode1\nnode1\nnode2\nnode2\n")
    job.run()
    assert job.launched()[0] == "mpirun -n 5 --map-by ppr:3:node:pe=8 --bind-to core", job.launched()
    job = Job(folder, LSF, LSB_MCPU_HOSTS="node1 24 node2 32")
    job.run()
    assert job.launched()[0] == "mpirun -n 8 --map-by ppr:4:node:pe=6 --bind-to core", job.launched()


def the_affinity_file_of_lsf_is_not_passed_on(folder):
    for scheduler, expected in ((LSF, "unset"), (JSM, "/nonexistent")):
        job = Job(folder, scheduler)
        launcher = job.folder / "programs" / scheduler.launcher
        launcher.write_text(launcher.read_text().replace(RECORD, 'echo "${LSB_AFFINITY_HOSTFILE-unset}" >"$TEST/affinity"\n' + RECORD))
        job.run()
        assert (job.folder / "affinity").read_text().strip() == expected, scheduler.name


def a_stopped_run_is_submitted_again_with_the_same_options(folder):
    for scheduler in ALL:
        job = Job(folder, scheduler).start("--clip-grad-norm", "1")
        submitted = check_submitted(job)
        first = job.launched()
        assert [line[:3] for line in job.restarts()] == [[scheduler.number, "75", "none"]], job.restarts()
        # The scheduler starts the job again. It counts as a restart of the same submission.
        (job.folder / "calls").unlink()
        saved = job.folder / "environment"
        variables = dict(line.split("=", 1) for line in saved.read_text().splitlines()) if saved.exists() else {}
        again = submitted.split("train.sh ")[1:]
        if not scheduler.takes_arguments and "LOCKSTEP_OPTIONS" not in variables:
            variables["LOCKSTEP_OPTIONS"] = "--clip-grad-norm 1"  # LSF keeps the environment of a requeued job
        job.environment |= variables
        for name in {"PBS_JOBID", "FLUX_ENCLOSING_ID"} & job.environment.keys():
            job.environment[name] = job.environment[name].replace("7", "8")
        job.start(*(again[0].split() if again else ()))
        job.end()
        assert job.launched() == first, (job.launched(), first)
        assert len({line[0] for line in job.restarts()}) == 1 and len(job.restarts()) == 2, job.restarts()


def restarts_without_progress_are_limited(folder):
    for scheduler in ALL:
        job = Job(folder, scheduler)
        for attempt in range(3):
            (job.folder / "calls").unlink(missing_ok=True)
            status, output = job.run()
            assert status == STOPPED and len(job.submitted()) == (1 if attempt < 2 else 0), (scheduler.name, attempt, output)
        assert "still at checkpoint none after 2 restarts" in output, output


def a_lost_rank_is_submitted_again_and_a_crash_only_twice(folder):
    for scheduler in ALL:
        for status, expected in ((INTERNAL, 1), (137, 1), (139, 1)):
            job = Job(folder, scheduler, status=status).start()
            check_submitted(job, expect=status)
            assert len(job.restarts()) == expected and ("crash" in job.restarts()[0]) == (status == 139), job.restarts()
        job = Job(folder, scheduler, status=139)
        (job.folder / "machine.env").open("a").write("crash_restarts=0\n")
        job.run()
        assert not job.submitted(), job.calls()


def a_finished_run_is_not_submitted_again(folder):
    for scheduler in ALL:
        check_not_submitted(Job(folder, scheduler, status=OK).start(), OK, "done")


def success_without_a_finished_run_is_a_stop(folder):
    for scheduler in ALL:
        job = Job(folder, scheduler, status=OK)
        launcher = job.folder / "programs" / scheduler.launcher
        launcher.write_text(launcher.read_text().replace("finished at step 7", "stopped on request at step 7"))
        check_submitted(job.start())


def bad_options_and_bad_input_are_not_submitted_again(folder):
    for scheduler in ALL:
        check_not_submitted(Job(folder, scheduler).start("--no-such-option"), USAGE, "cannot be trained with")
        for status in (USAGE, BAD_INPUT):
            check_not_submitted(Job(folder, scheduler, status=status).start(), status, f"cannot resume after status {status}")


def each_signal_lets_the_ranks_save_and_stop(folder):
    """USR1 and USR2 ask for another job, INT, HUP and TERM cancel this one, unless its time is over."""
    jobs = [(scheduler, sent, left, stopped_while_running(folder, scheduler, sent, left)) for scheduler in ALL
            for sent, left in (*((sent, (DAY, 0)) for sent in ("USR1", "USR2", "INT", "HUP", "TERM")), (scheduler.ended_by, (DAY, DAY - 1)))]
    for scheduler, sent, left, job in jobs:
        if sent.startswith("USR") or left[1]:
            check_submitted(job)
            assert [line[1] for line in job.restarts()] == ["75"], job.restarts()
        else:
            check_not_submitted(job, STOPPED, f"not submitted again: .*SIG{sent}")


def ranks_stop_before_the_time_limit(folder):
    for scheduler in ALL:
        minute = 60 if scheduler in (LSF, JSM) else 1  # bjobs tells no seconds
        for left, options, expected in (
                ((DAY, 0), (), DAY - RESERVE), ((DAY, 3600), (), DAY - 3600 - RESERVE), ((DAY, DAY - 30), (), 1),
                ((DAY, 0), ("--time-limit", "10min"), 600), ((DAY, 0), ("--time-limit=48h",), DAY - RESERVE),
                (("none", 0), (), 0), (("none", 0), ("--time-limit", "10min"), 600)):
            job = Job(folder, scheduler, left=left)
            _, output = job.run(*options)
            limit = int(re.fullmatch(r"(\d+)s?", job.configuration()["time-limit"])[1])
            assert expected - 5 - minute <= limit <= expected or limit == expected == 1, (scheduler.name, left, options, limit, output)
            assert "does not tell" not in output, output
        silent = Job(folder, scheduler, left=None)
        _, output = silent.run()
        assert "does not tell how long this job may run" in output and silent.configuration()["time-limit"] == "0", output


def a_run_of_real_ranks_stops_in_time_and_resumes(folder):
    """The program, with mpirun and the time left of a stand-in for PBS."""
    job = Job(folder, dataclasses.replace(PBS, programs={**PBS.programs, "mpirun": f'exec {shlex.join(MPIRUN)} "$@"'}))
    (job.folder / "nodes").write_text("node1\nnode1\n")
    (job.folder / "machine.env").open("a").write("mpirun_options=()\nexport OMP_WAIT_POLICY=passive\n")
    lines = job.script.read_text().splitlines()
    (third,) = (i for i, line in enumerate(lines) if line.startswith("training=("))
    run_dir = job.folder / "run"
    lines[third] = ("training=(--synthetic --synthetic-samples 64000 --model mlp --width 8 --image-size 8 --channels 1 --classes 4 "
                    f"--batch-size 4 --epochs 1000 --threads 1 --progress plain --run-dir {run_dir})")
    job.script.write_text("\n".join(lines) + "\n")

    (job.folder / "left").write_text(f"{DAY}:{DAY - RESERVE - 15}\n")
    check_submitted(job.start())
    stopped = (run_dir / "restarts").read_text().split()
    (job.folder / "left").write_text(f"{DAY}:0\n")
    last = int(re.fullmatch(r"step-(\d+)\.h5", stopped[2])[1]) + 8
    status, output = job.run("--override", "--max-steps", str(last))

    assert stopped[:2] == ["7.server", "75"] and last > 8, stopped
    assert status == OK and f"finished at step {last}" in output and "done" in output, (status, output)
    assert len(job.submitted()) == 1, job.calls()


def an_element_of_an_array_is_submitted_again_alone(folder):
    job = Job(folder, PBS, PBS_JOBID="7[3].server", PBS_ARRAY_INDEX="3")
    status, output = job.run()
    assert status == STOPPED and job.configuration()["seed"] == "3", (status, output)
    assert job.configuration()["run-dir"] == f"{job.folder}/runs/resnet50-seed-3", job.configuration()
    (found,) = job.submitted()
    when = re.search(r" -a (\d{12}\.\d\d) \S*/train\.sh$", found)
    assert when and "depend=" not in found and "-J" not in found.split(), found
    wait = time.mktime(time.strptime(when[1], "%Y%m%d%H%M.%S")) - time.time()
    assert 60 < wait <= 120, wait
    # The new job is none of an array.
    del job.environment["PBS_ARRAY_INDEX"]
    job.environment |= {"PBS_JOBID": "8.server", **dict(line.split("=", 1) for line in (job.folder / "environment").read_text().split())}
    (job.folder / "calls").unlink()
    job.run()
    assert job.configuration()["seed"] == "3" and "-W depend=afterany:8.server" in job.submitted()[0], job.calls()

    job = Job(folder, LSF, LSB_JOBINDEX="3")
    job.run()
    assert job.configuration()["seed"] == "3" and job.submitted() == [r"brequeue 7\[3\]"], job.calls()


def without_a_way_to_submit_the_user_is_told(folder):
    for scheduler, program in ((PBS, "qsub"), (LSF, "brequeue"), (FLUX, "flux")):
        job = Job(folder, scheduler)
        broken = job.folder / "programs" / program
        broken.write_text("#!/bin/bash\nexit 1\n" if program != "flux" else broken.read_text().replace("echo f8; exit", "exit 1"))
        status, output = job.run()
        assert status == STOPPED and "submit the same command again" in output, (status, output)


def a_machine_may_set_the_launcher(folder):
    for line, expected in (("launcher=mpirun mpirun_options=(--hostfile x)", "mpirun -n 8 --hostfile x"),
                           ("flux_options=(-o pmi=pmix)", "flux run --nodes=2 --tasks-per-node=4 --exclusive -o pmi=pmix")):
        job = Job(folder, dataclasses.replace(FLUX, launcher=expected.split()[0], programs={**FLUX.programs, "mpirun": RANKS}))
        (job.folder / "machine.env").open("a").write(f"{line}\n")
        job.run()
        assert job.launched()[0] == expected, job.launched()
    job = Job(folder, LSF)
    (job.folder / "machine.env").open("a").write("launcher=aprun\n")
    status, output = job.run()
    assert status == USAGE and "launcher=aprun" in output, (status, output)


def an_interactive_job_launches_the_ranks(folder):
    for scheduler in ALL:
        job = Job(folder, scheduler, status=OK, ranks_a_node="4")
        subprocess.run([SCRIPTS / "interactive.sh", "--machine", job.folder / "machine.env", "train", "--model", "mlp"], check=True,
                       env=job.environment, timeout=SECONDS, capture_output=True)
        assert job.launched() == (scheduler.launch, ["train", "--model", "mlp"]), job.calls()


def the_number_of_ranks_is_required_where_it_is_unknown(folder):
    for scheduler in (LSF, FLUX):
        job = Job(folder, scheduler)
        job.script.write_text(job.script.read_text().replace("ranks_a_node=4\n", ""))
        status, output = job.run()
        assert status == USAGE and "ranks_a_node='' " in output and not job.calls(), (status, output)


def there_are_no_restarts_within_a_job(folder):
    for scheduler in ALL:
        check_not_submitted(Job(folder, scheduler, LOCKSTEP_SPARE_NODES="1").start(), USAGE, "has no restarts within a job")


def without_processes_of_schedulers_their_variables_decide(folder):
    slurm, pbs, lsf, flux = {"SLURM_JOB_ID": "1"}, {"PBS_JOBID": "2", "PBS_O_WORKDIR": "/"}, {"LSB_JOBID": "3"}, {"FLUX_ENCLOSING_ID": "f4"}
    (folder / "scontrol").write_text("#!/bin/bash\necho 'slurm_load_jobs error: Invalid job id specified'; exit 1\n")
    (folder / "scontrol").chmod(0o755)
    for variables, expected in (({}, "slurm none"), (slurm, "slurm 1"), (pbs, "pbs 2"), (lsf, "lsf 3"), (flux, "flux f4"),
                                ({**pbs, **flux}, "flux f4"), ({**lsf, **flux}, "flux f4"), ({**slurm, **pbs, **lsf}, "slurm 1")):
        done = subprocess.run(["bash", "-c", f"source {SCRIPTS}/job.sh; echo = $scheduler $job"], capture_output=True, text=True,
                              env={"PATH": f"{folder}:/usr/bin:/bin", **variables}, timeout=SECONDS)
        assert f"= {expected}\n" in done.stdout, (variables, done)


if __name__ == "__main__":
    harness.main([ranks_are_launched_as_requested, ranks_may_be_unevenly_spread, the_affinity_file_of_lsf_is_not_passed_on,
                  a_stopped_run_is_submitted_again_with_the_same_options, restarts_without_progress_are_limited,
                  a_lost_rank_is_submitted_again_and_a_crash_only_twice, a_finished_run_is_not_submitted_again,
                  success_without_a_finished_run_is_a_stop, bad_options_and_bad_input_are_not_submitted_again,
                  each_signal_lets_the_ranks_save_and_stop, ranks_stop_before_the_time_limit,
                  a_run_of_real_ranks_stops_in_time_and_resumes, an_element_of_an_array_is_submitted_again_alone,
                  without_a_way_to_submit_the_user_is_told, a_machine_may_set_the_launcher,
                  an_interactive_job_launches_the_ranks, the_number_of_ranks_is_required_where_it_is_unknown,
                  there_are_no_restarts_within_a_job, without_processes_of_schedulers_their_variables_decide])
