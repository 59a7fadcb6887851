"""The three standard streams, made safe to use whatever the caller left of them."""

import io
import os
import sys


def prepare_streams() -> None:
    """A stream that was closed (`>&-`) becomes a quiet one; a character that can not be shown becomes an escape."""
    sys.stdin = sys.stdin or _nowhere("r")
    sys.stdout = sys.stdout or _nowhere("w")
    sys.stderr = sys.stderr or _nowhere("w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def abandon_stdout() -> None:
    """The interpreter flushes stdout when it ends, and would complain once more about what can not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _nowhere(mode: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(open(os.devnull, mode + "b"), encoding="utf-8")
