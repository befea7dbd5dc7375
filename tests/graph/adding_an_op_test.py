"""adding_an_op_test.py TOP: each line of code in docs/adding-an-op.md is in the file that the page names above it."""

import pathlib
import re
import sys

top = pathlib.Path(sys.argv[1])
page = (top / "docs/adding-an-op.md").read_text()
parts = re.findall(r"^\*\*`([^`]+)`\*\*(?:(?!^\*\*`).)*?^```cpp\n(.*?)^```", page, re.M | re.S)
named = re.findall(r"^\*\*`([^`]+)`\*\*", page, re.M)
assert [name for name, _ in parts] == named, f"without code: {set(named) - {name for name, _ in parts}}"
for name, code in parts:
    assert "Gelu" in code, f"{name}: the code of another op"
    lines = set((top / name).read_text().splitlines())
    missing = [line for line in code.splitlines() if line not in lines]
    assert not missing, f"{name} has no line {missing[0]!r}"
ours = [name for name in named if not name.startswith("tests/")]
assert len(ours) == 5, ours
print(f"{len(parts)} files")
