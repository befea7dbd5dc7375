#!/usr/bin/env python3
"""Checks the easyconfigs: without EasyBuild what they name and set; with it (scripts/soak easybuild), that EasyBuild accepts them and finds
every dependency. Prints what was not checked."""

import importlib.util
import os
import pathlib
import re
import sys

from installed import SOURCE, cmake_options, install, main, run

FOLDER = SOURCE / "modules/easybuild"
CMAKE_FILES = {path.name: path.read_text() for path in [SOURCE / "CMakeLists.txt", *SOURCE.glob("cmake/*.cmake")]}
CONSTANTS = {"SYSTEM": {"name": "system", "version": "system"}, "SHLIB_EXT": "so", "SOURCE_TAR_GZ": "%(name)s-%(version)s.tar.gz",
             "SOURCELOWER_TAR_GZ": "%(namelower)s-%(version)s.tar.gz", "SOURCE_ZIP": "%(name)s-%(version)s.zip"}
PARAMETERS = {"easyblock", "name", "version", "versionsuffix", "homepage", "description", "toolchain", "source_urls", "sources",
              "checksums", "builddependencies", "dependencies", "configopts", "build_shared_libs", "cuda_compute_capabilities",
              "skipsteps", "files_to_copy", "sanity_check_paths", "sanity_check_commands", "modextravars", "moduleclass"}
# EasyBuild's own easyconfigs of the toolchain gompi/2025b that ours name (EasyBuild 5.4.1).
OFFICIAL = {"CMake-3.31.8", "Ninja-1.13.0", "HDF5-1.14.6", "Boost-1.88.0", "hwloc-2.12.1", "nlohmann_json-3.12.0", "fmt-11.2.0", "spdlog-1.15.3",
            "zlib-1.3.1", "OpenSSL-3", "libjpeg-turbo-3.1.1", "libpng-1.6.50", "CUDA-12.9.1", "cuDNN-9.15.0.57-CUDA-12.9.1",
            "NCCL-2.27.7-CUDA-12.9.1"}
# EasyBuild's names of what CMake finds. None: the toolchain has it.
NAMES = {"Threads": None, "MPI": None, "OpenMP": None, "HDF5": "HDF5", "Boost": "Boost", "OneDNN": "oneDNN", "HWLOC": "hwloc", "fmt": "fmt",
         "nlohmann_json": "nlohmann_json", "spdlog": "spdlog", "ZLIB": "zlib", "OpenSSL": "OpenSSL", "JPEG": "libjpeg-turbo",
         "PNG": "libpng"}
NAMES_FOR_CUDA = {"CUDAToolkit": "CUDA", "CUDNN": "cuDNN", "NCCL": "NCCL", "CUDNNFrontend": "cudnn-frontend"}
TOOLS = {"CMake", "Ninja"}


def load(path):
    """The parameters of an easyconfig, which is Python with constants; also with templates of its own values replaced."""
    values = dict(CONSTANTS)
    exec(compile(path.read_text(), str(path), "exec"), values)
    found = {name: value for name, value in values.items() if name not in CONSTANTS and name != "__builtins__"}
    unknown = {name for name in found if name not in PARAMETERS and not name.startswith("local_")}
    assert not unknown, f"{path.name}: no parameters that this test knows: {unknown}"
    cuda = [dependency[1] for dependency in found.get("dependencies", []) if dependency[0] == "CUDA"]
    found["versionsuffix"] = found.get("versionsuffix", "").replace("%(cudaver)s", cuda[0] if cuda else "%(cudaver)s")
    return found


def lockstep():
    """The easyconfigs of the project itself, by whether they build for GPUs."""
    found = {"CUDA" in path.name: load(path) for path in FOLDER.glob("Lockstep-*.eb")}
    assert found.keys() == {False, True}, "one easyconfig for CPUs and one with CUDA are expected"
    return found


def dependencies(config):
    """Versions by name, of what is needed to build or to run."""
    return {name: version for name, version, *_ in [*config["builddependencies"], *config["dependencies"]]}


