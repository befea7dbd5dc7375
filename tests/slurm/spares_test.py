#!/usr/bin/env python3
"""Tests restarts within a job on a real Slurm: a node or a rank dies, and the ranks start again on the nodes that are left."""

from slurm_harness import *  # noqa: F403

LAYOUT = "--nodes=4 --ntasks-per-node=1 --no-kill --time=60"
RANKS = 3
SHORT = {"save_every": 20, "epochs": 2}  # at least 400 steps
STEP = 50
NODE_TIMEOUT = 15  # seconds until Slurm gives up a dead node
LIMIT = 150  # seconds from the death of a node until the run resumes; 17 on a quiet machine


def until_resumed(job, died):
    """Waits until the restarted ranks have read the checkpoint, and prints how long that took."""
    until(lambda: "resuming from" in job.log(), job.report, seconds=LIMIT, poll=0.05)
    print(f"   {job.run_dir.name}: resumed {time.monotonic() - died:.1f} s after the node died", flush=True)


def a_dead_node_is_replaced_within_the_job(folder):
    """By the spare node, under srun and mpirun; without a spare one by none, if that is allowed: then with the same global batch."""
    jobs = []
    for name, launcher, spares, fewest in (("srun", "srun", 1, ""), ("mpirun", "mpirun", 1, ""), ("fewer", "srun", 0, "2")):
        run_dir = folder / f"run-{name}"
        jobs.append(submit(script_for(folder, run_dir, LAYOUT, **SHORT), run_dir=run_dir, env={
            "TEST_LAUNCHER": launcher, "LOCKSTEP_SPARE_NODES": str(spares), "LOCKSTEP_MIN_NODES": fewest}))
        jobs[-1].hold(STEP, len(NODES) - spares)
    CLUSTER.kill_node("node3")
    died = time.monotonic()
    for job in jobs:
        job.release()
    for job in jobs:
        until_resumed(job, died)
    command("scontrol", "update", "NodeName=node3", "State=DOWN", "Reason=dead")  # as Slurm does after SlurmdTimeout
    for job in jobs:
        job.end(status=0, restarts=0)
        (line,) = job.restarts()
        assert line.split()[4:6] == ["in-job", "left-out=node3"], job.report()
        hosts = [re.findall(r"host (node\d)", (job.run_dir / "log" / f"rank-{rank:05}.log").read_text())[-1] for rank in range(RANKS)]
        assert hosts == ["node1", "node2", "node4"], hosts
    check_same(folder, [job.run_dir for job in jobs[:2]], "--nodes=3 --ntasks-per-node=1 --time=60", **SHORT)
    found = state(latest(jobs[2].run_dir))
    assert found["global_batch"] == 4 * (RANKS + 1) and found["world_size"] == RANKS, found
    CLUSTER.start_node("node3")
    CLUSTER.until_idle()


def a_batch_that_fewer_ranks_cannot_divide_is_requeued(folder):
    """On GPUs, pairs for mixup: 16 samples are whole pairs on 4 ranks, and not on 3. A requeued job has all its nodes again."""
    run_dir = folder / "run-pairs"
    script = script_for(folder, run_dir, LAYOUT, **SHORT)
    refuses = script.parent / "refuses"
    refuses.write_text(f'#!/bin/bash\n[[ $1 == train && $* != *--print-config* && $SLURM_STEP_NUM_TASKS == 3 ]] || exec {LOCKSTEP} "$@"\n'
                       "echo 'cannot mix pairs in a global batch of 16 (3 ranks)'\nexit 64\n")
    refuses.chmod(0o755)
    with open(script.parent / "virtual.env", "a") as file:
        file.write(f"lockstep=({refuses})\n")
    job = submit(script, run_dir=run_dir, env={"LOCKSTEP_SPARE_NODES": "0", "LOCKSTEP_MIN_NODES": "2"})
    job.hold(STEP, RANKS + 1)
    CLUSTER.kill_node("node3")
    job.release()
    until(lambda: "cannot mix pairs in a global batch of 16 (3 ranks" in job.log() and job.state() == "PENDING", job.report, poll=0.1)
    CLUSTER.start_node("node3")
    job.end(status=0, restarts=1)
    found = [line.split()[1:2] + line.split()[4:] for line in job.restarts()]
    assert [words[0] for words in found] == ["70", "64"] and "in-job" in found[0] and "in-job" not in found[1], job.report()
    found = state(latest(run_dir))
    assert found["global_batch"] == 16 and found["world_size"] == 4, found


def a_job_whose_script_dies_with_its_node_is_requeued(folder):
    """By the guard, since Slurm keeps a job of --no-kill without its script."""
    run_dir = folder / "run-guarded"
    job = submit(script_for(folder, run_dir, LAYOUT, **SHORT), run_dir=run_dir, env={"LOCKSTEP_SPARE_NODES": "1"})
    job.hold(STEP, RANKS)
    CLUSTER.configure("SlurmdTimeout", NODE_TIMEOUT)
    CLUSTER.kill_node("node1")
    job.release()
    until(lambda: job.state() == "PENDING", job.report, poll=0.1)
    CLUSTER.start_node("node1")
    job.end(status=0, restarts=1)


if __name__ == "__main__":
    main([a_dead_node_is_replaced_within_the_job, a_batch_that_fewer_ranks_cannot_divide_is_requeued,
          a_job_whose_script_dies_with_its_node_is_requeued])
