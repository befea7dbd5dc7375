#!/usr/bin/env python3
"""Plants twelve kinds of fault on the first, a middle and the last rank of jobs with a spare node, on a real Slurm whose network
can be cut. Each fault is named, and the run ends with the bits of an undisturbed one; it repeats no step that it had saved.
Prints a table. Arguments: the names of kinds."""

import collections
import concurrent.futures

import virtual_network
from slurm_harness import *  # noqa: F403

FAULTS = os.environ["LOCKSTEP_TEST_FAULTS"]
LAYOUT = "--nodes=4 --ntasks-per-node=1 --no-kill --time=60"
RANKS = 3  # on node2 to node4; node1, where the script runs, is the spare one
SAVES = 20  # steps between saves
RUN = {"save_every": SAVES, "epochs": 4}  # 1064 steps, so that no fault comes after the end
# The faults are planted in MPI's all-reduce. On a busy machine, a rank may be slow without a fault.
MORE = ["--comm", "mpi", "--allreduce", "mpi", "--straggler-factor", 4]

# `plant` is a function, or the fault that the library plants into the first of the job's runs. `named`: how the user sees it.
Fault = collections.namedtuple("Fault", "kind plant named")

GONE = r"rank {rank} \({node}\) is gone \(its process ended"
# srun may end the other ranks before they have said so.
KILLED = GONE + r"|srun: error: {node}: task {rank}: (Killed|Segmentation fault)"
LATE = r"rank {rank} \({node}\) (has been late for|was last heard of)"
SILENT = r"rank {rank} \({node}\) is gone \(its node does not answer"


def a_slow_rank(job, rank):
    """The rank is slow from the start. When it has been named, another is killed."""
    until(lambda: " is slow: " in job.log(), job.report)
    job.signal(signal.SIGKILL, (rank + 1) % RANKS)


def until_saved(job):
    until(lambda: job.step() >= 60, job.report, poll=0.005)


def cut(job, rank):
    until_saved(job)
    CLUSTER.network.cut(node_of(rank))


def kill_node(job, rank):
    until_saved(job)
    CLUSTER.network.cut(node_of(rank))  # a node without power ends no connection
    CLUSTER.kill_node(node_of(rank))


TABLE = (
    Fault("SIGKILL", f"signal:70:{signal.SIGKILL.value}", KILLED),
    Fault("SIGSTOP", f"signal:70:{signal.SIGSTOP.value}", LATE),
    Fault("SIGTERM", f"signal:70:{signal.SIGTERM.value}", r"stopped on request at step"),
    Fault("SIGSEGV", f"signal:70:{signal.SIGSEGV.value}", KILLED),
    Fault("out of memory", "memory:70:0", r"rank {rank} \({node}\): out of memory"),
    Fault("hang in compute", "hang:3000:0", LATE),
    Fault("hang in a collective", "block:70:0", LATE),
    Fault("exception", "throw:70:0", r"rank {rank} \({node}\): a planted exception"),
    Fault("exit 0", "exit:70:0", GONE),
    Fault("slow rank", a_slow_rank, r"rank {rank} \({node}\) is slow: [\d.]+ times the median"),
    Fault("cut network", cut, SILENT),
    Fault("dead node", kill_node, SILENT),
)
OF_NODES = ("cut network", "dead node")


def node_of(rank):
    return NODES[rank + 1]


def submit_with(folder, fault, rank):
    """Submits a job of which each run but the first is undisturbed."""
    run_dir = folder / f"run-{fault.kind.replace(' ', '-')}-{rank}"
    place = folder / run_dir.name.replace("run", "job")
    place.mkdir()
    script = edited(place, "train.sbatch", f"--job-name={run_dir.name} {LAYOUT}",
                    run_line(folder, run_dir, *MORE, "--watchdog-seconds", 60 if fault.kind in OF_NODES else 10, **RUN))
    text = "slow:1:12" if fault.kind == "slow rank" else fault.plant
    env = {"LOCKSTEP_SPARE_NODES": "1", "LOCKSTEP_REPLACE_SLOW": "1"}
    if not callable(text):
        (place / "faulty").write_text(f'#!/bin/bash\n[ -e {run_dir}/restarts ] || export LD_PRELOAD={FAULTS} LOCKSTEP_TEST_FAULT={rank}:{text}\n'
                                      f'exec {LOCKSTEP} "$@"\n')
        (place / "faulty").chmod(0o755)
        with open(place / "virtual.env", "a") as file:
            file.write(f"lockstep=(bash {place}/faulty)\n")
    return submit(script, run_dir=run_dir, env=env)