def required(file):
    """What find_package of a CMake file needs, outside the conditions for tests: lowest and highest version by name."""
    text = re.sub(r"if\(LOCKSTEP_BUILD_TESTS\).*?endif\(\)", "", CMAKE_FILES[file], flags=re.S)
    found = re.findall(r"find_package\((\w+) ?([\d.]*?)(?:\.\.\.<(\d+))?(?: REQUIRED| QUIET)", text)
    return {name: (low, high) for name, low, high in found}


def numbers(version):
    return [int(number) for number in re.findall(r"\d+", version)]


def names_agree_with_the_contents(_):
    for path in FOLDER.glob("*.eb"):
        config = load(path)
        toolchain = config["toolchain"]
        suffix = "" if toolchain == CONSTANTS["SYSTEM"] else f"-{toolchain['name']}-{toolchain['version']}"
        assert path.name == f"{config['name']}-{config['version']}{suffix}{config['versionsuffix']}.eb", path.name
        assert config["moduleclass"] in ("ai", "lib", "numlib") and config["description"], path.name
        # An archive of a checkout has no checksum that would be known here.
        assert ("checksums" in config) == ("source_urls" in config), path.name
        for checksum in config.get("checksums", []):
            assert re.fullmatch(r"[0-9a-f]{64}", checksum), (path.name, checksum)
    version = re.search(r"project\(lockstep VERSION ([\d.]+)", CMAKE_FILES["CMakeLists.txt"])[1]
    for config in lockstep().values():
        assert config["version"] == version, f"{config['version']} is not the project's {version}: rename the easyconfig"


def every_package_that_cmake_requires_is_a_dependency(_):
    configs = lockstep()
    for cuda, config in configs.items():
        needed = required("LockstepDependencies.cmake") | (required("LockstepCuda.cmake") if cuda else {})
        names = NAMES | (NAMES_FOR_CUDA if cuda else {})
        assert len(needed) > 12 and needed.keys() <= names.keys(), f"no name of EasyBuild for {needed.keys() - names.keys()}"
        given = dependencies(config)
        wanted = {names[package]: limits for package, limits in needed.items() if names[package]}
        wanted["CMake"] = (re.search(r"cmake_minimum_required\(VERSION ([\d.]+)", CMAKE_FILES["CMakeLists.txt"])[1], "")
        assert wanted.keys() - given.keys() == set(), f"not among the dependencies: {wanted.keys() - given.keys()}"
        assert given.keys() - wanted.keys() - TOOLS == set(), f"CMake needs no {given.keys() - wanted.keys() - TOOLS}"
        for name, (low, high) in wanted.items():
            # OpenSSL's module is named by its first number.
            version = numbers(given[name])
            assert version >= numbers(low)[:len(version)], f"{name} {given[name]} is older than {low}"
            assert not high or version < numbers(high), f"{name} {given[name]} is not older than {high}"
    assert {name: version for name, version in dependencies(configs[True]).items() if name not in NAMES_FOR_CUDA.values()} == dependencies(
        configs[False]), "the variants differ in more than CUDA"
    print(f"        {len(dependencies(configs[True]))} dependencies cover what CMake requires")


def every_dependency_has_an_easyconfig(_):
    ours = {f"{config['name']}-{config['version']}{config['versionsuffix']}" for config in map(load, FOLDER.glob("*.eb"))}
    for config in map(load, FOLDER.glob("*.eb")):
        for name, version, *rest in [*config.get("builddependencies", []), *config.get("dependencies", [])]:
            suffix = config["versionsuffix"] if rest and "%(cudaver)s" in rest[0] else (rest[0] if rest else "")
            assert f"{name}-{version}{suffix}" in OFFICIAL | ours, f"{name}-{version}{suffix} is neither EasyBuild's nor here"
        if config["name"] == "oneDNN":
            assert "-DDNNL_CPU_RUNTIME=OMP" in config["configopts"], "Lockstep's threads are OpenMP's"


