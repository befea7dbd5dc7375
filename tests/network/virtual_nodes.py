"""Virtual nodes on one machine: runs Open MPI's ranks on each, and counts the bytes that each sends.

A node is a separate namespace for network, host name and /dev/shm; files, process ids and cores are the machine's. Its only
link, eth0, leads to a bridge on another such node, `head`, where mpirun runs. The machine's network is not changed, and all
processes on the nodes end with the laboratory.
"""

import collections
import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

PROGRAMS = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux", "mpirun": "openmpi-bin"}
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
SECONDS = 30  # for one command of the set-up, which takes milliseconds

# Open MPI calls it like ssh: HOST COMMAND.
AGENT = """#!/bin/sh
pid=$(cat {folder}/$1) || exit 255
shift
exec {enter} sh -c "$*"
"""
# For Open MPI, each node is a separate host: ranks of a node share memory, ranks of different nodes use TCP over eth0.
SETTINGS = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_plm_rsh_no_tree_spawn": "1", "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
            "OMPI_MCA_oob_tcp_if_include": "eth0", "PRTE_MCA_prte_if_include": "eth0",
            "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,vader,tcp", "OMPI_MCA_osc": "^ucx",
            "OMPI_MCA_btl_tcp_if_include": "eth0", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
            "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_hwloc_base_binding_policy": "none"}


def why_not():
    """Returns why no virtual nodes can be created here; None if they can."""
    missing = [f"{name} (package {package})" for name, package in PROGRAMS.items() if shutil.which(name, path=PATH) is None]
    if missing:
        return f"no {', '.join(missing)} here"
    if os.geteuid() != 0:
        return "virtual nodes need root"
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, env={**os.environ, "PATH": PATH})
    if "Open MPI" not in version.stdout and "prte" not in version.stdout:
        return "mpirun is not Open MPI's"
    probe = subprocess.run(["unshare", "--net", "--uts", "--mount", "sh", "-c",
                            "ip link add eth0 type bridge && ip link add port0 type veth peer name eth1"],
                           capture_output=True, text=True, env={**os.environ, "PATH": PATH})
    return None if probe.returncode == 0 else f"no network namespaces with links here ({probe.stderr.strip()})"


def why_no_links():
    """Returns why no link can have a delay and losses here; None if one can."""
    return why_not() or why_not_open("/dev/net/tun")


def why_not_open(device):
    """Returns why this device cannot be opened here; None if it can."""
    try:
        os.close(os.open(device, os.O_RDWR))
    except OSError as error:
        return f"no {device} here ({error.strerror})"
    return None


def die_with_parent():
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def bytes_per_second(rate):
    """Of a rate in tc's notation, such as 1gbit."""
    return float(rate[:-4]) * {"mbit": 1e6, "gbit": 1e9}[rate[-4:]] / 8


def link_bytes_per_second(rate):
    """What TCP gets of a link of this rate: 1,448 bytes of values in a frame of 1,514."""
    return bytes_per_second(rate) * 1448 / 1514


# A link that differs from the others: its rate, in tc's notation (None: unlimited), its delay in seconds and the share of frames
# that it loses, both in each direction.
Link = collections.namedtuple("Link", "rate delay loss", defaults=(None, 0, 0))


def address(node):
    return f"10.77.0.{node + 1}"


