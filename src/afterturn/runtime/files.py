"""Makes files durable. Imports no asyncio, because `recall_once` loads this too."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Makes the content of a file durable, or in a folder the names of new and renamed files."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
