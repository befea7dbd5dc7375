#!/usr/bin/env python3
"""targets_of_tests.py BUILD NAME...: finds tests of a configured build tree, which need not be built, and what they run.

A NAME is a test (`core_test`, `nccl_fault_test.np2`), the tests whose names continue it after a dot (`nccl_fault_test`, `system`), or a folder
of tests/ (`comm`); the long tests only by their whole names. Prints the tests' names as one regular expression for `ctest -R`, then the
targets that their commands and environments name, one per line. Exit status 64 with similar names if one is unknown.
"""

import difflib
import pathlib
import re
import subprocess
import sys

build, *wanted = sys.argv[1:]
build = str(pathlib.Path(build).resolve())
tests = {}  # name: (folder, the lines that declare it)
for file in sorted(pathlib.Path(build).rglob("CTestTestfile.cmake")):
    for line in file.read_text().splitlines():
        declared = re.match(r"(?:add_test|set_tests_properties)\(\[=\[(.*?)]=]", line)
        if declared:
            folder, lines = tests.get(declared[1], (file.parent.name, ""))
            tests[declared[1]] = folder, lines + line + "\n"

chosen = set()
for name in wanted:
    found = {test for test, (folder, lines) in tests.items() if test == name
             or ((test.startswith(f"{name}.") or folder == name) and not re.search(r'LABELS "[^"]*\bsoak\b', lines))}
    if not found:
        near = difflib.get_close_matches(name, {*tests, *(folder for folder, _ in tests.values())}, 5, 0.5)
        print(f"test: there is no test or folder of tests {name}; near it: {', '.join(near) or 'nothing'}", file=sys.stderr)
        sys.exit(64)
    chosen |= found
print("^(" + "|".join(re.escape(test) for test in sorted(chosen)) + ")$")

known = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"], check=True, capture_output=True, text=True).stdout
known = {line.rsplit(": ", 1)[0] for line in known.splitlines()}
needed = set()
for test in chosen:
    for path in re.findall(re.escape(build) + r'([^";:]*)', tests[test][1].replace("\\;", ";").split("_BACKTRACE_TRIPLES")[0]):
        path = path.strip("/")
        # A test that is given the build tree itself may use any part of it.
        needed |= {"all"} if not path else {path, f"{path}/lockstep-cuda.so"} & known
print(*sorted(needed), sep="\n")
