#!/usr/bin/env python3
"""Tests lockstep doctor: it accepts a healthy machine, and finds and names each fault that is planted here."""

import json
import os
import subprocess

from harness import *  # noqa: F403

UNFIT = 1
OPEN_MPI_5 = "Open MPI) 5." in subprocess.run([MPIRUN[0], "--version"], stdout=subprocess.PIPE, text=True).stdout
# Without these variables, Open MPI 4 would look for the PMI of a Slurm step that does not exist; Open MPI 5 then starts alone.
ALONE = {} if OPEN_MPI_5 else {"OMPI_MCA_pmix": "isolated", "OMPI_MCA_ess": "singleton"}
FAULTS = os.environ.get("LOCKSTEP_DOCTOR_FAULTS", "")
HOST_MODULE = os.environ.get("LOCKSTEP_TEST_HOST_MODULE", "")


def diagnose(*args, ranks=1, faults=None, env=None, expect=OK, wrap=None):
    """The findings of --json, by check. A library that is loaded before MPI's and libc plants the `faults`."""
    planted = {f"DOCTOR_FAULT_{name}": str(value) for name, value in (faults or {}).items()}
    if planted:
        planted["LD_PRELOAD"] = ":".join([FAULTS, *PRELOAD.values()])
    launch = command(["doctor", "--json", *args], ranks)
    if ranks > 1 and planted:
        # Sets them for the ranks, not for their launcher.
        at = launch.index(LOCKSTEP)
        launch = [*launch[:at], "env", *(f"{k}={v}" for k, v in planted.items()), *launch[at:]]
        planted = {}
    done = subprocess.run([*(wrap or []), *map(str, launch)], env=environment({**planted, **(env or {})}), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS)
    assert done.returncode == expect, f"status {done.returncode}, expected {expect}\n{done.stdout}\n{done.stderr}"
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(results) == 1, f"not one result:\n{done.stdout}\n{done.stderr}"
    assert results[0]["fit"] == (expect == OK), results[0]
    return {check["check"]: check for check in results[0]["checks"]}


def expect_finding(findings, check, verdict, *words):
    finding = findings[check]
    assert finding["verdict"] == verdict, finding
    for word in words:
        assert word in finding["text"], f"'{word}' is not in {finding}"


def a_healthy_machine_is_fit(folder):
    data = write_shards(folder / "data")
    for ranks in (1, 2):
        found = diagnose("--data", data, "--run-dir", folder / "runs" / "here", ranks=ranks)
        assert list(found) == ["ranks", "cores", "gpus", "neighbours", "nodes", "clock", "data", "run-dir", "space"], found
        assert not [f for f in found.values() if f["verdict"] == "fail"], found
        for check in ("ranks", "gpus", "neighbours", "nodes", "clock", "data", "run-dir", "space"):
            expect_finding(found, check, "ok")
        assert found["ranks"]["values"]["ranks"] == ranks
        assert list(folder.iterdir()) == [data], "it left files behind"
    lines = run(["doctor", "--data", data], ranks=2).splitlines()
    assert any(line.startswith("ok    data ") for line in lines) and "not checked: --run-dir" in lines, lines
    assert lines[-1] == "fit to train", lines


def separate_nodes_are_fit(folder):
    data = write_shards(folder / "data")
    found = diagnose("--data", data, "--run-dir", folder / "run", ranks=4, faults={"NODES": 1})
    assert found["ranks"]["values"]["nodes"] == 4 and found["nodes"]["values"]["pairs"] == 6, found
    assert found["nodes"]["verdict"] != "fail", found
    expect_finding(found, "run-dir", "ok", "between nodes")
    expect_finding(found, "clock", "ok")
    expect_finding(found, "data", "ok", "4 nodes")