def every_option_is_one_of_cmake(_):
    for cuda, config in lockstep().items():
        given = dict(re.findall(r"-D(\w+)=(\S+)", config["configopts"]))
        own = {name for name in given if name.startswith("LOCKSTEP_")}
        assert own and own <= cmake_options(), f"CMake has no option {own - cmake_options()}"
        assert given["LOCKSTEP_CUDA"] == ("ON" if cuda else "OFF"), "never AUTO"
        for name in given.keys() - own:
            package = name.removesuffix("_ROOT")
            known = any(re.search(rf"find_(?:path|library)\({name} |find_package\({package} ", text) for text in CMAKE_FILES.values())
            assert known, f"CMake does not read {name}"
            # EasyBuild's variable of a module: upper case, with MIN for a hyphen.
            modules = {"EBROOT" + dependency.upper().replace("-", "MIN") for dependency in dependencies(config)}
            assert re.match(r"\$(\w+)", given[name])[1] in modules, f"no dependency sets {given[name]}"


def the_installation_has_what_the_sanity_check_expects(folder):
    tree = install(folder / "tree")

    for cuda, config in lockstep().items():
        paths = config["sanity_check_paths"]
        absent = [path for path in paths["files"] if not (tree / path).is_file() and not path.endswith("lockstep-cuda.so")]
        assert not absent and all((tree / path).is_dir() and any((tree / path).iterdir()) for path in paths["dirs"]), absent
        assert cuda == ("lib/lockstep/lockstep-cuda.so" in paths["files"])
        for command in config["sanity_check_commands"]:
            run(["sh", "-c", command], env={**os.environ, "PATH": f"{tree}/bin:{os.environ['PATH']}"})
        for variable, value in config["modextravars"].items():
            assert pathlib.Path(value.replace("%(installdir)s", str(tree))).is_dir(), (variable, value)


def easybuild_finds_every_dependency(folder):
    if any(importlib.util.find_spec(name) is None for name in ("easybuild", "easybuild.framework")):
        print("skipped: EasyBuild itself is not here (what it resolves was not checked; scripts/soak easybuild)")
        return
    lmod = next((place for place in (os.environ.get("LMOD_CMD", ""), "/usr/share/lmod/lmod/libexec/lmod") if os.path.exists(place)), None)
    if not lmod:
        print("skipped: EasyBuild needs a module system (install lmod)")
        return
    # Not the user's settings; `eb` in PATH tells EasyBuild where its own easyconfigs are.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("EASYBUILD")}
    environment = {**clean, "HOME": str(folder), "LMOD_CMD": lmod, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    easybuild = [sys.executable, "-m", "easybuild.main", "--allow-use-as-root-and-accept-consequences", "--ignoreconfigfiles=/dev/null",
                 f"--prefix={folder}/prefix", f"--tmpdir={folder}", "--modules-tool=Lmod"]
    ours = sorted(FOLDER.glob("*.eb"))

    output = run([*easybuild, "--dry-run", f"--robot={FOLDER}:", *ours], env=environment)

    resolved = re.findall(r"^ \* \[.\] (\S+) \(module: (\S+)\)$", output, re.M)
    assert {str(path) for path in ours} <= {path for path, _ in resolved}, output
    for config in lockstep().values():
        for name, version in dependencies(config).items():
            assert any(module.startswith(f"{name}/{version}") for _, module in resolved), f"EasyBuild does not resolve {name} {version}"
    print(f"        EasyBuild finds easyconfigs of {len(resolved)} modules")
    if importlib.util.find_spec("pycodestyle"):
        output = run([*easybuild, "--check-style", *ours], env=environment)
        assert "All style checks PASSed" in output, output
        print("        its style check passes")


if __name__ == "__main__":
    main([names_agree_with_the_contents, every_package_that_cmake_requires_is_a_dependency, every_dependency_has_an_easyconfig,
          every_option_is_one_of_cmake, the_installation_has_what_the_sanity_check_expects, easybuild_finds_every_dependency])
