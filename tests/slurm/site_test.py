#!/usr/bin/env python3
"""Tests that a site's own code runs in job scripts as the site wrote it, and that its settings reach the ranks."""

import shlex

from slurm_harness import *  # noqa: F403

ONE_NODE = "--nodes=1 --ntasks-per-node=2 --time=60"
STEPS = 2


def spy(folder):
    """A program that is lockstep, and writes the environment of each rank to ENVIRONMENT-RANK."""
    path = folder / "bin" / "lockstep"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/sh\n[ -z "$PMIX_RANK" ] || /usr/bin/env -0 >"{folder}/environment-$PMIX_RANK"\nexec {LOCKSTEP} "$@"\n')
    path.chmod(0o755)
    return path


def rank_variables(folder, rank):
    return dict(line.split("=", 1) for line in (folder / f"environment-{rank}").read_text().split("\0") if "=" in line)


class Site:
    """A user's copy of slurm/ on a site that has the machine file `text`; each job has its own."""

    def __init__(self, folder, text, launcher="srun", resources=ONE_NODE, line=None, data=None):
        folder.mkdir(parents=True)
        self.folder, self.run_dir, self.scripts = folder, folder / "run", folder / "slurm"
        shutil.copytree(SCRIPTS, self.scripts)
        self.script = edited(self.scripts, "train.sbatch", f"--job-name=site {resources}",
                             training(data or folder.parent / "data", self.run_dir, "--max-steps", STEPS))
        self.machine = self.scripts / "virtual.env"
        spy(folder)
        # What a site's module would set, since sbatch may pass nothing on.
        variables = {name: value for name, value in CLUSTER.environment().items() if name.startswith("OMPI")}
        always = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in {**variables, **harness.PRELOAD}.items())
        self.machine.write_text(f"export PATH={folder}/bin:$PATH\n{always}launcher={launcher}\nsrun_options=(--mpi=pmix)\n"
                                f"mpirun_options=(--bind-to none)\n{text}\n")
        if line is not None:
            self.script.write_text(self.script.read_text().replace(f"load_machine {self.machine}", line))

    def submit(self, *options, env=None):
        output = self.folder / "out"
        number = command("sbatch", "--parsable", f"--output={output}", "--chdir", self.folder, *options, self.script,
                         env={"LOCKSTEP_SLURM": "", **(env or {})}).strip()
        self.job = Job(number, output, self.run_dir)
        return self.job

    def check_trained(self, **variables):
        """Both ranks had these variables."""
        self.job.end(status=0, restarts=0)
        assert state(latest(self.run_dir))["step"] == STEPS and state(latest(self.run_dir))["world_size"] == 2
        for rank in (0, 1):
            found = rank_variables(self.folder, rank)
            wrong = {name: found.get(name) for name, value in variables.items() if found.get(name) != value}
            assert not wrong, f"rank {rank}: {wrong} is not {variables}; {self.job.report()}"

    def check_refused(self, status, pattern):
        log = self.job.end("FAILED", status=status, restarts=0)
        last = log.strip().splitlines()[-1] if log.strip() else ""
        assert re.search(pattern, last), f"'{pattern}' is not in the last line of: {log!r}"
        assert "Traceback" not in log and not self.run_dir.exists(), log
        return log


TRAINS = {
    "a false last line": "[ -d /nodelocal ] && stage=/nodelocal",
    "a grep that finds nothing": "grep -q no-such-line /etc/hostname",
    "unset variables": "export SITE_PROJECT=/projects/$NO_SUCH_GROUP/${NO_SUCH_USER}\nscratch=$NO_SUCH_SCRATCH",
    "a failing module": "module() { local shell=$__lmod_settarg; eval \"$($NO_SUCH_LMOD bash \"$@\")\"; test -n \"$__lmod_sh_dbg\"; }\n"
                        "module purge 2>/dev/null; module load lockstep 2>/dev/null",
    "conda": ". FOLDER/activate; conda_setup=$(false)",
    "return 1": "return 1",
    "IFS": "IFS=,",
    "another directory": "cd /tmp",
    "traps": "trap 'echo site: error' ERR; trap 'rm -rf /gone' EXIT; trap '' USR1 TERM; trap : DEBUG",
    "strict mode": "set -euo pipefail; set -o noglob -o noclobber; shopt -s nullglob failglob nocasematch",
    "allexport": "set -a; SITE_VALUE=1; own_value=2",
    "traced": "set -x",
    "posix": "set -o posix",
    "arguments": "set -- one two; shift",
    "a mask": "umask 077",
    "a locale": "export LC_ALL=no_SUCH.UTF-8 LANG=ja_JP.SJIS",
    "no home": "unset HOME USER; export CDPATH=/",
    "functions": "grep() { command grep --color=always \"$@\"; }; sed() { return 1; }; cd() { builtin cd \"$@\" && ls; }; echo() { return 1; }",
    "output": "echo site: welcome; echo site: warning >&2; printf 'no newline'",
    "a background process": "sleep 30 >/dev/null 2>&1 &",
    "no input": "exec </dev/null",
    "several lines": "case $(hostname) in\n  node*) stage= ;;\n  *) false ;;\nesac",
    "a helper variable": "ports=12\nmy_helper=$ports image=lockstep.sif base=/apps user=me",
    "names of the scripts": "job=train name=x status=3 file=z limit=1 reason=no element=9 ends=1 wanted=2 line=a launched=9 restarted=1 answer=b facts=",
    "a shell function as the last command": "is_gpu() { [ -e /dev/nvidia99 ]; }; is_gpu && export CUDA=1",
    "a copy of the log": "exec > >(tee FOLDER/log) 2>&1",
    "a byte order mark": "\ufeffexport SITE_VALUE=1",
    "declare": "declare -x SITE_VALUE=1; typeset -i count=3",
}

