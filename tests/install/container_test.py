#!/usr/bin/env python3
"""Runs the commands of both stages of modules/lockstep.def unchanged, each in a separate root: over this machine's files, which stay
unchanged, or with --debootstrap (takes minutes; needs Debian's packages) in a new Debian 12, compiling everything. The second stage has
only the libraries and programs of a new Debian and of the packages that it installs. Of the variant with CUDA, only the text is checked."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import definition
from installed import BUILD, SOURCE, cmake_options, run, skip

DEFINITION = SOURCE / "modules/lockstep.def"
WITH_CUDA = SOURCE / "modules/lockstep-gpu.args"
PAGE = SOURCE / "docs/cluster-staff.md"
NEW_DEBIAN = "--debootstrap" in sys.argv

# Arguments: ROOT, the folder of its upper layer, the script to run in it, two folders to hide, and the folder of files to copy into
# ROOT. New namespaces, so that nothing remains afterwards.
ENTER = r"""
set -eu
root=$1 work=$2 run=$3 content=$6
mount --make-rprivate /
if [ ! -e "$root/bin/sh" ]; then
  mount -t tmpfs -o size=4g none "$work"
  mkdir "$work/upper" "$work/work"
  mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/work" "$root" 2>&1 || exit 77
fi
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t tmpfs none "$root/tmp"
mkdir -p "$root/mnt" "$root/usr/src"
mount -t tmpfs none "$root/mnt"
mkdir "$root/mnt/objects" "$root/mnt/files" "$root/mnt/empty"
mount --rbind -o ro "$4" "$root/mnt/objects"
mount --bind "$work/../files" "$root/mnt/files"
cp -r "$root/mnt/files/$content/." "$root/"
cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
# The build must not depend on this checkout, on another build, or on files installed by hand.
for place in "$5" "$4" /usr/local; do
  if [ -d "$root$place" ]; then mount --bind "$root/mnt/empty" "$root$place"; fi
