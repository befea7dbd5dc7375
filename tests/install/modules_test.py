#!/usr/bin/env python3
"""modules_test.py lmod|environment-modules: tests the modulefile with the real module system: load, unload, conflict, swap, dependencies."""

import atexit
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import installed
from installed import BUILD, CMAKE, SOURCE, install, run, skip

KIND = sys.argv.pop(1)
NEWER = "9.9.9"

# The beginning of every scenario; `facts NAME` prints the environment for Site.shell to parse.
PRELUDE = """
facts() { echo "@facts $1"; /usr/bin/python3 -c 'import json, os; print(json.dumps(dict(os.environ)))'
  complete -p lockstep 2>/dev/null || echo none; command -v lockstep || echo none; }
"""


def lmod():
    for place in (os.environ.get("LMOD_PKG", "/nonexistent"), "/usr/share/lmod/lmod"):
        if pathlib.Path(place, "init/bash").exists():
            return f"source {place}/init/bash"
    skip("Lmod is not here (install lmod)")


def environment_modules():
    """The installed package, or else an unpacked one, because Debian's package conflicts with Lmod's."""
    for place in (os.environ.get("MODULESHOME", "/nonexistent"), "/usr/share/modules"):
        if pathlib.Path(place, "init/bash").exists() and not pathlib.Path(place, "libexec/lmod").exists():
            return f"source {place}/init/bash"
    if not shutil.which("tclsh"):
        skip("environment-modules is not here, and there is no Tcl to run it by (install tcl)")
    unpacked = BUILD / "environment-modules"
    command = unpacked / "usr/lib/modulecmd.tcl"
    if not command.exists():
        unpacked.mkdir(exist_ok=True)
        fetch = ["apt-get", "download", "-qq", "environment-modules"]
        try:
            fetched = subprocess.run(fetch, cwd=unpacked, capture_output=True, text=True, timeout=120)
            if fetched.returncode != 0 and os.geteuid() == 0:
                subprocess.run(["apt-get", "update", "-qq"], capture_output=True, timeout=120)
                fetched = subprocess.run(fetch, cwd=unpacked, capture_output=True, text=True, timeout=120)
        except (FileNotFoundError, subprocess.TimeoutExpired) as failure:
            skip(f"environment-modules is not here and cannot be fetched ({failure})")
        packages = list(unpacked.glob("*.deb"))
        if not packages:
            skip(f"environment-modules is not here and cannot be fetched ({fetched.stderr.strip()[-200:]})")
        run(["dpkg", "-x", packages[0], unpacked])
    return f"""module() {{ eval "$(tclsh '{command}' bash "$@")"; }}"""


START = {"lmod": lmod, "environment-modules": environment_modules}[KIND]()
FOLDER = {"lmod": "lmod", "environment-modules": "tcl"}[KIND]
SUFFIX = {"lmod": ".lua", "environment-modules": ""}[KIND]


def write_module(directory, name, variable):
    path = directory / (name + SUFFIX)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'setenv("{variable}", "yes")\n' if KIND == "lmod" else f"#%Module1.0\nsetenv {variable} yes\n")


def modulefiles(tree):
    return tree / "share/lockstep/modulefiles" / FOLDER


class Site:
    """Two versions of lockstep that need openmpi and conflict with horovod, each in a tree that was moved after installation."""

    def __init__(self, folder):
        configured = folder / "configured"
        run([CMAKE, "-G", "Ninja", "-S", SOURCE, "-B", configured, "-DLOCKSTEP_BUILD_TESTS=OFF", "-DLOCKSTEP_CUDA=OFF",
             "-DLOCKSTEP_MODULE_DEPENDS=openmpi/4.1;hdf5", "-DLOCKSTEP_MODULE_CONFLICTS=horovod"])
        first = folder / "installed"
        install(first)
        # CMake does not replace a file whose time stamp is in the same second.
        shutil.rmtree(first / "share/lockstep/modulefiles")
        install(first, build=configured, component="modulefiles")
        self.version = run([first / "bin/lockstep", "--version"]).split()[1]
        self.trees = {}
        for version in (self.version, NEWER):
            tree = folder / f"moved {version}"
            shutil.copytree(first, tree)
            name = modulefiles(tree) / "lockstep"
            (name / (self.version + SUFFIX)).rename(name / (version + SUFFIX))
            self.trees[version] = tree
        self.first = first.rename(folder / "gone")
        self.others = folder / "others"
        for name in ("openmpi/4.1", "hdf5/1.14", "horovod/0.28"):
            write_module(self.others, name, name.split("/")[0].upper() + "_LOADED")

    def shell(self, script, paths=None):
        """Runs the script in a clean bash; returns its output, and the results of `facts` by name."""
        paths = [self.others, *map(modulefiles, self.trees.values())] if paths is None else paths
        uses = "".join(f"module use '{path}'\n" for path in paths)
        clean = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
        clean |= {"PATH": "/usr/bin:/bin", "LMOD_PAGER": "none"}
        output = run(["bash", "--norc", "--noprofile", "-c", f"{START}\n{PRELUDE}{uses}{script}"], env=clean)
        facts = {}
        for name, environment, completion, program in re.findall(r"@facts (\w+)\n(.*)\n(.*)\n(.*)\n", output):
            facts[name] = {**json.loads(environment), "completion": completion, "program": program}
        return output, facts


def without_modules(environment):
    """The environment without the internal variables of Lmod and environment-modules."""
    own = re.compile(r"_*LMOD_|_*MODULE|LOADEDMODULES$|_LMFILES_$|_ModuleTable|BASH_FUNC_|_$|SHLVL$")
    return {name: value for name, value in environment.items() if not own.match(name)}


@functools.cache
def the_site():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-modules-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Site(folder)


