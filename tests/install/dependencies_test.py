#!/usr/bin/env python3
"""Tests install-dependencies on systems without dpkg: it lists missing packages by the system's names and exits with status 77."""

import os
import re
import shutil

from installed import SOURCE, main, run

SCRIPT = SOURCE / "scripts/install-dependencies"
TOOLS = ("bash", "env", "dirname", "grep", "id", "uname", "cat", "sed")


def debian_names(group):
    return re.search(rf"^{group}=\((.*?)\)", SCRIPT.read_text(), re.M | re.S)[1].split()


def system(folder, **programs):
    """An environment whose PATH contains only a few tools and the given scripts."""
    path = folder / "bin"
    path.mkdir(parents=True)
    for tool in TOOLS:
        (path / tool).symlink_to(shutil.which(tool))
    for name, text in programs.items():
        (path / name.replace("_", "-")).write_text(f"#!/bin/bash\n{text}\n")
        (path / name.replace("_", "-")).chmod(0o755)
    return {"PATH": str(path)}


def has(*packages):
    """A fake query of a package manager: succeeds if its last argument is one of `packages`."""
    return f"case ${{@: -1}} in {'|'.join(packages) or '-'}) echo \"${{@: -1}} 1.0\" ;; *) exit 1 ;; esac"


def every_debian_package_of_the_build_has_a_line(_):
    lines = [line.split() for line in (SOURCE / "scripts/packages.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(len(line) == 6 for line in lines), [line for line in lines if len(line) != 6]
    absent = set(debian_names("build") + debian_names("quick_start")) - {line[0] for line in lines}
    assert not absent, f"scripts/packages.txt lacks {absent}"


def each_system_gets_its_own_names(folder):
    managers = {"dnf": ({"dnf": "", "rpm": has("cmake", "gcc-c++")}, {}, "dnf install", ["openmpi-devel", "onednn-devel", "hdf5-devel"]),
                "zypper": ({"zypper": "", "rpm": has("cmake", "gcc-c++")}, {}, "zypper install", ["libjpeg8-devel", "onednn-devel"]),
                "brew": ({"brew": has("cmake", "gcc")}, {}, "brew install", ["open-mpi", "jpeg-turbo", "onednn"]),
                "conda": ({"conda": has("cmake", "cxx-compiler"), "dnf": "", "rpm": "exit 1"}, {"CONDA_PREFIX": "/opt/conda"},
                          "conda install -c conda-forge", ["openmpi-mpicxx", "libboost-devel", "onednn"])}
    for name, (programs, variables, install, expected) in managers.items():
        output = run([SCRIPT, "build"], expect=77, env={**system(folder / name, **programs), **variables})
        listed = re.search(rf"run: {re.escape(install)} (.*)", output)[1].split()
        assert set(expected) <= set(listed), (name, output)
        assert not {"cmake", "gcc-c++", "gcc", "cxx-compiler"} & set(listed), f"{name} lists installed packages: {output}"
        assert len(listed) == len(set(listed)) and not set(listed) & {"libopenmpi-dev", "libdnnl-dev"}, output
        # The same system with all packages installed.
        query = "rpm" if "rpm" in programs and name != "conda" else name
        complete = {**programs, query: has(*{word for line in (SOURCE / "scripts/packages.txt").read_text().splitlines()
                                           for word in line.split() if not line.startswith("#") and word != "-"})}
        assert run([SCRIPT, "build"], env={**system(folder / f"{name}-complete", **complete), **variables}) == "", name


def a_module_counts_as_a_package(folder):
    """A cluster with dnf, where MPI and fmt come from modules."""
    environment = system(folder, dnf="", rpm="exit 1", mpicxx="", mpirun="", pkg_config='[ "${@: -1}" = fmt ]')
    output = run([SCRIPT, "build"], expect=77, env=environment)
    listed = re.search(r"run: dnf install (.*)", output)[1].split()
    assert not {"openmpi", "openmpi-devel", "fmt-devel", "pkgconf-pkg-config"} & set(listed), output
    assert {"spdlog-devel", "hdf5-devel"} <= set(listed), output


def an_unknown_system_gets_debians_names(folder):
    output = run([SCRIPT, "build"], expect=77, env=system(folder))
    assert "by Debian's names" in output and "libopenmpi-dev" in output and "libdnnl-dev" in output, output
    # Packages that only tests need are listed only by Debian's names.
    output = run([SCRIPT, "tests"], expect=77, env=system(folder / "dnf", dnf="", rpm=has(".*")))
    assert "by Debian's names" in output and "valgrind" in output, output


if __name__ == "__main__":
    os.environ.pop("CONDA_PREFIX", None)
    main([every_debian_package_of_the_build_has_a_line, each_system_gets_its_own_names, a_module_counts_as_a_package,
          an_unknown_system_gets_debians_names])
