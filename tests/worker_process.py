"""`afterturn worker` in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def running_worker(program: str, store: str, *arguments: str, **settings: str) -> Iterator[subprocess.Popen[str]]:
    """`program` runs the command line, with pauses that a test can wait for. It is killed at the end."""
    child = subprocess.Popen(
        [sys.executable, "-c", program, "worker", *arguments],
        env={**os.environ, "AFTERTURN_STORE": store, "OPENBLAS_NUM_THREADS": "1", **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with child:
        try:
            yield child
        finally:
            child.kill()
