"""In which space something that was learned belongs (L2): what a speaker said, into that speaker's space only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from afterturn.base.reviews import ReviewRow, Snapped
from afterturn.base.types import Entry, Target

PERSON = "user:"


@dataclass(frozen=True, slots=True)
class Home:
    """`waits`: only with a person's approval. `speaker` is who said it, where the host has named somebody."""

    space: str
    waits: bool = False
    speaker: str | None = None


def voices(messages: Sequence[Snapped], cited: Sequence[int], target: Target) -> list[Snapped]:
    """What was named; and when only the agent says something about a user, also what it answered to."""
    named = [messages[at] for at in cited]
    if target is not Target.USER or any(message.role == "user" for message in named):
        return named
    asked = (_answered(messages[:at]) for at in cited if messages[at].role == "assistant")
    return named + [message for message in asked if message is not None]


def _answered(before: Sequence[Snapped]) -> Snapped | None:
    return next((message for message in reversed(before) if message.role == "user"), None)


def find_home(review: ReviewRow, target: Target, cited: Sequence[Snapped]) -> Home | None:
    """None when it belongs nowhere that this conversation may write."""
    named = {message.speaker for message in cited if message.role == "user" and message.speaker not in ("", "user")}
    if len(named) > 1:
        return None
    if named:
        return _of_speaker(review, named.pop())
    if target is Target.USER and not review.writes.startswith(PERSON) and review.space.startswith(PERSON):
        # A shared space is no place for what is personal.
        return Home(review.space)
    return Home(review.writes)


def find_home_of(review: ReviewRow, memory: Entry, cited: Sequence[Snapped]) -> Home | None:
    """Where `memory` is, if what was said may change it there; None when what was said belongs elsewhere."""
    home = find_home(review, memory.target, cited)
    if home is None or home.space != memory.space:
        return None
    of_another = memory.speaker not in (None, home.speaker) and not memory.space.startswith(PERSON)
    return replace(home, waits=home.waits or of_another)


def _of_speaker(review: ReviewRow, speaker: str) -> Home | None:
    granted = {space.casefold(): space for space in (*review.reads, review.writes, review.space)}
    own = granted.get(f"{PERSON}{speaker}".casefold())
    if own is not None:
        return Home(own, speaker=speaker)
    # Into a space that several share, with somebody's consent; into another person's, never.
    return None if review.writes.startswith(PERSON) else Home(review.writes, waits=True, speaker=speaker)
