"""What a review reads, and how two snapshots become one."""

from afterturn.learning.snapshot import BYTES_MAX, MESSAGES_MAX, merge_snapshots, truncate_snapshot, unread
from afterturn.types import ReviewMessage


def said(text: str, source: str | None = None, role: str = "user") -> ReviewMessage:
    return ReviewMessage(role, role, text, source, 100, 0.0)


def texts(messages: list[ReviewMessage]) -> list[str]:
    return [message.text for message in messages]


def test_equal_words_in_another_message_are_another_message() -> None:
    """V1, V2: three answers "yes" stay three, however often a trigger joins the review that waits."""
    earlier = [said("meat?", "1", "assistant"), said("yes", "2")]
    later = [*earlier, said("metric?", "3", "assistant"), said("yes", "4"), said("yes", "5")]

    assert texts(merge_snapshots(earlier, later)) == ["meat?", "yes", "metric?", "yes", "yes"]
    assert texts([message for message in unread(later, earlier) if message.fresh]) == ["metric?", "yes", "yes"]


def test_what_was_not_recorded_yet_is_known_by_its_words_as_often_as_it_was_said() -> None:
    """V9: a compaction's messages have no records; once recorded they are the same messages."""
    unrecorded = [said("yes"), said("no"), said("yes")]
    recorded = [said("yes", "1"), said("no", "2"), said("yes", "3"), said("yes", "4")]

    assert texts(merge_snapshots(unrecorded, recorded)) == ["yes", "no", "yes", "yes"]
    assert texts(merge_snapshots(recorded, unrecorded)) == ["yes", "no", "yes", "yes"]
    assert unread(recorded[:3], unrecorded) == []


def test_a_snapshot_is_bounded_and_keeps_the_newest() -> None:
    """V2, G5: long messages are cut, and the oldest go."""
    many = truncate_snapshot([said(f"{number} " + "x" * 100_000) for number in range(50)])

    assert sum(len(message.text) for message in many) <= BYTES_MAX
    assert many[-1].text.startswith("49 ")
    assert len(truncate_snapshot([said("hi")] * 1000)) == MESSAGES_MAX
