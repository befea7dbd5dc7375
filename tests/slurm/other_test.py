#!/usr/bin/env python3
"""Tests the job scripts for PBS, LSF and Flux with stand-ins for the commands of the schedulers and for the launchers of ranks.

A stand-in records its arguments and answers as documented for the real command. No real PBS, LSF or Flux takes part.
"""

import dataclasses
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = HERE.parent.parent / "slurm"
sys.path.insert(0, str(HERE.parent / "system"))

import harness  # noqa: E402
from harness import BAD_INPUT, INTERNAL, LOCKSTEP, MPIRUN, OK, STOPPED, USAGE  # noqa: E402

SECONDS = 60  # over ten times the longest job of these tests
DAY = 24 * 3600
RESERVE = 60  # limit_time's

# What every stand-in does first. %q keeps words apart.
RECORD = '{ printf "%s" "${0##*/}"; printf " %q" "$@"; echo; } >>"$TEST/calls"\n'

# Ranks: end with the status in the file `status`, after SIGUSR1 if there is a file `waits`. Rank 0 logs the end of a run.
RANKS = """
[ "$1" != --version ] || { echo "mpirun (Open MPI) 4.1.6"; exit; }
""" + RECORD + """
echo $$ >"$TEST/pid"
mkdir -p "$TEST/runs/resnet50/log"
if [ -e "$TEST/waits" ]; then
  trap 'exit 75' USR1
  touch "$TEST/started"
  for i in {1..600}; do sleep 0.1; done
  exit 70
fi
status=$(<"$TEST/status")
log="$TEST/runs/resnet50/log/rank-00000.log"
if [ "$status" = 0 ]; then echo "finished at step 7" >>"$log"; else echo "step 5" >>"$log"; fi
exit "$status"
"""

# How a job was submitted again: the environment of the new job, and the arguments of its script.
SUBMIT = RECORD + 'env | grep ^LOCKSTEP_ >"$TEST/environment"\n'


@dataclasses.dataclass
class Scheduler:
    name: str
    number: str  # of the job
    script: str
    launch: str  # what starts the ranks, up to the program
    again: str  # what submits the job again; a regular expression
    ended_by: str  # the signal that a cancelled job gets first
    programs: dict
    environment: dict
    takes_arguments: bool = False
    launcher: str = "mpirun"


OPEN_MPI = "mpirun -n 8 --map-by ppr:4:node:pe=8 --bind-to core"

PBS = Scheduler(
    name="pbs", number="7.server", script="train.pbs", launch=OPEN_MPI, ended_by="TERM",
    again=r"qsub -V -N resnet50 -q workq -l select=2:ncpus=32:mpiprocs=4:ompthreads=8 -l place=scatter -l walltime=24:00:00 "
          r"-A physics -W depend=afterany:7\.server \S*/train\.pbs",
    environment={"PBS_JOBID": "7.server", "PBS_JOBNAME": "resnet50", "PBS_O_QUEUE": "workq", "OMP_NUM_THREADS": "8",
                 "PBS_O_WORKDIR": "{test}", "PBS_NODEFILE": "{test}/nodes"},
    programs={"mpirun": RANKS, "qsub": SUBMIT + "echo 8.server", "qrerun": RECORD + "echo 'Unauthorized Request' >&2; exit 159",
              "qstat": '[ -e "$TEST/left" ] || exit 1\n'
                       "IFS=: read -r walltime used <\"$TEST/left\"\n"
                       "printf 'Job Id: 7.server|Job_Name = resnet50|job_state=R|Account_Name=physics|project=_pbs_project_default|'\n"
                       "printf 'Resource_List.ncpus=64|Resource_List.place=scatter|'\n"
                       "printf 'Resource_List.select=2:ncpus=32:mpiprocs=4:ompthreads=8|'\n"
                       '[ "$walltime" = none ] || printf "Resource_List.walltime=%02d:%02d:%02d|" '
                       "$((walltime / 3600)) $((walltime / 60 % 60)) $((walltime % 60))\n"
                       "stime=$(LC_ALL=C date -d \"-$used seconds\" '+%a %b %e %T %Y')\n"
                       "echo \"stime=$stime|Variable_List=PBS_O_HOME=/home/user\"\n"})

