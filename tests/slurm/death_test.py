#!/usr/bin/env python3
"""Ranks, nodes and daemons that die, on a real Slurm: the run goes on by itself from its last checkpoint, to the bits of
a run that nobody disturbed. LOCKSTEP_KILLS ranks are killed in all (20), LOCKSTEP_SEED decides when and whom (1)."""

import random
import threading

from slurm_harness import *  # noqa: F403

KILLS = int(os.environ.get("LOCKSTEP_KILLS", 20))
SEED = int(os.environ.get("LOCKSTEP_SEED", 1))


RANKS = 4
TWO_NODES = "--nodes=2 --ntasks-per-node=2 --time=60"
LONG = {"epochs": 8, "save_every": 5}  # 1600 steps: none of the kills comes after the end


def kill_again_and_again(folder, launcher, kills, failures):
    """One run whose ranks are killed `kills` times, each time another moment after the run has got further."""
    chance = random.Random(f"{SEED} {launcher}")
    run_dir = folder / f"run-killed-{launcher}"
    script = script_for(folder, run_dir, TWO_NODES, **LONG)
    job = submit(script, run_dir=run_dir, env={"TEST_LAUNCHER": launcher, "TEST_STALLED_RESTARTS": "3"})
    try:
        for kill in range(kills):
            # Most at work; some while they start, when MPI, the lock or the checkpoint is not there yet.
            starting, rank = chance.random() < 0.25, chance.randrange(RANKS)
            step, delay = job.step() + chance.randrange(1, 25), chance.uniform(0, 0.4 if starting else 0.05)
            print(f"   seed {SEED}, {launcher}, kill {kill + 1} of {kills}: rank {rank}, {delay:.3f} s after "
                  f"{'its start' if starting else f'step {step}'}", flush=True)
            if starting:
                until(lambda: job.hurry() or len(job.processes()) == RANKS, job.report)
            else:
                job.until_step(step, RANKS)
            time.sleep(delay)
            job.signal(signal.SIGKILL, rank)
            job.until_restarted(kill + 1)
        job.end(status=0, restarts=kills)
    except BaseException as error:  # noqa: BLE001 - the other thread goes on; the test reports it
        failures.append(f"{launcher}: {error}")


def a_rank_is_killed_at_random_moments(folder):
    failures, threads = [], []
    data_of(folder)
    for launcher, kills in (("srun", KILLS - KILLS // 2), ("mpirun", KILLS // 2)):
        threads.append(threading.Thread(target=kill_again_and_again, args=(folder, launcher, kills, failures)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    check_same(folder, [folder / f"run-killed-{launcher}" for launcher in ("srun", "mpirun")], TWO_NODES, **LONG)
    for launcher in ("srun", "mpirun"):
        statuses = {line.split()[1] for line in (folder / f"run-killed-{launcher}" / "restarts").read_text().splitlines()}
        assert statuses <= {"137", "143"}, statuses


def nodes_die(folder):
    """The second node of one job under srun and of one under mpirun; then the first, where the job script itself runs."""
    for dead in (("node2", "node4"), ("node1", "node3")):
        jobs = [disturbed(folder, f"{launcher}-{dead[0]}", None, [f"--nodelist={nodes}"], launcher, resources=TWO_NODES, ranks=RANKS)
                for launcher, nodes in (("srun", "node[1-2]"), ("mpirun", "node[3-4]"))]
        began = time.monotonic()
        for node in dead:
            CLUSTER.kill_node(node)
        for job in jobs:
            job.release()
        for job in jobs:
            until(lambda: job.state() == "PENDING", job.report)
        print(f"   {' and '.join(dead)} dead: requeued after {time.monotonic() - began:.1f} s", flush=True)
        for node in dead:
            CLUSTER.start_node(node)
        for job in jobs:
            job.end(status=0, restarts=1)
    names = [f"{launcher}-{node}" for launcher in ("srun", "mpirun") for node in ("node2", "node1")]
    check_same(folder, [folder / f"run-{name}" for name in names], TWO_NODES)


def slurmd_dies(folder):
    # Started anew before Slurm gives the node up: the ranks never notice.
    def restart(job):
        CLUSTER.kill_slurmd("node2")
        CLUSTER.start_slurmd("node2")

    untouched = disturbed(folder, "soon", restart, resources=TWO_NODES, ranks=RANKS)
    untouched.end(status=0, restarts=0)

    # Given up: Slurm requeues the job; when the daemon is back it ends what is left of the first attempt.
    lost = disturbed(folder, "late", None, resources=TWO_NODES, ranks=RANKS)
    began = time.monotonic()
    CLUSTER.kill_slurmd("node2")
    lost.release()
    lost.signal(signal.SIGSTOP, 2)  # or the run would be over before Slurm notices
    until(lambda: lost.state() == "PENDING", lost.report)
    print(f"   slurmd dead: requeued after {time.monotonic() - began:.1f} s", flush=True)
    CLUSTER.start_slurmd("node2")
    lost.end(status=0, restarts=1)
    check_same(folder, [untouched.run_dir, lost.run_dir], TWO_NODES)


if __name__ == "__main__":
    main([a_rank_is_killed_at_random_moments, nodes_die, slurmd_dies])
