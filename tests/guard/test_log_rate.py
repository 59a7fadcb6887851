"""One line a minute for the same failure."""

import logging

import pytest

from afterturn.log import SAME_SECONDS, RateLimit, logger


def record(text: str, at: float, *values: object, level: int = logging.WARNING) -> logging.LogRecord:
    made = logging.LogRecord("afterturn", level, __file__, 1, text, values, None)
    made.created = at
    return made


def test_the_same_failure_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """C4: a store that fails 2,435 times must not fill a host's log."""
    for number in range(2435):
        logger.warning("turn %r cannot be stored", number)
    assert caplog.messages == ["turn 0 cannot be stored"]


def test_different_failures_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """C4: the text, the type of the exception and its message tell them apart, but not the values in it."""
    logger.warning("the store is full")
    logger.warning("the store is locked")
    for error in (ValueError("turn 'x7' failed"), KeyError("b"), ValueError("turn 'y8' failed"), ValueError("c")):
        logger.error("a task failed", exc_info=error)
    assert caplog.messages == ["the store is full", "the store is locked", *["a task failed"] * 3]


def test_after_a_minute_it_is_logged_again_with_the_number_left_out() -> None:
    """C4: whoever reads the log sees that it goes on."""
    limit, later = RateLimit(), record("turn %r failed", 1000.0 + SAME_SECONDS, 7)
    passed = [limit.filter(record("turn %r failed", 1000.0 + second, second)) for second in range(60)]
    assert passed == [True] + [False] * 59
    assert limit.filter(later)
    assert later.getMessage() == "turn 7 failed (59 more like this since the last one)"


def test_a_clock_that_was_set_back_does_not_silence_the_log() -> None:
    """C4: the time of a record is that of the machine."""
    limit = RateLimit()
    assert limit.filter(record("broken", 1000.0))
    assert limit.filter(record("broken", 10.0))


def test_information_is_not_limited(caplog: pytest.LogCaptureFixture) -> None:
    """C4: only warnings and errors are."""
    caplog.set_level(logging.INFO, "afterturn")
    for _ in range(3):
        logger.info("loaded")
    assert caplog.messages == ["loaded"] * 3