ACTIVATE = """\
_conda_root=${CONDA_ROOT}
if [ -n "$CONDA_PREFIX" ]; then conda_shlvl=$CONDA_SHLVL; fi
PS1="(lockstep) $PS1"
[ "$SHELL" = zsh ] && rehash
hash -r
unalias conda 2>/dev/null
unset -f no_such_function
export CONDA_DEFAULT_ENV=lockstep
[[ -n $NO_SUCH ]]
"""


@harness.more_in_soak
def a_machine_file_runs_as_the_site_wrote_it(folder):
    write_shards(folder / "data")
    sites = {}
    for name, text in harness.few(list(TRAINS.items()), 0, 3, 4, 7, 9, 17, 22):
        place = folder / name.replace(" ", "-")
        sites[name] = Site(place, text.replace("FOLDER", str(place)) + "\n", launcher="mpirun" if len(sites) % 4 == 3 else "srun")
        (place / "activate").write_text(ACTIVATE)
        # Before the lines of the site, so that their last line is the file's.
        machine = sites[name].machine
        machine.write_text(f"export SITE_SETTING='a b,c;=d'\n{machine.read_text()}")
        sites[name].submit()
    failed = []
    for name, site in sites.items():
        try:
            site.check_trained(SITE_SETTING="a b,c;=d")
            assert name != "a helper variable" or re.search("warning: .*image.*my_helper", site.job.log()), site.job.log()
        except AssertionError as error:
            failed.append(f"{name}: {error}")
    assert not failed, f"{len(failed)} of {len(sites)}:\n" + "\n".join(failed)


REFUSED = {
    "exit 0": ("echo wrong node; exit 0", range(1, 80), "while reading .*virtual.env"),
    "exit 3": ("exit 3", 3, "status 3 while reading .*virtual.env"),
    "a syntax error": ("if [ -d / ]; then\n", 65, "error: .*virtual.env"),
    "a quote": ("scratch='/scratch", 65, "error: .*virtual.env"),
    "luncher": ("luncher=mpirun", 64, "error: .*virtual.env sets 'luncher'.*'launcher'"),
    "max_restart": ("max_restart=3", 64, "error: .*virtual.env sets 'max_restart'.*'max_restarts'"),
    "stagee": ("stagee=/disk", 64, "error: .*virtual.env sets 'stagee'.*'stage'"),
    "srun_option": ("srun_option=(--mpi=pmi2)", 64, "error: .*virtual.env sets 'srun_option'.*'srun_options'"),
    "a launcher": ("launcher=srum", 64, "error: launcher=srum in .*virtual.env"),
    "line ends of Windows": ("launcher=srun\r\n", 65, "error: .*virtual.env has the line ends of Windows"),
    "a setting of Windows": ("max_restarts=5\r\nif true; then\r\n:\r\nfi\r\n", 65, "error: .*virtual.env"),
    "errexit": ("set -e; false", 1, "while reading .*virtual.env"),
    "nounset": ("set -u; stage=$NO_SUCH/disk", (1, 127), "while reading .*virtual.env"),
}


def a_machine_file_that_cannot_be_used_is_named_in_the_log(folder):
    sites = {}
    for name, (text, *_) in REFUSED.items():
        sites[name] = Site(folder / name.replace(" ", "-"), text)
        sites[name].submit()
    failed = []
    for name, site in sites.items():
        try:
            site.check_refused(*REFUSED[name][1:])
        except AssertionError as error:
            failed.append(f"{name}: {error}")
    assert not failed, f"{len(failed)} of {len(sites)}:\n" + "\n".join(failed)


@harness.more_in_soak
def the_ranks_get_the_settings_under_every_export_policy(folder):
    """With the site's default machine, whose PATH has the program."""
    write_shards(folder / "data")
    policies = {"NONE": {}, "NIL": {}, "SITE_USER": {"SITE_USER": "u v"}, "ALL,SITE_USER=w": {"SITE_USER": "w"}}
    sites = []
    for launcher, names in (("srun", harness.few(list(policies), 0, 2)), ("mpirun", harness.few(list(policies), 1, 3))):
        for policy in names:
            place = folder / f"{launcher}-{policy}"
            site = Site(place, "export SITE_SETTING='a b,c;=d' SITE_EMPTY=", launcher, "--nodes=2 --ntasks-per-node=1 --time=60", 'load_machine ""')
            (place / "etc").mkdir()
            shutil.move(site.machine, place / "etc" / "default.env")
            # These jobs have no variable that names the site's directory.
            file = site.scripts / "machine.sh"
            assert file.read_text().count("/etc/lockstep") == 1, file
            file.write_text(file.read_text().replace("/etc/lockstep", str(place / "etc")))
            site.submit(f"--export={policy}", env={"SITE_USER": "u v"})
            sites.append((site, policies[policy]))
    for site, variables in sites:
        site.check_trained(SITE_SETTING="a b,c;=d", SITE_EMPTY="", **variables)
        assert "etc/default.env (the site's default)" in site.job.log(), site.job.log()


if __name__ == "__main__":
    main([a_machine_file_runs_as_the_site_wrote_it, a_machine_file_that_cannot_be_used_is_named_in_the_log,
          the_ranks_get_the_settings_under_every_export_policy])
