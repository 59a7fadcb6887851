"""Which of the hits ask for room in a block first."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from afterturn.recall.block import varied
from afterturn.testing.entries import hit
from afterturn.types import Hit, Lane

SHARE = 512
LONG = "word " * 200


def said(name: str, score: float, conversation: str | None, text: str = LONG, **fields: Any) -> Hit:
    return hit(text, id=name, score=score, conversation=conversation, lane=Lane.EPISODIC, **fields)


def order(hits: Sequence[Hit]) -> str:
    return "".join(found.entry.id for found in varied(hits, SHARE))


@st.composite
def hit_lists(draw: st.DrawFn) -> list[Hit]:
    scores = sorted(draw(st.lists(st.floats(0, 1), max_size=24)), reverse=True)
    places = st.sampled_from((None, "c1", "c2", "c3"))
    return [
        said(f"e{number:02}", score, draw(places), "x" * draw(st.integers(1, 2 * SHARE)))
        for number, score in enumerate(scores)
    ]


@given(hit_lists())
def test_every_hit_asks_for_room_once(hits):
    """H9: the order is all that changes, and nothing but the hits decides it."""
    ordered = varied(hits, SHARE)
    assert sorted(found.entry.id for found in ordered) == [found.entry.id for found in hits]
    assert ordered == varied(list(hits), SHARE)


@given(hit_lists())
def test_of_one_length_and_one_conversation_the_better_comes_first(hits):
    """H9: variety is no reason to show the worse of two that differ in nothing else."""
    places = {found.entry.id: place for place, found in enumerate(varied(hits, SHARE))}
    for one in hits:
        for other in hits:
            alike = one.entry.conversation == other.entry.conversation and len(one.entry.text) == len(other.entry.text)
            if alike and one.score > other.score:
                assert places[one.entry.id] < places[other.entry.id]


def test_a_conversation_that_was_not_heard_comes_before_more_of_another():
    """H9: a block has room for seven long messages; all of one conversation would leave out the others."""
    assert order([said("a", 0.60, "c1"), said("b", 0.59, "c1"), said("c", 0.57, "c2")]) == "acb"


def test_a_much_better_message_comes_first_wherever_it_was_said():
    """H9: variety is a preference, not a quota."""
    assert order([said("a", 0.70, "c1"), said("b", 0.69, "c1"), said("c", 0.55, "c2")]) == "abc"


def test_of_what_is_nearly_as_good_the_shorter_comes_first():
    """H9: what takes a tenth of the room leaves nine tenths for others."""
    assert order([said("a", 0.600, None), said("b", 0.595, None, "short")]) == "ba"


def test_short_messages_of_one_conversation_stay_together():
    """H9: where messages are short there is room, and what was said around an answer belongs to it."""
    hits = [said("a", 0.60, "c1", "Yes."), said("b", 0.59, "c1", "At nine."), said("c", 0.58, "c2", "At ten.")]
    assert order(hits) == "abc"


def test_what_was_said_in_no_conversation_repeats_none():
    """H9: statements that were added by hand stand each for itself."""
    assert order([said("a", 0.60, None), said("b", 0.59, None), said("c", 0.58, "c2")]) == "abc"


def test_conversations_of_two_spaces_may_have_one_name():
    """H9: which conversation it is, its space says too."""
    hits = [said("a", 0.60, "c1"), said("b", 0.59, "c1", space="user:bob"), said("c", 0.58, "c2")]
    assert order(hits) == "abc"
