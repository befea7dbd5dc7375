#!/usr/bin/env python3
"""Tests which files the job scripts source: their own, or those of LOCKSTEP_SLURM; never files of the directory where a job is submitted."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from runner import main  # noqa: E402

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent.parent / "slurm"
FOR_SLURM = sorted(path.name for path in SCRIPTS.glob("*.sbatch"))
FOR_OTHERS = sorted(path.name for path in SCRIPTS.glob("other/*"))
UNREADABLE = 66


class Place:
    """Job scripts whose job.sh only names itself, and a directory of a stranger, where jobs are submitted and run."""

    def __init__(self, folder):
        self.installed = folder / "my slurm"
        shutil.copytree(SCRIPTS, self.installed)
        (self.installed / "job.sh").write_text('echo "own ${BASH_SOURCE[0]}"; exit 0\n')
        self.strangers = folder / "shared"
        self.ran = folder / "planted"
        for path in ("job.sh", "slurm/job.sh", "slurm/spares.sh", "slurm/schedulers/slurm.sh", "schedulers/slurm.sh", "(null)", "sweep.sh"):
            self.plant(self.strangers / path)
        self.programs = folder / "programs"
        self.programs.mkdir()
        (self.programs / "sleep").symlink_to("/bin/true")
        self.spool = folder / "job00007"
        self.spool.mkdir()
        self.plant(self.spool / "job.sh")

    def plant(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"touch '{self.ran}'; exit 0\n")

    def slurm_says(self, command):
        """`command`: the job's, as Slurm tells it; None: it does not answer."""
        program = self.programs / "scontrol"
        record = f"JobId=7 JobName=x\n   Command={command}\n   WorkDir={self.strangers}\n"
        program.write_text("#!/bin/bash\n" + (f"echo '{record}'\n" if command else "echo 'slurm_load_jobs error' >&2; exit 1\n"))
        program.chmod(0o755)

    def copied(self, script):
        """The copy that the scheduler runs."""
        copy = self.spool / "slurm_script"
        shutil.copy(self.installed / script, copy)
        return copy

    def run(self, script, *arguments, where=None, **variables):
        base = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "LOCKSTEP"))}
        where = where or self.strangers
        job = {"SLURM_JOB_ID": "7", "SLURM_SUBMIT_DIR": str(where), "PBS_O_WORKDIR": str(where), "LS_SUBCWD": str(where)}
        return subprocess.run(["bash", script, *arguments], cwd=where, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                              env={**base, **job, **variables, "PATH": f"{self.programs}:/usr/bin:/bin"})

    def expect_own(self, done, name):
        assert done.returncode == 0 and done.stdout == f"own {self.installed}/job.sh\n" and not self.ran.exists(), (name, done)

    def expect_refusal(self, done, name):
        last = done.stderr.strip().splitlines()[-1] if done.stderr else ""
        assert done.returncode == UNREADABLE and not done.stdout and not self.ran.exists(), (name, done)
        assert re.match("error: no job.sh (beside '.*' or )?in LOCKSTEP_SLURM=", last) and "module load lockstep" in last, (name, done)


def slurms_copy_finds_the_files_beside_the_original(folder):
    place = Place(folder)
    for name in FOR_SLURM:
        for arguments in ((), ("--lr", "0.1"), ("rates of lr.txt", "--run-dir", "with blanks")):
            place.slurm_says(" ".join([f"{place.installed}/{name}", *arguments]))
            place.expect_own(place.run(place.copied(name), *arguments), name)
        # An array has a line for each element.
        place.slurm_says(f"{place.installed}/{name}\n\nJobId=8\n   Command={place.installed}/{name}")
        place.expect_own(place.run(place.copied(name)), name)


