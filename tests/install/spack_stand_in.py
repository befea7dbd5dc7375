"""A stand-in for Spack's package API (version 2), as far as the recipes use it. Each function has the same parameters as Spack's, so
that Python rejects an argument that Spack does not accept. Declarations are recorded, and checked as Spack does."""

import re
import sys
import types

NAME = r"[A-Za-z_][A-Za-z0-9_.-]*"
# One part of a spec: %compiler or ^dependency or a name, each with versions; variants.
PIECE = re.compile(rf"(?P<sigil>[%^])?(?P<name>{NAME}(?![A-Za-z0-9_.=-]))?(?P<version>@=?[A-Za-z0-9_.:,-]+)?"
                   rf"(?P<variants>(?:\s*(?:[+~]{NAME}|{NAME}==?[^\s^%]+))*)")
# Names that a recipe of this API version may use, in addition to the directives below.
EXPORTED = {"when", "default_args", "run_after", "run_before", "on_package_attributes", "which", "join_path", "working_dir",
            "Version", "Spec", "Executable", "EnvironmentModifications", "InstallError", "SkipTest", "any_combination_of",
            "disjoint_sets", "conditional", "Prefix", "install", "install_tree", "mkdirp", "filter_file", "find"}

# The names of Spack's packages (repository builtin, July 2026) and of virtual packages that the recipes may use.
BUILTIN = {"c", "cxx", "cmake", "mpi", "hdf5", "boost", "onednn", "hwloc", "nlohmann-json", "fmt", "spdlog", "zlib-api", "jpeg", "libpng",
           "openssl", "python", "py-h5py", "py-torch", "cuda", "cudnn", "nccl"}
# Packages that a recipe should name by what they provide, because the environment may already have another provider.
PROVIDERS = {"libjpeg-turbo": "jpeg", "libjpeg": "jpeg", "openmpi": "mpi", "mpich": "mpi", "zlib": "zlib-api", "zlib-ng": "zlib-api"}

declared = {}


def reset():
    declared.clear()
    declared.update(versions=[], variants={}, dependencies=[], conflicts=[], licenses=[], maintainers=[], context=[])


class SpackError(Exception):
    """An error that Spack itself would report."""


def parse_spec(text):
    """Returns the package's name (or None) and the variants that the spec sets; raises SpackError if the spec is invalid."""
    position, name, variants = 0, None, {}
    text = text.strip()
    while position < len(text):
        match = PIECE.match(text, position)
        if not match or match.end() == position:
            raise SpackError(f"invalid spec: {text!r} at {text[position:]!r}")
        if match["name"] and not match["sigil"] and name is None:
            name = match["name"]
        if not match["sigil"] or match["sigil"] != "%":
            for word in re.findall(rf"[+~]{NAME}|{NAME}==?[^\s^%]+", match["variants"]):
                key, _, value = word.lstrip("+~").partition("=")
                variants.setdefault((match["name"] if match["sigil"] else name), {})[key] = value or (word[0] == "+")
        position = match.end()
        while position < len(text) and text[position].isspace():
            position += 1
    return name, variants


def condition(when):
    words = [word for word in [*declared["context"], when] if isinstance(word, str)]
    for word in words:
        name, _ = parse_spec(word)
        if name:
            raise SpackError(f"a condition on the package itself has no name: {word!r}")
    return " ".join(words)


# Directives.

def version(ver, checksum=None, *, preferred=None, deprecated=None, no_cache=None, url=None, extension=None, expand=None,
            fetch_options=None, md5=None, sha1=None, sha224=None, sha256=None, sha384=None, sha512=None, git=None, commit=None,
            tag=None, branch=None, get_full_repo=None, submodules=None, submodules_delete=None, svn=None, hg=None, cvs=None,
            revision=None, date=None):
    if not any((checksum, sha256, commit, tag, branch)):
            raise SpackError(f"version {ver} has neither a checksum nor a git reference")
    declared["versions"].append(ver)


def variant(name, default=None, description="", values=None, multi=None, validator=None, when=None, sticky=False):
    if name in ("patches", "dev_path") or not re.fullmatch(NAME, name):
        raise SpackError(f"invalid name of a variant: {name!r}")
    if default is None or default == "":
        raise SpackError(f"variant {name}: the default is not set")
    if not description:
        raise SpackError(f"variant {name}: no description")
    if isinstance(values, (tuple, list)) and default not in values:
        raise SpackError(f"variant {name}: the default {default!r} is not one of {values}")
    declared["variants"][name] = {"default": default, "values": values, "multi": bool(multi), "when": condition(when)}


def depends_on(spec, when=None, type=("build", "link"), patches=None):
    name, _ = parse_spec(spec)
    kinds = (type,) if isinstance(type, str) else type
    if not name or not set(kinds) <= {"build", "link", "run", "test"}:
        raise SpackError(f"no dependency: {spec!r} of type {type!r}")
    declared["dependencies"].append((spec, condition(when)))


def conflicts(conflict_spec, when=None, msg=None):
    parse_spec(conflict_spec)
    declared["conflicts"].append((conflict_spec, condition(when)))


def requires(*requirement_specs, policy="one_of", when=None, msg=None):
    for spec in requirement_specs:
        parse_spec(spec)
    condition(when)


