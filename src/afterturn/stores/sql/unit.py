"""One transaction's repositories over one session."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from afterturn.stores.sql.entries import Entries
from afterturn.stores.sql.sealing import Sealer, check_keys, mark_sealed

if TYPE_CHECKING:
    from afterturn.ports import Unit
    from afterturn.stores.keys import KeyRing
    from afterturn.stores.sql.conversations import SqlConversations, SqlRecalls
    from afterturn.stores.sql.index import SqlIndex
    from afterturn.stores.sql.jobs import SqlJobs
    from afterturn.stores.sql.memories import SqlMemories
    from afterturn.stores.sql.operations import SqlOperations
    from afterturn.stores.sql.records import SqlRecords
    from afterturn.stores.sql.reviews import SqlReviews, SqlUsage
    from afterturn.stores.sql.session import Session, TextIndex
    from afterturn.stores.sql.timeline import SqlTimeline

P = ParamSpec("P")
R = TypeVar("R")


def _repository(file: str, name: str) -> Any:
    return cached_property(lambda unit: getattr(import_module(f"afterturn.stores.sql.{file}"), name)(unit._entries))


class SqlUnit:
    """The `Unit` port in SQL. The engine calls `flush` after the work, before the commit.

    A repository is loaded and created when it is first used: most units need one or two, and a hook needs one.
    """

    def __init__(self, session: Session, text: TextIndex, keys: KeyRing | None = None) -> None:
        self.session = session
        self.text = text
        self.sealer = None if keys is None else Sealer(session, keys)
        self._entries = Entries(session, text, self.sealer)
        self.check = session.check

    memories: SqlMemories = _repository("memories", "SqlMemories")
    records: SqlRecords = _repository("records", "SqlRecords")
    operations: SqlOperations = _repository("operations", "SqlOperations")
    index: SqlIndex = _repository("index", "SqlIndex")
    jobs: SqlJobs = _repository("jobs", "SqlJobs")
    conversations: SqlConversations = _repository("conversations", "SqlConversations")
    recalls: SqlRecalls = _repository("conversations", "SqlRecalls")
    timeline: SqlTimeline = _repository("timeline", "SqlTimeline")
    reviews: SqlReviews = _repository("reviews", "SqlReviews")
    usage: SqlUsage = _repository("reviews", "SqlUsage")

    def flush(self) -> None:
        self._entries.flush()


# Units of work about the keys of a sealed store


def settle_keys(unit: Unit, *, keys: KeyRing | None, name: str) -> None:
    """When a store is opened: seals a new one, and refuses one that does not fit."""
    session = sql_session(unit)
    check_keys(session, keys, name)
    if keys is not None:
        mark_sealed(session)


def in_session(work: Callable[Concatenate[Session, P], R], *values: P.args, **named: P.kwargs) -> Callable[[Unit], R]:
    """A unit of work that calls `work` with its session and these values."""
    return lambda unit: work(sql_session(unit), *values, **named)


def load_store_key(unit: Unit) -> str:
    """The id of the store's own key, which is made if it has none yet, and loaded."""
    assert isinstance(unit, SqlUnit)
    assert unit.sealer is not None
    return unit.sealer.store.key_id


def sql_session(unit: Unit) -> Session:
    assert isinstance(unit, SqlUnit)
    return unit.session