def slurms_copy_without_an_original_is_refused(folder):
    place = Place(folder)
    for name in FOR_SLURM:
        for command in ("(null)", None, f"{folder}/removed/{name}"):
            place.slurm_says(command)
            place.expect_refusal(place.run(place.copied(name)), (name, command))
        (place.programs / "scontrol").unlink()
        place.expect_refusal(place.run(place.copied(name)), name)


def a_directory_where_anybody_may_add_files_is_refused(folder):
    place = Place(folder)
    shared = folder / "tmp"
    for planted in ("job.sh", "schedulers/slurm.sh"):
        place.plant(shared / planted)
    shared.chmod(0o1777)
    for name in FOR_SLURM:
        shutil.copy(SCRIPTS / name, shared)
        place.slurm_says(f"{shared}/{name}")
        place.expect_refusal(place.run(place.copied(name)), name)
        place.expect_refusal(place.run(shared / name), name)


def the_files_beside_the_original_come_before_the_variable(folder):
    place = Place(folder)
    shutil.copytree(place.installed, folder / "module")
    for name in FOR_SLURM:
        place.slurm_says(f"{place.installed}/{name}")
        place.expect_own(place.run(place.copied(name), LOCKSTEP_SLURM=f"{folder}/module"), name)


def the_variable_must_be_absolute(folder):
    place = Place(folder)
    place.slurm_says(f"{folder}/elsewhere/train.sbatch")
    (folder / "alone").mkdir()
    shutil.copy(place.installed / "interactive.sh", folder / "alone")  # Slurm runs no copy of it
    copies = [*FOR_SLURM, *(f"other/{other}" for other in FOR_OTHERS)]
    for name in ["interactive.sh", *copies]:
        script = place.copied(name) if name in copies else folder / "alone" / name
        place.expect_own(place.run(script, LOCKSTEP_SLURM=str(place.installed)), name)
        for relative in ("slurm", ".", "./slurm"):
            place.expect_refusal(place.run(script, LOCKSTEP_SLURM=relative), (name, relative))


def other_schedulers_need_the_variable(folder):
    place = Place(folder)
    for name in FOR_OTHERS:
        for where in ("copied", "in place"):
            script = place.copied(f"other/{name}") if where == "copied" else place.installed / "other" / name
            place.expect_refusal(place.run(script), (name, where))


def a_script_that_is_run_in_place_finds_the_files_beside_it(folder):
    place = Place(folder)
    place.slurm_says("/bin/bash")  # of salloc
    for name in [*FOR_SLURM, "interactive.sh"]:
        link = folder / f"link to {name}"
        link.symlink_to(place.installed / name)
        for script in (place.installed / name, os.path.relpath(place.installed / name, place.strangers), link):
            place.expect_own(place.run(script), name)
        place.expect_own(place.run(f"./{name}", where=place.installed), name)
        place.expect_own(place.run(name, where=place.installed), name)


def each_script_looks_for_its_files_in_the_same_way(folder):
    """A scheduler copies a script alone, so that each contains these lines."""
    texts = {name: (SCRIPTS / name).read_text() for name in FOR_SLURM}
    found = {text[text.index("# job.sh is beside"):text.index("load_machine")] for text in texts.values()}
    assert len(texts) == 5 and len(found) == 1, found
    for path in SCRIPTS.rglob("*"):
        if path.is_file():
            sourced = [line for line in path.read_text().splitlines() if line.strip().startswith(("source ", ". "))]
            assert all(line.split()[1].startswith(('"$LOCKSTEP_SLURM/', '"$found/', '"$machine"')) for line in sourced), sourced


if __name__ == "__main__":
    main([slurms_copy_finds_the_files_beside_the_original, slurms_copy_without_an_original_is_refused,
          a_directory_where_anybody_may_add_files_is_refused, the_files_beside_the_original_come_before_the_variable, the_variable_must_be_absolute,
          other_schedulers_need_the_variable, a_script_that_is_run_in_place_finds_the_files_beside_it,
          each_script_looks_for_its_files_in_the_same_way])
