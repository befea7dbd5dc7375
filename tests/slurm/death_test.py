#!/usr/bin/env python3
"""Tests that a run survives the death of ranks, nodes and daemons on a real Slurm: it resumes by itself from its last checkpoint
and ends with the same bits as an undisturbed run. LOCKSTEP_KILLS: total number of killed ranks (20); LOCKSTEP_SEED: selects when
and which (1)."""

import random
import threading

from slurm_harness import *  # noqa: F403

KILLS = int(os.environ.get("LOCKSTEP_KILLS", 20))
SEED = int(os.environ.get("LOCKSTEP_SEED", 1))
NODE_TIMEOUT = 15  # seconds, for tests in which nodes die
PATIENT = 60


RANKS = 4
TWO_NODES = "--nodes=2 --ntasks-per-node=2 --time=60"
LONG = {"epochs": 8, "save_every": 5}  # 1600 steps, so that no kill comes after the end


CHAINS = {"srun-1": "srun", "mpirun-1": "mpirun", "srun-2": "srun", "mpirun-2": "mpirun"}  # run concurrently


def kill_repeatedly(folder, name, kills, failures):
    """Kills ranks of one run `kills` times, each time at a random moment after the run has made progress."""
    launcher = CHAINS[name]
    chance = random.Random(f"{SEED} {name}")
    run_dir = folder / f"run-killed-{name}"
    script = script_for(folder, run_dir, TWO_NODES, **LONG)
    job = submit(script, run_dir=run_dir, env={"TEST_LAUNCHER": launcher, "TEST_STALLED_RESTARTS": "3"})
    try:
        for kill in range(kills):
            # Most kills hit ranks at work; some hit ranks that start, before MPI, the lock or the checkpoint exists (not under mpirun:
            # Open MPI 4.1 then sometimes reports that a process died, and hangs).
            starting, rank = chance.random() < 0.3 and launcher == "srun", chance.randrange(RANKS)
            step, delay = job.step() + chance.randrange(1, 25), chance.uniform(0, 0.4 if starting else 0.05)
            print(f"   seed {SEED}, {name}, kill {kill + 1} of {kills}: rank {rank}, {delay:.3f} s after "
                  f"{'its start' if starting else f'step {step}'}", flush=True)
            if starting:
                until(lambda: job.hurry() or len(job.processes()) == RANKS, job.report, poll=0.05)
            else:
                job.until_step(step, RANKS)
            time.sleep(delay)
            job.signal(signal.SIGKILL, rank)
            job.until_restarted(kill + 1)
        job.end(status=0)
        # Open MPI's mpirun sometimes fails to start soon after the death of the previous job; it reports that, and the script retries.
        unstarted = [line for line in job.restarts() if launcher == "mpirun" and line.split()[1] == "1"]
        assert len(unstarted) <= 1, job.report()
        job.end(status=0, restarts=kills + len(unstarted))
    except BaseException as error:  # noqa: BLE001 - the other thread goes on; the test reports it
        failures.append(f"{name}: {error}")


def a_rank_is_killed_at_random_moments(folder):
    failures, threads = [], []
    data_of(folder)
    chains = list(CHAINS)[:KILLS]  # a chain without a kill has no restarts
    for i, name in enumerate(chains):
        kills = KILLS // len(chains) + (1 if i < KILLS % len(chains) else 0)
        threads.append(threading.Thread(target=kill_repeatedly, args=(folder, name, kills, failures)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    check_same(folder, [folder / f"run-killed-{name}" for name in chains], TWO_NODES, **LONG)
    for name in chains:
        statuses = {line.split()[1] for line in (folder / f"run-killed-{name}" / "restarts").read_text().splitlines()}
        assert statuses <= {"1", "14", "70", "137", "143"}, statuses  # 1: while MPI started; 14: by Open MPI 5


def nodes_die(folder):
    """The second node of a job dies, and the first, which runs the job script; under srun and mpirun."""
    jobs = [disturbed(folder, f"{launcher}-{nodes}", None, [f"--nodelist=node[{nodes}]"], launcher, resources=TWO_NODES,
                      ranks=RANKS) for nodes in ("1-2", "3-4") for launcher in ("srun", "mpirun")]
    began = time.monotonic()
    CLUSTER.configure("SlurmdTimeout", NODE_TIMEOUT)
    for node in ("node2", "node3"):
        CLUSTER.kill_node(node)
    for job in jobs:
        job.release()
    waiting = set()
    while len(waiting) < len(jobs):
        for job in set(jobs) - waiting:
            if job.state() == "PENDING":
                waiting.add(job)
                print(f"   {job.run_dir.name}: requeued {time.monotonic() - began:.1f} s after its node died", flush=True)
        assert time.monotonic() < began + SECONDS, [job.report() for job in set(jobs) - waiting]
        time.sleep(0.1)
    for node in ("node2", "node3"):
        CLUSTER.start_node(node)
    check_goes_on(folder, jobs, resources=TWO_NODES)


def slurmd_dies(folder):
    """If slurmd is back before Slurm gives up the node, the job is not affected. Otherwise the job is requeued, and slurmd ends
    the remaining processes of the first attempt when it is back."""
    def restart(job):
        CLUSTER.kill_slurmd("node2")
        CLUSTER.restore_slurmd("node2")

    CLUSTER.configure("SlurmdTimeout", PATIENT)
    untouched = disturbed(folder, "soon", restart, ["--nodelist=node[1-2]"], resources=TWO_NODES, ranks=RANKS)
    CLUSTER.configure("SlurmdTimeout", NODE_TIMEOUT)
    lost = disturbed(folder, "late", None, ["--nodelist=node[3-4]"], resources=TWO_NODES, ranks=RANKS)
    began = time.monotonic()
    CLUSTER.kill_slurmd("node4")
    lost.release()
    lost.signal(signal.SIGSTOP, 2)  # otherwise the run would be over before Slurm notices
    until(lambda: lost.state() == "PENDING", lost.report)
    print(f"   requeued {time.monotonic() - began:.1f} s after slurmd died", flush=True)
    CLUSTER.restore_slurmd("node4")
    untouched.end(status=0, restarts=0)
    lost.end(status=0, restarts=1)
    check_same(folder, [untouched.run_dir, lost.run_dir], TWO_NODES)


if __name__ == "__main__":
    main([a_rank_is_killed_at_random_moments, nodes_die, slurmd_dies])
