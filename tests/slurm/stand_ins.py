"""Stand-ins for the commands of PBS, LSF and Flux and for launchers of ranks, with which job scripts are tested.

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
from harness import BAD_INPUT, INTERNAL, LOCKSTEP, MPIRUN, OK, STOPPED, USAGE  # noqa: E402,F401

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
env -0 >"$TEST/ranks"
run=$(printf '%s\\n' "$@" | sed -n '/^--run-dir$/{n;p}' | tail -n 1)
run=${run:-"$TEST/none"}
mkdir -p "$run/log"
if [ -e "$TEST/waits" ]; then
  trap 'exit 75' USR1
  touch "$TEST/started"
  for i in {1..600}; do sleep 0.1; done
  exit 70
fi
status=$(<"$TEST/status")
log="$run/log/rank-00000.log"
if [ "$status" = 0 ]; then echo "finished at step 7" >>"$log"; else echo "step 5" >>"$log"; fi
exit "$status"
"""

# How a job was submitted again: the environment of the new job, and the arguments of its script.
SUBMIT = RECORD + 'env | grep ^LOCKSTEP_ >"$TEST/environment"\n'


@dataclasses.dataclass
class Scheduler:
    name: str
    number: str  # of the job
    launch: str  # what starts the ranks, up to the program
    again: str  # what submits the job again; a regular expression
    ended_by: str  # the signal that a cancelled job gets first
    programs: dict
    environment: dict
    daemon: str  # the scheduler's process above those of a job
    takes_arguments: bool = False
    launcher: str = "mpirun"


OPEN_MPI = "mpirun -n 8 --map-by ppr:4:node:pe=8 --bind-to core"

PBS = Scheduler(
    name="pbs", number="7.server", launch=OPEN_MPI, daemon="pbs_mom", ended_by="TERM",
    again=r"qsub -V -N resnet50 -q workq -l select=2:ncpus=32:mpiprocs=4:ompthreads=8 -l place=scatter -l walltime=24:00:00 "
          r"-A physics -W depend=afterany:7\.server \S*/train\.sh",
    environment={"PBS_ENVIRONMENT": "PBS_BATCH", "PBS_JOBID": "7.server", "PBS_JOBNAME": "resnet50", "PBS_O_QUEUE": "workq", "OMP_NUM_THREADS": "8",
                 "PBS_O_WORKDIR": "{test}", "PBS_NODEFILE": "{test}/nodes"},
    programs={"mpirun": RANKS, "qsub": SUBMIT + "echo 8.server", "qrerun": RECORD + "echo 'Unauthorized Request' >&2; exit 159",
              "qstat": '[ -e "$TEST/left" ] || exit 1\n'
                       '[ ! -e "$TEST/attributes" ] || printf "%s|" "$(<"$TEST/attributes")"\n'
                       "IFS=: read -r walltime used <\"$TEST/left\"\n"
                       "printf 'Job Id: 7.server|Job_Name = resnet50|job_state=R|Account_Name=physics|project=_pbs_project_default|'\n"
                       "printf 'Resource_List.ncpus=64|Resource_List.place=scatter|'\n"
                       "printf 'Resource_List.select=2:ncpus=32:mpiprocs=4:ompthreads=8|'\n"
                       '[ "$walltime" = none ] || printf "Resource_List.walltime=%02d:%02d:%02d|" '
                       "$((walltime / 3600)) $((walltime / 60 % 60)) $((walltime % 60))\n"
                       "stime=$(LC_ALL=C date -d \"-$used seconds\" '+%a %b %e %T %Y')\n"
                       "echo \"stime=$stime|Variable_List=PBS_O_HOME=/home/user\"\n"})

LSF = Scheduler(
    name="lsf", number="7", launch=OPEN_MPI, again=r"brequeue 7", daemon="res", ended_by="INT",
    environment={"LSB_JOBID": "7", "LSB_JOBINDEX": "0", "LSB_MCPU_HOSTS": "node1 32 node2 32", "LS_SUBCWD": "{test}",
                 "LSB_AFFINITY_HOSTFILE": "/nonexistent"},
    programs={"mpirun": RANKS, "brequeue": RECORD + 'echo "Job <7> is being requeued"', "bsub": RECORD + "exit 1",
              "bjobs": '[[ $* != *" stat "* ]] || { cat "$TEST/attributes" 2>/dev/null || echo RUN; exit; }\n'
                       '[ -e "$TEST/left" ] || exit 255\n'
                       "IFS=: read -r limit used <\"$TEST/left\"\n"
                       '[ "$limit" != none ] || { echo -; exit; }\n'
                       "left=$((limit - used)); echo \"$((left / 3600)):$((left / 60 % 60)) L\"\n"})

