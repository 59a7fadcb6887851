"""Runs a Python program in a process of its own."""

import os
import subprocess
import sys


def run_program(program: str) -> str:
    """What it prints. Every warning is an error, and numpy starts no threads, so that the program may fork."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
