#!/usr/bin/env python3
"""Tests the installed tree after a move: the program runs, finds its GPU module, and has its manual and completions."""

import os
import pty
import re
import select
import shutil
import time

from installed import BUILD, MPIRUN, SOURCE, commands, install, main, run

HOST_MODULE = BUILD / "tests/compute/modules/host/lockstep-cuda.so"
TRAIN = ["train", "--synthetic", "--synthetic-samples", "16", "--model", "mlp", "--width", "8", "--image-size", "8", "--channels", "1",
         "--classes", "4", "--batch-size", "4", "--max-steps", "2", "--threads", "1", "--progress", "plain"]


def moved_tree(folder):
    """Installs to one folder and moves the tree to another, whose name contains a blank."""
    install(folder / "first place")
    tree = folder / "another place"
    (folder / "first place").rename(tree)
    return tree


def options(program, command):
    """All options of the command, as --help all and, for train, --print-config show them."""
    found = set(re.findall(r"^  --(?:\[no-\])?([a-z0-9-]+)", run([program, command, "--help", "all"]), re.M))
    if command == "train":
        found |= set(re.findall(r"^([a-z0-9-]+)=", run([program, "train", "--print-config"]), re.M))
    assert found, f"{command} --help shows no options"
    return found


def a_moved_tree_runs(folder):
    tree = moved_tree(folder)
    program = tree / "bin/lockstep"

    project = re.search(r"project\(lockstep VERSION (\S+)", (SOURCE / "CMakeLists.txt").read_text())[1]
    assert run([program, "--version"]) == f"lockstep {project}\n"
    run([*MPIRUN, "-n", "2", program, *TRAIN, "--run-dir", folder / "run"], env={**os.environ, "OMP_WAIT_POLICY": "passive"})

    assert (folder / "run/checkpoints/latest").exists()


def no_file_of_the_tree_contains_the_path_of_its_build_or_installation(folder):
    tree = moved_tree(folder)
    places = [str(folder / "first place"), str(BUILD), str(SOURCE)]

    named = []
    for path in sorted(tree.rglob("*")):
        # A copied modulefile uses the prefix as a fallback; archives contain names of sources only for debuggers.
        if not path.is_file() or "modulefiles" in path.parts or path.suffix == ".a":
            continue
        if path.name in ("lockstep", "lockstep-cuda.so") and path.parent.name in ("bin", "lockstep"):
            text = run(["readelf", "--dynamic", path])
        else:
            text = path.read_text()
        named += [f"{path.relative_to(tree)}: {place}" for place in places if place in text]

    assert not named, named


def the_installed_headers_are_those_included_by_lockstep_hpp(folder):
    include = moved_tree(folder) / "include"
    compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M)[1]

    run([compiler, "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I", include, "-MD", "-MF",
         folder / "included", "-include", include / "lockstep/lockstep.hpp", "-x", "c++", "/dev/null"])
    words = re.split(r"(?<!\\)\s+", (folder / "included").read_text())
    included = {word.replace("\\ ", " ") for word in words}
    installed = {str(path) for path in include.rglob("*") if path.is_file()}

    assert installed and installed == {path for path in included if path.startswith(str(include))}, installed ^ included


def the_gpu_module_is_found_beside_the_program(folder):
    tree = moved_tree(folder)
    module = tree / "lib/lockstep/lockstep-cuda.so"
    if module.exists():
        assert re.search(r"R(UN)?PATH.*\[\$ORIGIN[:\]]", run(["readelf", "--dynamic", module]))
        print("        the build's own module looks for libraries in $ORIGIN")
    module.parent.mkdir(parents=True, exist_ok=True)
    module.unlink(missing_ok=True)
    # The module with a host device replaces the one that needs a GPU.
    shutil.copy(HOST_MODULE, module)
    environment = {name: value for name, value in os.environ.items() if name != "LOCKSTEP_MODULE_PATH"}

    run([tree / "bin/lockstep", *TRAIN, "--device", "cuda", "--comm", "mpi", "--run-dir", folder / "run"], env=environment)
    module.unlink()
    refused = run([tree / "bin/lockstep", *TRAIN, "--device", "cuda", "--run-dir", folder / "other"], expect=64, env=environment)

    assert str(module.parent) in refused, refused