JSM = dataclasses.replace(
    LSF, name="jsm", launcher="jsrun",
    launch="jsrun --nrs=2 --rs_per_host=1 --tasks_per_rs=4 -c ALL_CPUS -g ALL_GPUS --bind=packed:10",
    environment={**LSF.environment, "LSB_MCPU_HOSTS": "launch1 1 node1 42 node2 42"},
    programs={**LSF.programs, "jsrun": RANKS})

FLUX = Scheduler(
    name="flux", number="f7", daemon="flux-broker-0", ended_by="HUP", takes_arguments=True, launcher="flux",
    launch="flux run --nodes=2 --tasks-per-node=4 --exclusive -o cpu-affinity=per-task",
    again=r"flux --parent batch --dependency=afterany:f7 --nodes=2 --nslots=8 --job-name=resnet50 --queue=batch --time-limit=86400\.0s "
          r"\S*/train\.sh",
    environment={"FLUX_ENCLOSING_ID": "f7", "FLUX_URI": "local:///nonexistent"},
    programs={"flux": 'case "$1 $2" in\n'
                      '"resource list") echo 2; exit ;;\n'
                      '"job timeleft") [ -e "$TEST/left" ] || exit 1\n'
                      'IFS=: read -r limit used <"$TEST/left"\n'
                      '[ "$limit" != none ] || { echo 4294967295; exit; }\n'
                      "echo $((limit - used)); exit ;;\n"
                      '"job killall") ' + RECORD + 'kill -USR1 "$(<"$TEST/pid")"; exit ;;\n'
                      '"--parent jobs") [[ $* != *exception* ]] || { cat "$TEST/attributes" 2>/dev/null || echo "||"; exit; }\n'
                      'echo "resnet50|batch||86400.0"; exit ;;\n'
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
        self.script = self.folder / "train.sh"
        self.script.write_bytes((SCRIPTS / "other" / "train.sh").read_bytes())
        self.environment = {
            "PATH": f"{self.folder}/programs:/usr/bin:/bin", "HOME": "/nonexistent", "TEST": str(self.folder),
            "LOCKSTEP_SLURM": str(SCRIPTS), "LOCKSTEP_MACHINE": f"{self.folder}/machine.env", "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            **{name: value.format(test=self.folder) for name, value in scheduler.environment.items()}, **changes}

    def start(self, *options, above=(), stdin=None):
        """Starts the script; `options` of lockstep train reach it in the scheduler's way. `above`: names of processes above it."""
        environment = dict(self.environment)
        if options and not self.scheduler.takes_arguments:
            environment["LOCKSTEP_OPTIONS"] = " ".join(options)
            options = ()
        command = ["bash", self.script, *options]
        for name in reversed(above):
            program = self.folder / "programs" / name
            if not program.exists():
                program.symlink_to("/bin/bash")
            command = [program, "-c", f"{shlex.join(map(str, command))}; exit $?"]
        self.process = subprocess.Popen(command, cwd=self.folder, env=environment, text=True, stdin=stdin,
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

    def run(self, *options, above=()):
        return self.start(*options, above=above).end()

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

    def variables_of_ranks(self):
        return dict(word.split("=", 1) for word in (self.folder / "ranks").read_text().split("\0") if "=" in word)

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


def stopped_while_running(folder, scheduler, sent, left=(DAY, 0), attributes=""):
    """Sends a signal to the script while the ranks run. `attributes`: what the scheduler then tells of the job."""
    job = Job(folder, scheduler, left=left)
    (job.folder / "waits").touch()
    job.start()
    job.wait_for_ranks()
    if attributes:
        (job.folder / "attributes").write_text(attributes)
    job.process.send_signal(getattr(signal, f"SIG{sent}"))
    return job
