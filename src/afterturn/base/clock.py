"""The real clock and the real ids. Tests and simulations bring their own (`afterturn.testing`)."""

import os
import threading
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_RANDOM_BYTES = 4


class SystemClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class TimeOrderedIds:
    """Sixteen characters: 48 bits of milliseconds, then 32 random ones. Ids of one process never go back."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def new(self) -> str:
        fresh = (int(time.time() * 1000) << _RANDOM_BYTES * 8) | int.from_bytes(os.urandom(_RANDOM_BYTES))
        with self._lock:
            self._last = value = fresh if fresh > self._last else self._last + 1
        return _encode(value)


def _encode(value: int) -> str:
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in range(70, -1, -10)])
