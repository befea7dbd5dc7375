#!/usr/bin/env python3
"""Tests how the job scripts launch ranks on a real Slurm: sbatch with srun and mpirun, srun from salloc, arrays, sizes; eval and pack."""

import json

from slurm_harness import *  # noqa: F403

def check_ranks(run_dir, ranks, nodes, threads):
    """Checks that every rank's log shows its rank and its node."""
    per_node, hosts = ranks // nodes, []
    for rank in range(ranks):
        first = (run_dir / "log" / f"rank-{rank:05}.log").read_text().splitlines()[0]
        wanted = f"rank {rank} of {ranks}, local rank {rank % per_node}, host node"
        assert wanted in first, f"'{wanted}' is not in '{first}'"
        assert f"{threads} thread" in first, f"not {threads} threads: '{first}'"
        hosts.append(re.search(r"host (node\d)", first)[1])
    assert hosts == [host for host in sorted(set(hosts)) for _ in range(per_node)] and len(set(hosts)) == nodes, hosts


def sbatch_places_ranks_as_requested(folder):
    data = write_shards(folder / "data")
    asked = {"srun": ((1, 1, 1), (2, 1, 2), (3, 3, 1), (4, 2, 1), (5, 1, 1), (6, 2, 1), (7, 1, 1), (8, 4, 2)),
             "mpirun": ((2, 1, 2), (3, 3, 1), (8, 4, 1))}
    for launcher, sizes in asked.items():
        for ranks, nodes, threads in sizes:
            run_dir = folder / f"{launcher}-{ranks}-{nodes}"
            line = training(data, run_dir, "--max-steps", 2).replace("--threads 1", f"--threads {threads}")
            script = edited(folder, "train.sbatch", f"--job-name=j --nodes={nodes} --ntasks-per-node={ranks // nodes} "
                                                    f"--time=60 --cpus-per-task={threads}", line)
            submit(script, run_dir=run_dir, env={"TEST_LAUNCHER": launcher}).end(status=0, restarts=0)
            check_ranks(run_dir, ranks, nodes, threads)
            assert state(latest(run_dir))["world_size"] == ranks


def salloc_places_ranks_as_requested(folder):
    data = write_shards(folder / "data")
    edited(folder, "train.sbatch", "", "")  # writes the machine file
    for launcher, ranks, nodes in (("srun", 4, 2), ("srun", 1, 1), ("mpirun", 3, 3)):
        run_dir = folder / f"{launcher}-{ranks}"
        command("salloc", f"--nodes={nodes}", f"--ntasks-per-node={ranks // nodes}", SCRIPTS / "interactive.sh", "--machine",
                folder / "virtual.env", *train_args(data, run_dir, "--max-steps", 2), env={"TEST_LAUNCHER": launcher})
        check_ranks(run_dir, ranks, nodes, 1)
    # The command's status is that of the ranks.
    output = command("salloc", "-N2", "-n2", SCRIPTS / "interactive.sh", "--machine", folder / "virtual.env",
                     *train_args(folder / "nowhere", folder / "none"), expect=66)
    assert "nowhere" in output, output
    output = command(SCRIPTS / "interactive.sh", "train", expect=64)
    assert "salloc" in output, output


def each_machine_starts_ranks_on_two_nodes_by_mpirun(folder):
    """With a requested total number of ranks, and no number per node."""
    data = write_shards(folder / "data")
    jobs = {}
    for machine in sorted(SCRIPTS.glob("machines/*.env")):
        run_dir = folder / machine.stem
        script = edited(folder, "train.sbatch", f"--job-name={machine.stem} --nodes=2 --ntasks=2 --cpus-per-task=1 --time=60",
                        training(data, run_dir, "--max-steps", 2))
        here = folder / f"{machine.stem}.env"
        here.write_text(f"source {machine}\nlauncher=mpirun\nlockstep=({LOCKSTEP})\nstage=\n")
        script.write_text(script.read_text().replace(str(folder / "virtual.env"), str(here)))
        jobs[run_dir] = submit(script, run_dir=run_dir)
    for run_dir, job in jobs.items():
        job.end(status=0, restarts=0)
        check_ranks(run_dir, 2, 2, 1)


