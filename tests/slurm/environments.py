"""The environments in which users submit jobs: each trait is one thing that a login file, a module or another job leaves behind."""

import dataclasses
import random

OTHER = "OTHER"  # in a value: the number of another user's or the same user's job, which must stay as it is


@dataclasses.dataclass(frozen=True)
class Trait:
    name: str
    variables: tuple = ()  # (name, value); None: unset
    late: bool = False  # set in the job alone, since Slurm's own sbatch refuses it
    refusal: str = ""  # a pattern of the log, if the job may be refused for this reason
    before: str = ""  # run in the submitting shell: umask, closed files


def _function(name, body):
    return f"BASH_FUNC_{name}%%", f"() {{  {body}\n}}"


def _startup(name, text):
    """A file that each bash reads."""
    return Trait(f"BASH_ENV: {name}", (("BASH_ENV", f"FILE:{text}"),))


def _each(prefix, assignments):
    return [Trait(f"{prefix}{one}", (tuple(one.split("=", 1)),)) for one in assignments]


# Variables that sbatch passes on from a job, or from a rank, in whose shell the next job is submitted. Slurm sets the few that the new
# job has values for.
OTHER_JOBS = [
    Trait("an array's element", (("SLURM_ARRAY_JOB_ID", OTHER), ("SLURM_ARRAY_TASK_ID", "5"), ("SLURM_ARRAY_TASK_COUNT", "9"),
                                 ("SLURM_ARRAY_TASK_MIN", "1"), ("SLURM_ARRAY_TASK_MAX", "9"), ("SLURM_ARRAY_TASK_STEP", "1"))),
    Trait("an element's number alone", (("SLURM_ARRAY_TASK_ID", "5"),)),
    Trait("an array's number alone", (("SLURM_ARRAY_JOB_ID", OTHER),)),
    Trait("memory of both kinds", (("SLURM_MEM_PER_CPU", "64000"), ("SLURM_MEM_PER_NODE", "64000"))),
    *_each("", ["SLURM_MEM_PER_CPU=64000", "SLURM_MEM_PER_NODE=640000", "SLURM_MEM_PER_GPU=64000", "SLURM_CPUS_PER_TASK=64",
                "SLURM_CPUS_PER_GPU=16", "SLURM_TRES_PER_TASK=cpu:64", "SLURM_NTASKS_PER_NODE=64", "SLURM_NTASKS_PER_CORE=1",
                "SLURM_NTASKS_PER_SOCKET=1", "SLURM_NTASKS_PER_GPU=1", "SLURM_NTASKS_PER_TRES=1", "SLURM_DISTRIBUTION=cyclic",
                "SLURM_DISTRIBUTION=arbitrary", "SLURM_DIST_PLANESIZE=4", "SLURM_EXPORT_ENV=NONE", "SLURM_EXPORT_ENV=PATH",
                "SLURM_THREADS_PER_CORE=1", "SLURM_HINT=nomultithread", "SLURM_CORE_SPEC=2", "SLURM_THREAD_SPEC=2", "SLURM_TIMELIMIT=1",
                "SLURM_RESTART_COUNT=3", "SLURM_JOB_END_TIME=1000000000", "SLURM_JOB_START_TIME=1000000000", "SLURM_WORKING_DIR=/gone",
                "SLURM_REMOTE_CWD=/gone", "SLURM_SUBMIT_DIR=/gone", "SLURM_DEPENDENCY=afterok:1",
                "SLURM_NODEFILE=/gone/nodes", "SLURM_JOB_RESERVATION=gone", "SLURM_RESERVATION=gone", "SLURM_REQ_SWITCH=1",
                "SLURM_CPU_FREQ_REQ=Performance", "SLURM_STEP_ID=0", "SLURM_STEPID=0", "SLURM_HET_SIZE=2",
                "SLURM_KILL_BAD_EXIT=0", "SLURM_WAIT=1", "SLURM_OVERLAP=1", "SLURM_WHOLE=1", "SLURM_EXACT=1",
                "SLURM_EXCLUSIVE=1", "SLURM_SPREAD_JOB=1", "SLURM_USE_MIN_NODES=1", "SLURM_IMMEDIATE=60", "SLURM_THREADS=4",
                "SLURM_LABELIO=1", "SLURM_UNBUFFEREDIO=1", "SLURM_STDINMODE=none", "SLURM_DEBUG=3", "SLURM_MPI_TYPE=none",
                "SLURM_EXCLUDES=gone", "SLURM_JOB_NUM_NODES=16", "SLURM_NNODES=16", "SLURM_NODELIST=gone[1-16]"]),
    Trait("tasks", (("SLURM_NTASKS", "64"), ("SLURM_NPROCS", "64"), ("SLURM_TASKS_PER_NODE", "32(x2)"))),
    Trait("GPUs", (("SLURM_GPUS", "4"), ("SLURM_GPUS_ON_NODE", "4"), ("SLURM_JOB_GPUS", "0,1,2,3"), ("CUDA_VISIBLE_DEVICES", "0,1,2,3"))),
    Trait("GPUs of each node", (("SLURM_GPUS_PER_NODE", "a100:4"), ("SLURM_GPU_BIND", "single:1"), ("SLURM_GPU_FREQ", "high"))),
    Trait("GPUs of each task", (("SLURM_GPUS_PER_TASK", "1"), ("SLURM_STEP_GPUS", "0"), ("GPU_DEVICE_ORDINAL", "0"))),
    Trait("GPUs of each socket", (("SLURM_GPUS_PER_SOCKET", "1"), ("SLURM_SOCKETS_PER_NODE", "2"))),
    Trait("an account", (("SLURM_JOB_ACCOUNT", "gone"), ("SLURM_ACCOUNT", "gone"), ("SLURM_JOB_QOS", "gone"), ("SLURM_QOS", "gone"))),
    Trait("a partition", (("SLURM_JOB_PARTITION", "gone"), ("SLURM_PARTITION", "gone"))),
    Trait("a binding", (("SLURM_CPU_BIND", "quiet,mask_cpu:0x80"), ("SLURM_CPU_BIND_LIST", "0x80"), ("SLURM_CPU_BIND_TYPE", "mask_cpu:"),
                        ("SLURM_MEM_BIND", "quiet,local"), ("SLURM_CPU_BIND_VERBOSE", "quiet"))),
    Trait("a step", (("SLURM_STEP_ID", "0"), ("SLURM_STEPID", "0"), ("SLURM_STEP_NODELIST", "gone"), ("SLURM_STEP_NUM_NODES", "16"),
                     ("SLURM_STEP_NUM_TASKS", "64"), ("SLURM_STEP_TASKS_PER_NODE", "4(x16)"), ("SLURM_STEP_LAUNCHER_PORT", "45151"),
                     ("SLURM_SRUN_COMM_HOST", "192.0.2.1"), ("SLURM_SRUN_COMM_PORT", "45151"), ("SLURM_LAUNCH_NODE_IPADDR", "192.0.2.1"),
                     ("SLURM_PROCID", "3"), ("SLURM_LOCALID", "3"), ("SLURM_NODEID", "1"), ("SLURM_GTIDS", "2,3"), ("SLURM_TASK_PID", "77"),
                     ("SLURM_PTY_PORT", "45152"), ("SLURM_PTY_WIN_COL", "80"), ("SLURM_PTY_WIN_ROW", "24"), ("SLURM_UMASK", "0022"))),
    Trait("a component of a heterogeneous job", (("SLURM_HET_SIZE", "2"), ("SLURM_JOB_ID_HET_GROUP_0", OTHER), ("SLURM_HET_JOB_ID", OTHER),
                                                 ("SLURM_HET_JOB_OFFSET", "0"), ("SLURM_JOB_NUM_NODES_HET_GROUP_0", "1"))),
    Trait("a rank of Open MPI", (("OMPI_COMM_WORLD_SIZE", "8"), ("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_LOCAL_RANK", "3"),
                                 ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"), ("OMPI_COMM_WORLD_NODE_RANK", "3"), ("OMPI_UNIVERSE_SIZE", "8"),
                                 ("OMPI_COMMAND", "python"), ("OMPI_FIRST_RANKS", "0"), ("OMPI_APP_CTX_NUM_PROCS", "8"))),
    Trait("a rank's PMIx", (("PMIX_NAMESPACE", "1294008321"), ("PMIX_RANK", "3"), ("PMIX_SERVER_URI41", "1294008320.0;tcp4://127.0.0.1:9"),
                            ("PMIX_SERVER_URI4", "1294008320.0;tcp4://127.0.0.1:9"), ("PMIX_SERVER_URI2", "1294008320.0;tcp4://127.0.0.1:9"),
                            ("PMIX_GDS_MODULE", "ds21,ds12,hash"), ("PMIX_SERVER_TMPDIR", "/gone"), ("PMIX_SECURITY_MODE", "native"),
                            ("PMIX_DSTORE_21_BASE_PATH", "/gone"), ("PMIX_ID", "1294008321.3"))),
    Trait("a rank's daemon", (("OMPI_MCA_ess", "^singleton"), ("OMPI_MCA_orte_hnp_uri", "1294008320.0;tcp://192.0.2.2:9"),
                              ("OMPI_MCA_orte_local_daemon_uri", "1294008320.0;tcp://192.0.2.2:9"), ("OMPI_MCA_ess_base_jobid", "1294008321"),
                              ("OMPI_MCA_ess_base_vpid", "3"), ("OMPI_MCA_orte_ess_num_procs", "8"), ("OMPI_MCA_orte_launch", "1"),
                              ("OMPI_MCA_orte_top_session_dir", "/gone"), ("OMPI_MCA_orte_jobfam_session_dir", "/gone/1"))),
    Trait("a rank's PMI", (("PMI_RANK", "3"), ("PMI_SIZE", "8"), ("PMI_FD", "9"), ("PMI_JOBID", "7"), ("PMI_SPAWNED", "0"),
                           ("MPI_LOCALRANKID", "3"), ("MPI_LOCALNRANKS", "4"), ("HYDI_CONTROL_FD", "9"))),
    Trait("PBS", (("PBS_JOBID", "7.server"), ("PBS_ARRAY_INDEX", "5"), ("PBS_NODEFILE", "/gone"), ("PBS_O_WORKDIR", "/gone"))),
    Trait("LSF", (("LSB_JOBID", "7"), ("LSB_JOBINDEX", "5"), ("LSB_MCPU_HOSTS", "gone 4"), ("LSB_AFFINITY_HOSTFILE", "/gone"))),
    Trait("Flux", (("FLUX_URI", "local:///gone"), ("FLUX_ENCLOSING_ID", "ƒ7"), ("FLUX_JOB_ID", "7"))),
    Trait("a job of these scripts", (("LOCKSTEP_FIRST_JOB", OTHER), ("LOCKSTEP_ELEMENT", "5"), ("LOCKSTEP_OPTIONS", "--lr 9"),
                                     ("LOCKSTEP_RESULTS", "/gone"))),
]

