#!/usr/bin/env python3
"""Tests that what `lockstep scale` predicts agrees with a simulation of the messages, on networks that are not shared with computation."""

from harness import *  # noqa: F403

SIMULATE = os.environ.get("LOCKSTEP_TEST_SIMULATE")
GBIT = 1000 / 8  # MB/s


def plans(folder, *options):
    path = folder / "plans.json"
    path.write_text(run(["scale", "--model", "resnet50", "--image-size", 224, "--classes", 1000, "--batch-size", 32,
                         "--images-per-second", 400, "--round-us", 5, "--local-link", "800gbit", "--json", "--plans", *options]))
    return path, {row["shard"]: row for row in reversed(json.loads(path.read_text())["rows"])}


def simulated(path, shard, gbit):
    # Messages of 240 KiB are simulated in less time than those of 60 KiB.
    done = subprocess.run([SIMULATE, path, "--shard", shard, "--link", str(gbit * GBIT), "--local-link", str(800 * GBIT),
                           "--piece-kib", "60" if gbit < 100 else "240"], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done
    return json.loads(done.stdout)["step_seconds"]


def predictions_agree_with_a_simulation_of_the_messages(folder):
    if SIMULATE is None:
        raise Skipped("no SimGrid 3 here")
    # Communication takes from a fraction of a step to several times its computation.
    for nodes, gpus, gbit in ((2, 1, 1), (8, 1, 1), (8, 1, 10), (4, 2, 10), (6, 1, 5), (4, 8, 100), (32, 1, 100)):
        shape = ["--nodes", nodes, "--gpus-per-node", gpus, "--link", f"{gbit}gbit", *(["--shard-group", nodes // 2] if gpus == 1 else [])]
        path, rows = plans(folder, *shape)
        for shard in ("none", "grad", "full", *(["hybrid"] if "hybrid" in rows else [])):
            expected, found = rows[shard]["step_seconds"], simulated(path, shard, gbit)
            assert abs(found / expected - 1) < 0.1, f"{nodes} x {gpus}, {gbit} Gbit/s, --shard {shard}: predicted {expected}, simulated {found}"


def both_programs_refuse_what_they_cannot_use(folder):
    path, _ = plans(folder, "--nodes", 2, "--link", "1gbit")
    if SIMULATE is not None:
        done = subprocess.run([SIMULATE, path, "--shard", "nothing", "--link", "1"], capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == USAGE and "no row with --shard nothing" in done.stderr, done
    assert "--link is missing" in run(["scale", "--model", "resnet50", "--nodes", 2, "--images-per-second", 1], expect=USAGE)


if __name__ == "__main__":
    main([predictions_agree_with_a_simulation_of_the_messages, both_programs_refuse_what_they_cannot_use])