class VirtualNodes:
    """A context manager; its files are in `folder`. `rate`: rate of each link in each direction, in tc's notation; None:
    unlimited. `links`: those of nodes, by number, that differ from the others."""

    def __init__(self, folder, count, rate=None, links=None):
        self.folder = pathlib.Path(folder)
        self.count = count
        self.rate = rate
        self.links = links or {}
        self.holders = []  # processes that hold the namespaces of the nodes and of head
        self.networks = []  # their network namespaces
        self.relays = []  # processes that forward the frames of `links`

    def __enter__(self):
        self.folder.mkdir()
        try:
            for node in range(self.count):
                self._hold(address(node), f"node{node}")
            head = self._hold("head", "head")
            self._configure(head)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for node in range(len(self.networks)):
            self._kill(node)
        for process in [*self.relays, *self.holders]:
            process.kill()
            process.wait()

    def start(self, command, ranks_per_node=1, env=None):
        """Starts the command under mpirun, in a separate process group."""
        hosts = ",".join(f"{address(node)}:{ranks_per_node}" for node in range(self.count))
        launch = ["mpirun", "--host", hosts, "--map-by", f"ppr:{ranks_per_node}:node", *map(str, command)]
        agent = str(self.folder / "agent")
        settings = {**os.environ, **SETTINGS, "PATH": PATH, "OMPI_MCA_plm_rsh_agent": agent, "PRTE_MCA_plm_ssh_agent": agent,
                    **(env or {})}
        return self.inside(-1, launch, stderr=subprocess.STDOUT, env=settings, process_group=0)

    def run(self, command, ranks_per_node=1, env=None, seconds=120):
        """Runs the command under mpirun; returns its status, its output, and the bytes that each node sent meanwhile."""
        before = self._sent()
        process = self.start(command, ranks_per_node, env)
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)  # mpirun ends its ranks
            output, _ = process.communicate(timeout=SECONDS)
            raise AssertionError(f"hang: {process.args}\n{output}")
        return process.returncode, output, [after - first for after, first in zip(self._sent(), before)]

    def inside(self, node, command, **options):
        """Starts the command on the node, without MPI."""
        return subprocess.Popen([*self._enter(self.holders[node].pid), *map(str, command)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, text=True, **options)

    def retransmitted(self, node):
        """TCP segments that the node has retransmitted."""
        lines = self._inside(self.holders[node], "cat /proc/net/snmp").splitlines()
        names, values = (line.split() for line in lines if line.startswith("Tcp:"))
        return int(values[names.index("RetransSegs")])

    def cut(self, node):
        """From now on, nothing that the node sends arrives anywhere, and it receives nothing; its interface stays up."""
        self._inside(self.holders[-1], f"ip link set port{node} nomaster")

    def restore(self, node):
        self._inside(self.holders[-1], f"ip link set port{node} master eth0")

    def processes(self, node, name="lockstep"):
        """Ids of the node's processes with this name; empty name: of all."""
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*/ns/net"):
            with contextlib.suppress(OSError):
                pid = int(entry.parts[2])
                if os.readlink(entry) == self.networks[node] and name in pathlib.Path(f"/proc/{pid}/comm").read_text():
                    found.append(pid)
        return found

    def wait_until_idle(self, node, name="lockstep"):
        """Waits for the node's processes with this name, which a killed launcher leaves to end by themselves."""
        deadline = time.monotonic() + SECONDS
        while left := self.processes(node, name):
            assert time.monotonic() < deadline, f"node {node + 1}: processes {left} have not ended in {SECONDS} s"
            time.sleep(0.05)

    def _kill(self, node):
        """Ends all processes on the node, unless its holder has ended and its namespace may be another's."""
        for pid in self.processes(node, name="") if self.holders[node].poll() is None else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @staticmethod
    def _enter(pid):
        # --root and --wd are needed if everything runs in a separate root, which --mount leaves.
        return ["nsenter", "-t", str(pid), "--net", "--uts", "--mount", "--root", f"--wd={os.getcwd()}", "--"]

    def _inside(self, holder, line):
        done = subprocess.run([*self._enter(holder.pid), *line.split()], capture_output=True, text=True, timeout=SECONDS,
                              env={**os.environ, "PATH": PATH})
        assert done.returncode == 0, f"{line}: {done.stderr}"
        return done.stdout

    def _hold(self, name, host):
        """Starts a process that holds a node's namespaces, and waits until they exist."""
        script = (f"hostname {host} && mount -t tmpfs -o size=25% shm /dev/shm && "
                  # A namespace may not use cubic, and bbr is rare in clusters.
                  "echo reno > /proc/sys/net/ipv4/tcp_congestion_control && "
                  "ip link set lo up && echo ready && exec sleep 1000000")
        holder = subprocess.Popen(["unshare", "--net", "--uts", "--mount", "sh", "-c", script],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent,
                                  env={**os.environ, "PATH": PATH})
        self.holders.append(holder)
        assert holder.stdout.readline() == "ready\n", f"no namespaces for {host}"
        self.networks.append(os.readlink(f"/proc/{holder.pid}/ns/net"))
        (self.folder / name).write_text(str(holder.pid))
        return holder

    def _configure(self, head):
        for line in ("ip link add eth0 type bridge", "ip addr add 10.77.0.254/24 dev eth0", "ip link set eth0 up"):
            self._inside(head, line)
        for node in range(self.count):
            if node in self.links:
                self._relay(head, node, self.links[node])
            else:
                self._inside(head, f"ip link add port{node} type veth peer name eth0 netns {self.holders[node].pid}")
            self._inside(head, f"ip link set port{node} master eth0 up")
            self._inside(self.holders[node], f"ip addr add {address(node)}/24 dev eth0")
            self._inside(self.holders[node], "ip link set eth0 up")
            shaped = self.rate and node not in self.links
            for holder, device in ((self.holders[node], "eth0"), (head, f"port{node}")) if shaped else ():
                # The limit is a switch's buffer.
                self._inside(holder, f"tc qdisc add dev {device} root tbf rate {self.rate} burst 128k limit 512k")
        agent = self.folder / "agent"
        agent.write_text(AGENT.format(folder=self.folder, enter=" ".join(self._enter("$pid"))))
        agent.chmod(0o755)

    def _relay(self, head, node, link):
        ends = [head.pid, f"port{node}", self.holders[node].pid, "eth0"]
        rate = bytes_per_second(link.rate) if link.rate else 0
        program = pathlib.Path(__file__).with_name("virtual_link.py")
        command = [sys.executable, program, *map(str, [*ends, rate, link.delay, link.loss])]
        self.relays.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                                            preexec_fn=die_with_parent))
        assert self.relays[-1].stdout.readline() == "ready\n", f"no link for node{node}"

    def _sent(self):
        return [json.loads(self._inside(holder, "ip -s -j link show eth0"))[0]["stats64"]["tx"]["bytes"]
                for holder in self.holders[:-1]]
