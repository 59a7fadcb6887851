"""When a question is about, and what that does to hits."""

from datetime import UTC, datetime

import pytest
from asking import by_words, texts, with_vectors
from hypothesis import given
from hypothesis import strategies as st

from afterturn.recall.query import MonthRange, months_in, raise_named_months
from afterturn.testing.entries import hit
from afterturn.types import Hit

NAMED = [
    ("When did we go camping in June?", {MonthRange(None, 6)}),
    ("what did we say in may?", {MonthRange(None, 5)}),
    ("What about the August release?", {MonthRange(None, 8)}),
    ("What happened on 7 October 2023?", {MonthRange(2023, 10)}),
    ("the 5th of May, 2023", {MonthRange(2023, 5)}),
    ("March 3rd or Sept. 5", {MonthRange(None, 3), MonthRange(None, 9)}),
    ("between Jan 2024 and mid-February", {MonthRange(2024, 1), MonthRange(None, 2)}),
    ("the notes of 2023-10-07, and those of 2024-01", {MonthRange(2023, 10), MonthRange(2024, 1)}),
]
NOT_NAMED = [
    "May I ask you something?",
    "Fine. May we go on?",
    "I may go, and they march",
    "Jan and Mar said so",
    "the mayor decides on the market's august name",
    "build 2023-13, 12-05 and 1-0",
    "may be on 5 \u017fept 2023 and \u0665 \uff2daY",
    "",
]


def told(at: datetime, score: float = 0.5) -> Hit:
    return hit("We went camping", score=score, occurred_at=at.timestamp())


@pytest.mark.parametrize("text, months", NAMED)
def test_the_months_that_a_question_names_are_read(text, months):
    """L6: by name, with or without a day and a year, and as they are written in files."""
    assert months_in(text) == months


@pytest.mark.parametrize("text", NOT_NAMED)
def test_words_that_look_like_months_name_none(text):
    """L6: a modal verb is no time."""
    assert months_in(text) == frozenset()


@given(
    st.lists(st.sampled_from([*"0125 .,-(\n\u017f\u0665", "may", "Sept", "of", "th", "in", "2023", "-1"])).map("".join)
)
def test_any_text_can_be_read(text):
    """L6: there are twelve months, whatever somebody writes."""
    assert all(1 <= month <= 12 for _, month in months_in(text))


def test_what_was_said_in_the_month_comes_before_the_rest():
    """L6: of any year where none is named, of that year where one is."""
    june, next_june, july = (told(datetime(*day, tzinfo=UTC)) for day in ((2023, 6, 30), (2024, 6, 1), (2023, 7, 1)))
    asked = ("in June", "in June 2023", "in winter")
    raised = [[found.score > 0.5 for found in raise_named_months([june, next_june, july], text)] for text in asked]
    assert raised == [[True, True, False], [True, False, False], [False, False, False]]


@given(st.floats(-1, 1), st.floats(-1, 1))
def test_a_score_stays_a_score_and_in_its_order(one, other):
    """L5, L6: between 0 and 1, so that a floor has a meaning, and never less than it was."""
    june = datetime(2023, 6, 5, tzinfo=UTC)
    low, high = raise_named_months([told(june, min(one, other)), told(june, max(one, other))], "in June")
    assert low.score <= high.score <= 1
    assert high.score >= max(one, other)


@pytest.mark.parametrize("seconds", [1e300, -1e300, float("inf"), float("nan")])
def test_a_time_that_no_calendar_has_is_in_no_month(seconds):
    """L6: whoever gave the time made a mistake, and nobody else pays for it."""
    (found,) = raise_named_months([hit("x", occurred_at=seconds)], "in June")
    assert found.score == 0.5


@pytest.mark.parametrize("ask", [by_words, with_vectors])
def test_a_question_finds_what_was_told_at_its_time(library, ask):
    """L6: by words, with vectors, and in memory."""
    for month in range(1, 13):
        library.add(f"We went camping at lake {month}", occurred_at=datetime(2023, month, 9, tzinfo=UTC).timestamp())
    assert texts(ask(library, "Where did we go camping in June?"))[0] == "We went camping at lake 6"
