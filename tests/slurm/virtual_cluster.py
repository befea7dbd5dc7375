#!/usr/bin/env python3
"""virtual_cluster.py start DIR [KIND], virtual_cluster.py stop|env DIR, virtual_cluster.py kill-node|start-node|kill-slurmd|start-slurmd DIR NODE

A real Slurm with four virtual nodes on one machine, entirely in DIR, as root or as any user who may create namespaces. A node is
a separate process tree with its own host name and /dev/shm; its end kills everything that runs on it.

    tests/slurm/virtual_cluster.py start /tmp/c && eval "$(tests/slurm/virtual_cluster.py env /tmp/c)"
    srun -N4 -n8 --mpi=pmix build/ci/lockstep train ...
    tests/slurm/virtual_cluster.py stop /tmp/c

KIND is a site's choice of settings: plain (default), strict, suspending or user-signal; see KINDS.
"""

import ctypes
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

NODES = tuple(f"node{i}" for i in range(1, 5))
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "munged", "munge", "unshare", "nsenter", "taskset", "mpirun")
SBIN = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
SECONDS = 240  # a cluster starts in about one, and a job ends in about ten; CTest ends longer hangs
KILL_WAIT = 2  # seconds between SIGTERM and SIGKILL of a job that Slurm ends

CONFIGURATION = """\
ClusterName=virtual
SlurmctldHost={host}({address})
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.socket
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
TmpFS={folder}/tmp-%n
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
MailProg=/bin/true
MpiDefault=pmix
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=0
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
ReturnToService=2
SlurmdTimeout={node_timeout}
MessageTimeout=5
TCPTimeout=2
KillWait={kill_wait}
MinJobAge=3600
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes=ALL Default=YES PriorityTier=1 GraceTime=0
PartitionName=patient Nodes=ALL PriorityTier=1 GraceTime=20
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF
"""

# What a site may choose instead: jobs are not requeued, nodes differ, memory is allocated and limited, and each partition has its
# own preemption.
STRICT = """\
JobRequeue=0
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=400
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
PreemptMode=CANCEL
PartitionName=patient Nodes=ALL PriorityTier=1 PreemptMode=CANCEL GraceTime=20
PartitionName=requeue Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE
"""
# Suspension needs GANG, which ignores GraceTime.
SUSPENDING = """\
PreemptMode=GANG,SUSPEND
PartitionName=main Nodes=ALL Default=YES PriorityTier=1 PreemptMode=CANCEL
PartitionName=suspend Nodes=ALL PriorityTier=1 PreemptMode=SUSPEND
"""
KINDS = {"plain": "", "strict": STRICT, "suspending": STRICT + SUSPENDING,
         "user-signal": STRICT + "SlurmctldParameters=preempt_send_user_signal\n"}
NEW_NAMES = {"SlurmctldParameters=preempt_": "PreemptParameters="}  # since 23.11
EVEN = (8, 8, 8, 8), (4000, 4000, 4000, 4000)  # processors and memory of the nodes
UNEVEN = (8, 4, 16, 2), (6000, 4000, 8000, 3000)


def missing_programs():
    return [name for name in PROGRAMS if shutil.which(name, path=SBIN) is None]


def why_not():
    """Returns why no virtual cluster can be started here; None if one can."""
    missing = missing_programs()
    if missing:
        return f"no {', '.join(missing)} here (packages slurmd slurmctld slurm-client munge openmpi-bin util-linux)"
    probe = subprocess.run([*namespace(), "true"], capture_output=True, text=True)
    return None if probe.returncode == 0 else f"no namespaces for virtual nodes here ({probe.stderr.strip()})"


def namespace(*more):
    user = [] if os.getuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
    return ["unshare", *user, *more, "--uts", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]


PORTS = 8  # a cluster's
claims = []  # sockets whose names keep other clusters from this process's ports until it ends