def job_scripts_and_pages_are_installed(folder):
    tree = moved_tree(folder)

    installed = tree / "share/lockstep/slurm"
    for path in (SOURCE / "slurm").rglob("*"):
        if path.is_file():
            copy = installed / path.relative_to(SOURCE / "slurm")
            assert copy.read_bytes() == path.read_bytes() and os.access(copy, os.X_OK) == os.access(path, os.X_OK), copy
    for page in ("cluster-staff.md", "exit-status.md", "commands.md"):
        assert (tree / "share/doc/lockstep" / page).read_bytes() == (SOURCE / "docs" / page).read_bytes()
    licence = (tree / "share/doc/lockstep/LICENSE").read_text()
    assert "Apache License\n                           Version 2.0" in licence and "END OF TERMS AND CONDITIONS" in licence
    version = run([tree / "bin/lockstep", "--version"]).split()[1]
    assert f"\n## [{version}]" in (tree / "share/doc/lockstep/CHANGELOG.md").read_text(), version


def a_staged_install_contains_the_final_prefix(folder):
    install("/opt/lockstep-test", environment={"DESTDIR": str(folder)})

    tree = folder / "opt/lockstep-test"
    modulefiles = list((tree / "share/lockstep/modulefiles").rglob("lockstep/*"))
    assert len(modulefiles) == 2, modulefiles
    for path in modulefiles:
        assert "/opt/lockstep-test" in path.read_text() and str(folder) not in path.read_text(), path
    assert run([tree / "bin/lockstep", "--version"])


def the_manual_page_lists_every_option(folder):
    tree = moved_tree(folder)
    program = tree / "bin/lockstep"
    environment = {**os.environ, "MANPATH": str(tree / "share/man"), "MANWIDTH": "100", "LC_ALL": "C.UTF-8"}

    text = run(["man", "-P", "cat", "lockstep"], env=environment)
    sections = dict(re.findall(r"^   lockstep ([\w-]+)\n(.*?)(?=^   lockstep \w|^[A-Z])", text, re.M | re.S))

    assert set(commands(program)) == set(sections), (commands(program), sections.keys())
    for command, section in sections.items():
        listed = set(re.findall(r"^ +--(?:\[no-\])?([a-z0-9-]+)", section, re.M))
        assert listed == options(program, command), (command, listed ^ options(program, command))
    own, _ = (SOURCE / "docs/exit-status.md").read_text().split("| launcher's status |")
    statuses = re.findall(r"^\| *(\d+) *\|", own, re.M)
    assert len(statuses) > 5
    chapter = text[text.index("\nEXIT STATUS"):text.index("\nENVIRONMENT")]
    assert re.findall(r"^ +(\d+)  +\S", chapter, re.M) == statuses, chapter
    warnings = run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", tree / "share/man/man1/lockstep.1"], env=environment)
    assert not re.search(r"warning|error", warnings.split("x T")[0]), warnings[:2000]
    assert run(["lexgrog", tree / "share/man/man1/lockstep.1"]).strip().endswith("image networks over MPI\"")


def complete(script, line):
    """Bash's completions of the last word of `line`, which readline splits at blanks and at `=`."""
    words = re.findall(r"=|[^\s=]+", line) + ([""] if line[-1].isspace() else [])
    quoted = " ".join(f"'{word}'" for word in words)
    return run(["bash", "-euc", f"source '{script}'\nCOMP_WORDS=({quoted})\nCOMP_CWORD={len(words) - 1}\n"
                "_lockstep\nprintf '%s\\n' \"${COMPREPLY[@]-}\""]).split()


