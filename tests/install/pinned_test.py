#!/usr/bin/env python3
"""Checks that everything fetched from elsewhere is named with a sum, a digest or a commit: Python packages, images, sources of recipes.
Packages of a distribution are signed by it."""

import ast
import re

from installed import SOURCE, main, source_texts

PACKAGES = SOURCE / "scripts/python-packages"
SUM = re.compile(r"[0-9a-f]{64}")
# The project's own source, which each site takes from a checkout or from its own repository.
OWN = {"Lockstep": "sources"}


def unpinned(name, text):
    """What the text fetches without a sum."""
    joined = re.sub(r"\\\n\s*", " ", text)
    for line in joined.splitlines():
        if re.search(r"\b(pip3?|pipx|uv)\b[\"', ]+(install|download|add|run)\b", line):
            if "--require-hashes" not in line and not (name == "scripts/pin-python-packages" and "--dry-run" in line):
                yield f"{line.strip()} (--require-hashes)"
        if re.search(r"\b(curl|wget)\b +\S", line) and re.search(r"(https?|ftp)://", line):
            yield f"{line.strip()} (a download without a sum)"
        if re.search(r"\b(npm|npx|yarn|cargo|go|gem) +(install|add|get|exec)\b", line) or re.search(r"\bgit +clone\b.*(https?|ssh|git)(://|@)", line):
            yield f"{line.strip()} (no sum)"
    for call in re.findall(r"\b(?:FetchContent_Declare|ExternalProject_Add|CPMAddPackage)\s*\(([^)]*)\)", text, re.I):
        if not re.search(r"URL_HASH\s+SHA256=[0-9a-f]{64}|GIT_TAG\s+[0-9a-f]{40}", call):
            yield f"{call.strip()} (URL_HASH SHA256=, or the whole commit)"
    for call in re.findall(r"\bfile\s*\(\s*DOWNLOAD\b([^)]*)\)", text, re.I):
        if not re.search(r"EXPECTED_HASH\s+SHA256=[0-9a-f]{64}", call):
            yield f"{call.strip()} (EXPECTED_HASH SHA256=)"
    for pattern in (r"^\s*FROM\s+(?:--\S+\s+)?(\S+)", r"^\s*From:\s*(\S+)\s*$", r"\b\w*IMAGE=([^\s\"'`,]+)", r"\bdocker://([^\s\"'`)]+)",
                    r"^\s*-?\s*(?:image|container|uses):\s*[\"']?([^\s\"'#]+)",
                    r"\b(?:docker|podman) +(?:run|pull)\b.*?\s([\w.-]+(?:/[\w.-]+)*(?::[\w.-]+)(?:@\S+)?)"):
        for image in re.findall(pattern, joined, re.M):
            if not re.search(r"@sha256:[0-9a-f]{64}$|@[0-9a-f]{40}$", image) and not image.startswith("{{") and "$" not in image:
                yield f"the image {image} (@sha256:)"


def nothing_is_fetched_without_a_sum(_):
    texts = source_texts()
    scanned = {name: text for name, text in texts.items() if not name.startswith(("src/", "include/")) and
               name not in ("tests/install/pinned_test.py", "CHANGELOG.md")}
    found = [f"{name}: {problem}" for name, text in scanned.items() for problem in unpinned(name, text)]
    assert len(scanned) > 300 and not found, "\n".join(found)


def what_is_unpinned_is_found(_):
    """The check itself."""
    digest = "@sha256:" + "0" * 64
    for text in ("python3 -m pip install --quiet --no-deps tensorboard", "  \"$python\" -m pip install \\\n  'torch<3'", "pip install x", "pip3 download x",
                 'run([python, "-m", "pip", "install", "x"])', "curl -L https://example.org/x.tar.gz | tar xz", "npm install dygraphs",
                 "git clone https://example.org/x.git", "FetchContent_Declare(fmt GIT_REPOSITORY x GIT_TAG v11)",
                 "file(DOWNLOAD https://example.org/x x)", "FROM debian:12", "From: debian:12", "    BUILD_IMAGE=debian:12", "  image: debian:12",
                 "uses: actions/checkout@v4", "apptainer build x docker://debian:12", "docker run --rm debian:12 true"):
        assert [*unpinned("x", text)], text
    for text in ("python3 -m pip install --require-hashes -r x.txt", "apt-get install -y git", "FROM debian" + digest, "From: {{ BUILD_IMAGE }}",
                 "    BUILD_IMAGE=debian" + digest, "uses: actions/checkout@" + "0" * 40, "the image is small", "a pip package",
                 "FetchContent_Declare(fmt URL x URL_HASH SHA256=" + "0" * 64 + ")", 'git clone "$project" "$clone"'):
        assert not [*unpinned("x", text)], (text, [*unpinned("x", text)])


def every_listed_package_has_sums(_):
    files = sorted(PACKAGES.glob("*.txt"))
    assert len(files) > 5, files
    for path in files:
        entries = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", path.read_text(), flags=re.M)).splitlines()
        assert entries and all(re.fullmatch(r"[\w.-]+==[\w.]+(\s+--hash=sha256:[0-9a-f]{64})+\s*", entry) for entry in entries), (path.name, entries)
    # What has machine code has a file for each Python and processor.
    for name, least in (("exports", 6), ("tensorboard", 6), ("cudnn-frontend", 6)):
        compiled = max(entry.count("--hash") for entry in re.sub(r"\\\n", " ", (PACKAGES / f"{name}.txt").read_text()).splitlines())
        assert compiled >= least, f"{name}.txt has {compiled} sums of a package for 3 Pythons and 2 processors"
    used = "".join(text for name, text in source_texts().items() if name.startswith(("scripts/", "tests/install/")))
    for path in files:
        words = path.stem.split("-")[0] if path.stem.startswith("nvidia-") else path.stem
        assert re.search(rf"\b{words}\b", used), f"nothing installs {path.name}"


def recipes_have_sums(_):
    for path in (SOURCE / "modules/easybuild").glob("*.eb"):
        text = path.read_text()
        name = re.search(r"^name = '(.*)'", text, re.M)[1]
        fetched = [part for part in ("source_urls", "sources", "patches") if re.search(rf"^{part} = ", text, re.M)]
        sums = re.findall(r"'([0-9a-f]{64})'", "".join(re.findall(r"^checksums = \[(.*?)\]", text, re.M | re.S)))
        assert sums or fetched == [OWN.get(name)], f"{path.name} fetches {fetched} without checksums"
    for path in (SOURCE / "modules/spack").rglob("package.py"):
        tree = ast.parse(path.read_text())
        own = not {"url", "git"} & {target.id for node in ast.walk(tree) if isinstance(node, ast.Assign)
                                    for target in node.targets if isinstance(target, ast.Name)}
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("version", "resource", "patch")]
        assert calls, path
        for call in calls:
            words = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg != "when"}
            pinned = re.fullmatch(r"[0-9a-f]{40}", words.get("commit", "")) or SUM.fullmatch(words.get("sha256", ""))
            # Without an address Spack fetches nothing; docs/cluster-staff.md has the site name its own repository.
            assert pinned or own, f"{path.name}: {ast.unparse(call)} has neither sha256 nor a whole commit"


if __name__ == "__main__":
    main([nothing_is_fetched_without_a_sum, what_is_unpinned_is_found, every_listed_package_has_sums, recipes_have_sums])
