#!/usr/bin/env python3
"""Tests which ports a run opens on one node, and that strangers who flood them change nothing."""

import re
import socket

from harness import *  # noqa: F403
from listening import ESTABLISHED, LISTENS, documented, listens_on, sockets

FAULTS = os.environ["LOCKSTEP_TEST_FAULTS"]
HOST = socket.gethostname()
NOBODY = 65534


def await_what(condition, process, seconds=SECONDS):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)


def stop(process):
    process.send_signal(signal.SIGUSR1)
    status, output = finish(process)
    assert status == STOPPED, f"{status}\n{output}"


def is_open_mpi_4():
    # mpiexec calls itself OpenRTE.
    version = subprocess.run([MPIRUN[0], "--version"], capture_output=True, text=True).stdout
    return re.search(r"\((Open MPI|OpenRTE)\) 4\.", version) is not None


def require_open_mpi_4():
    if not is_open_mpi_4():
        raise Skipped("the ports are those of Open MPI 4")


def the_ports_of_a_run_on_one_node_are_those_documented(folder):
    require_open_mpi_4()
    data = write_shards(folder / "data", samples=4000)
    rank = documented("rank, all ranks on one node", "watchdog")
    daemon = documented("`mpirun`, `orted` of Open MPI 4.1", "starting ranks") + documented("`mpirun`, `orted` of Open MPI 4.1", "messages")
    assert (rank, sorted(daemon)) == (["127.0.0.1"], ["0.0.0.0", "127.0.0.1", "::"]), (rank, daemon)
    for ranks, options, expected in ((2, [], rank), (4, [], rank), (2, ["--watchdog-seconds", 0], [])):
        run_dir = folder / f"run{ranks}{len(options)}"
        process = start(train_args(data, run_dir, "--epochs", 500, *options), ranks)
        wait_for_step(run_dir, 2, process)
        found = {number: listens_on(pid) for number, pid in ranks_of(process).items()}
        assert found == {number: expected for number in range(ranks)}, found
        assert listens_on(process.pid) == sorted(daemon), listens_on(process.pid)
        stop(process)
        assert "MPI: transports self,vader (all ranks are on one node)" in (run_dir / "log" / "rank-00000.log").read_text()


def descendants(pid):
    """`doctor` starts MPI in a child of the launcher's process."""
    found = []
    for child in map(int, subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()):
        found += [child, *descendants(child)]
    return found


def ever_listened(process):
    """All addresses on which the ranks of a command have listened before it ended."""
    found = set()
    while process.poll() is None:
        for pid in descendants(process.pid):
            found.update(listens_on(pid))
        time.sleep(0.002)
    return found


def commands_without_a_watchdog_listen_nowhere(folder):
    require_open_mpi_4()
    data = write_shards(folder / "data")
    for args in (["bench", "allreduce", "--steps", 1, "--warmup", 0], ["doctor", "--data", data],
                 ["bench", "step", "--model", "mini-resnet", "--width", "8", "--image-size", 32, "--batch-size", 4, "--threads", 1]):
        process = start(args, 2)
        found = ever_listened(process)
        status, output = finish(process)
        assert status == OK and not found, f"{args}: {status} {found}\n{output}"


