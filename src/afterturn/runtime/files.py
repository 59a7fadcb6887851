"""Files that outlive a power cut. Imports no event loop: `recall_once` loads this too."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Makes a file's content durable; of a folder, the names of new and renamed files in it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