# What changes the answers of commands that the scripts ask.
COMMANDS = [
    *_each("", ["SQUEUE_FORMAT=%i", "SQUEUE_FORMAT2=JobID:8", "SQUEUE_STATES=PENDING", "SQUEUE_USERS=nobody", "SQUEUE_PARTITION=high",
                "SQUEUE_ALL=1", "SQUEUE_ARRAY=1", "SQUEUE_SORT=-t", "SQUEUE_ACCOUNT=gone", "SQUEUE_QOS=gone", "SQUEUE_NAMES=gone",
                "SINFO_FORMAT=%P", "SINFO_PARTITION=high", "SACCT_FORMAT=JobID", "SCONTROL_ALL=1", "SLURM_TIME_FORMAT=relative",
                "SLURM_TIME_FORMAT=%s", "SLURM_TIME_FORMAT=%d.%m. %H:%M", "SLURM_BITSTR_LEN=8", "POSIXLY_CORRECT=1",
                "GREP_OPTIONS=--color=always", "GREP_COLOR=1;31", "GREP_COLORS=mt=1;31", "BLOCK_SIZE=human-readable", "BLOCKSIZE=1G",
                "DF_BLOCK_SIZE=1M", "QUOTING_STYLE=shell", "TIME_STYLE=long-iso", "_POSIX2_VERSION=199209", "AWKPATH=/gone", "COLUMNS=10",
                "TZ=Pacific/Kiritimati", "TZ=XYZ-14:30", "TZ=:/gone/zone", "TZ=", "LANGUAGE=ja", "LC_ALL=tr_TR.UTF-8", "LC_ALL=C",
                "LC_ALL=C.UTF-8", "LC_ALL=gone", "LANG=ja_JP.SJIS", "LC_NUMERIC=de_DE.UTF-8", "LC_CTYPE=UTF-8", "LC_MESSAGES=fr_FR.UTF-8",
                "LD_LIBRARY_PATH=/gone/lib", "LD_LIBRARY_PATH=", "MALLOC_PERTURB_=85", "OMP_NUM_THREADS=64",
                "OMP_DISPLAY_ENV=TRUE", "OMP_PROC_BIND=true", "HDF5_USE_FILE_LOCKING=FALSE", "TMPDIR=/gone", "TMPDIR=", "TERM=",
                "http_proxy=http://192.0.2.1:3128", "DISPLAY=login1:10.0", "SBATCH_OPEN_MODE=truncate",
                "SLURM_EXIT_ERROR=7", "SLURM_PMIX_MAPPING_SERV=(vector,(0,1,1))", "SLURM_PMIXP_ABORT_AGENT_PORT=9"]),
    # With each command, the loader says that it ignores it.
    Trait("LD_PRELOAD of a file that the node lacks", (("LD_PRELOAD", "/gone/libxalt_init.so"),)),
    Trait("SLURM_HOSTFILE", (("SLURM_HOSTFILE", "/gone/hosts"),), late=True, refusal="opening file /gone/hosts"),
    Trait("SLURM_CLUSTERS", (("SLURM_CLUSTERS", "gone"),), late=True),
]