done
exec chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp sh "/mnt/files/$run"
"""


def commands_of(section):
    return [line.strip() for line in section.splitlines() if line.strip() and not line.strip().startswith("#")]


def stages_for(arguments):
    """The stages, by name, after checks of what does not depend on the variant."""
    stages = {stage.header["stage"]: stage for stage in definition.read(DEFINITION.read_text(), arguments)}
    assert list(stages) == ["build", "final"] and all(stage.header["bootstrap"] == "docker" for stage in stages.values()), stages
    build, final = stages["build"], stages["final"]
    assert final.sections.keys() >= {"help", "labels", "post", "environment", "runscript", "test"}, final.sections.keys()
    assert build.sections.keys() <= {"arguments", "post"}, "Apptainer drops what the build's stage has in other sections"
    options = set(re.findall(r"-D(LOCKSTEP_\w+)=", build.sections["post"]))
    assert options and options <= cmake_options(), f"CMake has no option {options - cmake_options()}"
    installs = re.findall(r"\S+-dev\b|\bg\+\+|\bgcc\b|\bclang\b|\bcmake\b|\bninja\S*|install-dependencies", final.sections["post"])
    assert not installs, f"the image needs no {installs}"
    assert {origin for origin, *_ in final.files} == {"build"} and {origin for origin, *_ in build.files} == {None}
    for word in ("--bind", "--nv", "srun --mpi=pmix", "UCX", "InfiniBand"):
        assert word in final.sections["help"], f"%help does not mention {word}"
    return build, final


def check_images():
    """Images are named by digest. The stages of a variant have the same distribution, and CUDA is one that the project supports."""
    text = DEFINITION.read_text()
    build, final = stages_for({})
    assert build.header["from"] == final.header["from"] and re.fullmatch(r"debian@sha256:[0-9a-f]{64}", build.header["from"]), build.header
    assert "those of debian:12," in text and "-DLOCKSTEP_CUDA=OFF" in build.sections["post"]

    build, final = stages_for(definition.arguments_of(WITH_CUDA.read_text()))
    images = [stage.header["from"] for stage in (build, final)]
    assert len(set(images)) == 2 and all(re.fullmatch(r"nvidia/cuda@sha256:[0-9a-f]{64}", image) for image in images), images
    names = re.findall(r"nvidia/cuda:([\d.]+)-cudnn-(devel|runtime)-(\w+[\d.]+\d)", text)
    assert [name[1] for name in names] == ["devel", "runtime"] and names[0][0] == names[1][0] and names[0][2] == names[1][2], names
    oldest = re.search(r"find_package\(CUDAToolkit ([\d.]+)", (SOURCE / "cmake/LockstepCuda.cmake").read_text())[1]
    assert [*map(int, names[0][0].split("."))] >= [*map(int, oldest.split("."))], f"CUDA {names[0][0]} is older than {oldest}"
    assert "-DLOCKSTEP_CUDA=ON" in build.sections["post"]
    print(f"ok      {DEFINITION.name} has two stages, for CPUs and for CUDA {names[0][0]}")


def check_commands_of_the_page(post):
    block = next(block for block in re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.S) if "install-dependencies" in block)
    for line in commands_of(block):
        line = line.split("   #")[0].strip()
        assert {line, f"{line} -DLOCKSTEP_CUDA=OFF"} & {*commands_of(post)}, f"{PAGE.name} has `{line}`, {DEFINITION.name} does not"
    print(f"        docs/{PAGE.name} has the same commands")


def copy_files(files, content):
    for _, source, target in files:
        assert (SOURCE / source).exists(), f"%files: there is no {source}"
        folder = content / target.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (SOURCE / source).is_dir() else shutil.copy
        copy(SOURCE / source, folder / source)
    listed = {source for _, source, _ in files}
    needed = {path.name for path in (SOURCE / "CMakeLists.txt").parent.iterdir()
              if path.is_dir() and re.search(rf"\b{path.name}/", (SOURCE / "CMakeLists.txt").read_text()
                                             + "".join(p.read_text() for p in SOURCE.glob("cmake/*.cmake")))}
    assert needed - {"tests", "build"} <= listed, f"%files lacks {needed - listed}"


def enter(root, folder, script, name, content):
    """The output of the script in the root, into which the content was copied."""
    (folder / "files" / name).write_text(script)
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "sh", root, folder / "layer", name,
               BUILD, SOURCE, content]
    result = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, timeout=3000 if NEW_DEBIAN else 500)
    if result.returncode == 77:
        skip(f"the recipe's commands were not run (no overlay of this machine's files: {result.stdout.strip()[-200:]})")
    assert result.returncode == 0 and "@done" in result.stdout, f"status {result.returncode}\n{result.stdout[-6000:]}"
    return result.stdout


def script_of(**sections):
    """Shell commands that write each section to /tmp."""
    return "set -eu\nid nobody >/dev/null\n" + "".join(
        f"cat >/tmp/{name} <<'END_OF_SECTION'\n{text}END_OF_SECTION\nchmod a+r /tmp/{name}\n" for name, text in sections.items())


def build_script(build, final):
    """Runs the first stage, and copies what the second one takes from it to /mnt/files/image."""
    launcher = "" if NEW_DEBIAN else "export REUSED=/tmp/reused CMAKE_CXX_COMPILER_LAUNCHER='/mnt/files/reuse_object.sh;/mnt/objects'\n"
    copies = "".join(f"mkdir -p /mnt/files/image{os.path.dirname(target)}\ncp -a {source} /mnt/files/image{target}\n"
                     for _, source, target in final.files)
    return f"""{script_of(post=build.sections["post"])}
{launcher}sh /tmp/post
echo "@reused $(sort -u /tmp/reused 2>/dev/null | wc -l)"
cp /usr/src/lockstep/build/release/install_manifest.txt /mnt/files/manifest
{copies}
echo "@done"
"""


def final_script(final):
    """Runs the second stage: %test as a build does, then as a user does, unprivileged and with another home."""
    environment = final.sections["environment"]
    sections = script_of(post=final.sections["post"], test=f"{environment}{final.sections['test']}",
                         runscript=f"{environment}{final.sections['runscript']}")
    return f"""{sections}
[ ! -e /mnt/files/hidden ] || xargs -d '\\n' rm -f </mnt/files/hidden
sh /tmp/post
[ ! -e /usr/src/lockstep ]
chmod 1777 /tmp
cd /tmp
sh /tmp/test
as_user() {{ setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/tmp "$@"; }}
as_user sh /tmp/test
as_user sh /tmp/runscript --version
as_user sh /tmp/runscript inspect --model mlp >/dev/null
ls /opt/lockstep
dpkg-query --show --showformat '@package ${{db:Status-Status}} ${{Package}}\\n'
echo "@done"
"""


def installed_packages():
    """This machine's packages by name: what each depends on (a list of alternatives each), provides, and whether every Debian has it."""
    fields = "${db:Status-Status}\t${Package}\t${Essential}\t${Priority}\t${Provides}\t${Pre-Depends}, ${Depends}\n"
    found = {}
    for line in run(["dpkg-query", "--show", "--showformat", fields]).splitlines():
        status, name, essential, priority, provides, depends = line.split("\t")
        if status == "installed":
            names = [[re.split(r"[ (:]", word.strip())[0] for word in part.split("|")] for part in depends.split(",") if part.strip()]
            found[name] = {"depends": names, "provides": [re.split(r"[ (:]", word.strip())[0] for word in provides.split(",")],
                           "base": essential == "yes" or priority in ("required", "important")}
    return found


