#!/usr/bin/env python3
"""Checks the Spack recipe against Spack's package API, as far as possible without Spack; prints what was and was not checked."""

import ast
import os
import pathlib
import re
import shutil

import spack_stand_in as spack
from installed import CMAKE, SOURCE, cmake_options, main, run

REPOSITORY = SOURCE / "modules/spack/spack_repo/lockstep"
RECIPE = REPOSITORY / "packages/lockstep/package.py"
ENVIRONMENT = SOURCE / "modules/spack/environment/spack.yaml"


def defaults(**changes):
    values = {name: ((v["default"],) if v["multi"] else v["default"]) for name, v in spack.declared["variants"].items()}
    return spack.Spec({**values, **changes})


def given(arguments):
    return dict(re.fullmatch(r"-D(\w+):\w+=(.*)", argument).groups() for argument in arguments)


def spack_accepts_the_recipe(_):
    namespace = spack.load(RECIPE)

    tree = ast.parse(RECIPE.read_text())
    package = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Lockstep")
    called = {node.func.id for statement in package.body if isinstance(statement, (ast.Expr, ast.With))
              for node in ast.walk(statement) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    unknown = called - spack.DIRECTIVES.keys() - {"generator", "when"}
    assert not unknown, f"not directives of Spack: {unknown}"
    assert ast.get_docstring(package), "Spack requires a description"
    assert spack.declared["licenses"] == ["Apache-2.0"] and spack.declared["maintainers"], spack.declared
    # Each site decides where to fetch the source from; a path on one host does not exist on others.
    assert "file://" not in RECIPE.read_text() and "as_uri" not in RECIPE.read_text()
    assert not {"git", "url"} & vars(namespace["Lockstep"]).keys()
    for recipe in REPOSITORY.glob("packages/*/package.py"):
        long = [line for line in recipe.read_text().splitlines() if len(line) > 99]
        assert not long, f"longer than Spack's 99 columns: {recipe} {long}"
    assert re.fullmatch(r"repo:\n  namespace: lockstep\n  api: v2\.\d+\n", (REPOSITORY / "repo.yaml").read_text())
    for kind in ("variants", "dependencies", "conflicts", "versions"):
        print(f"        {len(spack.declared[kind])} {kind} with arguments that Spack's directives take")
    for spec, condition in [*spack.declared["dependencies"], *spack.declared["conflicts"]]:
        own = {**spack.parse_spec(condition)[1].get(None, {})}
        if not spack.parse_spec(spec)[0]:
            own |= spack.parse_spec(spec)[1].get(None, {})
        assert own.keys() <= spack.declared["variants"].keys(), f"{spec!r} when {condition!r}: no such variant"
    print("        all conditions use declared variants")


def spack_finds_every_dependency(_):
    own = {path.parent.name.replace("_", "-"): path for path in REPOSITORY.glob("packages/*/package.py")}
    for name, recipe in own.items():
        namespace = spack.load(recipe)
        assert "".join(word.capitalize() for word in name.split("-")) in namespace, f"Spack expects another name for {name}'s class"
        assert spack.declared["versions"] and spack.declared["licenses"] and spack.declared["maintainers"], name
        for spec, _ in spack.declared["dependencies"]:
            wanted = spack.parse_spec(spec)[0]
            assert wanted not in spack.PROVIDERS, f"{name} names {wanted}, where {spack.PROVIDERS[wanted]} will do"
            assert wanted in spack.BUILTIN | own.keys(), f"{name} depends on {wanted}, which is neither Spack's nor here"


def a_spec_for_gpus_builds_nccl_for_their_architectures(_):
    spack.load(RECIPE)

    active = spack.resolve(defaults(cuda=True, cuda_arch=("90a", "100")))
    assert {"nccl cuda_arch=90a", "nccl cuda_arch=100"} <= set(active), active
    assert not [spec for spec in active if "cuda_arch=80" in spec], active
    assert any(spack.parse_spec(spec)[0] == "cudnn-frontend" for spec in active), active
    assert not [spec for spec in spack.resolve(defaults()) if "nccl" in spec or "cudnn" in spec]
    for architectures in (("none",), ("70",), ("75", "90")):
        try:
            spack.resolve(defaults(cuda=True, cuda_arch=architectures))
        except spack.SpackError as refused:
            assert "conflict: cuda_arch=" in str(refused), refused
        else:
            raise AssertionError(f"{architectures} is accepted")
    # An environment has one hdf5 for all packages, usually with MPI.
    assert not [spec for spec, _ in spack.declared["dependencies"] if "mpi" in spack.parse_spec(spec)[1].get("hdf5", {})]


def every_option_of_cmake_has_a_variant_that_sets_it(_):
    package = spack.load(RECIPE)["Lockstep"]
    # CMake finds the launcher of Spack's MPI; a package is optimized throughout.
    options = cmake_options() - {"LOCKSTEP_MPIRUN", "LOCKSTEP_CONTROL_OPTIONS"}
    assert len(options) >= 8, options

    everything = defaults(tests=True, cuda=True, cuda_arch=("90a", "100"), asserts=True,
                          warnings_as_errors=True, fuzzers=True, sanitize="address",
                          module_depends=("openmpi/4.1", "hdf5"), module_conflicts=("horovod",))
    arguments = given(package(everything).cmake_args())

    assert options <= arguments.keys(), f"no variant for {options - arguments.keys()}"
    unknown = {name for name in arguments if name.startswith("LOCKSTEP_")} - options
    assert not unknown, f"CMake has no option {unknown}"
    assert arguments["LOCKSTEP_CUDA_ARCHITECTURES"] == "90a-real;100-real"
    assert arguments["LOCKSTEP_SANITIZE"] == "address,undefined"
    assert arguments["LOCKSTEP_PYTHON"] == "/spack/python/bin/python"
    assert arguments["CUDNN_FRONTEND_INCLUDE_DIR"] == "/spack/cudnn-frontend/include"
    assert arguments["LOCKSTEP_MODULE_DEPENDS"] == "openmpi/4.1;hdf5"
    text = RECIPE.read_text()
    for variant in spack.declared["variants"]:
        assert len(re.findall(rf"\b{variant}\b", text.split("def cmake_args")[1])) > 0, f"variant {variant} changes nothing"
    print(f"        {len(options)} options of CMake, each set by a variant: {' '.join(sorted(options))}")


def the_default_spec_configures(folder):
    package = spack.load(RECIPE)["Lockstep"]
    arguments = package(defaults()).cmake_args()

    output = run([CMAKE, "-G", "Ninja", "-S", SOURCE, "-B", folder / "build", *arguments])

    assert "Manually-specified variables were not used" not in output, output
    cache = (folder / "build/CMakeCache.txt").read_text()
    for name, value in given(arguments).items():
        assert re.search(rf"^{name}:\w+={re.escape(value)}$", cache, re.M), (name, value)
    print(f"        CMake accepts {' '.join(arguments)}")


def the_example_environment_names_this_recipe_and_this_checkout(_):
    try:
        import yaml
    except ImportError:
        print("skipped: the example environment was not read (install python3-yaml)")
        return
    environment = yaml.safe_load(ENVIRONMENT.read_text())["spack"]

    assert all(spack.parse_spec(spec)[0] == "lockstep" for spec in environment["specs"])
    (spec,) = environment["develop"].values()
    assert (ENVIRONMENT.parent / spec["path"]).resolve() == SOURCE
    assert (ENVIRONMENT.parent / environment["repos"]["lockstep"]).resolve() == REPOSITORY
    print("        the example environment's specs, checkout and repository are there")


def spack_itself_reads_the_recipe(folder):
    program = shutil.which("spack")
    if not program:
        print("skipped: Spack itself is not here (what it resolves and builds was not checked)")
        return
    scope = folder / "scope"
    scope.mkdir()
    (scope / "repos.yaml").write_text(f"repos:\n  lockstep: {REPOSITORY}\n")
    environment = {**os.environ, "SPACK_DISABLE_LOCAL_CONFIG": "1"}
    assert "cudnn-frontend" in run([program, "-C", scope, "info", "lockstep"], env=environment)
    print("        spack info reads it")


if __name__ == "__main__":
    main([spack_accepts_the_recipe, spack_finds_every_dependency,
          a_spec_for_gpus_builds_nccl_for_their_architectures, every_option_of_cmake_has_a_variant_that_sets_it, the_default_spec_configures,
          the_example_environment_names_this_recipe_and_this_checkout, spack_itself_reads_the_recipe])
