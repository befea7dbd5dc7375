"""Common code of the install tests: installing this build, running commands, reporting results."""

import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from runner import main  # noqa: E402,F401

BUILD = pathlib.Path(os.environ["LOCKSTEP_BUILD"])
SOURCE = pathlib.Path(__file__).resolve().parents[2]
CMAKE = os.environ.get("LOCKSTEP_CMAKE", "cmake")
MPIRUN = os.environ.get("LOCKSTEP_MPIRUN", "mpirun").split()
SECONDS = 120  # over ten times the longest command of these tests; a hang is a failure
SKIPPED = 77


def run(command, expect=0, **options):
    """Returns the command's output, including standard error; raises AssertionError if its status is not `expect`."""
    options = {"stdin": subprocess.DEVNULL, "timeout": SECONDS, **options}
    command = [str(word) for word in command]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    assert result.returncode == expect, (
        f"status {result.returncode}, expected {expect}: {' '.join(command)}\n{result.stdout}")
    return result.stdout


def install(prefix, build=BUILD, component=None, environment=None):
    """`cmake --install` of the build to `prefix`."""
    part = ["--component", component] if component else []
    run([CMAKE, "--install", build, "--prefix", prefix, *part], env={**os.environ, **(environment or {})})
    return pathlib.Path(prefix)


def commands(program):
    """The subcommands that `lockstep --help` lists."""
    listed = run([program, "--help"]).split("usage:")[1]
    words = [line.split() for line in listed.splitlines() if line.startswith("  ")]
    return [line[0] for line in words if line and line[0] not in ("lockstep", "usage:")]


def cmake_options():
    """The names of all options and settings that the project's CMake files declare for its users."""
    found = set()
    for path in [SOURCE / "CMakeLists.txt", *SOURCE.glob("cmake/*.cmake")]:
        text = path.read_text()
        found |= set(re.findall(r"option\((LOCKSTEP_\w+)", text))
        found |= set(re.findall(r"set\((LOCKSTEP_\w+)[^()]*?CACHE", text))
    return found


def source_texts():
    """{name: text} of the checkout's own text files: neither builds nor measurements."""
    texts = {}
    for place, folders, files in os.walk(SOURCE):
        folders[:] = sorted(name for name in folders if name not in (".git", "build", "results", "__pycache__") and
                            not os.path.exists(f"{place}/{name}/CMakeCache.txt"))
        for path in (pathlib.Path(place, name) for name in sorted(files)):
            if path.is_file() and not path.is_symlink() and b"\0" not in (content := path.read_bytes())[:4096]:
                texts[str(path.relative_to(SOURCE))] = content.decode(errors="replace")
    return texts


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)