def own_address():
    """An address of this host that is not of the loopback interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with contextlib.suppress(OSError):
            probe.connect(("192.0.2.1", 9))  # sends nothing
            return probe.getsockname()[0]
    raise Skipped("there is no network but loopback")


def all_ranks_listen_on_the_chosen_network_alone(folder):
    data, address = write_shards(folder / "data", samples=4000), own_address()
    process = start(train_args(data, folder / "run", "--epochs", 500, "--watchdog-interface", f"{address}/32"), 2)
    wait_for_step(folder / "run", 2, process)
    found = {rank: listens_on(pid) for rank, pid in ranks_of(process).items()}
    stop(process)
    assert found == {0: [address], 1: [address]}, found


def doctor_listens_on_the_chosen_network_alone(folder):
    require_open_mpi_4()
    data, address = write_shards(folder / "data"), own_address()
    for options, expected in (([], {"::"}), (["--watchdog-interface", f"{address}/32"], {address})):
        launch = command(["doctor", "--data", data, "--timeout", 4, *options], 3)
        at = launch.index(LOCKSTEP)
        # The ranks take themselves to be on nodes of their own; MPI knows better. The last hangs, so that the others wait.
        launch[at:at] = ["env", f"LD_PRELOAD={os.environ['LOCKSTEP_DOCTOR_FAULTS']}", "DOCTOR_FAULT_NODES=1", f"DOCTOR_FAULT_SILENT=2:{data}"]
        process = subprocess.Popen(launch, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(), process_group=0)
        found = ever_listened(process)
        status, output = finish(process)
        # On a busy machine its network is slow, which is a warning.
        reached = re.search(r"^(ok|warn) +nodes ", output, re.M)
        assert status == 1 and reached and found == expected, f"{status} {found}\n{output}"


def the_users_transports_of_mpi_are_kept(folder):
    require_open_mpi_4()
    data = write_shards(folder / "data", samples=4000)
    process = start(train_args(data, folder / "run", "--epochs", 500), 2, {"OMPI_MCA_btl": "self,vader,tcp"})
    wait_for_step(folder / "run", 2, process)
    found = listens_on(ranks_of(process)[0])
    stop(process)
    assert found == ["0.0.0.0", "127.0.0.1", "::"], found


# Keeps 3,000 connections to a port open, of which some are silent, some begin a message, and some send a wrong one.
FLOOD = """
import os, resource, selectors, signal, socket, sys
signal.alarm(170)
limit = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 4000)
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
texts = [b"", b"x", bytes([64, 0, 0, 0, 0]) + bytes(64), b"GET / HTTP/1.0\\r\\n\\r\\n", bytes([72, 0, 0, 0, 2]) + os.urandom(70)]
open_ones, count = [], 0
while True:
    for place in range(min(3000, limit - 50)):
        try:
            if place < len(open_ones):
                try:
                    if open_ones[place].recv(4096):
                        continue
                except BlockingIOError:
                    continue
                except OSError:
                    pass
                open_ones[place].close()
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", int(sys.argv[1])))
            text = texts[count % len(texts)]
            count += 1
            if text:
                one.send(text)
        except OSError:
            pass
        open_ones[place:place + 1] = [one]
"""


@contextlib.contextmanager
def flood(ports):
    """By another user, if this one may."""
    as_nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    strangers = [subprocess.Popen([sys.executable, "-c", FLOOD, str(port)], cwd="/", env={}, stderr=subprocess.DEVNULL, **as_nobody)
                 for port in ports]
    try:
        yield strangers
    finally:
        for stranger in strangers:
            stranger.kill()
            stranger.wait()


def watchdog_port(pid):
    return next((port for address, port, _ in sockets(pid, LISTENS) if address == "127.0.0.1"), None)


def are_joined(process):
    """Whether the watchdog of rank 1 is connected to that of rank 0."""
    ranks = ranks_of(process)
    port = watchdog_port(ranks[0])
    callers = {port for _, port, _ in sockets(ranks[1], ESTABLISHED)}
    return any(own == port and peer in callers for _, own, peer in sockets(ranks[0], ESTABLISHED))


def a_flood_by_another_user_neither_keeps_ranks_apart_nor_hides_a_hang(folder):
    data = write_shards(folder / "data", samples=4000)
    run_dir = folder / "run"
    # Rank 1 connects to its parent only when the flood has begun.
    process = start(train_args(data, run_dir, "--epochs", 500, "--watchdog-seconds", 6), 2,
                    {"LD_PRELOAD": FAULTS, "LOCKSTEP_TEST_FAULT": "1:late:1:4"})
    await_what(lambda: len(ranks_of(process)) == 2 and all(map(watchdog_port, ranks_of(process).values())), process)
    ranks = ranks_of(process)
    with flood([watchdog_port(pid) for pid in ranks.values()]) as strangers:
        assert not are_joined(process)
        await_what(lambda: are_joined(process), process, 55)  # a rank tries for a minute
        wait_for_step(run_dir, 3, process)
        time.sleep(3)  # its watchdog has reported steps
        assert all(stranger.poll() is None for stranger in strangers) and are_joined(process)
        assert len(os.listdir(f"/proc/{ranks[0]}/fd")) < 64 + 100
        os.kill(ranks[1], signal.SIGSTOP)
        status, output = finish(process)
    assert status == INTERNAL, f"{status}\n{output}"
    line = next(line for line in output.splitlines() if "no rank has made progress" in line)
    assert re.search(rf"rank 1 \({re.escape(HOST)}\) was last heard of \d+\.\d s ago, in .* of step \d+", line), line


if __name__ == "__main__":
    main([the_ports_of_a_run_on_one_node_are_those_documented, commands_without_a_watchdog_listen_nowhere,
          all_ranks_listen_on_the_chosen_network_alone, doctor_listens_on_the_chosen_network_alone, the_users_transports_of_mpi_are_kept,
          a_flood_by_another_user_neither_keeps_ranks_apart_nor_hides_a_hang])
