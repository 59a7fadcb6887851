"""A review told to a person: how it came about, its changes as a difference, what was refused, and the way back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import click

from afterturn.base.reviews import Review, ReviewedChange, ReviewKind, ReviewRow, ReviewState
from afterturn.base.types import Entry, Status, Verb
from afterturn.hosts.cli.console import count, one_line, print_pairs
from afterturn.hosts.cli.differences import find_sources, print_details, print_difference, print_sources
from afterturn.hosts.cli.times import age

if TYPE_CHECKING:
    from afterturn import blocking

# By operation: what the change rests on, and how much of that is gone.
Sources: TypeAlias = Mapping[str, tuple[Sequence[Entry], int]]

LOG_COLUMNS = ("ID", "AGE", "CONVERSATION", "WHY", "CAME TO")
_WHY = {
    ReviewKind.INTERVAL: "the interval",
    ReviewKind.COMPACTION: "a compaction",
    ReviewKind.ASKED: "asked for",
    ReviewKind.RULES: "rules",
    ReviewKind.EXTRACTION: "extraction",
    ReviewKind.CONSOLIDATION: "consolidation",
}
_CAME_TO = {
    ReviewState.WAITING: "not run yet",
    ReviewState.NOTHING: "nothing to save",
    ReviewState.REFUSED: "nothing saved",
    ReviewState.TIMED_OUT: "given up: it took longer than review_timeout; nothing was saved",
    ReviewState.FAILED: "failed; nothing was saved",
    ReviewState.FORGOTTEN: "what it read was forgotten; nothing was saved",
}
_REFUSALS = {
    "limit": "more changes than review_entries_max",
    "evidence": "did not say which messages it rests on",
    "seen": "rests only on what was reviewed before",
    "unknown_memory": "names a memory that is not there",
    "pinned": "would change a pinned memory",
    "twice": "changes the same memory twice",
    "speaker": "said by somebody whose words are not kept here",
    "prompt": "repeats the instructions of the review",
    "invented": "names or numbers that nobody said",
    "unsupported": "not what the messages say",
    "budget": "no room left for it",
    "guard": "not admitted by the guard",
    "changed": "the memory has changed meanwhile",
    "not_allowed": "not trusted enough to do that",
    "forgotten": "what it rests on was forgotten",
    "known": "known already",
    "secret": "a password, PIN or key",
    "malformed": "a call that could not be read",
}
_REASONS = {"limit": "it was stopped at its limit of calls", "too_many_refusals": "it was stopped: too many refusals"}
_NOTES = {"restated": "says the same as", "outdated": "gave way to the newer", "unused": "was not used for fade_days"}
_UNTOLD = frozenset(["", "done", "nothing", "timeout", "forgotten", "paused"])


def log_row(row: ReviewRow) -> tuple[str, ...]:
    where = one_line(row.conversation) or one_line(row.space)
    return (row.id, age(row.created_at), where, _WHY[row.kind], came_to(row))


def came_to(row: ReviewRow) -> str:
    parts = [
        f"{row.written} saved" if row.written else "",
        f"{count(row.proposed, 'waits', 'wait')} for approval" if row.proposed else "",
        _CAME_TO.get(row.state, ""),
        f"{len(row.refusals)} refused" if row.refusals else "",
    ]
    return ", ".join(part for part in parts if part)


def sources_of(memory: blocking.Memory, review: Review) -> Sources:
    spaces = tuple(dict.fromkeys((review.row.writes, review.row.space, *review.row.spaces)))
    return {
        change.operation: find_sources(memory, spaces, change.after)
        for change in review.changes
        if change.after is not None and not _is_withdrawal(change)
    }


def print_review(review: Review, sources: Sources) -> None:
    row = review.row
    click.echo(f"Review {row.id}: {came_to(row)}")
    print_pairs(_pairs(row))
    print_changes(review, sources)
    if row.refusals:
        click.echo()
        click.echo("Refused:")
        for reason, times in Counter(row.refusals).items():
            print_details([_refusal(reason) + (f" ({times} times)" if times > 1 else "")])
    if any(change.state != "undone" for change in review.changes):
        click.echo()
        click.echo(f"(back: afterturn review undo {row.id})")


def print_changes(review: Review, sources: Sources) -> None:
    notes = dict(note.partition(" ")[::2] for note in review.row.notes)
    for change in review.changes:
        click.echo()
        _print_change(change, notes)
        found, missing = sources.get(change.operation, ((), 0))
        print_sources(found, missing)


def _pairs(row: ReviewRow) -> list[tuple[str, str]]:
    pairs = [
        ("conversation", one_line(row.conversation) and f"{one_line(row.conversation)} of {one_line(row.space)}"),
        ("space", "" if row.conversation else one_line(row.space)),
        ("why", f"{_WHY[row.kind]}, {age(row.created_at)}{_took(row)}"),
        ("cost", f"{count(row.calls, 'call')} of a model, {count(row.tokens, 'token')}" if row.calls else ""),
        ("ended", "" if row.reason in _UNTOLD else _REASONS.get(row.reason, one_line(row.reason.replace("_", " ")))),
    ]
    return [(name, value) for name, value in pairs if value]


def _took(row: ReviewRow) -> str:
    return "" if row.ended_at is None else f", ended after {max(0.0, row.ended_at - row.created_at):.1f} s"


def _print_change(change: ReviewedChange, notes: Mapping[str, str]) -> None:
    before = change.before.text if change.before is not None else None
    after = change.after.text if change.after is not None and not _is_deletion(change) else None
    print_difference(before, after)
    print_details([_detail(change)])
    entry = change.before
    if entry is not None and entry.id in notes and _is_deletion(change):
        print_details([_why(notes[entry.id])])


def _why(note: str) -> str:
    """What consolidation noted of a memory that goes: one word, and for what."""
    reason, _, by = note.partition(" by ")
    told = _NOTES.get(reason, one_line(reason))
    return f"{told} {one_line(by)}".strip()


def _is_deletion(change: ReviewedChange) -> bool:
    return change.verb is Verb.DELETE or _is_withdrawal(change)


def _is_withdrawal(change: ReviewedChange) -> bool:
    """A delete that waited is stored as a copy of what it would delete."""
    after, before = change.after, change.before
    if after is None or before is None or change.verb is not Verb.DELETE:
        return False
    return after.status is Status.WITHDRAWAL or after.content_hash == before.content_hash


def _detail(change: ReviewedChange) -> str:
    entry = change.after or change.before
    assert entry is not None
    version = f" version {entry.version}" if entry.version > 1 and not _is_deletion(change) else ""
    return f"{entry.id}{version}, about {entry.target}, in {one_line(change.space)}{_fate(change, entry)}"


def _fate(change: ReviewedChange, entry: Entry) -> str:
    told = {
        "waits": f"; waits: afterturn inbox show {entry.id}",
        "approved": "; approved since",
        "rejected": "; rejected since",
        "undone": "; undone since",
        "changed": "; changed by somebody since",
    }
    return told.get(change.state, "")


def _refusal(reason: str) -> str:
    return _REFUSALS.get(reason, one_line(reason.replace("_", " ")))