def the_ranks_of_a_node_are_the_default_shard_group(folder):
    data = write_shards(folder / "data")
    edited(folder, "train.sbatch", "", "")  # writes the machine file

    def train(name, *more, options=(), expect=0):
        return command("salloc", "--nodes=2", "--ntasks-per-node=2", *options, SCRIPTS / "interactive.sh", "--machine", folder / "virtual.env",
                       *train_args(data, folder / name, "--max-steps", 3, *more), env={"TEST_LAUNCHER": "srun"}, expect=expect)

    train("none")
    output = train("hybrid", "--shard", "hybrid")
    assert "sharded over 2 ranks" in output, output
    losses = [[event["loss"] for event in events(folder / name, "step")] for name in ("none", "hybrid")]
    assert len(losses[0]) == 3 and harness.np.allclose(*losses, rtol=1e-3), losses
    # Cyclic distribution: no two consecutive ranks are on one node.
    output = train("apart", "--shard", "hybrid", options=["--distribution=cyclic"], expect=64)
    assert "as many ranks on each node, one after another" in output and "--shard-group" in output, output
    output = command("srun", "--nodes=2", "--ntasks=3", "--mpi=pmix", LOCKSTEP,
                     *train_args(data, folder / "uneven", "--max-steps", 3, "--shard", "hybrid"), expect=64)
    assert "there are 1 to 2 a node" in output, output
    assert "sharded over 2 ranks" in train("apart", "--shard", "hybrid", "--shard-group", 2, options=["--distribution=cyclic"])


def each_element_of_an_array_trains_one_seed(folder):
    data = write_shards(folder / "data")
    run_dir = folder / "runs" / "seeds"
    script = edited(folder, "train.sbatch", "--job-name=seeds --nodes=1 --ntasks-per-node=2 --time=60",
                    training(data, run_dir, "--seed", 77, "--max-steps", 9))
    array = submit(script, "--array=1-3", f"--output={folder}/%A_%a.out", arguments=["--override", "--max-steps", 3])
    for seed in (1, 2, 3):
        Job(f"{array.number}_{seed}", folder / f"{array.number}_{seed}.out").end(status=0, restarts=0)
        found = state(latest(f"{run_dir}-seed-{seed}"))
        assert found["step"] == 3 and found["seed"] == seed, found
    assert not run_dir.exists(), "an element used the directory of the whole array"


def pack_train_and_eval_run_in_sequence(folder):
    source = folder / "images"
    source.mkdir()
    random = harness.np.random.default_rng(0)
    for part, count in (("train", 64), ("t10k", 16)):
        images = random.integers(0, 255, (count, 12, 12)).astype("u1")
        header = b"\0\0\x08\x03" + b"".join(int(d).to_bytes(4, "big") for d in images.shape)
        (source / f"{part}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        labels = random.integers(0, 10, count).astype("u1")
        (source / f"{part}-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01" + count.to_bytes(4, "big") + labels.tobytes())
    data, run_dir = folder / "data", folder / "run"
    pack = submit(edited(folder, "pack.sbatch", "--nodes=1 --ntasks-per-node=2 --time=60",
                         f"packing=(--from mnist --input {source} --output {data} --shards 2)"))
    pack.end(status=0)
    train = submit(edited(folder, "train.sbatch", "--nodes=2 --ntasks-per-node=1 --time=60",
                          training(data, run_dir, "--epochs", 1)), f"--dependency=afterok:{pack.number}")
    train.end(status=0)
    evaluate = submit(edited(folder, "eval.sbatch", "--nodes=2 --ntasks-per-node=1 --time=60",
                             f"evaluation=(--checkpoint {run_dir}/checkpoints/latest --data {data} --split val --json)"))
    result = json.loads(next(line for line in evaluate.end(status=0).splitlines() if line.startswith("{")))
    assert result["samples"] == 16, result


def a_job_finds_the_other_scripts_beside_its_own(folder):
    """From wherever it was submitted, where somebody may have put scripts of the same names."""
    data, place, shared = write_shards(folder / "data"), folder / "slurm", folder / "shared"
    shutil.copytree(SCRIPTS, place)
    (shared / "slurm").mkdir(parents=True)
    (shared / "slurm/job.sh").write_text(f"touch {folder}/planted; exit 0\n")
    line = training(data, folder / "run", "--max-steps", 2)
    script = edited(place, "train.sbatch", "--nodes=1 --ntasks-per-node=1 --time=60", line)
    number = command("env", "-C", shared, "sbatch", "--parsable", f"--output={folder}/%j.out", script, "--keep", 2,
                     env={"LOCKSTEP_SLURM": ""}).strip()
    Job(number, folder / f"{number}.out", folder / "run").end(status=0, restarts=0)
    assert not (folder / "planted").exists() and latest(folder / "run")


def an_unknown_machine_is_named(folder):
    script = edited(folder, "train.sbatch", "--nodes=1 --ntasks-per-node=1 --time=60", "training=()")
    text = script.read_text().replace(str(folder / "virtual.env"), "no-such-machine")
    script.write_text(text)
    output = submit(script).end("FAILED", status=66, restarts=0)
    assert "no-such-machine" in output and "generic.env" in output, output


if __name__ == "__main__":
    main([sbatch_places_ranks_as_requested, salloc_places_ranks_as_requested,
          each_machine_starts_ranks_on_two_nodes_by_mpirun, the_ranks_of_a_node_are_the_default_shard_group, each_element_of_an_array_trains_one_seed,
          pack_train_and_eval_run_in_sequence, a_job_finds_the_other_scripts_beside_its_own, an_unknown_machine_is_named])
