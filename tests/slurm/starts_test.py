#!/usr/bin/env python3
"""Tests how job scripts start: the line that says what runs, which files are used, and starts that cannot succeed."""

import pty

from site_test import Site, spy
from slurm_harness import *  # noqa: F403

LOGIN = {"LOCKSTEP_SLURM": ""}
JOB_SCRIPTS = ("train.sbatch", "eval.sbatch", "pack.sbatch", "scaling.sbatch")
STARTED = re.compile(r"lockstep (?P<version>[^ ]+) \((?P<program>.*?)\); job\.sh of (?P<place>.*?) \((?P<found>[^)]*)\); "
                     r"machine (?P<machine>.*?) \((?P<chosen>[^)]*)\); (?P<launcher>\w+); (?P<layout>\d+ nodes x \d+ ranks x \S+ cores); recipe (?P<recipe>\S+)")


def started(log):
    """The one line in which the script says what runs."""
    found = [match for match in map(STARTED.search, log.splitlines()) if match]
    assert len(found) == 1, log
    return found[0].groupdict()


def the_first_line_says_what_runs(folder):
    write_shards(folder / "data")
    recipe = folder / "fast.conf"
    recipe.write_text("lr = 0.05\n")
    version = re.match("lockstep ([^ \n]+)", command(LOCKSTEP, "--version"))[1]
    sites = {}
    for launcher, resources, layout in (("srun", "--nodes=2 --ntasks-per-node=1 --cpus-per-task=2 --time=60", "2 nodes x 1 ranks x 2 cores"),
                                        ("mpirun", "--nodes=1 --ntasks=2 --time=60", "1 nodes x 2 ranks x ")):
        site = sites[launcher] = Site(folder / launcher, "", launcher, resources)
        site.script.write_text(site.script.read_text().replace("training=(", f"training=(--config {recipe} "))
        site.submit()
        sites[launcher].layout = layout
    for launcher, site in sites.items():
        site.check_trained()
        line = started(site.job.log())
        assert line["version"] == version and line["program"] == str(spy(site.folder)), line
        assert line["place"] == str(site.scripts) and line["found"] == "beside the script", line
        assert line["machine"] == str(site.machine) and line["chosen"] == "line 2", line
        assert line["launcher"] == launcher and line["layout"].startswith(site.layout) and line["recipe"] == str(recipe), line


