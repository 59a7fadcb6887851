"""How other threads wake memory's loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator

import pytest

from afterturn.base import waking
from afterturn.base.waking import keep_lock

LIMIT = 30.0


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """One that runs in a thread of its own, and is woken with Python's lock kept."""
    loop = asyncio.new_event_loop()
    keep_lock(loop)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join(LIMIT)
    loop.close()


def _is_kept(loop: asyncio.AbstractEventLoop) -> bool:
    return type(getattr(loop, "_write_to_self", None)).__module__ == waking.__name__


def test_a_loop_of_asyncios_own_is_woken_our_way(loop: asyncio.AbstractEventLoop) -> None:
    """R2: on every system that can do so."""
    assert _is_kept(loop) == (os.name == "posix")


def test_a_loop_that_sleeps_is_woken(loop: asyncio.AbstractEventLoop) -> None:
    """R2: what is posted runs, though nothing else happens there."""
    for _ in range(50):
        called = threading.Event()
        loop.call_soon_threadsafe(called.set)
        assert called.wait(LIMIT)


def test_calls_from_many_threads_all_come_in_the_order_of_each(loop: asyncio.AbstractEventLoop) -> None:
    """R2: no wake-up is lost between two of them."""
    came: list[tuple[int, int]] = []
    last = threading.Semaphore(0)

    def post(thread: int) -> None:
        for at in range(200):
            loop.call_soon_threadsafe(came.append, (thread, at))
        loop.call_soon_threadsafe(last.release)

    threads = [threading.Thread(target=post, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    assert all(last.acquire(timeout=LIMIT) for _ in threads)
    for number in range(4):
        assert [at for thread, at in came if thread == number] == list(range(200))


def test_more_wake_ups_than_a_socket_holds_are_no_fault(loop: asyncio.AbstractEventLoop) -> None:
    """R2: a loop that is busy for long is still told of everything."""
    busy, free, called = threading.Event(), threading.Event(), threading.Semaphore(0)

    def hold() -> None:
        busy.set()
        free.wait(LIMIT)

    loop.call_soon_threadsafe(hold)
    assert busy.wait(LIMIT)
    for _ in range(5000):
        loop.call_soon_threadsafe(called.release)
    free.set()
    assert all(called.acquire(timeout=LIMIT) for _ in range(5000))


def test_waking_a_loop_that_has_ended_changes_nothing() -> None:
    """R4: a result may come when memory has closed."""
    loop = asyncio.new_event_loop()
    keep_lock(loop)
    wake = loop._write_to_self  # type: ignore[attr-defined]
    loop.close()
    wake()
    with pytest.raises(RuntimeError):
        loop.call_soon_threadsafe(print)


def test_another_kind_of_loop_stays_as_it_is() -> None:
    """R2: a host's policy may have chosen one that wakes itself in its own way."""

    class Other(asyncio.AbstractEventLoop):
        pass

    other = Other()  # type: ignore[abstract]
    keep_lock(other)
    assert not _is_kept(other)


def test_without_a_way_to_send_a_loop_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """R2: a Python without ctypes opens memories too."""
    monkeypatch.setattr(waking, "_find_send", lambda: None)
    loop = asyncio.new_event_loop()
    keep_lock(loop)
    assert not _is_kept(loop)
    loop.close()
