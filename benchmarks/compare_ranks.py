#!/usr/bin/env python3
"""compare_ranks.py LOCKSTEP OUTPUT.json: as many ranks of one thread as there are cores, beside one rank with all of them as threads, in turn.

The global batch is the same. Ranks reduce their gradients through the memory they share (--comm auto), and by MPI (--comm mpi). The ratio is of
images/s within a round, to one rank's.
"""

import datetime

from peers import CORES, arguments, measured, note_of_others, shown, spread, write

CASES = [
    # model, image size, channels, classes, global batch, steps
    ("mini-resnet", 32, 3, 10, 64, 12),
    ("resnet18", 224, 3, 1000, 32, 5),
    ("resnet50", 224, 3, 1000, 32, 4),
]


def step(program, case, precision, ranks, *more):
    model, size, channels, classes, batch, steps = case
    launch = ["mpirun", "--allow-run-as-root", "--bind-to", "core", "-n", ranks] if ranks > 1 else []
    return measured(
        [*launch, program, "bench", "step", "--model", model, "--image-size", size, "--channels", channels, "--classes", classes, "--batch-size",
         batch // ranks, "--precision", precision, "--steps", steps, "--warmup", 2, "--input", "batch", "--device", "cpu", "--json", *more])


def main():
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--precision", nargs="+", choices=("fp32", "bf16"), default=["fp32", "bf16"])
    parser.add_argument("--models", nargs="+", default=[case[0] for case in CASES], choices=[case[0] for case in CASES])
    options = parser.parse_args()
    result = {"benchmark": "ranks beside threads", "date": datetime.date.today().isoformat(), "ranks": CORES, "rounds": options.rounds, "rows": []}
    for case in CASES:
        for precision in options.precision:
            if case[0] not in options.models:
                continue
            ways = {"threads": (1,), "auto": (CORES, "--comm", "auto"), "mpi": (CORES, "--comm", "mpi")}
            runs = {way: [] for way in ways}
            for _ in range(options.rounds):
                for way, how in ways.items():
                    runs[way].append(step(options.lockstep, case, precision, *how))
            result["machine"] = runs["threads"][0]["machine"]
            rates = {way: [run["images_per_second"] for run in column] for way, column in runs.items()}
            others = max(run["others"] for column in runs.values() for run in column)
            row = {"model": case[0], "image_size": case[1], "global_batch": case[4], "precision": precision, "others_share_of_machine": others,
                   "threads_images_per_second": spread(rates["threads"])}
            for way in ("auto", "mpi"):
                row[way] = {"images_per_second": spread(rates[way]), "ratio": spread([a / b for a, b in zip(rates[way], rates["threads"])]),
                            "exposed_communication_seconds": spread([run["exposed_communication_seconds"] for run in runs[way]])}
            result["rows"].append(row)
            print(f"{case[0]} b{case[4]} {precision}: one rank of {CORES} threads {row['threads_images_per_second']['median']:.1f} images/s; "
                  f"{CORES} ranks of one: shared memory {shown(row['auto']['ratio'])}, MPI {shown(row['mpi']['ratio'])}{note_of_others(others)}", flush=True)
    write(result, options.output)


if __name__ == "__main__":
    main()