LSF = Scheduler(
    name="lsf", number="7", script="train.lsf", launch=OPEN_MPI, again=r"brequeue 7", ended_by="INT",
    environment={"LSB_JOBID": "7", "LSB_JOBINDEX": "0", "LSB_MCPU_HOSTS": "node1 32 node2 32", "LS_SUBCWD": "{test}",
                 "LSB_AFFINITY_HOSTFILE": "/nonexistent"},
    programs={"mpirun": RANKS, "brequeue": RECORD + 'echo "Job <7> is being requeued"', "bsub": RECORD + "exit 1",
              "bjobs": '[ -e "$TEST/left" ] || exit 255\n'
                       "IFS=: read -r limit used <\"$TEST/left\"\n"
                       '[ "$limit" != none ] || { echo -; exit; }\n'
                       "left=$((limit - used)); echo \"$((left / 3600)):$((left / 60 % 60)) L\"\n"})

JSM = dataclasses.replace(
    LSF, name="jsm", launcher="jsrun",
    launch="jsrun --nrs=2 --rs_per_host=1 --tasks_per_rs=4 -c ALL_CPUS -g ALL_GPUS --bind=packed:10",
    environment={**LSF.environment, "LSB_MCPU_HOSTS": "launch1 1 node1 42 node2 42"},
    programs={**LSF.programs, "jsrun": RANKS})

FLUX = Scheduler(
    name="flux", number="f7", script="train.flux", ended_by="HUP", takes_arguments=True, launcher="flux",
    launch="flux run --nodes=2 --tasks-per-node=4 --exclusive -o cpu-affinity=per-task",
    again=r"flux --parent batch --dependency=afterany:f7 --nodes=2 --nslots=8 --job-name=resnet50 --queue=batch --time-limit=86400\.0s "
          r"\S*/train\.flux",
    environment={"FLUX_ENCLOSING_ID": "f7", "FLUX_URI": "local:///nonexistent"},
    programs={"flux": 'case "$1 $2" in\n'
                      '"resource list") echo 2; exit ;;\n'
                      '"job timeleft") [ -e "$TEST/left" ] || exit 1\n'
                      'IFS=: read -r limit used <"$TEST/left"\n'
                      '[ "$limit" != none ] || { echo 4294967295; exit; }\n'
                      "echo $((limit - used)); exit ;;\n"
                      '"job killall") ' + RECORD + 'kill -USR1 "$(<"$TEST/pid")"; exit ;;\n'
                      '"--parent jobs") echo "resnet50|batch||86400.0"; exit ;;\n'
                      '"--parent batch") ' + SUBMIT + "echo f8; exit ;;\n"
                      "esac\n" + RANKS})

ALL = (PBS, LSF, JSM, FLUX)
WAYS_TO_SUBMIT = ("qsub", "qrerun", "bsub", "brequeue", "flux --parent batch")


