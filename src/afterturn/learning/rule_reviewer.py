"""The reviewer that uses rules: turns lessons into changes, which replace the memories that they contradict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from afterturn.learning.changes import Action, Change
from afterturn.learning.rules import Lesson, find_lessons
from afterturn.learning.single_value import contradict, single_value
from afterturn.learning.staging import PERSON, find_target_space
from afterturn.text import terms
from afterturn.types import Entry, ReviewMessage, ReviewRow, Target

# The kinds of lessons that are shown in later system prompts if they are trusted.
_STANDING = {
    (Target.USER, "preference"): "preference",
    (Target.USER, "name"): "preference",
    (Target.USER, "rule"): "preference",
    (Target.ENVIRONMENT, "rule"): "convention",
    (Target.ENVIRONMENT, "preference"): "convention",
}
# Nearly every statement contains it.
_USER = frozenset(terms("user"))


@dataclass(frozen=True, slots=True)
class _Outdated:
    """Memories that a lesson contradicts. `is_stated`: another memory already states the new value."""

    entries: tuple[Entry, ...] = ()
    is_stated: bool = False


def find_changes(review: ReviewRow, messages: Sequence[ReviewMessage], related: Sequence[Entry]) -> Iterator[Change]:
    """The changes in the order of the messages. Messages that are not fresh are context only."""
    for lesson in _lessons(messages):
        kind = _STANDING.get((lesson.target, lesson.kind), lesson.kind)
        cited = _cited(lesson, messages)
        outdated = _find_outdated(lesson, _changeable(review, lesson, [messages[at] for at in cited], related))
        gone = list(outdated.entries)
        if gone and not outdated.is_stated:
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
    """Whether the same speaker contradicts the lesson later."""
    if lesson.target is not later.target or messages[lesson.message].speaker != messages[later.message].speaker:
        return False
    one, other = single_value(lesson.text), single_value(later.text)
    return one is not None and other is not None and one[0] == other[0] and contradict(one[1], other[1])


def _cited(lesson: Lesson, messages: Sequence[ReviewMessage]) -> tuple[int, ...]:
    """The messages that support a lesson. A correction also needs the answer that it corrects."""
    before = lesson.message - 1
    if lesson.kind == "correction" and before >= 0 and messages[before].role == "assistant":
        return (before, lesson.message)
    return (lesson.message,)


def _changeable(
    review: ReviewRow, lesson: Lesson, cited: Sequence[ReviewMessage], related: Sequence[Entry]
) -> Sequence[Entry]:
    """The memories that the speaker may change: not pinned, and of the same speaker, agent and project."""
    target_space = find_target_space(review, lesson.target, cited)
    if target_space is None or target_space.needs_approval:
        return ()
    of_user = lesson.target is Target.USER
    agents = {review.agent, None} if of_user else {review.agent}
    project = None if of_user else review.project
    return [
        entry
        for entry in related
        if not entry.pinned
        and (entry.target, entry.space, entry.project) == (lesson.target, target_space.space, project)
        and entry.agent in agents
        and (entry.speaker == target_space.speaker or entry.space.startswith(PERSON))
    ]


def _find_outdated(lesson: Lesson, related: Sequence[Entry]) -> _Outdated:
    replaced = _find_replaced(lesson, related)
    found = () if replaced is None else (replaced,)
    own = single_value(lesson.text)
    if own is None:
        return _Outdated(found)
    same = [(entry, value[1]) for entry in related if (value := single_value(entry.text)) and value[0] == own[0]]
    others = sorted(
        (entry for entry, value in same if entry is not replaced and contradict(value, own[1])),
        key=lambda entry: (entry.occurred_at, entry.id),
        reverse=True,
    )
    return _Outdated((*found, *others), any(value == own[1] for _, value in same))


def _find_replaced(lesson: Lesson, related: Sequence[Entry]) -> Entry | None:
    """The memory that states the wrong value and nothing else; None if there is none or more than one.

    A memory that says more stays: "we use pnpm, not npm" does not change "publishing to npm needs a key".
    """
    wrong = frozenset(terms(lesson.replaces))
    if not wrong:
        return None
    allowed = frozenset(terms(lesson.text)) | wrong | _USER
    found = [
        entry
        for entry in related
        if wrong <= frozenset(terms(entry.text)) <= allowed and not _is_another(lesson, entry)
    ]
    return found[0] if len(found) == 1 else None


def _is_another(lesson: Lesson, entry: Entry) -> bool:
    """Whether the memory gives the value of something else, such as where the user's sister lives."""
    one, other = single_value(lesson.text), single_value(entry.text)
    return one is not None and other is not None and one[0] != other[0]
