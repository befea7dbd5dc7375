#!/usr/bin/env python3
"""simulate_clusters.py LOCKSTEP SIMULATE_STEP OUTPUT.json PICTURE.svg: steps of ResNet-50 on clusters, as `lockstep scale` predicts them, and up to
512 ranks as SimGrid simulates them (half an hour). `simulate_clusters.py OUTPUT.json PICTURE.svg` only draws the efficiencies.

A rank computes 3,000 images a second with a batch of 256 (weak scaling) or with the rank's part of 32,768 images (strong). Links lose nothing, and a
round takes 5 us. Nothing here is measured.
"""

import datetime
import json
import pathlib
import subprocess
import sys
import tempfile

IMAGES_PER_SECOND = 3000
STRONG = 32768
MOST_SIMULATED = 512  # ranks; more take hours, as do 512 nodes with small batches, whose reductions overlap most
LOCAL = 450_000  # MB/s of NVLink
CASES = [(nodes, gpus, gbit, scaling) for scaling in ("weak", "strong") for nodes in (64, 512, 4096) for gpus in (1, 8) for gbit in (100, 400)]


def simulate_step(simulate, plans, gbit):
    # Messages of 4 MiB: smaller ones change nothing at these rates, and take longer to simulate.
    done = subprocess.run([simulate, plans, "--link", str(gbit * 125), "--local-link", str(LOCAL), "--piece-kib", "4096", "--steps", "2"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["step_seconds"]


def is_simulated(nodes, gpus, scaling):
    return nodes * gpus <= MOST_SIMULATED and (scaling == "weak" or nodes <= 64)


def case(lockstep, simulate, nodes, gpus, gbit, scaling, batch):
    command = [lockstep, "scale", "--model", "resnet50", "--image-size", 224, "--classes", 1000, "--batch-size", batch, "--nodes", nodes,
               "--gpus-per-node", gpus, "--link", f"{gbit}gbit", "--local-link", f"{8e-3 * LOCAL}gbit", "--images-per-second", IMAGES_PER_SECOND,
               "--precision", "bf16", "--json", "--plans"]
    plans = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True).stdout
    row = next(row for row in json.loads(plans)["rows"] if row["shard"] == "none")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(plans)
        file.flush()
        simulated = simulate_step(simulate, file.name, gbit) if is_simulated(nodes, gpus, scaling) else None
    return {"nodes": nodes, "gpus_per_node": gpus, "link_gbit": gbit, "batch_size": batch, "compute_seconds": row["compute_seconds"],
            "predicted_seconds": row["step_seconds"], "simulated_seconds": simulated,
            "predicted_efficiency": row["efficiency"], "simulated_efficiency": simulated and row["compute_seconds"] / simulated}


def draw(rows, picture):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "", "font.family": "sans-serif"})
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, scaling in zip(axes, ("weak", "strong")):
        for color, gbit in (("tab:blue", 400), ("tab:orange", 100)):
            for gpus, line, marker in ((1, "-", "o"), (8, "--", "s")):
                chosen = [row for row in rows if (row["scaling"], row["link_gbit"], row["gpus_per_node"]) == (scaling, gbit, gpus)]
                ranks = [row["nodes"] * gpus for row in chosen]
                axis.plot(ranks, [row["predicted_efficiency"] for row in chosen], line, color=color,
                          label=f"predicted, {gbit} Gbit/s, {gpus} GPU{'s' if gpus > 1 else ''} a node")
                simulated = [(rank, row["simulated_efficiency"]) for rank, row in zip(ranks, chosen) if row["simulated_efficiency"]]
                axis.plot(*zip(*simulated), marker, color=color, fillstyle="none")
        axis.set_xscale("log", base=2)
        axis.set_title("256 images a GPU" if scaling == "weak" else "32,768 images in all")
        axis.set_xlabel("GPUs")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("efficiency")
    axes[0].set_ylim(0, 1.03)
    axes[0].plot([], [], "o", color="gray", fillstyle="none", label="simulated (circle: 1 GPU a node, square: 8)")
    axes[0].legend(fontsize=8, loc="lower left")
    figure.savefig(picture, metadata={"Date": None})


def main():
    if len(sys.argv) == 3:
        return draw(json.loads(pathlib.Path(sys.argv[1]).read_text())["rows"], sys.argv[2])
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    lockstep, simulate, output, picture = sys.argv[1:]
    rows = []
    for nodes, gpus, gbit, scaling in CASES:
        batch = 256 if scaling == "weak" else STRONG // (nodes * gpus)
        if batch < 8:
            continue
        rows.append({"scaling": scaling, **case(lockstep, simulate, nodes, gpus, gbit, scaling, batch)})
        print(rows[-1], flush=True)
        pathlib.Path(output).write_text(json.dumps({"benchmark": "steps on clusters: predicted, simulated", "date": datetime.date.today().isoformat(),
                                                    "model": "resnet50", "rows": rows}, indent=1) + "\n")
    draw(rows, picture)


if __name__ == "__main__":
    main()
