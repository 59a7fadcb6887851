"""The public event log."""

import threading

import pytest

from afterturn.testing import EventLog
from afterturn.types import Event


def test_an_event_that_comes_from_another_thread_is_waited_for() -> None:
    log = EventLog()
    thread = threading.Thread(target=log, args=(Event("recorded", 1.0),))
    thread.start()
    assert log.wait("recorded").at == 1.0
    thread.join()


def test_an_event_that_does_not_come_is_an_error_that_says_what_came() -> None:
    log = EventLog()
    log(Event("turn_started", 1.0))
    with pytest.raises(AssertionError, match="turn_started"):
        log.wait("recorded", within=0.01)
