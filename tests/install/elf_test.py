#!/usr/bin/env python3
"""Reads every program and library of this build and of an installation: where it searches for libraries, and how it is hardened."""

import json
import os
import re
import struct

from installed import BUILD, install, main, run

SHARED_OBJECT = 3  # also the type of position-independent programs
# What the loader would look for in the current directory, or in one that depends on it.
ABSOLUTE = re.compile(r"/|\$ORIGIN(/|$)|\$\{ORIGIN\}(/|$)")
CACHE = dict(re.findall(r"^(\w+):\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M))
SANITIZED = bool(CACHE.get("LOCKSTEP_SANITIZE")) or CACHE.get("LOCKSTEP_FUZZERS") == "ON"
FORTIFIED = not SANITIZED and CACHE["CMAKE_BUILD_TYPE"] != "Debug"


def elf_type(path):
    return elf_kind(path)[0]


def elf_kind(path):
    """The file's type and processor; (None, None) if it is no ELF file."""
    with open(path, "rb") as file:
        header = file.read(20)
    return struct.unpack_from("<HH", header, 16) if header[:4] == b"\x7fELF" else (None, None)


def linked_files(folder):
    """Programs and libraries, not objects; without other builds inside this one, what a test compiles for another processor, and
    compilers' trials."""
    found, processor = [], elf_kind(BUILD / "lockstep")[1]
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in ("CMakeFiles", "Testing", "environment-modules") and
                            not os.path.exists(f"{place}/{name}/CMakeCache.txt"))
        paths = [os.path.join(place, name) for name in sorted(files)]
        found += [path for path in paths if os.path.isfile(path) and not os.path.islink(path) and
                  elf_type(path) not in (None, 1) and elf_kind(path)[1] == processor]
    return found


class Elf:
    def __init__(self, path):
        self.name, self.type = os.path.relpath(path, BUILD), elf_type(path)
        text = run(["readelf", "--wide", "--dynamic", "--program-headers", path])
        self.entries = re.findall(r"^ 0x\w+ \((\w+)\)\s+(.*)$", text, re.M)
        self.segments = {line.split()[0]: line for line in re.findall(r"^  ([A-Z_]+ +0x.*)$", text, re.M)}

    def values(self, *tags):
        return [value for tag, value in self.entries if tag in tags]

    def problems(self):
        paths = re.findall(r"path: \[(.*)\]", "\n".join(self.values("RPATH", "RUNPATH")))
        for element in (element for path in paths for element in path.split(":")):
            if not ABSOLUTE.match(element):
                yield f"searches for libraries in '{element}' ({paths})"
        for library in re.findall(r"library: \[(.*)\]", "\n".join(self.values("NEEDED"))):
            if "/" in library and not library.startswith("/"):
                yield f"needs {library}, relative to the current directory"
        flags = " ".join(self.values("FLAGS", "FLAGS_1"))
        if "GNU_RELRO" not in self.segments or not re.search(r"\b(BIND_)?NOW\b", flags):
            yield "has no full RELRO"
        if "GNU_STACK" not in self.segments or "E" in self.segments["GNU_STACK"].split()[6]:
            yield "has an executable stack"
        if self.type != SHARED_OBJECT or ("INTERP" in self.segments and "PIE" not in flags):
            yield "is a program at a fixed address"


def every_file_is_checked(folder):
    """The program, its module and the tests of this build; and what is installed of them."""
    tree = install(folder / "tree")
    built, installed = linked_files(BUILD), linked_files(tree)
    assert f"{BUILD}/lockstep" in built and f"{tree}/bin/lockstep" in installed, (built, installed)

    problems = [f"{elf.name} {problem}" for elf in map(Elf, built + installed) for problem in elf.problems()]

    assert not problems, "\n".join(problems)
    print(f"        {len(built)} files of the build, {len(installed)} installed")


def programs_check_their_stack_and_their_copies(folder):
    """Not each test copies what the compiler can check."""
    shipped = [f"{BUILD}/lockstep", *linked_files(install(folder / "tree"))]
    for path in {*shipped, *(path for path in linked_files(BUILD) if "INTERP" in Elf(path).segments)}:
        symbols = run(["readelf", "--wide", "--dyn-syms", path])
        assert re.search(r"\b__stack_chk_fail\b", symbols), f"{path} has no protected stack"
        assert path not in shipped or not FORTIFIED or re.search(r"\b__\w+_chk\b", symbols), f"{path} has no checked copy"


def every_source_is_compiled_with_the_compilers_defences(_):
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    kinds = {name for name, value in CACHE.items() if name.startswith("LOCKSTEP_HAS_f") and value in ("1", "TRUE")}
    wanted = ["-fstack-protector-strong", *(["-D_FORTIFY_SOURCE="] if FORTIFIED else [])]
    wanted += ["-fstack-clash-protection"] if "LOCKSTEP_HAS_fstack_clash_protection" in kinds else []
    wanted += ["-fcf-protection=full"] if "LOCKSTEP_HAS_fcf_protection_full" in kinds else []

    absent = [f"{entry['file']}: no {flag}" for entry in commands for flag in wanted if flag not in entry["command"]]
    fixed = [entry["file"] for entry in commands if not re.search(r"-f(PIC|PIE)\b", entry["command"])]

    assert commands and not absent and not fixed, (absent[:5], fixed[:5])
    print(f"        {len(commands)} sources with {' '.join(wanted)}")


def no_library_of_the_current_directory_is_loaded(folder):
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run(["readelf", "--dynamic", BUILD / "lockstep"]))
    # The loader ends at the first file of a library's name that is none.
    for library in needed:
        (folder / library).write_text("planted")
    clean = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "LD_PRELOAD")}
    assert len(needed) > 10 and run([BUILD / "lockstep", "--version"], cwd=folder, env=clean).startswith("lockstep ")
    assert run([install(folder / "tree") / "bin/lockstep", "--version"], cwd=folder, env=clean).startswith("lockstep ")


if __name__ == "__main__":
    main([every_file_is_checked, programs_check_their_stack_and_their_copies, every_source_is_compiled_with_the_compilers_defences,
          no_library_of_the_current_directory_is_loaded])
