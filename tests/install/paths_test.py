#!/usr/bin/env python3
"""Evaluates every list of directories that scripts, job scripts, recipes and pages set: no element is empty or relative, and so the current
directory, whatever the variables hold that it is made of."""

import itertools
import os
import re
import shutil
import subprocess

from installed import SOURCE, main, run, source_texts

# Names of lists of directories, and of files to load. An empty element of MANPATH means the system's pages.
LIST = r"(?:[A-Z][A-Z_]*_)?PATH|[A-Za-z_]*_component_path|CPATH|LD_PRELOAD|LOCKSTEP_CUDA_LIBRARIES"
ASSIGNMENT = re.compile(rf"(?<![\w$])({LIST})\+?=((?:\"[^\"]*\"|'[^']*'|\$\{{[^}}]*\}}|\$\((?:[^()]|\([^()]*\))*\)|[^\s\"'`;&|)])*)")
STATES = (None, "", "/set:/also/set")


def shell_texts():
    """{name: text} of what a shell runs: files with its first line or ending, and blocks of the pages."""
    texts = {}
    for name, text in source_texts().items():
        if name.startswith(("src/", "include/")):
            continue
        if name.endswith(".md"):
            texts[name] = "\n".join(re.findall(r"^```(?:sh)?\n(.*?)^```", text, re.M | re.S))
        elif re.match(r"#!.*\b(ba)?sh\b|# shellcheck shell", text) or name.endswith((".sh", ".sbatch", ".env", ".def", ".in")):
            texts[name] = text
    return texts


def values(value):
    """What the shell makes of it, with each state of the variables that are lists, and the others a folder."""
    names = sorted(set(re.findall(r"\$\{?([A-Za-z_]\w*)", value)))
    lists = [name for name in names if re.fullmatch(LIST, name)]
    for states in itertools.product(STATES, repeat=len(lists)):
        setting = dict(zip(lists, states))
        lines = [f"unset {name}" if setting.get(name, "") is None else f"{name}='{setting.get(name, '/placed')}'" for name in names]
        result = subprocess.run(["/bin/bash", "-c", "\n".join([*lines, f"result={value}", 'builtin printf %s "$result"'])],
                                capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, (value, result)
        yield setting, result.stdout


def no_list_has_an_empty_or_relative_element(_):
    found = 0
    for name, text in shell_texts().items():
        for variable, value in ASSIGNMENT.findall(text):
            if variable == "MANPATH" or value in ("", '""', "''") or "$(" in value or "@" in value:
                continue
            found += 1
            for setting, result in values(value):
                relative = [element for element in result.split(":") if not element.startswith("/")]
                # Pages also name folders of the checkout, for a command that runs in it.
                assert not relative or name.startswith("docs/") and "" not in relative, f"{name}: {variable}={value} is '{result}' with {setting}"
    assert found >= 5, found
    print(f"        {found} lists of directories")


def the_bundles_programs_use_only_its_libraries_and_installed_ones(folder):
    """Also if a library of Python's was planted in the current directory."""
    (folder / "bundle/run").mkdir(parents=True)
    shutil.copy(SOURCE / "scripts/gpu-machine/any", folder / "bundle/run/any-of")
    shared = folder / "shared"
    shared.mkdir()
    for module in ("glob", "site", "re", "os"):
        (shared / f"{module}.py").write_text(f"open('{folder}/planted', 'w')\n")
    for before, cuda in itertools.product(STATES, STATES):
        clean = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "LOCKSTEP_CUDA_LIBRARIES")}
        given = {name: value for name, value in (("LD_LIBRARY_PATH", before), ("LOCKSTEP_CUDA_LIBRARIES", cuda)) if value is not None}
        output = run([folder / "bundle/run/any-of", "printenv", "LD_LIBRARY_PATH"], cwd=shared, env={**clean, **given})
        elements = output.strip("\n").split(":")
        assert elements[0] == f"{folder}/bundle/lib" and all(element.startswith("/") for element in elements), (before, cuda, output)
        assert "/usr/local/cuda/lib64" in elements and (not before or "/also/set" in elements), (before, cuda, output)
    assert not (folder / "planted").exists(), "a module of the current directory was imported"


def cmake_adds_to_lists_by_its_own_operations(_):
    """These leave out the colon where the variable is unset or empty."""
    for name, text in source_texts().items():
        joined = re.findall(r".*PATH=.*\$ENV\{.*", text) if name.endswith(("CMakeLists.txt", ".cmake")) else []
        assert not joined, (name, joined)


def recipes_add_only_folders_of_the_installation(_):
    spack = (SOURCE / "modules/spack/spack_repo/lockstep/packages/lockstep/package.py").read_text()
    added = re.findall(r"env\.(?:prepend|append)_path\(\s*[\"']\w+[\"'],\s*(.*)\)|env\.set\([\"']\w+[\"'],\s*(.*)\)", spack)
    assert added and all((first or second).startswith("self.prefix") for first, second in added), added
    for path in (SOURCE / "modules/easybuild").glob("*.eb"):
        extra = re.findall(r"modextra(?:paths|vars) = \{(.*?)\}", path.read_text(), re.S)
        folders = re.findall(r":\s*'([^']*)'", "".join(extra))
        assert all(folder.startswith("%(installdir)s") for folder in folders), (path.name, folders)


if __name__ == "__main__":
    main([no_list_has_an_empty_or_relative_element, the_bundles_programs_use_only_its_libraries_and_installed_ones,
          cmake_adds_to_lists_by_its_own_operations, recipes_add_only_folders_of_the_installation])
