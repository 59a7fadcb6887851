"""Threads for blocking work: order, bounded closing, no thread left behind."""

import logging
import os
import threading

import pytest

from afterturn.errors import ForkedProcess, MemoryClosed
from afterturn.runtime.worker import ThreadWorker

WAIT = 100.0


def test_one_thread_runs_work_in_the_order_it_was_posted() -> None:
    """§13: a worker keeps the order of what it is given."""
    seen: list[int] = []
    worker = ThreadWorker("order")
    for number in range(100):
        worker.post(lambda number=number: seen.append(number))
    worker.close(within=WAIT)
    assert seen == list(range(100))


def test_closing_runs_what_was_posted_and_leaves_no_thread() -> None:
    """§13: closing drains, then every thread is gone."""
    before = threading.active_count()
    done = threading.Event()
    worker = ThreadWorker("drain", threads=3)
    for _ in range(5):
        worker.post(lambda: None)
    worker.post(done.set)
    assert worker.close(within=WAIT)
    assert done.is_set()
    assert threading.active_count() == before


def test_closing_is_bounded_while_work_goes_on() -> None:
    """§13: closing answers False when the time is over, and True once the work has ended."""
    begun, release = threading.Event(), threading.Event()
    worker = ThreadWorker("slow")
    worker.post(lambda: (begun.set(), release.wait(WAIT), None)[-1])
    assert begun.wait(WAIT)
    assert not worker.close(within=0.01)
    release.set()
    assert worker.close(within=WAIT)


def test_posting_after_closing_raises() -> None:
    """§13: use after closing raises."""
    worker = ThreadWorker("closed")
    assert worker.close(within=0)
    with pytest.raises(MemoryClosed):
        worker.post(lambda: None)


def test_work_that_raises_is_logged_and_the_next_one_still_runs(caplog: pytest.LogCaptureFixture) -> None:
    """§13: one broken piece of work does not end the worker."""
    done = threading.Event()
    worker = ThreadWorker("broken")
    with caplog.at_level(logging.ERROR):
        worker.post(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
        worker.post(done.set)
        worker.close(within=WAIT)
    assert done.is_set()
    assert "ZeroDivisionError" in caplog.text


def test_work_runs_where_it_is_posted_if_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """C4: while the interpreter exits, Python 3.12 starts no thread; what closing has to do is done all the same."""
    seen: list[str] = []
    worker, begun = ThreadWorker("last"), ThreadWorker("begun", threads=2)
    begun.post(lambda: None)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    worker.post(lambda: (worker.post(lambda: seen.append("second")), seen.append("first"), None)[-1])
    begun.post(lambda: seen.append(threading.current_thread().name))
    assert (worker.close(within=WAIT), begun.close(within=WAIT)) == (True, True)
    assert sorted(seen) == ["begun-1", "first", "second"]


def test_no_thread_starts_before_the_first_post() -> None:
    """§2: opening memory in a hook costs no thread that is not used."""
    before = threading.active_count()
    worker = ThreadWorker("idle", threads=2)
    assert threading.active_count() == before
    assert worker.close(within=0)


def test_a_forked_child_is_refused_and_closes_at_once() -> None:
    """§2: nobody would ever run work that a forked child posts."""
    worker = ThreadWorker("parent")
    worker.post(lambda: None)
    child = os.fork()
    if not child:
        try:
            worker.post(lambda: None)
        except ForkedProcess:
            os._exit(0 if worker.close(within=WAIT) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    worker.close(within=WAIT)