def license(license_identifier, checked_by=None, when=None):
    condition(when)
    declared["licenses"].append(license_identifier)


def maintainers(*names):
    declared["maintainers"] += names


def provides(*specs, when=None):
    condition(when)


def patch(url_or_filename, level=1, when=None, working_dir=".", reverse=False, sha256=None, archive_sha256=None):
    condition(when)


class when:
    """`with when("+x"):` over directives, and `@when("+x")` over methods."""

    def __init__(self, condition):
        self.condition = condition

    def __enter__(self):
        declared["context"].append(self.condition)

    def __exit__(self, *_):
        declared["context"].pop()

    def __call__(self, method):
        return method


DIRECTIVES = {function.__name__: function for function in (version, variant, depends_on, conflicts, requires, license,
                                                           maintainers, provides, patch)}


# Base classes.

class Value:
    def __init__(self, value):
        self.value = value


class Spec:
    """A concrete spec: the variants' values, and dependencies with their prefixes."""

    def __init__(self, variants):
        self.variants = {name: Value(value) for name, value in variants.items()}

    def satisfies(self, text):
        _, asked = parse_spec(text)
        for name, value in asked.get(None, {}).items():
            if name not in self.variants:
                return False
            held = self.variants[name].value
            if value != held and not (isinstance(held, tuple) and value in held):
                return False
        return True

    def __getitem__(self, name):
        if not any(parse_spec(spec)[0] == name for spec, _ in declared["dependencies"]):
            raise SpackError(f"{name} is not a dependency")
        return types.SimpleNamespace(prefix=Prefix(f"/spack/{name}"), command=types.SimpleNamespace(path=f"/spack/{name}/bin/{name}"))


class Prefix(str):
    @property
    def include(self):
        return f"{self}/include"


class PackageBase:
    prefix = types.SimpleNamespace(bin="/prefix/bin")

    def __init__(self, spec):
        self.spec = spec

    def define(self, cmake_var, value):
        if isinstance(value, bool):
            return f"-D{cmake_var}:BOOL={'ON' if value else 'OFF'}"
        return f"-D{cmake_var}:STRING={value if isinstance(value, str) else ';'.join(map(str, value))}"

    def define_from_variant(self, cmake_var, variant=None):
        name = variant or cmake_var.lower()
        if name not in declared["variants"]:
            raise SpackError(f"{name} is not a variant")
        return self.define(cmake_var, self.spec.variants[name].value)


class CMakePackage(PackageBase):
    pass


class Package(PackageBase):
    pass


class CudaPackage(PackageBase):
    cuda_arch_values = ("10", "53", "70", "75", "80", "86", "87", "89", "90", "90a", "100", "100a", "100f", "120", "121f")


def resolve(spec):
    """Returns the dependencies of a concrete spec; raises SpackError if it conflicts with the recipe, or if its dependencies
    conflict with each other or with NCCL's recipe."""
    for conflict, condition in declared["conflicts"]:
        if not parse_spec(conflict)[0] and not conflict.startswith("%") and spec.satisfies(f"{conflict} {condition}".strip()) \
                and not ("%" in condition):
            raise SpackError(f"conflict: {conflict} when {condition!r}")
    active = [text for text, condition in declared["dependencies"] if spec.satisfies(condition)]
    asked = {}
    for text in active:
        name, variants = parse_spec(text)
        for variant, value in variants.get(name, {}).items():
            if isinstance(asked.setdefault(name, {}).setdefault(variant, value), bool) and asked[name][variant] != value:
                raise SpackError(f"{name}: {variant} is both {asked[name][variant]} and {value}")
    if any(parse_spec(text)[0] == "nccl" for text in active) and "cuda_arch" not in asked.get("nccl", {}):
        raise SpackError("nccl: Must specify CUDA compute capabilities of your GPU")
    return active


def generator(*names, default=None):
    if not names or not set(names) <= {"make", "ninja"}:
        raise SpackError(f"invalid generators: {names}")


def load(recipe):
    """Executes the recipe with this module as Spack, and returns its namespace."""
    reset()
    declared["variants"]["cuda"] = {"default": False, "values": None, "multi": False, "when": ""}
    declared["variants"]["cuda_arch"] = {"default": "none", "values": None, "multi": True, "when": "+cuda"}
    api = types.ModuleType("spack.package")
    for name in EXPORTED:
        setattr(api, name, globals().get(name) or types.SimpleNamespace())
    for name, function in DIRECTIVES.items():
        setattr(api, name, function)
    api.join_path = lambda *parts: "/".join(map(str, parts))
    api.PackageBase = PackageBase
    modules = {"spack": types.ModuleType("spack"), "spack.package": api}
    for name in ("spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
        modules[name] = types.ModuleType(name)
    for name, members in {"cmake": (CMakePackage, generator), "cuda": (CudaPackage,), "generic": (Package,)}.items():
        module = modules[f"spack_repo.builtin.build_systems.{name}"] = types.ModuleType(name)
        for member in members:
            setattr(module, member.__name__, member)
    sys.modules.update(modules)
    namespace = {"__file__": str(recipe), "__name__": "recipe"}
    exec(compile(recipe.read_text(), str(recipe), "exec"), namespace)
    return namespace
