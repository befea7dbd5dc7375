"""Runs the program and compares status, output and the number of error lines."""

import os
import subprocess
import sys

MPIRUN = os.environ["LOCKSTEP_MPIRUN"].split()
failures = []


def run(program, args, ranks=None):
    launch = [] if ranks is None else [*MPIRUN, "-n", str(ranks)]
    result = subprocess.run([*launch, program, *map(str, args)], capture_output=True, text=True, timeout=120)
    return result.returncode, result.stdout, result.stderr


def check(program, args, status, ranks=None, errors=None, says=(), prints=()):
    """Checks the exact status, the number `errors` of error lines, and texts in standard error (`says`) and standard output (`prints`)."""
    found, out, err = run(program, args, ranks)
    lines = [line for line in err.splitlines() if line.startswith("lockstep: error: ")]
    expected = (0 if status in (0, 75) else 1) if errors is None else errors
    problems = []
    if found != status:
        problems.append(f"status {found}, expected {status}")
    if len(lines) != expected:
        problems.append(f"{len(lines)} error lines, expected {expected}")
    problems += [f"standard error lacks {text!r}" for text in says if text not in err]
    problems += [f"standard output lacks {text!r}" for text in prints if text not in out]
    name = f"{' '.join(map(str, args))} on {ranks or 'no launcher'}"
    print(("FAILED  " if problems else "ok      ") + name, flush=True)
    if problems:
        failures.append(name)
        print("  " + "\n  ".join(problems) + f"\n{out}{err}", flush=True)
    return out


def finish():
    sys.exit(1 if failures else 0)
