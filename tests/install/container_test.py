#!/usr/bin/env python3
"""Runs the commands of modules/lockstep.def unchanged in a separate root: over this machine's files, which stay unchanged, or with
--debootstrap (takes minutes; needs Debian's packages) in a new Debian 12, compiling everything."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from installed import BUILD, SOURCE, skip

DEFINITION = SOURCE / "modules/lockstep.def"
PAGE = SOURCE / "docs/cluster-staff.md"
NEW_DEBIAN = "--debootstrap" in sys.argv

# Arguments: ROOT, the folder of its upper layer, and the script to run in it. New namespaces, so that nothing remains afterwards.
ENTER = r"""
set -eu
root=$1 work=$2 run=$3
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
cp -r "$root/mnt/files/content/." "$root/"
cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
# The build must not depend on this checkout, on another build, or on files installed by hand.
for place in "$5" "$4" /usr/local; do
  if [ -d "$root$place" ]; then mount --bind "$root/mnt/empty" "$root$place"; fi
done
exec chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp sh "/mnt/files/$run"
"""


def sections():
    """The definition's header and its sections by name."""
    text = re.sub(r"^#.*\n", "", DEFINITION.read_text(), flags=re.M)
    header, *parts = re.split(r"^%(\w+)\n", text, flags=re.M)
    found = dict(zip(parts[::2], parts[1::2]))
    assert re.search(r"^Bootstrap: docker\nFrom: debian:12$", header, re.M), header
    assert found.keys() >= {"files", "post", "environment", "runscript", "test", "help"}, found.keys()
    return found


def commands_of(section):
    return [line.strip() for line in section.splitlines() if line.strip() and not line.strip().startswith("#")]


def check_commands_of_the_page(post):
    block = next(block for block in re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.S) if "install-dependencies" in block)
    for line in commands_of(block):
        line = line.split("   #")[0].strip()
        assert line in commands_of(post), f"{PAGE.name} has `{line}`, {DEFINITION.name} does not"
    print(f"        docs/{PAGE.name} has the same commands")


def copy_files(section, content):
    for line in commands_of(section):
        source, target = line.split()
        assert (SOURCE / source).exists(), f"%files: there is no {source}"
        folder = content / target.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (SOURCE / source).is_dir() else shutil.copy
        copy(SOURCE / source, folder / source)
    listed = {line.split()[0] for line in commands_of(section)}
    needed = {path.name for path in (SOURCE / "CMakeLists.txt").parent.iterdir()
              if path.is_dir() and re.search(rf"\b{path.name}/", (SOURCE / "CMakeLists.txt").read_text()
                                             + "".join(p.read_text() for p in SOURCE.glob("cmake/*.cmake")))}
    assert needed - {"tests", "build"} <= listed, f"%files lacks {needed - listed}"


def enter(root, folder, script, name):
    (folder / "files" / name).write_text(script)
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "sh", root, folder / "layer", name,
               BUILD, SOURCE]
    return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=3000 if NEW_DEBIAN else 500)


def main():
    found = sections()
    check_commands_of_the_page(found["post"])
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-container-"))
    try:
        for name in ("root", "layer", "files/content"):
            (folder / name).mkdir(parents=True)
        copy_files(found["files"], folder / "files/content")
        if os.geteuid() != 0 or not shutil.which("unshare"):
            skip("the recipe's commands were not run (a root of their own needs root and unshare)")
        if NEW_DEBIAN:
            subprocess.run(["debootstrap", "--variant=minbase", "bookworm", folder / "root"], check=True, stdout=subprocess.DEVNULL)
        launcher = "" if NEW_DEBIAN else ("export REUSED=/tmp/reused CMAKE_CXX_COMPILER_LAUNCHER="
                                         "'/mnt/files/reuse_object.sh;/mnt/objects'\n")
        shutil.copy(SOURCE / "tests/install/reuse_object.sh", folder / "files")
        # One script, because all sections run in the same image.
        script = f"""set -eu
id nobody >/dev/null
cat >/tmp/post <<'END_OF_POST'
{found["post"]}
END_OF_POST
cat >/tmp/environment <<'END_OF_ENVIRONMENT'
{found["environment"]}
END_OF_ENVIRONMENT
cat >/tmp/runscript <<'END_OF_RUNSCRIPT'
. /tmp/environment
{found["runscript"]}
END_OF_RUNSCRIPT
cat >/tmp/test <<'END_OF_TEST'
. /tmp/environment
{found["test"]}
END_OF_TEST
{launcher}sh /tmp/post
unset CMAKE_CXX_COMPILER_LAUNCHER
echo "@reused $(sort -u /tmp/reused 2>/dev/null | wc -l)"
[ ! -e /usr/src/lockstep ]
chmod a+r /tmp/environment /tmp/runscript /tmp/test
chmod 1777 /tmp
# Like the image's user: unprivileged, with another home.
as_user() {{ setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/tmp "$@"; }}
cd /tmp
as_user sh /tmp/test
as_user sh /tmp/runscript --version
as_user sh /tmp/runscript inspect --model mlp >/dev/null
echo "@done"
"""
        result = enter(folder / "root", folder, script, "script")
        if result.returncode == 77:
            skip(f"the recipe's commands were not run (no overlay of this machine's files: {result.stdout.strip()[-200:]})")
        assert result.returncode == 0 and "@done" in result.stdout, f"status {result.returncode}\n{result.stdout[-6000:]}"
        where = "a new Debian 12" if NEW_DEBIAN else "a copy of this machine's files"
        reused = re.search(r"@reused (\d+)", result.stdout)[1]
        print(f"ok      %post, %environment, %test and %runscript ran in {where}")
        if not NEW_DEBIAN:
            print(f"        {reused} objects were reused from this build; packages were already installed")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
