#!/usr/bin/env python3
"""machine.py: prints what the results of a run may depend on: the system and its limits, the environment, versions of the libraries that the
program finds, and all that nvidia-smi tells of the GPU."""

import ctypes
import importlib.metadata
import os
import pathlib
import platform
import re
import shutil
import subprocess

VARIABLES = "CUDA|CUDNN|NCCL|NVIDIA|LD_|LOCKSTEP|OMP|HDF5|PYTHON|TORCH"
PACKAGES = "torch|triton|nvidia|cuda|cudnn|nccl|numpy|h5py"
TOLD = 10  # seconds for a command


def told_by(*command):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TOLD)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{error}\n"
    return done.stdout


def loaded(name, function, by_pointer):
    """The library's version and file."""
    try:
        library, version = ctypes.CDLL(name), ctypes.c_int(0)
    except OSError as error:
        return f"{name}: {error}\n"
    told = getattr(library, function)(*([ctypes.byref(version)] if by_pointer else []))
    files = {line.split()[-1] for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if name in line}
    return f"{name}: {version.value if by_pointer else told}, {', '.join(sorted(files))}\n"


def lines(texts):
    return "".join(f"{text}\n" for text in sorted(texts))


def sections():
    yield "system", f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} processors\n"
    yield "memory", "".join(pathlib.Path("/proc/meminfo").read_text().splitlines(keepends=True)[:3])
    yield "disks", lines(f"{place}: {shutil.disk_usage(place).free >> 20} MiB free" for place in ("/tmp", "/dev/shm", os.getcwd())
                         if os.path.isdir(place))
    yield "limits", told_by("bash", "-c", "ulimit -a")
    yield "environment", lines(f"{name}={value}" for name, value in os.environ.items() if re.match(VARIABLES, name))
    packages = {f"{each.metadata['Name']} {each.version}" for each in importlib.metadata.distributions()}
    yield "Python's packages", lines(package for package in packages if re.match(PACKAGES, package))
    yield "libraries", loaded("libcudnn.so.9", "cudnnGetVersion", False) + loaded("libnccl.so.2", "ncclGetVersion", True)
    yield "processor", told_by("lscpu")
    yield "GPU", told_by("nvidia-smi", "-q")
    yield "topology", told_by("nvidia-smi", "topo", "-m")


if __name__ == "__main__":
    for title, text in sections():
        print(f"== {title}\n{text}", flush=True)
