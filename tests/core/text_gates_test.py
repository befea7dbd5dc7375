"""Checks over the sources: all JSON is read by core/json, commands print by core/print only, and every test that is written runs."""

import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])

# Where each may stand, besides its own module.
GATES = {
    "JSON's library is included by core/json.hpp only": (r"include <nlohmann/(?!json_fwd\.hpp)", {"include/lockstep/core/json.hpp"}),
    "JSON is parsed by core/json only": (r"[jJ]son::(parse|accept|sax_parse|from_(?!cbor))", set()),
    # A rank's message to others of its job, flat, which may hold bytes and infinities.
    "CBOR is between ranks only": (r"from_cbor", {"src/checkpoint/checkpoint_format.cpp"}),
    # The bar of `pack` is the program's own; a kernel's assertion cannot call the library.
    "commands print by core/print only": (r"fmt::print\(|std::c(out|err)\b|\b(printf|fprintf|fputs|puts|putchar)\(",
                                          {"src/cli/pack_output.cpp", "src/engine/gpu/kernels/vector_io.hpp",
                                           "src/cli/export_metrics.cpp"}),  # a stream for csv_field()
    # Each of these escapes what it writes; terminal_screen.cpp gets lines of printable().
    "descriptors of the terminal are written by few": (r"write\((STD(OUT|ERR)_FILENO|options_\.descriptor)",
                                                       {"src/runtime/watch/async_logger.cpp", "src/cli/terminal_screen.cpp", "src/run/progress.cpp"}),
}

sources = [path for folder in ("src", "include") for kind in ("*.cpp", "*.hpp", "*.cu") for path in (ROOT / folder).rglob(kind)]
assert len(sources) > 300, len(sources)
for rule, (pattern, allowed) in GATES.items():
    found = {str(path.relative_to(ROOT)) for path in sources if re.search(pattern, path.read_text())}
    assert found == allowed, f"{rule}: {sorted(found ^ allowed)}"

# A file of tests is in its folder's CMakeLists.txt, or run by scripts/soak; each function of one in Python is used, by its list of tests or by another function.
tests = [path for path in (ROOT / "tests").rglob("*_test.*") if path.suffix in (".cpp", ".cu", ".py", ".sh")]
assert len(tests) > 250, len(tests)
for path in tests:
    stem = path.name.removesuffix(path.suffix)
    lists = [folder / "CMakeLists.txt" for folder in path.parents[:2]] + [ROOT / "scripts" / "soak"]
    declared = "\n".join(file.read_text() for file in lists if file.exists())
    assert re.search(rf"\b({stem}|{stem.removesuffix('_test')})\b", declared), f"{path} is registered in no CMakeLists.txt"
    if path.suffix == ".py":
        tree = ast.parse(path.read_text())
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        unused = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name not in used
                  and not node.name.startswith("test_")]  # found by their names
        assert not unused, f"{path}: written, but neither registered nor called: {unused}"
print(f"{len(sources)} files, {len(GATES)} rules, {len(tests)} files of tests")
