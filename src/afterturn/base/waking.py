"""Wakes memory's event loop from another thread, which goes on at once.

asyncio's own way gives Python's lock away while it writes a byte. The loop that it wakes takes the lock, and a host's
verb waits until that has nothing more to do: half a millisecond, where the verb itself takes a tenth.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import TypeAlias

from afterturn.base.loading import load_package

Send: TypeAlias = Callable[[int, bytes, int, int], int]

_BYTE = b"\0"
# A program that Python is embedded in may not ignore the signal.
_FLAGS = getattr(socket, "MSG_NOSIGNAL", 0)


def keep_lock(loop: asyncio.AbstractEventLoop) -> None:
    """From now on whoever wakes the loop keeps Python's lock; where that can not be, all stays as it is."""
    written_to = getattr(loop, "_csock", None)
    if os.name != "posix" or not isinstance(written_to, socket.socket):
        # Another loop than asyncio's own, which the host's policy has chosen.
        return
    send = _find_send()
    if send is not None:
        # asyncio has no other place where one could say how a loop is woken.
        loop._write_to_self = _Waker(written_to, send)  # type: ignore[attr-defined]


class _Waker:
    """Holds on to nothing but the socket, which the loop closes."""

    __slots__ = ("_send", "_written_to")

    def __init__(self, written_to: socket.socket, send: Send) -> None:
        self._written_to = written_to
        self._send = send

    def __call__(self) -> None:
        # What it returns tells nothing: where there is no room for a byte, enough of them wait to be read, and a loop
        # that is closed is not to be woken.
        self._send(self._written_to.fileno(), _BYTE, len(_BYTE), _FLAGS)


def _find_send() -> Send | None:
    try:
        load_package("ctypes")
        import ctypes

        # `PyDLL` keeps the lock during a call. This one never blocks: the socket does not.
        send = ctypes.PyDLL(None).send
    except (ImportError, OSError, AttributeError):
        # A Python without ctypes, or a system that has it elsewhere.
        return None
    send.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int)
    send.restype = ctypes.c_ssize_t
    return send
