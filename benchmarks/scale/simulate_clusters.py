#!/usr/bin/env python3
"""simulate_clusters.py LOCKSTEP SIMULATE_STEP OUTPUT.json [PICTURE.svg]: steps of ResNet-50 on clusters, as `lockstep scale` predicts them and SimGrid
simulates them.

A rank computes 3,000 images a second with a batch of 256 (weak scaling) or with the rank's part of 32,768 images (strong), which an H100 reaches
with bf16; links lose nothing, and a round takes 5 us. Nothing here is measured.
"""

import datetime
import json
import pathlib
import subprocess
import sys
import tempfile

IMAGES_PER_SECOND = 3000
STRONG = 32768
SECONDS = 1200  # for one simulation; larger ones are only predicted
LOCAL = 450_000  # MB/s of NVLink
CASES = [(nodes, gpus, gbit, scaling) for scaling in ("weak", "strong") for nodes in (64, 512, 4096) for gpus in (1, 8) for gbit in (100, 400)]


def case(lockstep, simulate, nodes, gpus, gbit, batch):
    command = [lockstep, "scale", "--model", "resnet50", "--image-size", 224, "--classes", 1000, "--batch-size", batch, "--nodes", nodes,
               "--gpus-per-node", gpus, "--link", f"{gbit}gbit", "--local-link", f"{8e-3 * LOCAL}gbit", "--images-per-second", IMAGES_PER_SECOND,
               "--precision", "bf16", "--json", "--plans"]
    plans = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True).stdout
    row = next(row for row in json.loads(plans)["rows"] if row["shard"] == "none")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(plans)
        file.flush()
        try:
            # Messages of 4 MiB: smaller ones change nothing at these rates, and take longer to simulate.
            done = subprocess.run([simulate, file.name, "--link", str(gbit * 125), "--local-link", str(LOCAL), "--piece-kib", "4096", "--steps", "2"],
                                  capture_output=True, text=True, timeout=SECONDS, check=True)
            simulated = json.loads(done.stdout)["step_seconds"]
        except subprocess.TimeoutExpired:
            simulated = None
    return {"nodes": nodes, "gpus_per_node": gpus, "link_gbit": gbit, "batch_size": batch, "compute_seconds": row["compute_seconds"],
            "predicted_seconds": row["step_seconds"], "simulated_seconds": simulated,
            "simulated_efficiency": simulated and row["compute_seconds"] / simulated}


def draw(rows, path):
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "lockstep"
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.4), sharey=True)
    for axis, kind in zip(axes, ("weak", "strong")):
        for gpus, style in ((1, "o-"), (8, "s--")):
            for gbit, color in ((100, "tab:blue"), (400, "tab:orange")):
                points = [(row["nodes"], 100 * row["simulated_efficiency"]) for row in rows
                          if (row["scaling"], row["gpus_per_node"], row["link_gbit"]) == (kind, gpus, gbit) and row["simulated_efficiency"]]
                axis.plot(*zip(*points), style, color=color, label=f"{gpus} GPU{'s' if gpus > 1 else ''} a node, {gbit} Gbit/s") if points else None
        axis.set(xscale="log", xlabel="nodes", title=f"{kind} scaling (simulated)", ylim=(0, 105))
        axis.set_xticks([64, 512, 4096], ["64", "512", "4,096"])
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("efficiency of a step, %")
    axes[0].legend(loc="lower left", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    lockstep, simulate, output = sys.argv[1:4]
    rows = []
    for nodes, gpus, gbit, scaling in CASES:
        batch = 256 if scaling == "weak" else STRONG // (nodes * gpus)
        if batch < 8:
            continue
        rows.append({"scaling": scaling, **case(lockstep, simulate, nodes, gpus, gbit, batch)})
        print(rows[-1], flush=True)
        pathlib.Path(output).write_text(json.dumps({"benchmark": "steps on clusters: predicted, simulated", "date": datetime.date.today().isoformat(),
                                                    "model": "resnet50", "rows": rows}, indent=1) + "\n")
    if len(sys.argv) > 4:
        draw(rows, sys.argv[4])


if __name__ == "__main__":
    main()