def loading_sets_the_environment_and_unloading_restores_it(folder):
    site = the_site()

    # As Modules 4 does, which loads no requirements by itself.
    output, facts = site.shell(f"""
      export MODULES_AUTO_HANDLING=0
      facts before
      module load lockstep/{site.version} || exit 1
      facts loaded
      lockstep --version || exit 1
      man -w lockstep || exit 1
      manpath 2>/dev/null
      module unload lockstep || exit 1
      facts after""")

    tree, loaded = site.trees[site.version], facts["loaded"]
    assert loaded["LOCKSTEP_ROOT"] == str(tree)
    assert pathlib.Path(loaded["LOCKSTEP_SLURM"], "train.sbatch").is_file(), loaded["LOCKSTEP_SLURM"]
    assert loaded["program"] == f"{tree}/bin/lockstep"
    assert loaded["CMAKE_PREFIX_PATH"] == str(tree)
    assert f"{tree}/share/man/man1/lockstep.1" in output and "/usr/share/man" in output, output
    assert "-F _lockstep" in loaded["completion"] and facts["after"]["completion"] == "none"
    assert loaded["OPENMPI_LOADED"] == loaded["HDF5_LOADED"] == "yes"
    assert without_modules(facts["after"]) == without_modules(facts["before"])


def lists_of_directories_get_only_absolute_elements(folder):
    """Whatever they hold before, and also if the modulefiles' own directory is given as a relative path."""
    site = the_site()
    names = ("PATH", "CMAKE_PREFIX_PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "PYTHONPATH", "PKG_CONFIG_PATH", "MODULEPATH")

    for before in ("unset CMAKE_PREFIX_PATH", "export CMAKE_PREFIX_PATH=", "export CMAKE_PREFIX_PATH=/set:/also/set"):
        _, facts = site.shell(f"""
          {before}
          cd '{site.trees[site.version]}' || exit 1
          module use 'share/lockstep/modulefiles/{FOLDER}'
          module load lockstep/{site.version} || exit 1
          facts loaded""", paths=[site.others])

        loaded = facts["loaded"]
        assert loaded["CMAKE_PREFIX_PATH"].split(":")[0] == str(site.trees[site.version]), loaded["CMAKE_PREFIX_PATH"]
        for name in names:
            elements = loaded[name].split(":") if name in loaded else []
            assert all(element.startswith("/") for element in elements), (before, name, loaded[name])


def help_and_whatis_describe_lockstep(folder):
    site = the_site()

    output, _ = site.shell(f"module help lockstep/{site.version} 2>&1; module whatis lockstep/{site.version} 2>&1")

    for text in (f"Lockstep {site.version}", "synchronous data-parallel training", "man lockstep", str(site.trees[site.version])):
        assert text in output, output
    assert KIND != "lmod" or "Category" in output, output


def swapping_changes_every_variable(folder):
    site = the_site()

    _, facts = site.shell(f"""
      module load lockstep/{site.version} || exit 1
      module swap lockstep/{site.version} lockstep/{NEWER} || exit 1
      facts swapped
      module swap lockstep/{NEWER} lockstep/{site.version} || exit 1
      facts back""")

    for name, version in (("swapped", NEWER), ("back", site.version)):
        other = str(site.trees[site.version if version == NEWER else NEWER])
        assert facts[name]["LOCKSTEP_ROOT"] == str(site.trees[version])
        assert facts[name]["program"] == f"{site.trees[version]}/bin/lockstep"
        kept = without_modules(facts[name])
        assert not [variable for variable in kept if other in kept[variable]], kept


def two_versions_conflict(folder):
    site = the_site()

    # By default, Lmod swaps versions of the same name.
    output, facts = site.shell(f"""
      export LMOD_DISABLE_SAME_NAME_AUTOSWAP=yes MODULES_CONFLICT_UNLOAD=0
      module load lockstep/{site.version} || exit 1
      module load lockstep/{NEWER} 2>&1 && echo "@both"
      facts after""")

    assert "@both" not in output, output
    assert "conflict" in output.lower() or "one module at a time" in output, output
    assert facts["after"]["LOCKSTEP_ROOT"] == str(site.trees[site.version])


def a_conflicting_module_prevents_loading(folder):
    site = the_site()

    output, facts = site.shell(f"""
      module load horovod/0.28 || exit 1
      module load lockstep/{site.version} 2>&1 && echo "@both"
      facts after""")

    assert "@both" not in output and "horovod" in output, output
    assert "LOCKSTEP_ROOT" not in facts["after"] and facts["after"]["program"] == "none"


def a_copied_modulefile_finds_the_prefix_or_reports_that_it_is_missing(folder):
    site = the_site()
    copies = folder / "copies"
    copies.mkdir()
    shutil.copytree(modulefiles(site.first) / "lockstep", copies / "lockstep")

    refused, facts = site.shell("module load lockstep 2>&1 && echo @loaded\nfacts gone", [site.others, copies])
    assert "there is no lockstep in" in refused and "@loaded" not in refused, refused
    assert "LOCKSTEP_ROOT" not in facts["gone"]

    place = site.first.rename(site.first.with_name("installed"))
    _, facts = site.shell("module load lockstep || exit 1\nfacts there", [site.others, copies])
    place.rename(site.first)
    assert facts["there"]["LOCKSTEP_ROOT"] == str(place)


if __name__ == "__main__":
    installed.main([loading_sets_the_environment_and_unloading_restores_it, lists_of_directories_get_only_absolute_elements, help_and_whatis_describe_lockstep,
                    swapping_changes_every_variable, two_versions_conflict, a_conflicting_module_prevents_loading,
                    a_copied_modulefile_finds_the_prefix_or_reports_that_it_is_missing])
