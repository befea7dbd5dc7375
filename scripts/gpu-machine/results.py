"""The results of a run: one tar archive, complete at every moment."""

import io
import os
import pathlib
import tarfile
import time

LARGEST = 8 << 20  # bytes of a file


class Archive:
    """Files in memory. save() writes a complete archive beside the former and puts it in its place, so that a reader finds one or the other
    whenever this process is killed."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.files = {}

    def put(self, name, content):
        self.files[name] = content.encode() if isinstance(content, str) else content

    def take(self, name, path):
        """Takes a file's content. Of a large one, the beginning and the end."""
        size = path.stat().st_size
        with open(path, "rb") as file:
            content = file.read(LARGEST)
            if size > LARGEST:
                file.seek(size - LARGEST // 2)
                content = content[:LARGEST // 2] + f"\n... {size - LARGEST} bytes are left out ...\n".encode() + file.read()
        self.put(name, content)

    def save(self):
        part = self.path.with_name(self.path.name + ".part")
        with tarfile.open(part, "w") as tar:
            for name, content in self.files.items():
                entry = tarfile.TarInfo(f"results/{name}")
                entry.size, entry.mtime = len(content), time.time()
                tar.addfile(entry, io.BytesIO(content))
        os.replace(part, self.path)
