"""What kernel-resources and kernel-stores share: NVIDIA's tools for machine code, and kernels' names as in the source."""

import glob
import os
import re
import shutil
import subprocess
import sys


def tool(name):
    places = [os.environ.get("PATH", ""), "/usr/local/cuda/bin", *(found for path in sys.path for found in glob.glob(f"{path}/nvidia/*/bin"))]
    found = shutil.which(name, path=":".join(places))
    if not found:
        print(f"skipped: {name} is not here (it reads the machine code of kernels); pip install nvidia-cuda-{name}, or install CUDA's package of it")
        sys.exit(77)
    return found


def demangled(names):
    text = subprocess.run(["c++filt"], check=True, input="\n".join(names), stdout=subprocess.PIPE, text=True).stdout
    text = re.sub(r"lockstep::(gpu::)?|\(anonymous namespace\)::", "", text)
    return [re.sub(r"^void run_(items|blocks)<(.*?) ?>\(.*", r"\2", name) for name in text.splitlines()]
