"""Turns of threads that compute: in order, given back, and never waited for too long."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from afterturn.base import turnstile
from afterturn.base.turnstile import Turnstile

LONG = 60.0
SOON = 0.01


@pytest.fixture
def other() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as thread:
        yield thread


class Watched:
    """A lock that tells when somebody is about to wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.is_waited_for = threading.Event()
        self.release, self.locked = self._lock.release, self._lock.locked

    def acquire(self, *, timeout: float) -> bool:
        if self._lock.acquire(blocking=False):
            return True
        self.is_waited_for.set()
        return self._lock.acquire(timeout=timeout)


def test_whoever_leaves_comes_after_those_who_wait(other: ThreadPoolExecutor):
    """L7: nobody gets more turns for asking again at once."""
    stile, order = Turnstile(), []
    stile._now = now = Watched()  # type: ignore[assignment]

    def wait() -> None:
        with stile.turn(within=LONG):
            order.append("waited")

    with stile.turn(within=LONG):
        waiting = other.submit(wait)
        assert now.is_waited_for.wait(LONG)
    with stile.turn(within=LONG):
        order.append("left")
    waiting.result(LONG)
    assert order == ["waited", "left"]


def test_a_turn_that_lasts_is_not_waited_for():
    """L7: work goes on without one; the turn is still the other's."""
    stile = Turnstile()
    with stile.turn(within=LONG) as is_first:
        with stile.turn(within=SOON) as is_second:
            assert (is_first, is_second) == (True, False)
        with stile.turn(within=SOON) as is_third:
            assert not is_third
    with stile.turn(within=SOON) as is_last:
        assert is_last


def test_a_turn_that_has_lasted_already_is_not_waited_for_at_all():
    """L7: as behind an import, whose turns are long."""
    stile = Turnstile()
    with stile.turn(within=LONG):
        stile._monotonic = lambda: stile._began + LONG
        stile._now = stile._next = _Unwaited()  # type: ignore[assignment]
        with stile.turn(within=LONG) as is_taken:
            assert not is_taken
        stile._now = threading.Lock()
        stile._now.acquire()


class _Unwaited:
    def locked(self) -> bool:
        return True


def test_a_turn_ends_with_an_error():
    stile = Turnstile()
    with pytest.raises(ValueError, match="broken"), stile.turn(within=LONG):
        raise ValueError("broken")
    with stile.turn(within=SOON) as is_taken:
        assert is_taken


def test_a_forked_child_does_not_wait_for_a_turn_of_its_parents(monkeypatch: pytest.MonkeyPatch):
    """§2: the thread that has it is not there to end it."""
    monkeypatch.setattr(turnstile, "_of_process", Turnstile())
    with turnstile.turn(within=LONG):
        turnstile._renew()
        with turnstile.turn(within=SOON) as is_taken:
            assert is_taken
