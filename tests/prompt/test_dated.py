"""Contradictions carry their days, and nothing else does (L10)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterturn.recall.block import describe_day, render
from afterturn.testing.entries import DAY, NOW, hit
from afterturn.types import Excerpt


def show(text: str, **fields) -> Excerpt:
    return Excerpt(hit(text, **fields), text)


def test_a_dated_bullet_has_the_day_beside_the_age():
    """L10: the model sees which of two contradicting statements is the newer."""
    excerpts = [
        show("I live in Berlin", id="old", occurred_at=NOW - 400 * DAY),
        show("I live in Ulm", id="new", occurred_at=NOW - 3 * DAY),
        show("Miso is my cat", id="cat", occurred_at=NOW - 3 * DAY),
    ]
    assert render(excerpts, now=NOW, dated={"old", "new"}).text.splitlines()[3:6] == [
        "- [old] 1 year ago (2025-12-11), user: I live in Berlin",
        "- [new] 3 days ago (2027-01-12), user: I live in Ulm",
        "- [cat] 3 days ago, user: Miso is my cat",
    ]


@pytest.mark.parametrize("then", [float("inf"), float("-inf"), float("nan"), 1e15, -1e15])
def test_a_time_that_no_calendar_has_gives_no_day(then):
    """L10: whoever gave the time made a mistake; the block still comes."""
    assert describe_day(then) == ""
    assert "unknown time, user: x" in render([show("x", id="e", occurred_at=then)], now=NOW, dated={"e"}).text


@given(st.floats(0, 253_402_300_799))
def test_days_sort_as_their_times_do(then):
    """L10: year, month, day."""
    assert describe_day(then) <= describe_day(min(then + DAY, 253_402_300_799))
