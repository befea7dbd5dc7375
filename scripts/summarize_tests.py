#!/usr/bin/env python3
"""summarize_tests.py JUNIT.xml: each skipped test, or part of one, with its reason, then one closing line."""

import sys
import xml.etree.ElementTree as ElementTree


def main():
    cases = ElementTree.parse(sys.argv[1]).getroot().iter("testcase")
    passed = failed = skipped = 0
    for case in cases:
        status = case.get("status")
        output = (case.findtext("system-out") or "").strip().splitlines()
        if status == "run":
            passed += 1
            for line in output:
                if line.startswith("skipped"):
                    skipped += 1
                    print(f"skipped in {case.get('name')}: {line.removeprefix('skipped').lstrip(': ').strip()}")
        elif status in ("notrun", "disabled"):
            skipped += 1
            reason = next((line for line in output if "skip" in line.lower()), "no reason printed")
            print(f"skipped: {case.get('name')}: {reason.strip()}")
        else:
            failed += 1
            print(f"failed: {case.get('name')}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")


if __name__ == "__main__":
    main()
