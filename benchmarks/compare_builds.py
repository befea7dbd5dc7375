#!/usr/bin/env python3
"""compare_builds.py LOCKSTEP OUTPUT.json --before OTHER: alternates `bench step` of two builds, to show that a change costs no time.

The ratio is LOCKSTEP's images/s divided by OTHER's within one round. The two builds take turns to run first.
"""

from compare_ranks import CASES, step
from harness import DEFINITION, WARMUP, arguments, comparison, in_turn, note_of_others, others_in, ratio, shown, spread_of, write


def main():
    parser = arguments(__doc__, 4, CASES, precisions=True)
    parser.add_argument("--before", required=True, help="the other build's program")
    options = parser.parse_args()
    result = comparison("step of two builds", options, definition=DEFINITION, warmup=WARMUP, rows=[])
    for case in CASES:
        for precision in options.precision:
            if case[0] not in options.models:
                continue
            runs = in_turn(options.rounds, {program: lambda program=program: step(program, case, precision, 1)
                                            for program in (options.lockstep, options.before)}, alternate=True)
            after, before = runs[options.lockstep], runs[options.before]
            others = others_in(runs.values())
            result["machine"] = after[0]["machine"]
            row = {"model": case[0], "image_size": case[1], "batch": case[4], "precision": precision, "others_share_of_machine": others,
                   "images_per_second": spread_of(after, "images_per_second"),
                   "before_images_per_second": spread_of(before, "images_per_second"),
                   "ratio": ratio(after, before)}
            result["rows"].append(row)
            print(f"{case[0]} b{case[4]} {precision}: {row['images_per_second']['median']:.1f} images/s, {shown(row['ratio'])} of before{note_of_others(others)}", flush=True)
    write(result, options.output)


if __name__ == "__main__":
    main()
