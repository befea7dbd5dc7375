#!/usr/bin/env python3
"""Tests `inspect --manifest`: SHA-256 sums of a data set, a run directory or files, as `sha256sum` writes and checks them."""

import hashlib

from harness import *  # noqa: F403


def expected(directory):
    """What sha256sum would print: `hashlib` for the sums, coreutils' rules for the names."""
    lines = []
    names = [os.fsencode(path.relative_to(directory)) for path in directory.rglob("*")
             if path.is_file() and not path.is_symlink() and not any(part.startswith(".") for part in path.relative_to(directory).parts)]
    for name in sorted(names):
        escaped = name.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
        with open(os.fsencode(directory) + b"/" + name, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest().encode()
        lines.append((b"\\" if escaped != name else b"") + digest + b"  " + escaped + b"\n")
    return b"".join(lines)


def printed(*paths, expect=OK):
    done = subprocess.run([LOCKSTEP, "inspect", "--manifest", *map(str, paths)], capture_output=True, env=environment())
    assert done.returncode == expect, done
    return done.stdout if expect == OK else done.stderr.decode()


def checked(directory, manifest):
    """The status of `sha256sum -c` in the directory, and its lines that are not OK."""
    done = subprocess.run(["sha256sum", "-c", "--strict", manifest], cwd=directory, capture_output=True)
    return done.returncode, [line for line in done.stdout.decode(errors="replace").split("\n") if line and not line.endswith(": OK")]


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def sums_are_those_of_sha256sum_whatever_the_names_are(folder):
    directory = folder / "files"
    (directory / "below" / "this").mkdir(parents=True)
    for i, name in enumerate([b"a b", b" lead", b"back\\slash", b"new\nline", b"cr\r", b"-dash", b"*star", b"\xff\xfe", "ü".encode(),
                              b"below/this/one", b"below/empty", b"below.h5"]):
        with open(os.fsencode(directory) + b"/" + name, "wb") as file:
            file.write(os.urandom(i * 400_000))
    (directory / ".hidden.h5.tmp-1-2").write_text("a temporary")
    assert printed(directory) == expected(directory)

    (folder / "sums").write_bytes(printed(directory))
    assert checked(directory, folder / "sums") == (0, [])


def a_data_set_and_a_run_are_checked_by_sha256sum_and_a_flipped_byte_is_found(folder):
    data = write_shards(folder / "data")
    run_dir = folder / "run"
    run(train_args(data, run_dir, "--max-steps", 4))
    checkpoint = run_dir / "checkpoints" / "step-00000004.h5"
    for directory, victim in ((run_dir, checkpoint), (data, data / "train-00001-of-00002.h5")):
        sums = directory / "SHA256SUMS"
        run(["inspect", "--manifest", directory, "--output", sums])
        assert sums.read_bytes() == expected(directory).replace(expected_line(sums, directory), b"")
        assert victim.name.encode() in sums.read_bytes()
        assert checked(directory, sums) == (0, [])
        run(["inspect", "--verify", directory])

        # Neither the manifest nor its signature is in the next one.
        before = sums.read_bytes()
        (directory / "SHA256SUMS.asc").write_text("a signature")
        output = run(["inspect", "--manifest", directory, "--output", sums], expect=USAGE)
        assert "--overwrite" in output, output
        run(["inspect", "--manifest", directory, "--output", sums, "--overwrite"])
        assert sums.read_bytes() == before
        (directory / "SHA256SUMS.asc").unlink()

        run(train_args(data, run_dir, "--max-steps", 5 if directory == run_dir else 6))  # a manifest is in nobody's way
        run(["inspect", "--manifest", directory, "--output", sums, "--overwrite"])
        flip_a_byte(victim)
        assert checked(directory, sums) == (1, [f"{victim.relative_to(directory)}: FAILED"])


def expected_line(path, directory):
    return f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(directory)}\n".encode()


def files_of_one_directory_are_listed_by_their_names(folder):
    data = write_shards(folder / "data")
    shards = sorted(data.glob("*.h5"))
    assert printed(*reversed(shards)) == expected(data)
    other = write_shards(folder / "other", shards=1)
    assert "write a manifest for each" in printed(shards[0], other, expect=USAGE)

    # Standard output may be a file of the directory.
    with open(data / "sums", "wb") as sums:
        subprocess.run([LOCKSTEP, "inspect", "--manifest", data], stdout=sums, check=True, env=environment())
    assert checked(data, data / "sums") == (0, []) and b"  sums\n" not in (data / "sums").read_bytes()


def what_is_not_in_the_directory_is_not_listed(folder):
    data = write_shards(folder / "data")
    (folder / "key").write_text("private")
    (data / "inside").symlink_to("train-00000-of-00002.h5")
    assert b"inside" not in printed(data)
    for name, target in (("link.h5", folder / "key"), ("dangling.h5", folder / "nothing")):
        (data / name).symlink_to(target)
        output = printed(data, expect=BAD_INPUT)
        assert f"{name} is a link to {target}, which is not in {data}" in output and output.count("\n") == 1, output
        (data / name).unlink()
    os.mkfifo(data / "pipe")
    assert "pipe is a FIFO" in printed(data, expect=BAD_INPUT)


def what_a_manifest_does_not_go_with_is_refused(folder):
    data = write_shards(folder / "data")
    (folder / "empty").mkdir()
    for args, status, text in ((["--manifest"], USAGE, "--manifest without a path"),
                               (["--manifest", data, "--json"], USAGE, "--manifest with --json"),
                               (["--manifest", data, "--verify"], USAGE, "--manifest with --verify"),
                               ([data, "--output", folder / "f"], USAGE, "--output without --manifest"),
                               (["--manifest", data, "--output", folder / "no" / "f"], CANNOT_WRITE, "--output"),
                               (["--manifest", folder / "empty"], BAD_INPUT, "has no file"),
                               (["--manifest", folder / "nothing"], NO_INPUT, "No such file")):
        output = run(["inspect", *args], expect=status)
        assert text in output and output.count("\n") == 1, output


def a_signed_manifest_is_verified_as_the_documentation_says(folder):
    data = write_shards(folder / "data")
    if shutil.which("ssh-keygen") is None:
        raise Skipped("ssh-keygen is not here")
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    run(["inspect", "--manifest", data, "--output", data / "SHA256SUMS"])
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", "file", data / "SHA256SUMS"], check=True, capture_output=True)
    (folder / "signers").write_text(f"sender@example.org {key.with_suffix('.pub').read_text()}")
    verify = ["ssh-keygen", "-Y", "verify", "-f", folder / "signers", "-I", "sender@example.org", "-n", "file", "-s", data / "SHA256SUMS.sig"]

    def status():
        with open(data / "SHA256SUMS") as sums:
            return subprocess.run(verify, stdin=sums, capture_output=True).returncode

    assert status() == 0
    flip_a_byte(data / "SHA256SUMS")
    assert status() != 0


if __name__ == "__main__":
    main([sums_are_those_of_sha256sum_whatever_the_names_are,
          a_data_set_and_a_run_are_checked_by_sha256sum_and_a_flipped_byte_is_found,
          files_of_one_directory_are_listed_by_their_names, what_is_not_in_the_directory_is_not_listed,
          what_a_manifest_does_not_go_with_is_refused, a_signed_manifest_is_verified_as_the_documentation_says])
