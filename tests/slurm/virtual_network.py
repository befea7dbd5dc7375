"""A network of its own for a virtual cluster, whose links can be cut. The machine's network is not changed."""

import ctypes
import os
import re
import shutil
import subprocess
import time

PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
CLONE_NEWNET = 0x40000000


def why_not():
    """Returns why there can be no such network here; None if there can."""
    if os.geteuid() != 0:
        return "a network of virtual nodes needs root"
    if shutil.which("ip", path=PATH) is None:
        return "no ip here (package iproute2)"
    probe = subprocess.run(["unshare", "--net", "sh", "-c", "ip link add eth0 type bridge && ip link add port type veth peer name eth1"],
                           capture_output=True, text=True, env={**os.environ, "PATH": PATH})
    return None if probe.returncode == 0 else f"no network namespaces with links here ({probe.stderr.strip()})"


def _ip(words):
    subprocess.run(["ip", *words.split()], check=True, env={**os.environ, "PATH": PATH})


class VirtualNetwork:
    """Moves this process, and what it starts from now on, into a network namespace with a bridge. Each node is in a separate one, whose
    only link leads to that bridge."""

    INTERFACE = "eth0"

    def __init__(self):
        assert ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        for words in ("link set lo up", "link add eth0 type bridge", f"addr add {self.address()}/24 dev eth0", "link set eth0 up"):
            _ip(words)

    @staticmethod
    def address(node=None):
        """The address of a node; without one, of this process."""
        return f"10.77.0.{re.search('[0-9]+$', node)[0] if node else 254}"

    def setup(self, node):
        """Commands for the node's shell, which wait for its link."""
        return ("until ip link set eth0 up 2>/dev/null; do sleep 0.05; done; ip link set lo up; "
                f"ip addr add {self.address(node)}/24 dev eth0")

    def attach(self, node, pid):
        """Connects the node in whose namespace the process is, as soon as it is there."""
        own, deadline = os.readlink("/proc/self/ns/net"), time.monotonic() + 30
        while os.readlink(f"/proc/{pid}/ns/net") == own:
            assert time.monotonic() < deadline, f"{node} has no network namespace"
            time.sleep(0.01)
        subprocess.run(["ip", "link", "del", f"port-{node}"], capture_output=True, env={**os.environ, "PATH": PATH})  # of an earlier life
        # With the address of its earlier life, which the other nodes remember.
        hardware = f"02:00:00:00:00:{int(self.address(node).rpartition('.')[2]):02x}"
        _ip(f"link add port-{node} type veth peer name eth0 address {hardware} netns {pid}")
        _ip(f"link set port-{node} master eth0 up")

    def cut(self, node):
        """From now on nothing that the node sends arrives anywhere, and it receives nothing; its interface stays up."""
        _ip(f"link set port-{node} nomaster")

    def restore(self, node):
        _ip(f"link set port-{node} master eth0")
