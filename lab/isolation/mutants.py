"""Copies of the source with one scope check removed. The isolation lab must fail for each.

Where a second statement repeats a check, both are removed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass

from lab.mutations import PACKAGE, ROOT, SOURCE, Fault, source_copy
from lab.slices import Outcome

_SHORT = ("--seeds", "1", "--tenants", "4", "--spaces", "6", "--operations", "1600", "--stop-early")
_RUN_SECONDS_MAX = 600.0


def _scope(file: str, text: str, replacement: str, effect: str) -> Fault:
    return Fault("isolation", file, text, replacement, effect, ())


def _between(file: str, first: str, last: str) -> str:
    """The source from `first` to `last`; empty if it is not there, and then the mutant says so."""
    content = (SOURCE / PACKAGE / file).read_text(encoding="utf-8")
    start, end = content.find(first), content.find(last)
    return content[start : end + len(last)] if 0 <= start < end else ""


_ENTRIES, _MEMORIES = "stores/sql/entries.py", "stores/sql/memories.py"
_REVIEWS, _OPERATIONS_SQL = "stores/sql/reviews.py", "stores/sql/operations.sql"
_CONVERSATIONS_SQL, _MEMORIES_SQL = "stores/sql/conversations.sql", "stores/sql/memories.sql"
_FORGET, _JOBS = "stores/sql/forget.py", "stores/sql/jobs.py"
# The statements of all tables that a conversation has look its key up, each for itself.
_KEYS = _between(_CONVERSATIONS_SQL, "-- name: find_conversation", "-- name: state")
_KEY_LOOKUP = re.compile(
    r"(SELECT c\.key FROM conversation AS c JOIN space AS s ON s\.key = c\.space_key WHERE) "
    r"s\.tenant = \? AND s\.name = \?".replace(" ", r"\s+")
)
# To the end of the statement: the one that starts a turn begins alike.
_STATE = _between(_CONVERSATIONS_SQL, "-- name: state", "-- name: start_turn")
# Here a second statement repeats the check of the first, so that one alone would erase nothing of others.
_TIMELINE = _between(
    _FORGET, '"SELECT seq, conversation, data FROM timeline', "DELETE FROM timeline WHERE space_key = ? AND seq = ?"
)
_OF_REVIEWS = _between(_FORGET, 'within = "space_key = ?"', "DELETE FROM review WHERE space_key = ? AND id = ?")

MUTANTS = (
    _scope(
        _ENTRIES,
        'self.add("s.tenant = ?", scope.tenant)',
        "self.add(\"? <> ''\", scope.tenant)",
        "queries do not check the tenant",
    ),
    _scope(
        _ENTRIES,
        'self.add("s.name = ?", scope.spaces[0])',
        "self.add(\"? <> ''\", scope.spaces[0])",
        "queries of one space do not check the space",
    ),
    _scope(
        _ENTRIES,
        'self.among("s.name", scope.spaces)',
        "pass",
        "queries of several spaces do not check the spaces",
    ),
    _scope(
        _ENTRIES,
        '"SELECT key FROM space WHERE tenant = ? AND name = ?"',
        "\"SELECT key FROM space WHERE ? <> '' AND name = ?\"",
        "a space is found under any tenant",
    ),
    _scope(
        _MEMORIES,
        '_ACTIVE = f"SELECT {ENTRY_COLUMNS} FROM {FROM_ENTRY} WHERE e.space_key = ? AND',
        '_ACTIVE = f"SELECT {ENTRY_COLUMNS} FROM {FROM_ENTRY} WHERE e.space_key <> -? AND',
        "a memory of another space can be deleted",
    ),
    _scope(
        _MEMORIES_SQL,
        "WHERE e.space_key = ? AND e.id = ? AND e.status IN",
        "WHERE e.space_key <> -? AND e.id = ? AND e.status IN",
        "a proposal of another space can be approved",
    ),
    _scope(
        _MEMORIES_SQL,
        "WHERE e.space_key = ? AND e.target = ?",
        "WHERE e.space_key <> -? AND e.target = ?",
        "adding what another space says returns that one's memory",
    ),
    _scope(
        _MEMORIES,
        'WHERE s.tenant = ? GROUP BY s.name ORDER BY s.name"',
        "WHERE ? <> '' GROUP BY s.name ORDER BY s.name\"",
        "the spaces of other tenants are listed",
    ),
    _scope(
        _OPERATIONS_SQL,
        "WHERE o.space_key = ? AND (o.id",
        "WHERE o.space_key <> -? AND (o.id",
        "undo takes back the operations of another space",
    ),
    _scope(
        _CONVERSATIONS_SQL,
        _KEYS,
        _KEY_LOOKUP.sub(r"\1 ? <> '' AND s.name = ?", _KEYS),
        "conversations of other tenants with the same id are found",
    ),
    _scope(
        _CONVERSATIONS_SQL,
        _KEYS,
        _KEY_LOOKUP.sub(r"\1 s.tenant = ? AND ? <> ''", _KEYS),
        "conversations of other spaces with the same id are found",
    ),
    _scope(
        _CONVERSATIONS_SQL,
        _STATE,
        _STATE.replace("s.tenant = ?", "? <> ''"),
        "the state of another tenant's conversation is read",
    ),
    _scope(
        _REVIEWS,
        '"s.tenant = ? AND s.name = ?", [tenant, space]\n        for',
        "\"s.tenant = ? AND ? <> ''\", [tenant, space]\n        for",
        "reviews of other spaces are listed",
    ),
    _scope(
        _REVIEWS,
        '"s.tenant = ? AND s.name = ?", [tenant, space]\n        for',
        "\"? <> '' AND s.name = ?\", [tenant, space]\n        for",
        "reviews of other tenants are listed",
    ),
    _scope(
        _REVIEWS,
        "{_SELECT} WHERE r.tenant = ? AND r.id = ?",
        "{_SELECT} WHERE ? <> '' AND r.id = ?",
        "a review of another tenant is found by its id",
    ),
    _scope(
        "space/reviews.py",
        "row is None or (space != row.space and space not in row.spaces)",
        "row is None",
        "a review of another space is shown",
    ),
    _scope(
        _REVIEWS,
        'return ("u.tenant = ?", [tenant]) if',
        "return (\"? <> ''\", [tenant]) if",
        "the token usage of other tenants is listed",
    ),
    _scope(
        _REVIEWS,
        'else ("s.tenant = ? AND s.name = ?", [tenant, space])',
        "else (\"s.tenant = ? AND ? <> ''\", [tenant, space])",
        "the token usage of other spaces is listed",
    ),
    _scope(
        _JOBS,
        '(["j.tenant = ?"], [tenant])',
        "([\"? <> ''\"], [tenant])",
        "the waiting jobs of other tenants are counted and retried",
    ),
    _scope(
        _FORGET,
        'selected = f"SELECT {_VERSION} FROM entry AS e WHERE e.space_key = ? AND',
        'selected = f"SELECT {_VERSION} FROM entry AS e WHERE e.space_key <> -? AND',
        "forgetting a conversation erases those of other spaces with the same id",
    ),
    _scope(
        _FORGET,
        'f"SELECT key FROM conversation WHERE space_key = ? AND',
        'f"SELECT key FROM conversation WHERE space_key <> -? AND',
        "forgetting a conversation erases the state of others with the same id",
    ),
    _scope(
        _FORGET,
        _TIMELINE,
        _TIMELINE.replace("space_key = ?", "space_key <> -?"),
        "forgetting a conversation erases events of other spaces",
    ),
    _scope(
        _FORGET,
        _OF_REVIEWS,
        _OF_REVIEWS.replace("space_key = ?", "space_key <> -?"),
        "forgetting a conversation erases the reviews of other spaces",
    ),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`caught` is the first broken promise that the lab reported; `problem` says why there is none."""

    caught: str = ""
    problem: str = ""


