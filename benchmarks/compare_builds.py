#!/usr/bin/env python3
"""compare_builds.py LOCKSTEP OUTPUT.json --before OTHER: alternates `bench step` of two builds, to show that a change costs no time and no memory.

The ratios are LOCKSTEP's images/s, and its peak resident set of rank 0, divided by OTHER's within one round. The two builds take turns to run
first. The global batch is divided over --ranks.
"""

import itertools

from compare_ranks import CASES, step
from harness import DEFINITION, WARMUP, arguments, comparison, in_turn, note_of_others, others_in, ratio, shown, spread_of, write


def main():
    parser = arguments(__doc__, 4, CASES, precisions=True)
    parser.add_argument("--before", required=True, help="the other build's program")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1])
    parser.add_argument("--shard", nargs="+", default=["none"], help="values of --shard")
    options = parser.parse_args()
    result = comparison("step of two builds", options, definition=DEFINITION, warmup=WARMUP, rows=[])
    cases = [case for case in CASES if case[0] in options.models]
    for case, precision, ranks, shard in itertools.product(cases, options.precision, options.ranks, options.shard):
        runs = in_turn(options.rounds, {program: lambda program=program: step(program, case, precision, ranks, shard=shard)
                                        for program in (options.lockstep, options.before)}, alternate=True)
        after, before = runs[options.lockstep], runs[options.before]
        others = others_in(runs.values())
        result["machine"] = after[0]["machine"]
        row = {"model": case[0], "image_size": case[1], "global_batch": case[4], "precision": precision, "ranks": ranks, "shard": shard,
               "others_share_of_machine": others,
               "images_per_second": spread_of(after, "images_per_second"),
               "before_images_per_second": spread_of(before, "images_per_second"),
               "ratio": ratio(after, before), "memory_ratio": ratio(after, before, "peak_rss_bytes")}
        result["rows"].append(row)
        print(f"{case[0]} b{case[4]} {precision}, {ranks} ranks, --shard {shard}: {row['images_per_second']['median']:.1f} images/s, "
              f"{shown(row['ratio'])} of before; memory {shown(row['memory_ratio'])}{note_of_others(others)}", flush=True)
    write(result, options.output)


if __name__ == "__main__":
    main()
