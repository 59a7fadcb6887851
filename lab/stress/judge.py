"""Checks a store that several processes used: nothing lost, nothing returned, each effect once, all explained."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import afterturn
from afterturn.runtime.clock import SystemClock
from afterturn.testing.model import ScriptedModel
from afterturn.types import Entry, Filter, Kind, Origin, ReviewState, Status, Step
from lab.stress.child import CONFIG, MARK, SPACES
from lab.tables import Store, read_rows

# Longer than any lease and any retry delay.
LATER = 86_400.0
REVIEWS_MAX = 1_000
# From the log line before an action until the action is stored.
DONE_WITHIN = 5.0
_ENDS = ("forgot", "lost a race")
_EVERYTHING = Filter(statuses=tuple(Status))


class LaterClock(SystemClock):
    """A clock so late that every lease and retry delay of a killed process has ended."""

    def now(self) -> float:
        return super().now() + LATER


def read_logs(logs: Sequence[Path]) -> list[dict[str, Any]]:
    """All complete lines; a killed process may leave a partial one."""
    lines = [line for log in logs for line in log.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    return [json.loads(line) for line in lines]


async def judge(store: Store, logged: Sequence[dict[str, Any]], *, spill_folder: Path | None = None) -> list[str]:
    """All broken promises, as sentences. Stores the turns that wait in `spill_folder` and runs waiting jobs first."""
    config = {**CONFIG, "review_interval": 0, "consolidation": False, "rules": False}
    if spill_folder is not None:
        config["spill_folder"] = str(spill_folder)
    parts = afterturn.Components(clock=LaterClock(), model=ScriptedModel(*["Nothing to save."] * REVIEWS_MAX))
    async with afterturn.open(store, config, components=parts) as memory:
        found = [] if await memory.drain(within=60) else ["waiting jobs were not done within a minute"]
        spaces = [memory.space(name) for name in SPACES]
        entries = {space.name: [entry async for entry in _every(space)] for space in spaces}
        found += [*_lost([entry for every in entries.values() for entry in every], logged), *_back(store, logged)]
        for space in spaces:
            found += [*_twice(entries[space.name]), *_unexplained(entries[space.name], logged)]
            for entry_id in sorted({entry.id for entry in entries[space.name]}):
                history = await space.history(entry_id)
                found += _broken_history(history.versions, history.steps)
            found += await _broken_reviews(space)
        found += _hidden_changes(store)
        found += [finding.message for finding in await memory.check() if finding.level == "error"]
    return found


async def _every(space: afterturn.Space) -> Any:
    before: str | None = None
    while page := await space.list(limit=500, before=before, filter=_EVERYTHING):
        for entry in page:
            yield entry
        before = page[-1].id


def _lost(entries: Sequence[Entry], logged: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Acknowledged turns have their two records unless they were forgotten, and added statements exist."""
    forgets = _perhaps_forgotten(logged)
    one_by_one = Counter(line.get("turn") for line in forgets)
    records = Counter(entry.turn for entry in entries if entry.kind is Kind.RECORD)
    for line in logged:
        if line["what"] == "recorded" and not _may_be_forgotten(line, forgets):
            missing = 2 - records[line["turn"]] - one_by_one[line["turn"]]
            if missing > 0:
                yield f"turn {line['turn']} was recorded, and {missing} of its messages are gone"
    held = {entry.id for entry in entries} | {entry_id for line in forgets for entry_id in line["ids"]}
    for line in logged:
        if line["what"] == "added" and line["id"] not in held:
            yield f"{line['id']} was added, and is gone"


