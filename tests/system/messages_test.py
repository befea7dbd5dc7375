#!/usr/bin/env python3
"""Tests of what messages say of options and of names from files, over all commands."""

import re

from harness import *  # noqa: F403

# The options of train are in tests/config/options_test.cpp.
COMMANDS = ("eval", "pack", "inspect", "export", "watch", "report", "compare", "export-metrics", "bench", "scale", "doctor")


def what_each_option_takes_is_said_when_a_value_is_refused(folder):
    refused = 0
    for name in COMMANDS:
        for option in re.findall(r"^  --([a-z0-9-]+) ", run([name, "--help"]), re.MULTILINE):
            status, output = finish(start([name, f"--{option}=[0.485,0.456]"]))
            takes = re.search(r"\(it takes (.*?)\)", output)
            if takes:
                assert status == USAGE and f"--{option} is '[0.485,0.456]'" in output and len(takes[1]) > 5, f"{name} --{option}\n{output}"
                refused += 1
    assert refused > 60, refused


if __name__ == "__main__":
    main([what_each_option_takes_is_said_when_a_value_is_refused])