def files_of(packages):
    """The packages' files, with /usr before /lib and /bin, as dpkg knows some without."""
    listed = run(["dpkg-query", "--listfiles", *sorted(packages)]).splitlines()
    return {re.sub(r"^/(lib|bin|sbin)", r"/usr/\1", path) for path in listed if path.startswith("/")}


def files_to_hide(wanted):
    """The libraries and programs of those packages of this machine that neither a new Debian has nor `wanted` needs."""
    packages = installed_packages()
    providers = {name: [other for other, package in packages.items() if name in package["provides"]]
                 for package in packages.values() for part in package["depends"] for name in part if name not in packages}
    kept, pending = set(), [*wanted, *(name for name, package in packages.items() if package["base"])]
    while pending:
        name = pending.pop()
        if name in kept or name not in packages:
            continue
        kept.add(name)
        for alternatives in packages[name]["depends"]:
            there = [other for word in alternatives for other in ([word] if word in packages else providers.get(word, []))]
            pending += there[:1]
    other = files_of(packages.keys() - kept) - files_of(kept)
    return sorted(path for path in other if re.search(r"^/usr/(lib.*\.so(\.[\w.]+)?|s?bin/.*)$", path) and not os.path.isdir(path))


def check_image(image, manifest, final):
    """What the image takes from the first stage: the installed files that a run can need, and packages of every library. Returns these."""
    tree = image / "opt/lockstep"
    copied = {str(path.relative_to(tree)) for path in tree.rglob("*") if not path.is_dir()}
    installed = {line.removeprefix("/opt/lockstep/") for line in manifest.splitlines()}
    for_compilers = {path for path in installed if re.match(r"include/|lib/cmake/|lib/\w+\.a$", path)}
    assert copied == installed - for_compilers, copied ^ (installed - for_compilers)
    packages = (image / "opt/run-time-packages").read_text().split()
    unneeded = [name for name in packages if re.search(r"-dev$|^g\+\+|^gcc-\d+$|^cmake", name)]
    assert packages and not unneeded, f"{unneeded} are not for running"
    if not NEW_DEBIAN:
        provided = {path.rsplit("/", 1)[1] for path in files_of(packages)}
        named = set(re.findall(r"\(NEEDED\).*\[(.*)\]", run(["readelf", "--dynamic", tree / "bin/lockstep"])))
        assert len(named) > 10 and named <= provided, f"in no package of the image: {named - provided}"
        print(f"        {len(named)} libraries that the program names are in the image's packages")
    by_name = re.search(r"for package in (.*) \$\(cat /opt/run-time-packages\)", final.sections["post"])[1].split()
    return packages + by_name


def main():
    check_images()
    build, final = stages_for({})
    check_commands_of_the_page(build.sections["post"])
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-container-"))
    try:
        for name in ("root", "second", "layer", "files/source", "files/image"):
            (folder / name).mkdir(parents=True)
        copy_files(build.files, folder / "files/source")
        if os.geteuid() != 0 or not shutil.which("unshare"):
            skip("the recipe's commands were not run (a root of their own needs root and unshare)")
        if NEW_DEBIAN:
            subprocess.run(["debootstrap", "--variant=minbase", "bookworm", folder / "root"], check=True, stdout=subprocess.DEVNULL)
            run(["cp", "-a", f"{folder}/root/.", folder / "second"])
        shutil.copy(SOURCE / "tests/install/reuse_object.sh", folder / "files")

        output = enter(folder / "root", folder, build_script(build, final), "build", "source")
        packages = check_image(folder / "files/image", (folder / "files/manifest").read_text(), final)
        if not NEW_DEBIAN:
            hidden = files_to_hide(packages)
            (folder / "files/hidden").write_text("".join(f"{path}\n" for path in hidden))
            print(f"        {len(hidden)} libraries and programs of other packages are hidden from the image")
        reused = re.search(r"@reused (\d+)", output)[1]
        output = enter(folder / "second", folder, final_script(final), "final", "image")
        if NEW_DEBIAN:
            there = re.findall(r"^@package installed (\S+)$", output, re.M)
            unneeded = [name for name in there if re.search(r"-dev$|^g\+\+|^cmake|^ninja", name)]
            assert not unneeded, f"the image has {unneeded}"
            print(f"        the image has {len(there)} packages, none of them for compiling")

        where = "two new Debian 12" if NEW_DEBIAN else "two copies of this machine's files"
        print(f"ok      %post of both stages, %environment, %test and %runscript ran in {where}")
        if not NEW_DEBIAN:
            print(f"        {reused} objects were reused from this build; packages were already installed")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
