#!/usr/bin/env python3
"""Tests the laboratory itself: its links have their rate, delay and losses, and can be cut."""

import virtual_nodes
from network_harness import *  # noqa: F403
from virtual_nodes import Link, VirtualNodes, address

# Echoes each datagram, and counts the bytes of one connection.
SERVER = """
import socket, threading
udp, tcp = socket.socket(type=socket.SOCK_DGRAM), socket.create_server(("", 7000))
udp.bind(("", 7000))
def echo():
    while True:
        udp.sendto(*udp.recvfrom(2000))
threading.Thread(target=echo, daemon=True).start()
print("ready", flush=True)
peer = tcp.accept()[0]
while peer.recv(1 << 20):
    pass
"""
# Prints the fastest round trip, the share of 400 datagrams whose echo did not return, and bytes per second of a transfer.
CLIENT = """
import socket, sys, time
udp, trips = socket.socket(type=socket.SOCK_DGRAM), {}
udp.connect((sys.argv[1], 7000))
for i in range(700):
    udp.settimeout(None)  # a busy machine may hold up a send, too
    if i < 400:
        udp.send(f"{i} {time.monotonic()}".encode())
    udp.settimeout(0.002)
    try:
        number, sent = udp.recv(2000).split()
        trips[number] = time.monotonic() - float(sent)
    except TimeoutError:
        pass
size, begin = int(sys.argv[2]), time.monotonic()
tcp = socket.create_connection((sys.argv[1], 7000), timeout=30)
tcp.sendall(bytes(size))
tcp.shutdown(socket.SHUT_WR)
tcp.recv(1)
print(min(trips.values()), 1 - len(trips) / 400, size / (time.monotonic() - begin))
"""


def measure(lab, node, size):
    """The round trip from node 0, the share of lost echoes and the rate."""
    server = lab.inside(node, [sys.executable, "-c", SERVER])
    assert server.stdout.readline() == "ready\n"
    client = lab.inside(0, [sys.executable, "-c", CLIENT, address(node), size])
    output, _ = client.communicate(timeout=60)
    assert client.returncode == 0, output
    server.wait(timeout=30)
    return [float(word) for word in output.split()]


def links_are_as_they_were_asked_for(folder):
    require(virtual_nodes.why_no_links())
    with VirtualNodes(folder / "nodes", 4, "100mbit", {1: Link("4mbit", 0.02), 2: Link(loss=0.05)}) as lab:
        # Rates have no narrow lower limits: on a busy machine, the processes that send are slow.
        trip, lost, rate = measure(lab, 3, 2_000_000)
        assert trip < 0.01 and lost < 0.01 and 0.6e6 < rate < 13e6, (trip, lost, rate)
        trip, lost, rate = measure(lab, 1, 500_000)
        assert 0.04 < trip < 0.08 and lost < 0.01 and 0.1e6 < rate < 0.5e6, (trip, lost, rate)
        trip, lost, _ = measure(lab, 2, 1000)
        assert trip < 0.01 and 0.04 < lost < 0.17, (trip, lost)  # twice a link: 9.75 %, and four standard deviations


if __name__ == "__main__":
    main([links_are_as_they_were_asked_for])
