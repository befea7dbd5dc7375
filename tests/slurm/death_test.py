#!/usr/bin/env python3
"""Ranks, nodes and daemons that die, on a real Slurm: the run goes on by itself from its last checkpoint, to the bits of
a run that nobody disturbed. LOCKSTEP_KILLS ranks are killed in all (20), LOCKSTEP_SEED decides when and whom (1)."""

import random
import threading

from slurm_harness import *  # noqa: F403

KILLS = int(os.environ.get("LOCKSTEP_KILLS", 20))
SEED = int(os.environ.get("LOCKSTEP_SEED", 1))


def kill_again_and_again(folder, launcher, kills, failures):
    """One run whose ranks are killed `kills` times, each time another moment after the run has got further."""
    chance = random.Random(f"{SEED} {launcher}")
    run_dir = folder / f"run-killed-{launcher}"
    script = script_for(folder, run_dir, "--nodes=2 --ntasks-per-node=2 --time=60", save_every=5)
    job = submit(script, run_dir=run_dir, env={"TEST_LAUNCHER": launcher, "TEST_STALLED_RESTARTS": "3"})
    try:
        for kill in range(kills):
            # Most at work; some while they start, when MPI, the lock or the checkpoint is not there yet.
            starting = chance.random() < 0.2
            step, rank, delay = job.step() + chance.randrange(1, 8), chance.randrange(RANKS), chance.uniform(0, 0.4)
            if starting:
                until(lambda: job.hurry() or len(job.processes()) == RANKS, job.report)
            else:
                job.until_step(step, RANKS)
            time.sleep(delay)
            print(f"   seed {SEED}, {launcher}, kill {kill + 1}: rank {rank}, {delay:.3f} s after "
                  f"{'its start' if starting else f'step {step}'}", flush=True)
            job.signal(signal.SIGKILL, rank)
            job.until_restarted(kill + 1)
        job.end(status=0, restarts=kills)
    except BaseException as error:  # noqa: BLE001 - the other thread goes on; the test reports it
        failures.append(f"{launcher}: {error}")
    return job


def a_rank_is_killed_at_random_moments(folder):
    failures, threads = [], []
    data_of(folder)
    for launcher, kills in (("srun", KILLS - KILLS // 2), ("mpirun", KILLS // 2)):
        threads.append(threading.Thread(target=kill_again_and_again, args=(folder, launcher, kills, failures)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    whole = folder / "run-whole"
    submit(script_for(folder, whole, "--nodes=2 --ntasks-per-node=2 --time=60"), run_dir=whole).end(status=0, restarts=0)
    for launcher in ("srun", "mpirun"):
        run_dir = folder / f"run-killed-{launcher}"
        assert_same_run(whole, run_dir)
        statuses = {line.split()[1] for line in (run_dir / "restarts").read_text().splitlines()}
        assert statuses <= {"137", "143", "70"}, statuses


if __name__ == "__main__":
    main([a_rank_is_killed_at_random_moments])
