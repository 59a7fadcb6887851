"""Makes files durable. Imports no asyncio, because `recall_once` loads this too."""

import os
import tempfile
from pathlib import Path


def sync(path: Path) -> None:
    """Makes the content of a file durable, or in a folder the names of new and renamed files."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, text: str) -> None:
    """Writes a file as a whole: others read the old content or the new one. Keeps its permissions; a new file is for
    its owner only. Raises OSError."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        Path(temporary).unlink(missing_ok=True)