def worlds_of_one_are_found(folder):
    found = diagnose(env={"SLURM_NTASKS": "4"}, expect=UNFIT)
    expect_finding(found, "ranks", "fail", "Slurm's count is 4", "--mpi=pmix")
    # As under srun with another PMI: each task is a world of one rank.
    step = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4"}
    daemon = folder / "slurmstepd"
    daemon.symlink_to(shutil.which("sh"))
    under_srun = [daemon, "-c", '"$@"; exit $?', "-"]
    found = diagnose(env={**step, "SLURM_PROCID": "0", **ALONE}, expect=UNFIT, wrap=under_srun)
    expect_finding(found, "ranks", "fail", "srun started 4", "world of its own")
    silent = subprocess.run([*under_srun, LOCKSTEP, "doctor"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=environment({**step, "SLURM_PROCID": "3", **ALONE}), timeout=SECONDS)
    assert silent.returncode == UNFIT and not silent.stdout, f"other tasks print, too: {silent}"


def oversubscribed_cores_are_found(folder):
    found = diagnose(ranks=3, wrap=["taskset", "-c", "0"])
    expect_finding(found, "cores", "warn", "3 ranks share 1 core", "--cpus-per-task")


def a_start_that_hangs_is_found(folder):
    found = diagnose("--timeout", 8, ranks=3, faults={"START": 1}, expect=UNFIT)
    assert list(found) == ["mpi"], found
    expect_finding(found, "mpi", "fail", "nothing within the 8 s", "process 0 of 3")


def a_start_that_mpi_aborts_is_found(folder):
    found = diagnose(env={"OMPI_MCA_pml": "nothing"}, expect=UNFIT)
    expect_finding(found, "mpi", "fail", "the MPI library ended the process")


def unreachable_peers_are_found(folder):
    found = diagnose("--timeout", 8, ranks=4, faults={"NODES": 1, "LOST": "1:3"}, expect=UNFIT)
    expect_finding(found, "nodes", "fail", "node1 and node3 do not reach each other by MPI")
    found = diagnose("--timeout", 8, ranks=3, faults={"LOST": "1:2"}, expect=UNFIT)
    expect_finding(found, "neighbours", "fail", "ranks 1 and 2 do not reach each other")
    found = diagnose("--timeout", 8, ranks=3, faults={"NODES": 1, "LOST": "0:2"}, expect=UNFIT)
    expect_finding(found, "answers", "fail", "rank 2 at the first message")


def a_pair_that_fails_in_the_second_test_is_found(folder):
    # The pair is slow between neighbours and between nodes, so that it is tested again, and has failed by then.
    found = diagnose("--timeout", 6, ranks=2, faults={"NODES": 1, "FADE": "0:1:2"}, expect=UNFIT)
    expect_finding(found, "neighbours", "ok")
    expect_finding(found, "nodes", "fail", "node0 and node1 do not reach each other by MPI")


def what_is_slow_once_is_no_finding(folder):
    data = write_shards(folder / "data")
    again = "(the best of 3 measurements: "
    for runs, is_found in ((1, False), (9, True)):
        faults = {"NODES": 1, "READS": f"2:{runs}", "SLOW": f"1:3:{runs}", "RENAMES": runs}
        found = diagnose("--data", data, "--run-dir", folder / "run", ranks=4, faults=faults)
        for check, text in (("data", "node2 reads"), ("nodes", "move"), ("run-dir", "a rename in")):
            if is_found:
                expect_finding(found, check, "warn", text, again)
            elif check != "nodes":  # other pairs may be slow on a busy machine
                expect_finding(found, check, "ok")
        assert is_found == ("node1 and node3 move" in found["nodes"]["text"]), found["nodes"]


def an_examination_that_fails_ends_the_job(folder):
    data = write_shards(folder / "data")
    launch = command(["doctor", "--json", "--data", data], 2)
    at = launch.index(LOCKSTEP)
    faulty = ["env", f"LD_PRELOAD={FAULTS}", "DOCTOR_FAULT_THREADS=0"]
    done = subprocess.run([*map(str, [*launch[:at], *faulty, *launch[at:]])], env=environment(), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS)
    assert done.returncode == INTERNAL and "{" not in done.stdout, done
    assert "the examination failed on" in done.stderr and "Resource temporarily unavailable" in done.stderr, done.stderr
    # The examination continues if the thread that listens cannot be created.
    found = diagnose("--data", data, ranks=2, faults={"NODES": 1, "THREADS": 1})
    assert found["nodes"]["verdict"] != "fail", found


def unroutable_interfaces_are_named(folder):
    if OPEN_MPI_5:
        raise Skipped("Open MPI 5 connects ranks on nodes of other names by TCP, which the planted fault breaks, too")
    if not [line for line in pathlib.Path("/proc/net/route").read_text().splitlines()[1:]]:
        print("skipped: unroutable_interfaces_are_named: there is no network but loopback")
        return
    found = diagnose(ranks=3, faults={"NODES": 1, "CONNECT": 1})
    expect_finding(found, "nodes", "warn", "node1 does not reach node", "No route to host", "NCCL_SOCKET_IFNAME=^")


def an_interface_that_a_node_lacks_is_named(folder):
    found = diagnose("--watchdog-interface", "nosuch0", ranks=2, expect=UNFIT)
    expect_finding(found, "interface", "fail", "--watchdog-interface nosuch0 is not on this host (it has ", "lo 127.0.0.1)")
    found = diagnose("--watchdog-interface", "nosuch0,lo", ranks=3, faults={"NODES": 1})
    expect_finding(found, "interface", "ok", "every node has")


def a_node_that_hangs_at_its_file_system_is_named(folder):
    data = write_shards(folder / "data")
    for rank in (0, 1):
        found = diagnose("--data", data, "--timeout", 8, ranks=2, faults={"NODES": 1, "SILENT": f"{rank}:{data}"},
                         expect=UNFIT)
        expect_finding(found, "answers", "fail", f"rank {rank} (node{rank}) at --data")


def clocks_that_differ_are_found(folder):
    found = diagnose(ranks=3, faults={"NODES": 1, "CLOCK": "2:90"})
    expect_finding(found, "clock", "warn", "node2's clock is 90.0 s ahead", "--exclude=node2")


def missing_data_is_found(folder):
    (folder / "empty").mkdir()
    expect_finding(diagnose("--data", folder / "empty", expect=UNFIT), "data", "fail", "no shards of split train")
    expect_finding(diagnose("--data", folder / "nowhere", expect=UNFIT), "data", "fail", "nowhere")
    data = write_shards(folder / "data", shards=3)
    (data / "train-00001-of-00003.h5").unlink()
    expect_finding(diagnose("--data", data, ranks=2, expect=UNFIT), "data", "fail", "train-00001-of-00003.h5")


def mounted(options, directory):
    """A command prefix that mounts a file system at `directory` for the command only; None if that is impossible."""
    user = [] if os.geteuid() == 0 else ["-r"]
    script = f'mount -t tmpfs -o {options} none "$0" && exec "$@"'
    wrap = ["unshare", *user, "-m", "sh", "-c", script, str(directory)]
    return None if subprocess.run([*wrap, "true"], capture_output=True).returncode else wrap


def unusable_run_directories_are_found(folder):
    (folder / "file").write_text("in the way")
    expect_finding(diagnose("--run-dir", folder / "file", expect=UNFIT), "run-dir", "fail", "--run-dir")
    expect_finding(diagnose("--run-dir", "/proc/nowhere/run", expect=UNFIT), "run-dir", "fail", "/proc")
    found = diagnose("--run-dir", folder / "run", faults={"LOCKS": 1})
    expect_finding(found, "run-dir", "warn", "no file locks", "No locks available")
    # doctor waits beyond a short limit for files that a network file system shows late.
    found = diagnose("--run-dir", folder / "run", "--timeout", 3, ranks=2, faults={"NODES": 1, "APART": 1},
                     expect=UNFIT)
    expect_finding(found, "run-dir", "fail", "node1 does not see", "the directory is not shared")
    assert "answers" not in found, found
    place = folder / "mount"
    place.mkdir()
    wrap = mounted("size=64m,ro", place)
    if wrap is None:
        print("skipped: read-only and full file systems: none can be mounted here")
        return
    found = diagnose("--run-dir", place, wrap=wrap, expect=UNFIT)
    expect_finding(found, "run-dir", "fail", str(place), "Read-only file system")
    wrap = mounted("size=64m", place)
    found = diagnose("--run-dir", place, "--model", "resnet50", wrap=wrap, expect=UNFIT)
    expect_finding(found, "space", "fail", "a checkpoint of resnet50 takes 205", "no room")
    found = diagnose("--run-dir", place, "--model", "mini-resnet", "--width", 64, wrap=wrap, ranks=2)
    expect_finding(found, "space", "warn", "--keep")
    found = diagnose("--run-dir", place, "--model", "mini-resnet", "--width", 8, wrap=wrap)
    expect_finding(found, "space", "ok", "mini-resnet")


def nccl_is_measured_if_there_are_gpus(folder):
    if not HOST_MODULE:
        print("skipped: nccl_is_measured_if_there_are_gpus: no module that computes on the host")
        return
    module = {"LOCKSTEP_MODULE_PATH": HOST_MODULE}
    found = diagnose(ranks=2, env=module)
    expect_finding(found, "nccl", "ok", "all-reduce")
    assert found["nccl"]["values"]["bandwidth"] > 0, found
    found = diagnose(env=module)
    expect_finding(found, "gpus", "ok")
    assert "nccl" not in found, found
    found = diagnose(ranks=2, env={**module, "HOST_MODULE_SHARED": "1"}, expect=UNFIT)
    expect_finding(found, "nccl", "fail", "ranks 0 and 1 share GPU-shared")


def gpus_and_nccl_that_hang_are_found(folder):
    if not HOST_MODULE:
        print("skipped: gpus_and_nccl_that_hang_are_found: no module that computes on the host")
        return
    module = {"LOCKSTEP_MODULE_PATH": HOST_MODULE}
    found = diagnose("--timeout", 4, ranks=3, env={**module, "HOST_MODULE_HANG": "device:1"}, expect=UNFIT)
    expect_finding(found, "answers", "fail", "rank 1", "at opening its GPU")
    assert "nccl" not in found, found
    found = diagnose("--timeout", 4, ranks=3, env={**module, "HOST_MODULE_HANG": "nccl:2"}, expect=UNFIT)
    expect_finding(found, "nccl", "fail", "rank 2", "did not come to the start of NCCL within 4 s")
    expect_finding(found, "answers", "fail", "rank 2", "at NCCL")


def usage_errors_are_reported_before_mpi_starts(folder):
    for args, word in ((["--timeout", 0], "--timeout"), (["--model", "resnt50"], "resnet50"), (["--dta", "x"], "--data")):
        output = run(["doctor", *args], expect=USAGE)
        assert word in output, output
    assert "srun lockstep doctor" in run(["doctor", "--help"])


if __name__ == "__main__":
    main([a_healthy_machine_is_fit, separate_nodes_are_fit, worlds_of_one_are_found, oversubscribed_cores_are_found,
          a_start_that_hangs_is_found, a_start_that_mpi_aborts_is_found, unreachable_peers_are_found,
          unroutable_interfaces_are_named, an_interface_that_a_node_lacks_is_named, a_node_that_hangs_at_its_file_system_is_named,
          clocks_that_differ_are_found, missing_data_is_found, unusable_run_directories_are_found,
          a_pair_that_fails_in_the_second_test_is_found, what_is_slow_once_is_no_finding, an_examination_that_fails_ends_the_job,
          nccl_is_measured_if_there_are_gpus, gpus_and_nccl_that_hang_are_found, usage_errors_are_reported_before_mpi_starts])