def bash_completes_commands_options_and_values(folder):
    tree = moved_tree(folder)
    program = tree / "bin/lockstep"
    script = tree / "share/bash-completion/completions/lockstep"

    assert complete(script, "lockstep train --glob") == ["--global-batch-size"]
    assert set(complete(script, "lockstep ")) == {*commands(program), "--help", "--version"}
    for command in commands(program):
        offered = {word.removeprefix("--no-").removeprefix("--") for word in complete(script, f"lockstep {command} --")}
        assert offered == options(program, command) | {"help"}, (command, offered ^ options(program, command))
    assert complete(script, "lockstep train --optimizer ") == ["sgd", "adam", "adamw", "lars", "lamb", "lion"]
    assert complete(script, "lockstep train --precision=b") == ["bf16"]
    assert complete(script, "lockstep train --precision=") == ["fp32", "tf32", "bf16", "fp16"]
    assert complete(script, "lockstep train --synthetic=t") == ["true"]
    assert complete(script, "lockstep train --no-log") == ["--no-log-ranks"]
    assert "resnet50" in complete(script, "lockstep train --model ")
    assert complete(script, "lockstep bench al") == ["allreduce"]
    assert complete(script, "lockstep train --data ") == []  # files, by complete -o default


def typed(shell, setup, keys, expected, environment):
    """Types the keys into an interactive shell; raises AssertionError unless the shell shows `expected`."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(environment)
        os.execvp(shell[0], shell)
    shown = ""
    deadline = time.monotonic() + 60

    def read_until(text):
        nonlocal shown
        while text not in shown:
            assert time.monotonic() < deadline, f"{text!r} was not shown:\n{shown}"
            if select.select([terminal], [], [], 1)[0]:
                try:
                    shown += os.read(terminal, 4096).decode(errors="replace")
                except OSError:
                    raise AssertionError(f"{shell[0]} ended:\n{shown}") from None

    try:
        os.write(terminal, (setup + "; echo rea''dy\n").encode())
        read_until("ready")
        shown = ""
        os.write(terminal, keys.encode())
        read_until(expected)
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


def a_tab_completes_in_bash(folder):
    tree = moved_tree(folder)

    typed(["bash", "--norc", "--noprofile", "-i"], f"source '{tree}/share/bash-completion/completions/lockstep'",
          "lockstep train --glob\t", "--global-batch-size ", {"TERM": "dumb", "PS1": "$ "})


def a_tab_completes_in_zsh(folder):
    if not shutil.which("zsh"):
        print("skipped: no zsh here (its completion was not tried)")
        return
    tree = moved_tree(folder)
    setup = f"fpath=('{tree}/share/zsh/site-functions' $fpath); autoload -Uz compinit; compinit -u -D"
    environment = {"TERM": "dumb", "PS1": "$ ", "ZDOTDIR": str(folder)}

    for keys, expected in [("lockstep train --glob\t", "--global-batch-size="), ("lockstep insp\t", "inspect "),
                           ("lockstep train --optimizer adamw --lr-sch\t", "--lr-schedule="),
                           ("lockstep train --precision=b\t", "--precision=bf16"), ("lockstep bench all\t", "allreduce "),
                           ("lockstep train --no-log\t", "--no-log-ranks ")]:
        typed(["zsh", "-f", "-i"], setup, keys, expected, environment)


if __name__ == "__main__":
    main([a_moved_tree_runs, no_file_of_the_tree_contains_the_path_of_its_build_or_installation,
          the_installed_headers_are_those_included_by_lockstep_hpp, the_gpu_module_is_found_beside_the_program,
          job_scripts_and_pages_are_installed, a_staged_install_contains_the_final_prefix, the_manual_page_lists_every_option,
          bash_completes_commands_options_and_values, a_tab_completes_in_bash, a_tab_completes_in_zsh])
