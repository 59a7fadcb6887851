"""Turns at Python's lock, for work of some milliseconds.

One thread computes at a time. Two that do so for long hand the lock on at every statement and every larger array, some
twenty times in a millisecond's work, and each time somebody has to be woken: both take half as long again. Who takes
turns, first come first served, is not disturbed, and nobody gets more of the processor for asking more often.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from afterturn.base.clock import SystemClock


class Turnstile:
    """Safe to share between threads. A turn is a wish, not a lock: others go on without one where it lasts too long."""

    def __init__(self) -> None:
        self._monotonic = SystemClock().monotonic
        self._began = 0.0
        # Whoever is next holds the one and waits for the other, so that nobody who leaves is before it again.
        self._next = threading.Lock()
        self._now = threading.Lock()

    @contextmanager
    def turn(self, *, within: float) -> Iterator[bool]:
        """Whether it is one, and not only work. A turn that has lasted for `within` seconds is not waited for."""
        is_taken = self._take(within)
        try:
            yield is_taken
        finally:
            if is_taken:
                self._now.release()

    def _take(self, within: float) -> bool:
        if self._now.locked():
            within -= self._monotonic() - self._began
        if within <= 0 or not self._next.acquire(timeout=within):
            return False
        try:
            is_taken = self._now.acquire(timeout=within)
        finally:
            self._next.release()
        if is_taken:
            self._began = self._monotonic()
        return is_taken


_of_process = Turnstile()


def turn(*, within: float) -> AbstractContextManager[bool]:
    """Python's lock is one for the process, and so is its turnstile."""
    return _of_process.turn(within=within)


def _renew() -> None:
    """A turn that another thread had when a child was forked would last for ever there."""
    global _of_process
    _of_process = Turnstile()


os.register_at_fork(after_in_child=_renew)