class Job:
    """A job script in a folder with the stand-ins, as the scheduler would start it on the first node."""

    def __init__(self, folder, scheduler, status=STOPPED, left=(DAY, 0), **changes):
        """`left`: the time limit and how much of it is over, in seconds; None: the scheduler does not answer. `changes`: of its
        environment."""
        self.folder, self.scheduler = folder / f"{scheduler.name}-{time.monotonic_ns()}", scheduler
        (self.folder / "programs").mkdir(parents=True)
        for name, text in scheduler.programs.items():
            program = self.folder / "programs" / name
            program.write_text(f"#!/bin/bash\n{text}")
            program.chmod(0o755)
        (self.folder / "nodes").write_text("node1\n" * 4 + "node2\n" * 4)
        (self.folder / "status").write_text(f"{status}\n")
        if left is not None:
            (self.folder / "left").write_text(":".join(map(str, left)) + "\n")
        (self.folder / "machine.env").write_text(f"lockstep=({LOCKSTEP})\nscratch={self.folder}\n")
        self.script = self.folder / scheduler.script
        self.script.write_bytes((SCRIPTS / "other" / scheduler.script).read_bytes())
        self.environment = {
            "PATH": f"{self.folder}/programs:/usr/bin:/bin", "HOME": "/nonexistent", "TEST": str(self.folder),
            "LOCKSTEP_SLURM": str(SCRIPTS), "LOCKSTEP_MACHINE": f"{self.folder}/machine.env", "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            **{name: value.format(test=self.folder) for name, value in scheduler.environment.items()}, **changes}

    def start(self, *options):
        """Starts the script; `options` of lockstep train reach it in the scheduler's way."""
        environment = dict(self.environment)
        if options and not self.scheduler.takes_arguments:
            environment["LOCKSTEP_OPTIONS"] = " ".join(options)
            options = ()
        self.process = subprocess.Popen(["bash", self.script, *options], cwd=self.folder, env=environment, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return self

    def end(self):
        """Returns the script's status and output."""
        try:
            output, _ = self.process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"{self.script} hangs: {self.calls()}")
        return self.process.returncode, output

    def run(self, *options):
        return self.start(*options).end()

    def wait_for_ranks(self):
        """Waits until ranks that wait are running."""
        deadline = time.monotonic() + SECONDS
        while not (self.folder / "started").exists():
            assert time.monotonic() < deadline and self.process.poll() is None, self.end()
            time.sleep(0.02)

    def calls(self):
        """The recorded commands, one a line."""
        calls = self.folder / "calls"
        return calls.read_text().splitlines() if calls.exists() else []

    def launched(self):
        """The one command that started ranks: the launcher's words, and the words from `train` on."""
        found = [call for call in self.calls() if call.startswith(f"{self.scheduler.launcher} ") and f"{LOCKSTEP} train" in call]
        assert len(found) == 1, self.calls()
        launcher, program = found[0].split(f" {LOCKSTEP} ")
        return launcher, shlex.split(program)

    def submitted(self):
        return [call for call in self.calls() if call.startswith(WAYS_TO_SUBMIT)]

    def configuration(self):
        """What the program makes of the options with which the ranks were started."""
        text = subprocess.run([LOCKSTEP, *self.launched()[1], "--print-config"], capture_output=True, text=True, check=True,
                              timeout=SECONDS).stdout
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    def restarts(self):
        file = self.folder / "runs/resnet50/restarts"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def check_not_submitted(job, expect, why):
    status, output = job.end()
    assert status == expect and re.search(why, output), (job.scheduler.name, status, output)
    assert not job.submitted() and not job.restarts(), (job.scheduler.name, job.calls(), output)


def check_submitted(job, expect=STOPPED):
    status, output = job.end()
    assert status == expect, (job.scheduler.name, status, output)
    found = job.submitted()
    assert len(found) == 1 and re.fullmatch(job.scheduler.again + ".*", found[0]), (job.scheduler.name, found, output)
    return found[0]


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
        again = submitted.split(f"{scheduler.script} ")[1:]
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


def stopped_while_running(folder, scheduler, sent, left=(DAY, 0), pause=0.0):
    """Sends a signal to the script while the ranks run."""
    job = Job(folder, scheduler, left=left)
    (job.folder / "waits").touch()
    job.start()
    job.wait_for_ranks()
    time.sleep(pause)
    job.process.send_signal(getattr(signal, f"SIG{sent}"))
    return job


def a_warned_job_is_submitted_again(folder):
    for scheduler in ALL:
        for sent in ("USR1", *(("USR2",) if scheduler in (LSF, JSM) else ())):
            job = stopped_while_running(folder, scheduler, sent)
            check_submitted(job)
            assert [line[1] for line in job.restarts()] == ["75"], job.restarts()


def a_cancelled_job_is_not_submitted_again(folder):
    for scheduler in ALL:
        for sent in {scheduler.ended_by, "TERM"}:
            check_not_submitted(stopped_while_running(folder, scheduler, sent), STOPPED, f"not submitted again: .*SIG{sent}")


def a_job_ended_at_its_time_limit_is_submitted_again(folder):
    for scheduler in ALL:
        check_submitted(stopped_while_running(folder, scheduler, scheduler.ended_by, left=(DAY, DAY - 1), pause=1.2))


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
    lines[third] = ("training=(--synthetic --synthetic-samples 64 --model mlp --width 8 --image-size 8 --channels 1 --classes 4 "
                    f"--batch-size 4 --epochs 2 --threads 1 --progress plain --run-dir {run_dir})")
    job.script.write_text("\n".join(lines) + "\n")

    (job.folder / "left").write_text(f"{DAY}:{DAY - RESERVE - 3}\n")
    check_submitted(job.start())
    stopped = (run_dir / "restarts").read_text().split()
    (job.folder / "left").write_text(f"{DAY}:0\n")
    status, output = job.run()

    assert stopped[:2] == ["7.server", "75"] and 1 <= int(re.fullmatch(r"step-(\d+)\.h5", stopped[2])[1]) < 16, stopped
    assert status == OK and "finished at step 16" in output and "done" in output, (status, output)
    assert len(job.submitted()) == 1, job.calls()


def an_element_of_an_array_is_submitted_again_alone(folder):
    job = Job(folder, PBS, PBS_JOBID="7[3].server", PBS_ARRAY_INDEX="3")
    status, output = job.run()
    assert status == STOPPED and job.configuration()["seed"] == "3", (status, output)
    assert job.configuration()["run-dir"] == f"{job.folder}/runs/resnet50-seed-3", job.configuration()
    (found,) = job.submitted()
    when = re.search(r" -a (\d{12}\.\d\d) \S*/train\.pbs$", found)
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
                       env=job.environment, timeout=SECONDS)
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


