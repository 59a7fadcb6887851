"""The system's clock, and ids in order of time. Tests use those of `afterturn.testing`."""

import hashlib
import os
import threading
import time
from collections import deque

from afterturn.ports import Ids

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_RANDOM_BYTES = 4
# The system call releases the GIL, and another thread may take it. So one call fetches bytes for many ids.
_RANDOM_AT_ONCE = 256
_KEPT_MAX = 10_000


class SystemClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class TimeOrderedIds:
    """Ids of 16 characters: 48 bits of milliseconds, then 32 random bits. Each id of a process sorts after the last."""

    def __init__(self) -> None:
        self._last = 0
        self._random = b""
        self._process = 0
        self._lock = threading.Lock()

    def new(self) -> str:
        now = int(time.time() * 1000)
        with self._lock:
            # A forked child must not produce the same ids as its parent.
            if not self._random or self._process != os.getpid():
                self._random, self._process = os.urandom(_RANDOM_BYTES * _RANDOM_AT_ONCE), os.getpid()
            taken, self._random = self._random[:_RANDOM_BYTES], self._random[_RANDOM_BYTES:]
            fresh = (now << _RANDOM_BYTES * 8) | int.from_bytes(taken)
            self._last = value = max(fresh, self._last + 1)
        return _encode(value)


class OwnIds:
    """Ids of `ids`. From `keep` on, the newest are known, so that this process can recognize its own operations
    among those of others. Safe from any thread."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._kept: deque[str] = deque(maxlen=0)

    def new(self) -> str:
        made = self._ids.new()
        self._kept.append(made)
        return made

    def keep(self) -> None:
        self._kept = deque(self._kept.copy(), maxlen=_KEPT_MAX)

    def kept(self) -> frozenset[str]:
        return frozenset(self._kept.copy())


def _encode(value: int) -> str:
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in range(70, -1, -10)])


def derive_id(at: float, key: str) -> str:
    """An id that is the same for the same time and key, and sorts by time like any other."""
    random = int.from_bytes(hashlib.sha256(key.encode("utf-8", "replace")).digest()[:_RANDOM_BYTES])
    return _encode((int(at * 1000) << _RANDOM_BYTES * 8) | random)
