#!/usr/bin/env python3
"""compare_builds.py LOCKSTEP OUTPUT.json --before OTHER: `bench step` of two builds of Lockstep in turn, as after a change that shall cost no time.

The ratio is of images/s within a round, LOCKSTEP's divided by OTHER's; which of the two is first alternates.
"""

import datetime

from compare_ranks import CASES, step
from peers import arguments, note_of_others, shown, spread, write


def main():
    parser = arguments(__doc__, rounds=4)
    parser.add_argument("--before", required=True, help="the other build's program")
    parser.add_argument("--precision", nargs="+", choices=("fp32", "bf16"), default=["fp32", "bf16"])
    parser.add_argument("--models", nargs="+", default=[case[0] for case in CASES], choices=[case[0] for case in CASES])
    options = parser.parse_args()
    result = {"benchmark": "step of two builds", "date": datetime.date.today().isoformat(), "rounds": options.rounds, "rows": []}
    for case in CASES:
        for precision in options.precision:
            if case[0] not in options.models:
                continue
            runs = {options.lockstep: [], options.before: []}
            for turn in range(options.rounds):
                for program in sorted(runs, reverse=turn % 2 == 1):
                    runs[program].append(step(program, case, precision, 1))
            after, before = (runs[program] for program in (options.lockstep, options.before))
            others = max(run["others"] for run in after + before)
            result["machine"] = after[0]["machine"]
            row = {"model": case[0], "image_size": case[1], "batch": case[4], "precision": precision, "others_share_of_machine": others,
                   "images_per_second": spread([run["images_per_second"] for run in after]),
                   "before_images_per_second": spread([run["images_per_second"] for run in before]),
                   "ratio": spread([a["images_per_second"] / b["images_per_second"] for a, b in zip(after, before)])}
            result["rows"].append(row)
            print(f"{case[0]} b{case[4]} {precision}: {row['images_per_second']['median']:.1f} images/s, {shown(row['ratio'])} of before{note_of_others(others)}", flush=True)
    write(result, options.output)


if __name__ == "__main__":
    main()
