"""What must hold of a store after a crowd was at it: nothing lost, nothing back, each effect once, all explained."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import afterturn
from afterturn.base.reviews import ReviewState
from afterturn.base.types import Entry, Filter, Kind, Origin, Status, Step
from afterturn.lab.crowd.child import CONFIG, SPACE
from afterturn.lab.crowd.model import MARK

_EVERYTHING = Filter(statuses=tuple(Status))


def read_logs(logs: Sequence[Path]) -> list[dict[str, Any]]:
    return [json.loads(line) for log in logs for line in log.read_text(encoding="utf-8").splitlines()]


async def judge(store: Path, told: Sequence[dict[str, Any]]) -> list[str]:
    """Every promise that was broken, in words; empty is well. What still waits is done first."""
    async with afterturn.open(store, {**CONFIG, "review_interval": 0, "consolidation": False}) as memory:
        space = memory.space(SPACE)
        await memory.drain(within=60)
        entries = [entry async for entry in _every(space)]
        found = [*_lost(entries, told), *_twice(entries), *_unexplained(entries)]
        found += _back(store, told)
        for entry_id in sorted({entry.id for entry in entries}):
            history = await space.history(entry_id)
            found += _broken_history(history.versions, history.steps)
        found += await _broken_reviews(space)
        found += [finding.message for finding in await memory.check() if finding.level == "error"]
    return found


async def _every(space: afterturn.Space) -> Any:
    before: str | None = None
    while page := await space.list(limit=500, before=before, filter=_EVERYTHING):
        for entry in page:
            yield entry
        before = page[-1].id


def _lost(entries: Sequence[Entry], told: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Acknowledged turns have their two records, but for those that were forgotten; what was added is there too."""
    forgets = [line for line in told if line["what"] == "forgot"]
    one_by_one = Counter(line.get("turn") for line in forgets)
    records = Counter(entry.turn for entry in entries if entry.kind is Kind.RECORD)
    for line in told:
        if line["what"] == "recorded" and not _may_be_forgotten(line, forgets):
            missing = 2 - records[line["turn"]] - one_by_one[line["turn"]]
            if missing > 0:
                yield f"turn {line['turn']} was recorded, and {missing} of its messages are gone"
    held = {entry.id for entry in entries} | {entry_id for line in forgets for entry_id in line["ids"]}
    for line in told:
        if line["what"] == "added" and line["id"] not in held:
            yield f"{line['id']} was added, and is gone"


def _may_be_forgotten(turn: dict[str, Any], forgets: Sequence[dict[str, Any]]) -> bool:
    """By a forget of its conversation that had not ended when the turn began."""
    return any(line.get("conversation") == turn["conversation"] and line["ended"] > turn["began"] for line in forgets)


def _twice(entries: Sequence[Entry]) -> Iterator[str]:
    said = Counter((entry.turn, entry.position) for entry in entries if entry.kind is Kind.RECORD)
    yield from (
        f"message {position} of turn {turn} is there {n} times" for (turn, position), n in said.items() if n > 1
    )
    active = Counter(
        (entry.target, entry.content_hash)
        for entry in entries
        if entry.kind is Kind.STATEMENT and entry.status is Status.ACTIVE
    )
    yield from (f"one statement is active {count} times" for count in active.values() if count > 1)


def _back(store: Path, told: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What was forgotten is in no table, neither by its id nor by its words, whatever wrote last."""
    import apsw

    forgets = [line for line in told if line["what"] == "forgot"]
    ids = {entry_id for line in forgets for entry_id in line["ids"]}
    marks = {mark for line in forgets for mark in line.get("marks", ())}
    connection = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        for query in ("SELECT id FROM entry", "SELECT source FROM source", "SELECT source FROM review_message"):
            back = {name for (name,) in connection.execute(query)} & ids
            yield from (f"{entry_id} was forgotten, and is back: {query}" for entry_id in sorted(back))
        for query in ("SELECT text FROM entry", "SELECT text FROM review_message", "SELECT text FROM block"):
            said = {mark for (text,) in connection.execute(query) for mark in MARK.findall(text)}
            yield from (f"{mark} was forgotten, and is told: {query}" for mark in sorted(said & marks))
    finally:
        connection.close()


def _unexplained(entries: Sequence[Entry]) -> Iterator[str]:
    """What was learned tells from whom."""
    for entry in entries:
        learned = entry.kind is Kind.STATEMENT and entry.origin is Origin.BACKGROUND_REVIEW
        if learned and ("review" not in entry.metadata or not entry.sources):
            yield f"{entry.ref} was learned, and does not say from what"


def _broken_history(versions: Sequence[Entry], steps: Sequence[Step]) -> Iterator[str]:
    """Each version's steps begin with nothing and follow one another up to what it is now."""
    by_version: defaultdict[int, list[Step]] = defaultdict(list)
    for step in steps:
        by_version[step.version].append(step)
    for entry in versions:
        taken = by_version[entry.version]
        if not taken or taken[0].before is not None or taken[-1].after is not entry.status:
            yield f"{entry.ref} is {entry.status}, and its history does not say how"
        elif any(later.before is not earlier.after for earlier, later in pairwise(taken)):
            yield f"the history of {entry.ref} has a gap"
    if sum(entry.status is Status.ACTIVE for entry in versions) > 1:
        yield f"{versions[0].id} has more than one active version"


async def _broken_reviews(space: afterturn.Space) -> list[str]:
    found = []
    for row in await space.reviews(limit=1000):
        review = await space.review(row.id)
        if row.state is ReviewState.WAITING and row.kind.takes_turns is False:
            found.append(f"review {row.id} never ended")
        if row.state not in (ReviewState.SAVED, ReviewState.WAITING) and review.changes:
            found.append(f"review {row.id} is {row.state}, and has changed something")
        if len(review.changes) > row.written + row.proposed + len(row.notes):
            found.append(f"review {row.id} has changed more than it says")
    return found
