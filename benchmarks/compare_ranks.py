#!/usr/bin/env python3
"""compare_ranks.py LOCKSTEP OUTPUT.json: compares one single-threaded rank per core with one rank that uses all cores as threads.

The global batch is the same. The ranks reduce their gradients through shared memory (--comm auto), and through MPI (--comm mpi). The ratio is
images/s of many ranks divided by images/s of one rank, within a round.
"""

from harness import (CORES, DEFINITION, WARMUP, arguments, bench_step, comparison, in_turn, measured, note_of_others, others_in, ratio, shown, spread_of,
                     write)

CASES = [
    # model, image size, channels, classes, global batch, steps
    ("mini-resnet", 32, 3, 10, 64, 12),
    ("resnet18", 224, 3, 1000, 32, 5),
    ("resnet50", 224, 3, 1000, 32, 4),
]


def step(program, case, precision, ranks, **more):
    model, size, channels, classes, batch, steps = case
    launch = ["mpirun", "--allow-run-as-root", "--bind-to", "core", "-n", ranks] if ranks > 1 else []
    return measured(bench_step(program, launch, model=model, image_size=size, channels=channels, classes=classes, batch_size=batch // ranks,
                               precision=precision, steps=steps, warmup=WARMUP, input="batch", device="cpu", **more))


def main():
    options = arguments(__doc__, 3, CASES, precisions=True).parse_args()
    result = comparison("ranks beside threads", options, definition=DEFINITION, warmup=WARMUP, ranks=CORES, rows=[])
    for case in CASES:
        for precision in options.precision:
            if case[0] not in options.models:
                continue
            runs = in_turn(options.rounds, {"threads": lambda: step(options.lockstep, case, precision, 1),
                                            "auto": lambda: step(options.lockstep, case, precision, CORES, comm="auto"),
                                            "mpi": lambda: step(options.lockstep, case, precision, CORES, comm="mpi")})
            result["machine"] = runs["threads"][0]["machine"]
            others = others_in(runs.values())
            row = {"model": case[0], "image_size": case[1], "global_batch": case[4], "precision": precision, "others_share_of_machine": others,
                   "threads_images_per_second": spread_of(runs["threads"], "images_per_second")}
            for way in ("auto", "mpi"):
                row[way] = {"images_per_second": spread_of(runs[way], "images_per_second"), "ratio": ratio(runs[way], runs["threads"]),
                            "exposed_communication_seconds": spread_of(runs[way], "exposed_communication_seconds")}
            result["rows"].append(row)
            print(f"{case[0]} b{case[4]} {precision}: one rank of {CORES} threads {row['threads_images_per_second']['median']:.1f} images/s; "
                  f"{CORES} ranks of one thread: shared memory {shown(row['auto']['ratio'])}, MPI {shown(row['mpi']['ratio'])}"
                  f"{note_of_others(others)}", flush=True)
    write(result, options.output)


if __name__ == "__main__":
    main()