def free_ports():
    """The first of PORTS consecutive ports below the range of outgoing connections."""
    while True:
        first = random.randrange(20000, 32000, PORTS)
        sockets = [socket.socket(socket.AF_UNIX)] + [socket.socket() for _ in range(PORTS)]
        try:
            sockets[0].bind(f"\0lockstep-test-ports-{first}")
            for port, one in enumerate(sockets[1:], first):
                one.bind(("0.0.0.0", port))
            claims.append(sockets.pop(0))
            return first
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _processes_of(pid):
    """The process-id namespace of a process; None if the process is gone."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return None


def die_with_parent():
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def until(condition, what, seconds=SECONDS, poll=0.02):
    """Waits until `condition()` is true, and returns its value. `what` is the failure's text, or a function that returns it."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(poll)


class VirtualCluster:
    """Slurm's daemons in `folder`, whose path must be short enough for a socket's name. With `dies_with_us`, they end with this
    process however it ends. `kind` is one of KINDS."""

    def __init__(self, folder, dies_with_us=False, kind="plain"):
        self.dies_with_us = dies_with_us
        self.kind = kind
        self.network = None  # a VirtualNetwork, which this process must have entered; None: all nodes share this machine's loopback
        self.node_timeout = 60  # seconds; on a busy machine a live node may get no CPU time for a while
        self.folder = pathlib.Path(folder).resolve()
        assert len(str(self.folder)) <= 60, f"{self.folder} is too long for a socket's name (60 characters at most)"
        self.configuration = self.folder / "slurm.conf"

    def environment(self):
        """The environment in which a user's shell can use this cluster, and Open MPI on it."""
        interface = self.network.INTERFACE if self.network else "lo"
        return {"SLURM_CONF": str(self.configuration), "PATH": SBIN,
                "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,vader,tcp", "OMPI_MCA_osc": "^ucx",
                "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
                "OMPI_MCA_btl_tcp_if_include": interface, "OMPI_MCA_oob_tcp_if_include": interface,
                "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_orte_tmpdir_base": str(self.folder / "tmp")}

    def start(self):
        assert not self._pid_file("slurmctld").exists(), f"a cluster was already started in {self.folder}"
        for name in ("run", "log", "state", "tmp"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        # Open MPI 4.1 removes a node's session folder with the last job there, while the next job may be creating it, and fails.
        for node in NODES:
            for user in {0, os.getuid()}:
                (self.folder / "tmp" / f"ompi.{node}.{user}" / "kept").mkdir(parents=True, exist_ok=True)
        for name in (".", "run"):
            (self.folder / name).chmod(0o755)  # munged requires it
        self._configure()
        key = self.folder / "run" / "munge.key"
        key.unlink(missing_ok=True)
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        try:
            self._start_daemons(key)
        except BaseException:
            logs = [f"{log}:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-8:])
                    for log in sorted((self.folder / "log").glob("*.log"))]
            print("\n".join(logs), file=sys.stderr)
            self.stop()
            raise
        return self

    def stop(self):
        """Ends all daemons; safe to call twice."""
        if self._running("slurmctld"):
            self._client("scancel", "--full", "-u", str(os.getuid()))
        for node in NODES:
            self.kill_node(node)
        for name in ("slurmctld", "munged"):
            self._end(name)

    def become(self, kind):
        """Starts anew with other settings, unless it has these."""
        if kind != self.kind:
            self.stop()
            shutil.rmtree(self.folder)
            self.kind = kind
            self.start()

    def kill_node(self, node):
        """A power failure: all processes on the node die at once."""
        pid = self._running(node)
        for init in children(pid) if pid else []:
            os.kill(init, signal.SIGKILL)
        self._end(node)

    def start_node(self, node):
        for kind in ("spool", "tmp"):  # remains of a dead node would break the next step with the same number
            shutil.rmtree(self.folder / f"{kind}-{node}", ignore_errors=True)
            (self.folder / f"{kind}-{node}").mkdir()
        connect, own = ("", ()) if self.network is None else (self.network.setup(node) + "; ", ("--net",))
        inside = (f"{connect}hostname {node}; mount -t tmpfs -o mode=1777 shm /dev/shm; {self._slurmd(node)} & "
                  "while :; do sleep 1000 & wait; done")
        # Each node assumes that it has the whole machine; with one core each, the nodes share the cores evenly.
        cores = sorted(os.sched_getaffinity(0))
        core = cores[NODES.index(node) % len(cores)]
        self._spawn(node, ["taskset", "--cpu-list", str(core), *namespace(*own), "bash", "-c", inside])
        if self.network:
            self.network.attach(node, self._running(node))

    def configure(self, name, seconds):
        """Changes a setting of slurm.conf."""
        text, changes = re.subn(rf"(?m)^{name}=\d+$", f"{name}={seconds}", self.configuration.read_text())
        assert changes == 1, text
        self.configuration.write_text(text)
        self._client("scontrol", "reconfigure")

    def kill_slurmd(self, node):
        """Kills only slurmd; the job's processes on the node continue."""
        for process in self._slurmd_processes(node):
            os.kill(process, signal.SIGKILL)

    def start_slurmd(self, node):
        """Restarts slurmd on a running node. --root is needed if everything runs in a separate root, which --mount leaves."""
        init = str(children(self._running(node))[0])
        user = [] if os.getuid() == 0 else ["--user", "--preserve-credentials"]
        self._spawn(f"{node}.again", ["nsenter", "-t", init, *user, "--mount", "--uts", "--pid", "--root", "--",
                                      *self._slurmd(node).split()])

    def restore_slurmd(self, node):
        """Waits until Slurm accepts the node again. slurmd sometimes hangs at the step daemons of an old job, and is restarted, as an
        operator would do."""
        def started():
            return re.search(r"SlurmdStartTime=(\S+)", self._client("scontrol", "show", "node", node))[1]

        before = started()
        for attempt in (1, 2, 3):
            self.start_slurmd(node)
            try:
                until(lambda: started() != before and
                      self._client("sinfo", "-h", "-n", node, "-p", "main", "-o", "%t").strip() in ("idle", "mix", "alloc"),
                      lambda: f"{node} is not back:\n" + self._state_of(node), seconds=30, poll=0.2)
                return
            except AssertionError as error:
                print(f"   slurmd of {node}, start {attempt}: {error}", flush=True)
                self.kill_slurmd(node)
        raise AssertionError(f"{node} does not come back")

    def _state_of(self, node):
        """Slurm's record of the node, the log of its daemon, and its processes."""
        said = [(self.folder / "log" / name).read_text(errors="replace")[-2000:]
                for name in (f"{node}.again.out", f"slurmd-{node}.log")]
        processes = ["process parent state in what"]
        for pid in self._processes(node):
            try:
                stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                processes.append(f"{pid} {stat[1]} {stat[0]} {pathlib.Path(f'/proc/{pid}/wchan').read_text()} " +
                                 pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")[:100])
            except OSError:
                continue
        return "\n".join([self._client("scontrol", "show", "node", node), *said, *processes])

    def _processes(self, node):
        """All processes of the node."""
        inside = {_processes_of(init) for init in children(self._running(node) or 0)}
        return [int(one.name) for one in pathlib.Path("/proc").iterdir()
                if one.name.isdigit() and _processes_of(int(one.name)) in inside]

    def holds(self, pid):
        """Whether the process runs on one of the nodes."""
        inits = [init for node in NODES for init in children(self._running(node) or 0)]
        return _processes_of(pid) in {_processes_of(init) for init in inits} - {None}

    def log_of(self, job):
        """The controller's log of a job, and of nodes that did not respond."""
        of_it = re.compile(rf"JobId={job}\b|not responding|node_fail", re.IGNORECASE)
        return [line for line in (self.folder / "log" / "slurmctld.log").read_text().splitlines() if of_it.search(line)]

    def until_idle(self):
        """Waits until all nodes are idle."""
        until(lambda: self._client("sinfo", "-h", "-p", "main", "-t", "idle", "-o", "%D").strip() == str(len(NODES)),
              lambda: "idle nodes\n" + self._client("sinfo", "-N", "-l"), poll=0.05)

    def _configure(self):
        port = free_ports()
        user = subprocess.run(["id", "-un"], check=True, capture_output=True, text=True).stdout.strip()

        def address(node=None):
            return self.network.address(node) if self.network else "127.0.0.1"

        text = CONFIGURATION.format(host=socket.gethostname().split(".")[0], address=address(), port=port, user=user,
                                    folder=self.folder, node_timeout=self.node_timeout, kill_wait=KILL_WAIT)
        version = subprocess.run(["slurmctld", "-V"], check=True, capture_output=True, text=True, env={"PATH": SBIN}).stdout
        settings = KINDS[self.kind]
        for old, new in NEW_NAMES.items() if int(re.search(r"\d+", version)[0]) >= 24 else ():
            settings = settings.replace(old, new)
        for line in settings.splitlines():
            name = line.split()[0] if " " in line else line.split("=")[0]
            text = re.sub(rf"(?m)^{name}\b.*\n", "", text) + line + "\n"
        for i, (node, processors, memory) in enumerate(zip(NODES, *(EVEN if self.kind == "plain" else UNEVEN)), 1):
            text += (f"NodeName={node} NodeHostname={node} NodeAddr={address(node)} Port={port + i} CPUs={processors} "
                     f"RealMemory={memory}\n")
        self.configuration.write_text(text)
        # Nothing here uses control groups, but Slurm would look for the system's, which a container may lack.
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        # With the default fence, MPI_Init sometimes crashes or hangs on virtual nodes.
        (self.folder / "mpi.conf").write_text("PMIxCollFence=ring\nPMIxTimeout=30\n")

    def _start_daemons(self, key):
        run, log = self.folder / "run", self.folder / "log"
        socket_path = run / "munge.socket"
        self._spawn("munged", ["munged", "--foreground", f"--key-file={key}", f"--socket={socket_path}",
                               f"--pid-file={run}/munged.pid", f"--log-file={log}/munged.log",
                               f"--seed-file={run}/munged.seed"])
        until(lambda: subprocess.run(["munge", "-n", "-S", socket_path], capture_output=True).returncode == 0,
              "munged")
        self._spawn("slurmctld", ["slurmctld", "-D", "-i", "-f", str(self.configuration)])
        for node in NODES:
            self.start_node(node)
        self.until_idle()

    def _slurmd(self, node):
        return f"slurmd -D -N {node} -f {self.configuration}"

    def _slurmd_processes(self, node):
        inside = [init for init in children(self._running(node))]
        inside += [child for init in inside for child in children(init)]
        again = self._running(f"{node}.again")
        inside += [again, *children(again)] if again else []
        return [pid for pid in inside if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "slurmd"]

    def _pid_file(self, name):
        return self.folder / "run" / f"{name}.process"

    def _running(self, name):
        """The process id under which it was started, if it still runs."""
        try:
            pid = int(self._pid_file(name).read_text())
        except (FileNotFoundError, ValueError):
            return None
        return pid if is_alive(pid) else None

    def _spawn(self, name, command):
        with open(self.folder / "log" / f"{name}.out", "ab") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                       start_new_session=True, env={**os.environ, **self.environment()},
                                       preexec_fn=die_with_parent if self.dies_with_us else None)
        self._pid_file(name).write_text(str(process.pid))

    def _end(self, name):
        pid = self._running(name)
        for sent in (signal.SIGTERM, signal.SIGKILL) if pid else ():
            try:
                os.kill(pid, sent)
                until(lambda: not is_alive(pid), name, seconds=5)
                break
            except ProcessLookupError:
                break
            except AssertionError:
                continue
        self._pid_file(name).unlink(missing_ok=True)

    def _client(self, *command):
        """Returns the output of a Slurm command; empty if there is no answer."""
        try:
            return subprocess.run(command, env={**os.environ, **self.environment()}, capture_output=True, text=True,
                                  timeout=10).stdout
        except subprocess.TimeoutExpired:
            return ""


def main():
    commands = {"start": (), "stop": (), "env": (), "kill-node": NODES, "start-node": NODES, "kill-slurmd": NODES,
                "start-slurmd": NODES}
    command, *rest = sys.argv[1:] or [""]
    expected = 2 if commands.get(command) else 1
    if command == "start" and len(rest) == 2 and rest[1] in KINDS:
        kind = rest.pop()
    else:
        kind = "plain"
    if command not in commands or len(rest) != expected:
        sys.exit(__doc__)
    cluster = VirtualCluster(rest[0], kind=kind)
    if command == "env":
        print("\n".join(f"export {name}={shlex.quote(value)}" for name, value in cluster.environment().items()))
        return
    if command == "start" and why_not():
        sys.exit(f"virtual_cluster: {why_not()}")
    getattr(cluster, command.replace("-", "_"))(*rest[1:])


if __name__ == "__main__":
    main()