def try_mutant(mutant: Fault) -> Verdict:
    """Runs a short seed of the lab on a copy of the source with this change."""
    try:
        content = mutant.apply(SOURCE)
    except LookupError as error:
        return Verdict(problem=f"NOT APPLIED: {error}")
    with source_copy() as copy:
        (copy / PACKAGE / mutant.file).write_text(content, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(copy), str(ROOT)])}
        command = [sys.executable, "-m", "lab.isolation", *_SHORT, "--results", str(copy / "results.jsonl")]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_RUN_SECONDS_MAX, check=False
        )
    if done.returncode == 0:
        return Verdict(problem="SURVIVED")
    reported = [line.strip() for line in done.stderr.splitlines() if line.startswith("    ")]
    if "BROKEN" not in done.stderr or not reported:
        return Verdict(problem=f"NOT TESTED: {done.stderr.strip().splitlines()[-1:]}")
    return Verdict(caught=reported[0])


def try_mutants(seed: int) -> Outcome:
    """Every mutant in turn. One that the lab does not notice is a broken promise."""
    outcome = Outcome(seed)
    for number, mutant in enumerate(MUTANTS, 1):
        began = time.monotonic()
        verdict = try_mutant(mutant)
        outcome.counts["mutants caught"] += bool(verdict.caught)
        if verdict.problem:
            outcome.broken.append(f"{mutant.effect}: {verdict.problem}")
        said = verdict.problem or verdict.caught[:120]
        print(f"{number:3} {time.monotonic() - began:4.0f} s  {mutant.effect}: {said}", file=sys.stderr, flush=True)
    return outcome