SHELL = [
    *_each("", ["CDPATH=.:~:/", "CDPATH=/tmp", "IFS=,", "GLOBIGNORE=*", "OLDPWD=/gone", "PS4=$(date) ", "TIMEFORMAT=%R", "FIGNORE=.o",
                "PROMPT_COMMAND=history -a", "BASH_COMPAT=4.2", "BASH_XTRACEFD=2", "EXECIGNORE=/gone/*", "ENV=/gone", "HISTFILE=/dev/null",
                "SHELL=/bin/tcsh", "TMOUT=1", "SECONDS=77", "SHLVL=none", "OPTIND=7", "REPLY=7", "HOSTNAME=gone", "a.b-c=1", "BASH=/bin/zsh",
                "USER=gone", "LOGNAME=gone", "MAIL=/gone", "HOME=/gone", "BASH_ENV=/gone"]),
    *(Trait(f"without {name}", ((name, None),)) for name in ("HOME", "USER", "PATH", "LANG", "SHELL", "PWD", "TERM")),
    Trait("PATH with an empty part", (("PATH", ":/gone:PATH"),)),
    Trait("PATH with a file", (("PATH", "/etc/passwd:~/bin:PATH"),)),
    Trait("PATH of coreutils alone", (("PATH", "/usr/bin"),)),
    Trait("PATH that somebody forgot to extend", (("PATH", "/opt/tool/bin"),), refusal="not found"),
    *(Trait(f"set -o {name}", (("SHELLOPTS", f"braceexpand:hashall:interactive-comments:{name}"),)) for name in
      ("nounset", "errexit", "noglob", "noclobber", "pipefail", "allexport", "posix", "xtrace", "monitor", "physical", "keyword", "verbose",
       "functrace", "errtrace", "notify")),
    *(Trait(f"shopt -s {name}", (("BASHOPTS", f"cmdhist:complete_fullquote:extquote:force_fignore:{name}"),)) for name in
      ("nullglob", "failglob", "nocasematch", "nocaseglob", "dotglob", "extglob", "expand_aliases", "lastpipe", "inherit_errexit",
       "localvar_inherit", "xpg_echo", "globstar", "assoc_expand_once")),
    _startup("modules", "module() { eval \"$(/bin/echo : \"$@\")\"; }; export -f module; . /gone/init 2>/dev/null"),
    _startup("Lmod", "[ ! -r /usr/share/lmod/lmod/init/bash ] || . /usr/share/lmod/lmod/init/bash"),
    _startup("a word", "echo welcome to this node"),
    _startup("to the error output", "echo 'module: warning: no display' >&2"),
    _startup("another directory", "cd /tmp"),
    _startup("no input", "exec <&-"),
    _startup("a mask", "umask 077"),
    _startup("a trap", "trap 'echo bye' EXIT"),
    _startup("a trap for errors", "trap 'echo failed: $BASH_COMMAND >&2' ERR"),
    _startup("its failure", "return 3"),
    _startup("unset variables", "set -u"),
    _startup("aliases", "shopt -s expand_aliases; alias grep='grep --color=always' rm='rm -i' cp='cp -i' mv='mv -i' ls='ls -la' df='df -h'"),
    _startup("the shell's IFS", "IFS=$'\\n'"),
    *(Trait(f"a function {name}", (_function(name, body),)) for name, body in (
        [(name, f"command {name} --color=always \"$@\"") for name in ("grep", "ls")] +
        [(name, f"echo \"+ {name} $*\"; command {name} \"$@\"") for name in ("srun", "scontrol", "squeue", "sbatch", "mpirun", "sinfo")] +
        [(name, "echo 'use the new one' >&2; return 1") for name in
         ("sed", "awk", "dirname", "readlink", "date", "stat", "timeout", "wc", "tail", "head", "sort", "tr", "cat", "dd", "mkdir", "id",
          "lockstep", "say", "launch", "finish", "give_up", "load_machine", "resolve_run", "job_name", "fact", "joined", "module", "ml", "which")] +
        # What people write for their interactive shells.
        [("cd", "builtin cd \"$@\" && ls"), ("echo", "builtin echo \"[$(/bin/date)]\" \"$@\""), ("kill", "builtin echo no"),
         ("test", "false"), ("[", "builtin [ \"$@\""), ("printf", "builtin printf '%s\\n' \"$@\""), ("wait", "builtin wait; return 0"),
         ("source", "builtin source \"$@\"; return 0"), ("command", "builtin command \"$@\" 2>/dev/null"), ("read", "builtin read -t 1 \"$@\""),
         ("trap", ":"), ("exit", "builtin echo bye; builtin exit \"$@\""), ("export", "builtin export \"$@\"; builtin echo exported"),
         ("unset", "builtin echo no"), ("exec", "builtin echo no"), ("set", ":"), ("mapfile", ":"), ("sleep", ":"), ("true", "false")])),
    # Names of the scripts' own variables.
    Trait("exported names", tuple((name, "1") for name in
          ("status", "line", "nodes", "tasks", "cores", "ranks", "element", "variant", "wanted", "chosen", "training", "configuration",
           "reason", "cause", "crash", "checkpoint", "restarts", "limit", "ends", "warned", "interrupted", "launched", "options", "original",
           "scheduler", "file", "machine", "name", "value", "signals", "facts", "restarted", "guarded_from", "spares", "left_out", "named"))),
    Trait("exported settings", (("launcher", "gone"), ("scratch", "/gone"), ("stage", "/gone"), ("lockstep", "/gone"), ("run_dir", "/gone"),
                                ("max_restarts", "none"), ("recipes", "/gone"), ("ranks_a_node", "64"), ("job", "7"), ("spare_nodes", "9"))),
    Trait("a mask that others cannot read", before="umask 077"),
    Trait("a mask that everybody can write", before="umask 0"),
    Trait("closed standard input", before="exec <&-"),
    Trait("closed standard error", before="exec 2>&-"),
    Trait("a large environment", before="for i in {1..10}; do export SITE_LIST_$i=$(printf %050000d 0); done"),
    Trait("values of several lines", (("SITE_TEXT", "a\nb=c\n}"), ("SITE_FORMAT", "%s\\n$(date)`date`'\""))),
    Trait("values that are not UTF-8", before="export SITE_BYTES=$'\\xff\\xfe'"),
    Trait("ignored signals", before="trap '' HUP INT TERM USR1"),
]

