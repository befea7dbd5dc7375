#!/usr/bin/env python3
"""summarize_tests.py JUNIT.xml: each skipped test with its reason, then one closing line."""

import sys
import xml.etree.ElementTree as ElementTree


def main():
    cases = ElementTree.parse(sys.argv[1]).getroot().iter("testcase")
    passed = failed = skipped = 0
    for case in cases:
        status = case.get("status")
        if status == "run":
            passed += 1
        elif status in ("notrun", "disabled"):
            skipped += 1
            output = (case.findtext("system-out") or "").strip().splitlines()
            reason = next((line for line in output if "skip" in line.lower()), "no reason printed")
            print(f"skipped: {case.get('name')}: {reason.strip()}")
        else:
            failed += 1
            print(f"failed: {case.get('name')}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")


if __name__ == "__main__":
    main()
