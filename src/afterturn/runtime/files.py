"""Makes files durable. Imports no asyncio, because `recall_once` loads this too."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def sync(path: Path) -> None:
    """Makes the content of a file durable, or in a folder the names of new and renamed files."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replace_file(path: Path, *, mode: int | None = None) -> Iterator[IO[bytes]]:
    """A new file that takes the place of `path` at the end: others read the old content or the new one. A symbolic link
    is replaced, never followed. Without `mode` permissions stay; a new file is for its owner only. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if mode is None else mode)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            if mode is None and path.is_file() and not path.is_symlink():
                os.fchmod(descriptor, path.stat().st_mode & 0o777)
            yield stream
            stream.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
