#!/usr/bin/env python3
"""check_pages.py: checks that relative links and anchors of the Markdown pages resolve, that paths in backticks exist, and that no
placeholder (@@NAME@@) is left.

Prints each fault as FILE:LINE; exit status 1 if there is any. Also limits the length of the README and of the architecture page.
"""

import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
LIMITS = {"README.md": 100, "docs/architecture.md": 150}  # lines
# A path from the top folder, or from src or include/lockstep without its extension, such as `data/loader`.
ROOTED = re.compile(r"(?:src|include|tests|docs|scripts|cmake|slurm|modules|benchmarks)/[\w./-]+$")


def anchors(page):
    """GitHub's anchors of a page's headings."""
    headings = re.findall(r"^#+ +(.*)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def exists(name, files, folders):
    return (name in files or name.rstrip("/") in folders or (TOP / name).exists()  # also files that are not tracked yet
            or any(file.rsplit(".", 1)[0] == f"{root}{name}" for root in ("", "src/", "include/lockstep/") for file in files))


def faults(path, files, folders):
    for number, line in enumerate((TOP / path).read_text().splitlines(), 1):
        if placeholder := re.search(r"@@\w+@@", line):
            yield f"{path}:{number}: the placeholder {placeholder[0]} is left"
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            page = (TOP / path).parent / name if name else TOP / path
            if not page.exists():
                yield f"{path}:{number}: no file {target}"
            elif anchor and anchor not in anchors(page):
                yield f"{path}:{number}: no heading for #{anchor} in {page.name}"
        for named in re.findall(r"`([^`]+)`", line):
            if ROOTED.match(named) and not re.search(r"/[A-Z]{2,}\b", named) and not exists(named, files, folders):
                yield f"{path}:{number}: no {named}"


def main():
    listed = subprocess.run(["git", "ls-files"], cwd=TOP, capture_output=True, text=True, check=True).stdout.split("\n")
    files = set(filter(None, listed))
    folders = {str(parent) for file in files for parent in pathlib.PurePosixPath(file).parents}
    pages = sorted(name for name in files if name.endswith(".md") and (TOP / name).exists())
    found = [fault for page in pages for fault in faults(page, files, folders)]
    for page, most in LIMITS.items():
        count = len((TOP / page).read_text().splitlines())
        if count > most:
            found.append(f"{page}: {count} lines; at most {most}")
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