# In POSIX mode bash itself refuses to start with functions of these names.
POSIX = {"POSIXLY_CORRECT=1", "set -o posix"}
SPECIAL = {f"a function {name}" for name in ("unset", "set", "exec", "exit", "export", "trap")}

TRAITS = [*OTHER_JOBS, *COMMANDS, *SHELL]
NAMES = ["run", "with a blank", "läuft", "訓練", "it's", 'a "quote"', "a*b[0-9]?", "$HOME", "a;b&c", "x=y,z", "50%", "~", "-x", "tab\there", "#1",
         "back\\slash", "e\u0301", " led by a blank", "(null)", "a:b", "!$", "very-" + "long-" * 30]


@dataclasses.dataclass(frozen=True)
class Environment:
    traits: tuple
    name: str  # of the run directory, and of the scripts' directory if they are beside job.sh
    launcher: str = "srun"
    resources: str = "--nodes=2 --ntasks-per-node=1"
    seed: int = 1
    element: bool = False  # the seed is the number of an array's element
    beside: bool = False  # job.sh is beside the script; else LOCKSTEP_SLURM names its directory
    stops: bool = False  # the run stops once, and is requeued

    def refusals(self):
        """Patterns of a log that refuses the job for a good reason."""
        hash_sign = ["without '#'"] if "#" in self.name else []  # which lockstep train does not accept in names
        return [trait.refusal for trait in self.traits if trait.refusal] + hash_sign

    def told(self):
        return f"{', '.join(trait.name for trait in self.traits) or 'plain'} ({self.launcher} {self.resources} in '{self.name}')"

    def without(self, *traits):
        return dataclasses.replace(self, traits=tuple(one for one in self.traits if one not in traits))