def the_files_that_are_used_are_chosen_by_one_rule(folder):
    """Runs job.sh as a job would, with stand-ins for Slurm; the site's directory is outside of what an installation replaces."""
    programs, site, prefix = folder / "programs", folder / "etc", folder / "prefix"
    answer = f"echo 'JobId=7 JobName=x UserId=u({os.getuid()}) JobState=RUNNING Reason=None'"
    for name, text in (("lockstep", "echo lockstep 1.0"), ("scontrol", answer), ("srun", "exit 0")):
        (programs / name).parent.mkdir(exist_ok=True)
        (programs / name).write_text(f"#!/bin/bash\n{text}\n")
        (programs / name).chmod(0o755)
    site.mkdir()
    (folder / "own.env").write_text("launcher=srun\n")
    (site / "big.env").write_text("launcher=srun\n")
    (site / "cpu.env").write_text("launcher=srun\n")

    def chosen(line, **variables):
        text = f"source {prefix}/slurm/job.sh; interactive=1; load_machine {line}; introduce train"
        done = subprocess.run(["bash", "-c", text, f"{folder}/slurm_script"], capture_output=True, text=True, timeout=60,
                              env={"PATH": f"{programs}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "LOCKSTEP_SITE": str(site), **variables})
        assert done.returncode == 0, done
        found = started(done.stdout)
        return found["machine"], found["chosen"]

    for _ in ("one version", "the next one"):
        shutil.rmtree(prefix, ignore_errors=True)
        shutil.copytree(SCRIPTS, prefix / "slurm")
        machines = prefix / "slurm" / "machines"
        (site / "default.env").unlink(missing_ok=True)
        assert chosen('""') == (f"{machines}/generic.env", "no other is named")
        (site / "default.env").write_text("launcher=srun\n")
        assert chosen('""') == (f"{site}/default.env", "the site's default")
        assert chosen('""', LOCKSTEP_MACHINE="big") == (f"{site}/big.env", "LOCKSTEP_MACHINE")
        assert chosen("gpu-node-8", LOCKSTEP_MACHINE="big") == (f"{machines}/gpu-node-8.env", "line 2")
        assert chosen("cpu") == (f"{site}/cpu.env", "line 2"), "the site's file of a name comes first"
        assert chosen(folder / "own.env") == (f"{folder}/own.env", "line 2")
        assert chosen('""', LOCKSTEP_MACHINE=f"{folder}/own.env") == (f"{folder}/own.env", "LOCKSTEP_MACHINE")
        assert chosen('""', LOCKSTEP_SITE="/nonexistent") == (f"{machines}/generic.env", "no other is named")


def the_scripts_beside_the_submitted_one_come_before_the_modules(folder):
    write_shards(folder / "data")
    module = folder / "module"
    shutil.copytree(SCRIPTS, module)
    beside, apart = Site(folder / "beside", ""), Site(folder / "apart", "")
    shutil.move(apart.script, apart.folder / "train.sbatch")
    apart.script = apart.folder / "train.sbatch"
    for site in (beside, apart):
        site.submit(env={"LOCKSTEP_SLURM": str(module)})
    for site, place, found in ((beside, beside.scripts, "beside the script"), (apart, module, "LOCKSTEP_SLURM")):
        site.check_trained()
        line = started(site.job.log())
        assert (line["place"], line["found"]) == (str(place), found), line
    # In neither place, from another directory.
    shutil.move(apart.job.output, apart.folder / "first")
    apart.submit()
    log = apart.job.end("FAILED", status=66, restarts=0)
    assert len(log.splitlines()) == 1 and "error: no job.sh" in log and "module load lockstep" in log, log


def refusal(output, *patterns):
    """Checks the one line that says why nothing was started."""
    lines = [line for line in output.splitlines() if line.strip() and not re.match("srun: |salloc: |tcsetattr: ", line)]
    assert len(lines) == 1 and "error: " in lines[0], output
    for pattern in patterns:
        assert re.search(pattern, lines[0]), f"no '{pattern}' in {lines[0]}"


@harness.more_in_soak
def a_wrong_start_is_refused_with_the_right_way(folder):
    """On a login node, in an allocation, as a step, and in what looks like a job that has ended or is somebody else's."""
    site = Site(folder / "site", "")
    for name in harness.few(JOB_SCRIPTS, 0):
        script = edited(site.scripts, name, "--nodes=1 --ntasks-per-node=1", "training=(--synthetic) evaluation=() packing=() batch=1 repetitions=1")
        site.machine.write_text(site.machine.read_text() + f"scratch={folder}\n")
        refusal(command("bash", script, env=LOGIN, expect=64), "no job", "sbatch")
        refusal(command("salloc", "-N1", "bash", script, env=LOGIN, expect=64), "sbatch", "interactive.sh")
        refusal(command("srun", "-n1", script, env=LOGIN, expect=64), "srun", "sbatch|leave out srun")
    # By a script of the user's, and from standard input, when Slurm knows no file.
    for words, status, patterns in ((["--wrap", f"bash {site.script}"], 64, ["not started by sbatch", "interactive.sh"]),
                                    ([], 66, ["no job.sh beside", "module load lockstep"])):
        output = site.folder / f"{status}.out"
        done = subprocess.run(["sbatch", "--parsable", f"--output={output}", "-n1", *words], env=environment(LOGIN), capture_output=True, text=True,
                              timeout=SECONDS, stdin=None if words else site.script.open())
        assert done.returncode == 0, done
        refusal(Job(done.stdout.strip(), output).end("FAILED", status=status, restarts=0), *patterns)
    interactive = site.scripts / "interactive.sh"
    arguments = ["--machine", site.machine, "train", "--synthetic"]
    refusal(command(interactive, *arguments, env=LOGIN, expect=64), "no job", "salloc")
    refusal(command("srun", "-n1", interactive, *arguments, env=LOGIN, expect=64), "srun")
    # As somebody does who got a shell by srun --pty.
    controller, terminal = pty.openpty()
    try:
        done = subprocess.run(["srun", "-n1", "--pty", interactive, *arguments], env=environment(LOGIN), stdin=terminal, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
    finally:
        os.close(controller)
        os.close(terminal)
    assert done.returncode == 64, done
    refusal(done.stdout.replace("\r", ""), "srun")
    script = site.folder / "sleep"
    script.write_text("#!/bin/sh\n")
    ended = submit(script, "--time=60")
    ended.end(status=0)
    for number in (ended.number, "4000000"):
        for one in ([site.script], [interactive, *arguments]):
            refusal(command("bash", *one, env={**LOGIN, "SLURM_JOB_ID": number}, expect=64), f"job {number}", "has ended", "unset SLURM_JOB_ID")
    program = folder / "programs" / "scontrol"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho \"$*\" >>{folder}/calls\necho 'JobId=7 JobName=x UserId=somebody(4711) JobState=RUNNING Reason=None Restarts=0'\n")
    program.chmod(0o755)
    path = f"{program.parent}:{environment()['PATH']}"
    refusal(command("bash", interactive, *arguments, env={**LOGIN, "SLURM_JOB_ID": "7", "PATH": path}, expect=64), "job 7", "somebody")
    assert not re.search("requeue|update|release|hold", (folder / "calls").read_text()), (folder / "calls").read_text()


def a_program_that_cannot_run_is_refused(folder):
    """One that is not in PATH, one whose MPI is not loaded, and one that is no program."""
    sites = {}
    loader = "lockstep: error while loading shared libraries: libmpi.so.40: cannot open shared object file: No such file or directory"
    for name, text, pattern in (("path", "lockstep=(lockstep-absent)", "cannot run 'lockstep-absent'.*load"),
                                ("library", "lockstep=(FOLDER/broken)", f"cannot run '.*broken'.*{loader}.*load the modules"),
                                ("file", "lockstep=(FOLDER/slurm/virtual.env)", "cannot run '.*virtual.env'.*Permission denied"),
                                ("wrapper", "lockstep=(apptainer-absent exec x.sif lockstep)", "cannot run 'apptainer-absent exec")):
        place = folder / name
        sites[name] = Site(place, text.replace("FOLDER", str(place))), pattern
        (place / "broken").write_text(f"#!/bin/sh\necho '{loader}' >&2\nexit 127\n")
        (place / "broken").chmod(0o755)
        sites[name][0].submit()
    for site, pattern in sites.values():
        site.check_refused(66, f"error: {pattern}")


def a_job_submitted_from_another_is_its_own(folder):
    """From an array's element with other resources: the new job trains the seed that was asked for, and is requeued itself."""
    write_shards(folder / "data")
    site = Site(folder / "site", "", resources="--nodes=2 --ntasks-per-node=1 --time=60")
    stopping_once(spy(site.folder), f'[ -z "$PMIX_RANK" ] || /usr/bin/env -0 >"{site.folder}/environment-$PMIX_RANK"')
    outer = site.folder / "outer"
    outer.write_text(f"#!/bin/bash\nsbatch --parsable --output={site.folder}/out --chdir={site.folder} {site.script} --seed 7 >{site.folder}/number\nsleep 600\n")
    element = submit(outer, "--array=5", "--ntasks=1", "--cpus-per-task=3", "--mem-per-cpu=100", "--requeue", env=LOGIN)
    number = until(lambda: (site.folder / "number").exists() and (site.folder / "number").read_text().strip(), element.report)
    job = Job(number, site.folder / "out", site.run_dir)
    log = job.end(status=0, restarts=1)
    found = state(latest(site.run_dir))
    assert (found["seed"], found["world_size"], found["step"]) == (7, 2, 2), found
    facts = element.facts()
    assert facts["JobState"] == "RUNNING" and facts["Restarts"] == "0", element.report()
    (unset,) = [line for line in log.splitlines() if "unset variables of another job" in line][:1]
    assert "SLURM_ARRAY_TASK_ID=5" in unset and f"SLURM_ARRAY_JOB_ID={element.number}" in unset and "SLURM_MEM_PER_CPU=100" in unset, log
    environ = (site.folder / "environment-0").read_text()
    assert "SLURM_ARRAY" not in environ and "SLURM_MEM_PER_CPU" not in environ, environ


def commands_of_slurm_are_called_for_this_job_alone(folder):
    """Whatever numbers of other jobs are in the environment, and whether Slurm requeues the job, refuses to, only says so, or does not answer."""
    calls, programs = folder / "calls", folder / "programs"
    programs.mkdir()
    for name, text in (("scontrol", 'case "$REQUEUE $1" in silent*) echo "Unable to contact slurm controller" >&2; exit 1 ;; no*requeue) exit 1 ;; esac\n'
                                    f'[ "$1" = requeue ] || echo "JobId=8 JobName=x UserId=u({os.getuid()}) JobState=RUNNING Reason=None Requeue=1 '
                                    f'Restarts=$([ "$REQUEUE" = yes ] && grep -c "requeue 8" {calls} || echo 0) NumNodes=1 NumTasks=1 TimeLimit=01:00:00"'),
                       ("sbatch", "echo 9"), ("scancel", ""), ("squeue", ""), ("sleep", ""), ("srun", "exit 75"),
                       ("lockstep", f'[ "$1" != restart ] || exec {LOCKSTEP} "$@"\necho lockstep 1.0')):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >>{calls}\n{text}\n')
        (programs / name).chmod(0o755)
    element = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "5", "SLURM_ARRAY_TASK_COUNT": "9", "LOCKSTEP_FIRST_JOB": "7"}
    text = f"source {SCRIPTS}/job.sh; load_machine generic; run_dir={folder}/run-$REQUEUE log_size=0; launch lockstep; echo \"element '$element'\"; finish $run_dir"
    for answer, last, status in (("yes", "requeued", 75), ("no", "cannot submit the job again", 75), ("lies", "cannot submit the job again", 75), ("silent", "", 70)):
        calls.write_text("")
        done = subprocess.run(["bash", "-c", text, f"{folder}/slurm_script"], capture_output=True, text=True, timeout=60,
                              env={"PATH": f"{programs}:/usr/bin:/bin", "SLURM_JOB_ID": "8", "SLURM_JOB_NAME": "x", "SLURM_JOB_NUM_NODES": "1",
                                   "SLURM_JOB_PARTITION": "main", "REQUEUE": answer, **element})
        called = calls.read_text()
        assert done.returncode == status, (answer, done, called)
        assert not re.search(r"\b7\b|\b7_5\b|sbatch|scancel", called), (answer, called)
        assert last in done.stdout and ("scontrol requeue 8" in called) == (answer != "silent"), (answer, called, done)
        if answer == "silent":
            assert "SLURM_ARRAY_TASK_ID=5" in done.stdout + done.stderr and "srun" not in called, done
        else:
            assert "element ''" in done.stdout and "unset variables of another job" in done.stdout, done


if __name__ == "__main__":
    main([the_first_line_says_what_runs, the_files_that_are_used_are_chosen_by_one_rule,
          the_scripts_beside_the_submitted_one_come_before_the_modules, a_wrong_start_is_refused_with_the_right_way,
          a_program_that_cannot_run_is_refused, a_job_submitted_from_another_is_its_own,
          commands_of_slurm_are_called_for_this_job_alone])