def the_scheduler_is_the_innermost(folder):
    """Flux may be started within a job of another scheduler."""
    slurm, pbs, lsf, flux = {"SLURM_JOB_ID": "1"}, {"PBS_JOBID": "2"}, {"LSB_JOBID": "3"}, {"FLUX_ENCLOSING_ID": "f4"}
    for variables, expected in (({}, "slurm none"), (slurm, "slurm 1"), (pbs, "pbs 2"), (lsf, "lsf 3"), (flux, "flux f4"),
                                ({**pbs, **flux}, "flux f4"), ({**lsf, **flux}, "flux f4"), ({**slurm, **pbs, **lsf}, "slurm 1")):
        done = subprocess.run(["bash", "-c", f"source {SCRIPTS}/job.sh; echo $scheduler $job"], capture_output=True, text=True,
                              env={"PATH": "/usr/bin:/bin", **variables}, timeout=SECONDS)
        assert done.stdout.strip() == expected, (variables, done)


if __name__ == "__main__":
    harness.main([ranks_are_launched_as_requested, ranks_may_be_unevenly_spread, the_affinity_file_of_lsf_is_not_passed_on,
                  a_stopped_run_is_submitted_again_with_the_same_options, restarts_without_progress_are_limited,
                  a_lost_rank_is_submitted_again_and_a_crash_only_twice, a_finished_run_is_not_submitted_again,
                  success_without_a_finished_run_is_a_stop, bad_options_and_bad_input_are_not_submitted_again,
                  a_warned_job_is_submitted_again, a_cancelled_job_is_not_submitted_again,
                  a_job_ended_at_its_time_limit_is_submitted_again, ranks_stop_before_the_time_limit,
                  a_run_of_real_ranks_stops_in_time_and_resumes, an_element_of_an_array_is_submitted_again_alone,
                  without_a_way_to_submit_the_user_is_told, a_machine_may_set_the_launcher,
                  an_interactive_job_launches_the_ranks, the_number_of_ranks_is_required_where_it_is_unknown,
                  there_are_no_restarts_within_a_job, the_scheduler_is_the_innermost])
