"""What the rules found, as changes: it supersedes what it corrects or contradicts; anything else is new."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from afterturn.learning.changes import Action, Change
from afterturn.learning.rules import Lesson, find_lessons
from afterturn.learning.single_value import contradict, single_value
from afterturn.learning.staging import PERSON, find_home
from afterturn.text import terms
from afterturn.types import Entry, ReviewMessage, ReviewRow, Target

# What stands in the system prompt of later conversations, if it is trusted (S1).
_STANDING = {
    (Target.USER, "preference"): "preference",
    (Target.USER, "name"): "preference",
    (Target.USER, "rule"): "preference",
    (Target.ENVIRONMENT, "rule"): "convention",
    (Target.ENVIRONMENT, "preference"): "convention",
}
# In nearly every statement, so that sharing it says nothing.
_USER = frozenset(terms("user"))


@dataclass(frozen=True, slots=True)
class _Outdated:
    """Memories that can not be so any more. `said`: another says already what is so."""

    entries: tuple[Entry, ...] = ()
    said: bool = False


def changes_of(review: ReviewRow, messages: Sequence[ReviewMessage], known: Sequence[Entry]) -> Iterator[Change]:
    """In the order in which it was said; what is not fresh is context, and was learned from before."""
    for lesson in _lessons(messages):
        kind = _STANDING.get((lesson.target, lesson.kind), lesson.kind)
        cited = _cited(lesson, messages)
        outdated = _outdated(lesson, _of_same_home(review, lesson, [messages[at] for at in cited], known))
        gone = list(outdated.entries)
        if gone and not outdated.said:
            yield Change(Action.UPDATE, lesson.text, None, kind, gone.pop(0).id, cited)
        else:
            yield Change(Action.ADD, lesson.text, lesson.target, kind, messages=cited)
        for entry in gone:
            yield Change(Action.DELETE, entry_id=entry.id, messages=cited)


def _lessons(messages: Sequence[ReviewMessage]) -> list[Lesson]:
    found = find_lessons([(message.role, message.text) for message in messages])
    fresh = [lesson for lesson in found if messages[lesson.message].fresh]
    return [
        lesson
        for at, lesson in enumerate(fresh)
        if not any(_is_outdated(lesson, later, messages) for later in fresh[at + 1 :])
    ]


def _is_outdated(lesson: Lesson, later: Lesson, messages: Sequence[ReviewMessage]) -> bool:
    """Who changes their mind within one turn has one mind at its end."""
    if lesson.target is not later.target or messages[lesson.message].speaker != messages[later.message].speaker:
        return False
    one, other = single_value(lesson.text), single_value(later.text)
    return one is not None and other is not None and one[0] == other[0] and contradict(one[1], other[1])


def _cited(lesson: Lesson, messages: Sequence[ReviewMessage]) -> tuple[int, ...]:
    """A correction rests also on what it corrects, which tells what it is about."""
    before = lesson.message - 1
    if lesson.kind == "correction" and before >= 0 and messages[before].role == "assistant":
        return (before, lesson.message)
    return (lesson.message,)


def _of_same_home(
    review: ReviewRow, lesson: Lesson, cited: Sequence[ReviewMessage], known: Sequence[Entry]
) -> Sequence[Entry]:
    """What may be changed by whoever said it: nothing of other speakers, agents or projects, and nothing pinned."""
    home = find_home(review, lesson.target, cited)
    if home is None or home.waits:
        return ()
    of_user = lesson.target is Target.USER
    agents = {review.agent, None} if of_user else {review.agent}
    project = None if of_user else review.project
    return [
        entry
        for entry in known
        if not entry.pinned
        and (entry.target, entry.space, entry.project) == (lesson.target, home.space, project)
        and entry.agent in agents
        and (entry.speaker == home.speaker or entry.space.startswith(PERSON))
    ]


def _outdated(lesson: Lesson, known: Sequence[Entry]) -> _Outdated:
    replaced = _find_replaced(lesson, known)
    found = () if replaced is None else (replaced,)
    own = single_value(lesson.text)
    if own is None:
        return _Outdated(found)
    told = [(entry, value[1]) for entry in known if (value := single_value(entry.text)) and value[0] == own[0]]
    others = sorted(
        (entry for entry, value in told if entry is not replaced and contradict(value, own[1])),
        key=lambda entry: (entry.occurred_at, entry.id),
        reverse=True,
    )
    return _Outdated((*found, *others), any(value == own[1] for _, value in told))


def _find_replaced(lesson: Lesson, known: Sequence[Entry]) -> Entry | None:
    """The one memory that says what is said to be wrong and nothing else; None when there is none, or no telling which.

    One that says more stays: "publishing to npm needs a key" is not what "we use pnpm, not npm" is about.
    """
    wrong = frozenset(terms(lesson.replaces))
    if not wrong:
        return None
    told = frozenset(terms(lesson.text)) | wrong | _USER
    found = [
        entry for entry in known if wrong <= frozenset(terms(entry.text)) <= told and not _is_another(lesson, entry)
    ]
    return found[0] if len(found) == 1 else None


def _is_another(lesson: Lesson, entry: Entry) -> bool:
    """It says something else that there is one of, such as where the user's sister lives."""
    one, other = single_value(lesson.text), single_value(entry.text)
    return one is not None and other is not None and one[0] != other[0]
