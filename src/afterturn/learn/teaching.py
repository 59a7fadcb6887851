"""What the rules found, as changes: a correction supersedes what it corrects, anything else is new."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
    """In the order in which it was said."""
    for lesson in find_lessons([(message.role, message.text) for message in messages]):
        kind = _STANDING.get((lesson.target, lesson.kind), lesson.kind)
        outdated = _find_outdated(lesson, known)
        if outdated is None:
            yield Change(Action.ADD, lesson.text, lesson.target, kind, messages=(lesson.message,))
        else:
            yield Change(Action.UPDATE, lesson.text, None, kind, outdated.id, (lesson.message,))


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
