"""The results of a run: one tar archive, complete at every moment."""

import io
import os
import pathlib
import tarfile
import time

LARGEST = 8 << 20  # bytes of a file
TOTAL = 14 << 20  # of all that are taken: what brings the archive back may refuse more than 16 MiB
HEADER = 2048  # of each file, with padding and what tells that it is cut


def left_out(size):
    return f"\n... {size} bytes are left out ...\n".encode()


def largest_that_fit(sizes, total):
    """The size to which files are cut so that all fit; it is a large one that is cut, not many small ones."""
    left = total
    for index, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - index)
        if size > share:
            return share
        left -= size
    return total


class Archive:
    """Files in memory. save() writes a complete archive beside the former and puts it in its place, so that a reader finds one or the other
    whenever this process is killed. The run's own files come first and are whole; of others that are too large, both ends are kept."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.own, self.taken = {}, {}

    def put(self, name, content):
        self.own[name] = content.encode()

    def take(self, name, path):
        size = path.stat().st_size
        with open(path, "rb") as file:
            content = file.read(LARGEST)
            if size > LARGEST:
                file.seek(size - LARGEST // 2)
                content = content[:LARGEST // 2] + left_out(size - LARGEST) + file.read(LARGEST // 2)
        self.taken[name] = content

    def cut(self):
        """The files that all together are too large, with the bytes that each keeps."""
        most = largest_that_fit([len(content) + HEADER for content in self.taken.values()], TOTAL) - HEADER
        return {name: most for name, content in self.taken.items() if len(content) > most}

    def save(self):
        files = {**self.own, **self.taken}
        for name, most in self.cut().items():
            content, half = files[name], max(most // 2, 1)
            files[name] = content[:half] + left_out(len(content) - 2 * half) + content[-half:]
        part = self.path.with_name(self.path.name + ".part")
        with tarfile.open(part, "w") as tar:
            for name, content in files.items():
                entry = tarfile.TarInfo(f"results/{name}")
                entry.size, entry.mtime = len(content), time.time()
                tar.addfile(entry, io.BytesIO(content))
        os.replace(part, self.path)