def until_resumed(job):
    """Returns the last step before the restart, and the seconds from that step until the checkpoint was read."""
    last, when = 0, time.monotonic()

    def resumed():
        nonlocal last, when
        job.hurry()
        log = job.log()
        if "resuming from" in log:
            return True
        step = job.step()
        if step > last:
            last, when = step, time.monotonic()
        assert job.state() not in FINAL, f"over without a restart; {job.report()}"
        return False

    until(resumed, job.report, poll=0.05)
    return last, time.monotonic() - when


def try_fault(folder, fault, rank):
    """Returns the row of the table."""
    job = submit_with(folder, fault, rank)
    if callable(fault.plant):
        fault.plant(job, rank)
    last, seconds = until_resumed(job)
    if fault.kind in OF_NODES:
        CLUSTER.kill_node(node_of(rank))
        CLUSTER.start_node(node_of(rank))
    requeued = fault.kind == "SIGTERM"
    log = job.end(status=0, restarts=1 if requeued else 0)

    said = log + (job.run_dir / "log" / "rank-00000.log").read_text()
    line = next((one for one in said.splitlines() if re.search(fault.named.format(rank=rank, node=node_of(rank)), one)), None)
    assert line, f"{fault.kind} of rank {rank} is not named; {job.report()}"
    assert len(job.restarts()) == 1, job.report()
    words = job.restarts()[0].split()
    resumed = int(re.search(r"resuming from .*\(step (\d+),", log)[1])
    # A save may have been under way.
    assert last - resumed < 2 * SAVES and (not requeued or resumed >= last), f"lost steps {resumed} to {last}; {job.report()}"
    assert ("in-job" in words) != requeued, job.report()
    left_out = [word for word in words if word.startswith("left-out=")]
    assert left_out == ([f"left-out={node_of(rank)}"] if fault.kind in (*OF_NODES, "slow rank") else []), job.report()
    return [fault.kind, rank, " ".join(words[1:2] + words[4:]), f"{seconds:.1f} s", max(0, last - resumed), line.strip()[:150]]


def until_all_nodes_work(folder):
    """Slurm may call a node idle that has just started, when the others cannot yet reach it."""
    CLUSTER.until_idle()
    run = train_args(data_of(folder), folder / "run-check", "--max-steps", 1)
    until(lambda: re.search("finished at step|nothing to do",
                            command("srun", f"--nodes={len(NODES)}", "--ntasks-per-node=1", "--mpi=pmix", LOCKSTEP, *run, expect=None)),
          lambda: "no run on all nodes\n" + command("sinfo", "-N", "-l"))


def faults_of_every_kind_are_survived(folder):
    chosen = [fault for fault in TABLE if fault.kind in KINDS] if KINDS else TABLE
    data_of(folder)
    cases = [(fault, rank) for fault in chosen for rank in range(RANKS)]
    rows, failures = {}, []

    def attempt(case):
        try:
            rows[case] = try_fault(folder, *case)
            print("   " + " | ".join(map(str, rows[case])), flush=True)
        except Exception as error:  # noqa: BLE001 - all other faults are tried, too
            failures.append(f"{case[0].kind} of rank {case[1]}: {error}")
            print(f"   {failures[-1]}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        list(pool.map(attempt, [case for case in cases if case[0].kind not in OF_NODES]))
    for case in cases:
        if case[0].kind in OF_NODES:
            attempt(case)
            until_all_nodes_work(folder)
    print("\nfault | rank | status, restart | seconds until it was resumed | repeated steps | named as")
    for case in cases:
        if case in rows:
            print(" | ".join(map(str, rows[case])), flush=True)
    assert not failures, "\n".join(failures)
    whole = folder / "run-whole"
    (folder / "job-whole").mkdir()
    submit(edited(folder / "job-whole", "train.sbatch", "--job-name=whole --nodes=3 --ntasks-per-node=1 --time=60",
                  run_line(folder, whole, *MORE, **RUN)), run_dir=whole).end(status=0, restarts=0)
    for fault, rank in cases:
        assert_same_run(whole, folder / f"run-{fault.kind.replace(' ', '-')}-{rank}")


if __name__ == "__main__":
    if virtual_network.why_not():
        print(f"skipped: {virtual_network.why_not()}")
        sys.exit(77)
    KINDS = sys.argv[1:]
    unknown = set(KINDS) - {fault.kind for fault in TABLE}
    assert not unknown, f"no such kind of fault: {unknown}"
    del sys.argv[1:]
    CLUSTER.network = virtual_network.VirtualNetwork()
    main([faults_of_every_kind_are_survived])