def _perhaps_forgotten(logged: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Completed forgets, and those that a killed process may have completed without logging it."""
    ends = {(line.get("by"), line.get("began")): line["ended"] for line in logged if line["what"] in _ENDS}
    killed = {line["by"]: line["ended"] for line in logged if line["what"] == "killed"}
    begun = [line for line in logged if line["what"] == "forgetting"]
    untold = [line for line in begun if (line["by"], line["began"]) not in ends]
    return [
        *(line for line in logged if line["what"] == "forgot"),
        *({**line, "ended": killed.get(line["by"], float("inf"))} for line in untold),
    ]


def _may_be_forgotten(turn: dict[str, Any], forgets: Sequence[dict[str, Any]]) -> bool:
    """Whether a `forget` of its conversation had not ended when the turn began."""
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


def _back(store: Store, logged: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Forgotten entries are in no table, neither by id nor by text, whatever was written last."""
    forgets = [line for line in logged if line["what"] == "forgot"]
    ids = {entry_id for line in forgets for entry_id in line["ids"]}
    marks = {mark for line in forgets for mark in line.get("marks", ())} - set(_said_again(logged, forgets))
    named = set(_named_again(logged, forgets))
    for query in ("SELECT id FROM entry", "SELECT source FROM source", "SELECT source FROM review_message"):
        back = {name for (name,) in read_rows(store, query)} & ids - (named if "FROM source" in query else set())
        yield from (f"{entry_id} was forgotten, and is back: {query}" for entry_id in sorted(back))
    for query in ("SELECT text FROM entry", "SELECT text FROM review_message", "SELECT text FROM block"):
        said = {mark for (text,) in read_rows(store, query) for mark in MARK.findall(text)}
        yield from (f"{mark} was forgotten, and is stored: {query}" for mark in sorted(said & marks))


def _said_again(logged: Sequence[dict[str, Any]], forgets: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Marks that a host may have repeated for a compaction while they were being forgotten."""
    for line in logged:
        talk = line.get("conversation")
        if line["what"] == "compacting" and any(
            talk == forget.get("conversation") and _at_once(line, forget) for forget in forgets
        ):
            yield line["mark"]


def _named_again(logged: Sequence[dict[str, Any]], forgets: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Sources that a host may have named while they were being forgotten: memory accepts any source."""
    for line in logged:
        if line["what"] == "restating" and any(
            line["source"] in forget["ids"] and _at_once(line, forget) for forget in forgets
        ):
            yield line["source"]


def _at_once(line: dict[str, Any], forget: dict[str, Any]) -> bool:
    """Whether the logged action overlaps with the forget."""
    return bool(line["began"] < forget["ended"] and forget["began"] < line["ended"] + DONE_WITHIN)


def _hidden_changes(store: Store) -> Iterator[str]:
    """Operations of a review that its row does not mention: nobody sees them, and nobody undoes them."""
    query = """SELECT r.id, r.state, r.spaces, s.name, count(*) FROM review AS r JOIN operation AS o ON o.grp = r.id
        JOIN space AS s ON s.key = o.space_key GROUP BY r.id, r.state, r.spaces, s.name"""
    for review, state, listed, space, count in read_rows(store, query):
        if state != "saved" or space not in json.loads(listed):
            yield f"review {review} is {state}, and has done {count} operations in {space} that it does not list"


def _unexplained(entries: Sequence[Entry], logged: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A learned statement names its source. Messages that a host passed for a compaction may not be recorded."""
    compacted = {line["mark"] for line in logged if line["what"] == "compacting"}
    for entry in entries:
        learned = entry.kind is Kind.STATEMENT and entry.origin is Origin.BACKGROUND_REVIEW
        unrecorded = not entry.sources and compacted.isdisjoint(MARK.findall(entry.text))
        if learned and ("review" not in entry.metadata or unrecorded):
            yield f"{entry.ref} was learned, and has no source"


def _broken_history(versions: Sequence[Entry], steps: Sequence[Step]) -> Iterator[str]:
    """The steps of each version begin with nothing and lead without gaps to its status."""
    by_version: defaultdict[int, list[Step]] = defaultdict(list)
    for step in steps:
        by_version[step.version].append(step)
    for entry in versions:
        taken = by_version[entry.version]
        if not taken or taken[0].before is not None or taken[-1].after is not entry.status:
            yield f"{entry.ref} is {entry.status}, and its history does not explain it"
        elif any(later.before is not earlier.after for earlier, later in pairwise(taken)):
            yield f"the history of {entry.ref} has a gap"
    if sum(entry.status is Status.ACTIVE for entry in versions) > 1:
        yield f"{versions[0].id} has more than one active version"


async def _broken_reviews(space: afterturn.Space) -> list[str]:
    found = []
    for row in await space.reviews(limit=1000):
        review = await space.review(row.id)
        if row.state is ReviewState.WAITING:
            found.append(f"review {row.id} never ended")
        if row.state not in (ReviewState.SAVED, ReviewState.WAITING) and review.changes:
            found.append(f"review {row.id} is {row.state}, and has changed something")
        if len(review.changes) > row.written + row.proposed + len(row.notes):
            found.append(f"review {row.id} has more changes than it reports")
    return found
