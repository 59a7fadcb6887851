"""Ages in words."""

import pytest

from afterturn.recall.block import describe_age

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


@pytest.mark.parametrize(
    "seconds, words",
    [
        (0, "just now"),
        (59, "just now"),
        (MINUTE, "1 minute ago"),
        (5 * MINUTE + 1, "5 minutes ago"),
        (HOUR, "1 hour ago"),
        (23.9 * HOUR, "23 hours ago"),
        (DAY, "yesterday"),
        (1.9 * DAY, "yesterday"),
        (3 * DAY, "3 days ago"),
        (30 * DAY, "30 days ago"),
        (31 * DAY, "1 month ago"),
        (62 * DAY, "2 months ago"),
        (364 * DAY, "11 months ago"),
        (366 * DAY, "1 year ago"),
        (800 * DAY, "2 years ago"),
        (-5, "just now"),
        (-3 * HOUR, "just now"),
        (-3 * DAY, "in 3 days"),
    ],
)
def test_an_age_is_told_as_a_person_would(seconds, words):
    """H4: "3 days ago"; a clock that runs a little fast does not make the past the future."""
    now = 1_800_000_000.0
    assert describe_age(now - seconds, now) == words


@pytest.mark.parametrize("then", [float("inf"), float("-inf"), float("nan"), 1e300, -1e300])
def test_an_absurd_time_is_not_told(then):
    """H4: an imported entry's impossible date costs its age, not the block."""
    assert describe_age(then, 1_800_000_000.0) == "at an unknown time"