def environments(count, dealt=16):
    """The first `dealt` contain every trait, so that they are the whole test in short."""
    chance = random.Random(43)
    apart = [trait for trait in TRAITS if trait.refusal]  # they would hide what the others do
    rest = [trait for trait in TRAITS if not trait.refusal]
    chance.shuffle(rest)
    rest.sort(key=lambda trait: (trait.name in POSIX) - (trait.name in SPECIAL))  # the last hands get POSIX, the first SPECIAL
    size = len(rest) // (dealt - len(apart)) + 1
    hands = [rest[i:i + size] for i in range(0, len(rest), size)] + [[trait] for trait in apart]
    while len(hands) < count:
        hand = chance.sample(rest, chance.choice((1, 2, 3, 4, 6, 10)))
        if not ({trait.name for trait in hand} & POSIX and {trait.name for trait in hand} & SPECIAL):
            hands.append([chance.choice(apart)] if chance.random() < 0.02 else hand)
    layouts = ("--nodes=2 --ntasks-per-node=1", "--nodes=1 --ntasks-per-node=2", "--ntasks=2", "--nodes=2 --ntasks=2 --cpus-per-task=2")
    return [Environment(tuple(hand), chance.choice(NAMES), chance.choice(("srun", "srun", "mpirun")), chance.choice(layouts),
                        chance.choice((1, 2)), chance.random() < 0.25, chance.random() < 0.5, chance.random() < 0.3) for hand in hands[:count]]
