"""What the rules found, as changes: a correction supersedes what it corrects, anything else is new."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from afterturn.base.reviews import Snapped
from afterturn.base.terms import terms
from afterturn.base.types import Entry, Target
from afterturn.learn.changes import Action, Change
from afterturn.learn.rules import Lesson, find_lessons

# What stands in the system prompt of later conversations, if it is trusted (S1).
_STANDING = {
    (Target.USER, "preference"): "preference",
    (Target.USER, "name"): "preference",
    (Target.USER, "rule"): "preference",
    (Target.ENVIRONMENT, "rule"): "convention",
    (Target.ENVIRONMENT, "preference"): "convention",
}


def changes_of(messages: Sequence[Snapped], known: Sequence[Entry]) -> Iterator[Change]:
    """In the order in which it was said; what is not fresh is context, and was learned from before."""
    for lesson in _lessons(messages):
        kind = _STANDING.get((lesson.target, lesson.kind), lesson.kind)
        outdated = _find_outdated(lesson, known)
        cited = _cited(lesson, messages)
        if outdated is None:
            yield Change(Action.ADD, lesson.text, lesson.target, kind, messages=cited)
        else:
            yield Change(Action.UPDATE, lesson.text, None, kind, outdated.id, cited)


def _lessons(messages: Sequence[Snapped]) -> Iterator[Lesson]:
    found = find_lessons([(message.role, message.text) for message in messages])
    fresh = [at for at, message in enumerate(messages) if message.fresh]
    again = {
        lesson.text: fresh[lesson.message]
        for lesson in find_lessons([(messages[at].role, messages[at].text) for at in fresh])
    }
    for lesson in found:
        if messages[lesson.message].fresh:
            yield lesson
        elif lesson.text in again:
            # Said before and again: it rests on both.
            yield replace(lesson, message=again[lesson.text])


def _cited(lesson: Lesson, messages: Sequence[Snapped]) -> tuple[int, ...]:
    """A correction rests also on what it corrects, which tells what it is about."""
    before = lesson.message - 1
    if lesson.kind == "correction" and before >= 0 and messages[before].role == "assistant":
        return (before, lesson.message)
    return (lesson.message,)


def _find_outdated(lesson: Lesson, known: Sequence[Entry]) -> Entry | None:
    """The one memory that says what is no longer so; None when there is none, or no telling which."""
    wrong = frozenset(terms(lesson.replaces))
    if not wrong:
        return None
    own = frozenset(terms(lesson.text)) - wrong
    found = [
        entry
        for entry in known
        if entry.target is lesson.target and not entry.pinned and wrong <= frozenset(terms(entry.text))
    ]
    related = [entry for entry in found if own & frozenset(terms(entry.text))] or found
    return related[0] if len(related) == 1 else None
