#!/usr/bin/env python3
"""summarize_tests.py JUNIT.xml [EXPECTED_SKIPS]: prints each test above 20 s with its time, each skipped test or part of a test with its
reason, each failed test with the first lines that say why, and a summary line. Exit status 1 if a test was skipped that EXPECTED_SKIPS does not list."""

import fnmatch
import re
import sys
import xml.etree.ElementTree as ElementTree

LONG = 20  # seconds


def skips_of(case):
    """The reasons why the test case, or parts of it, did not run."""
    output = (case.findtext("system-out") or "").strip().splitlines()
    if case.get("status") == "run":
        return [line.removeprefix("skipped").lstrip(": ").strip() for line in output if line.startswith("skipped")]
    reason = next((line for line in output if "skip" in line.lower()), "no reason printed")
    return [reason.strip().removeprefix("skipped:").strip()]


def reasons_of(case):
    """The first lines that say what failed in the test case: its own or Boost.Test's, or else its last line."""
    text = re.sub(r"\[NON-XML-CHAR-0x1B\]\[[0-9;]*m", "", case.findtext("system-out") or "")  # colours
    output = list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
    found = [line.removeprefix("FAILED").strip() for line in output if line.startswith("FAILED ") or "error: in " in line]
    ends = [failure.get("message") for failure in case.iter("failure")]
    return [reason[:300] for reason in (found or output[-1:] or ends or ["no output"])[:3]]


def read_expected(path):
    """Reads lines of the form `TEST: REASON`; TEST is a file name pattern, REASON a regular expression."""
    with open(path, encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    return [line.split(": ", 1) for line in lines]


def main():
    cases = list(ElementTree.parse(sys.argv[1]).getroot().iter("testcase"))
    expected = read_expected(sys.argv[2]) if len(sys.argv) > 2 else [["*", ""]]
    passed = failed = skipped = unexpected = 0
    for case in sorted(cases, key=lambda case: -float(case.get("time"))):
        if float(case.get("time")) > LONG:
            print(f"{float(case.get('time')):6.0f} s  {case.get('name')}")
    for case in cases:
        name, status = case.get("name"), case.get("status")
        if status == "run":
            passed += 1
        elif status not in ("notrun", "disabled"):
            failed += 1
            for reason in reasons_of(case):
                print(f"failed: {name}: {reason}")
            continue
        for reason in skips_of(case):
            skipped += 1
            known = any(fnmatch.fnmatch(name, test) and re.search(pattern, reason) for test, pattern in expected)
            unexpected += not known
            print(f"skipped{'' if known else ' unexpectedly'}: {name}: {reason}")
    if unexpected:
        print(f"{unexpected} skipped that {sys.argv[2]} does not list (it lists what a machine may lack); "
              "install what is missing, or list it")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
