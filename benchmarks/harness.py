"""Common code of the comparisons: PyTorch as a peer, alternating runs, CPU use of other processes, medians and spread, the JSON file."""

import argparse
import dataclasses
import datetime
import glob
import json
import os
import pathlib
import resource
import statistics
import subprocess
import time

CORES = len(os.sched_getaffinity(0))
WARMUP = 2  # steps that no program counts
DEFINITION = "samples by total time"  # images/s of a step, on both sides: of the measured steps, without the warm-up


@dataclasses.dataclass(frozen=True)
class Peer:
    """PyTorch of one Python interpreter: default, tuned (channels_last, threads set and bound; tcmalloc preloaded if it is installed), or compiled
    (tuned, and by torch.compile)."""

    python: str
    form: str

    @property
    def tuned(self):
        return self.form != "default"

    @property
    def threads(self):
        """Number of threads to set; 0: PyTorch's default. Counted here because a bound process sees only one core."""
        return CORES if self.tuned else 0

    def run(self, script, *args):
        env = dict(os.environ)
        if self.tuned:
            env.update(OMP_PROC_BIND="true", ATEN_CPU_CAPABILITY="avx512", OMP_NUM_THREADS=str(CORES))
            allocators = [path for path in sorted(glob.glob("/usr/lib/*/libtcmalloc*.so.4")) if "debug" not in path]
            if allocators:
                env["LD_PRELOAD"] = allocators[0]
        return measured([self.python, "-c", script, *map(str, args)], env)


def peers(pythons, compiled=False):
    """The forms of each Python's PyTorch; with `compiled`, also by torch.compile where there is one."""
    def forms(python):
        has_compile = compiled and subprocess.run([python, "-c", "import torch; torch.compile"], capture_output=True).returncode == 0
        return ("default", "tuned", "compiled") if has_compile else ("default", "tuned")
    return [Peer(python, form) for python in pythons for form in forms(python)]


def best(peers, key="images_per_second"):
    """The peer with the highest median."""
    return max(peers, key=lambda peer: peer[key]["median"])


def parity_folder():
    """The folder of the PyTorch versions of our models."""
    return str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "parity")


def busy_seconds():
    """Busy seconds of all cores, by any process, including time that the hypervisor stole."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def measured(command, env=None):
    """The last output line as JSON, with the time of day at which the command began, its seconds and the share of the machine's time that others
    used meanwhile."""
    began, begin, busy, before = time.time(), time.monotonic(), busy_seconds(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=env)
    seconds = time.monotonic() - begin
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))[:400]}\nended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    others = (busy_seconds() - busy - own) / seconds / os.cpu_count()
    last = (done.stdout.splitlines() or ["{}"])[-1]
    return {**(json.loads(last) if last.startswith("{") else {}), "began": began, "command_seconds": seconds, "others": max(0.0, others)}


def bench_step(program, launch=(), **options):
    """The command `lockstep bench step`, prefixed with `launch`; image_size=32 becomes --image-size 32."""
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    return [str(word) for word in (*launch, program, "bench", "step", *words, "--json")]


def in_turn(rounds, programs, alternate=False):
    """Each program's results by name. A round runs every program once; with `alternate`, every other round runs them in reverse order."""
    runs = {name: [] for name in programs}
    for turn in range(rounds):
        for name in reversed(programs) if alternate and turn % 2 == 1 else programs:
            runs[name].append(programs[name]())
    return runs


def arguments(description, rounds, cases=(), precisions=False):
    """The common options of the comparisons; the first element of a case is its model."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("output")
    parser.add_argument("--rounds", type=int, default=rounds)
    models = [case[0] for case in cases]
    if cases:
        parser.add_argument("--models", nargs="+", default=models, choices=models)
    if precisions:
        parser.add_argument("--precision", nargs="+", choices=("fp32", "bf16"), default=["fp32", "bf16"])
    return parser


def comparison(benchmark, options, **more):
    """A new result object, to be filled."""
    return {"benchmark": benchmark, "date": datetime.date.today().isoformat(), "rounds": options.rounds, **more}


def write(result, path):
    with open(path, "w") as file:
        json.dump(result, file, indent=1)
        file.write("\n")


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)} if values else None


def spread_of(runs, key):
    return spread([run[key] for run in runs])


def ratio(ours, theirs, key="images_per_second"):
    """Ratio of ours to theirs, within each round."""
    return spread([a[key] / b[key] for a, b in zip(ours, theirs)])


def others_in(columns):
    """The largest share of the machine that other processes used."""
    return max(run["others"] for runs in columns for run in runs)


def shown(ratio):
    return f"{ratio['median']:.2f} ({ratio['min']:.2f}-{ratio['max']:.2f})"


def note_of_others(share):
    """A warning for a row during which other processes used more than 5 % of the machine."""
    return f"   ({share:.0%} of the machine used by other processes)" if share > 0.05 else ""
